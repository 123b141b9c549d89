//! How a verdict is put together: an act, a named wait, the way into the next phase; and what holds for all of them (stale facts, deadlines,
//! waits that last).

use jiff::{SignedDuration, Timestamp};

use super::{
    action::{Action, Evidence, HandoffRef, Op},
    ending,
    facts::Facts,
    interlock::Effect,
    phases, start, tally,
    transition::{Transition, differs, recorded},
    verdict::{Blocker, BlockerKind, ObjectRef, Verdict, Wait},
};
use crate::{
    api::{Phase, Uid, Version, duration::Duration, handoff::HandoffAction},
    fleet::records::HandoffRecord,
};

/// A wait is written to the handoff's status once it has lasted this long: most are over before.
const RECORD_AFTER: SignedDuration = SignedDuration::from_secs(20);

pub(super) fn act(action: Action) -> Verdict {
    Verdict::Act(Box::new(action))
}

pub(super) fn effect(f: &Facts<'_>, effect: Effect) -> Verdict {
    match effect {
        Effect::Act(action) => Verdict::Act(action),
        Effect::Wait { blockers, recheck } => wait(f, blockers, recheck),
    }
}

pub(super) fn on_handoff(f: &Facts<'_>, kind: BlockerKind, message: impl Into<String>) -> Blocker {
    f.blocker(kind, ObjectRef::new("NodeHandoff", format!("{}.{}", f.key, f.node.name)), message)
}

pub(super) fn wait(f: &Facts<'_>, mut blockers: Vec<Blocker>, recheck: Option<Timestamp>) -> Verdict {
    if blockers.is_empty() {
        blockers.push(f.on_node(BlockerKind::Anomaly, "waits for nothing that has a name; this is a defect, please report it"));
    }
    Verdict::Wait(Wait {
        phase: f.phase(),
        since: f.phase_since(),
        blockers,
        recheck,
        next: phases::row(f.kind(), f.phase()).next.to_owned(),
    })
}

/// Into the next phase, or Held before it if a person asked for that.
pub(super) fn enter(f: &Facts<'_>, next: Phase, evidence: Evidence, proof: &str) -> Verdict {
    enter_with(f, next, evidence, proof, |transition| transition)
}

pub(super) fn enter_with<'f, 'a>(
    f: &'f Facts<'a>,
    next: Phase,
    evidence: Evidence,
    proof: &str,
    edit: impl FnOnce(Transition<'f, 'a>) -> Transition<'f, 'a>,
) -> Verdict {
    let transition = edit(Transition::new(f).proof(proof));
    let phase = f.phase();
    let hold = match f.spec() {
        Some(spec) if spec.action == HandoffAction::Hold => {
            Some((ending::HOLD, format!("held by a person after {phase}; next is {next}. Set action to Run to go on")))
        }
        Some(spec) if spec.pause_after.contains(&phase) => Some((
            ending::PAUSED,
            format!("paused after {phase}, as asked; next is {next}. Take {phase} off pauseAfter to go on"),
        )),
        _ => None,
    };
    match hold.filter(|_| !f.is_giving_back() && phase != Phase::Uncordoning) {
        Some((word, message)) => {
            let why = format!("{proof}; {message}");
            let held = transition
                .copy(f.desired().map(Version::as_str), start::record_text(f))
                .edit(|status| status.resume_at = Some(next));
            held.to(Phase::Held).reason(word, message).put(evidence, why)
        }
        // Copied before it is set: a node made again in between is not fresh.
        None => ending::entering(f, transition, next).to(next).put(evidence, format!("{phase} is over: {proof}")),
    }
}

/// How long the phase may take, and when that is over.
pub(super) fn deadline(f: &Facts<'_>) -> Option<(Duration, Timestamp)> {
    let policy = start::policy(f);
    let mut limit = phases::deadline(f.kind(), &policy, f.phase())?;
    // Who moves the label drains the node: that takes place in this phase.
    if f.is_by_label() && f.phase() == Phase::StoppingPlugin {
        limit.0 += phases::deadline(f.kind(), &policy, Phase::Draining).unwrap_or_default().0;
    }
    Some((limit, f.phase_since().checked_add(limit.signed()).unwrap_or(Timestamp::MAX)))
}

/// On a deadline: Failed, with the choices named; never a silent force.
pub(super) fn overdue(f: &Facts<'_>, verdict: Verdict) -> Verdict {
    let Some((limit, at)) = deadline(f) else { return verdict };
    let moves_on = |action: &Action| matches!(&action.op, Op::PutHandoffStatus { status, .. } if status.phase != f.phase());
    match verdict {
        Verdict::Act(action) if f.now >= at && !moves_on(&action) => {
            ending::fail(f, ending::DEADLINE, format!("{} did not end within {limit}; next was: {}", f.phase(), action.why))
        }
        Verdict::Wait(waited) if f.now >= at => {
            let blockers: Vec<String> =
                waited.blockers.iter().map(|it| format!("{} {}: {}", it.kind.word(), it.object, it.message)).collect();
            ending::fail(
                f,
                ending::DEADLINE,
                format!("{} did not end within {limit}; it waited for {}", f.phase(), blockers.join("; ")),
            )
        }
        Verdict::Wait(mut waited) => {
            waited.recheck = Some(waited.recheck.map_or(at, |other| other.min(at)));
            Verdict::Wait(waited)
        }
        other => other,
    }
}

/// What holds for every verdict: no act on stale facts, and a wait that lasts is written down for readers of the API.
pub(super) fn guard(f: &Facts<'_>, verdict: Verdict) -> Verdict {
    match (verdict, f.stale) {
        (Verdict::Act(action), Some(why)) if action.evidence != Evidence::Watched => {
            let message = format!("{why}; nothing is done on facts that may be old. Next is: {}", action.why);
            wait(f, vec![f.on_node(BlockerKind::StaleView, message)], None)
        }
        (Verdict::Wait(waited), None) => {
            record_wait(f.handoff(), waited, f.phase_since(), f.now, Some(&f.component.record.meta.uid), || {
                tally::lost(f).is_some()
            })
        }
        (verdict, _) => verdict,
    }
}

/// Whoever reads the API finds in the status what a handoff waits for: written when it is another thing than what is written there, and once
/// the phase has lasted; of one in the queue also for which component that is. `many`: as many others may wait for the same nodes, and are not written anew for each that comes or goes.
pub(super) fn record_wait(
    handoff: Option<&HandoffRecord>,
    mut waited: Wait,
    since: Timestamp,
    now: Timestamp,
    component: Option<&Uid>,
    many: impl FnOnce() -> bool,
) -> Verdict {
    let Some(record) = handoff.filter(|record| record.spec.is_ok() && !record.status.phase.is_ended()) else {
        return Verdict::Wait(waited);
    };
    let new = record.status.phase_since.is_none();
    if !new && !differs(record, &waited.blockers, many) {
        return Verdict::Wait(waited);
    }
    let due = since.checked_add(RECORD_AFTER).unwrap_or(Timestamp::MAX);
    if !new && now < due {
        waited.recheck = Some(waited.recheck.map_or(due, |other| other.min(due)));
        return Verdict::Wait(waited);
    }
    let of = HandoffRef::of(record);
    let mut status = record.status.clone();
    status.phase_since.get_or_insert(now.to_string());
    if status.phase == Phase::Queued && status.component_uid.is_none() {
        status.component_uid = component.map(ToString::to_string);
    }
    status.blockers = recorded(&waited.blockers);
    status.observed_generation = Some(record.generation);
    let why = format!("record what {} waits for", record.key);
    act(Action { op: Op::PutHandoffStatus { of, status: Box::new(status) }, evidence: Evidence::Watched, why })
}
