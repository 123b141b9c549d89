//! Scenario `csi`: a fleet with two CSI nodeplugins of Ceph, and workloads with every kind of volume: FUSE, kernel, rbd-nbd, krbd, inline,
//! another driver's, none. Objects only; volumes are bound by whoever sets the scenario up, since a claim's UID is in its volume.

use serde_json::{Value, json};

use super::objects::{self, Object};
use crate::api::ComponentKey;

pub const NAMESPACE: &str = "ceph";
/// Where the pods with volumes are.
pub const SHOP: &str = "shop";
pub const OLD: &str = "v3.11";
pub const NEW: &str = "v3.12";
const POOL: (&str, &str) = ("pool", "worker");

/// A driver with its nodeplugin, handed over as one component.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plugin {
    /// Of the component.
    pub name: &'static str,
    pub driver: &'static str,
    pub daemon_set: &'static str,
    /// `--type`.
    kind: &'static str,
    attach_required: bool,
}

/// No attachment, as ceph-csi's own manifests have it: its mounts are given time.
pub const CEPHFS: Plugin = Plugin {
    name: "cephfs",
    driver: "cephfs.csi.ceph.com",
    daemon_set: "csi-cephfsplugin",
    kind: "cephfs",
    attach_required: false,
};
/// With attachments, which are awaited.
pub const RBD: Plugin =
    Plugin { name: "rbd", driver: "rbd.csi.ceph.com", daemon_set: "csi-rbdplugin", kind: "rbd", attach_required: true };
pub const PLUGINS: [Plugin; 2] = [CEPHFS, RBD];
/// Somebody else's, on the same nodes: never touched.
const OTHER: Plugin =
    Plugin { name: "other", driver: "csi.example.com", daemon_set: "csi-example", kind: "example", attach_required: true };

impl Plugin {
    pub fn key(self) -> ComponentKey {
        ComponentKey::new(NAMESPACE, self.name)
    }

    fn template(self, version: &str) -> Value {
        let app = self.daemon_set;
        let annotations = json!({"sim.lockkeeper.dev/behaviour": "csi-node-plugin", "sim.lockkeeper.dev/driver": self.driver});
        let socket = format!("/var/lib/kubelet/plugins/{}", self.driver);
        json!({
            "metadata": {"labels": {"app": app}, "annotations": annotations},
            "spec": {
                "hostNetwork": true,
                "terminationGracePeriodSeconds": 10,
                "tolerations": [{"operator": "Exists"}],
                "containers": [
                    {"name": app, "image": format!("ceph-csi:{version}"), "args": [
                        format!("--type={}", self.kind), format!("--drivername={}", self.driver)]},
                    {"name": "driver-registrar", "image": "registrar:2", "args": [
                        format!("--kubelet-registration-path={socket}/csi.sock")]},
                ],
                "volumes": [
                    {"name": "socket-dir", "hostPath": {"path": socket}},
                    {"name": "registration-dir", "hostPath": {"path": "/var/lib/kubelet/plugins_registry"}},
                ],
            },
        })
    }

    /// Its DaemonSet with a strategy: `OnDelete`, or the rolling update that people have by default.
    pub fn set(self, version: &str, strategy: &str) -> Object {
        let strategy = match strategy {
            "RollingUpdate" => json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}}),
            other => json!({"type": other}),
        };
        objects::daemon_set(NAMESPACE, self.daemon_set, json!({POOL.0: POOL.1}), strategy, self.template(version))
    }

    /// What a new version of it is: a merge patch of its DaemonSet.
    pub fn release(self, version: &str) -> Value {
        json!({"spec": {"template": {"spec": {"containers": self.template(version)["spec"]["containers"]}}}})
    }

    pub fn set_path(self) -> String {
        format!("/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/{}", self.daemon_set)
    }

    fn driver_object(self) -> Object {
        let body = json!({"metadata": {"name": self.driver}, "spec": {"attachRequired": self.attach_required}});
        Object::new("storage.k8s.io/v1", "CSIDriver", "csidrivers", None, body)
    }

    /// The NodeComponent, one node at a time.
    pub fn component(self) -> Object {
        let spec = json!({
            "csiNodePlugin": {"driver": self.driver, "daemonSet": self.daemon_set, "settle": "15s"},
            "nodeSelector": {POOL.0: POOL.1},
            "rollout": {"soak": "5s", "maxFailures": 1000, "maxUnavailable": 1},
            "drain": {"timeout": "6h"},
        });
        objects::component(NAMESPACE, self.name, spec)
    }
}

/// `node-01`, `node-02`, …
pub fn node_names(nodes: usize) -> Vec<String> {
    let width = nodes.to_string().len().max(2);
    (1..=nodes).map(|n| format!("node-{n:0width$}")).collect()
}

/// Namespaces, nodes, drivers and their nodeplugins in the old version.
pub fn cluster(nodes: usize, strategy: &str) -> Vec<Object> {
    let namespaces = ["default", "kube-system", "kube-node-lease", "lockkeeper-system", NAMESPACE, SHOP, "web", "monitoring"];
    let mut objects: Vec<Object> = namespaces.iter().map(|name| objects::namespace(name)).collect();
    objects.extend(node_names(nodes).iter().map(|name| objects::node(name, &[POOL])));
    objects.extend((1..=nodes.div_ceil(8)).map(|n| objects::node(&format!("plain-{n}"), &[("pool", "plain")])));
    for plugin in PLUGINS.into_iter().chain([OTHER]) {
        objects.push(plugin.driver_object());
        objects.push(plugin.set(OLD, if plugin == OTHER { "OnDelete" } else { strategy }));
    }
    objects
}

/// A claim that is to be bound to a volume of a driver with these attributes.
#[derive(Debug, Clone)]
pub struct Volume {
    pub claim: String,
    driver: &'static str,
    attributes: Value,
}

impl Volume {
    /// `pv-<claim>`.
    pub fn name(&self) -> String {
        format!("pv-{}", self.claim)
    }

    pub fn claim_object(&self) -> Object {
        let spec = json!({"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}},
            "volumeName": self.name(), "storageClassName": ""});
        let body = json!({"metadata": {"name": self.claim}, "spec": spec});
        Object::new("v1", "PersistentVolumeClaim", "persistentvolumeclaims", Some(SHOP), body)
    }

    /// Bound to the claim with this UID.
    pub fn volume_object(&self, claim_uid: &str) -> Object {
        let spec = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany"],
            "csi": {"driver": self.driver, "volumeHandle": format!("handle-{}", self.claim), "volumeAttributes": self.attributes},
            "claimRef": {"namespace": SHOP, "name": self.claim, "uid": claim_uid}});
        Object::new("v1", "PersistentVolume", "persistentvolumes", None, json!({"metadata": {"name": self.name()}, "spec": spec}))
    }
}

fn mounting(app: &str, source: Value) -> Value {
    let mut template = objects::template(app, None, 5);
    template["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    let mut volume = source;
    volume["name"] = json!("data");
    template["spec"]["volumes"] = json!([volume]);
    template
}

fn claimed(app: &str, claim: &str) -> Value {
    mounting(app, json!({"persistentVolumeClaim": {"claimName": claim}}))
}

/// Claims, and the workloads that mount them. Every app has a claim of its own name.
pub fn workloads(nodes: usize, pods_per_node: usize) -> (Vec<Volume>, Vec<Object>) {
    let count = u32::try_from(nodes).unwrap_or(u32::MAX);
    let apps: [(&str, Plugin, Value); 6] = [
        ("fuse-a", CEPHFS, json!({"mounter": "fuse"})),
        ("fuse-b", CEPHFS, json!({"mounter": "fuse"})),
        ("kernel", CEPHFS, json!({"mounter": "kernel"})),
        ("nbd", RBD, json!({"mounter": "rbd-nbd"})),
        ("krbd", RBD, json!({})),
        ("foreign", OTHER, json!({"mounter": "fuse"})),
    ];
    let (mut volumes, mut objects) = (Vec::new(), Vec::new());
    for (app, plugin, attributes) in apps {
        volumes.push(Volume { claim: app.to_owned(), driver: plugin.driver, attributes });
        objects.push(objects::deployment(SHOP, app, count, claimed(app, app)));
        if app != "kernel" {
            objects.push(objects::budget(SHOP, app, "maxUnavailable", json!(1)));
        }
    }
    let inline = json!({"csi": {"driver": CEPHFS.driver, "volumeAttributes": {"mounter": "fuse"}}});
    objects.push(objects::deployment(SHOP, "inline", count.div_ceil(2), mounting("inline", inline)));
    // A DaemonSet that mounts the driver's volume: it comes straight back, so it is restarted after the plugin.
    volumes.push(Volume { claim: "logs".to_owned(), driver: CEPHFS.driver, attributes: json!({"mounter": "fuse"}) });
    objects.push(objects::daemon_set(
        SHOP,
        "logs",
        json!({POOL.0: POOL.1}),
        json!({"type": "RollingUpdate"}),
        claimed("logs", "logs"),
    ));
    let plain = count * u32::try_from(pods_per_node).unwrap_or(u32::MAX);
    for n in 0..plain.div_ceil(50) {
        let app = format!("web-{}", n + 1);
        objects.push(objects::deployment("web", &app, 50.min(plain - n * 50), objects::template(&app, None, 5)));
    }
    for object in &mut objects {
        // Where the nodeplugins are.
        if object.kind == "Deployment" && object.namespace.as_deref() == Some(SHOP) {
            object.body["spec"]["template"]["spec"]["nodeSelector"] = json!({POOL.0: POOL.1});
        }
    }
    (volumes, objects)
}
