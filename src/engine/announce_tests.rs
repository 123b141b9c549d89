use std::collections::BTreeMap;

use super::*;
use crate::{
    api::handoff::{Ended, Reason, Run, RunPolicy, Step},
    cluster::Written,
    engine::{
        execute::Done,
        picture::{LeadershipView, Mode},
    },
    fleet::build::*,
    handoff::{
        action::{Evidence, PodRef},
        verdict::{ObjectRef, Wait},
    },
};

const GPU: &str = "drivers/gpu";

fn world() -> FleetBuilder {
    fleet()
        .with(component(GPU).version("2").made("1").made("2"))
        .with(node("n1").runs(GPU, "1"))
        .with(pod("shop/train-0").on("n1").claims("vendor.com/gpu", 1).owned_by("ReplicaSet", "train"))
}

fn step(phase: Phase, from: i64, to: Option<i64>) -> Step {
    Step { phase, started_at: at(from).to_string(), finished_at: to.map(|to| at(to).to_string()) }
}

fn run() -> Run {
    serde_json::from_value(serde_json::json!({
        "attempt": 1, "target": "2", "from": "1", "policy": RunPolicy::default(), "nodeUid": "u", "bootId": "b", "epoch": 1,
        "startedAt": at(0).to_string(),
    }))
    .unwrap()
}

fn picture(fleet: &mut FleetBuilder, now: i64, verdicts: Vec<(Subject, Verdict)>) -> Picture {
    Picture {
        fleet: fleet.project(at(now)),
        verdicts: verdicts.into_iter().collect::<BTreeMap<_, _>>().into(),
        leadership: LeadershipView { ours: true, ..LeadershipView::default() },
        ..Picture::empty(Default::default(), Mode::Engine)
    }
}

fn told(old: &Picture, new: &Picture) -> Vec<String> {
    let all = moments(old, new).into_iter().chain(lasting(old, new));
    all.map(|it| format!("{} {} {:?} {}: {}", it.regarding.kind, it.regarding.name, it.severity, it.reason, it.note)).collect()
}

fn waiting(kind: BlockerKind, since: i64) -> Vec<(Subject, Verdict)> {
    let blocker = Blocker {
        kind,
        object: ObjectRef::new("Pod", "shop/train-0"),
        message: "budget db needs 2, has 2".into(),
        since: at(since),
    };
    let wait = Wait {
        phase: Phase::Draining,
        since: at(since),
        blockers: vec![blocker],
        recheck: None,
        next: "the plugin is stopped".into(),
    };
    vec![(Subject::Occupancy { component: key(GPU), node: "n1".into() }, Verdict::Wait(wait))]
}

#[test]
fn a_handoff_is_told_from_its_start_to_its_end() {
    let mut fleet = world();
    fleet.put(handoff(GPU, "n1").phase(Phase::Queued, at(0)));
    let queued = picture(&mut fleet, 0, Vec::new());
    fleet.put(handoff(GPU, "n1").phase(Phase::Draining, at(9)).status(|status| {
        status.run = Some(run());
        status.steps =
            vec![step(Phase::Preflight, 5, Some(7)), step(Phase::Cordoning, 7, Some(9)), step(Phase::Draining, 9, None)];
    }));
    let draining = picture(&mut fleet, 10, Vec::new());
    let journey = "drivers/gpu from 1 to 2 on node n1, attempt 1";
    assert_eq!(
        told(&queued, &draining),
        [
            format!("Node n1 Normal HandoffStarted: NodeHandoff drivers/gpu.n1 begins: {journey}"),
            format!("NodeHandoff gpu.n1 Normal Preflight: Preflight: {journey}"),
            format!("NodeHandoff gpu.n1 Normal Cordoning: Cordoning: {journey}"),
            format!("NodeHandoff gpu.n1 Normal Draining: Draining: {journey}"),
        ]
    );
    assert_eq!(told(&draining, &draining), Vec::<String>::new());
    fleet.put(handoff(GPU, "n1").phase(Phase::Failed, at(99)).status(|status| {
        status.run = Some(run());
        status.steps = vec![step(Phase::Draining, 9, Some(99))];
        let reason = Reason { word: "DeadlineExceeded".into(), message: "Draining took longer than 15m".into() };
        status.reason = Some(reason.clone());
        status.history = vec![Ended {
            attempt: 1,
            target: Some("2".into()),
            phase: Phase::Failed,
            reason: Some(reason),
            at: at(99).to_string(),
        }];
    }));
    let failed = picture(&mut fleet, 100, Vec::new());
    let why = format!("Failed: {journey}: DeadlineExceeded: Draining took longer than 15m");
    assert_eq!(
        told(&draining, &failed),
        [
            format!("NodeHandoff gpu.n1 Warning HandoffFailed: {why}"),
            format!("Node n1 Warning HandoffFailed: NodeHandoff drivers/gpu.n1: {why}"),
        ]
    );
}

#[test]
fn an_accepted_eviction_is_told_on_its_pod_and_a_refused_one_is_not() {
    let mut fleet = world();
    fleet.put(pod("shop/train-1").on("n1").claims("vendor.com/gpu", 2).owned_by("ReplicaSet", "train"));
    fleet.put(handoff(GPU, "n1").phase(Phase::Draining, at(9)).status(|status| status.run = Some(run())));
    let view = fleet.project(at(10));
    let subject = Subject::Occupancy { component: key(GPU), node: "n1".into() };
    let done = |name: &str, written| Done {
        pod: Some(PodRef { key: key(name), uid: format!("uid-Pod-{name}").as_str().into(), resource_version: "1".into() }),
        written,
    };
    let results = vec![
        done("shop/train-0", Written::Applied(None)),
        done("shop/train-1", Written::Conflict { message: String::new() }),
        done("shop/newer", Written::Applied(None)),
    ];
    let told = |op, results| -> Vec<String> {
        let action = Action { op, evidence: Evidence::Fresh, why: String::new() };
        let told = evicted(&view, &subject, &action, &Executed { results });
        told.iter().map(|it| format!("{}: {}", it.regarding.name, it.note)).collect()
    };
    let of = "for NodeHandoff drivers/gpu.n1 (drivers/gpu from 1 to 2 on node n1, attempt 1).";
    let first = format!("train-0: evicted {of} The pod holds 1 of vendor.com/gpu.");
    assert_eq!(told(Op::Evict { pods: Vec::new(), grace_seconds: None }, results), [first, format!("newer: evicted {of}")]);
    let loader = done("drivers/gpu-loader-1", Written::Applied(None));
    assert_eq!(told(Op::DeletePod(loader.pod.clone().unwrap()), vec![loader]), Vec::<String>::new());
}

#[test]
fn a_process_that_begins_tells_nothing_again() {
    let mut fleet = world();
    fleet.put(handoff(GPU, "n1").phase(Phase::Failed, at(99)));
    let failed = picture(&mut fleet, 100, waiting(BlockerKind::UnloadFailed, 0));
    let empty = Picture::empty(Default::default(), Mode::Engine);
    assert_eq!(told(&empty, &failed), Vec::<String>::new());
}

#[test]
fn a_handoff_made_again_under_its_name_is_another() {
    let mut fleet = world();
    fleet.put(handoff(GPU, "n1").phase(Phase::Draining, at(0)).status(|it| it.steps = vec![step(Phase::Draining, 0, None)]));
    let old = picture(&mut fleet, 1, Vec::new());
    fleet.put(handoff(GPU, "n1").phase(Phase::Draining, at(0)).but(|it| {
        it.meta.uid = "other".into();
        it.status.steps = vec![step(Phase::Draining, 0, None)];
    }));
    let new = picture(&mut fleet, 2, Vec::new());
    let changed: Vec<_> =
        changed(&old.fleet, &new.fleet).map(|(before, after)| (before.is_some(), after.key.to_string())).collect();
    assert_eq!(changed, [(false, "drivers/gpu.n1".to_owned())]);
}

#[test]
fn a_blocker_that_lasts_is_told_at_its_marks_only() {
    let mut fleet = world();
    fleet.put(handoff(GPU, "n1").phase(Phase::Draining, at(0)));
    let mut last = picture(&mut fleet, 0, waiting(BlockerKind::DisruptionBudget, 0));
    let mut marks = Vec::new();
    for now in (5..=4000).step_by(5) {
        let next = picture(&mut fleet, now, waiting(BlockerKind::DisruptionBudget, 0));
        let told = told(&last, &next);
        if !told.is_empty() {
            marks.push((now, told.join("\n")));
        }
        last = next;
    }
    let note = "NodeHandoff gpu.n1 Warning DisruptionBudget: budget db needs 2, has 2. Next: the plugin is stopped";
    let expected: Vec<_> = [60, 600, 3600].map(|now| (now, note.to_owned())).into();
    assert_eq!(marks, expected);
}

#[test]
fn what_only_a_person_can_end_is_told_at_once_and_a_turn_in_the_queue_never() {
    let mut fleet = world();
    let before = picture(&mut fleet, 100, Vec::new());
    let unknown = picture(&mut fleet, 101, waiting(BlockerKind::UnknownVersion, 101));
    assert_eq!(
        told(&before, &unknown),
        ["Node n1 Warning UnknownVersion: budget db needs 2, has 2. Next: the plugin is stopped"]
    );
    let queued = picture(&mut fleet, 99_999, waiting(BlockerKind::QueuedBehind, 0));
    assert_eq!(told(&before, &queued), Vec::<String>::new());
}

#[test]
fn a_component_that_goes_wrong_is_told_once() {
    let mut fleet = world();
    let before = picture(&mut fleet, 0, Vec::new());
    fleet.put(component("drivers/other").version("1"));
    let refused = picture(&mut fleet, 1, Vec::new());
    let first = told(&before, &refused);
    assert_eq!(first.len(), 2, "{first:#?}");
    assert!(
        first.iter().all(|text| text.starts_with("NodeComponent ") && text.contains("Warning ComponentRefused: ")),
        "{first:#?}"
    );
    fleet.put(component(GPU).version("2").made("1").made("2").rollout(|it| it.paused = true));
    let again = picture(&mut fleet, 2, Vec::new());
    assert_eq!(told(&refused, &again), Vec::<String>::new());
}

#[test]
fn phases_are_measured_when_they_are_left_and_never_twice() {
    let record = |steps: Vec<Step>| handoff(GPU, "n1").status(|it| it.steps = steps).build();
    let before = record(vec![step(Phase::Preflight, 0, Some(2)), step(Phase::Cordoning, 2, None)]);
    let after = record(vec![
        step(Phase::Preflight, 0, Some(2)),
        step(Phase::Cordoning, 2, Some(5)),
        step(Phase::Draining, 5, Some(65)),
        step(Phase::StoppingPlugin, 65, None),
    ]);
    assert_eq!(left(Some(&before), &after), [(Phase::Cordoning, 3.0), (Phase::Draining, 60.0)]);
    assert_eq!(left(Some(&after), &after), []);
    assert_eq!(left(None, &after).len(), 3, "made and got on between two pictures");
    let garbage =
        record(vec![Step { phase: Phase::Draining, started_at: "yesterday".into(), finished_at: Some("today".into()) }]);
    assert_eq!(left(Some(&before), &garbage), []);
}

#[test]
fn nodes_that_lose_their_module_without_a_handoff_are_told_once_and_again_when_it_is_another_thing() {
    let disturbed = |status: &str, reason: &str, message: &str| {
        let condition = crate::api::component::Condition {
            kind: "Disturbed".into(),
            status: status.into(),
            reason: reason.into(),
            message: message.into(),
            last_transition_time: at(0).to_string(),
            observed_generation: None,
        };
        let mut record = component(GPU).version("2").build();
        record.status.conditions = vec![condition];
        crate::fleet::event::Record::Component(record)
    };
    let mut fleet = world();
    let mut seen = |status: &str, reason: &str, message: &str| {
        fleet.put(vec![disturbed(status, reason, message)]);
        picture(&mut fleet, 0, Vec::new())
    };
    let quiet = seen("False", "None", "KMM takes the module from no node by itself");
    let tainted = seen("True", "KeptOut", "1 of 4 nodes lose the module");
    assert_eq!(told(&quiet, &tainted), ["NodeComponent gpu Warning KeptOut: 1 of 4 nodes lose the module"],);
    let more = seen("True", "KeptOut", "3 of 4 nodes lose the module");
    assert_eq!(told(&tainted, &more), Vec::<String>::new(), "counts move");
    let changed = seen("True", "ImageChanged", "4 of 4 nodes lose the module");
    assert_eq!(told(&more, &changed), ["NodeComponent gpu Warning ImageChanged: 4 of 4 nodes lose the module"]);
    let over = seen("False", "None", "KMM takes the module from no node by itself");
    assert_eq!(told(&changed, &over), Vec::<String>::new());
    assert_eq!(told(&over, &tainted).len(), 1, "it has begun anew");
}
