//! `Fleet`: everything known of one cluster, kept in step by the watches' events. It notes what each event concerns; what follows from
//! it is `project`'s.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;

use super::{
    event::{Change, Event, Kind, Record},
    index::Index,
    project::Projected,
    records::*,
    store::Store,
    view::{ClusterInfo, WatchState},
};
use crate::{
    api::{ComponentKey, NodeName, ObjectKey, Uid, keys},
    drain::incoming,
    kmm::records::{ImagesRecord, ModuleRecord, NmcRecord},
};

/// All that is known of one cluster.
#[derive(Debug, Default)]
pub struct Fleet {
    pub(super) stores: Stores,
    pub(super) index: Index,
    pub(super) dirty: Dirty,
    pub(super) watches: BTreeMap<Kind, WatchStatus>,
    pub(super) cluster: Arc<ClusterInfo>,
    pub(super) projected: Projected,
}

/// How a kind's watch fares, as the watch itself tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchStatus {
    /// Nothing is decided before this kind has been listed.
    pub required: bool,
    pub state: WatchState,
    pub last_event: Option<Timestamp>,
    pub errors: u64,
}

#[derive(Debug, Default)]
pub(super) struct Stores {
    pub nodes: Store<NodeRecord>,
    pub pods: Store<PodRecord>,
    pub daemon_sets: Store<DaemonSetRecord>,
    pub replica_sets: Store<ScaleRecord>,
    pub stateful_sets: Store<ScaleRecord>,
    pub budgets: Store<BudgetRecord>,
    pub claims: Store<ClaimRecord>,
    pub slices: Store<SliceRecord>,
    pub volume_claims: Store<VolumeClaimRecord>,
    pub node_leases: Store<NodeLeaseRecord>,
    pub volumes: Store<VolumeRecord>,
    pub attachments: Store<AttachmentRecord>,
    pub csi_nodes: Store<CsiNodeRecord>,
    pub csi_drivers: Store<CsiDriverRecord>,
    pub revisions: Store<RevisionRecord>,
    pub modules: Store<ModuleRecord>,
    pub configs: Store<NmcRecord>,
    pub images: Store<ImagesRecord>,
    pub components: Store<ComponentRecord>,
    pub handoffs: Store<HandoffRecord>,
    pub lease: Store<LeaseRecord>,
}

/// What has to be looked at again.
#[derive(Debug, Default)]
pub(super) struct Dirty {
    pub all_nodes: bool,
    pub nodes: BTreeSet<NodeName>,
    /// Nodes of which only the Lease was renewed.
    pub node_leases: BTreeSet<NodeName>,
    pub components: BTreeSet<ComponentKey>,
    /// A component's spec: conflicts between components have to be found again.
    pub specs: bool,
    /// What DaemonSets' pods need of a node.
    pub required_labels: bool,
    pub daemon_sets: BTreeSet<ObjectKey>,
    pub budgets: BTreeSet<ObjectKey>,
    /// Budgets whose pods have to be found.
    pub members: BTreeSet<ObjectKey>,
    pub handoffs: BTreeSet<ObjectKey>,
    /// Pods that are gone, and had ended before.
    pub ended: BTreeSet<Uid>,
    pub lease: bool,
    pub health: bool,
}

macro_rules! follow {
    ($fleet:ident, $store:ident, $event:ident, $variant:ident, $then:ident) => {{
        let mut changes = Vec::new();
        let pick = |record| match record {
            Record::$variant(it) => Some(it),
            _ => None,
        };
        $fleet.stores.$store.apply($event, pick, |change| changes.push(change));
        for (old, new) in changes {
            $fleet.$then(old, new);
        }
    }};
}

impl Fleet {
    pub fn new(cluster: ClusterInfo) -> Self {
        Self { cluster: Arc::new(cluster), ..Self::default() }
    }

    pub fn set_cluster(&mut self, cluster: ClusterInfo) {
        self.cluster = Arc::new(cluster);
    }

    /// How a kind's watch fares now.
    pub fn set_watch(&mut self, kind: Kind, status: WatchStatus) {
        self.dirty.health = true;
        if kind.is_asked_for() && self.watches.get(&kind).map(|known| &known.state) != Some(&status.state) {
            self.csi_changed();
            self.kmm_changed();
        }
        self.watches.insert(kind, status);
    }

    pub fn take(&mut self, change: Change) {
        self.apply(change.kind, change.event);
    }

    /// Takes in one event of a kind's watch.
    pub fn apply(&mut self, kind: Kind, event: Event) {
        if kind.is_asked_for() && matches!(event, Event::InitDone { .. }) {
            self.csi_changed();
            self.kmm_changed();
        }
        match kind {
            Kind::Node => follow!(self, nodes, event, Node, on_node),
            Kind::Pod => follow!(self, pods, event, Pod, on_pod),
            Kind::DaemonSet => follow!(self, daemon_sets, event, DaemonSet, on_daemon_set),
            Kind::ReplicaSet => follow!(self, replica_sets, event, Scale, on_scale),
            Kind::StatefulSet => follow!(self, stateful_sets, event, Scale, on_scale),
            Kind::Budget => follow!(self, budgets, event, Budget, on_budget),
            Kind::Claim => follow!(self, claims, event, Claim, on_claim),
            Kind::Slice => follow!(self, slices, event, Slice, on_slice),
            Kind::VolumeClaim => follow!(self, volume_claims, event, VolumeClaim, on_volume_claim),
            Kind::NodeLease => follow!(self, node_leases, event, NodeLease, on_node_lease),
            Kind::Volume => follow!(self, volumes, event, Volume, on_volume),
            Kind::Attachment => follow!(self, attachments, event, Attachment, on_attachment),
            Kind::CsiNode => follow!(self, csi_nodes, event, CsiNode, on_csi_node),
            Kind::CsiDriver => follow!(self, csi_drivers, event, CsiDriver, on_csi_driver),
            Kind::Revision => follow!(self, revisions, event, Revision, on_revision),
            Kind::KmmModule => follow!(self, modules, event, KmmModule, on_module),
            Kind::KmmConfig => follow!(self, configs, event, KmmConfig, on_config),
            Kind::KmmImages => follow!(self, images, event, KmmImages, on_images),
            Kind::Component => follow!(self, components, event, Component, on_component),
            Kind::Handoff => follow!(self, handoffs, event, Handoff, on_handoff),
            Kind::Lease => follow!(self, lease, event, Lease, on_lease),
        }
        self.dirty.health = true;
    }

    /// Whether something was told since the last projection.
    pub fn is_dirty(&self) -> bool {
        self.dirty.health
    }

    /// Everything needed has been listed completely once. A kind that is not required and not served has nothing to list.
    pub fn is_synced(&self) -> bool {
        // What only some components need is asked for by them.
        Kind::ALL.into_iter().filter(|kind| !kind.is_asked_for()).all(|kind| {
            let status = self.watches.get(&kind);
            let excused = |status: &WatchStatus| !status.required && matches!(status.state, WatchState::Unavailable { .. });
            self.stores.is_synced(kind) || status.is_some_and(excused)
        })
    }

    fn on_node(&mut self, old: Option<Arc<NodeRecord>>, new: Option<Arc<NodeRecord>>) {
        self.dirty.nodes.extend(old.or(new).map(|node| node.name.clone()));
    }

    fn on_node_lease(&mut self, old: Option<Arc<NodeLeaseRecord>>, new: Option<Arc<NodeLeaseRecord>>) {
        self.dirty.node_leases.extend(old.or(new).map(|lease| lease.node.clone()));
    }

    fn on_pod(&mut self, old: Option<Arc<PodRecord>>, new: Option<Arc<PodRecord>>) {
        let Some(key) = new.as_ref().or(old.as_ref()).map(|pod| pod.key.clone()) else { return };
        let uid = new.as_ref().map(|pod| &pod.meta.uid);
        self.dirty
            .ended
            .extend(old.iter().filter(|pod| uid != Some(&pod.meta.uid) && pod.has_ended()).map(|pod| pod.meta.uid.clone()));
        let labels = [&old, &new].into_iter().flatten().map(|pod| &pod.labels);
        let budgets = labels.flat_map(|labels| self.index.budgets.candidates(&key.namespace, labels));
        let budgets: BTreeMap<_, _> = budgets.filter_map(|key| Some((key.clone(), self.stores.budgets.get(key)?))).collect();
        let concerned = self.index.pod(old.as_ref(), new.as_ref(), budgets.into_values());
        self.dirty.nodes.extend(concerned.nodes);
        self.dirty.budgets.extend(concerned.budgets);
        if let Some(module) = self.index.pull(old.as_deref(), new.as_deref()) {
            self.module_changed(&module);
        }
        let unbound = |pod: &Option<Arc<PodRecord>>| pod.as_ref().is_some_and(|pod| pod.node.is_none());
        if unbound(&old) || unbound(&new) {
            self.find_destinations(&key);
        }
    }

    /// Where an unbound pod may be on its way to.
    pub(super) fn find_destinations(&mut self, key: &ObjectKey) {
        let pod = self.stores.pods.get(key).filter(|pod| pod.node.is_none()).cloned();
        let to = pod.as_ref().map(|pod| {
            let claim = |key: &ObjectKey| self.stores.claims.get(key).cloned();
            let volume_claim = |key: &ObjectKey| self.stores.volume_claims.get(key).cloned();
            (pod, incoming::destinations(pod, claim, volume_claim))
        });
        self.dirty.nodes.extend(self.index.on_its_way(key, to));
    }

    fn on_claim(&mut self, old: Option<Arc<ClaimRecord>>, new: Option<Arc<ClaimRecord>>) {
        let Some(key) = new.as_ref().or(old.as_ref()).map(|claim| claim.key.clone()) else { return };
        let (nodes, anywhere) = self.index.claim(old.as_deref(), new.as_deref());
        self.dirty.nodes.extend(nodes);
        self.dirty.all_nodes |= anywhere;
        for record in [&old, &new].into_iter().flatten() {
            for holder in &record.reserved {
                let pod = ObjectKey { namespace: key.namespace.clone(), name: holder.name.clone() };
                self.dirty.nodes.extend(self.stores.pods.get(&pod).and_then(|pod| pod.node.clone()));
            }
        }
        let users: Vec<_> = self.index.by_claim.get(&key).iter().map(|pod| (pod.key.clone(), pod.node.clone())).collect();
        for (pod, node) in users {
            match node {
                Some(node) => {
                    self.dirty.nodes.insert(node);
                }
                None => self.find_destinations(&pod),
            }
        }
    }

    fn on_volume_claim(&mut self, old: Option<Arc<VolumeClaimRecord>>, new: Option<Arc<VolumeClaimRecord>>) {
        let Some(key) = new.or(old).map(|claim| claim.key.clone()) else { return };
        self.volume_users_changed(&key);
    }

    fn on_slice(&mut self, old: Option<Arc<SliceRecord>>, new: Option<Arc<SliceRecord>>) {
        let nodes = self.index.slice(old.as_ref(), new.as_ref());
        self.dirty.nodes.extend(nodes);
    }

    fn on_daemon_set(&mut self, old: Option<Arc<DaemonSetRecord>>, new: Option<Arc<DaemonSetRecord>>) {
        for set in [&old, &new].into_iter().flatten() {
            self.dirty.daemon_sets.insert(set.key.clone());
            if let Some(component) = set.labels.get(keys::COMPONENT) {
                self.dirty.components.insert(ObjectKey { namespace: set.key.namespace.clone(), name: component.clone() });
            }
        }
        self.csi_set_changed(old.as_deref(), new.as_deref());
        self.kmm_set_changed(old.as_deref(), new.as_deref());
        let needs = |set: &Option<Arc<DaemonSetRecord>>| set.as_ref().map_or_else(Vec::new, |set| set.requires_labels.clone());
        let same = old.as_ref().map(|set| &set.meta.uid) == new.as_ref().map(|set| &set.meta.uid) && needs(&old) == needs(&new);
        if !same {
            self.dirty.required_labels = true;
            for set in [&old, &new].into_iter().flatten() {
                let pods = self.index.by_owner.get(&set.meta.uid);
                self.dirty.nodes.extend(pods.iter().filter_map(|pod| pod.node.clone()));
            }
        }
    }

    fn on_scale(&mut self, old: Option<Arc<ScaleRecord>>, new: Option<Arc<ScaleRecord>>) {
        if old.as_ref().map(|scale| scale.replicas) == new.as_ref().map(|scale| scale.replicas) {
            return;
        }
        let uids = [&old, &new].into_iter().flatten().map(|scale| &scale.meta.uid);
        for pod in uids.flat_map(|uid| self.index.by_owner.get(uid)) {
            self.dirty.budgets.extend(self.index.budgets.candidates(&pod.key.namespace, &pod.labels).cloned());
        }
    }

    fn on_budget(&mut self, old: Option<Arc<BudgetRecord>>, new: Option<Arc<BudgetRecord>>) {
        let Some(key) = new.as_ref().or(old.as_ref()).map(|budget| budget.key.clone()) else { return };
        self.dirty.budgets.insert(key.clone());
        let selector = |budget: &Option<Arc<BudgetRecord>>| budget.as_ref().map(|budget| budget.selector.clone());
        if selector(&old) == selector(&new) {
            return;
        }
        if let Some(old) = &old {
            self.index.budgets.take(old);
            self.index.members.clear(&key);
        }
        if let Some(new) = &new {
            self.index.budgets.put(new);
            self.dirty.members.insert(key);
        }
    }

    /// Finds the pods of budgets that are new or select otherwise: one pass over each namespace, however many they are.
    pub(super) fn find_members(&mut self, budgets: &BTreeSet<ObjectKey>) {
        let namespaces: BTreeSet<&Str> = budgets.iter().map(|key| &key.namespace).collect();
        for namespace in namespaces {
            for pod in self.stores.pods.in_namespace(namespace) {
                for key in self.index.budgets.candidates(namespace, &pod.labels).filter(|key| budgets.contains(*key)) {
                    if self.stores.budgets.get(key).is_some_and(|budget| budget.selects(pod)) {
                        self.index.members.put(key, pod);
                    }
                }
            }
        }
    }

    fn on_component(&mut self, old: Option<Arc<ComponentRecord>>, new: Option<Arc<ComponentRecord>>) {
        let spec = |record: &Option<Arc<ComponentRecord>>| record.as_ref().map(|record| record.spec.clone());
        self.dirty.specs |= spec(&old) != spec(&new);
        self.dirty.components.extend(new.or(old).map(|record| record.key.clone()));
    }

    fn on_handoff(&mut self, old: Option<Arc<HandoffRecord>>, new: Option<Arc<HandoffRecord>>) {
        let nodes = self.index.handoff(old.as_ref(), new.as_ref());
        self.dirty.nodes.extend(nodes);
        self.dirty.handoffs.extend(new.or(old).map(|handoff| handoff.key.clone()));
    }

    fn on_lease(&mut self, old: Option<Arc<LeaseRecord>>, new: Option<Arc<LeaseRecord>>) {
        self.dirty.lease = true;
        let slots = |lease: &Option<Arc<LeaseRecord>>| lease.as_ref().map_or_else(Vec::new, |lease| lease.slots.clone());
        let (before, after) = (slots(&old), slots(&new));
        if before != after {
            self.dirty.nodes.extend(before.iter().chain(&after).map(|slot| NodeName::from(slot.node.as_str())));
        }
    }
}

impl Stores {
    pub fn is_synced(&self, kind: Kind) -> bool {
        match kind {
            Kind::Node => self.nodes.is_synced(),
            Kind::Pod => self.pods.is_synced(),
            Kind::DaemonSet => self.daemon_sets.is_synced(),
            Kind::ReplicaSet => self.replica_sets.is_synced(),
            Kind::StatefulSet => self.stateful_sets.is_synced(),
            Kind::Budget => self.budgets.is_synced(),
            Kind::Claim => self.claims.is_synced(),
            Kind::Slice => self.slices.is_synced(),
            Kind::VolumeClaim => self.volume_claims.is_synced(),
            Kind::NodeLease => self.node_leases.is_synced(),
            Kind::Volume => self.volumes.is_synced(),
            Kind::Attachment => self.attachments.is_synced(),
            Kind::CsiNode => self.csi_nodes.is_synced(),
            Kind::CsiDriver => self.csi_drivers.is_synced(),
            Kind::Revision => self.revisions.is_synced(),
            Kind::KmmModule => self.modules.is_synced(),
            Kind::KmmConfig => self.configs.is_synced(),
            Kind::KmmImages => self.images.is_synced(),
            Kind::Component => self.components.is_synced(),
            Kind::Handoff => self.handoffs.is_synced(),
            Kind::Lease => self.lease.is_synced(),
        }
    }

    /// How many objects, and which did not decode.
    pub fn count(&self, kind: Kind) -> (usize, Vec<(Str, String)>) {
        fn of<T: super::keyed::Keyed>(store: &Store<T>) -> (usize, Vec<(Str, String)>) {
            let name = |key: &ObjectKey| if key.namespace.is_empty() { key.name.clone() } else { key.to_string().into() };
            (store.len(), store.undecodable().map(|(key, why)| (name(key), why.to_owned())).collect())
        }
        match kind {
            Kind::Node => of(&self.nodes),
            Kind::Pod => of(&self.pods),
            Kind::DaemonSet => of(&self.daemon_sets),
            Kind::ReplicaSet => of(&self.replica_sets),
            Kind::StatefulSet => of(&self.stateful_sets),
            Kind::Budget => of(&self.budgets),
            Kind::Claim => of(&self.claims),
            Kind::Slice => of(&self.slices),
            Kind::VolumeClaim => of(&self.volume_claims),
            Kind::NodeLease => of(&self.node_leases),
            Kind::Volume => of(&self.volumes),
            Kind::Attachment => of(&self.attachments),
            Kind::CsiNode => of(&self.csi_nodes),
            Kind::CsiDriver => of(&self.csi_drivers),
            Kind::Revision => of(&self.revisions),
            Kind::KmmModule => of(&self.modules),
            Kind::KmmConfig => of(&self.configs),
            Kind::KmmImages => of(&self.images),
            Kind::Component => of(&self.components),
            Kind::Handoff => of(&self.handoffs),
            Kind::Lease => of(&self.lease),
        }
    }
}
