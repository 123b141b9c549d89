//! One simulated machine: its power, its kubelet, its toy kernel and the pods on it. Pure; the API is spoken to elsewhere.

use super::super::clock::Dice;
use super::super::records::Map;
use super::options::KubeletOptions;
use super::run::{Context, Run};
use crate::sim::kernel::{Kernel, Service};
use jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// A machine as it is bought: what its kubelet registers the Node with.
#[derive(Clone, Debug)]
pub struct MachineSpec {
    pub name: String,
    pub labels: Map,
    /// Quantities by resource name, for capacity and allocatable.
    pub capacity: BTreeMap<String, String>,
    pub kernel_version: String,
    /// Taints that the kubelet registers the Node with, each as a JSON object.
    pub taints: Vec<Value>,
}

impl MachineSpec {
    /// A machine of 64 cores with the labels that every node has.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let labels = [("kubernetes.io/hostname", name), ("kubernetes.io/os", "linux"), ("kubernetes.io/arch", "amd64")];
        let capacity = [("cpu", "64"), ("memory", "256Gi"), ("pods", "110"), ("ephemeral-storage", "500Gi")];
        Self {
            name: name.to_owned(),
            labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            capacity: capacity.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            kernel_version: "6.8.0-31-generic".to_owned(),
            taints: Vec::new(),
        }
    }

    /// With one more label.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }
}

/// Power of the machine and of its kubelet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Power {
    /// The kubelet runs.
    On,
    /// The kubelet is dead or cut off; processes run on.
    KubeletDown,
    /// Nothing runs; boots at this time, if ever.
    Off(Option<Instant>),
}

/// What is shown in the API for a service, and what shall be shown from when.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shown {
    pub devices: i64,
    pub pending: Option<(i64, Instant)>,
}

/// A machine.
#[derive(Debug)]
pub struct Machine {
    pub spec: MachineSpec,
    pub power: Power,
    pub boots: u64,
    pub kernel: Kernel,
    pub runs: BTreeMap<String, Run>,
    pub ready_at: Instant,
    pub shown: BTreeMap<Service, Shown>,
    /// The Node object was made (or found) since the kubelet's start; a kubelet registers only once.
    pub registered: bool,
    pub lease_at: Option<Instant>,
    pub status_at: Option<Instant>,
    /// UID of the Node that `reported` was written to.
    pub reported: Option<(String, Value)>,
    pub ready_since: (bool, Timestamp),
    /// The Node's labels as the kubelet knows them, and newer ones with the time from which it does.
    labels: Map,
    labels_coming: Vec<(Instant, Map)>,
    draws: u64,
}

impl Machine {
    #[must_use]
    pub fn new(spec: MachineSpec, dice: Dice, at: Instant, now: Timestamp) -> Self {
        let kernel = Kernel::new(&spec.name, boot_id(dice, &spec.name, 1), now);
        Self {
            spec,
            power: Power::On,
            boots: 1,
            kernel,
            runs: BTreeMap::new(),
            ready_at: at,
            shown: BTreeMap::new(),
            registered: false,
            lease_at: None,
            status_at: None,
            reported: None,
            ready_since: (true, now),
            labels: Map::new(),
            labels_coming: Vec::new(),
            draws: 0,
        }
    }

    /// Cuts the power; processes, modules and registrations are gone.
    pub fn power_off(&mut self, until: Option<Instant>, now: Timestamp) {
        self.kernel.power_off(now);
        self.power = Power::Off(until);
        for run in self.runs.values_mut() {
            run.power_cut(now);
        }
    }

    /// Boots: an empty kernel under a new boot ID, a kubelet that is not Ready for a while and starts all pods again.
    pub fn boot(&mut self, dice: Dice, options: &KubeletOptions, at: Instant, now: Timestamp) {
        self.boots += 1;
        self.kernel.boot(boot_id(dice, &self.spec.name, self.boots), now);
        self.power = Power::On;
        self.ready_at = at + dice.between(options.not_ready, &["not-ready", &self.spec.name, &self.boots.to_string()]);
        (self.registered, self.lease_at, self.status_at, self.reported) = (false, None, None, None);
        // A kubelet that starts knows of no plugin: the first status it writes says zero.
        self.shown.retain(|service, _| matches!(service, Service::Resource(_)));
        self.shown.values_mut().for_each(|shown| *shown = Shown::default());
    }

    /// The Node's labels changed; the kubelet sees it after its lag.
    pub fn labels_changed(&mut self, labels: &Map, dice: Dice, options: &KubeletOptions, at: Instant) {
        self.draws += 1;
        let lag = dice.between(options.label_lag, &["labels", &self.spec.name, &self.draws.to_string()]);
        let after = self.labels_coming.last().map_or(at, |(due, _)| *due);
        self.labels_coming.push(((at + lag).max(after), labels.clone()));
    }

    /// The kubelet has asked for them.
    pub fn labels_read(&mut self, labels: Map) {
        self.labels_coming.clear();
        self.labels = labels;
    }

    /// The Node's labels as the kubelet knows them now.
    pub fn labels(&mut self, at: Instant) -> &Map {
        while self.labels_coming.first().is_some_and(|(due, _)| *due <= at) {
            self.labels = self.labels_coming.remove(0).1;
        }
        &self.labels
    }

    /// Compares what the kernel offers with what is shown, and plans the changes with their lag.
    pub fn plan_shown(&mut self, dice: Dice, options: &KubeletOptions, at: Instant) {
        for provider in self.kernel.providers() {
            self.shown.entry(provider.service.clone()).or_default();
        }
        self.draws += 1;
        let count = self.draws;
        for (service, shown) in &mut self.shown {
            let wanted = self.kernel.provider(service).map_or(0, |provider| provider.devices.max(1));
            if wanted == shown.devices {
                shown.pending = None;
            } else if shown.pending.is_none_or(|(value, _)| value != wanted) {
                let name = format!("{service:?}");
                let draw =
                    |range| dice.between(range, &["shown", &self.spec.name, &name, &count.to_string(), &wanted.to_string()]);
                let lag = match service {
                    Service::Resource(_) => draw(options.allocatable_lag),
                    Service::Dra(_) if wanted == 0 => options.slice_wipe,
                    Service::Dra(_) | Service::Csi(_) => draw(options.slice_lag),
                };
                shown.pending = Some((wanted, at + lag));
            }
        }
    }

    /// Applies the planned changes that are due; true if something changed.
    pub fn show_due(&mut self, at: Instant) -> bool {
        let mut changed = false;
        for shown in self.shown.values_mut() {
            if let Some((value, due)) = shown.pending
                && due <= at
            {
                *shown = Shown { devices: value, pending: None };
                changed = true;
            }
        }
        changed
    }

    /// When the next planned change is due.
    #[must_use]
    pub fn next_shown(&self) -> Option<Instant> {
        self.shown.values().filter_map(|shown| shown.pending.map(|(_, due)| due)).min()
    }

    /// Free devices of a service for a new pod.
    #[must_use]
    pub fn free(&self, resource: &str) -> i64 {
        let offered = self.kernel.provider(&Service::Resource(resource.to_owned())).map_or(0, |provider| provider.devices);
        let used: i64 = self
            .runs
            .values()
            .filter(|run| run.active())
            .flat_map(|run| &run.resources)
            .filter(|(name, _)| name == resource)
            .map(|(_, count)| count)
            .sum();
        offered - used
    }

    /// A run together with what its steps may use.
    pub fn with_run<'a>(
        &'a mut self,
        uid: &str,
        options: &'a KubeletOptions,
        dice: Dice,
        at: Instant,
        now: Timestamp,
    ) -> Option<(&'a mut Run, Context<'a>)> {
        let run = self.runs.get_mut(uid)?;
        Some((run, Context { kernel: &mut self.kernel, options, dice, at, now }))
    }

    /// The node's address, made of its name.
    #[must_use]
    pub fn address(&self, dice: Dice) -> String {
        let bits = dice.roll(&["ip", &self.spec.name]);
        format!("10.{}.{}.{}", bits & 0xff, (bits >> 8) & 0xff, ((bits >> 16) % 254) + 1)
    }
}

/// A boot ID in the shape of the kernel's.
fn boot_id(dice: Dice, node: &str, boots: u64) -> String {
    let high = dice.roll(&["boot", node, &boots.to_string()]);
    let low = dice.roll(&["id", node, &boots.to_string()]);
    format!(
        "{:08x}-{:04x}-4{:03x}-a{:03x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xfff,
        low >> 52,
        low & 0xffff_ffff_ffff
    )
}

/// Time from `at` to `until`, at least a millisecond (tokio's tick).
#[must_use]
pub fn wait(at: Instant, until: Instant) -> Duration {
    until.saturating_duration_since(at).max(Duration::from_millis(1))
}
