//! From phase to phase, with the proof that each needs.

use super::*;

#[test]
fn the_node_is_closed_and_exactly_the_devices_users_leave() {
    assert!(matches!(acts(running(Phase::Cordoning).with(at_version("1.0"))), Op::PatchNode(_)));
    let fleet = running(Phase::Draining).with(user("a")).with(pod("shop/b").owned_by("ReplicaSet", "b").on("n1"));
    match acts(fleet) {
        Op::Evict { pods, .. } => assert_eq!(pods.iter().map(|pod| pod.key.to_string()).collect::<Vec<_>>(), ["shop/a"]),
        other => panic!("{other:?}"),
    }
    enters(running(Phase::Draining), Phase::StoppingPlugin);
}

#[test]
fn where_nobody_used_the_device_one_change_of_the_label_takes_kmm_all_the_way() {
    let op = sets_label(running(Phase::StoppingPlugin), Some("2.0"));
    assert_eq!(record_of(&op).as_deref(), Some(r#"{"version":"1.0","stoppedBoot":"boot-1"}"#));
}

#[test]
fn after_a_drain_or_where_somebody_wants_to_stop_between_the_label_goes_first() {
    let evicted = in_phase(Phase::StoppingPlugin).status(|status| status.evicted = vec!["uid".into()]);
    sets_label(running(Phase::StoppingPlugin).with(evicted), None);
    for phase in [Phase::StoppingPlugin, Phase::Unloading] {
        let paused = in_phase(Phase::StoppingPlugin).spec(|spec| spec.pause_after = vec![phase]);
        sets_label(running(Phase::StoppingPlugin).with(paused), None);
    }
    let held_back = in_phase(Phase::StoppingPlugin).spec(|spec| spec.action = HandoffAction::Hold);
    sets_label(running(Phase::StoppingPlugin).with(held_back), None);
    // Out of service there is nothing to come.
    let out = in_phase(Phase::StoppingPlugin).status(|status| status.run = Some(run(None)));
    let out = out.spec(|spec| (spec.version, spec.requested_by) = (None, "operator".into()));
    sets_label(running(Phase::StoppingPlugin).with(out), None);
}

#[test]
fn a_load_under_way_is_let_end_before_the_label_moves_and_one_that_fails_is_not() {
    let load = || running(Phase::StoppingPlugin).with(worker("Load").phase(PodPhase::Running));
    waits_for(load(), BlockerKind::WorkerPod, "Load pod");
    let rebooted = held(labelled("1.0", "1.0", "1.0").boot("boot-2"), DesiredBy::Kept);
    let recorded = config(Some("1.0"), Some(("1.0", "boot-1")));
    waits_for(
        running(Phase::StoppingPlugin).with(rebooted).with(recorded),
        BlockerKind::KmmMoves,
        "what the reboot has taken out",
    );
    let failing = worker("Load").phase(PodPhase::Running).waiting("CrashLoopBackOff", "").but(|pod| {
        pod.extra.get_or_insert_default().containers[0].last_exit = Some(1);
    });
    sets_label(running(Phase::StoppingPlugin).with(failing), Some("2.0"));
}

#[test]
fn what_preflight_found_is_looked_at_again_before_the_label_goes() {
    waits_for(running(Phase::StoppingPlugin).with(module("3.0")), BlockerKind::KmmVersion, "the Module is at 3.0");
    let unversioned = ModuleRecord { version: None, ..module("2.0") };
    waits_for(running(Phase::StoppingPlugin).with(unversioned), BlockerKind::ComponentRefused, "has no moduleLoader");
    // A label that somebody has moved meanwhile ends it before anybody is evicted.
    let edited = held(labelled("9.9", "1.0", "1.0"), DesiredBy::Kept);
    enters(running(Phase::Draining).with(edited).with(user("a")), Phase::Failed);
}

#[test]
fn a_user_that_came_late_leaves_before_the_label_does() {
    match acts(running(Phase::StoppingPlugin).with(user("late"))) {
        Op::Evict { pods, .. } => assert_eq!(pods.len(), 1),
        other => panic!("{other:?}"),
    }
}

fn label_off(phase: Phase, worker: &str, schedule: &str) -> FleetBuilder {
    let node = stopped(labelled("", worker, schedule).label(&label(Label::Ready), ""), "1.0");
    running(phase).with(held(node, DesiredBy::Removed))
}

#[test]
fn the_plugins_pod_is_awaited_by_its_uid() {
    waits_for(label_off(Phase::StoppingPlugin, "1.0", "1.0"), BlockerKind::PluginPod, "uid-Pod-drv/mod-device-plugin-1.0");
    waits_for(label_off(Phase::StoppingPlugin, "1.0", ""), BlockerKind::PluginPod, "KMM unloads once it is gone");
    let mut gone = label_off(Phase::StoppingPlugin, "1.0", "");
    gone.gone(Kind::Pod, key("drv/mod-device-plugin-1.0"));
    enters(gone, Phase::Unloading);
}

#[test]
fn kmms_back_off_is_told_and_ended_where_that_is_safe() {
    let story = |spec: fn(&mut crate::api::NodeHandoffSpec)| {
        let handoff = in_phase(Phase::StoppingPlugin).status(|status| status.evicted = vec!["uid".into()]).spec(spec);
        let mut fleet = label_off(Phase::StoppingPlugin, "1.0", "1.0").with(handoff);
        let mut observed = Observed::default();
        decide_at(&mut fleet, &mut observed, 0);
        // KMM takes its plugin label off, and the pod needs 30 seconds to end.
        fleet.put(held(stopped(labelled("", "1.0", ""), "1.0"), DesiredBy::Removed));
        decide_at(&mut fleet, &mut observed, 160);
        fleet.gone(Kind::Pod, key("drv/mod-device-plugin-1.0"));
        fleet.put(held(stopped(labelled("", "1.0", ""), "1.0"), DesiredBy::Removed).renewed(at(195)));
        let mut seen = decide_at(&mut fleet, &mut observed, 192);
        // Its processes may outlive a pod that was not seen to end.
        if matches!(seen, Verdict::Wait(_)) {
            fleet.put(held(stopped(labelled("", "1.0", ""), "1.0"), DesiredBy::Removed).renewed(at(230)));
            seen = decide_at(&mut fleet, &mut observed, 225);
        }
        (seen, fleet, observed)
    };
    let (woken, ..) = story(|_| {});
    let op = op(woken);
    assert_eq!(labels_of(&op), [(label(Label::Desired), Some("2.0".to_owned()))], "what comes next anyway starts a try at once");
    // Somebody wants to stop before the load: KMM's own pace.
    let (not_woken, mut fleet, mut observed) = story(|spec| spec.pause_after = vec![Phase::Unloading]);
    assert!(matches!(op_status(&not_woken), Some(Phase::Unloading)), "{not_woken:?}");
    fleet.put(in_phase(Phase::Unloading).spec(|spec| spec.pause_after = vec![Phase::Unloading]));
    let words = said(decide_at(&mut fleet, &mut observed, 230));
    assert!(words.iter().any(|(kind, text)| kind == "KmmBackOff" && text.contains("next try is at about")), "{words:?}");
}

fn op_status(verdict: &Verdict) -> Option<Phase> {
    match verdict {
        Verdict::Act(action) => match &action.op {
            Op::PutHandoffStatus { status, .. } => Some(status.phase),
            _ => None,
        },
        _ => None,
    }
}

/// Label off, plugin gone.
fn unloading() -> FleetBuilder {
    let mut fleet = label_off(Phase::Unloading, "", "");
    fleet.gone(Kind::Pod, key("drv/mod-device-plugin-1.0"));
    fleet
}

#[test]
fn unloaded_is_what_kmm_has_recorded_and_nothing_else() {
    // Labels all gone, `.ready` too, and no pod: it still says that it is loaded.
    let bare = || held(stopped(labelled("", "", ""), "1.0"), DesiredBy::Removed);
    waits_for(unloading().with(bare()).with(config(None, Some(("1.0", "boot-1")))), BlockerKind::KmmMoves, "Unload pod");
    waits_for(unloading().with(config(Some("1.0"), Some(("1.0", "boot-1")))), BlockerKind::KmmMoves, "NodeModulesConfig");
    let unload = || unloading().with(config(None, Some(("1.0", "boot-1")))).with(worker("Unload").phase(PodPhase::Running));
    waits_for(unload(), BlockerKind::WorkerPod, "Unload pod");
    waits_for(unload().with(worker("Unload").phase(PodPhase::Succeeded)), BlockerKind::WorkerPod, "has succeeded");
    // The entry is off and its pod is still there: KMM is not through with it.
    waits_for(unload().with(config(None, None)), BlockerKind::WorkerPod, "Unload pod");
    let status = enters(unloading().with(config(None, None)), Phase::Loading);
    assert!(status.proofs[0].fact.contains("taken the entry off"), "{:?}", status.proofs);
}

#[test]
fn an_unload_that_fails_is_named_with_its_exit_code() {
    let failing = worker("Unload").phase(PodPhase::Running).waiting("CrashLoopBackOff", "").but(|pod| {
        pod.extra.get_or_insert_default().containers[0].last_exit = Some(1);
    });
    waits_for(unloading().with(config(None, Some(("1.0", "boot-1")))).with(failing), BlockerKind::WorkerFailed, "exit code 1");
}

#[test]
fn a_reboot_is_a_proof_by_its_boot_id() {
    let rebooted = held(stopped(labelled("", "", ""), "1.0").boot("boot-2"), DesiredBy::Removed);
    let status = enters(unloading().with(rebooted).with(config(None, None)), Phase::Loading);
    assert!(status.proofs[0].fact.contains("boot boot-2 is not the boot-1"), "{:?}", status.proofs);
}

#[test]
fn what_nothing_proves_is_not_taken_for_unloaded() {
    // The NodeModulesConfig was deleted and made again: what it had recorded is lost.
    let another = NmcRecord { meta: meta("another"), ..config(None, None) };
    waits_for(unloading().with(another), BlockerKind::ModuleUnproven, "NodeModulesConfig was deleted");
    // A load of an earlier attempt of which nobody saw the end.
    let half = held(labelled("", "", "").loaded(KEY, "1.0"), DesiredBy::Removed);
    waits_for(unloading().with(half).with(config(None, None)), BlockerKind::ModuleUnproven, "Reboot the node");
}

#[test]
fn a_load_pod_that_was_stopped_leaves_the_kernel_unknown_and_one_that_failed_does_not() {
    let end = |last: PodBuilder| {
        let node = || held(labelled("", "", "").loaded(KEY, "1.0"), DesiredBy::Removed);
        let mut fleet = unloading().with(node()).with(config(None, None)).with(last);
        let mut observed = Observed::default();
        decide_at(&mut fleet, &mut observed, 0);
        fleet.gone(Kind::Pod, key("drv/kmm-worker-n1-mod"));
        decide_at(&mut fleet, &mut observed, NOW)
    };
    let cut_off = said(end(worker("Load").phase(PodPhase::Running)));
    assert!(cut_off.iter().any(|(kind, text)| kind == "ModuleUnproven" && text.contains("stopped on its way")), "{cut_off:?}");
    // A reboot on the way has KMM load again what it was taking out; that its record is of the boot before proves nothing then.
    let mut fleet = unloading()
        .with(held(stopped(labelled("", "1.0", ""), "1.0").boot("boot-2"), DesiredBy::Removed))
        .with(config(Some("1.0"), Some(("1.0", "boot-1"))))
        .with(worker("Load").phase(PodPhase::Running));
    let mut observed = Observed::default();
    decide_at(&mut fleet, &mut observed, 0);
    fleet.put(config(None, None)).gone(Kind::Pod, key("drv/kmm-worker-n1-mod"));
    fleet.put(held(stopped(labelled("", "", ""), "1.0").boot("boot-2"), DesiredBy::Removed));
    let rebooted = said(decide_at(&mut fleet, &mut observed, NOW));
    assert!(rebooted.iter().any(|(kind, text)| kind == "ModuleUnproven" && text.contains("1.0 of mod")), "{rebooted:?}");
    let failed = worker("Load").phase(PodPhase::Running).waiting("CrashLoopBackOff", "").but(|pod| {
        pod.extra.get_or_insert_default().containers[0].last_exit = Some(1);
    });
    match end(failed) {
        Verdict::Act(action) => match action.op {
            Op::PutHandoffStatus { status, .. } => {
                assert_eq!(status.phase, Phase::Loading);
                assert!(status.proofs[0].fact.contains("failed with exit code 1"), "{:?}", status.proofs);
            }
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

#[test]
fn held_between_unload_and_load_nothing_moves() {
    let paused = in_phase(Phase::Unloading).spec(|spec| spec.pause_after = vec![Phase::Unloading]);
    enters(unloading().with(config(None, None)).with(paused), Phase::Held);
    let held = in_phase(Phase::Held).spec(|spec| spec.pause_after = vec![Phase::Unloading]).status(|status| {
        status.resume_at = Some(Phase::Loading);
        status.reason = Some(crate::api::handoff::Reason { word: ending::PAUSED.into(), message: "paused".into() });
        status.steps =
            vec![crate::api::handoff::Step { phase: Phase::Unloading, started_at: at(150).to_string(), finished_at: None }];
    });
    waits_for(unloading().with(config(None, None)).with(held), BlockerKind::HandoffHeld, "paused");
}

#[test]
fn the_new_version_is_asked_for_with_a_record_of_it_once_nothing_speaks_against_it() {
    let loading = || unloading().with(config(None, None)).with(in_phase(Phase::Loading));
    let op = sets_label(loading(), Some("2.0"));
    assert_eq!(record_of(&op).as_deref(), Some(r#"{"version":"2.0"}"#));
    waits_for(loading().with(images("2.0", "DoesNotExist")), BlockerKind::KmmImage, "mod:2.0");
    waits_for(loading().with(module("3.0")), BlockerKind::KmmVersion, "the Module is at 3.0");
    waits_for(loading().with(module("3.0")), BlockerKind::KmmVersion, "Or abort, and ask for 3.0");
    waits_for(loading().with(ModuleRecord { mappings: Vec::new(), ..module("2.0") }), BlockerKind::KmmImage, "no kernel mapping");
    let untolerated = ModuleRecord { tolerations: Vec::new(), ..module("2.0") };
    let tainted =
        held(stopped(labelled("", "", ""), "1.0").taint("node.kubernetes.io/unschedulable", "NoSchedule"), DesiredBy::Removed);
    waits_for(loading().with(untolerated).with(tainted), BlockerKind::KmmTaint, "unschedulable");
}

/// Held by `pauseAfter` after this phase; what comes next; and with this in its spec by now.
fn paused(after: Phase, next: Phase, change: fn(&mut crate::api::NodeHandoffSpec)) -> HandoffBuilder {
    in_phase(Phase::Held).spec(change).status(|status| {
        status.resume_at = Some(next);
        status.reason = Some(crate::api::handoff::Reason { word: ending::PAUSED.into(), message: "paused".into() });
        status.steps = vec![crate::api::handoff::Step { phase: after, started_at: at(150).to_string(), finished_at: None }];
    })
}

#[test]
fn a_module_that_lost_its_version_meanwhile_keeps_the_nodes_label_and_an_abort_is_answered() {
    let unversioned = || ModuleRecord { version: None, ..module("2.0") };
    let held = |change| running(Phase::Held).with(unversioned()).with(paused(Phase::Draining, Phase::StoppingPlugin, change));
    // Run leads to where the Module is looked at again, and no further.
    enters(held(|_| {}), Phase::StoppingPlugin);
    waits_for(running(Phase::StoppingPlugin).with(unversioned()), BlockerKind::ComponentRefused, "has no moduleLoader");
    enters(held(|spec| spec.action = HandoffAction::Abort), Phase::Aborted);
    let waiting = in_phase(Phase::StoppingPlugin).spec(|spec| spec.action = HandoffAction::Abort);
    let status = enters(running(Phase::StoppingPlugin).with(unversioned()).with(waiting), Phase::Aborted);
    assert!(status.reason.is_some_and(|reason| reason.message.contains("the module was not touched")));
}

#[test]
fn an_abort_of_a_handoff_by_label_waits_for_an_unload_that_kmm_has_begun() {
    let asked = || {
        in_phase(Phase::StoppingPlugin).spec(|spec| spec.action = HandoffAction::Abort).status(|status| {
            let run = status.run.as_mut().expect("a run");
            (run.by_label, run.desired) = (true, Some("2.0".into()));
        })
    };
    let moved = |node: NodeBuilder| running(Phase::StoppingPlugin).with(node.mark(KEY, &mark(DesiredBy::Kept))).with(asked());
    enters(moved(labelled("2.0", "1.0", "1.0")), Phase::Aborted);
    let mut begun = moved(labelled("2.0", "", ""));
    begun.gone(Kind::Pod, key("drv/mod-device-plugin-1.0"));
    enters(begun, Phase::Unloading);
}

#[test]
fn a_label_that_somebody_moves_while_it_is_held_is_seen_before_anything_else_is_done() {
    let ends = |fleet: FleetBuilder| {
        let status = enters(fleet, Phase::Failed);
        assert_eq!(status.reason.map(|reason| reason.word).as_deref(), Some(ending::LABEL_EDITED));
    };
    // Before the node is closed and anybody evicted, be it held still or told to run.
    let early = || {
        let node = labelled("9.9", "1.0", "1.0").mark(KEY, &mark(DesiredBy::Kept));
        running(Phase::Held).with(node).with(user("a"))
    };
    ends(early().with(paused(Phase::Preflight, Phase::Cordoning, |spec| spec.pause_after = vec![Phase::Preflight])));
    ends(early().with(paused(Phase::Preflight, Phase::Cordoning, |_| {})));
    // After the last proof: the node is verified again, and not opened on what was so before.
    let late = |phase| {
        let emptied = held(labelled("9.9", "", ""), DesiredBy::Set);
        let mut fleet = loaded(phase).with(emptied).with(config(None, None));
        if phase == Phase::Held {
            fleet.put(paused(Phase::Verifying, Phase::Uncordoning, |_| {}));
        }
        fleet
    };
    enters(late(Phase::Held), Phase::Verifying);
    ends(late(Phase::Verifying));
}

#[test]
fn what_is_unloaded_after_a_hold_behind_the_load_is_proven_by_kmms_record() {
    // Held after Loading no record of ours is left; a person takes the label off, KMM unloads, and its entry goes.
    let by_label =
        in_phase(Phase::Unloading).spec(|spec| (spec.version, spec.requested_by) = (None, "label".into())).status(|status| {
            status.run = Some(Run { by_label: true, from: Some("2.0".into()), desired: None, ..run(None) });
        });
    let mut fleet =
        running(Phase::Unloading).with(held(labelled("", "", ""), DesiredBy::Kept)).with(config(None, None)).with(by_label);
    fleet.gone(Kind::Pod, key("drv/mod-device-plugin-1.0"));
    let status = enters(fleet, Phase::Uncordoning);
    assert!(status.proofs[0].fact.contains("KMM has nothing of Module drv/mod recorded"), "{:?}", status.proofs);
}

#[test]
fn an_aborted_attempt_that_did_nothing_leaves_a_node_that_somebody_else_broke() {
    let deleted = |it: &mut crate::fleet::records::HandoffRecord| {
        it.meta.deletion = Some(crate::fleet::records::Deletion { at: at(195), grace: 0 });
    };
    let end = |phase, at: i64| crate::api::handoff::Ended {
        attempt: 1,
        target: Some("2.0".into()),
        phase,
        reason: None,
        at: crate::fleet::build::at(at).to_string(),
    };
    let ended = |after: Phase| {
        let handoff = in_phase(Phase::Aborted).but(|it| it.finalizers = vec![FINALIZER.into()]).but(deleted).status(|status| {
            status.cordon = None;
            status.history = vec![end(Phase::Aborted, 195)];
            status.steps = vec![crate::api::handoff::Step { phase: after, started_at: at(150).to_string(), finished_at: None }];
        });
        // A hand on KMM's labels; somebody else has closed the node; a new leader has left its mark.
        let broken = labelled("1.0", "1.0", "2.0").cordoned_by("kubectl").mark(KEY, &mark(DesiredBy::Kept));
        running(Phase::Aborted).with(broken).with(handoff)
    };
    let unmarked = acts(ended(Phase::Preflight));
    assert!(
        matches!(&unmarked, Op::PatchNode(patch) if patch.changes.iter().all(|it| matches!(it, NodeChange::Annotation { value: None, .. }))),
        "{unmarked:?}"
    );
    let bare = || ended(Phase::Preflight).with(labelled("1.0", "1.0", "2.0").cordoned_by("kubectl"));
    assert!(matches!(acts(bare()), Op::Release(_)));
    assert!(matches!(acts(bare().with(lease("me"))), Op::SetHandoffFinalizer { present: false, .. }));
    // One that had evicted pods gives nothing back silently.
    waits_for(ended(Phase::Draining), BlockerKind::NodeLeftClosed, "Leave it: action Leave");
}

#[test]
fn a_run_that_nothing_shows_any_more_is_not_taken_for_one_of_another_kind() {
    let record = |change: fn(&mut crate::fleet::records::ComponentRecord)| {
        let mut record = followed(|_| {}).build();
        change(&mut record);
        Record::Component(record)
    };
    let garbled = || record(|record| record.spec = Err("unknown field".into()));
    let remade = || component(KEY).finalizer(FINALIZER).made("1.0").made("2.0");
    for phase in [Phase::StoppingPlugin, Phase::Unloading, Phase::Loading, Phase::Verifying] {
        waits_for(running(phase).with(garbled()), BlockerKind::ComponentRefused, "does not decode (unknown field)");
        waits_for(running(phase).with(remade()), BlockerKind::ComponentRefused, "began as one of a Module of KMM");
    }
    let abort = |phase| in_phase(phase).spec(|spec| spec.action = HandoffAction::Abort);
    enters(running(Phase::Draining).with(garbled()).with(abort(Phase::Draining)), Phase::Aborted);
    waits_for(
        running(Phase::Unloading).with(garbled()).with(abort(Phase::Unloading)),
        BlockerKind::ComponentRefused,
        "correct the component",
    );
}

fn asked(worker: &str, schedule: &str, phase: Phase) -> FleetBuilder {
    let node = labelled("2.0", worker, schedule).loaded(KEY, "2.0");
    let mut fleet = running(phase).with(held(node, DesiredBy::Set)).with(config(None, None));
    fleet.gone(Kind::Pod, key("drv/mod-device-plugin-1.0"));
    fleet
}

#[test]
fn loaded_is_what_kmm_has_recorded_in_this_boot_and_nothing_else() {
    let ready = || {
        let node = labelled("2.0", "2.0", "2.0").label(&label(Label::Ready), "").label(&label(Label::VersionReady), "2.0");
        asked("2.0", "2.0", Phase::Loading).with(held(node.loaded(KEY, "2.0"), DesiredBy::Set))
    };
    // `.version.ready` says so, and KMM has not recorded it.
    waits_for(ready().with(config(Some("2.0"), None)), BlockerKind::KmmMoves, "load 2.0");
    waits_for(ready().with(config(Some("2.0"), Some(("2.0", "boot-0")))), BlockerKind::KmmMoves, "load 2.0");
    waits_for(
        ready().with(config(Some("2.0"), Some(("2.0", "boot-1")))).with(worker("Load").phase(PodPhase::Running)),
        BlockerKind::WorkerPod,
        "Load pod",
    );
    // Once KMM has it down our own record goes, and only then the phase ends: held after it, an unload is KMM's to prove.
    assert_eq!(record_of(&acts(ready().with(config(Some("2.0"), Some(("2.0", "boot-1")))))).as_deref(), Some(""));
    let status = enters(loaded(Phase::Loading), Phase::StartingPlugin);
    assert!(status.proofs[0].fact.contains("recorded 2.0 as loaded on n1 in boot boot-1"), "{:?}", status.proofs);
    let failing = worker("Load").phase(PodPhase::Running).waiting("CrashLoopBackOff", "");
    waits_for(ready().with(config(Some("2.0"), None)).with(failing), BlockerKind::WorkerFailed, "the load fails again and again");
}

fn loaded(phase: Phase) -> FleetBuilder {
    let node = labelled("2.0", "2.0", "2.0").label(&label(Label::Ready), "").label(&label(Label::VersionReady), "2.0");
    // Its own record goes once KMM has it down; one that is there all the same goes at the end.
    let node = if phase == Phase::Uncordoning { node.loaded(KEY, "2.0") } else { node };
    asked("2.0", "2.0", phase).with(held(node, DesiredBy::Set)).with(config(Some("2.0"), Some(("2.0", "boot-1"))))
}

#[test]
fn plugin_devices_and_then_the_label_of_kmm_must_be_back() {
    let recorded = held(labelled("2.0", "2.0", "2.0").label(&label(Label::Ready), "").loaded(KEY, "2.0"), DesiredBy::Set);
    assert_eq!(record_of(&acts(loaded(Phase::StartingPlugin).with(recorded))).as_deref(), Some(""));
    waits_for(loaded(Phase::StartingPlugin), BlockerKind::PluginNotReady, "no plugin pod of 2.0");
    waits_for(loaded(Phase::StartingPlugin).with(plugin_pod("2.0").not_ready()), BlockerKind::PluginNotReady, "not Ready");
    enters(loaded(Phase::StartingPlugin).with(plugin_pod("2.0")), Phase::Verifying);
    let without = ModuleRecord { plugin: false, ..module("2.0") };
    enters(loaded(Phase::StartingPlugin).with(without), Phase::Verifying);
    enters(loaded(Phase::Verifying).with(plugin_pod("2.0")), Phase::Uncordoning);
    let fewer = held(
        labelled("2.0", "2.0", "2.0").label(&label(Label::Ready), "").allocatable(RESOURCE, 2).loaded(KEY, "2.0"),
        DesiredBy::Set,
    );
    waits_for(loaded(Phase::Verifying).with(plugin_pod("2.0")).with(fewer), BlockerKind::Allocatable, "2 of 4");
    let unsaid = held(labelled("2.0", "2.0", "2.0").loaded(KEY, "2.0"), DesiredBy::Set);
    waits_for(loaded(Phase::Verifying).with(plugin_pod("2.0")).with(unsaid), BlockerKind::KmmMoves, ".version.ready");
    // What was proven is lost again: it is said, and the node stays closed.
    waits_for(
        loaded(Phase::Verifying).with(plugin_pod("2.0")).with(config(None, Some(("2.0", "boot-1")))).with(worker("Unload")),
        BlockerKind::WorkerPod,
        "Unload pod",
    );
}

#[test]
fn the_record_goes_with_the_mark_when_the_node_is_opened() {
    let op = acts(loaded(Phase::Uncordoning).with(plugin_pod("2.0")));
    assert_eq!(record_of(&op).as_deref(), Some(""));
    assert_eq!(labels_of(&op), []);
}

#[test]
fn an_abort_gives_the_label_back_while_kmm_can_still_cancel_and_asks_afterwards() {
    let abort = |phase| in_phase(phase).spec(|spec| spec.action = HandoffAction::Abort);
    let status = enters(label_off(Phase::StoppingPlugin, "1.0", "1.0").with(abort(Phase::StoppingPlugin)), Phase::Loading);
    assert_eq!(status.reason.map(|reason| reason.word).as_deref(), Some(ending::GIVING_BACK));
    let back = abort(Phase::Loading).status(|status| {
        status.reason = Some(crate::api::handoff::Reason { word: ending::GIVING_BACK.into(), message: String::new() });
        status.copy = Some(crate::api::handoff::NodeCopy { desired: Some("1.0".into()), loaded: None });
    });
    sets_label(label_off(Phase::Loading, "1.0", "1.0").with(back), Some("1.0"));
    // KMM has taken its worker label off: nothing cancels that.
    let asks = enters(unloading().with(config(None, None)).with(abort(Phase::Unloading)), Phase::Held);
    let choices = asks.reason.map(|reason| reason.message).unwrap_or_default();
    assert!(choices.contains("first put 1.0 and its image back into the Module; then version: 1.0, attempt + 1"), "{choices}");
    // Woken on the way, and the target is not being loaded yet: it is taken back, so that the person can choose.
    let woken = held(stopped(labelled("2.0", "", "").label(&label(Label::Ready), ""), "1.0"), DesiredBy::Set);
    let unload = unloading().with(woken).with(config(None, Some(("1.0", "boot-1")))).with(abort(Phase::Unloading));
    sets_label(unload, None);
}

#[test]
fn a_label_that_somebody_else_moves_ends_the_handoff() {
    let edited = held(stopped(labelled("9.9", "1.0", "1.0"), "1.0"), DesiredBy::Removed);
    let status = enters(label_off(Phase::StoppingPlugin, "1.0", "1.0").with(edited), Phase::Failed);
    assert_eq!(status.reason.map(|reason| reason.word).as_deref(), Some(ending::LABEL_EDITED));
}

#[test]
fn a_node_made_again_gets_kmms_label_back_and_no_other() {
    let again = labelled("", "", "").uid("another");
    let handoff = in_phase(Phase::Loading)
        .status(|status| status.copy = Some(crate::api::handoff::NodeCopy { desired: Some("2.0".into()), loaded: None }));
    sets_label(running(Phase::Loading).with(again).with(handoff).with(config(None, None)), Some("2.0"));
}

#[test]
fn a_silent_node_proves_nothing() {
    let silent = held(stopped(labelled("", "", ""), "1.0"), DesiredBy::Removed).not_ready();
    waits_for(unloading().with(silent).with(config(None, None)), BlockerKind::NodeNotReady, "not known");
}
