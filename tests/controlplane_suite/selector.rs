//! Claimants chosen by a pod selector: no missing device keeps them away, so nothing goes before the node is closed.

use lockkeeper::{
    api::{Phase, keys::Role},
    handoff::verdict::BlockerKind,
    sim::scenarios::objects,
};
use serde_json::{Value, json};

use crate::{
    fleet::{Fleet, node_of, uid_of},
    site::{arena, block_on},
};

fn selecting(mut module: Value, namespace: &str) -> Value {
    module["devices"] = json!({"podSelector": {"matchLabels": {"uses": "gpu"}}, "podNamespaces": [namespace]});
    module
}

/// Pods on a node that open the module's device without asking for it.
fn users(fleet: &Fleet<'_>, node: &str) -> objects::Object {
    let mut template = objects::template("user", None, 2);
    template["metadata"]["labels"]["uses"] = json!("gpu");
    template["metadata"]["annotations"] =
        json!({"sim.lockkeeper.dev/behaviour": "claimant", "sim.lockkeeper.dev/module": fleet.name});
    template["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": node});
    objects::deployment(&fleet.apps(), "user", 1, template)
}

#[test]
fn the_node_is_closed_first_and_only_the_selected_pod_leaves() {
    let Some(arena) = arena() else { return };
    block_on(async {
        let fleet = Fleet::start(&arena.site, "picks", 1, |spec| {
            spec["kernelModule"] = selecting(spec["kernelModule"].take(), "picks-apps")
        })
        .await;
        let node = fleet.nodes[0].clone();
        fleet.apply(&[users(&fleet, &node), fleet.bystanders("other", 1)]).await;
        fleet.running("user", 1).await;
        let other = uid_of(&fleet.running("other", 1).await[0]).to_owned();
        fleet.release("2.0", selecting(fleet.module("2.0"), "picks-apps")).await;
        let attempt = fleet.hand_over(&node, "2.0", 1).await;
        let status = fleet.ended(&node, attempt, Phase::Done).await;
        assert!(status.steps.iter().any(|step| step.phase == Phase::Cordoning), "{:?}", status.steps);
        fleet.runs(&node, "2.0").await;
        assert_eq!(fleet.evicted().len(), 1);
        assert_eq!(uid_of(&fleet.running("other", 1).await[0]), other);
        assert_eq!(node_of(&fleet.running("user", 1).await[0]), node);
        assert_eq!(fleet.story(&node), "+1.0 -1.0 +2.0");
        fleet.undisturbed();
    });
}

#[test]
fn a_label_alone_waits_for_the_pod_and_for_the_cordon_and_says_both() {
    let Some(arena) = arena() else { return };
    block_on(async {
        let fleet = Fleet::start(&arena.site, "unpicked", 1, |spec| {
            spec["kernelModule"] = selecting(spec["kernelModule"].take(), "unpicked-apps");
        })
        .await;
        let node = fleet.nodes[0].clone();
        fleet.apply(&[users(&fleet, &node)]).await;
        fleet.running("user", 1).await;
        fleet.release("2.0", selecting(fleet.module("2.0"), "unpicked-apps")).await;
        fleet.admin.label_node(&node, &Role::Desired.key(&fleet.key()), Some("2.0")).await.expect("a label");
        let seen = fleet.blocker(&arena.engine, &node, BlockerKind::Claimant).await;
        assert!(
            seen.message.contains(&format!("kubectl cordon {node}")) && seen.message.contains("evicts nobody"),
            "{}",
            seen.message
        );
        let path = format!("/apis/apps/v1/namespaces/{}/deployments/user", fleet.apps());
        fleet.admin.merge(&path, &json!({"spec": {"replicas": 0}})).await.expect("scale");
        let seen = fleet.blocker(&arena.engine, &node, BlockerKind::Cordon).await;
        assert!(seen.message.contains("cordon the node"), "{}", seen.message);
        assert_eq!(fleet.story(&node), "+1.0");
        fleet.admin.cordon(&node, true).await.expect("a cordon");
        fleet.ended(&node, 2, Phase::Done).await;
        assert_eq!(
            fleet.node(&node).await.spec.and_then(|spec| spec.unschedulable),
            Some(true),
            "the administrator's cordon is theirs"
        );
        assert_eq!(fleet.evicted(), [""; 0]);
        assert_eq!(fleet.story(&node), "+1.0 -1.0 +2.0");
        fleet.admin.cordon(&node, false).await.expect("an uncordon");
        fleet.runs(&node, "2.0").await;
    });
}
