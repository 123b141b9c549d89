//! `lockkeeper reconcile` is killed in each phase of a handoff and started again: the end is the same as without.

use std::{
    collections::BTreeSet,
    fs::File,
    process::{Child, Command, Stdio},
    time::Duration,
};

use kube::{Api, api::ListParams};
use lockkeeper::{
    api::{NodeHandoff, NodeHandoffStatus, Phase},
    sim::{people::hands::Hands, scenarios::objects},
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::{
    fleet::Fleet,
    site::{Site, block_on},
    support::controlplane::User,
    wait::eventually,
};

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/lockkeeper-system/leases/lockkeeper";

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

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("signal lockkeeper");
    }

    /// Killed in each of these phases of a handoff, and started again, until so many handoffs are done. Each phase must have been hit by
    /// then, and none of the handoffs may end otherwise.
    ///
    /// It lives in small slices, and is frozen while the handoffs are looked at: on any machine a phase is seen before it is over, and it
    /// is the one in which the process dies.
    pub async fn killed_in_each(
        &mut self,
        admin: &Hands,
        handoffs: Api<NodeHandoff>,
        mut left: BTreeSet<Phase>,
        count: usize,
        is_done: impl Fn(&NodeHandoffStatus) -> bool,
    ) {
        const SLICE: Duration = Duration::from_millis(10);
        let mut slice = SLICE;
        let (mut last, mut changed) = (Vec::new(), Instant::now());
        loop {
            sleep(slice).await;
            self.signal(Signal::STOP);
            let began = Instant::now();
            let list = || async { handoffs.list(&ListParams::default()).await.map(Some) };
            let now = eventually("a list of handoffs", crate::fleet::LONG, list).await.items;
            // Where the server is slow the reconciler is too.
            slice = SLICE.max(began.elapsed());
            let status = |handoff: &NodeHandoff| handoff.status.clone().unwrap_or_default();
            let failed = now.iter().find(|handoff| matches!(status(handoff).phase, Phase::Failed | Phase::Aborted));
            assert!(failed.is_none(), "{failed:?}");
            if now.iter().filter(|handoff| is_done(&status(handoff))).count() >= count {
                self.signal(Signal::CONT);
                break;
            }
            let phases: Vec<Phase> = now.iter().map(|handoff| status(handoff).phase).collect();
            let Some(at) = phases.iter().position(|phase| left.contains(phase)) else {
                if last != phases {
                    (last, changed) = (phases, Instant::now());
                }
                assert!(
                    changed.elapsed() < crate::fleet::LONG,
                    "it does not go on: {:?}",
                    now.iter().map(status).collect::<Vec<_>>()
                );
                self.signal(Signal::CONT);
                continue;
            };
            self.kill();
            // What it had sent before it was frozen may have arrived since.
            let name = now[at].metadata.name.as_deref().unwrap_or_default();
            let then = eventually("the handoff", crate::fleet::LONG, || async { handoffs.get_opt(name).await }).await;
            left.remove(&status(&then).phase);
            changed = Instant::now();
            let led = admin.get(LEASE).await.map_err(|no| no.to_string()).expect("the Lease")["spec"]["leaseTransitions"].clone();
            // The first successor waits until the Lease has run out; for the others a person who knows that it is dead empties it.
            if self.lives > 1 {
                admin.merge(LEASE, &json!({"spec": {"holderIdentity": null}})).await.expect("empty the Lease");
            }
            self.start_again();
            eventually("the next one to lead", crate::fleet::LONG, || async {
                let lease = admin.get(LEASE).await.map_err(|no| no.to_string())?;
                let (epoch, holder) = (&lease["spec"]["leaseTransitions"], &lease["spec"]["holderIdentity"]);
                if *epoch != led && holder.is_string() { Ok(Some(())) } else { Err(format!("{holder} {epoch}")) }
            })
            .await;
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
