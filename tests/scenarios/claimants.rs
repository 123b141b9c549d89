//! Claimants that a drain cannot simply evict: each is a blocker with its name and with what to do, and the handoff goes on by itself once
//! that is done.

use lockkeeper::{
    api::keys::Role,
    sim::scenarios::{kernel_module as scenario, objects},
};
use serde_json::{Value, json};

use crate::{
    pods::{bare, claimants, device_user, pinned, pods_of, running, uids},
    stage::{Stage, play},
    trace::Trace,
};

const NODE: &str = "gpu-01";

async fn stage(seed: u64) -> Stage {
    Stage::new(seed, 1).installed().await
}

/// Asks for 2.0, and waits until this blocker is named in the queue, before anything is written to the node.
async fn refused(stage: &Stage, trace: &Trace, kind: &str, object: &str, words: &[&str]) {
    stage.release().await;
    stage.ask(&[NODE.to_owned()]).await;
    stage.names(NODE, kind, object, words).await;
    assert_eq!(stage.phase(NODE), "Queued");
    stage.pass(300).await;
    assert!(
        trace.all("slot ").is_empty() && trace.all("cordon ").is_empty() && stage.runs(NODE, "1.0"),
        "{}",
        trace.lines().join("\n")
    );
}

/// A container that asks for a device, with more of its spec.
fn container(name: &str, more: Value) -> Value {
    let mut container = json!({"name": name, "image": format!("{name}:1"), "resources": {"limits": {scenario::RESOURCE: "1"}}});
    container.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    container
}

#[test]
fn init_containers_and_sidecars_that_ask_for_a_device_make_claimants() {
    play(|| async {
        let stage = stage(101).await;
        let with_init = |app: &str, init: Value| {
            let mut template = objects::template(app, None, 2);
            template["spec"]["initContainers"] = json!([init]);
            objects::deployment("ml", app, 1, template)
        };
        stage
            .apply(&[
                with_init("init", container("prepare", json!({}))),
                with_init("sidecar", container("proxy", json!({"restartPolicy": "Always"}))),
                objects::deployment("ml", "zero", 1, objects::template("zero", Some((scenario::RESOURCE, 0)), 2)),
                objects::deployment("ml", "plain", 1, pinned(objects::template("plain", None, 2), NODE)),
            ])
            .await;
        stage.until("all run", || ["init", "sidecar", "zero", "plain"].iter().all(|app| running(&stage, app) == 1)).await;
        let (engine, trace) = (stage.engine(), Trace::of(&stage));
        stage.release().await;
        stage.ask(&stage.nodes).await;
        stage.until("it is handed over", || stage.is_done(NODE, "2.0")).await;
        let mut evicted = trace.all("evict ");
        evicted.sort();
        assert_eq!(evicted, ["evict ml/init", "evict ml/sidecar"]);
        stage.until("they come back", || ["init", "sidecar"].iter().all(|app| running(&stage, app) == 1)).await;
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn a_static_pod_with_the_device_is_named_with_its_manifest() {
    play(|| async {
        let stage = stage(102).await;
        let mut template = pinned(device_user("static"), NODE);
        template["spec"]["nodeName"] = json!(NODE);
        template["metadata"]["annotations"] =
            json!({"kubernetes.io/config.mirror": "d41d8c", "kubernetes.io/config.source": "file"});
        template["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": stage.node(NODE)["metadata"]["uid"], "controller": true}]);
        stage.apply(&[bare("kube-system", "static-gpu-01", template)]).await;
        stage.until("it runs", || running(&stage, "static") == 1).await;
        let (engine, trace) = (stage.engine(), Trace::of(&stage));
        refused(&stage, &trace, "MirrorPod", "Pod kube-system/static-gpu-01", &["static pod", "Take its manifest off the node"])
            .await;
        assert_eq!(running(&stage, "static"), 1);
        // What the kubelet does when the manifest goes.
        stage.hands.delete("/api/v1/namespaces/kube-system/pods/static-gpu-01").await.unwrap();
        stage.until("it goes on", || stage.is_done(NODE, "2.0")).await;
        assert!(trace.all("evict ").is_empty());
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn a_pod_without_a_controller_needs_consent() {
    play(|| async {
        let stage = stage(103).await;
        stage.apply(&[bare("ml", "pet", device_user("pet"))]).await;
        stage.until("it runs", || running(&stage, "pet") == 1).await;
        let (engine, trace) = (stage.engine(), Trace::of(&stage));
        refused(
            &stage,
            &trace,
            "Unmanaged",
            "Pod ml/pet",
            &["no controller would bring it back", "spec.drain.evictUnmanaged: true"],
        )
        .await;
        stage.spec(json!({"drain": {"evictUnmanaged": true}})).await;
        stage.until("it goes on", || stage.is_done(NODE, "2.0")).await;
        trace.in_order(&["cordon gpu-01", "evict ml/pet", "plugin gpu.gpu-01 1.0 -"]);
        assert!(pods_of(&stage, "pet").is_empty());
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn data_in_an_empty_dir_needs_consent() {
    play(|| async {
        let stage = stage(104).await;
        let mut template = device_user("cache");
        template["spec"]["volumes"] = json!([{"name": "scratch", "emptyDir": {}}]);
        stage.apply(&[objects::deployment("ml", "cache", 1, template)]).await;
        stage.until("it runs", || running(&stage, "cache") == 1).await;
        let (engine, trace) = (stage.engine(), Trace::of(&stage));
        refused(
            &stage,
            &trace,
            "EmptyDir",
            "Pod ml/cache-",
            &["emptyDir data would be lost", "spec.drain.deleteEmptyDirData: true"],
        )
        .await;
        stage.spec(json!({"drain": {"deleteEmptyDirData": true}})).await;
        stage.until("it goes on", || stage.is_done(NODE, "2.0")).await;
        assert_eq!(trace.all("evict "), ["evict ml/cache"]);
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn a_daemon_sets_pod_must_select_the_ready_label_and_then_leaves_and_returns_by_itself() {
    play(|| async {
        let stage = stage(105).await;
        let monitor = || {
            objects::daemon_set(
                "monitoring",
                "monitor",
                json!({"pool": "gpu"}),
                json!({"type": "RollingUpdate"}),
                device_user("monitor"),
            )
        };
        stage.apply(&[monitor()]).await;
        stage.until("it runs", || running(&stage, "monitor") == 1).await;
        let (engine, trace) = (stage.engine(), Trace::of(&stage));
        refused(
            &stage,
            &trace,
            "DaemonSetClaimant",
            "Pod monitoring/monitor-",
            &["DaemonSet monitor", "bring it straight back", "ready label"],
        )
        .await;
        // Its owner does what the blocker says.
        stage.spec(json!({"rollout": {"paused": true}})).await;
        stage.waits(&engine, "gpu", NODE, lockkeeper::handoff::verdict::BlockerKind::Paused, &[]).await;
        stage.hands.delete("/apis/apps/v1/namespaces/monitoring/daemonsets/monitor").await.unwrap();
        stage.until("it is gone", || pods_of(&stage, "monitor").is_empty()).await;
        let ready = Role::Ready.key(&scenario::key());
        stage.apply(&[objects::daemon_set_where_label("monitoring", "monitor", &ready, device_user("monitor"))]).await;
        stage.until("it runs again", || running(&stage, "monitor") == 1).await;
        let before = uids(&stage, "monitor");
        stage.spec(json!({"rollout": {"paused": false}})).await;
        stage.until("it goes on", || stage.is_done(NODE, "2.0")).await;
        // It left when the ready label went, before the plugin did, and came back with it; nobody evicted it.
        trace.in_order(&["ready gpu.gpu-01 1.0 -", "plugin gpu.gpu-01 1.0 -", "ready gpu.gpu-01 - 2.0"]);
        assert!(trace.all("evict ").is_empty());
        stage.until("it is back", || running(&stage, "monitor") == 1).await;
        assert_ne!(uids(&stage, "monitor"), before);
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn a_claimant_whose_object_a_finalizer_keeps_counts_until_its_processes_have_ended() {
    play(|| async {
        let stage = stage(106).await;
        let mut template = device_user("kept");
        template["metadata"]["finalizers"] = json!(["example.com/backup"]);
        template["spec"]["terminationGracePeriodSeconds"] = json!(60);
        template["metadata"]["annotations"] = json!({"sim.lockkeeper.dev/stop-seconds": "55"});
        stage.apply(&[objects::deployment("ml", "kept", 1, template)]).await;
        stage.until("it runs", || running(&stage, "kept") == 1).await;
        let name = pods_of(&stage, "kept")[0]["metadata"]["name"].as_str().unwrap().to_owned();
        let (engine, trace) = (stage.engine(), Trace::of(&stage));
        stage.release().await;
        stage.ask(&stage.nodes).await;
        stage.names(NODE, "Terminating", &format!("Pod ml/{name}"), &["is stopping", "grace period of 60 s ends at"]).await;
        assert_eq!((stage.phase(NODE).as_str(), stage.label(NODE, "plugin").as_deref()), ("Draining", Some("1.0")));
        // Its containers have ended, says its kubelet: what is left is an object. Nobody forces that away.
        stage.until("it goes on", || stage.is_done(NODE, "2.0")).await;
        let left = stage.world.api.get("pods", "ml", &name).expect("the object is still there");
        assert!(matches!(left["status"]["phase"].as_str(), Some("Succeeded" | "Failed")), "{}", left["status"]);
        assert_eq!(trace.all("evict ").len(), 1, "evicted again, or its replacement was");
        assert!(trace.all("delete ml/").is_empty());
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn claimants_on_a_node_that_died_count_until_it_is_back_or_has_rebooted() {
    for reboot in [false, true] {
        play(|| async move {
            let stage = stage(107).await;
            let mut template = device_user("app");
            template["spec"]["terminationGracePeriodSeconds"] = json!(20);
            template["metadata"]["annotations"] = json!({"sim.lockkeeper.dev/stop-seconds": "15"});
            stage.apply(&[objects::deployment("ml", "app", 1, template)]).await;
            stage.until("it runs", || running(&stage, "app") == 1).await;
            let name = pods_of(&stage, "app")[0]["metadata"]["name"].as_str().unwrap().to_owned();
            let (engine, trace) = (stage.engine(), Trace::of(&stage));
            stage.release().await;
            stage.ask(&stage.nodes).await;
            stage.until("it is being evicted", || !trace.all("evict ").is_empty()).await;
            stage.world.kubelets.kill(NODE);
            stage
                .names(
                    NODE,
                    "Terminating",
                    &format!("Pod ml/{name}"),
                    &["not Ready", "Bring the node back or reboot it", "forced deletion would only hide"],
                )
                .await;
            // Somebody forces it all the same: the object is gone, the process is not.
            stage.hands.delete(&format!("/api/v1/namespaces/ml/pods/{name}?gracePeriodSeconds=0")).await.unwrap();
            stage.names(NODE, "NodeNotReady", NODE, &["not Ready", "new boot ID"]).await;
            stage.pass(120).await;
            assert_eq!(
                stage.label(NODE, "plugin").as_deref(),
                Some("1.0"),
                "the plugin was stopped under a process that may run"
            );
            if reboot {
                stage.world.kubelets.reboot(NODE);
            } else {
                stage.world.kubelets.revive(NODE);
            }
            stage.until("it goes on", || stage.is_done(NODE, "2.0")).await;
            assert_eq!(trace.all("evict ").len(), 1);
            let report = stage.world.report_at_rest();
            assert!(report.violations.is_empty(), "{:#?}", report.violations);
            engine.stop().await;
        });
    }
}

#[test]
fn a_replacement_that_minds_no_cordon_is_not_chased_but_named() {
    play(|| async {
        let stage = stage(108).await;
        let mut template = pinned(device_user("eager"), NODE);
        template["spec"]["tolerations"] = json!([{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]);
        stage.apply(&[objects::deployment("ml", "eager", 1, template)]).await;
        stage.until("it runs", || running(&stage, "eager") == 1).await;
        let (engine, trace) = (stage.engine(), Trace::of(&stage));
        stage.release().await;
        stage.ask(&stage.nodes).await;
        stage
            .names(
                NODE,
                "EvictionRefused",
                "Pod ml/eager-",
                &["made by ReplicaSet", "after the drain began", "tolerates the cordon", "Take the toleration off"],
            )
            .await;
        stage.pass(300).await;
        assert_eq!(trace.all("evict ").len(), 1, "the replacement was chased");
        stage.hands.merge("/apis/apps/v1/namespaces/ml/deployments/eager", &json!({"spec": {"replicas": 0}})).await.unwrap();
        stage.until("it goes on", || stage.is_done(NODE, "2.0")).await;
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn two_budgets_over_one_pod_are_both_named_before_anything_is_written() {
    play(|| async {
        let stage = stage(109).await;
        let mut other = objects::budget("ml", "app", "maxUnavailable", json!(1));
        other.body["metadata"]["name"] = json!("second");
        stage.apply(&[claimants("app", 1), objects::budget("ml", "app", "maxUnavailable", json!(1)), other]).await;
        stage.until("it runs", || running(&stage, "app") == 1).await;
        let (engine, trace) = (stage.engine(), Trace::of(&stage));
        refused(&stage, &trace, "DisruptionBudgetNever", "", &["ml/app", "ml/second"]).await;
        stage.hands.delete("/apis/policy/v1/namespaces/ml/poddisruptionbudgets/second").await.unwrap();
        stage.until("it goes on", || stage.is_done(NODE, "2.0")).await;
        assert_eq!(trace.all("evict "), ["evict ml/app"]);
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn everything_that_speaks_against_it_is_said_at_once() {
    play(|| async {
        let stage = stage(110).await;
        let mut cache = device_user("cache");
        cache["spec"]["volumes"] = json!([{"name": "scratch", "emptyDir": {"medium": "Memory"}}]);
        stage
            .apply(&[
                bare("ml", "pet", device_user("pet")),
                objects::deployment("ml", "cache", 1, cache),
                claimants("tight", 1),
                objects::budget("ml", "tight", "maxUnavailable", json!(0)),
            ])
            .await;
        stage.until("all run", || ["pet", "cache", "tight"].iter().all(|app| running(&stage, app) == 1)).await;
        let (engine, trace) = (stage.engine(), Trace::of(&stage));
        refused(&stage, &trace, "Unmanaged", "Pod ml/pet", &[]).await;
        assert!(stage.named(NODE, "EmptyDir", "Pod ml/cache-", &[]), "{:?}", stage.blockers(NODE));
        assert!(stage.named(NODE, "DisruptionBudgetNever", "ml/tight", &["allows 0"]), "{:?}", stage.blockers(NODE));
        assert!(engine.pictures().borrow().fleet.synced);
        stage.clean();
        engine.stop().await;
    });
}
