//! A nodeplugin handed over by keyboard on the simulated cluster, and its screens.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use lockkeeper::{
    api::Phase,
    engine::{
        Engine, EngineOptions,
        picture::{Mode, Picture},
    },
    sim::{
        actors::KubeletOptions,
        demo::{Baseline, DemoOptions, Scenario, csi},
        people::storage,
        scenarios::csi::{self as scenario, CEPHFS, NAMESPACE, RBD},
        world::{ENGINE, Profile, World, WorldOptions},
    },
};

use crate::simulated::{Session, keep};

/// A fleet whose nodeplugins have a new template.
async fn session(size: (u16, u16), nodes: usize) -> Session {
    let options = DemoOptions {
        scenario: Scenario::Csi,
        seed: 7,
        faults: Profile::None,
        baseline: None::<Baseline>,
        nodes,
        pods_per_node: 1,
        keep_log: false,
        tell: false,
    };
    let world_options = WorldOptions { kubelets: KubeletOptions::quick(), ..WorldOptions::new(7) };
    let world = Arc::new(World::start(&world_options, &scenario::cluster(nodes, csi::strategy(&options))));
    let hands = world.hands("operator");
    csi::set_up(&world, &hands, &options).await.unwrap();
    let options = EngineOptions { mode: Mode::Engine, identity: format!("{ENGINE}#1"), ..EngineOptions::default() };
    let engine = Engine::start(world.cluster(ENGINE, false), options);
    for plugin in [CEPHFS, RBD] {
        hands.create(&plugin.component()).await.unwrap();
        storage::release(&hands, plugin, scenario::NEW).await.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(30)).await;
    Session::of(world, engine, size)
}

fn phase_of(picture: &Picture, node: &str) -> Option<Phase> {
    let node = picture.fleet.node(&node.into())?;
    Some(node.components.get(&CEPHFS.key())?.handoff.as_ref()?.status.phase)
}

/// What the server draws by lot, the ends of pods' names, is of no interest: the same number of letters in its place.
fn text(session: &mut Session) -> String {
    let shown = session.user.text();
    let drawn = |word: &str| {
        let ends: Vec<&str> = word.split('-').collect();
        let hash = |part: &str, len: std::ops::RangeInclusive<usize>| {
            len.contains(&part.len()) && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
        };
        ends.len() > 1 && hash(ends[ends.len() - 1], 5..=5)
    };
    let masked = shown.split_inclusive([' ', '\n', ':', '/', ',', '(', ')']).map(|word| {
        let bare = word.trim_end_matches([' ', '\n', ':', '/', ',', '(', ')']);
        if !drawn(bare) {
            return word.to_owned();
        }
        let mut parts: Vec<String> = bare.split('-').map(str::to_owned).collect();
        let count = parts.len();
        let from = if count > 2 && parts[count - 2].len() >= 8 && parts[0] != "csi" { count - 2 } else { count - 1 };
        parts[from..].iter_mut().for_each(|part| *part = "x".repeat(part.len()));
        format!("{}{}", parts.join("-"), &word[bare.len()..])
    });
    masked.collect()
}

async fn play() -> BTreeMap<String, String> {
    let mut shots = BTreeMap::new();
    let mut it = session((120, 40), 4).await;
    let mut nodes = scenario::node_names(4);
    // First one with a pod whose mount lives on.
    let pods = it.world.api.list("pods");
    let stays =
        |node: &String| pods.iter().any(|pod| pod["spec"]["nodeName"] == **node && pod["metadata"]["labels"]["app"] == "kernel");
    nodes.sort_by_key(|node| !stays(node));
    let (first, second) = (nodes[0].clone(), nodes[1].clone());
    it.user.expect_text("0/4 on");
    it.user.go_to(&first);
    it.press("enter").await;
    it.user.expect_text("Nodeplugin").expect_text("CSINode").expect_text("Other users of its volumes");
    it.user.expect_no_text("D desired");
    insta::assert_snapshot!("csi-node-before", text(&mut it));
    it.press("1").await;
    it.user.go_to(&first).press("space").go_to(&second).press("space");
    it.press("U").await;
    it.user.expect_overlay("plan").expect_text("2 nodes").expect_no_text("refused");
    it.user.expect_text("mounter fuse: served by a process in the plugin pod").expect_text("restarted after the plugin pod");
    insta::assert_snapshot!("csi-plan", text(&mut it));
    it.shoot("csi-plan", &mut shots);
    it.press("enter").await;
    it.user.expect_overlay("confirm").type_text(&first);
    it.press("enter").await;
    it.user.expect_overlay("none").expect_no_text("refused");
    let node = first.clone();
    it.until("its pods leave", move |picture| phase_of(picture, &node) == Some(Phase::Draining)).await;
    it.user.go_to(&first);
    let node = first.clone();
    it.until("its mounts are given time", move |picture| phase_of(picture, &node) == Some(Phase::Detaching)).await;
    it.press("enter").await;
    it.user.expect_text("Detaching").expect_text("Settling");
    it.shoot("csi-node", &mut shots);
    it.press("1").await;
    let both = [first.clone(), second.clone()];
    it.until("both are done", move |picture| both.iter().all(|node| phase_of(picture, node) == Some(Phase::Done))).await;
    it.user.expect_text("2/4 on");
    insta::assert_snapshot!("csi-fleet-after", text(&mut it));
    // A process that crashes takes mounts with it, though nobody upgraded anything.
    let pods = it.world.api.list("pods");
    let own = |pod: &&Arc<serde_json::Value>| {
        pod["spec"]["nodeName"] == *nodes[2] && pod["metadata"]["labels"]["app"] == CEPHFS.daemon_set
    };
    let plugin = pods.iter().find(own).map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned()).unwrap();
    it.world.kubelets.crash(&nodes[2], &format!("{NAMESPACE}/{plugin}"));
    let node = nodes[2].clone();
    let died = move |picture: &Picture| {
        let node = picture.fleet.node(&node.as_str().into());
        let csi = node.and_then(|node| node.components.get(&CEPHFS.key())?.csi.as_deref().map(|csi| csi.stale().count()));
        csi.is_some_and(|count| count > 0)
    };
    it.until("mounts have died", died).await;
    it.user.go_to(&nodes[2]);
    it.press("enter").await;
    it.user.expect_text("Dead mounts").expect_text("kubectl -n shop delete pod");
    insta::assert_snapshot!("csi-dead-mounts", text(&mut it));
    let report = it.world.report();
    assert!(report.violations.is_empty(), "{:?}", report.violations);
    it.engine.stop().await;
    shots
}

#[test]
fn a_nodeplugin_is_handed_over_by_keyboard_and_dead_mounts_are_shown() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    keep(runtime.block_on(play()));
}
