//! What is said beside what a handoff waits for: edits of the component that it does not follow, and pauses that never come.

use super::world::*;
use crate::{
    api::{Phase, duration::Duration},
    handoff::verdict::{Blocker, Verdict},
};

/// Notes of this kind, and whether anything but they is waited for.
fn notes(world: &World, kind: &str) -> (Vec<String>, bool) {
    let waited = match world.verdict("n1") {
        Verdict::Wait(wait) => wait.blockers.clone(),
        _ => Vec::new(),
    };
    let is = |it: &&Blocker| it.kind.word() == kind;
    (waited.iter().filter(is).map(|it| it.message.clone()).collect(), waited.iter().any(|it| !is(&it)))
}

fn spec(world: &mut World) -> &mut crate::api::NodeComponentSpec {
    world.component.spec.as_mut().unwrap()
}

/// Draining, and nobody lets its pod go.
fn draining() -> World {
    let mut world = World::new(&["n1"]);
    world.claimant("shop/train-0", "n1");
    world.refuses = true;
    world.ask("n1", "2");
    world.until_phase("n1", Phase::Draining);
    world.ticks(30);
    world
}

#[test]
fn edits_of_the_component_that_a_running_handoff_does_not_follow_are_said_and_hold_nothing_up() {
    let mut world = draining();
    let said = |world: &mut World| {
        world.ticks(3);
        let (notes, waits) = notes(world, "SpecChanged");
        assert!(waits, "what it waits for is said first");
        notes.join(" | ")
    };
    assert_eq!(said(&mut world), "");
    spec(&mut world).deadlines.insert(Phase::Draining, Duration::from_secs(9000));
    assert!(said(&mut world).starts_with("spec.deadlines changed since this attempt began"), "{}", said(&mut world));
    spec(&mut world).deadlines.clear();
    assert_eq!(said(&mut world), "", "put back");
    spec(&mut world).node_selector.insert("pool".into(), "other".into());
    assert!(said(&mut world).contains("n1 does not match its nodeSelector"), "{}", said(&mut world));
    spec(&mut world).node_selector.clear();
    spec(&mut world).version = "3".into();
    let told = said(&mut world);
    assert!(told.contains("spec.version is 3 now, and this handoff heads for 2"), "{told}");
    // It lasts, and is written down for readers of the API.
    world.ticks(30);
    let recorded = &world.handoff("n1").status.blockers;
    assert!(recorded.iter().any(|it| it.kind == "SpecChanged" && it.message == told), "{recorded:?}");
    world.refuses = false;
    world.until_phase("n1", Phase::Done);
    assert!(world.runs("n1", "2"));
}

#[test]
fn a_version_whose_content_is_changed_under_a_running_handoff_is_said() {
    let mut world = draining();
    let module = spec(&mut world).kernel_module.as_mut().unwrap();
    module.daemon_sets.as_mut().unwrap().loader = serde_json::json!({"spec": {"hostNetwork": true}});
    world.ticks(3);
    let (said, _) = notes(&world, "SpecChanged");
    assert!(said.iter().any(|it| it.starts_with("spec.kernelModule was changed under version 2")), "{said:?}");
}

#[test]
fn a_pause_after_a_phase_that_the_kind_does_not_have_is_said_and_never_comes() {
    let mut world = World::new(&["n1"]);
    world.claimant("shop/train-0", "n1");
    world.refuses = true;
    world.ask("n1", "2");
    world.spec("n1", |spec| spec.pause_after = vec![Phase::ReplacingPod, Phase::Unloading]);
    world.until_phase("n1", Phase::Draining);
    world.ticks(30);
    let (said, waits) = notes(&world, "PauseSkipped");
    assert!(waits && said.len() == 1, "{said:?}");
    assert!(said[0].contains("a kernel module never stops after ReplacingPod; it may after Preflight, Cordoning"), "{said:?}");
    world.refuses = false;
    world.until_phase("n1", Phase::Held);
    assert!(notes(&world, "PauseSkipped").0.is_empty(), "what it waits for now is the person");
}
