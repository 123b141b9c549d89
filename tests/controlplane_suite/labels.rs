//! The flow by hand: a person with nothing but kubectl, who moves labels and pods himself, gets the same order and the same safety.

use std::sync::{Arc, Mutex};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client,
    runtime::{WatchStreamExt, watcher},
};
use lockkeeper::{
    api::{ComponentKey, Phase, handoff::BY_LABEL, keys::Role},
    handoff::verdict::BlockerKind,
    sim::scenarios::objects,
};
use serde_json::json;

use crate::{
    fleet::{Fleet, LONG, Labels, node_of, uid_of},
    site::{arena, block_on},
    support::controlplane::User,
    wait::eventually,
};

/// Every state of a node's labels from now on, as [`Labels`] shows them.
async fn diary(client: Client, node: &str, key: ComponentKey) -> Arc<Mutex<Vec<String>>> {
    let states = Arc::new(Mutex::new(Vec::new()));
    let (told, nodes) = (states.clone(), Api::<Node>::all(client));
    let config = watcher::Config::default().fields(&format!("metadata.name={node}"));
    let begun = states.clone();
    tokio::spawn(async move {
        let mut events = watcher(nodes, config).applied_objects().boxed();
        while let Some(event) = events.next().await {
            let Ok(node) = event else { continue };
            let state = Labels::of(&node, &key).to_string();
            let mut states = told.lock().expect("lock");
            if states.last() != Some(&state) {
                states.push(state);
            }
        }
    });
    eventually("the first state", LONG, || async { Ok::<_, String>(begun.lock().expect("lock").first().map(drop)) }).await;
    states
}

#[test]
fn labels_moved_by_kubectl_alone_keep_the_order_and_a_typo_stops_everything() {
    let Some(arena) = arena() else { return };
    block_on(async {
        let fleet = Fleet::start(&arena.site, "hand", 2, |_| {}).await;
        let plane = &arena.site.plane;
        let kubectl = |args: &str| {
            let args: Vec<&str> = args.split_whitespace().collect();
            tokio::task::block_in_place(|| plane.kubectl(args)).expect_ok()
        };
        let label = Role::Desired.key(&fleet.key());
        fleet
            .apply(&[
                fleet.claimants_apart("training", 2),
                objects::budget(&fleet.apps(), "training", "maxUnavailable", json!(1)),
            ])
            .await;
        let pods = fleet.running("training", 2).await;
        assert!(fleet.nodes.iter().all(|node| pods.iter().any(|pod| node_of(pod) == node)), "one on each node");
        fleet.release("2.0", fleet.module("2.0")).await;
        let states = diary(plane.client(User::Admin).await, "hand-1", fleet.key()).await;

        kubectl(&format!("label node hand-1 {label}=2.0 --overwrite"));
        let named = fleet.blocker(&arena.engine, "hand-1", BlockerKind::Claimant).await;
        let pod = pods.iter().find(|pod| node_of(pod) == "hand-1").expect("one on each node");
        assert_eq!(named.object.to_string(), format!("Pod hand-apps/{}", crate::fleet::name_of(pod)));
        let handoff = eventually("a NodeHandoff to show it", LONG, || async {
            let handoff = fleet.handoff("hand-1").await.ok_or("none")?;
            let shows = (handoff.spec.requested_by.as_str(), handoff.spec.version.as_deref()) == (BY_LABEL, Some("2.0"));
            if shows { Ok(Some(handoff)) } else { Err(format!("{:?}", handoff.spec)) }
        })
        .await;
        assert_eq!(fleet.story("hand-1"), "+1.0");
        let shown = kubectl("get nodehandoffs -n hand --no-headers");
        assert!(shown.starts_with("gpu.hand-1 ") && shown.contains(" 2.0 "), "{shown}");

        kubectl("cordon hand-1");
        kubectl("drain hand-1 --pod-selector=app=training --ignore-daemonsets --timeout=300s");
        fleet.ended("hand-1", handoff.spec.attempt, Phase::Done).await;
        assert_eq!(fleet.node("hand-1").await.spec.and_then(|spec| spec.unschedulable), Some(true), "a person's cordon stays");
        kubectl("uncordon hand-1");
        fleet.runs("hand-1", "2.0").await;
        assert_eq!(fleet.story("hand-1"), "+1.0 -1.0 +2.0");
        let law =
            ["1.0 1.0 1.0 1.0", "2.0 1.0 1.0 1.0", "2.0 1.0 - -", "2.0 - - -", "2.0 2.0 - -", "2.0 2.0 2.0 -", "2.0 2.0 2.0 2.0"];
        // The watch may be behind what was read.
        let states = eventually("the watch to tell the last of it", LONG, || async {
            let states = states.lock().expect("lock").clone();
            if states.last().map(String::as_str) == law.last().copied() { Ok(Some(states)) } else { Err(format!("{states:?}")) }
        })
        .await;
        assert_eq!(states, law);

        // An O for a zero.
        let before: Vec<String> = fleet.running("training", 2).await.iter().map(|pod| uid_of(pod).to_owned()).collect();
        kubectl(&format!("label node hand-2 {label}=2.O --overwrite"));
        let named = fleet.blocker(&arena.engine, "hand-2", BlockerKind::UnknownVersion).await;
        assert!(named.message.contains("\"2.O\" is no version of hand/gpu; known are 1.0, 2.0"), "{}", named.message);
        tokio::time::sleep(std::time::Duration::from_secs(3)).await;
        assert_eq!(Labels::of(&fleet.node("hand-2").await, &fleet.key()).to_string(), "2.O 1.0 1.0 1.0");
        assert_eq!(fleet.story("hand-2"), "+1.0");
        let after: Vec<String> = fleet.running("training", 2).await.iter().map(|pod| uid_of(pod).to_owned()).collect();
        assert_eq!(before, after);
        kubectl(&format!("label node hand-2 {label}=1.0 --overwrite"));
        fleet.runs("hand-2", "1.0").await;
        assert_eq!(fleet.story("hand-2"), "+1.0");

        assert_eq!(fleet.evicted(), [""; 0], "the engine evicts nobody for a label");
        fleet.undisturbed();
    });
}
