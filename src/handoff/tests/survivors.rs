//! What mutants of the protocol survived until these tests: comparisons of actions, sums, refusals, and who may take what over.

use super::world::*;
use crate::{
    api::{Phase, component::InstallMode, keys::Role},
    fleet::{build::*, records::PodPhase},
    handoff::{
        action::{Action, Evidence, HandoffRef, NodeChange, NodePatch, Op, PodRef},
        tally::{Anomaly, Contribution, Kind, Standing, Tally},
        unload_pod::{Outcome, outcome},
    },
};

fn action(op: Op) -> Action {
    Action { op, evidence: Evidence::Fresh, why: String::new() }
}

fn patch(node: &str, uid: &str, changes: &[(&str, Option<&str>)]) -> Action {
    let change = |(key, value): &(&str, Option<&str>)| NodeChange::Label { key: (*key).into(), value: value.map(str::to_owned) };
    let changes = changes.iter().map(change).collect();
    action(Op::PatchNode(NodePatch { node: node.into(), uid: uid.into(), resource_version: "1".into(), changes }))
}

fn handoff_ref(uid: &str) -> HandoffRef {
    HandoffRef { key: key("ns/gpu.n1"), uid: uid.into(), resource_version: "1".into() }
}

#[test]
fn a_second_look_is_the_same_only_if_every_part_is() {
    let nonce = Role::Nonce.key(&key(GPU));
    let base = patch("n1", "u1", &[("a", Some("1"))]);
    assert!(base.is_same_as(&patch("n1", "u1", &[("a", Some("1"))])));
    assert!(
        patch("n1", "u1", &[(&nonce, Some("x"))]).is_same_as(&patch("n1", "u1", &[(&nonce, Some("y"))])),
        "a nonce may be newer"
    );
    for other in [
        patch("n2", "u1", &[("a", Some("1"))]),
        patch("n1", "u2", &[("a", Some("1"))]),
        patch("n1", "u1", &[("b", Some("1"))]),
        patch("n1", "u1", &[("a", Some("2"))]),
        patch("n1", "u1", &[("a", None)]),
        patch("n1", "u1", &[("a", Some("1")), ("b", None)]),
        patch("n1", "u1", &[]),
    ] {
        assert!(!base.is_same_as(&other), "{other:?}");
    }
    assert!(!patch("n1", "u1", &[(&nonce, Some("x"))]).is_same_as(&patch("n1", "u1", &[(&nonce, None)])));

    let note = |key: &str| {
        let changes = vec![NodeChange::Annotation { key: key.into(), value: Some("x".into()) }];
        action(Op::PatchNode(NodePatch { node: "n1".into(), uid: "u1".into(), resource_version: "1".into(), changes }))
    };
    assert!(note("a").is_same_as(&note("a")) && !note("a").is_same_as(&note("b")));
    let delete = |name: &str, uid: &str| action(Op::DeletePod(PodRef::of(&pod(name).uid(uid).build())));
    assert!(delete("a/b", "u1").is_same_as(&delete("a/b", "u1")));
    assert!(!delete("a/b", "u1").is_same_as(&delete("a/b", "u2")) && !delete("a/b", "u1").is_same_as(&delete("a/c", "u1")));

    let spec = |uid: &str, version: &str, attempt: u32| {
        let record = handoff(GPU, "n1").to(version).spec(|spec| spec.attempt = attempt).build();
        action(Op::PatchHandoffSpec { of: handoff_ref(uid), spec: Box::new(record.spec.unwrap()) })
    };
    assert!(spec("h", "1", 1).is_same_as(&spec("h", "1", 1)));
    for other in [spec("i", "1", 1), spec("h", "2", 1), spec("h", "1", 2)] {
        assert!(!spec("h", "1", 1).is_same_as(&other), "{other:?}");
    }
    let status = |uid: &str, phase: Phase, resume_at: Option<Phase>| {
        let status = handoff(GPU, "n1").status(|it| (it.phase, it.resume_at) = (phase, resume_at)).build().status;
        action(Op::PutHandoffStatus { of: handoff_ref(uid), status: Box::new(status) })
    };
    let held = || status("h", Phase::Held, Some(Phase::Loading));
    assert!(held().is_same_as(&held()));
    for other in [
        status("i", Phase::Held, Some(Phase::Loading)),
        status("h", Phase::Done, Some(Phase::Loading)),
        status("h", Phase::Held, None),
    ] {
        assert!(!held().is_same_as(&other), "{other:?}");
    }
    let finalizer = |uid: &str, present: bool| action(Op::SetHandoffFinalizer { of: handoff_ref(uid), present });
    assert!(finalizer("h", true).is_same_as(&finalizer("h", true)));
    assert!(!finalizer("h", true).is_same_as(&finalizer("i", true)) && !finalizer("h", true).is_same_as(&finalizer("h", false)));
    let create = |name: &str, version: &str| {
        let record = handoff(GPU, "n1").to(version).build();
        action(Op::CreateHandoff { key: key(name), spec: Box::new(record.spec.unwrap()) })
    };
    assert!(create("ns/a", "1").is_same_as(&create("ns/a", "1")));
    assert!(!create("ns/a", "1").is_same_as(&create("ns/b", "1")) && !create("ns/a", "1").is_same_as(&create("ns/a", "2")));
    let component = |uid: &str, present: bool| {
        action(Op::SetComponentFinalizer { key: key(GPU), uid: uid.into(), resource_version: "1".into(), present })
    };
    assert!(component("c", true).is_same_as(&component("c", true)));
    assert!(!component("c", true).is_same_as(&component("d", true)) && !component("c", true).is_same_as(&component("c", false)));
}

fn counted(standing: Standing, change: impl FnOnce(&mut Contribution)) -> Contribution {
    let mut it = Contribution {
        disturbed: Vec::new(),
        stale: Vec::new(),
        unplanned: false,
        ordered_by_label: false,
        component: 0,
        standing,
        returning: None,
        kind: Kind::Ordered,
        selected: true,
        occupied: false,
        runs: None,
        current: false,
        target: None,
        blocked: false,
        under_way: None,
        anomaly: None,
        closed: false,
        foreign: None,
        ended: None,
    };
    change(&mut it);
    it
}

#[test]
fn sums_count_each_thing_once() {
    let mut tally = Tally::default();
    let odd = Anomaly { kind: "LabelGarbage".into(), message: "it makes no sense".into() };
    let (queued, others) = (Standing::Queued { position: None }, Some("not Ready"));
    for it in [
        counted(queued, |it| it.blocked = true),
        counted(queued, |it| it.foreign = others),
        counted(Standing::Running, |it| (it.closed, it.foreign) = (true, others)),
        counted(Standing::Running, |it| it.anomaly = Some(odd.clone())),
        counted(Standing::Failed, |_| {}),
        counted(Standing::Failed, |it| it.kind = Kind::Label),
        counted(Standing::Idle, |it| (it.current, it.occupied, it.runs, it.ended) = (true, true, Some("2".into()), Some(at(5)))),
        counted(Standing::Idle, |it| (it.current, it.occupied, it.runs, it.ended) = (true, true, Some("2".into()), Some(at(3)))),
        counted(Standing::Idle, |it| it.selected = false),
        // Lost and closed by others: counted as lost, and once.
        counted(Standing::Idle, |it| (it.unplanned, it.foreign) = (true, others)),
    ] {
        tally.add(&"n1".into(), &it);
    }
    let counts = (tally.total, tally.current, tally.queued, tally.running, tally.blocked, tally.failed, tally.failures);
    assert_eq!(counts, (9, 2, 2, 2, 1, 2, 1));
    assert_eq!((tally.anomalies["LabelGarbage"].nodes, tally.occupied, tally.foreign.nodes, tally.versions["2"]), (1, 2, 1, 2));
    assert_eq!(tally.last_end, Some(at(5)));
}

#[test]
fn an_unload_pod_that_shows_no_end_of_its_containers_proves_nothing() {
    let pod = || unload_pod(GPU, "1", "n1", "nonce");
    let none = pod().phase(PodPhase::Succeeded).build();
    assert!(matches!(outcome(&none), Outcome::Failed { exit_code: -1, .. }), "{:?}", outcome(&none));
    let waits = pod().waiting("CrashLoopBackOff", "").phase(PodPhase::Succeeded).build();
    assert!(matches!(outcome(&waits), Outcome::Failed { .. }), "{:?}", outcome(&waits));
    assert_eq!(outcome(&pod().exited(0, "", at(0)).build()), Outcome::Unloaded);
    assert!(matches!(
        outcome(&pod().exited(3, "busy", at(0)).phase(PodPhase::Succeeded).build()),
        Outcome::Failed { exit_code: 3, .. }
    ));
}

#[test]
fn the_components_own_budget_holds_where_the_clusters_has_room() {
    let mut world = World::new(&["n1", "n2", "n3"]);
    world.context.cluster_max_unavailable = 3;
    for node in ["n1", "n2", "n3"] {
        world.claimant(&format!("shop/train-{node}"), node);
        world.ask(node, "2");
    }
    for _ in 0..400 {
        world.tick();
        let closed = world.nodes.values().filter(|node| node.unschedulable).count();
        assert!(world.lease.slots.len() <= 1 && closed <= 1, "{:?}", world.lease.slots);
    }
}

#[test]
fn one_grant_at_a_time_since_each_changes_the_lease() {
    let mut world = World::with(
        &["n1", "n2", "n3"],
        component(GPU).version("2").made("1").made("2").rollout(|it| (it.max_unavailable, it.canary) = (3, 0)),
    );
    world.context.cluster_max_unavailable = 3;
    for node in ["n1", "n2", "n3"] {
        world.claimant(&format!("shop/train-{node}"), node);
        world.ask(node, "2");
    }
    let mut most = 0;
    for _ in 0..60 {
        world.decide();
        let admits = world.decisions.actions().filter(|(_, action)| matches!(action.op, Op::Admit(_))).count();
        assert!(admits <= 1, "{admits} at once");
        world.tick();
        most = most.max(world.lease.slots.len());
    }
    assert_eq!(most, 3);
}

#[test]
fn plugin_and_devices_must_stay_good_for_a_while() {
    let mut world = World::new(&["n1"]);
    world.ask("n1", "2");
    world.until_phase("n1", Phase::Verifying);
    world.until("ready", |world| world.label("n1", Role::Ready).is_some());
    world.ticks(5);
    assert_eq!(world.phase("n1"), Phase::Verifying);
    assert_eq!(world.blockers("n1"), ["Stabilising"]);
    world.until_phase("n1", Phase::Done);
}

#[test]
fn a_node_in_somebody_elses_maintenance_is_refused() {
    let mut world = World::new(&["n1"]);
    world.node("n1").taints.push(crate::fleet::records::Taint {
        key: "medik8s.io/drain".into(),
        value: "".into(),
        effect: "NoSchedule".into(),
    });
    world.ask("n1", "2");
    world.ticks(30);
    assert_eq!(world.phase("n1"), Phase::Queued);
    assert!(world.blockers("n1").contains(&"ForeignMaintenance".to_owned()), "{:?}", world.blockers("n1"));
}

#[test]
fn a_held_handoff_forgets_its_reason_when_it_goes_on_and_keeps_daemon_sets_away_meanwhile() {
    let mut world = World::new(&["n1"]);
    world.ask("n1", "2");
    world.spec("n1", |spec| spec.pause_after = vec![Phase::Draining]);
    world.until_phase("n1", Phase::Held);
    for _ in 0..40 {
        world.tick();
        assert_eq!(world.label("n1", Role::Ready), None, "between Draining and Loading");
    }
    world.spec("n1", |spec| spec.pause_after.clear());
    world.until("it goes on", |world| world.phase("n1") != Phase::Held);
    let status = &world.handoff("n1").status;
    assert!(status.reason.is_none() && status.resume_at.is_none(), "{:?} {:?}", status.reason, status.resume_at);
}

#[test]
fn a_cordon_that_somebody_takes_over_in_draining_is_theirs_afterwards() {
    let stuck = || {
        let mut world = World::new(&["n1"]);
        world.claimant("shop/train-0", "n1");
        world.stuck.insert(key("shop/train-0"));
        world.ask("n1", "2");
        world.until_phase("n1", Phase::Draining);
        world.node("n1").annotations.remove(crate::api::keys::CORDON);
        world
    };
    let mut world = stuck();
    world.cordon("n1", "kubectl");
    world.until("written down", |world| world.handoff("n1").status.cordon.as_ref().is_some_and(|cordon| !cordon.ours));
    world.stuck.clear();
    world.until_phase("n1", Phase::Done);
    assert!(world.nodes["n1"].unschedulable);
    // Opened, and with it the annotation gone: that aborts as well.
    let mut world = stuck();
    world.uncordon("n1");
    world.until_phase("n1", Phase::Aborted);
    assert_eq!(world.label("n1", Role::Loader).as_deref(), Some("1"));
}

#[test]
fn what_has_only_lost_its_plugin_is_not_unloaded() {
    let mut world = World::new(&["n1"]);
    world.edit_label("n1", Role::Plugin, None);
    world.edit_label("n1", Role::Ready, None);
    world.ask("n1", "1");
    world.until_phase("n1", Phase::Done);
    assert!(world.runs("n1", "1"));
    assert_eq!(world.count("unload 1"), 0, "{:#?}", world.log);
    assert!(world.handoff("n1").status.steps.iter().all(|step| step.phase != Phase::StoppingPlugin));
}

#[test]
fn nothing_is_installed_by_itself_where_the_policy_says_manual_or_the_node_is_silent() {
    let by_hand = component(GPU).version("2").made("1").made("2").rollout(|it| it.install = InstallMode::Manual);
    let mut world = World::with(&[], by_hand);
    world.add_bare("n1");
    world.ticks(30);
    assert!(world.handoffs.is_empty());
    let mut world = World::new(&[]);
    world.add_bare("n1");
    world.node("n1").ready.status = crate::fleet::records::ReadyStatus::False;
    world.ticks(30);
    assert!(world.handoffs.is_empty());
}
