//! Exactly the pods whose mounts would die leave, and a silent upgrade is shown and finished.

use std::time::Duration;

use lockkeeper::sim::scenarios::csi::{self as scenario, CEPHFS, NAMESPACE, Plugin, RBD};
use serde_json::Value;

use super::shop::{Shop, left, text};
use crate::stage::play;

#[test]
fn g26_exactly_the_pods_whose_mounts_die_leave_and_daemon_sets_are_restarted() {
    play(|| async {
        let shop = Shop::open(1, 3).await;
        for (plugin, leave) in [(CEPHFS, vec!["fuse-a", "fuse-b", "inline", "logs"]), (RBD, vec!["nbd"])] {
            // A node with one of those that leave by eviction.
            let has = |node: &&String| shop.apps(node).values().any(|app| *app == leave[0]);
            let node = shop.nodes.iter().find(has).expect("somewhere").clone();
            let before = shop.apps(&node);
            let here: Vec<&str> = leave.into_iter().filter(|app| before.values().any(|known| known == app)).collect();
            let old = shop.plugin_pod(plugin, &node).unwrap();
            shop.release(plugin).await;
            shop.ask(plugin, &node).await;
            shop.until("it is done", || shop.phase(plugin, &node) == "Done").await;
            assert_eq!(left(&before, &shop.apps(&node)), here, "{}", plugin.name);
            let new = shop.plugin_pod(plugin, &node).unwrap();
            assert_ne!(text(&old, "/metadata/uid"), text(&new, "/metadata/uid"));
            assert!(text(&new, "/spec/containers/0/image").ends_with(scenario::NEW));
            assert!(shop.is_open(&node));
            // Nobody touched the other nodes.
            for other in shop.nodes.iter().filter(|other| **other != node) {
                assert!(text(&shop.plugin_pod(plugin, other).unwrap(), "/spec/containers/0/image").ends_with(scenario::OLD));
            }
        }
        shop.clean();
    });
}

#[test]
fn nodes_that_lost_mounts_by_themselves_do_not_hold_up_each_others_repair() {
    play(|| async {
        let shop = Shop::open(14, 3).await;
        shop.release(CEPHFS).await;
        let nodes = [shop.nodes[0].clone(), shop.nodes[1].clone()];
        for node in &nodes {
            let old = shop.plugin_pod(CEPHFS, node).unwrap();
            shop.world.kubelets.pressure_evict(node, &format!("{NAMESPACE}/{}", text(&old, "/metadata/name")));
        }
        for node in &nodes {
            let subject = lockkeeper::handoff::action::Subject::Occupancy { component: CEPHFS.key(), node: node.as_str().into() };
            let unplanned =
                shop.engine.until(|picture| format!("{:?}", picture.verdicts.get(&subject)).contains("UnplannedUpgrade"));
            tokio::time::timeout(Duration::from_secs(600), unplanned).await.expect("it is shown as unplanned");
        }
        // One node may be out of service at a time, and two are: to mend one takes nothing more out of service.
        for node in &nodes {
            shop.ask(CEPHFS, node).await;
        }
        shop.until("both are done", || nodes.iter().all(|node| shop.phase(CEPHFS, node) == "Done")).await;
        let report = shop.world.report_at_rest();
        assert!(report.violations.is_empty(), "{:#?}", report.violations);
    });
}

#[test]
fn two_nodeplugins_that_were_hurt_on_two_nodes_do_not_wait_for_each_other() {
    play(|| async {
        let shop = Shop::open(15, 3).await;
        let hurt = [(CEPHFS, shop.nodes[0].clone()), (RBD, shop.nodes[1].clone())];
        for (plugin, node) in &hurt {
            shop.release(*plugin).await;
            let old = shop.plugin_pod(*plugin, node).unwrap();
            shop.world.kubelets.pressure_evict(node, &format!("{NAMESPACE}/{}", text(&old, "/metadata/name")));
        }
        for (plugin, node) in &hurt {
            let subject = lockkeeper::handoff::action::Subject::Occupancy { component: plugin.key(), node: node.as_str().into() };
            let unplanned =
                shop.engine.until(|picture| format!("{:?}", picture.verdicts.get(&subject)).contains("UnplannedUpgrade"));
            tokio::time::timeout(Duration::from_secs(600), unplanned).await.expect("it is shown as unplanned");
        }
        // Whoever asks for a third node is told what is really in the way, and the way out.
        let other = shop.nodes[2].clone();
        shop.ask(CEPHFS, &other).await;
        let told = || {
            let handoff = shop.handoff(CEPHFS, &other);
            let all = handoff.pointer("/status/blockers").and_then(Value::as_array).cloned().unwrap_or_default();
            all.iter().any(|it| {
                it["kind"] == "BudgetSpent"
                    && text(it, "/message").contains(&format!("({}: ceph/cephfs, UnplannedUpgrade)", shop.nodes[0]))
            })
        };
        shop.until("the true cause is named", told).await;
        for (plugin, node) in &hurt {
            shop.ask(*plugin, node).await;
        }
        let done = |plugin: Plugin, node: &str| shop.phase(plugin, node) == "Done";
        shop.until("both are mended", || hurt.iter().all(|(plugin, node)| done(*plugin, node))).await;
        shop.until("and then the third has its turn", || done(CEPHFS, &other)).await;
        let report = shop.world.report_at_rest();
        assert!(report.violations.is_empty(), "{:#?}", report.violations);
    });
}

#[test]
fn a_silent_upgrade_is_unplanned_and_a_handoff_finishes_it() {
    play(|| async {
        let shop = Shop::open(4, 3).await;
        let node = shop.nodes[0].clone();
        shop.release(CEPHFS).await;
        let old = shop.plugin_pod(CEPHFS, &node).unwrap();
        let name = format!("{NAMESPACE}/{}", text(&old, "/metadata/name"));
        // The kubelet evicts the plugin pod: its successor is of the new revision, and mounts died under running pods.
        shop.world.kubelets.pressure_evict(&node, &name);
        let subject = lockkeeper::handoff::action::Subject::Occupancy { component: CEPHFS.key(), node: node.as_str().into() };
        let unplanned = shop.engine.until(|picture| format!("{:?}", picture.verdicts.get(&subject)).contains("UnplannedUpgrade"));
        tokio::time::timeout(Duration::from_secs(600), unplanned).await.expect("it is shown as unplanned");
        let disrupted = shop.world.report().disruptions;
        assert!(disrupted > 0, "that is what OnDelete does not protect from");
        let before = shop.apps(&node);
        shop.ask(CEPHFS, &node).await;
        shop.until("it is done", || shop.phase(CEPHFS, &node) == "Done").await;
        assert!(left(&before, &shop.apps(&node)).contains(&"fuse-a".to_owned()), "{before:?}");
        assert!(shop.is_open(&node));
        let report = shop.world.report_at_rest();
        assert!(report.violations.is_empty(), "{:#?}", report.violations);
        assert_eq!(report.disruptions, disrupted, "nothing more was lost");
    });
}
