//! `lockkeeper reconcile` is killed in each phase of a handoff and started again: the end is the same as without.

use std::{
    collections::BTreeSet,
    fs::File,
    process::{Child, Command, Stdio},
};

use futures::StreamExt;
use kube::{
    Api,
    runtime::{WatchStreamExt, watcher},
};
use lockkeeper::{
    api::{NodeHandoff, NodeHandoffStatus, Phase},
    sim::{people::hands::Hands, scenarios::objects},
};
use serde_json::json;

use crate::{
    fleet::Fleet,
    site::{Site, block_on},
    support::controlplane::User,
    wait::eventually,
};

/// The reconciler's process, with the reconciler's rights.
pub struct Reconciler<'a> {
    site: &'a Site,
    child: Child,
    lives: u32,
}

impl<'a> Reconciler<'a> {
    pub fn start(site: &'a Site) -> Self {
        Self { site, child: spawn(site, 1), lives: 1 }
    }

    fn start_again(&mut self) {
        self.lives += 1;
        self.child = spawn(self.site, self.lives);
    }

    /// SIGKILL.
    fn kill(&mut self) {
        self.child.kill().expect("kill lockkeeper");
        self.child.wait().expect("wait for lockkeeper");
    }

    pub fn lives(&self) -> u32 {
        self.lives
    }

    /// Killed as soon as a handoff is seen in one of the phases that are left, and started again, until so many handoffs are done. Each
    /// phase must have been hit by then, and none of the handoffs may end otherwise.
    pub async fn killed_in_each(
        &mut self,
        admin: &Hands,
        handoffs: Api<NodeHandoff>,
        mut left: BTreeSet<Phase>,
        count: usize,
        is_done: impl Fn(&NodeHandoffStatus) -> bool,
    ) {
        let mut events = watcher(handoffs.clone(), watcher::Config::default()).applied_objects().boxed();
        let mut done = BTreeSet::new();
        while done.len() < count {
            let event = tokio::time::timeout(crate::fleet::LONG, events.next()).await.expect("it goes on").expect("a watch");
            let Ok(handoff) = event else { continue };
            let status = handoff.status.clone().unwrap_or_default();
            assert!(!matches!(status.phase, Phase::Failed | Phase::Aborted), "{handoff:?}");
            if is_done(&status) {
                done.insert(handoff.spec.node.clone());
            }
            if !left.contains(&status.phase) {
                continue;
            }
            self.kill();
            let name = handoff.metadata.name.as_deref().unwrap_or_default();
            let now = eventually("the handoff", crate::fleet::LONG, || async { handoffs.get_opt(name).await }).await;
            // It may have gone on in the moment before.
            left.remove(&now.status.unwrap_or_default().phase);
            // The first successor waits until the Lease has run out; for the others a person who knows that it is dead empties it.
            if self.lives > 1 {
                let lease = "/apis/coordination.k8s.io/v1/namespaces/lockkeeper-system/leases/lockkeeper";
                admin.merge(lease, &json!({"spec": {"holderIdentity": null}})).await.expect("empty the Lease");
            }
            self.start_again();
        }
        assert!(left.is_empty(), "not killed in {left:?}");
    }
}

impl Drop for Reconciler<'_> {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn spawn(site: &Site, life: u32) -> Child {
    let log = File::create(site.plane.dir().join(format!("reconcile-{life}.log"))).expect("a log file");
    Command::new(env!("CARGO_BIN_EXE_lockkeeper"))
        .arg("reconcile")
        .arg("--kubeconfig")
        .arg(site.plane.kubeconfig(User::Reconciler))
        .args(["--admin-address", "127.0.0.1:0"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("run lockkeeper reconcile")
}

#[test]
fn killed_in_each_phase_and_started_again_it_comes_to_the_same_end() {
    let Some(site) = Site::own() else { return };
    // Long enough to be hit.
    site.kubelets.set_options(|options| {
        let while_ = lockkeeper::sim::actors::Range::millis(300, 600);
        (options.stop, options.unload, options.start, options.ready, options.allocatable_lag) =
            (while_, while_, while_, while_, while_);
    });
    let mut reconciler = Reconciler::start(&site);
    block_on(async {
        let fleet = Fleet::start(&site, "lives", 3, |_| {}).await;
        fleet
            .apply(&[fleet.claimants("training", 6), objects::budget(&fleet.apps(), "training", "maxUnavailable", json!(2))])
            .await;
        fleet.running("training", 6).await;
        fleet.release("2.0", fleet.module("2.0")).await;
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
        for (position, node) in (1..).zip(&fleet.nodes) {
            fleet.hand_over(node, "2.0", position).await;
        }
        let done = |status: &NodeHandoffStatus| {
            status.phase == Phase::Done && status.run.as_ref().is_some_and(|run| run.target.as_deref() == Some("2.0"))
        };
        reconciler.killed_in_each(&fleet.admin, fleet.handoffs(), left, fleet.nodes.len(), done).await;
        for node in &fleet.nodes {
            let status = fleet.ended(node, 2, Phase::Done).await;
            assert_eq!(status.history.len(), 2, "{:?}", status.history);
            fleet.runs(node, "2.0").await;
            assert_eq!(fleet.story(node), "+1.0 -1.0 +2.0");
        }
        fleet.undisturbed();
        fleet.running("training", 6).await;
        assert!(fleet.evicted().iter().all(|pod| pod.starts_with("training-")));
    });
    assert!(reconciler.lives >= 9, "{} lives", reconciler.lives);
}
