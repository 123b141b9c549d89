//! From what is known to a FleetView: only what events concerned is looked at again, everything else is shared with the picture before.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;

use super::{
    component_view::{self, Blocks},
    csi,
    event::Kind,
    follow::{Dirty, Fleet},
    keyed::cluster_scoped,
    kmm_events::kmm_module,
    occupancy::NodeFacts,
    records::*,
    rules::{ComponentRules, Rules},
    shared::Shared,
    usage::Usage,
    view::*,
};
use crate::{
    api::{ComponentKey, NodeName, ObjectKey, Uid, keys},
    drain::claimants::Claims,
};

/// The parts of the last picture.
#[derive(Debug, Default)]
pub(super) struct Projected {
    generation: u64,
    nodes: Shared<NodeList>,
    /// Component views without counts and conflicts.
    bases: BTreeMap<ComponentKey, ComponentView>,
    conflicts: BTreeMap<ComponentKey, Vec<String>>,
    blocks: Blocks,
    components: BTreeMap<ComponentKey, Arc<ComponentView>>,
    rules: Arc<Rules>,
    usage: Usage,
    handoffs: Shared<BTreeMap<ObjectKey, Arc<HandoffRecord>>>,
    daemon_sets: Shared<BTreeMap<ObjectKey, Arc<DaemonSetRecord>>>,
    budgets: Shared<BTreeMap<ObjectKey, Arc<BudgetView>>>,
    health: Arc<Vec<WatchHealth>>,
}

impl Fleet {
    /// The picture of the cluster now. `now` is the API server's time.
    pub fn project(&mut self, now: Timestamp) -> Arc<FleetView> {
        let mut dirty = std::mem::take(&mut self.dirty);
        let mut changes = Changes { lease: dirty.lease, ended: std::mem::take(&mut dirty.ended), ..Changes::default() };
        let mut recount = BTreeSet::new();
        self.project_handoffs(&dirty, &mut changes, &mut recount);
        self.project_daemon_sets(&dirty);
        let rejudge = self.project_bases(&dirty, &mut recount);
        self.project_nodes(&dirty, dirty.all_nodes || rejudge, &mut changes, &mut recount);
        self.project_components(recount, &mut changes);
        self.project_budgets(&dirty, &mut changes);
        if dirty.health {
            self.project_health();
        }
        self.projected.generation += 1;
        let projected = &self.projected;
        Arc::new(FleetView {
            generation: projected.generation,
            now,
            cluster: self.cluster.clone(),
            components: projected.components.clone(),
            nodes: projected.nodes.get().clone(),
            handoffs: projected.handoffs.get().clone(),
            lease: self.stores.lease.iter().next().cloned(),
            budgets: projected.budgets.get().clone(),
            daemon_sets: projected.daemon_sets.get().clone(),
            occupied: projected.usage.occupied.clone(),
            rules: projected.rules.clone(),
            changes: Arc::new(changes),
            health: projected.health.clone(),
            synced: self.is_synced(),
        })
    }

    fn project_handoffs(&mut self, dirty: &Dirty, changes: &mut Changes, recount: &mut BTreeSet<ComponentKey>) {
        let mut deltas = Vec::new();
        for key in &dirty.handoffs {
            let new = self.stores.handoffs.get(key).cloned();
            let old = self.projected.handoffs.get().get(key).cloned();
            self.projected.usage.handoff(old.as_deref(), new.as_deref(), recount);
            deltas.push((key.clone(), new));
        }
        self.projected.handoffs.patch(deltas);
        changes.handoffs.extend(dirty.handoffs.iter().cloned());
    }

    fn project_daemon_sets(&mut self, dirty: &Dirty) {
        let deltas = dirty.daemon_sets.iter().map(|key| (key.clone(), self.stores.daemon_sets.get(key).cloned()));
        self.projected.daemon_sets.patch(deltas.collect());
    }

    /// Component views but for their counts, and the rules that follow from them. True: every node has to be judged again.
    fn project_bases(&mut self, dirty: &Dirty, recount: &mut BTreeSet<ComponentKey>) -> bool {
        if dirty.components.is_empty() && !dirty.required_labels {
            return false;
        }
        let unlisted = self.csi_unlisted();
        for key in &dirty.components {
            recount.insert(key.clone());
            let Some(record) = self.stores.components.get(key) else {
                self.projected.bases.remove(key);
                continue;
            };
            let sets: Vec<_> = self.stores.daemon_sets.in_namespace(&key.namespace).cloned().collect();
            let followed = kmm_module(record).map(|name| self.kmm_view(key, name, &sets));
            let mut base = component_view::build(record, &sets, &mut self.projected.blocks);
            if let Some((view, refusals)) = followed {
                base.versions = component_view::followed(record, &view);
                base.refusals.extend(refusals);
                base.kmm = Some(Arc::new(view));
            }
            if let Some(plugin) = record.spec.as_ref().ok().and_then(|spec| spec.csi_node_plugin.as_ref()) {
                let revisions =
                    |set: &Uid| self.index.revisions_of.get(set).filter_map(|key| self.stores.revisions.get(key)).collect();
                let driver = self.stores.csi_drivers.get(&cluster_scoped(plugin.driver.as_str().into()));
                let (view, refusals) = csi::build(key, plugin, &sets, revisions, driver.map(|driver| &**driver));
                match &unlisted {
                    // Without them nothing is known, whatever it looks like.
                    Some(why) => base.refusals.push(format!("what is needed to judge CSI volumes is not known: {why}")),
                    None => base.refusals.extend(refusals),
                }
                base.csi = Some(Arc::new(view));
            }
            self.projected.bases.insert(key.clone(), base);
        }
        let projected = &mut self.projected;
        let conflicts = component_view::conflicts(&projected.bases);
        for key in conflicts.keys().chain(projected.conflicts.keys()) {
            if conflicts.get(key) != projected.conflicts.get(key) {
                recount.insert(key.clone());
            }
        }
        projected.conflicts = conflicts;
        let needs = projected.daemon_sets.get().values().filter(|set| !set.requires_labels.is_empty());
        let rules = Rules {
            components: projected.bases.iter().map(|(key, base)| (key.clone(), ComponentRules::of(base))).collect(),
            required_labels: needs.map(|set| (set.meta.uid.clone(), set.requires_labels.clone())).collect(),
        };
        let rejudge = !rules.same_components(&projected.rules);
        if rules != *projected.rules {
            projected.rules = Arc::new(rules);
        }
        if dirty.specs {
            let used: BTreeSet<&str> =
                (self.stores.daemon_sets.iter()).filter_map(|set| set.annotations.get(keys::BLOCK)).map(|text| &**text).collect();
            projected.blocks.retain(|text, _| used.contains(&**text));
        }
        rejudge
    }

    fn project_nodes(&mut self, dirty: &Dirty, all: bool, changes: &mut Changes, recount: &mut BTreeSet<ComponentKey>) {
        changes.all_nodes = all;
        if all {
            let names = self.node_names();
            let gone = self.projected.nodes.get().iter().map(|node| node.name.clone()).filter(|name| !names.contains(name));
            changes.nodes.extend(gone.collect::<Vec<_>>());
            let nodes: NodeList = names.iter().map(|name| Arc::new(self.judge(name.clone()))).collect();
            let old = self.projected.nodes.replace(nodes);
            let new = self.projected.nodes.get().clone();
            for name in &changes.nodes {
                self.projected.usage.node(node_in(&old, name), None, recount);
            }
            for node in new.iter() {
                self.projected.usage.node(node_in(&old, &node.name), Some(node), recount);
            }
            changes.nodes.extend(names);
            return;
        }
        let mut deltas = Vec::new();
        for name in dirty.node_leases.iter().filter(|name| !dirty.nodes.contains(*name)) {
            // A renewed Lease changes nothing else of a node.
            if let Some(node) = node_in(self.projected.nodes.get(), name) {
                let lease = self.stores.node_leases.get(&cluster_scoped(name.shared())).cloned();
                deltas.push(Arc::new(NodeView { lease, ..node.clone() }));
            }
        }
        let mut come_or_gone = Vec::new();
        for name in &dirty.nodes {
            let new = self.exists(name).then(|| Arc::new(self.judge(name.clone())));
            let old = node_in(self.projected.nodes.get(), name);
            self.projected.usage.node(old, new.as_deref(), recount);
            match (old.is_some(), new) {
                (true, Some(new)) => deltas.push(new),
                (false, None) => {}
                (_, new) => come_or_gone.push((name.clone(), new)),
            }
        }
        changes.nodes.extend(deltas.iter().map(|node| node.name.clone()));
        self.projected.nodes.patch(deltas);
        if !come_or_gone.is_empty() {
            // One pass, however many: a first list brings them by the thousand.
            let nodes = self.projected.nodes.get().iter();
            let mut nodes: BTreeMap<NodeName, Arc<NodeView>> = nodes.map(|node| (node.name.clone(), node.clone())).collect();
            for (name, new) in come_or_gone {
                match new {
                    Some(new) => nodes.insert(name.clone(), new),
                    None => nodes.remove(&name),
                };
                changes.nodes.insert(name);
            }
            self.projected.nodes.replace(nodes.into_values().collect());
        }
    }

    fn node_names(&self) -> BTreeSet<NodeName> {
        let mut names: BTreeSet<NodeName> = self.stores.nodes.iter().map(|node| node.name.clone()).collect();
        names.extend(self.index.by_node.keys().cloned());
        names.extend(self.index.handoffs_on.keys().cloned());
        names.extend(self.slots().map(NodeName::from));
        names
    }

    fn exists(&self, name: &NodeName) -> bool {
        self.stores.nodes.get(&cluster_scoped(name.shared())).is_some()
            || !self.index.by_node.get(name).is_empty()
            || self.index.handoffs_on.contains_key(name)
            || self.slots().any(|slot| *name == *slot)
    }

    fn slots(&self) -> impl Iterator<Item = &str> {
        self.stores.lease.iter().flat_map(|lease| &lease.slots).map(|slot| slot.node.as_str())
    }

    fn judge(&self, name: NodeName) -> NodeView {
        let (stores, index) = (&self.stores, &self.index);
        let key = cluster_scoped(name.shared());
        let pods = index.by_node.get(&name).to_vec();
        let unbound = index.incoming.get(&name).to_vec();
        let mut claims = Claims::new();
        let mut volume_claims = BTreeMap::new();
        if !stores.claims.is_empty() {
            let named = pods.iter().chain(&unbound).flat_map(|pod| {
                let names = pod.extra.iter().flat_map(|extra| &extra.claims);
                names.map(|claim| ObjectKey { namespace: pod.key.namespace.clone(), name: claim.clone() })
            });
            let reserved = pods.iter().flat_map(|pod| index.claims_for.get(&pod.key)).cloned();
            let here = index.claims_on.get(&name).chain(&index.claims_anywhere).cloned();
            for key in named.chain(reserved).chain(here) {
                if let Some(claim) = stores.claims.get(&key) {
                    claims.insert(key, claim.clone());
                }
            }
        }
        let csi = self.projected.rules.components.values().any(|component| component.csi.is_some());
        for pod in unbound.iter().chain(pods.iter().filter(|_| csi)) {
            for claim in pod.extra.iter().flat_map(|extra| extra.volume_claims()) {
                let key = ObjectKey { namespace: pod.key.namespace.clone(), name: claim.clone() };
                if let Some(claim) = stores.volume_claims.get(&key) {
                    volume_claims.insert(key, claim.clone());
                }
            }
        }
        let (mut volumes, mut attachments) = (BTreeMap::new(), Vec::new());
        if csi {
            attachments.extend(
                index.attachments_on.get(&name).filter_map(|it| stores.attachments.get(&cluster_scoped(it.clone()))).cloned(),
            );
            let claimed = volume_claims.values().filter_map(|claim: &Arc<VolumeClaimRecord>| claim.volume.clone());
            let attached = attachments.iter().filter_map(|it: &Arc<AttachmentRecord>| it.volume.clone());
            for name in claimed.chain(attached) {
                if let Some(volume) = stores.volumes.get(&cluster_scoped(name.clone())) {
                    volumes.insert(name, volume.clone());
                }
            }
        }
        let kmm = self.projected.rules.components.values().any(|component| component.kmm.is_some());
        let facts = NodeFacts {
            config: stores.configs.get(&key).filter(|_| kmm).cloned(),
            csi_node: stores.csi_nodes.get(&key).filter(|_| csi).cloned(),
            volumes,
            attachments,
            record: stores.nodes.get(&key).cloned(),
            lease: stores.node_leases.get(&key).cloned(),
            slices: index.slices_on.get(&name).into_iter().flat_map(|slices| slices.values().cloned()).collect(),
            handoffs: index.handoffs_on.get(&name).into_iter().flat_map(|handoffs| handoffs.values().cloned()).collect(),
            pods,
            unbound,
            claims,
            volume_claims,
            name,
        };
        facts.view(&self.projected.rules)
    }

    fn project_components(&mut self, recount: BTreeSet<ComponentKey>, changes: &mut Changes) {
        let projected = &mut self.projected;
        for key in recount {
            let Some(base) = projected.bases.get(&key) else {
                if projected.components.remove(&key).is_some() {
                    changes.components.insert(key);
                }
                continue;
            };
            let mut view = base.clone();
            view.refusals.extend(projected.conflicts.get(&key).into_iter().flatten().cloned());
            view.matched_nodes = projected.usage.matched(&key);
            for (version, it) in &mut view.versions {
                it.used_by = projected.usage.of_version(&key, version);
            }
            component_view::missing(&mut view, projected.usage.there(&key));
            if projected.components.get(&key).is_none_or(|known| **known != view) {
                projected.components.insert(key.clone(), Arc::new(view));
                changes.components.insert(key);
            }
        }
    }

    fn project_budgets(&mut self, dirty: &Dirty, changes: &mut Changes) {
        self.find_members(&dirty.members);
        let budgets = dirty.budgets.iter().map(|key| (key, self.stores.budgets.get(key)));
        let budgets = budgets.map(|(key, record)| (key.clone(), record.map(|record| Arc::new(self.budget(record)))));
        let known = self.projected.budgets.get();
        let deltas: Vec<_> = budgets.filter(|(key, new)| known.get(key) != new.as_ref()).collect();
        changes.budgets.extend(deltas.iter().map(|(key, _)| key.clone()));
        self.projected.budgets.patch(deltas);
    }

    fn budget(&self, record: &Arc<BudgetRecord>) -> BudgetView {
        let members = self.index.members.get(&record.key);
        let owners: BTreeMap<_, _> = members.iter().map(|pod| (pod.owner.as_ref().map(|owner| &owner.uid), pod)).collect();
        let wanted = owners.into_values().map(|pod| {
            let owner = pod.owner.as_ref()?;
            let key = ObjectKey { namespace: pod.key.namespace.clone(), name: owner.name.clone() };
            let store = match &*owner.kind {
                "ReplicaSet" => &self.stores.replica_sets,
                "StatefulSet" => &self.stores.stateful_sets,
                _ => return None,
            };
            store.get(&key).filter(|scale| scale.meta.uid == owner.uid).map(|scale| scale.replicas)
        });
        let unhealthy = members.iter().filter(|pod| !pod.ready.is_true() || pod.meta.deletion.is_some());
        BudgetView {
            record: record.clone(),
            selected: u32::try_from(members.len()).unwrap_or(u32::MAX),
            unhealthy: unhealthy
                .map(|pod| Unhealthy { pod: pod.key.clone(), node: pod.node.clone(), terminating: pod.meta.deletion.is_some() })
                .collect(),
            wanted: wanted.sum(),
        }
    }

    fn project_health(&mut self) {
        let (csi, kmm) = (self.wants_csi(), self.wants_kmm());
        let wanted = |kind: &Kind| {
            !kind.is_asked_for()
                || Kind::OF_CSI.contains(kind) && csi
                || Kind::OF_KMM.contains(kind) && kmm
                || self.watches.contains_key(kind)
        };
        let shown = Kind::ALL.into_iter().filter(wanted);
        let health = shown.map(|kind| {
            let (objects, undecodable) = self.stores.count(kind);
            let status = self.watches.get(&kind);
            let by_store = if self.stores.is_synced(kind) { WatchState::Live } else { WatchState::Syncing };
            WatchHealth {
                resource: kind.resource().into(),
                required: status.map_or(!kind.is_asked_for(), |status| status.required),
                state: status.map_or(by_store, |status| status.state.clone()),
                last_event: status.and_then(|status| status.last_event),
                errors: status.map_or(0, |status| status.errors),
                objects,
                undecodable,
            }
        });
        let health: Vec<WatchHealth> = health.collect();
        if *self.projected.health != health {
            self.projected.health = Arc::new(health);
        }
    }
}

fn node_in<'n>(nodes: &'n NodeList, name: &NodeName) -> Option<&'n NodeView> {
    let at = nodes.binary_search_by(|node| node.name.cmp(name)).ok()?;
    nodes.get(at).map(|node| &**node)
}
