//! From a handoff's facts to the drain's next step, and what it says before anything is written. Who is evicted when is `drain`'s.

use jiff::Timestamp;

use super::{
    action::{Action, Evidence, Op},
    facts::Facts,
    in_use,
    verdict::{Blocker, BlockerKind},
};
use crate::{
    api::{Phase, handoff::RunPolicy},
    drain::{self, DrainStep, order::Planned},
    fleet::view::{ClaimReason, Claimant, ClaimantClass, Incoming, IncomingReason},
};

/// How a drain stands.
#[derive(Debug, Clone, PartialEq)]
pub enum Drain {
    /// No claimant is on the node. Pods that left may still have to be waited for.
    Empty,
    Act(Box<Action>),
    Wait {
        blockers: Vec<Blocker>,
        recheck: Option<Timestamp>,
    },
}

/// One round: everything that may be evicted now in one action, else what is waited for. A label moved by hand evicts nobody.
pub fn step(f: &Facts<'_>) -> Drain {
    if f.is_by_label() {
        // Whoever moves a label has not asked for a cordon: it is recommended, as long as it is missing.
        let open = f.record().is_some_and(|record| !record.unschedulable);
        let first = if open {
            format!("close the node first, or others follow (kubectl cordon {}), then ", f.node.name)
        } else {
            String::new()
        };
        // Another handoff is refused while this one runs. Called off before the loader stops, it leaves the node as it was.
        let off = if f.component.kmm.is_none() && f.phase() == Phase::StoppingPlugin {
            format!(
                ". Or call it off (lockkeeper abort {} {}): once it has ended, lockkeeper handoff closes the node and evicts",
                f.key, f.node.name
            )
        } else {
            String::new()
        };
        let how = |claimant: &Claimant| {
            let pod = &claimant.pod.key;
            format!(
                "the version was changed by label, which closes no node and evicts nobody: {first}evict it yourself (kubectl -n {} delete pod {}; a \
                 delete asks no PodDisruptionBudget), and this goes on{off}",
                pod.namespace, pod.name
            )
        };
        return leaving(f, &in_use::claimants(f), how);
    }
    let policy = super::start::policy(f);
    let act = |op: Op, why: String| Drain::Act(Box::new(Action { op, evidence: Evidence::Fresh, why }));
    let (claimants, incoming) = (in_use::claimants(f), in_use::incoming(f));
    let drain = drain::Drain { claimants: &claimants, incoming: &incoming, ..with(f, &policy, drain_since(f)) };
    match drain::step(&drain) {
        DrainStep::Evict { pods, why } => {
            act(Op::Evict { pods, grace_seconds: policy.drain.grace_period }, format!("{}: {why}", f.node.name))
        }
        DrainStep::DeleteWithOverride { pod, why } => act(Op::DeletePod(pod), why),
        DrainStep::Wait { blockers, recheck } => Drain::Wait { blockers, recheck },
        // What leaves by itself is still a claimant until it has left.
        DrainStep::Empty => {
            leaving(f, &claimants, |_| "its DaemonSet takes it away by itself while the ready label is off".to_owned())
        }
    }
}

fn leaving(f: &Facts<'_>, claimants: &[Claimant], how: impl Fn(&Claimant) -> String) -> Drain {
    let pods = claimants.iter().filter(|claimant| !is_spared(claimant));
    let blockers: Vec<Blocker> = pods
        .map(|claimant| {
            let why = why_it_claims(&claimant.why);
            match claimant.pod.meta.deletion {
                Some(deletion) => {
                    let message = format!("{why}; it is stopping, its grace period ends at {}", deletion.at);
                    f.on_pod(BlockerKind::Terminating, &claimant.pod, message)
                }
                None => f.on_pod(BlockerKind::Claimant, &claimant.pod, format!("{why}; {}", how(claimant))),
            }
        })
        .collect();
    if blockers.is_empty() { Drain::Empty } else { Drain::Wait { blockers, recheck: None } }
}

/// A reboot is survived by what comes back by itself: it need not leave before.
pub fn is_spared(claimant: &Claimant) -> bool {
    claimant.why == ClaimReason::Reboot && matches!(claimant.class, ClaimantClass::DaemonSet { .. } | ClaimantClass::Mirror)
}

/// What will become of each claimant, before anything is written.
pub fn plan(f: &Facts<'_>) -> Vec<Planned> {
    let policy = super::start::policy(f);
    drain::plan(&with(f, &policy, f.now))
}

fn with<'d>(f: &'d Facts<'_>, policy: &'d RunPolicy, since: Timestamp) -> drain::Drain<'d> {
    drain::Drain {
        claimants: &f.occupancy.claimants,
        incoming: &f.occupancy.incoming,
        budgets: f.budgets,
        node: f.record(),
        memory: f.observed.evictions(),
        evicted: f.status().map(|status| &status.evicted[..]).unwrap_or_default(),
        policy: &policy.drain,
        overrides: f.spec().map(|spec| &spec.overrides[..]).unwrap_or_default(),
        since,
        now: f.now,
    }
}

/// When draining began in this run; a claimant made later that does not mind the cordon is a replacement.
fn drain_since(f: &Facts<'_>) -> Timestamp {
    let steps = f.status().map(|status| &status.steps[..]).unwrap_or_default();
    let first = steps.iter().find(|step| step.phase >= Phase::Draining).and_then(|step| step.started_at.parse().ok());
    first.unwrap_or(f.now)
}

/// Pods without a node that may yet land here as claimants.
pub fn incoming(f: &Facts<'_>) -> Vec<Blocker> {
    let one = |incoming: &Incoming| {
        let why = match &incoming.why {
            IncomingReason::Nominated => "the scheduler nominated this node for it".to_owned(),
            IncomingReason::VolumeSelectedNode { claim } => format!("its PersistentVolumeClaim {claim} has selected this node"),
            IncomingReason::ClaimOnlyHere { claim } => format!("its ResourceClaim {claim} is allocated on this node only"),
        };
        let message = format!("on its way here: {why}. It binds or is given another node; delete it if neither happens");
        f.on_pod(BlockerKind::PodBinding, &incoming.pod, message)
    };
    in_use::incoming(f).iter().filter(|incoming| !incoming.pod.phase.is_terminal()).map(one).collect()
}

/// Why a pod is a claimant, for people.
pub fn why_it_claims(why: &ClaimReason) -> String {
    match why {
        ClaimReason::Resource { name, quantity } => format!("uses {quantity} {name}"),
        ClaimReason::Claim { claim, driver } => format!("holds ResourceClaim {claim} of {driver}"),
        ClaimReason::UnresolvedClaim { entry } => format!("its claim {entry:?} is not resolved and may be of this driver"),
        ClaimReason::Volume { name, claim, risk, stale } => drain::volumes::sentence(name, claim.as_ref(), risk, *stale),
        ClaimReason::UnresolvedVolume { name, why } => {
            format!("its volume {name} cannot be resolved ({why}) and may be of this driver")
        }
        ClaimReason::Selector => "matches the component's podSelector".to_owned(),
        ClaimReason::Reboot => "everything drainable leaves before the reboot".to_owned(),
    }
}
