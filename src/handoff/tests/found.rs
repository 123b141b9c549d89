//! What the model check found: each a story that went wrong until its fix.

use super::world::*;
use crate::{
    api::{Phase, handoff::HandoffAction, keys::Role},
    fleet::build::{component, key},
};

#[test]
fn a_node_left_as_it_is_while_its_new_version_comes_is_not_written_for_ever() {
    for broken_loader in [false, true] {
        let mut world = World::new(&["n1"]);
        world.claimant("shop/train-0", "n1");
        world.ask("n1", "2");
        world.until("loader label on", |world| world.label("n1", Role::Loader).as_deref() == Some("2"));
        world.broken_loader = broken_loader;
        world.abort("n1");
        world.until_phase("n1", Phase::Held);
        world.spec("n1", |spec| spec.action = HandoffAction::Leave);
        world.until_phase("n1", Phase::Aborted);
        world.ticks(60);
        world.at_rest();
        assert!(world.lease.slots.is_empty(), "{broken_loader}: the slot is freed");
        assert!(world.nodes["n1"].unschedulable, "{broken_loader}: the cordon is theirs");
        assert!(!world.nodes["n1"].annotations.contains_key(crate::api::keys::CORDON), "{broken_loader}");
        // What the label says comes all the same, as far as it can.
        assert_eq!(world.label("n1", Role::Plugin).as_deref(), (!broken_loader).then_some("2"));
    }
}

#[test]
fn a_label_that_was_followed_already_outlives_the_node_it_was_on() {
    let mut world = World::handed_over();
    world.edit_label("n1", Role::Desired, Some("1"));
    world.until("written down", |world| world.handoff("n1").spec.as_ref().is_ok_and(|spec| spec.version.as_deref() == Some("1")));
    world.make_again("n1");
    world.until("the person's order is followed", |world| world.runs("n1", "1"));
}

#[test]
fn a_label_taken_off_after_it_was_given_back_stays_off() {
    let mut world = World::handed_over();
    world.make_again("n1");
    world.tick();
    assert_eq!(world.label("n1", Role::Desired).as_deref(), Some("2"), "given back");
    world.edit_label("n1", Role::Desired, None);
    for _ in 0..60 {
        world.tick();
        assert_eq!(world.label("n1", Role::Desired), None);
    }
    world.until_phase("n1", Phase::Held);
    assert_eq!(world.kernel["n1"], None, "out of service, as asked");
}

#[test]
fn an_abort_before_anything_was_written_says_what_the_missing_label_leaves_behind() {
    let mut world = World::new(&["n1"]);
    world.edit_label("n1", Role::Desired, None);
    world.until_phase("n1", Phase::Preflight);
    world.abort("n1");
    world.until_phase("n1", Phase::Aborted);
    world.ticks(60);
    world.at_rest();
    // The label is an order still: the plugin goes. Nothing more does, and that has a name.
    assert_eq!(world.version("n1"), [None, Some("1".into()), None, None]);
    assert_eq!(world.kernel["n1"].as_deref(), Some("1"));
    assert_eq!(world.blockers("n1"), ["HandoffHeld"]);
    world.edit_label("n1", Role::Desired, Some("1"));
    world.until("in service again", |world| world.runs("n1", "1"));
}

#[test]
fn a_node_left_as_it_is_without_its_label_is_at_rest() {
    let mut world = World::new(&["n1"]);
    world.edit_label("n1", Role::Desired, None);
    world.until_phase("n1", Phase::Preflight);
    world.spec("n1", |spec| spec.action = HandoffAction::Leave);
    world.until_phase("n1", Phase::Aborted);
    world.ticks(60);
    world.at_rest();
    assert_eq!(world.kernel["n1"].as_deref(), Some("1"));
    assert_eq!(*world.verdict("n1"), crate::handoff::verdict::Verdict::Done, "a person chose that");
}

/// A person deletes the handoff, and moves the label by hand before it is gone.
#[test]
fn a_label_moved_while_a_deleted_handoff_goes_is_followed_by_the_next_one() {
    for late in [false, true] {
        let mut world = World::new(&["n1"]);
        world.claimant("shop/train-0", "n1");
        world.stuck.insert(key("shop/train-0"));
        world.ask("n1", "2");
        world.until_phase("n1", Phase::Draining);
        let at = world.at();
        world.handoffs.values_mut().for_each(|it| it.meta.deletion = Some(crate::fleet::records::Deletion { at, grace: 0 }));
        world.until("it has ended", |world| {
            world.handoffs.values().all(|it| it.status.phase == Phase::Aborted) && (!late || world.mark("n1").is_none())
        });
        assert!(!world.handoffs.is_empty(), "it is still there");
        world.edit_label("n1", Role::Desired, Some("2"));
        world.until("the deleted one is gone", |world| world.handoffs.values().all(|it| it.meta.deletion.is_none()));
        world.stuck.clear();
        world.delete(&key("shop/train-0"));
        world.until("the label is followed", |world| world.runs("n1", "2") && world.lease.slots.is_empty());
        assert!(!world.nodes["n1"].unschedulable);
    }
}

/// What was verified before somebody held it says nothing of the node that is opened an hour later.
#[test]
fn a_node_held_after_it_was_verified_is_verified_again() {
    for by_label in [false, true] {
        let mut world = World::new(&["n1"]);
        world.claimant("shop/train-0", "n1");
        world.ask("n1", "2");
        world.spec("n1", |spec| spec.pause_after = vec![Phase::Verifying]);
        world.until_phase("n1", Phase::Held);
        world.ticks(60);
        assert_eq!((world.phase("n1"), world.handoff("n1").status.steps.len()), (Phase::Held, 9), "the pause holds");
        world.frozen = true;
        if by_label {
            world.edit_label("n1", Role::Desired, Some("1"));
        } else {
            world.pods.retain(|_, pod| pod.labels.get(crate::api::keys::ROLE).is_none_or(|role| &**role != "plugin"));
        }
        world.ticks(3);
        world.spec("n1", |spec| spec.pause_after = Vec::new());
        world.ticks(30);
        assert!(world.nodes["n1"].unschedulable && world.phase("n1") != Phase::Done, "{:?}", world.phase("n1"));
        world.frozen = false;
        let runs = if by_label { "1" } else { "2" };
        world.until("it is in order", |world| world.runs("n1", runs) && !world.nodes["n1"].unschedulable);
    }
}

/// Held before what cannot be taken back, or after the last proof: an abort is answered all the same.
#[test]
fn an_abort_of_a_held_handoff_is_answered() {
    for pause in [Phase::Unloading, Phase::Verifying] {
        let both = || component(GPU).version("2").made("1").made("2").unload_by_reboot();
        let mut world = World::with(&["n1"], both());
        world.ask("n1", "2");
        world.spec("n1", |spec| spec.pause_after = vec![pause]);
        let mut boots = 0;
        for _ in 0..600 {
            if world.phase("n1") == Phase::Held {
                break;
            }
            if world.phase("n1") == Phase::AwaitingReboot {
                boots += 1;
                world.reboot("n1", &format!("boot-again-{boots}"));
            }
            world.tick();
        }
        assert_eq!(world.phase("n1"), Phase::Held, "{pause}");
        world.spec("n1", |spec| spec.action = HandoffAction::Abort);
        world.ticks(3);
        if world.phase("n1") == Phase::AwaitingReboot {
            world.reboot("n1", "boot-last");
        }
        if pause == Phase::Unloading {
            world.until("it asks", |world| {
                let reason = world.handoff("n1").status.reason.as_ref();
                world.phase("n1") == Phase::Held && reason.is_some_and(|reason| reason.word == "AwaitingChoice")
            });
            world.spec("n1", |spec| spec.action = HandoffAction::Leave);
        }
        world.until_phase("n1", Phase::Aborted);
        world.at_rest();
        assert_eq!(world.runs("n1", "2") && !world.nodes["n1"].unschedulable, pause == Phase::Verifying);
    }
}
