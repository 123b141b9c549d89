//! Nodes that others have closed or that are not Ready: always shown, and counted against the budget if the component says so.

use lockkeeper::handoff::verdict::BlockerKind;
use serde_json::json;

use crate::{
    stage::{Stage, play},
    trace::Trace,
};

#[test]
fn a_cordon_of_others_spends_the_budget_only_if_the_component_counts_it() {
    play(|| async {
        let stage = Stage::new(31, 3).installed().await;
        let (ours, foreign, admin) = (stage.nodes[0].clone(), stage.nodes[2].clone(), stage.world.hands("admin"));
        stage.spec(json!({"rollout": {"countForeign": true}})).await;
        admin.cordon(&foreign, true).await.unwrap();
        let (engine, trace) = (stage.engine(), Trace::of(&stage));
        stage.release().await;
        stage.ask(std::slice::from_ref(&ours)).await;
        let spent = stage
            .waits(
                &engine,
                "gpu",
                &ours,
                BlockerKind::BudgetSpent,
                &[
                    "maxUnavailable is 1: of its nodes 1 are not Ready or cordoned by others",
                    &format!("({foreign}: cordoned by others)"),
                ],
            )
            .await;
        assert_eq!(spent.object.to_string(), "NodeComponent gpu-system/gpu");
        stage.pass(600).await;
        assert!(trace.all("slot ").is_empty() && stage.runs(&ours, "1.0"));
        // Two at once leave room for one.
        stage.spec(json!({"rollout": {"maxUnavailable": 2}})).await;
        stage.until("there is room for one", || stage.is_done(&ours, "2.0")).await;
        // Without the option the same cordon holds nobody back.
        stage.spec(json!({"rollout": {"maxUnavailable": 1, "countForeign": false}})).await;
        stage.ask(&stage.nodes[1..2]).await;
        stage.until("the next goes although the third is closed", || stage.is_done(&stage.nodes[1], "2.0")).await;
        assert!(!stage.is_open(&foreign));
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn a_node_that_is_not_ready_counts_too_and_frees_the_budget_when_it_is_back() {
    play(|| async {
        let stage = Stage::new(32, 2).installed().await;
        let (ours, silent) = (stage.nodes[0].clone(), stage.nodes[1].clone());
        stage.spec(json!({"rollout": {"countForeign": true}})).await;
        stage.world.kubelets.kill(&silent);
        let not_ready = || stage.node(&silent)["status"]["conditions"].to_string().contains("Unknown");
        stage.until("the silence is seen", not_ready).await;
        let engine = stage.engine();
        stage.release().await;
        stage.ask(std::slice::from_ref(&ours)).await;
        stage
            .waits(&engine, "gpu", &ours, BlockerKind::BudgetSpent, &["1 are not Ready", &format!("({silent}: not Ready)")])
            .await;
        stage.pass(300).await;
        assert!(stage.runs(&ours, "1.0"));
        stage.world.kubelets.revive(&silent);
        stage.until("it goes on", || stage.is_done(&ours, "2.0")).await;
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn the_node_that_is_asked_for_does_not_stand_in_its_own_way() {
    play(|| async {
        let stage = Stage::new(33, 2).installed().await;
        let node = stage.nodes[0].clone();
        stage.spec(json!({"rollout": {"countForeign": true}})).await;
        stage.world.hands("admin").cordon(&node, true).await.unwrap();
        let (engine, trace) = (stage.engine(), Trace::of(&stage));
        stage.release().await;
        stage.ask(&stage.nodes).await;
        stage.until("the closed one is handed over", || stage.is_done(&node, "2.0")).await;
        assert!(!stage.is_open(&node) && trace.all(&format!("uncordon {node}")).is_empty());
        // It stays closed, and so it now holds the other one back.
        stage.waits(&engine, "gpu", &stage.nodes[1], BlockerKind::BudgetSpent, &["1 are not Ready or cordoned by others"]).await;
        stage.world.hands("admin").cordon(&node, false).await.unwrap();
        stage.until("the other one follows", || stage.is_done(&stage.nodes[1], "2.0")).await;
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn a_node_under_way_that_others_have_closed_is_counted_once() {
    play(|| async {
        let mut options = lockkeeper::sim::world::WorldOptions {
            max_closed: 2,
            kubelets: lockkeeper::sim::actors::KubeletOptions::quick(),
            ..lockkeeper::sim::world::WorldOptions::new(34)
        };
        // Slow enough that two are under way together.
        options.kubelets.stop = lockkeeper::sim::actors::Range::millis(5000, 5001);
        let stage = Stage::with(options, 2).installed().await;
        stage.spec(json!({"rollout": {"countForeign": true, "maxUnavailable": 2, "canary": 0, "soak": "0s"}})).await;
        stage.world.hands("admin").cordon(&stage.nodes[0], true).await.unwrap();
        let options = lockkeeper::engine::EngineOptions { cluster_max_unavailable: 2, ..Default::default() };
        let engine = stage.engine_with(lockkeeper::sim::world::ENGINE, lockkeeper::engine::picture::Mode::Engine, options);
        let trace = Trace::of(&stage);
        stage.release().await;
        stage.ask(&stage.nodes).await;
        stage.until("both are handed over", || stage.nodes.iter().all(|node| stage.is_done(node, "2.0"))).await;
        trace.in_order(&["slot gpu.gpu-01", "slot gpu.gpu-02", "free gpu.gpu-01"]);
        stage.clean();
        engine.stop().await;
    });
}
