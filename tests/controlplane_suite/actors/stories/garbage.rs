//! Garbage collection: owners that go, and what they own.

use serde_json::json;

use super::super::story::*;

pub fn all() -> Vec<Story> {
    let owned = |name: &str, owners: serde_json::Value| thing(name, json!({"ownerReferences": owners}));
    let held =
        |name: &str, owners: serde_json::Value| thing(name, json!({"ownerReferences": owners, "finalizers": ["story.dev/hold"]}));
    let release = |name: &str| merge(&format!("leases/{name}"), json!({"metadata": {"finalizers": null}}));
    vec![
        story("gc-background", 0, [thing("top", json!({})), owned("leaf", json!([owner("top", false)])), delete("leases/top")]),
        story(
            "gc-orphan",
            0,
            [thing("top", json!({})), owned("leaf", json!([owner("top", true)])), delete_as("leases/top", "Orphan")],
        ),
        story(
            "gc-chain",
            0,
            [
                thing("top", json!({})),
                owned("middle", json!([owner("top", false)])),
                owned("leaf", json!([owner("middle", false)])),
                delete("leases/top"),
            ],
        ),
        story(
            "gc-foreground-blocks",
            0,
            [
                thing("top", json!({})),
                held("leaf", json!([owner("top", true)])),
                delete_as("leases/top", "Foreground"),
                release("leaf"),
            ],
        ),
        story(
            "gc-foreground-does-not-block",
            0,
            [
                thing("top", json!({})),
                held("leaf", json!([owner("top", false)])),
                delete_as("leases/top", "Foreground"),
                release("leaf"),
            ],
        ),
        story(
            "gc-foreground-chain",
            0,
            [
                thing("top", json!({})),
                owned("middle", json!([owner("top", true)])),
                held("leaf", json!([owner("middle", true)])),
                delete_as("leases/top", "Foreground"),
                release("leaf"),
            ],
        ),
        story(
            "gc-two-owners",
            0,
            [
                thing("one", json!({})),
                thing("two", json!({})),
                owned("leaf", json!([owner("one", false), owner("two", false)])),
                delete("leases/one"),
                delete("leases/two"),
            ],
        ),
        story(
            "gc-owner-never-was",
            0,
            [
                thing("guard", json!({})),
                owned(
                    "leaf",
                    json!([{
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "name": "nobody", "uid": "11111111-2222-3333-4444-555555555555"}]),
                ),
            ],
        ),
        story(
            "gc-wrong-uid",
            0,
            [
                thing("top", json!({})),
                owned(
                    "leaf",
                    json!([{
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "name": "top", "uid": "11111111-2222-3333-4444-555555555555"}]),
                ),
            ],
        ),
        story(
            "gc-owner-in-another-namespace",
            0,
            [
                thing("guard", json!({})),
                owned(
                    "leaf",
                    json!([{
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "name": "elsewhere", "uid": "$ELSEWHERE"}]),
                ),
            ],
        ),
        story(
            "gc-owner-of-cluster-scope",
            1,
            [
                owned("leaf", json!([{"apiVersion": "v1", "kind": "Node", "name": "$a", "uid": "$NODE(a)"}])),
                Step::RemoveMachine("a"),
            ],
        ),
        story(
            "gc-unknown-kind",
            0,
            [
                thing("guard", json!({})),
                owned(
                    "leaf",
                    json!([{
            "apiVersion": "nowhere.dev/v1", "kind": "Nothing", "name": "top", "uid": "11111111-2222-3333-4444-555555555555"}]),
                ),
            ],
        ),
        story(
            "gc-made-again",
            0,
            [
                thing("top", json!({})),
                owned("leaf", json!([owner("top", false)])),
                delete_as("leases/top", "Orphan"),
                thing("top", json!({})),
            ],
        ),
        story(
            "gc-pod-of-replica-set",
            1,
            [
                replica_set("app", 1, template("app", "v1")),
                Step::Delete("replicasets/app".into(), json!({"propagationPolicy": "Background"})),
            ],
        ),
    ]
}
