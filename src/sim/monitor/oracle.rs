//! The monitor's own picture of the cluster, from whole objects: who claims what, who asked for what. Independent of `fleet` and `drain`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use serde_json::Value;

use super::{Rules, Write};
use crate::api::keys::{self, CORDON, Role};

pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> Option<&'a str> {
    object.pointer(pointer).and_then(Value::as_str)
}

fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.pointer("/metadata/labels")?.get(key)?.as_str()
}

fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.pointer("/metadata/annotations")?.get(key)?.as_str()
}

pub(super) fn has_annotation(object: &Value, key: &str) -> bool {
    annotation(object, key).is_some()
}

fn split(component: &str) -> crate::api::ComponentKey {
    let (namespace, name) = component.split_once('/').unwrap_or(("", component));
    crate::api::ComponentKey::new(namespace, name)
}

pub(super) fn own_label(node: &Value, role: Role, component: &str) -> Option<String> {
    label(node, &role.key(&split(component))).map(str::to_owned)
}

/// `namespace/name` of the component whose pod this is.
pub(super) fn component_of(pod: &Value) -> Option<String> {
    Some(format!("{}/{}", text(pod, "/metadata/namespace")?, label(pod, keys::COMPONENT)?))
}

pub(super) fn role_of(pod: &Value) -> Option<&str> {
    label(pod, keys::ROLE)
}

pub(super) fn version_of(pod: &Value) -> Option<&str> {
    label(pod, keys::VERSION)
}

/// The CSI driver that a simulated nodeplugin pod serves, or holds the network of.
pub(super) fn serves(pod: &Value) -> Option<&str> {
    let plugin = matches!(annotation(pod, "sim.lockkeeper.dev/behaviour"), Some("csi-node-plugin" | "csi-holder"));
    annotation(pod, "sim.lockkeeper.dev/driver").filter(|_| plugin)
}

pub(super) fn is_of_daemon_set(pod: &Value) -> bool {
    let owners = pod.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    owners.into_iter().flatten().any(|owner| owner["controller"] == true && text(owner, "/kind") == Some("DaemonSet"))
}

pub(super) fn is_terminal(pod: &Value) -> bool {
    matches!(text(pod, "/status/phase"), Some("Succeeded" | "Failed"))
}

pub(super) fn is_unschedulable(node: &Value) -> bool {
    node.pointer("/spec/unschedulable").and_then(Value::as_bool).unwrap_or(false)
}

pub(super) fn owners_of_unschedulable(node: &Value) -> Vec<String> {
    let entries = node.pointer("/metadata/managedFields").and_then(Value::as_array);
    entries
        .into_iter()
        .flatten()
        .filter(|entry| entry.pointer("/fieldsV1/f:spec/f:unschedulable").is_some())
        .filter_map(|entry| text(entry, "/manager").map(str::to_owned))
        .collect()
}

/// The record annotation, read leniently.
pub(super) struct Record {
    pub version: Option<String>,
    pub stopped: bool,
}

#[derive(Debug, Default)]
pub(super) struct World {
    nodes: BTreeMap<String, Arc<Value>>,
    pods: BTreeMap<String, Arc<Value>>,
    by_node: BTreeMap<String, BTreeSet<String>>,
    bound: BTreeMap<String, Timestamp>,
    claims: BTreeMap<(String, String), Arc<Value>>,
    volume_claims: BTreeMap<(String, String), Arc<Value>>,
    volumes: BTreeMap<String, Arc<Value>>,
    components: BTreeMap<String, Arc<Value>>,
    /// Versions that a DaemonSet or a spec has named, by component.
    versions: BTreeMap<String, BTreeSet<String>>,
    handoffs: BTreeMap<String, Arc<Value>>,
    /// KMM's.
    modules: BTreeMap<String, Arc<Value>>,
}

impl World {
    pub(super) fn apply(&mut self, write: &Write<'_>) {
        let Some(object) = write.new.or(write.old) else { return };
        let name = text(object, "/metadata/name").unwrap_or_default().to_owned();
        let namespace = text(object, "/metadata/namespace").unwrap_or_default().to_owned();
        let gone = write.new.is_none();
        match write.stored_as {
            "nodes" => put(&mut self.nodes, name, object, gone),
            "resourceclaims" => put(&mut self.claims, (namespace, name), object, gone),
            "persistentvolumeclaims" => put(&mut self.volume_claims, (namespace, name), object, gone),
            "persistentvolumes" => put(&mut self.volumes, name, object, gone),
            "nodehandoffs" => put(&mut self.handoffs, format!("{namespace}/{name}"), object, gone),
            "modules" => put(&mut self.modules, format!("{namespace}/{name}"), object, gone),
            "nodecomponents" => {
                let key = format!("{namespace}/{name}");
                if let Some(version) = text(object, "/spec/version") {
                    self.versions.entry(key.clone()).or_default().insert(version.to_owned());
                }
                put(&mut self.components, key, object, gone);
            }
            "pods" => self.apply_pod(object, gone, write.at),
            _ => {}
        }
    }

    fn apply_pod(&mut self, pod: &Arc<Value>, gone: bool, at: Timestamp) {
        let uid = text(pod, "/metadata/uid").unwrap_or_default().to_owned();
        if let Some(node) = text(pod, "/spec/nodeName") {
            let on = self.by_node.entry(node.to_owned()).or_default();
            if gone {
                on.remove(&uid);
                self.bound.remove(&uid);
            } else if on.insert(uid.clone()) {
                self.bound.insert(uid.clone(), at);
            }
        }
        put(&mut self.pods, uid, pod, gone);
    }

    pub(super) fn pods_on(&self, node: &str) -> impl Iterator<Item = &Value> {
        self.by_node.get(node).into_iter().flatten().filter_map(|uid| self.pods.get(uid).map(|pod| &**pod))
    }

    pub(super) fn pod(&self, uid: &str) -> Option<&Value> {
        self.pods.get(uid).map(|pod| &**pod)
    }

    /// Drivers of CSI nodeplugin components.
    pub(super) fn csi_drivers(&self) -> BTreeSet<String> {
        self.components.values().filter_map(|it| text(it, "/spec/csiNodePlugin/driver").map(str::to_owned)).collect()
    }

    /// The pod uses a volume of the driver that is served from the nodeplugin's pod.
    pub(super) fn mount_dies(&self, pod: &Value, driver: &str) -> bool {
        self.mounts(pod, driver, |source| matches!(text(source, "/volumeAttributes/mounter"), Some("fuse" | "rbd-nbd")))
    }

    /// The pod has to leave for the component: its mount dies, or all are mounted anew, or all hang on a holder.
    fn leaves_for(&self, pod: &Value, component: &Value) -> bool {
        let Some(driver) = text(component, "/spec/csiNodePlugin/driver") else { return false };
        let set = text(component, "/spec/csiNodePlugin/daemonSet").unwrap_or_default();
        let all = set.contains("plugin-holder")
            || text(component, "/spec/csiNodePlugin/remount").is_some()
            || text(component, "/spec/csiNodePlugin/drain") == Some("All");
        self.mount_dies(pod, driver) || all && self.mounts(pod, driver, |_| true)
    }

    fn mounts(&self, pod: &Value, driver: &str, counts: impl Fn(&Value) -> bool) -> bool {
        let namespace = text(pod, "/metadata/namespace").unwrap_or_default();
        let source = |volume: &Value| -> Option<Value> {
            if let Some(inline) = volume.get("csi") {
                return Some(inline.clone());
            }
            let claim = text(volume, "/persistentVolumeClaim/claimName")?;
            let claim = self.volume_claims.get(&(namespace.to_owned(), claim.to_owned()))?;
            self.volumes.get(text(claim, "/spec/volumeName")?)?.pointer("/spec/csi").cloned()
        };
        let volumes = pod.pointer("/spec/volumes").and_then(Value::as_array);
        volumes.into_iter().flatten().filter_map(source).any(|source| text(&source, "/driver") == Some(driver) && counts(&source))
    }

    pub(super) fn bound_at(&self, pod: &Value) -> Option<Timestamp> {
        self.bound.get(text(pod, "/metadata/uid")?).copied()
    }

    pub(super) fn created(&self, uid: &str) -> Option<Timestamp> {
        self.bound.get(uid).copied()
    }

    pub(super) fn node(&self, name: &str) -> Option<&Value> {
        self.nodes.get(name).map(|node| &**node)
    }

    /// Components that follow a Module of KMM's, by the Module's `namespace/name`.
    pub(super) fn kmm_components(&self) -> Vec<String> {
        let follows = |(key, component): (&String, &Arc<Value>)| {
            let module = text(component, "/spec/kernelModule/kmmModule/name")?;
            Some(format!("{}/{module}", key.split('/').next().unwrap_or_default()))
        };
        self.components.iter().filter_map(follows).collect()
    }

    pub(super) fn is_kmms(&self, component: &str) -> bool {
        match self.components.get(component) {
            Some(component) => text(component, "/spec/kernelModule/kmmModule/name").is_some(),
            None => self.modules.contains_key(component),
        }
    }

    /// The version that a Module has now.
    pub(super) fn kmm_version(&self, module: &str) -> Option<&str> {
        self.modules.get(module).and_then(super::kmm::version)
    }

    pub(super) fn components(&self) -> Vec<String> {
        self.components.keys().cloned().collect()
    }

    pub(super) fn is_known_version(&self, component: &str, version: &str) -> bool {
        self.versions.get(component).is_some_and(|known| known.contains(version))
    }

    pub(super) fn record(&self, node: &str, component: &str) -> Option<Record> {
        let raw = annotation(self.nodes.get(node)?, &Role::Loaded.key(&split(component)))?;
        let record: Value = serde_json::from_str(raw).ok()?;
        Some(Record { version: text(&record, "/version").map(str::to_owned), stopped: text(&record, "/stoppedBoot").is_some() })
    }

    /// Nodes other than `node` that are closed and carry our cordon annotation.
    pub(super) fn closed_by_us(&self, node: &str) -> usize {
        self.nodes
            .iter()
            .filter(|(name, object)| *name != node && is_unschedulable(object) && has_annotation(object, CORDON))
            .count()
    }

    fn handoffs_of(&self, node: &str) -> impl Iterator<Item = &Value> {
        self.handoffs.values().map(|handoff| &**handoff).filter(move |handoff| text(handoff, "/spec/node") == Some(node))
    }

    pub(super) fn has_handoff(&self, node: &str, component: &str) -> bool {
        let key = split(component);
        self.handoffs_of(node).any(|handoff| {
            text(handoff, "/spec/component") == Some(&*key.name) && text(handoff, "/metadata/namespace") == Some(&*key.namespace)
        })
    }

    pub(super) fn has_active_handoff(&self, node: &str) -> bool {
        self.handoffs_of(node).any(|handoff| !matches!(text(handoff, "/status/phase"), Some("Done" | "Failed" | "Aborted")))
    }

    /// There is one, or it has ended since then.
    pub(super) fn had_active_handoff(&self, node: &str, then: Timestamp) -> bool {
        let ended_since = |handoff: &Value| {
            let ended = text(handoff, "/status/phaseSince").and_then(|since| since.parse::<Timestamp>().ok());
            ended.is_some_and(|ended| ended > then)
        };
        self.has_active_handoff(node) || self.handoffs_of(node).any(ended_since)
    }

    pub(super) fn is_selected(&self, node: &Value, component: &str) -> bool {
        let Some(selector) = self.components.get(component).and_then(|object| object.pointer("/spec/nodeSelector")?.as_object())
        else {
            return self.components.contains_key(component);
        };
        selector.iter().all(|(key, value)| label(node, key) == value.as_str())
    }

    /// An unexpired override for the pod in a handoff of the node.
    pub(super) fn overridden(&self, node: &str, uid: &str, at: Timestamp) -> bool {
        self.handoffs_of(node).any(|handoff| {
            let overrides = handoff.pointer("/spec/overrides").and_then(Value::as_array);
            overrides.into_iter().flatten().any(|one| {
                text(one, "/podUid") == Some(uid)
                    && text(one, "/until").and_then(|until| until.parse::<Timestamp>().ok()).is_some_and(|until| at <= until)
            })
        })
    }

    /// The component whose device this pod claims, if it is not one of the component's own pods.
    pub(super) fn claims(&self, pod: &Value, rules: &Rules) -> Option<String> {
        let csi = self.components.iter().find(|(_, component)| self.leaves_for(pod, component));
        if let Some((component, _)) = csi {
            return Some(component.clone());
        }
        let own = component_of(pod);
        let by_reboot = |component: &str| {
            self.components.get(component).and_then(|object| text(object, "/spec/kernelModule/unloadBy")) == Some("Reboot")
        };
        let claims = |component: &&String| by_reboot(component) || self.uses(pod, component);
        rules.modules.values().find(|component| own.as_ref() != Some(component) && claims(component)).cloned()
    }

    /// It would break without the component, reboot or not.
    pub(super) fn uses(&self, pod: &Value, component: &str) -> bool {
        if component_of(pod).as_deref() == Some(component) {
            return false;
        }
        let Some(devices) = self.components.get(component).and_then(|object| object.pointer("/spec/kernelModule/devices")) else {
            return false;
        };
        let strings = |key: &str| -> Vec<String> {
            let list = devices.get(key).and_then(Value::as_array);
            list.into_iter().flatten().filter_map(|item| item.as_str().map(str::to_owned)).collect()
        };
        strings("resourceNames").iter().any(|resource| requests(pod, resource))
            || self.holds_claim(pod, &strings("draDrivers"))
            || self.is_selected_pod(pod, devices, &strings("podNamespaces"))
    }

    fn holds_claim(&self, pod: &Value, drivers: &[String]) -> bool {
        let namespace = text(pod, "/metadata/namespace").unwrap_or_default();
        let named = pod.pointer("/spec/resourceClaims").and_then(Value::as_array);
        let made = pod.pointer("/status/resourceClaimStatuses").and_then(Value::as_array);
        let extended = text(pod, "/status/extendedResourceClaimStatus/resourceClaimName");
        let (named, made) = (named.map(Vec::as_slice).unwrap_or_default(), made.map(Vec::as_slice).unwrap_or_default());
        // What nobody has resolved may be one of this driver.
        let unresolved = |entry: &Value| {
            text(entry, "/resourceClaimName").is_none() && !made.iter().any(|made| text(made, "/name") == text(entry, "/name"))
        };
        if !drivers.is_empty() && named.iter().any(unresolved) {
            return true;
        }
        let names = named.iter().chain(made).filter_map(|entry| text(entry, "/resourceClaimName"));
        names.chain(extended).any(|name| {
            let Some(claim) = self.claims.get(&(namespace.to_owned(), name.to_owned())) else { return !drivers.is_empty() };
            let results = claim.pointer("/status/allocation/devices/results").and_then(Value::as_array);
            results
                .into_iter()
                .flatten()
                .any(|result| text(result, "/driver").is_some_and(|driver| drivers.iter().any(|known| known == driver)))
        })
    }

    fn is_selected_pod(&self, pod: &Value, devices: &Value, namespaces: &[String]) -> bool {
        let Some(wanted) = devices.pointer("/podSelector/matchLabels").and_then(Value::as_object) else { return false };
        let namespace = text(pod, "/metadata/namespace").unwrap_or_default();
        namespaces.iter().any(|known| known == namespace) && wanted.iter().all(|(key, value)| label(pod, key) == value.as_str())
    }

    /// Nodes that are closed by us though none of their handoffs runs or ended closed.
    pub(super) fn cordons_left(&self) -> Vec<(String, String)> {
        let ours = self.nodes.iter().filter(|(_, node)| has_annotation(node, CORDON));
        ours.filter(|(name, _)| !self.handoffs_of(name).any(|handoff| !matches!(text(handoff, "/status/phase"), Some("Done"))))
            .map(|(name, _)| (name.clone(), "lockkeeper's cordon outlives its handoff".to_owned()))
            .collect()
    }
}

fn put<K: Ord>(map: &mut BTreeMap<K, Arc<Value>>, key: K, object: &Arc<Value>, gone: bool) {
    if gone {
        map.remove(&key);
    } else {
        map.insert(key, object.clone());
    }
}

fn requests(pod: &Value, resource: &str) -> bool {
    let asks = |container: &Value| {
        ["requests", "limits"].iter().any(|kind| {
            let quantity = container.pointer("/resources").and_then(|all| all.get(kind)?.get(resource));
            quantity.is_some_and(|quantity| quantity.as_str() != Some("0") && quantity.as_i64() != Some(0))
        })
    };
    ["/spec/containers", "/spec/initContainers"]
        .iter()
        .any(|list| pod.pointer(list).and_then(Value::as_array).into_iter().flatten().any(asks))
}
