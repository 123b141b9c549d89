//! ReplicaSets, Deployments and StatefulSets: pods that come back, scales, updates, adoption.

use serde_json::json;

use super::super::story::*;

pub fn all() -> Vec<Story> {
    let app = |app: &str| template(app, "v1");
    let surge = json!({"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}});
    vec![
        story("rs-evicted", 2, [replica_set("app", 3, app("app")), evict("pods/app#0"), evict("pods/app#1")]),
        story("rs-deleted-by-hand", 2, [replica_set("app", 2, app("app")), delete("pods/app#0")]),
        story("rs-failed", 2, [replica_set("app", 2, app("app")), fail("pods/app#0")]),
        story(
            "rs-scale",
            2,
            [
                replica_set("app", 3, app("app")),
                scale("replicasets/app", 1),
                scale("replicasets/app", 2),
                scale("replicasets/app", 0),
            ],
        ),
        story(
            "rs-scale-unready-first",
            2,
            [
                replica_set("app", 2, app("app")),
                cordon("a", true),
                cordon("b", true),
                scale("replicasets/app", 4),
                scale("replicasets/app", 2),
            ],
        ),
        story("rs-adopts", 2, [pod("lonely", app("app")), replica_set("app", 2, app("app"))]),
        story("rs-adopts-too-many", 2, [pod("one", app("app")), pod("two", app("app")), replica_set("app", 1, app("app"))]),
        story(
            "rs-releases",
            2,
            [replica_set("app", 2, app("app")), merge("pods/app#0", json!({"metadata": {"labels": {"app": "other"}}}))],
        ),
        story("rs-orphans", 1, [replica_set("app", 2, app("app")), delete_as("replicasets/app", "Orphan")]),
        story("rs-foreground", 1, [replica_set("app", 2, app("app")), delete_as("replicasets/app", "Foreground")]),
        story("deploy-evicted", 2, [deployment("app", 2, app("app"), json!({})), evict("pods/app#0")]),
        story(
            "deploy-recreate",
            2,
            [deployment("app", 2, app("app"), json!({"strategy": {"type": "Recreate"}})), image("deployments/app", "v2")],
        ),
        story("deploy-surge-one", 2, [deployment("app", 2, app("app"), surge), image("deployments/app", "v2")]),
        story("deploy-scale", 2, [deployment("app", 1, app("app"), json!({})), scale("deployments/app", 3)]),
        story(
            "sts-ordered",
            2,
            [stateful_set("db", 3, app("db"), "OrderedReady"), scale("statefulsets/db", 1), scale("statefulsets/db", 2)],
        )
        .ordered(),
        story("sts-parallel", 2, [stateful_set("db", 3, app("db"), "Parallel"), scale("statefulsets/db", 1)]),
        story("sts-evicted", 2, [stateful_set("db", 2, app("db"), "OrderedReady"), evict("pods/db-0"), evict("pods/db-1")])
            .ordered(),
        story("sts-failed", 2, [stateful_set("db", 2, app("db"), "OrderedReady"), fail("pods/db-0")]).ordered(),
        story("sts-rolls", 2, [stateful_set("db", 3, app("db"), "OrderedReady"), image("statefulsets/db", "v2")]).ordered(),
        story(
            "sts-on-delete",
            2,
            [
                stateful_set("db", 2, app("db"), "OrderedReady"),
                merge("statefulsets/db", json!({"spec": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": null}}})),
                image("statefulsets/db", "v2"),
                delete("pods/db-0"),
            ],
        )
        .ordered(),
    ]
}
