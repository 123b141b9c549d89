//! The operator of scenario `kmm`: makes Modules and labels nodes as KMM's guide says, asks lockkeeper for a Module's new version node by
//! node, and tries again what failed.

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Value, json};

use super::{
    hands::{Hands, No},
    operator::{self, Outcome},
    seen,
};
use crate::{
    api::keys::CORDON,
    sim::scenarios::{
        kmm::{self as scenario, NAMESPACE, Part},
        objects::Object,
    },
};

const LOOK: Duration = Duration::from_secs(5);
/// How long a budget may hold up a drain before he takes it that it will not be met by itself: people have broken more nodes than it allows.
const PATIENCE: Duration = Duration::from_secs(1200);
/// More than there are places in the queue.
const BROKEN_FIRST: i32 = 1_000_000;

/// Makes the Modules, and tells KMM by label which version each node shall have.
///
/// # Errors
/// The server's last no.
pub async fn install(hands: &Hands, nodes: usize, version: &str) -> Result<(), No> {
    for part in scenario::parts(nodes) {
        operator::apply(hands, &[part.object(version)]).await?;
        for node in part.node_names(nodes) {
            label(hands, part, &node, Some(version)).await?;
        }
    }
    Ok(())
}

/// `kubectl label node NODE kmm.node.kubernetes.io/version-module.…=VERSION`, or `…-`.
///
/// # Errors
/// The server's last no.
pub async fn label(hands: &Hands, part: Part, node: &str, version: Option<&str>) -> Result<(), No> {
    hands.label_node(node, &part.desired_key(), version).await.map(drop)
}

/// The Modules at another version: nothing moves until nodes are labelled.
///
/// # Errors
/// The server's last no.
pub async fn release(hands: &Hands, nodes: usize, version: &str) -> Result<(), No> {
    for part in scenario::parts(nodes) {
        hands.merge(&part.module_path(), &part.release(version)).await?;
    }
    Ok(())
}

/// What a person reads off the node: wanted, called ready, and its driver running, all in this version.
pub fn shows(node: &seen::Node, part: Part, version: &str) -> bool {
    let labels = &node.metadata.labels;
    let is = |key: String| labels.get(&key).is_some_and(|value| value == version);
    is(part.desired_key())
        && is(part.version_ready_key())
        && is(part.schedule_key())
        && labels.contains_key(&part.driver_ready_key())
}

/// A version on these nodes, in this order. What lockkeeper is asked for is the node alone: the version is the Module's.
#[derive(Debug, Clone, Copy)]
pub struct Order<'a> {
    pub version: &'a str,
    pub nodes: &'a [String],
}

/// What the operator remembers from one look to the next.
#[derive(Debug, Default)]
struct Memory {
    retried: usize,
    /// Since when a budget has held up the drain of each node.
    held_up: BTreeMap<String, tokio::time::Instant>,
}

impl Order<'_> {
    fn path(node: &str) -> String {
        format!("/apis/lockkeeper.dev/v1alpha1/namespaces/{NAMESPACE}/nodehandoffs/{}.{node}", Part::of_node(node).name)
    }

    fn handoff(node: &str, position: i32) -> Object {
        let component = Part::of_node(node).name;
        let spec = json!({"component": component, "node": node, "position": position, "requestedBy": "operator"});
        let body = json!({"metadata": {"name": format!("{component}.{node}")}, "spec": spec});
        Object::new("lockkeeper.dev/v1alpha1", "NodeHandoff", "nodehandoffs", Some(NAMESPACE), body)
    }

    /// In the state in which he saw it, or not at all. True when it was changed.
    async fn edit(hands: &Hands, handoff: &seen::Handoff, spec: Value) -> bool {
        let body = json!({"metadata": {"resourceVersion": handoff.metadata.resource_version}, "spec": spec});
        hands.merge(&Self::path(&handoff.spec.node), &body).await.is_ok()
    }

    /// Looks after the handoffs until so many nodes have the version and no cordon of lockkeeper's, or the time is up.
    pub async fn see(&self, hands: &Hands, within: Duration, enough: usize) -> Outcome {
        let deadline = tokio::time::Instant::now() + within;
        let (mut outcome, mut memory) = (Outcome::default(), Memory::default());
        loop {
            if let Ok(seen) = self.look(hands, &mut memory).await {
                outcome = seen;
                if outcome.upgraded >= enough {
                    return outcome;
                }
            }
            if tokio::time::Instant::now() >= deadline {
                return outcome;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn look(&self, hands: &Hands, memory: &mut Memory) -> Result<Outcome, No> {
        let mut outcome = Outcome::default();
        let handoffs: Vec<seen::Handoff> =
            hands.items(&format!("/apis/lockkeeper.dev/v1alpha1/namespaces/{NAMESPACE}/nodehandoffs")).await?;
        let handoffs: BTreeMap<&str, &seen::Handoff> =
            handoffs.iter().map(|handoff| (handoff.spec.node.as_str(), handoff)).collect();
        let nodes: Vec<seen::Node> = hands.items("/api/v1/nodes").await?;
        for (position, name) in (1..).zip(self.nodes) {
            let handoff = handoffs.get(name.as_str()).copied();
            let phase = handoff.map_or("no handoff", |handoff| handoff.status.phase.as_str());
            let node = nodes.iter().find(|node| node.metadata.name == *name);
            let closed = node.is_none_or(|node| node.metadata.annotations.contains_key(CORDON));
            let current = node.is_some_and(|node| shows(node, Part::of_node(name), self.version));
            if phase == "Done" && current && !closed {
                outcome.upgraded += 1;
                continue;
            }
            outcome.failed += usize::from(matches!(phase, "Failed" | "Aborted"));
            let status = handoff.map(|handoff| {
                let json = |value: &Option<Value>| value.as_ref().map(ToString::to_string).unwrap_or_default();
                format!("{} {} {:?}", json(&handoff.status.reason), json(&handoff.status.blockers), handoff.spec)
            });
            let labels = node.map(|node| {
                let ours = node.metadata.labels.iter().filter(|(key, _)| key.contains("kmm.node.kubernetes.io/"));
                ours.map(|(key, value)| format!("{}={value}", key.rsplit('/').next().unwrap_or_default()))
                    .collect::<Vec<_>>()
                    .join(" ")
            });
            outcome.unfinished.push(format!("{name}: {phase}; {} {}", labels.unwrap_or_default(), status.unwrap_or_default()));
            // Who has lost the module, by whatever hand, comes first: it counts against the budget, and the others wait for it.
            let broken = node.is_some_and(|node| !node.metadata.labels.contains_key(&Part::of_node(name).driver_ready_key()));
            let position = if broken { position - BROKEN_FIRST } else { position };
            memory.retried += usize::from(self.tend(hands, handoff, name, position, (current, closed || broken)).await);
            if let Some(handoff) = handoff {
                self.let_go(hands, handoff, memory).await;
            }
        }
        outcome.retried = memory.retried;
        Ok(outcome)
    }

    /// Overrides the budget that has held up a drain for too long: more pods are broken than it allows, and they wait for this node.
    async fn let_go(&self, hands: &Hands, handoff: &seen::Handoff, memory: &mut Memory) {
        let node = &handoff.spec.node;
        if !handoff.is_held_by("DisruptionBudget") || handoff.status.phase != "Draining" {
            memory.held_up.remove(node);
            return;
        }
        let now = tokio::time::Instant::now();
        if now - *memory.held_up.entry(node.clone()).or_insert(now) < PATIENCE {
            return;
        }
        let Ok(pods) = hands.items::<seen::Pod>("/api/v1/namespaces/ml/pods").await else { return };
        let here = pods.iter().filter(|pod| pod.spec.node_name == *node && pod.metadata.deletion_timestamp.is_none());
        let reason = "more pods are broken than the budget allows, and this node is what they wait for";
        let overrides: Vec<Value> =
            here.map(|pod| json!({"podUid": pod.metadata.uid, "reason": reason, "until": "2027-01-01T00:00:00Z"})).collect();
        if Self::edit(hands, handoff, json!({"overrides": overrides})).await {
            memory.held_up.remove(node);
        }
    }

    /// Asks for it where nobody did, and again where it ended without the version. True when it was tried again.
    async fn tend(
        &self,
        hands: &Hands,
        handoff: Option<&seen::Handoff>,
        node: &str,
        position: i32,
        (current, left): (bool, bool),
    ) -> bool {
        let Some(handoff) = handoff else {
            let _ = hands.create(&Self::handoff(node, position)).await;
            return false;
        };
        let phase = handoff.status.phase.as_str();
        // The label names a version that KMM no longer has, or never had: it is corrected by hand, as the blocker says.
        if phase == "Queued" && handoff.is_held_by("UnknownVersion") {
            return label(hands, Part::of_node(node), node, Some(self.version)).await.is_ok();
        }
        // A label that a colleague moved back was followed; KMM has that version no more.
        if phase == "Queued" && handoff.is_held_by("KmmVersion") && !handoff.spec.version.is_empty() {
            return Self::edit(hands, handoff, json!({"version": null, "requestedBy": "operator"})).await;
        }
        // A colleague moved the label, and claimants are in the way of the unload: an attempt that follows a label evicts nobody.
        if handoff.status.run.as_ref().is_some_and(|run| run.by_label)
            && handoff.is_held_by("Claimant")
            && handoff.spec.action != "Abort"
        {
            return Self::edit(hands, handoff, json!({"action": "Abort"})).await;
        }
        if phase == "Queued" && handoff.spec.position.is_none_or(|known| i64::from(position) != known) {
            Self::edit(hands, handoff, json!({"position": position})).await;
            return false;
        }
        let deleted = handoff.metadata.deletion_timestamp.is_some();
        let ended = matches!(phase, "Failed" | "Aborted") || phase == "Done" && !current;
        // A deleted one goes by itself, unless its node was left closed or without the module: then lockkeeper asks what shall become of it.
        if deleted && phase != "Held" && !(ended && left) {
            return false;
        }
        let choice = phase == "Held" && (deleted || handoff.spec.action == "Abort");
        let held = phase == "Held" || handoff.spec.action == "Hold";
        if !(ended || held) {
            return false;
        }
        let attempt = handoff.spec.attempt.unwrap_or(1) + i64::from(ended || choice);
        let spec = json!({"version": null, "attempt": attempt, "action": "Run", "pauseAfter": null, "position": position, "requestedBy": "operator"});
        Self::edit(hands, handoff, spec).await && ended
    }
}
