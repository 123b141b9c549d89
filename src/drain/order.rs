//! The drain of one node, one step at a time: who is evicted next and in which order, or what is waited for. It decides and sends nothing.
//!
//! How a handoff uses it, in Draining and wherever a late claimant is found:
//! 1. Fill [`Drain`] from the FleetView (`Occupancy` and `FleetView::budgets`), the run's policy, the handoff's overrides, and the
//!    process's one [`EvictionMemory`].
//! 2. Call [`step`]. `Evict` becomes `Op::Evict` with `grace_seconds: policy.grace_period`, `DeleteWithOverride` becomes
//!    `Op::DeletePod`, both with `Evidence::Fresh`; `Wait` becomes `Verdict::Wait`.
//! 3. After each answer: `memory.record(&pod, classify(&Reply::from(&written)), now)`, and the UID of an accepted one goes into
//!    `status.evicted`, after the answer and never before it: who is named there is never evicted again in this run.
//! 4. `Empty` proves nothing by itself: the cordon must have been read back, and the action that rests on it carries
//!    `Evidence::FreshTwice`.
//!
//! DaemonSet pods that select the ready label are not evicted and do not hold `Empty` up: they leave when that label goes and return
//! with it. They are still claimants until they have left.
//!
//! Preflight calls [`plan`] with the same input and refuses when any outlook is [`Outlook::Never`] or [`Outlook::Unsettled`].

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;

use super::{
    blockers,
    budget::{self, Block, BudgetClass, Budgets, Standing},
    eviction::{Attempt, EvictionMemory, FIRST_DELAY, LAST_DELAY, Outcome, after},
};
use crate::{
    api::{ObjectKey, Uid, component::DrainPolicy, handoff::Override},
    fleet::{
        records::{NodeRecord, PodRecord},
        view::{ClaimReason, Claimant, ClaimantClass, Incoming},
    },
    handoff::{
        action::PodRef,
        verdict::{Blocker, BlockerKind},
    },
};

/// At most this many pods of a node are on their way out at a time: their replacements all start at once somewhere.
pub const IN_FLIGHT: usize = 10;

/// From this priority on a pod is critical to the system (`system-cluster-critical` is 2,000,000,000).
const CRITICAL: i32 = 2_000_000_000;

/// All that a step rests on.
#[derive(Debug, Clone, Copy)]
pub struct Drain<'a> {
    pub claimants: &'a [Claimant],
    pub incoming: &'a [Incoming],
    /// `FleetView::budgets`. Empty when they may not be read: the server's answers then say all.
    pub budgets: &'a Budgets,
    /// None: the Node object is gone.
    pub node: Option<&'a NodeRecord>,
    pub memory: &'a EvictionMemory,
    /// `status.evicted` of the handoff: UIDs.
    pub evicted: &'a [String],
    pub policy: &'a DrainPolicy,
    /// `spec.overrides` of the handoff.
    pub overrides: &'a [Override],
    /// When draining began in this run (`startedAt` of its first Draining step; for late claimants too), not when the current phase
    /// did. Pods made after it that do not mind the cordon are replacements, and are not chased.
    pub since: Timestamp,
    pub now: Timestamp,
}

/// What is to be done next.
#[derive(Debug, Clone, PartialEq)]
pub enum DrainStep {
    /// Evict these, in this order. Never empty, and never a pod that was accepted before.
    Evict { pods: Vec<PodRef>, why: String },
    /// Delete this one although its budget does not allow it: a person's override, valid now, says so and why.
    DeleteWithOverride { pod: PodRef, why: String },
    /// Never without a blocker; those that need a person come first.
    Wait { blockers: Vec<Blocker>, recheck: Option<Timestamp> },
    /// No claimant is left that must leave, and none is on its way.
    Empty,
}

/// Who goes first: a wave ends before the next one begins, so that nobody's storage or network goes before they do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wave {
    /// They use the device.
    Users,
    /// They leave only because the node is to be rebooted.
    Others,
    /// Critical to the system: storage, network and mount pods that others may need until they have left.
    Critical,
}

/// Where a claimant stands.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Stand<'a> {
    /// Nothing is to be done or awaited: it is not on the node, has ended, or leaves with the ready label.
    Aside,
    /// Being deleted, or its eviction was accepted: awaited.
    Going,
    /// Not evicted until a person changes something.
    Stays(BlockerKind),
    /// Its budget is known not to allow it; asked all the same from then on, in case the view is behind. None: not asked.
    Held { block: Block, ask: Option<Timestamp> },
    /// Its last try was refused, and the next is not due.
    Resting { attempt: &'a Attempt, until: Timestamp },
    /// It may be evicted; under this budget, with so many disruptions left.
    Free { spends: Option<(ObjectKey, i32)> },
}

pub(super) struct Placed<'a> {
    pub claimant: &'a Claimant,
    pub wave: Wave,
    pub stand: Stand<'a>,
}

impl Placed<'_> {
    pub(super) fn pod(&self) -> PodRef {
        PodRef::of(&self.claimant.pod)
    }
}

/// The next step of the drain. Total and deterministic: the same input gives the same step.
pub fn step(drain: &Drain<'_>) -> DrainStep {
    let placed = place(drain);
    let awaited: Vec<&Placed<'_>> = placed.iter().filter(|it| it.stand != Stand::Aside).collect();
    let Some(wave) = awaited.iter().map(|it| it.wave).min() else {
        return match blockers::incoming(drain) {
            blockers if blockers.is_empty() => DrainStep::Empty,
            blockers => DrainStep::Wait { blockers, recheck: None },
        };
    };
    let throttled = drain.memory.throttled(drain.now);
    if throttled.is_none() {
        let turn: Vec<&Placed<'_>> = awaited.iter().copied().filter(|it| it.wave == wave).collect();
        let room = IN_FLIGHT.saturating_sub(awaited.iter().filter(|it| it.stand == Stand::Going).count());
        let pods = next(drain, &turn, room);
        if !pods.is_empty() {
            return DrainStep::Evict { why: why_evict(&pods, awaited.len()), pods };
        }
        if room > 0
            && let Some((placed, granted)) = turn.iter().find_map(|it| Some((*it, overridden(drain, it)?)))
        {
            let why = format!(
                "delete {} without its budget's consent: override valid until {}: {}",
                placed.claimant.pod.key, granted.until, granted.reason
            );
            return DrainStep::DeleteWithOverride { pod: placed.pod(), why };
        }
    }
    let mut recheck: Vec<Timestamp> = awaited.iter().filter_map(|it| due(drain, it)).filter(|due| *due > drain.now).collect();
    recheck.extend(throttled.map(|(_, until)| until));
    DrainStep::Wait { blockers: blockers::all(drain, &awaited, throttled), recheck: recheck.into_iter().min() }
}

/// What will become of a claimant, before anything is written.
#[derive(Debug, Clone, PartialEq)]
pub struct Planned {
    pub pod: PodRef,
    pub wave: Wave,
    pub outlook: Outlook,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Outlook {
    /// Evicted in its turn.
    Evicted,
    /// Evicted once its budget has room again: others of the plan spend what it allows now.
    InTurn { budget: ObjectKey },
    /// Deleted by a valid override, although its budget does not allow it: the block, and the override's reason.
    Overridden { block: Blocker, reason: String },
    /// Not now, but it comes by itself or with its siblings' health.
    Later(Blocker),
    /// Whether it ever comes is known within [`budget::SYNC_LAG`]: a preflight waits for that.
    Unsettled(Blocker),
    /// Not until a person changes something: a preflight refuses.
    Never(Blocker),
    /// A DaemonSet's pod that leaves and returns with the ready label.
    LeavesByItself,
    /// Being deleted already.
    Going(Blocker),
}

/// The prediction for every claimant, in the order of the evictions. It asks no server: `dryRun` evictions spend nothing and prove little.
pub fn plan(drain: &Drain<'_>) -> Vec<Planned> {
    let mut left: BTreeMap<ObjectKey, i32> = BTreeMap::new();
    let outlook = |it: &Placed<'_>, left: &mut BTreeMap<ObjectKey, i32>| match &it.stand {
        Stand::Aside => Outlook::LeavesByItself,
        Stand::Going => Outlook::Going(blockers::going(drain, it.claimant)),
        Stand::Stays(kind) => Outlook::Never(blockers::stays(drain, it.claimant, *kind)),
        Stand::Held { block, .. } => {
            let blocker = blockers::held(drain, block, &[it.claimant]);
            match overridden(drain, it) {
                Some(granted) => Outlook::Overridden { block: blocker, reason: granted.reason.clone() },
                None if block.class.is_permanent() => Outlook::Never(blocker),
                None if block.class == BudgetClass::SyncFailing => Outlook::Unsettled(blocker),
                None => Outlook::Later(blocker),
            }
        }
        Stand::Resting { attempt, .. } => Outlook::Later(blockers::refused(drain, it.claimant, attempt)),
        Stand::Free { spends: None } => Outlook::Evicted,
        Stand::Free { spends: Some((budget, allowed)) } => {
            let left = left.entry(budget.clone()).or_insert(*allowed);
            *left = left.saturating_sub(1);
            if *left >= 0 { Outlook::Evicted } else { Outlook::InTurn { budget: budget.clone() } }
        }
    };
    place(drain)
        .iter()
        .filter(|it| it.stand != Stand::Aside || is_here(&it.claimant.pod))
        .map(|it| Planned { pod: it.pod(), wave: it.wave, outlook: outlook(it, &mut left) })
        .collect()
}

/// Claimants with their stand, in the order in which they leave: by wave, the least important first, then by name.
fn place<'a>(drain: &Drain<'a>) -> Vec<Placed<'a>> {
    let mut seen = BTreeSet::new();
    let mut placed: Vec<_> = drain
        .claimants
        .iter()
        .filter(|claimant| seen.insert(&claimant.pod.meta.uid))
        .map(|claimant| Placed { claimant, wave: wave(claimant), stand: stand(drain, claimant) })
        .collect();
    placed.sort_by(|a, b| {
        let key = |it: &Placed<'_>| (it.wave, it.claimant.pod.priority);
        key(a).cmp(&key(b)).then_with(|| a.claimant.pod.key.cmp(&b.claimant.pod.key))
    });
    placed
}

fn wave(claimant: &Claimant) -> Wave {
    match claimant.why {
        _ if claimant.pod.priority >= CRITICAL => Wave::Critical,
        ClaimReason::Reboot => Wave::Others,
        _ => Wave::Users,
    }
}

/// Bound to the node, and not ended: volumes and devices of ended pods are given back.
fn is_here(pod: &PodRecord) -> bool {
    pod.node.is_some() && !pod.phase.is_terminal()
}

fn stand<'a>(drain: &Drain<'a>, claimant: &Claimant) -> Stand<'a> {
    let pod = &*claimant.pod;
    if !is_here(pod) {
        return Stand::Aside;
    }
    let attempt = drain.memory.get(&pod.meta.uid);
    if pod.meta.deletion.is_some() || attempt.is_some_and(|it| it.outcome.is_settled()) || was_evicted(drain, &pod.meta.uid) {
        return Stand::Going;
    }
    if let Some(stand) = kept(drain, claimant) {
        return stand;
    }
    let next = attempt.and_then(|it| Some((it, it.next?)));
    match budget::standing(pod, drain.budgets, drain.now) {
        Standing::Blocked(block) => {
            // A try that failed for another reason tells more than the view.
            if let Some((attempt, until)) = next.filter(|(it, next)| *next > drain.now && !by_budget(&it.outcome)) {
                return Stand::Resting { attempt, until };
            }
            let ask = next.map_or_else(|| after(drain.since, LAST_DELAY), |(_, next)| next);
            Stand::Held { ask: (!block.class.is_permanent()).then_some(ask), block }
        }
        standing => {
            let (spends, opened) = match standing {
                Standing::Allowed { budget, disruptions } => (Some((budget.record.key.clone(), disruptions)), true),
                // Budgets that may not be read look like none.
                Standing::Unbudgeted => (None, !drain.budgets.is_empty()),
                _ => (None, true),
            };
            // A budget that has room now need not be given the long rest of one that had none.
            let rest = |(it, next): (&'a Attempt, Timestamp)| {
                let until = if opened && by_budget(&it.outcome) { next.min(after(it.last, FIRST_DELAY)) } else { next };
                (it, until)
            };
            match next.map(rest) {
                Some((attempt, until)) if until > drain.now => Stand::Resting { attempt, until },
                _ => Stand::Free { spends },
            }
        }
    }
}

/// Those that no eviction may touch, or none without consent.
fn kept(drain: &Drain<'_>, claimant: &Claimant) -> Option<Stand<'static>> {
    let pod = &*claimant.pod;
    if claimant.class == ClaimantClass::Mirror {
        return Some(Stand::Stays(BlockerKind::MirrorPod));
    }
    if matches!(claimant.why, ClaimReason::UnresolvedVolume { .. }) {
        return Some(Stand::Stays(BlockerKind::UnresolvedVolume));
    }
    if let ClaimantClass::DaemonSet { selects_ready } = claimant.class {
        return Some(if selects_ready { Stand::Aside } else { Stand::Stays(BlockerKind::DaemonSetClaimant) });
    }
    // Whatever the class says: its controller brings it back to where it was.
    if pod.owner.as_ref().is_some_and(|owner| owner.is_daemon_set()) {
        return Some(Stand::Stays(BlockerKind::DaemonSetClaimant));
    }
    if is_replacement(drain, pod) {
        return Some(Stand::Stays(BlockerKind::EvictionRefused));
    }
    // Both consents are asked for, whichever the class names.
    if (pod.owner.is_none() || claimant.class == ClaimantClass::Unmanaged) && !drain.policy.evict_unmanaged {
        return Some(Stand::Stays(BlockerKind::Unmanaged));
    }
    if (pod.flags.empty_dir || claimant.class == ClaimantClass::EmptyDir) && !drain.policy.delete_empty_dir_data {
        return Some(Stand::Stays(BlockerKind::EmptyDir));
    }
    None
}

/// Made after the drain began, and nothing kept it off the node: the one evicted next would be followed by another. Creation times have
/// whole seconds, and a controller is quicker than that: one made within the drain's first second counts, whichever came first.
pub(super) fn is_replacement(drain: &Drain<'_>, pod: &PodRecord) -> bool {
    let open = drain.node.is_some_and(|node| !node.unschedulable);
    let began = Timestamp::from_second(drain.since.as_second()).unwrap_or(drain.since);
    (open || pod.flags.tolerates_cordon || pod.flags.tolerates_all) && pod.meta.created.is_some_and(|at| at >= began)
}

pub(super) fn was_evicted(drain: &Drain<'_>, uid: &Uid) -> bool {
    drain.evicted.iter().any(|it| *uid == **it)
}

fn by_budget(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Budget { .. } | Outcome::TwoBudgets { .. })
}

/// The pods of the next round. Budgets are spent as the server will spend them: what was accepted but is not seen yet is counted in.
fn next(drain: &Drain<'_>, turn: &[&Placed<'_>], room: usize) -> Vec<PodRef> {
    let mut spent: BTreeMap<ObjectKey, i32> = BTreeMap::new();
    for it in turn.iter().filter(|it| it.stand == Stand::Going && it.claimant.pod.meta.deletion.is_none()) {
        for budget in budget::of(&it.claimant.pod, drain.budgets) {
            *spent.entry(budget.record.key.clone()).or_default() += 1;
        }
    }
    let mut pods = Vec::new();
    for it in turn {
        let Stand::Free { spends } = &it.stand else { continue };
        if pods.len() >= room {
            break;
        }
        if let Some((budget, allowed)) = spends {
            let spent = spent.entry(budget.clone()).or_default();
            if *spent >= *allowed {
                continue;
            }
            *spent += 1;
        }
        pods.push(it.pod());
    }
    // One pod is enough to learn whether a budget is still shut: none is asked for while another's try under it rests, nor one that has
    // an override.
    let held = turn.iter().filter_map(|it| match &it.stand {
        Stand::Held { block, ask: Some(ask) } => Some((*it, block.budgets.first().map(|budget| &budget.record.key), *ask)),
        _ => None,
    });
    let mut asked: BTreeSet<_> = held.clone().filter(|(_, _, ask)| *ask > drain.now).map(|(_, budget, _)| budget).collect();
    for (it, budget, _) in held {
        if pods.len() < room && overridden(drain, it).is_none() && asked.insert(budget) {
            pods.push(it.pod());
        }
    }
    pods
}

/// The override that lets a blocked pod be deleted now. A try of it that failed for another reason is given its rest.
fn overridden<'a>(drain: &Drain<'a>, placed: &Placed<'_>) -> Option<&'a Override> {
    let blocked = match &placed.stand {
        Stand::Held { .. } => true,
        Stand::Resting { attempt, .. } => by_budget(&attempt.outcome),
        _ => false,
    };
    blocked.then(|| valid_override(drain, &placed.claimant.pod.meta.uid)).flatten()
}

pub(super) fn valid_override<'a>(drain: &Drain<'a>, uid: &Uid) -> Option<&'a Override> {
    let valid = |it: &&Override| *uid == *it.pod_uid && it.until.parse::<Timestamp>().is_ok_and(|until| until > drain.now);
    drain.overrides.iter().filter(valid).max_by_key(|it| it.until.parse::<Timestamp>().ok())
}

/// When a claimant's stand may change though nothing happens.
fn due(drain: &Drain<'_>, placed: &Placed<'_>) -> Option<Timestamp> {
    match &placed.stand {
        Stand::Held { ask, block } => {
            let lasts = block.budgets.iter().filter_map(|budget| budget::lasts_from(&budget.record));
            lasts.chain(*ask).filter(|at| *at > drain.now).min()
        }
        Stand::Resting { until, .. } => Some(*until),
        Stand::Going => {
            let pod: &Arc<PodRecord> = &placed.claimant.pod;
            let ends = match pod.meta.deletion {
                Some(deletion) => deletion.at,
                None => drain.memory.get(&pod.meta.uid)?.last,
            };
            Some(after(ends, blockers::OVERDUE + Duration::from_secs(1)))
        }
        _ => None,
    }
}

fn why_evict(pods: &[PodRef], awaited: usize) -> String {
    let mut names: Vec<String> = pods.iter().take(3).map(|pod| pod.key.to_string()).collect();
    if pods.len() > 3 {
        names.push(format!("{} more", pods.len() - 3));
    }
    format!("evict {} of {awaited} claimants left: {}", pods.len(), names.join(", "))
}

#[cfg(test)]
mod tests;
