//! What would happen, before anything does: the value that the plan dialog shows and the confirmation compares.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use super::facts::{self, Facts};
use crate::{
    api::{ComponentKey, NodeHandoffSpec, NodeHandoffStatus, NodeName, ObjectKey, Phase, Uid, Version, handoff::HandoffAction},
    drain::{budget, order::Outlook},
    engine::{intent::NodeTarget, picture::Picture},
    fleet::{
        records::{DaemonSetRecord, HandoffRecord, Meta},
        view::{ClaimReason, ClaimantClass, ComponentView, Occupancy},
    },
    handoff::{
        self, evict,
        facts::Context,
        observed::Observed,
        phases,
        plan::{self as steps, Write},
        preflight, rollout, start,
        tally::{self, Tally},
        verdict::{Blocker, BlockerKind},
    },
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
    pub steps: Vec<StepPlan>,
    pub refusals: Vec<String>,
    pub warnings: Vec<String>,
    /// The node is not there, or is another one by now: no repair helps this request.
    pub lost: bool,
}

/// A phase, and what changes in it. Evictions are in [`NodePlan::pods`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepPlan {
    pub phase: Phase,
    /// What the phase does, as a sentence.
    pub does: &'static str,
    /// lockkeeper's own writes, and what others are awaited to do at them, each named as whose it is.
    pub changes: Vec<Write>,
}

impl fmt::Display for StepPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.phase, self.does)
    }
}

/// `Node n1: label lockkeeper.dev/plugin.ns.gpu removed`.
pub fn change(write: &Write) -> String {
    format!("{}: {}", write.object, write.change)
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodPlan {
    pub name: String,
    pub uid: Uid,
    /// `holds 1 vendor.com/gpu`.
    pub why: String,
    /// `evicted`, `is leaving already`, `stays (Unmanaged)`…
    pub what: String,
    /// Nothing but a person can make it go.
    pub stays: bool,
}

impl Plan {
    pub fn is_refused(&self) -> bool {
        !self.refusals.is_empty() || self.nodes.iter().any(|node| !node.refusals.is_empty())
    }

    /// Whether the nodes may be queued all the same: the engine does not touch a node that preflight refuses, it waits in the
    /// queue until somebody mends what is in the way.
    pub fn can_be_queued(&self) -> bool {
        self.refusals.is_empty() && !self.nodes.iter().any(|node| node.lost)
    }

    /// Nodes that would wait.
    pub fn refused_nodes(&self) -> usize {
        self.nodes.iter().filter(|node| !node.refusals.is_empty()).count()
    }

    pub fn pods(&self) -> usize {
        self.nodes.iter().map(|node| node.pods.len()).sum()
    }

    /// Whether a person who has read one has read the other: the same nodes, pods, steps with their changes, and refusals.
    /// A budget's numbers move all the time and do not count.
    pub fn says_the_same(&self, other: &Self) -> bool {
        let pods =
            |plan: &NodePlan| -> BTreeSet<(Uid, bool)> { plan.pods.iter().map(|pod| (pod.uid.clone(), pod.stays)).collect() };
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
        ClaimReason::Volume { name, claim, risk, stale } => crate::drain::volumes::sentence(name, claim.as_ref(), risk, *stale),
        ClaimReason::UnresolvedVolume { name, why } => format!("volume {name} cannot be resolved, taken for ours: {why}"),
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

/// The plan of the engine's own preflight and drain, on the facts of a picture: what it refuses here, the engine refuses too.
pub fn from_facts(picture: &Picture, request: &Request) -> Plan {
    let mut plan = Plan { nodes: Vec::new(), refusals: Vec::new(), warnings: Vec::new() };
    let Some(component) = picture.fleet.components.get(&request.component) else {
        plan.refusals.push(format!("NodeComponent {} does not exist", request.component));
        return plan;
    };
    let component = awaited(component, &request.to);
    for target in &request.nodes {
        let node = node_plan(picture, request, &component, target, &mut plan);
        plan.nodes.push(node);
    }
    plan
}

/// What is not about the node alone goes to the whole plan, once.
fn node_plan(picture: &Picture, request: &Request, component: &ComponentView, target: &NodeTarget, whole: &mut Plan) -> NodePlan {
    let mut plan = NodePlan {
        node: target.node.clone(),
        from: None,
        pods: Vec::new(),
        budgets: Vec::new(),
        steps: Vec::new(),
        refusals: Vec::new(),
        warnings: Vec::new(),
        lost: false,
    };
    let Some(facts) = Facts::of(picture, &request.component, &target.node) else {
        nothing_there(picture, component, &mut plan, whole);
        return plan;
    };
    if facts.node.record.as_ref().map(|record| &record.meta.uid) != target.uid.as_ref() {
        plan.refusals.push(format!("Node {} was deleted and made again since it was chosen", target.node));
        plan.lost = true;
    }
    plan.from = facts.version().cloned();
    // The handoff as it would be made, in Queued: everything is judged as if it began now.
    let occupancy = Occupancy { handoff: Some(Arc::new(proposed(request, &facts))), ..facts.occupancy.clone() };
    let (observed, context) = (Observed::default(), onlooker());
    let judged = judged(&facts, component, &occupancy, &observed, &context);
    // One that runs it may still have dead mounts to be put right.
    let runs = facts.is_current(request.to.as_str()) && !start::swap_needed(&judged);
    if runs && (judged.csi().is_none() || start::runs_target(&judged)) {
        plan.warnings.push(format!("{} runs {} already: it will be Done without a write", target.node, request.to));
    }
    for blocker in preflight::refusals(&judged) {
        let text = facts::of_object(&blocker.object.to_string(), &blocker.message);
        let list = match blocker.kind {
            // A node that does not answer now, or that others have in their hands, may be free when its turn comes.
            BlockerKind::NodeNotReady | BlockerKind::ForeignMaintenance => &mut plan.warnings,
            _ if blocker.object.kind == "NodeComponent" => &mut whole.refusals,
            _ => &mut plan.refusals,
        };
        if !list.contains(&text) {
            list.push(text);
        }
    }
    for warning in preflight::warnings(&judged) {
        if !whole.warnings.contains(&warning) {
            whole.warnings.push(warning);
        }
    }
    plan.steps = plan_steps(&judged);
    // Nothing moves where nothing is to be swapped.
    if !start::swap_needed(&judged) {
        return plan;
    }
    let mut budgets = BTreeSet::new();
    for planned in evict::plan(&judged) {
        let claimant = facts.occupancy.claimants.iter().find(|claimant| claimant.pod.meta.uid == planned.pod.uid);
        if let Some(claimant) = claimant {
            for view in budget::of(&claimant.pod, &picture.fleet.budgets) {
                budgets.insert(format!("{}: {}", view.record.key, budget::arithmetic(view)));
            }
        }
        plan.pods.push(PodPlan {
            name: planned.pod.key.to_string(),
            uid: planned.pod.uid.clone(),
            why: claimant.map(|claimant| reason(&claimant.why)).unwrap_or_default(),
            what: outlook(&planned.outlook),
            stays: matches!(planned.outlook, Outlook::Never(_)),
        });
    }
    plan.budgets = budgets.into_iter().collect();
    // They would come straight back, so they stay until the plugin is there again.
    plan.pods.extend(judged.csi().into_iter().flat_map(|csi| &csi.here.restart).map(|claimant| PodPlan {
        name: claimant.pod.key.to_string(),
        uid: claimant.pod.meta.uid.clone(),
        why: reason(&claimant.why),
        what: "restarted after the plugin pod".to_owned(),
        stays: false,
    }));
    plan
}

/// Why the component has nothing on a node: it is refused as a whole, or the node is none of its own.
fn nothing_there(picture: &Picture, component: &ComponentView, plan: &mut NodePlan, whole: &mut Plan) {
    let (key, name) = (&component.record.key, &plan.node);
    let there = picture.fleet.node(name).is_some_and(|node| node.record.is_some());
    if there && !component.refusals.is_empty() {
        let refusals = component.refusals.iter().map(|why| facts::of_object(&format!("NodeComponent {key}"), why));
        for refusal in refusals.collect::<Vec<_>>() {
            if !whole.refusals.contains(&refusal) {
                whole.refusals.push(refusal);
            }
        }
        return;
    }
    plan.refusals.push(match (there, &component.kmm) {
        (false, _) => format!("Node {name} is not there"),
        (true, Some(kmm)) => format!(
            "Node {name} carries nothing of {key}: its labels do not match the component's nodeSelector and the selector of Module {}",
            kmm.key
        ),
        (true, None) => format!("Node {name} carries nothing of {key}: its labels do not match the component's nodeSelector"),
    });
    plan.lost = true;
}

/// Each phase with its changes, in their order.
fn plan_steps(judged: &handoff::facts::Facts<'_>) -> Vec<StepPlan> {
    let mut writes = steps::writes(judged);
    let all = steps::phases(judged).into_iter();
    all.map(|phase| StepPlan {
        phase,
        does: phases::row(judged.kind(), phase).does,
        changes: writes.extract_if(.., |write| write.phase == phase).collect(),
    })
    .collect()
}

/// What a decision would look at, as an onlooker has it.
fn judged<'f>(
    facts: &Facts<'f>,
    component: &'f ComponentView,
    occupancy: &'f Occupancy,
    observed: &'f Observed,
    context: &'f Context,
) -> handoff::facts::Facts<'f> {
    handoff::facts::Facts {
        now: facts.picture.fleet.now,
        key: facts.key,
        component,
        node: facts.node,
        occupancy,
        slot: None,
        others: &[],
        admission: None,
        budgets: &facts.picture.fleet.budgets,
        observed,
        context,
        stale: None,
    }
}

/// The phases that the handoff that is there would enter, as things stand.
pub fn phases(facts: &Facts<'_>) -> Vec<Phase> {
    let Some(component) = facts.component else { return Vec::new() };
    let (observed, context) = (Observed::default(), onlooker());
    steps::phases(&judged(facts, component, facts.occupancy, &observed, &context))
}

/// What would become of each claimant under the handoff that is there, or under one that began now.
pub fn outlooks(facts: &Facts<'_>) -> BTreeMap<Uid, String> {
    let Some(component) = facts.component else { return BTreeMap::new() };
    let (observed, context) = (Observed::default(), onlooker());
    let judged = judged(facts, component, facts.occupancy, &observed, &context);
    // Of one that has ended, what a handoff asked for now would do.
    let by_label = judged.is_by_label() && !judged.phase().is_ended();
    let planned = evict::plan(&judged).into_iter();
    planned
        .map(|planned| {
            let evicted =
                matches!(planned.outlook, Outlook::Evicted | Outlook::InTurn { .. } | Outlook::Later(_) | Outlook::Unsettled(_));
            let what = if by_label && evicted { "stays: a label evicts nobody".to_owned() } else { outlook(&planned.outlook) };
            (planned.pod.uid, what)
        })
        .collect()
}

/// Why a queued node would not start now although it is its turn: the component's pause, windows, canary and soak.
pub fn held_back(picture: &Picture, component: &ComponentKey, to: &Version) -> Vec<String> {
    let Some(view) = picture.fleet.components.get(component) else { return Vec::new() };
    let mut tally = Tally::default();
    for node in picture.fleet.nodes.iter() {
        let Some(occupancy) = node.components.get(component) else { continue };
        let facts = Facts::new(picture, node, component, occupancy);
        let Some(verdict) = facts.verdict else { continue };
        let (observed, context) = (Observed::default(), onlooker());
        let judged = judged(&facts, view, occupancy, &observed, &context);
        tally.add(&node.name, &tally::contribution(&judged, 0, verdict));
    }
    let now = picture.fleet.now;
    let admitted = tally.running;
    let stopped = rollout::stopped(view, &tally, now);
    let (held, _) = rollout::held_back(view, &tally, Some(to), admitted, None, now);
    let text = |held: Blocker| format!("it will wait in the queue ({}): {}", held.kind.word(), held.message);
    stopped.into_iter().chain(held).map(text).collect()
}

/// The engine makes the DaemonSets of a component's own version when a handoff waits for them: that they are not there yet refuses nothing.
fn awaited(component: &ComponentView, to: &Version) -> ComponentView {
    let mut component = component.clone();
    let aim = component.spec().is_some_and(|spec| spec.version == to.as_str());
    let key = ObjectKey::new(component.record.key.namespace.clone(), "not-made-yet");
    if let Some(view) = component.versions.get_mut(to).filter(|_| aim) {
        for set in [&mut view.loader, &mut view.plugin] {
            set.get_or_insert_with(|| Arc::new(not_made_yet(key.clone())));
        }
    }
    component
}

fn not_made_yet(key: ObjectKey) -> DaemonSetRecord {
    DaemonSetRecord {
        key,
        meta: no_meta(),
        labels: Arc::default(),
        annotations: BTreeMap::new(),
        generation: 1,
        observed_generation: 1,
        on_delete: true,
        node_selector: BTreeMap::new(),
        spec: None,
        desired: 0,
        ready: 0,
        current: 0,
        claims_resources: BTreeMap::new(),
        requires_labels: Vec::new(),
        template: None,
    }
}

fn no_meta() -> Meta {
    Meta { uid: "".into(), resource_version: "".into(), created: None, deletion: None }
}

fn proposed(request: &Request, facts: &Facts<'_>) -> HandoffRecord {
    let before = facts.handoff().and_then(|handoff| handoff.spec.as_ref().ok());
    let spec = NodeHandoffSpec {
        component: request.component.name.to_string(),
        node: facts.node.name.to_string(),
        version: Some(request.to.to_string()),
        position: None,
        action: HandoffAction::Run,
        attempt: before.map_or(1, |spec| spec.attempt + 1),
        pause_after: Vec::new(),
        overrides: before.map(|spec| spec.overrides.clone()).unwrap_or_default(),
        requested_by: String::from("console"),
        reason: String::new(),
    };
    let name = format!("{}.{}", request.component.name, facts.node.name);
    HandoffRecord {
        key: ObjectKey::new(request.component.namespace.clone(), name),
        meta: no_meta(),
        generation: 1,
        spec: Ok(spec),
        status: NodeHandoffStatus::default(),
        finalizers: Vec::new(),
    }
}

/// Somebody who asks and does not act.
fn onlooker() -> Context {
    Context { lease_held: false, epoch: 0, identity: "".into(), cluster_max_unavailable: 1, read_only: true }
}

fn outlook(outlook: &Outlook) -> String {
    match outlook {
        Outlook::Evicted => "evicted".to_owned(),
        Outlook::InTurn { budget } => format!("evicted when {budget} allows the next one"),
        Outlook::Overridden { reason, .. } => format!("deleted by an override: {reason}"),
        Outlook::Later(blocker) | Outlook::Unsettled(blocker) => format!("evicted later ({})", blocker.kind.word()),
        Outlook::Never(blocker) => format!("stays ({})", blocker.kind.word()),
        Outlook::LeavesByItself => "leaves and returns by itself".to_owned(),
        Outlook::Going(_) => "is leaving already".to_owned(),
    }
}
