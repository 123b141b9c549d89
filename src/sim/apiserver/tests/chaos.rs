//! Faults, crashes, lag, access: what a client must live with.

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams, WatchParams};
use kube::core::WatchEvent;
use serde_json::json;

use super::*;

fn nodes(api: &ApiServer, name: &str) -> Api<Node> {
    Api::all(api.client(&Identity::new(name)))
}

fn label(key: &str) -> Patch<Value> {
    Patch::Merge(json!({"metadata": {"labels": {key: "1"}}}))
}

fn has(api: &ApiServer, key: &str) -> bool {
    api.get("nodes", "", "n1").is_some_and(|n| n["metadata"]["labels"].get(key).is_some())
}

async fn one_node(api: &ApiServer) -> Api<Node> {
    nodes(api, "other").create(&PostParams::default(), &node("n1")).await.unwrap();
    nodes(api, "engine")
}

#[tokio::test(start_paused = true)]
async fn refusals_are_injected_without_effect() {
    let api = server();
    let engine = one_node(&api).await;
    let hit = |action| Fault::once(Matcher::writes().client("engine"), action);
    let rules = vec![
        hit(Action::Conflict409),
        hit(Action::TooMany429 { retry_after: Some(3) }),
        hit(Action::Status(503)),
        hit(Action::Forbidden),
        hit(Action::Refused),
    ];
    api.set_faults(Box::new(Faults::new(1, rules)));
    let pp = PatchParams::default();
    for code in [409, 429, 503, 403] {
        assert_eq!(refused(engine.patch("n1", &pp, &label("x")).await.unwrap_err()).0, code);
    }
    assert!(engine.patch("n1", &pp, &label("x")).await.is_err());
    assert!(!has(&api, "x"));
    engine.patch("n1", &pp, &label("x")).await.unwrap();
    assert_eq!(api.injected().values().sum::<u64>(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_means_that_the_write_was_made() {
    let api = server();
    let engine = one_node(&api).await;
    api.set_faults(Box::new(Faults::new(1, vec![Fault::once(Matcher::writes(), Action::AppliedButResponseLost)])));
    assert!(!matches!(engine.patch("n1", &PatchParams::default(), &label("x")).await, Err(kube::Error::Api(_)) | Ok(_)));
    assert!(has(&api, "x"));
}

#[tokio::test(start_paused = true)]
async fn a_client_crashes_after_its_nth_write_and_comes_back() {
    for before_response in [true, false] {
        let api = server();
        let engine = one_node(&api).await;
        let matcher = Matcher::writes().client("engine").nth_write(2);
        api.set_faults(Box::new(Faults::new(1, vec![Fault::once(matcher, Action::Crash { before_response })])));
        let crashed = api.crashed(&Identity::new("engine"));
        let task = tokio::spawn(async move {
            for key in ["a", "b", "c", "d"] {
                engine.patch("n1", &PatchParams::default(), &label(key)).await.unwrap();
            }
        });
        tokio::time::timeout(Duration::from_secs(60), crashed.notified()).await.unwrap();
        task.abort();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!([has(&api, "b"), has(&api, "c")], [true, false]);
        nodes(&api, "engine").patch("n1", &PatchParams::default(), &label("e")).await.unwrap();
        assert!(has(&api, "e"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_in_flight_lands_although_its_client_is_killed() {
    let api = server();
    let engine = one_node(&api).await;
    let delay = Fault::once(Matcher::writes().client("engine"), Action::Delay(Duration::from_secs(30)));
    api.set_faults(Box::new(Faults::new(1, vec![delay])));
    let task = tokio::spawn(async move { engine.patch("n1", &PatchParams::default(), &label("late")).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    api.kill("engine");
    task.abort();
    assert!(!has(&api, "late"));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(has(&api, "late"));
}

#[tokio::test(start_paused = true)]
async fn a_stale_list_shows_the_past_and_only_at_revision_zero() {
    let api = server();
    let engine = one_node(&api).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    nodes(&api, "other").patch("n1", &PatchParams::default(), &label("new")).await.unwrap();
    let stale = Fault::once(Matcher::verb(Verb::List), Action::StaleList { age: Duration::from_secs(30) }).times(2);
    api.set_faults(Box::new(Faults::new(1, vec![stale])));
    let seen = async |any: bool| {
        let params = if any { ListParams::default().match_any() } else { ListParams::default() };
        engine.list(&params).await.unwrap().items[0].metadata.labels.clone().unwrap().contains_key("new")
    };
    assert!(!seen(true).await);
    assert!(seen(false).await);
}

#[tokio::test(start_paused = true)]
async fn watches_lag_one_by_one_and_keep_their_order() {
    let api = server();
    let engine = one_node(&api).await;
    let lag = Action::LagWatch { constant: Duration::from_secs(5), spread: Duration::from_secs(5) };
    api.set_faults(Box::new(Faults::new(1, vec![Fault::once(Matcher::verb(Verb::Watch).client("engine"), lag)])));
    let rv = api.revision().to_string();
    let mut slow = engine.watch(&WatchParams::default(), &rv).await.unwrap().boxed();
    let mut fast = nodes(&api, "other").watch(&WatchParams::default(), &rv).await.unwrap().boxed();
    for n in 0..20 {
        nodes(&api, "other").patch("n1", &PatchParams::default(), &label(&format!("l{n}"))).await.unwrap();
    }
    let start = tokio::time::Instant::now();
    fast.next().await.unwrap().unwrap();
    assert!(start.elapsed() < Duration::from_secs(1));
    let mut last = 0;
    for _ in 0..20 {
        let Some(Ok(WatchEvent::Modified(node))) = slow.next().await else { panic!("no event") };
        let rv: u64 = node.metadata.resource_version.unwrap().parse().unwrap();
        assert!(rv > last);
        last = rv;
    }
    assert!(start.elapsed() > Duration::from_secs(4), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn hostile_runs_are_repeated_exactly_and_end() {
    async fn run(seed: u64) -> (String, u64) {
        let api = ApiServer::new(Config { seed, latency_spread: Duration::from_millis(10), ..Config::default() });
        one_node(&api).await;
        let mut plan = Faults::hostile(seed, Some("engine"), Duration::from_secs(300));
        plan.spared.push("other".into());
        api.set_faults(Box::new(plan));
        let crashed = api.crashed(&Identity::new("engine"));
        for round in 0..200 {
            let engine = nodes(&api, "engine");
            let write = async {
                let _ = engine.list(&ListParams::default().match_any()).await;
                let _ = engine.patch("n1", &PatchParams::default(), &label(&format!("r{round}"))).await;
            };
            tokio::select! {
                biased;
                () = crashed.notified() => {}
                _ = tokio::time::timeout(Duration::from_secs(20), write) => {}
            }
        }
        (api.log().text(), api.injected().values().sum())
    }
    let (a, injected) = run(3).await;
    assert!(injected > 20, "{injected}");
    assert_eq!(a, run(3).await.0);
    assert_ne!(a, run(4).await.0);
}

#[tokio::test(start_paused = true)]
async fn roles_are_enforced_when_asked() {
    let api = server();
    one_node(&api).await;
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "r"},
        "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list"]}]});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "r"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"},
        "subjects": [{"kind": "ServiceAccount", "namespace": "s", "name": "a"}]});
    api.install(role).unwrap();
    api.install(binding).unwrap();
    api.enforce_rbac(true);
    let client = api.client(&Identity::service_account("viewer", "s", "a"));
    let nodes: Api<Node> = Api::all(client.clone());
    nodes.get("n1").await.unwrap();
    let (code, _, message) = refused(nodes.patch("n1", &PatchParams::default(), &label("x")).await.unwrap_err());
    let expected = "nodes \"n1\" is forbidden: User \"system:serviceaccount:s:a\" cannot patch resource \"nodes\" in API group \"\" at the cluster scope";
    assert_eq!((code, message.as_str()), (403, expected));
    let review = |verb: &str| json!({"spec": {"resourceAttributes": {"verb": verb, "resource": "nodes"}}});
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    for (verb, allowed) in [("get", true), ("patch", false)] {
        let (_, answer) = raw(&client, "POST", path, "application/json", &review(verb)).await;
        assert_eq!(answer["status"]["allowed"], allowed, "{verb}");
    }
}
