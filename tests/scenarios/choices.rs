//! A person's turn: abort, retry, roll back, hold and go on, in every phase; withdrawal and a new order while others run.

use lockkeeper::{
    engine::{
        Engine,
        intent::{Intent, IntentOutcome, NodeTarget},
    },
    sim::{
        actors::{KubeletOptions, Range},
        scenarios::{kernel_module as scenario, objects},
        world::WorldOptions,
    },
};
use serde_json::{Value, json};

use crate::{
    pods::{claimants, pods_of, running},
    stage::{Stage, play},
    trace::Trace,
};

/// Machines slow enough to be caught in each phase.
fn slow(seed: u64) -> WorldOptions {
    let mut options = WorldOptions { kubelets: KubeletOptions::quick(), ..WorldOptions::new(seed) };
    let three = Range::millis(3000, 3001);
    (options.kubelets.stop, options.kubelets.unload, options.kubelets.ready, options.kubelets.allocatable_lag) =
        (three, three, three, three);
    options
}

/// A component that closes its node always, so that every phase is passed, and 2.0 asked for on the first node, with these pauses.
async fn asked(seed: u64, pauses: &[&str]) -> (Stage, Engine, Trace) {
    let stage = Stage::with(slow(seed), 1).installed().await;
    stage.spec(json!({"drain": {"cordon": "Always"}})).await;
    stage.release().await;
    let (engine, trace) = (stage.engine(), Trace::of(&stage));
    stage.edit(&stage.nodes[0], json!({"version": "2.0", "requestedBy": "operator", "pauseAfter": pauses}), true).await;
    (stage, engine, trace)
}

/// What a person asks for through console or command line.
async fn ask(engine: &Engine, intent: Intent) -> Result<String, String> {
    match engine.ask(intent).await {
        IntentOutcome::Done { message } => Ok(message),
        IntentOutcome::Refused { message } => Err(message),
    }
}

fn abort(node: &str) -> Intent {
    Intent::Abort { component: scenario::key(), node: node.into(), reason: "not today".into() }
}

fn roll_back(node: &str) -> Intent {
    Intent::RollBack { component: scenario::key(), node: node.into() }
}

fn retry(node: &str) -> Intent {
    Intent::Retry { component: scenario::key(), node: node.into() }
}

/// In this phase, or held right after it.
async fn reached(stage: &Stage, phase: &str) {
    stage.until(&format!("it is in {phase}"), || stage.phase(&stage.nodes[0]) == phase).await;
}

#[test]
fn an_abort_before_the_module_is_touched_gives_the_node_back_as_it_was() {
    // In the phases that are over at once it is held; the others are caught while they last.
    for (seed, phase) in ["Queued", "Preflight", "Cordoning", "Draining"].into_iter().enumerate() {
        play(|| async move {
            let pauses: &[&str] = if phase == "Draining" || phase == "Queued" { &[] } else { &[phase] };
            let stage = Stage::with(slow(900 + seed as u64), 1).installed().await;
            let node = stage.nodes[0].clone();
            stage.apply(&[claimants("app", 1), objects::budget("ml", "app", "minAvailable", json!(0))]).await;
            stage.until("the claimant runs", || running(&stage, "app") == 1).await;
            stage.spec(json!({"drain": {"cordon": "Always"}, "rollout": {"paused": phase == "Queued"}})).await;
            stage.release().await;
            let (engine, trace) = (stage.engine(), Trace::of(&stage));
            stage.edit(&node, json!({"version": "2.0", "requestedBy": "operator", "pauseAfter": pauses}), true).await;
            reached(&stage, if pauses.is_empty() { phase } else { "Held" }).await;
            stage.until("it is taken back", || matches!(stage.phase(&node).as_str(), "Queued" | "Held" | "Draining")).await;
            ask(&engine, abort(&node)).await.unwrap();
            stage.until(&format!("{phase}: aborted"), || stage.phase(&node) == "Aborted").await;
            let (word, message) = stage.reason(&node);
            assert_eq!(word, "Aborted", "{phase}");
            let says = if phase == "Queued" { "while it was queued" } else { "the module was not touched" };
            assert!(message.contains(says), "{phase}: {message}");
            stage.until(&format!("{phase}: the node is as it was"), || stage.runs(&node, "1.0")).await;
            assert!(trace.all("loader ").is_empty() && trace.all("plugin ").is_empty(), "{phase}: {}", trace.lines().join("\n"));
            assert_eq!(trace.all("cordon ").len(), trace.all("uncordon ").len(), "{phase}");
            assert_eq!(trace.all("slot ").len(), trace.all("free ").len(), "{phase}");
            if phase == "Queued" {
                assert!(trace.all("slot ").is_empty(), "{phase}");
            }
            stage.until("the claimant runs again", || running(&stage, "app") == 1).await;
            // Nothing starts again by itself.
            stage.pass(600).await;
            assert_eq!(stage.phase(&node), "Aborted");
            stage.clean();
            engine.stop().await;
        });
    }
}

#[test]
fn an_abort_while_the_old_loader_is_there_puts_the_old_plugin_back() {
    play(|| async {
        let (stage, engine, trace) = asked(910, &[]).await;
        let node = stage.nodes[0].clone();
        stage
            .until("the plugin is being stopped", || {
                stage.phase(&node) == "StoppingPlugin" && stage.label(&node, "plugin").is_none()
            })
            .await;
        ask(&engine, abort(&node)).await.unwrap();
        stage.until("aborted", || stage.phase(&node) == "Aborted").await;
        assert!(stage.reason(&node).1.contains("back in service with 1.0"), "{:?}", stage.reason(&node));
        assert!(stage.runs(&node, "1.0"));
        assert!(trace.all("loader ").is_empty() && trace.all("unload ").is_empty(), "the module was touched");
        trace.in_order(&[
            "plugin gpu.gpu-01 1.0 -",
            "plugin gpu.gpu-01 - 1.0",
            "ready gpu.gpu-01 - 1.0",
            "uncordon gpu-01",
            "free gpu.gpu-01",
        ]);
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn an_abort_after_the_unload_asks_and_each_answer_is_kept() {
    for (seed, phase) in ["Unloading", "Loading", "StartingPlugin", "Verifying"].into_iter().enumerate() {
        for answer in ["resume", "roll back", "another version by hand", "leave"] {
            play(|| async move {
                let (stage, engine, trace) = asked(920 + seed as u64, &[]).await;
                let node = stage.nodes[0].clone();
                stage
                    .until(&format!("{phase}, without the old loader"), || {
                        stage.phase(&node) == phase && stage.label(&node, "loader").as_deref() != Some("1.0")
                    })
                    .await;
                ask(&engine, abort(&node)).await.unwrap();
                stage.until(&format!("{phase}: it asks"), || stage.reason(&node).0 == "AwaitingChoice").await;
                assert_eq!(stage.phase(&node), "Held");
                let (_, message) = stage.reason(&node);
                for choice in ["resume (action: Run", "roll back (version: 1.0", "leave the node as it is (action: Leave)"] {
                    assert!(message.contains(choice), "{phase}: {message}");
                }
                let before = trace.all("loader ");
                stage.pass(600).await;
                assert_eq!(
                    (stage.phase(&node).as_str(), stage.is_open(&node)),
                    ("Held", false),
                    "{phase}: it went on without an answer"
                );
                assert_eq!(trace.all("loader "), before, "{phase}: a module was swapped while it asks");
                match answer {
                    "resume" => {
                        ask(&engine, retry(&node)).await.unwrap();
                        stage
                            .until(&format!("{phase}: resumed"), || stage.is_done(&node, "2.0") && stage.runs(&node, "2.0"))
                            .await;
                    }
                    "roll back" | "another version by hand" => {
                        // The version alone means the same, whether or not its attempt is raised.
                        match answer {
                            "roll back" => drop(ask(&engine, roll_back(&node)).await.unwrap()),
                            _ => stage.edit(&node, json!({"version": "1.0", "action": "Run"}), false).await,
                        }
                        stage.until(&format!("{phase}: back"), || stage.is_done(&node, "1.0") && stage.runs(&node, "1.0")).await;
                        assert_eq!(stage.loaded(&node).as_deref(), Some("1.0"), "{phase}");
                    }
                    _ => {
                        stage.edit(&node, json!({"action": "Leave"}), false).await;
                        stage.until(&format!("{phase}: left"), || stage.phase(&node) == "Aborted").await;
                        assert_eq!(stage.reason(&node).0, "Left", "{phase}");
                        stage.pass(600).await;
                        assert!(!stage.is_open(&node), "{phase}: the cordon is theirs from now on");
                        let annotations = stage.node(&node)["metadata"]["annotations"].to_string();
                        assert!(!annotations.contains("lockkeeper.dev/cordon"), "{phase}: {annotations}");
                    }
                }
                assert_eq!(trace.all("slot ").len(), trace.all("free ").len(), "{phase}, {answer}: {}", trace.lines().join("\n"));
                let report = stage.world.report_at_rest();
                assert!(report.violations.is_empty() && report.disruptions == 0, "{phase}, {answer}: {:#?}", report.violations);
                engine.stop().await;
            });
        }
    }
}

#[test]
fn held_after_each_phase_nothing_moves_until_it_goes_on() {
    play(|| async {
        let phases =
            ["Preflight", "Cordoning", "Draining", "StoppingPlugin", "Unloading", "Loading", "StartingPlugin", "Verifying"];
        let (stage, engine, trace) = asked(930, &phases).await;
        let node = stage.nodes[0].clone();
        for (at, phase) in phases.iter().enumerate() {
            stage
                .until(&format!("held after {phase}"), || {
                    stage.phase(&node) == "Held" && stage.reason(&node).1.contains(&format!("paused after {phase}"))
                })
                .await;
            let (word, message) = stage.reason(&node);
            let next = phases.get(at + 1).copied().unwrap_or("Uncordoning");
            assert!(
                word == "PauseAfter" && message.contains(&format!("next is {next}")) && message.contains("off pauseAfter"),
                "{message}"
            );
            stage.pass(60).await;
            let before = trace.lines();
            stage.pass(1200).await;
            assert_eq!(trace.lines(), before, "something moved after {phase}");
            stage.edit(&node, json!({"pauseAfter": phases[at + 1..]}), false).await;
        }
        stage.until("it is done", || stage.is_done(&node, "2.0") && stage.runs(&node, "2.0")).await;
        let steps: Vec<String> = stage.steps(&node).into_iter().filter(|step| step != "Held").collect();
        assert_eq!(steps[..phases.len()], phases, "{steps:?}");
        assert_eq!(trace.all("evict ").len(), 0);
        assert_eq!(stage.clean().modules_unloaded, 1);
        engine.stop().await;
    });
}

#[test]
fn a_hold_stops_after_the_phase_that_runs_and_run_goes_on() {
    play(|| async {
        let (stage, engine, _) = asked(931, &[]).await;
        let node = stage.nodes[0].clone();
        reached(&stage, "Unloading").await;
        ask(&engine, Intent::Hold { component: scenario::key(), node: node.as_str().into() }).await.unwrap();
        reached(&stage, "Held").await;
        assert_eq!(stage.reason(&node).0, "Hold");
        assert!(stage.reason(&node).1.contains("held by a person after Unloading; next is Loading"), "{:?}", stage.reason(&node));
        assert_eq!(stage.loaded(&node), None, "the phase that ran was ended first");
        stage.pass(900).await;
        assert_eq!((stage.phase(&node).as_str(), stage.loaded(&node)), ("Held", None));
        ask(&engine, Intent::Continue { component: scenario::key(), node: node.as_str().into() }).await.unwrap();
        stage.until("it goes on", || stage.is_done(&node, "2.0")).await;
        stage.clean();
        engine.stop().await;
    });
}

/// A handoff that fails by its deadline in this phase, and whether the module was swapped by then.
async fn failed_in(seed: u64, phase: &str, deadline: &str) -> (Stage, Engine, Trace) {
    let mut options = slow(seed);
    options.kubelets.stop = Range::millis(9000, 9001);
    options.kubelets.ready = Range::millis(9000, 9001);
    options.kubelets.unload = Range::millis(9000, 9001);
    let stage = Stage::with(options, 1).installed().await;
    stage.spec(json!({"drain": {"cordon": "Always"}, "deadlines": {phase: deadline}})).await;
    stage.release().await;
    let (engine, trace) = (stage.engine(), Trace::of(&stage));
    stage.edit(&stage.nodes[0], json!({"version": "2.0", "requestedBy": "operator"}), true).await;
    stage.until(&format!("it fails in {phase}"), || stage.phase(&stage.nodes[0]) == "Failed").await;
    (stage, engine, trace)
}

#[test]
fn a_failure_by_deadline_names_the_phase_and_a_retry_or_a_roll_back_ends_it() {
    for (seed, phase) in ["StoppingPlugin", "Unloading", "Loading", "StartingPlugin", "Verifying"].into_iter().enumerate() {
        for back in [false, true] {
            play(|| async move {
                let (stage, engine, trace) = failed_in(940 + seed as u64, phase, "2s").await;
                let node = stage.nodes[0].clone();
                let (word, message) = stage.reason(&node);
                assert_eq!(word, "DeadlineExceeded", "{phase}");
                for part in [
                    &format!("{phase} did not end within 2s"),
                    "Retry: attempt + 1",
                    "Roll back: the old version",
                    "Leave: action Leave",
                ] {
                    assert!(message.contains(part), "{phase}: no {part:?} in {message}");
                }
                stage.pass(600).await;
                // Nothing is unloaded or loaded behind a person's back; a node that does not work stays closed.
                let works = stage.label(&node, "ready").is_some();
                assert_eq!(stage.is_open(&node), works, "{phase}: {:?}", stage.node(&node)["metadata"]["labels"]);
                let baseline = stage.handoff(&node)["status"]["run"]["baseline"].clone();
                assert_eq!(baseline, json!({scenario::RESOURCE: scenario::DEVICES}), "{phase}");
                stage.spec(json!({"deadlines": null})).await;
                let version = if back {
                    ask(&engine, roll_back(&node)).await.unwrap();
                    "1.0"
                } else {
                    ask(&engine, retry(&node)).await.unwrap();
                    "2.0"
                };
                stage.until(&format!("{phase}: {version}"), || stage.is_done(&node, version) && stage.runs(&node, version)).await;
                assert_eq!(stage.loaded(&node).as_deref(), Some(version), "{phase}");
                // The retry compares with what the node offered before anything was touched, not with what the failure left.
                assert_eq!(stage.handoff(&node)["status"]["run"]["baseline"], baseline, "{phase}");
                let history = stage.handoff(&node)["status"]["history"].to_string();
                assert!(history.contains("DeadlineExceeded"), "{phase}: {history}");
                assert_eq!(trace.all("slot ").len(), trace.all("free ").len(), "{phase}: {}", trace.lines().join("\n"));
                let report = stage.world.report_at_rest();
                assert!(report.violations.is_empty() && report.disruptions == 0, "{phase}: {:#?}", report.violations);
                engine.stop().await;
            });
        }
    }
}

#[test]
fn a_drain_that_fails_by_its_timeout_opens_the_node_and_is_tried_again() {
    play(|| async {
        let stage = Stage::new(950, 1).installed().await;
        let node = stage.nodes[0].clone();
        let mut sibling = objects::template("app", None, 2);
        sibling["metadata"]["labels"]["part"] = json!("sibling");
        sibling["metadata"]["annotations"] = json!({"sim.lockkeeper.dev/unready": "true"});
        let mut sibling = objects::deployment("ml", "sibling", 1, sibling);
        sibling.body["spec"]["selector"] = json!({"matchLabels": {"part": "sibling"}});
        stage.apply(&[claimants("app", 1), sibling, objects::budget("ml", "app", "maxUnavailable", json!(1))]).await;
        stage.until("both run", || running(&stage, "app") == 2).await;
        stage.spec(json!({"drain": {"timeout": "10m"}})).await;
        let (engine, trace) = (stage.engine(), Trace::of(&stage));
        stage.release().await;
        stage.ask(std::slice::from_ref(&node)).await;
        stage.until("it fails", || stage.phase(&node) == "Failed").await;
        let (word, message) = stage.reason(&node);
        assert_eq!(word, "DeadlineExceeded");
        assert!(message.contains("Draining did not end within 10m") && message.contains("ml/app"), "{message}");
        stage.until("it is open and works", || stage.runs(&node, "1.0")).await;
        trace.in_order(&["cordon gpu-01", "phase gpu.gpu-01 Failed", "uncordon gpu-01", "free gpu.gpu-01"]);
        assert!(trace.all("evict ").is_empty());
        stage.hands.delete("/apis/policy/v1/namespaces/ml/poddisruptionbudgets/app").await.unwrap();
        ask(&engine, retry(&node)).await.unwrap();
        stage.until("it is handed over", || stage.is_done(&node, "2.0")).await;
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn a_done_node_is_rolled_back_by_one_command() {
    play(|| async {
        let (stage, engine, trace) = asked(951, &[]).await;
        let node = stage.nodes[0].clone();
        stage.until("it is done", || stage.is_done(&node, "2.0")).await;
        ask(&engine, roll_back(&node)).await.unwrap();
        stage.until("it is back", || stage.is_done(&node, "1.0") && stage.runs(&node, "1.0")).await;
        trace.in_order(&["loader gpu.gpu-01 - 2.0", "loader gpu.gpu-01 2.0 -", "unload gpu-01", "loader gpu.gpu-01 - 1.0"]);
        assert_eq!(stage.clean().modules_unloaded, 2);
        engine.stop().await;
    });
}

#[test]
fn a_roll_back_of_what_runs_is_refused_with_the_way_to_do_it() {
    play(|| async {
        let (stage, engine, trace) = asked(952, &[]).await;
        let node = stage.nodes[0].clone();
        reached(&stage, "Unloading").await;
        engine
            .until(|picture| picture.fleet.handoffs.values().any(|it| it.status.phase == lockkeeper::api::Phase::Unloading))
            .await;
        let why = ask(&engine, roll_back(&node)).await.unwrap_err();
        assert!(why.contains("gpu-system/gpu.gpu-01") && why.contains("Unloading") && why.contains("abort it first"), "{why}");
        stage.until("it ended as it was asked", || stage.is_done(&node, "2.0")).await;
        assert_eq!(trace.all("loader "), ["loader gpu.gpu-01 1.0 -", "loader gpu.gpu-01 - 2.0"]);
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn another_version_asked_for_by_hand_while_one_runs_comes_after_it() {
    play(|| async {
        let (stage, engine, trace) = asked(953, &[]).await;
        let node = stage.nodes[0].clone();
        reached(&stage, "Unloading").await;
        stage.edit(&node, json!({"version": "1.0"}), false).await;
        stage.until("it is on what was asked for last", || stage.is_done(&node, "1.0") && stage.runs(&node, "1.0")).await;
        let lines = trace.all("loader ");
        assert_eq!(
            lines,
            ["loader gpu.gpu-01 1.0 -", "loader gpu.gpu-01 - 2.0", "loader gpu.gpu-01 2.0 -", "loader gpu.gpu-01 - 1.0"]
        );
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn a_queued_handoff_is_withdrawn_without_a_trace_and_the_others_go_on() {
    play(|| async {
        let stage = Stage::with(slow(960), 3).installed().await;
        let (engine, trace) = (stage.engine(), Trace::of(&stage));
        stage.release().await;
        stage.ask(&stage.nodes).await;
        stage.until("the first runs", || stage.phase("gpu-01") == "StoppingPlugin").await;
        let withdraw = |node: &str| Intent::Withdraw { component: scenario::key(), node: node.into() };
        // What runs is no longer taken back, and it says what to do instead.
        let why = ask(&engine, withdraw("gpu-01")).await.unwrap_err();
        assert!(why.contains("StoppingPlugin") && why.contains("abort it"), "{why}");
        ask(&engine, withdraw("gpu-02")).await.unwrap();
        stage.until("its handoff is gone", || stage.handoff("gpu-02").is_null()).await;
        stage.until("the others are done", || ["gpu-01", "gpu-03"].iter().all(|node| stage.is_done(node, "2.0"))).await;
        stage.pass(900).await;
        assert!(stage.runs("gpu-02", "1.0"));
        // Nothing but the status of the handoff itself, which came back to the queue from its install.
        let touched: Vec<String> =
            trace.lines().into_iter().filter(|line| line.contains("gpu-02") && !line.starts_with("phase ")).collect();
        assert!(
            touched.is_empty() && trace.all("phase gpu.gpu-02") == ["phase gpu.gpu-02 Queued"],
            "{}",
            trace.lines().join("\n")
        );
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn a_new_order_while_one_runs_counts_for_those_that_still_wait() {
    play(|| async {
        let stage = Stage::with(slow(961), 4).installed().await;
        let (engine, trace) = (stage.engine(), Trace::of(&stage));
        stage.release().await;
        stage.ask(&stage.nodes).await;
        stage.until("the first runs", || stage.phase("gpu-01") == "StoppingPlugin").await;
        let order = |nodes: &[&str]| Intent::Reorder {
            component: scenario::key(),
            nodes: nodes.iter().map(|node| (*node).into()).collect(),
        };
        let why = ask(&engine, order(&["gpu-01", "gpu-04"])).await.unwrap_err();
        assert!(why.contains("only Queued ones have a place"), "{why}");
        ask(&engine, order(&["gpu-04", "gpu-02", "gpu-03"])).await.unwrap();
        stage.until("all are done", || stage.nodes.iter().all(|node| stage.is_done(node, "2.0"))).await;
        assert_eq!(trace.all("slot "), ["slot gpu.gpu-01", "slot gpu.gpu-04", "slot gpu.gpu-02", "slot gpu.gpu-03"]);
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn a_request_on_a_node_that_was_made_again_is_refused() {
    play(|| async {
        let stage = Stage::new(962, 1).installed().await;
        let (engine, node) = (stage.engine(), stage.nodes[0].clone());
        stage.release().await;
        engine.until(|picture| picture.fleet.components.values().any(|it| it.versions.len() == 2)).await;
        let to = |uid: &str| Intent::HandOver {
            component: scenario::key(),
            nodes: vec![NodeTarget { node: node.as_str().into(), uid: Some(uid.into()) }],
            to: "2.0".into(),
            pause_after: Vec::new(),
            reason: String::new(),
        };
        let why = ask(&engine, to("seen-before")).await.unwrap_err();
        assert!(why.contains("made again since it was shown"), "{why}");
        let uid = stage.node(&node)["metadata"]["uid"].as_str().map(str::to_owned).unwrap();
        ask(&engine, to(&uid)).await.unwrap();
        stage.until("it is handed over", || stage.is_done(&node, "2.0")).await;
        assert_eq!(pods_of(&stage, "none"), Vec::<Value>::new());
        stage.clean();
        engine.stop().await;
    });
}
