//! Are the simulated controllers like the real ones? The same stories are told to both, with the same machines on both sides, and after each
//! step the clusters are compared, and at the end what was heard of each pod, in order. Stories are data (`stories`); `differs` names
//! what is known to be unlike, so nothing else may be.

mod look;
mod play;
mod stories;
mod story;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use lockkeeper::sim::{
    actors::{Clock, ControllerManager, ControllerOptions, KubeletOptions, Kubelets, Range},
    apiserver::{ApiServer, Config, Identity},
};
use serde_json::Value;

use self::{
    play::{Played, Stage, play},
    story::{Story, THING},
};
use crate::{
    site::block_on,
    support::controlplane::{Component, ControlPlane, User},
};

/// Story, the part of a look or `events`, and why it differs. All of them are in `docs/simulator.md` too.
const DIFFERS: &[(&str, &str, &str)] = &[
    ("ds-no-schedule", "daemonsets", TAINTED),
    ("ds-no-schedule-deleted", "daemonsets", TAINTED),
    ("ds-tolerates", "daemonsets", TAINTED),
    ("priority-preempts", "pods", "the simulated scheduler preempts nobody"),
    ("priority-preempts", "events", "the simulated scheduler preempts nobody"),
];

/// The longest that a story takes, told among others on a busy machine.
const TELLING: Duration = Duration::from_secs(1500);

const TAINTED: &str = "a node that gets a NoSchedule taint under a running pod counts as misscheduled at once; the real controller counts when it next \
                       looks at the set";

fn machines() -> KubeletOptions {
    KubeletOptions {
        adopt: false,
        static_resources: vec![THING.to_owned()],
        stop: Range::millis(200, 300),
        ..KubeletOptions::quick()
    }
}

#[expect(clippy::disallowed_methods, reason = "a real server compares with its own clock")]
fn now() -> Timestamp {
    Timestamp::now()
}

/// On a simulated cluster of its own, in no time.
fn simulated(story: &Story) -> Played {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime");
    runtime.block_on(async {
        let api = ApiServer::new(Config { seed: 1, ..Config::default() });
        let clock = Clock::starting_at(api.now());
        let _controllers =
            ControllerManager::spawn(&api.client(&Identity::new("controllers")), clock, 1, ControllerOptions::default());
        let kubelets = Kubelets::spawn(&api.client(&Identity::new("kubelets")), clock, 1, machines(), Vec::new());
        let base = Some(api.now());
        let start = tokio::time::Instant::now();
        let stage = Stage { client: api.client(&Identity::new("test")), kubelets, now, start, base };
        play(&stage, story, None, &[]).await
    })
}

/// The parts of a story that are known to be unlike.
fn known(story: &Story) -> Vec<&'static str> {
    DIFFERS.iter().filter(|(name, ..)| *name == story.name).map(|(_, part, _)| *part).collect()
}

fn differences(story: &Story, real: &Played, sim: &Played) -> Vec<String> {
    let mut out: Vec<String> = real.trouble.iter().map(|it| format!("real: {it}")).collect();
    out.extend(sim.trouble.iter().map(|it| format!("simulated: {it}")));
    let known = known(story);
    let known = |part: &str| known.contains(&part);
    for (number, (a, b)) in real.looks.iter().zip(&sim.looks).enumerate() {
        let parts = a.as_object().into_iter().flatten().map(|(part, _)| part);
        for part in parts.filter(|part| a[*part] != b[*part] && !known(part)) {
            out.push(format!(
                "step {}: {part}:\n    real      {}\n    simulated {}",
                number + 1,
                lines(&a[part], &b[part]),
                lines(&b[part], &a[part])
            ));
        }
    }
    if !known("events") {
        let (a, b) = (real.heard.parts(), sim.heard.parts());
        if a != b {
            out.push(format!(
                "events:\n    real      {}\n    simulated {}",
                a.join("\n              "),
                b.join("\n              ")
            ));
        }
        if story.ordered {
            // The first pods of a DaemonSet come in no order; like nodes are taken in an order of the controller's own.
            let by_name = story.name.starts_with("sts");
            let whole = |played: &Played| {
                let ends = played.marks.iter().copied();
                let starts = std::iter::once(0).chain(ends.clone());
                let parts = starts.zip(ends).skip(usize::from(!by_name));
                parts.map(|(from, to)| played.heard.whole(from, to, !by_name).join("; ")).collect::<Vec<_>>().join(" | ")
            };
            if whole(real) != whole(sim) {
                out.push(format!("order:\n    real      {}\n    simulated {}", whole(real), whole(sim)));
            }
        }
    }
    out
}

/// What only one of the two has, in few words.
fn lines(value: &Value, other: &Value) -> String {
    let all = |value: &Value| value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
    let mut others = all(other);
    let mut items = Vec::new();
    for item in all(value) {
        match others.iter().position(|known| *known == item) {
            Some(at) => drop(others.remove(at)),
            None => items.push(item.to_string()),
        }
    }
    items.join("\n              ")
}

#[test]
fn the_simulated_controllers_are_like_the_real_ones() {
    let only = std::env::var("STORY").unwrap_or_default();
    let stories: Vec<Story> = stories::all().into_iter().filter(|story| story.name.contains(&only)).collect();
    let began = std::time::Duration::from_millis(u64::try_from(now().as_millisecond()).unwrap_or_default());
    let sims: BTreeMap<&str, Played> = stories.iter().map(|story| (story.name, simulated(story))).collect();
    if std::env::var_os("STORY_SHOW").is_some() {
        for (name, played) in &sims {
            println!(
                "== {name}\n{:#?}\n{}\n{:?}",
                played.heard.parts(),
                serde_json::to_string_pretty(&played.looks).unwrap_or_default(),
                played.trouble
            );
        }
    }
    let flags = [
        // A machine that does not get its turn on a busy computer is not dead.
        (Component::ControllerManager, "--node-monitor-grace-period=60s"),
        // Nobody but the stories asks much; their order is not to be shaped by a client's limits.
        (Component::ControllerManager, "--kube-api-qps=400"),
        (Component::ControllerManager, "--kube-api-burst=400"),
        (Component::Scheduler, "--kube-api-qps=400"),
        (Component::Scheduler, "--kube-api-burst=400"),
    ];
    let Some(plane) = ControlPlane::own(&flags) else { return };
    let mut unlike = Vec::new();
    let mut steps = 0;
    block_on(async {
        let client = plane.client(User::Admin).await;
        let machines = KubeletOptions { asks_for_labels: true, ..machines() };
        let kubelets = Kubelets::spawn(&client, Clock::starting_at(now()), 1, machines, Vec::new());
        let stage = Stage { client, kubelets, now, start: tokio::time::Instant::now(), base: None };
        let turns = Arc::new(tokio::sync::Semaphore::new(30));
        let mut playing = Vec::new();
        for story in stories.clone() {
            let (stage, turns, model) = (stage.clone(), turns.clone(), sims[story.name].looks.clone());
            playing.push(tokio::spawn(async move {
                let _turn = turns.acquire().await.expect("turns");
                let played = tokio::time::timeout(TELLING, play(&stage, &story, Some(&model), &known(&story))).await;
                (story, played)
            }));
        }
        let told = |story: &Story, played: Result<Played, tokio::time::error::Elapsed>| {
            let sim = &sims[story.name];
            let found = played.map_or_else(|_| vec!["does not come to an end".into()], |real| differences(story, &real, sim));
            found.iter().for_each(|it| println!("== {}: {it}", story.name));
            found
        };
        let mut doubtful = Vec::new();
        for played in playing {
            let (story, played) = played.await.expect("a story");
            steps += story.steps.len();
            if !told(&story, played).is_empty() {
                doubtful.push(story);
            }
        }
        // A real controller that gets its turn late may do the right things in another order. What two more tellings, with the servers to
        // themselves, do not show again is chance.
        for story in doubtful {
            let (mut found, differ) = (Vec::new(), known(&story));
            for again in ["again", "anew"] {
                let name: &'static str = Box::leak(format!("{}-{again}", story.name).into_boxed_str());
                let renamed = Story { name, ..story.clone() };
                let played = play(&stage, &renamed, Some(&sims[story.name].looks), &differ);
                found = told(&story, tokio::time::timeout(TELLING, played).await);
                if found.is_empty() {
                    println!("not repeated: {}", story.name);
                    break;
                }
            }
            if !found.is_empty() {
                unlike.push(format!("== {}\n{}", story.name, found.join("\n")));
            }
        }
        stage.kubelets.stop();
    });
    let took = std::time::Duration::from_millis(u64::try_from(now().as_millisecond()).unwrap_or_default()) - began;
    println!(
        "{} stories, {steps} steps on both clusters in {} s: {} unlike, {} known differences",
        stories.len(),
        took.as_secs(),
        unlike.len(),
        DIFFERS.len()
    );
    for (story, part, why) in DIFFERS {
        println!("known: {story}: {part}: {why}");
    }
    assert!(unlike.is_empty(), "{} of {} stories are unlike:\n{}", unlike.len(), stories.len(), unlike.join("\n"));
}
