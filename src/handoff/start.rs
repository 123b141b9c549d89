//! What comes before a handoff runs: putting a node made again right, the epoch of a new lease holder, the queue's answer, and the run record.

use super::{
    action::{Action, Evidence, Op},
    answers::{act, on_handoff, wait},
    by_hand,
    cordon::{self, Cordon},
    ending,
    facts::{Admission, Facts},
    patch::{NodeEdit, loaded_text},
    transition::Transition,
    verdict::{BlockerKind, Verdict},
};
use crate::api::{
    Phase, Version,
    component::UnloadBy,
    handoff::{BY_INSTALL, BY_LABEL, BY_ROLLOUT, Run, RunPolicy},
    keys::{DesiredBy, FINALIZER, Loaded, Role},
};

/// The policy of the running attempt; before it runs, the component's.
pub fn policy(f: &Facts<'_>) -> RunPolicy {
    match f.run().filter(|_| f.phase() != Phase::Queued) {
        Some(run) => run.policy.clone(),
        None => component_policy(f),
    }
}

fn component_policy(f: &Facts<'_>) -> RunPolicy {
    let Some(spec) = f.component.spec() else { return RunPolicy::default() };
    RunPolicy {
        drain: spec.drain.clone(),
        deadlines: spec.deadlines.clone(),
        verify: spec.verify.clone(),
        csi_node_plugin: spec.csi_node_plugin.clone(),
        unload_by: if f.unloads_by_reboot() { UnloadBy::Reboot } else { UnloadBy::Pod },
    }
}

/// The old version must leave and the new one come: false when the labels and the record already say the target.
pub fn swap_needed(f: &Facts<'_>) -> bool {
    if let Some(csi) = f.csi() {
        return !csi.is_current() || !f.occupancy.claimants.is_empty();
    }
    if let Some(kmm) = f.kmm() {
        return super::kmm_module::swap_needed(f, kmm);
    }
    let labels = &f.occupancy.labels;
    let empty = labels.loader.is_none() && labels.plugin.is_none() && labels.loaded.is_none();
    let Some(target) = f.target() else { return !empty || labels.desired.is_some() };
    let wanted = labels.desired.is_none() || labels.desired.as_ref() == Some(&target);
    let there = labels.loaded.as_ref() == Some(&Loaded { version: target.clone(), stopped_boot: None })
        && labels.loader.as_ref() == Some(&target)
        && labels.plugin.as_ref().is_none_or(|plugin| *plugin == target)
        && labels.desired.as_ref() == Some(&target);
    !(there || empty && wanted)
}

/// Before any rule or phase: a node made again gets back what it had, and a new lease holder writes its epoch.
pub(super) fn put_right(f: &Facts<'_>) -> Option<Verdict> {
    made_again(f).or_else(|| taken_over(f))
}

fn made_again(f: &Facts<'_>) -> Option<Verdict> {
    let (run, record, status) = (f.run()?, f.record()?, f.status()?);
    if record.meta.uid == *run.node_uid.as_str() {
        return None;
    }
    let labels = &f.occupancy.labels;
    let copy = status.copy.clone().unwrap_or_default();
    let loaded: Option<Loaded> = copy.loaded.as_deref().and_then(|text| serde_json::from_str(text).ok());
    // A label that a person moved is an order already, though no attempt has copied it: what was asked for by it counts.
    let waiting = status.phase == Phase::Queued || ending::is_due_again(f);
    let ordered = f.spec().filter(|spec| waiting && spec.requested_by == BY_LABEL);
    let desired = ordered.map_or(copy.desired.as_deref(), |spec| spec.version.as_deref()).map(Version::from);
    let mut edit = NodeEdit::new(f);
    // Both come in one patch: where the record is there, somebody has taken the label off since.
    let bare = labels.loaded.is_none() || loaded.is_none();
    if labels.desired.is_none() && desired.is_some() && bare {
        edit = edit.label(Role::Desired, desired.as_ref());
    }
    if labels.loaded.is_none() && loaded.is_some() {
        edit = edit.loaded(loaded.as_ref());
    }
    let phase = match status.phase {
        Phase::Held => status.resume_at.unwrap_or(Phase::Queued),
        phase => phase,
    };
    if (Phase::Cordoning..=Phase::Uncordoning).contains(&phase) {
        let target = f.target();
        let by = match phase {
            Phase::Loading | Phase::StartingPlugin | Phase::Verifying
                if desired.is_some() && desired == target && !f.is_by_label() =>
            {
                DesiredBy::Set
            }
            Phase::StoppingPlugin | Phase::Unloading | Phase::AwaitingReboot | Phase::Loading
                if desired.is_none() && !f.is_by_label() =>
            {
                DesiredBy::Removed
            }
            _ => DesiredBy::Kept,
        };
        edit = edit.desired_by(by);
        let closed = status.cordon.as_ref().is_some_and(|cordon| cordon.ours) && phase < Phase::Uncordoning;
        // Without its slot it is admitted again first.
        if closed && f.holds_slot() && !record.unschedulable && cordon::state(f) == Cordon::Open {
            edit = edit.cordon();
        }
    }
    if edit.is_empty() {
        let (uid, boot) = (record.meta.uid.to_string(), record.boot_id.to_string());
        let open = !record.unschedulable;
        let next = Transition::new(f).edit(|status| {
            if open {
                status.cordon = None;
            }
            if let Some(run) = &mut status.run {
                run.node_uid = uid;
                run.boot_id = boot;
            }
        });
        return Some(next.put(
            Evidence::Watched,
            format!("Node {} was deleted and made again: it has its labels and record back", f.node.name),
        ));
    }
    let why = format!(
        "Node {} was deleted and made again: give its desired version and its record back, its kernel may not be empty",
        f.node.name
    );
    Some(act(edit.fresh(why)))
}

fn taken_over(f: &Facts<'_>) -> Option<Verdict> {
    let (run, status) = (f.run()?, f.status()?);
    let running = !status.phase.is_ended() && status.phase != Phase::Queued && !ending::is_out_of_service(f);
    let concerned = running || f.holds_slot();
    if !f.context.lease_held || run.epoch >= f.context.epoch || !concerned {
        return None;
    }
    let mark = f.mark();
    let marked = mark.is_some_and(|mark| mark.epoch == f.context.epoch);
    if !marked && f.record().is_some() && (mark.is_some() || running) {
        let why =
            format!("epoch {}: what a former leader still sends for {} conflicts from now on", f.context.epoch, f.node.name);
        return Some(act(NodeEdit::new(f).mark().fresh(why)));
    }
    let epoch = f.context.epoch;
    let next = Transition::new(f).edit(|status| {
        if let Some(run) = &mut status.run {
            run.epoch = epoch;
        }
    });
    Some(next.put(Evidence::Watched, format!("epoch {epoch}: this process leads now")))
}

/// The node already runs the target, and nothing of an earlier attempt is left on it.
pub fn runs_target(f: &Facts<'_>) -> bool {
    if let Some(csi) = f.csi() {
        return super::csi_node_plugin::runs_target(f, csi);
    }
    if let Some(kmm) = f.kmm() {
        return super::kmm_module::runs_target(f, kmm);
    }
    let target = f.target();
    target.is_some()
        && f.works()
        && f.desired() == target.as_ref()
        && f.occupancy.labels.ready == target
        && f.occupancy.labels.mark.is_none()
        && matches!(cordon::state(f), Cordon::Open | Cordon::Foreign { stale: false })
}

/// In the queue: nothing is written to the node.
pub(super) fn queued(f: &Facts<'_>) -> Verdict {
    if f.abort_asked() {
        return Transition::new(f)
            .reason(ending::ABORTED, "taken back by a person while it was queued")
            .end(Phase::Aborted)
            .put(Evidence::Watched, "aborted in the queue");
    }
    if let Some(order) = by_hand::label_order(f) {
        return by_hand::follow(f, order);
    }
    // The removal of a component takes over what it has to take off a node.
    if let Some(verdict) = by_hand::automatic(f).or_else(|| ending::of_a_deleted_component(f)) {
        return verdict;
    }
    let by = f.spec().map(|spec| spec.requested_by.as_str()).unwrap_or_default();
    if !f.occupancy.selected && f.record().is_some() && matches!(by, BY_ROLLOUT | BY_INSTALL) && !f.holds_slot() {
        let message =
            format!("{} no longer matches the nodeSelector of {}: nothing is done there on its own", f.node.name, f.key);
        return Transition::new(f).reason("NotSelected", &message).end(Phase::Aborted).put(Evidence::Watched, message);
    }
    if runs_target(f) {
        let run = new_run(f);
        let next = Transition::new(f)
            .edit(|status| status.run = run)
            .proof("the node already runs it, ready")
            .copy(f.desired().map(Version::as_str), record_text(f));
        return next
            .end(Phase::Done)
            .put(Evidence::Fresh, format!("{} already runs {}", f.node.name, f.target().unwrap_or_else(|| "".into())));
    }
    match f.admission {
        Some(Admission::Granted(slot)) if !f.holds_slot() => act(Action {
            op: Op::Admit(slot.clone()),
            evidence: Evidence::Watched,
            why: format!("admit {}: its turn has come", f.node.name),
        }),
        Some(Admission::Granted(_)) => begin(f),
        Some(Admission::Blocked { blockers, recheck }) => {
            match f.slot.filter(|_| f.holds_slot() && cordon::state(f) != Cordon::Ours) {
                Some(slot) => act(Action {
                    op: Op::Release(slot.clone()),
                    evidence: Evidence::Fresh,
                    why: format!("free the slot of {}: it cannot start now", f.node.name),
                }),
                None => wait(f, blockers.clone(), *recheck),
            }
        }
        None => wait(f, vec![on_handoff(f, BlockerKind::QueuedBehind, "waits for its turn")], None),
    }
}

/// The finalizer, then the run record: both before the first write to the node.
fn begin(f: &Facts<'_>) -> Verdict {
    let Some(record) = f.handoff() else { return Verdict::Done };
    if !record.finalizers.iter().any(|known| &**known == FINALIZER)
        && record.meta.deletion.is_none()
        && let Some(of) = f.handoff_ref()
    {
        let why = format!("keep NodeHandoff {} until its node is given back", record.key);
        return act(Action { op: Op::SetHandoffFinalizer { of, present: true }, evidence: Evidence::Watched, why });
    }
    let Some(run) = new_run(f) else {
        return wait(f, vec![f.on_node(BlockerKind::NodeGone, "the Node does not exist")], None);
    };
    let next = Transition::new(f).edit(|status| {
        status.run = Some(run);
        status.steps.clear();
        status.proofs.clear();
        status.conditions.clear();
        status.evicted.clear();
        status.reason = None;
        status.unload = None;
        status.resume_at = None;
        status.cordon = None;
        status.volumes.clear();
    });
    next.copy(f.desired().map(Version::as_str), record_text(f))
        .to(Phase::Preflight)
        .put(Evidence::Fresh, format!("start on {}: write down what cannot be found again later", f.node.name))
}

/// What cannot be found again later. A retry keeps `from` and the baseline of the first attempt: now they would be read from a broken node.
fn new_run(f: &Facts<'_>) -> Option<Run> {
    let (record, spec, handoff) = (f.record()?, f.spec()?, f.handoff()?);
    let failed = handoff.status.history.last().is_some_and(|end| end.phase != Phase::Done);
    let kept = f.run().filter(|_| failed && !f.works());
    let recorded = f.kmm().and_then(|kmm| kmm.here.recorded.as_ref()).and_then(|entry| entry.version.clone());
    let from = match f.csi() {
        Some(csi) => csi.revision().map(|revision| revision.to_string()),
        None if recorded.is_some() => recorded.map(|version| version.to_string()),
        None => f.loaded().or(f.loader()).or(f.plugin()).map(ToString::to_string),
    };
    let target =
        if f.csi().is_some() || f.follows_aim() { f.target().map(|target| target.to_string()) } else { spec.version.clone() };
    Some(Run {
        attempt: spec.attempt,
        target,
        from: kept.map_or(from, |run| run.from.clone()),
        desired: f.desired().map(ToString::to_string),
        aim: f.component.aim().map(|aim| aim.to_string()),
        policy: component_policy(f),
        baseline: kept.map_or_else(|| f.offered(), |run| run.baseline.clone()),
        node_uid: record.meta.uid.to_string(),
        boot_id: record.boot_id.to_string(),
        epoch: f.context.epoch,
        started_at: f.now.to_string(),
        by_label: f.is_by_label(),
        resumed: handoff.meta.deletion.is_some(),
        kmm_config: f.kmm().and_then(|kmm| kmm.here.config.as_ref()).map(ToString::to_string),
    })
}

pub(super) fn record_text(f: &Facts<'_>) -> Option<String> {
    f.occupancy.labels.loaded.as_ref().map(loaded_text)
}
