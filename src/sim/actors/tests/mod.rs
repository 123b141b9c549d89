//! The actors together on the simulated API server, on the paused clock.

mod devices;
mod nodes;
mod scale;
mod storage;
mod workloads;

use super::{Clock, ControllerManager, ControllerOptions, KubeletOptions, Kubelets, MachineSpec};
use crate::sim::apiserver::{ApiServer, Config, Identity};
use crate::sim::kernel::{Cause, Service, What};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// A running cluster.
struct World {
    api: ApiServer,
    client: kube::Client,
    kubelets: Kubelets,
    _controllers: ControllerManager,
}

async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

fn world(nodes: usize) -> World {
    world_with(nodes, 1, KubeletOptions::default(), ControllerOptions::default())
}

fn world_with(nodes: usize, seed: u64, kubelet: KubeletOptions, controllers: ControllerOptions) -> World {
    let api = ApiServer::new(Config { seed, ..Config::default() });
    let clock = Clock::of(api.clock());
    let controllers = ControllerManager::spawn(&api.client(&Identity::new("controllers")), clock, seed, controllers);
    let specs = (1..=nodes).map(|n| MachineSpec::new(&format!("n{n}")).label("pool", "gpu")).collect();
    let kubelets = Kubelets::spawn(&api.client(&Identity::new("kubelets")), clock, seed, kubelet, specs);
    let client = api.client(&Identity::new("test"));
    World { api, client, kubelets, _controllers: controllers }
}

impl World {
    fn install(&self, object: Value) {
        self.api.install(object).unwrap();
    }

    /// The pods with this prefix of their name, by name.
    fn pods(&self, prefix: &str) -> Vec<Arc<Value>> {
        let name = |pod: &Arc<Value>| pod["metadata"]["name"].as_str().unwrap_or_default().starts_with(prefix);
        self.api.list("pods").into_iter().filter(name).collect()
    }

    fn ready(&self, prefix: &str) -> usize {
        self.pods(prefix)
            .iter()
            .filter(|pod| condition(pod, "Ready") == "True" && pod["metadata"]["deletionTimestamp"].is_null())
            .count()
    }

    async fn patch(&self, path: &str, patch: Value) {
        let request = http::Request::patch(path).header("content-type", "application/merge-patch+json");
        self.client.request::<Value>(request.body(patch.to_string().into_bytes()).unwrap()).await.unwrap();
    }

    async fn delete(&self, path: &str, options: Value) {
        let request = http::Request::delete(path).header("content-type", "application/json");
        self.client.request::<Value>(request.body(options.to_string().into_bytes()).unwrap()).await.unwrap();
    }

    fn allocatable(&self, node: &str, resource: &str) -> String {
        let node = self.api.get("nodes", "", node).unwrap();
        node["status"]["allocatable"][resource].as_str().unwrap_or_default().to_owned()
    }
}

fn condition<'a>(object: &'a Value, kind: &str) -> &'a str {
    let conditions = object["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    conditions.iter().find(|c| c["type"] == kind).and_then(|c| c["status"].as_str()).unwrap_or_default()
}

fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

fn sim(parameters: &[(&str, &str)]) -> Value {
    parameters
        .iter()
        .map(|(key, value)| (format!("sim.lockkeeper.dev/{key}"), json!(value)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

fn daemon_set(name: &str, annotations: Value, spec: Value) -> Value {
    let mut pod = json!({"containers": [{"name": "c", "image": "i"}]});
    for (key, value) in spec.as_object().into_iter().flatten() {
        pod[key] = value.clone();
    }
    json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name, "namespace": "default"}, "spec": {
        "selector": {"matchLabels": {"app": name}}, "updateStrategy": {"type": "OnDelete"},
        "template": {"metadata": {"labels": {"app": name}, "annotations": annotations}, "spec": pod}}})
}

/// Loader and plugin of a module version, steered by the labels `loader` and `plugin`.
fn module(world: &World, version: &str) {
    let base = [("module", "gpu"), ("version", version)];
    let loader = [&base[..], &[("behaviour", "loader")]].concat();
    let plugin = [
        &base[..],
        &[("behaviour", "device-plugin"), ("resource", "vendor.com/gpu"), ("devices", "4"), ("init", "wait-for-module")],
    ]
    .concat();
    let tolerate = json!([{"operator": "Exists"}]);
    world.install(daemon_set(
        &format!("loader-{version}"),
        sim(&loader),
        json!({"nodeSelector": {"loader": version}, "tolerations": tolerate}),
    ));
    let init = json!([{"name": "wait", "image": "i"}]);
    let spec = json!({"nodeSelector": {"plugin": version}, "tolerations": tolerate, "initContainers": init});
    world.install(daemon_set(&format!("plugin-{version}"), sim(&plugin), spec));
}

fn deployment(name: &str, replicas: usize, annotations: Value, spec: Value) -> Value {
    let mut object = daemon_set(name, annotations, spec);
    object["kind"] = json!("Deployment");
    object["spec"]["replicas"] = json!(replicas);
    object["spec"].as_object_mut().unwrap().remove("updateStrategy");
    object
}

fn claimants(replicas: usize) -> Value {
    let container = json!([{"name": "c", "image": "i", "resources": {"limits": {"vendor.com/gpu": "1"}}}]);
    deployment("app", replicas, json!({}), json!({"containers": container}))
}

fn budget(spec: Value) -> Value {
    let mut object = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "app", "namespace": "default"}, "spec": spec});
    object["spec"]["selector"] = json!({"matchLabels": {"app": "app"}});
    object
}

fn gpu() -> Service {
    Service::Resource("vendor.com/gpu".into())
}

async fn label(world: &World, node: &str, labels: Value) {
    world.patch(&format!("/api/v1/nodes/{node}"), json!({"metadata": {"labels": labels}})).await;
}

fn causes(world: &World) -> Vec<Cause> {
    world.kubelets.disruptions().iter().map(|disruption| disruption.cause).collect()
}

fn happened(world: &World, test: impl Fn(&What) -> bool) -> usize {
    world.kubelets.events(0).iter().filter(|event| test(&event.what)).count()
}
