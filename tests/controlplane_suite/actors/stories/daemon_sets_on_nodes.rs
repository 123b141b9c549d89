//! DaemonSets and what becomes of nodes: labels, taints, cordons, nodes that come and go.

use serde_json::json;

use super::super::story::*;

fn web(strategy: serde_json::Value) -> Step {
    daemon_set("web", strategy, template("web", "v1"))
}

pub fn all() -> Vec<Story> {
    let selecting =
        || daemon_set("web", on_delete(), with(template("web", "v1"), json!({"nodeSelector": {"pool": "$NS", "on": "yes"}})));
    let tolerating = |effect: &str| {
        let tolerations = json!({"tolerations": [{"key": "story", "operator": "Exists", "effect": effect}]});
        daemon_set("web", on_delete(), with(template("web", "v1"), tolerations))
    };
    let affinity = json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "on", "operator": "In", "values": ["yes", "maybe"]}]},
        {"matchExpressions": [{"key": "on", "operator": "DoesNotExist"}, {"key": "also", "operator": "Exists"}]},
    ]}}}});
    vec![
        story(
            "ds-label",
            2,
            [
                selecting(),
                label("a", "on", Some("yes")),
                label("b", "on", Some("yes")),
                label("a", "on", None),
                label("a", "on", Some("no")),
                label("b", "on", Some("no")),
                label("a", "on", Some("yes")),
            ],
        ),
        story(
            "ds-affinity",
            3,
            [
                daemon_set("web", on_delete(), with(template("web", "v1"), affinity)),
                label("a", "on", Some("maybe")),
                label("b", "also", Some("1")),
                label("b", "on", Some("never")),
                label("c", "on", Some("yes")),
            ],
        ),
        story(
            "ds-no-schedule",
            2,
            [taint("a", Some("NoSchedule")), web(on_delete()), taint("a", None), taint("b", Some("NoSchedule"))],
        ),
        story(
            "ds-no-schedule-deleted",
            2,
            [web(on_delete()), taint("b", Some("NoSchedule")), delete("pods/web@b"), taint("b", None)],
        ),
        story("ds-no-execute", 2, [web(on_delete()), taint("a", Some("NoExecute")), taint("a", None)]),
        story(
            "ds-tolerates",
            2,
            [
                tolerating("NoExecute"),
                taint("a", Some("NoExecute")),
                taint("b", Some("NoSchedule")),
                delete("pods/web@a"),
                delete("pods/web@b"),
            ],
        ),
        story("ds-prefer-no-schedule", 1, [taint("a", Some("PreferNoSchedule")), web(on_delete())]),
        story("ds-cordon", 2, [cordon("a", true), web(on_delete()), delete("pods/web@a"), cordon("b", true), cordon("a", false)]),
        story("ds-node-added", 1, [web(on_delete()), Step::AddMachine("b")]),
        story("ds-node-removed", 2, [web(on_delete()), Step::RemoveMachine("b")]),
        story("ds-named-node", 2, [daemon_set("web", on_delete(), with(template("web", "v1"), json!({"nodeName": "$a"})))]),
        story(
            "ds-things",
            2,
            [
                pod("taker", with(things(template("taker", "v1"), 2), json!({"nodeName": "$a"}))),
                daemon_set("web", on_delete(), things(template("web", "v1"), 1)),
                delete("pods/taker"),
            ],
        ),
    ]
}
