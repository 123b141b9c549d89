//! DaemonSets: updates, revisions, deletion, adoption.

use serde_json::json;

use super::super::story::*;

fn web(strategy: serde_json::Value) -> Step {
    daemon_set("web", strategy, template("web", "v1"))
}

fn one_at_a_time() -> serde_json::Value {
    rolling(json!({"maxUnavailable": 1}))
}

const WEB: &str = "daemonsets/web";

pub fn all() -> Vec<Story> {
    vec![
        story("ds-rolling-one", 3, [web(one_at_a_time()), image(WEB, "v2")]).ordered(),
        story("ds-rolling-two", 3, [web(rolling(json!({"maxUnavailable": 2}))), image(WEB, "v2")]),
        story("ds-rolling-percent", 3, [web(rolling(json!({"maxUnavailable": "50%"}))), image(WEB, "v2")]),
        story("ds-surge", 3, [web(rolling(json!({"maxSurge": 1, "maxUnavailable": 0}))), image(WEB, "v2")]),
        story("ds-surge-percent", 3, [web(rolling(json!({"maxSurge": "100%", "maxUnavailable": 0}))), image(WEB, "v2")]),
        story("ds-on-delete", 2, [web(on_delete()), image(WEB, "v2"), delete("pods/web@a"), delete("pods/web@b")]),
        story(
            "ds-back-to-old",
            2,
            [web(on_delete()), image(WEB, "v2"), delete("pods/web@a"), image(WEB, "v1"), delete("pods/web@a"), image(WEB, "v3")],
        ),
        story("ds-back-rolling", 2, [web(one_at_a_time()), image(WEB, "v2"), image(WEB, "v1")]).ordered(),
        story(
            "ds-history-limit",
            1,
            [
                web(one_at_a_time()),
                merge(WEB, json!({"spec": {"revisionHistoryLimit": 1}})),
                image(WEB, "v2"),
                image(WEB, "v3"),
                image(WEB, "v4"),
            ],
        ),
        story(
            "ds-strategy-changed",
            2,
            [
                web(on_delete()),
                image(WEB, "v2"),
                merge(
                    WEB,
                    json!({"spec": {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}}}}),
                ),
            ],
        )
        .ordered(),
        story("ds-pod-deleted", 2, [web(on_delete()), delete("pods/web@a")]),
        story("ds-pod-failed", 2, [web(on_delete()), fail("pods/web@a")]),
        story("ds-pod-evicted", 2, [web(on_delete()), evict("pods/web@a")]),
        story("ds-min-ready", 2, [web(one_at_a_time()), merge(WEB, json!({"spec": {"minReadySeconds": 3}})), image(WEB, "v2")])
            .ordered(),
        story(
            "ds-unready-update",
            3,
            [
                daemon_set("web", one_at_a_time(), {
                    let mut template = template("web", "v1");
                    template["metadata"]["annotations"] = json!({"sim.lockkeeper.dev/unready": "true"});
                    template
                }),
                image(WEB, "v2"),
            ],
        ),
        story("ds-background", 2, [web(on_delete()), delete(WEB)]),
        story("ds-foreground", 2, [web(on_delete()), delete_as(WEB, "Foreground")]),
        story("ds-orphan", 2, [web(on_delete()), delete_as(WEB, "Orphan")]),
        story("ds-adoption", 2, [web(on_delete()), delete_as(WEB, "Orphan"), web(on_delete())]),
        story(
            "ds-adoption-of-old",
            2,
            [
                web(on_delete()),
                delete_as(WEB, "Orphan"),
                daemon_set("web", on_delete(), template("web", "v2")),
                delete("pods/web@b"),
            ],
        ),
        story("ds-release", 2, [web(on_delete()), merge("pods/web@a", json!({"metadata": {"labels": {"app": "other"}}}))]),
    ]
}
