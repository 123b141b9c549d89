//! The cluster layer on a real API server, with the rights of its roles: writes and their preconditions, evictions, status, the lease,
//! events, fresh reads, and watches that outlive the server.

use std::time::Duration;

use k8s_openapi::api::{core::v1::Pod, policy::v1::PodDisruptionBudget};
use kube::{Api, api::PostParams};
use lockkeeper::{
    api::{
        NodeHandoffSpec, NodeHandoffStatus, ObjectKey, Phase,
        access::Role,
        handoff::HandoffAction,
        keys::{FINALIZER, Slot},
    },
    cluster::{
        Cluster, RefusalClass, Writer, Written, access,
        events::{Events, Happening, Regarding, Severity},
        fresh::{self, Wanted},
        lease::{Config, Keeper},
        watch::{Pace, Signal, Watches},
        write::open,
    },
    fleet::{
        event::{Change, Event, Kind},
        records::{HandoffRecord, NodeRecord},
        view::WatchState,
    },
    handoff::action::{HandoffRef, NodeChange, NodePatch, PodRef},
};
use serde_json::json;

use crate::{
    by_hand::HandMadeNode,
    installed::installed,
    support::controlplane::{Component, ControlPlane, User},
    wait::{CONTROLLER, eventually},
};

async fn cluster(plane: &ControlPlane, user: User) -> Cluster {
    let cluster = Cluster::over(plane.client(user).await, user == User::Viewer, user.name(), plane.server());
    cluster.identified().await.expect("the server answers")
}

fn writer(cluster: &Cluster) -> Writer {
    Writer::new(cluster, cluster.write_cap().expect("not read-only"), open())
}

async fn node(cluster: &Cluster, name: &str) -> NodeRecord {
    fresh::get(cluster, Kind::Node, "", name).await.expect("read").and_then(fresh::node_of).expect("a node")
}

fn patch(node: &NodeRecord, changes: Vec<NodeChange>) -> NodePatch {
    NodePatch {
        node: node.name.clone(),
        uid: node.meta.uid.clone(),
        resource_version: node.meta.resource_version.clone(),
        changes,
    }
}

fn pod(name: &str, node: &str, labels: serde_json::Value) -> Pod {
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {"terminationGracePeriodSeconds": 30, "tolerations": [{"operator": "Exists"}], "containers": [{"name": "c", "image": "none"}]},
    });
    if !node.is_empty() {
        pod["spec"]["nodeName"] = json!(node);
    } else {
        pod["spec"]["schedulerName"] = json!("nobody");
    }
    serde_json::from_value(pod).expect("pod")
}

#[test]
fn a_node_patch_holds_only_for_the_node_that_was_seen() {
    let Some(plane) = installed() else { return };
    block_on(async {
        let cluster = cluster(plane, User::Reconciler).await;
        assert!(
            cluster.info().version.starts_with("v1.") && !cluster.info().uid.is_empty() && cluster.info().user == "reconciler"
        );
        assert_eq!(access::missing(&cluster, Role::Reconciler).await.expect("reviews"), Vec::new());
        let made = HandMadeNode::ready(&plane.client(User::Admin).await, "rim-n1", &[]).await;
        let writer = writer(&cluster);
        // The node lifecycle controller writes the node too: what was seen may be old by the time it is used.
        let closed = loop {
            let seen = node(&cluster, "rim-n1").await;
            let label = NodeChange::Label { key: "rim.test/a".into(), value: Some("1".into()) };
            match writer.patch_node(&patch(&seen, vec![label, NodeChange::Unschedulable(true)])).await {
                Written::Applied(Some(record)) => break fresh::node_of(*record).expect("a node"),
                Written::Conflict { .. } => {}
                other => panic!("{other:?}"),
            }
        };
        assert!(closed.unschedulable && closed.labels.contains_key("rim.test/a"));
        assert!(closed.unschedulable_managers.iter().any(|manager| &**manager == "lockkeeper"), "{closed:?}");
        let mut old = closed.clone();
        old.meta.resource_version = "1".into();
        let stale = writer.patch_node(&patch(&old, vec![NodeChange::Unschedulable(false)])).await;
        assert!(matches!(stale, Written::Conflict { .. }), "{stale:?}");
        let mut other = node(&cluster, "rim-n1").await;
        other.meta.uid = "0b0b0b0b-0000-0000-0000-000000000000".into();
        let other = writer.patch_node(&patch(&other, vec![NodeChange::Unschedulable(false)])).await;
        assert!(matches!(other, Written::Conflict { .. } | Written::Refused(_)), "{other:?}");
        assert!(node(&cluster, "rim-n1").await.unschedulable);
        made.delete().await;
    });
}

#[test]
fn evictions_are_pinned_carry_their_grace_and_name_a_budget() {
    let Some(plane) = installed() else { return };
    block_on(async {
        let cluster = cluster(plane, User::Reconciler).await;
        let admin = plane.client(User::Admin).await;
        let made = HandMadeNode::ready(&admin, "rim-n2", &[]).await;
        let pods: Api<Pod> = Api::namespaced(admin.clone(), "default");
        pods.create(&PostParams::default(), &pod("rim-db", "rim-n2", json!({"app": "rim-db"}))).await.expect("create a pod");
        // A pod that is not Running is evicted past every budget: act as its kubelet.
        let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        pods.patch_status("rim-db", &Default::default(), &kube::api::Patch::Merge(&status)).await.expect("status");
        let writer = writer(&cluster);
        let read = async || {
            let record = fresh::get(&cluster, Kind::Pod, "default", "rim-db").await.map_err(|error| error.to_string())?;
            record.and_then(fresh::pod_of).ok_or_else(|| "no pod".to_owned())
        };
        let mut known = PodRef::of(&read().await.expect("a pod"));
        let namesake = PodRef { uid: "0b0b0b0b-0000-0000-0000-000000000000".into(), ..known.clone() };
        assert_eq!(writer.evict(&namesake, None).await, Written::Gone);
        assert_eq!(writer.delete_pod(&namesake).await, Written::Gone);
        let budgets: Api<PodDisruptionBudget> = Api::namespaced(admin.clone(), "default");
        let budget =
            json!({"metadata": {"name": "rim-db"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "rim-db"}}}});
        budgets.create(&PostParams::default(), &serde_json::from_value(budget).expect("budget")).await.expect("create a budget");
        // A controller may write it in the moment between.
        let (seen, blocked) = eventually("the budget's own answer", CONTROLLER, || async {
            let seen = PodRef::of(&read().await?);
            match writer.evict(&seen, None).await {
                Written::Refused(refusal)
                    if refusal.causes.iter().any(|(_, message)| message.contains("needs 1 healthy pods")) =>
                {
                    Ok(Some((seen, refusal)))
                }
                Written::Refused(_) => Ok(None),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
        known = seen;
        assert_eq!(blocked.class(), RefusalClass::DisruptionBudget);
        budgets.delete("rim-db", &Default::default()).await.expect("delete the budget");
        // It changed since it was looked at.
        let labelled = kube::api::Patch::Merge(json!({"metadata": {"labels": {"person": "was-here"}}}));
        pods.patch("rim-db", &Default::default(), &labelled).await.expect("label");
        assert!(matches!(writer.evict(&known, None).await, Written::Conflict { .. }));
        assert!(matches!(writer.delete_pod(&known).await, Written::Conflict { .. }));
        assert_eq!(pods.get("rim-db").await.expect("it stays").metadata.deletion_timestamp, None);
        eventually("the eviction", CONTROLLER, || async {
            match writer.evict(&PodRef::of(&read().await?), Some(7)).await {
                Written::Applied(None) => Ok(Some(())),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
        let leaving = pods.get("rim-db").await.expect("the pod is leaving");
        assert_eq!(leaving.metadata.deletion_grace_period_seconds, Some(7));
        let facts = fresh::node(
            &cluster,
            &"rim-n2".into(),
            &Wanted { incoming: true, devices: true, handoff: None, volumes: None, modules: false },
        )
        .await
        .expect("facts");
        // The scheduler may have put pods of other tests there.
        let ours = facts.pods.iter().filter(|pod| &*pod.key.namespace == "default" && pod.key.name.starts_with("rim-"));
        assert_eq!((ours.count(), facts.lease.is_some()), (1, true));
        assert!(facts.claims.is_some());
        pods.create(&PostParams::default(), &pod("rim-waiting", "", json!({}))).await.expect("create a pod");
        let facts =
            fresh::node(&cluster, &"rim-n2".into(), &Wanted { incoming: true, ..Wanted::default() }).await.expect("facts");
        assert!(facts.unbound.expect("asked for").iter().any(|pod| &*pod.key.name == "rim-waiting"));
        pods.delete("rim-waiting", &Default::default()).await.expect("delete");
        pods.delete("rim-db", &kube::api::DeleteParams::default().grace_period(0)).await.expect("delete");
        made.delete().await;
    });
}

#[test]
fn handoffs_are_created_marked_reported_changed_and_deleted() {
    let Some(plane) = installed() else { return };
    block_on(async {
        let cluster = cluster(plane, User::Reconciler).await;
        let operator = writer(&self::cluster(plane, User::Operator).await);
        let writer = writer(&cluster);
        let key = ObjectKey::new("default", "rim.n1");
        let spec = NodeHandoffSpec {
            component: "rim".into(),
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
            Written::Applied(Some(record)) => fresh::handoff_of(*record).expect("a handoff"),
            other => panic!("not applied: {other:?}"),
        };
        let of = |record: &HandoffRecord| HandoffRef {
            key: record.key.clone(),
            uid: record.meta.uid.clone(),
            resource_version: record.meta.resource_version.clone(),
        };
        let made = record(operator.create_handoff(&key, &spec).await);
        assert_eq!(operator.create_handoff(&key, &spec).await, Written::AlreadyExists);
        let marked = record(writer.set_handoff_finalizer(&of(&made), &made.finalizers, true).await);
        assert_eq!(marked.finalizers, [FINALIZER.into()]);
        let status = NodeHandoffStatus {
            phase: Phase::Draining,
            phase_since: Some("2026-01-01T00:00:00Z".into()),
            evicted: vec!["u".into()],
            ..Default::default()
        };
        assert!(matches!(writer.put_handoff_status(&of(&made), &status).await, Written::Conflict { .. }));
        let reported = record(writer.put_handoff_status(&of(&marked), &status).await);
        assert_eq!((reported.status.phase, reported.status.evicted.len()), (Phase::Draining, 1));
        assert_eq!(reported.spec.as_ref().expect("spec"), &spec, "a status write leaves the spec alone");
        let done = record(
            writer.put_handoff_status(&of(&reported), &NodeHandoffStatus { phase: Phase::Done, ..Default::default() }).await,
        );
        assert_eq!((done.status.phase_since.clone(), done.status.evicted.len()), (None, 0), "what a status leaves out is gone");
        let held = NodeHandoffSpec {
            action: HandoffAction::Hold,
            position: None,
            pause_after: Vec::new(),
            reason: String::new(),
            ..spec.clone()
        };
        let changed = record(operator.patch_handoff_spec(&of(&done), &held).await);
        assert_eq!(changed.spec.as_ref().expect("spec"), &held);
        assert!(operator.delete_handoff(&key, &changed.meta.uid).await.is_applied());
        let leaving = fresh::get(&cluster, Kind::Handoff, "default", "rim.n1")
            .await
            .expect("read")
            .and_then(fresh::handoff_of)
            .expect("it stays");
        assert!(leaving.meta.deletion.is_some());
        assert!(writer.set_handoff_finalizer(&of(&leaving), &leaving.finalizers, false).await.is_applied());
        assert_eq!(fresh::get(&cluster, Kind::Handoff, "default", "rim.n1").await.expect("read"), None);
        // The operator may not do the engine's part; the verb is named.
        match operator.put_handoff_status(&of(&changed), &status).await {
            Written::Refused(refusal) => assert!(
                refusal.class() == RefusalClass::Forbidden && refusal.message.contains("nodehandoffs/status"),
                "{refusal}"
            ),
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn the_lease_changes_hands_with_its_slots_and_events_are_told() {
    // A server of its own: there is one Lease.
    let Some(plane) = ControlPlane::own(&[]) else { return };
    crate::installed::install(&plane);
    block_on(async {
        let cluster = cluster(&plane, User::Reconciler).await;
        let (a, task) = Keeper::start(&cluster, cluster.write_cap().expect("not read-only"), "a", Config::default());
        let led = |keeper: Keeper| {
            eventually("the lease", CONTROLLER, move || std::future::ready(Ok::<_, String>(keeper.leadership())))
        };
        assert_eq!(led(a.clone()).await.epoch, 1);
        let slot = Slot { node: "n1".into(), node_uid: "u".into(), component: "ns/gpu".into() };
        let admitted = a.admit(&slot, &[]).await;
        assert!(matches!(&admitted, Written::Applied(Some(_))), "{admitted:?}");
        assert!(matches!(a.admit(&slot, &[]).await, Written::Conflict { .. }));
        tokio::time::sleep(Duration::from_secs(5)).await;
        eventually("the fence to let it through", CONTROLLER, || {
            std::future::ready((a.fence())().map(Some).map_err(|fenced| format!("{fenced:?}")))
        })
        .await;
        let other = self::cluster(&plane, User::Reconciler).await;
        let (b, _task) = Keeper::start(&other, other.write_cap().expect("not read-only"), "b", Config::default());
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert!(b.leadership().is_none());
        a.stop().await;
        task.await.expect("the task ends");
        assert_eq!(led(b.clone()).await.epoch, 2);
        assert!(b.release(&slot, std::slice::from_ref(&slot)).await.is_applied());
        let (events, _task) = Events::start(&other, other.write_cap().expect("not read-only"), b.fence(), "b");
        let happening = Happening {
            regarding: Regarding {
                api_version: "v1",
                kind: "Node",
                namespace: String::new(),
                name: "n1".into(),
                uid: "u".into(),
            },
            severity: Severity::Warning,
            reason: "Cordoned".into(),
            action: "Cordon".into(),
            note: "closed".into(),
        };
        events.tell(happening.clone());
        events.tell(happening);
        let shown = eventually("the event", CONTROLLER, || async {
            let shown = plane
                .kubectl([
                    "get",
                    "events.v1.events.k8s.io",
                    "-n",
                    "default",
                    "-o",
                    "jsonpath={range .items[*]}{.reason} {.series.count}{end}",
                ])
                .expect_ok();
            Ok::<_, String>(shown.contains("Cordoned 2").then_some(shown))
        })
        .await;
        assert_eq!((shown.trim(), events.lost()), ("Cordoned 2", 0));
    });
}

#[test]
fn watches_of_every_kind_outlive_the_server() {
    let Some(plane) = ControlPlane::own(&[]) else { return };
    crate::installed::install(&plane);
    for crd in lockkeeper::sim::actors::kmm::crds() {
        plane.kubectl_as(User::Admin, ["apply", "--server-side", "-f", "-"], &crd.to_string()).expect_ok();
    }
    block_on(async {
        let cluster = cluster(&plane, User::Viewer).await;
        let (watches, mut signals) = Watches::start(&cluster, &Kind::ALL, Pace::default());
        let nodes = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let seen = nodes.clone();
        tokio::spawn(async move {
            while let Some(signal) = signals.recv().await {
                if let Signal::Change(Change { kind: Kind::Node, event: Event::Apply(record) }) = signal {
                    seen.lock().expect("lock").push(record.key().name.to_string());
                }
            }
        });
        let live = |what: &'static str| {
            let board = watches.board().clone();
            eventually(what, CONTROLLER, move || {
                let health = board.health();
                let all = health.iter().all(|health| health.state == WatchState::Live);
                let bad = health.iter().find(|health| health.state != WatchState::Live).map(|health| format!("{health:?}"));
                std::future::ready(if all { Ok(Some(())) } else { Err(bad.unwrap_or_default()) })
            })
        };
        live("all watches").await;
        plane.kill(Component::ApiServer);
        let board = watches.board().clone();
        eventually("the failure to show", CONTROLLER, || {
            let down = board.health().iter().all(|health| matches!(health.state, WatchState::Retrying { .. }));
            std::future::ready(Ok::<_, String>(down.then_some(())))
        })
        .await;
        plane.start_again(Component::ApiServer);
        live("all watches again").await;
        let made = HandMadeNode::ready(&plane.client(User::Admin).await, "rim-late", &[]).await;
        eventually("the new node", CONTROLLER, || {
            let there = nodes.lock().expect("lock").iter().any(|name| name == "rim-late");
            std::future::ready(Ok::<_, String>(there.then_some(())))
        })
        .await;
        assert_eq!(cluster.counters().writes(), 0);
        made.delete().await;
    });
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime").block_on(future)
}
