//! What would happen, before anything does: the value that the plan dialog shows and the confirmation compares.

use std::{collections::BTreeSet, sync::Arc};

use super::facts::Facts;
use crate::{
    api::{ComponentKey, NodeName, Uid, Version},
    drain::budget,
    engine::{intent::NodeTarget, picture::Picture},
    fleet::view::{ClaimReason, ClaimantClass},
};

/// Computes a plan from a picture. Pure.
pub type Planner = Arc<dyn Fn(&Picture, &Request) -> Plan + Send + Sync>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub component: ComponentKey,
    /// In the order in which they will be taken.
    pub nodes: Vec<NodeTarget>,
    pub to: Version,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// One per node asked for, in order.
    pub nodes: Vec<NodePlan>,
    /// About the component as a whole.
    pub refusals: Vec<String>,
    pub warnings: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodePlan {
    pub node: NodeName,
    pub from: Option<Version>,
    pub pods: Vec<PodPlan>,
    /// PodDisruptionBudgets of those pods, with their arithmetic.
    pub budgets: Vec<String>,
    /// What is done, in order.
    pub steps: Vec<String>,
    pub refusals: Vec<String>,
    pub warnings: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodPlan {
    pub name: String,
    pub uid: Uid,
    /// `holds 1 vendor.com/gpu`.
    pub why: String,
    /// `evicted`, `terminating`, `restarts by itself`…
    pub what: String,
}

impl Plan {
    pub fn is_refused(&self) -> bool {
        !self.refusals.is_empty() || self.nodes.iter().any(|node| !node.refusals.is_empty())
    }

    pub fn pods(&self) -> usize {
        self.nodes.iter().map(|node| node.pods.len()).sum()
    }

    /// Whether a person who has read one has read the other: the same nodes, pods, steps and refusals.
    /// A budget's numbers move all the time and do not count.
    pub fn says_the_same(&self, other: &Self) -> bool {
        let pods = |plan: &NodePlan| -> BTreeSet<(Uid, String)> {
            plan.pods.iter().map(|pod| (pod.uid.clone(), pod.what.clone())).collect()
        };
        let same = |(a, b): (&NodePlan, &NodePlan)| {
            (&a.node, &a.from, &a.steps, &a.refusals) == (&b.node, &b.from, &b.steps, &b.refusals) && pods(a) == pods(b)
        };
        self.refusals == other.refusals && self.nodes.len() == other.nodes.len() && self.nodes.iter().zip(&other.nodes).all(same)
    }
}

/// `holds 1 vendor.com/gpu`.
pub fn reason(why: &ClaimReason) -> String {
    match why {
        ClaimReason::Resource { name, quantity } => format!("holds {quantity} {name}"),
        ClaimReason::Claim { claim, driver } => format!("ResourceClaim {claim} of {driver}"),
        ClaimReason::UnresolvedClaim { entry } => format!("claim {entry} is not known yet: taken for ours"),
        ClaimReason::Selector => "matches podSelector".to_owned(),
        ClaimReason::Reboot => "the node reboots".to_owned(),
    }
}

pub fn class(class: ClaimantClass) -> &'static str {
    match class {
        ClaimantClass::Evictable => "evicted",
        ClaimantClass::Terminating => "is leaving already",
        ClaimantClass::DaemonSet { selects_ready: true } => "leaves and returns by itself",
        ClaimantClass::DaemonSet { selects_ready: false } => "DaemonSet that does not select the ready label",
        ClaimantClass::Unmanaged => "unmanaged: does not come back",
        ClaimantClass::Mirror => "static pod: cannot be moved",
        ClaimantClass::EmptyDir => "evicted, loses emptyDir data",
    }
}

/// A plan from the picture's facts alone.
pub fn from_facts(picture: &Picture, request: &Request) -> Plan {
    let component = picture.fleet.components.get(&request.component);
    let mut plan = Plan { nodes: Vec::new(), refusals: Vec::new(), warnings: Vec::new() };
    match component {
        None => plan.refusals.push(format!("NodeComponent {} does not exist", request.component)),
        Some(component) => {
            plan.refusals.extend(component.refusals.iter().cloned());
            plan.warnings.extend(component.anomalies.iter().cloned());
            if !component.versions.contains_key(&request.to) {
                plan.refusals.push(format!("version {} of {} is not known", request.to, request.component));
            }
        }
    }
    plan.nodes = request.nodes.iter().map(|target| node_plan(picture, request, target)).collect();
    plan
}

fn node_plan(picture: &Picture, request: &Request, target: &NodeTarget) -> NodePlan {
    let mut plan = NodePlan {
        node: target.node.clone(),
        from: None,
        pods: Vec::new(),
        budgets: Vec::new(),
        steps: Vec::new(),
        refusals: Vec::new(),
        warnings: Vec::new(),
    };
    let Some(facts) = Facts::of(picture, &request.component, &target.node) else {
        plan.refusals.push(format!("Node {} does not exist", target.node));
        return plan;
    };
    if facts.node.record.as_ref().map(|record| &record.meta.uid) != target.uid.as_ref() {
        plan.refusals.push(format!("Node {} was deleted and made again since it was chosen", target.node));
    }
    plan.from = facts.version().cloned();
    if facts.is_current(request.to.as_str()) {
        plan.warnings.push(format!("{} runs {} already: it will be Done without a write", target.node, request.to));
    }
    let record = facts.node.record.as_deref();
    if record.is_some_and(|record| !record.ready.is_true()) {
        plan.warnings.push(format!("Node {} is not Ready: its handoff will wait", target.node));
    }
    if record.is_some_and(|record| record.unschedulable) && facts.node.cordon.is_none() {
        plan.warnings.push(format!("Node {} is cordoned by somebody else and will stay so", target.node));
    }
    let drain = facts.component.and_then(|component| component.spec()).map(|spec| spec.drain.clone()).unwrap_or_default();
    let mut budgets = BTreeSet::new();
    for claimant in &facts.occupancy.claimants {
        let name = claimant.pod.key.to_string();
        match claimant.class {
            ClaimantClass::Mirror => plan.refusals.push(format!("Pod {name} is static and holds the device: it cannot be moved")),
            ClaimantClass::Unmanaged if !drain.evict_unmanaged => {
                plan.refusals.push(format!(
                    "Pod {name} has no controller that brings it back: set spec.drain.evictUnmanaged, or delete it"
                ));
            }
            ClaimantClass::EmptyDir if !drain.delete_empty_dir_data => {
                plan.refusals.push(format!("Pod {name} loses its emptyDir data: set spec.drain.deleteEmptyDirData, or move it"));
            }
            ClaimantClass::DaemonSet { selects_ready: false } => {
                plan.refusals.push(format!("Pod {name}: its DaemonSet must select the ready label, else it comes back at once"));
            }
            _ => {}
        }
        for view in budget::of(&claimant.pod, &picture.fleet.budgets) {
            budgets.insert(format!("{}: {}", view.record.key, budget::arithmetic(view)));
        }
        plan.pods.push(PodPlan {
            name,
            uid: claimant.pod.meta.uid.clone(),
            why: reason(&claimant.why),
            what: class(claimant.class).to_owned(),
        });
    }
    plan.budgets = budgets.into_iter().collect();
    let version = |version: &Option<Version>| version.as_ref().map_or_else(|| "nothing".to_owned(), ToString::to_string);
    plan.steps = facts.phases().iter().map(|phase| step(*phase, &version(&plan.from), request.to.as_str())).collect();
    plan
}

fn step(phase: crate::api::Phase, from: &str, to: &str) -> String {
    use crate::api::Phase::*;
    match phase {
        Preflight => "check everything once more; write nothing".to_owned(),
        Cordoning => "close the node for new pods".to_owned(),
        Draining => "evict the claimants, as their budgets allow".to_owned(),
        StoppingPlugin => format!("stop the device plugin of {from}"),
        Unloading => format!("stop the loader of {from}, unload the module, prove that it is out"),
        AwaitingReboot => "wait for a reboot".to_owned(),
        Loading => format!("load {to}"),
        StartingPlugin => format!("start the device plugin of {to}"),
        Verifying => "wait until the devices are back and stay".to_owned(),
        Uncordoning => "open the node, if it was lockkeeper that closed it".to_owned(),
        other => other.to_string(),
    }
}
