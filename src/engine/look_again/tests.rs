//! The second look at components and at the Lease: what the server says now decides, not what the watches said.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::*;
use crate::{
    api::keys::{FINALIZER, Role},
    cluster::testing::{Answer, Asked, cluster, status},
    fleet::{build::*, records::Deletion},
    handoff::{decide::decide_fleet, facts::Context, observed::Observed},
};

const GPU: &str = "ns/gpu";

/// What the watches showed, and the one action that follows for the subject.
fn decided(mut fleet: FleetBuilder, subject: &Subject) -> (Mind, Action) {
    let view = fleet.project(at(0));
    let context = Context { lease_held: true, epoch: 1, identity: "me".into(), cluster_max_unavailable: 1, read_only: false };
    let mut observed = Observed::default();
    observed.observe(&view);
    let decisions = decide_fleet(&view, &observed, &context, None, &BTreeSet::new());
    let action = decisions.actions().find(|(other, _)| other == subject).map(|(_, action)| action.clone());
    (Mind { view, observed, context, decisions: Arc::new(decisions) }, action.expect("something to do"))
}

async fn second(fleet: FleetBuilder, subject: Subject, answer: impl Fn(&str) -> Answer + Send + 'static) -> &'static str {
    let (mind, action) = decided(fleet, &subject);
    let (cluster, _) = cluster(false, move |asked: &Asked| answer(&asked.uri));
    match look_again(&cluster, &mind, &subject, &action, &mut Vec::new()).await {
        Second::Same(again) => {
            assert!(again.is_same_as(&action));
            "same"
        }
        Second::Other => "other",
        Second::Unread(_) => "unread",
    }
}

fn list(items: Vec<Value>) -> Answer {
    Answer::Json(200, json!({"kind": "List", "metadata": {"resourceVersion": "9"}, "items": items}))
}

fn meta(name: &str, more: Value) -> Value {
    let mut meta = json!({"name": name, "namespace": "ns", "uid": format!("uid-{name}"), "resourceVersion": "7"});
    more.as_object().into_iter().flatten().for_each(|(key, value)| meta[key] = value.clone());
    meta
}

/// A component that is being deleted; with or without its DaemonSets.
fn deleted(sets: bool) -> FleetBuilder {
    let made = component(GPU).finalizer(FINALIZER);
    let made = if sets { made.made("1") } else { made };
    let records = made.records().into_iter().map(|record| match record {
        Record::Component(mut it) => {
            it.meta.deletion = Some(Deletion { at: at(-10), grace: 0 });
            it.meta.uid = "uid-gpu".into();
            Record::Component(it)
        }
        other => other,
    });
    fleet().with(records.collect::<Vec<_>>()).with(node("n1"))
}

struct Server {
    component: Value,
    sets: Vec<Value>,
    nodes: Vec<Value>,
    pods: Vec<Value>,
}

impl Server {
    fn clear() -> Self {
        let deletion = json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [FINALIZER]});
        Self {
            component: json!({"metadata": meta("gpu", deletion), "spec": {}}),
            sets: Vec::new(),
            nodes: vec![json!({"metadata": {"name": "n1", "uid": "u", "resourceVersion": "7"}})],
            pods: Vec::new(),
        }
    }

    async fn asked(self, sets: bool) -> &'static str {
        second(deleted(sets), Subject::Component(key(GPU)), move |uri| match uri {
            uri if uri.contains("/nodecomponents/gpu") => Answer::Json(200, self.component.clone()),
            uri if uri.contains("/daemonsets") => list(self.sets.clone()),
            uri if uri.contains("/pods") => list(self.pods.clone()),
            uri if uri.contains("/nodes") => list(self.nodes.clone()),
            uri => panic!("{uri}"),
        })
        .await
    }
}

#[tokio::test(start_paused = true)]
async fn the_finalizer_of_a_component_goes_when_nothing_of_it_is_left() {
    let with = |change: fn(&mut Server)| {
        let mut server = Server::clear();
        change(&mut server);
        server
    };
    assert_eq!(Server::clear().asked(false).await, "same");
    let kept = with(|it| it.component["metadata"] = meta("gpu", json!({"finalizers": [FINALIZER]})));
    assert_eq!(kept.asked(false).await, "other", "it is not being deleted any more");
    let another = with(|it| it.component["metadata"]["uid"] = json!("another"));
    assert_eq!(another.asked(false).await, "other", "another component of its name");
    let set = with(|it| it.sets.push(json!({"metadata": meta("gpu-loader-1", json!({})), "spec": {}, "status": {}})));
    assert_eq!(set.asked(false).await, "other", "a DaemonSet is left");
    let labelled = with(|it| {
        let labels = json!({Role::Desired.key(&key(GPU)): "1"});
        it.nodes.push(json!({"metadata": {"name": "n2", "uid": "u2", "resourceVersion": "7", "labels": labels}}));
    });
    assert_eq!(labelled.asked(false).await, "other", "somebody labelled a node");
    let recorded = with(|it| {
        let annotations = json!({Role::Loaded.key(&key(GPU)): "{\"version\":\"1\"}"});
        it.nodes.push(json!({"metadata": {"name": "n2", "uid": "u2", "resourceVersion": "7", "annotations": annotations}}));
    });
    assert_eq!(recorded.asked(false).await, "other", "it may be in a kernel");
    let unread = second(deleted(false), Subject::Component(key(GPU)), |_| status(503, "ServiceUnavailable")).await;
    assert_eq!(unread, "unread");
}

#[tokio::test(start_paused = true)]
async fn a_daemon_set_of_a_removed_component_goes_when_none_of_its_pods_is_left() {
    let (_, action) = decided(deleted(true), &Subject::Component(key(GPU)));
    let Op::DeleteDaemonSet { key: set, uid } = action.op else { panic!("{action:?}") };
    let server = |current: i64, pods: Vec<Value>| Server {
        sets: vec![json!({
            "metadata": {"name": set.name, "namespace": set.namespace, "uid": uid, "resourceVersion": "7"}, "spec": {},
            "status": {"currentNumberScheduled": current, "desiredNumberScheduled": current},
        })],
        pods,
        ..Server::clear()
    };
    assert_eq!(server(0, Vec::new()).asked(true).await, "same");
    assert_eq!(server(1, Vec::new()).asked(true).await, "other", "it has a pod");
    let labels = json!({keys::COMPONENT: "gpu", keys::ROLE: "loader", keys::VERSION: "1"});
    let pod = json!({"metadata": meta("p", json!({"labels": labels})), "spec": {"nodeName": "n1", "containers": []}, "status": {"phase": "Running"}});
    assert_eq!(server(0, vec![pod]).asked(true).await, "other", "its status lags behind its pods");
}

#[tokio::test(start_paused = true)]
async fn a_slot_is_freed_on_what_its_node_is_now() {
    let of = |slot: bool, node: Option<Value>| async move {
        let watched = fleet().with(lease("me").slot("n9", "ns/gone"));
        let slots = if slot { r#"[{"node":"n9","nodeUid":"uid-Node-n9","component":"ns/gone"}]"# } else { "[]" };
        let lease = json!({"metadata": {"name": "lockkeeper", "namespace": "lockkeeper-system", "uid": "l", "resourceVersion": "8",
            "annotations": {keys::SLOTS: slots}}, "spec": {"holderIdentity": "me", "leaseTransitions": 1}});
        second(watched, Subject::Lease, move |uri| match uri {
            uri if uri.contains("/leases/lockkeeper") => Answer::Json(200, lease.clone()),
            uri if uri.contains("/nodes/n9") => match &node {
                Some(node) => Answer::Json(200, node.clone()),
                None => status(404, "NotFound"),
            },
            uri if uri.contains("/pods") => list(Vec::new()),
            _ => status(404, "NotFound"),
        })
        .await
    };
    let node = |closed: bool, uid: &str| {
        Some(
            json!({"metadata": {"name": "n9", "uid": uid, "resourceVersion": "9"}, "spec": {"unschedulable": closed}, "status": {}}),
        )
    };
    assert_eq!(of(true, None).await, "same");
    assert_eq!(of(true, node(false, "uid-Node-n9")).await, "same", "it is there and open");
    assert_eq!(of(true, node(true, "uid-Node-n9")).await, "other", "it is there and closed");
    assert_eq!(of(false, None).await, "other", "somebody has freed it");
}
