//! This folder against the simulated API server: preconditions, evictions, status, watches under faults, the lease.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::{
    fresh::{self, Wanted},
    lease::{Config as LeaseConfig, Keeper},
    watch::{Pace, Signal, Watches},
    write::open,
    *,
};
use crate::{
    api::{
        NodeComponent, NodeHandoff, NodeHandoffSpec, NodeHandoffStatus, ObjectKey, Phase,
        handoff::HandoffAction,
        keys::{CORDON, FINALIZER, Slot},
    },
    fleet::{
        event::{Change, Event, Kind, Record},
        records::*,
    },
    handoff::action::{HandoffRef, NodeChange, NodePatch, PodRef},
    sim::apiserver::{Action, ApiServer, Config, Fault, Faults, Identity, Matcher, WatchEnd},
};

const S: fn(u64) -> Duration = Duration::from_secs;

fn server() -> ApiServer {
    let api = ApiServer::new(Config::default());
    api.install_crd::<NodeComponent>().unwrap();
    api.install_crd::<NodeHandoff>().unwrap();
    for namespace in ["ns", "lockkeeper-system"] {
        api.install(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})).ok();
    }
    api
}

fn cluster(api: &ApiServer, name: &str) -> Cluster {
    Cluster::over(api.client(&Identity::new(name)), false, "simulated", "http://simulated")
}

fn writer(cluster: &Cluster) -> Writer {
    Writer::new(cluster, cluster.write_cap().unwrap(), open())
}

fn add_node(api: &ApiServer, name: &str) {
    api.install(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"a": "1"}}})).unwrap();
}

fn add_pod(api: &ApiServer, name: &str, node: &str) {
    api.install(
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "ns", "labels": {"app": "db"}},
        "spec": {"nodeName": node, "terminationGracePeriodSeconds": 30, "containers": [{"name": "c", "image": "img:1"}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}),
    )
    .unwrap();
}

async fn node(cluster: &Cluster, name: &str) -> NodeRecord {
    fresh::get(cluster, Kind::Node, "", name).await.unwrap().and_then(fresh::node_of).unwrap()
}

async fn pod_ref(cluster: &Cluster, name: &str) -> PodRef {
    let pod = fresh::get(cluster, Kind::Pod, "ns", name).await.unwrap().and_then(fresh::pod_of).unwrap();
    PodRef::of(&pod)
}

fn patch(node: &NodeRecord, changes: Vec<NodeChange>) -> NodePatch {
    NodePatch {
        node: node.name.clone(),
        uid: node.meta.uid.clone(),
        resource_version: node.meta.resource_version.clone(),
        changes,
    }
}

fn label(key: &str, value: Option<&str>) -> NodeChange {
    NodeChange::Label { key: key.into(), value: value.map(str::to_owned) }
}

fn applied_node(written: Written) -> NodeRecord {
    match written {
        Written::Applied(Some(record)) => fresh::node_of(*record).unwrap(),
        other => panic!("not applied: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_knows_who_and_when_it_is() {
    let api = server();
    let cluster = cluster(&api, "engine").identified().await.unwrap();
    let info = cluster.info();
    assert!(info.version.starts_with("v1.") && !info.uid.is_empty(), "{info:?}");
    assert_eq!(info.user, "engine");
    let off = api.now().duration_since(cluster.clock().now()).abs();
    assert!(off.as_secs() <= 1, "{off}");
    tokio::time::sleep(S(3600)).await;
    assert!(api.now().duration_since(cluster.clock().now()).abs().as_secs() <= 1);
}

#[tokio::test(start_paused = true)]
async fn g38_a_node_patch_holds_only_for_the_node_that_was_seen() {
    let api = server();
    add_node(&api, "n1");
    let cluster = cluster(&api, "engine");
    let writer = writer(&cluster).because("cordon n1");
    let seen = node(&cluster, "n1").await;
    let owner = NodeChange::Annotation { key: CORDON.into(), value: Some("{}".into()) };
    let closed =
        applied_node(writer.patch_node(&patch(&seen, vec![label("b", Some("2")), owner, NodeChange::Unschedulable(true)])).await);
    assert!(closed.unschedulable && closed.labels.get("b").is_some_and(|value| &**value == "2"));
    assert_eq!(closed.unschedulable_managers, ["lockkeeper".into()]);
    // Decided on what was seen before: refused, nothing of it applied.
    let stale = writer.patch_node(&patch(&seen, vec![label("a", None)])).await;
    assert!(matches!(stale, Written::Conflict { .. }), "{stale:?}");
    assert!(node(&cluster, "n1").await.labels.contains_key("a"));
    // A node made again under the same name.
    let mut other = closed.clone();
    other.meta.uid = "another".into();
    let other = writer.patch_node(&patch(&other, vec![label("a", None)])).await;
    assert!(matches!(other, Written::Conflict { .. } | Written::Refused(_)), "{other:?}");
    let opened = applied_node(writer.patch_node(&patch(&closed, vec![label("a", None), NodeChange::Unschedulable(false)])).await);
    assert!(!opened.unschedulable && !opened.labels.contains_key("a"));
    // A dry run answers as if, and stores nothing.
    let tried = applied_node(writer.dry_run().patch_node(&patch(&opened, vec![label("c", Some("3"))])).await);
    assert!(tried.labels.contains_key("c") && !node(&cluster, "n1").await.labels.contains_key("c"));
    let (log, _) = cluster.log().since(0);
    assert_eq!(log[0].why, "cordon n1");
    assert!(log[0].kubectl.ends_with("kubectl cordon n1") && log[1].code == Some(409), "{log:?}");
}

#[tokio::test(start_paused = true)]
async fn g06_success_is_judged_on_what_the_write_returned() {
    let api = server();
    add_node(&api, "n1");
    let cluster = cluster(&api, "engine");
    let writer = writer(&cluster);
    let seen = applied_node(writer.patch_node(&patch(&node(&cluster, "n1").await, vec![NodeChange::Unschedulable(true)])).await);
    let opened = applied_node(writer.patch_node(&patch(&seen, vec![NodeChange::Unschedulable(false)])).await);
    assert!(!opened.unschedulable);
    // Another actor closes it before any cache has seen that it was open.
    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(api.client(&Identity::new("person")));
    nodes
        .patch("n1", &PatchParams::apply("kubectl-cordon"), &Patch::Merge(json!({"spec": {"unschedulable": true}})))
        .await
        .unwrap();
    let now = node(&cluster, "n1").await;
    assert!(now.unschedulable);
    assert_eq!(now.unschedulable_managers, ["kubectl-cordon".into()], "closed by somebody else");
}

#[tokio::test(start_paused = true)]
async fn evictions_are_pinned_carry_their_grace_and_name_a_budget() {
    let api = server();
    add_node(&api, "n1");
    add_pod(&api, "db-0", "n1");
    let cluster = cluster(&api, "engine");
    let writer = writer(&cluster);
    let pod = pod_ref(&cluster, "db-0").await;
    let namesake = PodRef { uid: "former".into(), ..pod.clone() };
    assert_eq!(writer.evict(&namesake, None).await, Written::Gone);
    assert_eq!(writer.delete_pod(&namesake).await, Written::Gone);
    api.install(json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "db", "namespace": "ns"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "db"}}},
        "status": {"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}}))
        .unwrap();
    match writer.evict(&pod, None).await {
        Written::Refused(refusal) => {
            assert_eq!(refusal.class(), RefusalClass::DisruptionBudget);
            assert!(refusal.causes[0].1.contains("db"), "{refusal}");
        }
        other => panic!("{other:?}"),
    }
    let budgets: Api<k8s_openapi::api::policy::v1::PodDisruptionBudget> =
        Api::namespaced(api.client(&Identity::new("person")), "ns");
    budgets.delete("db", &DeleteParams::default()).await.unwrap();
    // It changed since it was looked at.
    let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(api.client(&Identity::new("person")), "ns");
    let labelled = Patch::Merge(json!({"metadata": {"labels": {"person": "was-here"}}}));
    pods.patch("db-0", &PatchParams::default(), &labelled).await.unwrap();
    assert!(matches!(writer.evict(&pod, None).await, Written::Conflict { .. }));
    assert!(matches!(writer.delete_pod(&pod).await, Written::Conflict { .. }));
    assert!(api.get("pods", "ns", "db-0").unwrap()["metadata"]["deletionTimestamp"].is_null());
    let pod = pod_ref(&cluster, "db-0").await;
    assert_eq!(writer.evict(&pod, Some(7)).await, Written::Applied(None));
    assert!(matches!(writer.evict(&pod, None).await, Written::Conflict { .. }), "not twice");
    let leaving = api.get("pods", "ns", "db-0").unwrap();
    assert_eq!(leaving["metadata"]["deletionGracePeriodSeconds"], 7);
    assert_eq!(
        writer.evict(&PodRef { key: ObjectKey::new("ns", "nobody"), uid: "x".into(), resource_version: "1".into() }, None).await,
        Written::Gone
    );
}

#[tokio::test(start_paused = true)]
async fn handoffs_are_created_marked_reported_changed_and_deleted() {
    let api = server();
    let cluster = cluster(&api, "engine");
    let writer = writer(&cluster);
    let key = ObjectKey::new("ns", "gpu.n1");
    let spec = NodeHandoffSpec {
        component: "gpu".into(),
        node: "n1".into(),
        version: Some("2.0".into()),
        position: Some(3),
        action: HandoffAction::Run,
        attempt: 1,
        pause_after: vec![Phase::Draining],
        overrides: Vec::new(),
        requested_by: "me".into(),
        reason: "because".into(),
    };
    let record = |written: Written| match written {
        Written::Applied(Some(record)) => fresh::handoff_of(*record).unwrap(),
        other => panic!("not applied: {other:?}"),
    };
    let made = record(writer.create_handoff(&key, &spec).await);
    assert_eq!(made.spec.as_ref().unwrap(), &spec);
    assert_eq!(writer.create_handoff(&key, &spec).await, Written::AlreadyExists);
    let marked = record(writer.set_handoff_finalizer(&HandoffRef::of(&made), &["other.dev/x".into()], true).await);
    assert_eq!(marked.finalizers, ["other.dev/x".into(), FINALIZER.into()]);
    let status = NodeHandoffStatus {
        phase: Phase::Draining,
        phase_since: Some("2026-01-01T00:00:00Z".into()),
        evicted: vec!["u".into()],
        ..Default::default()
    };
    assert!(matches!(writer.put_handoff_status(&HandoffRef::of(&made), &status).await, Written::Conflict { .. }));
    let reported = record(writer.put_handoff_status(&HandoffRef::of(&marked), &status).await);
    assert_eq!((reported.status.phase, reported.status.evicted.len()), (Phase::Draining, 1));
    assert_eq!(reported.spec.as_ref().unwrap(), &spec, "a status write leaves the spec alone");
    // What a status leaves out is gone.
    let shorter = record(
        writer
            .put_handoff_status(&HandoffRef::of(&reported), &NodeHandoffStatus { phase: Phase::Done, ..Default::default() })
            .await,
    );
    assert_eq!((shorter.status.phase_since, shorter.status.evicted.len()), (None, 0));
    // What a spec leaves out is gone too.
    let held = NodeHandoffSpec {
        action: HandoffAction::Hold,
        position: None,
        pause_after: Vec::new(),
        reason: String::new(),
        ..spec.clone()
    };
    let meta = HandoffRef { resource_version: shorter.meta.resource_version.clone(), ..HandoffRef::of(&reported) };
    let changed = record(writer.patch_handoff_spec(&meta, &held).await);
    assert_eq!(changed.spec.as_ref().unwrap(), &held);
    let freed = record(writer.set_handoff_finalizer(&HandoffRef::of(&changed), &changed.finalizers, false).await);
    assert_eq!(freed.finalizers, ["other.dev/x".into()]);
    assert_eq!(writer.delete_handoff(&key, &"another".into()).await, Written::Gone);
    assert!(writer.delete_handoff(&key, &freed.meta.uid).await.is_applied());
}

#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_says_so() {
    let api = server();
    add_node(&api, "n1");
    let cluster = cluster(&api, "engine");
    let writer = writer(&cluster);
    let seen = node(&cluster, "n1").await;
    let change = patch(&seen, vec![label("b", Some("2"))]);
    for (action, applied) in [(Action::Status(500), false), (Action::Hang, false), (Action::AppliedButResponseLost, true)] {
        api.set_faults(Box::new(Faults::new(1, vec![Fault::once(Matcher::writes(), action.clone())])));
        let start = tokio::time::Instant::now();
        let written = writer.patch_node(&change).await;
        assert!(matches!(written, Written::Unknown { .. }), "{action:?}: {written:?}");
        assert!(start.elapsed() <= write::WRITE_LIMIT + S(1), "{action:?}");
        assert_eq!(node(&cluster, "n1").await.labels.contains_key("b"), applied, "{action:?}");
    }
    let shut = Writer::new(&cluster, cluster.write_cap().unwrap(), std::sync::Arc::new(|| Err("lost".to_owned())));
    let before = cluster.counters().writes();
    assert_eq!(shut.patch_node(&change).await, Written::NotSent { why: "lost".into() });
    assert_eq!(cluster.counters().writes(), before);
}

#[tokio::test(start_paused = true)]
async fn read_only_sends_no_write_and_gives_no_writer() {
    let api = server();
    add_node(&api, "n1");
    let client = api.client(&Identity::new("viewer"));
    let cluster = Cluster::over(client, true, "simulated", "").identified().await.unwrap();
    assert!(cluster.write_cap().is_none());
    access::missing(&cluster, crate::api::access::Role::Reconciler).await.unwrap();
    // Past our own types, too: the gate is in the client.
    let pods: Api<Pod> = Api::namespaced(cluster.client().clone(), "ns");
    let refused = pods.delete("x", &DeleteParams::default()).await.unwrap_err();
    assert!(refused.to_string().contains("read-only"), "{refused}");
    let made = pods.create(&PostParams::default(), &Pod::default()).await.unwrap_err();
    assert!(made.to_string().contains("read-only"), "{made}");
    assert_eq!(cluster.counters().writes(), 0);
    assert!(cluster.log().since(0).0.is_empty());
}

/// What the watches have told, as a store would keep it.
#[derive(Default)]
struct Told(BTreeMap<Kind, BTreeMap<ObjectKey, Record>>, BTreeMap<Kind, BTreeMap<ObjectKey, Record>>);

impl Told {
    fn take(&mut self, change: Change) {
        let (there, listed) = (self.0.entry(change.kind).or_default(), self.1.entry(change.kind).or_default());
        match change.event {
            Event::Init => listed.clear(),
            Event::Page { records, .. } => listed.extend(records.into_iter().map(|record| (record.key(), record))),
            Event::InitDone { .. } => there.clone_from(listed),
            Event::Apply(record) => {
                there.insert(record.key(), record);
            }
            Event::Delete(gone) => {
                there.remove(&gone.key);
            }
            _ => {}
        }
    }
}

#[tokio::test(start_paused = true)]
async fn watches_end_up_with_what_is_there_whatever_the_faults() {
    for seed in 1..=20 {
        let api = server();
        (0..5).for_each(|n| add_node(&api, &format!("n{n}")));
        api.set_faults(Box::new(Faults::new(
            seed,
            vec![
                Fault::once(Matcher::verb(crate::sim::apiserver::Verb::Watch), Action::Gone410 { http: seed % 2 == 0 })
                    .permille(200)
                    .times(10)
                    .until(S(200)),
                Fault::once(Matcher::verb(crate::sim::apiserver::Verb::Watch), Action::CutWatch { after: S(7) })
                    .permille(300)
                    .times(30)
                    .until(S(200)),
                Fault::once(Matcher::any().client("engine"), Action::Status(503)).permille(100).times(40).until(S(200)),
                Fault::once(Matcher::any().client("engine"), Action::Hang).permille(20).times(4).until(S(200)),
            ],
        )));
        let cluster = cluster(&api, "engine");
        let kinds = [Kind::Node, Kind::Pod, Kind::Handoff, Kind::Claim];
        let (watches, mut signals) = Watches::start(&cluster, &kinds, Pace { page: 3, ..Pace::default() });
        let told = tokio::spawn(async move {
            let mut told = Told::default();
            while let Ok(Some(signal)) = tokio::time::timeout(S(700), signals.recv()).await {
                if let Signal::Change(change) = signal {
                    told.take(change);
                }
            }
            told
        });
        let person = Api::<Pod>::namespaced(api.client(&Identity::new("person")), "ns");
        for round in 0..100u64 {
            let name = format!("p{}", (round * 7 + seed) % 13);
            if round % 3 == 2 {
                person.delete(&name, &DeleteParams::default().grace_period(0)).await.ok();
            } else {
                add_pod_if_absent(&api, &name);
            }
            if round % 10 == 0 {
                api.compact();
            }
            if round % 17 == 0 {
                api.end_watches(Some("engine"), None, &WatchEnd::Cut);
            }
            tokio::time::sleep(Duration::from_millis(2500)).await;
        }
        tokio::time::sleep(S(120)).await;
        assert!(
            watches.board().health().iter().all(|health| health.state == crate::fleet::view::WatchState::Live),
            "seed {seed}: {:?}",
            watches.board().health()
        );
        drop(watches);
        let told = told.await.unwrap();
        let there: Vec<String> =
            api.list("pods").iter().map(|pod| format!("{} {}", pod["metadata"]["name"], pod["metadata"]["uid"])).collect();
        let seen: Vec<String> =
            told.0[&Kind::Pod].values().map(|pod| format!("\"{}\" \"{}\"", pod.key().name, pod.meta().uid)).collect();
        assert_eq!(seen, there, "seed {seed}");
        assert_eq!(told.0[&Kind::Node].len(), 5, "seed {seed}");
    }
}

fn add_pod_if_absent(api: &ApiServer, name: &str) {
    if api.get("pods", "ns", name).is_none() {
        add_pod(api, name, "n1");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_kept_through_faults_and_its_slots_are_exact() {
    for seed in 1..=10 {
        let api = server();
        let lease = Matcher::any().client("a").resource("leases*");
        api.set_faults(Box::new(Faults::new(
            seed,
            vec![
                Fault::once(lease.clone(), Action::Delay(Duration::from_millis(2500))).permille(200).times(200),
                Fault::once(lease.clone(), Action::Status(500)).permille(150).times(200),
                Fault::once(lease.clone(), Action::AppliedButResponseLost).permille(100).times(200),
            ],
        )));
        let a = cluster(&api, "a");
        let (keeper, task) = Keeper::start(&a, a.write_cap().unwrap(), "a", LeaseConfig::default());
        let mut slots: Vec<Slot> = Vec::new();
        let (mut led, mut lost) = (0, 0);
        for round in 0..120 {
            tokio::time::sleep(S(2)).await;
            if keeper.leadership().is_none() {
                lost += 1;
                continue;
            }
            led += 1;
            let slot = Slot { node: format!("n{round}"), node_uid: "u".into(), component: "ns/gpu".into() };
            match keeper.admit(&slot, &slots).await {
                Written::Applied(_) => slots.push(slot),
                _ => slots = stored_slots(&api),
            }
        }
        slots.sort();
        assert_eq!(slots, stored_slots(&api), "seed {seed}");
        assert!(led > lost * 3, "seed {seed}: led {led}, lost {lost}");
        api.set_faults(Box::new(Faults::none()));
        while keeper.leadership().is_none() {
            tokio::time::sleep(S(1)).await;
        }
        keeper.stop().await;
        task.await.unwrap();
        assert_eq!(
            api.list("leases.coordination.k8s.io")[0]["spec"].get("holderIdentity").and_then(Value::as_str),
            None,
            "seed {seed}"
        );
    }
}

fn stored_slots(api: &ApiServer) -> Vec<Slot> {
    let lease = api.list("leases.coordination.k8s.io");
    let text = lease[0]["metadata"]["annotations"][crate::api::keys::SLOTS].as_str().unwrap_or("[]").to_owned();
    serde_json::from_str(&text).unwrap()
}

#[tokio::test(start_paused = true)]
async fn fresh_facts_of_one_node_are_complete() {
    let api = server();
    add_node(&api, "n1");
    add_node(&api, "n2");
    (0..7).for_each(|n| add_pod(&api, &format!("a{n}"), "n1"));
    add_pod(&api, "b", "n2");
    add_pod(&api, "waiting", "");
    api.install(json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "n1", "namespace": "kube-node-lease"},
        "spec": {"holderIdentity": "n1", "renewTime": "2026-01-01T00:00:00.000000Z"}}))
        .unwrap();
    let cluster = cluster(&api, "engine");
    let facts = fresh::node(
        &cluster,
        &"n1".into(),
        &Wanted { incoming: true, devices: true, handoff: Some(ObjectKey::new("ns", "none")), volumes: None, modules: false },
    )
    .await
    .unwrap();
    assert_eq!((facts.pods.len(), facts.unbound.as_ref().map(Vec::len)), (7, Some(1)));
    assert!(facts.node.is_some() && facts.lease.is_some() && facts.handoff.is_none());
    assert_eq!(facts.claims, Some(Vec::new()));
    assert_eq!(facts.records().count(), 10);
    let gone = fresh::node(&cluster, &"n9".into(), &Wanted::default()).await.unwrap();
    assert_eq!((gone.node, gone.pods.len()), (None, 0));
}
