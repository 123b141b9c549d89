//! The engine is killed after its n-th write, before and after it hears the answer, for every n of a handoff, and started again: the end is the same.

use lockkeeper::sim::{
    apiserver::{Action, Fault, Faults, Identity, Matcher},
    scenarios::{kernel_module as scenario, objects},
    world::ENGINE,
};
use serde_json::json;

use crate::stage::{Stage, play};

/// One handoff under a workload; the engine dies at its n-th write. False: it made fewer writes than that.
async fn survives(n: u64, before_response: bool) -> bool {
    let stage = Stage::new(7, 2).installed().await;
    let template = objects::template("app", Some((scenario::RESOURCE, 1)), 2);
    stage.apply(&[objects::deployment("ml", "app", 2, template), objects::budget("ml", "app", "maxUnavailable", json!(1))]).await;
    stage
        .until("the workload runs", || {
            stage
                .world
                .api
                .list("pods")
                .iter()
                .filter(|pod| pod["metadata"]["namespace"] == "ml" && pod["status"]["phase"] == "Running")
                .count()
                == 2
        })
        .await;
    stage.release().await;
    let node = stage.nodes[0].clone();
    let crash = Fault::once(Matcher::writes().client(ENGINE).nth_write(n), Action::Crash { before_response });
    let crashed = stage.world.api.crashed(&Identity::new(ENGINE));
    stage.world.api.kill(ENGINE);
    let first = stage.engine();
    stage.world.api.set_faults(Box::new(Faults::new(1, vec![crash])));
    stage.ask(std::slice::from_ref(&node)).await;
    let done = async {
        stage.until("the node is handed over", || stage.phase(&node) == "Done" && stage.runs(&node, "2.0")).await;
    };
    let died = tokio::select! {
        biased;
        () = crashed.notified() => true,
        () = done => false,
    };
    if died {
        first.abort();
        let second = stage.engine();
        stage.until("the next life ends it", || stage.phase(&node) == "Done" && stage.runs(&node, "2.0")).await;
        second.stop().await;
    } else {
        first.stop().await;
    }
    stage.clean();
    assert_eq!(stage.world.report().modules_unloaded, 1, "write {n}");
    assert!(stage.world.report().claimants_evicted <= 2, "write {n}");
    died
}

fn every_write(before_response: bool) {
    let mut n = 0;
    let mut died = true;
    while died {
        n += 1;
        play(|| async { died = survives(n, before_response).await });
    }
    println!("killed at each of {} writes", n - 1);
    assert!(n > 25, "a handoff has more writes than {n}");
}

#[test]
fn killed_after_each_write_before_it_hears_the_answer() {
    every_write(true);
}

#[test]
fn killed_after_each_write_once_it_has_heard_the_answer() {
    every_write(false);
}
