//! PodDisruptionBudgets: their arithmetic, and evictions under them.

use serde_json::json;

use super::super::story::*;

pub fn all() -> Vec<Story> {
    let app = || deployment("app", 4, template("app", "v1"), json!({}));
    let guarded = |name: &'static str, rule: serde_json::Value| {
        story(name, 2, [app(), budget("app", "app", rule), evict("pods/app#0"), scale("deployments/app", 2), evict("pods/app#0")])
    };
    let unready = |policy: serde_json::Value| {
        let mut template = template("app", "v1");
        template["metadata"]["annotations"] = json!({"sim.lockkeeper.dev/unready": "true"});
        [replica_set("app", 2, template), budget("app", "app", policy), evict("pods/app#0")]
    };
    vec![
        guarded("pdb-min-2", json!({"minAvailable": 2})),
        guarded("pdb-min-60-percent", json!({"minAvailable": "60%"})),
        guarded("pdb-min-all", json!({"minAvailable": "100%"})),
        guarded("pdb-max-1", json!({"maxUnavailable": 1})),
        guarded("pdb-max-30-percent", json!({"maxUnavailable": "30%"})),
        guarded("pdb-max-0", json!({"maxUnavailable": 0})),
        guarded("pdb-neither", json!({})),
        story("pdb-unhealthy", 2, unready(json!({"minAvailable": 1}))),
        story("pdb-unhealthy-always", 2, unready(json!({"minAvailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow"}))),
        story("pdb-selects-nothing", 1, [budget("app", "nobody", json!({"minAvailable": 1}))]),
        story(
            "pdb-changes",
            2,
            [
                app(),
                budget("app", "app", json!({"minAvailable": 1})),
                merge("poddisruptionbudgets/app", json!({"spec": {"minAvailable": 3}})),
                merge("poddisruptionbudgets/app", json!({"spec": {"selector": {"matchLabels": {"app": "other"}}}})),
            ],
        ),
        story(
            "pdb-two",
            2,
            [
                app(),
                budget("one", "app", json!({"minAvailable": 1})),
                budget("two", "app", json!({"maxUnavailable": 2})),
                evict("pods/app#0"),
            ],
        ),
        story(
            "pdb-bare-pods-min",
            2,
            [
                pod("one", template("app", "v1")),
                pod("two", template("app", "v1")),
                budget("app", "app", json!({"minAvailable": 1})),
                evict("pods/one"),
                evict("pods/two"),
            ],
        ),
        story(
            "pdb-bare-pods-max",
            2,
            [pod("one", template("app", "v1")), budget("app", "app", json!({"maxUnavailable": 1})), evict("pods/one")],
        ),
        story(
            "pdb-daemon-set",
            2,
            [
                daemon_set("app", on_delete(), template("app", "v1")),
                budget("app", "app", json!({"maxUnavailable": 1})),
                evict("pods/app@a"),
            ],
        ),
        story(
            "pdb-daemon-set-min",
            2,
            [
                daemon_set("app", on_delete(), template("app", "v1")),
                budget("app", "app", json!({"minAvailable": 1})),
                evict("pods/app@a"),
            ],
        ),
        story(
            "pdb-stateful-set",
            2,
            [
                stateful_set("app", 3, template("app", "v1"), "Parallel"),
                budget("app", "app", json!({"maxUnavailable": "34%"})),
                evict("pods/app-1"),
            ],
        ),
        story(
            "pdb-owner-unknown",
            1,
            [
                pod("one", template("app", "v1")),
                budget("app", "app", json!({"maxUnavailable": 1})),
                // Only now, when the pod is ready: the garbage collector takes it away at once.
                merge(
                    "pods/one",
                    json!({"metadata": {"ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "nobody", "uid": "11111111-2222-3333-4444-555555555555", "controller": true}]}}),
                ),
            ],
        ),
        story(
            "pdb-disrupted-expires",
            2,
            [
                app(),
                budget("app", "app", json!({"minAvailable": 2})),
                status("poddisruptionbudgets/app", json!({"status": {"disruptedPods": {"$POD(app#0)": "$AGO(50)"}}})),
                Step::Pass(75),
            ],
        ),
        story(
            "pdb-disrupted-unknown-pod",
            2,
            [
                app(),
                budget("app", "app", json!({"minAvailable": 2})),
                status("poddisruptionbudgets/app", json!({"status": {"disruptedPods": {"nobody": "$AGO(1)"}}})),
            ],
        ),
    ]
}
