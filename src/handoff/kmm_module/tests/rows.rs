//! Every combination of KMM's three labels, and that no decision ever writes another label of KMM's.

use super::*;
use crate::kmm::triple::Row;

/// All combinations of the three labels with two versions, and a third for the desired one.
fn all() -> Vec<(&'static str, &'static str, &'static str)> {
    let mut all = Vec::new();
    for desired in ["", "1.0", "2.0"] {
        for worker in ["", "1.0", "2.0"] {
            for schedule in ["", "1.0", "2.0"] {
                all.push((desired, worker, schedule));
            }
        }
    }
    all
}

fn row(node: &NodeBuilder) -> Row {
    Triple::of(&node.clone().build().labels, &module_key()).row()
}

#[test]
fn the_five_combinations_that_kmm_leaves_alone_are_refused_or_led_out_of() {
    for (number, labels) in [
        (9, ("", "", "1.0")),
        (10, ("1.0", "", "1.0")),
        (11, ("1.0", "", "2.0")),
        (12, ("1.0", "1.0", "2.0")),
        (13, ("1.0", "2.0", "1.0")),
    ] {
        let node = labelled(labels.0, labels.1, labels.2);
        assert_eq!(row(&node).0, number);
        // At rest it is told, with the command that repairs it.
        let known = story().with(config(None, None)).with(node.clone());
        waits_for(
            known,
            BlockerKind::KmmStuck,
            "kubectl label node n1 beta.kmm.node.kubernetes.io/version-schedule-pod.drv.mod-",
        );
        let ask = |fleet: FleetBuilder| fleet.with(handoff(KEY, "n1").to("2.0")).with(lease("me"));
        let queued = ask(story().with(node));
        if matches!(number, 12 | 13) {
            // Taking the version label off leads back into KMM's table: the handoff does it, after the drain.
            assert!(matches!(acts(queued), Op::Admit(_)), "{number}");
            let stuck = held(labelled(labels.0, labels.1, labels.2), DesiredBy::Kept);
            sets_label(running(Phase::StoppingPlugin).with(stuck), None);
        } else {
            waits_for(queued, BlockerKind::KmmStuck, "KMM has no rule");
        }
    }
}

/// No label of KMM's but the desired one, and none of anybody else's.
#[track_caller]
fn writes_only_the_version_label(verdict: &Verdict, story: &str) {
    let Verdict::Act(action) = verdict else { return };
    match &action.op {
        Op::PatchNode(patch) => {
            for change in &patch.changes {
                match change {
                    NodeChange::Label { key, .. } => assert_eq!(*key, label(Label::Desired), "{story}"),
                    NodeChange::Annotation { key, .. } => assert!(key.starts_with("lockkeeper.dev/"), "{story}: {key}"),
                    NodeChange::Unschedulable(_) => {}
                }
            }
        }
        Op::Evict { .. }
        | Op::PutHandoffStatus { .. }
        | Op::PatchHandoffSpec { .. }
        | Op::CreateHandoff { .. }
        | Op::SetHandoffFinalizer { .. }
        | Op::Admit(_)
        | Op::Release(_) => {}
        other => panic!("{story}: {other:?} is none of lockkeeper's"),
    }
}

#[test]
fn in_every_state_only_the_version_label_is_ever_written_and_every_wait_has_a_name() {
    let phases = Phase::ALL.into_iter().map(Some).chain([None]);
    let mut decided = 0;
    for phase in phases {
        for labels in all() {
            for by in [DesiredBy::Removed, DesiredBy::Set] {
                for (wanted, recorded) in [(None, None), (None, Some(("1.0", "boot-1"))), (Some("2.0"), Some(("2.0", "boot-1")))]
                {
                    let story_of = format!("{phase:?} {labels:?} {by:?} {wanted:?} {recorded:?}");
                    let node = held(stopped(labelled(labels.0, labels.1, labels.2), "1.0"), by);
                    let mut fleet = story().with(node).with(config(wanted, recorded)).with(lease("me").slot("n1", KEY));
                    if let Some(phase) = phase {
                        fleet.put(in_phase(phase));
                    }
                    let verdict = decide_at(&mut fleet, &mut Observed::default(), NOW);
                    writes_only_the_version_label(&verdict, &story_of);
                    if let Verdict::Wait(wait) = &verdict {
                        let nameless = wait.blockers.iter().any(|it| it.message.contains("this is a defect"));
                        assert!(!wait.blockers.is_empty() && !nameless, "{story_of}: {:?}", wait.blockers);
                    }
                    decided += 1;
                }
            }
        }
    }
    assert_eq!(decided, (Phase::ALL.len() + 1) * 27 * 2 * 3);
}

#[test]
fn a_label_moved_by_hand_is_observed_and_not_steered() {
    // KMM stops the plugin because somebody took the label off, a user of the device still there.
    let fleet = story().with(labelled("", "1.0", "1.0")).with(user("a"));
    match acts(fleet) {
        Op::CreateHandoff { spec, .. } => {
            assert_eq!((spec.requested_by.as_str(), spec.version.as_deref()), (crate::api::handoff::BY_LABEL, None));
        }
        other => panic!("{other:?}"),
    }
    let by_label = |phase: Phase| {
        handoff(KEY, "n1")
            .phase(phase, at(190))
            .spec(|spec| (spec.version, spec.requested_by) = (None, "label".into()))
            .status(|status| status.run = Some(Run { by_label: true, desired: None, ..run(None) }))
    };
    let node = || labelled("", "1.0", "1.0");
    let observed = story().with(node()).with(user("a")).with(lease("me").slot("n1", KEY)).with(by_label(Phase::StoppingPlugin));
    waits_for(observed, BlockerKind::Claimant, "evicts nobody");
}

#[test]
fn what_says_that_the_label_asks_is_held_to_what_the_label_says() {
    let claims = |version: &'static str| {
        let claims = handoff(KEY, "n1").to(version).spec(|spec| spec.requested_by = crate::api::handoff::BY_LABEL.into());
        story().with(lease("me")).with(claims)
    };
    // Somebody has changed the version of one that lockkeeper made for a label, or has made up the word.
    match acts(claims("2.0")) {
        Op::PatchHandoffSpec { spec, .. } => {
            assert_eq!(spec.version.as_deref(), Some("1.0"));
            assert!(spec.reason.contains("says 1.0") && spec.reason.contains("say who asks in requestedBy"), "{}", spec.reason);
        }
        other => panic!("{other:?}"),
    }
    // Where the label cannot be followed now, nothing is done for it either.
    let tainted = at_version("1.0").taint("example.com/hot", "NoSchedule");
    let untolerated = ModuleRecord { tolerations: Vec::new(), ..module("2.0") };
    waits_for(claims("2.0").with(tainted).with(untolerated), BlockerKind::PreflightRefused, "a label that does not ask");
    // Nobody is said to have touched a label that KMM follows for another reason.
    match acts(story().with(labelled("2.0", "", "")).with(config(None, None))) {
        Op::CreateHandoff { spec, .. } => {
            assert!(spec.reason.starts_with("KMM takes n1 to 2.0, as its version label says"), "{}", spec.reason)
        }
        other => panic!("{other:?}"),
    }
}
