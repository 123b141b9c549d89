//! A component is deleted: it leaves its nodes one by one, a pause holds it before the next, and the same one can be made again.

use lockkeeper::{
    handoff::verdict::BlockerKind,
    sim::{
        actors::{KubeletOptions, Range},
        scenarios::kernel_module::{self as scenario, NAME, NAMESPACE},
        world::WorldOptions,
    },
};
use serde_json::json;

use crate::stage::{Stage, component_path, play};

fn options(seed: u64) -> WorldOptions {
    let mut options = WorldOptions { kubelets: KubeletOptions::quick(), ..WorldOptions::new(seed) };
    // Slow enough to be caught in a phase.
    options.kubelets.unload = Range::millis(3000, 3001);
    options
}

fn is_there(stage: &Stage) -> bool {
    stage.world.api.get("nodecomponents.lockkeeper.dev", NAMESPACE, NAME).is_some()
}

/// Nodes that carry anything of it.
fn carriers(stage: &Stage) -> Vec<&String> {
    stage.nodes.iter().filter(|node| stage.loaded(node).is_some()).collect()
}

#[test]
fn a_pause_stops_a_deletion_before_its_next_node() {
    play(|| async {
        let stage = Stage::with(options(51), 3).installed().await;
        let engine = stage.engine();
        stage.hands.delete(&component_path()).await.unwrap();
        let under_way = || stage.nodes.iter().find(|node| stage.phase(node) == "Unloading").cloned();
        stage.until("the first one is being unloaded", || under_way().is_some()).await;
        let first = under_way().unwrap();
        stage.spec(json!({"rollout": {"paused": true}})).await;
        stage.until("what has begun is ended", || stage.loaded(&first).is_none() && stage.is_open(&first)).await;
        for node in stage.nodes.iter().filter(|node| **node != first) {
            stage.waits(&engine, NAME, node, BlockerKind::Paused, &["paused"]).await;
        }
        stage.pass(3600).await;
        assert_eq!(carriers(&stage).len(), 2, "a node was taken in spite of the pause");
        assert!(carriers(&stage).into_iter().all(|node| stage.runs(node, "1.0")), "those that wait are in service");
        let (status, message) = stage.condition("Deleting");
        assert!(status == "True" && message.contains('2'), "{message}");
        stage.spec(json!({"rollout": {"paused": false}})).await;
        stage.until("it is gone", || !is_there(&stage)).await;
        assert_eq!(carriers(&stage), Vec::<&String>::new());
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn a_component_that_is_paused_is_deleted_once_it_is_not() {
    play(|| async {
        let stage = Stage::with(options(52), 2).installed().await;
        let engine = stage.engine();
        stage.spec(json!({"rollout": {"paused": true}})).await;
        stage.hands.delete(&component_path()).await.unwrap();
        for node in &stage.nodes {
            stage.waits(&engine, NAME, node, BlockerKind::Paused, &["paused"]).await;
        }
        stage.pass(3600).await;
        assert!(stage.nodes.iter().all(|node| stage.runs(node, "1.0")), "a node was taken in spite of the pause");
        stage.spec(json!({"rollout": {"paused": false}})).await;
        stage.until("it is gone", || !is_there(&stage)).await;
        stage.clean();
        engine.stop().await;
    });
}

/// What the removal left behind on its NodeHandoffs is no order against the new one; what a person took off by label is.
#[test]
fn a_component_that_is_made_again_is_installed_again() {
    play(|| async {
        let stage = Stage::with(options(53), 3).installed().await;
        let engine = stage.engine();
        stage.hands.delete(&component_path()).await.unwrap();
        stage.until("it is gone", || !is_there(&stage)).await;
        assert!(stage.nodes.iter().all(|node| stage.phase(node) == "Done"));
        stage.hands.create(&scenario::component()).await.unwrap();
        stage.until("it is back on every node", || stage.nodes.iter().all(|node| stage.is_done(node, "1.0"))).await;
        assert!(stage.nodes.iter().all(|node| stage.handoff(node)["spec"]["requestedBy"] == "install"));

        let out = stage.nodes[0].clone();
        stage.hands.label_node(&out, &format!("lockkeeper.dev/version.{NAMESPACE}.{NAME}"), None).await.unwrap();
        stage.until("one is out of service", || stage.loaded(&out).is_none() && stage.phase(&out) == "Held").await;
        stage.pass(3600).await;
        assert!(stage.loaded(&out).is_none(), "a person has taken it out");
        assert!(stage.nodes[1..].iter().all(|node| stage.runs(node, "1.0")));
        stage.clean();
        engine.stop().await;
    });
}
