//! A component that follows a Module of KMM, planned by keyboard on the simulated cluster: KMM's own steps stand in the plan.

use std::{sync::Arc, time::Duration};

use lockkeeper::{
    engine::{Engine, EngineOptions, picture::Mode},
    sim::{
        actors::KubeletOptions,
        demo::{DemoOptions, Scenario, kmm},
        people::kmm as people,
        scenarios::kmm::{self as scenario, GPU},
        world::{ENGINE, Profile, World, WorldOptions},
    },
};

use crate::simulated::Session;

/// KMM has the old version on every node, pods hold its devices, and the Module has moved on.
async fn session(size: (u16, u16), nodes: usize) -> Session {
    let options = DemoOptions {
        scenario: Scenario::Kmm,
        seed: 7,
        faults: Profile::None,
        baseline: None,
        nodes,
        pods_per_node: 1,
        keep_log: false,
        tell: false,
    };
    let mut world_options = WorldOptions { kubelets: KubeletOptions::quick(), ..WorldOptions::new(7) };
    kmm::furnish(&mut world_options);
    let world = Arc::new(World::start(&world_options, &scenario::cluster(nodes)));
    let hands = world.hands("operator");
    kmm::set_up(&world, &hands, &options).await.unwrap();
    hands.create(&GPU.component(1)).await.unwrap();
    people::release(&hands, nodes, scenario::NEW).await.unwrap();
    let options = EngineOptions { mode: Mode::Engine, identity: format!("{ENGINE}#1"), ..EngineOptions::default() };
    let engine = Engine::start(world.cluster(ENGINE, false), options);
    tokio::time::sleep(Duration::from_secs(60)).await;
    Session::of(world, engine, size)
}

async fn play() {
    let nodes = GPU.node_names(5);
    let mut it = session((140, 90), 5).await;
    it.user.go_to(&nodes[0]);
    it.press("U").await;
    it.user.expect_overlay("plan").expect_no_text("refused").expect_text("Then, one step after the other:");
    let worker = format!("Pod {}/kmm-worker-{}-{}", scenario::NAMESPACE, nodes[0], GPU.name);
    it.user.expect_text(&format!("- {worker}: KMM's Unload pod (awaited: it must succeed)"));
    it.user.expect_text(&format!("- {worker}: KMM's Load pod of "));
    it.user.expect_text(&format!("- NodeModulesConfig {}: KMM records 2.0 in this boot (awaited: the proof)", nodes[0]));
    it.user.expect_text(".version.ready=2.0");
    it.press("esc").await;
    // Of several nodes the steps are said once, and each node's changes by its name.
    it.user.go_to(&nodes[0]).press("space").go_to(&nodes[1]).press("space");
    it.press("U").await;
    it.user.expect_overlay("plan").expect_text(&format!("1. {} in these steps:", nodes[0]));
    it.user.expect_text(&format!("2. {} in these steps:", nodes[1])).expect_text(&format!("- {worker}: KMM's Unload pod"));
    it.engine.stop().await;
}

#[test]
fn the_plan_names_kmms_own_steps_on_each_node() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(play());
}
