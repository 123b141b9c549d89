//! Who is admitted next, over all components, and why each of the others waits: the operator's order by position, then by name.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{
    budget::Usage,
    facts::{Admission, Context},
    rollout,
    tally::{Contribution, Kind, Standing, Tally},
    verdict::{Blocker, BlockerKind, ObjectRef},
};
use crate::{
    api::{
        ComponentKey, NodeName,
        component::BlockedPolicy,
        keys::{LEASE, Slot},
    },
    fleet::view::{ComponentView, NodeView},
};

/// First installs that may be under way at once: they take nothing out of service, but the Lease's annotation must hold them.
const INSTALLS_AT_ONCE: usize = 50;

/// A handoff that needs a slot.
#[derive(Debug, Clone, Copy)]
pub struct Candidate<'a> {
    pub key: &'a ComponentKey,
    pub component: &'a ComponentView,
    pub node: &'a NodeView,
    pub contribution: &'a Contribution,
}

impl Candidate<'_> {
    fn order(&self) -> (Kind, bool, i32, &NodeName, &ComponentKey) {
        let position = match self.contribution.standing {
            Standing::Queued { position } => position,
            _ => None,
        };
        (self.contribution.kind, position.is_none(), position.unwrap_or(0), &self.node.name, self.key)
    }
}

/// What the queue looks at beside the candidates.
pub struct Inputs<'a> {
    pub now: Timestamp,
    pub context: &'a Context,
    pub slots: &'a [Slot],
    /// The slots annotation does not parse.
    pub garbage: Option<&'a str>,
    pub usage: &'a Usage,
    pub tallies: &'a [Tally],
    /// Active handoffs of other components on the node.
    pub busy: &'a dyn Fn(&Candidate<'_>) -> Option<String>,
    pub preflight: &'a dyn Fn(&Candidate<'_>) -> Vec<Blocker>,
}

/// The answers, and each component's queue in the order in which nodes will be taken.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Queue {
    pub admissions: BTreeMap<(NodeName, ComponentKey), Admission>,
    pub order: BTreeMap<ComponentKey, Vec<NodeName>>,
    /// When time alone may change an answer.
    pub recheck: Option<Timestamp>,
}

pub fn admit(inputs: &Inputs<'_>, mut candidates: Vec<Candidate<'_>>) -> Queue {
    candidates.sort_by(|a, b| a.order().cmp(&b.order()));
    let mut queue = Queue::default();
    // One grant at a time: each changes the Lease that the next must be decided on.
    let mut granted = false;
    // Components whose next node keeps its turn.
    let mut held: Vec<&ComponentKey> = Vec::new();
    let installs = inputs.slots.len();
    for it in &candidates {
        if matches!(it.contribution.standing, Standing::Queued { .. }) {
            queue.order.entry(it.key.clone()).or_default().push(it.node.name.clone());
        }
        let answer = answer(inputs, it, held.contains(&it.key), installs);
        let admission = match answer {
            Answer::Start(slot) => Admission::Granted(slot),
            Answer::Next(_) if granted => blocked(behind(inputs, it, "another node is admitted first"), None),
            Answer::Next(slot) => {
                granted = true;
                if it.contribution.kind == Kind::Ordered {
                    held.push(it.key);
                }
                Admission::Granted(slot)
            }
            Answer::Passed(blockers, recheck) => Admission::Blocked { blockers, recheck },
            Answer::Holds(blockers, recheck) => {
                if it.contribution.kind == Kind::Ordered {
                    held.push(it.key);
                }
                Admission::Blocked { blockers, recheck }
            }
        };
        if let Admission::Blocked { recheck: Some(at), .. } = &admission {
            queue.recheck = Some(queue.recheck.map_or(*at, |other| other.min(*at)));
        }
        queue.admissions.insert((it.node.name.clone(), it.key.clone()), admission);
    }
    queue
}

enum Answer {
    /// It has its slot and may begin.
    Start(Slot),
    /// It may be given a slot.
    Next(Slot),
    /// Not now, and the next is looked at.
    Passed(Vec<Blocker>, Option<Timestamp>),
    /// Not now, and it keeps its turn.
    Holds(Vec<Blocker>, Option<Timestamp>),
}

fn answer(inputs: &Inputs<'_>, it: &Candidate<'_>, behind_others: bool, installs: usize) -> Answer {
    let owner = it.key.to_string();
    let on_node =
        |kind, message: String| Blocker { kind, object: ObjectRef::new("Node", &it.node.name), message, since: inputs.now };
    if let Some(garbage) = inputs.garbage {
        let object = ObjectRef::new("Lease", format!("{}/{}", LEASE.0, LEASE.1));
        let message = format!(
            "its list of admitted nodes does not parse: {garbage}. Correct the annotation, or remove it when no handoff runs"
        );
        return Answer::Passed(vec![Blocker { kind: BlockerKind::Anomaly, object, message, since: inputs.now }], None);
    }
    let Some(record) = &it.node.record else {
        return Answer::Passed(vec![on_node(BlockerKind::NodeGone, "the Node does not exist".to_owned())], None);
    };
    let slot = Slot { node: it.node.name.to_string(), node_uid: record.meta.uid.to_string(), component: owner.clone() };
    let known = inputs.slots.iter().find(|slot| it.node.name == *slot.node);
    if let Some(busy) =
        known.filter(|slot| slot.component != owner).map(|slot| slot.component.clone()).or_else(|| (inputs.busy)(it))
    {
        let message = format!("{busy} holds this node: at most one handoff per node");
        return Answer::Passed(vec![on_node(BlockerKind::NodeBusy, message)], None);
    }
    let has_slot = known.is_some();
    let kind = it.contribution.kind;
    if kind == Kind::Resumed {
        let spent =
            inputs.usage.spent(it.component, it.node.name.as_str(), 0, inputs.context.cluster_max_unavailable, inputs.now);
        return spent.map_or(Answer::Next(slot), |spent| Answer::Holds(vec![spent], None));
    }
    if !record.ready.is_true() {
        return Answer::Passed(
            vec![on_node(BlockerKind::NodeNotReady, "not Ready: it is passed over until it is".to_owned())],
            None,
        );
    }
    // Closed by an earlier attempt: it is out of service already, and trying again is what brings it back.
    let again = it.contribution.closed && has_slot;
    if kind != Kind::Label && !again {
        let tally = inputs.tallies.get(it.contribution.component);
        let fallback = Tally::default();
        let tally = tally.unwrap_or(&fallback);
        if let Some((blocker, recheck)) = rollout::stopped(it.component, tally, inputs.now) {
            return Answer::Holds(vec![blocker], recheck);
        }
        if kind == Kind::Ordered && !has_slot {
            if behind_others {
                return Answer::Holds(vec![behind(inputs, it, "others are before it in the queue")], None);
            }
            let admitted = inputs.usage.of(&owner, it.node.name.as_str());
            let target = it.contribution.target.as_ref();
            if let Some((blocker, recheck)) = rollout::held_back(it.component, tally, target, admitted, inputs.now) {
                return Answer::Holds(vec![blocker], recheck);
            }
        }
        // Also with a slot: it may have been given for a label, which needs no room, before somebody asked for more.
        if kind == Kind::Ordered {
            let max = inputs.context.cluster_max_unavailable;
            if let Some(spent) = inputs.usage.spent(it.component, it.node.name.as_str(), tally.foreign, max, inputs.now) {
                return Answer::Holds(vec![spent], None);
            }
        }
        if kind == Kind::Install && !has_slot && installs >= INSTALLS_AT_ONCE {
            return Answer::Passed(vec![behind(inputs, it, "as many installs as the Lease should list are under way")], None);
        }
    }
    let refusals = (inputs.preflight)(it);
    if !refusals.is_empty() {
        let skip = it.component.spec().is_some_and(|spec| spec.rollout.blocked == BlockedPolicy::Skip);
        return if skip || kind != Kind::Ordered { Answer::Passed(refusals, None) } else { Answer::Holds(refusals, None) };
    }
    if has_slot { Answer::Start(slot) } else { Answer::Next(slot) }
}

fn behind(inputs: &Inputs<'_>, it: &Candidate<'_>, message: &str) -> Blocker {
    Blocker {
        kind: BlockerKind::QueuedBehind,
        object: ObjectRef::new("NodeComponent", it.key),
        message: message.to_owned(),
        since: inputs.now,
    }
}

fn blocked(blocker: Blocker, recheck: Option<Timestamp>) -> Admission {
    Admission::Blocked { blockers: vec![blocker], recheck }
}
