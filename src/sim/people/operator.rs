//! The operator of a headless run: installs, starts the workloads, asks for the new version node by node, and tries again what failed.

use std::time::Duration;

use serde_json::{Value, json};

use super::hands::{Hands, No};
use crate::sim::scenarios::{kernel_module as scenario, objects::Object};

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

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn ready_label(node: &Value) -> Option<&str> {
    let key = crate::api::keys::Role::Ready.key(&scenario::key());
    node.pointer("/metadata/labels")?.get(&key)?.as_str()
}

/// Waits until every node of the pool carries the ready label of this version; false when the time is up.
pub async fn all_ready(hands: &Hands, nodes: &[String], version: &str, within: Duration) -> bool {
    let deadline = tokio::time::Instant::now() + within;
    loop {
        let known = hands.items("/api/v1/nodes").await.unwrap_or_default();
        let ready = known.iter().filter(|node| ready_label(node) == Some(version)).count();
        if ready >= nodes.len() {
            return true;
        }
        if tokio::time::Instant::now() >= deadline {
            return false;
        }
        tokio::time::sleep(LOOK).await;
    }
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
        let pods = hands.items("/api/v1/namespaces/ml/pods").await.unwrap_or_default();
        if !pods.is_empty() && pods.iter().all(|pod| text(pod, "/status/phase") == "Running") {
            return;
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Moves the component's aim to the new version.
pub async fn release(hands: &Hands) -> Result<(), No> {
    let path = format!("/apis/lockkeeper.dev/v1alpha1/namespaces/{}/nodecomponents/{}", scenario::NAMESPACE, scenario::NAME);
    let module = scenario::kernel_module(scenario::NEW);
    hands.merge(&path, &json!({"spec": {"version": scenario::NEW, "kernelModule": module}})).await.map(drop)
}

/// Asks for the new version on these nodes, in this order, whatever handoffs an earlier version left.
pub async fn ask_for(hands: &Hands, order: &[String]) -> Result<(), No> {
    for (position, node) in (1..).zip(order) {
        // What an engine writes in between is no reason to give up.
        for _ in 0..20 {
            let handoffs = hands.items(&handoffs_path()).await?;
            let handoff = handoffs.iter().find(|handoff| text(handoff, "/spec/node") == node);
            if handoff.is_some_and(|handoff| text(handoff, "/spec/version") == scenario::NEW)
                || tend(hands, handoff, node, position).await
            {
                break;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
    Ok(())
}

fn handoffs_path() -> String {
    format!("/apis/lockkeeper.dev/v1alpha1/namespaces/{}/nodehandoffs", scenario::NAMESPACE)
}

/// Watches over the handoffs until all nodes are on the new version, and tries again what failed or was aborted or deleted.
pub async fn see_through(hands: &Hands, order: &[String], within: Duration) -> Outcome {
    let deadline = tokio::time::Instant::now() + within;
    let mut outcome = Outcome::default();
    loop {
        let handoffs = hands.items(&handoffs_path()).await;
        let nodes = hands.items("/api/v1/nodes").await;
        if let (Ok(handoffs), Ok(nodes)) = (handoffs, nodes) {
            outcome = look(&handoffs, &nodes, order, outcome.retried);
            if outcome.upgraded == order.len() {
                return outcome;
            }
            for (position, node) in (1..).zip(order) {
                let handoff = handoffs.iter().find(|handoff| text(handoff, "/spec/node") == node);
                outcome.retried += usize::from(tend(hands, handoff, node, position).await);
            }
        }
        if tokio::time::Instant::now() >= deadline {
            return outcome;
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Counts what is done; a node counts when its labels say so and its handoff ended Done.
fn look(handoffs: &[Value], nodes: &[Value], order: &[String], retried: usize) -> Outcome {
    let mut outcome = Outcome { retried, ..Outcome::default() };
    for name in order {
        let node = nodes.iter().find(|node| text(node, "/metadata/name") == name);
        let handoff = handoffs.iter().find(|handoff| text(handoff, "/spec/node") == name);
        let phase = handoff.map_or("no handoff", |handoff| text(handoff, "/status/phase"));
        let ready = node.and_then(ready_label) == Some(scenario::NEW);
        let closed = node.is_some_and(|node| node.pointer("/metadata/annotations/lockkeeper.dev~1cordon").is_some());
        match phase {
            "Done" if ready && !closed => outcome.upgraded += 1,
            "Failed" | "Aborted" => outcome.failed += 1,
            _ => {}
        }
        if !(phase == "Done" && ready && !closed) {
            let blockers =
                handoff.and_then(|handoff| handoff.pointer("/status/blockers")).map(Value::to_string).unwrap_or_default();
            let reason = handoff.map(|handoff| text(handoff, "/status/reason/message")).unwrap_or_default();
            let spec = handoff.and_then(|handoff| handoff.get("spec")).map(Value::to_string).unwrap_or_default();
            outcome.unfinished.push(format!("{name}: {phase} {reason} {blockers} {spec}"));
        }
    }
    outcome
}

/// Makes a missing handoff again, and raises the attempt of an ended one that is not Done for the new version. True when it was tried again.
async fn tend(hands: &Hands, handoff: Option<&Value>, node: &str, position: i32) -> bool {
    let Some(handoff) = handoff else {
        let object = crate::sim::scenarios::objects::handoff(scenario::NAMESPACE, scenario::NAME, node, scenario::NEW, position);
        return hands.create(&object).await.is_ok();
    };
    // Deleted after the module was out: it waits for a choice, and a new attempt is to go on.
    let deleted = handoff.pointer("/metadata/deletionTimestamp").is_some();
    if deleted && text(handoff, "/status/phase") != "Held" {
        return false;
    }
    let path = format!("/apis/lockkeeper.dev/v1alpha1/namespaces/{}/nodehandoffs/{}.{node}", scenario::NAMESPACE, scenario::NAME);
    let phase = text(handoff, "/status/phase");
    let other_target = text(handoff, "/spec/version") != scenario::NEW;
    let ended = matches!(phase, "Failed" | "Aborted") || (phase == "Done" && other_target);
    // Someone gave it another target, or took the version away: ours is the order that counts here.
    let taken_over = !ended && (phase == "Held" || phase == "Queued") && other_target;
    let choice = !ended && phase == "Held" && (deleted || text(handoff, "/spec/action") == "Abort");
    if !ended && !taken_over && !choice {
        return false;
    }
    let attempt = handoff.pointer("/spec/attempt").and_then(Value::as_i64).unwrap_or(1) + i64::from(ended || choice);
    let revision = text(handoff, "/metadata/resourceVersion");
    let body = json!({
        "metadata": {"resourceVersion": revision},
        "spec": {"version": scenario::NEW, "attempt": attempt, "action": "Run", "pauseAfter": null, "position": position, "requestedBy": "operator"},
    });
    hands.merge(&path, &body).await.is_ok()
}
