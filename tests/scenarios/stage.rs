//! A small simulated cluster with an engine: what every story starts with. Stories read as given, when, then.

use std::{future::Future, sync::Arc, time::Duration};

use lockkeeper::{
    api::ComponentKey,
    engine::{
        Engine, EngineOptions,
        picture::{Mode, Picture},
    },
    handoff::{
        action::Subject,
        verdict::{Blocker, BlockerKind, Verdict},
    },
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
        self.engine_with(name, mode, EngineOptions::default())
    }

    pub fn engine_with(&self, name: &str, mode: Mode, options: EngineOptions) -> Engine {
        self.lives.set(self.lives.get() + 1);
        let cluster = self.world.cluster(name, mode == Mode::ReadOnly);
        Engine::start(cluster, EngineOptions { mode, identity: format!("{name}#{}", self.lives.get()), ..options })
    }

    /// The component at its old version on every node, by an engine that then leaves.
    pub async fn installed(self) -> Self {
        self.installed_as(&scenario::component()).await
    }

    /// As [`Stage::installed`], with a component of one's own.
    pub async fn installed_as(self, component: &Object) -> Self {
        let engine = self.engine();
        self.hands.create(component).await.unwrap();
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
        self.handoff_of(NAME, node)
    }

    pub fn handoff_of(&self, component: &str, node: &str) -> Value {
        let name = format!("{component}.{node}");
        self.world.api.get("nodehandoffs.lockkeeper.dev", NAMESPACE, &name).map(|object| (*object).clone()).unwrap_or_default()
    }

    pub fn phase(&self, node: &str) -> String {
        self.handoff(node).pointer("/status/phase").and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    /// Kind and message of each recorded blocker.
    pub fn blockers(&self, node: &str) -> Vec<(String, String)> {
        blockers_of(&self.handoff(node)).into_iter().map(|[kind, _, message]| (kind, message)).collect()
    }

    /// A recorded blocker of this kind about this object says all of these words.
    pub fn named(&self, node: &str, kind: &str, object: &str, words: &[&str]) -> bool {
        blockers_of(&self.handoff(node))
            .iter()
            .any(|[known, on, message]| known == kind && on.contains(object) && words.iter().all(|word| message.contains(word)))
    }

    /// Waits until it is.
    pub async fn names(&self, node: &str, kind: &str, object: &str, words: &[&str]) {
        self.until(&format!("{kind} on {object} with {words:?}"), || self.named(node, kind, object, words)).await;
    }

    /// `status.reason`: its word and its sentence.
    pub fn reason(&self, node: &str) -> (String, String) {
        let handoff = self.handoff(node);
        let text = |pointer| handoff.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        (text("/status/reason/word"), text("/status/reason/message"))
    }

    /// The phases of the last run, in order.
    pub fn steps(&self, node: &str) -> Vec<String> {
        let steps = self.handoff(node).pointer("/status/steps").and_then(Value::as_array).cloned().unwrap_or_default();
        steps.iter().map(|step| step["phase"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// The fact that ended a phase of the last run.
    pub fn proof(&self, node: &str, phase: &str) -> String {
        let proofs = self.handoff(node).pointer("/status/proofs").and_then(Value::as_array).cloned().unwrap_or_default();
        let proof = proofs.iter().rfind(|proof| proof["phase"] == phase);
        proof.and_then(|proof| proof["fact"].as_str()).unwrap_or_default().to_owned()
    }

    /// Waits until the engine's picture names a blocker of this kind for a component on a node, with these words in its message; in the
    /// handoff's status it stands once it has lasted ([`Self::names`]).
    pub async fn waits(&self, engine: &Engine, component: &str, node: &str, kind: BlockerKind, words: &[&str]) -> Blocker {
        let subject = Subject::Occupancy { component: ComponentKey::new(NAMESPACE, component), node: node.into() };
        let find = |picture: &Picture| match picture.verdicts.get(&subject) {
            Some(Verdict::Wait(wait)) => {
                wait.blockers.iter().find(|it| it.kind == kind && words.iter().all(|word| it.message.contains(word))).cloned()
            }
            _ => None,
        };
        match tokio::time::timeout(Duration::from_secs(3600), engine.until(|picture| find(picture).is_some())).await {
            Ok(picture) => picture.as_ref().and_then(find).expect("the engine runs"),
            Err(_) => panic!("no {kind:?} with {words:?} for {node}: {:?}", engine.pictures().borrow().verdicts.get(&subject)),
        }
    }

    /// Changes the spec of a handoff; `again` raises its attempt.
    pub async fn edit(&self, node: &str, mut spec: Value, again: bool) {
        if again {
            let attempt = self.handoff(node).pointer("/spec/attempt").and_then(Value::as_i64).unwrap_or(0);
            spec["attempt"] = json!(attempt + 1);
        }
        self.hands.merge(&handoff_path(node), &json!({ "spec": spec })).await.unwrap();
    }

    /// Whether it runs this version of the module in its kernel.
    pub fn loaded(&self, node: &str) -> Option<String> {
        self.world.kubelets.kernel(node)?.modules.get(scenario::MODULE).cloned()
    }

    /// A condition of the component: its status, and reason with message.
    pub fn condition(&self, kind: &str) -> (String, String) {
        let component = self.world.api.get("nodecomponents.lockkeeper.dev", NAMESPACE, NAME);
        let conditions = component.and_then(|it| it.pointer("/status/conditions")?.as_array().cloned()).unwrap_or_default();
        let one = conditions.iter().find(|one| one["type"] == kind).cloned().unwrap_or_default();
        let text = |key: &str| one[key].as_str().unwrap_or_default();
        (text("status").to_owned(), format!("{}: {}", text("reason"), text("message")))
    }

    /// Deletes the Node object for good; the machine knows nothing of it.
    pub async fn lose(&self, node: &str) {
        self.hands.delete(&format!("/api/v1/nodes/{node}")).await.unwrap();
        self.until("the Node is gone", || self.node(node).is_null()).await;
    }

    /// The kubelet makes its Node object again, on the same boot and without anything that was written to it.
    pub async fn register(&self, node: &str) {
        self.world.kubelets.register(node);
        self.until("the Node is back", || self.node(node)["metadata"]["uid"].is_string()).await;
        self.hands.label_node(node, "pool", Some("gpu")).await.unwrap();
    }

    /// Lets simulated time pass.
    pub async fn pass(&self, seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    pub fn node(&self, name: &str) -> Value {
        self.world.api.get("nodes", "", name).map(|object| (*object).clone()).unwrap_or_default()
    }

    /// A label of ours on a node: `version`, `loader`, `plugin`, `ready`.
    pub fn label(&self, node: &str, word: &str) -> Option<String> {
        self.label_of(NAME, node, word)
    }

    pub fn label_of(&self, component: &str, node: &str, word: &str) -> Option<String> {
        let key = format!("lockkeeper.dev/{word}.{NAMESPACE}.{component}");
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

    /// Waits until this holds; panics with `what` and the state of handoffs after a simulated hour.
    pub async fn until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        self.within(Duration::from_secs(3600), what, &mut holds).await;
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

/// Kind, object and message of each recorded blocker of a handoff.
pub fn blockers_of(handoff: &Value) -> Vec<[String; 3]> {
    let blockers = handoff.pointer("/status/blockers").and_then(Value::as_array).cloned().unwrap_or_default();
    blockers.iter().map(|it| ["kind", "object", "message"].map(|key| it[key].as_str().unwrap_or_default().to_owned())).collect()
}

pub fn component_path() -> String {
    format!("/apis/lockkeeper.dev/v1alpha1/namespaces/{NAMESPACE}/nodecomponents/{NAME}")
}

pub fn handoff_path(node: &str) -> String {
    format!("/apis/lockkeeper.dev/v1alpha1/namespaces/{NAMESPACE}/nodehandoffs/{NAME}.{node}")
}
