//! The monitor's checks where Kernel Module Management loads the modules: what of KMM's an engine may write, and whether what KMM did to a
//! running pod was the engine's order or somebody else's. KMM obeys the version label, cordons and taints whoever sets them.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Map, Value};

use super::{
    Monitor, Write,
    oracle::{self, text},
};
use crate::{
    api::{ObjectKey, keys::CORDON},
    kmm::keys::{self, Era, Label},
    sim::kernel::PodRef,
};

/// Who brought something about.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Doer {
    /// An engine's label, or an engine's cordon.
    Engine,
    /// Somebody else, in words.
    Other(String),
}

/// A change of the wanted version.
#[derive(Debug)]
struct Order {
    user: String,
    engine: bool,
    /// The boot in which it was given.
    boot: Option<String>,
}

/// What the monitor remembers of KMM's doings.
#[derive(Debug, Default)]
pub(super) struct Doings {
    /// Who last changed the wanted version, by node and component.
    wanted_by: BTreeMap<(String, String), Order>,
    /// Why each pod of a plugin or DRA driver went, by UID.
    stops: BTreeMap<String, Doer>,
    /// The provider that went last on each node, by UID.
    last_gone: BTreeMap<String, String>,
    /// Loads that were cut off, by node and Module.
    cut: BTreeMap<(String, String), Doer>,
}

fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.pointer("/metadata/labels")?.get(key)?.as_str()
}

fn key(label: Label, component: &str) -> String {
    let (namespace, name) = component.split_once('/').unwrap_or(("", component));
    label.key(&ObjectKey::new(namespace, name), Era::Third).unwrap_or_default()
}

/// The Module of a plugin's, driver's, worker's or pull pod, or of a DaemonSet.
fn module_of(object: &Value) -> Option<String> {
    let name = label(object, keys::MODULE_NAME).or_else(|| label(object, keys::IMAGE_OWNER))?;
    Some(format!("{}/{name}", text(object, "/metadata/namespace")?))
}

fn leaves(pod: &Value) -> bool {
    text(pod, "/metadata/deletionTimestamp").is_some()
}

/// Keys of a map of strings that differ.
fn changed<'a>(old: &'a Value, new: &'a Value, pointer: &str) -> Vec<&'a str> {
    let map = |object: &'a Value| object.pointer(pointer).and_then(Value::as_object);
    let get = |map: Option<&'a Map<String, Value>>, key: &str| map.and_then(|map| map.get(key));
    let keys = map(old).into_iter().chain(map(new)).flat_map(|map| map.keys());
    let mut changed: Vec<&str> = keys.filter(|key| get(map(old), key) != get(map(new), key)).map(String::as_str).collect();
    changed.sort_unstable();
    changed.dedup();
    changed
}

impl Monitor {
    /// Before the write is part of the picture.
    pub(super) fn on_kmm(&mut self, write: &Write<'_>, engine: bool) {
        if engine {
            self.things_of_kmm(write);
        }
        match write.stored_as {
            "nodes" => self.wanted_versions(write, engine),
            "pods" => self.pods_of_kmm(write, engine),
            _ => {}
        }
    }

    /// I12: of KMM's things an engine writes the version label, and nothing else.
    fn things_of_kmm(&mut self, write: &Write<'_>) {
        let Some(object) = write.new.or(write.old) else { return };
        let name = text(object, "/metadata/name").unwrap_or("?").to_owned();
        let kmms = matches!(write.stored_as, "modules" | "nodemodulesconfigs" | "moduleimagesconfigs");
        let made_by_kmm = matches!(write.stored_as, "pods" | "daemonsets") && module_of(object).is_some();
        if kmms || made_by_kmm {
            let text = format!("{} {} {name}, which is KMM's", write.verb, write.resource);
            return self.broken(write.at, "I12", "", text);
        }
        let (Some(old), Some(new)) = (write.old, write.new) else { return };
        if write.stored_as != "nodes" {
            return;
        }
        let followed: Vec<String> = self.world.kmm_components().iter().map(|it| key(Label::Desired, it)).collect();
        let ours = |changed: &&str| !changed.starts_with("lockkeeper.dev/");
        let labels = changed(old, new, "/metadata/labels").into_iter().filter(ours);
        let labels = labels.filter(|changed| !followed.iter().any(|known| known == changed));
        let wrong: Vec<String> =
            labels.chain(changed(old, new, "/metadata/annotations").into_iter().filter(ours)).map(str::to_owned).collect();
        for wrong in wrong {
            self.broken(write.at, "I12", &name, format!("wrote {wrong}, which is not its own"));
        }
    }

    /// I6 and I11 of the version label; and who changed it last.
    fn wanted_versions(&mut self, write: &Write<'_>, engine: bool) {
        let (Some(old), Some(new)) = (write.old, write.new) else { return };
        let node = text(new, "/metadata/name").unwrap_or_default().to_owned();
        for wanted in changed(old, new, "/metadata/labels") {
            let Some(parsed) = keys::parse(wanted).filter(|parsed| parsed.label == Label::Desired) else { continue };
            let component = format!("{}/{}", parsed.module.namespace, parsed.module.name);
            if engine {
                self.version_label(write, &node, old, new, wanted, &component);
            }
            let order = Order { user: write.user.to_owned(), engine, boot: self.boots.get(&node).cloned() };
            self.kmm.wanted_by.insert((node.clone(), component), order);
        }
    }

    fn version_label(&mut self, write: &Write<'_>, node: &str, old: &Value, new: &Value, wanted: &str, component: &str) {
        if !self.world.has_active_handoff(node) {
            self.broken(write.at, "I6", node, format!("{wanted} changed without an active handoff"));
        }
        let Some(value) = label(new, wanted) else { return };
        // What KMM still has there may be put back; everything else it would take for an order to unload.
        let kept = label(old, &key(Label::Loader, component)) == Some(value);
        let module = self.world.kmm_version(component).map(str::to_owned);
        if !kept && module.as_deref() != Some(value) {
            self.broken(write.at, "I11", node, format!("{wanted} set to {value:?}; the Module has {module:?}"));
        }
    }

    fn pods_of_kmm(&mut self, write: &Write<'_>, engine: bool) {
        let Some(pod) = write.new.or(write.old) else { return };
        let Some(component) = module_of(pod) else { return };
        let goes = write.new.is_none_or(|new| leaves(new)) && !write.old.is_some_and(|old| leaves(old));
        let Some(node) = text(pod, "/spec/nodeName").filter(|_| goes).map(str::to_owned) else { return };
        let uid = text(pod, "/metadata/uid").unwrap_or_default().to_owned();
        if label(pod, keys::WORKER_ACTION) == Some("Load") && !oracle::is_terminal(pod) {
            let doer = match self.whose_order(&node, &component) {
                Doer::Engine if self.rebooted_since(&node, &component) => {
                    Doer::Other("KMM had loaded again what it was taking out when the node was rebooted".to_owned())
                }
                doer => doer,
            };
            self.kmm.cut.insert((node, component), doer);
        } else if label(pod, keys::ROLE).is_some() {
            let doer = self.who_stopped(write, engine, pod, &node, &component);
            self.kmm.stops.insert(uid, doer);
        }
    }

    /// Who changed the wanted version of the node last.
    fn whose_order(&self, node: &str, component: &str) -> Doer {
        match self.kmm.wanted_by.get(&(node.to_owned(), component.to_owned())) {
            Some(order) if order.engine => Doer::Engine,
            Some(order) => Doer::Other(format!("{} changed the version label", order.user)),
            None => Doer::Other("nobody ever asked for a version".to_owned()),
        }
    }

    /// The last order is one of an earlier boot.
    fn rebooted_since(&self, node: &str, component: &str) -> bool {
        let order = self.kmm.wanted_by.get(&(node.to_owned(), component.to_owned()));
        order.is_some_and(|order| order.boot.as_ref() != self.boots.get(node))
    }

    /// The node is closed by an engine, and KMM took that for an order.
    fn closed_by_engine(&self, node: &str, component: &str) -> bool {
        let Some(node) = self.world.node(node) else { return false };
        let ready = label(node, &key(Label::Ready, component)).is_some();
        oracle::is_unschedulable(node) && oracle::has_annotation(node, CORDON) && !ready
    }

    /// Why a driver's pod goes.
    fn who_stopped(&self, write: &Write<'_>, engine: bool, pod: &Value, node: &str, component: &str) -> Doer {
        let schedule = key(Label::Schedule, component);
        let may_run = self.world.node(node).and_then(|node| label(node, &schedule));
        if engine {
            Doer::Engine
        } else if may_run != label(pod, &schedule) {
            self.whose_order(node, component)
        } else if self.closed_by_engine(node, component) {
            Doer::Engine
        } else if matches!(write.user, "controller-manager" | "kubelet") {
            Doer::Other("KMM took the driver away by itself: an edit of the Module, or a taint".to_owned())
        } else {
            Doer::Other(format!("{} deleted the driver's pod", write.user))
        }
    }

    pub(super) fn provider_gone(&mut self, node: &str, pod: &PodRef) {
        self.kmm.last_gone.insert(node.to_owned(), pod.uid.clone());
    }

    /// A pod lost the device that it held because the driver's process ended. True when somebody else than an engine brought that about.
    pub(super) fn driver_taken_by_others(&mut self, node: &str) -> bool {
        let Some(uid) = self.kmm.last_gone.get(node) else { return false };
        let Some(Doer::Other(why)) = self.kmm.stops.get(uid).cloned() else { return false };
        self.others(&format!("a pod lost its device: {why}"));
        self.report.disruptions_by_others += 1;
        true
    }

    fn others(&mut self, what: &str) {
        *self.report.others.entry(what.to_owned()).or_default() += 1;
    }

    /// Whether KMM loads this module: it has a Module of that name, or its component follows one.
    pub(super) fn is_kmms(&self, component: &str) -> bool {
        self.world.is_kmms(component)
    }

    pub(super) fn driver_without_module(&mut self) {
        self.others("KMM let a driver run without its module");
    }

    /// I2: two versions met in a kernel. A load that was cut off leaves its module there unseen.
    pub(super) fn refused_load(&mut self, at: jiff::Timestamp, node: &str, component: &str, told: String) {
        match self.kmm.cut.get(&(node.to_owned(), component.to_owned())) {
            Some(Doer::Other(why)) => {
                let why = format!("KMM loaded over what a load that was cut off had left: {why}");
                self.others(&why);
            }
            _ => self.broken(at, "I2", node, told),
        }
    }

    pub(super) fn booted(&mut self, node: &str) {
        self.kmm.cut.retain(|(known, _), _| known != node);
    }

    /// I1: the module went while pods that use its device were there.
    pub(super) fn unloaded_by_kmm(
        &mut self,
        at: jiff::Timestamp,
        node: &str,
        component: &str,
        version: &str,
        claimants: &[String],
    ) {
        if claimants.is_empty() {
            return;
        }
        let wanted = self.world.node(node).and_then(|node| label(node, &key(Label::Desired, component)));
        let doer = if wanted != Some(version) {
            self.whose_order(node, component)
        } else if self.closed_by_engine(node, component) {
            Doer::Engine
        } else {
            Doer::Other("KMM unloaded by itself: an edit of the Module, or a taint".to_owned())
        };
        match doer {
            Doer::Engine => {
                let text = format!("{component} {version} unloaded by lockkeeper's order under {}", claimants.join(", "));
                self.broken(at, "I1", node, text);
            }
            Doer::Other(why) => self.others(&format!("a module left under pods that use its device: {why}")),
        }
    }
}

/// The version of a Module.
pub(super) fn version(module: &Arc<Value>) -> Option<&str> {
    text(module, "/spec/moduleLoader/container/version")
}

#[cfg(test)]
mod tests;
