//! Which moments of a fleet become Kubernetes Events, told from two pictures of it: phases, ends, evictions, blockers that last,
//! anomalies. Pure; what is announced is published by `cluster::events`, which no step waits for.

use std::{collections::BTreeMap, sync::Arc};

use jiff::{SignedDuration, Timestamp};

use super::{execute::Executed, metrics::component_of, picture::Picture};
use crate::{
    api::{GROUP, NodeName, ObjectKey, Phase, Uid, keys::LEASE},
    cluster::events::{Happening, Regarding, Severity},
    fleet::{
        records::HandoffRecord,
        view::{ClaimReason, ComponentView, FleetView, LOUD},
    },
    handoff::{
        action::{Action, Op, Subject},
        verdict::{Blocker, BlockerKind, Verdict},
    },
};

/// A blocker is told when it has lasted this long, and again at each of the later marks.
const MARKS: [SignedDuration; 5] = [
    SignedDuration::from_mins(1),
    SignedDuration::from_mins(10),
    SignedDuration::from_hours(1),
    SignedDuration::from_hours(6),
    SignedDuration::from_hours(24),
];

/// What has happened to handoffs and components from the old picture to the new one. Nothing before both are complete: at its start a
/// process would tell everything again. The notes hold no durations: equal moments are counted on one Event.
pub fn moments(old: &Picture, new: &Picture) -> Vec<Happening> {
    if !old.fleet.synced || !new.fleet.synced {
        return Vec::new();
    }
    let mut out = Vec::new();
    for (before, after) in changed(&old.fleet, &new.fleet) {
        phases(&mut out, &new.fleet, before, after);
        ends(&mut out, &new.fleet, before, after);
    }
    for (key, component) in &new.fleet.components {
        let before = old.fleet.components.get(key);
        if before.is_none_or(|before| !Arc::ptr_eq(before, component)) {
            component_troubles(&mut out, before.map(|before| &**before), component);
        }
    }
    out
}

/// Handoffs of the new fleet that are not what they were; one that was not there before has no `before`, and all of it is new.
pub(super) fn changed<'a>(
    old: &'a FleetView,
    new: &'a FleetView,
) -> impl Iterator<Item = (Option<&'a HandoffRecord>, &'a HandoffRecord)> {
    // A picture tells what is different from the one before it; who skipped one looks at all.
    let follows = new.generation == old.generation.wrapping_add(1);
    let named = new.changes.handoffs.iter().filter(move |_| follows).filter_map(|key| new.handoffs.get_key_value(key));
    let none = follows || Arc::ptr_eq(&old.handoffs, &new.handoffs);
    let all = new.handoffs.iter().filter(move |_| !none);
    named.chain(all).filter_map(|(key, after)| {
        // Another UID is another handoff.
        let before = old.handoffs.get(key).filter(|before| before.meta.uid == after.meta.uid);
        let same = before.is_some_and(|before| Arc::ptr_eq(before, after));
        (!same).then(|| (before.map(|before| &**before), &**after))
    })
}

fn phases(out: &mut Vec<Happening>, fleet: &FleetView, before: Option<&HandoffRecord>, after: &HandoffRecord) {
    let steps = before.map(|before| &before.status.steps[..]).unwrap_or_default();
    let known = |phase: Phase, started: &str| steps.iter().any(|step| step.phase == phase && step.started_at == started);
    // The run is written once per attempt, before the first write to the node.
    let begun = |handoff: &HandoffRecord| handoff.status.run.as_ref().map(|run| run.started_at.clone());
    if begun(after).is_some() && before.and_then(begun) != begun(after) {
        let note = format!("{} begins: {}", named(after), journey(after));
        out.extend(on_node(fleet, after, Severity::Normal, "HandoffStarted", "Start", &note));
    }
    for step in after.status.steps.iter().filter(|step| !known(step.phase, &step.started_at)) {
        let note = format!("{}: {}", step.phase, journey(after));
        out.push(on_handoff(after, Severity::Normal, step.phase.as_str(), "EnterPhase", &note));
    }
}

fn ends(out: &mut Vec<Happening>, fleet: &FleetView, before: Option<&HandoffRecord>, after: &HandoffRecord) {
    let phase = after.status.phase;
    let was = before.map(|before| (before.status.phase, before.status.history.len()));
    let is = (phase, after.status.history.len());
    if !phase.is_ended() || was == Some(is) {
        return;
    }
    let (severity, word, action) = match phase {
        Phase::Done => (Severity::Normal, "HandoffDone", "Finish"),
        Phase::Failed => (Severity::Warning, "HandoffFailed", "Fail"),
        _ => (Severity::Warning, "HandoffAborted", "Abort"),
    };
    let why = match &after.status.reason {
        Some(reason) if phase != Phase::Done => format!(": {}: {}", reason.word, reason.message),
        _ => String::new(),
    };
    let note = format!("{phase}: {}{why}", journey(after));
    out.push(on_handoff(after, severity, word, action, &note));
    out.extend(on_node(fleet, after, severity, word, action, &format!("{}: {note}", named(after))));
}

/// Pods whose eviction was accepted, from the action that asked for it: the pods themselves may be gone in the next picture.
pub fn evicted(view: &FleetView, subject: &Subject, action: &Action, executed: &Executed) -> Vec<Happening> {
    let (Subject::Occupancy { component, node }, Op::Evict { .. } | Op::DeletePod(_)) = (subject, &action.op) else {
        return Vec::new();
    };
    let occupancy = view.node(node).and_then(|view| view.components.get(component));
    let handoff = occupancy.and_then(|occupancy| occupancy.handoff.as_ref());
    let of = handoff.map(|handoff| format!(" for {} ({})", named(handoff), journey(handoff))).unwrap_or_default();
    let accepted = executed.results.iter().filter(|done| done.written.is_applied());
    let told = accepted.filter_map(|done| done.pod.as_ref()).filter_map(|pod| {
        let claimants = occupancy.map(|occupancy| &occupancy.claimants[..]).unwrap_or_default();
        let why = claimants.iter().find(|claimant| claimant.pod.meta.uid == pod.uid).map(|it| claims(&it.why));
        // Loader and unload pods are deleted too; only who holds the device is told about.
        if why.is_none() && !matches!(action.op, Op::Evict { .. }) {
            return None;
        }
        Some(Happening {
            regarding: Regarding {
                api_version: "v1",
                kind: "Pod",
                namespace: pod.key.namespace.to_string(),
                name: pod.key.name.to_string(),
                uid: pod.uid.clone(),
            },
            severity: Severity::Normal,
            reason: "Evicted".to_owned(),
            action: "Evict".to_owned(),
            note: format!("evicted{of}.{}", why.map(|why| format!(" The pod {why}.")).unwrap_or_default()),
        })
    });
    told.collect()
}

/// A slot that no handoff spoke for has been taken back, such as that of a node which does not exist any more.
pub fn reclaimed(view: &FleetView, subject: &Subject, action: &Action, executed: &Executed) -> Option<Happening> {
    let (Subject::Lease, Op::Release(_), Some(lease)) = (subject, &action.op, &view.lease) else { return None };
    executed.results.iter().any(|done| done.written.is_applied()).then(|| Happening {
        regarding: Regarding {
            api_version: "coordination.k8s.io/v1",
            kind: "Lease",
            namespace: LEASE.0.to_owned(),
            name: LEASE.1.to_owned(),
            uid: lease.meta.uid.clone(),
        },
        severity: Severity::Normal,
        reason: "SlotReclaimed".to_owned(),
        action: "Release".to_owned(),
        note: action.why.clone(),
    })
}

fn claims(why: &ClaimReason) -> String {
    match why {
        ClaimReason::Resource { name, quantity } => format!("holds {quantity} of {name}"),
        ClaimReason::Claim { claim, driver } => format!("holds ResourceClaim {claim} of {driver}"),
        ClaimReason::UnresolvedClaim { entry } => format!("has claim {entry}, which cannot be resolved"),
        ClaimReason::Volume { name, claim, risk, stale } => crate::drain::volumes::sentence(name, claim.as_ref(), risk, *stale),
        ClaimReason::UnresolvedVolume { name, why } => format!("has volume {name}, which cannot be resolved ({why})"),
        ClaimReason::Selector => "is selected by the component's podSelector".to_owned(),
        ClaimReason::Reboot => "cannot stay while the node is rebooted".to_owned(),
    }
}

fn component_troubles(out: &mut Vec<Happening>, before: Option<&ComponentView>, after: &ComponentView) {
    let mut tell = |reason: &str, note: &str| {
        let record = &after.record;
        out.push(Happening {
            regarding: ours("NodeComponent", &record.key, &record.meta.uid),
            severity: Severity::Warning,
            reason: reason.to_owned(),
            action: "Check".to_owned(),
            note: note.to_owned(),
        });
    };
    let new = |known: fn(&ComponentView) -> &[String], text: &String| !before.is_some_and(|before| known(before).contains(text));
    for text in after.refusals.iter().filter(|text| new(|it| &it.refusals, text)) {
        tell("ComponentRefused", text);
    }
    for text in after.anomalies.iter().filter(|text| new(|it| &it.anomalies, text)) {
        tell("Anomaly", text);
    }
    let known = before.map(|before| before.record.status.conditions.clone()).unwrap_or_default();
    for condition in after.record.status.conditions.iter().filter(|it| LOUD.contains(&it.kind.as_str()) && it.status == "True") {
        // Counts move; that it has begun, or is another thing now, is told.
        if !known.iter().any(|it| (&it.kind, &it.status, &it.reason) == (&condition.kind, &condition.status, &condition.reason)) {
            tell(&condition.reason, &condition.message);
        }
    }
    if after.changed_without_version && !before.is_some_and(|before| before.changed_without_version) {
        let version = after.aim().map(|aim| aim.to_string()).unwrap_or_default();
        tell(
            "SpecChangedWithoutVersion",
            &format!("the content of version {version} is not what its DaemonSets were made from: give it another version"),
        );
    }
}

/// When a blocker of this kind is told; None: never, since it is only somebody's turn, or told elsewhere.
fn marks(kind: BlockerKind) -> Option<&'static [SignedDuration]> {
    use BlockerKind::*;
    const AT_ONCE: &[SignedDuration] = &[SignedDuration::ZERO, MARKS[1], MARKS[2], MARKS[3], MARKS[4]];
    match kind {
        QueuedBehind | BudgetSpent | Soaking | Canary | OutsideWindow | Paused | NodeBusy | NoLease | StaleView
        | ComponentRefused | HandoffFailed | HandoffHeld => None,
        PreflightRefused
        | SpecChanged
        | PauseSkipped
        | DisruptionBudgetNever
        | UnloadFailed
        | RebootRequired
        | NodeLeftClosed
        | KmmStuck
        | KmmTolerations
        | WorkerFailed
        | ModuleUnproven
        | AwaitingChoice
        | UnknownVersion
        | LabelGarbage
        | Anomaly => Some(AT_ONCE),
        _ => Some(&MARKS),
    }
}

/// Blockers that have come to a mark from the old picture to the new one. It looks at every verdict: not to be asked for each picture.
pub fn lasting(old: &Picture, new: &Picture) -> Vec<Happening> {
    let mut out = Vec::new();
    if !old.fleet.synced || !new.fleet.synced {
        return out;
    }
    for (subject, verdict) in new.verdicts.iter() {
        let Verdict::Wait(wait) = verdict else { continue };
        let before = match old.verdicts.get(&subject) {
            Some(Verdict::Wait(before)) => &before.blockers[..],
            _ => &[],
        };
        for blocker in &wait.blockers {
            let known = before.iter().any(|it| (it.kind, &it.object) == (blocker.kind, &blocker.object));
            if passed(blocker, known.then_some(old.fleet.now), new.fleet.now) {
                out.extend(blocked(&new.fleet, &subject, blocker, &wait.next));
            }
        }
    }
    out
}

/// Whether it has come to a mark since it was last looked at.
fn passed(blocker: &Blocker, looked: Option<Timestamp>, now: Timestamp) -> bool {
    let Some(marks) = marks(blocker.kind) else { return false };
    let is = now.duration_since(blocker.since);
    let was = looked.map(|looked| looked.duration_since(blocker.since));
    marks.iter().any(|mark| *mark <= is && was.is_none_or(|was| was < *mark))
}

/// On the handoff and on its node; without a handoff on the node alone, and for a component as a whole on that.
fn blocked(fleet: &FleetView, subject: &Subject, blocker: &Blocker, next: &str) -> Vec<Happening> {
    let about = |regarding| Happening {
        regarding,
        severity: Severity::Warning,
        reason: blocker.kind.word(),
        action: "Wait".to_owned(),
        note: if next.is_empty() { blocker.message.clone() } else { format!("{} Next: {next}", sentence(&blocker.message)) },
    };
    match subject {
        Subject::Occupancy { component, node } => {
            let view = fleet.node(node);
            let handoff = view.and_then(|view| view.components.get(component)).and_then(|it| it.handoff.as_ref());
            match (handoff, view.and_then(|view| view.record.as_ref())) {
                (Some(handoff), _) => vec![about(ours("NodeHandoff", &handoff.key, &handoff.meta.uid))],
                (None, Some(record)) => vec![about(node_of(node, &record.meta.uid))],
                (None, None) => Vec::new(),
            }
        }
        Subject::Component(component) | Subject::Version { component, .. } => {
            let record = fleet.components.get(component).map(|view| &view.record);
            record.map(|record| about(ours("NodeComponent", component, &record.meta.uid))).into_iter().collect()
        }
        Subject::Lease => Vec::new(),
    }
}

fn sentence(text: &str) -> String {
    if text.ends_with(['.', '!', '?']) { text.to_owned() } else { format!("{text}.") }
}

fn on_handoff(handoff: &HandoffRecord, severity: Severity, reason: &str, action: &str, note: &str) -> Happening {
    Happening {
        regarding: ours("NodeHandoff", &handoff.key, &handoff.meta.uid),
        severity,
        reason: reason.to_owned(),
        action: action.to_owned(),
        note: note.to_owned(),
    }
}

fn on_node(
    fleet: &FleetView,
    handoff: &HandoffRecord,
    severity: Severity,
    reason: &str,
    action: &str,
    note: &str,
) -> Option<Happening> {
    let node = NodeName::from(handoff.spec.as_ref().ok()?.node.as_str());
    let record = fleet.node(&node)?.record.as_ref()?;
    Some(Happening {
        regarding: node_of(&node, &record.meta.uid),
        severity,
        reason: reason.to_owned(),
        action: action.to_owned(),
        note: note.to_owned(),
    })
}

fn ours(kind: &'static str, key: &ObjectKey, uid: &Uid) -> Regarding {
    const API_VERSION: &str = "lockkeeper.dev/v1alpha1";
    debug_assert!(API_VERSION.starts_with(GROUP));
    Regarding {
        api_version: API_VERSION,
        kind,
        namespace: key.namespace.to_string(),
        name: key.name.to_string(),
        uid: uid.clone(),
    }
}

fn node_of(node: &NodeName, uid: &Uid) -> Regarding {
    Regarding { api_version: "v1", kind: "Node", namespace: String::new(), name: node.to_string(), uid: uid.clone() }
}

fn named(handoff: &HandoffRecord) -> String {
    format!("NodeHandoff {}", handoff.key)
}

/// `drivers/gpu from 1.0 to 2.0 on node n1, attempt 1`.
fn journey(handoff: &HandoffRecord) -> String {
    let run = handoff.status.run.as_ref();
    let spec = handoff.spec.as_ref().ok();
    let from = run.and_then(|run| run.from.as_deref()).map(|from| format!(" from {from}")).unwrap_or_default();
    let target = match run {
        Some(run) => run.target.as_deref(),
        None => spec.and_then(|spec| spec.version.as_deref()),
    };
    let to = target.map_or_else(|| " out of service".to_owned(), |target| format!(" to {target}"));
    let node = spec.map(|spec| spec.node.as_str()).unwrap_or("unknown");
    let attempt = run.map(|run| run.attempt).or(spec.map(|spec| spec.attempt)).unwrap_or(1);
    format!("{}{from}{to} on node {node}, attempt {attempt}", component_of(handoff))
}

/// Phases that a handoff has left between two pictures, with how long it was in each.
pub(super) fn left(before: Option<&HandoffRecord>, after: &HandoffRecord) -> Vec<(Phase, f64)> {
    let known = before.map(|before| &before.status.steps[..]).unwrap_or_default();
    let finished: BTreeMap<(Phase, &str), bool> =
        known.iter().map(|step| ((step.phase, step.started_at.as_str()), step.finished_at.is_some())).collect();
    let mut left = Vec::new();
    for step in &after.status.steps {
        let Some(end) = &step.finished_at else { continue };
        if finished.get(&(step.phase, step.started_at.as_str())) == Some(&true) {
            continue;
        }
        if let (Ok(start), Ok(end)) = (step.started_at.parse::<Timestamp>(), end.parse::<Timestamp>()) {
            left.push((step.phase, end.duration_since(start).as_secs_f64().max(0.0)));
        }
    }
    left
}

#[cfg(test)]
#[path = "announce_tests.rs"]
mod tests;
