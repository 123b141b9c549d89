//! Several engines on one cluster, all of which want to lead. They are stopped and go on at random, between a decision and its write too, they
//! crash, and they leave; with a clock that goes on while they stand still, and with one that stands still with them. The monitor judges.

use std::time::Duration;

use lockkeeper::{
    cluster::{Cluster, lease},
    engine::{Engine, EngineOptions, picture::Mode},
    sim::{
        actors::KubeletOptions,
        apiserver::Identity,
        scenarios::{kernel_module as scenario, objects},
        world::{ENGINE, WorldOptions},
    },
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

use crate::{
    ice::Ice,
    stage::{Stage, play},
};

/// What a process that was stopped takes the time to be when it goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Watch {
    /// What it is: it sees that its Lease has run out.
    Right,
    /// What it was, as in a machine that was suspended: it believes that it leads until the Lease itself says otherwise.
    StoodStill,
}

struct Fighter {
    name: String,
    watch: Watch,
    ice: Ice,
    engine: Option<Engine>,
    lives: u32,
}

impl Fighter {
    fn new(name: &str, watch: Watch) -> Self {
        Self { name: name.to_owned(), watch, ice: Ice::default(), engine: None, lives: 0 }
    }

    fn start(&mut self, stage: &Stage) {
        self.lives += 1;
        let client = self.ice.around(stage.world.api.client(&Identity::new(self.name.as_str())));
        let lease = match self.watch {
            Watch::Right => lease::Config::default(),
            Watch::StoodStill => lease::Config { renew_deadline: Duration::from_secs(24 * 3600), ..lease::Config::default() },
        };
        let identity = format!("{}#{}", self.name, self.lives);
        let options = EngineOptions { mode: Mode::Engine, identity, lease, ..EngineOptions::default() };
        self.engine = Some(Engine::start(Cluster::over(client, false, "simulated", "in this process"), options));
    }

    async fn crash(&mut self, stage: &Stage, down: Duration) {
        stage.world.api.kill(&self.name);
        if let Some(engine) = self.engine.take() {
            engine.abort();
        }
        self.ice.thaw();
        tokio::time::sleep(down).await;
        self.start(stage);
    }

    async fn leave(&mut self, stage: &Stage, away: Duration) {
        if let Some(engine) = self.engine.take() {
            engine.stop().await;
        }
        tokio::time::sleep(away).await;
        self.start(stage);
    }
}

/// What happened in a run.
#[derive(Debug, Default)]
struct Tally {
    stopped: u64,
    stopped_at_a_write: u64,
    crashed: u64,
    left: u64,
    /// Changes of hands of the Lease.
    leaders: i64,
    /// Writes that arrived after a stop, and how many of them were accepted.
    late: u64,
    late_accepted: u64,
    unloads: u64,
}

impl Tally {
    fn add(&mut self, other: &Tally) {
        self.stopped += other.stopped;
        self.stopped_at_a_write += other.stopped_at_a_write;
        self.crashed += other.crashed;
        self.left += other.left;
        self.leaders += other.leaders;
        self.late += other.late;
        self.late_accepted += other.late_accepted;
        self.unloads += other.unloads;
    }
}

const NODES: usize = 3;
/// Finitely many, so that it comes to an end.
const BLOWS: u32 = 14;

fn lease(stage: &Stage) -> Value {
    stage
        .world
        .api
        .get("leases.coordination.k8s.io", "lockkeeper-system", "lockkeeper")
        .map(|lease| (*lease).clone())
        .unwrap_or_default()
}

fn leader(stage: &Stage, fighters: &[Fighter]) -> Option<usize> {
    let lease = lease(stage);
    let holder = lease.pointer("/spec/holderIdentity")?.as_str()?.split('#').next()?;
    fighters.iter().position(|fighter| fighter.name == holder)
}

fn transitions(stage: &Stage) -> i64 {
    lease(stage).pointer("/spec/leaseTransitions").and_then(Value::as_i64).unwrap_or_default()
}

async fn duel(seed: u64, count: usize, watch: Watch) -> Tally {
    let names: Vec<String> = (0..count).map(|n| format!("{ENGINE}-{n}")).collect();
    let engines = names.iter().cloned().chain([ENGINE.to_owned()]).collect();
    let options = WorldOptions { kubelets: KubeletOptions::quick(), engines, ..WorldOptions::new(seed) };
    let stage = Stage::with(options, NODES).installed().await;
    let template = objects::template("app", Some((scenario::RESOURCE, 1)), 5);
    stage.apply(&[objects::deployment("ml", "app", 6, template), objects::budget("ml", "app", "maxUnavailable", json!(2))]).await;
    stage.release().await;
    let mut dice = ChaCha8Rng::seed_from_u64(seed ^ 0x6475_656C);
    let mut fighters: Vec<Fighter> = names.iter().map(|name| Fighter::new(name, watch)).collect();
    fighters.iter_mut().for_each(|fighter| fighter.start(&stage));
    stage.ask(&stage.nodes).await;
    let before = transitions(&stage);
    let mut tally = Tally::default();
    let seconds = |dice: &mut ChaCha8Rng, from: u64, to: u64| Duration::from_millis(dice.random_range(from * 1000..to * 1000));
    let all_done = || stage.nodes.iter().all(|node| stage.is_done(node, scenario::NEW));
    for _ in 0..BLOWS {
        tokio::time::sleep(seconds(&mut dice, 1, 15)).await;
        if all_done() {
            break;
        }
        let whom = match leader(&stage, &fighters) {
            Some(leader) if dice.random_range(0..4) > 0 => leader,
            _ => dice.random_range(0..count),
        };
        let fighter = &mut fighters[whom];
        match dice.random_range(0..10) {
            0..4 => {
                tally.stopped += 1;
                fighter.ice.freeze();
                tokio::time::sleep(seconds(&mut dice, 1, 50)).await;
                fighter.ice.thaw();
            }
            4..8 => {
                fighter.ice.arm(dice.random_range(1..5));
                // Who does not lead does not write.
                let struck = tokio::time::timeout(Duration::from_secs(60), fighter.ice.struck()).await.is_ok();
                if struck {
                    tally.stopped_at_a_write += 1;
                    tokio::time::sleep(seconds(&mut dice, 5, 50)).await;
                }
                fighter.ice.thaw();
            }
            8 => {
                tally.crashed += 1;
                fighter.crash(&stage, seconds(&mut dice, 1, 20)).await;
            }
            _ => {
                tally.left += 1;
                fighter.leave(&stage, seconds(&mut dice, 1, 20)).await;
            }
        }
    }
    stage.until("all nodes are handed over", all_done).await;
    // What is still on its way lands.
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!(all_done(), "seed {seed}: undone by what came late");
    tally.leaders = transitions(&stage) - before;
    for fighter in fighters {
        let (late, accepted) = fighter.ice.late_writes();
        tally.late += late;
        tally.late_accepted += accepted;
        if let Some(engine) = fighter.engine {
            engine.stop().await;
        }
    }
    let report = stage.world.report_at_rest();
    assert!(report.violations.is_empty(), "seed {seed}, {count} engines, {watch:?}: {:#?}", report.violations);
    assert_eq!(report.disruptions, 0, "seed {seed}");
    tally.unloads = report.modules_unloaded;
    assert_eq!(tally.unloads, NODES as u64, "seed {seed}: each node's module is unloaded once");
    tally
}

/// DUEL_SEEDS: that many instead; DUEL_SEED: from there on.
fn duels(count: usize, watch: Watch, seeds: u64) {
    let seeds = std::env::var("DUEL_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(seeds);
    let first = std::env::var("DUEL_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1u64);
    let mut sum = Tally::default();
    for seed in first..first + seeds {
        let mut tally = Tally::default();
        play(|| async { tally = duel(seed, count, watch).await });
        sum.add(&tally);
    }
    println!("{count} engines, clock {watch:?}, {seeds} seeds: {sum:?}, 0 violations");
    assert!(sum.leaders > 0 && sum.late > 0, "nothing was tried: {sum:?}");
}

#[test]
fn two_engines_one_stopped_at_random() {
    duels(2, Watch::Right, 20);
}

#[test]
fn three_engines_one_stopped_at_random() {
    duels(3, Watch::Right, 15);
}

#[test]
fn two_engines_one_stopped_together_with_its_clock() {
    duels(2, Watch::StoodStill, 15);
}
