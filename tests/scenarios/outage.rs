//! The API server goes away in the middle of a rollout and comes back: killed (connections break, nobody gets through), stopped (nothing is
//! answered, and what was sent is handled once it goes on), or its storage hangs (errors after a while). Nothing is lost, nothing is taken for
//! gone, nothing is done meanwhile, and soon after it is back the rollout goes on.

use std::time::Duration;

use lockkeeper::{
    cluster::Cluster,
    engine::{Engine, EngineOptions, picture::Mode},
    fleet::view::WatchState,
    sim::{
        actors::KubeletOptions,
        apiserver::{Action, Fault, Faults, Identity, Matcher, WatchEnd},
        scenarios::{kernel_module as scenario, objects},
        world::{ENGINE, WorldOptions},
    },
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::json;

use crate::{
    ice::Ice,
    stage::{Stage, play},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outage {
    /// As after `kill -9` until the next start.
    Killed,
    /// As between SIGSTOP and SIGCONT: for lockkeeper; the others have no server at all.
    Stopped,
    /// etcd does not answer, and the API server says so.
    NoStorage,
    /// Requests of lockkeeper are taken and never answered; for the others all is well, and what they do is told.
    Hung,
}

const OUTAGE: Duration = Duration::from_secs(40);
const NODES: usize = 3;

/// How long it took from the end of each outage until the engine led again and all its watches were live.
#[derive(Debug, Default)]
struct Tally {
    outages: usize,
    recovery: Vec<u128>,
    writes_meanwhile: u64,
}

fn strike(stage: &Stage, ice: &Ice, outage: Outage) {
    let all = |action: Action| {
        let matcher = if outage == Outage::Hung { Matcher::any().client(ENGINE) } else { Matcher::any() };
        let from = stage.world.api.clock().elapsed();
        let mut faults = Faults::new(1, vec![Fault::once(matcher, action).times(u64::MAX).from(from).until(from + OUTAGE)]);
        faults.spared = if outage == Outage::Stopped { vec![ENGINE.to_owned()] } else { Vec::new() };
        stage.world.api.set_faults(Box::new(faults));
    };
    match outage {
        Outage::Killed => {
            all(Action::Refused);
            stage.world.api.end_watches(None, None, &WatchEnd::Cut);
        }
        Outage::Stopped => {
            all(Action::Refused);
            ice.freeze();
        }
        Outage::NoStorage => all(Action::Status(504)),
        Outage::Hung => all(Action::Hang),
    }
}

async fn outages(seed: u64, outage: Outage) -> Tally {
    let options = WorldOptions { kubelets: KubeletOptions::quick(), ..WorldOptions::new(seed) };
    let stage = Stage::with(options, NODES).installed().await;
    let template = objects::template("app", Some((scenario::RESOURCE, 1)), 5);
    stage.apply(&[objects::deployment("ml", "app", 4, template), objects::budget("ml", "app", "maxUnavailable", json!(1))]).await;
    stage.release().await;
    let ice = Ice::default();
    let client = ice.around(stage.world.api.client(&Identity::new(ENGINE)));
    let cluster = Cluster::over(client, false, "simulated", "in this process");
    let engine =
        Engine::start(cluster, EngineOptions { mode: Mode::Engine, identity: format!("{ENGINE}#9"), ..EngineOptions::default() });
    stage.ask(&stage.nodes).await;
    let mut dice = ChaCha8Rng::seed_from_u64(seed ^ 0x6F75_7461);
    let mut tally = Tally::default();
    let all_done = || stage.nodes.iter().all(|node| stage.is_done(node, scenario::NEW));
    while tally.outages < 3 {
        tokio::time::sleep(Duration::from_millis(dice.random_range(200..9000))).await;
        if all_done() {
            break;
        }
        tally.outages += 1;
        strike(&stage, &ice, outage);
        // Two seconds: what was on its way has landed.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let before = stage.world.report().engine_writes;
        tokio::time::sleep(OUTAGE - Duration::from_secs(2) - Duration::from_millis(500)).await;
        tally.writes_meanwhile += stage.world.report().engine_writes - before;
        let picture = engine.pictures().borrow().clone();
        assert!(!picture.leadership.ours && picture.leadership.problem.is_some(), "seed {seed}: {:?}", picture.leadership);
        // Watches that were open before go on then.
        let live = picture.fleet.health.iter().filter(|watch| watch.required && watch.state == WatchState::Live).count();
        assert!(
            live == 0 || outage == Outage::Hung,
            "seed {seed}, {outage:?}: shown as live after 40 s without a server: {:?}",
            picture.fleet.health
        );
        let nodes = stage.world.api.list("nodes").len();
        assert_eq!(picture.fleet.nodes.len(), nodes, "seed {seed}: nodes are not taken for gone");
        tokio::time::sleep(Duration::from_millis(500)).await;
        ice.thaw();
        let back = tokio::time::Instant::now();
        let well = engine.until(|picture| {
            picture.leadership.ours && picture.fleet.health.iter().all(|watch| !watch.required || watch.state == WatchState::Live)
        });
        let well = tokio::time::timeout(Duration::from_secs(300), well).await;
        assert!(well.is_ok(), "seed {seed}: it does not recover: {:?}", engine.pictures().borrow().fleet.health);
        tally.recovery.push(back.elapsed().as_millis());
    }
    stage.until("all nodes are handed over", all_done).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    engine.stop().await;
    let report = stage.clean();
    assert_eq!(report.modules_unloaded, NODES as u64, "seed {seed}: each node's module is unloaded once");
    for node in &stage.nodes {
        assert_eq!(stage.handoff(node).pointer("/status/run/attempt"), Some(&json!(2)), "seed {seed}: {node} failed meanwhile");
    }
    tally
}

fn many(outage: Outage) {
    let seeds: u64 = std::env::var("OUTAGE_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(5);
    let mut sum = Tally::default();
    for seed in 1..=seeds {
        let mut tally = Tally::default();
        play(|| async { tally = outages(seed, outage).await });
        sum.outages += tally.outages;
        sum.writes_meanwhile += tally.writes_meanwhile;
        sum.recovery.extend(tally.recovery);
    }
    sum.recovery.sort_unstable();
    let worst = sum.recovery.last().copied().unwrap_or_default();
    let median = sum.recovery.get(sum.recovery.len() / 2).copied().unwrap_or_default();
    println!(
        "{outage:?}: {seeds} seeds, {} outages of 40 s, {} writes meanwhile, back to work after {median} ms (median), {worst} ms (worst)",
        sum.outages, sum.writes_meanwhile
    );
    assert!(sum.outages as u64 >= seeds, "{sum:?}");
    assert_eq!(sum.writes_meanwhile, 0);
    assert!(worst < 20_000, "{sum:?}");
}

#[test]
fn killed_and_started_again() {
    many(Outage::Killed);
}

#[test]
fn stopped_for_a_while() {
    many(Outage::Stopped);
}

#[test]
fn its_storage_does_not_answer() {
    many(Outage::NoStorage);
}

#[test]
fn requests_are_taken_and_never_answered() {
    many(Outage::Hung);
}
