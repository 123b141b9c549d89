//! The invariant monitor: reads every accepted write and every kernel event, and says which invariant of the design broke, when, and on what.
//! It decides from the objects alone, with nothing of the engine's code, so that both cannot be wrong in the same way.

mod kmm;
mod nodes;
mod oracle;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use self::oracle::{World, text};
use super::kernel::{Event, What};

/// One accepted write, as the monitor sees it.
#[derive(Debug, Clone, Copy)]
pub struct Write<'a> {
    /// When the request came. One that is held up on its way may be carried out when its sender has long given it up.
    pub came: Timestamp,
    pub at: Timestamp,
    /// Who wrote: the client's user name.
    pub user: &'a str,
    /// `create`, `update`, `patch`, `delete`.
    pub verb: &'a str,
    /// What was asked: `pods/eviction`, `nodes`.
    pub resource: &'a str,
    /// What was written: plural, without group and subresource.
    pub stored_as: &'a str,
    pub old: Option<&'a Arc<Value>>,
    pub new: Option<&'a Arc<Value>>,
}

impl<'a> Write<'a> {
    /// An accepted write of the simulated API server.
    pub fn of(record: &'a crate::sim::apiserver::log::Record) -> Self {
        let stored_as = record.stored_as.split('.').next().unwrap_or_default();
        Self {
            came: record.came,
            at: record.at,
            user: &record.user,
            verb: record.verb,
            resource: &record.resource,
            stored_as,
            old: record.old.as_ref(),
            new: record.new.as_ref(),
        }
    }
}

/// What the monitor must know of the run.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// Users that are lockkeeper engines; the user name is the identity in the Lease.
    pub engines: BTreeSet<String>,
    /// Users that must not write at all.
    pub read_only: BTreeSet<String>,
    /// Nodes that engines may keep closed at once.
    pub max_closed: usize,
    /// Which component a toy kernel's module belongs to, as `namespace/name`.
    pub modules: BTreeMap<String, String>,
}

/// A broken invariant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Violation {
    pub at: Timestamp,
    /// `I1` to `I12`.
    pub invariant: &'static str,
    pub node: String,
    pub text: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {}: {}", self.at, self.invariant, self.node, self.text)
    }
}

/// Figures of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    pub violations: Vec<Violation>,
    /// Workloads that lost their device while running.
    pub disruptions: u64,
    /// As before, where KMM did it at somebody else's order or by itself: not counted there.
    pub disruptions_by_others: u64,
    /// What KMM did at somebody else's order or by itself, and how often.
    pub others: BTreeMap<String, u64>,
    pub claimants_evicted: u64,
    /// Accepted writes of engines.
    pub engine_writes: u64,
    pub modules_loaded: u64,
    pub modules_unloaded: u64,
}

/// Feed it writes and kernel events in the order in which they happened.
#[derive(Debug)]
pub struct Monitor {
    rules: Rules,
    world: World,
    report: Report,
    evicted: BTreeSet<String>,
    /// Loaded version by (node, module), from the kernels.
    kernels: BTreeMap<(String, String), String>,
    /// The boot each machine is in; none while it is off.
    boots: BTreeMap<String, String>,
    /// Running processes by (node, UID), with the drivers whose mounts die with the plugin that they hold.
    mounts: BTreeMap<(String, String), BTreeSet<String>>,
    /// Lease holder and when it was last seen to renew.
    lease: Option<(String, Timestamp)>,
    kmm: kmm::Doings,
}

/// The Lease's duration: a holder that has not renewed for longer must not write.
const LEASE_SECONDS: i64 = 15;

impl Monitor {
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            world: World::default(),
            report: Report::default(),
            evicted: BTreeSet::new(),
            kernels: BTreeMap::new(),
            boots: BTreeMap::new(),
            mounts: BTreeMap::new(),
            lease: None,
            kmm: kmm::Doings::default(),
        }
    }

    pub fn report(&self) -> &Report {
        &self.report
    }

    fn broken(&mut self, at: Timestamp, invariant: &'static str, node: &str, text: String) {
        self.report.violations.push(Violation { at, invariant, node: node.to_owned(), text });
    }

    pub fn on_write(&mut self, write: &Write<'_>) {
        let engine = self.rules.engines.contains(write.user);
        if engine {
            self.report.engine_writes += 1;
        }
        if self.rules.read_only.contains(write.user) {
            self.broken(write.at, "I9", "", format!("{} {} by read-only {}", write.verb, write.resource, write.user));
        }
        match write.stored_as {
            "leases" => self.on_lease(write),
            "nodes" => self.on_node(write, engine),
            "pods" => self.on_pod(write, engine),
            _ => {}
        }
        self.on_kmm(write, engine);
        self.world.apply(write);
    }

    fn on_lease(&mut self, write: &Write<'_>) {
        let Some(new) = write.new.map(|new| &**new).filter(|new| text(new, "/metadata/name") == Some("lockkeeper")) else {
            return;
        };
        let renewed = |lease: Option<&Value>| lease.and_then(|lease| text(lease, "/spec/renewTime").map(str::to_owned));
        if let Some(holder) = text(new, "/spec/holderIdentity").filter(|holder| !holder.is_empty()) {
            let changed = renewed(write.old.map(|old| &**old)) != renewed(Some(new));
            let same_holder = self.lease.as_ref().is_some_and(|(known, _)| known == holder);
            if changed || !same_holder {
                self.lease = Some((holder.to_owned(), write.at));
            }
        } else {
            self.lease = None;
        }
    }

    fn on_pod(&mut self, write: &Write<'_>, engine: bool) {
        let Some(pod) = write.old.or(write.new) else { return };
        let node = text(pod, "/spec/nodeName").unwrap_or_default().to_owned();
        let name = format!(
            "{}/{}",
            text(pod, "/metadata/namespace").unwrap_or_default(),
            text(pod, "/metadata/name").unwrap_or_default()
        );
        if let Some(new) = write.new {
            self.two_loaders(write.at, new);
        }
        if !engine {
            return;
        }
        let uid = text(pod, "/metadata/uid").unwrap_or_default().to_owned();
        if write.resource == "pods/eviction" {
            self.on_eviction(write, pod, &node, &name, uid);
        } else if write.verb == "delete" && self.of_nodeplugin(write.at, pod, &node, &name) {
        } else if write.verb == "delete" && oracle::component_of(pod).is_none() && !self.world.overridden(&node, &uid, write.at) {
            self.broken(write.at, "I8", &node, format!("deleted {name} without an eviction and without an override"));
        }
    }

    /// I6 and I10: only claimants on a node in a handoff, each at most once.
    fn on_eviction(&mut self, write: &Write<'_>, pod: &Value, node: &str, name: &str, uid: String) {
        let leaves = |pod: &Value| text(pod, "/metadata/deletionTimestamp").is_some();
        if write.old.is_some_and(|old| leaves(old)) {
            return self.broken(write.at, "I10", node, format!("evicted {name}, which was on its way out"));
        }
        if write.new.is_some_and(|new| !leaves(new)) {
            return; // The condition that precedes the delete.
        }
        if self.evicted.insert(uid) {
            self.report.claimants_evicted += 1;
        } else {
            self.broken(write.at, "I10", node, format!("evicted {name} a second time"));
        }
        if self.world.claims(pod, &self.rules).is_none() {
            self.broken(write.at, "I6", node, format!("evicted {name}, which claims nothing of a component"));
        }
        if !self.world.had_active_handoff(node, write.came) {
            self.broken(write.at, "I6", node, format!("evicted {name} on a node without an active handoff"));
        }
    }

    /// I3: a nodeplugin pod goes only when nobody but DaemonSet pods has a mount that dies with it. True: it is one, or a DaemonSet's pod that
    /// is restarted for its dead mount.
    fn of_nodeplugin(&mut self, at: Timestamp, pod: &Value, node: &str, name: &str) -> bool {
        let drivers = self.world.csi_drivers();
        if let Some(driver) = oracle::serves(pod).filter(|driver| drivers.contains(*driver)) {
            let driver = driver.to_owned();
            let holds = |((on, _), held): &(&(String, String), &BTreeSet<String>)| *on == node && held.contains(&driver);
            let users: Vec<String> = self
                .mounts
                .iter()
                .filter(holds)
                .filter_map(|((_, uid), _)| self.world.pod(uid))
                .filter(|user| !oracle::is_of_daemon_set(user))
                .map(|user| text(user, "/metadata/name").unwrap_or("?").to_owned())
                .collect();
            if !users.is_empty() {
                self.broken(at, "I3", node, format!("deleted {name} while {} had mounts of {driver}", users.join(", ")));
            }
            if !self.world.has_active_handoff(node) {
                self.broken(at, "I6", node, format!("deleted {name} on a node without an active handoff"));
            }
            return true;
        }
        let restarted = oracle::is_of_daemon_set(pod) && drivers.iter().any(|driver| self.world.mount_dies(pod, driver));
        restarted && self.world.has_active_handoff(node)
    }

    /// I2: loader pods of two versions are never on a node at once.
    fn two_loaders(&mut self, at: Timestamp, pod: &Value) {
        let (Some(component), Some(node)) = (oracle::component_of(pod), text(pod, "/spec/nodeName")) else { return };
        if oracle::role_of(pod) != Some("loader") || oracle::is_terminal(pod) {
            return;
        }
        let version = oracle::version_of(pod);
        let other = self.world.pods_on(node).find(|other| {
            oracle::component_of(other).as_ref() == Some(&component)
                && oracle::role_of(other) == Some("loader")
                && !oracle::is_terminal(other)
                && oracle::version_of(other) != version
        });
        if let Some(other) = other {
            let text =
                format!("loader pods of {} and {} at once", version.unwrap_or("?"), oracle::version_of(other).unwrap_or("?"));
            let node = node.to_owned();
            self.broken(at, "I2", &node, text);
        }
    }

    pub fn on_kernel(&mut self, event: &Event) {
        let node = event.node.as_str();
        match &event.what {
            What::ProcessStarted { pod, holds } => {
                let dies = holds.iter().filter(|hold| hold.dies_with_provider).filter_map(|hold| match &hold.service {
                    Some(super::kernel::Service::Csi(driver)) => Some(driver.clone()),
                    _ => None,
                });
                let dies: BTreeSet<String> = dies.collect();
                if !dies.is_empty() {
                    self.mounts.insert((node.to_owned(), pod.uid.clone()), dies);
                }
            }
            What::ProcessEnded { pod } => {
                self.mounts.remove(&(node.to_owned(), pod.uid.clone()));
            }
            What::Booted { boot_id } => {
                self.kernels.retain(|(known, _), _| known != node);
                self.boots.insert(node.to_owned(), boot_id.clone());
                self.booted(node);
            }
            What::PoweredOff { .. } => {
                self.mounts.retain(|(on, _), _| on != node);
                self.kernels.retain(|(known, _), _| known != node);
                self.boots.remove(node);
            }
            What::ModuleLoaded { module, version, .. } => {
                self.report.modules_loaded += 1;
                self.kernels.insert((node.to_owned(), module.clone()), version.clone());
                self.loaded_by_order(event.at, node, module, version);
            }
            What::LoadRefused { module, version, loaded, .. } => {
                let told = format!("loader of {module} {version} met version {loaded} in the kernel");
                match self.rules.modules.get(module).filter(|component| self.is_kmms(component)).cloned() {
                    Some(component) => self.refused_load(event.at, node, &component, told),
                    None => self.broken(event.at, "I2", node, told),
                }
            }
            What::ModuleUnloaded { module, version, pod, forced } => {
                self.report.modules_unloaded += 1;
                self.kernels.remove(&(node.to_owned(), module.clone()));
                self.unloaded_when_empty(event.at, node, module, version, &pod.uid, *forced);
            }
            What::ProviderWithoutModule { module, .. }
                if self.rules.modules.get(module).is_some_and(|component| self.is_kmms(component)) =>
            {
                self.driver_without_module();
            }
            What::ProviderWithoutModule { module, version, loaded, .. } => {
                let loaded = loaded.as_deref().unwrap_or("none");
                self.broken(event.at, "I2", node, format!("plugin of {module} {version} serves; loaded: {loaded}"));
            }
            // A DaemonSet's pod cannot leave: it is restarted after the plugin.
            What::Disrupted { pod, cause: super::kernel::Cause::MountLost, .. }
                if self.world.pod(&pod.uid).is_some_and(oracle::is_of_daemon_set) => {}
            What::ProviderGone { pod, .. } => self.provider_gone(node, pod),
            What::Disrupted { cause, .. } => {
                let driver = matches!(cause, super::kernel::Cause::PluginGone | super::kernel::Cause::DriverGone);
                if !(driver && self.driver_taken_by_others(node)) {
                    self.report.disruptions += 1;
                }
            }
            _ => {}
        }
    }

    /// I11: what is loaded is what the record and the loader label say, and somebody asked for it.
    fn loaded_by_order(&mut self, at: Timestamp, node: &str, module: &str, version: &str) {
        // What KMM loads is what the label says, which nobody else records.
        let Some(component) = self.rules.modules.get(module).filter(|it| !self.is_kmms(it)).cloned() else { return };
        let Some(record) = self.world.record(node, &component) else {
            return self.broken(at, "I11", node, format!("{module} {version} loaded without a record on the node"));
        };
        if record.version.as_deref() != Some(version) {
            let recorded = record.version.unwrap_or_else(|| "nothing".into());
            self.broken(at, "I11", node, format!("{module} {version} loaded; the record says {recorded}"));
        }
    }

    /// I1 and I11: nothing live claims it, and a stop was recorded for it.
    fn unloaded_when_empty(&mut self, at: Timestamp, node: &str, module: &str, version: &str, by: &str, forced: bool) {
        let Some(component) = self.rules.modules.get(module).cloned() else { return };
        // A claimant bound after the unload pod was made was not there to be seen; if it ran, the kernel refused.
        let since = self.world.created(by);
        let claimants: Vec<String> = self
            .world
            .pods_on(node)
            .filter(|pod| !oracle::is_terminal(pod) && self.world.uses(pod, &component))
            .filter(|pod| since.is_none() || self.world.bound_at(pod) <= since)
            .map(|pod| {
                format!("{}/{}", text(pod, "/metadata/namespace").unwrap_or("?"), text(pod, "/metadata/name").unwrap_or("?"))
            })
            .collect();
        if self.is_kmms(&component) {
            return self.unloaded_by_kmm(at, node, &component, version, &claimants);
        }
        if !claimants.is_empty() {
            self.broken(at, "I1", node, format!("{module} {version} unloaded under {}", claimants.join(", ")));
        } else if forced {
            self.broken(at, "I1", node, format!("{module} {version} forced out of the kernel"));
        }
        let stopped = self
            .world
            .record(node, &component)
            .is_some_and(|record| record.stopped && record.version.as_deref() == Some(version));
        if !stopped {
            self.broken(
                at,
                "I11",
                node,
                format!("{module} {version} unloaded though its record does not say that it was stopped"),
            );
        }
    }

    /// What must hold once everything has come to rest.
    pub fn at_rest(&mut self, at: Timestamp) {
        for (node, text) in self.world.cordons_left() {
            self.broken(at, "I7", &node, text);
        }
    }
}
