//! What mutants survived until these tests: what a component waits for, who is counted as what, and what ends say.

use super::world::*;
use crate::{
    api::{Phase, duration::Duration, keys::Role},
    fleet::{
        build::*,
        event::Kind,
        records::{DaemonSetRecord, Deletion},
    },
    handoff::action::Op,
};

fn paired(rollout: impl FnOnce(&mut crate::api::component::Rollout)) -> World {
    World::with(&["n1", "n2"], component(GPU).version("2").made("1").made("2").rollout(rollout))
}

fn is_of(set: &DaemonSetRecord, role: &str, version: &str) -> bool {
    *set.labels["lockkeeper.dev/role"] == *role && *set.labels["lockkeeper.dev/version"] == *version
}

fn without_sets(world: &mut World, which: impl Fn(&DaemonSetRecord) -> bool) {
    let gone: Vec<_> = world.sets.values().filter(|set| which(set)).map(|set| set.key.clone()).collect();
    for key in gone {
        world.sets.remove(&key);
        world.fleet.gone(Kind::DaemonSet, key);
    }
}

#[test]
fn a_component_stays_until_its_last_daemon_set_is_gone() {
    let mut world = World::new(&[]);
    world.component.meta.deletion = Some(Deletion { at: at(100), grace: 0 });
    without_sets(&mut world, |set| !is_of(set, "loader", "1"));
    assert_eq!(world.sets.len(), 1);
    for set in world.sets.values_mut() {
        set.meta.deletion = Some(Deletion { at: at(100), grace: 0 });
    }
    world.ticks(30);
    assert!(!world.component.finalizers.is_empty(), "its loader's DaemonSet is still there");
    without_sets(&mut world, |_| true);
    world.until("the finalizer is off", |world| world.component.finalizers.is_empty());
}

#[test]
fn a_label_is_no_order_beside_garbage() {
    let mut world = World::new(&["n1"]);
    world.node("n1").annotations.insert(Role::Mark.key(&key(GPU)).into(), "{".into());
    world.edit_label("n1", Role::Desired, Some("2"));
    world.ticks(60);
    assert!(world.handoffs.is_empty(), "{:#?}", world.log);
    assert_eq!(world.blockers("n1"), ["LabelGarbage"]);
}

#[test]
fn a_node_is_admitted_before_its_handoff_begins() {
    let mut world = World::new(&["n1"]);
    world.ask("n1", "2");
    world.until("it begins", |world| world.phase("n1") != Phase::Queued);
    assert_eq!(world.lease.slots.len(), 1);
}

#[test]
fn one_grant_at_a_time_for_labels_too_which_need_no_room() {
    let mut world = World::new(&["n1", "n2", "n3"]);
    for node in ["n1", "n2", "n3"] {
        world.edit_label(node, Role::Desired, Some("2"));
    }
    for _ in 0..60 {
        world.decide();
        let admits = world.decisions.actions().filter(|(_, action)| matches!(action.op, Op::Admit(_))).count();
        assert!(admits <= 1, "{admits} at once");
        world.tick();
    }
    assert!(["n1", "n2", "n3"].iter().all(|node| world.phase(node) > Phase::Queued));
}

#[test]
fn the_soak_counts_from_ends_of_what_ran() {
    let mut world = paired(|it| (it.soak, it.canary) = (Duration::from_secs(300), 0));
    world.ask("n1", "2");
    world.ask("n2", "2");
    world.until_phase("n1", Phase::Done);
    world.ticks(200);
    assert_eq!(world.blockers("n2"), ["Soaking"]);
    world.until_phase("n2", Phase::Done);

    let mut world = paired(|it| (it.soak, it.canary, it.paused) = (Duration::from_secs(300), 0, true));
    world.ask("n1", "2");
    world.ask("n2", "2");
    world.ticks(5);
    world.abort("n1");
    world.until_phase("n1", Phase::Aborted);
    if let Ok(spec) = &mut world.component.spec {
        spec.rollout.paused = false;
    }
    world.ticks(30);
    assert!(world.phase("n2") > Phase::Queued, "nothing has run that could need a soak: {:?}", world.blockers("n2"));
}

#[test]
fn a_node_out_of_service_is_not_in_progress() {
    let mut world = World::new(&["n1"]);
    world.edit_label("n1", Role::Desired, None);
    world.until_phase("n1", Phase::Unloading);
    world.until("it is counted", |world| world.component.status.nodes.in_progress == 1);
    world.until_phase("n1", Phase::Held);
    world.until("it is counted no more", |world| world.component.status.nodes.in_progress == 0);
}

#[test]
fn an_end_says_in_its_conditions_which_it_was() {
    let said = |world: &World, kind: &str| {
        let conditions = &world.handoff("n1").status.conditions;
        conditions.iter().find(|it| it.kind == kind).map(|it| it.status.clone()).unwrap_or_default()
    };
    let mut world = World::new(&["n1"]);
    world.ask("n1", "2");
    world.until_phase("n1", Phase::Done);
    assert_eq!([said(&world, "Complete"), said(&world, "Failed")], ["True", "False"]);
    let mut world = World::new(&["n1"]);
    world.broken_loader = true;
    world.ask("n1", "2");
    world.ticks(300);
    world.until_phase("n1", Phase::Failed);
    assert_eq!([said(&world, "Complete"), said(&world, "Failed")], ["False", "True"]);
    // It waits for its loader still, and stays closed: its slot is its own.
    assert_eq!(world.lease.slots.len(), 1);
    world.ticks(60);
    assert_eq!(world.lease.slots.len(), usize::from(world.nodes["n1"].unschedulable));
}

#[test]
fn a_plugins_daemon_set_comes_back_where_it_is_needed() {
    for (version, comes_back) in [("1", false), ("2", true)] {
        let mut world = World::new(&[]);
        without_sets(&mut world, |set| is_of(set, "plugin", version));
        world.ticks(10);
        assert_eq!(
            world.sets.values().any(|set| is_of(set, "plugin", version)),
            comes_back,
            "{version}: the aim is 2, no node has any"
        );
    }
}

#[test]
fn a_new_order_is_a_new_attempt_and_a_queued_one_takes_the_new_target() {
    let attempt = |world: &World| world.handoff("n1").spec.as_ref().map(|spec| spec.attempt).unwrap_or_default();
    let mut world = World::new(&["n1"]);
    world.ask("n1", "2");
    world.until_phase("n1", Phase::Done);
    world.edit_label("n1", Role::Desired, Some("1"));
    world.until("the label is followed", |world| world.runs("n1", "1"));
    assert_eq!(attempt(&world), 2);

    let mut world = paired(|it| it.paused = true);
    world.ask("n1", "2");
    world.ticks(5);
    world.edit_label("n1", Role::Desired, None);
    world.until_phase("n1", Phase::Held);
    assert_eq!(attempt(&world), 1);
}

#[test]
fn a_persons_handoff_is_left_alone_until_the_aim_is_another() {
    let aims_at = |version: &str| {
        let component = component(GPU).version(version).made("1").made("2").made("3");
        component.rollout(|it| it.mode = crate::api::component::RolloutMode::Auto)
    };
    let mut world = World::with(&["n1"], aims_at("2"));
    world.ask("n1", "1");
    world.until_phase("n1", Phase::Done);
    world.ticks(60);
    assert!(world.runs("n1", "1") && world.phase("n1") == Phase::Done);
    world.component.spec = aims_at("3").build().spec;
    world.until("the rollout goes on", |world| world.runs("n1", "3"));
}

#[test]
fn nothing_is_installed_for_a_component_that_is_refused() {
    let mut world = World::new(&[]);
    world.add_bare("n1");
    // Another one names the same devices.
    world.fleet.put(component("ns/other").version("1").made("1"));
    world.ticks(30);
    assert!(world.handoffs.is_empty(), "{:#?}", world.log);
}

#[test]
fn a_removal_takes_over_what_a_person_has_asked_for() {
    let mut world = World::with(&["n1"], component(GPU).version("2").made("1").made("2").finalizer(crate::api::keys::FINALIZER));
    world.put_handoff(handoff(GPU, "n1").spec(|spec| spec.version = None));
    world.component.meta.deletion = Some(Deletion { at: at(100), grace: 0 });
    world.until("it asks", |world| world.handoff("n1").spec.as_ref().is_ok_and(|spec| spec.requested_by == "removal"));
    world.until("the finalizer is off", |world| world.component.finalizers.is_empty());
}

#[test]
fn conditions_of_a_component_say_what_is_so() {
    let mut fleet = fleet().with(component(GPU).version("2").made("1").made("2"));
    let view = fleet.project(at(200));
    let component = &view.components[&key(GPU)];
    let said = |tally: &crate::handoff::tally::Tally| {
        let status = crate::handoff::component::status(component, tally, at(200));
        let is = |kind: &str| status.conditions.iter().any(|it| it.kind == kind && it.status == "True");
        ["Ready", "Anomaly"].map(is)
    };
    let tally = |total: u32, current: u32, odd: u32| {
        let one = crate::handoff::named::FirstOf { nodes: 1, first: [("n1".into(), "no JSON".into())].into() };
        let anomalies = (0..odd).map(|_| ("LabelGarbage".into(), one.clone())).collect();
        crate::handoff::tally::Tally { total, current, anomalies, ..Default::default() }
    };
    assert_eq!(said(&tally(0, 0, 0)), [false, false], "no node");
    assert_eq!(said(&tally(2, 2, 0)), [true, false]);
    assert_eq!(said(&tally(2, 1, 0)), [false, false]);
    assert_eq!(said(&tally(2, 1, 1)), [false, true], "labels that make no sense");
}

#[test]
fn a_condition_that_turns_is_told_at_once() {
    let mut world = World::new(&["n1"]);
    let progressing = |world: &World| {
        let conditions = &world.component.status.conditions;
        conditions.iter().find(|it| it.kind == "Progressing").map(|it| it.status.clone())
    };
    world.until("the first report", |world| progressing(world).is_some());
    world.ask("n1", "2");
    world.ticks(2);
    assert_eq!(progressing(&world).as_deref(), Some("True"));
}

#[test]
fn an_aborted_node_that_somebody_else_closed_is_at_rest() {
    let mut world = World::new(&["n1"]);
    world.cordon("n1", "kubectl");
    world.claimant("shop/train-0", "n1");
    world.stuck.insert(key("shop/train-0"));
    world.ask("n1", "2");
    world.until_phase("n1", Phase::Draining);
    world.abort("n1");
    world.until_phase("n1", Phase::Aborted);
    world.at_rest();
    assert!(world.runs("n1", "1") && world.nodes["n1"].unschedulable);
    assert_eq!(*world.verdict("n1"), crate::handoff::verdict::Verdict::Done);
}

#[test]
fn out_of_service_is_a_wait_with_a_name_since_it_began() {
    let mut world = World::new(&["n1"]);
    world.edit_label("n1", Role::Desired, None);
    world.until_phase("n1", Phase::Held);
    world.ticks(30);
    assert_eq!(world.blockers("n1"), ["HandoffHeld"]);
    let status = &world.handoff("n1").status;
    assert_eq!(status.blockers.len(), 1);
    assert_eq!(Some(&status.blockers[0].since), status.phase_since.as_ref());
}

#[test]
fn with_a_selector_the_node_stays_closed_until_the_module_is_out() {
    let mut world = World::with(
        &["n1"],
        component(GPU).pods("shop", "uses", "gpu").version("2").made("1").made("2").finalizer(crate::api::keys::FINALIZER),
    );
    world.edit_label("n1", Role::Desired, None);
    world.cordon("n1", "kubectl");
    world.until("loader label off", |world| world.label("n1", Role::Loader).is_none());
    world.uncordon("n1");
    world.ticks(60);
    assert!(world.role_pods("n1", "unload").is_empty() && world.kernel["n1"].is_some());
    assert_eq!(world.blockers("n1"), ["Cordon"]);
}

#[test]
fn loading_lasts_until_the_loader_is_ready_and_each_step_says_its_proof() {
    let mut world = World::new(&["n1"]);
    world.broken_loader = true;
    world.ask("n1", "2");
    world.until_phase("n1", Phase::Loading);
    world.ticks(60);
    assert_eq!((world.phase("n1"), world.blockers("n1")), (Phase::Loading, vec!["LoaderNotReady".to_owned()]));
    let proofs = format!("{:?}", world.handoff("n1").status.proofs);
    assert!(proofs.contains("unloaded it, exit 0; nothing of ns/gpu is recorded in the kernel of n1"), "{proofs}");
}

#[test]
fn a_claimant_that_comes_to_a_node_left_open_closes_it() {
    let mut world = World::new(&["n1"]);
    world.ask("n1", "2");
    world.until_phase("n1", Phase::StoppingPlugin);
    assert!(!world.nodes["n1"].unschedulable, "nobody used it");
    world.claimant("shop/train-0", "n1");
    world.until("evicted", |world| !world.evicted.is_empty());
    assert!(world.nodes["n1"].unschedulable);
    world.until_phase("n1", Phase::Done);
    assert!(!world.nodes["n1"].unschedulable);
}

#[test]
fn a_running_handoff_that_has_lost_its_slot_takes_another_before_it_goes_on() {
    let mut world = World::new(&["n1"]);
    world.claimant("shop/train-0", "n1");
    world.stuck.insert(key("shop/train-0"));
    world.ask("n1", "2");
    world.until_phase("n1", Phase::Draining);
    world.lease.slots.clear();
    world.ticks(3);
    assert_eq!(world.lease.slots.len(), 1);
}

#[test]
fn held_before_the_drain_daemon_sets_that_use_the_devices_stay() {
    let mut world = World::new(&["n1"]);
    world.claimant("shop/train-0", "n1");
    world.put_handoff(handoff(GPU, "n1").to("2").action(crate::api::handoff::HandoffAction::Hold));
    world.until_phase("n1", Phase::Held);
    assert_eq!(world.handoff("n1").status.resume_at, Some(Phase::Cordoning));
    world.edit_label("n1", Role::Ready, None);
    world.until("it is ready again", |world| world.label("n1", Role::Ready).is_some());
}
