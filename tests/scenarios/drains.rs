//! Drains and cordons, from public bug reports of peers. The number in a name is that of the scenario list.

use std::time::Duration;

use lockkeeper::{
    api::keys::Role,
    engine::{EngineOptions, picture::Mode},
    handoff::verdict::BlockerKind,
    sim::{
        actors::{KubeletOptions, Range},
        scenarios::{kernel_module as scenario, objects},
        world::{ENGINE, WorldOptions},
    },
};
use serde_json::{Value, json};

use crate::{
    pods::{claimants, node_of, pods_of, running},
    stage::{Stage, handoff_path, play},
    trace::Trace,
};

/// A claimant that its budget never lets go, and the node it is on.
async fn blocked_for_good(stage: &Stage) -> String {
    stage.apply(&[claimants("stuck", 1), objects::budget("ml", "stuck", "minAvailable", json!(1))]).await;
    stage.until("the claimant runs", || running(stage, "stuck") == 1).await;
    node_of(&pods_of(stage, "stuck")[0])
}

/// A claimant that its budget does not let go as long as its sibling is not Ready, and the node it is on.
async fn blocked(stage: &Stage) -> String {
    let mut sibling = objects::template("stuck", None, 2);
    sibling["metadata"]["labels"]["part"] = json!("sibling");
    sibling["metadata"]["annotations"] = json!({"sim.lockkeeper.dev/unready": "true"});
    let mut sibling = objects::deployment("ml", "sibling", 1, sibling);
    sibling.body["spec"]["selector"] = json!({"matchLabels": {"part": "sibling"}});
    stage.apply(&[claimants("stuck", 1), sibling, objects::budget("ml", "stuck", "maxUnavailable", json!(1))]).await;
    stage.until("both run", || running(stage, "stuck") == 2).await;
    let claimant = pods_of(stage, "stuck").into_iter().find(|pod| pod["metadata"]["labels"]["part"].is_null()).unwrap();
    node_of(&claimant)
}

#[test]
fn g01_a_stateful_pod_made_again_elsewhere_counts_as_gone_and_is_never_touched() {
    play(|| async {
        let stage = Stage::new(1, 2).installed().await;
        let template = objects::template("db", Some((scenario::RESOURCE, 1)), 2);
        stage.apply(&[objects::stateful_set("ml", "db", 1, template)]).await;
        stage.until("db-0 runs", || running(&stage, "db") == 1).await;
        let (old, engine) = (pods_of(&stage, "db")[0].clone(), stage.engine());
        stage.release().await;
        stage.ask(&[node_of(&old)]).await;
        stage.until("its node is handed over", || stage.runs(&node_of(&old), "2.0")).await;
        let new = pods_of(&stage, "db")[0].clone();
        assert_eq!(new["metadata"]["name"], old["metadata"]["name"]);
        assert_ne!(new["metadata"]["uid"], old["metadata"]["uid"]);
        assert_eq!(stage.clean().claimants_evicted, 1, "the replacement was chased");
        engine.stop().await;
    });
}

#[test]
fn g03_unhealthy_pods_under_a_budget_are_named_and_leave_once_the_policy_lets_them() {
    play(|| async {
        let stage = Stage::new(3, 2).installed().await;
        let mut template = objects::template("crashing", Some((scenario::RESOURCE, 1)), 2);
        template["metadata"]["annotations"] = json!({"sim.lockkeeper.dev/unready": "true"});
        template["spec"]["nodeName"] = json!(stage.nodes[0]);
        stage
            .apply(&[
                objects::deployment("ml", "crashing", 2, template),
                objects::budget("ml", "crashing", "minAvailable", json!(1)),
            ])
            .await;
        stage.until("both run, unready", || running(&stage, "crashing") == 2).await;
        let engine = stage.engine();
        stage.release().await;
        stage.ask(&stage.nodes[..1]).await;
        // Both pods, their state and the arithmetic.
        let names: Vec<String> =
            pods_of(&stage, "crashing").iter().map(|pod| format!("ml/{}", pod["metadata"]["name"].as_str().unwrap())).collect();
        let words = ["needs 1 healthy of 2, has 0, allows 0", "not Ready", "AlwaysAllow", &names[0], &names[1]];
        stage.names(&stage.nodes[0], "DisruptionBudget", "ml/crashing", &words).await;
        let before = stage.world.api.log().written();
        tokio::time::sleep(Duration::from_secs(120)).await;
        let evictions = stage.world.report().claimants_evicted;
        assert_eq!(evictions, 0);
        assert!(stage.world.api.log().written() - before < 2_000, "it is busy while it waits");
        let asked = |(client, _, resource): &(String, &'static str, String)| client == ENGINE && resource == "pods/eviction";
        assert!(stage.world.api.log().requests(asked) <= 20, "it asks more often than every few seconds");
        assert_eq!(stage.phase(&stage.nodes[0]), "Draining", "it waits, it has not failed");
        // The template pins them to the node, so replacements would come back for ever: take the deployment's wish away too.
        stage.hands.merge("/apis/apps/v1/namespaces/ml/deployments/crashing", &json!({"spec": {"replicas": 0}})).await.unwrap();
        let budget = "/apis/policy/v1/namespaces/ml/poddisruptionbudgets/crashing";
        stage.hands.merge(budget, &json!({"spec": {"unhealthyPodEvictionPolicy": "AlwaysAllow"}})).await.unwrap();
        stage.until("it goes on", || stage.runs(&stage.nodes[0], "2.0")).await;
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn g04_a_node_that_a_budget_blocks_is_skipped_open_and_the_next_one_is_taken() {
    play(|| async {
        let stage = Stage::new(4, 2).installed().await;
        let stuck = blocked_for_good(&stage).await;
        let free = stage.nodes.iter().find(|node| **node != stuck).unwrap().clone();
        let (engine, trace) = (stage.engine(), Trace::of(&stage));
        stage.spec(json!({"rollout": {"blocked": "Skip"}})).await;
        stage.release().await;
        stage.ask(&[stuck.clone(), free.clone()]).await;
        stage.until("the free node is handed over", || stage.runs(&free, "2.0")).await;
        tokio::time::sleep(Duration::from_secs(300)).await;
        assert!(stage.is_open(&stuck) && stage.runs(&stuck, "1.0"), "the blocked node was touched");
        let words = ["needs 1 healthy of 1, has 1, allows 0", "minAvailable: 1", "ml/stuck-"];
        assert!(stage.named(&stuck, "DisruptionBudgetNever", "ml/stuck", &words), "{:?}", stage.blockers(&stuck));
        assert!(trace.all("cordon ").iter().all(|line| *line == format!("cordon {free}")) && stage.phase(&stuck) == "Queued");
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn g06_a_cordon_that_another_sets_meanwhile_stays() {
    play(|| async {
        let stage = Stage::new(6, 2).installed().await;
        let (engine, node, colleague) = (stage.engine(), stage.nodes[0].clone(), stage.world.hands("colleague"));
        stage.release().await;
        stage.ask(std::slice::from_ref(&node)).await;
        stage.until("it is past the point of return", || stage.label(&node, "loader").is_none()).await;
        colleague.cordon(&node, false).await.unwrap();
        colleague.cordon(&node, true).await.unwrap();
        stage.until("the handoff is done", || stage.is_done(&node, "2.0")).await;
        assert!(!stage.is_open(&node), "a colleague's cordon was undone");
        assert_eq!(stage.label(&node, "ready").as_deref(), Some("2.0"));
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn g07_many_updates_of_the_node_cause_no_second_drain() {
    play(|| async {
        let stage = Stage::new(7, 3).installed().await;
        stage.apply(&[claimants("app", 4)]).await;
        stage.until("they run", || running(&stage, "app") == 4).await;
        let node = node_of(&pods_of(&stage, "app")[0]);
        let here = pods_of(&stage, "app").iter().filter(|pod| node_of(pod) == node).count();
        let engine = stage.engine();
        stage.release().await;
        stage.ask(std::slice::from_ref(&node)).await;
        stage.until("it drains", || stage.phase(&node) == "Draining").await;
        for beat in 0..50 {
            stage.hands.label_node(&node, "example.com/beat", Some(&beat.to_string())).await.unwrap();
        }
        stage.until("it is handed over", || stage.runs(&node, "2.0")).await;
        assert_eq!(stage.clean().claimants_evicted, here as u64);
        engine.stop().await;
    });
}

#[test]
fn g08_the_end_of_a_node_that_was_closed_is_an_open_node() {
    play(|| async {
        let stage = Stage::new(8, 1).installed().await;
        stage.spec(json!({"drain": {"cordon": "Always"}})).await;
        let (engine, trace) = (stage.engine(), Trace::of(&stage));
        stage.release().await;
        stage.ask(&stage.nodes).await;
        stage.until("it is done", || stage.is_done(&stage.nodes[0], "2.0")).await;
        assert!(stage.runs(&stage.nodes[0], "2.0"));
        // Closed once, opened once, and Done only after that.
        assert_eq!((trace.all("cordon ").len(), trace.all("uncordon ").len()), (1, 1), "{}", trace.lines().join("\n"));
        trace.in_order(&[
            "cordon gpu-01",
            "phase gpu.gpu-01 Uncordoning",
            "uncordon gpu-01",
            "free gpu.gpu-01",
            "phase gpu.gpu-01 Done",
        ]);
        assert!(stage.node(&stage.nodes[0]).pointer("/metadata/annotations/lockkeeper.dev~1cordon").is_none());
        assert!(
            stage.proof(&stage.nodes[0], "Uncordoning").contains("is open"),
            "{}",
            stage.proof(&stage.nodes[0], "Uncordoning")
        );
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn g09_a_handoff_deleted_while_it_drains_gives_the_node_back() {
    play(|| async {
        let stage = Stage::new(9, 2).installed().await;
        let node = blocked(&stage).await;
        let engine = stage.engine();
        stage.release().await;
        stage.ask(std::slice::from_ref(&node)).await;
        stage.until("it drains and is blocked", || stage.phase(&node) == "Draining" && !stage.blockers(&node).is_empty()).await;
        stage.hands.delete(&handoff_path(&node)).await.unwrap();
        stage.until("the handoff is gone", || stage.handoff(&node).is_null()).await;
        assert!(stage.runs(&node, "1.0"), "{:?}", stage.node(&node)["metadata"]["labels"]);
        let annotations = stage.node(&node)["metadata"]["annotations"].to_string();
        assert!(
            !annotations.contains("lockkeeper.dev/cordon") && !annotations.contains("lockkeeper.dev/handoff"),
            "{annotations}"
        );
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn g09_once_the_module_is_out_a_deletion_asks_what_to_do() {
    play(|| async {
        let stage = Stage::new(9, 1).installed().await;
        let (engine, node) = (stage.engine(), stage.nodes[0].clone());
        stage.release().await;
        stage.ask(std::slice::from_ref(&node)).await;
        stage.until("the module is out", || stage.label(&node, "loader").is_none()).await;
        stage.hands.delete(&handoff_path(&node)).await.unwrap();
        stage.until("it asks", || stage.handoff(&node)["status"]["reason"]["word"] == "AwaitingChoice").await;
        // Roll back.
        let attempt = stage.handoff(&node).pointer("/spec/attempt").and_then(Value::as_i64).unwrap() + 1;
        let back = json!({"spec": {"version": "1.0", "attempt": attempt, "action": "Run"}});
        stage.hands.merge(&handoff_path(&node), &back).await.unwrap();
        stage.until("it is back on the old version", || stage.runs(&node, "1.0")).await;
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn g11_a_node_closed_by_an_administrator_is_upgraded_and_stays_closed() {
    play(|| async {
        let stage = Stage::new(11, 2).installed().await;
        stage.apply(&[claimants("app", 3)]).await;
        stage.until("they run", || running(&stage, "app") == 3).await;
        let node = node_of(&pods_of(&stage, "app")[0]);
        stage.world.hands("admin").cordon(&node, true).await.unwrap();
        let engine = stage.engine();
        stage.release().await;
        stage.ask(std::slice::from_ref(&node)).await;
        stage.until("it is done", || stage.is_done(&node, "2.0")).await;
        assert_eq!(stage.label(&node, "ready").as_deref(), Some("2.0"));
        assert!(!stage.is_open(&node));
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn g13_a_handoff_ends_under_the_policy_it_began_with() {
    play(|| async {
        let stage = Stage::new(13, 2).installed().await;
        let node = blocked(&stage).await;
        let engine = stage.engine();
        stage.release().await;
        stage.ask(std::slice::from_ref(&node)).await;
        stage.until("it drains", || stage.phase(&node) == "Draining").await;
        stage.spec(json!({"drain": {"cordon": "Never"}})).await;
        stage.hands.delete("/apis/policy/v1/namespaces/ml/poddisruptionbudgets/stuck").await.unwrap();
        stage.until("it is handed over and open", || stage.runs(&node, "2.0")).await;
        stage.clean();
        engine.stop().await;
    });
}

/// Two apps with a pod on each of two nodes that can be nowhere else, and budgets of one.
async fn entangled(stage: &Stage) {
    for app in ["a", "b"] {
        stage.apply(&[objects::budget("ml", app, "maxUnavailable", json!(1))]).await;
        for node in &stage.nodes {
            let mut template = objects::template(app, Some((scenario::RESOURCE, 1)), 2);
            template["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": node});
            template["metadata"]["labels"]["on"] = json!(node);
            let mut object = objects::deployment("ml", app, 1, template);
            object.body["metadata"]["name"] = json!(format!("{app}-{node}"));
            object.body["spec"]["selector"] = json!({"matchLabels": {"app": app, "on": node}});
            stage.apply(&[object]).await;
        }
        stage.until("they run", || running(stage, app) == stage.nodes.len()).await;
    }
}

#[test]
fn g12_drains_that_would_wait_for_each_other_are_done_one_after_the_other() {
    play(|| async {
        let options = WorldOptions { max_closed: 2, kubelets: KubeletOptions::quick(), ..WorldOptions::new(12) };
        let stage = Stage::with(options, 2).installed().await;
        entangled(&stage).await;
        let options = EngineOptions { cluster_max_unavailable: 2, ..EngineOptions::default() };
        let engine = stage.engine_with(ENGINE, Mode::Engine, options);
        stage.spec(json!({"rollout": {"maxUnavailable": 2, "canary": 0, "soak": "0s"}})).await;
        stage.release().await;
        stage.ask(&stage.nodes).await;
        let words = ["is being drained first", "ml/a and ml/b", "each would wait for the other"];
        let (first, second) = (&stage.nodes[0], &stage.nodes[1]);
        stage.waits(&engine, scenario::NAME, second, BlockerKind::QueuedBehind, &words).await;
        assert!(stage.is_open(second), "two nodes are closed that wait for each other");
        // As soon as the first has let its pods go, the second may follow.
        let has_pods = |node: &str| ["a", "b"].iter().any(|app| pods_of(&stage, app).iter().any(|pod| node_of(pod) == *node));
        stage
            .until("both are done", || {
                let closed = !stage.is_open(first) && !stage.is_open(second);
                assert!(!(closed && has_pods(first) && has_pods(second)), "two nodes are closed that wait for each other");
                stage.runs(first, "2.0") && stage.runs(second, "2.0")
            })
            .await;
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn g12_nodes_whose_pods_do_not_stand_in_each_others_way_go_together() {
    play(|| async {
        let mut options = WorldOptions { max_closed: 2, kubelets: KubeletOptions::quick(), ..WorldOptions::new(13) };
        // Slow enough that two are under way together.
        options.kubelets.stop = Range::millis(5000, 5001);
        let stage = Stage::with(options, 2).installed().await;
        stage.apply(&[claimants("roomy", 2), objects::budget("ml", "roomy", "maxUnavailable", json!(1))]).await;
        stage.until("they run", || running(&stage, "roomy") == 2).await;
        let options = EngineOptions { cluster_max_unavailable: 2, ..EngineOptions::default() };
        let engine = stage.engine_with(ENGINE, Mode::Engine, options);
        stage.spec(json!({"rollout": {"maxUnavailable": 2, "canary": 0, "soak": "0s"}})).await;
        stage.release().await;
        stage.ask(&stage.nodes).await;
        stage.until("both are closed", || stage.nodes.iter().all(|node| !stage.is_open(node))).await;
        stage.until("both are done", || stage.nodes.iter().all(|node| stage.runs(node, "2.0"))).await;
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn g16_a_plugin_that_stays_on_a_closed_node_leaves_before_the_unload_and_the_unload_is_tried_again() {
    play(|| async {
        let stage = Stage::new(16, 1).installed().await;
        let node = stage.nodes[0].clone();
        // Two that do not mind a cordon and hold a device: one goes by the ready label alone, of the other nobody knows.
        let ready = Role::Ready.key(&scenario::key());
        let mut exporter = objects::template("exporter", Some((scenario::RESOURCE, 1)), 2);
        exporter["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
        let mut stray = objects::template("stray", None, 2);
        stray["metadata"]["annotations"] =
            json!({"sim.lockkeeper.dev/behaviour": "claimant", "sim.lockkeeper.dev/module": scenario::MODULE});
        stray["metadata"]["name"] = json!("stray");
        stray["spec"]["nodeName"] = json!(node);
        stage.apply(&[objects::daemon_set_where_label("ml", "exporter", &ready, exporter), objects::pod("ml", stray)]).await;
        stage.until("both run", || running(&stage, "exporter") == 1 && running(&stage, "stray") == 1).await;
        stage.world.hands("admin").cordon(&node, true).await.unwrap();
        let (engine, trace) = (stage.engine(), Trace::of(&stage));
        stage.release().await;
        stage.ask(&stage.nodes).await;
        stage.names(&node, "UnloadFailed", &node, &["module gpu is in use by ml/stray"]).await;
        assert!(running(&stage, "exporter") == 0 && stage.label(&node, "plugin").is_none(), "it was unloaded under its plugin");
        assert_eq!((stage.phase(&node).as_str(), stage.loaded(&node).as_deref()), ("Unloading", Some("1.0")));
        stage.hands.delete("/api/v1/namespaces/ml/pods/stray").await.unwrap();
        stage.until("a later try succeeds", || stage.is_done(&node, "2.0")).await;
        trace.in_order(&["ready gpu.gpu-01 1.0 -", "plugin gpu.gpu-01 1.0 -", "loader gpu.gpu-01 1.0 -", "unload gpu-01"]);
        assert!(trace.all("unload ").len() > 1, "{:?}", trace.all("unload "));
        stage.until("the exporter is back", || running(&stage, "exporter") == 1).await;
        assert!(!stage.is_open(&node), "an administrator's cordon stays");
        stage.clean();
        engine.stop().await;
    });
}
