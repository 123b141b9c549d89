//! What has to be decided again: what is different from what the last decisions were made on. It decides nothing itself.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;

use super::{budget::Usage, decisions::Decisions, facts::Context, observed::Observed};
use crate::{
    api::{ComponentKey, NodeName, ObjectKey, Version, keys::Slot},
    fleet::{
        records::{LeaseRecord, Str},
        selector,
        view::{BudgetView, ComponentView, FleetView, NodeList, NodeView, VersionView, changed_nodes},
    },
};

/// What decisions were made on.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub generation: u64,
    pub nodes: Arc<NodeList>,
    pub components: BTreeMap<ComponentKey, Arc<ComponentView>>,
    pub budgets: Arc<BTreeMap<ObjectKey, Arc<BudgetView>>>,
    pub lease: Option<Arc<LeaseRecord>>,
    pub context: Context,
    /// Why what the watches show is not current; and why what shows volumes, or KMM, is not.
    pub stale: [Option<String>; 3],
    /// The server asked to be left alone until then; meant for all drains.
    pub throttled: Option<Timestamp>,
    pub usage: Usage,
    pub draining: Vec<Draining>,
}

/// A node that was admitted and whose pods have not all left, with those budgets of theirs that have room for at most one disruption.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Draining {
    pub node: NodeName,
    pub tight: BTreeMap<ObjectKey, usize>,
}

impl Seen {
    /// Nothing that every verdict may rest on is different.
    pub fn holds_for(&self, view: &FleetView, context: &Context, stale: [Option<&str>; 3]) -> bool {
        self.context == *context
            && self.stale.each_ref().map(|why| why.as_deref()) == stale
            && same_components(&self.components, &view.components)
    }

    pub fn slots(&self) -> &[Slot] {
        self.lease.as_ref().map(|lease| &lease.slots[..]).unwrap_or_default()
    }

    pub fn garbage(&self) -> Option<&str> {
        self.lease.as_ref().and_then(|lease| lease.slots_garbage.as_deref())
    }

    /// The budgets that are others now, before and after.
    fn changed_budgets<'a>(&'a self, view: &'a FleetView) -> Vec<[Option<&'a Arc<BudgetView>>; 2]> {
        if Arc::ptr_eq(&self.budgets, &view.budgets) {
            return Vec::new();
        }
        let pair = |key| [self.budgets.get(key), view.budgets.get(key)];
        // A picture only tells what is different from the one before it.
        if view.generation == self.generation.wrapping_add(1) {
            return view.changes.budgets.iter().map(pair).collect();
        }
        let keys: BTreeSet<&ObjectKey> = self.budgets.keys().chain(view.budgets.keys()).collect();
        let same = |[old, new]: &[Option<&Arc<BudgetView>>; 2]| old.zip(*new).is_some_and(|(old, new)| Arc::ptr_eq(old, new));
        keys.into_iter().map(pair).filter(|it| !same(it)).collect()
    }
}

/// Budgets that are others now: who is under one of them?
pub(super) struct Budgets<'a>(Vec<[Option<&'a Arc<BudgetView>>; 2]>);

impl<'a> Budgets<'a> {
    pub fn changed(seen: &'a Seen, view: &'a FleetView) -> Self {
        Self(seen.changed_budgets(view))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One of them selects, or selected, a claimant on the node.
    pub fn concern(&self, node: &NodeView) -> bool {
        let pods = || node.components.values().flat_map(|occupancy| &occupancy.claimants).map(|claimant| &claimant.pod);
        self.0.iter().flatten().flatten().any(|budget| {
            let record = &budget.record;
            pods()
                .any(|pod| pod.key.namespace == record.key.namespace && selector::selects(record.selector.as_ref(), &pod.labels))
        })
    }
}

/// The nodes to be decided again, those that are gone among them, as long as [`Seen::holds_for`] says that not all are.
pub(super) fn nodes(
    seen: &Seen,
    previous: &Decisions,
    view: &FleetView,
    observed: &Observed,
    budgets: &Budgets<'_>,
    dirty: &BTreeSet<NodeName>,
) -> BTreeSet<NodeName> {
    let mut again: BTreeSet<NodeName> = dirty.iter().filter(|name| view.node(name).is_some()).cloned().collect();
    again.extend(changed_nodes(&seen.nodes, &view.nodes));
    let slots = view.lease.as_ref().map(|lease| &lease.slots[..]).unwrap_or_default();
    if seen.slots() != slots {
        let before: BTreeMap<&str, &Slot> = seen.slots().iter().map(|slot| (slot.node.as_str(), slot)).collect();
        let after: BTreeMap<&str, &Slot> = slots.iter().map(|slot| (slot.node.as_str(), slot)).collect();
        let named = before.keys().chain(after.keys()).filter(|name| before.get(*name) != after.get(*name));
        again.extend(named.map(|name| NodeName::from(*name)).filter(|name| view.node(name).is_some()));
    }
    let throttled = seen.throttled != observed.throttled(view.now);
    for leaf in previous.nodes.leaves() {
        let sum = leaf.sum();
        if sum.recheck.is_some_and(|at| at <= view.now) {
            let due = leaf.entries().iter().filter(|node| node.recheck.is_some_and(|at| at <= view.now));
            again.extend(due.map(|node| node.node.clone()));
        }
        if sum.drains && (throttled || !budgets.is_empty()) {
            let drains = leaf.entries().iter().filter(|node| node.drains);
            again.extend(drains.filter(|node| throttled || budgets.concern(&node.view)).map(|node| node.node.clone()));
        }
    }
    again
}

/// Whether decisions on nodes can differ because of the components: their status and counters do not matter.
fn same_components(old: &BTreeMap<ComponentKey, Arc<ComponentView>>, new: &BTreeMap<ComponentKey, Arc<ComponentView>>) -> bool {
    old.len() == new.len()
        && old.iter().zip(new).all(|((a, old), (b, new))| a == b && (Arc::ptr_eq(old, new) || same_component(old, new)))
}

fn same_component(old: &ComponentView, new: &ComponentView) -> bool {
    let versions = |view: &ComponentView| -> Vec<(Version, Str, Option<bool>, Option<bool>)> {
        let of = |version: &VersionView| {
            (
                version.version.clone(),
                version.content.clone(),
                version.loader.as_ref().map(|set| set.on_delete),
                version.plugin.as_ref().map(|set| set.on_delete),
            )
        };
        view.versions.values().map(of).collect()
    };
    old.record.meta.uid == new.record.meta.uid
        && old.record.spec == new.record.spec
        && old.record.meta.deletion.is_some() == new.record.meta.deletion.is_some()
        && old.refusals == new.refusals
        && old.changed_without_version == new.changed_without_version
        && old.anomalies == new.anomalies
        && versions(old) == versions(new)
}
