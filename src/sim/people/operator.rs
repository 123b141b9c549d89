//! The operator of a headless run: installs, starts the workloads, asks for a version node by node, and tries again what failed.

use std::{collections::BTreeMap, time::Duration};

use serde_json::json;

use super::{
    hands::{Hands, No},
    seen,
};
use crate::{
    api::keys::Role,
    sim::scenarios::{
        kernel_module::{self as scenario, GPU, Module},
        objects::{self, Object},
    },
};

/// What the operator saw at the end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    pub upgraded: usize,
    /// Nodes whose handoff stands at Failed or Aborted.
    pub failed: usize,
    /// How often a failed or aborted handoff was tried again.
    pub retried: usize,
    /// What each unfinished node waits for, for people.
    pub unfinished: Vec<String>,
}

/// How often the operator looks.
const LOOK: Duration = Duration::from_secs(5);

/// What is asked for: these nodes to this version of a module, in this order.
#[derive(Debug, Clone, Copy)]
pub struct Order<'a> {
    pub module: Module,
    pub version: &'a str,
    pub nodes: &'a [String],
}

/// Waits until every node of the pool carries the ready label of this version; false when the time is up.
pub async fn all_ready(hands: &Hands, nodes: &[String], version: &str, within: Duration) -> bool {
    Order { module: GPU, version, nodes }.ready(hands, within).await
}

/// Creates objects in order.
pub async fn apply(hands: &Hands, objects: &[Object]) -> Result<(), No> {
    for object in objects {
        hands.create(object).await?;
    }
    Ok(())
}

/// Waits until pods that hold devices run, as long as it is worth waiting.
pub async fn settled(hands: &Hands, within: Duration) {
    let deadline = tokio::time::Instant::now() + within;
    while tokio::time::Instant::now() < deadline {
        let pods: Vec<seen::Pod> = hands.items("/api/v1/namespaces/ml/pods").await.unwrap_or_default();
        if !pods.is_empty() && pods.iter().all(|pod| pod.status.phase == "Running") {
            return;
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Moves the component's aim to the new version.
pub async fn release(hands: &Hands) -> Result<(), No> {
    Order { module: GPU, version: scenario::NEW, nodes: &[] }.release(hands).await
}

/// Asks for the new version on these nodes, in this order, whatever handoffs an earlier version left.
pub async fn ask_for(hands: &Hands, nodes: &[String]) -> Result<(), No> {
    Order { module: GPU, version: scenario::NEW, nodes }.ask(hands).await
}

/// Watches over the handoffs until all nodes are on the new version.
pub async fn see_through(hands: &Hands, nodes: &[String], within: Duration) -> Outcome {
    Order { module: GPU, version: scenario::NEW, nodes }.see_through(hands, within).await
}

impl Order<'_> {
    fn handoffs_path() -> String {
        format!("/apis/lockkeeper.dev/v1alpha1/namespaces/{}/nodehandoffs", scenario::NAMESPACE)
    }

    fn handoff_path(&self, node: &str) -> String {
        format!("{}/{}.{node}", Self::handoffs_path(), self.module.name)
    }

    /// Does the node's ready label say so?
    fn is_ready(&self, node: &seen::Node) -> bool {
        node.metadata.labels.get(&Role::Ready.key(&self.module.key())).is_some_and(|ready| ready == self.version)
    }

    /// Waits until all nodes are ready in this version; false when the time is up.
    pub async fn ready(&self, hands: &Hands, within: Duration) -> bool {
        let deadline = tokio::time::Instant::now() + within;
        loop {
            let known: Vec<seen::Node> = hands.items("/api/v1/nodes").await.unwrap_or_default();
            if known.iter().filter(|node| self.is_ready(node)).count() >= self.nodes.len() {
                return true;
            }
            if tokio::time::Instant::now() >= deadline {
                return false;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Moves the component's aim to this version.
    ///
    /// # Errors
    /// The server's last no.
    pub async fn release(&self, hands: &Hands) -> Result<(), No> {
        let content = self.module.kernel_module(self.version);
        hands.merge(&self.module.path(), &json!({"spec": {"version": self.version, "kernelModule": content}})).await.map(drop)
    }

    /// Asks for it on every node, whatever handoffs an earlier version left.
    ///
    /// # Errors
    /// The server's last no to a read.
    pub async fn ask(&self, hands: &Hands) -> Result<(), No> {
        for (position, node) in (1..).zip(self.nodes) {
            // What an engine writes in between is no reason to give up.
            for _ in 0..20 {
                let handoff: Option<seen::Handoff> = hands.find(&self.handoff_path(node)).await?;
                if handoff.as_ref().is_some_and(|handoff| handoff.spec.version == self.version)
                    || self.tend(hands, handoff.as_ref(), node, position).await
                {
                    break;
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
        Ok(())
    }

    /// Looks after the handoffs until all nodes are on the version, and tries again what failed or was aborted or deleted.
    pub async fn see_through(&self, hands: &Hands, within: Duration) -> Outcome {
        self.see(hands, within, self.nodes.len()).await
    }

    /// As [`Order::see_through`], until so many nodes are.
    pub async fn see(&self, hands: &Hands, within: Duration, enough: usize) -> Outcome {
        let deadline = tokio::time::Instant::now() + within;
        let mut outcome = Outcome::default();
        loop {
            let handoffs: Result<Vec<seen::Handoff>, No> = hands.items(&Self::handoffs_path()).await;
            let nodes: Result<Vec<seen::Node>, No> = hands.items("/api/v1/nodes").await;
            if let (Ok(handoffs), Ok(nodes)) = (handoffs, nodes) {
                let handoffs: BTreeMap<&str, &seen::Handoff> = handoffs
                    .iter()
                    .filter(|handoff| handoff.spec.component == self.module.name)
                    .map(|handoff| (handoff.spec.node.as_str(), handoff))
                    .collect();
                outcome = self.look(&handoffs, &nodes, outcome.retried);
                if outcome.upgraded >= enough {
                    return outcome;
                }
                for (position, node) in (1..).zip(self.nodes) {
                    let handoff = handoffs.get(node.as_str()).copied();
                    outcome.retried += usize::from(self.tend(hands, handoff, node, position).await);
                }
            }
            if tokio::time::Instant::now() >= deadline {
                return outcome;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Counts what is done; a node counts when its labels say so and its handoff ended Done.
    fn look(&self, handoffs: &BTreeMap<&str, &seen::Handoff>, nodes: &[seen::Node], retried: usize) -> Outcome {
        let mut outcome = Outcome { retried, ..Outcome::default() };
        let nodes: BTreeMap<&str, &seen::Node> = nodes.iter().map(|node| (node.metadata.name.as_str(), node)).collect();
        for name in self.nodes {
            let node = nodes.get(name.as_str());
            let handoff = handoffs.get(name.as_str());
            let phase = handoff.map_or("no handoff", |handoff| handoff.status.phase.as_str());
            let ready = node.is_some_and(|node| self.is_ready(node));
            let closed = node.is_some_and(|node| node.metadata.annotations.contains_key(crate::api::keys::CORDON));
            if phase == "Done" && ready && !closed {
                outcome.upgraded += 1;
                continue;
            }
            if matches!(phase, "Failed" | "Aborted") {
                outcome.failed += 1;
            }
            let told = handoff.map(|handoff| {
                let json = |value: &Option<serde_json::Value>| value.as_ref().map(ToString::to_string).unwrap_or_default();
                let (status, spec) = (&handoff.status, &handoff.spec);
                format!("{} {} {spec:?}", json(&status.reason), json(&status.blockers))
            });
            outcome.unfinished.push(format!("{name}: {phase} {}", told.unwrap_or_default()));
        }
        outcome
    }

    /// Makes a missing handoff again, and raises the attempt of an ended one that is not Done for this version. True when it was tried again.
    async fn tend(&self, hands: &Hands, handoff: Option<&seen::Handoff>, node: &str, position: i32) -> bool {
        let Some(handoff) = handoff else {
            let object = objects::handoff(scenario::NAMESPACE, self.module.name, node, self.version, position);
            return hands.create(&object).await.is_ok();
        };
        // Deleted after the module was out: it waits for a choice, and a new attempt is to go on.
        let deleted = handoff.metadata.deletion_timestamp.is_some();
        let phase = handoff.status.phase.as_str();
        if deleted && phase != "Held" {
            return false;
        }
        // A colleague moved the label by hand, and claimants are in the way: an attempt that follows a label evicts nobody. It is called off here,
        // and asked for as a handoff once it has ended.
        if phase == "StoppingPlugin"
            && handoff.status.run.as_ref().is_some_and(|run| run.by_label)
            && handoff.status.blockers.as_ref().is_some_and(|blockers| blockers.to_string().contains("\"Claimant\""))
            && handoff.spec.action != "Abort"
        {
            let body = json!({"metadata": {"resourceVersion": handoff.metadata.resource_version}, "spec": {"action": "Abort"}});
            return hands.merge(&self.handoff_path(node), &body).await.is_ok();
        }
        let other_target = handoff.spec.version != self.version;
        let ended = matches!(phase, "Failed" | "Aborted") || (phase == "Done" && other_target);
        // Someone gave it another target, or took the version away: ours is the order that counts here.
        let taken_over = !ended && (phase == "Held" || phase == "Queued") && other_target;
        let choice = !ended && phase == "Held" && (deleted || handoff.spec.action == "Abort");
        if !ended && !taken_over && !choice {
            return false;
        }
        let attempt = handoff.spec.attempt.unwrap_or(1) + i64::from(ended || choice);
        let body = json!({
            "metadata": {"resourceVersion": handoff.metadata.resource_version},
            "spec": {"version": self.version, "attempt": attempt, "action": "Run", "pauseAfter": null, "position": position, "requestedBy": "operator"},
        });
        hands.merge(&self.handoff_path(node), &body).await.is_ok()
    }
}
