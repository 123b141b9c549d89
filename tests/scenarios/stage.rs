//! A small simulated cluster with an engine: what every story starts with. Stories read as given, when, then.

use std::{future::Future, sync::Arc, time::Duration};

use lockkeeper::{
    engine::{Engine, EngineOptions, picture::Mode},
    sim::{
        actors::KubeletOptions,
        monitor::Report,
        people::{hands::Hands, operator},
        scenarios::{
            kernel_module::{self as scenario, NAME, NAMESPACE},
            objects::Object,
        },
        world::{ENGINE, World, WorldOptions},
    },
};
use serde_json::{Value, json};

pub struct Stage {
    pub world: Arc<World>,
    /// The operator.
    pub hands: Hands,
    pub nodes: Vec<String>,
    lives: std::cell::Cell<u32>,
}

/// Runs a story on a clock that moves only when everybody waits.
pub fn play<F: Future<Output = ()>>(story: impl FnOnce() -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(story());
}

impl Stage {
    /// Nodes, no engine yet. Machines are quick, so that stories are.
    pub fn new(seed: u64, nodes: usize) -> Self {
        Self::with(WorldOptions { kubelets: KubeletOptions::quick(), ..WorldOptions::new(seed) }, nodes)
    }

    pub fn with(options: WorldOptions, nodes: usize) -> Self {
        let world = Arc::new(World::start(&options, &scenario::cluster(nodes)));
        let hands = world.hands("operator");
        Self { world, hands, nodes: scenario::node_names(nodes), lives: std::cell::Cell::new(0) }
    }

    /// Another life of the engine.
    pub fn engine(&self) -> Engine {
        self.engine_as(ENGINE, Mode::Engine)
    }

    pub fn engine_as(&self, name: &str, mode: Mode) -> Engine {
        self.lives.set(self.lives.get() + 1);
        let cluster = self.world.cluster(name, mode == Mode::ReadOnly);
        Engine::start(
            cluster,
            EngineOptions { mode, identity: format!("{name}#{}", self.lives.get()), ..EngineOptions::default() },
        )
    }

    /// The component at its old version on every node, by an engine that then leaves.
    pub async fn installed(self) -> Self {
        let engine = self.engine();
        self.hands.create(&scenario::component()).await.unwrap();
        assert!(operator::all_ready(&self.hands, &self.nodes, scenario::OLD, Duration::from_secs(600)).await, "not installed");
        self.until("installs are done", || self.nodes.iter().all(|node| self.phase(node) == "Done")).await;
        engine.stop().await;
        self
    }

    pub async fn apply(&self, objects: &[Object]) {
        operator::apply(&self.hands, objects).await.unwrap();
    }

    /// `spec.version: 2.0`, with its content.
    pub async fn release(&self) {
        operator::release(&self.hands).await.unwrap();
    }

    /// Changes the component's spec.
    pub async fn spec(&self, spec: Value) {
        self.hands.merge(&component_path(), &json!({ "spec": spec })).await.unwrap();
    }

    /// Asks for version 2.0 on these nodes, in this order.
    pub async fn ask(&self, nodes: &[String]) {
        operator::ask_for(&self.hands, nodes).await.unwrap();
    }

    pub fn handoff(&self, node: &str) -> Value {
        let name = format!("{NAME}.{node}");
        self.world.api.get("nodehandoffs.lockkeeper.dev", NAMESPACE, &name).map(|object| (*object).clone()).unwrap_or_default()
    }

    pub fn phase(&self, node: &str) -> String {
        self.handoff(node).pointer("/status/phase").and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    pub fn blockers(&self, node: &str) -> Vec<(String, String)> {
        let handoff = self.handoff(node);
        let blockers = handoff.pointer("/status/blockers").and_then(Value::as_array).cloned().unwrap_or_default();
        let text = |blocker: &Value, key: &str| blocker[key].as_str().unwrap_or_default().to_owned();
        blockers.iter().map(|blocker| (text(blocker, "kind"), text(blocker, "message"))).collect()
    }

    pub fn node(&self, name: &str) -> Value {
        self.world.api.get("nodes", "", name).map(|object| (*object).clone()).unwrap_or_default()
    }

    /// A label of ours on a node: `version`, `loader`, `plugin`, `ready`.
    pub fn label(&self, node: &str, word: &str) -> Option<String> {
        let key = format!("lockkeeper.dev/{word}.{NAMESPACE}.{NAME}");
        self.node(node).pointer("/metadata/labels")?.get(&key)?.as_str().map(str::to_owned)
    }

    pub fn is_open(&self, node: &str) -> bool {
        self.node(node).pointer("/spec/unschedulable").and_then(Value::as_bool) != Some(true)
    }

    /// All four labels say this version, and the node is open.
    pub fn runs(&self, node: &str, version: &str) -> bool {
        ["version", "loader", "plugin", "ready"].iter().all(|word| self.label(node, word).as_deref() == Some(version))
            && self.is_open(node)
    }

    /// The handoff to this version has ended well.
    pub fn is_done(&self, node: &str, version: &str) -> bool {
        self.phase(node) == "Done" && self.label(node, "ready").as_deref() == Some(version)
    }

    /// Waits until this holds; panics with `what` and the state of handoffs after half a simulated day.
    pub async fn until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        self.within(Duration::from_secs(12 * 3600), what, &mut holds).await;
    }

    pub async fn within(&self, limit: Duration, what: &str, holds: &mut impl FnMut() -> bool) {
        let deadline = tokio::time::Instant::now() + limit;
        while !holds() {
            if tokio::time::Instant::now() >= deadline {
                let states: Vec<String> = self.nodes.iter().map(|node| self.describe(node)).collect();
                panic!("never: {what}\n{}\n{:#?}", states.join("\n"), self.world.report().violations);
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    fn describe(&self, node: &str) -> String {
        let labels =
            ["version", "loader", "plugin", "ready"].map(|word| format!("{word}={}", self.label(node, word).unwrap_or_default()));
        let open = if self.is_open(node) { "open" } else { "closed" };
        let (spec, reason) = (self.handoff(node)["spec"].to_string(), self.handoff(node)["status"]["reason"].to_string());
        format!("{node}: {} {reason} {:?} {} {open} {spec}", self.phase(node), self.blockers(node), labels.join(" "))
    }

    /// No invariant broken, no workload disrupted, nothing of ours left over.
    pub fn clean(&self) -> Report {
        let report = self.world.report_at_rest();
        assert!(report.violations.is_empty(), "{:#?}", report.violations);
        assert_eq!(report.disruptions, 0);
        report
    }
}

pub fn component_path() -> String {
    format!("/apis/lockkeeper.dev/v1alpha1/namespaces/{NAMESPACE}/nodecomponents/{NAME}")
}

pub fn handoff_path(node: &str) -> String {
    format!("/apis/lockkeeper.dev/v1alpha1/namespaces/{NAMESPACE}/nodehandoffs/{NAME}.{node}")
}
