//! Workloads of the stories, and what can be said of their pods.

use lockkeeper::sim::scenarios::{
    kernel_module as scenario,
    objects::{self, Object},
};
use serde_json::{Value, json};

use crate::stage::Stage;

/// A Deployment in `ml` whose pods use one device each.
pub fn claimants(app: &str, replicas: u32) -> Object {
    objects::deployment("ml", app, replicas, device_user(app))
}

/// A pod template with one device.
pub fn device_user(app: &str) -> Value {
    objects::template(app, Some((scenario::RESOURCE, 1)), 2)
}

/// On this node and no other.
pub fn pinned(mut template: Value, node: &str) -> Value {
    template["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": node});
    template
}

/// The pods of an app, in any namespace.
pub fn pods_of(stage: &Stage, app: &str) -> Vec<Value> {
    let pods = stage.world.api.list("pods");
    pods.iter().filter(|pod| pod["metadata"]["labels"]["app"] == app).map(|pod| (**pod).clone()).collect()
}

/// How many of them run and are not on their way out.
pub fn running(stage: &Stage, app: &str) -> usize {
    pods_of(stage, app)
        .iter()
        .filter(|pod| pod["status"]["phase"] == "Running" && pod["metadata"]["deletionTimestamp"].is_null())
        .count()
}

pub fn node_of(pod: &Value) -> String {
    pod["spec"]["nodeName"].as_str().unwrap_or_default().to_owned()
}

pub fn uids(stage: &Stage, app: &str) -> Vec<String> {
    pods_of(stage, app).iter().map(|pod| pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned()).collect()
}

/// A pod without a controller.
pub fn bare(namespace: &str, name: &str, mut template: Value) -> Object {
    template["metadata"]["name"] = json!(name);
    objects::pod(namespace, template)
}
