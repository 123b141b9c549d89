//! The sentences of a drain that waits: for each claimant, budget or pod on its way what holds it, since when, and what to do.
//! Who is evicted when is decided in `order`.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::{
    budget::Block,
    eviction::{Attempt, Outcome, after},
    order::{Drain, Placed, Stand, is_replacement, valid_override, was_evicted},
};
use crate::{
    api::{NodeName, ObjectKey, duration},
    fleet::{
        records::{Deletion, PodRecord},
        view::{ClaimReason, Claimant, Incoming, IncomingReason},
    },
    handoff::{
        named::{self, NAMED},
        patch::whole_seconds,
        verdict::{Blocker, BlockerKind, ObjectRef},
    },
};

/// What a kubelet may need beyond the grace period before a pod counts as stuck.
pub const OVERDUE: Duration = Duration::from_secs(10);

/// Every reason why the drain waits; those that need a person first, then by object. Never empty when anything is awaited.
pub(super) fn all(drain: &Drain<'_>, awaited: &[&Placed<'_>], throttled: Option<(&Attempt, Timestamp)>) -> Vec<Blocker> {
    let mut blockers = Vec::new();
    if let Some((attempt, until)) = throttled {
        blockers.push(Blocker {
            kind: BlockerKind::Throttled,
            object: pod_object(&attempt.pod.key),
            message: format!(
                "the API server asked to slow down when it was to be evicted (no PodDisruptionBudget's doing): nothing is evicted before \
                 {}",
                whole_seconds(until)
            ),
            since: attempt.last,
        });
    }
    // Pods under one budget are one blocker.
    let mut shut: Vec<(&Block, Vec<&Claimant>)> = Vec::new();
    for it in awaited {
        match &it.stand {
            Stand::Aside | Stand::Free { .. } => {}
            Stand::Going => blockers.push(going(drain, it.claimant)),
            Stand::Stays(kind) => blockers.push(stays(drain, it.claimant, *kind)),
            // Said above, once.
            Stand::Resting { attempt, .. } if matches!(attempt.outcome, Outcome::Throttled { .. }) && throttled.is_some() => {}
            Stand::Resting { attempt, .. } => blockers.push(refused(drain, it.claimant, attempt)),
            Stand::Held { block, .. } => {
                match shut.iter_mut().find(|(other, _)| other.class == block.class && same_budgets(other, block)) {
                    Some((_, claimants)) => claimants.push(it.claimant),
                    None => shut.push((block, vec![it.claimant])),
                }
            }
        }
    }
    blockers.extend(shut.iter().map(|(block, claimants)| held(drain, block, claimants)));
    if blockers.is_empty() {
        blockers.extend(awaited.iter().map(|it| in_turn(drain, it.claimant)));
    }
    blockers.sort_by(|a, b| (rank(a.kind), a.kind, &a.object).cmp(&(rank(b.kind), b.kind, &b.object)));
    blockers
}

fn same_budgets(one: &Block, other: &Block) -> bool {
    let keys = |block: &Block| block.budgets.iter().map(|it| it.record.key.clone()).collect::<Vec<_>>();
    keys(one) == keys(other)
}

/// 0: a person must act; 1: others must; 2: it passes.
fn rank(kind: BlockerKind) -> u8 {
    match kind {
        BlockerKind::DisruptionBudgetNever
        | BlockerKind::MirrorPod
        | BlockerKind::DaemonSetClaimant
        | BlockerKind::Unmanaged
        | BlockerKind::EmptyDir
        | BlockerKind::UnresolvedVolume
        | BlockerKind::EvictionRefused => 0,
        BlockerKind::Terminating | BlockerKind::DisruptionBudgetLag => 2,
        _ => 1,
    }
}

/// A shut budget, and the claimants that it holds.
pub(super) fn held(drain: &Drain<'_>, block: &Block, claimants: &[&Claimant]) -> Blocker {
    let since = claimants
        .iter()
        .filter_map(|it| drain.memory.get(&it.pod.meta.uid))
        .map(|attempt| attempt.first)
        .min()
        .unwrap_or(drain.since);
    let names: Vec<String> = claimants.iter().map(|it| named(drain, &it.pod)).collect();
    let object = block.budgets.first().map(|it| ObjectRef::new("PodDisruptionBudget", &it.record.key)).unwrap_or_default();
    let message = format!("{}. It holds {}", block.sentence(), named::named(names.iter().take(NAMED), names.len(), ", "));
    Blocker { kind: block.class.blocker(), object, message, since }
}

/// With what a plan should say beside the name: that it is not healthy itself, that its override is void.
fn named(drain: &Drain<'_>, pod: &PodRecord) -> String {
    let mut text = pod.key.to_string();
    if !pod.ready.is_true() {
        text.push_str(" (not Ready itself)");
    }
    let uid = &pod.meta.uid;
    if valid_override(drain, uid).is_none()
        && let Some(void) = drain.overrides.iter().find(|it| *uid == *it.pod_uid)
    {
        text.push_str(&format!(" (its override was valid until {})", void.until));
    }
    text
}

/// A claimant that no eviction touches as things stand.
pub(super) fn stays(drain: &Drain<'_>, claimant: &Claimant, kind: BlockerKind) -> Blocker {
    let pod = &*claimant.pod;
    let owner = || pod.owner.as_ref().map_or_else(|| "no owner".to_owned(), |it| format!("{} {}", it.kind, it.name));
    let uses = uses(claimant);
    let message = match kind {
        BlockerKind::MirrorPod => format!(
            "{uses}, and is a static pod: it cannot be evicted. Take its manifest off the node (the kubelet's staticPodPath) until the handoff \
             is done"
        ),
        BlockerKind::UnresolvedVolume => format!(
            "{uses}: whether it is this driver's nobody can tell, so it is neither evicted nor ignored. Bring the missing object back, or \
             delete the pod yourself"
        ),
        BlockerKind::DaemonSetClaimant => format!(
            "{uses}, and {} would bring it straight back. Let its pod template select the component's ready label: it then leaves and \
             returns by itself",
            owner()
        ),
        BlockerKind::Unmanaged => format!(
            "{uses}, and no controller would bring it back. Delete it yourself, or set spec.drain.evictUnmanaged: true to have it evicted"
        ),
        BlockerKind::EmptyDir => format!(
            "{uses}, and its emptyDir data would be lost. Save the data, or set spec.drain.deleteEmptyDirData: true to have it evicted"
        ),
        _ if is_replacement(drain, pod) => format!(
            "{uses}; it was made by {} after the drain began and {}: evicting it would only bring the next one. {}",
            owner(),
            if drain.node.is_some_and(|node| !node.unschedulable) { "the node is open" } else { "it tolerates the cordon" },
            if drain.node.is_some_and(|node| !node.unschedulable) {
                "Cordon the node, or set spec.drain.cordon: Always"
            } else {
                "Take the toleration off, or keep its controller from making pods here until the handoff is done"
            }
        ),
        _ => format!("{uses}, and cannot be evicted"),
    };
    Blocker { kind, object: pod_object(&pod.key), message, since: drain.since }
}

fn uses(claimant: &Claimant) -> String {
    match &claimant.why {
        ClaimReason::Resource { name, quantity } => format!("holds {quantity} {name}"),
        ClaimReason::Claim { claim, driver } => format!("holds ResourceClaim {claim} of driver {driver}"),
        ClaimReason::UnresolvedClaim { entry } => {
            format!("has the claim {entry}, not resolved yet and so taken for one of this driver")
        }
        ClaimReason::Volume { name, claim, risk, stale } => super::volumes::sentence(name, claim.as_ref(), risk, *stale),
        ClaimReason::UnresolvedVolume { name, why } => format!("has volume {name}, which cannot be resolved ({why})"),
        ClaimReason::Selector => "is selected by devices.podSelector".to_owned(),
        ClaimReason::Reboot => "must leave before the node is rebooted".to_owned(),
    }
}

/// A claimant on its way out: within its grace, or stuck, and why that may be.
pub(super) fn going(drain: &Drain<'_>, claimant: &Claimant) -> Blocker {
    let pod = &*claimant.pod;
    let attempt = drain.memory.get(&pod.meta.uid);
    let (message, since) = match pod.meta.deletion {
        Some(deletion) => (stopping(drain, pod, deletion), asked_at(deletion)),
        None => {
            let since = attempt.map_or(drain.since, |it| it.last);
            (not_seen_going(drain, pod, attempt), since)
        }
    };
    Blocker { kind: BlockerKind::Terminating, object: pod_object(&pod.key), message, since }
}

/// When it was asked to stop: the deletion's time is the end of its grace.
fn asked_at(deletion: Deletion) -> Timestamp {
    deletion.at.checked_sub(SignedDuration::from_secs(deletion.grace)).unwrap_or(deletion.at)
}

fn stopping(drain: &Drain<'_>, pod: &PodRecord, deletion: Deletion) -> String {
    let grace = deletion.grace;
    if drain.now <= after(deletion.at, OVERDUE) {
        return format!("is stopping: its grace period of {grace} s ends at {}", deletion.at);
    }
    let late = format!("should have been gone at {} (grace {grace} s), {} ago", deletion.at, ago(drain.now, deletion.at));
    match drain.node {
        Some(node) if node.ready.is_true() => format!(
            "{late}. Node {} is Ready: a finalizer (metadata.finalizers), a volume that does not unmount, or a claim whose driver is gone may \
             hold it; see kubectl describe pod -n {} {}",
            node.name, pod.key.namespace, pod.key.name
        ),
        Some(node) => format!(
            "{late}. Node {} is not Ready, so nobody can say that its processes have ended. Bring the node back or reboot it; a forced \
             deletion would only hide them",
            node.name
        ),
        None => format!("{late}. Its Node object is gone: pod garbage collection removes it"),
    }
}

fn not_seen_going(drain: &Drain<'_>, pod: &PodRecord, attempt: Option<&Attempt>) -> String {
    match attempt {
        Some(it) if matches!(it.outcome, Outcome::Gone | Outcome::Replaced) => {
            "is gone, says the API server: waiting for the watch to show it".to_owned()
        }
        Some(it) if drain.now <= after(it.last, OVERDUE) => format!("its eviction was accepted at {}: waiting for it to stop", it.last),
        Some(_) => "its eviction was accepted, yet it is not being deleted. It is not evicted twice: look at the pod, delete it yourself, or \
                    raise spec.attempt"
            .to_owned(),
        None if was_evicted(drain, &pod.meta.uid) => {
            "was evicted earlier in this run: waiting for it to stop. If it does not, delete it yourself, or raise spec.attempt".to_owned()
        }
        None => "is being deleted".to_owned(),
    }
}

/// A claimant whose last try was refused.
pub(super) fn refused(drain: &Drain<'_>, claimant: &Claimant, attempt: &Attempt) -> Blocker {
    let tried = format!(
        "tried {} times, again {}",
        attempt.tries,
        attempt.next.map_or_else(|| "never".to_owned(), |next| format!("at {next}"))
    );
    let (kind, message) = match &attempt.outcome {
        Outcome::Budget { class, message, .. } => (class.blocker(), format!("{message} ({tried})")),
        Outcome::TwoBudgets { message } => {
            (BlockerKind::DisruptionBudgetNever, format!("{message} Change a selector, or delete one of the budgets ({tried})"))
        }
        Outcome::Throttled { .. } => (BlockerKind::Throttled, format!("the API server asked to slow down ({tried})")),
        Outcome::NamespaceTerminating => (
            BlockerKind::EvictionRefused,
            format!(
                "namespace {} is being deleted, and this pod with it: evictions are refused there ({tried})",
                claimant.pod.key.namespace
            ),
        ),
        Outcome::Forbidden { missing } => {
            (BlockerKind::EvictionRefused, format!("the eviction is forbidden: permission is missing to {missing} ({tried})"))
        }
        Outcome::Webhook { message } => {
            (BlockerKind::EvictionRefused, format!("an admission webhook or policy stands in the way: {message} ({tried})"))
        }
        Outcome::Changed => (
            BlockerKind::EvictionRefused,
            format!(
                "it changed between the last look at it and its eviction: nothing was done, and it is looked at again ({tried})"
            ),
        ),
        Outcome::Transient { message } => (BlockerKind::EvictionRefused, format!("the eviction failed: {message} ({tried})")),
        Outcome::Unknown { message } => {
            (BlockerKind::EvictionRefused, format!("whether the eviction was accepted is not known: {message} ({tried})"))
        }
        Outcome::Accepted | Outcome::Gone | Outcome::Replaced => return going(drain, claimant),
    };
    Blocker { kind, object: pod_object(&claimant.pod.key), message, since: attempt.first }
}

fn in_turn(drain: &Drain<'_>, claimant: &Claimant) -> Blocker {
    Blocker {
        kind: BlockerKind::Terminating,
        object: pod_object(&claimant.pod.key),
        message: "is evicted when those before it have stopped".to_owned(),
        since: drain.since,
    }
}

/// Pods that are not bound yet and may land on the node as claimants, cordon or not.
pub(super) fn incoming(drain: &Drain<'_>) -> Vec<Blocker> {
    let mut blockers: Vec<_> =
        drain.incoming.iter().filter(|it| !it.pod.phase.is_terminal()).map(|it| binding(drain, it)).collect();
    blockers.sort_by(|a, b| a.object.cmp(&b.object));
    blockers
}

fn binding(drain: &Drain<'_>, incoming: &Incoming) -> Blocker {
    let why = match &incoming.why {
        IncomingReason::Nominated => "the scheduler has nominated this node for it".to_owned(),
        IncomingReason::VolumeSelectedNode { claim } => {
            format!("its PersistentVolumeClaim {claim} has been given this node (volume.kubernetes.io/selected-node)")
        }
        IncomingReason::ClaimOnlyHere { claim } => format!("its ResourceClaim {claim} is allocated on this node alone"),
    };
    Blocker {
        kind: BlockerKind::PodBinding,
        object: pod_object(&incoming.pod.key),
        message: format!(
            "is not bound yet, but may still come: {why}, and a pod that is being bound is not stopped by a cordon. It is evicted when it has \
             come; if it does neither, delete it, and its controller makes another"
        ),
        since: drain.since,
    }
}

/// What to tell about a pod that waits for the drained node: it can start nowhere else, and nothing is to be done about it before the node
/// is back. None: it is bound, or not pinned to that node. A warning, never a blocker: the pod is not on the node.
pub fn pinned(pod: &PodRecord, node: &NodeName) -> Option<String> {
    let extra = pod.extra.as_ref()?;
    let by_affinity = extra.affinity_nodes.len() == 1 && extra.affinity_nodes.first() == Some(node);
    let by_selector = extra.node_selector.get("kubernetes.io/hostname").is_some_and(|host| **host == *node.as_str());
    let waits = pod.node.is_none() && !pod.phase.is_terminal() && pod.meta.deletion.is_none();
    (waits && (by_affinity || by_selector))
        .then(|| format!("{} cannot start until {node} returns: it may run nowhere else", pod.key))
}

fn pod_object(key: &ObjectKey) -> ObjectRef {
    ObjectRef::new("Pod", key)
}

/// Whole seconds, as `1m30s`.
fn ago(now: Timestamp, then: Timestamp) -> String {
    let seconds = now.duration_since(then).as_secs().max(0);
    duration::Duration::from_secs(seconds.unsigned_abs()).to_string()
}
