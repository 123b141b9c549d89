//! What people and scripts read, from pictures made by hand.

use insta::assert_snapshot;

use super::{
    plan, progress, sample,
    sample::{Sample, gpu},
    status,
};
use crate::{
    api::Phase,
    cli::Exit,
    console::plan::{NodePlan, Plan, PodPlan, StepPlan},
    fleet::view::{ClaimantClass, WatchState},
    handoff::{
        plan::Write,
        verdict::{BlockerKind, ObjectRef},
    },
};

fn fleet() -> Sample {
    Sample::new()
        .node("n1", "2.0")
        .node("n2", "1.0")
        .node("n3", "1.0")
        .node("n10", "1.0")
        .handoff("n1", "2.0", Phase::Done)
        .handoff("n2", "2.0", Phase::Draining)
        .claimant("n2", "train-0", ClaimantClass::Evictable)
        .waits(
            "n2",
            Phase::Draining,
            BlockerKind::DisruptionBudget,
            ObjectRef::new("PodDisruptionBudget", "work/train"),
            "needs 2 healthy, has 2, may lose 0",
        )
        .handoff("n3", "2.0", Phase::Queued)
}

#[test]
fn status_tells_where_each_node_is_in_the_order_of_the_queue() {
    assert_snapshot!(status::table(&status::report(&fleet().picture(), None), false));
}

#[test]
fn status_wide_tells_why() {
    assert_snapshot!(status::table(&status::report(&fleet().picture(), None), true));
}

#[test]
fn status_json_has_stable_names() {
    let report = status::report(&fleet().picture(), Some(&gpu()));
    assert_snapshot!(super::json(&report).unwrap());
}

#[test]
fn status_shows_what_the_engine_that_acts_waits_for_and_not_what_an_onlooker_would() {
    let sample = || {
        let blind = ObjectRef::new("Node", "n1");
        Sample::new().node("n1", "1.0").handoff("n1", "2.0", Phase::Draining).waits(
            "n1",
            Phase::Draining,
            BlockerKind::Stabilising,
            blind,
            "judged anew",
        )
    };
    let budget =
        |sample: Sample| sample.recorded("n1", BlockerKind::DisruptionBudget, "PodDisruptionBudget work/train", "may lose 0");
    let mut picture = budget(sample()).picture();
    let shown = |picture: &crate::engine::picture::Picture| {
        let report = status::report(picture, None);
        let blocker = report.nodes[0].blocker.clone().unwrap();
        (blocker.kind, blocker.message, blocker.since.unwrap(), report.components[0].blocked)
    };
    let recorded = ("DisruptionBudget".to_owned(), "may lose 0".to_owned(), "2026-03-01T11:59:30Z".to_owned(), 1);
    assert_eq!(shown(&picture), recorded);
    picture.leadership.holder = None;
    assert_eq!(shown(&picture).0, "Stabilising", "nobody acts: what was written is history");
    picture.leadership = crate::engine::picture::LeadershipView { holder: Some("me".into()), ours: true, ..Default::default() };
    assert_eq!(shown(&picture).1, "judged anew", "this process acts: its verdict is newer");
    assert_eq!(shown(&sample().picture()).0, "Stabilising", "nothing is written down");
}

#[test]
fn status_counts_as_the_component_does() {
    let picture = Sample::new()
        .node("n1", "2.0")
        .node("n2", "1.0")
        .handoff("n2", "2.0", Phase::Aborted)
        .node("ghost", "1.0")
        .handoff("ghost", "2.0", Phase::Queued)
        .absent("ghost")
        .picture();
    let report = status::report(&picture, None);
    let counts = &report.components[0];
    assert_eq!((counts.nodes, counts.current, counts.queued, counts.failed), (2, 1, 1, 0), "{counts:?}");
    let table = status::table(&report, true);
    assert!(table.lines().any(|line| line.starts_with("ghost ") && line.contains(" absent")), "{table}");
    assert!(!table.contains("NotReady"), "{table}");
}

#[test]
fn status_of_another_component_is_empty() {
    let report = status::report(&fleet().picture(), Some(&crate::api::ComponentKey::new("a", "b")));
    assert!(report.components.is_empty() && report.nodes.is_empty());
}

#[test]
fn status_yaml_reads_back() {
    let report = status::report(&fleet().picture(), None);
    let read: serde_json::Value = serde_saphyr::from_str(&super::yaml(&report).unwrap()).unwrap();
    assert_eq!(read, serde_json::to_value(&report).unwrap());
}

#[test]
fn what_a_cluster_says_is_never_obeyed_by_a_terminal() {
    let evil = "\u{1b}[2J\u{9b}31m\u{7}\r\u{202e}x";
    let picture = Sample::new()
        .node("n1", evil)
        .handoff("n1", "2.0", Phase::Draining)
        .waits("n1", Phase::Draining, BlockerKind::Terminating, ObjectRef::new("Pod", evil), evil)
        .picture();
    let report = status::report(&picture, None);
    let mut progress = progress::Progress::of(vec![asked("n1")]);
    let news = progress.news(&picture).join("\n");
    let planned = plan::text(&plan::report(evil, evil, evil, &a_plan(&[evil], evil)));
    for text in [
        status::table(&report, true),
        super::json(&report).unwrap(),
        super::yaml(&report).unwrap(),
        news,
        progress.line(&picture),
        planned,
    ] {
        let acts: Vec<char> = text.chars().filter(|c| (c.is_control() && *c != '\n') || *c == '\u{202e}').collect();
        assert!(acts.is_empty(), "{acts:?} in {text}");
    }
}

fn step(phase: Phase, does: &'static str, changes: &[(&str, String)]) -> StepPlan {
    let write = |(object, change): &(&str, String)| Write { phase, object: (*object).to_owned(), change: change.clone() };
    StepPlan { phase, does, changes: changes.iter().map(write).collect() }
}

fn a_plan(refusals: &[&str], evil: &str) -> Plan {
    let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
    let pod = PodPlan {
        name: format!("work/train-0{evil}"),
        uid: "u".into(),
        why: "holds 2 vendor.example/gpu".into(),
        what: "evicted".into(),
        stays: false,
    };
    let node = NodePlan {
        node: "n2".into(),
        from: Some("1.0".into()),
        pods: vec![pod],
        budgets: vec!["work/train: 2 healthy, 2 needed, 0 may go of 2".into()],
        steps: vec![
            step(Phase::Cordoning, "closes the node to new pods", &[("Node n2", format!("spec.unschedulable=true{evil}"))]),
            step(Phase::Draining, "evicts 1 claimant", &[]),
            step(
                Phase::Unloading,
                "waits for KMM",
                &[
                    ("Pod drv/kmm-worker-n2-mod", "KMM's Unload pod (awaited: it must succeed)".to_owned()),
                    ("NodeModulesConfig n2", "KMM takes its entry of drv/mod off (awaited: the proof)".to_owned()),
                ],
            ),
        ],
        refusals: words(refusals),
        warnings: vec![format!("image x is not there yet{evil}")],
        lost: false,
    };
    Plan { nodes: vec![node], refusals: Vec::new(), warnings: Vec::new() }
}

#[test]
fn a_plan_lists_pods_and_steps() {
    let report = plan::report("context lab", "kmods/gpu", "2.0", &a_plan(&[], ""));
    assert!(!report.refused);
    assert_snapshot!(plan::text(&report));
    let json: serde_json::Value = serde_json::from_str(&super::json(&report).unwrap()).unwrap();
    assert_eq!(
        json["nodes"][0]["changes"][1],
        serde_json::json!({"phase": "Unloading", "object": "Pod drv/kmm-worker-n2-mod", "change": "KMM's Unload pod (awaited: it must succeed)"})
    );
    assert_eq!(json["nodes"][0]["steps"][2], "Unloading: waits for KMM");
}

#[test]
fn a_refused_plan_gives_every_reason_at_once() {
    let report = plan::report(
        "context lab",
        "kmods/gpu",
        "2.0",
        &a_plan(&["Pod work/static is static", "Pod work/bare has no controller"], ""),
    );
    assert!(report.refused);
    assert_snapshot!(plan::refusals(&report));
}

fn asked(node: &str) -> progress::Asked {
    progress::Asked { component: gpu(), node: node.into(), attempt: Some(1) }
}

#[test]
fn progress_says_each_thing_once_and_ends_when_all_are_done() {
    let mut progress = progress::Progress::of(vec![asked("n1"), asked("n2")]);
    let start = Sample::new().node("n1", "1.0").node("n2", "1.0");
    assert_eq!((progress.news(&start.picture()),), (Vec::new(),), "nothing seen yet");

    let running = || {
        Sample::new()
            .node("n1", "1.0")
            .node("n2", "1.0")
            .handoff("n1", "2.0", Phase::Draining)
            .waits("n1", Phase::Draining, BlockerKind::Terminating, ObjectRef::new("Pod", "work/a"), "ends in 20s")
            .handoff("n2", "2.0", Phase::Queued)
            .picture()
    };
    assert_eq!(progress.news(&running()), ["12:00:00 n1 Draining: Terminating Pod work/a: ends in 20s", "12:00:00 n2 Queued"]);
    assert_eq!(progress.news(&running()), Vec::<String>::new());
    assert_eq!(progress.line(&running()), "0 of 2 done; n1 Draining: Terminating Pod work/a: ends in 20s (40s)");
    assert_eq!(progress.end(&running()), None);

    let done = Sample::new()
        .node("n1", "2.0")
        .node("n2", "2.0")
        .handoff("n1", "2.0", Phase::Done)
        .handoff("n2", "2.0", Phase::Done)
        .picture();
    assert_eq!(progress.news(&done), ["12:00:00 n1 Done, runs 2.0", "12:00:00 n2 Done, runs 2.0"]);
    assert_eq!((progress.end(&done), progress.advice(&done)), (Some(Exit::Done), Vec::new()));
}

#[test]
fn the_end_of_an_older_attempt_is_not_taken_for_the_new_one() {
    let progress = |attempt| progress::Progress::of(vec![progress::Asked { attempt: Some(attempt), ..asked("n1") }]);
    let picture = Sample::new().node("n1", "1.0").handoff_of("n1", "2.0", Phase::Failed, 2, 1).picture();
    assert_eq!(progress(2).end(&picture), None, "the engine has not taken attempt 2 up");
    assert_eq!(progress(3).end(&picture), None, "the picture is older than what was asked");
    let picture = Sample::new().node("n1", "1.0").handoff_of("n1", "2.0", Phase::Failed, 2, 2).picture();
    assert_eq!(progress(2).end(&picture), Some(Exit::NotAllDone));
}

#[test]
fn what_only_waits_behind_a_failure_is_not_waited_for() {
    let behind = |kind| {
        let picture = Sample::new()
            .node("n1", "1.0")
            .node("n2", "1.0")
            .handoff("n1", "2.0", Phase::Failed)
            .handoff("n2", "2.0", Phase::Queued)
            .waits("n2", Phase::Queued, kind, ObjectRef::default(), "m")
            .picture();
        let progress = progress::Progress::of(vec![asked("n1"), asked("n2")]);
        (progress.end(&picture), progress.advice(&picture).join("\n"))
    };
    assert_eq!(behind(BlockerKind::Soaking).0, None);
    let (end, advice) = behind(BlockerKind::FailureBudgetSpent);
    assert_eq!(end, Some(Exit::NotAllDone));
    assert_snapshot!(advice);
}

#[test]
fn a_hold_is_a_persons_turn() {
    let picture = Sample::new().node("n1", "1.0").handoff("n1", "2.0", Phase::Held).picture();
    assert_eq!(progress::Progress::of(vec![asked("n1")]).end(&picture), Some(Exit::NotAllDone));
}

#[test]
fn a_deleted_handoff_ends_the_wait() {
    let mut progress = progress::Progress::of(vec![asked("n1")]);
    progress.news(&Sample::new().node("n1", "1.0").handoff("n1", "2.0", Phase::Draining).picture());
    let gone = Sample::new().node("n1", "1.0").picture();
    assert_eq!(progress.news(&gone), ["12:00:00 n1 its NodeHandoff was deleted"]);
    assert_eq!(progress.end(&gone), Some(Exit::NotAllDone));
    let _ = sample::now();
}

#[test]
fn a_server_that_does_not_answer_is_named_once_and_so_is_its_return() {
    let mut progress = progress::Progress::of(vec![asked("n1")]);
    let draining = || Sample::new().node("n1", "1.0").handoff("n1", "2.0", Phase::Draining).picture();
    let silent_for = |seconds: i64| {
        let mut picture = draining();
        let fleet = std::sync::Arc::make_mut(&mut picture.fleet);
        let since = fleet.now - jiff::SignedDuration::from_secs(seconds);
        fleet.health = std::sync::Arc::new(vec![crate::fleet::view::WatchHealth {
            resource: "nodes".into(),
            required: true,
            state: WatchState::Retrying { error: "no answer within 5 s".into(), since, next: fleet.now },
            last_event: None,
            objects: 1,
            errors: 1,
            undecodable: Vec::new(),
        }]);
        picture
    };
    assert_eq!(progress.news(&draining()).len(), 1);
    assert_eq!(progress.news(&silent_for(3)), Vec::<String>::new(), "a reconnect is no outage");
    let news = progress.news(&silent_for(7));
    assert_eq!(
        news,
        [
            "12:00:00 the cluster of context lab does not tell what happens (no answer within 5 s); still waiting, the handoffs do not need this command"
        ]
    );
    assert_eq!(progress.end(&silent_for(7)), None, "it goes on waiting");
    assert!(progress.line(&silent_for(40)).starts_with("no news for 40s: 0 of 1 done"), "{}", progress.line(&silent_for(40)));
    assert_eq!(progress.news(&silent_for(20)), Vec::<String>::new(), "said once");
    assert_eq!(progress.news(&draining()), ["12:00:00 the cluster of context lab tells again what happens"]);
}

#[test]
fn g25_skew_of_a_nodeplugin_is_a_count_with_its_age_and_no_failure() {
    use crate::fleet::{build::*, csi::REVISION_HASH};
    let plugin = |node: &str, hash: &str| {
        pod(&format!("ceph/csi-{node}")).owned_by("DaemonSet", "csi").label(REVISION_HASH, hash).on(node)
    };
    let cephfs = component("ceph/cephfs").spec(|spec| {
        spec.version.clear();
        spec.kernel_module = None;
        spec.csi_node_plugin = Some(serde_json::from_value(serde_json::json!({"driver": "cephfs.csi.ceph.com"})).unwrap());
    });
    let mut fleet = fleet()
        .with(cephfs)
        .with(nodeplugin("ceph/csi", "cephfs.csi.ceph.com", "t2"))
        .with(revision("ceph/csi", "one", 1, "t1"))
        .with(revision("ceph/csi", "two", 2, "t2"))
        .with(vec![node("n1"), node("n2")])
        .with(vec![plugin("n1", "one"), plugin("n2", "two")]);
    let view = fleet.project(at(3 * 86_400));
    let key = key("ceph/cephfs");
    let told = super::status::skew(&view, &key, &view.components[&key]).unwrap();
    assert!(told.contains("1 of 2 nodes run two, current for 3d"), "{told}");
    fleet.put(plugin("n1", "two"));
    let view = fleet.project(at(3 * 86_400));
    assert_eq!(super::status::skew(&view, &key, &view.components[&key]), None);
}
