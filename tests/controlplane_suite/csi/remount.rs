//! After a rotation of keys every volume is mounted anew, node by node, and no plugin pod is replaced.

use lockkeeper::api::Phase;
use serde_json::json;

use super::suite::{Plugin, Suite, text};
use crate::site::{arena, block_on};

#[test]
fn every_pod_with_a_volume_leaves_its_node_once_and_the_plugin_stays() {
    let Some(arena) = arena() else { return };
    block_on(async {
        let plugin = Plugin { name: "csi-keys", kind: "cephfs", nodes: 2 };
        let suite = Suite::open(&arena.site, plugin, |_| {}).await;
        let apps = suite.apps();
        for (app, mounter, node) in [("fuse", "fuse", 0), ("kernel", "kernel", 0), ("other", "kernel", 1)] {
            suite.volume(app, json!({"mounter": mounter})).await;
            suite.apply(&suite.app_on(app, &suite.nodes[node])).await;
            suite.ready(&apps, app, 1).await;
        }
        let [fuse, kernel, other] =
            [suite.ready(&apps, "fuse", 1).await, suite.ready(&apps, "kernel", 1).await, suite.ready(&apps, "other", 1).await];
        let node = &suite.nodes[0];
        let uid = |pods: &[serde_json::Value]| text(&pods[0], "/metadata/uid").to_owned();
        let old = uid(&suite.plugin_pods(node).await);
        let path = format!("/apis/lockkeeper.dev/v1alpha1/namespaces/{}/nodecomponents/{}", plugin.name, plugin.kind);
        suite.admin.merge(&path, &json!({"spec": {"csiNodePlugin": {"remount": "keys-1"}}})).await.expect("a word");
        suite.ask(node, json!({})).await;
        let status = suite.ended(node, 1, Phase::Done).await;
        assert_eq!(status.run.and_then(|run| run.target).as_deref(), Some("keys-1"));
        assert!(
            status.proofs.iter().any(|proof| proof.fact.contains("no volume of this run is attached")),
            "{:?}",
            status.proofs
        );
        suite.is_as_before(node).await;
        // Both came back on the node, with new mounts.
        for (app, before) in [("fuse", fuse), ("kernel", kernel)] {
            let after = suite.ready(&apps, app, 1).await;
            assert!(before.keys().all(|uid| !after.contains_key(uid)), "{app} was not mounted anew");
        }
        assert_eq!(suite.ready(&apps, "other", 1).await, other, "nobody asked for the other node");
        assert_eq!(uid(&suite.plugin_pods(node).await), old);
        assert!(suite.wrote("delete", "pods", plugin.name).is_empty());
        suite.undisturbed("");
    });
}
