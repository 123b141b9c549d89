//! What the printed roles let their users do, and what they do not.

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{DeleteParams, ListParams},
};
use serde_json::json;

use crate::{
    apply::{Caller, Stay},
    installed::installed,
    samples::{component, handoff},
    support::controlplane::User,
    wait::{CONTROLLER, eventually},
};

/// Resources as [`Caller::may`] takes them, with the verbs to try.
type Table = &'static [(&'static str, &'static [&'static str])];

async fn surprises(user: User, allowed: Table, denied: Table) -> Vec<String> {
    let Some(plane) = installed() else { return Vec::new() };
    let caller = Caller::new(plane, user).await;
    let mut surprises = Vec::new();
    for (table, wanted) in [(allowed, true), (denied, false)] {
        for (resource, verbs) in table {
            for verb in *verbs {
                if caller.may(verb, resource).await != wanted {
                    let may = if wanted { "may not" } else { "may" };
                    surprises.push(format!("{} {may} {verb} {resource}", user.name()));
                }
            }
        }
    }
    surprises
}

const READ: &[&str] = &["get", "list", "watch"];
const WRITE: &[&str] = &["create", "update", "patch", "delete", "deletecollection"];

/// What the fleet view is made of.
const SEEN: Table = &[
    ("nodecomponents.lockkeeper.dev", READ),
    ("nodehandoffs.lockkeeper.dev", READ),
    ("nodes", READ),
    ("pods", READ),
    ("daemonsets.apps", READ),
    ("poddisruptionbudgets.policy", READ),
    ("resourceclaims.resource.k8s.io", READ),
    ("resourceslices.resource.k8s.io", READ),
];

#[tokio::test]
async fn a_viewer_sees_the_fleet_and_writes_nothing() {
    let writes: Table = &[
        ("nodecomponents.lockkeeper.dev", WRITE),
        ("nodecomponents.lockkeeper.dev/status", WRITE),
        ("nodehandoffs.lockkeeper.dev", WRITE),
        ("nodehandoffs.lockkeeper.dev/status", WRITE),
        ("nodes", WRITE),
        ("nodes.lockkeeper.dev", &["interlock"]),
        ("pods", WRITE),
        ("pods/eviction", &["create"]),
        ("daemonsets.apps", WRITE),
        ("secrets", READ),
    ];
    let surprises = surprises(User::Viewer, SEEN, writes).await;
    assert!(surprises.is_empty(), "{}", surprises.join("\n"));
}

#[tokio::test]
async fn an_operator_asks_for_handoffs_and_touches_no_node() {
    let surprises = [
        surprises(User::Operator, SEEN, &[]).await,
        surprises(
            User::Operator,
            &[
                ("nodehandoffs.lockkeeper.dev", &["create", "update", "patch", "delete"]),
                ("nodecomponents.lockkeeper.dev", &["create", "update", "patch", "delete"]),
            ],
            &[
                ("nodehandoffs.lockkeeper.dev", &["override"]),
                ("nodehandoffs.lockkeeper.dev/status", WRITE),
                ("nodecomponents.lockkeeper.dev/status", WRITE),
                ("nodes", WRITE),
                ("nodes.lockkeeper.dev", &["interlock"]),
                ("pods", WRITE),
                ("pods/eviction", &["create"]),
                ("daemonsets.apps", WRITE),
                ("secrets", READ),
            ],
        )
        .await,
    ]
    .concat();
    assert!(surprises.is_empty(), "{}", surprises.join("\n"));
}

#[tokio::test]
async fn the_reconciler_may_do_what_the_engine_does_and_no_more() {
    let surprises = [
        surprises(User::Reconciler, SEEN, &[]).await,
        surprises(
            User::Reconciler,
            &[
                ("nodehandoffs.lockkeeper.dev", &["create", "patch"]),
                ("nodehandoffs.lockkeeper.dev/status", &["update"]),
                ("nodecomponents.lockkeeper.dev/status", &["update"]),
                ("nodes", &["patch"]),
                ("nodes.lockkeeper.dev", &["interlock"]),
                ("pods/eviction", &["create"]),
                ("pods", &["create", "delete"]),
                ("daemonsets.apps", &["create", "delete"]),
                ("lockkeeper-system:leases.coordination.k8s.io", &["create", "get"]),
                ("events.events.k8s.io", &["create", "patch"]),
            ],
            &[
                ("nodes", &["create", "delete", "deletecollection"]),
                ("nodecomponents.lockkeeper.dev", &["create", "delete"]),
                ("secrets", READ),
                ("namespaces", &["delete"]),
                ("pods/exec", &["create"]),
                ("kube-system:leases.coordination.k8s.io", &["create", "update", "patch"]),
                ("nodehandoffs.lockkeeper.dev", &["override"]),
            ],
        )
        .await,
    ]
    .concat();
    assert!(surprises.is_empty(), "{}", surprises.join("\n"));
}

#[tokio::test]
async fn an_operator_needs_the_right_to_daemon_sets_too_for_a_component() {
    let Some(plane) = installed() else { return };
    let operator = Caller::new(plane, User::Operator).await;
    let refused = operator.apply(&component("default", "roles", "1.0"), Stay::No).await.expect_err("a component");
    assert!(refused.says(&["operator", "DaemonSets", "default"]), "{refused}");
    operator.apply(&handoff("default", "roles", "n1", "1.0"), Stay::No).await.expect("a handoff");
}

#[tokio::test]
async fn the_deployment_makes_two_pods_that_a_restricted_namespace_takes() {
    let Some(plane) = installed() else { return };
    let admin = Caller::new(plane, User::Admin).await;
    let restricted = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
    admin.merge("/api/v1/namespaces/lockkeeper-system", &restricted, Stay::Yes).await.expect("label the namespace");
    // Pods made before that were not checked.
    let pods: Api<Pod> = Api::namespaced(plane.client(User::Admin).await, "lockkeeper-system");
    pods.delete_collection(&DeleteParams::default().grace_period(0), &ListParams::default()).await.expect("delete pods");
    eventually("two pods of the Deployment", CONTROLLER, || async {
        let pods = pods.list(&ListParams::default().labels("app.kubernetes.io/name=lockkeeper")).await?;
        Ok::<_, kube::Error>((pods.items.len() == 2).then_some(()))
    })
    .await;
}
