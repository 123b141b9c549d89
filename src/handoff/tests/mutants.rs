//! Each clause of the interlock by its name: the shortest story that goes wrong without it. The world asserts the invariants at each step.

use super::world::*;
use crate::{
    api::{Phase, component::CordonPolicy, keys::Role},
    fleet::{build::*, records::PodPhase},
    handoff::{action::Op, verdict::Verdict},
};

fn reason(world: &World, node: &str) -> String {
    world.handoff(node).status.reason.as_ref().map(|it| it.word.clone()).unwrap_or_default()
}

#[test]
fn unload_needs_empty() {
    let mut world = World::new(&["n1"]);
    world.edit_label("n1", Role::Desired, None);
    world.until("plugin label off", |world| world.label("n1", Role::Plugin).is_none());
    // The scheduler had picked the node before the plugin ended.
    world.claimant("shop/train-0", "n1");
    world.ticks(60);
    assert_eq!(world.label("n1", Role::Loader).as_deref(), Some("1"));
    assert!(world.role_pods("n1", "unload").is_empty() && world.kernel["n1"].is_some());
    world.delete(&key("shop/train-0"));
    world.until_phase("n1", Phase::Held);
    assert_eq!(world.kernel["n1"], None);
}

#[test]
fn unload_needs_empty_after_the_loader_label_too() {
    let mut world = World::new(&["n1"]);
    world.edit_label("n1", Role::Desired, None);
    world.until("loader label off", |world| world.label("n1", Role::Loader).is_none());
    world.claimant("shop/train-0", "n1");
    world.ticks(60);
    assert!(world.role_pods("n1", "unload").is_empty() && world.kernel["n1"].is_some());
}

#[test]
fn late_claimants_evicted() {
    for label in [Role::Plugin, Role::Loader] {
        let mut world = World::new(&["n1"]);
        world.claimant("shop/train-0", "n1");
        world.ask("n1", "2");
        world.until("label off", |world| world.label("n1", label).is_none());
        let now = world.at();
        world.put_pod(pod("shop/late-0").on("n1").claims(RESOURCE, 1).owned_by("ReplicaSet", "late").created(now).build());
        world.until_phase("n1", Phase::Done);
        assert!(world.evicted.contains(&key("shop/late-0")), "{label:?}");
    }
}

#[test]
fn ready_stays_off() {
    let mut world = World::new(&["n1"]);
    world.put_pod(
        pod("shop/db-0").on("n1").claims(RESOURCE, 1).owned_by("StatefulSet", "db").label("app", "db").created(at(-900)).build(),
    );
    world.fleet.put(budget("shop/db").selects("app", "db").min_available("2").counts(2, 2, 3));
    world.fleet.put(scale("StatefulSet", "shop/db", 3));
    world.ask("n1", "2");
    world.until_phase("n1", Phase::Draining);
    // The budget has room again only later; the server refuses until then.
    world.refuses = true;
    world.ticks(120);
    assert_eq!(world.phase("n1"), Phase::Draining);
    assert_eq!(world.label("n1", Role::Ready), None);
    assert_eq!(world.count("is not ready for DaemonSets"), 1);
    assert_eq!(world.count("it is ready"), 0);
    assert!(world.blockers("n1").contains(&"DisruptionBudget".to_owned()), "{:?}", world.blockers("n1"));
    world.refuses = false;
    world.fleet.put(budget("shop/db").selects("app", "db").min_available("2").counts(3, 2, 3));
    world.until_phase("n1", Phase::Done);
    assert_eq!(world.label("n1", Role::Ready).as_deref(), Some("2"));
}

#[test]
fn no_loader_beside_unload() {
    let mut world = World::new(&["n1"]);
    world.slow_unload = true;
    world.edit_label("n1", Role::Desired, None);
    world.until("the unload pod runs", |world| world.role_pods("n1", "unload").iter().any(|pod| pod.phase == PodPhase::Running));
    world.edit_label("n1", Role::Desired, Some("1"));
    world.ticks(30);
    assert_eq!(world.label("n1", Role::Loader), None, "not beside the unload pod");
    world.slow_unload = false;
    world.until("in service again", |world| world.runs("n1", "1"));
}

#[test]
fn old_loader_replaced() {
    let mut world = World::new(&["n1"]);
    world.edit_label("n1", Role::Plugin, None);
    world.edit_label("n1", Role::Ready, None);
    world.tick();
    world.until("the plugin pod is gone", |world| world.role_pods("n1", "plugin").is_empty());
    // An unload pod ended after the loader had become Ready.
    let now = world.at();
    world.put_pod(unload_pod(GPU, "1", "n1", "old").exited(0, "", now).created(at(0)).build());
    world.kernel.insert("n1".into(), None);
    let old = world.role_pods("n1", "loader")[0].meta.uid.clone();
    world.until("in service again", |world| world.runs("n1", "1"));
    assert_ne!(world.role_pods("n1", "loader")[0].meta.uid, old);
}

#[test]
fn nonce() {
    let mut world = World::new(&["n1"]);
    world.ask("n1", "2");
    let mut late = None;
    for _ in 0..300 {
        world.tick();
        let create = world.acted.iter().find(|(_, action)| matches!(action.op, Op::CreatePod(_)));
        late = late.or_else(|| create.map(|(_, action)| action.clone()));
    }
    assert_eq!(world.phase("n1"), Phase::Done);
    // A paused former leader wakes up now and creates its unload pod.
    world.create_late(&late.unwrap());
    world.ticks(60);
    assert_eq!(world.kernel["n1"].as_deref(), Some("2"));
    assert!(world.role_pods("n1", "unload").is_empty(), "refused by the kubelet, then deleted");
    assert!(world.runs("n1", "2"));
}

#[test]
fn nonce_not_absence() {
    let mut world = World::new(&["n1"]);
    world.ask("n1", "2");
    let mut late = None;
    for _ in 0..300 {
        world.tick();
        let create = world.acted.iter().find(|(_, action)| matches!(action.op, Op::CreatePod(_)));
        late = late.or_else(|| create.map(|(_, action)| action.clone()));
    }
    world.make_again("n1");
    world.create_late(&late.unwrap());
    world.ticks(90);
    assert_eq!(world.kernel["n1"].as_deref(), Some("2"));
    assert!(world.runs("n1", "2"));
}

#[test]
fn exit_1_has_a_rule() {
    let mut world = World::new(&["n1"]);
    world.exits = vec![1; 100];
    world.ask("n1", "2");
    world.until_phase("n1", Phase::Unloading);
    world.ticks(60);
    let mut seen = world.blockers("n1");
    for _ in 0..60 {
        world.tick();
        seen.extend(world.blockers("n1"));
    }
    assert!(seen.contains(&"UnloadFailed".to_owned()), "{seen:?}");
    world.until_phase("n1", Phase::Failed);
    assert_eq!(reason(&world, "n1"), "DeadlineExceeded");
    assert!(world.handoff("n1").status.unload.as_ref().unwrap().message.contains("module is in use"));
}

#[test]
fn removed_by_us() {
    // Set back by a person while the plugin stops.
    let mut world = World::new(&["n1"]);
    world.ask("n1", "2");
    world.until("ours is off", |world| world.label("n1", Role::Desired).is_none());
    world.edit_label("n1", Role::Desired, Some("1"));
    world.until_phase("n1", Phase::Failed);
    assert_eq!(reason(&world, "n1"), "LabelEdited");
    world.until("the person's order is followed", |world| world.runs("n1", "1"));
    world.at_rest();
    assert_eq!(world.label("n1", Role::Desired).as_deref(), Some("1"));
    // Removed by a person, before the handoff does: 2 is not loaded.
    let mut world = World::new(&["n1"]);
    world.claimant("shop/train-0", "n1");
    world.stuck.insert(key("shop/train-0"));
    world.ask("n1", "2");
    world.until_phase("n1", Phase::Draining);
    world.edit_label("n1", Role::Desired, None);
    world.stuck.clear();
    world.until_phase("n1", Phase::Held);
    world.at_rest();
    assert_eq!(world.label("n1", Role::Desired), None);
    assert_eq!(world.kernel["n1"], None);
}

#[test]
fn label_edit_to_the_end() {
    let mut world = World::new(&["n1"]);
    world.broken_plugin = true;
    world.ask("n1", "2");
    world.until_phase("n1", Phase::StartingPlugin);
    world.edit_label("n1", Role::Desired, None);
    world.until_phase("n1", Phase::Failed);
    assert_eq!(reason(&world, "n1"), "LabelEdited");
    // The target, set early, is an order too.
    let mut world = World::new(&["n1"]);
    world.ask("n1", "2");
    world.until("ours is off", |world| world.label("n1", Role::Desired).is_none());
    world.edit_label("n1", Role::Desired, Some("2"));
    world.until_phase("n1", Phase::Failed);
    assert_eq!(reason(&world, "n1"), "LabelEdited");
    world.until("followed all the same", |world| world.runs("n1", "2"));
}

#[test]
fn node_made_again() {
    let mut world = World::handed_over();
    world.make_again("n1");
    world.tick();
    assert_eq!(world.label("n1", Role::Desired).as_deref(), Some("2"));
    assert!(world.annotation("n1", Role::Loaded).is_some(), "both in one patch");
    world.until("in service again", |world| world.runs("n1", "2"));
    assert_eq!(world.count("unload 2"), 0);
}

#[test]
fn node_made_again_in_every_phase() {
    for phase in [
        Phase::Cordoning,
        Phase::Draining,
        Phase::StoppingPlugin,
        Phase::Unloading,
        Phase::Loading,
        Phase::StartingPlugin,
        Phase::Verifying,
    ] {
        let mut world = World::new(&["n1"]);
        world.claimant("shop/train-0", "n1");
        world.ask("n1", "2");
        world.until_phase("n1", phase);
        world.make_again("n1");
        world.until_phase("n1", Phase::Done);
        assert!(world.runs("n1", "2"), "{phase}");
        world.at_rest();
    }
}

#[test]
fn no_boot_in_record() {
    let mut world = World::new(&["n1"]);
    world.ask("n1", "1");
    world.until_phase("n1", Phase::Done);
    world.reboot("n1", "boot-2");
    world.until("loaded again", |world| world.kernel["n1"].is_some());
    world.make_again("n1");
    world.spec("n1", |spec| spec.version = Some("2".into()));
    world.until("2 runs", |world| world.runs("n1", "2"));
    assert_eq!(world.made.min(1), 1);
    assert_eq!(world.count("exited 0"), 1, "the new boot was no proof: {:#?}", world.log);
}

#[test]
fn failed_stops() {
    let mut world = World::new(&["n1"]);
    world.claimant("shop/train-0", "n1");
    let plugin = world.role_pods("n1", "plugin")[0].key.clone();
    world.stuck.insert(plugin);
    world.ask("n1", "2");
    world.until_phase("n1", Phase::StoppingPlugin);
    world.ticks(620);
    assert_eq!(world.phase("n1"), Phase::Failed);
    world.stuck.clear();
    world.ticks(600);
    assert_eq!(world.label("n1", Role::Loader).as_deref(), Some("1"));
    assert_eq!(world.kernel["n1"].as_deref(), Some("1"));
    assert!(world.nodes["n1"].unschedulable, "left closed, and said so");
    let Verdict::Failed { reason } = world.verdict("n1") else { panic!("{:?}", world.verdict("n1")) };
    assert!(reason.message.contains("stays closed"), "{}", reason.message);
}

#[test]
fn unload_or_reboot() {
    let component = component(GPU).of_module(|module| module.daemon_sets.as_mut().unwrap().unload = None);
    let mut world = World::with(&["n1"], component.version("2").made("1").made("2").finalizer(crate::api::keys::FINALIZER));
    world.ask("n1", "2");
    world.ticks(60);
    assert_eq!(world.blockers("n1"), ["ComponentRefused"], "nothing would unload it");
    // An old version without an unload pod leaves with a reboot, whatever it says.
    let old = component_without_unload("1");
    let mut world = World::new(&["n1"]);
    world.sets.extend(old);
    world.ask("n1", "2");
    world.until_phase("n1", Phase::AwaitingReboot);
    world.ticks(60);
    assert_eq!(world.kernel["n1"].as_deref(), Some("1"));
    assert_eq!(world.label("n1", Role::Loader), None);
    world.reboot("n1", "boot-2");
    world.until_phase("n1", Phase::Done);
}

/// The DaemonSets of a version that says `unloadBy: Pod` and has no unload pod.
fn component_without_unload(version: &str) -> Vec<(crate::api::ObjectKey, crate::fleet::records::DaemonSetRecord)> {
    use crate::api::versioned::DaemonSetRole;
    let mut block = component(GPU).block(version);
    block.daemon_sets.as_mut().unwrap().unload = None;
    let sets = DaemonSetRole::ALL.map(|role| versioned_daemon_set(&key(GPU), role, version, &block));
    sets.into_iter().map(|set| (set.key.clone(), set)).collect()
}

#[test]
fn selector_needs_cordon() {
    let mut world = World::with(
        &["n1"],
        component(GPU).pods("shop", "uses", "gpu").version("2").made("1").made("2").finalizer(crate::api::keys::FINALIZER),
    );
    world.edit_label("n1", Role::Desired, Some("2"));
    world.until("plugin label off", |world| world.label("n1", Role::Plugin).is_none());
    world.ticks(60);
    assert_eq!(world.label("n1", Role::Loader).as_deref(), Some("1"));
    assert_eq!(world.blockers("n1"), ["Cordon"]);
    world.cordon("n1", "kubectl");
    world.until_phase("n1", Phase::Done);
    assert!(world.runs("n1", "2") && world.nodes["n1"].unschedulable);
}

#[test]
fn cordon_by_managed_fields() {
    let mut world = World::new(&["n1"]);
    world.claimant("shop/train-0", "n1");
    world.ask("n1", "2");
    world.until_phase("n1", Phase::Unloading);
    // Uncordoned and cordoned again between two looks: the annotation still says ours.
    world.uncordon("n1");
    world.cordon("n1", "kubectl");
    world.until_phase("n1", Phase::Done);
    world.at_rest();
    assert!(world.nodes["n1"].unschedulable);
    assert!(!world.nodes["n1"].annotations.contains_key(crate::api::keys::CORDON));
}

#[test]
fn uncordon_has_a_rule() {
    let mut world = World::new(&["n1"]);
    world.claimant("shop/train-0", "n1");
    world.stuck.insert(key("shop/train-0"));
    world.ask("n1", "2");
    world.until_phase("n1", Phase::Draining);
    world.uncordon("n1");
    world.until_phase("n1", Phase::Aborted);
    world.at_rest();
    assert!(world.runs("n1", "1") && !world.nodes["n1"].unschedulable);
    assert!(!world.nodes["n1"].annotations.contains_key(crate::api::keys::CORDON) && world.mark("n1").is_none());
    // After Draining the handoff goes on, open.
    let mut world = World::new(&["n1"]);
    world.claimant("shop/train-0", "n1");
    world.ask("n1", "2");
    world.until_phase("n1", Phase::StoppingPlugin);
    world.uncordon("n1");
    world.until_phase("n1", Phase::Done);
    assert!(world.runs("n1", "2") && !world.nodes["n1"].unschedulable);
}

#[test]
fn retry_keeps_baseline() {
    let mut world = World::new(&["n1"]);
    let plugin = world.role_pods("n1", "plugin")[0].key.clone();
    world.stuck.insert(plugin);
    world.ask("n1", "2");
    world.until_phase("n1", Phase::StoppingPlugin);
    world.ticks(620);
    assert_eq!(world.phase("n1"), Phase::Failed);
    world.stuck.clear();
    world.ticks(30);
    world.attempt("n1");
    world.devices = 0;
    world.until_phase("n1", Phase::Verifying);
    let run = world.handoff("n1").status.run.clone().unwrap();
    assert_eq!((run.attempt, run.baseline[RESOURCE], run.from.as_deref()), (2, 4, Some("1")));
    world.devices = 3;
    world.ticks(100);
    assert_eq!(world.phase("n1"), Phase::Verifying, "no device back, not Done");
    world.devices = 4;
    world.until_phase("n1", Phase::Done);
}

#[test]
fn abort_in_queued_restores() {
    let mut world = World::new(&["n1"]);
    world.claimant("shop/train-0", "n1");
    world.stuck.insert(key("shop/train-0"));
    world.ask("n1", "2");
    world.until_phase("n1", Phase::Draining);
    world.until("failed", |world| world.phase("n1") == Phase::Draining && world.now > START + 500);
    world.until_phase("n1", Phase::Failed);
    world.attempt("n1");
    if let Ok(spec) = &mut world.component.spec {
        spec.rollout.paused = true;
    }
    world.until_phase("n1", Phase::Queued);
    world.abort("n1");
    world.until_phase("n1", Phase::Aborted);
    world.at_rest();
    assert!(!world.nodes["n1"].unschedulable && world.runs("n1", "1"));
    assert!(world.mark("n1").is_none() && world.lease.slots.is_empty());
}

#[test]
fn typo_freezes() {
    let mut world = World::new(&["n1"]);
    world.edit_label("n1", Role::Desired, Some("tpyo"));
    world.edit_label("n1", Role::Loader, None);
    world.ticks(120);
    assert_eq!(world.kernel["n1"].as_deref(), Some("1"));
    assert_eq!(world.label("n1", Role::Plugin).as_deref(), Some("1"));
    assert!(world.blockers("n1").contains(&"UnknownVersion".to_owned()));
    let Verdict::Wait(wait) = world.verdict("n1") else { panic!() };
    assert!(wait.blockers[0].message.contains("known are 1, 2"), "{}", wait.blockers[0].message);
    assert!(world.handoffs.is_empty(), "a typo is no order");
}

#[test]
fn no_loader_back() {
    let mut world = World::new(&["n1"]);
    world.frozen = true;
    world.edit_label("n1", Role::Desired, None);
    world.edit_label("n1", Role::Loader, None);
    world.reboot("n1", "boot-2");
    for _ in 0..60 {
        world.tick();
        assert_eq!(world.label("n1", Role::Loader), None);
    }
    world.frozen = false;
    world.until_phase("n1", Phase::Held);
    assert_eq!(world.kernel["n1"], None);
}

#[test]
fn ready_follows_plugin() {
    let mut world = World::new(&["n1"]);
    world.edit_label("n1", Role::Desired, None);
    world.edit_label("n1", Role::Plugin, None);
    world.until("ready off", |world| world.label("n1", Role::Ready).is_none());
}

#[test]
fn epoch() {
    let mut world = World::new(&["n1"]);
    world.claimant("shop/train-0", "n1");
    world.stuck.insert(key("shop/train-0"));
    world.ask("n1", "2");
    world.until_phase("n1", Phase::Draining);
    assert_eq!(world.mark("n1").unwrap().epoch, 1);
    world.context.epoch = 2;
    world.lease.epoch = 2;
    world.restart();
    world.tick();
    assert_eq!(world.mark("n1").unwrap().epoch, 2, "before anything else");
    world.tick();
    assert_eq!(world.handoff("n1").status.run.as_ref().unwrap().epoch, 2);
    world.stuck.clear();
    world.until_phase("n1", Phase::Done);
}

#[test]
fn slot_after_uncordon() {
    let mut world = World::new(&["n1"]);
    world.claimant("shop/train-0", "n1");
    world.ask("n1", "2");
    world.until_phase("n1", Phase::Done);
    let place =
        |what: &str| world.log.iter().position(|why| why.starts_with(what)).unwrap_or_else(|| panic!("{what}: {:#?}", world.log));
    assert!(place("open n1") < place("free the slot") && place("free the slot") < place("n1 is done"));
}

#[test]
fn slots_collected() {
    let mut world = World::new(&["n1", "n2"]);
    world.ask("n1", "2");
    world.ask("n2", "2");
    world.until_phase("n1", Phase::Done);
    // A crash left the slot of a node that is done.
    let uid = world.nodes["n1"].meta.uid.to_string();
    world.lease.slots = vec![crate::api::keys::Slot { node: "n1".into(), node_uid: uid, component: GPU.into() }];
    world.until_phase("n2", Phase::Done);
}

#[test]
fn a_node_without_claimants_is_not_closed_unless_asked() {
    for (policy, closed) in [(CordonPolicy::Auto, 0), (CordonPolicy::Always, 1), (CordonPolicy::Never, 0)] {
        let component =
            component(GPU).version("2").made("1").made("2").finalizer(crate::api::keys::FINALIZER).drain(|it| it.cordon = policy);
        let mut world = World::with(&["n1"], component);
        world.ask("n1", "2");
        world.until_phase("n1", Phase::Done);
        assert_eq!(world.count("close n1"), closed, "{policy:?}");
        assert!(!world.nodes["n1"].unschedulable);
    }
}
