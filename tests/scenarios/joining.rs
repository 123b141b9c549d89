//! A fresh fleet, nodes that join later, and Node objects that are deleted and made again: who counts as new, and who does not.

use lockkeeper::{
    api::keys::Role,
    sim::{
        actors::{KubeletOptions, MachineSpec, Range},
        scenarios::kernel_module::{self as scenario},
        world::WorldOptions,
    },
};
use serde_json::{Value, json};

use crate::{
    pods::{claimants, running},
    stage::{Stage, play},
    trace::Trace,
};

/// A machine that joins the pool, and the stage's name for it.
fn join(stage: &Stage, name: &str) {
    stage.world.kubelets.add_machine(MachineSpec::new(name).label("pool", "gpu"));
}

#[test]
fn a_fresh_fleet_is_installed_all_at_once_without_a_cordon_and_claimants_follow() {
    play(|| async {
        let stage = Stage::new(51, 5);
        stage.apply(&[claimants("early", 6)]).await;
        let (engine, trace) = (stage.engine(), Trace::of(&stage));
        stage.hands.create(&scenario::component()).await.unwrap();
        stage.until("all run 1.0", || stage.nodes.iter().all(|node| stage.is_done(node, "1.0") && stage.runs(node, "1.0"))).await;
        assert!(trace.all("cordon ").is_empty() && trace.all("evict ").is_empty() && trace.all("unload ").is_empty());
        for node in &stage.nodes {
            trace.in_order(&[
                &format!("slot gpu.{node}"),
                &format!("loader gpu.{node} - 1.0"),
                &format!("plugin gpu.{node} - 1.0"),
                &format!("ready gpu.{node} - 1.0"),
                &format!("free gpu.{node}"),
            ]);
            assert_eq!(stage.handoff(node)["spec"]["requestedBy"], "install");
        }
        // Installs take nothing out of service: they are not held back by a budget of one.
        let lines = trace.lines();
        let first_free = lines.iter().position(|line| line.starts_with("free ")).unwrap();
        let begun = lines[..first_free].iter().filter(|line| line.starts_with("slot ")).count();
        assert!(begun > 1, "one after the other: {lines:?}");
        stage.until("the workload runs", || running(&stage, "early") == 6).await;
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn a_node_that_joins_gets_the_aim_and_one_that_is_not_selected_gets_nothing() {
    play(|| async {
        let stage = Stage::new(52, 1).installed().await;
        let (engine, trace) = (stage.engine(), Trace::of(&stage));
        stage.release().await;
        stage.until("2.0 has its DaemonSets", || stage.world.api.list("daemonsets.apps").len() == 4).await;
        join(&stage, "gpu-09");
        stage.world.kubelets.add_machine(MachineSpec::new("other-1").label("pool", "other"));
        stage.until("the new one runs the aim", || stage.is_done("gpu-09", "2.0") && stage.runs("gpu-09", "2.0")).await;
        stage.pass(600).await;
        assert!(stage.runs("gpu-01", "1.0"), "the old one is handed over when a person says so");
        assert!(stage.node("other-1")["metadata"]["labels"].to_string().matches("lockkeeper").next().is_none());
        assert!(trace.all("slot ").iter().all(|line| line == "slot gpu.gpu-09"));
        // The label that selects it comes later.
        stage.hands.label_node("other-1", "pool", Some("gpu")).await.unwrap();
        stage.until("it is installed then", || stage.is_done("other-1", "2.0")).await;
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn with_manual_installs_a_node_that_joins_waits_for_a_person() {
    play(|| async {
        let stage = Stage::new(53, 1).installed().await;
        stage.spec(json!({"rollout": {"install": "Manual"}})).await;
        let (engine, trace) = (stage.engine(), Trace::of(&stage));
        join(&stage, "gpu-09");
        stage.pass(600).await;
        assert!(trace.lines().is_empty() && stage.handoff("gpu-09").is_null(), "{:?}", trace.lines());
        let handoff = lockkeeper::sim::scenarios::objects::handoff(scenario::NAMESPACE, scenario::NAME, "gpu-09", "1.0", 1);
        stage.apply(&[handoff]).await;
        stage.until("it is installed", || stage.is_done("gpu-09", "1.0")).await;
        stage.clean();
        engine.stop().await;
    });
}

/// A story in which the Node object goes and comes back on the same boot as soon as a phase is reached.
async fn made_again(seed: u64, phase: &str) {
    let mut options = WorldOptions { kubelets: KubeletOptions::quick(), ..WorldOptions::new(seed) };
    options.kubelets.stop = Range::millis(3000, 3001);
    options.kubelets.ready = Range::millis(3000, 3001);
    options.kubelets.unload = Range::millis(3000, 3001);
    let stage = Stage::with(options, 1).installed().await;
    let (engine, node) = (stage.engine(), stage.nodes[0].clone());
    stage.spec(json!({"drain": {"cordon": "Always"}})).await;
    stage.release().await;
    stage.ask(std::slice::from_ref(&node)).await;
    stage.until(&format!("it is in {phase}"), || stage.phase(&node) == phase).await;
    let trace = Trace::of(&stage);
    let before = stage.node(&node)["metadata"]["uid"].clone();
    let had = stage.loaded(&node);
    stage.lose(&node).await;
    stage.names(&node, "NodeGone", &node, &["does not exist", "its slot is free"]).await;
    assert_eq!(trace.all("free "), [format!("free gpu.{node}")], "{phase}");
    stage.register(&node).await;
    stage.until(&format!("{phase}: it is handed over"), || stage.is_done(&node, "2.0") && stage.runs(&node, "2.0")).await;
    assert_ne!(stage.node(&node)["metadata"]["uid"], before);
    // It was not taken for fresh: whatever was in its kernel was unloaded before 2.0 came.
    assert_eq!(stage.loaded(&node).as_deref(), Some("2.0"));
    if had.as_deref() == Some("1.0") {
        assert!(!trace.all("unload ").is_empty() || phase == "Unloading", "{phase}: {}", trace.lines().join("\n"));
    }
    let record: Value = serde_json::from_str(
        stage.node(&node)["metadata"]["annotations"][Role::Loaded.key(&scenario::key())].as_str().unwrap_or("null"),
    )
    .unwrap();
    assert_eq!(record, json!({"version": "2.0"}), "{phase}");
    let report = stage.world.report_at_rest();
    let broken: Vec<_> = report.violations.iter().filter(|it| it.invariant != "I7").collect();
    assert!(broken.is_empty(), "{phase}: {broken:#?}");
    engine.stop().await;
}

#[test]
fn a_node_made_again_in_any_phase_gets_its_version_and_its_record_back() {
    for (seed, phase) in
        ["Draining", "StoppingPlugin", "Unloading", "Loading", "StartingPlugin", "Verifying"].into_iter().enumerate()
    {
        play(|| made_again(540 + seed as u64, phase));
    }
}

#[test]
fn a_node_made_again_while_nothing_runs_is_fresh_only_if_its_kernel_was() {
    play(|| async {
        let stage = Stage::new(55, 2).installed().await;
        let (engine, node) = (stage.engine(), stage.nodes[0].clone());
        let trace = Trace::of(&stage);
        stage.lose(&node).await;
        stage.pass(10).await;
        stage.register(&node).await;
        stage.until("it is in service again", || stage.runs(&node, "1.0")).await;
        assert_eq!(stage.loaded(&node).as_deref(), Some("1.0"));
        assert!(trace.all("unload ").is_empty() && trace.all("cordon ").is_empty(), "{}", trace.lines().join("\n"));
        stage.clean();
        engine.stop().await;
    });
}
