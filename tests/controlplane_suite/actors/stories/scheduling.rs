//! Scheduling: resources, selectors, taints, claims of devices.

use serde_json::json;

use super::super::story::*;

pub fn all() -> Vec<Story> {
    let on = |app: &str, spec: serde_json::Value| with(template(app, "v1"), spec);
    let seconds = json!({"tolerations": [{"key": "story", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 6}]});
    let claim_template = || {
        Step::Make(
            "resourceclaimtemplates",
            json!({"metadata": {"name": "one"}, "spec": {"spec": {"devices": {"requests": [
            {"name": "r", "exactly": {"deviceClassName": "$NS"}}]}}}}),
        )
    };
    let class = || {
        Step::Make(
            "deviceclasses",
            json!({"metadata": {"name": "$NS"}, "spec": {"selectors": [
        {"cel": {"expression": "device.driver == '$NS.example.com'"}}]}}),
        )
    };
    let slice = || {
        Step::Make(
            "resourceslices",
            json!({"metadata": {"name": "$NS-a"}, "spec": {
        "driver": "$NS.example.com", "nodeName": "$a", "pool": {"name": "$a", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "d0"}, {"name": "d1"}]}}),
        )
    };
    let claiming = |app: &str| {
        let mut template = on(app, json!({"resourceClaims": [{"name": "dev", "resourceClaimTemplateName": "one"}]}));
        template["spec"]["containers"][0]["resources"] = json!({"claims": [{"name": "dev"}]});
        template
    };
    vec![
        story(
            "sched-things",
            1,
            [
                pod("one", things(template("one", "v1"), 1)),
                pod("two", things(template("two", "v1"), 1)),
                pod("three", things(template("three", "v1"), 1)),
                delete("pods/one"),
            ],
        ),
        story("sched-too-many-things", 1, [pod("one", things(template("one", "v1"), 3))]),
        story(
            "sched-finished-pod-frees",
            1,
            [
                pod("one", things(on("one", json!({"restartPolicy": "Never"})), 2)),
                pod("two", things(template("two", "v1"), 2)),
                fail("pods/one"),
            ],
        ),
        story(
            "sched-selector",
            1,
            [
                pod("one", on("one", json!({"nodeSelector": {"pool": "$NS", "on": "yes"}}))),
                label("a", "on", Some("yes")),
                label("a", "on", None),
            ],
        ),
        story(
            "sched-affinity",
            2,
            [
                label("a", "size", Some("5")),
                label("b", "size", Some("50")),
                pod(
                    "one",
                    on(
                        "one",
                        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "size", "operator": "Gt", "values": ["9"]}]}]}}}}),
                    ),
                ),
                pod(
                    "two",
                    on(
                        "two",
                        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "size", "operator": "NotIn", "values": ["50"]}]}]}}}}),
                    ),
                ),
            ],
        ),
        story(
            "sched-field",
            2,
            [pod(
                "one",
                on(
                    "one",
                    json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["$b"]}]}]}}}}),
                ),
            )],
        ),
        story("sched-cordon", 1, [cordon("a", true), pod("one", template("one", "v1")), cordon("a", false)]),
        story(
            "sched-cordon-tolerated",
            1,
            [
                cordon("a", true),
                pod(
                    "one",
                    on("one", json!({"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]})),
                ),
            ],
        ),
        story("sched-no-schedule", 1, [taint("a", Some("NoSchedule")), pod("one", template("one", "v1")), taint("a", None)]),
        story("sched-prefer", 1, [taint("a", Some("PreferNoSchedule")), pod("one", template("one", "v1"))]),
        story("sched-no-execute", 1, [pod("one", template("one", "v1")), taint("a", Some("NoExecute"))]),
        story("sched-no-execute-seconds", 1, [pod("one", on("one", seconds)), taint("a", Some("NoExecute"))]),
        story("sched-other-scheduler", 1, [pod("one", on("one", json!({"schedulerName": "nobody"})))]),
        story("sched-node-comes", 0, [pod("one", template("one", "v1")), Step::AddMachine("a")]),
        story(
            "sched-gated",
            1,
            [
                pod("one", on("one", json!({"schedulingGates": [{"name": "story.dev/gate"}]}))),
                merge("pods/one", json!({"spec": {"schedulingGates": []}})),
            ],
        ),
        story(
            "dra-claims",
            1,
            [
                class(),
                claim_template(),
                slice(),
                pod("one", claiming("one")),
                pod("two", claiming("two")),
                pod("three", claiming("three")),
                delete("pods/one"),
            ],
        ),
        story(
            "dra-shared-claim",
            1,
            [
                class(),
                slice(),
                Step::Make(
                    "resourceclaims",
                    json!({"metadata": {"name": "shared"}, "spec": {"devices": {"requests": [
                {"name": "r", "exactly": {"deviceClassName": "$NS"}}]}}}),
                ),
                pod("one", on("one", json!({"resourceClaims": [{"name": "dev", "resourceClaimName": "shared"}]}))),
                pod("two", on("two", json!({"resourceClaims": [{"name": "dev", "resourceClaimName": "shared"}]}))),
                delete("pods/one"),
                delete("pods/two"),
            ],
        ),
        story("dra-no-slice", 1, [class(), claim_template(), pod("one", claiming("one")), slice()]),
        story(
            "priority-preempts",
            1,
            [
                pod("low", things(template("low", "v1"), 2)),
                pod("high", things(on("high", json!({"priorityClassName": "system-node-critical"})), 2)),
            ],
        ),
    ]
}
