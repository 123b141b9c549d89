//! Model check of the handoff: the product's own decisions on every state that one or two nodes, a leader and a former one, people and faults
//! can bring about within a budget. `LOCKKEEPER_MODEL=full` explores the whole size (in a release build). See docs/testing/model.md.

mod apply;
mod check;
mod decide;
mod mistakes;
mod picture;
mod planted;
mod state;
mod steps;
mod story;
mod taken;

use check::{Outcome, Scope, explore, start};
use mistakes::Mistake;
use state::Left;
use steps::Step;

/// How much may happen on one path: people's actions, faults, both together, and pods that come or go.
fn left(people: u8, faults: u8, total: u8, arrivals: u8) -> Left {
    Left { people, faults, total, arrivals, meddled: false }
}

fn is_full() -> bool {
    std::env::var("LOCKKEEPER_MODEL").is_ok_and(|size| size == "full")
}

/// To the terminal itself: also a run that passes says how much it has seen.
fn show(name: &str, outcome: &Outcome) {
    use std::io::Write;
    let _ = writeln!(
        std::io::stderr(),
        "{name}: {} states, {} unique, depth {}, {} different sights, {:.1} s",
        outcome.states,
        outcome.unique,
        outcome.depth,
        outcome.looks,
        outcome.seconds
    );
    for fault in &outcome.faults {
        println!("{fault}\nas a story for the simulator:\n{}", story::of(fault));
    }
}

fn holds(name: &'static str, starts: Vec<state::State>) {
    holds_under(name, starts, |_| true);
}

fn holds_under(name: &'static str, starts: Vec<state::State>, only: fn(&Step) -> bool) {
    let outcome = explore(Scope { starts, mistake: None, only });
    show(name, &outcome);
    assert!(outcome.faults.is_empty(), "{name}: {}", outcome.faults[0]);
}

/// The shortest way there is not what is looked for, only that there is one.
fn finds(mistake: Mistake, left: Left, only: fn(&Step) -> bool) -> Vec<String> {
    let outcome = explore(Scope { starts: vec![start(1, 1, left)], mistake: Some(mistake), only });
    show(&format!("{mistake:?}"), &outcome);
    assert!(!outcome.faults.is_empty(), "{mistake:?} is not found");
    outcome.faults.into_iter().map(|fault| fault.rule).collect()
}

#[test]
fn holds_on_one_node_undisturbed() {
    holds("one node, undisturbed", vec![start(1, 1, left(0, 0, 0, 2)), start(1, 0, left(0, 0, 0, 2))]);
}

#[test]
fn holds_on_one_node_whatever_a_person_does() {
    let all = if is_full() { left(2, 0, 2, 1) } else { left(1, 0, 1, 0) };
    holds("one node, people", vec![start(1, 1, all), start(1, 0, all)]);
}

#[test]
fn holds_on_one_node_whatever_fails() {
    let all = if is_full() { left(0, 2, 2, 0) } else { left(0, 1, 1, 0) };
    holds("one node, faults", vec![start(1, 1, all), start(1, 0, all)]);
}

#[test]
fn holds_on_one_node_between_people_and_faults() {
    // The larger half only in full; at rest there is less to disturb.
    let starts = if is_full() {
        vec![start(1, 1, left(1, 1, 2, 0)), start(1, 0, left(1, 1, 2, 1))]
    } else {
        vec![start(1, 0, left(1, 1, 1, 1))]
    };
    holds("one node, people and faults", starts);
}

#[test]
fn holds_on_two_nodes() {
    let all = if is_full() { left(1, 1, 1, 0) } else { left(0, 0, 0, 1) };
    holds("two nodes", vec![start(2, 2, all)]);
}

#[test]
fn holds_when_writes_are_late_and_the_lease_moves() {
    let starts = vec![start(1, 1, left(0, 2, 2, 0)), start(1, 0, left(0, 2, 2, 0))];
    holds_under("one node, late writes", starts, LATE);
}

const LATE: fn(&Step) -> bool = |step| matches!(step, Step::Delays(_) | Step::Takeover);

#[test]
fn finds_writes_without_their_precondition() {
    let rules = finds(Mistake::NoPrecondition, left(0, 2, 2, 0), LATE);
    assert!(rules.contains(&"I9".to_owned()), "{rules:?}");
}

#[test]
fn finds_the_loader_stopped_before_the_plugin() {
    let rules = finds(Mistake::LoaderFirst, left(0, 0, 0, 0), |_| false);
    assert!(rules.contains(&"I2".to_owned()), "{rules:?}");
}

#[test]
fn finds_the_new_loader_in_the_patch_that_stops_the_old_one() {
    let rules = finds(Mistake::LoaderAtOnce, left(0, 0, 0, 0), |_| false);
    assert!(rules.contains(&"I2".to_owned()), "{rules:?}");
}

#[test]
fn finds_unload_pods_that_no_nonce_binds() {
    let rules = finds(Mistake::NoNonce, left(0, 2, 2, 0), LATE);
    assert!(rules.contains(&"I2".to_owned()), "{rules:?}");
}

#[test]
fn finds_evictions_that_name_no_uid() {
    let rules = finds(Mistake::NoUid, left(0, 1, 1, 2), LATE);
    assert!(rules.contains(&"I10".to_owned()), "{rules:?}");
}

#[test]
fn finds_decisions_without_a_second_look() {
    let rules = finds(Mistake::NoSecondLook, left(0, 1, 1, 2), |step| matches!(step, Step::Lags(_)));
    assert!(rules.contains(&"I1".to_owned()), "{rules:?}");
}

/// `LEFT=people,faults,total,arrivals START=asked|rest|two` explores another scope.
#[test]
fn holds_on_the_scope_that_is_asked_for() {
    let text = std::env::var("LEFT").unwrap_or_else(|_| "0,1,1,1".to_owned());
    let numbers: Vec<u8> =
        text.split(',').map(|it| it.trim().parse().unwrap_or_else(|why| panic!("LEFT={text}: {why}"))).collect();
    let [people, faults, total, arrivals] = numbers[..] else { panic!("LEFT={text}: people,faults,total,arrivals are wanted") };
    let left = left(people, faults, total, arrivals);
    let from = match std::env::var("START").as_deref() {
        Ok("asked") => start(1, 1, left),
        Ok("two") => start(2, 2, left),
        Ok("rest") | Err(_) => start(1, 0, left),
        Ok(other) => panic!("START={other}: asked, rest or two is wanted"),
    };
    holds("the scope that is asked for", vec![from]);
}
