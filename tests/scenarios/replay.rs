//! Plays a way to a fault that the model check printed (docs/testing/model.md): what people and faults did, each after so many of the engine's
//! writes, on the simulated cluster under the monitor. `STORY=FILE cargo test --test scenarios -- --nocapture replay`.
//! A late write and a lagging watch become what the simulated server has of that kind, and are said so.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use lockkeeper::{
    engine::Engine,
    sim::{
        apiserver::{Action, Fault, Faults, Matcher},
        scenarios::{kernel_module as scenario, objects},
        world::ENGINE,
    },
};
use serde_json::{Value, json};

use crate::stage::{Stage, handoff_path, play};

/// Plays it to rest and returns what the monitor says.
async fn replay(story: &str) -> Vec<String> {
    let mut events: Vec<Value> =
        story.lines().filter(|line| !line.trim().is_empty()).map(|line| serde_json::from_str(line).unwrap()).collect();
    let head = events.remove(0);
    let stage = Stage::new(7, 2).installed().await;
    stage.apply(&[objects::deployment("ml", "app", 1, objects::template("app", Some((scenario::RESOURCE, 1)), 2))]).await;
    stage.release().await;
    // Its versions' DaemonSets are made before the story begins.
    let engine = stage.engine();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let writes = Arc::new(AtomicU64::new(0));
    let counted = writes.clone();
    stage.world.api.log().observe(move |record| {
        let ours = &*record.user == ENGINE;
        if ours
            && (["nodes", "pods", "pods/eviction"].contains(&&*record.resource) || record.resource.starts_with("nodehandoffs"))
        {
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    // Where the workload runs is the story's first node.
    let mut nodes = stage.nodes.clone();
    let first = stage.world.api.list("pods").into_iter().find(|pod| pod["metadata"]["namespace"] == "ml");
    if let Some(at) = first.and_then(|pod| nodes.iter().position(|node| pod["spec"]["nodeName"] == **node)) {
        nodes.swap(0, at);
    }
    if head["start"] == "asked" {
        stage.ask(&nodes[..1]).await;
    }
    let mut running = Some(engine);
    for event in &events {
        let after = event["after"].as_u64().unwrap_or_default();
        // The admission is a write to the Lease, which is not counted here; what never comes is not waited for.
        for _ in 0..2400 {
            if writes.load(Ordering::Relaxed) + 1 >= after {
                break;
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
        println!("after {} writes: {event}", writes.load(Ordering::Relaxed));
        happen(&stage, &nodes, event, &mut running).await;
    }
    tokio::time::sleep(Duration::from_secs(3600)).await;
    if let Some(engine) = running {
        engine.stop().await;
    }
    for node in &nodes {
        println!(
            "{node}: {} {:?}",
            stage.phase(node),
            ["version", "loader", "plugin", "ready"].map(|word| stage.label(node, word))
        );
    }
    stage.world.report().violations.iter().map(ToString::to_string).collect()
}

async fn happen(stage: &Stage, nodes: &[String], event: &Value, running: &mut Option<Engine>) {
    let node = nodes.get(event["node"].as_u64().unwrap_or_default() as usize).map_or("", String::as_str);
    let version = match event["version"].as_str() {
        Some("1") => Some(scenario::OLD),
        Some("2") => Some("2.0"),
        other => other,
    };
    let key = |word: &str| format!("lockkeeper.dev/{word}.{}.{}", scenario::NAMESPACE, scenario::NAME);
    let hands = &stage.hands;
    // People may be refused, as in life; the story goes on.
    let done = match event["do"].as_str().unwrap_or_default() {
        "label" => hands.label_node(node, &key("version"), version).await.map(drop),
        "strip" => hands.label_node(node, &key(event["role"].as_str().unwrap_or_default()), None).await.map(drop),
        "cordon" => hands.cordon(node, true).await.map(drop),
        "uncordon" => hands.cordon(node, false).await.map(drop),
        "ask" => {
            let attempt = stage.handoff(node)["spec"]["attempt"].as_u64().unwrap_or(0) + 1;
            let spec = json!({"spec": {"version": version, "attempt": attempt, "action": "Run", "requestedBy": "operator"}});
            hands.merge(&handoff_path(node), &spec).await.map(drop)
        }
        "say" => hands.merge(&handoff_path(node), &json!({"spec": {"action": event["action"]}})).await.map(drop),
        "delete" => hands.delete(&handoff_path(node)).await,
        "reboot" => {
            stage.world.kubelets.reboot(node);
            Ok(())
        }
        "made-again" => {
            let gone = hands.delete(&format!("/api/v1/nodes/{node}")).await;
            stage.world.kubelets.register(node);
            gone
        }
        "kubelet-dies" => {
            stage.world.kubelets.kill(node);
            Ok(())
        }
        "kubelet-back" => {
            stage.world.kubelets.revive(node);
            Ok(())
        }
        // The next life has another identity: it waits for the Lease of the one before.
        "crash" | "takeover" => {
            if let Some(engine) = running.take() {
                engine.abort();
            }
            *running = Some(stage.engine());
            Ok(())
        }
        "user-quits" => hands.delete("/apis/apps/v1/namespaces/ml/deployments/app").await,
        "delay" => {
            let late = Fault::once(Matcher::writes().client(ENGINE), Action::Delay(Duration::from_secs(3)));
            stage.world.api.set_faults(Box::new(Faults::new(1, vec![late])));
            Ok(())
        }
        other => {
            println!("  not played: {other}");
            Ok(())
        }
    };
    if let Err(no) = done {
        println!("  refused: {}", no.why);
    }
}

/// What the model check found, or the story in the file that STORY names, played on the simulated cluster: nothing is broken.
#[test]
fn stories_of_the_model_check_end_well() {
    let found = [
        r#"{"start":"asked","expect":"L1"}
           {"after":14,"do":"say","node":0,"action":"Leave"}"#,
        r#"{"start":"rest","expect":"I11"}
           {"after":0,"do":"label","node":0,"version":"2"}
           {"after":2,"do":"made-again","node":0}"#,
        r#"{"start":"rest","expect":"I11"}
           {"after":0,"do":"made-again","node":0}
           {"after":1,"do":"label","node":0,"version":null}"#,
        r#"{"start":"asked","expect":"I2"}
           {"after":6,"do":"delay"}
           {"after":6,"do":"takeover"}
           {"after":9,"do":"reboot","node":0}"#,
    ];
    let asked =
        std::env::var("STORY").ok().map(|file| std::fs::read_to_string(&file).unwrap_or_else(|why| panic!("{file}: {why}")));
    let asked = asked.as_deref();
    for story in asked.as_ref().map_or(&found[..], std::slice::from_ref) {
        play(|| async {
            let broken = replay(story).await;
            assert!(broken.is_empty(), "{story}: {broken:#?}");
        });
    }
}
