//! One simulated fleet of 1,000 nodes and 30,000 pods taken to a new version from end to end: wall time, handoffs a second, and API requests a
//! handoff beside the least that the protocol needs. `cargo bench --bench upgrade [-- NODES PODS AT_ONCE]`. It fails when a node is not upgraded.
#![expect(clippy::disallowed_methods, reason = "a bench measures real time")]

use std::{
    collections::BTreeMap,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use lockkeeper::sim::{
    apiserver::Config,
    demo::supervisor,
    people::operator::{self, Order},
    scenarios::kernel_module::{self as scenario, GPU},
    world::{ENGINE, World, WorldOptions},
};
use tokio::sync::Notify;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Virtual time that nothing here should need.
const PATIENCE: Duration = Duration::from_secs(24 * 3600);

/// What a handoff cannot do without, as counted in docs/performance.md; one eviction per claimant comes on top.
const LEAST: [(&str, f64); 5] =
    [("node patches", 10.0), ("status writes", 10.0), ("finalizer writes", 2.0), ("Lease writes", 2.0), ("unload pod", 2.0)];

struct Size {
    nodes: usize,
    pods: usize,
    at_once: u32,
}

fn main() -> ExitCode {
    let mut numbers = std::env::args().skip(1).filter_map(|argument| argument.parse::<usize>().ok());
    let mut number = |default| numbers.next().unwrap_or(default);
    let (nodes, pods) = (number(1000), number(30_000));
    let size = Size { nodes, pods, at_once: u32::try_from(number(25)).unwrap_or(1) };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build() {
        Ok(runtime) => runtime,
        Err(error) => {
            println!("no runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(upgrade(&size)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            println!("FAILED: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Requests of the engine by verb and resource.
fn counts(world: &World) -> BTreeMap<(String, String), u64> {
    let counts = world.api.log().counts();
    let ours = counts.into_iter().filter(|((client, _, _), _)| client == ENGINE);
    ours.map(|((_, verb, resource), count)| ((verb.to_owned(), resource), count.total)).collect()
}

fn running(world: &World) -> usize {
    world.api.list("pods").iter().filter(|pod| pod["status"]["phase"] == "Running").count()
}

async fn upgrade(size: &Size) -> Result<(), String> {
    let no = |no: lockkeeper::sim::people::hands::No| no.to_string();
    let mut options = WorldOptions::new(1);
    options.max_closed = usize::try_from(size.at_once).unwrap_or(1);
    options.kubelets.workers = 256;
    options.server = Config {
        history: 50_000,
        // A node's are kept: they say whose a cordon is.
        no_managed_fields: ["pods", "leases.coordination.k8s.io", "events"].map(str::to_owned).into(),
        ..options.server
    };
    let began = Instant::now();
    let world = Arc::new(World::start(&options, &scenario::cluster(size.nodes)));
    let stop = Arc::new(Notify::new());
    let engine = tokio::spawn(supervisor::keep_running(world.clone(), ENGINE.to_owned(), size.at_once, stop.clone()));
    let (hands, nodes) = (world.hands("operator"), scenario::node_names(size.nodes));
    hands.create(&GPU.component(size.at_once)).await.map_err(no)?;
    if !operator::all_ready(&hands, &nodes, scenario::OLD, PATIENCE).await {
        return Err("the old version was not installed on every node".into());
    }
    println!("{} nodes, first version installed: {:.1} s", size.nodes, began.elapsed().as_secs_f64());
    let began = Instant::now();
    // Loader, plugin and monitor on each node, and claimants on half of the devices that are left.
    let own = size.nodes * 9 / 2;
    let plain = size.pods.saturating_sub(own).div_ceil(size.nodes.max(1));
    operator::apply(&hands, &scenario::workloads(size.nodes, plain)).await.map_err(no)?;
    let mut before = 0;
    loop {
        tokio::time::sleep(Duration::from_secs(30)).await;
        let now = running(&world);
        if now == before {
            break;
        }
        before = now;
    }
    println!("{before} pods running: {:.1} s", began.elapsed().as_secs_f64());
    let (asked, simulated) = (counts(&world), world.api.clock().elapsed());
    let evicted = world.report().claimants_evicted;
    let began = Instant::now();
    let order = Order { module: GPU, version: scenario::NEW, nodes: &nodes };
    order.release(&hands).await.map_err(no)?;
    order.ask(&hands).await.map_err(no)?;
    let outcome = order.see_through(&hands, PATIENCE).await;
    let (wall, simulated) = (began.elapsed().as_secs_f64(), world.api.clock().elapsed() - simulated);
    stop.notify_one();
    let _ = engine.await;
    let report = world.report_at_rest();
    let handoffs = size.nodes as f64;
    println!(
        "{} nodes upgraded, {} at once: {wall:.1} s, {:.1} handoffs/s, {} s simulated",
        outcome.upgraded,
        size.at_once,
        handoffs / wall,
        simulated.as_secs()
    );
    println!("{} disruptions, {} violations", report.disruptions, report.violations.len());
    requests(&asked, &counts(&world), handoffs, (report.claimants_evicted - evicted) as f64);
    let whole = outcome.upgraded == size.nodes && report.disruptions == 0 && report.violations.is_empty();
    if whole { Ok(()) } else { Err(format!("{:#?}{:#?}", report.violations, outcome.unfinished)) }
}

fn requests(before: &BTreeMap<(String, String), u64>, after: &BTreeMap<(String, String), u64>, handoffs: f64, evicted: f64) {
    let (mut all, mut writes) = (0.0, 0.0);
    println!("API requests of the engine, a handoff:");
    for (key, count) in after {
        let each = (count - before.get(key).copied().unwrap_or(0)) as f64 / handoffs;
        all += each;
        if !matches!(key.0.as_str(), "get" | "list" | "watch") {
            writes += each;
        }
        if each >= 0.05 {
            println!("  {each:7.2}  {} {}", key.0, key.1);
        }
    }
    let evictions = evicted / handoffs;
    let least = LEAST.iter().map(|(_, count)| count).sum::<f64>() + evictions;
    let named = LEAST.map(|(name, count)| format!("{count} {name}")).join(", ");
    println!("  {all:7.2}  in all, of which {writes:.2} writes");
    println!("  {least:7.2}  the least: {named}, {evictions:.2} evictions; all writes");
    println!("  {:7.2}  times the least in writes, {:.2} times in all", writes / least, all / least);
}
