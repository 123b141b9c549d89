//! Phases that are the same for every kind of component: Preflight, Cordoning, Held, Uncordoning, and the evictions of the phases between.

use super::{
    action::{Action, Evidence, Op},
    answers::{act, effect, enter, enter_with, wait},
    cordon::{self, Cordon},
    ending, evict,
    evict::Drain,
    facts::Facts,
    in_use,
    interlock::{self, Effect, Order, Step},
    kmm_module,
    patch::NodeEdit,
    preflight, start,
    transition::Transition,
    verdict::Verdict,
};
use crate::api::{
    Phase,
    handoff::{CordonRecord, HandoffAction},
};

/// Writes nothing to the node. What became impossible since it was admitted sends it back to the queue, with all reasons.
pub(super) fn preflight(f: &Facts<'_>) -> Verdict {
    let refusals = preflight::refusals(f);
    if !refusals.is_empty() {
        let message = refusals.iter().map(|refusal| refusal.message.as_str()).collect::<Vec<_>>().join("; ");
        return Transition::new(f)
            .to(Phase::Queued)
            .reason("PreflightRefused", &message)
            .put(Evidence::Fresh, format!("preflight refuses: {message}"));
    }
    let next = match () {
        () if f.csi().is_none() && !start::swap_needed(f) => Phase::Loading,
        () if f.is_by_label() => Phase::StoppingPlugin,
        () if cordon::is_wanted(f, &start::policy(f))
            || matches!(cordon::state(f), Cordon::Ours | Cordon::Foreign { stale: true }) =>
        {
            Phase::Cordoning
        }
        () => Phase::Draining,
    };
    enter(f, next, Evidence::Fresh, "nothing refuses the handoff")
}

pub(super) fn cordoning(f: &Facts<'_>) -> Verdict {
    match cordon::state(f) {
        Cordon::Open => {
            let edit = NodeEdit::new(f).cordon();
            act(edit.fresh(format!("close {} to new pods before those that would break are evicted", f.node.name)))
        }
        Cordon::Foreign { stale: true } => forget_cordon(f),
        Cordon::Ours => cordoned(f, true, format!("{} is unschedulable, set by lockkeeper", f.node.name)),
        Cordon::Foreign { stale: false } => {
            cordoned(f, false, format!("{} was cordoned by somebody else, and stays so afterwards", f.node.name))
        }
        // `uncordoned` has answered before.
        Cordon::Lifted => forget_cordon(f),
    }
}

fn cordoned(f: &Facts<'_>, ours: bool, proof: String) -> Verdict {
    let at = f.now.to_string();
    enter_with(f, Phase::Draining, Evidence::Watched, &proof, |next| {
        next.edit(|status| status.cordon = Some(CordonRecord { ours, at }))
    })
}

/// The cordon under which a drain goes on is still there, and whose it is is as written down; None: so it is.
pub(super) fn cordon_kept(f: &Facts<'_>) -> Option<Verdict> {
    let closed = f.status().and_then(|status| status.cordon.as_ref()).map(|cordon| cordon.ours);
    match (closed, cordon::state(f)) {
        // A claimant has come since Preflight found none.
        (None, Cordon::Open) if cordon::is_wanted(f, &start::policy(f)) => {
            Some(reopen_cordoning(f, "pods would be lost: the node must be closed first"))
        }
        (Some(false), Cordon::Open) => Some(reopen_cordoning(f, "the cordon that was there before has been lifted")),
        (Some(true), Cordon::Foreign { stale: true }) => Some(forget_cordon(f)),
        (Some(true), Cordon::Foreign { stale: false }) => {
            let next = Transition::new(f).edit(|status| {
                if let Some(cordon) = &mut status.cordon {
                    cordon.ours = false;
                }
            });
            Some(next.put(Evidence::Watched, "somebody else has taken the cordon over: it stays afterwards"))
        }
        _ => None,
    }
}

/// Evictions of claimants that are there, or came late: in Draining, Detaching, StoppingPlugin and Unloading alike.
pub(super) fn evictions(f: &Facts<'_>) -> Option<Verdict> {
    // One came after the node had been found empty and left open: without a cordon another would follow.
    let never_closed = f.status().is_some_and(|status| status.cordon.is_none());
    if !in_use::claimants(f).is_empty()
        && never_closed
        && cordon::state(f) == Cordon::Open
        && cordon::is_wanted(f, &start::policy(f))
    {
        let edit = NodeEdit::new(f).cordon();
        return Some(act(edit.fresh(format!("close {}: a pod that uses the device has come", f.node.name))));
    }
    match evict::step(f) {
        Drain::Empty => None,
        Drain::Act(action) => Some(act(*action)),
        Drain::Wait { blockers, recheck } => Some(wait(f, blockers, recheck)),
    }
}

/// Evictions, until nobody is left or on the way and that is certain: a list that is empty twice.
pub(super) fn drained(f: &Facts<'_>) -> Verdict {
    if let Some(verdict) = evictions(f) {
        return verdict;
    }
    let incoming = evict::incoming(f);
    if !incoming.is_empty() {
        return wait(f, incoming, None);
    }
    if let Some(held_back) = in_use::not_settled(f) {
        return effect(f, held_back);
    }
    let next = if in_use::reserved_claims(f).is_empty() { Phase::StoppingPlugin } else { Phase::Detaching };
    let proof = kmm_module::left_over(f)
        .unwrap_or_else(|| format!("no pod on {} uses {}: a fresh list was empty twice", f.node.name, f.key));
    enter_with(f, next, Evidence::FreshTwice, &proof, |next| {
        next.edit(|status| {
            let accepted = f.observed.evictions().accepted().map(|pod| pod.uid.to_string());
            let of_this_node: Vec<String> = accepted.filter(|uid| f.observed.has_left(&f.node.name, uid)).collect();
            status.evicted.extend(of_this_node);
            status.evicted.dedup();
        })
    })
}

/// Claims must be released before what serves them goes.
pub(super) fn detaching(f: &Facts<'_>) -> Verdict {
    if let Some(verdict) = evictions(f) {
        return verdict;
    }
    if let Some(held_back) = in_use::in_use(f) {
        return effect(f, held_back);
    }
    let proof = kmm_module::left_over(f)
        .unwrap_or_else(|| "no ResourceClaim of the driver is reserved for a pod of this node".to_owned());
    enter(f, Phase::StoppingPlugin, Evidence::Fresh, &proof)
}

fn reopen_cordoning(f: &Facts<'_>, why: &str) -> Verdict {
    Transition::new(f).edit(|status| status.cordon = None).to(Phase::Cordoning).put(Evidence::Fresh, why)
}

pub(super) fn forget_cordon(f: &Facts<'_>) -> Verdict {
    let edit = NodeEdit::new(f).leave_cordon(false);
    act(edit.fresh(format!("the cordon of {} is no longer lockkeeper's: take its annotation off", f.node.name)))
}

/// Uncordon, read back, slot, Done: in this order.
pub(super) fn uncordoning(f: &Facts<'_>) -> Verdict {
    if f.occupancy.labels.mark.is_some()
        || matches!(cordon::state(f), Cordon::Ours | Cordon::Lifted | Cordon::Foreign { stale: true })
    {
        return ending::open_node(f);
    }
    if let Some(slot) = f.slot.filter(|_| f.holds_slot()) {
        let why = format!("free the slot of {}: it is given back", f.node.name);
        return act(Action { op: Op::Release(slot.clone()), evidence: Evidence::Fresh, why });
    }
    let proof = match f.record().map(|record| record.unschedulable) {
        Some(true) => format!("{} stays cordoned by somebody else", f.node.name),
        _ => format!("{} is open", f.node.name),
    };
    ending::finish(f, &proof)
}

pub(super) fn held(f: &Facts<'_>) -> Verdict {
    if let Some(verdict) = ending::chosen(f) {
        return verdict;
    }
    let status = f.status();
    let reason = status.and_then(|status| status.reason.as_ref());
    let word = reason.map_or("Hold", |reason| reason.word.as_str());
    let held_before = status.and_then(|status| status.resume_at).unwrap_or(Phase::Preflight);
    let next = match held_before {
        // Much may have become of the node meanwhile: it is opened on what is so now.
        Phase::Uncordoning if f.target().is_some() => Phase::Verifying,
        next => next,
    };
    let action = f.spec().map(|spec| spec.action).unwrap_or_default();
    match (word, action) {
        // A pause that a person turns into a hold is ended by Run like any other.
        (ending::PAUSED, HandoffAction::Hold) => {
            return Transition::new(f).reason(ending::HOLD, "held by a person").put(Evidence::Watched, "held by a person");
        }
        (ending::PAUSED, HandoffAction::Run) if !ending::is_paused_before(f, held_before) => {
            return ending::entering(f, Transition::new(f).edit(resume), next)
                .to(next)
                .put(Evidence::Watched, "goes on: the pause was lifted");
        }
        (ending::HOLD, HandoffAction::Run) => {
            return ending::entering(f, Transition::new(f).edit(resume), next)
                .to(next)
                .put(Evidence::Watched, "goes on: a person says Run");
        }
        _ => {}
    }
    // What the labels ask for is done even now, as far as rule 1 lets it.
    match interlock::step(f, &Order::label(f)) {
        Some(Step { effect: Effect::Act(action), .. }) if f.desired().is_some() || f.plugin().is_none() => act(*action),
        _ => {
            let message = reason.map_or_else(|| "held by a person".to_owned(), |reason| reason.message.clone());
            wait(f, vec![ending::held_by(f, word, message)], None)
        }
    }
}

fn resume(status: &mut crate::api::NodeHandoffStatus) {
    status.reason = None;
    status.resume_at = None;
}
