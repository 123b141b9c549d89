//! KMM's operator away in the middle of a handoff, a release that is taken back, and nodes that are rebooted while they are held.

use std::time::Duration;

use lockkeeper::{
    api::{Phase, handoff::BlockerRecord},
    handoff::verdict::BlockerKind,
    sim::scenarios::kmm::{NEW, OLD},
};
use serde_json::json;

use super::suite::Suite;
use crate::{
    reconciler::Process,
    site::{Site, block_on},
    support::controlplane::User,
    wait::eventually,
};

fn has(blockers: &[BlockerRecord], kind: BlockerKind) -> bool {
    blockers.iter().any(|blocker| blocker.kind == kind.word())
}

#[test]
fn an_absent_operator_a_release_taken_back_and_reboots_while_held() {
    let Some(site) = Site::own() else { return };
    site.install_kmm();
    let mut reconciler = Process::reconcile(&site, User::Reconciler, "kmm");
    block_on(async {
        let mut suite = Suite::open(&site, 4, 6).await;
        let bystanders = suite.running("plain", 4).await;
        let nodes = suite.nodes.clone();
        suite.release(NEW).await;
        suite.begin().await;

        // KMM's operator is gone as soon as the label is off, and stays away for longer than it takes to be missed. The plugin's pod takes all
        // of its grace to stop, or until that was seen.
        let stop = |from, to| {
            let stop = lockkeeper::sim::actors::Range::millis(from, to);
            site.kubelets.set_options(move |options| options.stop = stop);
        };
        stop(60_000, 60_000);
        suite.ask(&nodes[0], json!({})).await;
        suite.stands(&nodes[0], "stopping", |status| status.phase == Phase::StoppingPlugin).await;
        suite.kmm = None;
        stop(300, 600);
        suite.hurry(&nodes[0]).await;
        let silent = |status: &lockkeeper::api::NodeHandoffStatus| has(&status.blockers, BlockerKind::KmmSilent);
        let status = suite.stands(&nodes[0], "named as silent", silent).await;
        assert!(matches!(status.phase, Phase::StoppingPlugin | Phase::Unloading), "{status:?}");
        tokio::time::sleep(Duration::from_secs(5)).await;
        suite.kmm = Some(site.kmm().await);
        suite.ended(&nodes[0], 1).await;
        suite.runs(&nodes[0], NEW).await;
        assert_eq!(suite.story(&nodes[0]), "+1.0 -1.0 +2.0");

        // Held before anything was unloaded: a reboot brings the old version back, and the handoff goes on from there.
        suite.ask(&nodes[1], json!({"pauseAfter": ["Draining"]})).await;
        suite.stands(&nodes[1], "held before the unload", |status| status.phase == Phase::Held).await;
        let boot = suite.boot(&nodes[1]).await;
        site.kubelets.reboot(&nodes[1]);
        eventually("a new boot with the old version", super::suite::LONG, || async {
            let back = suite.boot(&nodes[1]).await != boot && suite.loaded(&nodes[1]).as_deref() == Some(OLD);
            Ok::<_, String>(back.then_some(()))
        })
        .await;
        suite.stands(&nodes[1], "still held", |status| status.phase == Phase::Held).await;
        suite.edit(&nodes[1], json!({"pauseAfter": null})).await;
        suite.ended(&nodes[1], 1).await;
        suite.runs(&nodes[1], NEW).await;
        assert_eq!(suite.story(&nodes[1]), "+1.0 +1.0 -1.0 +2.0");

        // Held with the module out: the boot changes nothing, and nobody loads anything.
        suite.ask(&nodes[2], json!({"pauseAfter": ["Unloading"]})).await;
        suite.stands(&nodes[2], "held after the unload", |status| status.phase == Phase::Held).await;
        assert_eq!(suite.loaded(&nodes[2]), None);
        let boot = suite.boot(&nodes[2]).await;
        site.kubelets.reboot(&nodes[2]);
        eventually("a new boot", super::suite::LONG, || async {
            Ok::<_, String>((suite.boot(&nodes[2]).await != boot).then_some(()))
        })
        .await;
        suite.stands(&nodes[2], "still held", |status| status.phase == Phase::Held).await;
        assert_eq!(suite.loaded(&nodes[2]), None);
        suite.edit(&nodes[2], json!({"pauseAfter": null})).await;
        suite.ended(&nodes[2], 1).await;
        suite.runs(&nodes[2], NEW).await;
        assert_eq!(suite.story(&nodes[2]), "+1.0 -1.0 +2.0");

        // Back to 1.0: refused as long as the Module is at 2.0, for KMM would load nothing.
        suite.edit(&nodes[0], json!({"version": OLD, "attempt": 2})).await;
        suite.stands(&nodes[0], "refused", |status| has(&status.blockers, BlockerKind::KmmVersion)).await;
        assert_eq!(suite.loaded(&nodes[0]).as_deref(), Some(NEW));
        suite.release(OLD).await;
        suite.ended(&nodes[0], 2).await;
        suite.runs(&nodes[0], OLD).await;
        assert_eq!(suite.story(&nodes[0]), "+1.0 -1.0 +2.0 -2.0 +1.0");
        // The others have not moved by the edit.
        suite.runs(&nodes[1], NEW).await;
        suite.runs(&nodes[3], OLD).await;
        assert_eq!(suite.story(&nodes[3]), "+1.0");
        assert_eq!(suite.story(&nodes[1]), "+1.0 +1.0 -1.0 +2.0");
        let now = suite.running("plain", 4).await;
        assert!(now.len() == bystanders.len(), "{now:?}");
        suite.running("training", 6).await;
        suite.wrote_the_version_label_alone();
    });
    assert!(reconciler.ended().is_none(), "the reconciler lives: {}", reconciler.said());
}
