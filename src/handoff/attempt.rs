//! One attempt, from the queue to its end, whatever the kind: what must be put right first, then abort, then the phase's own action, then the
//! deadline. Total: any facts give a verdict.

use jiff::Timestamp;

use super::{
    action::{Action, Evidence, Op},
    answers::{act, guard, on_handoff, overdue, wait},
    cordon::{self, Cordon},
    csi_node_plugin, ending,
    facts::{Admission, Facts},
    kernel_module, kmm_module, notes,
    shared_phases::forget_cordon,
    start,
    transition::Transition,
    verdict::{Blocker, BlockerKind, ObjectRef, Verdict},
};
use crate::api::{Phase, component::ComponentKind};

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
    let verdict = notes::told(f, decide_unguarded(f));
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
    let verdict = match (f.csi(), f.kmm()) {
        (Some(csi), _) => csi_node_plugin::running(f, csi),
        (None, Some(kmm)) => kmm_module::running(f, kmm),
        (None, None) => match unseen(f) {
            Some(blocker) => of_nothing_seen(f, blocker),
            None => kernel_module::running(f),
        },
    };
    overdue(f, verdict)
}

/// The run is one of a Module of KMM, or of a nodeplugin, and nothing shows any more what it goes by (the component's spec does not decode, or
/// it was made again as another kind). The phases of versioned DaemonSets have the same names and do other things.
fn unseen(f: &Facts<'_>) -> Option<Blocker> {
    let (run, kind) = (f.run()?, f.kind());
    let of = if f.component.kmm.is_some() || kind == ComponentKind::KmmModule || run.kmm_config.is_some() {
        "a Module of KMM"
    } else if f.component.csi.is_some() || kind == ComponentKind::CsiNodePlugin || run.policy.csi_node_plugin.is_some() {
        "the nodeplugin of a CSI driver"
    } else {
        return None;
    };
    let why = match &f.component.record.spec {
        Err(why) => format!("its spec does not decode ({why})"),
        Ok(_) => "it speaks of another kind of component now".to_owned(),
    };
    let message = format!(
        "this handoff began as one of {of}, and of NodeComponent {} nothing says so any more: {why}. Nothing is done on {} until it does again; \
         correct the component",
        f.key, f.node.name
    );
    Some(f.blocker(BlockerKind::ComponentRefused, ObjectRef::new("NodeComponent", f.key), message))
}

/// A person who wants to stop is answered as long as nothing but the node's door was touched.
fn of_nothing_seen(f: &Facts<'_>, blocker: Blocker) -> Verdict {
    let phase = match f.phase() {
        Phase::Held => f.status().and_then(|status| status.resume_at).unwrap_or(Phase::Preflight),
        phase => phase,
    };
    if f.abort_asked() && phase < Phase::StoppingPlugin { ending::stop(f) } else { wait(f, vec![blocker], None) }
}

/// A person's uncordon aborts up to Draining; after that our annotation goes and the handoff goes on.
pub(super) fn uncordoned(f: &Facts<'_>) -> Option<Verdict> {
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
