//! `unloadBy: Reboot`: the handoff waits by name for a new boot ID, however long, and nothing else is a proof.

use lockkeeper::{api::Phase, handoff::verdict::BlockerKind};
use serde_json::{Value, json};

use crate::{
    fleet::Fleet,
    site::{arena, block_on},
};

fn by_reboot(mut module: Value) -> Value {
    module["unloadBy"] = json!("Reboot");
    module["daemonSets"].as_object_mut().expect("an object").remove("unload");
    module
}

#[test]
fn a_new_boot_id_is_the_proof_and_a_kubelet_that_comes_back_is_none() {
    let Some(arena) = arena() else { return };
    block_on(async {
        let fleet =
            Fleet::start(&arena.site, "boots", 1, |spec| spec["kernelModule"] = by_reboot(spec["kernelModule"].take())).await;
        let node = fleet.nodes[0].clone();
        fleet.apply(&[fleet.claimants("user", 1), fleet.bystanders("plain", 1)]).await;
        fleet.running("user", 1).await;
        fleet.running("plain", 1).await;
        fleet.release("2.0", by_reboot(fleet.module("2.0"))).await;
        let attempt = fleet.hand_over(&node, "2.0", 1).await;
        let seen = fleet.blocker(&arena.engine, &node, BlockerKind::RebootRequired).await;
        let boot = || async {
            fleet.node(&node).await.status.and_then(|status| status.node_info).map(|info| info.boot_id).unwrap_or_default()
        };
        let old = boot().await;
        assert!(seen.message.contains(&old) && seen.message.contains("only with a reboot"), "{}", seen.message);
        assert_eq!(fleet.evicted().len(), 2, "everything drainable leaves before a reboot");
        // The kubelet is cut off and comes back on the same boot.
        fleet.site.kubelets.kill(&node);
        tokio::time::sleep(std::time::Duration::from_secs(5)).await;
        fleet.site.kubelets.revive(&node);
        tokio::time::sleep(std::time::Duration::from_secs(5)).await;
        let phase = fleet.handoff(&node).await.and_then(|it| it.status).map(|it| it.phase);
        assert_eq!((phase, boot().await), (Some(Phase::AwaitingReboot), old.clone()));
        assert_eq!(fleet.story(&node), "+1.0");
        fleet.site.kubelets.reboot(&node);
        fleet.ended(&node, attempt, Phase::Done).await;
        fleet.runs(&node, "2.0").await;
        assert_ne!(boot().await, old);
        assert_eq!(fleet.story(&node), "+1.0 +2.0", "the boot took 1.0 out, no unload pod did");
        fleet.undisturbed();
    });
}
