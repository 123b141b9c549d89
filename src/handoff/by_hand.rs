//! What becomes a NodeHandoff without a person having written one: a label moved by hand, a first install, an automatic rollout, the removal
//! of a component; and nodes that have none.

use super::{
    action::{Action, Evidence, Op},
    answers::{act, wait},
    cordon::{self, Cordon},
    ending,
    facts::Facts,
    verdict::{BlockerKind, Verdict},
};
use crate::api::{
    NodeHandoffSpec, ObjectKey, Phase, Version,
    component::{InstallMode, RolloutMode},
    handoff::{BY_INSTALL, BY_LABEL, BY_REMOVAL, BY_ROLLOUT, HandoffAction},
    keys::DesiredBy,
};

/// An order that the label gives: a version, or out of service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelOrder {
    pub version: Option<Version>,
}

/// The label says something that no handoff explains. A typo is no order: rule 0 names it and nothing moves.
pub fn label_order(f: &Facts<'_>) -> Option<LabelOrder> {
    if f.csi().is_some() {
        return None;
    }
    if f.component.kmm.is_some() {
        return f.kmm().and_then(|kmm| super::kmm_module::label_order(f, kmm));
    }
    let labels = &f.occupancy.labels;
    let desired = f.desired();
    if !labels.garbage.is_empty()
        || desired.is_some_and(|version| f.version(version).is_none())
        || f.component.record.meta.deletion.is_some()
    {
        return None;
    }
    let holds_anything = labels.loader.is_some() || labels.plugin.is_some() || labels.loaded.is_some();
    let in_kernel = f.loaded().or(f.loader());
    let order = Some(LabelOrder { version: desired.cloned() });
    let Some((handoff, spec)) = f.handoff().zip(f.spec()) else {
        let moved = match desired {
            Some(version) => in_kernel != Some(version),
            None => holds_anything,
        };
        return order.filter(|_| moved);
    };
    let asked = spec.version.as_deref().map(Version::from);
    let by_label = f.claims_label();
    let run = handoff.status.run.as_ref();
    // What the last attempt did to the label is no person's order.
    let explained = match f.occupancy.labels.mark.as_ref().filter(|mark| handoff.meta.uid == *mark.uid) {
        Some(mark) => {
            let left = match mark.desired {
                DesiredBy::Kept => run.and_then(|run| run.desired.as_deref()).map(Version::from),
                DesiredBy::Removed => None,
                DesiredBy::Set => handoff.status.copy.as_ref().and_then(|copy| copy.desired.as_deref()).map(Version::from),
            };
            desired == left.as_ref()
        }
        None => match desired {
            Some(version) => in_kernel == Some(version),
            None => !holds_anything,
        },
    };
    match handoff.status.phase {
        Phase::Queued if by_label => order.filter(|_| desired != asked.as_ref()),
        // A label that says what a person's handoff asks for is no other order: the handoff may evict.
        Phase::Queued => order.filter(|_| !explained && desired != asked.as_ref()),
        _ if was_followed(f, spec) => None,
        _ => order.filter(|_| !explained),
    }
}

/// The label asks for nothing else than when the last attempt followed it. One that failed to stays the same order: it does not try for ever.
pub(super) fn was_followed(f: &Facts<'_>, spec: &NodeHandoffSpec) -> bool {
    f.claims_label()
        && spec.version.as_deref() == f.desired().map(Version::as_str)
        && f.run().is_none_or(|run| run.target == spec.version)
        && !ending::ended_with_component(f)
}

/// A Queued handoff takes the new target, an ended one a new attempt, and where there is none it is made.
pub(super) fn follow(f: &Facts<'_>, order: LabelOrder) -> Verdict {
    let (node, version) = (&f.node.name, order.version.as_ref());
    let say = version.map_or_else(|| "no version".to_owned(), ToString::to_string);
    let why = match version {
        _ if f.phase() == Phase::Queued && f.claims_label() => format!(
            "the version label of {node} says {say}, and a handoff with requestedBy: {BY_LABEL} follows it; to ask for a version yourself, say who \
             asks in requestedBy"
        ),
        // Who touched what is not known here, only what KMM is doing.
        Some(_) if f.component.kmm.is_some() => {
            format!("KMM takes {node} to {say}, as its version label says, and no handoff has asked for that: follow it as one")
        }
        None if f.component.kmm.is_some() => {
            format!(
                "KMM takes the module off {node}, which has no version label, and no handoff has asked for that: follow it as one"
            )
        }
        _ => format!("somebody set the version label of {node} to {say}: follow it as a handoff"),
    };
    ask(f, order.version, BY_LABEL, why)
}

pub(super) fn ask(f: &Facts<'_>, version: Option<Version>, by: &str, why: String) -> Verdict {
    let version = version.map(|version| version.to_string());
    let Some((of, old)) = f.handoff_ref().zip(f.spec()) else {
        let key = ObjectKey::new(f.key.namespace.clone(), format!("{}.{}", f.key.name, f.node.name));
        let spec = NodeHandoffSpec {
            component: f.key.name.to_string(),
            node: f.node.name.to_string(),
            version,
            position: None,
            action: HandoffAction::Run,
            attempt: 1,
            pause_after: Vec::new(),
            overrides: Vec::new(),
            requested_by: by.to_owned(),
            reason: why.clone(),
        };
        return act(Action { op: Op::CreateHandoff { key, spec: Box::new(spec) }, evidence: Evidence::Fresh, why });
    };
    let queued = f.phase() == Phase::Queued;
    let spec = NodeHandoffSpec {
        version,
        attempt: if queued { old.attempt } else { old.attempt.saturating_add(1) },
        action: HandoffAction::Run,
        pause_after: Vec::new(),
        requested_by: by.to_owned(),
        reason: why.clone(),
        ..old.clone()
    };
    act(Action { op: Op::PatchHandoffSpec { of, spec: Box::new(spec) }, evidence: Evidence::Fresh, why })
}

/// What the component's policy asks for on its own: first installs, an automatic rollout, or its removal.
pub(super) fn automatic(f: &Facts<'_>) -> Option<Verdict> {
    if let Some(csi) = f.csi() {
        return super::csi_node_plugin::automatic(f, csi);
    }
    if f.component.kmm.is_some() {
        return f.kmm().and_then(|kmm| super::kmm_module::automatic(f, kmm));
    }
    let component = &f.component.record;
    let labels = &f.occupancy.labels;
    let empty = labels.desired.is_none() && labels.loader.is_none() && labels.plugin.is_none() && labels.loaded.is_none();
    let spec = f.spec();
    if component.meta.deletion.is_some() {
        let asked = spec.is_some_and(|spec| spec.requested_by == BY_REMOVAL && spec.version.is_none());
        let why = format!("NodeComponent {} is being deleted: take it off {}", f.key, f.node.name);
        return (!empty && !asked).then(|| ask(f, None, BY_REMOVAL, why));
    }
    let policy = f.component.spec()?;
    let aim = Version::parse(&policy.version).ok()?;
    let sound = f.component.refusals.is_empty() && !f.component.changed_without_version && labels.garbage.is_empty();
    if !f.occupancy.selected
        || !sound
        || f.record().is_none()
        || f.handoff().is_some_and(|handoff| handoff.meta.deletion.is_some())
    {
        return None;
    }
    // What a component that was here before, and its removal, left behind is nobody's order for this one.
    let before = ending::ended_with_component(f);
    let removed = before
        || spec.is_some_and(|spec| spec.requested_by == BY_REMOVAL && spec.version.is_none())
            && (f.phase().is_ended() || ending::is_out_of_service(f));
    if (spec.is_none() || removed) && empty {
        let ready = f.record().is_some_and(|record| record.ready.is_true());
        let why = format!("{} has no version of {}: install {aim}", f.node.name, f.key);
        return (policy.rollout.install == InstallMode::Auto && ready).then(|| ask(f, Some(aim), BY_INSTALL, why));
    }
    if policy.rollout.mode != RolloutMode::Auto {
        return None;
    }
    let why = format!("the rollout of {} aims at {aim}", f.key);
    match spec {
        None => (f.loaded().is_some_and(|loaded| *loaded != aim)).then(|| ask(f, Some(aim), BY_ROLLOUT, why)),
        Some(spec) => {
            let needed = f.loaded() != Some(&aim);
            asked_for_elsewhere(f, spec, &aim, needed).then(|| ask(f, Some(aim), BY_ROLLOUT, why))
        }
    }
}

/// The rollout may give the handoff that is there another aim. `needed`: the node does not run that yet.
pub(super) fn asked_for_elsewhere(f: &Facts<'_>, spec: &NodeHandoffSpec, aim: &Version, needed: bool) -> bool {
    let queued = f.phase() == Phase::Queued;
    let before = ending::ended_with_component(f);
    let ours = matches!(spec.requested_by.as_str(), BY_ROLLOUT | BY_INSTALL);
    // A person's handoff is left alone until the aim is another than when it began.
    let moved = f.run().is_some_and(|run| run.aim.as_deref() != Some(aim.as_str()));
    let elsewhere = before || spec.version.as_deref() != Some(aim.as_str());
    let free = if queued { ours } else { f.phase().is_ended() && (ours || moved || before) };
    // One that is still queued heads for where the aim was: it takes the new one, though that be what the node runs.
    elsewhere && free && (queued || needed)
}

/// A node of the component that no NodeHandoff speaks of.
pub(super) fn without_handoff(f: &Facts<'_>) -> Verdict {
    if f.record().is_none() {
        return ending::tidy(f).unwrap_or(Verdict::Done);
    }
    if let Some(order) = label_order(f) {
        return follow(f, order);
    }
    if let Some(verdict) = automatic(f) {
        return verdict;
    }
    if let Some(verdict) = ending::tidy(f) {
        return verdict;
    }
    if cordon::state(f) == Cordon::Ours {
        let message = "lockkeeper closed this node, but its NodeHandoff was deleted by force and its component does not work. Make a handoff for it, or uncordon it";
        return wait(f, vec![f.on_node(BlockerKind::NodeLeftClosed, message)], None);
    }
    ending::nobody_works(f)
}
