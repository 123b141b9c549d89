//! CSI nodeplugins replaced one node at a time: exactly the pods whose mounts would die leave, and what speaks against it is said before
//! anything is written.

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

use crate::stage::play;

struct Shop {
    world: Arc<World>,
    hands: Hands,
    nodes: Vec<String>,
    engine: Engine,
}

fn text<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

impl Shop {
    /// Old nodeplugins, workloads with every kind of volume, both components, and an engine.
    async fn open(seed: u64, nodes: usize) -> Self {
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

    async fn release(&self, plugin: Plugin) {
        storage::release(&self.hands, plugin, scenario::NEW).await.unwrap();
    }

    async fn ask(&self, plugin: Plugin, node: &str) {
        let spec = json!({"component": plugin.name, "node": node, "requestedBy": "operator"});
        let body = json!({"apiVersion": "lockkeeper.dev/v1alpha1", "kind": "NodeHandoff",
            "metadata": {"name": format!("{}.{node}", plugin.name), "namespace": NAMESPACE}, "spec": spec});
        let path = format!("/apis/lockkeeper.dev/v1alpha1/namespaces/{NAMESPACE}/nodehandoffs");
        self.hands.send(http::Method::POST, &path, "application/json", Some(&body)).await.unwrap();
    }

    fn handoff(&self, plugin: Plugin, node: &str) -> Value {
        let name = format!("{}.{node}", plugin.name);
        self.world.api.get("nodehandoffs.lockkeeper.dev", NAMESPACE, &name).map(|it| (*it).clone()).unwrap_or_default()
    }

    fn phase(&self, plugin: Plugin, node: &str) -> String {
        text(&self.handoff(plugin, node), "/status/phase").to_owned()
    }

    /// App by UID of the pods with volumes that run on a node.
    fn apps(&self, node: &str) -> BTreeMap<String, String> {
        let pods = self.world.api.list("pods");
        let here = pods.iter().filter(|pod| text(pod, "/spec/nodeName") == node && text(pod, "/metadata/namespace") == SHOP);
        here.map(|pod| (text(pod, "/metadata/uid").to_owned(), text(pod, "/metadata/labels/app").to_owned())).collect()
    }

    fn plugin_pod(&self, plugin: Plugin, node: &str) -> Option<Arc<Value>> {
        let pods = self.world.api.list("pods");
        let own =
            |pod: &&Arc<Value>| text(pod, "/spec/nodeName") == node && text(pod, "/metadata/labels/app") == plugin.daemon_set;
        pods.iter().find(own).cloned()
    }

    fn is_open(&self, node: &str) -> bool {
        let node = self.world.api.get("nodes", "", node).unwrap();
        node.pointer("/spec/unschedulable").and_then(Value::as_bool) != Some(true)
    }

    async fn until(&self, what: &str, mut holds: impl FnMut() -> bool) {
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

    fn clean(&self) {
        let report = self.world.report_at_rest();
        assert!(report.violations.is_empty(), "{:#?}", report.violations);
        assert_eq!(report.disruptions, 0);
    }
}

/// Which apps lost a pod between two looks.
fn left(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> Vec<String> {
    let mut apps: Vec<String> = before.iter().filter(|(uid, _)| !after.contains_key(*uid)).map(|(_, app)| app.clone()).collect();
    apps.sort();
    apps.dedup();
    apps
}

#[test]
fn g26_exactly_the_pods_whose_mounts_die_leave_and_daemon_sets_are_restarted() {
    play(|| async {
        let shop = Shop::open(1, 3).await;
        for (plugin, leave) in [(CEPHFS, vec!["fuse-a", "fuse-b", "inline", "logs"]), (RBD, vec!["nbd"])] {
            // A node with one of those that leave by eviction.
            let has = |node: &&String| shop.apps(node).values().any(|app| *app == leave[0]);
            let node = shop.nodes.iter().find(has).expect("somewhere").clone();
            let before = shop.apps(&node);
            let here: Vec<&str> = leave.into_iter().filter(|app| before.values().any(|known| known == app)).collect();
            let old = shop.plugin_pod(plugin, &node).unwrap();
            shop.release(plugin).await;
            shop.ask(plugin, &node).await;
            shop.until("it is done", || shop.phase(plugin, &node) == "Done").await;
            assert_eq!(left(&before, &shop.apps(&node)), here, "{}", plugin.name);
            let new = shop.plugin_pod(plugin, &node).unwrap();
            assert_ne!(text(&old, "/metadata/uid"), text(&new, "/metadata/uid"));
            assert!(text(&new, "/spec/containers/0/image").ends_with(scenario::NEW));
            assert!(shop.is_open(&node));
            // Nobody touched the other nodes.
            for other in shop.nodes.iter().filter(|other| **other != node) {
                assert!(text(&shop.plugin_pod(plugin, other).unwrap(), "/spec/containers/0/image").ends_with(scenario::OLD));
            }
        }
        shop.clean();
    });
}

#[test]
fn a_taint_that_keeps_the_next_pod_away_is_refused_before_anything_is_written() {
    play(|| async {
        let shop = Shop::open(2, 2).await;
        let node = shop.nodes[0].clone();
        // The template tolerates nothing any more, and the node has a taint.
        let bare = json!({"spec": {"template": {"spec": {"tolerations": null}}}});
        shop.hands.merge(&CEPHFS.set_path(), &bare).await.unwrap();
        let taint = json!({"spec": {"taints": [{"key": "storage", "value": "no", "effect": "NoSchedule"}]}});
        shop.hands.merge(&format!("/api/v1/nodes/{node}"), &taint).await.unwrap();
        let (before, old) = (shop.apps(&node), shop.plugin_pod(CEPHFS, &node).unwrap());
        shop.ask(CEPHFS, &node).await;
        let said = || shop.handoff(CEPHFS, &node)["status"].to_string().contains("taint storage=no:NoSchedule is not tolerated");
        shop.until("the taint is named", said).await;
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert_eq!(left(&before, &shop.apps(&node)), Vec::<String>::new());
        assert_eq!(text(&old, "/metadata/uid"), text(&shop.plugin_pod(CEPHFS, &node).unwrap(), "/metadata/uid"));
        assert!(shop.is_open(&node));
        shop.clean();
    });
}

#[test]
fn a_rolling_update_strategy_is_refused_with_the_command_that_changes_it() {
    play(|| async {
        let shop = Shop::open(3, 2).await;
        let rolling = json!({"spec": {"updateStrategy": {"type": "RollingUpdate"}}});
        shop.hands.merge(&RBD.set_path(), &rolling).await.unwrap();
        shop.ask(RBD, &shop.nodes[0]).await;
        let said = || {
            let status = shop.handoff(RBD, &shop.nodes[0])["status"].to_string();
            let component = shop.world.api.get("nodecomponents.lockkeeper.dev", NAMESPACE, RBD.name).unwrap();
            [status, component["status"].to_string()].iter().any(|text| text.contains("patch daemonset csi-rbdplugin"))
        };
        shop.until("the fix is named", said).await;
        assert!(shop.nodes.iter().all(|node| shop.is_open(node)));
        shop.clean();
    });
}

#[test]
fn a_silent_upgrade_is_unplanned_and_a_handoff_finishes_it() {
    play(|| async {
        let shop = Shop::open(4, 3).await;
        let node = shop.nodes[0].clone();
        shop.release(CEPHFS).await;
        let old = shop.plugin_pod(CEPHFS, &node).unwrap();
        let name = format!("{NAMESPACE}/{}", text(&old, "/metadata/name"));
        // The kubelet evicts the plugin pod: its successor is of the new revision, and mounts died under running pods.
        shop.world.kubelets.pressure_evict(&node, &name);
        let subject = lockkeeper::handoff::action::Subject::Occupancy { component: CEPHFS.key(), node: node.as_str().into() };
        let unplanned = shop.engine.until(|picture| format!("{:?}", picture.verdicts.get(&subject)).contains("UnplannedUpgrade"));
        tokio::time::timeout(Duration::from_secs(600), unplanned).await.expect("it is shown as unplanned");
        let disrupted = shop.world.report().disruptions;
        assert!(disrupted > 0, "that is what OnDelete does not protect from");
        let before = shop.apps(&node);
        shop.ask(CEPHFS, &node).await;
        shop.until("it is done", || shop.phase(CEPHFS, &node) == "Done").await;
        assert!(left(&before, &shop.apps(&node)).contains(&"fuse-a".to_owned()), "{before:?}");
        assert!(shop.is_open(&node));
        let report = shop.world.report_at_rest();
        assert!(report.violations.is_empty(), "{:#?}", report.violations);
        assert_eq!(report.disruptions, disrupted, "nothing more was lost");
    });
}
