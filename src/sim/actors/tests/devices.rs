//! Loaders, plugins, claimants and unload pods over the toy kernel.

use super::*;

/// Nodes with version 1 in service and `apps` claimants running.
async fn in_service(nodes: usize, apps: usize) -> World {
    let world = world(nodes);
    module(&world, "1");
    world.install(claimants(apps));
    pass(5).await;
    for node in 1..=nodes {
        label(&world, &format!("n{node}"), json!({"loader": "1", "plugin": "1"})).await;
    }
    pass(60).await;
    world
}

fn unload_pod(node: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "unload", "namespace": "default",
            "annotations": sim(&[("behaviour", "unload"), ("module", "gpu"), ("version", "1")])},
        "spec": {"nodeName": node, "nodeSelector": {"nonce": "x"}, "restartPolicy": "Never", "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "c", "image": "i"}]}})
}

#[tokio::test(start_paused = true)]
async fn a_plugin_waits_for_its_module_and_claimants_follow() {
    let world = in_service(2, 4).await;
    assert_eq!((world.ready("loader-1"), world.ready("plugin-1"), world.ready("app")), (2, 2, 4));
    let kernel = world.kubelets.kernel("n1").unwrap();
    assert_eq!(kernel.modules["gpu"], "1");
    assert_eq!(world.allocatable("n1", "vendor.com/gpu"), "4");
    let other = world.kubelets.kernel("n2").unwrap();
    assert_eq!(kernel.users_of("gpu").len() + other.users_of("gpu").len(), 4);
    assert_eq!(happened(&world, |what| matches!(what, What::ProviderWithoutModule { .. })), 0);
    assert!(causes(&world).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_plugin_taken_away_under_a_claimant_is_a_disruption_and_allocatable_follows_late() {
    let world = in_service(1, 2).await;
    label(&world, "n1", json!({"plugin": null})).await;
    pass(4).await;
    assert!(!world.kubelets.serves("n1", &gpu()));
    pass(20).await;
    assert_eq!(world.allocatable("n1", "vendor.com/gpu"), "0");
    assert_eq!(causes(&world), [Cause::PluginGone, Cause::PluginGone]);
}

#[tokio::test(start_paused = true)]
async fn unload_says_in_use_until_plugin_and_claimants_are_gone() {
    let world = in_service(1, 1).await;
    label(&world, "n1", json!({"loader": null, "nonce": "x"})).await;
    pass(10).await;
    assert_eq!(world.kubelets.kernel("n1").unwrap().modules["gpu"], "1", "a loader never unloads on TERM");
    world.install(unload_pod("n1"));
    pass(10).await;
    let pod = world.api.get("pods", "default", "unload").unwrap();
    assert_eq!(pod["status"]["phase"], "Failed");
    let state = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!(state["exitCode"], 1);
    assert!(state["message"].as_str().unwrap().contains("in use"), "{state}");
    world.delete("/api/v1/namespaces/default/pods/unload", json!({})).await;
    world.patch("/apis/apps/v1/namespaces/default/deployments/app", json!({"spec": {"replicas": 0}})).await;
    pass(10).await;
    label(&world, "n1", json!({"plugin": null})).await;
    pass(20).await;
    world.install(unload_pod("n1"));
    pass(10).await;
    let pod = world.api.get("pods", "default", "unload").unwrap();
    assert_eq!(pod["status"]["phase"], "Succeeded");
    assert!(world.kubelets.kernel("n1").unwrap().modules.is_empty());
    assert!(causes(&world).is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_kubelet_refuses_a_pod_whose_selector_does_not_match() {
    let world = in_service(1, 0).await;
    world.install(unload_pod("n1"));
    pass(5).await;
    let pod = world.api.get("pods", "default", "unload").unwrap();
    assert_eq!((&pod["status"]["phase"], &pod["status"]["reason"]), (&json!("Failed"), &json!("NodeAffinity")));
    assert_eq!(world.kubelets.kernel("n1").unwrap().modules["gpu"], "1");
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_that_asks_for_labels_takes_what_was_bound_by_those_that_it_was_not_told() {
    for asks in [false, true] {
        let world = in_service(1, 0).await;
        let never = crate::sim::actors::Range::millis(3_600_000, 3_600_000);
        world.kubelets.set_options(|options| (options.label_lag, options.asks_for_labels) = (never, asks));
        label(&world, "n1", json!({"plugin": null, "nonce": "x"})).await;
        pass(20).await;
        world.install(unload_pod("n1"));
        pass(10).await;
        let pod = world.api.get("pods", "default", "unload").unwrap();
        assert_eq!(pod["status"]["phase"], if asks { "Succeeded" } else { "Failed" }, "{pod}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_loader_of_another_version_fails_beside_a_loaded_module() {
    let world = in_service(1, 0).await;
    module(&world, "2");
    label(&world, "n1", json!({"loader": "2", "plugin": "2"})).await;
    pass(60).await;
    assert_eq!(world.kubelets.kernel("n1").unwrap().modules["gpu"], "1");
    assert_eq!((world.ready("loader-2"), world.ready("plugin-2")), (0, 0));
    let loader = &world.pods("loader-2")[0];
    assert_eq!(loader["status"]["containerStatuses"][0]["state"]["waiting"]["reason"], "CrashLoopBackOff");
    assert!(
        loader["status"]["containerStatuses"][0]["lastState"]["terminated"]["message"]
            .as_str()
            .unwrap()
            .contains("already loaded in version 1")
    );
    assert!(happened(&world, |what| matches!(what, What::LoadRefused { .. })) > 1);
}

#[tokio::test(start_paused = true)]
async fn after_a_reboot_loader_and_plugin_start_together_and_claimants_fail_admission() {
    let world = in_service(2, 8).await;
    let before = world.kubelets.kernel("n1").unwrap().boot_id;
    world.kubelets.reboot_in("n1", Duration::from_secs(20));
    pass(10).await;
    assert!(world.kubelets.kernel("n1").unwrap().modules.is_empty());
    let node = world.api.get("nodes", "", "n1").unwrap();
    assert_eq!(node["status"]["nodeInfo"]["bootID"], before.as_str(), "nobody reports while the machine is down");
    assert!(world.pods("loader-1").iter().all(|pod| condition(pod, "Ready") == "True"), "and stale Ready stays");
    pass(60).await;
    let node = world.api.get("nodes", "", "n1").unwrap();
    assert_ne!(node["status"]["nodeInfo"]["bootID"], before.as_str());
    assert_eq!(condition(&node, "Ready"), "True");
    let failed = world.pods("app").iter().filter(|pod| pod["status"]["reason"] == "UnexpectedAdmissionError").count();
    assert!(failed == 4, "claimants met no device plugin");
    assert_eq!((world.ready("loader-1"), world.ready("plugin-1"), world.ready("app")), (2, 2, 8));
    assert_eq!(world.pods("loader-1").iter().filter(|pod| pod["status"]["containerStatuses"][0]["restartCount"] == 1).count(), 1);
    assert!(causes(&world).is_empty(), "a reboot is the scenario's doing");
}

#[tokio::test(start_paused = true)]
async fn a_force_deleted_claimant_runs_on_until_its_grace_ends() {
    let world = world(1);
    module(&world, "1");
    let container = json!([{"name": "c", "image": "i", "resources": {"limits": {"vendor.com/gpu": "1"}}}]);
    world.install(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "app", "namespace": "default", "annotations": sim(&[("stop-seconds", "25")])},
        "spec": {"terminationGracePeriodSeconds": 30, "containers": container}}));
    pass(5).await;
    label(&world, "n1", json!({"loader": "1", "plugin": "1"})).await;
    pass(60).await;
    assert_eq!(world.ready("app"), 1);
    world.delete("/api/v1/namespaces/default/pods/app", json!({"gracePeriodSeconds": 0})).await;
    pass(10).await;
    assert!(world.pods("app").is_empty());
    assert_eq!(world.kubelets.kernel("n1").unwrap().users_of("gpu").len(), 1, "the process still holds the device");
    pass(20).await;
    assert!(world.kubelets.kernel("n1").unwrap().users_of("gpu").is_empty());
}

#[tokio::test(start_paused = true)]
async fn claims_are_made_allocated_used_and_released() {
    let world = world(1);
    let driver = sim(&[("behaviour", "dra-driver"), ("driver", "gpu.vendor.com"), ("devices", "2")]);
    world.install(daemon_set("driver", driver, json!({"nodeSelector": {"dra": "1"}})));
    world.install(json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu"},
        "spec": {"selectors": [{"cel": {"expression": "device.driver == \"gpu.vendor.com\""}}]}}));
    world.install(json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": "gpu", "namespace": "default"},
        "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}}}}));
    let spec = json!({"containers": [{"name": "c", "image": "i", "resources": {"claims": [{"name": "gpu"}]}}],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]});
    world.install(deployment("app", 2, json!({}), spec));
    pass(5).await;
    label(&world, "n1", json!({"dra": "1"})).await;
    pass(30).await;
    assert_eq!(world.ready("app"), 2);
    let claims = world.api.list("resourceclaims.resource.k8s.io");
    assert_eq!(claims.len(), 2);
    assert!(claims.iter().all(|claim| claim["status"]["allocation"]["devices"]["results"][0]["driver"] == "gpu.vendor.com"));
    // Without its driver a pod stays Terminating: claims cannot be unprepared.
    label(&world, "n1", json!({"dra": null})).await;
    pass(10).await;
    assert_eq!(causes(&world), [Cause::DriverGone, Cause::DriverGone]);
    world.patch("/apis/apps/v1/namespaces/default/deployments/app", json!({"spec": {"replicas": 0}})).await;
    pass(40).await;
    assert_eq!(world.pods("app").len(), 2);
    assert!(world.api.list("resourceslices.resource.k8s.io").is_empty(), "slices are wiped after half a minute");
    label(&world, "n1", json!({"dra": "1"})).await;
    pass(60).await;
    assert!(world.pods("app").is_empty());
    assert!(world.api.list("resourceclaims.resource.k8s.io").is_empty());
}
