//! What the monitor makes of KMM's doings: whose order it was, shown by somebody who acts under an engine's name and by others.

use std::{sync::Arc, time::Duration};

use serde_json::json;

use crate::sim::{
    apiserver::faults::{Action, Fault, Faults, Matcher},
    demo::{DemoOptions, Scenario, kmm as demo},
    monitor::Report,
    people::{hands::Hands, kmm::label},
    scenarios::kmm::{self as scenario, GPU, NAMESPACE},
    world::{ENGINE, Profile, World, WorldOptions},
};

/// Four nodes with version 1.0, one of them with a DRA driver, and pods that hold devices.
async fn fleet() -> Arc<World> {
    let options = DemoOptions {
        scenario: Scenario::Kmm,
        seed: 1,
        faults: Profile::None,
        baseline: None,
        nodes: 4,
        pods_per_node: 1,
        keep_log: false,
        tell: false,
    };
    let mut world_options = WorldOptions::new(1);
    demo::furnish(&mut world_options);
    let world = Arc::new(World::start(&world_options, &scenario::cluster(4)));
    let hands = world.hands("operator");
    demo::set_up(&world, &hands, &options).await.unwrap();
    for part in scenario::PARTS {
        hands.create(&part.component(1)).await.unwrap();
    }
    let report = world.report();
    assert_eq!((report.violations.len(), report.disruptions, report.disruptions_by_others), (0, 0, 0), "{report:?}");
    world
}

/// Nodes of the device plugin on which pods hold devices.
fn taken(world: &World) -> Vec<String> {
    let holds = |node: &String| world.kubelets.kernel(node).is_some_and(|kernel| !kernel.users_of(GPU.name).is_empty());
    GPU.node_names(4).into_iter().filter(holds).collect()
}

async fn after(world: &World) -> Report {
    tokio::time::sleep(Duration::from_secs(60)).await;
    world.report()
}

fn broken(report: &Report) -> Vec<&'static str> {
    let mut kinds: Vec<&'static str> = report.violations.iter().map(|violation| violation.invariant).collect();
    kinds.dedup();
    kinds
}

/// What an engine's name does that nobody may: it needs no Lease here, and is told so.
fn engine(world: &World) -> Hands {
    world.hands(ENGINE)
}

#[tokio::test(start_paused = true)]
async fn a_label_of_a_person_is_the_persons_doing_and_a_label_of_the_engine_is_the_engines() {
    let world = fleet().await;
    let taken = taken(&world);
    label(&world.hands("operator"), GPU, &taken[0], None).await.unwrap();
    let report = after(&world).await;
    assert!(report.disruptions == 0 && report.disruptions_by_others > 0, "{report:?}");
    assert!(report.others.keys().any(|what| what.contains("operator changed the version label")), "{report:?}");
    assert!(report.violations.is_empty(), "{report:?}");
    label(&engine(&world), GPU, &taken[1], None).await.unwrap();
    let report = after(&world).await;
    assert!(report.disruptions > 0, "{report:?}");
    assert!(broken(&report).contains(&"I6"), "no handoff asked for it: {report:?}");
}

#[tokio::test(start_paused = true)]
async fn a_version_that_the_module_has_not_is_an_engines_mistake() {
    let world = fleet().await;
    label(&engine(&world), GPU, &taken(&world)[0], Some("9.9")).await.unwrap();
    let report = after(&world).await;
    assert!(broken(&report).contains(&"I11") && report.disruptions > 0, "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn a_cordon_that_kmm_does_not_tolerate_is_the_doing_of_who_made_it() {
    for (name, by_engine) in [("colleague", false), (ENGINE, true)] {
        let world = fleet().await;
        world.hands("operator").merge(&GPU.module_path(), &json!({"spec": {"tolerations": null}})).await.unwrap();
        tokio::time::sleep(Duration::from_secs(120)).await;
        // The edit made the drivers start again: those who lost their devices by that start again too.
        for pod in world.api.list("pods").iter().filter(|pod| pod["metadata"]["namespace"] == "ml") {
            let name = pod["metadata"]["name"].as_str().unwrap();
            world.hands("operator").delete(&format!("/api/v1/namespaces/ml/pods/{name}")).await.unwrap();
        }
        tokio::time::sleep(Duration::from_secs(120)).await;
        let before = world.report();
        let annotations = json!({crate::api::keys::CORDON: by_engine.then_some("{}")});
        let body = json!({"metadata": {"annotations": annotations}, "spec": {"unschedulable": true}});
        world.hands(name).merge(&format!("/api/v1/nodes/{}", taken(&world)[0]), &body).await.unwrap();
        let report = after(&world).await;
        let counted = (report.disruptions > before.disruptions, report.disruptions_by_others > before.disruptions_by_others);
        assert_eq!(counted, (by_engine, !by_engine), "{name}: {report:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn of_kmms_things_an_engine_writes_the_version_label_alone() {
    let world = fleet().await;
    let engine = engine(&world);
    let node = "/api/v1/nodes/gpu-01";
    let writes = [
        (GPU.module_path(), json!({"spec": {"tolerations": []}})),
        ("/apis/kmm.sigs.x-k8s.io/v1beta1/nodemodulesconfigs/gpu-01".to_owned(), json!({"metadata": {"labels": {"a": "b"}}})),
        (node.to_owned(), json!({"metadata": {"labels": {GPU.schedule_key(): null}}})),
        (node.to_owned(), json!({"metadata": {"labels": {"pool": "other"}}})),
        (node.to_owned(), json!({"metadata": {"annotations": {"example.com/note": "x"}}})),
    ];
    for (n, (path, body)) in writes.iter().enumerate() {
        engine.merge(path, body).await.unwrap();
        let found = world.report().violations.iter().filter(|violation| violation.invariant == "I12").count();
        assert_eq!(found, n + 1, "{path}: {:?}", world.report().violations);
    }
    let pods = world.api.list("pods");
    let elsewhere = |pod: &&Arc<serde_json::Value>| {
        pod["metadata"]["labels"]["kmm.node.kubernetes.io/role"] == "device-plugin" && pod["spec"]["nodeName"] == "gpu-02"
    };
    let plugin = pods.iter().find(elsewhere).unwrap();
    let name = plugin["metadata"]["name"].as_str().unwrap();
    engine.delete(&format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}")).await.unwrap();
    let found = world.report().violations.iter().filter(|violation| violation.invariant == "I12").count();
    assert!(found > writes.len(), "{:?}", world.report().violations);
}

#[tokio::test(start_paused = true)]
async fn what_a_load_that_was_cut_off_leaves_is_the_doing_of_who_cut_it() {
    let world = fleet().await;
    let hands = world.hands("operator");
    // Nobody is in the way of the unload.
    for app in ["deployments/training-1", "deployments/training-2", "statefulsets/inference"] {
        hands.delete(&format!("/apis/apps/v1/namespaces/ml/{app}")).await.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    hands.merge(&GPU.module_path(), &GPU.release(scenario::NEW)).await.unwrap();
    label(&hands, GPU, "gpu-01", Some(scenario::NEW)).await.unwrap();
    let loads =
        || world.kubelets.kernel("gpu-01").is_some_and(|kernel| kernel.modules.get("gpu").is_some_and(|it| it == scenario::NEW));
    while !loads() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // The module is in, the worker not through.
    label(&hands, GPU, "gpu-01", None).await.unwrap();
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(loads(), "nobody unloads what counts as never loaded");
    hands.merge(&GPU.module_path(), &GPU.release(scenario::OLD)).await.unwrap();
    label(&hands, GPU, "gpu-01", Some(scenario::OLD)).await.unwrap();
    let report = after(&world).await;
    assert!(report.violations.is_empty(), "{report:?}");
    assert!(report.others.keys().any(|what| what.contains("a load that was cut off")), "{report:?}");
}

/// An engine's eviction, held up for 5 s on its way, while the handoff ends after so many.
async fn evicted_late(ends_after: u64) -> Report {
    let world = fleet().await;
    let node = taken(&world).remove(0);
    let (operator, engine) = (world.hands("operator"), engine(&world));
    let handoffs = format!("/apis/lockkeeper.dev/v1alpha1/namespaces/{NAMESPACE}/nodehandoffs");
    let name = format!("gpu.{node}");
    let body = json!({"apiVersion": "lockkeeper.dev/v1alpha1", "kind": "NodeHandoff", "metadata": {"name": name},
        "spec": {"component": "gpu", "node": node, "requestedBy": "operator"}});
    operator.send(http::Method::POST, &handoffs, "application/json", Some(&body)).await.unwrap();
    let phase = |phase: &str| json!({"status": {"phase": phase, "phaseSince": world.api.now().to_string()}});
    let status = format!("{handoffs}/{name}/status");
    operator.merge(&status, &phase("Draining")).await.unwrap();
    let pods = world.api.list("pods");
    let user = pods.iter().find(|pod| pod["spec"]["nodeName"] == node.as_str() && pod["metadata"]["namespace"] == "ml").unwrap();
    let pod = user["metadata"]["name"].as_str().unwrap();
    let slow = Fault::once(Matcher::writes().client(ENGINE), Action::Delay(Duration::from_secs(5)));
    world.api.set_faults(Box::new(Faults::new(1, vec![slow])));
    let (path, eviction) = (
        format!("/api/v1/namespaces/ml/pods/{pod}/eviction"),
        json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": "ml"}}),
    );
    let end = async {
        tokio::time::sleep(Duration::from_secs(ends_after)).await;
        operator.merge(&status, &phase("Failed")).await.unwrap();
        tokio::time::sleep(Duration::from_secs(2)).await;
    };
    match ends_after {
        // It has ended when the eviction is sent.
        0 => {
            end.await;
            engine.send(http::Method::POST, &path, "application/json", Some(&eviction)).await.unwrap();
        }
        _ => {
            let (sent, ()) = tokio::join!(engine.send(http::Method::POST, &path, "application/json", Some(&eviction)), end);
            sent.unwrap();
        }
    }
    after(&world).await
}

#[tokio::test(start_paused = true)]
async fn an_eviction_counts_from_when_it_was_sent_however_late_it_is_carried_out() {
    assert_eq!(broken(&evicted_late(3).await), Vec::<&str>::new());
    assert_eq!(broken(&evicted_late(0).await), ["I6"]);
}
