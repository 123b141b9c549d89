//! A scenario run to its end as fast as it goes, on a clock that only moves when everybody waits.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError},
    time::Duration,
};

use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use tokio::sync::Notify;

use super::{
    DemoOptions, Findings, Scenario, Summary, baseline, chaos, csi, kmm,
    serving::{Open, Serving},
    story, supervisor,
};
use crate::sim::{
    pacer::Speed,
    people::{
        hands::Hands,
        meddler::{self, Plan},
        operator::{self, Outcome},
    },
    scenarios::{csi as csi_scenario, kernel_module as scenario, kmm as kmm_scenario},
    world::{ENGINE, Profile, World, WorldOptions},
};

/// The longest that anything is waited for: far more than any run needs.
const PATIENCE: Duration = Duration::from_secs(4 * 3600);
pub(super) const INSTALL: Duration = Duration::from_secs(2 * 3600);
pub(super) const SETTLE: Duration = Duration::from_secs(300);

/// Runs it on a runtime of its own, on this thread.
///
/// # Errors
/// The runtime cannot be made, or the scenario cannot be set up; the text says which step failed.
pub fn run(options: &DemoOptions) -> Result<(Summary, Findings), String> {
    runtime()?.block_on(async { play(options, &world(options), &mut Door::default()).await })
}

/// Runs it with a port for clients from outside, open from the moment at which the fleet is set up, and at a pace that suits them. `ended` hears the
/// result; then the fleet is served on, with an engine, until `stop` is there. None: it was there before the end.
///
/// # Errors
/// As [`run`], or the port cannot be served.
pub fn run_served(
    options: &DemoOptions,
    serving: Serving,
    speed: Speed,
    stop: impl Future<Output = ()>,
    ended: impl FnOnce(&Summary, &Findings),
) -> Result<Option<Summary>, String> {
    runtime()?.block_on(async {
        let world = world(options);
        let mut door = Door { serving: Some((serving, speed)), open: None };
        let mut stop = std::pin::pin!(stop);
        let (summary, findings) = tokio::select! {
            biased;
            () = &mut stop => return Ok(None),
            played = play(options, &world, &mut door) => played?,
        };
        ended(&summary, &findings);
        let idle = Arc::new(Notify::new());
        let engine = options
            .baseline
            .is_none()
            .then(|| tokio::spawn(supervisor::keep_telling(world.clone(), ENGINE.to_owned(), 1, idle.clone())));
        stop.await;
        idle.notify_one();
        if let Some(engine) = engine {
            let _ = engine.await;
        }
        Ok(Some(summary))
    })
}

fn runtime() -> Result<tokio::runtime::Runtime, String> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().start_paused(true).build().map_err(|error| format!("no runtime: {error}"))
}

/// The way in for clients from outside, if there is one.
#[derive(Default)]
struct Door {
    serving: Option<(Serving, Speed)>,
    open: Option<Open>,
}

impl Door {
    fn open(&mut self, world: &World) -> Result<(), String> {
        if let Some((serving, speed)) = self.serving.take() {
            self.open = Some(serving.open(&world.api, speed)?);
        }
        Ok(())
    }
}

fn world(options: &DemoOptions) -> Arc<World> {
    let mut world_options = WorldOptions::new(options.seed);
    world_options.faults = options.faults;
    world_options.controllers.scheduler.late_permille = if options.faults == Profile::None { 0 } else { 50 };
    world_options.server.log_records = if options.keep_log { None } else { Some(0) };
    let objects = match options.scenario {
        Scenario::KernelModule => scenario::cluster(options.nodes),
        Scenario::Csi => csi_scenario::cluster(options.nodes, csi::strategy(options)),
        Scenario::Kmm => {
            kmm::furnish(&mut world_options);
            kmm_scenario::cluster(options.nodes)
        }
    };
    Arc::new(World::start(&world_options, &objects))
}

async fn play(options: &DemoOptions, world: &Arc<World>, door: &mut Door) -> Result<(Summary, Findings), String> {
    let story = options.tell.then(|| story::collect(&world.api));
    let hands = world.hands("operator");
    let nodes = match options.scenario {
        Scenario::KernelModule => scenario::node_names(options.nodes),
        Scenario::Csi => csi_scenario::node_names(options.nodes),
        Scenario::Kmm => kmm_scenario::node_names(options.nodes),
    };
    let (outcome, mut done) = match (options.scenario, options.baseline) {
        (Scenario::KernelModule, None) => upgrade(world, &hands, &nodes, options, door).await?,
        (Scenario::Csi, None) => csi::upgrade(world, &hands, &nodes, options, || door.open(world)).await?,
        (Scenario::Kmm, None) => kmm::upgrade(world, &hands, &nodes, options, || door.open(world)).await?,
        (_, Some(_)) => {
            door.open(world)?;
            (without_lockkeeper(world, &hands, &nodes, options).await?, BTreeMap::new())
        }
    };
    let report = if options.baseline.is_some() { world.report() } else { world.report_at_rest() };
    done.extend(world.faults_injected().into_iter().map(|(kind, times)| (kind.to_owned(), times)));
    let log = world.api.log();
    let summary = Summary {
        scenario: options.scenario.word(),
        seed: options.seed,
        nodes: nodes.len(),
        upgraded: outcome.upgraded,
        failed: outcome.failed,
        claimants_evicted: report.claimants_evicted,
        // Without lockkeeper there are only others.
        disruptions: report.disruptions + if options.baseline.is_some() { report.disruptions_by_others } else { 0 },
        disruptions_by_others: report.disruptions_by_others,
        // A plain rollout has none of lockkeeper's labels to be judged by: what it does to workloads is what counts.
        violations: if options.baseline.is_some() { 0 } else { report.violations.len() },
        api_writes: report.engine_writes,
        simulated_seconds: world.api.clock().elapsed().as_secs(),
        retries: outcome.retried,
        faults: done.values().sum::<u64>(),
        event_log: format!("{:016x}", log.digest()),
    };
    done.extend(report.others);
    let findings = Findings {
        violations: report.violations.iter().map(ToString::to_string).collect(),
        unfinished: outcome.unfinished,
        faults: done,
        log: if options.keep_log { log.text() } else { String::new() },
        story: story.map(|lines| std::mem::take(&mut *lines.lock().unwrap_or_else(PoisonError::into_inner))).unwrap_or_default(),
    };
    Ok((summary, findings))
}

/// What other tools do.
async fn without_lockkeeper(
    world: &Arc<World>,
    hands: &Hands,
    nodes: &[String],
    options: &DemoOptions,
) -> Result<Outcome, String> {
    match options.scenario {
        Scenario::KernelModule => baseline::rolling_update(world, hands, nodes, options).await,
        Scenario::Csi => csi::rolling_update(world, hands, options).await,
        Scenario::Kmm => kmm::label_all(world, hands, options).await,
    }
}

type Counts = BTreeMap<String, u64>;

async fn upgrade(
    world: &Arc<World>,
    hands: &Hands,
    nodes: &[String],
    options: &DemoOptions,
    door: &mut Door,
) -> Result<(Outcome, Counts), String> {
    let stop = Arc::new(Notify::new());
    let engine = tokio::spawn(supervisor::keep_running(world.clone(), ENGINE.to_owned(), 1, stop.clone()));
    hands.create(&scenario::component()).await.map_err(|no| no.to_string())?;
    if !operator::all_ready(hands, nodes, scenario::OLD, INSTALL).await {
        return Err(format!("version {} was not installed on every node within {} s", scenario::OLD, INSTALL.as_secs()));
    }
    operator::apply(hands, &scenario::workloads(nodes.len(), options.pods_per_node)).await.map_err(|no| no.to_string())?;
    operator::settled(hands, SETTLE).await;
    door.open(world)?;
    operator::release(hands).await.map_err(|no| no.to_string())?;
    let mut order = nodes.to_vec();
    order.shuffle(&mut ChaCha8Rng::seed_from_u64(options.seed));
    operator::ask_for(hands, &order).await.map_err(|no| no.to_string())?;
    let trouble = trouble(world, nodes, options);
    let outcome = operator::see_through(hands, &order, PATIENCE).await;
    let mut counts = Counts::new();
    for task in trouble {
        counts.extend(task.await.unwrap_or_default().into_iter().map(|(kind, times)| (kind.to_owned(), times)));
    }
    // What was still meddled with is put right before the books are closed.
    let outcome = if counts.is_empty() { outcome } else { again(hands, &order, outcome).await };
    stop.notify_one();
    let lives = engine.await.unwrap_or_default();
    counts.insert("engine restarted".to_owned(), u64::from(lives.saturating_sub(1)));
    Ok((outcome, counts))
}

async fn again(hands: &Hands, order: &[String], before: Outcome) -> Outcome {
    tokio::time::sleep(SETTLE).await;
    let after = operator::see_through(hands, order, PATIENCE).await;
    Outcome { retried: before.retried + after.retried, ..after }
}

type Trouble = tokio::task::JoinHandle<BTreeMap<&'static str, u64>>;

fn trouble(world: &Arc<World>, nodes: &[String], options: &DemoOptions) -> Vec<Trouble> {
    let times = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
    let meddler = |times, labels| {
        let plan = Plan { labels, ..Plan::new(options.seed, times) };
        tokio::spawn(meddler::meddle(world.hands("meddler"), nodes.to_vec(), plan))
    };
    match options.faults {
        Profile::None => Vec::new(),
        Profile::Flaky => vec![meddler(times, false)],
        Profile::Hostile => {
            let chaos = chaos::strike(world.clone(), nodes.to_vec(), options.seed, times.div_ceil(2), Duration::from_secs(90));
            vec![meddler(times, true), tokio::spawn(chaos)]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::demo::{Baseline, options};

    /// `SEEDS=1..9 FAULTS=hostile NODES=4 cargo test --lib sweep -- --nocapture` tries more.
    #[test]
    fn sweep() {
        let read = |name: &str| std::env::var(name).ok();
        let seeds = read("SEEDS").unwrap_or_else(|| "1..3".into());
        let (from, to) = seeds.split_once("..").unwrap();
        let profile = match read("FAULTS").as_deref() {
            Some("hostile") => Profile::Hostile,
            Some("flaky") => Profile::Flaky,
            _ => Profile::None,
        };
        let nodes = read("NODES").map_or(4, |text| text.parse().unwrap());
        let mut bad = 0;
        for seed in from.parse::<u64>().unwrap()..to.parse().unwrap() {
            let options = DemoOptions { tell: read("STORY").is_some(), ..options(seed, profile, nodes) };
            let (summary, findings) = run(&options).unwrap();
            for line in &findings.story {
                println!("{line}");
            }
            println!("{}", serde_json::to_string(&summary).unwrap());
            if !summary.is_good() {
                bad += 1;
                println!("{:#?}", findings.violations.iter().take(5).collect::<Vec<_>>());
                println!("{:#?}", findings.unfinished);
            }
        }
        assert_eq!(bad, 0);
    }

    fn csi_options(seed: u64, faults: Profile, nodes: usize) -> DemoOptions {
        DemoOptions { scenario: Scenario::Csi, ..options(seed, faults, nodes) }
    }

    /// `SEEDS=1..9 FAULTS=hostile NODES=4 cargo test --lib csi_sweep -- --nocapture` tries more.
    #[test]
    fn csi_sweep() {
        let read = |name: &str| std::env::var(name).ok();
        let seeds = read("SEEDS").unwrap_or_else(|| "1..3".into());
        let (from, to) = seeds.split_once("..").unwrap();
        let profile = match read("FAULTS").as_deref() {
            Some("hostile") => Profile::Hostile,
            Some("flaky") => Profile::Flaky,
            _ => Profile::None,
        };
        let nodes = read("NODES").map_or(3, |text| text.parse().unwrap());
        let mut bad = 0;
        for seed in from.parse::<u64>().unwrap()..to.parse().unwrap() {
            let options = DemoOptions { tell: read("STORY").is_some(), ..csi_options(seed, profile, nodes) };
            let (summary, findings) = run(&options).unwrap();
            for line in &findings.story {
                println!("{line}");
            }
            println!("{}", serde_json::to_string(&summary).unwrap());
            if !summary.is_good() || summary.claimants_evicted == 0 {
                bad += 1;
                println!("{:#?}", findings.violations.iter().take(5).collect::<Vec<_>>());
                println!("{:#?}", findings.unfinished);
            }
        }
        assert_eq!(bad, 0);
    }

    #[test]
    fn a_plain_rolling_update_of_nodeplugins_takes_mounts_from_running_pods() {
        let options = DemoOptions { baseline: Some(Baseline::RollingUpdate), ..csi_options(1, Profile::None, 3) };
        let (summary, _) = run(&options).unwrap();
        assert_eq!(summary.upgraded, 3, "{summary:?}");
        assert!(summary.disruptions > 0, "{summary:?}");
    }

    #[test]
    fn a_quiet_fleet_is_upgraded_whole() {
        let (summary, findings) = run(&options(1, Profile::None, 4)).unwrap();
        assert!(summary.is_good(), "{summary:?}\n{findings:#?}");
    }
}
