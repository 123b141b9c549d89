//! Objects, lists, watches, ownership: the everyday requests.

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchParams};
use kube::core::WatchEvent;
use kube::runtime::watcher;
use serde_json::{Value, json};

use super::*;

#[tokio::test(start_paused = true)]
async fn objects_are_created_read_updated_and_deleted() {
    let api = server();
    let nodes: Api<Node> = Api::all(api.client(&Identity::new("t")));
    let made = nodes.create(&PostParams::default(), &node("n1")).await.unwrap();
    assert!(made.metadata.uid.is_some());
    assert_eq!(made.metadata.creation_timestamp.as_ref().unwrap().0.to_string(), "2026-01-01T00:00:00Z");
    let (code, reason, message) = refused(nodes.create(&PostParams::default(), &node("n1")).await.unwrap_err());
    assert_eq!((code, reason.as_str()), (409, "AlreadyExists"));
    assert_eq!(message, "nodes \"n1\" already exists");
    let mut changed = made.clone();
    changed.metadata.labels.get_or_insert_default().insert("b".into(), "2".into());
    let updated = nodes.replace("n1", &PostParams::default(), &changed).await.unwrap();
    assert_ne!(updated.metadata.resource_version, made.metadata.resource_version);
    let (code, reason, _) = refused(nodes.replace("n1", &PostParams::default(), &changed).await.unwrap_err());
    assert_eq!((code, reason.as_str()), (409, "Conflict"));
    assert!(nodes.delete("n1", &DeleteParams::default()).await.unwrap().is_right());
    let (code, _, message) = refused(nodes.get("n1").await.unwrap_err());
    assert_eq!((code, message.as_str()), (404, "nodes \"n1\" not found"));
}

#[tokio::test(start_paused = true)]
async fn a_write_without_change_leaves_no_trace() {
    let api = server();
    let nodes: Api<Node> = Api::all(api.client(&Identity::new("t")));
    let made = nodes.create(&PostParams::default(), &node("n1")).await.unwrap();
    let before = api.log().written();
    let patch = json!({"metadata": {"labels": {"zone": "a"}}});
    let same = nodes.patch("n1", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    assert_eq!(same.metadata.resource_version, made.metadata.resource_version);
    assert_eq!(api.log().written(), before);
}

#[tokio::test(start_paused = true)]
async fn a_merge_patch_with_a_stale_revision_conflicts() {
    let api = server();
    let nodes: Api<Node> = Api::all(api.client(&Identity::new("t")));
    nodes.create(&PostParams::default(), &node("n1")).await.unwrap();
    let patch = json!({"metadata": {"resourceVersion": "1", "labels": {"zone": "b"}}});
    let (code, reason, message) = refused(nodes.patch("n1", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap_err());
    assert_eq!((code, reason.as_str()), (409, "Conflict"));
    assert!(message.starts_with("Operation cannot be fulfilled on nodes \"n1\": the object has been modified"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn status_and_spec_are_written_apart() {
    let api = server();
    let pods: Api<Pod> = Api::default_namespaced(api.client(&Identity::new("t")));
    let mut wanted = pod("p", "n1");
    wanted.status = Some(serde_json::from_value(json!({"phase": "Running"})).unwrap());
    let made = pods.create(&PostParams::default(), &wanted).await.unwrap();
    assert_eq!(made.status.unwrap().phase.as_deref(), Some("Pending"));
    assert_eq!(made.spec.as_ref().unwrap().termination_grace_period_seconds, Some(30));
    let patch = json!({"status": {"phase": "Running"}, "spec": {"nodeName": "other"}});
    let after = pods.patch_status("p", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    assert_eq!(after.status.unwrap().phase.as_deref(), Some("Running"));
    assert_eq!(after.spec.unwrap().node_name.as_deref(), Some("n1"));
    let (code, _, _) = refused(pods.patch("p", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap_err());
    assert_eq!(code, 422);
}

#[tokio::test(start_paused = true)]
async fn lists_come_in_consistent_pages() {
    let api = server();
    let nodes: Api<Node> = Api::all(api.client(&Identity::new("t")));
    for n in 0..5 {
        nodes.create(&PostParams::default(), &node(&format!("n{n}"))).await.unwrap();
    }
    let first = nodes.list(&ListParams::default().limit(2)).await.unwrap();
    assert_eq!(first.items.len(), 2);
    assert_eq!(first.metadata.remaining_item_count, Some(3));
    nodes.delete("n3", &DeleteParams::default()).await.unwrap();
    let token = first.metadata.continue_.unwrap();
    let second = nodes.list(&ListParams::default().limit(9).continue_token(&token)).await.unwrap();
    let names: Vec<_> = second.items.iter().map(|n| n.metadata.name.clone().unwrap()).collect();
    assert_eq!(names, ["n2", "n3", "n4"]);
    api.compact();
    let (code, reason, _) = refused(nodes.list(&ListParams::default().limit(9).continue_token(&token)).await.unwrap_err());
    assert_eq!((code, reason.as_str()), (410, "Expired"));
}

async fn next_event(stream: &mut (impl futures::Stream<Item = kube::Result<WatchEvent<Node>>> + Unpin)) -> (String, Node) {
    match tokio::time::timeout(Duration::from_secs(5), stream.next()).await.unwrap().unwrap().unwrap() {
        WatchEvent::Added(n) => ("ADDED".into(), n),
        WatchEvent::Modified(n) => ("MODIFIED".into(), n),
        WatchEvent::Deleted(n) => ("DELETED".into(), n),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_selected_watch_sees_objects_come_and_go() {
    let api = server();
    let nodes: Api<Node> = Api::all(api.client(&Identity::new("t")));
    nodes.create(&PostParams::default(), &node("n1")).await.unwrap();
    let mut stream = nodes.watch(&WatchParams::default().labels("v=1"), "0").await.unwrap().boxed();
    let set = |v: Value| Patch::Merge(json!({"metadata": {"labels": {"v": v, "w": "x"}}}));
    let pp = PatchParams::default();
    nodes.patch("n1", &pp, &set(json!("1"))).await.unwrap();
    assert_eq!(next_event(&mut stream).await.0, "ADDED");
    nodes.patch("n1", &pp, &Patch::Merge(json!({"metadata": {"labels": {"w": "y"}}}))).await.unwrap();
    assert_eq!(next_event(&mut stream).await.0, "MODIFIED");
    let gone = nodes.patch("n1", &pp, &set(Value::Null)).await.unwrap();
    let (kind, last) = next_event(&mut stream).await;
    assert_eq!(kind, "DELETED");
    // The previous content, the new revision.
    assert_eq!(last.metadata.labels.unwrap().get("v").map(String::as_str), Some("1"));
    assert_eq!(last.metadata.resource_version, gone.metadata.resource_version);
}

#[tokio::test(start_paused = true)]
async fn kubes_watcher_lists_watches_and_recovers_from_410() {
    let api = server();
    let client = api.client(&Identity::new("t"));
    let nodes: Api<Node> = Api::all(client);
    nodes.create(&PostParams::default(), &node("n1")).await.unwrap();
    for streaming in [false, true] {
        let config = if streaming { watcher::Config::default().streaming_lists() } else { watcher::Config::default() };
        let mut stream = watcher(nodes.clone(), config).boxed();
        let mut seen = Vec::new();
        while let Some(event) = stream.next().await {
            // The 410 itself comes as an error; the watcher lists again after it.
            let Ok(event) = event else { continue };
            match event {
                watcher::Event::Init => seen.push("init".to_owned()),
                watcher::Event::InitApply(n) => seen.push(format!("+{}", n.metadata.name.unwrap())),
                watcher::Event::InitDone if seen.len() > 4 => break,
                watcher::Event::InitDone => {
                    let patch = json!({"metadata": {"labels": {"s": format!("{streaming}")}}});
                    nodes.patch("n1", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
                }
                watcher::Event::Apply(n) => {
                    seen.push(format!("~{}", n.metadata.name.unwrap()));
                    api.end_watches(None, Some("nodes"), &WatchEnd::Gone);
                }
                watcher::Event::Delete(_) => {}
            }
            if seen.len() == 2 && seen[1] == "+n1" {
                seen.push("listed".into());
            }
        }
        assert_eq!(seen, ["init", "+n1", "listed", "~n1", "init", "+n1"], "streaming: {streaming}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_before_the_history_ends_with_410_in_the_stream() {
    let api = server();
    let nodes: Api<Node> = Api::all(api.client(&Identity::new("t")));
    nodes.create(&PostParams::default(), &node("n1")).await.unwrap();
    api.compact();
    let mut stream = nodes.watch(&WatchParams::default(), "5").await.unwrap().boxed();
    match stream.next().await.unwrap().unwrap() {
        WatchEvent::Error(status) => {
            assert_eq!((status.code, status.reason.as_str()), (410, "Expired"))
        }
        other => panic!("{other:?}"),
    }
    assert!(stream.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn field_managers_are_tracked_as_by_a_real_server() {
    let api = server();
    let nodes: Api<Node> = Api::all(api.client(&Identity::new("t")));
    nodes.create(&PostParams::default(), &node("n1")).await.unwrap();
    let owner = |node: &Node| -> Vec<String> {
        let entries = node.metadata.managed_fields.clone().unwrap_or_default();
        let owns = |f: &Value| f.pointer("/f:spec/f:unschedulable").is_some();
        entries.iter().filter(|e| owns(&e.fields_v1.as_ref().unwrap().0)).map(|e| e.manager.clone().unwrap()).collect()
    };
    let cordon = |value: Value| Patch::Merge(json!({"spec": {"unschedulable": value}}));
    let (ours, theirs) = (
        PatchParams { field_manager: Some("lockkeeper".into()), ..Default::default() },
        PatchParams { field_manager: Some("kubectl".into()), ..Default::default() },
    );
    let node = nodes.patch("n1", &ours, &cordon(json!(true))).await.unwrap();
    assert_eq!(owner(&node), ["lockkeeper"]);
    let again = nodes.patch("n1", &theirs, &cordon(json!(true))).await.unwrap();
    assert_eq!(owner(&again), ["lockkeeper"]);
    assert_eq!(again.metadata.resource_version, node.metadata.resource_version);
    let open = nodes.patch("n1", &theirs, &cordon(json!(false))).await.unwrap();
    assert_eq!(open.spec.clone().unwrap_or_default().unschedulable, None);
    assert!(owner(&open).is_empty());
    assert_eq!(owner(&nodes.patch("n1", &theirs, &cordon(json!(true))).await.unwrap()), ["kubectl"]);
    assert_eq!(owner(&nodes.patch("n1", &ours, &cordon(json!(true))).await.unwrap()), ["kubectl"]);
}

#[tokio::test(start_paused = true)]
async fn the_same_requests_give_the_same_log() {
    async fn run() -> String {
        let api = server();
        let client = api.client(&Identity::new("t"));
        let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
        let nodes: Api<Node> = Api::all(client);
        for n in 0..10 {
            let map: ConfigMap = serde_json::from_value(json!({"metadata": {"generateName": "m-"}})).unwrap();
            maps.create(&PostParams::default(), &map).await.unwrap();
            nodes.create(&PostParams::default(), &node(&format!("n{n}"))).await.unwrap();
        }
        api.log().text()
    }
    let (a, b) = (run().await, run().await);
    assert!(a.lines().count() > 20, "{a}");
    assert_eq!(a, b);
}

#[tokio::test(start_paused = true)]
async fn discovery_and_health_are_served() {
    let api = server();
    let client = api.client(&Identity::new("t"));
    assert_eq!(client.apiserver_version().await.unwrap().minor, "37");
    let groups = client.list_api_groups().await.unwrap();
    assert!(groups.groups.iter().any(|g| g.name == "apps"));
    let discovery = kube::discovery::Discovery::new(client.clone()).run_aggregated().await.unwrap();
    assert!(discovery.get("policy").is_some());
    let (code, _) = raw(&client, "GET", "/readyz", "", &Value::Null).await;
    assert_eq!(code, 200);
    let (code, status) = raw(&client, "GET", "/apis/apps/v1/things", "", &Value::Null).await;
    assert_eq!((code, status["reason"].as_str()), (404, Some("NotFound")));
    // A group that is not served at all is answered in plain text.
    let (code, status) = raw(&client, "GET", "/apis/none/v1/things", "", &Value::Null).await;
    assert_eq!((code, status), (404, Value::Null));
}

#[tokio::test(start_paused = true)]
async fn what_nobody_owned_is_not_tracked() {
    let api = server();
    let nodes: Api<Node> = Api::all(api.client(&Identity::new("t")));
    let bare: Node = serde_json::from_value(json!({"metadata": {"name": "n1"}})).unwrap();
    nodes.create(&PostParams::default(), &bare).await.unwrap();
    let cordon = Patch::Merge(json!({"spec": {"unschedulable": true}}));
    let after = nodes.patch("n1", &PatchParams::default(), &cordon).await.unwrap();
    // As on a real server: an object without managedFields gets none from an update.
    assert_eq!(after.metadata.managed_fields, None);
}

#[tokio::test(start_paused = true)]
async fn pods_without_a_node_are_listed_as_such_until_they_are_bound() {
    let api = server();
    let client = api.client(&Identity::new("t"));
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    for (name, node) in [("a", ""), ("b", "n1"), ("c", "")] {
        pods.create(&PostParams::default(), &pod(name, node)).await.unwrap();
    }
    let on = async |node: &str| {
        let list = pods.list(&ListParams::default().fields(&format!("spec.nodeName={node}"))).await.unwrap();
        list.items.into_iter().filter_map(|pod| pod.metadata.name).collect::<Vec<_>>()
    };
    assert_eq!(on("").await, ["a", "c"]);
    let binding =
        json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "a"}, "target": {"kind": "Node", "name": "n1"}});
    let (code, _) = raw(&client, "POST", "/api/v1/namespaces/default/pods/a/binding", "application/json", &binding).await;
    assert_eq!(code, 201);
    assert_eq!((on("").await, on("n1").await), (vec!["c".to_owned()], vec!["a".to_owned(), "b".to_owned()]));
    pods.delete("c", &DeleteParams::default().grace_period(0)).await.unwrap();
    assert!(on("").await.is_empty());
}
