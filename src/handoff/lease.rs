//! Slots that no handoff speaks for: of nodes that do not exist, and of components that do not. The others are freed by their handoffs.

use std::collections::BTreeMap;

use super::{
    action::{Action, Evidence, Op, Subject},
    verdict::{Blocker, BlockerKind, ObjectRef, Verdict, Wait},
};
use crate::{
    api::{ComponentKey, NodeName, Phase, keys::Slot},
    fleet::view::FleetView,
};

/// One slot at a time: the Lease changes with each.
pub fn decide(view: &FleetView, verdicts: &mut BTreeMap<Subject, Verdict>) {
    let slots = view.lease.as_ref().map(|lease| &lease.slots[..]).unwrap_or_default();
    for slot in slots {
        if let Some(verdict) = collect(view, slot) {
            let acts = matches!(verdict, Verdict::Act(_));
            verdicts.insert(Subject::Lease, verdict);
            if acts {
                return;
            }
        }
    }
}

fn collect(view: &FleetView, slot: &Slot) -> Option<Verdict> {
    let release = |why: String| {
        let action = Action { op: Op::Release(slot.clone()), evidence: Evidence::Fresh, why };
        Some(Verdict::Act(Box::new(action)))
    };
    let node = view.node(&NodeName::from(slot.node.as_str()));
    let key = slot.component.split_once('/').map(|(namespace, name)| ComponentKey::new(namespace, name));
    let spoken_for =
        node.zip(key.as_ref()).is_some_and(|(node, key)| node.components.contains_key(key) && view.components.contains_key(key));
    if spoken_for {
        return None;
    }
    let Some(record) = node.and_then(|node| node.record.as_ref()) else {
        return release(format!("free the slot of {} for {}: the Node does not exist", slot.node, slot.component));
    };
    if !record.unschedulable {
        return release(format!(
            "free the slot of {} for {}: nothing of it is there and the node is open",
            slot.node, slot.component
        ));
    }
    let message = format!(
        "{} is closed and holds a slot for {}, which does not exist any more. Look at the node, and uncordon it",
        slot.node, slot.component
    );
    let blocker =
        Blocker { kind: BlockerKind::NodeLeftClosed, object: ObjectRef::new("Node", &slot.node), message, since: view.now };
    Some(Verdict::Wait(Wait {
        phase: Phase::Done,
        since: view.now,
        blockers: vec![blocker],
        recheck: None,
        next: "the slot is freed when the node is open".to_owned(),
    }))
}
