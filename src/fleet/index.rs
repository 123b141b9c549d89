//! Who belongs to whom: pods by node, by owner, by claim; claims, slices and handoffs by node; members of budgets. Each index is kept in
//! step by telling it of a record before and after; each answers with the nodes that have to be judged again.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{budget_index::BudgetIndex, records::*, selector, view::IncomingReason};
use crate::{
    api::{NodeName, ObjectKey, Uid},
    kmm::records::{self as kmm, NmcRecord},
};

/// Pods sorted by key.
pub(super) type Pods = Vec<Arc<PodRecord>>;

/// A map to sorted pods that keeps no empty entries.
#[derive(Debug)]
pub(super) struct PodsBy<K>(BTreeMap<K, Pods>);

impl<K> Default for PodsBy<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord + Clone> PodsBy<K> {
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> &[Arc<PodRecord>]
    where
        K: std::borrow::Borrow<Q>,
    {
        self.0.get(key).map_or(&[], Vec::as_slice)
    }

    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.0.keys()
    }

    pub fn put(&mut self, key: &K, pod: &Arc<PodRecord>) {
        // Looked up first: cloning the key for an entry that is there mostly would cost more.
        let pods = match self.0.get_mut(key) {
            Some(pods) => pods,
            None => self.0.entry(key.clone()).or_default(),
        };
        match pods.binary_search_by(|known| known.key.cmp(&pod.key)) {
            Ok(at) => {
                if let Some(known) = pods.get_mut(at) {
                    *known = pod.clone();
                }
            }
            Err(at) => pods.insert(at, pod.clone()),
        }
    }

    pub fn clear(&mut self, key: &K) {
        self.0.remove(key);
    }

    pub fn take(&mut self, key: &K, pod: &ObjectKey) {
        if let Some(pods) = self.0.get_mut(key) {
            if let Ok(at) = pods.binary_search_by(|known| known.key.cmp(pod)) {
                pods.remove(at);
            }
            if pods.is_empty() {
                self.0.remove(key);
            }
        }
    }
}

/// A many-to-many relation of names.
#[derive(Debug)]
pub(super) struct Relation<A, B>(BTreeMap<A, BTreeSet<B>>);

impl<A, B> Default for Relation<A, B> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<A: Ord, B: Ord> Relation<A, B> {
    pub fn put(&mut self, a: A, b: B) {
        self.0.entry(a).or_default().insert(b);
    }

    pub fn take(&mut self, a: &A, b: &B) {
        if let Some(related) = self.0.get_mut(a) {
            related.remove(b);
            if related.is_empty() {
                self.0.remove(a);
            }
        }
    }

    pub fn get(&self, a: &A) -> impl Iterator<Item = &B> {
        self.0.get(a).into_iter().flatten()
    }
}

/// Where a pod may be on its way to, and why.
type Destinations = Vec<(NodeName, IncomingReason)>;

/// All indexes of a fleet.
#[derive(Debug, Default)]
pub(super) struct Index {
    pub by_node: PodsBy<NodeName>,
    pub by_owner: PodsBy<Uid>,
    /// Pods that name a ResourceClaim.
    pub by_claim: PodsBy<ObjectKey>,
    /// Pods that name a PersistentVolumeClaim.
    pub by_volume_claim: PodsBy<ObjectKey>,
    /// Unbound pods on their way to a node.
    pub incoming: PodsBy<NodeName>,
    destinations: BTreeMap<ObjectKey, Vec<NodeName>>,
    /// Claims allocated for one node only.
    pub claims_on: Relation<NodeName, ObjectKey>,
    /// Claims reserved for a pod.
    pub claims_for: Relation<ObjectKey, ObjectKey>,
    /// Claims reserved for something that is no pod, and not tied to a node.
    pub claims_anywhere: BTreeSet<ObjectKey>,
    pub slices_on: BTreeMap<NodeName, BTreeMap<Str, Arc<SliceRecord>>>,
    pub attachments_on: Relation<NodeName, Str>,
    /// ControllerRevisions of a DaemonSet.
    pub revisions_of: Relation<Uid, ObjectKey>,
    /// Versions of KMM's Modules that NodeModulesConfigs name, and how often.
    pub kmm_versions: BTreeMap<ObjectKey, BTreeMap<Str, u32>>,
    /// Pull pods of KMM's that cannot have their image, by Module, with what the kubelet says of each.
    pub kmm_pulls: BTreeMap<ObjectKey, BTreeMap<ObjectKey, Str>>,
    pub handoffs_on: BTreeMap<NodeName, BTreeMap<ObjectKey, Arc<HandoffRecord>>>,
    pub budgets: BudgetIndex,
    /// Live pods that a budget selects.
    pub members: PodsBy<ObjectKey>,
}

/// The nodes and budgets that a change concerns.
#[derive(Debug, Default)]
pub(super) struct Concerned {
    pub nodes: Vec<NodeName>,
    pub budgets: Vec<ObjectKey>,
}

impl Index {
    /// A NodeModulesConfig before and after: the Modules of which other versions are known now.
    pub fn config(&mut self, old: Option<&NmcRecord>, new: Option<&NmcRecord>) -> Vec<ObjectKey> {
        let named = |config: Option<&NmcRecord>| {
            let entries = config.into_iter().flat_map(|config| config.spec.iter().chain(&config.status));
            entries.filter_map(|entry| Some((entry.module.clone(), entry.version.clone()?))).collect::<Vec<_>>()
        };
        let mut changed = Vec::new();
        for (module, version) in named(new) {
            let count = self.kmm_versions.entry(module.clone()).or_default().entry(version).or_insert(0);
            *count += 1;
            if *count == 1 {
                changed.push(module);
            }
        }
        for (module, version) in named(old) {
            let Some(versions) = self.kmm_versions.get_mut(&module) else { continue };
            if let Some(count) = versions.get_mut(&version) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    versions.remove(&version);
                    changed.push(module);
                }
            }
        }
        changed
    }

    /// A pod before and after: the Module of which another pull fails now, or none any more. While one fails its first words are kept: the
    /// kubelet goes to and fro between two for the same thing.
    pub fn pull(&mut self, old: Option<&PodRecord>, new: Option<&PodRecord>) -> Option<ObjectKey> {
        let pull = |pod: Option<&PodRecord>| {
            let of = kmm::PodRecord::of(pod?)?;
            matches!(of.part, kmm::Part::Pull { .. }).then_some(of)
        };
        let (old, new) = (pull(old), pull(new));
        let (key, module) = new.as_ref().or(old.as_ref()).map(|of| (of.key.clone(), of.module.clone()))?;
        let says = new.filter(kmm::PodRecord::image_missing).and_then(|of| of.waits());
        let known = self.kmm_pulls.get(&module).is_some_and(|pulls| pulls.contains_key(&key));
        match says {
            Some(says) if !known => {
                self.kmm_pulls.entry(module.clone()).or_default().insert(key, says);
            }
            None if known => {
                if let Some(pulls) = self.kmm_pulls.get_mut(&module) {
                    pulls.remove(&key);
                }
                self.kmm_pulls.retain(|_, pulls| !pulls.is_empty());
            }
            _ => return None,
        }
        Some(module)
    }

    /// A pod before and after. `budgets` are at least those of its namespace that select it, each once.
    pub fn pod<'b>(
        &mut self,
        old: Option<&Arc<PodRecord>>,
        new: Option<&Arc<PodRecord>>,
        budgets: impl Iterator<Item = &'b Arc<BudgetRecord>>,
    ) -> Concerned {
        let mut concerned = Concerned::default();
        if let Some(old) = old {
            self.forget_pod(old, new, &mut concerned);
        }
        if let Some(new) = new {
            if let Some(node) = &new.node {
                self.by_node.put(node, new);
                concerned.nodes.push(node.clone());
            }
            if let Some(owner) = &new.owner {
                self.by_owner.put(&owner.uid, new);
            }
            for claim in claims_of(new) {
                self.by_claim.put(&claim, new);
            }
            for claim in volume_claims_of(new) {
                self.by_volume_claim.put(&claim, new);
            }
        }
        for budget in budgets {
            let is = |pod: &&Arc<PodRecord>| budget.selects(pod);
            match (old.filter(is), new.filter(is)) {
                (_, Some(new)) => self.members.put(&budget.key, new),
                (Some(old), None) => self.members.take(&budget.key, &old.key),
                (None, None) => continue,
            }
            concerned.budgets.push(budget.key.clone());
        }
        concerned
    }

    fn forget_pod(&mut self, old: &Arc<PodRecord>, new: Option<&Arc<PodRecord>>, concerned: &mut Concerned) {
        if let Some(node) = &old.node {
            concerned.nodes.push(node.clone());
            if new.is_none_or(|new| new.node.as_ref() != Some(node)) {
                self.by_node.take(node, &old.key);
            }
        }
        if let Some(owner) = &old.owner
            && new.is_none_or(|new| new.owner.as_ref().map(|owner| &owner.uid) != Some(&owner.uid))
        {
            self.by_owner.take(&owner.uid, &old.key);
        }
        for claim in claims_of(old) {
            self.by_claim.take(&claim, &old.key);
        }
        for claim in volume_claims_of(old) {
            self.by_volume_claim.take(&claim, &old.key);
        }
    }

    /// Where an unbound pod is on its way to, now.
    pub fn on_its_way(&mut self, pod: &ObjectKey, to: Option<(&Arc<PodRecord>, Destinations)>) -> Vec<NodeName> {
        let before = self.destinations.remove(pod).unwrap_or_default();
        for node in &before {
            self.incoming.take(node, pod);
        }
        let mut concerned = before;
        if let Some((record, to)) = to {
            let mut nodes: Vec<NodeName> = to.into_iter().map(|(node, _)| node).collect();
            nodes.sort();
            nodes.dedup();
            for node in &nodes {
                self.incoming.put(node, record);
            }
            concerned.extend(nodes.iter().cloned());
            if !nodes.is_empty() {
                self.destinations.insert(pod.clone(), nodes);
            }
        }
        concerned
    }

    /// A ResourceClaim before and after. Answers with nodes, and whether it may be held on any node.
    pub fn claim(&mut self, old: Option<&ClaimRecord>, new: Option<&ClaimRecord>) -> (Vec<NodeName>, bool) {
        let mut nodes = Vec::new();
        let mut anywhere = false;
        for (record, is_new) in [(old, false), (new, true)].into_iter().filter_map(|(record, is_new)| Some((record?, is_new))) {
            if let Some(node) = &record.only_node {
                if is_new {
                    self.claims_on.put(node.clone(), record.key.clone());
                } else {
                    self.claims_on.take(node, &record.key);
                }
                nodes.push(node.clone());
            }
            for holder in &record.reserved {
                if &*holder.resource != "pods" {
                    if record.only_node.is_none() {
                        anywhere = true;
                        if is_new {
                            self.claims_anywhere.insert(record.key.clone());
                        } else {
                            self.claims_anywhere.remove(&record.key);
                        }
                    }
                    continue;
                }
                let pod = ObjectKey { namespace: record.key.namespace.clone(), name: holder.name.clone() };
                if is_new {
                    self.claims_for.put(pod, record.key.clone());
                } else {
                    self.claims_for.take(&pod, &record.key);
                }
            }
        }
        (nodes, anywhere)
    }

    pub fn slice(&mut self, old: Option<&Arc<SliceRecord>>, new: Option<&Arc<SliceRecord>>) -> Vec<NodeName> {
        let mut nodes = Vec::new();
        if let Some(old) = old
            && let Some(node) = &old.node
        {
            if let Some(slices) = self.slices_on.get_mut(node) {
                slices.remove(&old.name);
                if slices.is_empty() {
                    self.slices_on.remove(node);
                }
            }
            nodes.push(node.clone());
        }
        if let Some(new) = new
            && let Some(node) = &new.node
        {
            self.slices_on.entry(node.clone()).or_default().insert(new.name.clone(), new.clone());
            nodes.push(node.clone());
        }
        nodes
    }

    pub fn handoff(&mut self, old: Option<&Arc<HandoffRecord>>, new: Option<&Arc<HandoffRecord>>) -> Vec<NodeName> {
        let mut nodes = Vec::new();
        if let Some(old) = old
            && let Ok(spec) = &old.spec
        {
            let node = NodeName::from(spec.node.as_str());
            if let Some(handoffs) = self.handoffs_on.get_mut(&node) {
                handoffs.remove(&old.key);
                if handoffs.is_empty() {
                    self.handoffs_on.remove(&node);
                }
            }
            nodes.push(node);
        }
        if let Some(new) = new
            && let Ok(spec) = &new.spec
        {
            let node = NodeName::from(spec.node.as_str());
            self.handoffs_on.entry(node.clone()).or_default().insert(new.key.clone(), new.clone());
            nodes.push(node);
        }
        nodes
    }
}

impl BudgetRecord {
    /// Terminal pods are in nobody's count.
    pub fn selects(&self, pod: &PodRecord) -> bool {
        pod.key.namespace == self.key.namespace
            && !pod.phase.is_terminal()
            && self.selector.as_ref().is_some_and(|selector| selector::matches(selector, &pod.labels))
    }
}

fn claims_of(pod: &PodRecord) -> impl Iterator<Item = ObjectKey> {
    let namespace = pod.key.namespace.clone();
    let names = pod.extra.iter().flat_map(|extra| &extra.claims);
    names.map(move |name| ObjectKey { namespace: namespace.clone(), name: name.clone() })
}

fn volume_claims_of(pod: &PodRecord) -> impl Iterator<Item = ObjectKey> {
    let namespace = pod.key.namespace.clone();
    let names = pod.extra.iter().flat_map(|extra| extra.volume_claims());
    names.map(move |name| ObjectKey { namespace: namespace.clone(), name: name.clone() })
}
