//! Pure: turns what a person asks for into guarded writes of specs, or refuses with the reason. Nothing here touches a node.

use crate::{
    api::{ComponentKey, NodeHandoffSpec, NodeName, ObjectKey, Phase, Version, handoff::HandoffAction},
    engine::intent::{Intent, NodeTarget},
    fleet::{
        records::HandoffRecord,
        view::{ComponentView, FleetView},
    },
    handoff::{
        action::{HandoffRef, Op},
        ending, notes, offer,
    },
};

/// Why an intent is refused; nothing is written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the picture is not complete yet; ask again in a moment")]
    NotSynced,
    #[error("there is no NodeComponent {0}")]
    NoComponent(ComponentKey),
    #[error("NodeComponent {component} is refused: {why}")]
    ComponentRefused { component: ComponentKey, why: String },
    #[error("nothing of NodeComponent {component} can be handed over: {why}")]
    NotOffered { component: ComponentKey, why: String },
    #[error("NodeComponent {component}: {why}")]
    NoSuchPause { component: ComponentKey, why: String },
    #[error("there is no Node {0}")]
    NoNode(NodeName),
    #[error("Node {0} was deleted and made again since it was shown; look at it again")]
    NodeReplaced(NodeName),
    #[error("Node {node} does not match the node selector of {component} and carries nothing of it")]
    NotSelected { node: NodeName, component: ComponentKey },
    #[error("NodeHandoff {name} is in {phase}: {advice}")]
    Busy { name: ObjectKey, phase: Phase, advice: &'static str },
    #[error("NodeHandoff {0} is being deleted; wait until it is gone")]
    Deleting(ObjectKey),
    #[error("there is no NodeHandoff {0}")]
    NoHandoff(ObjectKey),
    #[error("NodeHandoff {name} is in {phase}; {want}")]
    WrongPhase { name: ObjectKey, phase: Phase, want: &'static str },
    #[error("NodeHandoff {0} does not decode: {1}")]
    Undecodable(ObjectKey, String),
    #[error("NodeHandoff {0} came from no version: there is nothing to roll back to")]
    NothingToRollBackTo(ObjectKey),
    #[error("NodeHandoff name {0} would be longer than 253 characters")]
    NameTooLong(String),
    #[error("nothing to do: {0}")]
    Nothing(String),
}

/// The writes for an intent, in order, or the reason to refuse. `by` is who asks (informs only; the audit log is the proof).
pub fn plan(fleet: &FleetView, intent: &Intent, by: &str) -> Result<Vec<Op>, Refusal> {
    if !fleet.synced {
        return Err(Refusal::NotSynced);
    }
    match intent {
        Intent::HandOver { component, nodes, to, pause_after, reason } => {
            hand_over(fleet, component, nodes, to, pause_after, reason, by)
        }
        Intent::Reorder { component, nodes } => reorder(fleet, component, nodes),
        Intent::Hold { component, node } => with_active(fleet, component, node, |spec| spec.action = HandoffAction::Hold),
        Intent::Continue { component, node } => with_active(fleet, component, node, |spec| {
            spec.action = HandoffAction::Run;
            spec.pause_after.clear();
        }),
        Intent::Abort { component, node, reason } => with_active(fleet, component, node, |spec| {
            spec.action = HandoffAction::Abort;
            if !reason.is_empty() {
                spec.reason = reason.clone();
            }
        }),
        Intent::Retry { component, node } => {
            let (record, mut spec) = handoff(fleet, component, node)?;
            match record.status.phase {
                Phase::Failed | Phase::Aborted => spec.attempt = spec.attempt.saturating_add(1),
                phase if phase.is_ended() => {
                    return Err(Refusal::WrongPhase {
                        name: record.key.clone(),
                        phase,
                        want: "only Failed and Aborted ones are tried again",
                    });
                }
                // An abort after the unload waits for a choice: to resume is one.
                _ if spec.action == HandoffAction::Abort => {}
                phase => {
                    return Err(Refusal::WrongPhase {
                        name: record.key.clone(),
                        phase,
                        want: "only Failed and Aborted ones are tried again",
                    });
                }
            }
            spec.action = HandoffAction::Run;
            Ok(vec![patch(record, spec)])
        }
        Intent::RollBack { component, node } => {
            let (record, mut spec) = handoff(fleet, component, node)?;
            let from = record.status.run.as_ref().and_then(|run| run.from.clone());
            let from = from.ok_or_else(|| Refusal::NothingToRollBackTo(record.key.clone()))?;
            offered(component_of(fleet, component)?, &Version::from(from.as_str()))?;
            match record.status.phase {
                phase if phase.is_ended() || phase == Phase::Held => spec.attempt = spec.attempt.saturating_add(1),
                // Another target while one runs would count only after it: the node would be handed over first, and then back.
                phase => {
                    let want = match phase {
                        Phase::Queued => "it has not begun: withdraw it, or hand over to that version",
                        _ => {
                            "abort it first: before the unload that restores the node, after it rolling back is one of the choices"
                        }
                    };
                    return Err(Refusal::WrongPhase { name: record.key.clone(), phase, want });
                }
            }
            spec.version = Some(from);
            spec.action = HandoffAction::Run;
            spec.pause_after.clear();
            // One that followed the node's label would take its version from there again.
            spec.requested_by = by.to_owned();
            Ok(vec![patch(record, spec)])
        }
        Intent::Leave { component, node } => {
            let (record, mut spec) = handoff(fleet, component, node)?;
            let phase = record.status.phase;
            let chooses = record.status.reason.as_ref().is_some_and(|reason| reason.word == ending::AWAITING_CHOICE);
            if !(matches!(phase, Phase::Failed | Phase::Aborted) || phase == Phase::Held && chooses) {
                let want = "only one that has failed or was aborted is left as it is; abort it first";
                return Err(Refusal::WrongPhase { name: record.key.clone(), phase, want });
            }
            if spec.action == HandoffAction::Leave {
                return Err(Refusal::Nothing(format!("NodeHandoff {} already has that", record.key)));
            }
            spec.action = HandoffAction::Leave;
            Ok(vec![patch(record, spec)])
        }
        Intent::Withdraw { component, node } => {
            let (record, _) = handoff(fleet, component, node)?;
            match record.status.phase {
                Phase::Queued => Ok(vec![Op::DeleteHandoff(HandoffRef::of(record))]),
                phase => {
                    let want = if phase.is_ended() {
                        "it has ended: there is nothing to take back"
                    } else {
                        "only Queued ones are taken back; abort it"
                    };
                    Err(Refusal::WrongPhase { name: record.key.clone(), phase, want })
                }
            }
        }
        Intent::Pause { component, paused } => {
            let view = component_of(fleet, component)?;
            Ok(vec![Op::SetPaused {
                key: component.clone(),
                uid: view.record.meta.uid.clone(),
                resource_version: view.record.meta.resource_version.clone(),
                paused: *paused,
            }])
        }
    }
}

fn component_of<'a>(fleet: &'a FleetView, key: &ComponentKey) -> Result<&'a ComponentView, Refusal> {
    fleet.components.get(key).map(|view| &**view).ok_or_else(|| Refusal::NoComponent(key.clone()))
}

/// The component has this version to hand over to now. What it does not have would wait in the queue until somebody edits the component.
///
/// # Errors
/// It does not, or what it has is not known; with what to do instead.
pub fn offered(component: &ComponentView, version: &Version) -> Result<(), Refusal> {
    let key = &component.record.key;
    if let Some(why) = offer::not_offered(component, version) {
        return Err(Refusal::NotOffered { component: key.clone(), why });
    }
    match component.refusals.first() {
        Some(why) if component.aim().is_none() => Err(Refusal::ComponentRefused { component: key.clone(), why: why.clone() }),
        _ => Ok(()),
    }
}

/// A handoff of the component may pause after each of these phases.
///
/// # Errors
/// Its kind does not have one of them, or never stops there; with those after which it may.
pub fn pausable(component: &ComponentView, after: &[Phase]) -> Result<(), Refusal> {
    let why = component.spec().and_then(|spec| notes::no_such_pause(spec.kind(), after));
    why.map_or(Ok(()), |why| Err(Refusal::NoSuchPause { component: component.record.key.clone(), why }))
}

/// The name of the NodeHandoff of a component and a node.
pub fn handoff_key(component: &ComponentKey, node: &NodeName) -> ObjectKey {
    ObjectKey::new(component.namespace.clone(), format!("{}.{node}", component.name))
}

fn patch(record: &HandoffRecord, spec: NodeHandoffSpec) -> Op {
    Op::PatchHandoffSpec { of: HandoffRef::of(record), spec: Box::new(spec) }
}

fn handoff<'a>(
    fleet: &'a FleetView,
    component: &ComponentKey,
    node: &NodeName,
) -> Result<(&'a HandoffRecord, NodeHandoffSpec), Refusal> {
    let key = handoff_key(component, node);
    let record = fleet.handoffs.get(&key).ok_or_else(|| Refusal::NoHandoff(key.clone()))?;
    match &record.spec {
        Ok(spec) => Ok((record, spec.clone())),
        Err(why) => Err(Refusal::Undecodable(key, why.clone())),
    }
}

/// What can still be done with a handoff that has ended.
fn over(phase: Phase) -> &'static str {
    if phase == Phase::Done {
        "it has ended well; only a new handoff changes the node"
    } else {
        "it has ended; retry or hand over anew"
    }
}

/// Hold, Continue and Abort: of a handoff that has not ended.
fn with_active(
    fleet: &FleetView,
    component: &ComponentKey,
    node: &NodeName,
    change: impl FnOnce(&mut NodeHandoffSpec),
) -> Result<Vec<Op>, Refusal> {
    let (record, mut spec) = handoff(fleet, component, node)?;
    let phase = record.status.phase;
    if phase.is_ended() {
        return Err(Refusal::WrongPhase { name: record.key.clone(), phase, want: over(phase) });
    }
    let before = spec.clone();
    change(&mut spec);
    if spec == before {
        return Err(Refusal::Nothing(format!("NodeHandoff {} already has that", record.key)));
    }
    Ok(vec![patch(record, spec)])
}

fn hand_over(
    fleet: &FleetView,
    component: &ComponentKey,
    nodes: &[NodeTarget],
    to: &Version,
    pause_after: &[Phase],
    reason: &str,
    by: &str,
) -> Result<Vec<Op>, Refusal> {
    let view = component_of(fleet, component)?;
    if let Some(why) = view.refusals.first() {
        return Err(Refusal::ComponentRefused { component: component.clone(), why: why.clone() });
    }
    offered(view, to)?;
    pausable(view, pause_after)?;
    let mut position = last_position(fleet, component);
    let mut ops = Vec::with_capacity(nodes.len());
    for target in nodes {
        let node =
            fleet.node(&target.node).filter(|node| node.record.is_some()).ok_or_else(|| Refusal::NoNode(target.node.clone()))?;
        let uid = node.record.as_ref().map(|record| &record.meta.uid);
        if target.uid.is_some() && target.uid.as_ref() != uid {
            return Err(Refusal::NodeReplaced(target.node.clone()));
        }
        if !node.components.contains_key(component) {
            return Err(Refusal::NotSelected { node: target.node.clone(), component: component.clone() });
        }
        position = position.saturating_add(1);
        let key = handoff_key(component, &target.node);
        if key.name.len() > 253 {
            return Err(Refusal::NameTooLong(key.name.to_string()));
        }
        let fresh = NodeHandoffSpec {
            component: component.name.to_string(),
            node: target.node.to_string(),
            version: Some(to.to_string()),
            position: Some(position),
            action: HandoffAction::Run,
            attempt: 1,
            pause_after: pause_after.to_vec(),
            overrides: Vec::new(),
            requested_by: by.to_owned(),
            reason: reason.to_owned(),
        };
        ops.push(match fleet.handoffs.get(&key) {
            None => Op::CreateHandoff { key, spec: Box::new(fresh) },
            Some(record) => {
                if record.meta.deletion.is_some() {
                    return Err(Refusal::Deleting(key));
                }
                let old = record.spec.as_ref().map_err(|why| Refusal::Undecodable(key.clone(), why.clone()))?;
                let phase = record.status.phase;
                let attempt = match phase {
                    Phase::Queued => old.attempt,
                    phase if phase.is_ended() => old.attempt.saturating_add(1),
                    _ => return Err(Refusal::Busy { name: key, phase, advice: "abort it first, or let it end" }),
                };
                patch(record, NodeHandoffSpec { attempt, overrides: old.overrides.clone(), ..fresh })
            }
        });
    }
    Ok(ops)
}

/// The highest position among the component's handoffs that have not ended.
fn last_position(fleet: &FleetView, component: &ComponentKey) -> i32 {
    active(fleet, component).filter_map(|(_, spec)| spec.position).max().unwrap_or(0).max(0)
}

fn active<'a>(fleet: &'a FleetView, component: &ComponentKey) -> impl Iterator<Item = (&'a HandoffRecord, &'a NodeHandoffSpec)> {
    fleet
        .handoffs
        .values()
        .filter(|record| !record.status.phase.is_ended() && record.meta.deletion.is_none())
        .filter_map(|record| record.spec.as_ref().ok().map(|spec| (&**record, spec)))
        .filter({
            let component = component.clone();
            move |(record, spec)| record.key.namespace == component.namespace && spec.component == *component.name
        })
}

fn reorder(fleet: &FleetView, component: &ComponentKey, nodes: &[NodeName]) -> Result<Vec<Op>, Refusal> {
    let mut ops = Vec::new();
    for (at, node) in nodes.iter().enumerate() {
        let (record, mut spec) = handoff(fleet, component, node)?;
        let phase = record.status.phase;
        if phase != Phase::Queued {
            return Err(Refusal::WrongPhase {
                name: record.key.clone(),
                phase,
                want: "only Queued ones have a place in the queue",
            });
        }
        let position = i32::try_from(at + 1).unwrap_or(i32::MAX);
        if spec.position != Some(position) {
            spec.position = Some(position);
            ops.push(patch(record, spec));
        }
    }
    if ops.is_empty() { Err(Refusal::Nothing("the queue has that order".into())) } else { Ok(ops) }
}
