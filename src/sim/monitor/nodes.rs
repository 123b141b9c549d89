//! The monitor's checks of Node writes: cordons, budget, lease, and what labels may change into.

use serde_json::Value;

use super::{
    LEASE_SECONDS, Monitor, Write,
    oracle::{self, text},
};
use crate::api::keys::{CORDON, Role};

impl Monitor {
    pub(super) fn on_node(&mut self, write: &Write<'_>, engine: bool) {
        let Some(name) = write.new.or(write.old).and_then(|node| text(node, "/metadata/name")).map(str::to_owned) else { return };
        let (Some(old), Some(new)) = (write.old, write.new) else { return };
        if !engine {
            return;
        }
        self.leads(write, &name);
        self.cordon(write, &name, old, new);
        for component in self.world.components() {
            self.labels(write, &name, old, new, &component);
        }
    }

    /// I9: the writer holds the Lease, and has renewed it lately.
    fn leads(&mut self, write: &Write<'_>, node: &str) {
        let wrong = match &self.lease {
            None => Some("nobody holds the Lease".to_owned()),
            Some((holder, _)) if holder.split('#').next() != Some(write.user) => Some(format!("{holder} holds the Lease")),
            Some((_, renewed)) => {
                let age = write.at.duration_since(*renewed).as_secs();
                (age > LEASE_SECONDS).then(|| format!("its Lease was renewed {age} s before"))
            }
        };
        if let Some(wrong) = wrong {
            self.broken(write.at, "I9", node, format!("{} wrote the Node, but {wrong}", write.user));
        }
    }

    /// I5 and I7.
    fn cordon(&mut self, write: &Write<'_>, node: &str, old: &Value, new: &Value) {
        match (oracle::is_unschedulable(old), oracle::is_unschedulable(new)) {
            (true, false) => {
                let owners = oracle::owners_of_unschedulable(old);
                if !owners.iter().any(|owner| owner == crate::api::MANAGER) || !oracle::has_annotation(old, CORDON) {
                    self.broken(
                        write.at,
                        "I7",
                        node,
                        format!("uncordoned by {}; the cordon is of {}", write.user, owners.join(", ")),
                    );
                }
            }
            (false, true) => {
                let closed = self.world.closed_by_us(node) + 1;
                if closed > self.rules.max_closed {
                    let max = self.rules.max_closed;
                    self.broken(write.at, "I5", node, format!("{closed} nodes closed by lockkeeper at once, budget {max}"));
                }
                if !self.world.has_active_handoff(node) {
                    self.broken(write.at, "I6", node, "cordoned without an active handoff".to_owned());
                }
            }
            _ => {}
        }
    }

    /// I2, I6 and I11: what an engine may make of a component's labels.
    fn labels(&mut self, write: &Write<'_>, node: &str, old: &Value, new: &Value, component: &str) {
        let of = |object: &Value, role: Role| oracle::own_label(object, role, component);
        let (desired, loader, plugin) = (of(new, Role::Desired), of(new, Role::Loader), of(new, Role::Plugin));
        let touched = [Role::Loader, Role::Plugin, Role::Desired].iter().any(|role| of(old, *role) != of(new, *role));
        if touched && !self.world.has_handoff(node, component) && !self.world.is_selected(new, component) {
            self.broken(write.at, "I6", node, format!("labels of {component} changed on a node that nobody chose"));
        }
        if plugin.is_some() && plugin != of(old, Role::Plugin) {
            if loader != plugin {
                self.broken(write.at, "I2", node, format!("plugin label {plugin:?} beside loader label {loader:?}"));
            }
            // A power cut that no status shows yet cannot be known to anybody; the plugin then waits for its module by itself.
            let shown = text(old, "/status/nodeInfo/bootID").map(str::to_owned);
            let known = self.boots.get(node).cloned() == shown;
            for (module, owner) in self.rules.modules.clone().into_iter().filter(|_| known) {
                let in_kernel = self.kernels.get(&(node.to_owned(), module.clone())).cloned();
                if owner == component && in_kernel != plugin {
                    self.broken(
                        write.at,
                        "I2",
                        node,
                        format!("plugin label {plugin:?} while the kernel has {module} {in_kernel:?}"),
                    );
                }
            }
        }
        if loader.is_some() && loader != of(old, Role::Loader) {
            if desired != loader {
                self.broken(write.at, "I11", node, format!("loader label {loader:?} while {desired:?} is asked for"));
            }
            if of(old, Role::Loader).is_some() {
                self.broken(
                    write.at,
                    "I2",
                    node,
                    format!("loader label went from {:?} to {loader:?} in one step", of(old, Role::Loader)),
                );
            }
        }
        if loader.is_none() && of(old, Role::Loader).is_some() {
            if plugin.is_some() {
                self.broken(write.at, "I2", node, "loader label taken off while the plugin label is there".to_owned());
            }
            if let Some(version) = desired.as_ref().filter(|version| !self.world.is_known_version(component, version)) {
                self.broken(write.at, "I11", node, format!("loader label taken off because of {version:?}, which is no version"));
            }
        }
    }
}
