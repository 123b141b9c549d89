//! A nodeplugin is upgraded node by node, its volumes detached before, and brought back by `rollout undo`.

use lockkeeper::api::Phase;
use serde_json::json;

use super::suite::{Plugin, Suite};
use crate::site::{arena, block_on};

#[test]
fn five_nodes_get_the_current_revision_and_go_back_with_the_template() {
    let Some(arena) = arena() else { return };
    block_on(async {
        let suite = Suite::open(&arena.site, Plugin { name: "csi", kind: "rbd", nodes: 5 }, |_| {}).await;
        let apps = suite.apps();
        for (name, attributes) in [("nbd", json!({"mounter": "rbd-nbd"})), ("krbd", json!({"imageFormat": "2"}))] {
            suite.volume(name, attributes).await;
            suite.apply(&suite.app(name, 3)).await;
            suite.ready(&apps, name, 3).await;
        }
        let kernel = suite.pods(&apps, "krbd").await.expect("pods");
        let before = suite.pods(&apps, "nbd").await.expect("pods");
        suite.release("v2").await;
        for node in &suite.nodes {
            suite.ask(node, json!({})).await;
        }
        for node in &suite.nodes {
            let status = suite.ended(node, 1, Phase::Done).await;
            suite.runs(node, "v2").await;
            if before.values().any(|(on, _)| on == node) {
                let said = status.proofs.iter().any(|proof| proof.fact.contains("no volume of this run is attached"));
                assert!(said, "{:?}", status.proofs);
            }
        }
        assert_eq!(suite.ready(&apps, "krbd", 3).await, kernel, "the kernel's mounts live on, and nobody moved them");
        let after = suite.ready(&apps, "nbd", 3).await;
        assert!(before.keys().all(|uid| !after.contains_key(uid)), "each of them left its node once at least");
        // Rolling back: the template first, then the nodes.
        suite.site.plane.kubectl(["rollout", "undo", "daemonset/csi-rbdplugin", "-n", "csi"]).expect_ok();
        suite.ask_again(&suite.nodes[0], json!({"attempt": 2})).await;
        suite.ended(&suite.nodes[0], 2, Phase::Done).await;
        suite.runs(&suite.nodes[0], "v1").await;
        suite.runs(&suite.nodes[1], "v2").await;
        suite.undisturbed("");
    });
}
