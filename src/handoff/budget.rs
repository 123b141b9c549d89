//! How many nodes are out of service because of us: the slots of the Lease, and nodes that carry our cordon without one.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    named::{FirstOf, NAMED, named},
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
    /// Nodes that are out of service for the component without anybody working on them, each with a word for why.
    lost: BTreeMap<String, BTreeMap<String, &'static str>>,
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

    /// Nodes that have lost their component by themselves, as (owner, node, why): they count, but do not hold back what mends one of them.
    #[must_use]
    pub fn with_lost<'a>(mut self, lost: impl Iterator<Item = (String, &'a str, &'static str)>) -> Self {
        for (owner, node, why) in lost {
            self.lost.entry(owner).or_default().insert(node.to_owned(), why);
        }
        self
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

    /// Why one more node of the component would be one too many. `foreign`: its nodes that others have closed, or that are not Ready. `mends`: the node is out of service already, so that to hand it over takes
    /// nothing more out of service than is: it waits for handoffs under way, and not for what else is out of service by itself.
    pub fn spent(
        &self,
        component: &ComponentView,
        node: &str,
        foreign: &FirstOf<&'static str>,
        mends: bool,
        cluster_max: u32,
        now: Timestamp,
    ) -> Option<Blocker> {
        let rollout = &component.spec()?.rollout;
        let owner = component.record.key.to_string();
        let none = FirstOf::default();
        let foreign = if rollout.count_foreign && !mends { foreign } else { &none };
        let nobody = BTreeSet::new();
        let own = without(self.by_component.get(&owner).unwrap_or(&nobody), node);
        let lost = if mends { Vec::new() } else { self.lost_besides(Some(&owner), &own, node) };
        if total(&own, &lost).saturating_add(foreign.nodes) >= rollout.max_unavailable {
            let mut parts = parts(&own, "are being handed over or were left closed", &lost);
            if foreign.nodes > 0 {
                let names = foreign.named(|node, why| format!("{node}: {why}"), "; ");
                parts.push(format!("{} are not Ready or cordoned by others ({names})", foreign.nodes));
            }
            let message = format!("maxUnavailable is {}: of its nodes {}", rollout.max_unavailable, parts.join(", and "));
            return Some(blocker(component, BlockerKind::BudgetSpent, message, now));
        }
        let all = without(&self.all, node);
        let lost = if mends { Vec::new() } else { self.lost_besides(None, &all, node) };
        let used = total(&all, &lost);
        (used >= cluster_max).then(|| {
            let parts = parts(&all, "are admitted", &lost);
            let message =
                format!("{used} of at most {cluster_max} nodes are out of service over all components: {}", parts.join(", and "));
            Blocker {
                kind: BlockerKind::BudgetSpent,
                object: ObjectRef::new("Lease", format!("{}/{}", crate::api::keys::LEASE.0, crate::api::keys::LEASE.1)),
                message,
                since: now,
            }
        })
    }

    /// Lost nodes of the owner (None: of any, each once) that are not among these and not this one, with what each has lost and why.
    fn lost_besides(&self, owner: Option<&str>, counted: &[&str], node: &str) -> Vec<Lost<'_>> {
        let mut besides: BTreeMap<&str, Lost<'_>> = BTreeMap::new();
        for (of, nodes) in self.lost.iter().filter(|(of, _)| owner.is_none_or(|owner| owner == *of)) {
            for (name, why) in nodes.iter().filter(|(name, _)| *name != node && !counted.contains(&name.as_str())) {
                besides.entry(name).or_insert(Lost { node: name, owner: of, why });
            }
        }
        besides.into_values().collect()
    }
}

#[derive(Debug, Clone, Copy)]
struct Lost<'a> {
    node: &'a str,
    owner: &'a str,
    why: &'static str,
}

fn without<'a>(nodes: &'a BTreeSet<String>, node: &str) -> Vec<&'a str> {
    nodes.iter().map(String::as_str).filter(|name| *name != node).collect()
}

fn total(nodes: &[&str], lost: &[Lost<'_>]) -> u32 {
    u32::try_from(nodes.len().saturating_add(lost.len())).unwrap_or(u32::MAX)
}

/// Who is counted as what, each part with its count and its names.
fn parts(nodes: &[&str], are: &str, lost: &[Lost<'_>]) -> Vec<String> {
    let mut parts = Vec::new();
    if !nodes.is_empty() {
        parts.push(format!("{} {are} ({})", nodes.len(), named(nodes.iter().take(NAMED), nodes.len(), "; ")));
    }
    if !lost.is_empty() {
        let first = lost.iter().take(NAMED).map(|it| format!("{}: {}, {}", it.node, it.owner, it.why));
        let names = named(first, lost.len(), "; ");
        parts.push(format!(
            "{} are out of service without a handoff ({names}), whose repair waits for no other: hand them over (lockkeeper handoff), or \
             mend them as lockkeeper status says",
            lost.len()
        ));
    }
    parts
}

fn count(nodes: &BTreeSet<String>, without: &str) -> u32 {
    u32::try_from(nodes.len() - usize::from(nodes.contains(without))).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{api::NodeName, fleet::build::*};

    const GPU: &str = "ns/gpu";

    fn slot(node: &str, component: &str) -> Slot {
        Slot { node: node.into(), node_uid: format!("uid-{node}"), component: component.into() }
    }

    fn lost<'a>(nodes: &[(&'a str, &'a str)]) -> impl Iterator<Item = (String, &'a str, &'static str)> {
        nodes.iter().map(|(owner, node)| ((*owner).to_owned(), *node, "Hurt"))
    }

    fn spent(usage: &Usage, node: &str, most: u32, foreign: u32, mends: bool) -> Option<String> {
        let mut fleet =
            fleet().with(component(GPU).made("1").rollout(|it| (it.max_unavailable, it.count_foreign) = (most, true)));
        let view = fleet.project(at(0));
        let mut others = FirstOf::default();
        for at in 0..foreign {
            others.merge(1, [(&NodeName::from(format!("f{at}").as_str()), &"not Ready")]);
        }
        usage.spent(&view.components[&key(GPU)], node, &others, mends, 2, at(0)).map(|it| it.message)
    }

    #[test]
    fn who_is_named_is_who_is_counted_and_each_node_once() {
        let usage = Usage::new(&[slot("n1", GPU), slot("n2", GPU)], |_| true, [(GPU.to_owned(), "n2")].into_iter());
        let said = spent(&usage, "n2", 1, 0, false).unwrap();
        assert_eq!(said, "maxUnavailable is 1: of its nodes 1 are being handed over or were left closed (n1)");
        // Lost for two components, and admitted for one of them: one node.
        let usage = usage.with_lost(lost(&[(GPU, "n1"), ("ns/nic", "n1"), (GPU, "n3"), ("ns/nic", "n3"), ("ns/nic", "n2")]));
        let said = spent(&usage, "n4", 9, 0, false).unwrap();
        assert!(
            said.starts_with("3 of at most 2 nodes are out of service over all components: 2 are admitted (n1; n2), and 1 are"),
            "{said}"
        );
        assert!(said.contains("(n3: ns/gpu, Hurt)"), "{said}");
    }

    #[test]
    fn a_node_that_is_lost_for_a_component_counts_for_it_whoever_else_is_at_work_there() {
        let usage = Usage::new(&[slot("n1", "ns/nic")], |_| true, std::iter::empty()).with_lost(lost(&[(GPU, "n1")]));
        let said = spent(&usage, "n2", 1, 0, false).unwrap();
        assert!(
            said.contains("maxUnavailable is 1: of its nodes 1 are out of service without a handoff (n1: ns/gpu, Hurt)"),
            "{said}"
        );
        assert_eq!(spent(&usage, "n1", 1, 0, false), None, "not in its own way");
    }

    #[test]
    fn what_mends_a_node_waits_for_those_at_work_and_for_nobody_who_is_hurt() {
        let hurt = [(GPU, "n1"), (GPU, "n2"), ("ns/nic", "n3"), ("ns/nic", "n4")];
        let usage = Usage::default().with_lost(lost(&hurt));
        assert_eq!(
            spent(&usage, "n1", 1, 3, true),
            None,
            "neither for its component's, nor for another's, nor for what others have closed"
        );
        assert!(spent(&usage, "n5", 1, 0, false).unwrap().contains("n1: ns/gpu, Hurt; n2: ns/gpu, Hurt"));
        assert!(spent(&usage, "n5", 9, 0, false).unwrap().contains("n3: ns/nic, Hurt"));
        let usage = Usage::new(&[slot("n6", GPU)], |_| true, std::iter::empty()).with_lost(lost(&hurt));
        let said = spent(&usage, "n1", 1, 0, true).unwrap();
        assert_eq!(said, "maxUnavailable is 1: of its nodes 1 are being handed over or were left closed (n6)");
    }

    #[test]
    fn of_many_the_first_are_named_and_the_others_counted() {
        let nodes = ["n1", "n2", "n3", "n4", "n5", "n6", "n7"].map(|node| (GPU, node));
        let said = spent(&Usage::default().with_lost(lost(&nodes)), "n0", 1, 0, false).unwrap();
        assert!(said.contains("7 are out of service") && said.contains("n5: ns/gpu, Hurt and 2 more"), "{said}");
    }

    #[test]
    fn nodes_that_others_have_taken_out_of_service_are_named() {
        let said = spent(&Usage::default(), "n1", 2, 2, false).unwrap();
        assert_eq!(
            said,
            "maxUnavailable is 2: of its nodes 2 are not Ready or cordoned by others (f0: not Ready; f1: not Ready)"
        );
        let said = spent(&Usage::default(), "n1", 1, 7, false).unwrap();
        assert!(said.contains("7 are not Ready or cordoned by others") && said.ends_with("f4: not Ready and 2 more)"), "{said}");
    }
}
