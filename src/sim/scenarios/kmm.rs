//! Scenario `kmm`: a fleet whose kernel modules Kernel Module Management loads: a Module with a device plugin, another with a DRA driver, and
//! pods that hold their devices or nothing. Objects only; the operator and the people are others.

use serde_json::{Value, json};

use super::{
    dra, kernel_module as gpu,
    objects::{self, Object},
};
use crate::{
    api::{ComponentKey, ObjectKey},
    kmm::keys::{Era, Label},
};

pub const NAMESPACE: &str = gpu::NAMESPACE;
pub const OLD: &str = gpu::OLD;
pub const NEW: &str = gpu::NEW;

/// A Module of KMM's with the component that follows it. Component, Module, kernel module and pool carry its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    pub name: &'static str,
    pub devices: Devices,
}

/// What the Module's driver serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Devices {
    /// An extended resource, by a device plugin.
    Plugin(&'static str),
    /// Devices of a DRA driver.
    Dra { driver: &'static str, class: &'static str },
}

pub const GPU: Part = Part { name: gpu::MODULE, devices: Devices::Plugin(gpu::RESOURCE) };
pub const NPU: Part = Part { name: "npu", devices: Devices::Dra { driver: "npu.vendor.example", class: "npu" } };
pub const PARTS: [Part; 2] = [GPU, NPU];

impl Part {
    /// Of the component.
    pub fn key(self) -> ComponentKey {
        ComponentKey::new(NAMESPACE, self.name)
    }

    pub fn module(self) -> ObjectKey {
        ObjectKey::new(NAMESPACE, self.name)
    }

    fn label(self, label: Label) -> String {
        label.key(&self.module(), Era::Third).unwrap_or_default()
    }

    /// The label by which people tell KMM which version a node shall have.
    pub fn desired_key(self) -> String {
        self.label(Label::Desired)
    }

    pub fn version_ready_key(self) -> String {
        self.label(Label::VersionReady)
    }

    /// KMM's label that follows the driver's pod.
    pub fn driver_ready_key(self) -> String {
        match self.devices {
            Devices::Plugin(_) => self.label(Label::PluginReady),
            Devices::Dra { .. } => self.label(Label::DraReady),
        }
    }

    /// KMM's copy of the wanted version that lets the driver run.
    pub fn schedule_key(self) -> String {
        self.label(Label::Schedule)
    }

    pub fn module_path(self) -> String {
        format!("/apis/kmm.sigs.x-k8s.io/v1beta1/namespaces/{NAMESPACE}/modules/{}", self.name)
    }

    /// A new version: version, module image and driver image in one edit, as KMM's guide asks for. A merge patch of the Module.
    pub fn release(self, version: &str) -> Value {
        let container =
            json!({"version": version, "containerImage": format!("{}-kmod:{version}-${{KERNEL_FULL_VERSION}}", self.name)});
        let driver = json!({"container": {"image": format!("{}-driver:{version}", self.name)}});
        let field = match self.devices {
            Devices::Plugin(_) => "devicePlugin",
            Devices::Dra { .. } => "dra",
        };
        json!({"spec": {"moduleLoader": {"container": container}, field: driver}})
    }

    /// The Module. It tolerates every taint: KMM unloads on a cordon that it does not tolerate.
    pub fn object(self, version: &str) -> Object {
        let mut told = json!({
            "sim.lockkeeper.dev/plugin.module": self.name, "sim.lockkeeper.dev/plugin.init": "wait-for-module",
            "sim.lockkeeper.dev/plugin.devices": gpu::DEVICES.to_string(), "sim.lockkeeper.dev/pull.exit-after-seconds": "1",
        });
        let mut spec = self.release(version)["spec"].take();
        spec["selector"] = json!({"pool": self.name});
        spec["tolerations"] = json!([{"operator": "Exists"}]);
        spec["moduleLoader"]["container"]["kernelMappings"] = json!([{"regexp": "^.+$"}]);
        spec["moduleLoader"]["container"]["modprobe"] = json!({"moduleName": self.name});
        let wait = json!({"image": format!("{}-wait:1", self.name)});
        match self.devices {
            Devices::Plugin(resource) => {
                told["sim.lockkeeper.dev/plugin.resource"] = json!(resource);
                spec["devicePlugin"]["initContainer"] = wait;
            }
            Devices::Dra { driver, class } => {
                told["sim.lockkeeper.dev/plugin.driver"] = json!(driver);
                spec["dra"]["initContainer"] = wait;
                spec["dra"]["driverName"] = json!(driver);
                spec["dra"]["deviceClasses"] = json!([{"name": class, "spec": dra::class(class, driver).body["spec"]}]);
            }
        }
        let body = json!({"metadata": {"name": self.name, "annotations": told}, "spec": spec});
        Object::new("kmm.sigs.x-k8s.io/v1beta1", "Module", "modules", Some(NAMESPACE), body)
    }

    /// The NodeComponent that follows the Module; so many nodes at once.
    pub fn component(self, max_unavailable: u32) -> Object {
        let devices = match self.devices {
            Devices::Plugin(resource) => json!({"resourceNames": [resource]}),
            Devices::Dra { driver, .. } => json!({"draDrivers": [driver]}),
        };
        let spec = json!({
            "kernelModule": {"kmmModule": {"name": self.name}, "devices": devices},
            "nodeSelector": {"pool": self.name},
            "rollout": {"soak": "5s", "maxFailures": 1000, "maxUnavailable": max_unavailable},
            "drain": {"timeout": "6h"},
        });
        objects::component(NAMESPACE, self.name, spec)
    }

    /// How many of a fleet's nodes have it: about a quarter have a DRA driver.
    fn share(self, nodes: usize) -> usize {
        match self.devices {
            Devices::Plugin(_) => nodes - nodes / 4,
            Devices::Dra { .. } => nodes / 4,
        }
    }

    /// Of a fleet of so many: `gpu-01`, `gpu-02`, …, `npu-01`, …
    pub fn node_names(self, nodes: usize) -> Vec<String> {
        let width = nodes.to_string().len().max(2);
        (1..=self.share(nodes)).map(|n| format!("{}-{n:0width$}", self.name)).collect()
    }

    /// Whose node this is.
    pub fn of_node(node: &str) -> Self {
        if node.starts_with(NPU.name) { NPU } else { GPU }
    }
}

/// All nodes that have one of the Modules.
pub fn node_names(nodes: usize) -> Vec<String> {
    PARTS.into_iter().flat_map(|part| part.node_names(nodes)).collect()
}

/// The Modules that a fleet of this size has.
pub fn parts(nodes: usize) -> Vec<Part> {
    PARTS.into_iter().filter(|part| part.share(nodes) > 0).collect()
}

/// Namespaces and nodes: those with devices, and a few without. KMM's CRDs come with its operator.
pub fn cluster(nodes: usize) -> Vec<Object> {
    let namespaces = ["default", "kube-system", "kube-node-lease", "lockkeeper-system", NAMESPACE, "ml", "web", "monitoring"];
    let mut objects: Vec<Object> = namespaces.iter().map(|name| objects::namespace(name)).collect();
    for part in PARTS {
        objects.extend(part.node_names(nodes).iter().map(|name| objects::node(name, &[("pool", part.name)])));
    }
    objects.extend((1..=nodes.div_ceil(8)).map(|n| objects::node(&format!("plain-{n}"), &[("pool", "plain")])));
    objects
}

/// What runs on the fleet: about half of the devices are held, so that what is evicted finds another place, and more pods hold nothing.
pub fn workloads(nodes: usize, pods_per_node: usize) -> Vec<Object> {
    let mut all = Vec::new();
    if GPU.share(nodes) > 0 {
        // Without the DaemonSet that goes by a label of lockkeeper's: there is none here.
        all.extend(gpu::workloads(GPU.share(nodes), pods_per_node).into_iter().filter(|object| object.kind != "DaemonSet"));
    }
    let npus = u32::try_from(NPU.share(nodes)).unwrap_or(u32::MAX);
    if let (1.., Devices::Dra { class, .. }) = (npus, NPU.devices) {
        all.push(dra::claim_template("ml", "one-npu", json!([dra::request("npu", class)])));
        all.push(objects::deployment(
            "ml",
            "speech",
            npus.saturating_mul(2),
            dra::holder("speech", dra::BY_TEMPLATE, "one-npu", 10),
        ));
        if npus > 1 {
            all.push(objects::budget("ml", "speech", "maxUnavailable", json!(1)));
        }
        all.push(dra::claim("ml", "the-npu", json!([dra::request("npu", class)])));
        all.push(objects::deployment("ml", "vision", 1, dra::holder("vision", dra::BY_NAME, "the-npu", 5)));
    }
    // On every node, and nobody's business.
    let exporter = objects::template("node-exporter", None, 5);
    all.push(objects::daemon_set("monitoring", "node-exporter", json!({}), json!({"type": "RollingUpdate"}), exporter));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_node_has_one_part_and_a_release_changes_version_and_images_alone() {
        for nodes in [1, 3, 4, 12, 100] {
            let names = node_names(nodes);
            assert_eq!(names.len(), nodes);
            for part in parts(nodes) {
                assert!(part.node_names(nodes).iter().all(|node| Part::of_node(node) == part), "{nodes}");
            }
        }
        for part in PARTS {
            let (old, new) = (part.object(OLD).body, part.object(NEW).body);
            let mut edited = old;
            json_patch::merge(&mut edited, &part.release(NEW));
            assert_eq!(edited, new);
        }
    }
}
