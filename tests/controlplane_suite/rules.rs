//! What the real server refuses in a NodeComponent or NodeHandoff by the schema and the CEL rules of their CRDs.

use serde_json::{Value, json};

use crate::{
    apply::{Caller, Stay, edit},
    by_hand::namespace,
    installed::installed,
    samples::{component, handoff, template},
    support::controlplane::User,
};

/// One object: what is wrong with it, the edits that make it so, and words that the refusal must contain (none: it is accepted).
type Case = (&'static str, Vec<(&'static str, Value)>, &'static [&'static str]);

/// What the server says to each case, where that is not what the case wants.
async fn surprises(base: Value, cases: Vec<Case>) -> Vec<String> {
    let Some(plane) = installed() else { return Vec::new() };
    let admin = Caller::new(plane, User::Admin).await;
    let mut surprises = Vec::new();
    for (what, edits, words) in cases {
        let mut object = base.clone();
        for (pointer, value) in edits {
            edit(&mut object, pointer, value);
        }
        match admin.apply(&object, Stay::No).await {
            Ok(_) if words.is_empty() => {}
            Ok(_) => surprises.push(format!("{what}: accepted")),
            // 422 is a rule's refusal, 500 that of a field that the schema does not know, in an apply.
            Err(refused) if !words.is_empty() && matches!(refused.code, 422 | 500) && refused.says(words) => {}
            Err(refused) => surprises.push(format!("{what}: {refused}; wanted {words:?}")),
        }
    }
    surprises
}

#[tokio::test]
async fn a_component_is_refused_for_what_can_never_work() {
    const MODULE: &str = "/spec/kernelModule";
    let devices = |value: Value| vec![("/spec/kernelModule/devices", value)];
    let cases: Vec<Case> = vec![
        ("a plain one", vec![], &[]),
        ("no version", vec![("/spec/version", Value::Null)], &["spec.version"]),
        ("an empty version", vec![("/spec/version", json!(""))], &["spec.version"]),
        ("a version that is no label value", vec![("/spec/version", json!("2.0+rc 1"))], &["spec.version"]),
        ("a version that ends in a dash", vec![("/spec/version", json!("2.0-"))], &["spec.version"]),
        ("a version of 64 characters", vec![("/spec/version", json!("v".repeat(64)))], &["spec.version"]),
        ("a version of 63 characters", vec![("/spec/version", json!("v".repeat(63)))], &[]),
        ("no kind of component", vec![(MODULE, Value::Null)], &["kernelModule"]),
        ("no unload pod, unloaded by pod", vec![("/spec/kernelModule/daemonSets/unload", Value::Null)], &["unload"]),
        (
            "no unload pod, unloaded by reboot",
            vec![("/spec/kernelModule/daemonSets/unload", Value::Null), ("/spec/kernelModule/unloadBy", json!("Reboot"))],
            &[],
        ),
        ("no loader", vec![("/spec/kernelModule/daemonSets/loader", Value::Null)], &["loader"]),
        ("no device plugin", vec![("/spec/kernelModule/daemonSets/devicePlugin", Value::Null)], &["devicePlugin"]),
        ("no devices at all", devices(json!({})), &["devices"]),
        ("a native resource", devices(json!({"resourceNames": ["cpu"]})), &["resourceNames"]),
        ("a resource of Kubernetes", devices(json!({"resourceNames": ["kubernetes.io/gpu"]})), &["resourceNames"]),
        ("a quota's name of a resource", devices(json!({"resourceNames": ["requests.example.com/gpu"]})), &["resourceNames"]),
        ("a DRA driver", devices(json!({"draDrivers": ["gpu.example.com"]})), &[]),
        ("an empty selector", devices(json!({"podSelector": {}, "podNamespaces": ["a"]})), &["podSelector"]),
        (
            "a selector with empty parts",
            devices(json!({"podSelector": {"matchLabels": {}, "matchExpressions": []}, "podNamespaces": ["a"]})),
            &["podSelector"],
        ),
        ("a selector without namespaces", devices(json!({"podSelector": {"matchLabels": {"a": "b"}}})), &["podNamespaces"]),
        ("a selector with namespaces", devices(json!({"podSelector": {"matchLabels": {"a": "b"}}, "podNamespaces": ["a"]})), &[]),
        (
            "a selector by expression",
            devices(json!({"podSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}, "podNamespaces": ["a"]})),
            &[],
        ),
        (
            "a selector by expression without the values that it needs",
            devices(json!({"podSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}, "podNamespaces": ["a"]})),
            &["values"],
        ),
        ("a name of 53 characters", vec![("/metadata/name", json!("n".repeat(53)))], &["52"]),
        ("an unknown way to unload", vec![("/spec/kernelModule/unloadBy", json!("Hope"))], &["unloadBy"]),
        ("an unknown mode", vec![("/spec/rollout", json!({"mode": "Sometimes"}))], &["spec.rollout.mode"]),
        ("a soak that is no duration", vec![("/spec/rollout", json!({"soak": "a while"}))], &["spec.rollout.soak"]),
        ("a deadline of a phase", vec![("/spec/deadlines", json!({"Draining": "15m"}))], &[]),
        ("a deadline of no phase", vec![("/spec/deadlines", json!({"Hoping": "15m"}))], &["Hoping", "not declared"]),
        ("a budget of less than nothing", vec![("/spec/rollout", json!({"maxUnavailable": -1}))], &["maxUnavailable"]),
        ("a budget of nothing", vec![("/spec/rollout", json!({"maxUnavailable": 0}))], &["maxUnavailable"]),
        (
            "a budget that no program counts",
            vec![("/spec/rollout", json!({"maxUnavailable": 3_000_000_000_u32}))],
            &["maxUnavailable"],
        ),
    ];
    let surprises = surprises(component("default", "gpu", "1.0"), cases).await;
    assert!(surprises.is_empty(), "{}", surprises.join("\n"));
}

#[tokio::test]
async fn a_handoff_is_tied_to_its_component_and_node_by_its_name() {
    let cases: Vec<Case> = vec![
        ("a plain one", vec![], &[]),
        ("a name of something else", vec![("/metadata/name", json!("gpu.n2"))], &["name"]),
        (
            "a component and a node with dots",
            vec![
                ("/metadata/name", json!("my.gpu.node.example.com")),
                ("/spec/component", json!("my.gpu")),
                ("/spec/node", json!("node.example.com")),
            ],
            &[],
        ),
        ("no component", vec![("/spec/component", Value::Null)], &["spec.component"]),
        ("no node", vec![("/spec/node", Value::Null)], &["spec.node"]),
        ("no version: out of service", vec![("/spec/version", Value::Null)], &[]),
        ("an empty version", vec![("/spec/version", json!(""))], &["spec.version"]),
        ("a version that is no label value", vec![("/spec/version", json!("v 2"))], &["spec.version"]),
        ("an unknown action", vec![("/spec/action", json!("Dance"))], &["spec.action"]),
        ("a pause after a phase", vec![("/spec/pauseAfter", json!(["Unloading"]))], &[]),
        ("a pause after no phase", vec![("/spec/pauseAfter", json!(["Thinking"]))], &["spec.pauseAfter"]),
        ("an override without an end", vec![("/spec/overrides", json!([{"podUid": "u", "reason": "r"}]))], &["until"]),
        (
            "an override until no time",
            vec![("/spec/overrides", json!([{"podUid": "u", "reason": "r", "until": "soon"}]))],
            &["until"],
        ),
        ("a negative attempt", vec![("/spec/attempt", json!(-1))], &["spec.attempt"]),
    ];
    let surprises = surprises(handoff("default", "gpu", "n1", "2.0"), cases).await;
    assert!(surprises.is_empty(), "{}", surprises.join("\n"));
}

#[tokio::test]
async fn a_versions_content_changes_only_with_its_name() {
    let Some(plane) = installed() else { return };
    let admin = Caller::new(plane, User::Admin).await;
    namespace(&plane.client(User::Admin).await, "rules-content").await;
    let first = component("rules-content", "gpu", "1.0");
    admin.apply(&first, Stay::Yes).await.expect("create");

    for (pointer, value) in [
        ("/spec/kernelModule/daemonSets/loader", template("loader", "loader:other")),
        ("/spec/kernelModule/daemonSets/devicePlugin/spec/hostNetwork", json!(true)),
        ("/spec/kernelModule/daemonSets/unload", template("unload", "unload:other")),
        ("/spec/kernelModule/devices/resourceNames", json!(["example.com/other"])),
    ] {
        let mut changed = first.clone();
        edit(&mut changed, pointer, value);
        let refused = admin.apply(&changed, Stay::No).await.expect_err(pointer);
        assert!(refused.code == 422 && refused.says(&["version"]), "{pointer}: {refused}");
        edit(&mut changed, "/spec/version", json!("1.1"));
        admin.apply(&changed, Stay::No).await.unwrap_or_else(|refused| panic!("{pointer} with a new version: {refused}"));
    }

    let mut policy = first.clone();
    edit(&mut policy, "/spec/rollout", json!({"mode": "Auto", "maxUnavailable": 2}));
    edit(&mut policy, "/spec/nodeSelector", json!({"gpu": "yes"}));
    admin.apply(&policy, Stay::Yes).await.expect("policy may change under a version");
    admin.apply(&component("rules-content", "gpu", "2.0"), Stay::Yes).await.expect("a new version with new content");
}

#[tokio::test]
async fn a_handoffs_component_and_node_never_change_its_target_may() {
    let Some(plane) = installed() else { return };
    let admin = Caller::new(plane, User::Admin).await;
    namespace(&plane.client(User::Admin).await, "rules-handoff").await;
    // `my.gpu.n1` could be component `my` on node `gpu.n1` too: the name alone does not hold it.
    let first = handoff("rules-handoff", "my.gpu", "n1", "2.0");
    admin.apply(&first, Stay::Yes).await.expect("create");

    let mut other = first.clone();
    edit(&mut other, "/spec/component", json!("my"));
    edit(&mut other, "/spec/node", json!("gpu.n1"));
    let refused = admin.apply(&other, Stay::No).await.expect_err("another component and node under the same name");
    assert!(refused.code == 422 && refused.says(&["immutable"]), "{refused}");

    let mut retry = first.clone();
    edit(&mut retry, "/spec/version", json!("1.0"));
    edit(&mut retry, "/spec/attempt", json!(2));
    edit(&mut retry, "/spec/action", json!("Hold"));
    admin.apply(&retry, Stay::Yes).await.expect("target, attempt and action may change");
    edit(&mut retry, "/spec/attempt", json!(1));
    let refused = admin.apply(&retry, Stay::No).await.expect_err("an attempt that was made already");
    assert!(refused.code == 422 && refused.says(&["attempt only rises"]), "{refused}");
}
