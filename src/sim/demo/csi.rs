//! Scenario `csi` run to its end: two nodeplugins upgraded over the whole fleet, or, as a baseline, rolled out as people do by default.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use tokio::sync::Notify;

use super::{Baseline, DemoOptions, chaos, supervisor};
use crate::sim::{
    people::{
        hands::{Hands, No},
        operator::{self, Outcome},
        storage::{self, Order},
    },
    scenarios::csi::{self as scenario, PLUGINS},
    world::{ENGINE, Profile, World},
};

const PATIENCE: Duration = Duration::from_secs(4 * 3600);
const INSTALL: Duration = Duration::from_secs(3600);
const SETTLE: Duration = Duration::from_secs(300);

type Counts = BTreeMap<String, u64>;

/// The update strategy that the DaemonSets have.
pub fn strategy(options: &DemoOptions) -> &'static str {
    if options.baseline == Some(Baseline::RollingUpdate) { "RollingUpdate" } else { "OnDelete" }
}

/// Old nodeplugins everywhere, and pods with volumes on them.
///
/// # Errors
/// What did not come up; or the request that failed.
pub async fn set_up(world: &World, hands: &Hands, options: &DemoOptions) -> Result<(), String> {
    let no = |no: No| no.to_string();
    if !wait(world, options.nodes, scenario::OLD, INSTALL).await {
        return Err(format!("nodeplugins {} did not come up on every node", scenario::OLD));
    }
    let (volumes, workloads) = scenario::workloads(options.nodes, options.pods_per_node);
    storage::bind(hands, &volumes).await.map_err(no)?;
    operator::apply(hands, &workloads).await.map_err(no)?;
    if !storage::settled(hands, SETTLE).await {
        return Err("not every pod with a volume runs".to_owned());
    }
    Ok(())
}

/// How many nodes run both nodeplugins in this version, and no other.
fn on(world: &World, version: &str) -> usize {
    let mut runs: BTreeMap<String, usize> = BTreeMap::new();
    let pods = world.api.list("pods");
    for plugin in PLUGINS {
        let mut here: BTreeMap<&str, Vec<bool>> = BTreeMap::new();
        for pod in &pods {
            let text = |pointer: &str| pod.pointer(pointer).and_then(serde_json::Value::as_str).unwrap_or_default();
            if text("/metadata/labels/app") == plugin.daemon_set && !text("/spec/nodeName").is_empty() {
                let ready = pod.pointer("/status/containerStatuses/0/ready") == Some(&true.into());
                let is = text("/spec/containers/0/image").ends_with(&format!(":{version}")) && ready;
                here.entry(pod["spec"]["nodeName"].as_str().unwrap_or_default()).or_default().push(is);
            }
        }
        for (node, all) in here {
            *runs.entry(node.to_owned()).or_default() += usize::from(all == [true]);
        }
    }
    runs.values().filter(|count| **count == PLUGINS.len()).count()
}

async fn wait(world: &World, nodes: usize, version: &str, within: Duration) -> bool {
    let deadline = tokio::time::Instant::now() + within;
    while on(world, version) < nodes {
        if tokio::time::Instant::now() >= deadline {
            return false;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    true
}

/// A plain rolling update of both DaemonSets.
///
/// # Errors
/// The scenario cannot be set up; the text says which request failed.
pub async fn rolling_update(world: &Arc<World>, hands: &Hands, options: &DemoOptions) -> Result<Outcome, String> {
    set_up(world, hands, options).await?;
    for plugin in PLUGINS {
        storage::release(hands, plugin, scenario::NEW).await.map_err(|no| no.to_string())?;
    }
    wait(world, options.nodes, scenario::NEW, INSTALL).await;
    tokio::time::sleep(SETTLE).await;
    Ok(Outcome { upgraded: on(world, scenario::NEW), ..Outcome::default() })
}

/// Node by node, with lockkeeper.
///
/// # Errors
/// The scenario cannot be set up; the text says which step failed.
pub async fn upgrade(
    world: &Arc<World>,
    hands: &Hands,
    nodes: &[String],
    options: &DemoOptions,
    opened: impl FnOnce() -> Result<(), String>,
) -> Result<(Outcome, Counts), String> {
    let no = |no: No| no.to_string();
    set_up(world, hands, options).await?;
    let stop = Arc::new(Notify::new());
    let engine = tokio::spawn(supervisor::keep_running(world.clone(), ENGINE.to_owned(), 1, stop.clone()));
    for plugin in PLUGINS {
        hands.create(&plugin.component()).await.map_err(no)?;
    }
    opened()?;
    let mut order = nodes.to_vec();
    order.shuffle(&mut ChaCha8Rng::seed_from_u64(options.seed));
    let trouble = trouble(world, nodes, options);
    for plugin in PLUGINS {
        storage::release(hands, plugin, scenario::NEW).await.map_err(no)?;
    }
    let mut outcome = through(hands, &order, 0).await;
    let mut counts = Counts::new();
    for task in trouble {
        counts.extend(task.await.unwrap_or_default().into_iter().map(|(kind, times)| (kind.to_owned(), times)));
    }
    if !counts.is_empty() {
        // What was meddled with last is put right before the books are closed.
        tokio::time::sleep(SETTLE).await;
        outcome = through(hands, &order, outcome.retried).await;
    }
    stop.notify_one();
    let lives = engine.await.unwrap_or_default();
    counts.insert("engine restarted".to_owned(), u64::from(lives.saturating_sub(1)));
    outcome.upgraded = outcome.upgraded.min(on(world, scenario::NEW));
    Ok((outcome, counts))
}

/// One nodeplugin after the other; a node counts when it has both.
async fn through(hands: &Hands, order: &[String], retried: usize) -> Outcome {
    let mut all = Outcome { upgraded: order.len(), retried, ..Outcome::default() };
    for plugin in PLUGINS {
        let one = Order { plugin, version: scenario::NEW, nodes: order }.see_through(hands, PATIENCE).await;
        all.upgraded = all.upgraded.min(one.upgraded);
        all.failed += one.failed;
        all.retried += one.retried;
        all.unfinished.extend(one.unfinished);
    }
    all
}

type Trouble = tokio::task::JoinHandle<BTreeMap<&'static str, u64>>;

fn trouble(world: &Arc<World>, nodes: &[String], options: &DemoOptions) -> Vec<Trouble> {
    let times = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
    let meddler = |roughly| tokio::spawn(storage::meddle(world.hands("meddler"), nodes.to_vec(), options.seed, times, roughly));
    match options.faults {
        Profile::None => Vec::new(),
        Profile::Flaky => vec![meddler(false)],
        Profile::Hostile => {
            let chaos = chaos::strike(world.clone(), nodes.to_vec(), options.seed, times.div_ceil(2), Duration::from_secs(90));
            vec![meddler(true), tokio::spawn(chaos)]
        }
    }
}
