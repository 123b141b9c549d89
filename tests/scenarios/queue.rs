//! Who goes next, and who must wait: slots, soak, gates, nodes that are not there. Numbers are those of the scenario list.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use jiff::Timestamp;
use lockkeeper::{
    engine::{EngineOptions, picture::Mode, probes::Probes},
    handoff::verdict::BlockerKind,
    sim::{
        apiserver::{Action, Fault, Faults, Matcher, Verb},
        scenarios::{
            kernel_module::{NAME, NAMESPACE},
            objects,
        },
        world::{ENGINE, WorldOptions},
    },
};
use serde_json::{Value, json};

use crate::stage::{Stage, handoff_path, play};

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/lockkeeper-system/leases/lockkeeper";

/// When each node was cordoned and opened again, in order.
fn doors(stage: &Stage) -> Arc<Mutex<Vec<(Timestamp, String, bool)>>> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let told = seen.clone();
    stage.world.api.log().observe(move |record| {
        if let ("nodes", Some(old), Some(new)) = (&*record.stored_as, &record.old, &record.new) {
            let closed = |node: &Value| node.pointer("/spec/unschedulable").and_then(Value::as_bool) == Some(true);
            if closed(old) != closed(new) {
                told.lock().unwrap().push((record.at, record.name.clone(), closed(new)));
            }
        }
    });
    seen
}

#[test]
fn nodes_go_in_the_operators_order_one_at_a_time_with_the_soak_between() {
    play(|| async {
        let stage = Stage::new(10, 4).installed().await;
        let doors = doors(&stage);
        let engine = stage.engine();
        stage.release().await;
        stage.spec(json!({"rollout": {"soak": "40s"}, "drain": {"cordon": "Always"}})).await;
        let order: Vec<String> = [2, 0, 3, 1].iter().map(|at| stage.nodes[*at].clone()).collect();
        stage.ask(&order).await;
        stage
            .until("all run 2.0", || stage.nodes.iter().all(|node| stage.runs(node, "2.0") && stage.phase(node) == "Done"))
            .await;
        let doors = doors.lock().unwrap().clone();
        let closed: Vec<&String> = doors.iter().filter(|(_, _, closed)| *closed).map(|(_, node, _)| node).collect();
        assert_eq!(closed, order.iter().collect::<Vec<_>>());
        for pair in doors.chunks(2).collect::<Vec<_>>().windows(2) {
            let (opened, next) = (&pair[0][1], &pair[1][0]);
            assert!(!opened.2 && next.2, "two nodes were closed at once: {doors:?}");
            assert!(next.0.duration_since(opened.0).as_secs() >= 39, "g10: the next node did not wait for the soak: {doors:?}");
        }
        stage.clean();
        engine.stop().await;
    });
}

/// Its place is held by what was asked for, not by what the engine has got round to write down.
#[test]
fn a_handoff_that_is_asked_for_again_keeps_its_place_until_it_is_queued() {
    play(|| async {
        let stage = Stage::new(12, 2).installed().await;
        let (again, fresh) = (stage.nodes[0].clone(), stage.nodes[1].clone());
        let doors = doors(&stage);
        let engine = stage.engine();
        stage.release().await;
        stage.spec(json!({"drain": {"cordon": "Always"}})).await;
        stage.hands.delete(&handoff_path(&fresh)).await.unwrap();
        stage.until("the other one has none", || stage.handoff(&fresh).is_null()).await;
        // The way back to the queue fails for a while, and the next in the queue is all ready.
        let name = format!("gpu.{again}");
        let late = Fault::once(
            Matcher::verb(Verb::Update).client(ENGINE).resource("nodehandoffs.lockkeeper.dev/status").name(name),
            Action::Status(500),
        );
        stage.world.api.set_faults(Box::new(Faults::new(1, vec![late.times(4)])));
        stage.edit(&again, json!({"version": "2.0", "position": 1, "requestedBy": "operator"}), true).await;
        stage.hands.create(&objects::handoff(NAMESPACE, NAME, &fresh, "2.0", 2)).await.unwrap();
        stage.until("both run 2.0", || stage.nodes.iter().all(|node| stage.is_done(node, "2.0"))).await;
        let doors = doors.lock().unwrap().clone();
        let closed: Vec<&String> = doors.iter().filter(|(_, _, closed)| *closed).map(|(_, node, _)| node).collect();
        assert_eq!(closed, [&again, &fresh]);
        stage.clean();
        engine.stop().await;
    });
}

/// Whoever waits behind others is told who is in front, and what that one waits for.
#[test]
fn who_is_behind_others_is_told_who_is_before_it_and_why() {
    play(|| async {
        let stage = Stage::new(13, 4).installed().await;
        let engine = stage.engine();
        stage.release().await;
        stage.ask(&stage.nodes).await;
        let told = |node: &str| {
            let report = lockkeeper::cli::render::status::report(&engine.pictures().borrow(), None);
            report.nodes.into_iter().find(|it| it.node == node).and_then(|it| it.blocker)
        };
        let first = format!("NodeHandoff {NAMESPACE}/{NAME}.{}", stage.nodes[1]);
        for node in &stage.nodes[2..] {
            let named = || {
                told(node).is_some_and(|it| {
                    it.kind == "QueuedBehind" && it.object == first && it.message.contains("waits for BudgetSpent")
                })
            };
            stage.until(&format!("{node} names who is before it"), named).await;
        }
        stage.until("all run 2.0", || stage.nodes.iter().all(|node| stage.is_done(node, "2.0"))).await;
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn g05_the_slot_of_a_node_that_is_gone_is_reclaimed() {
    play(|| async {
        let stage = Stage::new(5, 1).installed().await;
        let slot = json!([{"node": "gpu-99", "nodeUid": "gone", "component": "gpu-system/gpu"}]).to_string();
        stage.hands.merge(LEASE, &json!({"metadata": {"annotations": {"lockkeeper.dev/slots": slot}}})).await.unwrap();
        let options = EngineOptions { probes: Probes::announcing(), ..EngineOptions::default() };
        let engine = stage.engine_with(ENGINE, Mode::Engine, options);
        stage.release().await;
        stage.ask(&stage.nodes).await;
        stage.until("the node is handed over", || stage.runs(&stage.nodes[0], "2.0")).await;
        let events = stage.world.api.list("events");
        let told = events.iter().find(|event| event["reason"] == "SlotReclaimed").expect("an Event tells of it");
        assert!(
            told["message"]
                .as_str()
                .unwrap_or_default()
                .contains("free the slot of gpu-99 for gpu-system/gpu: the Node does not exist"),
            "{told}"
        );
        let lease = stage.hands.get(LEASE).await.unwrap().to_string();
        assert!(!lease.contains("gpu-99"), "{lease}");
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn g05_the_slot_of_a_node_that_is_only_silent_is_kept() {
    play(|| async {
        let stage = Stage::new(5, 2).installed().await;
        let (engine, first) = (stage.engine(), stage.nodes[0].clone());
        stage.release().await;
        stage.ask(&stage.nodes).await;
        stage.until("the first one is on its way", || stage.phase(&first) == "Unloading").await;
        stage.world.kubelets.kill(&first);
        stage.until("the silence is named", || stage.blockers(&first).iter().any(|(kind, _)| kind == "NodeNotReady")).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(stage.runs(&stage.nodes[1], "1.0"), "the second node was taken while the first is silent");
        stage.world.kubelets.revive(&first);
        stage.until("both are handed over", || stage.nodes.iter().all(|node| stage.is_done(node, "2.0"))).await;
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn g14_a_restart_before_a_closed_gate_starts_nothing() {
    play(|| async {
        let stage = Stage::new(14, 2).installed().await;
        let doors = doors(&stage);
        let engine = stage.engine();
        stage.spec(json!({"rollout": {"paused": true}})).await;
        stage.release().await;
        stage.ask(&stage.nodes).await;
        let paused = |picture: &lockkeeper::engine::picture::Picture| {
            picture.verdicts.iter().any(|(_, verdict)| format!("{verdict:?}").contains("Paused"))
        };
        engine.until(paused).await.expect("it does not say that it is paused");
        engine.abort();
        let engine = stage.engine();
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert!(doors.lock().unwrap().is_empty(), "a node was closed while the rollout is paused");
        stage.spec(json!({"rollout": {"paused": false}})).await;
        stage.until("all run 2.0", || stage.nodes.iter().all(|node| stage.is_done(node, "2.0"))).await;
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn a_pause_that_the_watch_has_not_told_yet_starts_nothing() {
    play(|| async {
        let stage = Stage::new(15, 2).installed().await;
        let doors = doors(&stage);
        let late = Action::LagWatch { constant: Duration::from_secs(20), spread: Duration::ZERO };
        let components = Matcher::verb(Verb::Watch).client(ENGINE).resource("nodecomponents.lockkeeper.dev");
        stage.world.api.set_faults(Box::new(Faults::new(15, vec![Fault::once(components, late).times(u64::MAX)])));
        stage.release().await;
        let engine = stage.engine();
        tokio::time::sleep(Duration::from_secs(60)).await;
        stage.spec(json!({"rollout": {"paused": true}})).await;
        stage.ask(&stage.nodes).await;
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert!(doors.lock().unwrap().is_empty(), "a node was closed while the rollout is paused");
        assert!(stage.nodes.iter().all(|node| stage.phase(node) == "Queued"));
        stage.waits(&engine, NAME, &stage.nodes[0], BlockerKind::Paused, &["nothing new starts"]).await;
        stage.spec(json!({"rollout": {"paused": false}})).await;
        stage.until("all run 2.0", || stage.nodes.iter().all(|node| stage.is_done(node, "2.0"))).await;
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn g21_a_queued_node_that_leaves_the_selector_holds_nobody_up() {
    play(|| async {
        let stage = Stage::new(21, 2).installed().await;
        let (engine, gone, stays) = (stage.engine(), stage.nodes[0].clone(), stage.nodes[1].clone());
        stage.spec(json!({"rollout": {"paused": true}})).await;
        stage.release().await;
        stage.ask(&stage.nodes).await;
        stage.until("both are queued", || stage.nodes.iter().all(|node| stage.phase(node) == "Queued")).await;
        stage.hands.label_node(&gone, "pool", Some("other")).await.unwrap();
        engine.abort();
        let engine = stage.engine();
        stage.spec(json!({"rollout": {"paused": false}})).await;
        stage.until("the other one is handed over", || stage.runs(&stays, "2.0")).await;
        assert!(stage.is_open(&gone));
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn g22_a_node_that_is_not_ready_is_named_and_the_others_go_on() {
    play(|| async {
        let stage = Stage::new(22, 3).installed().await;
        let silent = stage.nodes[0].clone();
        stage.world.kubelets.kill(&silent);
        tokio::time::sleep(Duration::from_secs(120)).await;
        let engine = stage.engine();
        stage.release().await;
        stage.spec(json!({"rollout": {"blocked": "Skip"}})).await;
        stage.ask(&stage.nodes).await;
        stage.until("the others are handed over", || stage.nodes[1..].iter().all(|node| stage.runs(node, "2.0"))).await;
        let named = stage.blockers(&silent);
        assert!(named.iter().any(|(kind, text)| kind == "NodeNotReady" || text.contains("Ready")), "{named:?}");
        stage.world.kubelets.revive(&silent);
        stage.until("it follows once it is back", || stage.runs(&silent, "2.0")).await;
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn g37_of_two_engines_one_acts() {
    play(|| async {
        let mut options = WorldOptions { kubelets: lockkeeper::sim::actors::KubeletOptions::quick(), ..WorldOptions::new(37) };
        options.engines.push("second".to_owned());
        let stage = Stage::with(options, 3).installed().await;
        let (first, second) = (stage.engine(), stage.engine_as("second", Mode::Engine));
        stage.release().await;
        stage.ask(&stage.nodes).await;
        stage.until("one node is handed over", || stage.runs(&stage.nodes[0], "2.0")).await;
        // The one that leads is gone without a word; the other one waits out the Lease and goes on.
        stage.world.api.kill(ENGINE);
        first.abort();
        stage
            .until("all are handed over", || {
                stage.nodes.iter().all(|node| stage.runs(node, "2.0") && stage.phase(node) == "Done")
            })
            .await;
        stage.clean();
        second.stop().await;
    });
}

#[test]
fn read_only_sends_nothing_that_changes_anything() {
    play(|| async {
        let options = WorldOptions {
            kubelets: lockkeeper::sim::actors::KubeletOptions::quick(),
            read_only: vec!["onlooker".to_owned()],
            ..WorldOptions::new(9)
        };
        let stage = Stage::with(options, 2).installed().await;
        let onlooker = stage.engine_as("onlooker", Mode::ReadOnly);
        onlooker.until(|picture| picture.fleet.synced).await.unwrap();
        stage.release().await;
        stage.ask(&stage.nodes).await;
        let asked = onlooker.ask(lockkeeper::engine::intent::Intent::Abort {
            component: lockkeeper::sim::scenarios::kernel_module::key(),
            node: stage.nodes[0].as_str().into(),
            reason: String::new(),
        });
        assert!(matches!(asked.await, lockkeeper::engine::intent::IntentOutcome::Refused { .. }));
        tokio::time::sleep(Duration::from_secs(300)).await;
        let mutating = stage.world.api.log().requests(|(client, verb, resource)| {
            client == "onlooker" && !matches!(*verb, "get" | "list" | "watch") && !resource.contains("selfsubject")
        });
        assert_eq!(mutating, 0);
        assert!(stage.nodes.iter().all(|node| stage.runs(node, "1.0")));
        onlooker.stop().await;
    });
}
