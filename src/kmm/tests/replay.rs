//! Each recorded story through the reader, event by event: what it says at each moment, and what it must never say.

use std::{collections::BTreeMap, fmt::Write as _};

use super::{story::stories, world::World};
use crate::kmm::{NodeModule, State, problem::Weight, triple::Move};

/// What the reader said at each change, looked over by hand against the recording.
const STATES: &str = include_str!("../../../tests/kmm/states.txt");

fn said(answer: &NodeModule) -> String {
    let mut text = answer.state.word().to_owned();
    if let Some(loaded) = &answer.loaded {
        write!(text, "({loaded})").expect("text");
    }
    let broken = answer.problems.iter().filter(|problem| problem.weight() == Weight::Broken);
    let kinds: Vec<&str> = broken.map(|problem| problem.kind()).collect();
    if !kinds.is_empty() {
        write!(text, "[{}]", kinds.join(",")).expect("text");
    }
    text
}

/// What holds at every moment of every story.
fn check(world: &World, node: &str, answer: &NodeModule, at: &str) {
    let worker = world.pods.contains_key(&format!("worker {node}"));
    let proven = answer.state == State::Loaded || answer.loaded.is_some();
    assert!(!(worker && proven), "{at}: loaded with a worker pod there: {answer:?}");
    let entry = |part: &str| world.configs.get(node).map(|config| config[part]["modules"][0].clone()).unwrap_or_default();
    let (spec, status) = (entry("spec"), entry("status"));
    if proven {
        assert_eq!(spec["config"], status["config"], "{at}");
        assert_eq!(status["bootId"], world.nodes[node]["status"]["nodeInfo"]["bootID"], "{at}");
    }
    if answer.state == State::Absent {
        assert!(
            !worker && (status.is_null() || status["bootId"] != world.nodes[node]["status"]["nodeInfo"]["bootID"]),
            "{at}: {answer:?}"
        );
    }
    assert!(!answer.sentence.is_empty(), "{at}");
}

#[test]
fn the_reader_says_the_right_thing_at_each_moment_of_each_recorded_story() {
    let mut told = String::new();
    for story in stories() {
        let mut world = World::new(&story.start);
        for (n, step) in story.steps.iter().enumerate() {
            let mut lines: BTreeMap<&str, Vec<String>> = BTreeMap::new();
            let mut note = |world: &World, ms: u64, at: &str| {
                for node in ["node-a", "node-b"] {
                    let Some(answer) = world.read(node, ms) else { continue };
                    check(world, node, &answer, at);
                    let line = lines.entry(node).or_default();
                    let text = said(&answer);
                    if line.last() != Some(&text) {
                        line.push(text);
                    }
                }
            };
            note(&world, 0, &format!("{} {}", story.name, step.text));
            for event in &step.events {
                world.apply(event.ms, &event.what);
                if story.name == "s31"
                    && let Some(name) =
                        event.what.strip_suffix(" Ready=True boot=boot-2").and_then(|rest| rest.strip_prefix("node "))
                {
                    world.kernel(name, "6.2.0-test");
                }
                note(&world, event.ms, &format!("{} {} {} {}", story.name, step.text, event.ms, event.what));
            }
            for (node, line) in lines {
                writeln!(told, "{}.{n} {node}: {}", story.name, line.join(" > ")).expect("text");
            }
            // The next step's times count anew.
            world.written.clear();
        }
    }
    if told != STATES {
        for (told, expected) in told.lines().zip(STATES.lines()).filter(|(told, expected)| told != expected) {
            println!("said:     {told}\nexpected: {expected}");
        }
        println!("{told}");
        panic!("the reader says something else than tests/kmm/states.txt");
    }
}

/// Where the reader says how long KMM will still wait, KMM went on at that time, never before.
#[test]
fn kmm_went_on_when_the_ladder_said() {
    let mut checked = 0;
    for story in stories().iter().filter(|story| story.name != "s30") {
        let mut world = World::new(&story.start);
        for step in &story.steps {
            let mut due: BTreeMap<String, u64> = BTreeMap::new();
            for event in &step.events {
                let words: Vec<&str> = event.what.split(' ').collect();
                if let ["node", node, change] = words.as_slice()
                    && event.who == "kmm"
                    && change.starts_with("worker")
                    && let Some(due) = due.remove(*node)
                {
                    // Each try takes some time itself on a loaded machine, and all that are later begin later.
                    // And the time in the audit log is that of a write that may have waited for its turn.
                    let (early, late) = (due - due / 10, due + due * 3 / 10 + 500);
                    assert!(
                        event.ms + 100 >= early && event.ms <= late,
                        "{} {}: due {due}, went on at {}",
                        story.name,
                        step.text,
                        event.ms
                    );
                    checked += 1;
                }
                world.apply(event.ms, &event.what);
                for node in ["node-a", "node-b"] {
                    let answer = world.read(node, event.ms);
                    let moves = answer.as_ref().map(|answer| answer.labels.row().moves());
                    let polled = matches!(moves, Some(Move::RemoveLoader | Move::AddLoader));
                    match answer
                        .and_then(|answer| answer.wait)
                        .filter(|wait| polled && wait.until.is_none())
                        .and_then(|wait| wait.more)
                    {
                        Some(more) => _ = due.entry(node.to_owned()).or_insert(event.ms + more.as_millis() as u64),
                        None => _ = due.remove(node),
                    }
                }
            }
            world.written.clear();
        }
    }
    assert!(checked >= 20, "{checked}");
}
