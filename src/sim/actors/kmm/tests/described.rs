//! Stories of the real operator of which not every event was recorded, but what came of them was written down: that is what is asked here.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::stage::{MODULE, Stage};
use crate::kmm::tests::story::Start;

const NODE: &str = "/api/v1/nodes/node-a";

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

/// Both nodes on 1.0.
async fn running(annotations: &[(&str, &str)]) -> Stage {
    let start = Start { module: Some("1.0".into()), nodes: vec!["1.0".into(), "1.0".into()], ..Start::default() };
    Stage::new(&start, annotations).await
}

async fn empty(annotations: &[(&str, &str)]) -> Stage {
    Stage::new(&Start::default(), annotations).await
}

fn text<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// KMM's words on a node: `worker`, `schedule`, `target`, `ready`, `version.ready`, `plugin-ready`, `dra-ready`, with their values.
fn labels(stage: &Stage, node: &str) -> BTreeMap<&'static str, String> {
    let node = stage.api.get("nodes", "", node).expect("the node");
    let words = [
        ("kmm.node.kubernetes.io/version-module.drv.mod", "want"),
        ("beta.kmm.node.kubernetes.io/version-worker-pod.drv.mod", "worker"),
        ("beta.kmm.node.kubernetes.io/version-schedule-pod.drv.mod", "schedule"),
        ("kmm.node.kubernetes.io/drv.mod.device-plugin-target", "target"),
        ("kmm.node.kubernetes.io/drv.mod.ready", "ready"),
        ("kmm.node.kubernetes.io/drv.mod.version.ready", "version.ready"),
        ("kmm.node.kubernetes.io/drv.mod.device-plugin-ready", "plugin-ready"),
        ("kmm.node.kubernetes.io/drv.mod.dra-ready", "dra-ready"),
    ];
    let value = |key: &str| node["metadata"]["labels"].get(key).and_then(Value::as_str).map(str::to_owned);
    words.into_iter().filter_map(|(key, word)| Some((word, value(key)?))).collect()
}

fn words(stage: &Stage, node: &str) -> String {
    let told: Vec<String> = labels(stage, node)
        .into_iter()
        .map(|(word, value)| if value.is_empty() { word.to_owned() } else { format!("{word}={value}") })
        .collect();
    told.join(" ")
}

const IN_SERVICE: &str = "plugin-ready ready schedule=1.0 target version.ready=1.0 want=1.0 worker=1.0";
const UPGRADED: &str = "plugin-ready ready schedule=2.0 target version.ready=2.0 want=2.0 worker=2.0";

fn pods(stage: &Stage, label: &str) -> Vec<Arc<Value>> {
    let has = |pod: &Arc<Value>| pod["metadata"]["labels"].get(format!("kmm.node.kubernetes.io/{label}")).is_some();
    stage.api.list("pods").into_iter().filter(has).collect()
}

fn worker(stage: &Stage) -> Option<Arc<Value>> {
    stage.api.get("pods", "drv", "kmm-worker-node-a-mod")
}

/// Images in the spec and in the status of a node's NodeModulesConfig, if there is one.
fn config(stage: &Stage, node: &str) -> Option<(Vec<String>, Vec<String>)> {
    let config = stage.api.get("nodemodulesconfigs.kmm.sigs.x-k8s.io", "", node)?;
    let images = |part: &str| {
        let entries = config[part]["modules"].as_array().cloned().unwrap_or_default();
        entries.iter().map(|entry| text(entry, "/config/containerImage").trim_end_matches("-6.1.0-test").to_owned()).collect()
    };
    Some((images("spec"), images("status")))
}

fn sets(stage: &Stage) -> usize {
    stage.api.list("daemonsets.apps").len()
}

fn loaded(stage: &Stage, node: &str) -> Option<String> {
    stage.kubelets.kernel(node)?.modules.get("mod").cloned()
}

#[tokio::test(start_paused = true)]
async fn s02_labels_follow_without_a_module_and_a_node_without_label_gets_an_empty_config() {
    let stage = empty(&[]).await;
    stage.act("node node-a want=1.0").await;
    pass(seconds(1)).await;
    assert_eq!(words(&stage, "node-a"), "schedule=1.0 want=1.0 worker=1.0");
    stage.act("module create 1.0 1.0").await;
    pass(seconds(20)).await;
    assert_eq!(words(&stage, "node-a"), IN_SERVICE);
    assert_eq!(words(&stage, "node-b"), "target");
    assert_eq!(config(&stage, "node-b"), Some((vec![], vec![])));
    let empty = stage.api.get("nodemodulesconfigs.kmm.sigs.x-k8s.io", "", "node-b").unwrap();
    assert!(empty["metadata"]["ownerReferences"].as_array().is_none_or(Vec::is_empty), "{empty}");
}

#[tokio::test(start_paused = true)]
async fn s04_a_pod_that_holds_the_device_is_never_looked_at() {
    let stage = running(&[]).await;
    let resources = json!({"limits": {"example.com/dev": "1"}, "requests": {"example.com/dev": "1"}});
    let container = json!({"name": "c", "image": "i", "resources": resources});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "user", "namespace": "drv"},
        "spec": {"nodeSelector": {"kubernetes.io/hostname": "node-a"}, "containers": [container]}});
    stage.send("POST", "/api/v1/namespaces/drv/pods", "application/json", &pod).await;
    pass(seconds(20)).await;
    let user = || stage.api.get("pods", "drv", "user").expect("the pod");
    assert_eq!(text(&user(), "/status/phase"), "Running");
    let uid = text(&user(), "/metadata/uid").to_owned();
    stage.act("module edit 2.0 2.0").await;
    stage.act("node node-a want=2.0").await;
    pass(seconds(30)).await;
    assert_eq!(words(&stage, "node-a"), UPGRADED);
    assert_eq!((text(&user(), "/metadata/uid"), text(&user(), "/status/phase")), (uid.as_str(), "Running"));
    assert!(!stage.kubelets.disruptions().is_empty(), "unload and reload ran under it");
}

#[tokio::test(start_paused = true)]
async fn s07_a_failed_unload_pod_is_made_again_at_once_without_back_off_and_without_event() {
    let stage = running(&[("unload.exit-after-seconds", "60")]).await;
    stage.act("node node-a want-").await;
    let mut uids = Vec::new();
    let mut waits = Vec::new();
    for _ in 0..10 {
        let began = tokio::time::Instant::now();
        let running = || {
            worker(&stage)
                .filter(|pod| text(pod, "/status/phase") == "Running" && !uids.contains(&text(pod, "/metadata/uid").to_owned()))
        };
        while running().is_none() {
            pass(Duration::from_millis(5)).await;
        }
        let pod = running().unwrap();
        assert_eq!(text(&pod, "/metadata/labels/kmm.node.kubernetes.io~1worker-action"), "Unload");
        waits.push(began.elapsed());
        uids.push(text(&pod, "/metadata/uid").to_owned());
        stage.kubelets.pressure_evict("node-a", "drv/kmm-worker-node-a-mod");
        pass(Duration::from_millis(1)).await;
    }
    assert!(waits.iter().skip(1).all(|wait| *wait < seconds(1)), "{waits:?}");
    let by_kmm = |event: &Arc<Value>| {
        text(event, "/reportingComponent").contains("kmm") || text(event, "/source/component").contains("kmm")
    };
    assert!(!stage.api.list("events").iter().any(by_kmm));
    assert_eq!(words(&stage, "node-a"), "ready target version.ready=1.0");
    assert_eq!(config(&stage, "node-a"), Some((vec![], vec!["mod:1.0".to_owned()])));
}

#[tokio::test(start_paused = true)]
async fn s08_a_load_that_fails_restarts_in_place_and_a_new_image_replaces_it() {
    let mut stage = empty(&[("load.exit-code", "1")]).await;
    stage.act("module create 1.0 1.0").await;
    stage.act("node node-a want=1.0").await;
    pass(seconds(60)).await;
    let first = worker(&stage).expect("the Load pod");
    let restarts = first.pointer("/status/containerStatuses/0/restartCount").and_then(Value::as_i64).unwrap_or_default();
    assert!(restarts > 0, "{first}");
    assert_eq!(words(&stage, "node-a"), "schedule=1.0 target want=1.0 worker=1.0");
    assert_eq!(config(&stage, "node-a"), Some((vec!["mod:1.0".to_owned()], vec![])));
    stage.tell("load.exit-code", "0").await;
    // The toy kernel has the module that the failed load left: what is tried is the pod, not the kernel.
    stage.act("module edit 1.0 1.0-fixed").await;
    pass(seconds(5)).await;
    let second = worker(&stage);
    assert!(
        second.is_none_or(|second| second["metadata"]["uid"] != first["metadata"]["uid"]),
        "replaced though it waits for its back-off"
    );
}

#[tokio::test(start_paused = true)]
async fn s09_a_plugin_that_is_never_ready_leaves_out_its_label_and_nothing_else() {
    let stage = running(&[]).await;
    let mut stage = stage;
    stage.tell("plugin.unready", "true").await;
    stage.act("module edit 2.0 2.0").await;
    stage.act("node node-a want=2.0").await;
    pass(seconds(60)).await;
    assert_eq!(words(&stage, "node-a"), "ready schedule=2.0 target version.ready=2.0 want=2.0 worker=2.0");
    assert_eq!(config(&stage, "node-a"), Some((vec!["mod:2.0".to_owned()], vec!["mod:2.0".to_owned()])));
    assert_eq!(words(&stage, "node-b"), IN_SERVICE);
}

#[tokio::test(start_paused = true)]
async fn s11_a_tolerated_cordon_moves_nothing_and_the_handoff_works_under_it() {
    let stage = running(&[]).await;
    let tolerated = json!([{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]);
    stage.merge(MODULE, &json!({"spec": {"tolerations": tolerated}})).await;
    // The edit restarts the plugins: their template has the tolerations.
    pass(seconds(30)).await;
    let mut stage = stage;
    stage.told();
    stage.act("node node-a cordon").await;
    pass(seconds(20)).await;
    assert_eq!(stage.told(), BTreeMap::new(), "nothing moves");
    assert_eq!(words(&stage, "node-a"), IN_SERVICE);
    stage.merge(MODULE, &json!({"spec": {"moduleLoader": {"container": {"version": "2.0", "containerImage": "mod:2.0-${KERNEL_FULL_VERSION}"}}}})).await;
    stage.act("node node-a want-").await;
    pass(seconds(10)).await;
    assert_eq!((words(&stage, "node-a").as_str(), loaded(&stage, "node-a")), ("target", None));
    stage.act("node node-a want=2.0").await;
    pass(seconds(10)).await;
    assert_eq!(words(&stage, "node-a"), UPGRADED);
}

#[tokio::test(start_paused = true)]
async fn s12_any_untolerated_noschedule_taint_unloads_and_prefernoschedule_does_nothing() {
    let mut stage = running(&[]).await;
    let taint = |effect: &str| json!({"spec": {"taints": [{"key": "example.com/x", "value": "y", "effect": effect}]}});
    stage.merge(NODE, &taint("PreferNoSchedule")).await;
    pass(seconds(20)).await;
    assert_eq!(stage.told(), BTreeMap::new());
    stage.merge(NODE, &taint("NoSchedule")).await;
    pass(Duration::from_millis(200)).await;
    assert_eq!(words(&stage, "node-a"), "schedule=1.0 want=1.0 worker=1.0");
    assert!(worker(&stage).is_some_and(|pod| text(&pod, "/metadata/labels/kmm.node.kubernetes.io~1worker-action") == "Unload"));
    pass(seconds(20)).await;
    assert_eq!(loaded(&stage, "node-a"), None);
    stage.merge(NODE, &json!({"spec": {"taints": null}})).await;
    pass(seconds(20)).await;
    assert_eq!(words(&stage, "node-a"), IN_SERVICE);
}

#[tokio::test(start_paused = true)]
async fn s17_a_label_put_back_while_the_plugin_ends_cancels_the_handoff() {
    let mut stage = running(&[("plugin.stop-seconds", "5")]).await;
    let plugin = |stage: &Stage| {
        let on_a = |pod: &Arc<Value>| text(pod, "/spec/nodeName") == "node-a" && pod["metadata"]["deletionTimestamp"].is_null();
        pods(stage, "role").into_iter().find(on_a).map(|pod| text(&pod, "/metadata/uid").to_owned())
    };
    let before = plugin(&stage).expect("a plugin");
    stage.act("node node-a want-").await;
    pass(seconds(1)).await;
    assert_eq!(words(&stage, "node-a"), "ready target version.ready=1.0 worker=1.0");
    stage.act("node node-a want=1.0").await;
    pass(seconds(20)).await;
    assert_eq!(words(&stage, "node-a"), IN_SERVICE);
    let told = stage.told();
    assert!(!told.contains_key("worker node-a") && !told.contains_key("nmc spec node-a"), "{told:?}");
    assert!(plugin(&stage).is_some_and(|uid| uid != before), "only the plugin started again");
}

#[tokio::test(start_paused = true)]
async fn s18_labels_of_a_deleted_module_stay_and_the_same_module_loads_at_once() {
    let stage = running(&[]).await;
    stage.act("module delete").await;
    pass(Duration::from_millis(500)).await;
    assert_eq!(sets(&stage), 0);
    assert!(!labels(&stage, "node-a").contains_key("target"));
    assert!(worker(&stage).is_some(), "the unload does not wait for the plugin");
    assert_eq!(config(&stage, "node-a"), Some((vec![], vec!["mod:1.0".to_owned()])));
    assert!(stage.api.get("modules.kmm.sigs.x-k8s.io", "drv", "mod").is_some(), "it waits for the nodes");
    pass(seconds(20)).await;
    assert!(stage.api.get("modules.kmm.sigs.x-k8s.io", "drv", "mod").is_none());
    assert_eq!(words(&stage, "node-a"), "schedule=1.0 want=1.0 worker=1.0");
    stage.act("module create 1.0 1.0").await;
    pass(seconds(20)).await;
    assert_eq!(words(&stage, "node-a"), IN_SERVICE);
}

#[tokio::test(start_paused = true)]
async fn s19_a_node_deleted_and_made_again_is_labelled_before_it_is_ready_and_loads_after() {
    let stage = running(&[]).await;
    stage.kubelets.kill("node-a");
    stage.act("node node-a gone").await;
    pass(Duration::from_millis(500)).await;
    assert_eq!(config(&stage, "node-a"), None, "it goes with its node");
    let labels =
        json!({"pool": "dev", "kubernetes.io/hostname": "node-a", "kmm.node.kubernetes.io/version-module.drv.mod": "1.0"});
    let taint = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a", "labels": labels}, "spec": {"taints": [taint]}});
    stage.send("POST", "/api/v1/nodes", "application/json", &node).await;
    pass(seconds(1)).await;
    assert_eq!(words(&stage, "node-a"), "schedule=1.0 want=1.0 worker=1.0");
    assert_eq!(worker(&stage), None);
    stage.kubelets.reboot_in("node-a", Duration::from_millis(5));
    pass(seconds(30)).await;
    assert_eq!(words(&stage, "node-a"), IN_SERVICE);
}

#[tokio::test(start_paused = true)]
async fn s27_a_module_without_plugin_has_the_labels_and_the_load_and_no_daemon_set() {
    let stage = empty(&[]).await;
    let container = json!({"version": "1.0", "containerImage": "mod:1.0-${KERNEL_FULL_VERSION}", "kernelMappings": [{"regexp": "^.+$"}],
        "modprobe": {"moduleName": "mod"}});
    let body = json!({"apiVersion": "kmm.sigs.x-k8s.io/v1beta1", "kind": "Module", "metadata": {"name": "mod", "namespace": "drv"},
        "spec": {"moduleLoader": {"container": container}, "selector": {"pool": "dev"}}});
    stage.send("POST", "/apis/kmm.sigs.x-k8s.io/v1beta1/namespaces/drv/modules", "application/json", &body).await;
    stage.act("node node-a want=1.0").await;
    pass(seconds(20)).await;
    assert_eq!(words(&stage, "node-a"), "ready schedule=1.0 version.ready=1.0 want=1.0 worker=1.0");
    assert_eq!((sets(&stage), loaded(&stage, "node-a")), (0, Some("1.0".to_owned())));
    stage.act("node node-a want-").await;
    pass(seconds(20)).await;
    assert_eq!((words(&stage, "node-a").as_str(), loaded(&stage, "node-a")), ("", None));
}

#[tokio::test(start_paused = true)]
async fn s29_a_plugin_pod_deleted_while_the_operator_is_away_stays_and_a_second_is_made_beside_it() {
    let mut stage = running(&[]).await;
    stage.kill_operator();
    let on_a = |pod: &Arc<Value>| text(pod, "/spec/nodeName") == "node-a";
    let plugin = pods(&stage, "role").into_iter().find(on_a).expect("a plugin");
    let path = format!("/api/v1/namespaces/drv/pods/{}", text(&plugin, "/metadata/name"));
    stage.send("DELETE", &path, "application/json", &json!({})).await;
    pass(seconds(20)).await;
    let here: Vec<Arc<Value>> = pods(&stage, "role").into_iter().filter(on_a).collect();
    let old = here.iter().find(|pod| pod["metadata"]["uid"] == plugin["metadata"]["uid"]).expect("the finalizer keeps it");
    assert!(!old["metadata"]["deletionTimestamp"].is_null() && text(old, "/status/phase") == "Succeeded", "{old}");
    assert_eq!(here.len(), 2);
    stage.start_operator();
    pass(seconds(5)).await;
    assert_eq!(pods(&stage, "role").into_iter().filter(on_a).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn s39_a_selector_label_taken_off_unloads_under_the_plugin_and_the_target_label_stays() {
    let mut stage = running(&[]).await;
    stage.merge(NODE, &json!({"metadata": {"labels": {"pool": null}}})).await;
    pass(seconds(20)).await;
    assert_eq!((words(&stage, "node-a").as_str(), loaded(&stage, "node-a")), ("schedule=1.0 target want=1.0 worker=1.0", None));
    let told = stage.told();
    assert_eq!(told.get("nmc spec node-a").map(Vec::as_slice), Some(&["spec=".to_owned()][..]));
    assert_eq!(told.get("labels node-a"), None, "the version labels stay: {told:?}");
    let plugin = told.get("plugin node-a").expect("the plugin leaves");
    assert_eq!(plugin.first().map(String::as_str), Some("marked"));
}

#[tokio::test(start_paused = true)]
async fn s41_six_changes_of_mind_in_a_second_end_well() {
    for last in ["1.0", "2.0"] {
        let stage = running(&[]).await;
        stage.act("module edit 2.0 2.0").await;
        pass(seconds(5)).await;
        let back = json!({"spec": {"moduleLoader": {"container": {"version": "1.0", "containerImage": "mod:1.0-${KERNEL_FULL_VERSION}"}}}});
        if last == "1.0" {
            stage.merge(MODULE, &back).await;
        }
        for change in ["want-", "want=1.0", "want-", "want=2.0", "want-"] {
            stage.act(&format!("node node-a {change}")).await;
            pass(Duration::from_millis(160)).await;
        }
        stage.act(&format!("node node-a want={last}")).await;
        pass(seconds(30)).await;
        assert_eq!(words(&stage, "node-a"), if last == "1.0" { IN_SERVICE } else { UPGRADED });
        assert_eq!(loaded(&stage, "node-a").as_deref(), Some(last));
    }
}

async fn driver_alone(driver: Value) -> Stage {
    let stage = empty(&[]).await;
    let annotations =
        json!({"sim.lockkeeper.dev/plugin.resource": "example.com/dev", "sim.lockkeeper.dev/plugin.driver": "dev.example.com"});
    let mut spec = driver;
    spec["selector"] = json!({"pool": "dev"});
    let body = json!({"apiVersion": "kmm.sigs.x-k8s.io/v1beta1", "kind": "Module",
        "metadata": {"name": "mod", "namespace": "drv", "annotations": annotations}, "spec": spec});
    stage.send("POST", "/apis/kmm.sigs.x-k8s.io/v1beta1/namespaces/drv/modules", "application/json", &body).await;
    pass(seconds(20)).await;
    stage
}

async fn cleaned(stage: Stage) {
    assert_eq!((sets(&stage), pods(&stage, "role").len()), (1, 2));
    stage.act("module delete").await;
    pass(Duration::from_millis(50)).await;
    assert!(stage.api.get("modules.kmm.sigs.x-k8s.io", "drv", "mod").is_none(), "the Module goes first");
    pass(seconds(20)).await;
    assert_eq!((sets(&stage), pods(&stage, "role").len()), (0, 0));
    assert_eq!(stage.api.list("deviceclasses.resource.k8s.io").len(), 0);
    for node in ["node-a", "node-b"] {
        assert_eq!(words(&stage, node), "");
    }
}

#[tokio::test(start_paused = true)]
async fn s45_what_a_deleted_module_with_a_dra_driver_alone_had_is_cleaned() {
    let stage =
        driver_alone(json!({"dra": {"container": {"image": "dra:1"}, "deviceClasses": [{"name": "mod-class", "spec": {}}]}}))
            .await;
    assert_eq!(words(&stage, "node-a"), "dra-ready");
    assert_eq!(stage.api.list("deviceclasses.resource.k8s.io").len(), 1);
    cleaned(stage).await;
}

#[tokio::test(start_paused = true)]
async fn s46_what_a_deleted_module_with_a_plugin_alone_had_is_cleaned() {
    let stage = driver_alone(json!({"devicePlugin": {"container": {"image": "plugin:1"}}})).await;
    assert_eq!(words(&stage, "node-a"), "plugin-ready target");
    cleaned(stage).await;
}
