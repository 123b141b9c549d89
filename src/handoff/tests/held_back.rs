//! What mutants survived until these tests: what holds a node back, and what may not be touched meanwhile.

use super::world::*;
use crate::{
    api::{
        Phase,
        component::RolloutMode,
        handoff::{BY_INSTALL, HandoffAction},
        keys::Role,
    },
    fleet::{
        build::*,
        records::{Deletion, PodPhase},
        view::{WatchHealth, WatchState},
    },
    handoff::{
        action::{Action, Evidence, Op, Subject},
        decide::decide_fleet,
        facts::Context,
        observed::Observed,
        verdict::Verdict,
    },
};

fn set_paused(world: &mut World, paused: bool) {
    if let Ok(spec) = &mut world.component.spec {
        spec.rollout.paused = paused;
    }
}

#[test]
fn a_component_deleted_later_is_taken_off_too() {
    let mut world = World::new(&["n1"]);
    world.ticks(5);
    world.component.meta.deletion = Some(Deletion { at: at(105), grace: 0 });
    world.until("the finalizer is off", |world| world.component.finalizers.is_empty());
    assert_eq!(world.kernel["n1"], None);
}

#[test]
fn a_node_is_closed_though_nobody_uses_it_where_a_reboot_or_a_selector_asks_for_that() {
    let both = || component(GPU).version("2").made("1").made("2");
    for component in [both().unload_by_reboot(), component(GPU).pods("shop", "uses", "gpu").version("2").made("1").made("2")] {
        let mut world = World::with(&["n1"], component);
        world.ask("n1", "2");
        world.until_phase("n1", Phase::StoppingPlugin);
        assert!(world.nodes["n1"].unschedulable);
    }
    let mut world = World::with(&["n1"], both());
    world.ask("n1", "2");
    world.until_phase("n1", Phase::StoppingPlugin);
    assert!(!world.nodes["n1"].unschedulable);
}

/// The kinds of the blockers in a handoff's status.
fn written(world: &World, node: &str) -> Vec<String> {
    world.handoff(node).status.blockers.iter().map(|it| it.kind.clone()).collect()
}

/// A handoff whose claimant does not go, and others behind it.
fn queue(nodes: &[&str]) -> World {
    let mut world = World::new(nodes);
    world.claimant("shop/train-0", "n1");
    world.stuck.insert(key("shop/train-0"));
    nodes.iter().for_each(|node| world.ask(node, "2"));
    world.until_phase("n1", Phase::Draining);
    world
}

#[test]
fn what_each_in_the_queue_waits_for_stands_in_its_status() {
    let mut world = queue(&["n1", "n2", "n3"]);
    let behind = |world: &World| written(world, "n2") == ["Canary"] && written(world, "n3") == ["QueuedBehind"];
    world.until("each is told", behind);
    let said = &world.handoff("n2").status.blockers[0].message;
    assert!(said.contains("n1 is being handed over"), "{said}");
    set_paused(&mut world, true);
    world.until("all are told of the pause", |world| ["n2", "n3"].iter().all(|node| written(world, node) == ["Paused"]));
    set_paused(&mut world, false);
    world.until("and that it is over", behind);
    // Back in the queue after its end, it is told anew.
    world.spec("n3", |spec| spec.action = HandoffAction::Abort);
    world.until_phase("n3", Phase::Aborted);
    world.spec("n3", |spec| (spec.action, spec.attempt) = (HandoffAction::Run, 2));
    world.until("once more", behind);
}

#[test]
fn who_stands_far_back_in_the_queue_is_written_down_once_while_those_before_it_go() {
    let mut world = World::new(&["n1", "n2", "n3", "n4", "n5"]);
    ["n1", "n2", "n3", "n4", "n5"].iter().for_each(|node| world.ask(node, "2"));
    let mut notes = 0;
    for _ in 0..3000 {
        world.tick();
        let is_one = |action: &&Action| action.is_note() && action.why.contains("gpu.n5");
        notes += world.acted.iter().map(|(_, action)| action).filter(is_one).count();
        if world.phase("n3") == Phase::Done {
            break;
        }
    }
    assert_eq!((world.phase("n3"), notes), (Phase::Done, 1), "{:#?}", world.log);
    assert_eq!(written(&world, "n5"), ["QueuedBehind"]);
    world.until_phase("n5", Phase::Done);
}

#[test]
fn who_runs_goes_before_those_that_are_only_told_what_they_wait_for() {
    let mut world = queue(&["n1", "n2", "n3"]);
    world.until("each is told", |world| written(world, "n3") == ["QueuedBehind"]);
    // After the others by name, and its drain is over.
    world.put_handoff(handoff(GPU, "n0").to("2"));
    world.nodes.insert("n0".into(), node("n0").runs(GPU, "1").allocatable(RESOURCE, 4).build());
    world.delete(&key("shop/train-0"));
    world.now += 1;
    world.decide();
    let notes: Vec<bool> = world.decisions.actions().map(|(_, action)| action.is_note()).collect();
    assert!(notes.contains(&true) && notes.contains(&false), "{:#?}", world.decisions.actions().collect::<Vec<_>>());
    assert!(notes.is_sorted(), "{notes:?}");
}

#[test]
fn what_one_waits_for_whose_component_is_gone_stands_in_its_status() {
    let mut fleet = fleet().with(node("n1")).with(handoff(GPU, "n1").to("2").phase(Phase::Queued, at(0)));
    let decide = |fleet: &mut FleetBuilder, now: i64| {
        let context = Context { lease_held: true, epoch: 1, identity: "me".into(), cluster_max_unavailable: 1, read_only: false };
        let view = fleet.project(at(now));
        let decisions = decide_fleet(&view, &Observed::default(), &context, None, &Default::default());
        let subject = Subject::Occupancy { component: key(GPU), node: "n1".into() };
        decisions.verdict(&subject).cloned()
    };
    let Some(Verdict::Act(action)) = decide(&mut fleet, 100) else { panic!("nothing is written") };
    let Op::PutHandoffStatus { status, .. } = action.op else { panic!("{action:?}") };
    assert_eq!(status.blockers[0].kind, "Anomaly");
    assert!(status.blockers[0].message.contains("NodeComponent ns/gpu does not exist"), "{:?}", status.blockers);
    fleet.put(handoff(GPU, "n1").to("2").status(|it| *it = *status));
    assert!(matches!(decide(&mut fleet, 200), Some(Verdict::Wait(_))), "it is written");
}

#[test]
fn what_is_waited_for_now_takes_the_place_of_what_was() {
    let mut world = World::new(&["n1"]);
    world.node("n1").ready = node("n1").not_ready().build().ready;
    world.ask("n1", "2");
    world.until("it is written down", |world| written(world, "n1") == ["NodeNotReady"]);
    set_paused(&mut world, true);
    world.node("n1").ready = node("n1").build().ready;
    world.until("the other is written down", |world| written(world, "n1") == ["Paused"]);
}

#[test]
fn a_version_whose_content_changed_under_its_name_is_refused() {
    let component = component(GPU).version("2").made("1").made("2").made("3");
    let mut world = World::with(&["n1"], component.rollout(|it| it.mode = RolloutMode::Manual));
    if let Ok(spec) = &mut world.component.spec {
        spec.version = "3".into();
    }
    world.ask("n1", "3");
    world.ticks(60);
    assert_eq!((world.phase("n1"), world.blockers("n1")), (Phase::Queued, vec!["ComponentRefused".to_owned()]));
}

#[test]
fn a_slot_given_a_moment_before_the_pause_goes_back() {
    let mut world = World::new(&["n1"]);
    world.ask("n1", "2");
    world.until("it has a slot", |world| !world.lease.slots.is_empty());
    assert_eq!(world.phase("n1"), Phase::Queued);
    set_paused(&mut world, true);
    world.ticks(5);
    assert_eq!((world.phase("n1"), world.lease.slots.len()), (Phase::Queued, 0));
}

#[test]
fn a_takeover_writes_nothing_to_a_node_whose_handoff_is_queued() {
    let mut world = World::new(&["n1"]);
    world.ask("n1", "2");
    world.until_phase("n1", Phase::Done);
    world.until("given back", |world| world.lease.slots.is_empty() && world.mark("n1").is_none());
    set_paused(&mut world, true);
    world.spec("n1", |spec| (spec.version, spec.attempt) = (Some("1".into()), 2));
    world.until_phase("n1", Phase::Queued);
    world.context.epoch = 2;
    for _ in 0..10 {
        world.tick();
        assert!(!world.acted.iter().any(|(_, action)| matches!(action.op, Op::PatchNode(_))), "{:#?}", world.log);
    }
}

#[test]
fn an_install_where_another_version_runs_counts_as_any_other_handoff() {
    let mut world = World::new(&["n1", "n2"]);
    world.claimant("shop/train-0", "n1");
    world.stuck.insert(key("shop/train-0"));
    world.ask("n1", "2");
    world.until_phase("n1", Phase::Draining);
    world.put_handoff(handoff(GPU, "n2").to("2").spec(|spec| spec.requested_by = BY_INSTALL.to_owned()));
    world.ticks(60);
    assert_eq!(world.phase("n2"), Phase::Queued);
}

#[test]
fn a_version_that_a_handoff_names_is_kept_though_no_node_has_it() {
    let component = component(GPU).version("3").made("1").made("2").made("3");
    let mut world = World::with(&[], component.rollout(|it| (it.keep_versions, it.paused) = (1, true)));
    world.add_bare("n1");
    world.ask("n1", "1");
    world.ticks(60);
    let left: std::collections::BTreeSet<&str> = world.sets.values().map(|set| &*set.labels["lockkeeper.dev/version"]).collect();
    assert_eq!(left.into_iter().collect::<Vec<_>>(), ["1", "3"]);
}

#[test]
fn nothing_is_taken_away_while_a_watch_is_broken() {
    let mut world = World::new(&["n1"]);
    world.claimant("shop/train-0", "n1");
    world.ask("n1", "2");
    world.until_phase("n1", Phase::Cordoning);
    world.decide();
    let mut view = (*world.view).clone();
    let sound = decide_fleet(&view, &world.observed, &world.context, None, &Default::default());
    assert!(sound.actions().any(|(_, action)| action.evidence != Evidence::Watched));
    view.health = vec![WatchHealth {
        resource: "pods".into(),
        required: true,
        state: WatchState::Unavailable { why: "forbidden".into() },
        last_event: None,
        objects: 0,
        errors: 1,
        undecodable: Vec::new(),
    }]
    .into();
    let decisions = decide_fleet(&view, &world.observed, &world.context, None, &Default::default());
    let acts: Vec<_> = decisions.actions().filter(|(_, action)| action.evidence != Evidence::Watched).collect();
    assert!(acts.is_empty(), "{acts:?}");
}

/// A loader in place of the one whose unload was asked for: what was deleted by force may still be unloading.
#[test]
fn a_version_asked_for_again_waits_until_a_lost_unload_pod_has_surely_ended() {
    let mut world = World::new(&["n1"]);
    world.slow_unload = true;
    world.ask("n1", "2");
    world.until("it unloads", |world| world.role_pods("n1", "unload").iter().any(|pod| matches!(pod.phase, PodPhase::Running)));
    let (lost, since) = (world.role_pods("n1", "unload")[0].key.clone(), world.now);
    world.pods.remove(&lost);
    world.edit_label("n1", Role::Desired, Some("1"));
    world.until("the loader is asked for", |world| world.label("n1", Role::Loader).is_some());
    assert!(world.now - since >= 30, "{} s", world.now - since);
}

/// The module is still recorded, the labels are not there any more: its users leave before it does all the same.
#[test]
fn a_component_is_taken_off_a_node_that_has_lost_its_labels_as_a_handoff() {
    let lost = [Role::Desired, Role::Loader, Role::Plugin];
    for lost in [&lost[..2], &lost] {
        let mut world = World::new(&["n1"]);
        world.claimant("shop/train-0", "n1");
        lost.iter().for_each(|role| world.edit_label("n1", *role, None));
        world.component.meta.deletion = Some(Deletion { at: at(105), grace: 0 });
        world.until("the finalizer is off", |world| world.component.finalizers.is_empty());
        assert_eq!(world.kernel["n1"], None);
        assert_eq!(world.evicted, [key("shop/train-0")]);
    }
}

/// In the second in which a person sets the old version back, another leader writes its epoch into the mark: what the handoff did to the
/// label must stay known, or the person's order would pass for what was there before.
#[test]
fn a_label_set_back_while_the_lease_changes_hands_is_an_order() {
    let mut world = World::new(&["n1"]);
    world.broken_plugin = true;
    world.ask("n1", "2");
    world.until_phase("n1", Phase::StartingPlugin);
    world.edit_label("n1", Role::Desired, Some("1"));
    world.context.epoch += 1;
    world.until_phase("n1", Phase::Failed);
    assert_eq!(world.handoff("n1").status.reason.as_ref().map(|it| it.word.as_str()), Some("LabelEdited"));
}
