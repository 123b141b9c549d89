//! KMM has taken a DRA driver away before the handoff did, and the pods of its claims cannot be unprepared: what is then awaited, and what not.

use super::*;

const DRIVER: &str = "npu.vendor.com";

/// A label changed by hand for a while has made KMM unload 1.0; the label is back, and KMM loads nothing but 2.0.
fn taken_out(phase: Phase) -> FleetBuilder {
    let mut fleet = running(phase)
        .with(followed(|_| {}).driver(DRIVER))
        .with(config(None, None))
        .with(claim("ml/npu").device(DRIVER, "n1", "0").only_on("n1").reserved_for("speech"));
    fleet.gone(Kind::Pod, key("drv/mod-device-plugin-1.0"));
    fleet
}

/// It holds the claim; deleted, and its grace over at this time.
fn speech(over: Option<i64>) -> PodBuilder {
    let pod = pod("ml/speech").owned_by("ReplicaSet", "speech").claim("npu").on("n1").created(at(-500));
    match over {
        Some(over) => pod.terminating(at(over)),
        None => pod,
    }
}

#[test]
fn a_pod_that_only_the_next_driver_can_free_is_not_awaited() {
    let over = NOW - 20;
    let Verdict::Act(action) = verdict(taken_out(Phase::Draining).with(speech(Some(over)))) else { panic!("wanted an action") };
    assert!(
        action.why.contains("Left are Pod ml/speech and ResourceClaim ml/npu, which only the driver of the next"),
        "{}",
        action.why
    );
    enters(taken_out(Phase::Draining).with(speech(Some(over))), Phase::StoppingPlugin);
    enters(taken_out(Phase::Detaching).with(speech(Some(over))), Phase::StoppingPlugin);
    sets_label(taken_out(Phase::StoppingPlugin).with(speech(Some(over))), None);
    // From there on the label goes, and the module stays proven to be out.
    let label_off = held(labelled("", "", ""), DesiredBy::Removed);
    let off = |phase| taken_out(phase).with(label_off.clone()).with(speech(Some(over)));
    enters(off(Phase::StoppingPlugin), Phase::Unloading);
    enters(off(Phase::Unloading), Phase::Loading);
    sets_label(off(Phase::Loading), Some("2.0"));
}

#[test]
fn one_that_has_its_grace_or_was_not_deleted_leaves_first() {
    match acts(taken_out(Phase::Draining).with(speech(None))) {
        Op::Evict { pods, .. } => assert_eq!(pods.len(), 1),
        other => panic!("{other:?}"),
    }
    for phase in [Phase::Draining, Phase::Detaching, Phase::StoppingPlugin, Phase::Unloading] {
        waits_for(taken_out(phase).with(speech(Some(NOW + 1))), BlockerKind::Terminating, "ends at");
    }
}

#[test]
fn as_long_as_the_driver_or_the_module_may_be_there_the_pod_is_awaited() {
    let stranded = || speech(Some(NOW - 20));
    let awaited = |fleet: FleetBuilder| waits_for(fleet.with(stranded()), BlockerKind::Terminating, "should have been gone");
    for phase in [Phase::Draining, Phase::Detaching, Phase::StoppingPlugin, Phase::Unloading] {
        awaited(taken_out(phase).with(plugin_pod("1.0")));
        awaited(taken_out(phase).with(plugin_pod("1.0").not_ready()));
        awaited(taken_out(phase).with(config(None, Some(("1.0", "boot-1")))));
        awaited(taken_out(phase).with(config(Some("1.0"), None)));
        awaited(taken_out(phase).with(worker("Unload").phase(PodPhase::Running)));
        awaited(taken_out(phase).with(held(at_version("1.0").not_ready(), DesiredBy::Kept)));
    }
    // One that uses the device otherwise needs no driver to go.
    let of_resource = user("a").terminating(at(NOW - 20));
    waits_for(
        taken_out(Phase::Draining).with(followed(|_| {})).with(of_resource),
        BlockerKind::Terminating,
        "should have been gone",
    );
}

#[test]
fn a_pod_that_shares_the_claim_can_come_nowhere_else_and_is_not_awaited_either() {
    let waiting = || pod("ml/speech-2").owned_by("ReplicaSet", "speech").claim("npu").phase(PodPhase::Pending).not_ready();
    let fleet = |phase| taken_out(phase).with(speech(Some(NOW - 20))).with(waiting());
    enters(fleet(Phase::Draining), Phase::StoppingPlugin);
    waits_for(
        taken_out(Phase::Draining).with(waiting()).with(plugin_pod("1.0")),
        BlockerKind::PodBinding,
        "allocated on this node",
    );
}
