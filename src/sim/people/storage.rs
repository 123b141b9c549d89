//! The operator of scenario `csi`: binds claims, releases new nodeplugins, asks for them node by node, and tries again what failed.

use std::{collections::BTreeMap, time::Duration};

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

use super::{
    hands::{Hands, No},
    meddler::{Counts, cordon_for_a_while, pick, restart_pod},
    operator::Outcome,
    seen,
};
use crate::{
    api::keys::CORDON,
    sim::scenarios::{
        csi::{self, NAMESPACE, Plugin, SHOP, Volume},
        objects::Object,
    },
};

const LOOK: Duration = Duration::from_secs(5);

/// Makes claims and their volumes, bound to each other by UID, as a provisioner does.
///
/// # Errors
/// The server's last no.
pub async fn bind(hands: &Hands, volumes: &[Volume]) -> Result<(), No> {
    for volume in volumes {
        let claim = volume.claim_object();
        hands.create(&claim).await?;
        let path = format!("{}/{}", claim.collection(), volume.claim);
        let uid = hands.get(&path).await?.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default().to_owned();
        hands.create(&volume.volume_object(&uid)).await?;
        hands.merge(&format!("{path}/status"), &json!({"status": {"phase": "Bound"}})).await?;
    }
    Ok(())
}

/// Waits until every pod with a volume runs, as long as it is worth waiting; false when some do not.
pub async fn settled(hands: &Hands, within: Duration) -> bool {
    let deadline = tokio::time::Instant::now() + within;
    while tokio::time::Instant::now() < deadline {
        let pods: Vec<seen::Pod> = hands.items(&format!("/api/v1/namespaces/{SHOP}/pods")).await.unwrap_or_default();
        if !pods.is_empty() && pods.iter().all(|pod| pod.status.phase == "Running") {
            return true;
        }
        tokio::time::sleep(LOOK).await;
    }
    false
}

/// A new template for the nodeplugin: with OnDelete nothing moves yet.
///
/// # Errors
/// The server's last no.
pub async fn release(hands: &Hands, plugin: Plugin, version: &str) -> Result<(), No> {
    hands.merge(&plugin.set_path(), &plugin.release(version)).await.map(drop)
}

/// One nodeplugin to its current revision on these nodes, in this order.
#[derive(Debug, Clone, Copy)]
pub struct Order<'a> {
    pub plugin: Plugin,
    pub version: &'a str,
    pub nodes: &'a [String],
}

impl Order<'_> {
    fn path(&self, node: &str) -> String {
        format!("/apis/lockkeeper.dev/v1alpha1/namespaces/{NAMESPACE}/nodehandoffs/{}.{node}", self.plugin.name)
    }

    fn handoff(&self, node: &str, position: i32) -> Object {
        // No version: whatever revision is current.
        let spec = json!({"component": self.plugin.name, "node": node, "position": position, "requestedBy": "operator"});
        let body = json!({"metadata": {"name": format!("{}.{node}", self.plugin.name)}, "spec": spec});
        Object::new("lockkeeper.dev/v1alpha1", "NodeHandoff", "nodehandoffs", Some(NAMESPACE), body)
    }

    /// Looks after the handoffs until all nodes have the new pod and no cordon.
    pub async fn see_through(&self, hands: &Hands, within: Duration) -> Outcome {
        let deadline = tokio::time::Instant::now() + within;
        let mut outcome = Outcome::default();
        loop {
            if let Ok(seen) = self.look(hands, outcome.retried).await {
                outcome = seen;
                if outcome.upgraded == self.nodes.len() {
                    return outcome;
                }
            }
            if tokio::time::Instant::now() >= deadline {
                return outcome;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn look(&self, hands: &Hands, retried: usize) -> Result<Outcome, No> {
        let mut outcome = Outcome { retried, ..Outcome::default() };
        let handoffs: Vec<seen::Handoff> =
            hands.items(&format!("/apis/lockkeeper.dev/v1alpha1/namespaces/{NAMESPACE}/nodehandoffs")).await?;
        let handoffs: BTreeMap<&str, &seen::Handoff> = handoffs
            .iter()
            .filter(|handoff| handoff.spec.component == self.plugin.name)
            .map(|handoff| (handoff.spec.node.as_str(), handoff))
            .collect();
        let nodes: Vec<seen::Node> = hands.items("/api/v1/nodes").await?;
        let running = self.running(hands).await?;
        for (position, name) in (1..).zip(self.nodes) {
            let handoff = handoffs.get(name.as_str()).copied();
            let phase = handoff.map_or("no handoff", |handoff| handoff.status.phase.as_str());
            let node = nodes.iter().find(|node| node.metadata.name == *name);
            let closed = node.is_none_or(|node| node.metadata.annotations.contains_key(CORDON));
            let current = running.get(name).is_some_and(|versions| versions.len() == 1 && versions[0] == self.version);
            if phase == "Done" && current && !closed {
                outcome.upgraded += 1;
                continue;
            }
            outcome.failed += usize::from(matches!(phase, "Failed" | "Aborted"));
            let status = handoff.map(|handoff| format!("{:?} {:?}", handoff.status.reason, handoff.status.blockers));
            outcome.unfinished.push(format!(
                "{} on {name}: {phase}, runs {:?} {}",
                self.plugin.name,
                running.get(name),
                status.unwrap_or_default()
            ));
            outcome.retried += usize::from(self.tend(hands, handoff, name, position, current).await);
        }
        Ok(outcome)
    }

    /// Versions of the plugin pods by node, those being stopped too.
    async fn running(&self, hands: &Hands) -> Result<BTreeMap<String, Vec<String>>, No> {
        let pods: Vec<Value> =
            hands.items(&format!("/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=app%3D{}", self.plugin.daemon_set)).await?;
        let mut running: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for pod in &pods {
            let text = |pointer: &str| pod.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            let image = text("/spec/containers/0/image");
            let version = image.rsplit_once(':').map_or(image, |(_, version)| version);
            running.entry(text("/spec/nodeName").to_owned()).or_default().push(version.to_owned());
        }
        Ok(running)
    }

    /// Asks for it where nobody did, and again where it ended without the new pod. True when it was tried again.
    async fn tend(&self, hands: &Hands, handoff: Option<&seen::Handoff>, node: &str, position: i32, current: bool) -> bool {
        let Some(handoff) = handoff else {
            let _ = hands.create(&self.handoff(node, position)).await;
            return false;
        };
        let phase = handoff.status.phase.as_str();
        let ended = matches!(phase, "Failed" | "Aborted") || phase == "Done" && !current;
        let held = phase == "Held" || handoff.spec.action == "Hold";
        if handoff.metadata.deletion_timestamp.is_some() || !(ended || held) {
            return false;
        }
        let attempt = handoff.spec.attempt.unwrap_or(1) + i64::from(ended);
        let body = json!({"metadata": {"resourceVersion": handoff.metadata.resource_version},
            "spec": {"attempt": attempt, "action": "Run", "pauseAfter": null, "position": position}});
        hands.merge(&self.path(node), &body).await.is_ok() && ended
    }
}

/// People beside the operator: pods deleted, nodes closed and opened by others, handoffs held, aborted and deleted.
pub async fn meddle(hands: Hands, nodes: Vec<String>, seed: u64, times: u32, roughly: bool) -> Counts {
    let mut dice = ChaCha8Rng::seed_from_u64(seed ^ 0x0063_7369);
    let mut counts = Counts::new();
    for _ in 0..times {
        tokio::time::sleep(Duration::from_secs(40).mul_f64(0.3 + dice.random_range(0.0..1.4))).await;
        let Some(node) = pick(&mut dice, &nodes) else { return counts };
        let plugin = csi::PLUGINS[dice.random_range(0..csi::PLUGINS.len())];
        let order = Order { plugin, version: csi::NEW, nodes: &nodes };
        let what = match dice.random_range(0..if roughly { 6 } else { 2 }) {
            0 => restart_pod(&hands, SHOP, &mut dice).await,
            1 => cordon_for_a_while(&hands, &node, &mut dice).await,
            2 => hands.merge(&order.path(&node), &json!({"spec": {"action": "Abort"}})).await.ok().map(|_| "handoff aborted"),
            3 => hands.merge(&order.path(&node), &json!({"spec": {"action": "Hold"}})).await.ok().map(|_| "handoff held"),
            4 => hands.delete(&order.path(&node)).await.ok().map(|()| "handoff deleted"),
            _ => hands.cordon(&node, false).await.ok().map(|_| "opened by hand"),
        };
        if let Some(what) = what {
            *counts.entry(what).or_default() += 1;
        }
    }
    counts
}
