//! Scenario `kmm` run to its end: a Module upgraded over the whole fleet, node by node with lockkeeper, or, as a baseline, with all nodes'
//! labels changed at once.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use tokio::sync::Notify;

use super::{DemoOptions, chaos, supervisor};
use crate::{
    handoff::verdict::BlockerKind,
    kmm::keys::WORKER_ACTION,
    sim::{
        actors::kmm::KmmOptions,
        kernel::Service,
        people::{
            hands::{Hands, No},
            kmm::{self as people, Order},
            operator::{self, Outcome},
        },
        scenarios::kmm::{self as scenario, Devices, PARTS, Part},
        world::{ENGINE, Profile, World, WorldOptions},
    },
};

const PATIENCE: Duration = Duration::from_secs(4 * 3600);
const INSTALL: Duration = Duration::from_secs(3600);
const SETTLE: Duration = Duration::from_secs(300);

type Counts = BTreeMap<String, u64>;

/// What the world must have for it: KMM's operator, and whose the kernel modules are.
pub fn furnish(options: &mut WorldOptions) {
    options.kmm = Some(KmmOptions::default());
    options.modules = PARTS.into_iter().map(|part| (part.name.to_owned(), part.key())).collect();
}

/// The Modules in the old version on every node, and pods that hold their devices.
///
/// # Errors
/// What did not come up; or the request that failed.
pub async fn set_up(world: &World, hands: &Hands, options: &DemoOptions) -> Result<(), String> {
    let no = |no: No| no.to_string();
    people::install(hands, options.nodes, scenario::OLD).await.map_err(no)?;
    if !wait(world, options.nodes, scenario::OLD, INSTALL).await {
        return Err(format!("KMM did not bring version {} to every node", scenario::OLD));
    }
    operator::apply(hands, &scenario::workloads(options.nodes, options.pods_per_node)).await.map_err(no)?;
    operator::settled(hands, SETTLE).await;
    Ok(())
}

/// How many nodes have the version in their kernel, and the driver of it serving.
fn on(world: &World, nodes: usize, version: &str) -> usize {
    let runs = |node: &&String| {
        let part = Part::of_node(node);
        let service = match part.devices {
            Devices::Plugin(resource) => Service::Resource(resource.to_owned()),
            Devices::Dra { driver, .. } => Service::Dra(driver.to_owned()),
        };
        world.kubelets.kernel(node).is_some_and(|kernel| {
            let made_for = |module: &(String, String)| module.1 == version;
            kernel.modules.get(part.name).is_some_and(|loaded| loaded == version)
                && kernel.providers.iter().any(|it| it.service == service && it.module.as_ref().is_some_and(made_for))
        })
    };
    scenario::node_names(nodes).iter().filter(runs).count()
}

async fn wait(world: &World, nodes: usize, version: &str, within: Duration) -> bool {
    let deadline = tokio::time::Instant::now() + within;
    while on(world, nodes, version) < nodes {
        if tokio::time::Instant::now() >= deadline {
            return false;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    true
}

/// What a script does: the Modules edited, then every node's label set to the new version, one after the other without a pause.
///
/// # Errors
/// The scenario cannot be set up; the text says which request failed.
pub async fn label_all(world: &Arc<World>, hands: &Hands, options: &DemoOptions) -> Result<Outcome, String> {
    let no = |no: No| no.to_string();
    set_up(world, hands, options).await?;
    people::release(hands, options.nodes, scenario::NEW).await.map_err(no)?;
    for node in scenario::node_names(options.nodes) {
        people::label(hands, Part::of_node(&node), &node, Some(scenario::NEW)).await.map_err(no)?;
    }
    wait(world, options.nodes, scenario::NEW, INSTALL).await;
    tokio::time::sleep(SETTLE).await;
    Ok(Outcome { upgraded: on(world, options.nodes, scenario::NEW), ..Outcome::default() })
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
    for part in scenario::parts(options.nodes) {
        hands.create(&part.component(1)).await.map_err(no)?;
    }
    opened()?;
    people::release(hands, options.nodes, scenario::NEW).await.map_err(no)?;
    let mut order = nodes.to_vec();
    order.shuffle(&mut ChaCha8Rng::seed_from_u64(options.seed));
    let trouble = trouble(world, nodes, options);
    let repairs = tokio::spawn(repair(world.clone()));
    let order = Order { version: scenario::NEW, nodes: &order };
    let mut outcome = order.see(hands, PATIENCE, nodes.len()).await;
    let mut counts = Counts::new();
    for task in trouble {
        counts.extend(task.await.unwrap_or_default().into_iter().map(|(kind, times)| (kind.to_owned(), times)));
    }
    if !counts.is_empty() {
        // What was meddled with last is put right before the books are closed.
        tokio::time::sleep(SETTLE).await;
        let before = outcome.retried;
        outcome = order.see(hands, PATIENCE, nodes.len()).await;
        outcome.retried += before;
    }
    repairs.abort();
    stop.notify_one();
    let lives = engine.await.unwrap_or_default();
    counts.insert("engine restarted".to_owned(), u64::from(lives.saturating_sub(1)));
    outcome.upgraded = outcome.upgraded.min(on(world, options.nodes, scenario::NEW));
    Ok((outcome, counts))
}

/// Somebody reboots a machine where KMM loads in vain again and again (what a load that was cut off has left in the kernel leaves only so),
/// and one of which lockkeeper says that it cannot tell what is in the kernel.
async fn repair(world: Arc<World>) {
    loop {
        tokio::time::sleep(Duration::from_secs(60)).await;
        let loads_in_vain = |pod: &serde_json::Value| {
            let restarts = pod.pointer("/status/containerStatuses/0/restartCount").and_then(serde_json::Value::as_i64);
            let loads = pod["metadata"]["labels"].get(WORKER_ACTION).is_some_and(|action| action == "Load");
            matches!((loads, restarts), (true, Some(3..))).then(|| pod["spec"]["nodeName"].as_str().map(str::to_owned)).flatten()
        };
        let unproven = |handoff: &serde_json::Value| {
            let mut blockers = handoff["status"]["blockers"].as_array().into_iter().flatten();
            let says = blockers.any(|blocker| blocker["kind"] == BlockerKind::ModuleUnproven.word());
            says.then(|| handoff["spec"]["node"].as_str().map(str::to_owned)).flatten()
        };
        let in_vain = world.api.list("pods").iter().find_map(|pod| loads_in_vain(pod));
        let handoffs = world.api.list("nodehandoffs.lockkeeper.dev");
        if let Some(node) = in_vain.or_else(|| handoffs.iter().find_map(|handoff| unproven(handoff))) {
            world.kubelets.reboot(&node);
            tokio::time::sleep(Duration::from_secs(180)).await;
        }
    }
}

type Trouble = tokio::task::JoinHandle<BTreeMap<&'static str, u64>>;

fn trouble(world: &Arc<World>, nodes: &[String], options: &DemoOptions) -> Vec<Trouble> {
    let times = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
    let plan = |roughly| super::super::people::kmm_meddler::Plan::new(options.seed, times, roughly);
    let meddler =
        |roughly| tokio::spawn(super::super::people::kmm_meddler::meddle(world.hands("meddler"), nodes.to_vec(), plan(roughly)));
    match options.faults {
        Profile::None => Vec::new(),
        Profile::Flaky => vec![meddler(false)],
        Profile::Hostile => {
            let machines = chaos::strike(world.clone(), nodes.to_vec(), options.seed, times.div_ceil(2), Duration::from_secs(90));
            let operator = chaos::strike_kmm(world.clone(), options.seed, times.div_ceil(4), Duration::from_secs(180));
            vec![meddler(true), tokio::spawn(machines), tokio::spawn(operator)]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::demo::{Baseline, Scenario, headless, options};

    fn kmm(faults: Profile, nodes: usize, baseline: Option<Baseline>) -> DemoOptions {
        DemoOptions { scenario: Scenario::Kmm, baseline, ..options(1, faults, nodes) }
    }

    /// `SEEDS=1..9 FAULTS=hostile NODES=4 cargo test --lib kmm_sweep -- --nocapture` tries more.
    #[test]
    fn kmm_sweep() {
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
            let options = DemoOptions { seed, tell: read("STORY").is_some(), ..kmm(profile, nodes, None) };
            let (summary, findings) = headless::run(&options).unwrap();
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
    fn labels_of_all_nodes_changed_at_once_take_devices_from_running_pods() {
        let (summary, findings) = headless::run(&kmm(Profile::None, 4, Some(Baseline::LabelAll))).unwrap();
        assert!(summary.disruptions > 0, "{summary:?} {findings:?}");
    }
}
