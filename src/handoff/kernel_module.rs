//! The phases of `kernelModule.daemonSets`: one match, every transition at one sight. Total: any facts give a verdict.
//! Order of precedence: what must be put right first, then abort, then the phase's own action, then the interlock, then the deadline.

use jiff::{SignedDuration, Timestamp};

use super::{
    action::{Action, Evidence, Op},
    cordon::{self, Cordon},
    csi_node_plugin, ending, evict,
    evict::Drain,
    facts::{Admission, Facts},
    interlock::{self, Effect, Order, Rule, Step},
    patch::NodeEdit,
    phases, preflight, start,
    transition::{Transition, differs, recorded},
    unload_pod,
    verdict::{Blocker, BlockerKind, ObjectRef, Verdict, Wait},
};
use crate::api::{
    Phase, Version,
    duration::Duration,
    handoff::{CordonRecord, HandoffAction},
    keys::{DesiredBy, Role},
};

/// A wait is written to the handoff's status once it has lasted this long: most are over before.
const RECORD_AFTER: SignedDuration = SignedDuration::from_secs(20);

/// What is not written down for every handoff: what holds back every node alike is the component's to say (thousands would have to be
/// written), and what waits for a person's choice was written down when it became Held.
const NOT_RECORDED: [BlockerKind; 7] = {
    use BlockerKind::{AwaitingChoice, FailureBudgetSpent, HandoffHeld, NoLease, Paused, QueuedBehind, StaleView};
    [QueuedBehind, Paused, FailureBudgetSpent, NoLease, StaleView, HandoffHeld, AwaitingChoice]
};

/// What is to be done now for a component on a node.
pub fn decide(f: &Facts<'_>) -> Verdict {
    timed(f).0
}

/// The same, and when time alone may change the wait: it goes on, too, while what is awaited is being written down.
pub(super) fn timed(f: &Facts<'_>) -> (Verdict, Option<Timestamp>) {
    let recheck = |verdict: &Verdict| match verdict {
        Verdict::Wait(wait) => wait.recheck,
        _ => None,
    };
    let verdict = decide_unguarded(f);
    let before = recheck(&verdict);
    let verdict = guard(f, verdict);
    let at = [before, recheck(&verdict)].into_iter().flatten().min();
    (verdict, at)
}

fn decide_unguarded(f: &Facts<'_>) -> Verdict {
    let Some(record) = f.handoff() else { return super::by_hand::without_handoff(f) };
    if let Err(why) = &record.spec {
        let message = format!("its spec does not decode: {why}; correct it, nothing is done for this node meanwhile");
        return wait(f, vec![on_handoff(f, BlockerKind::Anomaly, message)], None);
    }
    if let Some(verdict) = start::put_right(f) {
        return verdict;
    }
    match f.phase() {
        Phase::Queued => start::queued(f),
        Phase::Done | Phase::Failed | Phase::Aborted => ending::ended(f),
        Phase::Held if ending::is_out_of_service(f) => ending::out_of_service(f),
        _ => running(f),
    }
}

/// Between admission and the end.
fn running(f: &Facts<'_>) -> Verdict {
    if f.run().is_none() {
        // A status without a run was not written by us: start over, nothing was touched under it.
        return Transition::new(f).to(Phase::Queued).put(Evidence::Fresh, "the status has no run: back to the queue");
    }
    if f.record().is_none() {
        return node_gone(f);
    }
    if let Some(verdict) = without_slot(f) {
        return verdict;
    }
    if let Some(csi) = f.csi() {
        return overdue(f, csi_node_plugin::running(f, csi));
    }
    if let Some(verdict) = ending::abort(f).or_else(|| label_edited(f)).or_else(|| uncordoned(f)) {
        return verdict;
    }
    let verdict = match f.phase() {
        Phase::Preflight => preflight(f),
        Phase::Cordoning => cordoning(f),
        Phase::Draining => draining(f),
        Phase::Detaching => detaching(f),
        Phase::StoppingPlugin => stopping_plugin(f),
        Phase::Unloading | Phase::AwaitingReboot => unloading(f),
        Phase::Held => held(f),
        Phase::Loading => loading(f),
        Phase::StartingPlugin => starting_plugin(f),
        Phase::Verifying => verifying(f),
        Phase::Uncordoning => uncordoning(f),
        Phase::ReplacingPod | Phase::RestartingUsers => {
            ending::fail(f, "Anomaly", format!("{} is no phase of a kernel module: its status was edited", f.phase()))
        }
        Phase::Queued | Phase::Done | Phase::Failed | Phase::Aborted => Verdict::Done,
    };
    overdue(f, verdict)
}

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

fn draining(f: &Facts<'_>) -> Verdict {
    if let Some(verdict) = cordon_kept(f) {
        return verdict;
    }
    if f.occupancy.labels.ready.is_some() {
        let edit = NodeEdit::new(f).label(Role::Ready, None);
        return act(
            edit.watched(format!("{} is not ready for DaemonSets that use the devices: they leave by themselves", f.node.name))
        );
    }
    if let Some(verdict) = evictions(f) {
        return verdict;
    }
    let incoming = evict::incoming(f);
    if !incoming.is_empty() {
        return wait(f, incoming, None);
    }
    if let Some(step) = interlock::not_settled(f, Rule::Unknown) {
        return effect(f, step.effect);
    }
    let next = if f.occupancy.reserved_claims.is_empty() { Phase::StoppingPlugin } else { Phase::Detaching };
    let proof = format!("no pod on {} uses {}: a fresh list was empty twice", f.node.name, f.key);
    enter_with(f, next, Evidence::FreshTwice, &proof, |next| {
        next.edit(|status| {
            let accepted = f.observed.evictions().accepted().map(|pod| pod.uid.to_string());
            let of_this_node: Vec<String> = accepted.filter(|uid| f.observed.has_left(&f.node.name, uid)).collect();
            status.evicted.extend(of_this_node);
            status.evicted.dedup();
        })
    })
}

fn detaching(f: &Facts<'_>) -> Verdict {
    if let Some(verdict) = evictions(f) {
        return verdict;
    }
    if let Some(step) = interlock::in_use(f, Rule::Unknown) {
        return effect(f, step.effect);
    }
    enter(f, Phase::StoppingPlugin, Evidence::Fresh, "no ResourceClaim of the driver is reserved for a pod of this node")
}

/// Rules 2 and 3, under a desired label that this handoff takes off first.
fn stopping_plugin(f: &Facts<'_>) -> Verdict {
    if let Some(verdict) = evictions(f) {
        return verdict;
    }
    // A person's label is a person's order: it stays.
    let order =
        if f.is_by_label() { Order::label(f) } else { Order { desired: None, moves: Some(DesiredBy::Removed), stopped: None } };
    match interlock::step(f, &order) {
        Some(step) if step.rule <= Rule::PluginGone => effect(f, step.effect),
        _ if order.moves.is_some() && f.desired().is_some() => {
            let edit = NodeEdit::new(f).label(Role::Desired, None).desired_by(DesiredBy::Removed);
            act(edit.fresh(format!("take the version off {}: nothing is started there meanwhile", f.node.name)))
        }
        _ => {
            let stays = f.plugin().is_some() || !f.occupancy.plugin_pods.is_empty();
            let proof = if stays {
                format!("the plugin on {} is the wanted one and stays", f.node.name)
            } else {
                format!("no plugin pod is on {} and it offers no device", f.node.name)
            };
            enter_with(f, Phase::Unloading, Evidence::Fresh, &proof, |next| {
                next.copy(f.desired().map(Version::as_str), start::record_text(f))
            })
        }
    }
}

/// Rules 4 to 6.
fn unloading(f: &Facts<'_>) -> Verdict {
    let waits_for_reboot = f.phase() == Phase::AwaitingReboot;
    if !waits_for_reboot && let Some(verdict) = evictions(f) {
        return verdict;
    }
    let order = Order::label(f);
    match interlock::step(f, &order) {
        Some(Step { rule: Rule::ModuleOut, effect: Effect::Wait { blockers, .. } })
            if !waits_for_reboot && blockers.iter().any(|blocker| blocker.kind == BlockerKind::RebootRequired) =>
        {
            enter(
                f,
                Phase::AwaitingReboot,
                Evidence::Fresh,
                &format!("the loader on {} has stopped; the module stays until a reboot", f.node.name),
            )
        }
        Some(step) if step.rule <= Rule::ModuleOut => effect(f, step.effect),
        _ => unloaded(f),
    }
}

fn unloaded(f: &Facts<'_>) -> Verdict {
    let proof = unload_proof(f);
    if ending::choice_is_due(f) {
        return ending::await_choice(f, Phase::Loading, Some(&proof));
    }
    match f.target() {
        Some(_) => enter(f, Phase::Loading, Evidence::Fresh, &proof),
        None => enter_with(f, Phase::Uncordoning, Evidence::Fresh, &proof, |next| next.copy(None, None)),
    }
}

/// What took the record off, as far as it can still be seen.
fn unload_proof(f: &Facts<'_>) -> String {
    let exited = f.occupancy.unload_pods.iter().find(|pod| unload_pod::outcome(pod) == unload_pod::Outcome::Unloaded);
    let began = f.run().map(|run| run.boot_id.as_str());
    let fact = match (exited, f.boot(), began) {
        (Some(pod), ..) => format!("Pod {} (UID {}) unloaded it, exit 0; ", pod.key, pod.meta.uid),
        (None, Some(boot), Some(began)) if *boot != *began => format!("boot {boot} is not the {began} in which it was loaded; "),
        _ => String::new(),
    };
    format!("{fact}nothing of {} is recorded in the kernel of {}", f.key, f.node.name)
}

/// Rule 7 and the first half of 8, towards a desired label that this handoff sets.
fn loading(f: &Facts<'_>) -> Verdict {
    let Some(target) = f.target() else { return out_of_targets(f) };
    let order = Order { desired: Some(target.clone()), moves: (!f.is_by_label()).then_some(DesiredBy::Set), stopped: None };
    match interlock::step(f, &order) {
        Some(step) if step.rule <= Rule::LoaderOn => effect(f, step.effect),
        _ if f.desired() != Some(&target) => {
            let edit = NodeEdit::new(f).label(Role::Desired, Some(&target)).desired_by(DesiredBy::Set);
            act(edit.fresh(format!("{target} is wanted on {}", f.node.name)))
        }
        Some(step) if step.rule == Rule::LoaderReady => effect(f, step.effect),
        _ => {
            let pods: Vec<String> = f.occupancy.loader_pods.iter().map(|pod| pod.key.to_string()).collect();
            enter(
                f,
                Phase::StartingPlugin,
                Evidence::Fresh,
                &format!("loader pod {} of {target} is Ready in this boot", pods.join(", ")),
            )
        }
    }
}

/// Rule 8.
fn starting_plugin(f: &Facts<'_>) -> Verdict {
    match interlock::step(f, &Order::label(f)) {
        Some(step) if step.rule < Rule::DevicesBack => effect(f, step.effect),
        _ => match interlock::plugin_not_ready(f) {
            blockers if !blockers.is_empty() => wait(f, blockers, None),
            _ => {
                let pod = f.ready_plugin().map(|pod| pod.key.to_string()).unwrap_or_default();
                enter(f, Phase::Verifying, Evidence::Watched, &format!("plugin pod {pod} is Ready"))
            }
        },
    }
}

/// Rule 9, and that it stays so.
fn verifying(f: &Facts<'_>) -> Verdict {
    if let Some(step) = interlock::step(f, &Order::label(f)) {
        return effect(f, step.effect);
    }
    match ending::unstable(f) {
        Some((blockers, recheck)) => wait(f, blockers, recheck),
        None => {
            let offered: Vec<String> = f.offered().iter().map(|(name, count)| format!("{name}: {count}")).collect();
            let stable = start::policy(f).verify.stable_for;
            enter(
                f,
                Phase::Uncordoning,
                Evidence::Watched,
                &format!("plugin Ready and allocatable back ({}), stable for {stable}", offered.join(", ")),
            )
        }
    }
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
    let next = status.and_then(|status| status.resume_at).unwrap_or(Phase::Preflight);
    let action = f.spec().map(|spec| spec.action).unwrap_or_default();
    match (word, action) {
        // A pause that a person turns into a hold is ended by Run like any other.
        (ending::PAUSED, HandoffAction::Hold) => {
            return Transition::new(f).reason(ending::HOLD, "held by a person").put(Evidence::Watched, "held by a person");
        }
        (ending::PAUSED, HandoffAction::Run) if !ending::is_paused_before(f, next) => {
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

fn out_of_targets(f: &Facts<'_>) -> Verdict {
    ending::fail(f, "Anomaly", "the run has no version to load: its status was edited".to_owned())
}

/// Evictions of claimants that are there, or came late: in Draining, Detaching, StoppingPlugin and Unloading alike.
pub(super) fn evictions(f: &Facts<'_>) -> Option<Verdict> {
    // One came after the node had been found empty and left open: without a cordon another would follow.
    let never_closed = f.status().is_some_and(|status| status.cordon.is_none());
    if !f.occupancy.claimants.is_empty()
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

fn reopen_cordoning(f: &Facts<'_>, why: &str) -> Verdict {
    Transition::new(f).edit(|status| status.cordon = None).to(Phase::Cordoning).put(Evidence::Fresh, why)
}

pub(super) fn forget_cordon(f: &Facts<'_>) -> Verdict {
    let edit = NodeEdit::new(f).leave_cordon(false);
    act(edit.fresh(format!("the cordon of {} is no longer lockkeeper's: take its annotation off", f.node.name)))
}

/// From the first node write to Verifying: a desired label that the mark and the phase do not explain is somebody's order.
fn label_edited(f: &Facts<'_>) -> Option<Verdict> {
    let phase = match f.phase() {
        Phase::Held => f.status()?.resume_at?,
        phase => phase,
    };
    let run = f.run()?;
    // Without a mark of this attempt the handoff has not touched the label.
    let by = f.mark().filter(|mark| mark.attempt == run.attempt).map_or(DesiredBy::Kept, |mark| mark.desired);
    // The target is set in Loading: before it, the mark is of another target that this attempt had before somebody changed it.
    let by = if by == DesiredBy::Set && phase < Phase::Loading { DesiredBy::Kept } else { by };
    if !(Phase::StoppingPlugin..=Phase::Verifying).contains(&phase) {
        return None;
    }
    let target = f.target();
    let wanted = match by {
        DesiredBy::Kept => run.desired.as_deref().map(Version::from),
        DesiredBy::Removed => None,
        DesiredBy::Set => target.clone(),
    };
    if f.desired() == wanted.as_ref() {
        return None;
    }
    let say = |version: Option<&Version>| version.map_or_else(|| "no version".to_owned(), ToString::to_string);
    let message = format!(
        "somebody changed the label {} on {} to {} in {phase}, where this handoff has {}: the order of who edits the label counts",
        Role::Desired.key(f.key),
        f.node.name,
        say(f.desired()),
        say(wanted.as_ref()),
    );
    Some(ending::fail(f, ending::LABEL_EDITED, message))
}

/// A person's uncordon aborts up to Draining; after that our annotation goes and the handoff goes on.
fn uncordoned(f: &Facts<'_>) -> Option<Verdict> {
    let phase = match f.phase() {
        Phase::Held => f.status()?.resume_at?,
        phase => phase,
    };
    let ours = f.status()?.cordon.as_ref().is_some_and(|cordon| cordon.ours);
    match (phase, cordon::state(f)) {
        (Phase::Cordoning | Phase::Draining | Phase::Detaching, Cordon::Lifted) => Some(ending::aborted_by_uncordon(f)),
        (Phase::Draining | Phase::Detaching, Cordon::Open) if ours => Some(ending::aborted_by_uncordon(f)),
        (phase, Cordon::Lifted | Cordon::Foreign { stale: true })
            if (Phase::StoppingPlugin..=Phase::Verifying).contains(&phase) =>
        {
            Some(forget_cordon(f))
        }
        _ => None,
    }
}

/// A running handoff must hold its slot. It lost it when its node vanished and came back, or somebody edited the Lease.
fn without_slot(f: &Facts<'_>) -> Option<Verdict> {
    let leaving =
        f.phase() == Phase::Uncordoning && f.occupancy.labels.mark.is_none() && !matches!(cordon::state(f), Cordon::Ours);
    if f.holds_slot() || leaving {
        return None;
    }
    Some(match f.admission {
        Some(Admission::Granted(slot)) => {
            let why = format!("admit {} again: its handoff runs without a slot", f.node.name);
            act(Action { op: Op::Admit(slot.clone()), evidence: Evidence::Watched, why })
        }
        Some(Admission::Blocked { blockers, recheck }) => wait(f, blockers.clone(), *recheck),
        None => wait(f, vec![f.on_node(BlockerKind::BudgetSpent, "the handoff has lost its slot and waits for another")], None),
    })
}

fn node_gone(f: &Facts<'_>) -> Verdict {
    if let Some(slot) = f.slot.filter(|_| f.holds_slot()) {
        let why = format!("free the slot of {}: the Node does not exist any more", f.node.name);
        return act(Action { op: Op::Release(slot.clone()), evidence: Evidence::Fresh, why });
    }
    if f.abort_asked() {
        return Transition::new(f)
            .reason(ending::ABORTED, "aborted; its Node does not exist any more")
            .end(Phase::Aborted)
            .put(Evidence::Fresh, "aborted: the Node is gone");
    }
    let message = "the Node does not exist any more; its slot is free. The handoff goes on if it comes back, and fails at the phase's deadline";
    overdue(f, wait(f, vec![f.on_node(BlockerKind::NodeGone, message)], None))
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
fn overdue(f: &Facts<'_>, verdict: Verdict) -> Verdict {
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

/// What holds for every verdict: no act on stale facts, and a wait that lasts is written down for readers of the API.
fn guard(f: &Facts<'_>, verdict: Verdict) -> Verdict {
    match (verdict, f.stale) {
        (Verdict::Act(action), Some(why)) if action.evidence != Evidence::Watched => {
            let message = format!("{why}; nothing is done on facts that may be old. Next is: {}", action.why);
            wait(f, vec![f.on_node(BlockerKind::StaleView, message)], None)
        }
        (Verdict::Wait(waited), None) => record_wait(f, waited),
        (verdict, _) => verdict,
    }
}

fn record_wait(f: &Facts<'_>, mut waited: Wait) -> Verdict {
    let Some(record) = f.handoff().filter(|record| record.spec.is_ok() && !record.status.phase.is_ended()) else {
        return Verdict::Wait(waited);
    };
    let own_before = record.status.blockers.iter().any(|known| !BlockerKind::names_one_of(&NOT_RECORDED, &known.kind));
    let new = record.status.phase_since.is_none();
    let shared = waited.blockers.iter().all(|blocker| NOT_RECORDED.contains(&blocker.kind));
    if !new && (shared && !own_before || !differs(record, &waited.blockers)) {
        return Verdict::Wait(waited);
    }
    let due = f.phase_since().checked_add(RECORD_AFTER).unwrap_or(Timestamp::MAX);
    if !new && f.now < due {
        waited.recheck = Some(waited.recheck.map_or(due, |other| other.min(due)));
        return Verdict::Wait(waited);
    }
    let why = format!("record what {} waits for", record.key);
    let blockers = recorded(&waited.blockers);
    let since = f.now.to_string();
    Transition::new(f)
        .edit(|status| {
            status.phase_since.get_or_insert(since);
            status.blockers = blockers;
        })
        .put(Evidence::Watched, why)
}
