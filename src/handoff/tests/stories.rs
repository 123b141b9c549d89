//! Handoffs from queue to proof, and what people do meanwhile.

use super::world::*;
use crate::{
    api::{
        Phase,
        component::{BlockedPolicy, CordonPolicy, RolloutMode},
        handoff::{HandoffAction, Override},
        keys::{FINALIZER, Role},
    },
    fleet::{build::*, records::PodPhase},
    handoff::{
        action::Op,
        facts::Admission,
        verdict::{BlockerKind, Verdict},
    },
};

#[test]
fn a_handoff_goes_from_queue_to_proof() {
    let mut world = World::new(&["n1"]);
    world.claimant("shop/train-0", "n1");
    world.ask("n1", "2");
    world.until_phase("n1", Phase::Done);
    assert!(world.runs("n1", "2"), "{:?}", world.version("n1"));
    assert!(!world.nodes["n1"].unschedulable);
    assert_eq!(world.evicted, [key("shop/train-0")]);
    world.at_rest();
    assert!(world.lease.slots.is_empty() && world.mark("n1").is_none() && world.handoff("n1").finalizers.is_empty());
    let phases: Vec<Phase> = world.handoff("n1").status.steps.iter().map(|step| step.phase).collect();
    use Phase::*;
    assert_eq!(
        phases,
        [Preflight, Cordoning, Draining, StoppingPlugin, Unloading, Loading, StartingPlugin, Verifying, Uncordoning]
    );
    assert!(world.handoff("n1").status.steps.iter().all(|step| step.finished_at.is_some()));
    assert_eq!(*world.verdict("n1"), Verdict::Done);
    println!("{:#?}", world.log);
}

#[test]
fn one_node_at_a_time_in_the_operators_order() {
    let mut world = World::new(&["n1", "n2", "n3"]);
    for (node, position) in [("n1", 2), ("n2", 3), ("n3", 1)] {
        world.put_handoff(handoff(GPU, node).position(position));
    }
    let mut order = Vec::new();
    for _ in 0..900 {
        world.tick();
        assert!(world.lease.slots.len() <= 1, "{:?}", world.lease.slots);
        for node in ["n1", "n2", "n3"] {
            if world.phase(node) == Phase::Done && !order.contains(&node) {
                order.push(node);
            }
        }
    }
    assert_eq!(order, ["n3", "n1", "n2"]);
    world.at_rest();
    assert_eq!(world.component.status.nodes.current, 3);
}

#[test]
fn what_the_node_runs_already_is_done_without_a_write_to_it() {
    let mut world = World::new(&["n1"]);
    world.ask("n1", "1");
    world.until_phase("n1", Phase::Done);
    world.at_rest();
    assert_eq!(world.count("close "), 0);
    assert!(world.log.iter().all(|why| !why.contains("admit")), "{:#?}", world.log);
}

#[test]
fn a_bare_node_gets_the_version_installed_without_a_cordon() {
    let mut world = World::new(&[]);
    world.add_bare("n1");
    world.until_phase("n1", Phase::Done);
    assert!(world.runs("n1", "2"));
    assert_eq!(world.count("close "), 0);
    world.at_rest();
}

#[test]
fn the_label_flow_by_hand_has_the_same_order_and_the_same_safety() {
    let mut world = World::new(&["n1"]);
    world.claimant("shop/train-0", "n1");
    world.edit_label("n1", Role::Desired, Some("2"));
    world.ticks(40);
    assert_eq!(world.label("n1", Role::Plugin).as_deref(), Some("1"), "a claimant is there");
    assert!(world.evicted.is_empty() && !world.nodes["n1"].unschedulable);
    assert!(world.blockers("n1").contains(&"Claimant".to_owned()), "{:?}", world.blockers("n1"));
    world.delete(&key("shop/train-0"));
    world.until_phase("n1", Phase::Done);
    assert!(world.runs("n1", "2"));
    world.at_rest();
}

#[test]
fn taking_the_label_off_takes_the_node_out_of_service_and_setting_it_brings_it_back() {
    let mut world = World::new(&["n1"]);
    world.edit_label("n1", Role::Desired, None);
    world.until_phase("n1", Phase::Held);
    assert_eq!(world.kernel["n1"], None);
    assert_eq!(world.version("n1"), [None, None, None, None]);
    world.at_rest();
    assert!(world.lease.slots.is_empty(), "out of service holds no slot");
    world.edit_label("n1", Role::Desired, Some("2"));
    world.until_phase("n1", Phase::Done);
    assert!(world.runs("n1", "2"));
}

#[test]
fn reboot_as_the_way_to_unload() {
    let mut world = World::with(&["n1"], component(GPU).unload_by_reboot().version("2").made("1").made("2").finalizer(FINALIZER));
    world.put_pod(pod("web/front-0").on("n1").owned_by("ReplicaSet", "front").created(at(-900)).build());
    world.ask("n1", "2");
    world.until_phase("n1", Phase::AwaitingReboot);
    assert_eq!(world.evicted, [key("web/front-0")], "everything drainable leaves");
    world.ticks(1200);
    assert_eq!(world.phase("n1"), Phase::AwaitingReboot, "no deadline");
    assert_eq!(world.blockers("n1"), ["RebootRequired"]);
    world.reboot("n1", "boot-2");
    world.until_phase("n1", Phase::Done);
    assert!(world.runs("n1", "2"));
}

#[test]
fn a_reboot_in_the_middle_of_an_unload_is_its_proof() {
    let mut world = World::new(&["n1"]);
    world.ask("n1", "2");
    world.until("stopped boot", |world| world.annotation("n1", Role::Loaded).is_some_and(|text| text.contains("stoppedBoot")));
    world.reboot("n1", "boot-2");
    world.until_phase("n1", Phase::Done);
    assert!(world.runs("n1", "2"));
}

#[test]
fn hold_and_continue() {
    let mut world = World::new(&["n1"]);
    world.ask("n1", "2");
    world.spec("n1", |spec| spec.pause_after = vec![Phase::Draining]);
    world.until_phase("n1", Phase::Held);
    world.ticks(60);
    assert_eq!(world.phase("n1"), Phase::Held);
    assert_eq!(world.label("n1", Role::Plugin).as_deref(), Some("1"));
    world.spec("n1", |spec| spec.pause_after.clear());
    world.until_phase("n1", Phase::Unloading);
    world.spec("n1", |spec| spec.action = HandoffAction::Hold);
    world.until_phase("n1", Phase::Held);
    world.ticks(60);
    assert_eq!(world.kernel["n1"], None);
    assert_eq!(world.desired("n1"), None);
    world.spec("n1", |spec| spec.action = HandoffAction::Run);
    world.until_phase("n1", Phase::Done);
    assert!(world.runs("n1", "2"));
}

#[test]
fn g09_an_abort_before_the_unload_gives_the_node_back() {
    for phase in [Phase::Cordoning, Phase::Draining, Phase::StoppingPlugin] {
        let mut world = World::new(&["n1"]);
        world.claimant("shop/train-0", "n1");
        world.stuck.insert(key("shop/train-0"));
        world.ask("n1", "2");
        if phase == Phase::StoppingPlugin {
            world.stuck.clear();
        }
        world.until_phase("n1", phase);
        world.abort("n1");
        world.until_phase("n1", Phase::Aborted);
        world.stuck.clear();
        world.at_rest();
        assert!(world.runs("n1", "1"), "{phase}: {:?}", world.version("n1"));
        assert!(!world.nodes["n1"].unschedulable, "{phase}");
        assert!(world.mark("n1").is_none() && world.lease.slots.is_empty(), "{phase}: {:?}", world.blockers("n1"));
    }
}

#[test]
fn an_abort_after_the_unload_asks_and_each_choice_works() {
    for choice in ["resume", "roll back", "leave"] {
        let mut world = World::new(&["n1"]);
        world.claimant("shop/train-0", "n1");
        world.ask("n1", "2");
        world.until("loader off", |world| world.label("n1", Role::Loader).is_none());
        world.abort("n1");
        world.until_phase("n1", Phase::Held);
        world.ticks(5);
        assert_eq!(world.blockers("n1"), ["AwaitingChoice"]);
        assert!(world.nodes["n1"].unschedulable);
        match choice {
            "resume" => {
                world.spec("n1", |spec| spec.action = HandoffAction::Run);
                world.until_phase("n1", Phase::Done);
                assert!(world.runs("n1", "2"));
            }
            "roll back" => {
                world.spec("n1", |spec| (spec.action, spec.attempt, spec.version) = (HandoffAction::Run, 2, Some("1".into())));
                world.until_phase("n1", Phase::Done);
                assert!(world.runs("n1", "1"));
                assert!(!world.nodes["n1"].unschedulable);
            }
            _ => {
                world.spec("n1", |spec| spec.action = HandoffAction::Leave);
                world.until_phase("n1", Phase::Aborted);
                world.at_rest();
                assert!(world.nodes["n1"].unschedulable, "left as it is");
                assert!(world.lease.slots.is_empty() && world.mark("n1").is_none());
            }
        }
    }
}

#[test]
fn a_deleted_handoff_aborts_and_goes() {
    let mut world = World::new(&["n1"]);
    world.claimant("shop/train-0", "n1");
    world.stuck.insert(key("shop/train-0"));
    world.ask("n1", "2");
    world.until_phase("n1", Phase::Draining);
    let now = world.at();
    world
        .handoffs
        .values_mut()
        .for_each(|record| record.meta.deletion = Some(crate::fleet::records::Deletion { at: now, grace: 0 }));
    world.until("the object is gone", |world| world.handoffs.is_empty());
    assert!(world.runs("n1", "1") && !world.nodes["n1"].unschedulable);
}

#[test]
fn a_failed_handoff_is_tried_again_and_rolled_back() {
    let mut world = World::new(&["n1", "n2"]);
    world.claimant("shop/train-0", "n1");
    world.ask("n1", "2");
    world.ask("n2", "2");
    world.broken_loader = true;
    world.until_phase("n1", Phase::Loading);
    world.ticks(620);
    assert_eq!(world.phase("n1"), Phase::Failed);
    world.ticks(60);
    assert!(world.nodes["n1"].unschedulable, "left closed");
    assert_eq!(world.phase("n2"), Phase::Queued);
    assert_eq!(world.blockers("n2"), ["FailureBudgetSpent"]);
    assert!(!world.lease.slots.is_empty(), "a node left closed holds its slot");
    // The new loader is bad: back to the old one.
    world.spec("n1", |spec| (spec.attempt, spec.version) = (2, Some("1".into())));
    world.ticks(20);
    world.broken_loader = false;
    world.until_phase("n1", Phase::Done);
    assert!(world.runs("n1", "1") && !world.nodes["n1"].unschedulable);
    assert_eq!(world.handoff("n1").status.run.as_ref().unwrap().baseline[RESOURCE], 4);
}

#[test]
fn what_is_asked_for_again_keeps_its_place_before_it_is_queued_and_only_if_it_will_be() {
    let again = || {
        let mut world = World::new(&["n1", "n2"]);
        world.ask("n1", "2");
        world.until_phase("n1", Phase::Done);
        world.ticks(400);
        world.spec("n1", |spec| (spec.version, spec.attempt, spec.position) = (Some("1".into()), 2, Some(1)));
        world.ask("n2", "2");
        world.spec("n2", |spec| spec.position = Some(2));
        world
    };
    let mut world = again();
    world.decide();
    let admission = |world: &World, node: &str| world.decisions.queue.admission(&(node.into(), key(GPU))).cloned();
    assert_eq!(world.phase("n1"), Phase::Done);
    let Some(Admission::Blocked { blockers, .. }) = admission(&world, "n2") else { panic!("n2 goes first") };
    assert_eq!(blockers[0].kind, BlockerKind::QueuedBehind, "{blockers:?}");
    world.until_phase("n1", Phase::Done);
    world.until_phase("n2", Phase::Done);

    // A handoff without a Node has no way back to the queue that could be kept for it.
    let mut world = again();
    world.nodes.remove("n1");
    world.until_phase("n2", Phase::Done);
}

#[test]
fn a_version_that_the_component_does_not_have_holds_nobody_up_and_is_taken_once_it_is_there() {
    let mut world = World::new(&["n1", "n2"]);
    world.ask("n1", "3");
    world.ask("n2", "2");
    world.spec("n1", |spec| spec.position = Some(1));
    world.spec("n2", |spec| spec.position = Some(2));
    world.until_phase("n2", Phase::Done);
    assert_eq!((world.phase("n1"), world.blockers("n1")), (Phase::Queued, vec!["UnknownVersion".to_owned()]));
    assert!(world.runs("n1", "1") && !world.nodes["n1"].unschedulable);
    world.spec("n1", |spec| spec.version = Some("2".into()));
    world.until_phase("n1", Phase::Done);
}

#[test]
fn g04_a_blocked_node_is_skipped_and_stays_open() {
    let component =
        component(GPU).version("2").made("1").made("2").finalizer(FINALIZER).rollout(|it| it.blocked = BlockedPolicy::Skip);
    let mut world = World::with(&["n1", "n2"], component);
    world.put_pod(
        pod("shop/db-0").on("n1").claims(RESOURCE, 1).owned_by("StatefulSet", "db").label("app", "db").created(at(-900)).build(),
    );
    world.fleet.put(budget("shop/db").selects("app", "db").min_available("1").counts(1, 1, 1));
    world.fleet.put(scale("StatefulSet", "shop/db", 1));
    world.ask("n1", "2");
    world.ask("n2", "2");
    world.until_phase("n2", Phase::Done);
    // The soak is over, and what the node waits for is written down.
    world.ticks(400);
    assert_eq!(world.phase("n1"), Phase::Queued);
    assert_eq!(world.blockers("n1"), ["DisruptionBudgetNever"]);
    let Verdict::Wait(wait) = world.verdict("n1") else { panic!() };
    assert!(wait.blockers[0].message.contains("needs 1 healthy of 1, has 1, allows 0"), "{}", wait.blockers[0].message);
    assert!(!world.nodes["n1"].unschedulable);
    let told = world.handoff("n1").status.clone();
    assert_eq!(
        told.blockers.iter().map(|it| it.kind.as_str()).collect::<Vec<_>>(),
        ["DisruptionBudgetNever"],
        "for readers of the API"
    );
    assert!(told.phase_since.is_some(), "queued since when");
}

#[test]
fn a_budget_whose_sync_failed_a_moment_ago_is_waited_for_before_the_node_is_closed() {
    let mut world = World::new(&["n1"]);
    world.put_pod(
        pod("shop/db-0").on("n1").claims(RESOURCE, 1).owned_by("StatefulSet", "db").label("app", "db").created(at(-900)).build(),
    );
    let shut = |world: &World| {
        budget("shop/db").selects("app", "db").min_available("1").counts(2, 1, 2).sync_failed("found no controllers", world.at())
    };
    let failing = shut(&world);
    world.fleet.put(failing);
    world.fleet.put(scale("StatefulSet", "shop/db", 2));
    world.ask("n1", "2");
    world.ticks(30);
    assert_eq!((world.phase("n1"), world.blockers("n1")), (Phase::Queued, vec!["DisruptionBudgetLag".to_owned()]));
    // Nothing tells of it but the clock.
    world.ticks(40);
    assert_eq!((world.phase("n1"), world.blockers("n1")), (Phase::Queued, vec!["DisruptionBudgetNever".to_owned()]));
    assert!(!world.nodes["n1"].unschedulable && world.evicted.is_empty());
    world.fleet.put(budget("shop/db").selects("app", "db").min_available("1").counts(2, 1, 2));
    world.until_phase("n1", Phase::Done);
    assert_eq!(world.evicted.len(), 1);
}

#[test]
fn an_override_deletes_one_pod_past_its_budget() {
    let mut world = World::new(&["n1"]);
    world.put_pod(
        pod("shop/db-0").on("n1").claims(RESOURCE, 1).owned_by("StatefulSet", "db").label("app", "db").created(at(-900)).build(),
    );
    world.fleet.put(budget("shop/db").selects("app", "db").min_available("1").counts(1, 1, 1));
    world.fleet.put(scale("StatefulSet", "shop/db", 1));
    world.ask("n1", "2");
    world.ticks(30);
    assert_eq!(world.phase("n1"), Phase::Queued);
    let uid = world.uid_of(&key("shop/db-0")).to_string();
    world.spec("n1", |spec| {
        spec.overrides = vec![Override { pod_uid: uid, reason: "agreed with its owner".into(), until: at(100_000).to_string() }];
    });
    world.until_phase("n1", Phase::Done);
    assert!(world.evicted.is_empty());
    assert_eq!(world.count("agreed with its owner"), 1);
}

#[test]
fn g05_the_slot_of_a_node_that_does_not_exist_is_freed() {
    let mut world = World::new(&["n1"]);
    world.lease = lease("me").slot("n9", "ns/gpu").build();
    world.ask("n1", "2");
    world.until_phase("n1", Phase::Done);
}

#[test]
fn a_node_that_vanishes_frees_its_slot_and_goes_on_when_it_is_back() {
    let mut world = World::new(&["n1", "n2"]);
    world.ask("n1", "2");
    world.ask("n2", "2");
    world.until_phase("n1", Phase::Unloading);
    let mut node = world.nodes.remove("n1").unwrap();
    world.pods.retain(|_, pod| pod.node.as_ref().is_none_or(|it| it.as_str() != "n1"));
    world.ticks(10);
    assert!(world.lease.slots.iter().all(|slot| slot.node != "n1"), "{:?}", world.lease.slots);
    assert_eq!(world.blockers("n1"), ["NodeGone"]);
    // It comes back, another machine in another boot, bare.
    node.meta.uid = "another".into();
    node.boot_id = "boot-9".into();
    node.labels = crate::fleet::build::node("n1").build().labels;
    node.annotations.clear();
    node.unschedulable = false;
    node.unschedulable_managers.clear();
    world.nodes.insert("n1".into(), node);
    world.kernel.insert("n1".into(), None);
    world.until_phase("n1", Phase::Done);
    world.until_phase("n2", Phase::Done);
    assert!(world.runs("n1", "2") && world.runs("n2", "2"));
}

#[test]
fn g11_a_foreign_cordon_stays() {
    let mut world = World::new(&["n1"]);
    world.claimant("shop/train-0", "n1");
    world.cordon("n1", "kubectl");
    world.ask("n1", "2");
    world.until_phase("n1", Phase::Done);
    world.at_rest();
    assert!(world.runs("n1", "2") && world.nodes["n1"].unschedulable);
    assert!(world.lease.slots.is_empty());
}

#[test]
fn g07_nothing_is_evicted_twice() {
    let mut world = World::new(&["n1"]);
    world.claimant("shop/train-0", "n1");
    world.stuck.insert(key("shop/train-0"));
    world.ask("n1", "2");
    world.until_phase("n1", Phase::Draining);
    for beat in 0..50 {
        touch(&mut world, beat);
        world.tick();
    }
    assert_eq!(world.evicted.len(), 1);
}

fn touch(world: &mut World, beat: u32) {
    let labels = std::sync::Arc::make_mut(&mut world.node("n1").labels);
    labels.insert("foreign/beat".into(), beat.to_string().into());
}

#[test]
fn g13_a_run_ends_under_the_policy_it_began_with() {
    let mut world = World::new(&["n1"]);
    world.claimant("shop/train-0", "n1");
    world.stuck.insert(key("shop/train-0"));
    world.ask("n1", "2");
    world.until_phase("n1", Phase::Draining);
    if let Ok(spec) = &mut world.component.spec {
        spec.drain.cordon = CordonPolicy::Never;
    }
    world.ticks(5);
    world.stuck.clear();
    world.until_phase("n1", Phase::Done);
    assert!(!world.nodes["n1"].unschedulable);
}

#[test]
fn an_automatic_rollout_takes_every_node() {
    let component =
        component(GPU).version("2").made("1").made("2").finalizer(FINALIZER).rollout(|it| it.mode = RolloutMode::Auto);
    let mut world = World::with(&["n1", "n2"], component);
    world.until("both current", |world| world.runs("n1", "2") && world.runs("n2", "2"));
    world.at_rest();
    assert_eq!(world.component.status.nodes.current, 2);
}

#[test]
fn a_paused_rollout_admits_nothing_new_and_lets_the_running_end() {
    let mut world = World::new(&["n1", "n2"]);
    world.ask("n1", "2");
    world.ask("n2", "2");
    world.until_phase("n1", Phase::Draining);
    if let Ok(spec) = &mut world.component.spec {
        spec.rollout.paused = true;
    }
    world.until_phase("n1", Phase::Done);
    world.ticks(200);
    assert_eq!(world.phase("n2"), Phase::Queued);
    assert_eq!(world.blockers("n2"), ["Paused"]);
}

#[test]
fn a_removed_component_leaves_no_trace() {
    let mut world = World::new(&["n1"]);
    world.component.meta.deletion = Some(crate::fleet::records::Deletion { at: at(100), grace: 0 });
    world.until("the finalizer is off", |world| world.component.finalizers.is_empty());
    assert_eq!(world.kernel["n1"], None);
    assert!(world.sets.is_empty());
    assert_eq!(world.version("n1"), [None, None, None, None]);
    assert!(!world.nodes["n1"].unschedulable);
}

#[test]
fn g19_only_the_unused_version_is_collected() {
    let component =
        component(GPU).version("3").made("1").made("2").made("3").finalizer(FINALIZER).rollout(|it| it.keep_versions = 1);
    let mut world = World::with(&["n1"], component);
    for role in [Role::Desired, Role::Loader, Role::Plugin, Role::Ready] {
        world.edit_label("n1", role, Some("2"));
    }
    let loaded = Role::Loaded.key(&key(GPU));
    world.node("n1").annotations.insert(loaded.into(), r#"{"version":"2"}"#.into());
    world.kernel.insert("n1".into(), Some("2".into()));
    let ours: Vec<_> = world.pods.keys().cloned().collect();
    ours.iter().for_each(|pod| world.delete(pod));
    world.ticks(60);
    let mut left: Vec<String> = world.sets.values().map(|set| set.labels["lockkeeper.dev/version"].to_string()).collect();
    left.dedup();
    left.sort();
    left.dedup();
    assert_eq!(left, ["2", "3"]);
}

#[test]
fn a_restart_at_any_second_ends_in_the_same_state() {
    for every in [7, 23] {
        let mut world = World::new(&["n1"]);
        world.claimant("shop/train-0", "n1");
        world.ask("n1", "2");
        for second in 1..900 {
            world.tick();
            if second % every == 0 && second < 300 {
                world.restart();
            }
        }
        assert_eq!(world.phase("n1"), Phase::Done, "every {every} s: {:?}", world.blockers("n1"));
        assert!(world.runs("n1", "2"));
    }
}

#[test]
fn unload_failures_are_recorded_and_tried_again() {
    let mut world = World::new(&["n1"]);
    world.exits = vec![1, 1];
    world.ask("n1", "2");
    world.until_phase("n1", Phase::Done);
    assert!(world.runs("n1", "2"));
    assert_eq!(world.count("did not unload"), 2);
    assert!(world.pods.values().all(|pod| pod.phase == PodPhase::Running));
}

#[test]
fn a_write_says_why() {
    let mut world = World::new(&["n1"]);
    world.ask("n1", "2");
    world.until_phase("n1", Phase::Done);
    assert!(world.log.iter().all(|why| why.len() > 10), "{:#?}", world.log);
    let body = world.acted.iter().find_map(|(_, action)| match &action.op {
        Op::CreatePod(body) => Some(body.clone()),
        _ => None,
    });
    assert!(body.is_none());
}

#[test]
fn g18_a_new_boot_voids_the_unload_that_cannot_start() {
    let mut world = World::new(&["n1"]);
    world.stuck_unload = true;
    world.ask("n1", "2");
    world.until("the unload pod hangs", |world| !world.role_pods("n1", "unload").is_empty());
    world.ticks(20);
    assert!(world.role_pods("n1", "unload").iter().all(|pod| pod.phase == PodPhase::Pending));
    world.reboot("n1", "boot-2");
    world.until_phase("n1", Phase::Done);
    assert!(world.runs("n1", "2") && world.role_pods("n1", "unload").is_empty());
}

#[test]
fn g21_a_node_that_the_selector_no_longer_covers_is_dropped_and_counts_nowhere() {
    let component = component(GPU).version("2").made("1").made("2").finalizer(FINALIZER).rollout(|it| {
        it.mode = RolloutMode::Auto;
        it.paused = true;
    });
    let mut world = World::with(&["n1", "n2"], component);
    world.ticks(10);
    assert_eq!(world.phase("n1"), Phase::Queued);
    if let Ok(spec) = &mut world.component.spec {
        spec.node_selector.insert("kubernetes.io/hostname".into(), "n2".into());
        spec.rollout.paused = false;
    }
    world.until_phase("n1", Phase::Aborted);
    world.until_phase("n2", Phase::Done);
    world.at_rest();
    assert!(world.runs("n1", "1"), "left as it is");
    assert_eq!((world.component.status.nodes.total, world.component.status.nodes.current), (1, 1));
    assert!(world.mark("n1").is_none() && world.lease.slots.is_empty());
}

#[test]
fn g22_a_node_that_is_not_ready_hides_no_other() {
    let mut world = World::new(&["n1", "n2"]);
    world.node("n1").ready.status = crate::fleet::records::ReadyStatus::Unknown;
    world.ask("n1", "2");
    world.ask("n2", "2");
    world.until_phase("n2", Phase::Done);
    assert_eq!(world.phase("n1"), Phase::Queued);
    assert_eq!(world.blockers("n1"), ["NodeNotReady"]);
}

#[test]
fn a_force_deleted_pod_counts_until_its_grace_has_passed() {
    let mut world = World::new(&["n1"]);
    world.claimant("shop/train-0", "n1");
    world.ask("n1", "2");
    world.stuck.insert(key("shop/train-0"));
    world.until_phase("n1", Phase::Draining);
    world.ticks(10);
    let since = world.now;
    world.pods.remove(&key("shop/train-0"));
    world.until_phase("n1", Phase::StoppingPlugin);
    assert!(world.now - since >= 30, "{} s", world.now - since);
}

#[test]
fn g14_a_restart_does_not_skip_what_is_waited_for() {
    let mut world = World::new(&["n1", "n2"]);
    world.lease = lease("me").slot("n2", "ns/other").build();
    world.node("n2").unschedulable = true;
    world.ask("n1", "2");
    for _ in 0..5 {
        world.ticks(20);
        assert_eq!(world.phase("n1"), Phase::Queued);
        assert_eq!(world.blockers("n1"), ["BudgetSpent"]);
        world.restart();
    }
}

#[test]
fn a_label_that_waited_too_long_is_followed_all_the_same_and_spends_no_failure_budget() {
    let mut world = World::new(&["n1", "n2"]);
    world.claimant("shop/train-0", "n1");
    world.edit_label("n1", Role::Desired, Some("2"));
    world.ticks(20 * 60);
    assert_eq!(world.phase("n1"), Phase::StoppingPlugin);
    world.ticks(6 * 60);
    assert_eq!(world.phase("n1"), Phase::Failed);
    assert!(world.runs("n1", "1") || world.label("n1", Role::Plugin).as_deref() == Some("1"));
    world.ask("n2", "2");
    world.until_phase("n2", Phase::Done);
    world.delete(&key("shop/train-0"));
    world.until_phase("n1", Phase::Done);
    assert!(world.runs("n1", "2"));
    world.at_rest();
}
