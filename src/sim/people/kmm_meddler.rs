//! People beside the operator of scenario `kmm`: pods deleted, nodes closed by others, and the version labels that KMM obeys changed by hand,
//! half-way through a handoff too. Which, where and when is drawn from the seed; what is wrong is put right by the same hand some time later.

use std::time::Duration;

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::json;

use super::{
    hands::Hands,
    kmm::label,
    meddler::{Counts, cordon_for_a_while, pause, pick, restart_pod},
    seen,
};
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
            0 => restart_pod(&hands, "ml", &mut dice).await,
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

/// Gives the label another value, or none, and puts back what was there.
async fn for_a_while(hands: &Hands, part: Part, node: &str, value: Option<&str>, dice: &mut impl Rng) -> Option<()> {
    let found: seen::Node = hands.find(&format!("/api/v1/nodes/{node}")).await.ok()??;
    let before = found.metadata.labels.get(&part.desired_key()).cloned()?;
    label(hands, part, node, value).await.ok()?;
    tokio::time::sleep(pause(dice)).await;
    label(hands, part, node, Some(&before)).await.ok()
}
