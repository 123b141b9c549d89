//! What goes wrong is said with the way out: all that is wrong on a node, what KMM's failing worker said, which version comes.

use super::{
    mass::{NAMES, condition, four},
    *,
};
use crate::{
    api::handoff::BY_LABEL,
    console::facts::Facts as Shown,
    engine::picture::{Mode, Picture},
};

/// The unload fails again and again, with these last words.
fn failing(on: &str) -> PodBuilder {
    worker("Unload").on(on).phase(PodPhase::Running).waiting("CrashLoopBackOff", "").but(|pod| {
        let container = &mut pod.extra.get_or_insert_default().containers[0];
        (container.last_exit, container.last_message) = (Some(1), "rmmod: mod is in use by: shop/train".into());
    })
}

#[test]
fn a_node_with_two_things_wrong_counts_for_both_and_once_as_lost() {
    let mut fleet = four(module("1.0"), |_, node| node);
    for name in NAMES {
        let mut config = NmcRecord { node: name.into(), ..config(Some("1.0"), Some(("1.0", "boot-1"))) };
        (config.spec[0].image, config.spec[0].config) = ("mod:other".into(), "another".into());
        fleet.put(config);
        fleet.put(failing(name).but(|pod| pod.key = key(&format!("drv/kmm-worker-{name}-mod"))));
    }
    let said = condition(&mut fleet, "SpecChangedWithoutVersion");
    assert!(said.status == "True" && said.message.contains("unloads and loads on 4 nodes at once"), "{}", said.message);
    let said = condition(&mut fleet, "Disturbed");
    assert!(said.message.contains("4 of 4 nodes"), "{}", said.message);
    assert!(said.message.contains("ImageChanged on 4") && said.message.contains("UnloadCrashLoop on 4"), "{}", said.message);
    let said = condition(&mut fleet, "Anomaly");
    for words in ["saying: rmmod: mod is in use by: shop/train", "end what holds the module", "Or reboot the node"] {
        assert!(said.message.contains(words), "no {words:?} in {}", said.message);
    }
}

#[test]
fn a_failing_unload_is_told_beside_whatever_the_handoff_waits_for() {
    let by_label = || {
        let mut own = run(Some("2.0"));
        (own.by_label, own.desired) = (true, Some("2.0".into()));
        in_phase(Phase::StoppingPlugin)
            .spec(|spec| spec.requested_by = BY_LABEL.into())
            .status(|status| (status.run, status.cordon) = (Some(own), None))
    };
    let node = labelled("2.0", "", "1.0").mark(KEY, &mark(DesiredBy::Kept));
    let fleet =
        || story().with(node.clone()).with(lease("me").slot("n1", KEY)).with(user("train")).with(by_label()).with(failing("n1"));
    waits_for(fleet(), BlockerKind::Claimant, "evict it yourself (kubectl -n shop delete pod train;");
    waits_for(fleet(), BlockerKind::WorkerFailed, "saying: rmmod: mod is in use by: shop/train");
    waits_for(fleet(), BlockerKind::WorkerFailed, "end what holds the module");
    let told = said(verdict(fleet()));
    assert!(told.iter().all(|(_, message)| !message.contains("lockkeeper handoff")), "that is refused now: {told:?}");
    assert_eq!(told.iter().filter(|(kind, _)| kind == "WorkerFailed").count(), 1, "{told:?}");
}

#[test]
fn a_handoff_that_names_no_version_says_which_one_it_heads_for() {
    let heading = |handoff: HandoffBuilder| {
        let mut fleet = story().with(handoff.spec(|spec| spec.version = None));
        let picture = Picture { fleet: fleet.project(at(NOW)), ..Picture::empty(Default::default(), Mode::ReadOnly) };
        Shown::of(&picture, &key(KEY), &"n1".into()).unwrap().heading()
    };
    assert_eq!(heading(handoff(KEY, "n1").phase(Phase::Queued, at(190))), "what is current (2.0 now)");
    assert_eq!(heading(in_phase(Phase::Draining)), "2.0");
    let off = handoff(KEY, "n1").phase(Phase::Queued, at(190)).spec(|spec| spec.requested_by = BY_LABEL.into());
    assert_eq!(heading(off), "out of service");
}
