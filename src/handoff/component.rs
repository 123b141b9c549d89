//! A component as a whole: its finalizer, its versioned DaemonSets, its status with counts and conditions, and its removal.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::{
    action::{Action, Evidence, Op, Subject},
    kmm_module,
    named::named,
    observed::Observed,
    patch::whole_seconds,
    tally::Tally,
    verdict::{Blocker, BlockerKind, ObjectRef, Verdict, Wait},
    versions, windows,
};
use crate::{
    api::{
        NodeComponentStatus, Phase, Version,
        component::{Condition, NodeCounts, VersionCount},
        keys::{self, FINALIZER},
    },
    fleet::{
        kmm::KmmView,
        view::{ComponentView, VersionView},
    },
};

/// The status is written at most this often while counts move.
const REPORT_EVERY: SignedDuration = SignedDuration::from_secs(10);

/// What is to be done for the component itself and for its versions. Returns when time alone may change that.
pub fn decide(
    now: Timestamp,
    component: &ComponentView,
    tally: &Tally,
    observed: &Observed,
    verdicts: &mut BTreeMap<Subject, Verdict>,
) -> Option<Timestamp> {
    let key = &component.record.key;
    let act = |action: Action| Verdict::Act(Box::new(action));
    if component.record.meta.deletion.is_some() {
        // Its readers must see what a deletion does to nodes while there is something left to be stopped.
        let told = if tally.occupied > 0 { report(now, component, tally, observed) } else { Report::Same };
        let (verdict, due) = match told {
            Report::Due(action) => (Some(act(action)), None),
            Report::Later(at) => (removal(component, tally, now), Some(at)),
            Report::Same => (removal(component, tally, now), None),
        };
        verdicts.extend(verdict.map(|verdict| (Subject::Component(key.clone()), verdict)));
        return due;
    }
    if component.record.spec.is_ok() && component.refusals.is_empty() && !has_finalizer(component) {
        let why = format!("keep NodeComponent {key} until its nodes are free of it");
        verdicts.insert(Subject::Component(key.clone()), act(finalizer(component, true, why)));
        return None;
    }
    let own = component.kmm.is_none();
    let sets = own.then(|| versions::missing(component).or_else(|| versions::collectable(component))).flatten();
    if let Some((version, action)) = sets.and_then(|action| Some((version_of(component, &action.op)?, action))) {
        verdicts.insert(Subject::Version { component: key.clone(), version }, act(action));
    }
    match report(now, component, tally, observed) {
        Report::Due(action) => {
            verdicts.insert(Subject::Component(key.clone()), act(action));
            None
        }
        Report::Later(at) => Some(at),
        Report::Same => None,
    }
}

enum Report {
    Due(Action),
    Later(Timestamp),
    Same,
}

/// The status as it should be, if it is another.
fn report(now: Timestamp, component: &ComponentView, tally: &Tally, observed: &Observed) -> Report {
    let key = &component.record.key;
    let status = status(component, tally, now);
    if status == component.record.status {
        return Report::Same;
    }
    // Another aim, and a condition that turns, are told at once; counts can wait.
    let turned = |one: &Condition| {
        !component
            .record
            .status
            .conditions
            .iter()
            .any(|known| (&known.kind, &known.status, &known.reason) == (&one.kind, &one.status, &one.reason))
    };
    let due = observed.last_report(key).and_then(|last| last.checked_add(REPORT_EVERY).ok());
    if let Some(due) = due.filter(|due| now < *due)
        && status.version == component.record.status.version
        && !status.conditions.iter().any(turned)
    {
        return Report::Later(due);
    }
    let meta = &component.record.meta;
    let op = Op::PutComponentStatus {
        key: key.clone(),
        uid: meta.uid.clone(),
        resource_version: meta.resource_version.clone(),
        status: Box::new(status),
    };
    let why = format!("report on {key}: {} of {} nodes are current", tally.current, tally.total);
    Report::Due(Action { op, evidence: Evidence::Watched, why })
}

/// First the nodes, then the DaemonSets, then the object.
fn removal(component: &ComponentView, tally: &Tally, now: Timestamp) -> Option<Verdict> {
    let key = &component.record.key;
    if !has_finalizer(component) {
        return None;
    }
    if tally.occupied > 0 {
        let message = deleting(component, tally);
        let blocker = Blocker { kind: BlockerKind::Claimant, object: ObjectRef::new("NodeComponent", key), message, since: now };
        return Some(Verdict::Wait(Wait {
            phase: Phase::Unloading,
            since: now,
            blockers: vec![blocker],
            recheck: None,
            next: "its DaemonSets are deleted".to_owned(),
        }));
    }
    let sets = component.versions.values().flat_map(|version| version.plugin.iter().chain(&version.loader));
    if let Some(set) = sets
        .filter(|set| set.meta.deletion.is_none())
        .min_by_key(|set| (set.labels.get(keys::ROLE).is_none_or(|role| &**role != "plugin"), &set.key))
    {
        let why = format!("delete DaemonSet {}: its component is being deleted and no node carries it", set.key);
        let op = Op::DeleteDaemonSet { key: set.key.clone(), uid: set.meta.uid.clone() };
        return Some(Verdict::Act(Box::new(Action { op, evidence: Evidence::Fresh, why })));
    }
    let left = component.versions.values().any(|version| version.plugin.is_some() || version.loader.is_some());
    (!left).then(|| Verdict::Act(Box::new(finalizer(component, false, format!("nothing of NodeComponent {key} is left")))))
}

fn deleting(component: &ComponentView, tally: &Tally) -> String {
    if let Some(kmm) = &component.kmm {
        return format!(
            "is being deleted: {} nodes have a handoff that ends first (leave or delete those that have failed). Module {} stays KMM's, and \
             nothing of it is taken off any node",
            tally.occupied, kmm.key
        );
    }
    format!(
        "is being deleted: {} nodes still carry it and are taken out of service one by one, their claimants evicted within their budgets. rollout.paused stops it before the next node",
        tally.occupied
    )
}

fn finalizer(component: &ComponentView, present: bool, why: String) -> Action {
    let meta = &component.record.meta;
    let op = Op::SetComponentFinalizer {
        key: component.record.key.clone(),
        uid: meta.uid.clone(),
        resource_version: meta.resource_version.clone(),
        present,
    };
    Action { op, evidence: if present { Evidence::Watched } else { Evidence::Fresh }, why }
}

fn has_finalizer(component: &ComponentView) -> bool {
    component.record.finalizers.iter().any(|known| &**known == FINALIZER)
}

fn version_of(component: &ComponentView, op: &Op) -> Option<Version> {
    match op {
        Op::CreateDaemonSet(body) => body.pointer("/metadata/labels")?.get(keys::VERSION)?.as_str().map(Version::from),
        Op::DeleteDaemonSet { key, .. } => {
            let has = |view: &&VersionView| [&view.loader, &view.plugin].into_iter().flatten().any(|set| set.key == *key);
            component.versions.values().find(has).map(|view| view.version.clone())
        }
        _ => None,
    }
}

fn stale_mounts(tally: &Tally) -> String {
    let stale = &tally.stale;
    if stale.pods == 0 {
        return "no pod is known to have lost its mount".to_owned();
    }
    format!(
        "{} pods lost their mounts with the plugin process that served them: {}. Delete them (a restarted container keeps a dead \
         mount); `lockkeeper status` lists all",
        stale.pods,
        named(&stale.first, stale.pods, ", ")
    )
}

/// Each kind with some of its nodes by name, and the way out of the first.
fn anomalies(tally: &Tally) -> impl Iterator<Item = String> {
    tally.anomalies.iter().map(|(kind, it)| {
        let (first, message) = it.first.first_key_value().map(|(node, message)| (node.as_str(), &**message)).unwrap_or_default();
        let of = if it.nodes > 1 { format!("of {first}: ") } else { String::new() };
        let all = if it.nodes > 1 { "; `lockkeeper status` has each" } else { "" };
        format!("{kind} on {}: {of}{message}{all}", it.named(|node, _| node.to_string(), ", "))
    })
}

/// Whether what a version contains has changed under it, and how that is known.
fn content(component: &ComponentView, tally: &Tally) -> (bool, String) {
    if let Some(kmm) = &component.kmm {
        let nodes = tally.disturbed.get("ImageChanged").map_or(0, |it| it.nodes);
        return match nodes {
            0 => (false, format!("no node shows another image under the version that Module {} has given it", kmm.key)),
            _ => (
                true,
                format!(
                    "the image was changed under the same version of Module {}: KMM unloads and loads on {nodes} nodes at once. Put the old image back, \
                     or give the new one its own version, in one edit",
                    kmm.key
                ),
            ),
        };
    }
    if component.csi.is_some() {
        return (
            false,
            "every change of the DaemonSet's template is a revision of its own: none can hide under another's name".to_owned(),
        );
    }
    let text = match component.changed_without_version {
        true => {
            "kernelModule is not what this version's DaemonSets were made from: give the new content a new version, or take the change back"
        }
        false => "kernelModule is what this version's DaemonSets are made from",
    };
    (component.changed_without_version, text.to_owned())
}

/// How many nodes are where they should be, and what stops the others for good.
fn counts(component: &ComponentView, tally: &Tally, refused: bool) -> String {
    let counts = match component.aim() {
        Some(aim) => format!("{} of {} nodes run {aim}", tally.current, tally.total),
        None => format!("which version the {} nodes shall run is not known", tally.total),
    };
    match refused {
        true => format!("the component is refused, and nothing is handed over (condition Invalid says why); {counts}"),
        false => counts,
    }
}

/// Counts and conditions as they should be written.
pub fn status(component: &ComponentView, tally: &Tally, now: Timestamp) -> NodeComponentStatus {
    let old = &component.record.status;
    let generation = Some(component.record.generation);
    let condition = |kind: &str, is: bool, reason: &str, message: String| {
        let status = if is { "True" } else { "False" };
        let known = old.conditions.iter().find(|known| known.kind == kind && known.status == status);
        Condition {
            kind: kind.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message,
            last_transition_time: known.map_or_else(|| whole_seconds(now), |known| known.last_transition_time.clone()),
            observed_generation: generation,
        }
    };
    let invalid = match &component.record.spec {
        Err(why) => Some(format!("the spec does not decode: {why}")),
        Ok(spec) if component.refusals.is_empty() => windows::at(&spec.rollout.windows, now).err().map(|bad| bad.to_string()),
        Ok(_) => Some(component.refusals.join("; ")),
    };
    let failures = component.spec().map_or(u32::MAX, |spec| spec.rollout.max_failures);
    let ready = invalid.is_none() && tally.total > 0 && tally.current == tally.total;
    let moving = tally.queued + tally.running;
    let anomalies: Vec<String> = component.anomalies.iter().cloned().chain(anomalies(tally)).collect();
    let anomalous = !anomalies.is_empty();
    let (changed, content) = content(component, tally);
    let yes_no = |is: bool, yes: &'static str, no: &'static str| if is { yes } else { no };
    let mut conditions = vec![
        condition(
            "Ready",
            ready,
            match ready {
                true => "AllCurrent",
                false if invalid.is_some() => "Refused",
                false => "NotAllCurrent",
            },
            counts(component, tally, invalid.is_some()),
        ),
        condition(
            "Progressing",
            moving > 0,
            yes_no(moving > 0, "HandoffsRun", "Idle"),
            format!("{} queued, {} running", tally.queued, tally.running),
        ),
        condition("SpecChangedWithoutVersion", changed, yes_no(changed, "ContentDiffers", "ContentMatches"), content),
        condition(
            "Invalid",
            invalid.is_some(),
            yes_no(invalid.is_some(), "Refused", "Accepted"),
            invalid.unwrap_or_else(|| "nothing speaks against it".to_owned()),
        ),
        condition(
            "FailureBudgetSpent",
            tally.failures >= failures,
            yes_no(tally.failures >= failures, "TooManyFailures", "WithinBudget"),
            format!("{} failed, maxFailures is {failures}", tally.failures),
        ),
        condition(
            "Anomaly",
            anomalous,
            yes_no(anomalous, "NeedsRepair", "None"),
            yes_no(anomalies.is_empty(), "none", "").to_owned() + &anomalies.join("; "),
        ),
    ];
    if component.csi.is_some() {
        let died = tally.stale.pods > 0;
        conditions.push(condition("StaleMounts", died, yes_no(died, "MountsDied", "None"), stale_mounts(tally)));
    }
    if let Some(kmm) = &component.kmm {
        conditions.push(disturbed(kmm, tally, &condition));
        conditions.push(exposed(kmm, &condition));
    }
    if component.record.meta.deletion.is_some() {
        let how = if component.kmm.is_some() { "HandoffsEnd" } else { "OutOfServiceNodeByNode" };
        conditions.push(condition("Deleting", true, how, deleting(component, tally)));
    }
    NodeComponentStatus {
        observed_generation: generation,
        version: component.aim().map(|aim| aim.to_string()),
        nodes: NodeCounts {
            total: tally.total,
            current: tally.current,
            queued: tally.queued,
            in_progress: tally.running,
            blocked: tally.blocked,
            failed: tally.failed,
        },
        versions: tally
            .versions
            .iter()
            .map(|(version, nodes)| VersionCount { version: version.to_string(), nodes: *nodes })
            .collect(),
        conditions,
    }
}

/// KMM takes the module, or has taken it, from nodes that nobody hands over: a taint that the Module does not tolerate, an edit of it, a hand.
fn disturbed(kmm: &KmmView, tally: &Tally, condition: &impl Fn(&str, bool, &str, String) -> Condition) -> Condition {
    let Some((worst, _)) = tally.disturbed.iter().max_by_key(|(_, it)| (it.foremost, it.nodes)) else {
        return condition("Disturbed", false, "None", "KMM takes the module from no node by itself".to_owned());
    };
    let kinds: Vec<String> = tally.disturbed.iter().map(|(kind, it)| format!("{kind} on {}", it.nodes)).collect();
    let nodes = tally.lost;
    let cure = kmm.trap().map(|_| format!(". Let Module {} tolerate it: {}", kmm.key, kmm_module::cure(kmm))).unwrap_or_default();
    let message = format!(
        "{nodes} of {} nodes lose the module of {} without a handoff, or have lost it ({}): they count as out of service, and nothing new starts \
         beyond the budget. lockkeeper status names each node and its repair{cure}",
        tally.total,
        kmm.key,
        kinds.join(", ")
    );
    condition("Disturbed", true, worst, message)
}

/// What would take the module from many nodes at once.
fn exposed(kmm: &KmmView, condition: &impl Fn(&str, bool, &str, String) -> Condition) -> Condition {
    match kmm.trap() {
        None => {
            condition("Exposed", false, "Tolerates", format!("Module {} tolerates cordon, NotReady and unreachable", kmm.key))
        }
        Some(trap) => condition(
            "Exposed",
            true,
            "DoesNotTolerate",
            format!(
                "{} on any node makes KMM unload Module {} there under whatever runs, and a node at an older version than the Module's does not get it \
                 back. To close that: {}",
                trap.what(),
                kmm.key,
                kmm_module::cure(kmm)
            ),
        ),
    }
}
