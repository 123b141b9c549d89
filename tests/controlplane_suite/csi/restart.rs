//! `lockkeeper reconcile` is killed in each phase of a nodeplugin's handoff and started again: the end is the same as without.

use std::collections::BTreeSet;

use lockkeeper::{api::Phase, sim::scenarios::objects};
use serde_json::json;

use super::suite::{Plugin, Suite};
use crate::{
    restart::Reconciler,
    site::{Site, block_on},
};

#[test]
fn killed_in_each_phase_and_started_again_it_comes_to_the_same_end() {
    let Some(site) = Site::own() else { return };
    // Long enough to be hit.
    site.kubelets.set_options(|options| {
        let while_ = lockkeeper::sim::actors::Range::millis(300, 600);
        (options.stop, options.start, options.ready, options.attach) = (while_, while_, while_, while_);
    });
    let mut reconciler = Reconciler::start(&site);
    block_on(async {
        let plugin = Plugin { name: "csi-lives", kind: "cephfs", nodes: 4 };
        let suite = Suite::open(&site, plugin, |_| {}).await;
        let apps = suite.apps();
        for (name, mounter) in [("fuse", "fuse"), ("kernel", "kernel"), ("logs", "fuse")] {
            suite.volume(name, json!({"mounter": mounter})).await;
        }
        // Its pods come straight back: they are restarted when the plugin is.
        let logs = objects::daemon_set(
            &apps,
            "logs",
            json!({"pool": plugin.name}),
            json!({"type": "RollingUpdate"}),
            suite.mounting("logs"),
        );
        suite.apply(&logs).await;
        suite.apply(&objects::budget(&apps, "fuse", "maxUnavailable", json!(2))).await;
        suite.apply(&suite.app("fuse", 8)).await;
        suite.apply(&suite.app("kernel", 4)).await;
        let logs = suite.ready(&apps, "logs", 4).await;
        let fuse = suite.ready(&apps, "fuse", 8).await;
        let kernel = suite.ready(&apps, "kernel", 4).await;
        let old = suite.ready(plugin.name, &plugin.set(), 4).await;
        suite.release("v2").await;
        for (position, node) in (1..).zip(&suite.nodes) {
            suite.ask(node, json!({"position": position})).await;
        }
        let left: BTreeSet<Phase> = [
            Phase::Preflight,
            Phase::Cordoning,
            Phase::Draining,
            Phase::Detaching,
            Phase::ReplacingPod,
            Phase::Verifying,
            Phase::RestartingUsers,
            Phase::Uncordoning,
        ]
        .into();
        let done = |status: &lockkeeper::api::NodeHandoffStatus| status.phase == Phase::Done;
        reconciler.killed_in_each(&suite.admin, suite.handoffs().await, left, suite.nodes.len(), done).await;

        for node in &suite.nodes {
            let status = suite.ended(node, 1, Phase::Done).await;
            assert_eq!(status.history.len(), 1, "{:?}", status.history);
            suite.runs(node, "v2").await;
            suite.is_as_before(node).await;
        }
        suite.undisturbed("logs-");
        let now = suite.ready(&apps, "fuse", 8).await;
        assert!(fuse.keys().all(|uid| !now.contains_key(uid)), "each had to leave once");
        assert_eq!(suite.ready(&apps, "kernel", 4).await, kernel, "the kernel's mounts live on");
        let restarted = suite.ready(&apps, "logs", 4).await;
        assert!(logs.keys().all(|uid| !restarted.contains_key(uid)), "each was restarted after its plugin");
        let new = suite.ready(plugin.name, &plugin.set(), 4).await;
        assert!(old.keys().all(|uid| !new.contains_key(uid)));
        // Whoever lived on has not done again what its predecessor did.
        assert_eq!(suite.wrote("delete", "pods", plugin.name).len(), 4, "one plugin pod a node");
        let deleted = suite.wrote("delete", "pods", &apps);
        assert_eq!(deleted.len(), 4, "one DaemonSet pod a node: {deleted:?}");
        let evicted = suite.wrote("create", "pods/eviction", &apps);
        let names: BTreeSet<&str> = evicted.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names.len(), evicted.len(), "nobody is evicted twice");
        assert!(names.iter().all(|name| name.starts_with("fuse-")), "{names:?}");
    });
    assert!(reconciler.lives() >= 8, "{} lives", reconciler.lives());
}
