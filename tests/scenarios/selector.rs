//! Claimants that no missing device keeps away: they are chosen by a pod selector, so the node must be closed and nobody on the way.

use lockkeeper::api::keys::Role;
use lockkeeper::sim::{
    actors::{KubeletOptions, Range},
    scenarios::{
        kernel_module::{self as scenario, NAME, NAMESPACE},
        objects,
    },
    world::WorldOptions,
};
use serde_json::{Value, json};

use crate::{
    pods::{node_of, pinned, pods_of, running},
    stage::{Stage, play},
    trace::Trace,
};

fn module(version: &str) -> Value {
    let mut module = scenario::kernel_module(version);
    module["devices"] = json!({"podSelector": {"matchLabels": {"uses": "gpu"}}, "podNamespaces": ["ml"]});
    module
}

/// A pod that opens the device without asking anybody for it.
fn user(app: &str) -> Value {
    let mut template = objects::template(app, None, 2);
    template["metadata"]["labels"]["uses"] = json!("gpu");
    template["metadata"]["annotations"] =
        json!({"sim.lockkeeper.dev/behaviour": "claimant", "sim.lockkeeper.dev/module": scenario::MODULE});
    template["spec"]["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "pool", "operator": "In", "values": ["gpu"]}]}],
    }}});
    template
}

async fn installed(stage: Stage, drain: Value) -> Stage {
    let mut spec = scenario::component_spec("1.0");
    spec["kernelModule"] = module("1.0");
    spec["drain"] = drain;
    stage.installed_as(&objects::component(NAMESPACE, NAME, spec)).await
}

async fn release(stage: &Stage) {
    stage.spec(json!({"version": "2.0", "kernelModule": module("2.0")})).await;
}

#[test]
fn selected_pods_of_the_named_namespaces_leave_and_the_node_is_closed_even_when_empty() {
    play(|| async {
        let stage = installed(Stage::new(81, 2), json!({})).await;
        let node = stage.nodes[0].clone();
        // The same label in another namespace, and another label in the same one.
        let mut other = objects::template("other", None, 2);
        other["metadata"]["labels"]["uses"] = json!("nothing");
        stage
            .apply(&[
                objects::deployment("ml", "user", 1, pinned(user("user"), &node)),
                objects::deployment("ml", "other", 1, pinned(other, &node)),
                objects::deployment("web", "elsewhere", 1, {
                    let mut template = pinned(user("elsewhere"), &node);
                    template["metadata"]["annotations"] = json!({});
                    template
                }),
            ])
            .await;
        stage.until("all run", || ["user", "other", "elsewhere"].iter().all(|app| running(&stage, app) == 1)).await;
        let (engine, trace) = (stage.engine(), Trace::of(&stage));
        release(&stage).await;
        stage.ask(&stage.nodes).await;
        stage.until("both are handed over", || stage.nodes.iter().all(|node| stage.is_done(node, "2.0"))).await;
        assert_eq!(trace.all("evict "), ["evict ml/user"]);
        trace.in_order(&[
            "cordon gpu-01",
            "evict ml/user",
            "plugin gpu.gpu-01 1.0 -",
            "loader gpu.gpu-01 1.0 -",
            "unload gpu-01",
            "uncordon gpu-01",
        ]);
        // Nobody was on the second: it is closed all the same, since nothing else keeps a selected pod out.
        trace.in_order(&["cordon gpu-02", "loader gpu.gpu-02 1.0 -", "unload gpu-02", "uncordon gpu-02"]);
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn without_a_cordon_the_module_stays_and_the_wait_says_so() {
    play(|| async {
        let stage = installed(Stage::new(82, 1), json!({"cordon": "Never"})).await;
        let node = stage.nodes[0].clone();
        let (engine, trace) = (stage.engine(), Trace::of(&stage));
        release(&stage).await;
        stage.ask(std::slice::from_ref(&node)).await;
        stage.names(&node, "Cordon", &node, &["selector", "cordon the node"]).await;
        assert_eq!((stage.phase(&node).as_str(), stage.loaded(&node).as_deref()), ("Unloading", Some("1.0")));
        stage.pass(120).await;
        assert_eq!(stage.label(&node, "loader").as_deref(), Some("1.0"), "rule 4 acted on an open node");
        stage.world.hands("admin").cordon(&node, true).await.unwrap();
        stage.until("it goes on", || stage.is_done(&node, "2.0")).await;
        assert!(!stage.is_open(&node), "the administrator's cordon is theirs");
        assert!(trace.all("cordon ").is_empty() && trace.all("uncordon ").is_empty());
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn a_cordon_lifted_before_the_unload_pod_stops_it_by_name() {
    play(|| async {
        // The loader takes its time to stop: between rules 4 and 6 the door is opened again.
        let mut options = WorldOptions { kubelets: KubeletOptions::quick(), ..WorldOptions::new(83) };
        options.kubelets.stop = Range::millis(4000, 4001);
        let stage = installed(Stage::with(options, 1), json!({"cordon": "Never"})).await;
        let (node, admin) = (stage.nodes[0].clone(), stage.world.hands("admin"));
        admin.cordon(&node, true).await.unwrap();
        let (engine, trace) = (stage.engine(), Trace::of(&stage));
        release(&stage).await;
        stage.ask(std::slice::from_ref(&node)).await;
        stage
            .until("the loader label is off", || stage.phase(&node) == "Unloading" && stage.label(&node, "loader").is_none())
            .await;
        admin.cordon(&node, false).await.unwrap();
        stage.names(&node, "Cordon", &node, &["cordon the node"]).await;
        assert_eq!(
            (trace.all("unload ").len(), stage.loaded(&node).as_deref()),
            (0, Some("1.0")),
            "rule 6 acted on an open node"
        );
        admin.cordon(&node, true).await.unwrap();
        stage.until("it goes on", || stage.is_done(&node, "2.0")).await;
        trace.in_order(&["loader gpu.gpu-01 1.0 -", "unload gpu-01", "loader gpu.gpu-01 - 2.0"]);
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn a_pod_on_its_way_is_waited_for_and_evicted_when_it_has_come() {
    play(|| async {
        let mut options = WorldOptions { kubelets: KubeletOptions::quick(), ..WorldOptions::new(84) };
        // Every binding takes minutes after the scheduler has decided.
        options.controllers.scheduler.late_permille = 1000;
        options.controllers.scheduler.late = Range::millis(200_000, 200_001);
        let stage = installed(Stage::with(options, 2), json!({})).await;
        let node = stage.nodes[0].clone();
        let engine = stage.engine();
        release(&stage).await;
        stage.apply(&[objects::deployment("ml", "late", 1, pinned(user("late"), &node))]).await;
        stage
            .until("the scheduler has picked the node", || {
                pods_of(&stage, "late").iter().any(|pod| pod["status"]["nominatedNodeName"] == node.as_str())
            })
            .await;
        let trace = Trace::of(&stage);
        stage.ask(std::slice::from_ref(&node)).await;
        stage.names(&node, "PodBinding", "Pod ml/late", &["nominated this node"]).await;
        assert!(!stage.is_open(&node) && pods_of(&stage, "late").iter().all(|pod| node_of(pod).is_empty()));
        assert_eq!(stage.label(&node, "plugin").as_deref(), Some("1.0"), "the plugin went while a pod was on its way");
        stage.until("it is handed over", || stage.is_done(&node, "2.0")).await;
        trace.in_order(&["cordon gpu-01", "evict ml/late", "plugin gpu.gpu-01 1.0 -", "loader gpu.gpu-01 1.0 -"]);
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn a_label_alone_closes_nothing_and_names_each_pod_and_the_cordon_that_is_missing() {
    play(|| async {
        let stage = installed(Stage::new(85, 1), json!({})).await;
        let node = stage.nodes[0].clone();
        stage.apply(&[objects::deployment("ml", "user", 1, pinned(user("user"), &node))]).await;
        stage.until("it runs", || running(&stage, "user") == 1).await;
        let (engine, trace) = (stage.engine(), Trace::of(&stage));
        release(&stage).await;
        stage.hands.label_node(&node, &Role::Desired.key(&scenario::key()), Some("2.0")).await.unwrap();
        stage.names(&node, "Claimant", "ml/user", &["podSelector", "evict it yourself", "kubectl cordon gpu-01"]).await;
        stage.pass(120).await;
        assert!(stage.is_open(&node) && trace.all("evict ").is_empty());
        stage.hands.merge("/apis/apps/v1/namespaces/ml/deployments/user", &json!({"spec": {"replicas": 0}})).await.unwrap();
        stage.names(&node, "Cordon", &node, &["selector", "cordon the node"]).await;
        assert_eq!(stage.loaded(&node).as_deref(), Some("1.0"));
        let admin = stage.world.hands("admin");
        admin.cordon(&node, true).await.unwrap();
        stage.until("it goes on", || stage.is_done(&node, "2.0")).await;
        assert!(trace.all("cordon ").is_empty() && trace.all("uncordon ").is_empty() && !stage.is_open(&node));
        stage.clean();
        engine.stop().await;
    });
}
