//! People who work beside the operator: labels mistyped or taken off and put right later, cordons of others, handoffs deleted, pods restarted.
//! Which, where and when is drawn from the seed; each meddling is undone by the same hand some time later, and there are finitely many.

use std::time::Duration;

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;

use super::hands::Hands;
use crate::{api::keys::Role, sim::scenarios::kernel_module as scenario};

/// How much they meddle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    pub seed: u64,
    pub times: u32,
    /// Mean time between two of them.
    pub every: Duration,
    /// Also labels and handoffs; otherwise only pods and cordons.
    pub labels: bool,
}

/// What was done, by kind, for the report.
pub type Counts = std::collections::BTreeMap<&'static str, u64>;

/// Meddles as planned, then ends.
pub async fn meddle(hands: Hands, nodes: Vec<String>, plan: Plan) -> Counts {
    let mut dice = ChaCha8Rng::seed_from_u64(plan.seed ^ 0x6D65_6464_6C65);
    let mut counts = Counts::new();
    for _ in 0..plan.times {
        let wait = plan.every.mul_f64(0.3 + dice.random_range(0.0..1.4));
        tokio::time::sleep(wait).await;
        let Some(node) = pick(&mut dice, &nodes) else { return counts };
        let kinds = if plan.labels { 6 } else { 2 };
        let what = match dice.random_range(0..kinds) {
            0 => restart_pod(&hands, &mut dice).await,
            1 => cordon_for_a_while(&hands, &node, &mut dice).await,
            2 => mistype(&hands, &node, &mut dice).await,
            3 => take_off(&hands, &node, &mut dice).await,
            4 => delete_handoff(&hands, &node).await,
            _ => set_early(&hands, &node).await,
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

fn desired_key() -> String {
    Role::Desired.key(&scenario::key())
}

async fn desired(hands: &Hands, node: &str) -> Option<String> {
    let object = hands.get(&format!("/api/v1/nodes/{node}")).await.ok()?;
    object.pointer("/metadata/labels")?.get(desired_key())?.as_str().map(str::to_owned)
}

async fn restart_pod(hands: &Hands, dice: &mut impl Rng) -> Option<&'static str> {
    let pods = hands.items("/api/v1/namespaces/ml/pods").await.ok()?;
    let names: Vec<String> = pods.iter().filter_map(|pod| pod.pointer("/metadata/name")?.as_str().map(str::to_owned)).collect();
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

/// Types a version that does not exist, and puts it right.
async fn mistype(hands: &Hands, node: &str, dice: &mut impl Rng) -> Option<&'static str> {
    let before = desired(hands, node).await?;
    hands.label_node(node, &desired_key(), Some("2.O")).await.ok()?;
    tokio::time::sleep(pause(dice)).await;
    hands.label_node(node, &desired_key(), Some(&before)).await.ok()?;
    Some("version mistyped")
}

/// Takes the version off, and puts it back.
async fn take_off(hands: &Hands, node: &str, dice: &mut impl Rng) -> Option<&'static str> {
    let before = desired(hands, node).await?;
    hands.label_node(node, &desired_key(), None).await.ok()?;
    tokio::time::sleep(pause(dice)).await;
    hands.label_node(node, &desired_key(), Some(&before)).await.ok()?;
    Some("version taken off for a while")
}

/// Does by hand what the queue would do later.
async fn set_early(hands: &Hands, node: &str) -> Option<&'static str> {
    hands.label_node(node, &desired_key(), Some(scenario::NEW)).await.ok()?;
    Some("version set by hand")
}

async fn delete_handoff(hands: &Hands, node: &str) -> Option<&'static str> {
    let path = format!("/apis/lockkeeper.dev/v1alpha1/namespaces/{}/nodehandoffs/{}.{node}", scenario::NAMESPACE, scenario::NAME);
    hands.delete(&path).await.ok()?;
    Some("handoff deleted")
}
