//! How many nodes are out of service because of us: the slots of the Lease, and nodes that carry our cordon without one.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    rollout::blocker,
    verdict::{Blocker, BlockerKind, ObjectRef},
};
use crate::{api::keys::Slot, fleet::view::ComponentView};
use jiff::Timestamp;

/// The nodes that count, by component owner (`namespace/name`).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Usage {
    by_component: BTreeMap<String, BTreeSet<String>>,
    all: BTreeSet<String>,
}

impl Usage {
    /// `counts`: whether a slot counts (a first install takes nothing out of service). `closed`: (owner, node) of nodes with our cordon.
    pub fn new<'a>(slots: &[Slot], counts: impl Fn(&Slot) -> bool, closed: impl Iterator<Item = (String, &'a str)>) -> Self {
        let mut usage = Self::default();
        for slot in slots.iter().filter(|slot| counts(slot)) {
            usage.add(&slot.component, &slot.node);
        }
        for (owner, node) in closed {
            usage.add(&owner, node);
        }
        usage
    }

    fn add(&mut self, owner: &str, node: &str) {
        self.by_component.entry(owner.to_owned()).or_default().insert(node.to_owned());
        self.all.insert(node.to_owned());
    }

    /// Nodes of the component, without this one.
    pub fn of(&self, owner: &str, without: &str) -> u32 {
        self.by_component.get(owner).map_or(0, |nodes| count(nodes, without))
    }

    pub fn total(&self, without: &str) -> u32 {
        count(&self.all, without)
    }

    /// Why one more node of the component would be one too many.
    pub fn spent(
        &self,
        component: &ComponentView,
        node: &str,
        foreign: u32,
        cluster_max: u32,
        now: Timestamp,
    ) -> Option<Blocker> {
        let rollout = &component.spec()?.rollout;
        let owner = component.record.key.to_string();
        let foreign = if rollout.count_foreign { foreign } else { 0 };
        let used = self.of(&owner, node);
        if used.saturating_add(foreign) >= rollout.max_unavailable {
            let others = if foreign > 0 { format!(" and {foreign} are not Ready or cordoned by others") } else { String::new() };
            let message = format!(
                "maxUnavailable is {}: {used} of its nodes are being handed over or were left closed{others}{}",
                rollout.max_unavailable,
                self.named(&owner)
            );
            return Some(blocker(component, BlockerKind::BudgetSpent, message, now));
        }
        let used = self.total(node);
        (used >= cluster_max).then(|| {
            let all: Vec<&str> = self.all.iter().map(String::as_str).take(5).collect();
            let message = format!("{used} of at most {cluster_max} nodes are admitted over all components: {}", all.join(", "));
            Blocker {
                kind: BlockerKind::BudgetSpent,
                object: ObjectRef::new("Lease", format!("{}/{}", crate::api::keys::LEASE.0, crate::api::keys::LEASE.1)),
                message,
                since: now,
            }
        })
    }

    fn named(&self, owner: &str) -> String {
        let nodes =
            self.by_component.get(owner).map(|nodes| nodes.iter().map(String::as_str).take(5).collect::<Vec<_>>().join(", "));
        nodes.filter(|nodes| !nodes.is_empty()).map(|nodes| format!(" ({nodes})")).unwrap_or_default()
    }
}

fn count(nodes: &BTreeSet<String>, without: &str) -> u32 {
    u32::try_from(nodes.len() - usize::from(nodes.contains(without))).unwrap_or(u32::MAX)
}
