//! Nodes that die, vanish, come back; pods that are evicted.

use super::*;

#[tokio::test(start_paused = true)]
async fn machines_register_renew_and_stop_when_killed() {
    let world = world(2);
    world.install(daemon_set("agent", json!({}), json!({})));
    pass(60).await;
    assert_eq!(world.ready("agent"), 2);
    world.kubelets.kill("n2");
    pass(30).await;
    assert_eq!(condition(&world.api.get("nodes", "", "n2").unwrap(), "Ready"), "True", "a silent node looks well for a while");
    pass(40).await;
    let node = world.api.get("nodes", "", "n2").unwrap();
    assert_eq!(condition(&node, "Ready"), "Unknown");
    let taints: Vec<&str> = node["spec"]["taints"].as_array().unwrap().iter().filter_map(|taint| taint["key"].as_str()).collect();
    assert_eq!(taints, ["node.kubernetes.io/unreachable"; 2]);
    assert_eq!(world.ready("agent"), 1);
    assert_eq!(world.kubelets.kernel("n2").unwrap().processes.len(), 1, "processes run on");
    world.kubelets.revive("n2");
    pass(20).await;
    let node = world.api.get("nodes", "", "n2").unwrap();
    assert_eq!(condition(&node, "Ready"), "True");
    assert!(node["spec"]["taints"].as_array().is_none_or(Vec::is_empty), "{}", node["spec"]);
    assert_eq!(world.ready("agent"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_pod_of_a_dead_node_stays_terminating_and_pods_leave_after_five_minutes() {
    let world = world(2);
    world.install(deployment("app", 2, json!({}), json!({})));
    pass(30).await;
    let victim = world.pods("app").iter().find(|pod| pod["spec"]["nodeName"] == "n1").map(|pod| name(pod)).unwrap();
    world.kubelets.kill("n1");
    pass(420).await;
    let pod = world.api.get("pods", "default", &victim).unwrap();
    assert!(!pod["metadata"]["deletionTimestamp"].is_null());
    assert_eq!(world.ready("app"), 2, "replaced elsewhere");
    world.kubelets.revive("n1");
    pass(20).await;
    assert!(world.api.get("pods", "default", &victim).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_deleted_node_loses_its_pods_and_may_come_back_in_the_same_boot() {
    let world = world(1);
    world.install(deployment("app", 1, json!({}), json!({})));
    pass(30).await;
    let boot = world.kubelets.kernel("n1").unwrap().boot_id;
    world.delete("/api/v1/nodes/n1", json!({})).await;
    pass(120).await;
    assert!(world.pods("app").iter().all(|pod| pod["spec"]["nodeName"].is_null()), "pod GC took the bound one");
    assert!(world.api.get("nodes", "", "n1").is_none(), "a running kubelet does not register twice");
    world.kubelets.register("n1");
    pass(30).await;
    let node = world.api.get("nodes", "", "n1").unwrap();
    assert_eq!(node["status"]["nodeInfo"]["bootID"], boot.as_str());
    assert_eq!(world.ready("app"), 1);
}

#[tokio::test(start_paused = true)]
async fn cordon_keeps_ordinary_pods_away_and_lets_daemons_in() {
    let world = world(1);
    pass(10).await;
    world.patch("/api/v1/nodes/n1", json!({"spec": {"unschedulable": true}})).await;
    pass(2).await;
    world.install(daemon_set("agent", json!({}), json!({})));
    world.install(deployment("app", 1, json!({}), json!({})));
    pass(30).await;
    assert_eq!((world.ready("agent"), world.ready("app")), (1, 0));
    let pod = &world.pods("app")[0];
    assert_eq!(condition(pod, "PodScheduled"), "False");
    world.patch("/api/v1/nodes/n1", json!({"spec": {"unschedulable": null}})).await;
    pass(10).await;
    assert_eq!(world.ready("app"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_late_binding_lands_on_a_node_cordoned_meanwhile() {
    let mut options = ControllerOptions::default();
    options.scheduler.late_permille = 1000;
    let world = world_with(1, 1, KubeletOptions::default(), options);
    pass(10).await;
    world.install(deployment("app", 1, json!({}), json!({})));
    pass(5).await;
    assert_eq!(world.pods("app")[0]["status"]["nominatedNodeName"], "n1");
    world.patch("/api/v1/nodes/n1", json!({"spec": {"unschedulable": true}})).await;
    pass(240).await;
    assert_eq!(world.pods("app")[0]["spec"]["nodeName"], "n1");
    assert_eq!(world.ready("app"), 1);
}

#[tokio::test(start_paused = true)]
async fn pressure_fails_a_daemon_pod_and_a_new_one_comes() {
    let world = world(1);
    world.install(daemon_set("agent", json!({}), json!({})));
    pass(30).await;
    let pod = name(&world.pods("agent")[0]);
    world.kubelets.pressure_evict("n1", &format!("default/{pod}"));
    pass(30).await;
    let pods = world.pods("agent");
    assert_eq!((pods.len(), world.ready("agent")), (1, 1));
    assert_ne!(name(&pods[0]), pod);
}
