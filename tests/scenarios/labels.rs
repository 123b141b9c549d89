//! The label-driven handoff: by hand, interrupted by reboots, with other people's labels. Numbers are those of the scenario list.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use lockkeeper::{
    api::keys::Role,
    sim::{
        actors::KubeletOptions,
        scenarios::{
            kernel_module::{self as scenario, NAME, NAMESPACE},
            objects,
        },
        world::WorldOptions,
    },
};
use serde_json::{Value, json};

use crate::stage::{Stage, component_path, play};

fn desired() -> String {
    Role::Desired.key(&scenario::key())
}

/// What a node's labels of ours were, each time they changed.
fn history(stage: &Stage, node: &str) -> Arc<Mutex<Vec<[Option<String>; 3]>>> {
    let (seen, node) = (Arc::new(Mutex::new(Vec::new())), node.to_owned());
    let told = seen.clone();
    stage.world.api.log().observe(move |record| {
        if &*record.stored_as == "nodes"
            && record.name == node
            && let Some(new) = &record.new
        {
            let label = |role: Role| Some(new.pointer("/metadata/labels")?.get(role.key(&scenario::key()))?.as_str()?.to_owned());
            let now = [label(Role::Loader), label(Role::Plugin), label(Role::Ready)];
            let mut told = told.lock().unwrap();
            if told.last() != Some(&now) {
                told.push(now);
            }
        }
    });
    seen
}

/// How many plugin pods there were, Terminating ones included, each time the loader label went off a node.
fn plugins_at_loader_off(stage: &Stage) -> Arc<Mutex<Vec<usize>>> {
    let seen: Arc<Mutex<Vec<usize>>> = Arc::default();
    let is_plugin = |pod: &Value| pod["metadata"]["labels"]["lockkeeper.dev/role"] == "plugin";
    let name = |pod: &Value| pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let mut plugins: std::collections::BTreeSet<String> =
        stage.world.api.list("pods").iter().filter(|pod| is_plugin(pod)).map(|pod| name(pod)).collect();
    let told = seen.clone();
    stage.world.api.log().observe(move |record| {
        let loader = |node: &Option<Arc<Value>>| {
            Some(node.as_ref()?["metadata"]["labels"][Role::Loader.key(&scenario::key())].is_string())
        };
        match (&*record.stored_as, &record.new) {
            ("pods", Some(pod)) if is_plugin(pod) => drop(plugins.insert(name(pod))),
            ("pods", None) => drop(plugins.remove(&record.name)),
            ("nodes", _) if loader(&record.old) == Some(true) && loader(&record.new) == Some(false) => {
                told.lock().unwrap().push(plugins.len())
            }
            _ => {}
        }
    });
    seen
}

fn short(history: &[[Option<String>; 3]]) -> Vec<String> {
    history
        .iter()
        .map(|labels| labels.iter().map(|label| label.as_deref().unwrap_or("-")).collect::<Vec<_>>().join(" "))
        .collect()
}

#[test]
fn g15_labels_alone_move_in_the_one_right_order() {
    play(|| async {
        // A plugin takes nearly all of its grace to stop.
        let mut options = WorldOptions { kubelets: KubeletOptions::quick(), ..WorldOptions::new(15) };
        options.kubelets.stop = lockkeeper::sim::actors::Range::millis(9000, 9001);
        let stage = Stage::with(options, 1).installed().await;
        let (engine, node) = (stage.engine(), stage.nodes[0].clone());
        stage.release().await;
        stage.until("the new version's DaemonSets exist", || stage.world.api.list("daemonsets.apps").len() == 4).await;
        let (history, plugins) = (history(&stage, &node), plugins_at_loader_off(&stage));
        stage.hands.label_node(&node, &desired(), Some("2.0")).await.unwrap();
        stage
            .until("the plugin is terminating", || {
                stage.named(&node, "PluginPod", "gpu-system/", &["terminating"]) || stage.label(&node, "loader").is_none()
            })
            .await;
        stage.until("it runs 2.0", || stage.runs(&node, "2.0") && stage.phase(&node) == "Done").await;
        assert_eq!(*plugins.lock().unwrap(), [0], "the loader label went while a plugin pod was there");
        let moves = short(&history.lock().unwrap());
        // Loader, plugin, ready: each goes after the one above it, and comes back from the bottom.
        assert_eq!(
            moves.get(1..).unwrap_or_default(),
            ["1.0 - -", "- - -", "2.0 - -", "2.0 2.0 -", "2.0 2.0 2.0"],
            "first the plugin's and the ready label, in one or two steps: {moves:?}"
        );
        assert_eq!(stage.handoff(&node).pointer("/spec/requestedBy"), Some(&json!("label")));
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn by_hand_nobody_is_evicted_and_the_claimant_is_named() {
    play(|| async {
        let stage = Stage::new(15, 1).installed().await;
        stage.apply(&[objects::deployment("ml", "app", 1, objects::template("app", Some((scenario::RESOURCE, 1)), 2))]).await;
        let running = || {
            stage
                .world
                .api
                .list("pods")
                .iter()
                .any(|pod| pod["metadata"]["namespace"] == "ml" && pod["status"]["phase"] == "Running")
        };
        stage.until("the claimant runs", running).await;
        let (engine, node) = (stage.engine(), stage.nodes[0].clone());
        stage.release().await;
        stage.hands.label_node(&node, &desired(), Some("2.0")).await.unwrap();
        let words = [
            "uses 1 vendor.example/gpu",
            "closes no node and evicts nobody",
            "kubectl cordon gpu-01",
            "evict it yourself",
            "lockkeeper handoff",
        ];
        stage.names(&node, "Claimant", "Pod ml/app-", &words).await;
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert_eq!(stage.label(&node, "loader").as_deref(), Some("1.0"));
        assert!(stage.is_open(&node));
        stage.hands.merge("/apis/apps/v1/namespaces/ml/deployments/app", &json!({"spec": {"replicas": 0}})).await.unwrap();
        stage.until("it goes on by itself", || stage.runs(&node, "2.0")).await;
        assert_eq!(stage.clean().claimants_evicted, 0);
        engine.stop().await;
    });
}

#[test]
fn a_typo_stops_everything_and_is_named() {
    play(|| async {
        let stage = Stage::new(15, 1).installed().await;
        let (engine, node) = (stage.engine(), stage.nodes[0].clone());
        stage.hands.label_node(&node, &desired(), Some("2.O")).await.unwrap();
        tokio::time::sleep(Duration::from_secs(300)).await;
        assert_eq!([stage.label(&node, "loader"), stage.label(&node, "plugin")], [Some("1.0".into()), Some("1.0".into())]);
        let picture = engine.until(|picture| picture.fleet.synced).await.unwrap();
        let told = picture.verdicts.iter().any(|(_, verdict)| format!("{verdict:?}").contains("UnknownVersion"));
        assert!(told, "the typo is not named");
        stage.hands.label_node(&node, &desired(), Some("1.0")).await.unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(stage.runs(&node, "1.0"));
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn g18_a_reboot_while_the_unload_is_pending_goes_straight_to_loading() {
    play(|| async {
        let stage = Stage::new(18, 1).installed().await;
        let node = stage.nodes[0].clone();
        // Somebody holds the device without claiming it: the unload cannot succeed.
        let mut stray = objects::template("stray", None, 1);
        stray["metadata"]["name"] = json!("stray");
        stray["metadata"]["annotations"] =
            json!({"sim.lockkeeper.dev/behaviour": "claimant", "sim.lockkeeper.dev/module": scenario::MODULE});
        stray["spec"]["nodeName"] = json!(node);
        stage.apply(&[objects::pod("default", stray)]).await;
        let holds = || stage.world.kubelets.kernel(&node).is_some_and(|kernel| !kernel.users_of(scenario::MODULE).is_empty());
        stage.until("it holds the device", holds).await;
        let engine = stage.engine();
        stage.release().await;
        stage.ask(std::slice::from_ref(&node)).await;
        stage.until("the unload fails, by name", || stage.blockers(&node).iter().any(|(kind, _)| kind == "UnloadFailed")).await;
        stage.hands.delete("/api/v1/namespaces/default/pods/stray").await.unwrap();
        stage.world.kubelets.reboot(&node);
        stage.until("the new version runs", || stage.runs(&node, "2.0")).await;
        let report = stage.world.report_at_rest();
        assert!(report.violations.is_empty(), "{:#?}", report.violations);
        let unload_pods = stage
            .world
            .api
            .list("pods")
            .iter()
            .filter(|pod| pod["metadata"]["labels"]["lockkeeper.dev/role"] == "unload")
            .count();
        assert_eq!(unload_pods, 0, "the stuck unload pod is still there");
        engine.stop().await;
    });
}

#[test]
fn g19_only_what_no_node_needs_is_collected() {
    play(|| async {
        let stage = Stage::new(19, 2).installed().await;
        let engine = stage.engine();
        stage.spec(json!({"rollout": {"keepVersions": 1}})).await;
        let names = || -> Vec<String> {
            let sets = stage.world.api.list("daemonsets.apps");
            let mut versions: Vec<String> = sets
                .iter()
                .filter_map(|set| Some(set.pointer("/metadata/labels/lockkeeper.dev~1version")?.as_str()?.to_owned()))
                .collect();
            versions.sort();
            versions.dedup();
            versions
        };
        // Another component's old version is nobody's business.
        let part = |mut template: Value| {
            template["metadata"]["annotations"]["sim.lockkeeper.dev/module"] = json!("nic");
            template
        };
        let other = objects::component(
            NAMESPACE,
            "nic",
            json!({
                "version": "1.0", "nodeSelector": {"pool": "plain"},
                "kernelModule": {"daemonSets": {"loader": part(scenario::loader("1.0")), "devicePlugin": part(scenario::device_plugin("1.0")), "unload": part(scenario::unload("1.0"))},
                                 "devices": {"resourceNames": ["vendor.example/nic"]}},
            }),
        );
        stage.apply(&[other]).await;
        stage.release().await;
        stage.ask(&stage.nodes[..1]).await;
        stage.until("one node runs 2.0", || stage.runs(&stage.nodes[0], "2.0")).await;
        stage.spec(json!({"version": "3.0", "kernelModule": scenario::kernel_module("3.0")})).await;
        stage.until("3.0 has DaemonSets", || names().contains(&"3.0".to_owned())).await;
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert_eq!(names(), ["1.0", "2.0", "3.0"], "one node runs 1.0, one 2.0, and 3.0 is the aim");
        // Both leave what they have, twice: then no node and no handoff names 1.0.
        for (attempt, version) in [(3, "2.0"), (4, "3.0")] {
            for node in &stage.nodes {
                let body = json!({"spec": {"version": version, "attempt": attempt, "requestedBy": "operator"}});
                stage.hands.merge(&crate::stage::handoff_path(node), &body).await.unwrap();
            }
            stage
                .until("both run it", || stage.nodes.iter().all(|node| stage.runs(node, version) && stage.is_done(node, version)))
                .await;
        }
        let own = |version: &str| {
            stage.world.api.list("daemonsets.apps").iter().any(|set| {
                set.pointer("/metadata/labels/lockkeeper.dev~1component") == Some(&json!(NAME))
                    && set.pointer("/metadata/labels/lockkeeper.dev~1version") == Some(&json!(version))
            })
        };
        stage.until("1.0 is collected", || !own("1.0")).await;
        assert!(own("2.0") && own("3.0"));
        assert!(
            stage
                .world
                .api
                .list("daemonsets.apps")
                .iter()
                .any(|set| set.pointer("/metadata/labels/lockkeeper.dev~1component") == Some(&json!("nic")))
        );
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn g20_a_name_with_a_dot_is_handed_over_and_deleted_whole() {
    play(|| async {
        let stage = Stage::new(20, 1);
        let (engine, node) = (stage.engine(), stage.nodes[0].clone());
        stage.apply(&[objects::component(NAMESPACE, "my.mod", scenario::component_spec("1.0"))]).await;
        let ours = || -> Vec<String> {
            let object = stage.node(&node);
            let keys = |map: &str| {
                object
                    .pointer(map)
                    .and_then(Value::as_object)
                    .into_iter()
                    .flatten()
                    .map(|(key, _)| key.clone())
                    .collect::<Vec<_>>()
            };
            keys("/metadata/labels")
                .into_iter()
                .chain(keys("/metadata/annotations"))
                .filter(|key| key.contains("gpu-system.my.mod"))
                .collect()
        };
        stage.until("it is installed", || ours().iter().any(|key| key.starts_with("lockkeeper.dev/ready."))).await;
        let path = component_path().replace("/gpu", "/my.mod").replace("namespaces/my.mod-system", "namespaces/gpu-system");
        stage.hands.delete(&path).await.unwrap();
        stage
            .until("the component is gone, and all its labels", || {
                stage.world.api.get("nodecomponents.lockkeeper.dev", NAMESPACE, "my.mod").is_none() && ours().is_empty()
            })
            .await;
        assert!(stage.world.kubelets.kernel(&node).unwrap().modules.is_empty(), "the module is still loaded");
        engine.stop().await;
    });
}

#[test]
fn g33_a_plugin_pod_that_is_gone_before_the_wait_holds_nothing_up() {
    play(|| async {
        let mut options = WorldOptions { kubelets: KubeletOptions::quick(), ..WorldOptions::new(33) };
        options.kubelets.stop = lockkeeper::sim::actors::Range::millis(20_000, 20_001);
        let stage = Stage::with(options, 1).installed().await;
        let (engine, node) = (stage.engine(), stage.nodes[0].clone());
        stage.release().await;
        stage.ask(std::slice::from_ref(&node)).await;
        stage
            .until("the plugin is being stopped", || {
                stage.phase(&node) == "StoppingPlugin" && stage.label(&node, "plugin").is_none()
            })
            .await;
        let plugin =
            stage.world.api.list("pods").iter().find(|pod| pod["metadata"]["labels"]["lockkeeper.dev/role"] == "plugin").cloned();
        if let Some(plugin) = plugin {
            let path = format!(
                "/api/v1/namespaces/{NAMESPACE}/pods/{}?gracePeriodSeconds=0",
                plugin["metadata"]["name"].as_str().unwrap()
            );
            stage.hands.delete(&path).await.unwrap();
        }
        stage.until("it is handed over", || stage.runs(&node, "2.0")).await;
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn g38_a_plugin_label_that_comes_back_keeps_the_loader() {
    play(|| async {
        let stage = Stage::new(38, 1).installed().await;
        let (engine, node) = (stage.engine(), stage.nodes[0].clone());
        stage.release().await;
        stage.ask(std::slice::from_ref(&node)).await;
        let (plugin, history) = (Role::Plugin.key(&scenario::key()), history(&stage, &node));
        for _ in 0..3 {
            stage
                .until("the plugin label is off", || {
                    stage.label(&node, "plugin").is_none() && stage.label(&node, "loader").is_some()
                })
                .await;
            stage.hands.label_node(&node, &plugin, Some("1.0")).await.unwrap();
        }
        stage.until("it is handed over all the same", || stage.runs(&node, "2.0")).await;
        let moves = short(&history.lock().unwrap());
        assert!(moves.iter().filter(|move_| move_.starts_with("1.0 1.0")).count() >= 3, "it did not come back: {moves:?}");
        assert!(
            !moves.iter().any(|move_| move_.starts_with("- 1.0")),
            "the loader went while the plugin label was there: {moves:?}"
        );
        stage.clean();
        engine.stop().await;
    });
}
