//! Who is admitted next, over all components, and why each of the others waits: the operator's order by position, then by name. Each answer
//! is kept together with what it rests on, and given anew only when something of that is different.

mod before;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;

use super::{
    budget::Usage,
    facts::{Admission, Context},
    named::FirstOf,
    rollout,
    tally::{Contribution, Kind, Standing, Tally},
    verdict::{Blocker, BlockerKind, ObjectRef},
};
use crate::{
    api::{
        ComponentKey, NodeName, ObjectKey,
        component::BlockedPolicy,
        keys::{LEASE, Slot},
    },
    fleet::{
        sorted::{Entry, Sorted},
        view::{ComponentView, NodeView},
    },
};

/// First installs that may be under way at once: they take nothing out of service, but the Lease's annotation must hold them.
pub(super) const INSTALLS_AT_ONCE: usize = 50;

pub use before::Before;

/// A node, and the component that it is to be handed over for.
pub type Of = (NodeName, ComponentKey);

/// A handoff that needs a slot.
#[derive(Debug, Clone, Copy)]
pub struct Candidate<'a> {
    pub key: &'a ComponentKey,
    pub component: &'a ComponentView,
    pub node: &'a NodeView,
    pub contribution: &'a Contribution,
}

/// Where a candidate stands in the queue; sorts as they are taken.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    kind: Kind,
    unplaced: bool,
    position: i32,
    of: Of,
}

impl Place {
    /// None: it needs no slot.
    pub fn of(node: &NodeName, key: &ComponentKey, it: &Contribution) -> Option<Self> {
        let position = match it.standing {
            Standing::Queued { position } => position,
            _ if it.returning.is_some() => it.returning.and_then(|it| it.position),
            _ if it.kind == Kind::Resumed => None,
            _ => return None,
        };
        let of = (node.clone(), key.clone());
        Some(Self { kind: it.kind, unplaced: position.is_none(), position: position.unwrap_or(0), of })
    }
}

/// What refuses a candidate, and when time alone may change that.
pub type Refusals = (Vec<Blocker>, Option<Timestamp>);

/// A node that drains, and the budgets over which both would wait for each other.
pub type Contended = (NodeName, Vec<ObjectKey>);

/// What the queue looks at beside the candidates.
pub struct Inputs<'a> {
    pub now: Timestamp,
    pub context: &'a Context,
    pub slots: &'a BTreeMap<&'a str, &'a Slot>,
    /// The slots annotation does not parse.
    pub garbage: Option<&'a str>,
    pub usage: &'a Usage,
    pub tallies: &'a [Tally],
    pub candidate: &'a dyn Fn(&Of) -> Option<Candidate<'a>>,
    /// Active handoffs of other components on the node.
    pub busy: &'a dyn Fn(&Candidate<'_>) -> Option<String>,
    pub preflight: &'a dyn Fn(&Candidate<'_>) -> Refusals,
    /// A node that is being drained, and the budgets over which the candidate and that one would wait for each other.
    pub contended: &'a dyn Fn(&Candidate<'_>) -> Option<Contended>,
    /// Budgets of its pods are others now.
    pub concerned: &'a dyn Fn(&Of) -> bool,
}

/// What is different for all from what the last answers were given on.
#[derive(Debug, Clone, Copy, Default)]
pub struct Changed {
    /// Something that every answer may rest on.
    pub everything: bool,
    /// Slots, nodes out of service, what is being drained, or sums over the fleet.
    pub counts: bool,
    /// Whether the Lease has room for one more install.
    pub room: bool,
    /// Some budgets.
    pub budgets: bool,
}

impl Changed {
    pub fn any(self) -> bool {
        self.everything || self.counts || self.room || self.budgets
    }
}

/// The answers, and each component's queue in the order in which nodes will be taken.
#[derive(Debug, Clone, Default)]
pub struct Queue {
    by_place: Sorted<Arc<Waiting>>,
    by_node: Sorted<ByNode>,
    /// When time alone may change an answer.
    pub recheck: Option<Timestamp>,
}

/// A candidate, the answer to it, and what that rests on.
#[derive(Debug, Clone)]
struct Waiting {
    place: Place,
    component: usize,
    queued: bool,
    /// Something of the candidate itself is different.
    stale: bool,
    answer: Option<Admission>,
    rests: Rests,
    /// It took the one grant; it keeps its component's turn.
    grants: bool,
    holds: bool,
}

/// What an answer rests on beside the candidate itself and [`Changed::everything`].
#[derive(Debug, Clone, Copy, Default)]
struct Rests {
    counts: bool,
    room: bool,
    budgets: bool,
    /// Whether others of the component were before it; None: it was not asked.
    held: Option<bool>,
    /// Whether somebody had been granted a slot before it.
    granted: Option<bool>,
    /// Until then.
    until: Option<Timestamp>,
}

impl Rests {
    fn until(&mut self, at: Option<Timestamp>) {
        self.until = [self.until, at].into_iter().flatten().min();
    }
}

/// What those before have taken.
#[derive(Debug, Clone, Default)]
struct Taken {
    granted: bool,
    /// By the component's place.
    held: Vec<bool>,
}

impl Taken {
    fn is_held(&self, component: usize) -> bool {
        self.held.get(component).copied().unwrap_or_default()
    }

    fn hold(&mut self, component: usize) {
        if self.held.len() <= component {
            self.held.resize(component + 1, false);
        }
        if let Some(held) = self.held.get_mut(component) {
            *held = true;
        }
    }

    fn by(&mut self, it: &Waiting) {
        self.granted |= it.grants;
        if it.holds {
            self.hold(it.component);
        }
    }
}

/// What some dozens of candidates come to.
#[derive(Debug, Default)]
struct WaitingSum {
    stale: bool,
    counts: bool,
    room: bool,
    budgets: bool,
    until: Option<Timestamp>,
    /// What those who asked were told first: if that is the same, so is all that follows.
    granted: Option<bool>,
    held: Vec<(usize, bool)>,
    grants: bool,
    holds: Vec<usize>,
    /// By the component's place: how many are in its queue.
    queued: Vec<usize>,
}

impl Entry for Arc<Waiting> {
    type Key = Place;
    type Sum = WaitingSum;

    fn key(&self) -> &Place {
        &self.place
    }

    fn sum(entries: &[Self]) -> WaitingSum {
        let mut sum = WaitingSum::default();
        for it in entries {
            sum.stale |= it.stale;
            sum.counts |= it.rests.counts;
            sum.room |= it.rests.room;
            sum.budgets |= it.rests.budgets;
            sum.until = [sum.until, it.rests.until].into_iter().flatten().min();
            if sum.granted.is_none() {
                sum.granted = it.rests.granted;
            }
            if let Some(held) = it.rests.held
                && !sum.held.iter().any(|(component, _)| *component == it.component)
            {
                sum.held.push((it.component, held));
            }
            sum.grants |= it.grants;
            if it.holds && !sum.holds.contains(&it.component) {
                sum.holds.push(it.component);
            }
            if it.queued {
                if sum.queued.len() <= it.component {
                    sum.queued.resize(it.component + 1, 0);
                }
                if let Some(count) = sum.queued.get_mut(it.component) {
                    *count += 1;
                }
            }
        }
        sum
    }
}

impl WaitingSum {
    fn holds_for(&self, changed: Changed, taken: &Taken, now: Timestamp) -> bool {
        !(changed.everything
            || self.stale
            || changed.counts && self.counts
            || changed.room && self.room
            || changed.budgets && self.budgets
            || self.until.is_some_and(|at| at <= now))
            && self.granted.is_none_or(|told| told == taken.granted)
            && self.held.iter().all(|(component, told)| taken.is_held(*component) == *told)
    }
}

#[derive(Debug, Clone)]
struct ByNode(Arc<Waiting>);

impl Entry for ByNode {
    type Key = Of;
    type Sum = ();

    fn key(&self) -> &Of {
        &self.0.place.of
    }

    fn sum(_: &[Self]) {}
}

impl Queue {
    /// None: it needs no slot.
    pub fn admission(&self, of: &Of) -> Option<&Admission> {
        self.by_node.get(of)?.0.answer.as_ref()
    }

    /// Nobody waits for a slot.
    pub fn is_empty(&self) -> bool {
        self.by_place.is_empty()
    }

    /// The component's nodes in the order in which they will be taken.
    pub fn order<'q>(&'q self, component: &'q ComponentKey) -> impl Iterator<Item = &'q NodeName> {
        let own = self.by_place.iter().filter(move |it| it.queued && it.place.of.1 == *component);
        own.map(|it| &it.place.of.0)
    }

    /// How many nodes are in the component's queue.
    pub fn len_of(&self, component: &ComponentKey) -> usize {
        let Some(at) = self.place_of(component) else { return 0 };
        self.by_place.leaves().filter_map(|leaf| leaf.sum().queued.get(at)).sum()
    }

    /// Where the node is in its component's queue.
    pub fn place(&self, of: &Of) -> Option<&Place> {
        self.by_node.get(of).filter(|it| it.0.queued).map(|it| &it.0.place)
    }

    /// The node's place in the component's queue, from 0.
    pub fn position(&self, of: &Of) -> Option<usize> {
        let it = &self.by_node.get(of)?.0;
        if !it.queued {
            return None;
        }
        let mut before = 0;
        for leaf in self.by_place.leaves() {
            if leaf.entries().last().is_some_and(|last| last.place < it.place) {
                before += leaf.sum().queued.get(it.component).copied().unwrap_or_default();
                continue;
            }
            let own = leaf.entries().iter().take_while(|other| other.place < it.place);
            return Some(before + own.filter(|other| other.queued && other.component == it.component).count());
        }
        None
    }

    /// Components with a queue.
    pub fn components(&self) -> BTreeSet<&ComponentKey> {
        self.by_place.iter().filter(|it| it.queued).map(|it| &it.place.of.1).collect()
    }

    fn place_of(&self, component: &ComponentKey) -> Option<usize> {
        self.by_place.iter().find(|it| it.place.of.1 == *component).map(|it| it.component)
    }

    /// The queue of these candidates, each with its component's place in the list of components. Answers that are known keep their time.
    pub fn of(inputs: &Inputs<'_>, mut candidates: Vec<(Place, usize, bool)>, known: &Self) -> Self {
        candidates.sort();
        let waiting = candidates.into_iter().map(|(place, component, queued)| known.stale(place, component, queued));
        let mut queue = Self { by_place: Sorted::from_sorted(waiting.collect()), ..Self::default() };
        queue.answer(inputs, Changed { everything: true, ..Changed::default() });
        let mut by_node: Vec<ByNode> = queue.by_place.iter().cloned().map(ByNode).collect();
        by_node.sort_by(|a, b| a.key().cmp(b.key()));
        queue.by_node = Sorted::from_sorted(by_node);
        queue
    }

    /// Takes in candidates that came, changed or went. Returns those whose answer is another one now.
    pub fn update(
        &mut self,
        inputs: &Inputs<'_>,
        gone: Vec<Place>,
        candidates: Vec<(Place, usize, bool)>,
        changed: Changed,
    ) -> BTreeSet<Of> {
        let mut edits: BTreeMap<Place, Option<Arc<Waiting>>> = gone.into_iter().map(|place| (place, None)).collect();
        for (place, component, queued) in candidates {
            edits.insert(place.clone(), Some(self.stale(place, component, queued)));
        }
        let mut other: BTreeSet<Of> = edits.iter().filter(|(_, new)| new.is_none()).map(|(place, _)| place.of.clone()).collect();
        self.by_place.edit(edits);
        let answered = self.answer(inputs, changed);
        let mut by_node: BTreeMap<Of, Option<ByNode>> = other.iter().map(|of| (of.clone(), None)).collect();
        for (it, is_other) in answered {
            let of = it.place.of.clone();
            if is_other {
                other.insert(of.clone());
            } else {
                other.remove(&of);
            }
            by_node.insert(of, Some(ByNode(it)));
        }
        self.by_node.edit(by_node);
        other
    }

    fn stale(&self, place: Place, component: usize, queued: bool) -> Arc<Waiting> {
        let answer = self.admission(&place.of).cloned();
        Arc::new(Waiting { place, component, queued, stale: true, answer, rests: Rests::default(), grants: false, holds: false })
    }

    /// Gives the answers that may be others now, and says which really are.
    fn answer(&mut self, inputs: &Inputs<'_>, changed: Changed) -> Vec<(Arc<Waiting>, bool)> {
        let mut taken = Taken::default();
        let mut answered = Vec::new();
        self.by_place.rewrite(|leaf| {
            let sum = leaf.sum();
            if sum.holds_for(changed, &taken, inputs.now) {
                taken.granted |= sum.grants;
                sum.holds.iter().for_each(|component| taken.hold(*component));
                return None;
            }
            let before = answered.len();
            let entries = leaf.entries().iter().map(|it| {
                let it = if it.holds_for(inputs, changed, &taken) {
                    it.clone()
                } else {
                    let (new, is_other) = it.answered(inputs, &taken);
                    let new = Arc::new(new);
                    answered.push((new.clone(), is_other));
                    new
                };
                taken.by(&it);
                it
            });
            let entries: Vec<_> = entries.collect();
            (answered.len() > before).then_some(entries)
        });
        self.recheck = self.by_place.leaves().filter_map(|leaf| leaf.sum().until).min();
        answered
    }
}

impl Waiting {
    fn holds_for(&self, inputs: &Inputs<'_>, changed: Changed, taken: &Taken) -> bool {
        let rests = &self.rests;
        !(changed.everything
            || self.stale
            || changed.counts && rests.counts
            || changed.room && rests.room
            || rests.until.is_some_and(|at| at <= inputs.now))
            && rests.granted.is_none_or(|told| told == taken.granted)
            && rests.held.is_none_or(|told| told == taken.is_held(self.component))
            && !(changed.budgets && rests.budgets && (inputs.concerned)(&self.place.of))
    }

    /// With a new answer, and whether it is another one.
    fn answered(&self, inputs: &Inputs<'_>, taken: &Taken) -> (Self, bool) {
        let mut rests = Rests::default();
        let mut new = Self { stale: false, grants: false, holds: false, answer: None, ..self.clone() };
        if let Some(it) = (inputs.candidate)(&self.place.of) {
            let ordered = it.contribution.kind == Kind::Ordered;
            let (answer, keeps) = match answer(inputs, &it, taken.is_held(self.component), &mut rests) {
                Answer::Start(slot) => (Admission::Granted(slot), false),
                Answer::Next(slot) => {
                    // One grant at a time: each changes the Lease that the next must be decided on.
                    rests.granted = Some(taken.granted);
                    new.grants = !taken.granted;
                    let answer = if taken.granted { blocked(behind(inputs, &it)) } else { Admission::Granted(slot) };
                    (answer, ordered)
                }
                Answer::Passed(blockers) => (Admission::Blocked { blockers, recheck: rests.until }, false),
                Answer::Holds(blockers) => (Admission::Blocked { blockers, recheck: rests.until }, ordered),
            };
            new.holds = keeps;
            new.answer = Some(keep_since(answer, self.answer.as_ref()));
        }
        new.rests = rests;
        let is_other = new.answer != self.answer;
        (new, is_other)
    }
}

/// An answer that only repeats the last one keeps its time, and so causes no new verdict.
fn keep_since(mut answer: Admission, known: Option<&Admission>) -> Admission {
    if let (Admission::Blocked { blockers, .. }, Some(Admission::Blocked { blockers: old, .. })) = (&mut answer, known) {
        for blocker in blockers {
            let same = |known: &&Blocker| known.kind == blocker.kind && known.object == blocker.object;
            if let Some(known) = old.iter().find(same) {
                blocker.since = known.since;
            }
        }
    }
    answer
}

enum Answer {
    /// It has its slot and may begin.
    Start(Slot),
    /// It may be given a slot.
    Next(Slot),
    /// Not now, and the next is looked at.
    Passed(Vec<Blocker>),
    /// Not now, and it keeps its turn.
    Holds(Vec<Blocker>),
}

fn answer(inputs: &Inputs<'_>, it: &Candidate<'_>, behind_others: bool, rests: &mut Rests) -> Answer {
    let owner = it.key.to_string();
    let on_node =
        |kind, message: String| Blocker { kind, object: ObjectRef::new("Node", &it.node.name), message, since: inputs.now };
    if let Some(garbage) = inputs.garbage {
        let object = ObjectRef::new("Lease", format!("{}/{}", LEASE.0, LEASE.1));
        let message = format!(
            "its list of admitted nodes does not parse: {garbage}. Correct the annotation, or remove it when no handoff runs"
        );
        return Answer::Passed(vec![Blocker { kind: BlockerKind::Anomaly, object, message, since: inputs.now }]);
    }
    // It is asked what it may do once it is queued, which is its next step; until then those behind it wait.
    if it.contribution.returning.is_some() {
        return Answer::Holds(Vec::new());
    }
    let Some(record) = &it.node.record else {
        return Answer::Passed(vec![on_node(BlockerKind::NodeGone, "the Node does not exist".to_owned())]);
    };
    let slot = Slot { node: it.node.name.to_string(), node_uid: record.meta.uid.to_string(), component: owner.clone() };
    let known = inputs.slots.get(it.node.name.as_str());
    if let Some(busy) =
        known.filter(|slot| slot.component != owner).map(|slot| slot.component.clone()).or_else(|| (inputs.busy)(it))
    {
        let message = format!("{busy} holds this node: at most one handoff per node");
        return Answer::Passed(vec![on_node(BlockerKind::NodeBusy, message)]);
    }
    let has_slot = known.is_some();
    let kind = it.contribution.kind;
    if kind == Kind::Resumed {
        rests.counts = true;
        let (node, none) = (it.node.name.as_str(), FirstOf::default());
        let spent = inputs.usage.spent(it.component, node, &none, true, inputs.context.cluster_max_unavailable, inputs.now);
        return spent.map_or(Answer::Next(slot), |spent| Answer::Holds(vec![spent]));
    }
    if !record.ready.is_true() {
        return Answer::Passed(vec![on_node(BlockerKind::NodeNotReady, "not Ready: it is passed over until it is".to_owned())]);
    }
    // It asks for what the component does not have. Only another order or an edit of the component lets it go on, and whoever is behind it
    // needs neither: it keeps no turn.
    if it.component.spec().is_some() && it.contribution.target.as_ref().is_some_and(|target| !it.component.offers(target)) {
        let (refusals, until) = (inputs.preflight)(it);
        rests.budgets = true;
        rests.until(until);
        if !refusals.is_empty() {
            return Answer::Passed(refusals);
        }
    }
    // Closed by an earlier attempt: it is out of service already, and trying again is what brings it back.
    let again = it.contribution.closed && has_slot;
    // What mends a node that has lost its component takes nothing out of service: it waits for no other such node, and for no canary.
    let mends = it.contribution.is_lost();
    if kind != Kind::Label && !again {
        let tally = inputs.tallies.get(it.contribution.component);
        let fallback = Tally::default();
        let tally = tally.unwrap_or(&fallback);
        // What it counts is in `stopped`, which is compared for all.
        if let Some(blocker) = rollout::stopped(it.component, tally, inputs.now) {
            return Answer::Holds(vec![blocker]);
        }
        if kind == Kind::Ordered && !has_slot && !mends {
            rests.held = Some(behind_others);
            if behind_others {
                return Answer::Holds(vec![behind(inputs, it)]);
            }
            rests.counts = true;
            let admitted = inputs.usage.of(&owner, it.node.name.as_str());
            let target = it.contribution.target.as_ref();
            let (held_back, until) = rollout::held_back(it.component, tally, target, admitted, Some(&it.node.name), inputs.now);
            rests.until(until);
            if let Some(blocker) = held_back {
                return Answer::Holds(vec![blocker]);
            }
        }
        // Also with a slot: it may have been given for a label, which needs no room, before somebody asked for more.
        if kind == Kind::Ordered {
            rests.counts = true;
            let max = inputs.context.cluster_max_unavailable;
            // A node that others have closed does not stand in its own way.
            let others = it.contribution.counts_as_foreign().then(|| tally.foreign.without(&it.node.name));
            let foreign = others.as_ref().unwrap_or(&tally.foreign);
            if let Some(spent) = inputs.usage.spent(it.component, it.node.name.as_str(), foreign, mends, max, inputs.now) {
                return Answer::Holds(vec![spent]);
            }
        }
        if kind == Kind::Install && !has_slot {
            rests.room = true;
            if inputs.slots.len() >= INSTALLS_AT_ONCE {
                return Answer::Passed(vec![behind(inputs, it)]);
            }
        }
    }
    let (refusals, until) = (inputs.preflight)(it);
    rests.budgets = true;
    rests.until(until);
    if !refusals.is_empty() {
        let skip = it.component.spec().is_some_and(|spec| spec.rollout.blocked == BlockedPolicy::Skip);
        return if skip || kind != Kind::Ordered { Answer::Passed(refusals) } else { Answer::Holds(refusals) };
    }
    if has_slot {
        return Answer::Start(slot);
    }
    if kind == Kind::Ordered {
        rests.counts = true;
        if let Some((other, budgets)) = (inputs.contended)(it) {
            return Answer::Holds(vec![after(inputs, &other, &budgets)]);
        }
    }
    Answer::Next(slot)
}

/// Pods that leave one node of two that are closed find no place before one of them is back, and so free no budget for the other.
fn after(inputs: &Inputs<'_>, other: &NodeName, budgets: &[ObjectKey]) -> Blocker {
    let names: Vec<String> = budgets.iter().map(ToString::to_string).collect();
    let message = format!(
        "{other} is being drained first: pods of both are under PodDisruptionBudget {} with room for one, and each would wait for the other",
        names.join(" and ")
    );
    let object = budgets.first().map(|key| ObjectRef::new("PodDisruptionBudget", key)).unwrap_or_default();
    Blocker { kind: BlockerKind::QueuedBehind, object, message, since: inputs.now }
}

/// The same words whoever is before it, and whatever those wait for: thousands stand here, and none is written down anew at each step.
fn behind(inputs: &Inputs<'_>, it: &Candidate<'_>) -> Blocker {
    let message = match it.contribution.kind {
        Kind::Install => {
            format!("others are before it in the queue: at most {INSTALLS_AT_ONCE} first installs are under way at once")
        }
        _ => "others are before it in the queue".to_owned(),
    };
    Blocker { kind: BlockerKind::QueuedBehind, object: ObjectRef::new("NodeComponent", it.key), message, since: inputs.now }
}

fn blocked(blocker: Blocker) -> Admission {
    Admission::Blocked { blockers: vec![blocker], recheck: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was told to the first of each component is what counts; of another component in the same leaf, too.
    #[test]
    fn some_dozens_of_candidates_remember_what_the_first_of_each_component_was_told() {
        let waiting = |component: usize, held: Option<bool>, node: &str| {
            Arc::new(Waiting {
                place: Place {
                    kind: Kind::Ordered,
                    unplaced: false,
                    position: 0,
                    of: (node.into(), ComponentKey::new("ns", "gpu")),
                },
                component,
                queued: true,
                stale: false,
                answer: None,
                rests: Rests { held, ..Rests::default() },
                grants: false,
                holds: held == Some(false),
            })
        };
        let sum = Entry::sum(&[
            waiting(0, Some(false), "n1"),
            waiting(0, Some(true), "n2"),
            waiting(1, None, "n3"),
            waiting(1, Some(true), "n4"),
        ]);
        assert_eq!(sum.held, [(0, false), (1, true)]);
        assert_eq!((sum.holds, sum.queued), (vec![0], vec![2, 2]));
    }
}
