//! A whole fleet goes from one version to the next: in the queue's order, one node at a time, and nobody loses a device.

use std::collections::BTreeMap;

use lockkeeper::{
    api::{Phase, keys::Role},
    sim::scenarios::objects,
};
use serde_json::json;

use crate::{
    fleet::{Fleet, name_of, uid_of},
    site::{arena, block_on},
    support::controlplane::User,
};

#[test]
fn five_nodes_are_handed_over_in_the_queues_order() {
    let Some(arena) = arena() else { return };
    block_on(async {
        let fleet = Fleet::start(&arena.site, "queue", 5, |_| {}).await;
        let apps = fleet.apps();
        fleet
            .apply(&[
                fleet.claimants("training", 4),
                objects::budget(&apps, "training", "maxUnavailable", json!(1)),
                objects::stateful_set(&apps, "inference", 3, fleet.claimant("inference")),
                objects::budget(&apps, "inference", "minAvailable", json!(2)),
                objects::daemon_set_where_label(&apps, "monitor", &Role::Ready.key(&fleet.key()), fleet.claimant("monitor")),
                fleet.bystanders("web", 5),
            ])
            .await;
        let claimants = [fleet.running("training", 4).await, fleet.running("inference", 3).await].concat();
        let monitors = fleet.running("monitor", 5).await;
        let web: Vec<String> = fleet.running("web", 5).await.iter().map(|pod| uid_of(pod).to_owned()).collect();

        // The whole queue is there before its first is taken.
        fleet.edit_component(json!({"rollout": {"paused": true}})).await;
        fleet.release("2.0", fleet.module("2.0")).await;
        let queue = ["queue-4", "queue-2", "queue-5", "queue-1", "queue-3"];
        let mut attempts = BTreeMap::new();
        for node in &fleet.nodes {
            let position = queue.iter().position(|queued| queued == node).expect("every node is queued");
            let attempt = fleet.hand_over(node, "2.0", i32::try_from(position).expect("a small number") + 1).await;
            attempts.insert(node.as_str(), attempt);
        }
        fleet.queued(&fleet.nodes).await;
        fleet.edit_component(json!({"rollout": {"paused": false}})).await;

        let mut runs = Vec::new();
        for node in queue {
            let status = fleet.ended(node, attempts[node], Phase::Done).await;
            fleet.runs(node, "2.0").await;
            assert_eq!(fleet.story(node), "+1.0 -1.0 +2.0", "{node}");
            let time = |text: &str| text.parse::<jiff::Timestamp>().expect("a time");
            let started = time(&status.steps.first().expect("steps").started_at);
            let ended = time(&status.phase_since.expect("the time of its end"));
            runs.push((started, ended, node));
        }
        runs.sort();
        assert_eq!(runs.iter().map(|(_, _, node)| *node).collect::<Vec<_>>(), queue);
        for pair in runs.windows(2) {
            assert!(pair[0].1 < pair[1].0, "two at once: {pair:?}");
        }

        fleet.undisturbed();
        let evicted = fleet.evicted();
        assert!(evicted.iter().all(|pod| pod.starts_with("training-") || pod.starts_with("inference-")), "{evicted:?}");
        assert!(evicted.len() >= claimants.len(), "each node's claimants left it once: {evicted:?}");
        let web_now: Vec<String> = fleet.running("web", 5).await.iter().map(|pod| uid_of(pod).to_owned()).collect();
        assert_eq!(web, web_now, "pods that claim nothing stay");
        // They have left with the ready label, and come back with it.
        let again = fleet.running("monitor", 5).await;
        assert!(
            again.iter().all(|pod| !monitors.iter().any(|old| uid_of(old) == uid_of(pod))),
            "{:?}",
            again.iter().map(name_of).collect::<Vec<_>>()
        );
        fleet.running("training", 4).await;
        fleet.running("inference", 3).await;

        // The printed roles are enough for all of it.
        for user in [User::Reconciler, User::Operator] {
            let refused: Vec<_> = arena.site.asked(user).into_iter().filter(|asked| asked.code == 403).collect();
            // The operator's first NodeComponent may come before the right to write it is in force.
            let early = |asked: &crate::site::Asked| user == User::Operator && asked.resource == "nodecomponents";
            assert!(refused.iter().all(early), "{refused:?}");
        }
    });
}
