//! The demo under the console: simulation and engine on a thread of their own, at a human pace, with things that happen by themselves.

use std::{sync::Arc, thread, time::Duration};

use serde_json::{Value, json};
use tokio::sync::{Notify, oneshot};

use super::{
    DemoOptions, Scenario, csi, kmm,
    serving::{Open, Serving},
};
use crate::{
    cluster::Cluster,
    engine::{Engine, EngineOptions, Request, picture::Mode, picture::Picture, probes::Probes},
    sim::{
        apiserver::Identity,
        pacer::{self, Speed},
        people::{hands::Hands, kmm as modules, operator, storage},
        scenarios::{csi as csi_scenario, kernel_module as scenario, kmm as kmm_scenario, objects},
        world::{ENGINE, World, WorldOptions},
    },
};

/// The running demo, for the console.
pub struct Stage {
    pub pictures: tokio::sync::watch::Receiver<Picture>,
    pub requests: tokio::sync::mpsc::Sender<Request>,
    pub cluster: Cluster,
    pub speed: Speed,
    stop: Arc<Notify>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.stop.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A handoff takes about a simulated minute here.
pub const SPEED: f64 = 3.0;

/// Starts it; returns once the fleet runs its old version with its workloads, which takes no simulated waiting.
///
/// # Errors
/// The runtime cannot be made, the scenario cannot be set up, or the port cannot be served.
pub fn start(options: &DemoOptions, speed: f64, read_only: bool, serving: Option<Serving>) -> Result<Stage, String> {
    let (ready, told) = oneshot::channel();
    let (stop, stopped) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let speed = Speed::new(speed);
    let (options, pace, end) = (options.clone(), speed.clone(), stop.clone());
    let thread = thread::Builder::new()
        .name("simulation".to_owned())
        .spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
            match runtime {
                Ok(runtime) => runtime.block_on(play(options, pace, read_only, serving, ready, end)),
                Err(error) => drop(ready.send(Err(format!("no runtime: {error}")))),
            }
            stopped.notify_one();
        })
        .map_err(|error| format!("no thread: {error}"))?;
    let set = told.blocking_recv().map_err(|_| "the simulation ended before it began".to_owned())??;
    Ok(Stage { pictures: set.0, requests: set.1, cluster: set.2, speed, stop, thread: Some(thread) })
}

type Set = (tokio::sync::watch::Receiver<Picture>, tokio::sync::mpsc::Sender<Request>, Cluster);

async fn play(
    options: DemoOptions,
    speed: Speed,
    read_only: bool,
    serving: Option<Serving>,
    ready: oneshot::Sender<Result<Set, String>>,
    stop: Arc<Notify>,
) {
    let (objects, nodes) = match options.scenario {
        Scenario::KernelModule => (scenario::cluster(options.nodes), scenario::node_names(options.nodes)),
        Scenario::Csi => (csi_scenario::cluster(options.nodes, csi::strategy(&options)), csi_scenario::node_names(options.nodes)),
        Scenario::Kmm => (kmm_scenario::cluster(options.nodes), kmm_scenario::node_names(options.nodes)),
    };
    let world = Arc::new(World::start(&world_options(&options), &objects));
    let hands = world.hands("colleague");
    let at = serving.as_ref().map(Serving::url);
    let engine = start_engine(&world, Mode::Engine, at.as_deref()).await;
    let blocked = match set_up(&world, &hands, &nodes, &options).await {
        Ok(blocked) => blocked,
        Err(why) => {
            let _ = ready.send(Err(why));
            return;
        }
    };
    // What the console shows is read-only when asked: then the engine of "the cluster" acts, and the console's only looks.
    let (shown, background) =
        if read_only { (start_engine(&world, Mode::ReadOnly, at.as_deref()).await, Some(engine)) } else { (engine, None) };
    shown.until(|picture| picture.fleet.synced).await;
    let paced = match serving.map(|serving| serving.open(&world.api, speed.clone())) {
        Some(Ok(open)) => Paced::Served(open),
        Some(Err(why)) => {
            let _ = ready.send(Err(why));
            return;
        }
        None => Paced::Alone(tokio::spawn(pacer::hold_back(speed))),
    };
    let _ = ready.send(Ok((shown.pictures(), shown.requests(), shown.cluster().clone())));
    let life = tokio::spawn(live(world.clone(), hands, nodes, blocked, options.seed));
    stop.notified().await;
    life.abort();
    paced.end();
    shown.stop().await;
    if let Some(engine) = background {
        engine.stop().await;
    }
}

/// What holds virtual time back.
enum Paced {
    Alone(tokio::task::JoinHandle<()>),
    Served(Open),
}

impl Paced {
    fn end(self) {
        match self {
            Self::Alone(pacer) => pacer.abort(),
            Self::Served(open) => drop(open),
        }
    }
}

/// `at`: where clients from outside find the server.
async fn start_engine(world: &World, mode: Mode, at: Option<&str>) -> Engine {
    let name = if mode == Mode::Engine { ENGINE } else { "onlooker" };
    let read_only = mode == Mode::ReadOnly;
    let cluster = match at {
        Some(url) => Cluster::over(world.api.client(&Identity::new(name)), read_only, "simulated", url),
        None => world.cluster(name, read_only),
    };
    // The simulated server always says who it is, sooner or later.
    let cluster = cluster.clone().identified().await.unwrap_or(cluster);
    // Who comes from outside looks for Events.
    let probes = if at.is_some() && mode == Mode::Engine { Probes::announcing() } else { Probes::default() };
    Engine::start(cluster, EngineOptions { mode, identity: format!("{name}@demo"), probes, ..EngineOptions::default() })
}

fn world_options(options: &DemoOptions) -> WorldOptions {
    // Nobody starts the console's own engine again.
    let mut world = WorldOptions { faults: options.faults, crashes: false, ..WorldOptions::new(options.seed) };
    if options.scenario == Scenario::Kmm {
        kmm::furnish(&mut world);
    }
    world
}

/// Somebody's pod that opens the device without claiming it: its node's unload will fail.
const STRAY: &str = "debug-shell";

/// The budget that allows nothing for a while: of an app that has no pod on the first node, which stands selected when the console opens.
async fn blocked(hands: &Hands, nodes: &[String]) -> Option<String> {
    let budgets: Vec<Value> = hands.items("/apis/policy/v1/namespaces/ml/poddisruptionbudgets").await.ok()?;
    let pods: Vec<Value> = hands.items("/api/v1/namespaces/ml/pods").await.ok()?;
    let first = nodes.first()?;
    let names = budgets.iter().filter_map(|it| it.pointer("/metadata/name")?.as_str());
    let of_trainings: Vec<&str> = names.filter(|name| name.starts_with("training")).collect();
    let on_first =
        |app: &str| pods.iter().any(|pod| pod["spec"]["nodeName"] == **first && pod["metadata"]["labels"]["app"] == app);
    // A fleet of one or two nodes has no such app.
    of_trainings.iter().find(|app| !on_first(app)).or(of_trainings.first()).map(|app| (*app).to_owned())
}

fn budget_path(app: &str) -> String {
    format!("/apis/policy/v1/namespaces/ml/poddisruptionbudgets/{app}")
}

/// Returns the app whose budget allows nothing, for somebody to mend it.
async fn set_up(world: &World, hands: &Hands, nodes: &[String], options: &DemoOptions) -> Result<Option<String>, String> {
    let no = |no: crate::sim::people::hands::No| no.to_string();
    if options.scenario == Scenario::Csi {
        csi::set_up(world, hands, options).await?;
        for plugin in csi_scenario::PLUGINS {
            hands.create(&plugin.component()).await.map_err(no)?;
            storage::release(hands, plugin, csi_scenario::NEW).await.map_err(no)?;
        }
        tokio::time::sleep(Duration::from_secs(30)).await;
        return Ok(None);
    }
    if options.scenario == Scenario::Kmm {
        kmm::set_up(world, hands, options).await?;
        for part in kmm_scenario::parts(options.nodes) {
            hands.create(&part.component(1)).await.map_err(no)?;
        }
        modules::release(hands, options.nodes, kmm_scenario::NEW).await.map_err(no)?;
        tokio::time::sleep(Duration::from_secs(30)).await;
        return Ok(None);
    }
    hands.create(&scenario::component()).await.map_err(no)?;
    if !operator::all_ready(hands, nodes, scenario::OLD, Duration::from_secs(3600)).await {
        return Err(format!("version {} did not get ready on every node", scenario::OLD));
    }
    operator::apply(hands, &scenario::workloads(nodes.len(), options.pods_per_node)).await.map_err(no)?;
    operator::settled(hands, Duration::from_secs(300)).await;
    // One budget allows nothing until a colleague mends it.
    let blocked = blocked(hands, nodes).await;
    if let Some(app) = &blocked {
        hands.merge(&budget_path(app), &json!({"spec": {"maxUnavailable": 0, "minAvailable": null}})).await.map_err(no)?;
    }
    if let Some(node) = stray_node(nodes) {
        hands.create(&stray(node)).await.map_err(no)?;
    }
    // The stray pod's node shall fail before the audience leaves.
    let component = format!("/apis/lockkeeper.dev/v1alpha1/namespaces/{}/nodecomponents/{}", scenario::NAMESPACE, scenario::NAME);
    hands.merge(&component, &json!({"spec": {"deadlines": {"Unloading": "45s"}}})).await.map_err(no)?;
    operator::release(hands).await.map_err(no)?;
    tokio::time::sleep(Duration::from_secs(30)).await;
    Ok(blocked)
}

/// The third node, so that the first ones go well.
fn stray_node(nodes: &[String]) -> Option<&String> {
    nodes.get(2)
}

fn stray(node: &str) -> objects::Object {
    let mut pod = objects::template(STRAY, None, 5);
    pod["metadata"]["name"] = json!(STRAY);
    pod["metadata"]["annotations"] =
        json!({"sim.lockkeeper.dev/behaviour": "claimant", "sim.lockkeeper.dev/module": scenario::MODULE});
    pod["spec"]["nodeName"] = json!(node);
    objects::pod("default", pod)
}

/// Things that happen while nobody does anything: pods come and go, the budget is mended once it blocks, the stray pod ends once it was in the way.
async fn live(world: Arc<World>, hands: Hands, nodes: Vec<String>, blocked: Option<String>, seed: u64) {
    let (mut mended, mut cleared) = (false, false);
    for beat in 0u64.. {
        tokio::time::sleep(Duration::from_secs(10)).await;
        let handoffs = world.api.list("nodehandoffs.lockkeeper.dev");
        let waits = |kind: &str, seconds: i64| {
            handoffs.iter().any(|handoff| {
                let blockers = handoff.pointer("/status/blockers").and_then(|it| it.as_array());
                blockers.into_iter().flatten().any(|blocker| {
                    let since = blocker["since"].as_str().and_then(|text| text.parse::<jiff::Timestamp>().ok());
                    let lasts = since.is_some_and(|since| world.api.now().duration_since(since).as_secs() >= seconds);
                    blocker["kind"].as_str().is_some_and(|known| known.starts_with(kind)) && lasts
                })
            })
        };

        if let Some(app) = blocked.as_ref().filter(|_| !mended && waits("DisruptionBudget", 30)) {
            mended = hands.merge(&budget_path(app), &json!({"spec": {"maxUnavailable": 1}})).await.is_ok();
        }
        let failed = handoffs.iter().any(|handoff| {
            let node = handoff.pointer("/spec/node").and_then(|it| it.as_str());
            let phase = handoff.pointer("/status/phase").and_then(|it| it.as_str());
            phase == Some("Failed") && node.is_some() && node == stray_node(&nodes).map(String::as_str)
        });
        if !cleared && failed {
            cleared = hands.delete(&format!("/api/v1/namespaces/default/pods/{STRAY}")).await.is_ok();
        }
        // A deployment grows and shrinks by one.
        if beat % 4 == 1 {
            let path = "/apis/apps/v1/namespaces/web/deployments/web-1";
            if let Ok(deployment) = hands.get(path).await {
                let replicas = deployment.pointer("/spec/replicas").and_then(serde_json::Value::as_i64).unwrap_or(1);
                let up = seed.wrapping_add(beat / 4).is_multiple_of(2);
                let _ = hands.merge(path, &json!({"spec": {"replicas": (replicas + if up { 1 } else { -1 }).max(1)}})).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::{demo::options, world::Profile};

    #[test]
    fn every_profile_and_the_smallest_fleets_open() {
        for (faults, nodes) in
            [(Profile::Flaky, 3), (Profile::Hostile, 3), (Profile::None, 1), (Profile::None, 2), (Profile::None, 12)]
        {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
            let options = options(1, faults, nodes);
            let opened = runtime.block_on(async {
                let world = World::start(&world_options(&options), &scenario::cluster(nodes));
                let engine =
                    Engine::start(world.cluster(ENGINE, false), EngineOptions { mode: Mode::Engine, ..EngineOptions::default() });
                let opened = set_up(&world, &world.hands("colleague"), &scenario::node_names(nodes), &options).await;
                engine.stop().await;
                // What stands selected first can be handed over.
                let on_first = |pod: &Arc<Value>| pod["spec"]["nodeName"] == *scenario::node_names(nodes)[0];
                let apps =
                    world.api.list("pods").into_iter().filter(on_first).map(|pod| pod["metadata"]["labels"]["app"].clone());
                opened.map(|blocked| blocked.map(|app| apps.into_iter().any(|on_first| on_first == *app)))
            });
            let blocked = opened.unwrap_or_else(|why| panic!("{faults:?}, {nodes} nodes: {why}"));
            assert_eq!(blocked.is_some(), nodes > 2, "{faults:?}, {nodes} nodes");
            // In a small fleet every app is everywhere.
            assert!(nodes < 12 || blocked == Some(false), "{faults:?}, {nodes} nodes: the first one waits for the budget");
        }
    }
}
