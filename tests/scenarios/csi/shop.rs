//! A small cluster with two nodeplugins of Ceph, workloads with every kind of volume, and an engine: what each story here starts with.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use lockkeeper::{
    engine::{Engine, EngineOptions, picture::Mode},
    sim::{
        actors::KubeletOptions,
        demo::{Baseline, DemoOptions, Scenario, csi},
        people::{hands::Hands, storage},
        scenarios::csi::{self as scenario, CEPHFS, NAMESPACE, Plugin, RBD, SHOP},
        world::{ENGINE, Profile, World, WorldOptions},
    },
};
use serde_json::{Value, json};

pub struct Shop {
    pub world: Arc<World>,
    pub hands: Hands,
    pub nodes: Vec<String>,
    pub engine: Engine,
}

pub fn text<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

impl Shop {
    /// Old nodeplugins, workloads with every kind of volume, both components, and an engine.
    pub async fn open(seed: u64, nodes: usize) -> Self {
        let options = DemoOptions {
            scenario: Scenario::Csi,
            seed,
            faults: Profile::None,
            baseline: None::<Baseline>,
            nodes,
            pods_per_node: 1,
            keep_log: false,
            tell: false,
        };
        let world_options = WorldOptions { kubelets: KubeletOptions::quick(), ..WorldOptions::new(seed) };
        let world = Arc::new(World::start(&world_options, &scenario::cluster(nodes, csi::strategy(&options))));
        let hands = world.hands("operator");
        csi::set_up(&world, &hands, &options).await.unwrap();
        for plugin in [CEPHFS, RBD] {
            hands.create(&plugin.component()).await.unwrap();
        }
        let options = EngineOptions { mode: Mode::Engine, identity: format!("{ENGINE}#1"), ..EngineOptions::default() };
        let engine = Engine::start(world.cluster(ENGINE, false), options);
        Self { world, hands, nodes: scenario::node_names(nodes), engine }
    }

    pub async fn release(&self, plugin: Plugin) {
        storage::release(&self.hands, plugin, scenario::NEW).await.unwrap();
    }

    pub async fn ask(&self, plugin: Plugin, node: &str) {
        let spec = json!({"component": plugin.name, "node": node, "requestedBy": "operator"});
        let body = json!({"apiVersion": "lockkeeper.dev/v1alpha1", "kind": "NodeHandoff",
            "metadata": {"name": format!("{}.{node}", plugin.name), "namespace": NAMESPACE}, "spec": spec});
        let path = format!("/apis/lockkeeper.dev/v1alpha1/namespaces/{NAMESPACE}/nodehandoffs");
        self.hands.send(http::Method::POST, &path, "application/json", Some(&body)).await.unwrap();
    }

    pub fn handoff(&self, plugin: Plugin, node: &str) -> Value {
        let name = format!("{}.{node}", plugin.name);
        self.world.api.get("nodehandoffs.lockkeeper.dev", NAMESPACE, &name).map(|it| (*it).clone()).unwrap_or_default()
    }

    pub fn phase(&self, plugin: Plugin, node: &str) -> String {
        text(&self.handoff(plugin, node), "/status/phase").to_owned()
    }

    /// App by UID of the pods with volumes that run on a node.
    pub fn apps(&self, node: &str) -> BTreeMap<String, String> {
        let pods = self.world.api.list("pods");
        let here = pods.iter().filter(|pod| text(pod, "/spec/nodeName") == node && text(pod, "/metadata/namespace") == SHOP);
        here.map(|pod| (text(pod, "/metadata/uid").to_owned(), text(pod, "/metadata/labels/app").to_owned())).collect()
    }

    pub fn plugin_pod(&self, plugin: Plugin, node: &str) -> Option<Arc<Value>> {
        let pods = self.world.api.list("pods");
        let own =
            |pod: &&Arc<Value>| text(pod, "/spec/nodeName") == node && text(pod, "/metadata/labels/app") == plugin.daemon_set;
        pods.iter().find(own).cloned()
    }

    pub fn is_open(&self, node: &str) -> bool {
        let node = self.world.api.get("nodes", "", node).unwrap();
        node.pointer("/spec/unschedulable").and_then(Value::as_bool) != Some(true)
    }

    pub async fn until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(3600);
        while !holds() {
            if tokio::time::Instant::now() >= deadline {
                let handoffs = self.world.api.list("nodehandoffs.lockkeeper.dev");
                let told: Vec<String> =
                    handoffs.iter().map(|it| format!("{} {}", text(it, "/metadata/name"), it["status"])).collect();
                panic!("never: {what}\n{}\n{:#?}", told.join("\n"), self.world.report().violations);
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    pub fn clean(&self) {
        let report = self.world.report_at_rest();
        assert!(report.violations.is_empty(), "{:#?}", report.violations);
        assert_eq!(report.disruptions, 0);
    }
}

/// Which apps lost a pod between two looks.
pub fn left(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> Vec<String> {
    let mut apps: Vec<String> = before.iter().filter(|(uid, _)| !after.contains_key(*uid)).map(|(_, app)| app.clone()).collect();
    apps.sort();
    apps.dedup();
    apps
}
