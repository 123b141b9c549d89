//! Deletion, grace, finalizers, evictions, budgets, bindings.

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::policy::v1::{Eviction, PodDisruptionBudget};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions, WatchParams};
use kube::core::WatchEvent;
use serde_json::{Value, json};

use super::*;

fn pods(api: &ApiServer) -> Api<Pod> {
    Api::default_namespaced(api.client(&Identity::new("t")))
}

async fn ready_pod(pods: &Api<Pod>, name: &str, ready: bool) -> Pod {
    pods.create(&PostParams::default(), &pod(name, "n1")).await.unwrap();
    let status = if ready { "True" } else { "False" };
    let patch = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": status}]}});
    pods.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap()
}

async fn budget(api: &ApiServer, name: &str, status: Value) {
    let budgets: Api<PodDisruptionBudget> = Api::default_namespaced(api.client(&Identity::new("t")));
    let object = json!({"metadata": {"name": name}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}});
    budgets.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    budgets.patch_status(name, &PatchParams::default(), &Patch::Merge(json!({"status": status}))).await.unwrap();
}

async fn evict(pods: &Api<Pod>, name: &str, options: Value) -> Result<(), kube::Error> {
    let eviction: Eviction = serde_json::from_value(json!({"metadata": {"name": name}, "deleteOptions": options})).unwrap();
    pods.create_subresource::<Eviction, Value>("eviction", name, &PostParams::default(), &eviction).await.map(|_| ())
}

fn causes(error: &kube::Error) -> Vec<(String, String)> {
    let kube::Error::Api(status) = error else { panic!("{error:?}") };
    let details = status.details.clone().unwrap();
    details.causes.into_iter().map(|c| (c.reason, c.message)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_bound_pod_gets_its_grace_and_an_unbound_one_goes_at_once() {
    let api = server();
    let pods = pods(&api);
    pods.create(&PostParams::default(), &pod("bound", "n1")).await.unwrap();
    pods.create(&PostParams::default(), &pod("free", "")).await.unwrap();
    let marked = pods.delete("bound", &DeleteParams::default()).await.unwrap().left().unwrap();
    assert_eq!(marked.metadata.deletion_grace_period_seconds, Some(30));
    pods.delete("free", &DeleteParams::default()).await.unwrap();
    assert!(pods.get_opt("free").await.unwrap().is_none());
    tokio::time::sleep(Duration::from_secs(100)).await;
    // Nobody but a kubelet ends it.
    assert!(pods.get_opt("bound").await.unwrap().is_some());
    pods.delete("bound", &DeleteParams::default().grace_period(0)).await.unwrap();
    assert!(pods.get_opt("bound").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_holds_an_object_until_it_is_removed() {
    let api = server();
    let pods = pods(&api);
    let mut held = pod("p", "n1");
    held.metadata.finalizers = Some(vec!["a.b/c".into()]);
    pods.create(&PostParams::default(), &held).await.unwrap();
    pods.delete("p", &DeleteParams::default().grace_period(0)).await.unwrap();
    assert!(pods.get("p").await.unwrap().metadata.deletion_timestamp.is_some());
    let add = Patch::Merge(json!({"metadata": {"finalizers": ["a.b/c", "d.e/f"]}}));
    assert_eq!(refused(pods.patch("p", &PatchParams::default(), &add).await.unwrap_err()).0, 422);
    let mut stream = pods.watch(&WatchParams::default(), &api.revision().to_string()).await.unwrap().boxed();
    pods.patch("p", &PatchParams::default(), &Patch::Merge(json!({"metadata": {"finalizers": null}}))).await.unwrap();
    assert!(matches!(stream.next().await, Some(Ok(WatchEvent::Deleted(_)))));
    assert!(pods.get_opt("p").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn preconditions_of_a_delete_are_kept() {
    let api = server();
    let pods = pods(&api);
    pods.create(&PostParams::default(), &pod("p", "n1")).await.unwrap();
    let wrong = Preconditions { uid: Some("11111111-1111-1111-1111-111111111111".into()), resource_version: None };
    let (code, _, message) = refused(pods.delete("p", &DeleteParams::default().preconditions(wrong)).await.unwrap_err());
    assert_eq!(code, 409);
    assert!(message.starts_with("Operation cannot be fulfilled on Pod \"p\": the UID in the precondition"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn propagation_leaves_the_finalizers_of_the_collector() {
    let api = server();
    let maps: Api<k8s_openapi::api::core::v1::ConfigMap> = Api::default_namespaced(api.client(&Identity::new("t")));
    for (name, params, finalizer) in
        [("f", DeleteParams::foreground(), "foregroundDeletion"), ("o", DeleteParams::orphan(), "orphan")]
    {
        let map = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        maps.create(&PostParams::default(), &map).await.unwrap();
        maps.delete(name, &params).await.unwrap();
        assert_eq!(maps.get(name).await.unwrap().metadata.finalizers, Some(vec![finalizer.to_owned()]));
    }
}

#[tokio::test(start_paused = true)]
async fn a_namespace_stays_until_it_is_finalized() {
    let api = server();
    let client = api.client(&Identity::new("t"));
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let object = serde_json::from_value(json!({"metadata": {"name": "a"}})).unwrap();
    namespaces.create(&PostParams::default(), &object).await.unwrap();
    namespaces.delete("a", &DeleteParams::default()).await.unwrap();
    let left = namespaces.get("a").await.unwrap();
    assert_eq!(left.status.unwrap().phase.as_deref(), Some("Terminating"));
    let inside: Api<Pod> = Api::namespaced(client.clone(), "a");
    let (code, _, message) = refused(inside.create(&PostParams::default(), &pod("p", "")).await.unwrap_err());
    assert_eq!(code, 403);
    assert!(message.contains("because it is being terminated"), "{message}");
    let done = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}, "spec": {"finalizers": []}});
    let (code, _) = raw(&client, "PUT", "/api/v1/namespaces/a/finalize", "application/json", &done).await;
    assert_eq!(code, 200);
    assert!(namespaces.get_opt("a").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn an_eviction_takes_from_the_budget_and_marks_the_pod() {
    let api = server();
    let pods = pods(&api);
    ready_pod(&pods, "p", true).await;
    let status =
        json!({"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2});
    budget(&api, "b", status).await;
    evict(&pods, "p", json!({})).await.unwrap();
    let gone = pods.get("p").await.unwrap();
    assert!(gone.metadata.deletion_timestamp.is_some());
    let marks = gone.status.unwrap().conditions.unwrap();
    assert!(marks.iter().any(|c| c.type_ == "DisruptionTarget" && c.reason.as_deref() == Some("EvictionByEvictionAPI")));
    let budget = api.get("poddisruptionbudgets.policy", "default", "b").unwrap();
    assert_eq!(budget["status"]["disruptionsAllowed"], 0);
    assert!(budget["status"]["disruptedPods"]["p"].is_string());
    // It is deleting already: no budget is asked again.
    evict(&pods, "p", json!({})).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_blocked_eviction_says_which_budget_and_why() {
    let api = server();
    let pods = pods(&api);
    ready_pod(&pods, "p", true).await;
    budget(&api, "b", json!({"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1})).await;
    let lagging = evict(&pods, "p", json!({})).await.unwrap_err();
    let expected = "The disruption budget b is still being processed by the server.";
    assert_eq!(causes(&lagging), [("DisruptionBudget".to_owned(), expected.to_owned())]);
    let budgets: Api<PodDisruptionBudget> = Api::default_namespaced(api.client(&Identity::new("t")));
    let seen = Patch::Merge(json!({"status": {"observedGeneration": 1}}));
    budgets.patch_status("b", &PatchParams::default(), &seen).await.unwrap();
    let blocked = evict(&pods, "p", json!({})).await.unwrap_err();
    let expected = "The disruption budget b needs 1 healthy pods and has 1 currently";
    assert_eq!(causes(&blocked), [("DisruptionBudget".to_owned(), expected.to_owned())]);
    assert_eq!(refused(blocked).0, 429);
}

#[tokio::test(start_paused = true)]
async fn the_budget_is_taken_before_a_wrong_uid_is_seen() {
    let api = server();
    let pods = pods(&api);
    ready_pod(&pods, "p", true).await;
    budget(&api, "b", json!({"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1})).await;
    let other = json!({"preconditions": {"uid": "11111111-1111-1111-1111-111111111111"}});
    assert_eq!(refused(evict(&pods, "p", other.clone()).await.unwrap_err()).0, 409);
    assert_eq!(api.get("poddisruptionbudgets.policy", "default", "b").unwrap()["status"]["disruptionsAllowed"], 0);
    // Where no budget is asked, the conflict is tried again for ten seconds.
    pods.create(&PostParams::default(), &pod("waiting", "n1")).await.unwrap();
    let before = tokio::time::Instant::now();
    assert_eq!(refused(evict(&pods, "waiting", other).await.unwrap_err()).0, 409);
    assert!(before.elapsed() > Duration::from_secs(9), "{:?}", before.elapsed());
}

#[tokio::test(start_paused = true)]
async fn two_budgets_are_an_error_and_unready_pods_have_their_policy() {
    let api = server();
    let pods = pods(&api);
    ready_pod(&pods, "sick", false).await;
    ready_pod(&pods, "p", true).await;
    budget(&api, "b", json!({"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1})).await;
    evict(&pods, "sick", json!({})).await.unwrap();
    budget(&api, "c", json!({"observedGeneration": 1, "disruptionsAllowed": 1})).await;
    let (code, _, message) = refused(evict(&pods, "p", json!({})).await.unwrap_err());
    assert_eq!((code, message.contains("more than one PodDisruptionBudget")), (500, true), "{message}");
}

#[tokio::test(start_paused = true)]
async fn a_binding_is_made_once() {
    let api = server();
    let client = api.client(&Identity::new("scheduler"));
    let pods = pods(&api);
    pods.create(&PostParams::default(), &pod("p", "")).await.unwrap();
    let binding = |node: &str| json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"kind": "Node", "name": node}});
    let path = "/api/v1/namespaces/default/pods/p/binding";
    assert_eq!(raw(&client, "POST", path, "application/json", &binding("n1")).await.0, 201);
    assert_eq!(raw(&client, "POST", path, "application/json", &binding("n2")).await.0, 409);
    assert_eq!(pods.get("p").await.unwrap().spec.unwrap().node_name.as_deref(), Some("n1"));
}
