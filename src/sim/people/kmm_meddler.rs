//! People beside the operator of scenario `kmm`: pods deleted, nodes closed by others, and the version labels that KMM obeys changed by hand,
//! half-way through a handoff too. Which, where and when is drawn from the seed; what is wrong is put right by the same hand some time later.

use std::time::Duration;

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

use super::{hands::Hands, kmm::label, meddler::Counts, seen};
use crate::sim::scenarios::kmm::{NAMESPACE, Part};

/// How much they meddle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub seed: u64,
    pub times: u32,
    /// Mean time between two of them.
    pub every: Duration,
    /// Also labels, drivers' pods and handoffs; otherwise only pods and cordons.
    pub roughly: bool,
    /// The version that some set by hand.
    pub version: String,
}

impl Plan {
    pub fn new(seed: u64, times: u32, roughly: bool) -> Self {
        let every = Duration::from_secs(40);
        Self { seed, times, every, roughly, version: crate::sim::scenarios::kmm::NEW.to_owned() }
    }
}

/// Meddles as planned, then ends.
pub async fn meddle(hands: Hands, nodes: Vec<String>, plan: Plan) -> Counts {
    let mut dice = ChaCha8Rng::seed_from_u64(plan.seed ^ 0x006B_6D6D);
    let mut counts = Counts::new();
    for _ in 0..plan.times {
        tokio::time::sleep(plan.every.mul_f64(0.3 + dice.random_range(0.0..1.4))).await;
        let Some(node) = pick(&mut dice, &nodes) else { return counts };
        let part = Part::of_node(&node);
        let handoff = format!("/apis/lockkeeper.dev/v1alpha1/namespaces/{NAMESPACE}/nodehandoffs/{}.{node}", part.name);
        let what = match dice.random_range(0..if plan.roughly { 9 } else { 2 }) {
            0 => restart_pod(&hands, &mut dice).await,
            1 => cordon_for_a_while(&hands, &node, &mut dice).await,
            2 => for_a_while(&hands, part, &node, Some("9.9"), &mut dice).await.map(|()| "version mistyped"),
            3 => for_a_while(&hands, part, &node, None, &mut dice).await.map(|()| "version taken off for a while"),
            4 => label(&hands, part, &node, Some(&plan.version)).await.ok().map(|()| "version set by hand"),
            5 => hands.merge(&handoff, &json!({"spec": {"action": "Abort"}})).await.ok().map(|_| "handoff aborted"),
            6 => hands.merge(&handoff, &json!({"spec": {"action": "Hold"}})).await.ok().map(|_| "handoff held"),
            7 => hands.delete(&handoff).await.ok().map(|()| "handoff deleted"),
            _ => hands.cordon(&node, false).await.ok().map(|_| "opened by hand"),
        };
        if let Some(what) = what {
            *counts.entry(what).or_default() += 1;
        }
    }
    counts
}

fn pick(dice: &mut impl Rng, names: &[String]) -> Option<String> {
    if names.is_empty() { None } else { names.get(dice.random_range(0..names.len())).cloned() }
}

fn pause(dice: &mut impl Rng) -> Duration {
    Duration::from_millis(dice.random_range(3_000..45_000))
}

async fn restart_pod(hands: &Hands, dice: &mut impl Rng) -> Option<&'static str> {
    let pods: Vec<seen::Pod> = hands.items("/api/v1/namespaces/ml/pods").await.ok()?;
    let names: Vec<String> = pods.into_iter().map(|pod| pod.metadata.name).collect();
    let name = pick(dice, &names)?;
    hands.delete(&format!("/api/v1/namespaces/ml/pods/{name}")).await.ok()?;
    Some("pod deleted")
}

async fn cordon_for_a_while(hands: &Hands, node: &str, dice: &mut impl Rng) -> Option<&'static str> {
    let object = hands.get(&format!("/api/v1/nodes/{node}")).await.ok()?;
    if object.pointer("/spec/unschedulable").and_then(Value::as_bool) == Some(true) {
        return None;
    }
    hands.cordon(node, true).await.ok()?;
    tokio::time::sleep(pause(dice)).await;
    hands.cordon(node, false).await.ok()?;
    Some("cordoned for a while")
}

/// Gives the label another value, or none, and puts back what was there.
async fn for_a_while(hands: &Hands, part: Part, node: &str, value: Option<&str>, dice: &mut impl Rng) -> Option<()> {
    let found: seen::Node = hands.find(&format!("/api/v1/nodes/{node}")).await.ok()??;
    let before = found.metadata.labels.get(&part.desired_key()).cloned()?;
    label(hands, part, node, value).await.ok()?;
    tokio::time::sleep(pause(dice)).await;
    label(hands, part, node, Some(&before)).await.ok()
}
