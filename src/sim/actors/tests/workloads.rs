//! DaemonSets, Deployments, StatefulSets, budgets, garbage.

use super::*;

#[tokio::test(start_paused = true)]
async fn on_delete_replaces_a_pod_by_the_current_template_only_when_it_is_gone() {
    let world = world(2);
    world.install(daemon_set("agent", sim(&[("stop-seconds", "20")]), json!({})));
    pass(30).await;
    let path = "/apis/apps/v1/namespaces/default/daemonsets/agent";
    world.patch(path, json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "new"}]}}}})).await;
    pass(30).await;
    let set = world.api.get("daemonsets.apps", "default", "agent").unwrap();
    assert_eq!(set["status"]["observedGeneration"], set["metadata"]["generation"]);
    // Zero is left out.
    assert_eq!((&set["status"]["numberReady"], &set["status"]["updatedNumberScheduled"]), (&json!(2), &json!(null)));
    assert_eq!(world.api.list("controllerrevisions.apps").len(), 2);
    let old = name(&world.pods("agent")[0]);
    world.delete(&format!("/api/v1/namespaces/default/pods/{old}"), json!({})).await;
    pass(10).await;
    assert_eq!(world.pods("agent").len(), 2, "no successor beside a pod that is going");
    pass(30).await;
    let set = world.api.get("daemonsets.apps", "default", "agent").unwrap();
    assert_eq!((&set["status"]["numberReady"], &set["status"]["updatedNumberScheduled"]), (&json!(2), &json!(1)));
    // A rollback uses the old revision again, with a higher number.
    world.patch(path, json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}})).await;
    pass(5).await;
    let set = world.api.get("daemonsets.apps", "default", "agent").unwrap();
    assert_eq!(set["status"]["updatedNumberScheduled"], 1);
    let revisions = world.api.list("controllerrevisions.apps");
    assert_eq!(revisions.iter().map(|r| r["revision"].as_i64().unwrap()).max(), Some(3));
    assert_eq!(revisions.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_rolling_update_takes_one_node_at_a_time() {
    let world = world(3);
    let mut set = daemon_set("agent", json!({}), json!({}));
    set["spec"]["updateStrategy"] = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}});
    world.install(set);
    pass(30).await;
    assert_eq!(world.ready("agent"), 3);
    let path = "/apis/apps/v1/namespaces/default/daemonsets/agent";
    world.patch(path, json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "new"}]}}}})).await;
    for _ in 0..60 {
        pass(1).await;
        assert!(world.ready("agent") >= 2);
    }
    let set = world.api.get("daemonsets.apps", "default", "agent").unwrap();
    assert_eq!((&set["status"]["numberReady"], &set["status"]["updatedNumberScheduled"]), (&json!(3), &json!(3)));
}

#[tokio::test(start_paused = true)]
async fn budgets_count_by_scale_and_evictions_are_refused_when_spent() {
    let world = world(2);
    world.install(deployment("app", 3, json!({}), json!({})));
    world.install(budget(json!({"maxUnavailable": 1})));
    pass(30).await;
    let status = |world: &World| world.api.get("poddisruptionbudgets.policy", "default", "app").unwrap()["status"].clone();
    let known = status(&world);
    assert_eq!(
        (&known["expectedPods"], &known["desiredHealthy"], &known["currentHealthy"], &known["disruptionsAllowed"]),
        (&json!(3), &json!(2), &json!(3), &json!(1))
    );
    let pods: Vec<String> = world.pods("app").iter().map(|pod| name(pod)).collect();
    let evict = |pod: String| {
        let client = world.client.clone();
        async move {
            let body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": "default"}});
            let request = http::Request::post(format!("/api/v1/namespaces/default/pods/{pod}/eviction"))
                .header("content-type", "application/json");
            client.request::<Value>(request.body(body.to_string().into_bytes()).unwrap()).await
        }
    };
    evict(pods[0].clone()).await.unwrap();
    assert!(matches!(evict(pods[1].clone()).await, Err(kube::Error::Api(status)) if status.code == 429));
    pass(30).await;
    assert_eq!(status(&world)["disruptionsAllowed"], 1);
    assert!(status(&world)["disruptedPods"].as_object().is_none_or(serde_json::Map::is_empty));
    assert_eq!(world.ready("app"), 3);
}

#[tokio::test(start_paused = true)]
async fn a_budget_over_pods_without_a_scale_fails_to_sync() {
    let world = world(1);
    world.install(daemon_set("app", json!({}), json!({})));
    world.install(budget(json!({"maxUnavailable": 1})));
    pass(30).await;
    let budget = world.api.get("poddisruptionbudgets.policy", "default", "app").unwrap();
    assert_eq!(
        (&budget["status"]["conditions"][0]["reason"], &budget["status"]["disruptionsAllowed"]),
        (&json!("SyncFailed"), &json!(0))
    );
}

#[tokio::test(start_paused = true)]
async fn a_stateful_set_brings_the_same_name_back_with_a_new_uid_elsewhere() {
    let world = world(2);
    let mut set = deployment("db", 2, json!({}), json!({}));
    set["kind"] = json!("StatefulSet");
    set["spec"]["serviceName"] = json!("db");
    world.install(set);
    pass(30).await;
    let before = world.api.get("pods", "default", "db-0").unwrap();
    let node = before["spec"]["nodeName"].as_str().unwrap().to_owned();
    world.patch(&format!("/api/v1/nodes/{node}"), json!({"spec": {"unschedulable": true}})).await;
    world.delete("/api/v1/namespaces/default/pods/db-0", json!({})).await;
    pass(30).await;
    let after = world.api.get("pods", "default", "db-0").unwrap();
    assert_ne!(after["metadata"]["uid"], before["metadata"]["uid"]);
    assert_ne!(after["spec"]["nodeName"], before["spec"]["nodeName"]);
    assert_eq!(world.ready("db"), 2);
}

#[tokio::test(start_paused = true)]
async fn dependents_go_with_their_owners_in_every_propagation() {
    let world = world(1);
    for (name, policy) in [("back", "Background"), ("fore", "Foreground"), ("kept", "Orphan")] {
        world.install(deployment(name, 2, json!({}), json!({})));
        pass(20).await;
        assert_eq!(world.ready(name), 2);
        world.delete(&format!("/apis/apps/v1/namespaces/default/deployments/{name}"), json!({"propagationPolicy": policy})).await;
        pass(20).await;
        assert!(world.api.get("deployments.apps", "default", name).is_none(), "{policy}");
        assert_eq!(world.ready(name), if policy == "Orphan" { 2 } else { 0 }, "{policy}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_runs_to_completion_and_a_namespace_goes_with_its_contents() {
    let world = world(1);
    world.install(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "work"}}));
    let template = json!({"metadata": {"annotations": sim(&[("exit-after-seconds", "3")])}, "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    world.install(json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "once", "namespace": "work"}, "spec": {"template": template}}));
    let mut app = deployment("app", 1, json!({}), json!({}));
    app["metadata"]["namespace"] = json!("work");
    world.install(app);
    pass(30).await;
    let job = world.api.get("jobs.batch", "work", "once").unwrap();
    assert_eq!(condition(&job, "Complete"), "True");
    world.delete("/api/v1/namespaces/work", json!({})).await;
    pass(60).await;
    assert!(world.api.get("namespaces", "", "work").is_none());
    assert!(world.api.list("pods").is_empty());
}
