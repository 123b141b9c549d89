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
    /// Of these, the nodes that are out of service without anybody working on them.
    lost: BTreeMap<String, BTreeSet<String>>,
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

    /// Nodes that have lost their component by themselves, as (owner, node): they count, but do not hold back what mends one of them.
    #[must_use]
    pub fn with_lost<'a>(mut self, lost: impl Iterator<Item = (String, &'a str)>) -> Self {
        for (owner, node) in lost {
            if !self.all.contains(node) {
                self.lost.entry(owner).or_default().insert(node.to_owned());
            }
        }
        self
    }

    fn lost_of(&self, owner: &str, without: &str) -> u32 {
        self.lost.get(owner).map_or(0, |nodes| count(nodes, without))
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

    /// Why one more node of the component would be one too many. `mends`: the node is out of service already.
    pub fn spent(
        &self,
        component: &ComponentView,
        node: &str,
        foreign: u32,
        mends: bool,
        cluster_max: u32,
        now: Timestamp,
    ) -> Option<Blocker> {
        let rollout = &component.spec()?.rollout;
        let owner = component.record.key.to_string();
        let foreign = if rollout.count_foreign { foreign } else { 0 };
        let lost = if mends { 0 } else { self.lost_of(&owner, node) };
        let used = self.of(&owner, node);
        if used.saturating_add(lost).saturating_add(foreign) >= rollout.max_unavailable {
            let mut others = match lost {
                0 => String::new(),
                _ => {
                    let names = self.lost.get(&owner).into_iter().flatten().filter(|name| **name != *node);
                    let names: Vec<&str> = names.take(5).map(String::as_str).collect();
                    format!(" and {lost} have lost it without a handoff ({})", names.join(", "))
                }
            };
            if foreign > 0 {
                others += &format!(" and {foreign} are not Ready or cordoned by others");
            }
            let message = format!(
                "maxUnavailable is {}: {used} of its nodes are being handed over or were left closed{}{others}",
                rollout.max_unavailable,
                self.named(&owner)
            );
            return Some(blocker(component, BlockerKind::BudgetSpent, message, now));
        }
        let lost: u32 = if mends { 0 } else { self.lost.keys().map(|owner| self.lost_of(owner, node)).sum() };
        let used = self.total(node).saturating_add(lost);
        (used >= cluster_max).then(|| {
            let lost = self.lost.values().flatten().filter(|_| !mends);
            let all: Vec<&str> = self.all.iter().chain(lost).map(String::as_str).take(5).collect();
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
