//! How handoffs end, and what an ended one leaves on its node: abort and its choices, failure, opening the node, the slot, the finalizer.

use jiff::Timestamp;

use super::{
    action::{Action, Evidence, Op},
    answers::{act, effect, on_handoff, wait},
    by_hand,
    cordon::{self, Cordon},
    facts::Facts,
    in_use,
    interlock::{self, Effect, Order, Rule, Step},
    kmm_module,
    patch::{NodeEdit, loaded_text, whole_seconds},
    start,
    transition::Transition,
    verdict::{Blocker, BlockerKind, Verdict},
};
use crate::{
    api::{
        ComponentKey, Phase, Version,
        component::ComponentKind,
        duration::Duration,
        handoff::{BY_REMOVAL, Ended, HandoffAction, Reason},
        keys::{DesiredBy, FINALIZER, Loaded, Slot},
    },
    fleet::records::PodRecord,
};

// Words of `status.reason`.
/// An abort under way: the node is being restored.
pub const GIVING_BACK: &str = "GivingBack";
pub const ABORTED: &str = "Aborted";
pub const UNCORDONED: &str = "Uncordoned";
pub const LEFT: &str = "Left";
pub const HOLD: &str = "Hold";
pub const PAUSED: &str = "PauseAfter";
pub const AWAITING_CHOICE: &str = "AwaitingChoice";
pub const OUT_OF_SERVICE: &str = "OutOfService";
pub const LABEL_EDITED: &str = "LabelEdited";
pub const DEADLINE: &str = "DeadlineExceeded";
/// What was asked of a component that is gone is not asked of the next one of that name.
pub const COMPONENT_DELETED: &str = "ComponentDeleted";

/// An abort that a running handoff answers. While the old loader label is there the node is restored; after that a person must choose.
pub(super) fn abort(f: &Facts<'_>) -> Option<Verdict> {
    if !choice_is_due(f) {
        return None;
    }
    let held_at = f.status().and_then(|status| status.resume_at);
    let phase = match (f.phase(), held_at) {
        (Phase::Held, Some(next)) => next,
        (phase, _) => phase,
    };
    let waits = f.status().and_then(|status| status.reason.as_ref()).is_some_and(|reason| reason.word == AWAITING_CHOICE);
    let old_loader = f
        .loader()
        .filter(|loader| f.occupancy.labels.loaded.as_ref() == Some(&Loaded { version: (*loader).clone(), stopped_boot: None }));
    match phase {
        _ if waits => None,
        Phase::Queued | Phase::Preflight | Phase::Cordoning | Phase::Draining | Phase::Detaching => Some(stop(f)),
        Phase::StoppingPlugin if f.phase() == Phase::Held => Some(stop(f)),
        Phase::StoppingPlugin | Phase::Unloading | Phase::AwaitingReboot => match old_loader {
            Some(loader) => {
                let message =
                    format!("aborted in {phase}; {loader} is still loaded on {} and is put back into service", f.node.name);
                let next = Transition::new(f).reason(GIVING_BACK, &message).edit(|status| status.resume_at = None);
                let next = next.copy(Some(loader.as_str()), start::record_text(f));
                Some(next.to(Phase::Loading).put(Evidence::Fresh, message))
            }
            None => to_be_asked(f, phase),
        },
        Phase::Loading | Phase::StartingPlugin | Phase::Verifying => Some(await_choice(f, phase, None)),
        Phase::Uncordoning if f.phase() == Phase::Held => Some(stop_verified(f)),
        Phase::ReplacingPod | Phase::RestartingUsers => None,
        Phase::Uncordoning | Phase::Held | Phase::Done | Phase::Failed | Phase::Aborted => None,
    }
}

/// One that is held before a phase that cannot be given back goes through it, and asks then: nothing waits for a pause that who aborts will
/// not lift.
pub(super) fn to_be_asked(f: &Facts<'_>, phase: Phase) -> Option<Verdict> {
    let message = format!("aborted while held before {phase}, which cannot be taken back any more: it ends first");
    let next = Transition::new(f).edit(|status| (status.reason, status.resume_at) = (None, None));
    (f.phase() == Phase::Held).then(|| next.to(phase).put(Evidence::Watched, message))
}

/// Held after the last proof: what is left is to open the node, if its component works still.
pub(super) fn stop_verified(f: &Facts<'_>) -> Verdict {
    let message = format!("stopped by a person after Verifying; {} is opened if its module works", f.node.name);
    Transition::new(f).reason(ABORTED, &message).end(Phase::Aborted).put(Evidence::Fresh, message)
}

pub(super) fn stop(f: &Facts<'_>) -> Verdict {
    let message = format!("stopped by a person in {}; {}", f.phase(), not_touched(f));
    Transition::new(f).reason(ABORTED, &message).end(Phase::Aborted).put(Evidence::Fresh, message)
}

pub(super) fn aborted_by_uncordon(f: &Facts<'_>) -> Verdict {
    let message =
        format!("somebody uncordoned {} in {}: pods would come as fast as they go; {}", f.node.name, f.phase(), not_touched(f));
    Transition::new(f).reason(UNCORDONED, &message).end(Phase::Aborted).put(Evidence::Fresh, message)
}

fn not_touched(f: &Facts<'_>) -> String {
    let said = match f.kind() {
        ComponentKind::KmmModule => return kmm_module::fate(f),
        ComponentKind::KernelModule => "the module was not touched",
        ComponentKind::CsiNodePlugin if f.phase() < Phase::ReplacingPod => "the plugin pod was not touched",
        ComponentKind::CsiNodePlugin => "the node is opened when its plugin pod is in order",
    };
    said.to_owned()
}

/// Queued for a component that is being deleted, or for an earlier one of its name: it ends, unless an attempt before it has left something on
/// the node, which only an attempt puts right.
pub(super) fn of_a_deleted_component(f: &Facts<'_>) -> Option<Verdict> {
    let uid = &f.component.record.meta.uid;
    // What a label asks for, the node asks for still.
    let earlier = f.status().and_then(|status| status.component_uid.as_deref());
    let earlier = earlier.filter(|of| *of != uid.as_str() && !f.claims_label());
    let removal = f.spec().is_some_and(|spec| spec.requested_by == BY_REMOVAL);
    let deleted = f.component.record.meta.deletion.is_some() && !removal;
    if f.mark().is_some() || cordon::state(f) == Cordon::Ours {
        return None;
    }
    let message = match earlier {
        Some(earlier) => format!("{} (UID {earlier}): the one of that name now is another. Ask again", deleted_under(f.key)),
        None if deleted => deleted_under(f.key),
        None => return None,
    };
    let ended = Transition::new(f).reason(COMPONENT_DELETED, &message).end(Phase::Aborted);
    Some(ended.put(Evidence::Watched, message))
}

pub(super) fn deleted_under(component: &ComponentKey) -> String {
    format!("NodeComponent {component} was deleted while this was queued: nothing was done")
}

/// It has ended with its component, by nobody's choice: it is no order that the next component of that name would have to leave alone.
pub(super) fn ended_with_component(f: &Facts<'_>) -> bool {
    f.phase().is_ended()
        && f.status().and_then(|status| status.reason.as_ref()).is_some_and(|reason| reason.word == COMPONENT_DELETED)
}

/// A person wants to stop, and that has not been turned into a way back yet.
pub(super) fn choice_is_due(f: &Facts<'_>) -> bool {
    f.abort_asked() && !f.is_giving_back()
}

/// After the unload nothing can be given back silently: Held until a person resumes, rolls back, or leaves.
pub(super) fn await_choice(f: &Facts<'_>, resume_at: Phase, proof: Option<&str>) -> Verdict {
    let from = f.run().and_then(|run| run.from.as_deref()).unwrap_or("the old version");
    let first = match f.kind() {
        ComponentKind::KmmModule => format!("first put {from} and its image back into the Module; then "),
        _ => String::new(),
    };
    let who = who_asks(f);
    let message = format!(
        "aborted after the module was unloaded. Choose: resume (action: Run, or attempt + 1 if it is being deleted), roll back ({first}version: {from}, attempt + 1{who}, action: Run), or leave the node as it is (action: Leave)"
    );
    let mut next = Transition::new(f);
    if let Some(proof) = proof {
        next = next.proof(proof);
    }
    next.copy(f.desired().map(Version::as_str), start::record_text(f))
        .edit(|status| status.resume_at = Some(resume_at))
        .to(Phase::Held)
        .reason(AWAITING_CHOICE, &message)
        .put(Evidence::Watched, message)
}

/// One that follows the node's label takes its version from there, unless somebody says that it is he who asks.
fn who_asks(f: &Facts<'_>) -> &'static str {
    if f.claims_label() { ", requestedBy: who asks for it (now it is the label)" } else { "" }
}

/// What a Held handoff waits for, by the word of its reason.
pub(super) fn held_by(f: &Facts<'_>, word: &str, message: String) -> Blocker {
    let kind = if word == AWAITING_CHOICE { BlockerKind::AwaitingChoice } else { BlockerKind::HandoffHeld };
    let blocker = on_handoff(f, kind, message);
    // It begins to wait now, whatever phase it comes from.
    if f.phase() == Phase::Held { blocker } else { Blocker { since: f.now, ..blocker } }
}

/// A Held handoff's way on that a person has chosen.
pub(super) fn chosen(f: &Facts<'_>) -> Option<Verdict> {
    if is_due_again(f) {
        return Some(try_again(f));
    }
    let (status, spec) = (f.status()?, f.spec()?);
    if status.reason.as_ref()?.word != AWAITING_CHOICE {
        return None;
    }
    match spec.action {
        HandoffAction::Leave => {
            let message = format!("left as it is by a person; {} has no working {}", f.node.name, f.key);
            Some(Transition::new(f).reason(LEFT, &message).end(Phase::Aborted).put(Evidence::Watched, message))
        }
        HandoffAction::Run if !f.abort_asked() => {
            let next = status.resume_at.unwrap_or(Phase::Loading);
            let resumed = Transition::new(f).edit(|status| {
                status.reason = None;
                status.resume_at = None;
            });
            Some(entering(f, resumed, next).to(next).put(Evidence::Watched, "resumed by a person"))
        }
        _ => None,
    }
}

/// What must be written down before a phase begins: the copy, before Loading sets what is copied.
pub(super) fn entering<'f, 'a>(f: &Facts<'a>, transition: Transition<'f, 'a>, next: Phase) -> Transition<'f, 'a> {
    match f.target().filter(|_| next == Phase::Loading && f.loader().is_none()) {
        Some(target) => {
            let record = Loaded { version: target.clone(), stopped_boot: None };
            transition.copy(Some(target.as_str()), Some(loaded_text(&record)))
        }
        None => transition,
    }
}

pub(super) fn is_paused_before(f: &Facts<'_>, next: Phase) -> bool {
    let ran =
        f.status().and_then(|status| status.steps.iter().rev().find(|step| step.phase != Phase::Held).map(|step| step.phase));
    let pauses = f.spec().map(|spec| &spec.pause_after[..]).unwrap_or_default();
    ran.is_some_and(|phase| phase != next && pauses.contains(&phase))
}

/// A new attempt or another target makes an ended or held handoff due again.
pub(super) fn is_due_again(f: &Facts<'_>) -> bool {
    let (Some(spec), Some(status)) = (f.spec(), f.status()) else { return false };
    let ended = || status.history.last().map(|end| (end.attempt, end.target.clone()));
    let ran = || status.run.as_ref().map(|run| (run.attempt, run.target.clone()));
    // One that was taken back in the queue has a later end than its last run.
    let last = if status.phase.is_ended() { ended().or_else(ran) } else { ran() };
    let Some((attempt, target)) = last else { return status.phase.is_ended() };
    let newer = spec.attempt > attempt;
    // What is current is asked for anew by the next attempt only.
    let elsewhere =
        !f.follows_aim() && target != spec.version && !matches!(spec.action, HandoffAction::Abort | HandoffAction::Leave);
    if f.handoff().is_some_and(|handoff| handoff.meta.deletion.is_some()) { newer } else { newer || elsewhere }
}

fn try_again(f: &Facts<'_>) -> Verdict {
    let at = f.now.to_string();
    let component = f.component.record.meta.uid.to_string();
    let next = Transition::new(f).edit(|status| {
        if !status.phase.is_ended()
            && let Some(run) = &status.run
        {
            let reason = Some(Reason { word: ABORTED.to_owned(), message: "another attempt was asked for".to_owned() });
            status.history.push(Ended { attempt: run.attempt, target: run.target.clone(), phase: Phase::Aborted, reason, at });
        }
        status.reason = None;
        status.resume_at = None;
        status.conditions.clear();
        status.component_uid = Some(component);
    });
    next.to(Phase::Queued).put(Evidence::Watched, "another attempt is asked for: back to the queue")
}

pub(super) fn fail(f: &Facts<'_>, word: &str, message: String) -> Verdict {
    let closed = f.record().is_some_and(|record| record.unschedulable) && !f.works();
    let fate = if closed { format!(". {} stays closed and keeps its slot", f.node.name) } else { String::new() };
    let back = match f.kind() {
        ComponentKind::KernelModule => "the old version and attempt + 1",
        ComponentKind::KmmModule => {
            "put the old version and its image back into the Module, then the old version and attempt + 1"
        }
        ComponentKind::CsiNodePlugin => {
            "kubectl rollout undo of the DaemonSet (or its owner's field), then attempt + 1 without a version"
        }
    };
    let who = who_asks(f);
    let message = format!("{message}{fate}. Retry: attempt + 1. Roll back: {back}{who}. Leave: action Leave");
    Transition::new(f).reason(word, &message).end(Phase::Failed).put(Evidence::Watched, message)
}

/// The last step of a run: Done, or given back after an abort, or out of service.
pub(super) fn finish(f: &Facts<'_>, proof: &str) -> Verdict {
    let mut next = Transition::new(f).proof(proof);
    if f.component.kmm.is_some() {
        next = next.copy(f.desired().map(Version::as_str), None);
    }
    if f.is_giving_back() {
        let message =
            format!("aborted; {} is back in service with {}", f.node.name, f.desired().map(Version::as_str).unwrap_or_default());
        return next.reason(ABORTED, &message).end(Phase::Aborted).put(Evidence::Watched, message);
    }
    let removal = f.spec().is_some_and(|spec| spec.requested_by == BY_REMOVAL);
    if f.run().is_some_and(|run| run.target.is_none()) && !removal {
        let message = format!(
            "out of service: {} has no version of {}. Set the label, or give the handoff a version, to bring it back",
            f.node.name, f.key
        );
        return next.to(Phase::Held).reason(OUT_OF_SERVICE, &message).put(Evidence::Watched, message);
    }
    next.edit(|status| status.reason = None).end(Phase::Done).put(Evidence::Watched, format!("{} is done: {proof}", f.node.name))
}

pub(super) fn is_out_of_service(f: &Facts<'_>) -> bool {
    f.phase() == Phase::Held
        && f.status().and_then(|status| status.reason.as_ref()).is_some_and(|reason| reason.word == OUT_OF_SERVICE)
}

/// Held without a version: an end, from which a label or a new version leads on.
pub(super) fn out_of_service(f: &Facts<'_>) -> Verdict {
    if f.abort_asked() && !is_due_again(f) {
        return Transition::new(f)
            .reason(ABORTED, "ended while out of service")
            .end(Phase::Aborted)
            .put(Evidence::Watched, "ended while out of service");
    }
    ended(f)
}

/// After the end: a new attempt, a person's label, a repair, and then the node is given back.
pub(super) fn ended(f: &Facts<'_>) -> Verdict {
    if is_due_again(f) {
        return try_again(f);
    }
    let deleted = f.handoff().is_some_and(|handoff| handoff.meta.deletion.is_some());
    if !deleted {
        if let Some(order) = by_hand::label_order(f) {
            return by_hand::follow(f, order);
        }
        if let Some(verdict) = by_hand::automatic(f) {
            return verdict;
        }
    }
    if f.phase() == Phase::Failed && f.is_by_label() && start::runs_target(f) {
        let proof = format!(
            "{} runs {} after all: somebody made room for it",
            f.node.name,
            f.desired().map(Version::as_str).unwrap_or_default()
        );
        return Transition::new(f).edit(|status| status.reason = None).end(Phase::Done).put(Evidence::Fresh, proof);
    }
    if f.spec().is_some_and(|spec| spec.action == HandoffAction::Leave)
        && f.phase() != Phase::Done
        && let Some(verdict) = leave(f)
    {
        return verdict;
    }
    let tidied = tidy(f);
    // One that is deleted goes, whatever the node waits for by then: what a label asks for is for the next one. Where something of
    // it is left, only to make room for such an order: mark, cordon and slot stay on the node, and the next one takes them over.
    if deleted
        && matches!(tidied, None | Some(Verdict::Wait(_)))
        && (nothing_left(f) || by_hand::label_order(f).is_some())
        && let Some(verdict) = drop_finalizer(f)
    {
        return verdict;
    }
    tidied.or_else(|| nothing_left(f).then(|| drop_finalizer(f)).flatten()).unwrap_or_else(|| at_rest(f))
}

/// Everything that a node without a running handoff may need: a repair by the interlock, our cordon and mark off, its slot freed.
pub(super) fn tidy(f: &Facts<'_>) -> Option<Verdict> {
    if f.record().is_none() {
        return release(f, "the Node does not exist any more");
    }
    let step = interlock::step(f, &Order::label(f));
    if did_nothing(f) && !matches!(step, Some(Step { effect: Effect::Act(_), .. })) {
        let why = "its handoff ended before it had done anything there";
        if let Some(verdict) = f.mark().map(|_| open_node(f)).or_else(|| release(f, why)) {
            return Some(verdict);
        }
    }
    match step {
        Some(Step { rule, effect: Effect::Act(action) }) => return Some(repair(f, rule, *action)),
        Some(Step { rule, effect: Effect::Wait { blockers, recheck } }) => {
            let stopped = blockers.iter().any(|it| matches!(it.kind, BlockerKind::HandoffFailed | BlockerKind::HandoffHeld));
            // An unknown version, a refused component: shown, whatever else is to be said.
            if !stopped || rule == Rule::Unknown {
                let ended =
                    matches!(f.phase(), Phase::Failed | Phase::Aborted) && f.record().is_some_and(|record| !record.unschedulable);
                let freed = if ended { release(f, "its handoff has ended and the node is open") } else { None };
                return freed.or_else(|| Some(wait(f, blockers, recheck)));
            }
        }
        None => {}
    }
    let ours = f.mark().is_some() || f.handoff().is_none() && f.occupancy.labels.mark.is_some();
    let left = ours || matches!(cordon::state(f), Cordon::Ours | Cordon::Lifted | Cordon::Foreign { stale: true });
    if left && f.works() {
        return Some(match unstable_plugin(f) {
            Some((blockers, recheck)) => wait(f, blockers, recheck),
            None => open_node(f),
        });
    }
    if left && !matches!(cordon::state(f), Cordon::Ours | Cordon::Open | Cordon::Foreign { stale: false }) {
        return Some(act(NodeEdit::new(f)
            .leave_cordon(false)
            .fresh(format!("the cordon of {} is no longer lockkeeper's", f.node.name))));
    }
    let closed = f.record().is_some_and(|record| record.unschedulable);
    if !closed || f.works() || f.phase() == Phase::Done {
        return release(f, "no handoff runs there");
    }
    None
}

/// An aborted attempt that had not got beyond Preflight, after none that left anything half done. It has neither closed the node nor moved
/// anything there; the mark may be there all the same, since a new leader writes its epoch first. What is wrong with the node is somebody
/// else's, so that nothing keeps the handoff or its slot.
fn did_nothing(f: &Facts<'_>) -> bool {
    let Some(status) = f.status().filter(|status| status.phase == Phase::Aborted) else { return false };
    let earlier = status.history.iter().rev().nth(1);
    status.steps.iter().all(|step| matches!(step.phase, Phase::Preflight | Phase::Held))
        && earlier.is_none_or(|end| end.phase == Phase::Done)
        && f.mark().is_none_or(|mark| mark.desired == DesiredBy::Kept)
        && matches!(cordon::state(f), Cordon::Open | Cordon::Foreign { stale: false })
}

/// A repair is admitted like a handoff, but not held back by the budget: the node is not in service as it is.
fn repair(f: &Facts<'_>, rule: Rule, action: Action) -> Verdict {
    let harmless = action.evidence == Evidence::Watched || rule == Rule::DevicesBack;
    if harmless || f.holds_slot() {
        return act(action);
    }
    let busy = f.slot.map(|slot| slot.component.clone()).or_else(|| f.others.first().map(|other| other.key.to_string()));
    if let Some(busy) = busy {
        let message = format!("{busy} is being handed over on this node; afterwards: {}", action.why);
        return wait(f, vec![f.on_node(BlockerKind::NodeBusy, message)], None);
    }
    let why = format!("admit {} for a repair: {}", f.node.name, action.why);
    match slot_for(f) {
        Some(slot) => act(Action { op: Op::Admit(slot), evidence: Evidence::Watched, why }),
        None => wait(f, in_use::not_ready(f), None),
    }
}

/// The slot that this component would take on this node.
pub fn slot_for(f: &Facts<'_>) -> Option<Slot> {
    let record = f.record()?;
    Some(Slot { node: f.node.name.to_string(), node_uid: record.meta.uid.to_string(), component: f.owner() })
}

fn release(f: &Facts<'_>, why: &str) -> Option<Verdict> {
    let slot = f.slot.filter(|_| f.holds_slot())?;
    let why = format!("free the slot of {}: {why}", f.node.name);
    Some(act(Action { op: Op::Release(slot.clone()), evidence: Evidence::Fresh, why }))
}

/// The node goes back into service: uncordoned if and only if the cordon is ours, with our mark off, in one patch.
pub(super) fn open_node(f: &Facts<'_>) -> Verdict {
    let edit = NodeEdit::new(f).unmark();
    // Of a Module of KMM the record is ours only while we move its label.
    let edit = if f.component.kmm.is_some() && f.works() { edit.loaded(None) } else { edit };
    let (edit, why) = match cordon::state(f) {
        Cordon::Ours => (edit.leave_cordon(true), format!("open {}: lockkeeper closed it, and it is in order", f.node.name)),
        Cordon::Lifted | Cordon::Foreign { stale: true } => (
            edit.leave_cordon(false),
            format!("take lockkeeper's marks off {}; its cordon is not lockkeeper's any more", f.node.name),
        ),
        Cordon::Open | Cordon::Foreign { stale: false } => (edit, format!("take the handoff's mark off {}", f.node.name)),
    };
    act(edit.fresh(why))
}

/// A person leaves the node as it is: the cordon, if there is one, is theirs from now on.
fn leave(f: &Facts<'_>) -> Option<Verdict> {
    let why = format!("{} is left as it is by a person: its cordon is theirs now", f.node.name);
    // What the labels ask for is still being put right: that needs the mark, and for each of its writes the slot. Taken off or freed under
    // it, both would only come again.
    let stopped = |blocker: &Blocker| matches!(blocker.kind, BlockerKind::HandoffFailed | BlockerKind::HandoffHeld);
    let (mends, acts) = match interlock::step(f, &Order::label(f)) {
        Some(Step { effect: Effect::Act(_), .. }) => (true, true),
        Some(Step { effect: Effect::Wait { blockers, .. }, .. }) => (!blockers.iter().any(stopped), false),
        None => (false, false),
    };
    let edit = if mends { NodeEdit::new(f) } else { NodeEdit::new(f).unmark() };
    let edit = match cordon::state(f) {
        Cordon::Ours | Cordon::Lifted | Cordon::Foreign { stale: true } => edit.leave_cordon(false),
        _ => edit,
    };
    if f.record().is_some() && !edit.is_empty() {
        return Some(act(edit.fresh(why)));
    }
    if acts {
        return None;
    }
    release(f, "left as it is by a person").or_else(|| nothing_left(f).then(|| drop_finalizer(f)).flatten())
}

/// No mark, no cordon of ours and no slot: the handoff is not needed to give the node back.
fn nothing_left(f: &Facts<'_>) -> bool {
    f.record().is_none() || f.mark().is_none() && cordon::state(f) != Cordon::Ours && !f.holds_slot()
}

fn drop_finalizer(f: &Facts<'_>) -> Option<Verdict> {
    let handoff = f.handoff()?;
    if !handoff.finalizers.iter().any(|known| &**known == FINALIZER) {
        return None;
    }
    let why = if nothing_left(f) {
        format!("nothing of NodeHandoff {} is left on {}", handoff.key, f.node.name)
    } else {
        format!("NodeHandoff {} is deleted, and the next one takes over on {}", handoff.key, f.node.name)
    };
    Some(act(Action { op: Op::SetHandoffFinalizer { of: f.handoff_ref()?, present: false }, evidence: Evidence::Watched, why }))
}

fn at_rest(f: &Facts<'_>) -> Verdict {
    let status = f.status();
    let reason = status.and_then(|status| status.reason.clone());
    let closed = f.record().is_some_and(|record| record.unschedulable) && f.mark().is_some();
    let deleted = f.handoff().is_some_and(|handoff| handoff.meta.deletion.is_some());
    match f.phase() {
        Phase::Failed if !deleted => Verdict::Failed {
            reason: reason.unwrap_or(Reason { word: "Unknown".to_owned(), message: "its status names no reason".to_owned() }),
        },
        Phase::Failed | Phase::Aborted if f.mark().is_some() || closed => {
            let message = reason.map(|reason| reason.message).unwrap_or_default();
            let choices = "Resume: attempt + 1. Roll back: the old version, attempt + 1, action Run. Leave it: action Leave";
            let state = if closed { "was left closed and holds its slot" } else { "has no working component" };
            let kind = if closed { BlockerKind::NodeLeftClosed } else { BlockerKind::AwaitingChoice };
            wait(f, vec![f.on_node(kind, format!("{} {state}: {message}. {choices}", f.node.name))], None)
        }
        Phase::Held => {
            wait(f, vec![on_handoff(f, BlockerKind::HandoffHeld, reason.map(|reason| reason.message).unwrap_or_default())], None)
        }
        // The label was off before the handoff wrote anything, so no mark is left: what rule 1 still holds back is said by its name.
        // Who leaves the node as it is has been told.
        Phase::Aborted if f.spec().is_some_and(|spec| spec.action != HandoffAction::Leave) => {
            match interlock::step(f, &Order::label(f)) {
                Some(step) => effect(f, step.effect),
                None => nobody_works(f),
            }
        }
        _ => nobody_works(f),
    }
}

/// A node that nobody works on: what a person should know of it all the same.
pub(super) fn nobody_works(f: &Facts<'_>) -> Verdict {
    super::csi_node_plugin::at_rest(f).or_else(|| super::kmm_module::at_rest(f)).unwrap_or(Verdict::Done)
}

/// Why the component does not count as stable yet, devices included: plugin and allocatable must stay good while one process looks on.
pub(super) fn unstable(f: &Facts<'_>) -> Option<(Vec<Blocker>, Option<Timestamp>)> {
    if let Some(missing) = f.missing_device() {
        return Some((vec![f.on_node(BlockerKind::Allocatable, format!("devices are not back: {missing}"))], None));
    }
    let devices = f.observed.allocatable_since(&f.node.name, f.key).unwrap_or(f.now);
    unstable_since(f, devices)
}

fn unstable_plugin(f: &Facts<'_>) -> Option<(Vec<Blocker>, Option<Timestamp>)> {
    unstable_since(f, Timestamp::MIN)
}

fn unstable_since(f: &Facts<'_>, devices: Timestamp) -> Option<(Vec<Blocker>, Option<Timestamp>)> {
    let pod = f.ready_plugin();
    // A Module of KMM need not have a plugin.
    if pod.is_none() && f.kmm().is_none_or(|kmm| kmm.has_plugin()) {
        return Some((in_use::plugin_not_ready(f), None));
    }
    let blockers = in_use::not_ready(f);
    if !blockers.is_empty() {
        return Some((blockers, None));
    }
    let since = |pod: &PodRecord| f.observed.plugin_ready_since(&f.node.name, f.key, &pod.meta.uid).unwrap_or(f.now);
    let plugin = pod.map_or(Timestamp::MIN, |pod| since(pod));
    let least = f.csi().and_then(|csi| csi.view.set.as_ref()).map_or(0, |set| set.template.min_ready_seconds);
    let stable_for = start::policy(f).verify.stable_for.max(Duration::from_secs(u64::try_from(least).unwrap_or(0)));
    let until = plugin.max(devices).checked_add(stable_for.signed()).unwrap_or(Timestamp::MAX);
    (f.now < until).then(|| {
        let message = format!("plugin and devices are good; they must stay so for {stable_for}, until {}", whole_seconds(until));
        (vec![f.on_node(BlockerKind::Stabilising, message)], Some(until))
    })
}
