//! Verdicts for a whole fleet, and for one subject on fresh facts. What has not changed since the last decisions is taken from them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::{SignedDuration, Timestamp};

use super::{
    action::{Action, Subject},
    budget::Usage,
    component, ending,
    facts::{Admission, Context, Facts, OtherHandoff},
    kernel_module, lease,
    observed::Observed,
    preflight,
    queue::{self, Candidate, Inputs, Queue},
    tally::{Contribution, Kind, Standing, Tally, contribution, is_occupied},
    verdict::{Blocker, Verdict},
};
use crate::{
    api::{ComponentKey, NodeName, Phase, Version, keys::Slot},
    fleet::{
        records::LeaseRecord,
        view::{BudgetView, ComponentView, FleetView, NodeView, Occupancy, WatchState},
    },
};

/// A required watch that has been broken for this long makes what it showed too old to act upon.
const STALE_AFTER: SignedDuration = SignedDuration::from_secs(30);

/// The verdicts of one picture. Cheap to clone; unchanged parts are shared with the decisions before.
#[derive(Debug, Clone, Default)]
pub struct Decisions {
    /// Sorted by name.
    pub nodes: Arc<Vec<Arc<NodeDecision>>>,
    /// Components, versions, the Lease; only those that need something.
    pub others: Arc<BTreeMap<Subject, Verdict>>,
    /// Admissions, and per component the queue in the order in which nodes will be taken.
    pub queue: Arc<Queue>,
    /// By component.
    pub tallies: Arc<BTreeMap<ComponentKey, Tally>>,
    /// Decide again then at the latest, though nothing has changed.
    pub recheck: Option<Timestamp>,
    inputs: Option<Seen>,
}

/// What the last decisions were made on, beside the nodes.
#[derive(Debug, Clone)]
struct Seen {
    components: BTreeMap<ComponentKey, Arc<ComponentView>>,
    budgets: Arc<BTreeMap<crate::api::ObjectKey, Arc<BudgetView>>>,
    lease: Option<Arc<LeaseRecord>>,
    context: Context,
    stale: Option<String>,
}

/// The verdicts of one node, by component.
#[derive(Debug)]
pub struct NodeDecision {
    pub node: NodeName,
    pub verdicts: Vec<(ComponentKey, Verdict)>,
    pub recheck: Option<Timestamp>,
    view: Arc<NodeView>,
    slot: Option<Slot>,
    admissions: Vec<Option<Admission>>,
    contributions: Vec<Contribution>,
    /// Its verdict rests on budgets.
    drains: bool,
}

impl Decisions {
    pub fn node(&self, name: &NodeName) -> Option<&Arc<NodeDecision>> {
        self.nodes.binary_search_by(|node| node.node.cmp(name)).ok().and_then(|at| self.nodes.get(at))
    }

    /// None: nothing is known of it, or it needs nothing.
    pub fn verdict(&self, subject: &Subject) -> Option<&Verdict> {
        match subject {
            Subject::Occupancy { component, node } => {
                self.node(node)?.verdicts.iter().find(|(key, _)| key == component).map(|(_, verdict)| verdict)
            }
            other => self.others.get(other),
        }
    }

    /// Every verdict, in the order of subjects.
    pub fn iter(&self) -> impl Iterator<Item = (Subject, &Verdict)> {
        let nodes = self.nodes.iter().flat_map(|node| {
            node.verdicts.iter().map(|(component, verdict)| {
                (Subject::Occupancy { component: component.clone(), node: node.node.clone() }, verdict)
            })
        });
        nodes.chain(self.others.iter().map(|(subject, verdict)| (subject.clone(), verdict)))
    }

    /// At most one action per subject. The Lease and versions first, since the others wait for them.
    pub fn actions(&self) -> impl Iterator<Item = (Subject, &Action)> {
        let act = |verdict: &'_ Verdict| matches!(verdict, Verdict::Act(_));
        let others = self
            .others
            .iter()
            .filter(move |(_, verdict)| act(verdict))
            .rev()
            .map(|(subject, verdict)| (subject.clone(), verdict));
        let nodes = self.nodes.iter().flat_map(|node| {
            node.verdicts.iter().filter(|(_, verdict)| matches!(verdict, Verdict::Act(_))).map(|(component, verdict)| {
                (Subject::Occupancy { component: component.clone(), node: node.node.clone() }, verdict)
            })
        });
        others.chain(nodes).filter_map(|(subject, verdict)| match verdict {
            Verdict::Act(action) => Some((subject, &**action)),
            _ => None,
        })
    }
}

/// Decides for everything. `dirty` names nodes about which something was learned that no view shows, such as a refused eviction.
/// `observed` must have taken in this view. A view that is not complete yet gives no verdicts.
pub fn decide_fleet(
    view: &FleetView,
    observed: &Observed,
    context: &Context,
    previous: Option<Decisions>,
    dirty: &BTreeSet<NodeName>,
) -> Decisions {
    if !view.synced {
        return Decisions::default();
    }
    let previous = previous.unwrap_or_default();
    let (stale, stale_at) = staleness(view);
    let keys: Vec<&ComponentKey> = view.components.keys().collect();
    let slots = view.lease.as_ref().map(|lease| &lease.slots[..]).unwrap_or_default();
    let by_node: BTreeMap<&str, &Slot> = slots.iter().map(|slot| (slot.node.as_str(), slot)).collect();
    let before = previous.inputs.as_ref();
    let same_context = before.is_some_and(|seen| seen.context == *context && seen.stale == stale);
    let same_components = before.is_some_and(|seen| same_components(&seen.components, &view.components));
    let same_budgets = before.is_some_and(|seen| Arc::ptr_eq(&seen.budgets, &view.budgets));
    let same_lease = before.is_some_and(|seen| match (&seen.lease, &view.lease) {
        (Some(old), Some(new)) => old.slots == new.slots && old.slots_garbage == new.slots_garbage,
        (old, new) => old.is_none() && new.is_none(),
    });
    let all = !(same_context && same_components);
    let scene = Scene { view, observed, context, stale: stale.as_deref(), keys: &keys };

    let mut nodes: Vec<Arc<NodeDecision>> = Vec::with_capacity(view.nodes.len());
    let mut counts_changed = all;
    let mut queue_touched = false;
    let mut old = previous.nodes.iter().peekable();
    for node in view.nodes.iter() {
        while old.next_if(|known| known.node < node.name).is_some() {
            counts_changed = true;
        }
        let known = old.next_if(|known| known.node == node.name);
        let slot = if same_lease { None } else { by_node.get(node.name.as_str()).copied() };
        let kept = known.filter(|known| {
            !all && Arc::ptr_eq(&known.view, node)
                && (same_lease || known.slot.as_ref() == slot)
                && (same_budgets || !known.drains)
                && known.recheck.is_none_or(|at| view.now < at)
                && !dirty.contains(&node.name)
        });
        if let Some(known) = kept {
            nodes.push(known.clone());
            continue;
        }
        let slot = by_node.get(node.name.as_str()).copied();
        let decision = scene.node(node, slot, &previous.queue);
        counts_changed |= known.is_none_or(|known| known.contributions != decision.contributions);
        queue_touched |= decision.contributions.iter().any(|it| matches!(it.standing, Standing::Queued { .. }));
        nodes.push(Arc::new(decision));
    }
    counts_changed |= old.next().is_some();

    let tallies =
        if counts_changed || !same_components { Arc::new(tally(view, &keys, &nodes)) } else { previous.tallies.clone() };
    let due = previous.queue.recheck.is_some_and(|at| at <= view.now);
    let queue = if counts_changed || queue_touched || due || !(same_lease && same_budgets) {
        let queue = scene.queue(&nodes, slots, &tallies, &previous.queue);
        if queue == *previous.queue { previous.queue.clone() } else { Arc::new(queue) }
    } else {
        previous.queue.clone()
    };
    if !Arc::ptr_eq(&queue, &previous.queue) {
        for at in 0..nodes.len() {
            let Some(known) = nodes.get(at) else { continue };
            if scene.admissions(&known.view, &queue) != known.admissions {
                let decision = scene.node(&known.view, by_node.get(known.node.as_str()).copied(), &queue);
                if let Some(place) = nodes.get_mut(at) {
                    *place = Arc::new(decision);
                }
            }
        }
    }

    let mut others = BTreeMap::new();
    let mut recheck = [queue.recheck, stale_at].into_iter().flatten().min();
    for (key, component) in &view.components {
        let tally = tallies.get(key).cloned().unwrap_or_default();
        recheck = [recheck, component::decide(view.now, component, &tally, observed, &mut others)].into_iter().flatten().min();
    }
    lease::decide(view, &mut others);
    recheck = nodes.iter().filter_map(|node| node.recheck).chain(recheck).min();
    Decisions {
        nodes: Arc::new(nodes),
        others: Arc::new(others),
        queue,
        tallies,
        recheck,
        inputs: Some(Seen {
            components: view.components.clone(),
            budgets: view.budgets.clone(),
            lease: view.lease.clone(),
            context: context.clone(),
            stale,
        }),
    }
}

/// The second look: one subject, on what was read just now. `fresh` is the node made from fresh reads (None: the view's); for other
/// subjects the view itself must hold what was read. `queue` is [`Decisions::queue`]. Act only if the result is the same action, and then
/// send that one: [`Action::is_same_as`].
pub fn decide_one(
    view: &FleetView,
    fresh: Option<&NodeView>,
    subject: &Subject,
    observed: &Observed,
    context: &Context,
    queue: &Queue,
) -> Option<Verdict> {
    match subject {
        Subject::Occupancy { component, node } => {
            let node = match fresh {
                Some(fresh) => fresh,
                None => view.node(node)?,
            };
            let keys: Vec<&ComponentKey> = view.components.keys().collect();
            let (stale, _) = staleness(view);
            let scene = Scene { view, observed, context, stale: stale.as_deref(), keys: &keys };
            let slots = view.lease.as_ref().map(|lease| &lease.slots[..]).unwrap_or_default();
            let slot = slots.iter().find(|slot| node.name == *slot.node);
            let others = others(node, component);
            let occupancy = node.components.get(component)?;
            let facts = scene.facts(
                node,
                component,
                occupancy,
                slot,
                &others,
                queue.admissions.get(&(node.name.clone(), component.clone())),
            )?;
            Some(kernel_module::decide(&facts))
        }
        Subject::Component(key) | Subject::Version { component: key, .. } => {
            let component = view.components.get(key)?;
            let mut others = BTreeMap::new();
            let occupied = view.nodes.iter().filter(|node| node.components.get(key).is_some_and(|it| is_occupied(it))).count();
            let tally = Tally { occupied: u32::try_from(occupied).unwrap_or(u32::MAX), ..Tally::default() };
            component::decide(view.now, component, &tally, observed, &mut others);
            others.remove(subject)
        }
        Subject::Lease => {
            let mut others = BTreeMap::new();
            lease::decide(view, &mut others);
            others.remove(subject)
        }
    }
}

struct Scene<'a> {
    view: &'a FleetView,
    observed: &'a Observed,
    context: &'a Context,
    stale: Option<&'a str>,
    keys: &'a [&'a ComponentKey],
}

impl<'a> Scene<'a> {
    fn facts<'f>(
        &'f self,
        node: &'f NodeView,
        key: &'f ComponentKey,
        occupancy: &'f Occupancy,
        slot: Option<&'f Slot>,
        others: &'f [OtherHandoff],
        admission: Option<&'f Admission>,
    ) -> Option<Facts<'f>> {
        Some(Facts {
            now: self.view.now,
            key,
            component: self.view.components.get(key)?,
            node,
            occupancy,
            slot,
            others,
            admission,
            budgets: &self.view.budgets,
            observed: self.observed,
            context: self.context,
            stale: self.stale,
        })
    }

    fn admissions(&self, node: &NodeView, queue: &Queue) -> Vec<Option<Admission>> {
        if queue.admissions.is_empty() {
            return vec![None; node.components.len()];
        }
        node.components.keys().map(|key| queue.admissions.get(&(node.name.clone(), key.clone())).cloned()).collect()
    }

    fn node(&self, node: &Arc<NodeView>, slot: Option<&Slot>, queue: &Queue) -> NodeDecision {
        let admissions = self.admissions(node, queue);
        let mut decision = NodeDecision {
            node: node.name.clone(),
            verdicts: Vec::with_capacity(node.components.len()),
            recheck: None,
            view: node.clone(),
            slot: slot.cloned(),
            admissions: Vec::new(),
            contributions: Vec::with_capacity(node.components.len()),
            drains: false,
        };
        for ((key, occupancy), admission) in node.components.iter().zip(&admissions) {
            let others = others(node, key);
            let Some(facts) = self.facts(node, key, occupancy, slot, &others, admission.as_ref()) else {
                decision.verdicts.push((key.clone(), without_component(key, node, occupancy, self.view.now)));
                continue;
            };
            let verdict = kernel_module::decide(&facts);
            if let Verdict::Wait(wait) = &verdict {
                decision.recheck = [decision.recheck, wait.recheck].into_iter().flatten().min();
            }
            let at = self.keys.iter().position(|known| *known == key).unwrap_or_default();
            decision.contributions.push(contribution(&facts, at, &verdict));
            decision.drains |= !occupancy.claimants.is_empty()
                && occupancy.handoff.as_ref().is_some_and(|handoff| !handoff.status.phase.is_ended());
            decision.verdicts.push((key.clone(), verdict));
        }
        decision.admissions = admissions;
        decision
    }

    fn queue(
        &self,
        nodes: &[Arc<NodeDecision>],
        slots: &[Slot],
        tallies: &BTreeMap<ComponentKey, Tally>,
        previous: &Queue,
    ) -> Queue {
        let contributions = || nodes.iter().flat_map(|node| node.contributions.iter().map(move |it| (node, it)));
        let is_install = |slot: &Slot| {
            let node = nodes.binary_search_by(|node| node.node.as_str().cmp(&slot.node)).ok().and_then(|at| nodes.get(at));
            let mut own = node.into_iter().flat_map(|node| &node.contributions);
            own.any(|it| {
                it.kind == Kind::Install && self.keys.get(it.component).is_some_and(|key| key.to_string() == slot.component)
            })
        };
        let closed = contributions()
            .filter(|(_, it)| it.closed)
            .filter_map(|(node, it)| Some((self.keys.get(it.component)?.to_string(), node.node.as_str())));
        let usage = Usage::new(slots, |slot| !is_install(slot), closed);
        let candidates: Vec<Candidate<'_>> = contributions()
            .filter(|(_, it)| it.kind == Kind::Resumed || matches!(it.standing, Standing::Queued { .. }))
            .filter_map(|(node, it)| {
                let key = *self.keys.get(it.component)?;
                Some(Candidate { key, component: self.view.components.get(key)?, node: &node.view, contribution: it })
            })
            .collect();
        let by_place: Vec<Tally> = self.keys.iter().map(|key| tallies.get(*key).cloned().unwrap_or_default()).collect();
        let busy = |it: &Candidate<'_>| others(it.node, it.key).first().map(|other| other.key.to_string());
        let preflight = |it: &Candidate<'_>| {
            let others = others(it.node, it.key);
            let slot = slots.iter().find(|slot| it.node.name == *slot.node);
            let facts =
                it.node.components.get(it.key).and_then(|occupancy| self.facts(it.node, it.key, occupancy, slot, &others, None));
            // What needs no budget and no swap needs no preflight: it is Done, or a person's turn.
            facts.map(|facts| preflight::refusals(&facts)).unwrap_or_default()
        };
        let lease = self.view.lease.as_ref();
        let mut queue = queue::admit(
            &Inputs {
                now: self.view.now,
                context: self.context,
                slots,
                garbage: lease.and_then(|lease| lease.slots_garbage.as_deref()),
                usage: &usage,
                tallies: &by_place,
                busy: &busy,
                preflight: &preflight,
            },
            candidates,
        );
        keep_since(&mut queue, previous);
        queue
    }
}

/// An answer that only repeats the last one keeps its time, and so causes no new verdict.
fn keep_since(queue: &mut Queue, previous: &Queue) {
    for (place, admission) in &mut queue.admissions {
        let (Admission::Blocked { blockers, .. }, Some(Admission::Blocked { blockers: old, .. })) =
            (admission, previous.admissions.get(place))
        else {
            continue;
        };
        for blocker in blockers {
            let same = |known: &&Blocker| known.kind == blocker.kind && known.object == blocker.object;
            if let Some(known) = old.iter().find(same) {
                blocker.since = known.since;
            }
        }
    }
}

/// Active handoffs of other components on the node.
fn others(node: &NodeView, key: &ComponentKey) -> Vec<OtherHandoff> {
    let active =
        node.components.iter().filter(|(other, _)| *other != key).filter_map(|(_, occupancy)| occupancy.handoff.as_ref());
    let active = active.filter(|handoff| {
        let held_out = handoff.status.phase == Phase::Held
            && handoff.status.reason.as_ref().is_some_and(|reason| reason.word == ending::OUT_OF_SERVICE);
        !handoff.status.phase.is_ended() && handoff.status.phase != Phase::Queued && !held_out
    });
    active.map(|handoff| OtherHandoff { key: handoff.key.clone(), phase: handoff.status.phase }).collect()
}

fn without_component(key: &ComponentKey, node: &NodeView, occupancy: &Occupancy, now: Timestamp) -> Verdict {
    use super::verdict::{BlockerKind, ObjectRef, Wait};
    let phase = occupancy.handoff.as_ref().map_or(Phase::Done, |handoff| handoff.status.phase);
    let bare = occupancy.labels == crate::fleet::view::NodeLabels::default();
    if bare && occupancy.handoff.is_none() {
        return Verdict::Done;
    }
    let labels = &occupancy.labels;
    let carries = labels.loader.is_some() || labels.plugin.is_some() || labels.loaded.is_some();
    let message = if carries {
        format!(
            "NodeComponent {key} does not exist, but {} still carries it. Create it again with the same version, then delete it properly",
            node.name
        )
    } else if bare {
        format!("NodeComponent {key} does not exist: nothing is done until it does. Delete the NodeHandoff if it was a mistake")
    } else {
        format!(
            "NodeComponent {key} does not exist, and nothing of it is on {}: if its labels there were a mistake, take them off",
            node.name
        )
    };
    let blocker = Blocker { kind: BlockerKind::Anomaly, object: ObjectRef::new("Node", &node.name), message, since: now };
    Verdict::Wait(Wait {
        phase,
        since: now,
        blockers: vec![blocker],
        recheck: None,
        next: "nothing, until the component exists".to_owned(),
    })
}

fn tally(view: &FleetView, keys: &[&ComponentKey], nodes: &[Arc<NodeDecision>]) -> BTreeMap<ComponentKey, Tally> {
    let aims: Vec<Option<&str>> =
        view.components.values().map(|component| component.spec().map(|spec| spec.version.as_str())).collect();
    let mut tallies = vec![Tally::default(); keys.len()];
    for it in nodes.iter().flat_map(|node| &node.contributions) {
        if let Some(tally) = tallies.get_mut(it.component) {
            tally.add(it, aims.get(it.component).copied().flatten());
        }
    }
    keys.iter().map(|key| (*key).clone()).zip(tallies).collect()
}

/// Whether decisions on nodes can differ because of the components: their status and counters do not matter.
fn same_components(old: &BTreeMap<ComponentKey, Arc<ComponentView>>, new: &BTreeMap<ComponentKey, Arc<ComponentView>>) -> bool {
    old.len() == new.len()
        && old.iter().zip(new).all(|((a, old), (b, new))| a == b && (Arc::ptr_eq(old, new) || same_component(old, new)))
}

fn same_component(old: &ComponentView, new: &ComponentView) -> bool {
    let versions = |view: &ComponentView| -> Vec<(Version, crate::fleet::records::Str, Option<bool>, Option<bool>)> {
        let of = |version: &crate::fleet::view::VersionView| {
            (
                version.version.clone(),
                version.content.clone(),
                version.loader.as_ref().map(|set| set.on_delete),
                version.plugin.as_ref().map(|set| set.on_delete),
            )
        };
        view.versions.values().map(of).collect()
    };
    old.record.spec == new.record.spec
        && old.record.meta.deletion.is_some() == new.record.meta.deletion.is_some()
        && old.refusals == new.refusals
        && old.changed_without_version == new.changed_without_version
        && old.anomalies == new.anomalies
        && versions(old) == versions(new)
}

/// Why what the watches show is too old to act upon, and when that may begin.
fn staleness(view: &FleetView) -> (Option<String>, Option<Timestamp>) {
    let mut next: Option<Timestamp> = None;
    for health in view.health.iter().filter(|health| health.required) {
        let (error, since) = match &health.state {
            WatchState::Retrying { error, since, .. } => (error.as_str(), *since),
            WatchState::Unavailable { why } => (why.as_str(), Timestamp::MIN),
            WatchState::Live | WatchState::Syncing => continue,
        };
        let at = since.checked_add(STALE_AFTER).unwrap_or(Timestamp::MAX);
        if view.now >= at || since == Timestamp::MIN {
            return (Some(format!("the watch of {} is broken: {error}", health.resource)), None);
        }
        next = Some(next.map_or(at, |other| other.min(at)));
    }
    (None, next)
}
