//! What happens to machines in a rough world: reboots, kubelets that die and come back, pods evicted for pressure. Finite, drawn from the seed.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;

use crate::sim::world::World;

/// Strikes `times` times, about `every` apart, then ends. Returns what was done, by kind.
pub async fn strike(
    world: Arc<World>,
    nodes: Vec<String>,
    seed: u64,
    times: u32,
    every: Duration,
) -> BTreeMap<&'static str, u64> {
    let mut dice = ChaCha8Rng::seed_from_u64(seed ^ 0x0063_6861_6F73);
    let mut counts = BTreeMap::new();
    for _ in 0..times {
        tokio::time::sleep(every.mul_f64(dice.random_range(0.3..1.7))).await;
        if nodes.is_empty() {
            break;
        }
        let node = &nodes[dice.random_range(0..nodes.len())];
        let what = match dice.random_range(0..10) {
            0..4 => {
                world.kubelets.reboot(node);
                "reboot"
            }
            4..7 => {
                world.kubelets.kill(node);
                tokio::time::sleep(Duration::from_millis(dice.random_range(5_000..120_000))).await;
                world.kubelets.revive(node);
                "kubelet dead for a while"
            }
            _ => {
                let Some(pod) = victim(&world, node) else { continue };
                world.kubelets.pressure_evict(node, &pod);
                "pod evicted for pressure"
            }
        };
        *counts.entry(what).or_default() += 1;
    }
    counts
}

/// Kills KMM's operator so many times, about `every` apart, and starts it again a minute or so later. Returns how often.
pub async fn strike_kmm(world: Arc<World>, seed: u64, times: u32, every: Duration) -> BTreeMap<&'static str, u64> {
    let mut dice = ChaCha8Rng::seed_from_u64(seed ^ 0x6B6D_6D00);
    let mut counts = BTreeMap::new();
    for _ in 0..times {
        tokio::time::sleep(every.mul_f64(dice.random_range(0.3..1.7))).await;
        world.kill_kmm();
        tokio::time::sleep(Duration::from_millis(dice.random_range(1_000..90_000))).await;
        world.start_kmm();
        *counts.entry("KMM's operator away for a while").or_default() += 1;
    }
    counts
}

/// A workload's pod on the node, as `namespace/name`.
fn victim(world: &World, node: &str) -> Option<String> {
    let text = |pod: &Value, pointer: &str| pod.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    world
        .api
        .list("pods")
        .iter()
        .find(|pod| {
            text(pod, "/spec/nodeName") == node && matches!(text(pod, "/metadata/namespace").as_str(), "ml" | "web" | "shop")
        })
        .map(|pod| format!("{}/{}", text(pod, "/metadata/namespace"), text(pod, "/metadata/name")))
}
