//! Counts over nodes and handoffs, kept in step: who uses a version, how many nodes a component has.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    records::HandoffRecord,
    view::{NodeLabels, NodeView},
};
use crate::api::{ComponentKey, NodeName, Version};

#[derive(Debug, Default)]
pub(super) struct Usage {
    counts: BTreeMap<ComponentKey, Counts>,
    pub occupied: Arc<BTreeMap<ComponentKey, Arc<BTreeSet<NodeName>>>>,
}

#[derive(Debug, Default)]
struct Counts {
    matched: u32,
    versions: BTreeMap<Version, Uses>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Uses {
    /// By whatever label, record or handoff.
    all: u32,
    /// By what is there: loader, plugin or record. A desired version may be a typo.
    there: u32,
}

impl Usage {
    pub fn matched(&self, component: &ComponentKey) -> u32 {
        self.counts.get(component).map_or(0, |counts| counts.matched)
    }

    pub fn of_version(&self, component: &ComponentKey, version: &Version) -> u32 {
        self.counts.get(component).and_then(|counts| counts.versions.get(version)).map_or(0, |uses| uses.all)
    }

    /// Versions whose loader, plugin or record is on nodes, and on how many.
    pub fn there(&self, component: &ComponentKey) -> impl Iterator<Item = (&Version, u32)> {
        let versions = self.counts.get(component).into_iter().flat_map(|counts| &counts.versions);
        versions.filter(|(_, uses)| uses.there > 0).map(|(version, uses)| (version, uses.there))
    }

    /// A node's view before and after; `changed` gets the components whose counts moved.
    pub fn node(&mut self, old: Option<&NodeView>, new: Option<&NodeView>, changed: &mut BTreeSet<ComponentKey>) {
        let keys = [old, new].into_iter().flatten().flat_map(|view| view.components.keys());
        let keys: BTreeSet<&ComponentKey> = keys.collect();
        for key in keys {
            let before = old.and_then(|view| view.components.get(key));
            let after = new.and_then(|view| view.components.get(key));
            if let (Some(before), Some(after)) = (before, after)
                && before.selected == after.selected
                && before.labels == after.labels
            {
                continue;
            }
            let counts = match self.counts.get_mut(key) {
                Some(counts) => counts,
                None => self.counts.entry(key.clone()).or_default(),
            };
            if let Some(before) = before {
                counts.matched = counts.matched.saturating_sub(u32::from(before.selected));
                named(&before.labels).into_iter().for_each(|(version, there)| counts.less(version, there));
            }
            if let Some(after) = after {
                counts.matched += u32::from(after.selected);
                named(&after.labels).into_iter().for_each(|(version, there)| counts.more(version, there));
            }
            if before.is_some() != after.is_some()
                && let Some(name) = new.or(old).map(|view| &view.name)
            {
                self.occupy(key, name, after.is_some());
            }
            changed.insert(key.clone());
        }
    }

    fn occupy(&mut self, component: &ComponentKey, node: &NodeName, is: bool) {
        let occupied = Arc::make_mut(&mut self.occupied);
        let nodes = Arc::make_mut(occupied.entry(component.clone()).or_default());
        if is {
            nodes.insert(node.clone());
        } else {
            nodes.remove(node);
            if nodes.is_empty() {
                occupied.remove(component);
            }
        }
    }

    /// A handoff before and after.
    pub fn handoff(&mut self, old: Option<&HandoffRecord>, new: Option<&HandoffRecord>, changed: &mut BTreeSet<ComponentKey>) {
        let before = old.and_then(versions_of);
        let after = new.and_then(versions_of);
        if before == after {
            return;
        }
        if let Some((component, versions)) = before {
            let counts = self.counts.entry(component.clone()).or_default();
            versions.iter().for_each(|version| counts.less(version, false));
            changed.insert(component);
        }
        if let Some((component, versions)) = after {
            let counts = self.counts.entry(component.clone()).or_default();
            versions.iter().for_each(|version| counts.more(version, false));
            changed.insert(component);
        }
    }
}

impl Counts {
    fn more(&mut self, version: &Version, there: bool) {
        let uses = self.versions.entry(version.clone()).or_default();
        uses.all += 1;
        uses.there += u32::from(there);
    }

    fn less(&mut self, version: &Version, there: bool) {
        if let Some(uses) = self.versions.get_mut(version) {
            uses.all = uses.all.saturating_sub(1);
            uses.there = uses.there.saturating_sub(u32::from(there));
            if uses.all == 0 {
                self.versions.remove(version);
            }
        }
    }
}

/// Versions that a node's labels or record name, each once, and whether it is there.
fn named(labels: &NodeLabels) -> BTreeMap<&Version, bool> {
    let loaded = labels.loaded.as_ref().map(|loaded| &loaded.version);
    let desired = labels.desired.iter().map(|version| (version, false));
    let there = [labels.loader.as_ref(), labels.plugin.as_ref(), loaded].into_iter().flatten().map(|version| (version, true));
    desired.chain(there).collect()
}

/// Versions that a handoff comes from or goes to.
fn versions_of(handoff: &HandoffRecord) -> Option<(ComponentKey, BTreeSet<Version>)> {
    let spec = handoff.spec.as_ref().ok()?;
    let run = handoff.status.run.as_ref();
    let names = [spec.version.as_ref(), run.and_then(|run| run.target.as_ref()), run.and_then(|run| run.from.as_ref())];
    let versions = names.into_iter().flatten().map(|name| Version::from(name.as_str())).collect();
    Some((ComponentKey { namespace: handoff.key.namespace.clone(), name: spec.component.as_str().into() }, versions))
}
