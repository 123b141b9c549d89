//! One node judged: from its records to a NodeView with an Occupancy per component. The one function for it: projection uses it with
//! what the watches brought, the engine with what it has just read from the API server.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    node_labels,
    records::*,
    rules::{BlockRules, ComponentRules, Rules},
    view::{Incoming, NodeLabels, NodeView, Occupancy},
};
use crate::{
    api::{ComponentKey, NodeName, ObjectKey, keys, versioned},
    drain::{
        claimants::{self, Claims},
        incoming::{self, VolumeClaims},
        volumes::Volumes,
    },
    kmm::records::NmcRecord,
};

/// What is known about one node. Objects that do not concern the node may be among them; they are left out here.
#[derive(Debug, Clone)]
pub struct NodeFacts {
    pub name: NodeName,
    /// None: the Node object does not exist.
    pub record: Option<Arc<NodeRecord>>,
    pub lease: Option<Arc<NodeLeaseRecord>>,
    /// Bound pods. Those of other nodes are left out.
    pub pods: Vec<Arc<PodRecord>>,
    /// Unbound pods, at least those on their way to this node.
    pub unbound: Vec<Arc<PodRecord>>,
    /// ResourceClaims, at least those that the pods name, that are allocated for this node, or that are reserved for its pods.
    pub claims: Claims,
    /// PersistentVolumeClaims of the unbound pods; with a csiNodePlugin those of the others, too.
    pub volume_claims: VolumeClaims,
    /// PersistentVolumes of these claims, and of the attachments.
    pub volumes: Volumes,
    /// VolumeAttachments of this node.
    pub attachments: Vec<Arc<AttachmentRecord>>,
    pub csi_node: Option<Arc<CsiNodeRecord>>,
    /// KMM's NodeModulesConfig of the node.
    pub config: Option<Arc<NmcRecord>>,
    /// ResourceSlices, at least those of this node.
    pub slices: Vec<Arc<SliceRecord>>,
    /// NodeHandoffs, at least those of this node.
    pub handoffs: Vec<Arc<HandoffRecord>>,
}

impl NodeFacts {
    pub fn new(name: NodeName) -> Self {
        Self {
            name,
            record: None,
            lease: None,
            pods: Vec::new(),
            unbound: Vec::new(),
            claims: Claims::new(),
            volume_claims: VolumeClaims::new(),
            volumes: Volumes::new(),
            attachments: Vec::new(),
            csi_node: None,
            config: None,
            slices: Vec::new(),
            handoffs: Vec::new(),
        }
    }

    /// The node as these facts and rules have it. A component is on a node if its selector matches, or if any label, annotation, pod
    /// or handoff of it is there: what a narrowed selector leaves behind has to be seen to be cleaned.
    pub fn view(mut self, rules: &Rules) -> NodeView {
        let name = self.name.clone();
        self.pods.retain(|pod| pod.node.as_ref() == Some(&name));
        self.pods.sort_by(|a, b| a.key.cmp(&b.key));
        let mut labels = self.record.as_ref().map(|node| node_labels::parse(node)).unwrap_or_default();
        let keys = self.components(rules, &labels);
        let mut components = BTreeMap::new();
        for key in keys {
            let labels = labels.remove(&key).unwrap_or_default();
            components.insert(key.clone(), Arc::new(self.occupancy(rules, &key, labels)));
        }
        NodeView {
            cordon: self.record.as_ref().and_then(|node| node_labels::cordon(node)),
            name: self.name,
            record: self.record,
            lease: self.lease,
            pods: self.pods,
            components,
        }
    }

    fn components(&self, rules: &Rules, labels: &BTreeMap<ComponentKey, NodeLabels>) -> BTreeSet<ComponentKey> {
        let mut keys: BTreeSet<ComponentKey> = BTreeSet::new();
        if let Some(node) = &self.record {
            let selecting = rules.components.iter().filter(|(_, component)| match (&component.csi, &component.kmm) {
                (Some(csi), _) => self.carries(component, csi, node),
                (None, Some(kmm)) => self.carries_module(component, kmm, node),
                (None, None) => component.selects(&node.labels),
            });
            keys.extend(selecting.map(|(key, _)| key.clone()));
        }
        // A misspelt key says something about a component only if there is such a component.
        let said = labels.iter().filter(|(key, labels)| labels.says_something() || rules.components.contains_key(*key));
        keys.extend(said.map(|(key, _)| key.clone()));
        keys.extend(self.pods.iter().filter_map(|pod| component_of(pod)));
        keys.extend(self.own_handoffs().map(|(key, _)| key));
        keys
    }

    pub(super) fn own_handoffs(&self) -> impl Iterator<Item = (ComponentKey, &Arc<HandoffRecord>)> {
        self.handoffs.iter().filter_map(|handoff| {
            let spec = handoff.spec.as_ref().ok()?;
            let key = ComponentKey { namespace: handoff.key.namespace.clone(), name: spec.component.as_str().into() };
            (self.name == *spec.node).then_some((key, handoff))
        })
    }

    fn occupancy(&self, rules: &Rules, key: &ComponentKey, labels: NodeLabels) -> Occupancy {
        let component = rules.components.get(key);
        if let Some((component, csi)) = component.and_then(|component| Some((component, component.csi.as_ref()?))) {
            return self.of_csi(rules, component, csi, key, labels);
        }
        if let Some((component, kmm)) = component.and_then(|component| Some((component, component.kmm.as_ref()?))) {
            return self.of_kmm(rules, component, kmm, key, labels);
        }
        let blocks = component.map(|component| component.blocks(&labels)).unwrap_or_default();
        let mut own = OwnPods::default();
        for pod in self.pods.iter().filter(|pod| pod.flags.ours && component_of(pod).as_ref() == Some(key)) {
            own.add(pod);
        }
        let resources = blocks.iter().flat_map(|block| &block.resources);
        let allocatable = resources.filter_map(|name| self.record.as_ref()?.allocatable.get_key_value(name.as_str()));
        Occupancy {
            selected: self.record.as_ref().is_some_and(|node| component.is_some_and(|component| component.selects(&node.labels))),
            claimants: component.map_or_else(Vec::new, |component| self.claimants(rules, component, key, &blocks)),
            incoming: self.incoming(&blocks),
            reserved_claims: self.reserved_claims(&blocks),
            slices: self.slices(&blocks),
            allocatable: allocatable.map(|(name, quantity)| (name.clone(), *quantity)).collect(),
            handoff: self.own_handoffs().find(|(of, _)| of == key).map(|(_, handoff)| handoff.clone()),
            csi: None,
            kmm: None,
            loader_pods: own.loader,
            plugin_pods: own.plugin,
            unload_pods: own.unload,
            labels,
        }
    }

    fn claimants(
        &self,
        rules: &Rules,
        component: &ComponentRules,
        key: &ComponentKey,
        blocks: &[&BlockRules],
    ) -> Vec<super::view::Claimant> {
        let others = self.pods.iter().filter(|pod| !pod.flags.ours || component_of(pod).as_ref() != Some(key));
        claimants::of(others, blocks, &self.claims, |pod| claimants::class(pod, &component.ready_key, &rules.required_labels))
    }

    pub(super) fn incoming(&self, blocks: &[&BlockRules]) -> Vec<Incoming> {
        let mut incoming: Vec<Incoming> = (self.unbound.iter())
            .filter(|pod| claimants::reason(pod, blocks, &self.claims).is_some())
            .filter_map(|pod| {
                let why = incoming::reason(pod, &self.name, &self.claims, &self.volume_claims)?;
                Some(Incoming { pod: pod.clone(), why })
            })
            .collect();
        incoming.sort_by(|a, b| a.pod.key.cmp(&b.pod.key));
        incoming
    }

    /// Claims with devices of these drivers that somebody on this node may still hold: reserved for a pod that is here, or reserved at
    /// all while allocated for this node only, or reserved for something that is no pod and may be anywhere.
    pub(super) fn reserved_claims(&self, blocks: &[&BlockRules]) -> Vec<ObjectKey> {
        let ours = |claim: &&Arc<ClaimRecord>| {
            claim.devices.iter().any(|(driver, _, _)| blocks.iter().any(|block| block.drivers.contains(&**driver)))
        };
        let here = |claim: &&Arc<ClaimRecord>| match &claim.only_node {
            Some(node) => *node == self.name && !claim.reserved.is_empty(),
            None => claim.reserved.iter().any(|holder| {
                &*holder.resource != "pods"
                    || self.pods.iter().any(|pod| pod.meta.uid == holder.uid && pod.key.namespace == claim.key.namespace)
            }),
        };
        self.claims.values().filter(ours).filter(here).map(|claim| claim.key.clone()).collect()
    }

    pub(super) fn slices(&self, blocks: &[&BlockRules]) -> BTreeMap<Str, i64> {
        let mut devices = BTreeMap::new();
        for slice in self.slices.iter().filter(|slice| slice.node.as_ref() == Some(&self.name)) {
            if blocks.iter().any(|block| block.drivers.contains(&*slice.driver)) {
                *devices.entry(slice.driver.clone()).or_insert(0) += i64::from(slice.devices);
            }
        }
        devices
    }
}

impl NodeLabels {
    /// Nothing of the component is there, as far as it can be read.
    pub fn is_bare(&self) -> bool {
        self.desired.is_none()
            && self.loader.is_none()
            && self.plugin.is_none()
            && self.ready.is_none()
            && self.nonce.is_none()
            && self.loaded.is_none()
            && self.mark.is_none()
    }

    /// More than a key that is none of ours.
    fn says_something(&self) -> bool {
        !self.is_bare() || self.garbage.iter().any(|garbage| keys::Role::parse(&garbage.key).is_some())
    }
}

/// The component whose loader, plugin or unload pod this is.
pub fn component_of(pod: &PodRecord) -> Option<ComponentKey> {
    if !pod.flags.ours || OwnRole::of(pod).is_none() {
        return None;
    }
    let name = pod.labels.get(keys::COMPONENT)?;
    Some(ComponentKey { namespace: pod.key.namespace.clone(), name: name.clone() })
}

/// What a pod of ours is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnRole {
    Loader,
    Plugin,
    Unload,
}

impl OwnRole {
    pub fn of(pod: &PodRecord) -> Option<Self> {
        match &**pod.labels.get(keys::ROLE)? {
            word if word == versioned::DaemonSetRole::Loader.word() => Some(Self::Loader),
            word if word == versioned::DaemonSetRole::Plugin.word() => Some(Self::Plugin),
            word if word == versioned::UNLOAD => Some(Self::Unload),
            _ => None,
        }
    }
}

#[derive(Default)]
struct OwnPods {
    loader: Vec<Arc<PodRecord>>,
    plugin: Vec<Arc<PodRecord>>,
    unload: Vec<Arc<PodRecord>>,
}

impl OwnPods {
    fn add(&mut self, pod: &Arc<PodRecord>) {
        match OwnRole::of(pod) {
            Some(OwnRole::Loader) => self.loader.push(pod.clone()),
            Some(OwnRole::Plugin) => self.plugin.push(pod.clone()),
            Some(OwnRole::Unload) => self.unload.push(pod.clone()),
            None => {}
        }
    }
}
