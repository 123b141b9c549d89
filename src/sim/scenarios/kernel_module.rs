//! Scenario `kernel-module`: a fleet with a GPU module, its device plugin, and workloads that hold its devices. Objects only.

use serde_json::{Value, json};

use super::objects::{self, Object};
use crate::api::{ComponentKey, keys::Role};

pub const NAMESPACE: &str = "gpu-system";
pub const NAME: &str = "gpu";
pub const MODULE: &str = "gpu";
pub const RESOURCE: &str = "vendor.example/gpu";
/// Devices per node.
pub const DEVICES: u32 = 4;
pub const OLD: &str = "1.0";
pub const NEW: &str = "2.0";
const POOL: (&str, &str) = ("pool", "gpu");

/// A kernel module with its device plugin, handed over as one component. Component, module and pods carry its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Module {
    pub name: &'static str,
    pub resource: &'static str,
}

/// The module of the scenario.
pub const GPU: Module = Module { name: NAME, resource: RESOURCE };
/// Another one on the same nodes, for runs with two components.
pub const NIC: Module = Module { name: "nic", resource: "vendor.example/nic" };

impl Module {
    pub fn key(self) -> ComponentKey {
        ComponentKey::new(NAMESPACE, self.name)
    }

    /// The path of its NodeComponent.
    pub fn path(self) -> String {
        format!("/apis/lockkeeper.dev/v1alpha1/namespaces/{NAMESPACE}/nodecomponents/{}", self.name)
    }

    fn part(self, name: &str, annotations: Value, mut spec: Value) -> Value {
        let version = annotations["sim.lockkeeper.dev/version"].as_str().unwrap_or("1");
        let app = format!("{}-{name}", self.name);
        spec["containers"] = json!([{"name": name, "image": format!("{app}:{version}")}]);
        json!({"metadata": {"labels": {"app": app}, "annotations": annotations}, "spec": spec})
    }

    pub fn loader(self, version: &str) -> Value {
        let annotations = json!({"sim.lockkeeper.dev/behaviour": "loader", "sim.lockkeeper.dev/module": self.name, "sim.lockkeeper.dev/version": version});
        self.part("loader", annotations, json!({"terminationGracePeriodSeconds": 5}))
    }

    pub fn device_plugin(self, version: &str) -> Value {
        let annotations = json!({
            "sim.lockkeeper.dev/behaviour": "device-plugin", "sim.lockkeeper.dev/module": self.name, "sim.lockkeeper.dev/version": version,
            "sim.lockkeeper.dev/resource": self.resource, "sim.lockkeeper.dev/devices": DEVICES.to_string(),
            "sim.lockkeeper.dev/init": "wait-for-module",
        });
        let wait = json!([{"name": "wait-for-module", "image": format!("{}-wait:1", self.name)}]);
        self.part("device-plugin", annotations, json!({"terminationGracePeriodSeconds": 10, "initContainers": wait}))
    }

    pub fn unload(self, version: &str) -> Value {
        let annotations = json!({"sim.lockkeeper.dev/behaviour": "unload", "sim.lockkeeper.dev/module": self.name, "sim.lockkeeper.dev/version": version});
        self.part("unload", annotations, json!({"restartPolicy": "Never", "terminationGracePeriodSeconds": 5}))
    }

    /// `spec.kernelModule` of a version.
    pub fn kernel_module(self, version: &str) -> Value {
        json!({
            "daemonSets": {"loader": self.loader(version), "devicePlugin": self.device_plugin(version), "unload": self.unload(version)},
            "devices": {"resourceNames": [self.resource]},
        })
    }

    /// The NodeComponent's spec at a version; so many nodes at once.
    pub fn component_spec(self, version: &str, max_unavailable: u32) -> Value {
        json!({
            "version": version,
            "nodeSelector": {POOL.0: POOL.1},
            "rollout": {"soak": "5s", "maxFailures": 1000, "maxUnavailable": max_unavailable},
            "drain": {"timeout": "6h"},
            "kernelModule": self.kernel_module(version),
        })
    }

    /// The component at its old version.
    pub fn component(self, max_unavailable: u32) -> Object {
        objects::component(NAMESPACE, self.name, self.component_spec(OLD, max_unavailable))
    }
}

pub fn key() -> ComponentKey {
    GPU.key()
}

/// The NodeComponent's spec at a version, one node at a time.
pub fn component_spec(version: &str) -> Value {
    GPU.component_spec(version, 1)
}

pub fn kernel_module(version: &str) -> Value {
    GPU.kernel_module(version)
}

pub fn loader(version: &str) -> Value {
    GPU.loader(version)
}

pub fn device_plugin(version: &str) -> Value {
    GPU.device_plugin(version)
}

pub fn unload(version: &str) -> Value {
    GPU.unload(version)
}

/// `gpu-01`, `gpu-02`, …
pub fn node_names(nodes: usize) -> Vec<String> {
    let width = nodes.to_string().len().max(2);
    (1..=nodes).map(|n| format!("gpu-{n:0width$}")).collect()
}

/// Namespaces and nodes: `nodes` with devices, and a few without.
pub fn cluster(nodes: usize) -> Vec<Object> {
    let namespaces = ["default", "kube-system", "kube-node-lease", "lockkeeper-system", NAMESPACE, "ml", "web", "monitoring"];
    let mut objects: Vec<Object> = namespaces.iter().map(|name| objects::namespace(name)).collect();
    objects.extend(node_names(nodes).iter().map(|name| objects::node(name, &[POOL])));
    objects.extend((1..=nodes.div_ceil(8)).map(|n| objects::node(&format!("plain-{n}"), &[("pool", "plain")])));
    objects
}

/// The component at its old version.
pub fn component() -> Object {
    GPU.component(1)
}

/// What runs on the fleet: about half of the devices are held, so that what is evicted finds another place.
/// `pods_per_node` counts the ones that hold nothing.
pub fn workloads(nodes: usize, pods_per_node: usize) -> Vec<Object> {
    let nodes = u32::try_from(nodes).unwrap_or(u32::MAX);
    let claims = |count| Some((RESOURCE, count));
    // One device a node goes to the monitor's DaemonSet.
    let free = nodes * (DEVICES - 1);
    let mut objects = Vec::new();
    let mut held = 0;
    let mut number = 0;
    while held + 4 <= free / 2 {
        number += 1;
        let (app, replicas) = (format!("training-{number}"), 2 + number % 3);
        let replicas = replicas.min(free / 2 - held);
        objects.push(objects::deployment("ml", &app, replicas, objects::template(&app, claims(1), 5 + number % 4 * 5)));
        // Every third has no budget at all.
        match number % 3 {
            0 => {}
            1 => objects.push(objects::budget("ml", &app, "maxUnavailable", json!(1))),
            _ => objects.push(objects::budget("ml", &app, "minAvailable", json!(replicas.saturating_sub(1)))),
        }
        held += replicas;
    }
    let replicas = 2.min(nodes);
    objects.push(objects::stateful_set("ml", "inference", replicas, objects::template("inference", claims(1), 10)));
    objects.push(objects::budget("ml", "inference", "maxUnavailable", json!(1)));
    let monitor = objects::template("gpu-monitor", claims(1), 5);
    objects.push(objects::daemon_set_where_label("monitoring", "gpu-monitor", &Role::Ready.key(&key()), monitor));
    let plain = nodes * u32::try_from(pods_per_node).unwrap_or(u32::MAX);
    for n in 0..plain.div_ceil(50) {
        let app = format!("web-{}", n + 1);
        objects.push(objects::deployment("web", &app, 50.min(plain - n * 50), objects::template(&app, None, 5)));
    }
    objects
}

/// What runs on the second module: pods that hold one of its devices, and some that hold one of each.
pub fn workloads_of_both(nodes: usize) -> Vec<Object> {
    let nodes = u32::try_from(nodes).unwrap_or(u32::MAX);
    let both = |app: &str| {
        let mut template = objects::template(app, Some((RESOURCE, 1)), 10);
        for list in ["requests", "limits"] {
            template["spec"]["containers"][0]["resources"][list][NIC.resource] = json!("1");
        }
        template
    };
    let mut objects = Vec::new();
    for (app, replicas, template) in
        [("packets", nodes, objects::template("packets", Some((NIC.resource, 1)), 5)), ("stream", 2.min(nodes), both("stream"))]
    {
        objects.push(objects::deployment("ml", app, replicas, template));
        objects.push(objects::budget("ml", app, "maxUnavailable", json!(1)));
    }
    objects
}

/// The operator's request: these nodes to the new version, in this order.
pub fn handoffs(order: &[String]) -> Vec<Object> {
    (1..).zip(order).map(|(position, node)| objects::handoff(NAMESPACE, NAME, node, NEW, position)).collect()
}

/// What people do without lockkeeper: one DaemonSet for loader and one for plugin, replaced by a plain rolling update.
pub fn baseline_daemon_sets(version: &str) -> Vec<Object> {
    let rolling = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}});
    let mut loader = loader(version);
    // A driver container that is replaced takes the old module out by force: a plain rollout knows no claimants.
    loader["metadata"]["annotations"]["sim.lockkeeper.dev/force"] = json!("true");
    let pool = json!({POOL.0: POOL.1});
    vec![
        objects::daemon_set(NAMESPACE, "gpu-loader", pool.clone(), rolling.clone(), loader),
        objects::daemon_set(NAMESPACE, "gpu-device-plugin", pool, rolling, device_plugin(version)),
    ]
}
