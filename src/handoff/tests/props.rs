//! For any labels, records, marks, phases and pods: no panic, no act under an unknown version, nothing taken away under a claimant, and the
//! same facts give the same decision.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::world::{GPU, RESOURCE};
use crate::{
    api::{
        Phase,
        handoff::{HandoffAction, NodeCopy, Reason, Run},
        keys::{DesiredBy, FINALIZER, LoaderBoot, Mark, Role},
    },
    fleet::{build::*, records::Deletion, view::FleetView},
    handoff::{
        action::{Action, NodeChange, Op},
        decide::decide_fleet,
        ending,
        facts::Context,
        observed::Observed,
    },
};

fn version() -> impl Strategy<Value = Option<&'static str>> {
    prop_oneof![4 => Just(None), 4 => Just(Some("1")), 4 => Just(Some("2")), 1 => Just(Some("")), 1 => Just(Some("tpyo"))]
}

#[derive(Debug, Clone)]
struct Story {
    labels: [Option<&'static str>; 4],
    record: Option<(&'static str, bool)>,
    nonce: bool,
    mark: Option<(DesiredBy, u32, bool)>,
    cordon: u8,
    ready: bool,
    allocatable: i64,
    pods: [bool; 6],
    claimants: u8,
    handoff: Option<(usize, Option<&'static str>, u8, u32)>,
    run: bool,
    deleted: bool,
    slot: bool,
    reason: u8,
    garbage: bool,
}

fn story() -> impl Strategy<Value = Story> {
    let first = (
        [version(), version(), version(), version()],
        proptest::option::of((prop_oneof![Just("1"), Just("2")], any::<bool>())),
        any::<bool>(),
        proptest::option::of((
            prop_oneof![Just(DesiredBy::Kept), Just(DesiredBy::Removed), Just(DesiredBy::Set)],
            1u32..3,
            any::<bool>(),
        )),
        0u8..4,
        proptest::bool::weighted(0.85),
        prop_oneof![Just(0i64), Just(4)],
        any::<[bool; 6]>(),
    );
    let second = (
        0u8..4,
        proptest::option::of((0usize..16, version(), 0u8..4, 1u32..3)),
        proptest::bool::weighted(0.8),
        proptest::bool::weighted(0.1),
        any::<bool>(),
        0u8..6,
        proptest::bool::weighted(0.05),
    );
    (first, second).prop_map(
        |(
            (labels, record, nonce, mark, cordon, ready, allocatable, pods),
            (claimants, handoff, run, deleted, slot, reason, garbage),
        )| {
            Story {
                labels,
                record,
                nonce,
                mark,
                cordon,
                ready,
                allocatable,
                pods,
                claimants,
                handoff,
                run,
                deleted,
                slot,
                reason,
                garbage,
            }
        },
    )
}

fn fleet_of(it: &Story) -> FleetBuilder {
    let mut node = node("n1").ready(it.ready).allocatable(RESOURCE, it.allocatable).renewed(at(95));
    for (role, value) in [Role::Desired, Role::Loader, Role::Plugin, Role::Ready].into_iter().zip(it.labels) {
        if let Some(value) = value {
            node = node.role(role, GPU, value);
        }
    }
    node = match it.record {
        Some((version, true)) => node.stopped(GPU, version, "boot-1"),
        Some((version, false)) => node.loaded(GPU, version),
        None => node,
    };
    if it.garbage {
        node = node.annotation(&Role::Loaded.key(&key(GPU)), "{not json");
    }
    if it.nonce {
        node = node.role(Role::Nonce, GPU, "abc");
    }
    if let Some((desired, attempt, boot)) = it.mark {
        let boot = boot.then(|| LoaderBoot { id: "boot-1".into(), since: at(-2000).to_string() });
        node = node.mark(GPU, &Mark { uid: "uid-NodeHandoff-ns/gpu.n1".into(), attempt, epoch: 1, desired, boot });
    }
    node = match it.cordon {
        0 => node,
        1 => node.cordoned_for(GPU),
        2 => node.cordoned_by("kubectl"),
        _ => node.cordoned_for(GPU).cordoned_by("kubectl"),
    };
    let mut fleet = fleet().with(component(GPU).version("2").made("1").made("2").finalizer(FINALIZER)).with(node);
    let own = [
        loader_pod(GPU, "1", "n1"),
        loader_pod(GPU, "2", "n1"),
        plugin_pod(GPU, "1", "n1"),
        plugin_pod(GPU, "2", "n1"),
        unload_pod(GPU, "1", "n1", "abc").exited(0, "", at(10)),
        unload_pod(GPU, "2", "n1", "xyz"),
    ];
    for (pod, there) in own.into_iter().zip(it.pods) {
        if there {
            fleet.put(pod);
        }
    }
    for n in 0..it.claimants {
        let claimant =
            pod(&format!("shop/train-{n}")).on("n1").claims(RESOURCE, 1).owned_by("ReplicaSet", "train").created(at(-500));
        fleet.put(if n == 2 { claimant.terminating(at(130)) } else { claimant });
    }
    if let Some((phase, to, action, attempt)) = it.handoff {
        let actions = [HandoffAction::Run, HandoffAction::Hold, HandoffAction::Abort, HandoffAction::Leave];
        let words = ["", ending::GIVING_BACK, ending::AWAITING_CHOICE, ending::OUT_OF_SERVICE, ending::PAUSED, ending::HOLD];
        let run = Run {
            attempt: 1,
            target: to.map(str::to_owned),
            from: Some("1".into()),
            desired: Some("1".into()),
            aim: Some("2".into()),
            policy: Default::default(),
            baseline: [(RESOURCE.to_owned(), 4)].into(),
            node_uid: "uid-Node-n1".into(),
            boot_id: "boot-1".into(),
            epoch: 1,
            started_at: at(0).to_string(),
            by_label: false,
            resumed: false,
            kmm_config: None,
        };
        let word = words[usize::from(it.reason)];
        let record = handoff(GPU, "n1").phase(Phase::ALL[phase], at(90)).spec(|spec| {
            spec.version = to.filter(|it| !it.is_empty()).map(str::to_owned);
            spec.action = actions[usize::from(action)];
            spec.attempt = attempt;
        });
        let record = record.status(|status| {
            status.run = it.run.then_some(run);
            status.copy = Some(NodeCopy { desired: to.map(str::to_owned), loaded: Some(r#"{"version":"1"}"#.into()) });
            status.reason = (!word.is_empty()).then(|| Reason { word: word.into(), message: word.into() });
        });
        fleet.put(record.but(|record| {
            if it.deleted {
                record.meta.deletion = Some(Deletion { at: at(80), grace: 0 });
            }
        }));
    }
    fleet.put(if it.slot { lease("me").slot("n1", GPU) } else { lease("me") });
    fleet
}

fn decided(view: &FleetView, observed: &Observed) -> Vec<Action> {
    let context = Context { lease_held: true, epoch: 1, identity: "me".into(), cluster_max_unavailable: 1, read_only: false };
    let decisions = decide_fleet(view, observed, &context, None, &BTreeSet::new());
    let again = decide_fleet(view, observed, &context, Some(decisions.clone()), &BTreeSet::new());
    assert_eq!(decisions.iter().collect::<Vec<_>>(), again.iter().collect::<Vec<_>>(), "the same facts, the same decisions");
    decisions.actions().map(|(_, action)| action.clone()).collect()
}

fn role_changes(action: &Action) -> Vec<(Role, Option<String>)> {
    let Op::PatchNode(patch) = &action.op else { return Vec::new() };
    let of = |change: &NodeChange| match change {
        NodeChange::Label { key, value } | NodeChange::Annotation { key, value } => Some((Role::parse(key)?.0, value.clone())),
        NodeChange::Unschedulable(_) => None,
    };
    patch.changes.iter().filter_map(of).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn whatever_the_facts_are(it in story()) {
        let mut fleet = fleet_of(&it);
        let early = fleet.project(at(0));
        let mut observed = Observed::default();
        observed.observe(&early);
        let view = fleet.project(at(100));
        observed.observe(&view);
        let actions = decided(&view, &observed);
        let plugin_there = it.pods[2] || it.pods[3];
        for action in &actions {
            prop_assert!(!action.why.is_empty());
            if let Op::CreatePod(_) = action.op {
                prop_assert!(it.claimants == 0 && !plugin_there, "unload pod under use: {}", action.why);
            }
            for (role, value) in role_changes(action) {
                if role == Role::Loader && value.is_none() {
                    prop_assert!(it.claimants == 0 && !plugin_there && it.labels[2].is_none(), "loader off under use: {}", action.why);
                }
                if role == Role::Plugin && value.is_none() {
                    prop_assert!(it.claimants == 0, "plugin off under use: {}", action.why);
                }
                if role == Role::Plugin && value.is_some() {
                    prop_assert!(it.labels[1] == value.as_deref() && it.record.is_some_and(|(loaded, _)| Some(loaded) == value.as_deref()));
                }
                if role == Role::Loader && value.is_some() {
                    prop_assert!(it.labels[1].is_none() && it.record.is_none_or(|(loaded, _)| Some(loaded) == value.as_deref()), "{}", action.why);
                    prop_assert!(!it.pods[5], "beside an unload pod: {}", action.why);
                }
                let typo = matches!(it.labels[0], Some("" | "tpyo")) || it.garbage;
                if typo && matches!(role, Role::Loader | Role::Plugin | Role::Nonce) {
                    prop_assert!(false, "rule 0: {}", action.why);
                }
            }
        }
    }
}
