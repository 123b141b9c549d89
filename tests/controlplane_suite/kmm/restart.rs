//! Five nodes of a Module of KMM in the queue's order, `lockkeeper reconcile` killed in each phase on the way: the end is the same as without.

use std::collections::BTreeSet;

use lockkeeper::{
    api::{NodeHandoffStatus, Phase},
    sim::scenarios::kmm::NEW,
};
use serde_json::json;

use super::suite::Suite;
use crate::{
    restart::Reconciler,
    site::{Site, block_on},
};

#[test]
fn five_nodes_in_the_queues_order_with_the_reconciler_killed_in_each_phase() {
    let Some(site) = Site::own() else { return };
    site.install_kmm();
    // Long enough to be hit.
    site.kubelets.set_options(|options| {
        let while_ = lockkeeper::sim::actors::Range::millis(300, 600);
        (options.stop, options.start, options.ready, options.allocatable_lag) = (while_, while_, while_, while_);
    });
    let mut reconciler = Reconciler::start(&site);
    block_on(async {
        let suite = Suite::open(&site, 5, 8).await;
        let bystanders = suite.running("plain", 4).await;
        suite.release(NEW).await;
        let order = [3, 1, 5, 2, 4].map(|number| format!("gpu-{number}"));
        for (position, node) in (1..).zip(&order) {
            suite.ask(node, json!({"position": position})).await;
        }
        for node in &order {
            suite.stands(node, "queued", |status| status.phase == Phase::Queued && !status.blockers.is_empty()).await;
        }
        suite.begin().await;
        let left: BTreeSet<Phase> = [
            Phase::Preflight,
            Phase::Cordoning,
            Phase::Draining,
            Phase::StoppingPlugin,
            Phase::Unloading,
            Phase::Loading,
            Phase::StartingPlugin,
            Phase::Verifying,
            Phase::Uncordoning,
        ]
        .into();
        let done = |status: &NodeHandoffStatus| status.phase == Phase::Done;
        reconciler.killed_in_each(&suite.admin, suite.handoffs().await, left, order.len(), done).await;

        let mut began = Vec::new();
        for node in &order {
            let status = suite.ended(node, 1).await;
            assert_eq!(status.history.len(), 1, "{:?}", status.history);
            let proofs = format!("{:?}", status.proofs);
            assert!(proofs.contains("KMM has recorded 2.0 as loaded"), "{proofs}");
            began.push(status.steps.first().map(|step| step.started_at.parse::<jiff::Timestamp>().expect("a time")));
            suite.runs(node, NEW).await;
            assert_eq!(suite.story(node), "+1.0 -1.0 +2.0", "{node}");
        }
        assert!(began.is_sorted(), "in the queue's order: {began:?}");
        assert_eq!(suite.running("plain", 4).await, bystanders, "nobody else is moved");
        suite.running("training", 8).await;
        suite.wrote_the_version_label_alone();
    });
    assert!(reconciler.lives() >= 9, "{} lives", reconciler.lives());
}
