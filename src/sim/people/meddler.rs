//! People who work beside the operator: labels mistyped or taken off and put right later, cordons of others, handoffs deleted, pods restarted.
//! Which, where and when is drawn from the seed; each meddling is undone by the same hand some time later, and there are finitely many.

use std::time::Duration;

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;

use super::{hands::Hands, seen};
use crate::{
    api::keys::Role,
    sim::scenarios::kernel_module::{self as scenario, GPU, Module},
};

/// How much they meddle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub seed: u64,
    /// Whose labels and handoffs.
    pub modules: Vec<Module>,
    /// The version that some set by hand.
    pub version: String,
    pub times: u32,
    /// Mean time between two of them.
    pub every: Duration,
    /// Also labels and handoffs; otherwise only pods and cordons.
    pub labels: bool,
}

impl Plan {
    /// A few meddlings with pods and cordons while the scenario's module is handed over; `labels` and the rest may be set.
    pub fn new(seed: u64, times: u32) -> Self {
        let every = Duration::from_secs(40);
        Self { seed, modules: vec![GPU], version: scenario::NEW.to_owned(), times, every, labels: false }
    }
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
        // One module is no choice, and takes no draw.
        let module = match plan.modules.as_slice() {
            [] => return counts,
            [only] => *only,
            several => several.get(dice.random_range(0..several.len())).copied().unwrap_or(GPU),
        };
        let kinds = if plan.labels { 6 } else { 2 };
        let what = match dice.random_range(0..kinds) {
            0 => restart_pod(&hands, "ml", &mut dice).await,
            1 => cordon_for_a_while(&hands, &node, &mut dice).await,
            2 => mistype(&hands, module, &node, &mut dice).await,
            3 => take_off(&hands, module, &node, &mut dice).await,
            4 => delete_handoff(&hands, module, &node).await,
            _ => set_early(&hands, module, &node, &plan.version).await,
        };
        if let Some(what) = what {
            *counts.entry(what).or_default() += 1;
        }
    }
    counts
}

pub(super) fn pick(dice: &mut impl Rng, names: &[String]) -> Option<String> {
    if names.is_empty() { None } else { names.get(dice.random_range(0..names.len())).cloned() }
}

pub(super) fn pause(dice: &mut impl Rng) -> Duration {
    Duration::from_millis(dice.random_range(3_000..45_000))
}

fn desired_key(module: Module) -> String {
    Role::Desired.key(&module.key())
}

async fn desired(hands: &Hands, module: Module, node: &str) -> Option<String> {
    let node: seen::Node = hands.find(&format!("/api/v1/nodes/{node}")).await.ok()??;
    node.metadata.labels.get(&desired_key(module)).cloned()
}

/// Somebody deletes a pod of this namespace.
pub(super) async fn restart_pod(hands: &Hands, namespace: &str, dice: &mut impl Rng) -> Option<&'static str> {
    let pods: Vec<seen::Pod> = hands.items(&format!("/api/v1/namespaces/{namespace}/pods")).await.ok()?;
    let names: Vec<String> = pods.into_iter().map(|pod| pod.metadata.name).collect();
    let name = pick(dice, &names)?;
    hands.delete(&format!("/api/v1/namespaces/{namespace}/pods/{name}")).await.ok()?;
    Some("pod deleted")
}

/// Somebody closes the node, unless it is closed, and opens it again.
pub(super) async fn cordon_for_a_while(hands: &Hands, node: &str, dice: &mut impl Rng) -> Option<&'static str> {
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
async fn mistype(hands: &Hands, module: Module, node: &str, dice: &mut impl Rng) -> Option<&'static str> {
    let before = desired(hands, module, node).await?;
    hands.label_node(node, &desired_key(module), Some("2.O")).await.ok()?;
    tokio::time::sleep(pause(dice)).await;
    hands.label_node(node, &desired_key(module), Some(&before)).await.ok()?;
    Some("version mistyped")
}

/// Takes the version off, and puts it back.
async fn take_off(hands: &Hands, module: Module, node: &str, dice: &mut impl Rng) -> Option<&'static str> {
    let before = desired(hands, module, node).await?;
    hands.label_node(node, &desired_key(module), None).await.ok()?;
    tokio::time::sleep(pause(dice)).await;
    hands.label_node(node, &desired_key(module), Some(&before)).await.ok()?;
    Some("version taken off for a while")
}

/// Does by hand what the queue would do later.
async fn set_early(hands: &Hands, module: Module, node: &str, version: &str) -> Option<&'static str> {
    hands.label_node(node, &desired_key(module), Some(version)).await.ok()?;
    Some("version set by hand")
}

async fn delete_handoff(hands: &Hands, module: Module, node: &str) -> Option<&'static str> {
    let path = format!("/apis/lockkeeper.dev/v1alpha1/namespaces/{}/nodehandoffs/{}.{node}", scenario::NAMESPACE, module.name);
    hands.delete(&path).await.ok()?;
    Some("handoff deleted")
}
