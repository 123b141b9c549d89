//! A toy cluster for the pure functions: records, a kernel per node, and controllers that do their work within seconds. Each tick is one
//! second; each action is applied as it was decided. What must never happen is asserted at once.

mod machines;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::{
    api::{
        MANAGER, NodeHandoffSpec, NodeName, ObjectKey, Phase, Uid, Version,
        handoff::HandoffAction,
        keys::{self, FINALIZER, Mark, Role},
    },
    fleet::{
        build::*,
        event::{Kind, Record},
        records::*,
        view::FleetView,
    },
    handoff::{
        action::{Action, Evidence, NodeChange, Op, Subject},
        decide::{Decisions, decide_fleet, decide_one},
        facts::Context,
        observed::Observed,
        verdict::Verdict,
    },
};
use std::sync::Arc;

pub const GPU: &str = "ns/gpu";
pub const RESOURCE: &str = "vendor.com/gpu";
/// Story time at which a world starts to act: what happened before is long over.
pub const START: i64 = 100;

pub struct World {
    pub fleet: FleetBuilder,
    pub nodes: BTreeMap<String, NodeRecord>,
    pub pods: BTreeMap<ObjectKey, PodRecord>,
    pub handoffs: BTreeMap<ObjectKey, HandoffRecord>,
    pub component: ComponentRecord,
    pub sets: BTreeMap<ObjectKey, DaemonSetRecord>,
    pub lease: LeaseRecord,
    pub kernel: BTreeMap<String, Option<String>>,
    pub observed: Observed,
    pub context: Context,
    pub decisions: Decisions,
    pub now: i64,
    /// `why` of every action, in order.
    pub log: Vec<String>,
    /// (subject, action) of the last tick.
    pub acted: Vec<(Subject, Action)>,
    /// Exit codes of the next unload pods; empty: 0.
    pub exits: Vec<i32>,
    /// Pods that refuse to go.
    pub stuck: BTreeSet<ObjectKey>,
    pub made: u32,
    pub evicted: Vec<ObjectKey>,
    /// Controllers stand still.
    pub frozen: bool,
    /// The loader does not become Ready.
    pub broken_loader: bool,
    pub broken_plugin: bool,
    /// Evictions are refused for a budget's sake.
    pub refuses: bool,
    /// Unload pods run on and on.
    pub slow_unload: bool,
    /// Unload pods stay Pending.
    pub stuck_unload: bool,
    /// What a plugin advertises.
    pub devices: i64,
    pub view: Arc<FleetView>,
    writes: u32,
}

impl World {
    /// Nodes that run version 1; versions 1 and 2 exist and 2 is the aim.
    pub fn new(nodes: &[&str]) -> Self {
        Self::with(nodes, component(GPU).version("2").made("1").made("2").finalizer(FINALIZER))
    }

    pub fn with(nodes: &[&str], component: ComponentBuilder) -> Self {
        let mut sets = BTreeMap::new();
        let mut record = None;
        for made in component.records() {
            match made {
                Record::DaemonSet(set) => {
                    sets.insert(set.key.clone(), set);
                }
                Record::Component(it) => record = Some(it),
                _ => {}
            }
        }
        let mut world = Self {
            fleet: fleet(),
            nodes: BTreeMap::new(),
            pods: BTreeMap::new(),
            handoffs: BTreeMap::new(),
            component: record.unwrap(),
            sets,
            lease: lease("me").build(),
            kernel: BTreeMap::new(),
            observed: Observed::default(),
            context: Context { lease_held: true, epoch: 1, identity: "me".into(), cluster_max_unavailable: 1, read_only: false },
            decisions: Decisions::default(),
            now: START,
            log: Vec::new(),
            acted: Vec::new(),
            exits: Vec::new(),
            stuck: BTreeSet::new(),
            made: 0,
            evicted: Vec::new(),
            frozen: false,
            broken_loader: false,
            broken_plugin: false,
            refuses: false,
            slow_unload: false,
            stuck_unload: false,
            devices: 4,
            view: Arc::default(),
            writes: 0,
        };
        for name in nodes {
            world.nodes.insert((*name).into(), node(name).runs(GPU, "1").allocatable(RESOURCE, 4).build());
            world.kernel.insert((*name).into(), Some("1".into()));
            world.put_pod(loader_pod(GPU, "1", name).build());
            world.put_pod(plugin_pod(GPU, "1", name).build());
        }
        // A first look, long enough ago that nothing from before is waited for.
        world.now = START - 60;
        world.sync();
        world.look();
        world.now = START;
        world
    }

    /// A node without anything.
    pub fn add_bare(&mut self, name: &str) {
        self.nodes.insert(name.into(), node(name).build());
        self.kernel.insert(name.into(), None);
    }

    pub fn at(&self) -> Timestamp {
        at(self.now)
    }

    pub fn put_pod(&mut self, pod: PodRecord) {
        self.pods.insert(pod.key.clone(), pod);
    }

    /// A pod of a ReplicaSet that holds a device.
    pub fn claimant(&mut self, name: &str, on: &str) {
        self.put_pod(pod(name).on(on).claims(RESOURCE, 1).owned_by("ReplicaSet", "train").created(at(-900)).build());
    }

    pub fn ask(&mut self, on: &str, to: &str) {
        self.put_handoff(handoff(GPU, on).to(to));
    }

    pub fn put_handoff(&mut self, handoff: HandoffBuilder) {
        let record = handoff.build();
        self.handoffs.insert(record.key.clone(), record);
    }

    pub fn handoff(&self, on: &str) -> &HandoffRecord {
        &self.handoffs[&ObjectKey::new("ns", format!("gpu.{on}"))]
    }

    pub fn spec(&mut self, on: &str, change: impl FnOnce(&mut NodeHandoffSpec)) {
        let record = self.handoffs.get_mut(&ObjectKey::new("ns", format!("gpu.{on}"))).unwrap();
        record.generation += 1;
        change(record.spec.as_mut().unwrap());
    }

    pub fn phase(&self, on: &str) -> Phase {
        self.handoff(on).status.phase
    }

    pub fn node(&mut self, name: &str) -> &mut NodeRecord {
        self.nodes.get_mut(name).unwrap()
    }

    pub fn label(&self, node: &str, role: Role) -> Option<String> {
        self.nodes[node].labels.get(&*role.key(&key(GPU))).map(|text| text.to_string())
    }

    /// What a person types: `kubectl label`; None removes it.
    pub fn edit_label(&mut self, node: &str, role: Role, value: Option<&str>) {
        let labels = Arc::make_mut(&mut self.node(node).labels);
        match value {
            Some(value) => labels.insert(role.key(&key(GPU)).into(), value.into()),
            None => labels.remove(&*role.key(&key(GPU))),
        };
    }

    pub fn annotation(&self, node: &str, role: Role) -> Option<String> {
        self.nodes[node].annotations.get(&*role.key(&key(GPU))).map(|text| text.to_string())
    }

    pub fn mark(&self, node: &str) -> Option<Mark> {
        serde_json::from_str(&self.annotation(node, Role::Mark)?).ok()
    }

    pub fn uncordon(&mut self, node: &str) {
        let node = self.node(node);
        node.unschedulable = false;
        node.unschedulable_managers.clear();
    }

    pub fn cordon(&mut self, node: &str, by: &str) {
        let node = self.node(node);
        node.unschedulable = true;
        node.unschedulable_managers = vec![by.into()];
    }

    pub fn reboot(&mut self, node: &str, boot: &str) {
        self.node(node).boot_id = boot.into();
        self.kernel.insert(node.into(), None);
        // Pods stay and their containers start again.
        let on: Vec<ObjectKey> = self
            .pods
            .values()
            .filter(|pod| pod.node.as_ref().is_some_and(|it| it.as_str() == node))
            .map(|pod| pod.key.clone())
            .collect();
        for key in on {
            if let Some(pod) = self.pods.get_mut(&key).filter(|pod| !pod.phase.is_terminal()) {
                pod.ready.status = ReadyStatus::False;
            }
        }
    }

    /// One node, `n1`, that was asked to go from 1 to 2 and has come to rest there.
    pub fn handed_over() -> Self {
        let mut world = Self::new(&["n1"]);
        world.ask("n1", "2");
        world.until_phase("n1", Phase::Done);
        world.at_rest();
        world
    }

    /// Deleted and made again in the same boot: no labels, no annotations, another UID.
    pub fn make_again(&mut self, name: &str) {
        let old = &self.nodes[name];
        let mut new = node(name).uid(&format!("uid-again-{}", self.now)).boot(old.boot_id.as_str()).build();
        new.allocatable = old.allocatable.clone();
        self.nodes.insert(name.into(), new);
    }

    pub fn role_pods(&self, node: &str, role: &str) -> Vec<PodRecord> {
        let is = |pod: &&PodRecord| {
            pod.node.as_ref().is_some_and(|it| it.as_str() == node) && pod.labels.get(keys::ROLE).is_some_and(|it| &**it == role)
        };
        self.pods.values().filter(is).cloned().collect()
    }

    /// Everything as it is now into the fleet.
    fn sync(&mut self) {
        let live: BTreeSet<ObjectKey> = self.pods.keys().cloned().collect();
        let view = self.fleet.project(at(self.now));
        for node in view.nodes.iter() {
            for pod in &node.pods {
                if !live.contains(&pod.key) {
                    self.fleet.gone(Kind::Pod, pod.key.clone());
                }
            }
            if node.record.is_some() && !self.nodes.contains_key(node.name.as_str()) {
                self.fleet.gone(Kind::Node, ObjectKey::new("", node.name.as_str()));
            }
        }
        for key in view.handoffs.keys().filter(|key| !self.handoffs.contains_key(*key)) {
            self.fleet.gone(Kind::Handoff, key.clone());
        }
        let renewed = at(self.now / 5 * 5);
        for record in self.nodes.values().cloned() {
            let lease = NodeLeaseRecord {
                node: record.name.clone(),
                meta: Meta { uid: "l".into(), resource_version: "".into(), created: None, deletion: None },
                renewed: Some(renewed),
            };
            if record.ready.is_true() && self.now % 5 == 0 {
                self.fleet.put(vec![Record::NodeLease(lease)]);
            }
            self.fleet.put(vec![Record::Node(record)]);
        }
        for record in self.pods.values().cloned() {
            self.fleet.put(vec![Record::Pod(record)]);
        }
        for record in self.handoffs.values().cloned() {
            self.fleet.put(vec![Record::Handoff(record)]);
        }
        for record in self.sets.values().cloned() {
            self.fleet.put(vec![Record::DaemonSet(record)]);
        }
        let (component, lease) = (self.component.clone(), self.lease.clone());
        self.fleet.put(vec![Record::Component(component), Record::Lease(lease)]);
        self.view = self.fleet.project(at(self.now));
    }

    fn look(&mut self) {
        let dirty: BTreeSet<NodeName> = self.observed.observe(&self.view).into_iter().collect();
        let before = std::mem::take(&mut self.decisions);
        self.decisions = decide_fleet(&self.view, &self.observed, &self.context, Some(before), &dirty);
    }

    /// One second: controllers, then a decision, then its actions.
    pub fn tick(&mut self) {
        self.now += 1;
        if !self.frozen {
            self.controllers();
        }
        self.decide();
        let actions: Vec<(Subject, Action)> =
            self.decisions.actions().map(|(subject, action)| (subject, action.clone())).collect();
        self.acted.clear();
        let mut lease_written = false;
        for (subject, action) in actions {
            if matches!(action.op, Op::Admit(_) | Op::Release(_)) && std::mem::replace(&mut lease_written, true) {
                continue;
            }
            // The second look, on the same facts: it must come to the same.
            if action.evidence != Evidence::Watched {
                match decide_one(&self.view, None, &subject, &self.observed, &self.context, &self.decisions.queue) {
                    Some(Verdict::Act(other)) if other.is_same_as(&action) => {}
                    other => panic!("{subject:?}: {} at first, then {other:?}", action.why),
                }
            }
            self.fresh_enough(&action);
            self.log.push(action.why.clone());
            self.apply(&action);
            self.acted.push((subject, action));
        }
    }

    /// Looks, and does nothing.
    pub fn decide(&mut self) {
        self.sync();
        self.look();
    }

    pub fn ticks(&mut self, count: u32) {
        for _ in 0..count {
            self.tick();
        }
    }

    /// Ticks until it holds; panics after ten simulated minutes.
    pub fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        for _ in 0..600 {
            if done(self) {
                return;
            }
            self.tick();
        }
        panic!("never: {what}; phases {:?}; last verdicts {:#?}; log {:#?}", self.phases(), self.waits(), self.log);
    }

    pub fn until_phase(&mut self, node: &str, phase: Phase) {
        let node = node.to_owned();
        self.until(&format!("{node} in {phase}"), |world| {
            world.handoffs.contains_key(&ObjectKey::new("ns", format!("gpu.{node}"))) && world.phase(&node) == phase
        });
    }

    fn phases(&self) -> Vec<(String, Phase)> {
        self.handoffs.values().map(|it| (it.key.name.to_string(), it.status.phase)).collect()
    }

    fn waits(&self) -> Vec<String> {
        self.decisions.iter().map(|(subject, verdict)| format!("{subject:?}: {verdict:?}")).collect()
    }

    pub fn verdict(&self, node: &str) -> &Verdict {
        let subject = Subject::Occupancy { component: key(GPU), node: node.into() };
        self.decisions.verdict(&subject).unwrap()
    }

    /// The kinds of the blockers that a node waits for.
    pub fn blockers(&self, node: &str) -> Vec<String> {
        match self.verdict(node) {
            Verdict::Wait(wait) => wait.blockers.iter().map(|blocker| blocker.kind.word()).collect(),
            other => vec![format!("{other:?}")],
        }
    }

    /// `fresh-reads`: what takes something away, or vouches for something, rests on fresh reads.
    fn fresh_enough(&self, action: &Action) {
        let guarded = |change: &NodeChange| match change {
            NodeChange::Label { key, .. } => Role::parse(key).is_some_and(|(role, _)| role != Role::Ready),
            NodeChange::Annotation { key, .. } => Role::parse(key).is_some_and(|(role, _)| role == Role::Loaded),
            NodeChange::Unschedulable(_) => true,
        };
        let needs = match &action.op {
            Op::PatchNode(patch) => patch.changes.iter().any(guarded),
            Op::Evict { .. } | Op::DeletePod(_) | Op::CreatePod(_) | Op::DeleteDaemonSet { .. } | Op::Release(_) => true,
            _ => false,
        };
        assert!(!needs || action.evidence != Evidence::Watched, "on watched facts: {}", action.why);
    }

    /// Every write names what it was decided on: the object's UID, its resourceVersion.
    fn named(action: &Action) {
        let versions = match &action.op {
            Op::PatchNode(patch) => vec![patch.uid.as_str(), &*patch.resource_version],
            Op::PutHandoffStatus { of, .. } | Op::PatchHandoffSpec { of, .. } | Op::SetHandoffFinalizer { of, .. } => {
                vec![of.uid.as_str(), &*of.resource_version]
            }
            Op::Evict { pods, .. } => pods.iter().flat_map(|pod| [pod.uid.as_str(), &*pod.resource_version]).collect(),
            Op::DeletePod(pod) => vec![pod.uid.as_str(), &*pod.resource_version],
            _ => Vec::new(),
        };
        assert!(versions.iter().all(|text| !text.is_empty()), "without a precondition: {}", action.why);
    }

    pub fn apply(&mut self, action: &Action) {
        self.writes += 1;
        Self::named(action);
        match &action.op {
            Op::PatchNode(patch) => self.patch(patch.node.as_str(), &patch.changes),
            Op::Evict { pods, .. } => {
                for pod in pods {
                    if self.refuses {
                        let message = "the disruption budget needs 2 healthy pods and has 2".to_owned();
                        let class = crate::drain::budget::BudgetClass::Waiting;
                        let outcome = crate::drain::eviction::Outcome::Budget { class, message, retry_after: None };
                        self.observed.evictions_mut().record(pod, outcome, at(self.now));
                        continue;
                    }
                    assert!(!self.evicted.contains(&pod.key), "{} evicted twice", pod.key);
                    self.evicted.push(pod.key.clone());
                    let reply = crate::drain::eviction::Outcome::Accepted;
                    self.observed.evictions_mut().record(pod, reply, at(self.now));
                    self.delete(&pod.key);
                }
            }
            Op::DeletePod(pod) => self.delete(&pod.key),
            Op::CreatePod(body) => self.create_unload(body),
            Op::PutHandoffStatus { of, status } => {
                self.handoffs.get_mut(&of.key).unwrap().status = (**status).clone();
            }
            Op::CreateHandoff { key, spec } => {
                assert!(!self.handoffs.contains_key(key));
                let mut record = handoff(GPU, &spec.node).build();
                record.spec = Ok((**spec).clone());
                self.handoffs.insert(key.clone(), record);
            }
            Op::PatchHandoffSpec { of, spec } => {
                let record = self.handoffs.get_mut(&of.key).unwrap();
                record.generation += 1;
                record.spec = Ok((**spec).clone());
            }
            Op::SetHandoffFinalizer { of, present } => {
                let record = self.handoffs.get_mut(&of.key).unwrap();
                record.finalizers.retain(|known| &**known != FINALIZER);
                if *present {
                    record.finalizers.push(FINALIZER.into());
                } else if record.meta.deletion.is_some() {
                    self.handoffs.remove(&of.key);
                }
            }
            Op::Admit(slot) => self.lease.slots.push(slot.clone()),
            Op::Release(slot) => self.lease.slots.retain(|known| known != slot),
            Op::PutComponentStatus { status, .. } => {
                self.component.status = (**status).clone();
                self.observed.reported(&key(GPU), at(self.now));
            }
            Op::SetComponentFinalizer { present, .. } => {
                self.component.finalizers = if *present { vec![FINALIZER.into()] } else { Vec::new() };
            }
            Op::CreateDaemonSet(body) => {
                let labels = &body["metadata"]["labels"];
                let role = if labels[keys::ROLE] == "loader" {
                    crate::api::versioned::DaemonSetRole::Loader
                } else {
                    crate::api::versioned::DaemonSetRole::Plugin
                };
                let spec = self.component.spec.clone().unwrap();
                let set = versioned_daemon_set(
                    &key(GPU),
                    role,
                    labels[keys::VERSION].as_str().unwrap(),
                    spec.kernel_module.as_ref().unwrap(),
                );
                self.sets.insert(set.key.clone(), set);
            }
            Op::DeleteDaemonSet { key, .. } => {
                self.fleet.gone(Kind::DaemonSet, key.clone());
                self.sets.remove(key);
            }
            Op::DeleteHandoff(_) | Op::SetPaused { .. } => panic!("only people do that"),
        }
    }

    fn patch(&mut self, name: &str, changes: &[NodeChange]) {
        let before = (self.label(name, Role::Loader), self.label(name, Role::Plugin));
        for change in changes {
            let node = self.node(name);
            match change {
                NodeChange::Label { key, value } => {
                    let labels = Arc::make_mut(&mut node.labels);
                    match value {
                        Some(value) => labels.insert(key.as_str().into(), value.as_str().into()),
                        None => labels.remove(key.as_str()),
                    };
                }
                NodeChange::Annotation { key, value } => {
                    match value {
                        Some(value) => node.annotations.insert(key.as_str().into(), value.as_str().into()),
                        None => node.annotations.remove(key.as_str()),
                    };
                }
                NodeChange::Unschedulable(closed) => {
                    if !*closed {
                        assert!(node.unschedulable_managers.iter().any(|it| &**it == MANAGER), "I7: uncordoned another's cordon");
                    }
                    node.unschedulable = *closed;
                    node.unschedulable_managers = if *closed { vec![MANAGER.into()] } else { Vec::new() };
                }
            }
        }
        let (loader, plugin) = (self.label(name, Role::Loader), self.label(name, Role::Plugin));
        if plugin.is_some() && plugin != before.1 {
            assert_eq!(plugin, loader, "I2: plugin label beside another loader label");
            assert_eq!(self.kernel[name], plugin, "I2: plugin label without its module");
        }
        if loader.is_some() && loader != before.0 {
            assert!(before.0.is_none(), "I2: loader label changed in one step");
            assert_eq!(loader, self.label(name, Role::Desired), "I11: a loader that nobody asked for");
            let record: keys::Loaded = serde_json::from_str(&self.annotation(name, Role::Loaded).unwrap()).unwrap();
            assert_eq!(Some(record.version.to_string()), loader);
        }
        if loader.is_none() && before.0.is_some() {
            assert!(plugin.is_none(), "I2: loader label off under the plugin label");
            assert!(self.live_claimants(name).is_empty(), "I1: loader off under claimants");
        }
    }

    pub fn live_claimants(&self, node: &str) -> Vec<ObjectKey> {
        let claims = |pod: &&PodRecord| {
            pod.node.as_ref().is_some_and(|it| it.as_str() == node)
                && !pod.phase.is_terminal()
                && pod.extra.as_ref().is_some_and(|extra| extra.resources.contains_key(RESOURCE))
        };
        self.pods.values().filter(claims).map(|pod| pod.key.clone()).collect()
    }

    pub fn delete(&mut self, key: &ObjectKey) {
        let at = at(self.now + 5);
        if let Some(pod) = self.pods.get_mut(key) {
            pod.meta.deletion = Some(Deletion { at, grace: 5 });
        }
    }

    /// What a former leader still sends.
    pub fn create_late(&mut self, action: &Action) {
        if let Op::CreatePod(body) = &action.op {
            self.put_unload(body);
        }
    }

    fn create_unload(&mut self, body: &serde_json::Value) {
        let node = body.pointer("/spec/nodeName").and_then(serde_json::Value::as_str).unwrap();
        assert!(self.live_claimants(node).is_empty(), "I1: unload pod beside claimants");
        assert!(self.role_pods(node, "plugin").is_empty(), "I1: unload pod beside a plugin pod");
        self.put_unload(body);
    }

    fn put_unload(&mut self, body: &serde_json::Value) {
        let text = |pointer: &str| body.pointer(pointer).and_then(serde_json::Value::as_str).unwrap().to_owned();
        let node = text("/spec/nodeName");
        let nonce = body["metadata"]["annotations"][keys::NONCE].as_str().unwrap().to_owned();
        let version = body["metadata"]["labels"][keys::VERSION].as_str().unwrap().to_owned();
        self.made += 1;
        let made = self.made;
        let mut pod = unload_pod(GPU, &version, &node, &nonce).uid(&format!("unload-{made}")).created(at(self.now)).build();
        pod.key = ObjectKey::new(text("/metadata/namespace"), text("/metadata/name"));
        assert!(!self.pods.contains_key(&pod.key), "the name is taken");
        pod.phase = PodPhase::Pending;
        self.put_pod(pod);
    }

    pub fn count(&self, what: &str) -> usize {
        self.log.iter().filter(|line| line.contains(what)).count()
    }

    pub fn attempt(&mut self, on: &str) {
        self.spec(on, |spec| spec.attempt += 1);
    }

    pub fn abort(&mut self, on: &str) {
        self.spec(on, |spec| spec.action = HandoffAction::Abort);
    }

    /// Nothing acts any more, and nothing is waited for.
    pub fn at_rest(&mut self) {
        self.ticks(15);
        let before = self.log.len();
        self.ticks(30);
        assert_eq!(self.log.len(), before, "still acting: {:#?}", &self.log[before..]);
    }

    pub fn version(&self, node: &str) -> [Option<String>; 4] {
        [Role::Desired, Role::Loader, Role::Plugin, Role::Ready].map(|role| self.label(node, role))
    }

    pub fn runs(&self, node: &str, version: &str) -> bool {
        let all = Some(version.to_owned());
        self.version(node).iter().all(|label| *label == all) && self.kernel[node] == all
    }

    pub fn uid_of(&self, key: &ObjectKey) -> Uid {
        self.pods[key].meta.uid.clone()
    }

    pub fn restart(&mut self) {
        self.observed = Observed::default();
        self.decisions = Decisions::default();
    }

    pub fn desired(&self, node: &str) -> Option<Version> {
        self.label(node, Role::Desired).map(|it| Version::from(it.as_str()))
    }
}
