//! Devices held by ResourceClaims: exactly the claimants of this driver on this node leave, in whatever form they hold it.

use std::collections::BTreeMap;

use lockkeeper::sim::scenarios::{
    dra::{self, BY_NAME, BY_TEMPLATE, DRIVER},
    kernel_module::{NAME, NAMESPACE},
    objects,
};
use serde_json::{Value, json};

use crate::{
    pods::{bare, node_of, pinned, pods_of, running, uids},
    stage::{Stage, play},
    trace::Trace,
};

/// The component with a DRA driver on these nodes, both drivers there, and consent to move pods without a controller.
async fn stage(seed: u64, nodes: usize) -> Stage {
    let stage = Stage::new(seed, nodes);
    stage.apply(&dra::drivers()).await;
    let mut spec = dra::component_spec("1.0");
    spec["drain"]["evictUnmanaged"] = json!(true);
    stage.installed_as(&objects::component(NAMESPACE, NAME, spec)).await
}

async fn release(stage: &Stage) {
    stage.spec(json!({"version": "2.0", "kernelModule": dra::kernel_module("2.0")})).await;
}

fn gpu(name: &str) -> Value {
    dra::request(name, dra::CLASS)
}

fn nic(name: &str) -> Value {
    dra::request(name, dra::OTHER_CLASS)
}

/// An extended resource that the driver serves by a claim, as the scheduler writes it down.
async fn extended(stage: &Stage, node: &str) {
    let resource = "deviceclass.resource.kubernetes.io/gpu";
    let mut template = objects::template("extended", Some((resource, 1)), 2);
    template["spec"]["schedulerName"] = json!("by-hand");
    stage.apply(&[bare("ml", "extended", template)]).await;
    let pod = stage.hands.get("/api/v1/namespaces/ml/pods/extended").await.unwrap();
    let uid = pod["metadata"]["uid"].as_str().unwrap();
    let mut claim = dra::claim("ml", "extended-extended-resources-1", json!([gpu("container-0-request-0")]));
    claim.body["metadata"]["annotations"] = json!({"resource.kubernetes.io/extended-resource-claim": "true"});
    claim.body["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "Pod", "name": "extended", "uid": uid, "controller": true, "blockOwnerDeletion": true}]);
    stage.apply(&[claim]).await;
    let status = json!({"status": {
        "allocation": {
            "devices": {"results": [{"request": "container-0-request-0", "driver": DRIVER, "pool": node, "device": "extended"}]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]},
        },
        "reservedFor": [{"resource": "pods", "name": "extended", "uid": uid}],
    }});
    let path = "/apis/resource.k8s.io/v1/namespaces/ml/resourceclaims/extended-extended-resources-1/status";
    stage.hands.merge(path, &status).await.unwrap();
    let status = json!({"status": {"extendedResourceClaimStatus": {
        "resourceClaimName": "extended-extended-resources-1",
        "requestMappings": [{"containerName": "main", "resourceName": resource, "requestName": "container-0-request-0"}],
    }}});
    stage.hands.merge("/api/v1/namespaces/ml/pods/extended/status", &status).await.unwrap();
    bind(stage, "extended", node).await;
}

/// What a scheduler does in the end.
async fn bind(stage: &Stage, pod: &str, node: &str) {
    let body = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod, "namespace": "ml"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node}});
    let path = format!("/api/v1/namespaces/ml/pods/{pod}/binding");
    stage.hands.send(http::Method::POST, &path, "application/json", Some(&body)).await.unwrap();
}

/// Reservations of claims for pods of the node, by claim.
fn reserved(stage: &Stage, driver: &str) -> BTreeMap<String, usize> {
    let claims = stage.world.api.list("resourceclaims.resource.k8s.io");
    let of_driver = claims.iter().filter(|claim| claim["status"]["allocation"].to_string().contains(driver));
    of_driver
        .map(|claim| {
            let holders = claim["status"]["reservedFor"].as_array().map_or(0, Vec::len);
            (claim["metadata"]["name"].as_str().unwrap_or_default().to_owned(), holders)
        })
        .collect()
}

#[test]
fn every_form_of_claim_makes_a_claimant_and_nobody_else_is_moved() {
    play(|| async {
        let stage = stage(61, 2).await;
        let (node, other) = (stage.nodes[0].clone(), stage.nodes[1].clone());
        let mut admin = gpu("look");
        admin["exactly"]["adminAccess"] = json!(true);
        let sub = json!({"name": "any", "firstAvailable": [{"name": "best", "deviceClassName": dra::CLASS}, {"name": "else", "deviceClassName": dra::OTHER_CLASS}]});
        let deployment = |app: &str, replicas, how, claim: &str, on: &str| {
            objects::deployment("ml", app, replicas, pinned(dra::holder(app, how, claim, 2), on))
        };
        stage
            .apply(&[
                dra::claim("ml", "direct", json!([gpu("one")])),
                dra::claim("ml", "shared", json!([gpu("one")])),
                dra::claim("ml", "admin", json!([admin])),
                dra::claim("ml", "several", json!([nic("net"), gpu("compute")])),
                dra::claim("ml", "subrequest", json!([sub])),
                dra::claim("ml", "foreign", json!([nic("net")])),
                dra::claim("ml", "far", json!([gpu("one")])),
                dra::claim_template("ml", "gpu", json!([gpu("one")])),
                deployment("direct", 1, BY_NAME, "direct", &node),
                deployment("template", 2, BY_TEMPLATE, "gpu", &node),
                deployment("shared", 2, BY_NAME, "shared", &node),
                deployment("admin", 1, BY_NAME, "admin", &node),
                deployment("several", 1, BY_NAME, "several", &node),
                deployment("subrequest", 1, BY_NAME, "subrequest", &node),
                // Another driver's device, our driver's device elsewhere, and no device at all.
                deployment("foreign", 1, BY_NAME, "foreign", &node),
                deployment("far", 1, BY_NAME, "far", &other),
                objects::deployment("ml", "plain", 1, pinned(objects::template("plain", None, 2), &node)),
            ])
            .await;
        // Its template does not exist: nobody can say what it holds.
        let unresolved = pinned(dra::holder("unresolved", BY_TEMPLATE, "missing", 2), &node);
        stage
            .apply(&[bare("ml", "unresolved", {
                let mut pod = unresolved;
                pod["spec"]["schedulerName"] = json!("by-hand");
                pod
            })])
            .await;
        bind(&stage, "unresolved", &node).await;
        extended(&stage, &node).await;
        let leave = ["direct", "template", "template", "shared", "shared", "admin", "several", "subrequest", "extended"];
        let stay = ["foreign", "far", "plain"];
        let all_run =
            || leave.iter().chain(&stay).all(|app| running(&stage, app) == leave.iter().filter(|it| it == &app).count().max(1));
        stage.until("all but the unresolved one run", all_run).await;
        assert_eq!(reserved(&stage, DRIVER)["shared"], 2, "{:?}", reserved(&stage, DRIVER));
        let admin_claim = stage.hands.get("/apis/resource.k8s.io/v1/namespaces/ml/resourceclaims/admin").await.unwrap();
        assert_eq!(admin_claim.pointer("/status/allocation/devices/results/0/adminAccess"), Some(&json!(true)));
        let sub = stage.hands.get("/apis/resource.k8s.io/v1/namespaces/ml/resourceclaims/subrequest").await.unwrap();
        assert_eq!(sub.pointer("/status/allocation/devices/results/0/request"), Some(&json!("any/best")));
        let before: Vec<Vec<String>> = stay.iter().map(|app| uids(&stage, app)).collect();

        let (engine, trace) = (stage.engine(), Trace::of(&stage));
        release(&stage).await;
        stage.ask(std::slice::from_ref(&node)).await;
        stage.until("it is handed over", || stage.runs(&node, "2.0") && stage.is_done(&node, "2.0")).await;

        let mut evicted: Vec<String> = trace.all("evict ");
        evicted.sort();
        let mut wanted: Vec<String> = leave.iter().chain(&["unresolved"]).map(|app| format!("evict ml/{app}")).collect();
        wanted.sort();
        assert_eq!(evicted, wanted);
        let after: Vec<Vec<String>> = stay.iter().map(|app| uids(&stage, app)).collect();
        assert_eq!(after, before, "a bystander was moved");
        // Claims are released before the driver is touched, and the driver is gone before the module is.
        trace.in_order(&[
            &format!("cordon {node}"),
            &format!("phase gpu.{node} Draining"),
            "evict ",
            &format!("phase gpu.{node} StoppingPlugin"),
        ]);
        trace.before("evict ", "plugin gpu.");
        trace.in_order(&[
            &format!("plugin gpu.{node} 1.0 -"),
            &format!("loader gpu.{node} 1.0 -"),
            &format!("unload {node}"),
            &format!("loader gpu.{node} - 2.0"),
            &format!("plugin gpu.{node} - 2.0"),
            &format!("ready gpu.{node} - 2.0"),
            &format!("uncordon {node}"),
        ]);
        assert!(
            stage.proof(&node, "Verifying").contains(&format!("{DRIVER}: {}", dra::DEVICES)),
            "{}",
            stage.proof(&node, "Verifying")
        );
        assert_eq!(stage.loaded(&node).as_deref(), Some("2.0"));
        // What has a controller comes back to the node and gets its claim again.
        stage
            .until("the workloads are back", || {
                ["direct", "template", "shared", "admin", "several", "subrequest"].iter().all(|app| {
                    let pods = pods_of(&stage, app);
                    pods.iter().filter(|pod| pod["status"]["phase"] == "Running").all(|pod| node_of(pod) == node)
                        && running(&stage, app) > 0
                })
            })
            .await;
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn a_claim_reserved_for_what_is_no_pod_holds_the_driver_until_it_is_released() {
    play(|| async {
        let stage = stage(62, 1).await;
        let node = stage.nodes[0].clone();
        stage.apply(&[dra::claim("ml", "job", json!([gpu("one")]))]).await;
        let path = "/apis/resource.k8s.io/v1/namespaces/ml/resourceclaims/job/status";
        let status = json!({"status": {
            "allocation": {"devices": {"results": [{"request": "one", "driver": DRIVER, "pool": node, "device": "d0"}]}},
            "reservedFor": [{"apiGroup": "batch.example", "resource": "jobs", "name": "night", "uid": "6f1c"}],
        }});
        stage.hands.merge(path, &status).await.unwrap();
        let (engine, trace) = (stage.engine(), Trace::of(&stage));
        release(&stage).await;
        stage.ask(std::slice::from_ref(&node)).await;
        stage.names(&node, "ClaimReserved", "ResourceClaim ml/job", &["reserved", "driver must stay"]).await;
        assert_eq!(stage.phase(&node), "Detaching");
        stage.pass(300).await;
        assert_eq!([stage.label(&node, "plugin"), stage.label(&node, "loader")], [Some("1.0".into()), Some("1.0".into())]);
        stage.hands.merge(path, &json!({"status": {"reservedFor": null, "allocation": null}})).await.unwrap();
        stage.until("it goes on by itself", || stage.is_done(&node, "2.0")).await;
        trace.in_order(&[
            "phase gpu.gpu-01 Draining",
            "phase gpu.gpu-01 Detaching",
            "phase gpu.gpu-01 StoppingPlugin",
            "plugin gpu.gpu-01 1.0 -",
        ]);
        assert_eq!(stage.clean().claimants_evicted, 0);
        engine.stop().await;
    });
}

#[test]
fn a_pod_whose_claim_is_allocated_here_is_waited_for_and_evicted_once_it_has_come() {
    play(|| async {
        let stage = stage(63, 2).await;
        let node = stage.nodes[0].clone();
        stage.apply(&[dra::claim("ml", "late", json!([gpu("one")]))]).await;
        let mut template = dra::holder("late", BY_NAME, "late", 2);
        template["spec"]["schedulerName"] = json!("by-hand");
        stage.apply(&[bare("ml", "late", template)]).await;
        let uid = uids(&stage, "late").remove(0);
        let status = json!({"status": {
            "allocation": {
                "devices": {"results": [{"request": "one", "driver": DRIVER, "pool": node, "device": "d0"}]},
                "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]},
            },
            "reservedFor": [{"resource": "pods", "name": "late", "uid": uid}],
        }});
        stage.hands.merge("/apis/resource.k8s.io/v1/namespaces/ml/resourceclaims/late/status", &status).await.unwrap();
        let (engine, trace) = (stage.engine(), Trace::of(&stage));
        release(&stage).await;
        stage.ask(std::slice::from_ref(&node)).await;
        stage.names(&node, "PodBinding", "Pod ml/late", &["ml/late", "allocated on this node"]).await;
        assert!(!stage.is_open(&node), "the node is closed while somebody is on the way");
        stage.pass(120).await;
        assert_eq!((stage.phase(&node).as_str(), stage.label(&node, "plugin").as_deref()), ("Draining", Some("1.0")));
        bind(&stage, "late", &node).await;
        stage.until("it is handed over", || stage.is_done(&node, "2.0")).await;
        assert_eq!(trace.all("evict "), ["evict ml/late"]);
        trace.before("evict ml/late", "plugin gpu.");
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn a_budget_over_claim_holders_is_named_with_its_arithmetic() {
    play(|| async {
        let stage = stage(64, 2).await;
        stage
            .apply(&[
                dra::claim_template("ml", "gpu", json!([gpu("one")])),
                objects::deployment("ml", "held", 2, dra::holder("held", BY_TEMPLATE, "gpu", 2)),
            ])
            .await;
        stage.until("both run", || running(&stage, "held") == 2).await;
        let node = node_of(&pods_of(&stage, "held")[0]);
        let here = pods_of(&stage, "held").iter().filter(|pod| node_of(pod) == node).count();
        // A third that will not be Ready keeps the budget shut.
        let mut sick = objects::template("held", None, 2);
        sick["metadata"]["annotations"] = json!({"sim.lockkeeper.dev/unready": "true"});
        sick["metadata"]["labels"]["part"] = json!("sick");
        let mut sick = objects::deployment("ml", "sick", 1, sick);
        sick.body["spec"]["selector"] = json!({"matchLabels": {"part": "sick"}});
        stage.apply(&[sick, objects::budget("ml", "held", "maxUnavailable", json!(1))]).await;
        stage.until("the third is there", || running(&stage, "held") == 3).await;
        let engine = stage.engine();
        release(&stage).await;
        stage.ask(std::slice::from_ref(&node)).await;
        stage.names(&node, "DisruptionBudget", "ml/held", &["needs 2 healthy of 3, has 2, allows 0", "ml/sick-"]).await;
        assert_eq!(stage.label(&node, "plugin").as_deref(), Some("1.0"));
        stage.hands.delete("/apis/apps/v1/namespaces/ml/deployments/sick").await.unwrap();
        stage.until("it goes on when the budget allows", || stage.is_done(&node, "2.0")).await;
        assert_eq!(stage.clean().claimants_evicted, here as u64);
        engine.stop().await;
    });
}

#[test]
fn a_holder_that_stays_terminating_since_another_driver_is_gone_is_named_and_never_forced() {
    play(|| async {
        let stage = stage(65, 1).await;
        let node = stage.nodes[0].clone();
        stage
            .apply(&[
                dra::claim("ml", "both", json!([nic("net"), gpu("compute")])),
                objects::deployment("ml", "both", 1, pinned(dra::holder("both", BY_NAME, "both", 2), &node)),
            ])
            .await;
        stage.until("it runs", || running(&stage, "both") == 1).await;
        let name = pods_of(&stage, "both")[0]["metadata"]["name"].as_str().unwrap().to_owned();
        // Somebody takes the other driver away: the kubelet cannot give the claim back, and keeps the pod.
        stage.hands.delete("/apis/apps/v1/namespaces/kube-system/daemonsets/nic-driver").await.unwrap();
        stage.until("the other driver is gone", || pods_of(&stage, "nic-driver").is_empty()).await;
        let (engine, trace) = (stage.engine(), Trace::of(&stage));
        release(&stage).await;
        stage.ask(std::slice::from_ref(&node)).await;
        let words =
            ["should have been gone", "is Ready", "a claim whose driver is gone may hold it", "kubectl describe pod -n ml"];
        stage.names(&node, "Terminating", &format!("Pod ml/{name}"), &words).await;
        stage.pass(300).await;
        assert_eq!((stage.phase(&node).as_str(), stage.label(&node, "plugin").as_deref()), ("Draining", Some("1.0")));
        assert_eq!((trace.all("evict ").len(), trace.all("delete ml/").len()), (1, 0));
        stage.apply(&dra::drivers()).await;
        stage.until("it goes on once the driver is back", || stage.is_done(&node, "2.0")).await;
        assert!(stage.world.report_at_rest().violations.is_empty());
        engine.stop().await;
    });
}
