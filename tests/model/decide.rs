//! What the product's own functions decide on a state: both looks, remembered by what they looked at, since many states look the same.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Mutex, PoisonError},
};

use lockkeeper::{
    fleet::view::FleetView,
    handoff::{
        action::{Action, Evidence, Op, Subject},
        decide::{Decisions, decide_fleet, decide_one},
        facts::Context,
        verdict::{BlockerKind, Verdict},
    },
};

use crate::{picture, state::*};

/// What is to be done, and what is said about each node.
#[derive(Debug, Default)]
pub struct Look {
    /// After the second look, with the evidence that it had.
    pub acts: Vec<Decided>,
    /// By node.
    pub says: Vec<Says>,
}

#[derive(Debug, Clone)]
pub struct Decided {
    pub act: Act,
    /// On fresh facts; else on what the watches showed.
    pub fresh: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Says {
    Acts,
    Done,
    Failed,
    Waits(Vec<(BlockerKind, String)>),
}

/// Shared by the checker's threads.
#[derive(Debug, Default)]
pub struct Memo {
    shards: [Mutex<BTreeMap<u64, Arc<Look>>>; 16],
}

impl Memo {
    pub fn look(&self, state: &State, skip_second: bool) -> Arc<Look> {
        let mut hasher = DefaultHasher::new();
        (skip_second, &state.slots, state.epoch, state.engine.blind, &state.engine.lag).hash(&mut hasher);
        for node in &state.nodes {
            (&node.shown, node.memory).hash(&mut hasher);
        }
        let key = hasher.finish();
        let shard = &self.shards[(key % 16) as usize];
        if let Some(known) = shard.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return known.clone();
        }
        let look = Arc::new(look(state, skip_second));
        shard.lock().unwrap_or_else(PoisonError::into_inner).insert(key, look.clone());
        look
    }

    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().unwrap_or_else(PoisonError::into_inner).len()).sum()
    }
}

fn context(state: &State) -> Context {
    Context { lease_held: true, epoch: state.epoch.into(), identity: "me".into(), cluster_max_unavailable: 1, read_only: false }
}

fn look(state: &State, skip_second: bool) -> Look {
    let memory: Vec<Memory> = state.nodes.iter().map(|node| node.memory).collect();
    let context = context(state);
    let first_sight = picture::seen(state);
    let (view, observed) = picture::picture(&first_sight, &memory, state.engine.blind, &state.slots, state.epoch);
    let decisions = decide_fleet(&view, &observed, &context, None, &BTreeSet::new());
    // What a fresh read would show.
    let current = state.engine.lag.as_ref().filter(|_| !skip_second).map(|_| {
        let shown: Vec<Shown> = state.nodes.iter().map(|node| node.shown.clone()).collect();
        picture::picture(&shown, &memory, state.engine.blind, &state.slots, state.epoch).0
    });
    let mut acts = Vec::new();
    for (subject, action) in decisions.actions() {
        if !is_modelled(&action.op) {
            continue;
        }
        let node = node_of(&view, &subject, action);
        let (chosen, fresh) = match (action.evidence, &current) {
            (Evidence::Watched, _) => (Some(action.clone()), false),
            (_, None) => (second(&view, None, &subject, &observed, &context, &decisions, action), true),
            (_, Some(current)) => (second(&view, Some(current), &subject, &observed, &context, &decisions, action), true),
        };
        if let Some(action) = chosen {
            let text = format!("{:?}", action.op);
            acts.push(Decided { act: Act { node, text: text.into(), action: Arc::new(action) }, fresh });
        }
    }
    let says = (0..state.nodes.len()).map(|at| says(&decisions, at)).collect();
    Look { acts, says }
}

/// The second look must come to the same; `current` is what was read fresh, if that differs from what the watches show.
fn second(
    view: &FleetView,
    current: Option<&Arc<FleetView>>,
    subject: &Subject,
    observed: &lockkeeper::handoff::observed::Observed,
    context: &Context,
    decisions: &Decisions,
    first: &Action,
) -> Option<Action> {
    let (Subject::Occupancy { node, .. }, Some(current)) = (subject, current) else {
        return match decide_one(view, None, subject, observed, context, &decisions.queue) {
            Some(Verdict::Act(again)) if again.is_same_as(first) => Some(*again),
            other => panic!("the same facts, two decisions: {} and {other:?}", first.why),
        };
    };
    let fresh = current.node(node)?;
    let view = FleetView { lease: current.lease.clone(), ..view.clone() };
    match decide_one(&view, Some(&**fresh), subject, observed, context, &decisions.queue) {
        Some(Verdict::Act(again)) if again.is_same_as(first) && again.evidence <= first.evidence => Some(*again),
        _ => None,
    }
}

/// The component's status is for people, and its DaemonSets stay.
fn is_modelled(op: &Op) -> bool {
    !matches!(
        op,
        Op::PutComponentStatus { .. } | Op::SetComponentFinalizer { .. } | Op::CreateDaemonSet(_) | Op::DeleteDaemonSet { .. }
    )
}

fn node_of(view: &FleetView, subject: &Subject, action: &Action) -> u8 {
    let name = match (subject, &action.op) {
        (Subject::Occupancy { node, .. }, _) => node.to_string(),
        (_, Op::Release(slot) | Op::Admit(slot)) => slot.node.clone(),
        _ => String::new(),
    };
    let at = view.nodes.iter().position(|node| node.name == *name).unwrap_or_default();
    u8::try_from(at).unwrap_or_default()
}

fn says(decisions: &Decisions, at: usize) -> Says {
    let verdict = decisions.node(&picture::node_name(at).into()).and_then(|node| node.verdicts.first());
    match verdict.map(|(_, verdict)| verdict) {
        None | Some(Verdict::Done) => Says::Done,
        Some(Verdict::Act(_)) => Says::Acts,
        Some(Verdict::Failed { .. }) => Says::Failed,
        Some(Verdict::Wait(wait)) => {
            Says::Waits(wait.blockers.iter().map(|blocker| (blocker.kind, blocker.message.clone())).collect())
        }
    }
}
