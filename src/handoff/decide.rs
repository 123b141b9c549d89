//! Verdicts for a whole fleet, and for one subject on fresh facts. What has not changed since the last decisions is taken from them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::{SignedDuration, Timestamp};

pub use super::decisions::{Decisions, NodeDecision};
use super::{
    action::{Action, Evidence, HandoffRef, Op, Subject},
    again::{self, Budgets, Draining, Seen},
    answers, attempt,
    budget::Usage,
    component, ending,
    facts::{Admission, Context, Facts, OtherHandoff},
    lease,
    named::FirstOf,
    observed::Observed,
    preflight,
    queue::{Candidate, Changed, INSTALLS_AT_ONCE, Inputs, Of, Place, Queue},
    rollout,
    tally::{Kind, Standing, Tally, UnderWay, contribution, is_occupied},
    transition,
    verdict::{Blocker, Verdict},
};
use crate::{
    api::{
        ComponentKey, NodeName, ObjectKey, Phase, Version,
        keys::{CORDON, FINALIZER, Role, Slot},
    },
    drain::budget::{self, contended, tight},
    fleet::{
        event::Kind as Watched,
        records::HandoffRecord,
        sorted::Sorted,
        view::{Claimant, ClaimantClass, FleetView, NodeView, Occupancy, WatchHealth, WatchState},
    },
};

/// A required watch that has been broken for this long makes what it showed too old to act upon.
const STALE_AFTER: SignedDuration = SignedDuration::from_secs(30);

/// Decides for everything. `previous` must have been decided on a picture of the same [`crate::fleet::Fleet`]. `dirty` names nodes about
/// which something was learned that no view shows, such as a refused eviction. `observed` must have taken in this view. A view that is not
/// complete yet gives no verdicts.
///
/// What it costs goes by what changed: nodes whose view, slot, budgets or time came are decided again, and the queue gives those answers
/// anew that rest on something else now.
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
    let [(stale, stale_at), (stale_csi, stale_csi_at), (stale_kmm, stale_kmm_at)] =
        [&[][..], &Watched::OF_CSI, &Watched::OF_KMM].map(|kinds| staleness(view, kinds));
    let stale_now = [stale.as_deref(), stale_csi.as_deref(), stale_kmm.as_deref()];
    let keys: Vec<&ComponentKey> = view.components.keys().collect();
    let slots = view.lease.as_ref().map(|lease| &lease.slots[..]).unwrap_or_default();
    let by_node: BTreeMap<&str, &Slot> = slots.iter().map(|slot| (slot.node.as_str(), slot)).collect();
    let scene = Scene { view, observed, context, stale: stale_now, keys: &keys, slots: &by_node };
    let before = previous.inputs.as_deref().filter(|seen| seen.holds_for(view, context, stale_now));
    let budgets = before.map(|seen| Budgets::changed(seen, view));

    let mut nodes = previous.nodes.clone();
    let again = before.zip(budgets.as_ref()).map(|(seen, budgets)| again::nodes(seen, &previous, view, observed, budgets, dirty));
    match &again {
        Some(again) => {
            let decided = again.iter().map(|name| (name.clone(), view.node(name).map(|node| scene.node(node, &previous.queue))));
            nodes.edit(decided.collect());
        }
        None => nodes = Sorted::from_sorted(view.nodes.iter().map(|node| scene.node(node, &previous.queue)).collect()),
    }
    let counts = |again: &BTreeSet<NodeName>, before: &Sorted<Arc<NodeDecision>>, after: &Sorted<Arc<NodeDecision>>| {
        let of = |nodes: &Sorted<Arc<NodeDecision>>, name| nodes.get(name).map(|node| node.contributions.clone());
        again.iter().any(|name| of(before, name) != of(after, name))
    };
    let counted = again.as_ref().is_none_or(|again| counts(again, &previous.nodes, &nodes));
    let mut tallies = if counted { Arc::new(scene.tallies(&nodes)) } else { previous.tallies.clone() };

    let same_slots = before.is_some_and(|seen| seen.slots() == slots && seen.garbage() == scene.garbage());
    let usage = match before {
        Some(seen) if same_slots && !counted => seen.usage.clone(),
        _ => scene.usage(&nodes),
    };
    let draining = scene.draining();
    let (queue, others) = match before.zip(budgets.as_ref()).zip(again.as_ref()) {
        Some(((seen, budgets), again)) => {
            let changed = Changed {
                everything: seen.garbage() != scene.garbage()
                    || counted && scene.stopped(&tallies) != scene.stopped(&previous.tallies),
                counts: usage != seen.usage || draining != seen.draining || counted && pace(&tallies) != pace(&previous.tallies),
                room: (seen.slots().len() < INSTALLS_AT_ONCE) != (slots.len() < INSTALLS_AT_ONCE),
                budgets: !budgets.is_empty(),
            };
            scene.queue_again(&previous, &nodes, again, &usage, &tallies, budgets, &draining, changed)
        }
        None => scene.queue(&previous, &nodes, &usage, &tallies, &draining),
    };
    if !others.is_empty() {
        let before = nodes.clone();
        let decided = others.iter().filter_map(|name| Some((name.clone(), Some(scene.node(view.node(name)?, &queue)))));
        nodes.edit(decided.collect());
        if counts(&others, &before, &nodes) {
            tallies = Arc::new(scene.tallies(&nodes));
        }
    }

    let mut others = BTreeMap::new();
    let mut recheck = [queue.recheck, stale_at, stale_csi_at, stale_kmm_at].into_iter().flatten().min();
    for (key, component) in &view.components {
        let tally = tallies.get(key).cloned().unwrap_or_default();
        recheck = [recheck, component::decide(view.now, component, &tally, observed, &mut others)].into_iter().flatten().min();
    }
    lease::decide(view, &mut others);
    recheck = nodes.leaves().filter_map(|leaf| leaf.sum().recheck).chain(recheck).min();
    Decisions {
        nodes,
        others: Arc::new(others),
        queue,
        tallies,
        recheck,
        inputs: Some(Arc::new(Seen {
            generation: view.generation,
            nodes: view.nodes.clone(),
            components: view.components.clone(),
            budgets: view.budgets.clone(),
            lease: view.lease.clone(),
            context: context.clone(),
            throttled: observed.throttled(view.now),
            usage,
            draining,
            stale: [stale, stale_csi, stale_kmm],
        })),
    }
}

/// The sums over a component's nodes that its queue's pace depends on.
type Pace<'a> = (&'a FirstOf<&'static str>, &'a BTreeMap<Version, u32>, Option<Timestamp>, &'a FirstOf<UnderWay>);

fn pace(tallies: &BTreeMap<ComponentKey, Tally>) -> Vec<Pace<'_>> {
    tallies.values().map(|tally| (&tally.foreign, &tally.versions, tally.last_end, &tally.under_way)).collect()
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
            let [(stale, _), (stale_csi, _), (stale_kmm, _)] =
                [&[][..], &Watched::OF_CSI, &Watched::OF_KMM].map(|kinds| staleness(view, kinds));
            let slots = view.lease.as_ref().map(|lease| &lease.slots[..]).unwrap_or_default();
            let by_node = slots.iter().map(|slot| (slot.node.as_str(), slot)).collect();
            let stale = [stale.as_deref(), stale_csi.as_deref(), stale_kmm.as_deref()];
            let scene = Scene { view, observed, context, stale, keys: &keys, slots: &by_node };
            let slot = by_node.get(node.name.as_str()).copied();
            let others = others(node, component);
            let occupancy = node.components.get(component)?;
            let facts = scene.facts(
                node,
                component,
                occupancy,
                slot,
                &others,
                queue.admission(&(node.name.clone(), component.clone())),
            )?;
            Some(attempt::decide(&facts))
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
    /// For every kind of component, and for those that need the watches of volumes or of KMM too.
    stale: [Option<&'a str>; 3],
    keys: &'a [&'a ComponentKey],
    /// By node.
    slots: &'a BTreeMap<&'a str, &'a Slot>,
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
        let component = self.view.components.get(key)?;
        let [stale, stale_csi, stale_kmm] = self.stale;
        Some(Facts {
            now: self.view.now,
            key,
            component,
            node,
            occupancy,
            slot,
            others,
            admission,
            budgets: &self.view.budgets,
            observed: self.observed,
            context: self.context,
            stale: match (&component.csi, &component.kmm) {
                (Some(_), _) => stale.or(stale_csi),
                (None, Some(_)) => stale.or(stale_kmm),
                (None, None) => stale,
            },
        })
    }

    fn admissions(&self, node: &NodeView, queue: &Queue) -> Vec<Option<Admission>> {
        if queue.is_empty() {
            return vec![None; node.components.len()];
        }
        node.components.keys().map(|key| queue.admission(&(node.name.clone(), key.clone())).cloned()).collect()
    }

    fn node(&self, node: &Arc<NodeView>, queue: &Queue) -> Arc<NodeDecision> {
        let slot = self.slots.get(node.name.as_str()).copied();
        let admissions = self.admissions(node, queue);
        let mut decision = NodeDecision {
            node: node.name.clone(),
            verdicts: Vec::with_capacity(node.components.len()),
            recheck: None,
            view: node.clone(),
            admissions: Vec::new(),
            contributions: Vec::with_capacity(node.components.len()),
            drains: false,
        };
        for ((key, occupancy), admission) in node.components.iter().zip(&admissions) {
            let others = others(node, key);
            let Some(facts) = self.facts(node, key, occupancy, slot, &others, admission.as_ref()) else {
                let (now, handoff) = (self.view.now, occupancy.handoff.as_deref());
                let since = handoff.and_then(|it| it.status.phase_since.as_deref()?.parse().ok()).unwrap_or(now);
                let verdict = match without_component(key, node, occupancy, now) {
                    Verdict::Wait(waited) if self.stale[0].is_none() => {
                        answers::record_wait(handoff, waited, since, now, None, || false)
                    }
                    verdict => verdict,
                };
                decision.verdicts.push((key.clone(), verdict));
                continue;
            };
            let (verdict, wait) = attempt::timed(&facts);
            let recheck = match &verdict {
                // An action that does not come through fails at the phase's deadline.
                Verdict::Act(_) => {
                    let deadline = answers::deadline(&facts).map(|(_, at)| at).filter(|at| *at > self.view.now);
                    [wait, deadline].into_iter().flatten().min()
                }
                _ => wait,
            };
            decision.recheck = [decision.recheck, recheck].into_iter().flatten().min();
            let at = self.keys.iter().position(|known| *known == key).unwrap_or_default();
            decision.contributions.push(contribution(&facts, at, &verdict));
            // In the queue it is the queue's answer that rests on them.
            decision.drains |= !occupancy.claimants.is_empty()
                && occupancy
                    .handoff
                    .as_ref()
                    .is_some_and(|handoff| !handoff.status.phase.is_ended() && handoff.status.phase != Phase::Queued);
            decision.verdicts.push((key.clone(), verdict));
        }
        decision.admissions = admissions;
        Arc::new(decision)
    }

    fn garbage(&self) -> Option<&'a str> {
        self.view.lease.as_ref().and_then(|lease| lease.slots_garbage.as_deref())
    }

    fn tallies(&self, nodes: &Sorted<Arc<NodeDecision>>) -> BTreeMap<ComponentKey, Tally> {
        let mut tallies = vec![Tally::default(); self.keys.len()];
        for leaf in nodes.leaves() {
            tallies.iter_mut().zip(&leaf.sum().tallies).for_each(|(tally, own)| tally.merge(own));
        }
        self.keys.iter().map(|key| (*key).clone()).zip(tallies).collect()
    }

    /// What stops each component, whoever is next.
    fn stopped(&self, tallies: &BTreeMap<ComponentKey, Tally>) -> Vec<Option<String>> {
        let of = |(key, component): (&ComponentKey, &Arc<_>)| {
            rollout::stopped(component, tallies.get(key)?, self.view.now).map(|blocker| blocker.message)
        };
        self.view.components.iter().map(of).collect()
    }

    fn usage(&self, nodes: &Sorted<Arc<NodeDecision>>) -> Usage {
        let owner = |at: usize| self.keys.get(at).map(ToString::to_string);
        let is_install = |slot: &Slot| {
            let node = nodes.get(&NodeName::from(slot.node.as_str()));
            let mut own = node.into_iter().flat_map(|node| &node.contributions);
            own.any(|it| it.kind == Kind::Install && owner(it.component).is_some_and(|owner| owner == slot.component))
        };
        let closed = nodes.leaves().flat_map(|leaf| &leaf.sum().closed);
        let closed = closed.filter_map(|(at, node)| Some((owner(*at)?, node.as_str())));
        let slots = self.view.lease.as_ref().map(|lease| &lease.slots[..]).unwrap_or_default();
        let lost = nodes.leaves().flat_map(|leaf| &leaf.sum().lost);
        let lost = lost.filter_map(|(at, node, why)| Some((owner(*at)?, node.as_str(), *why)));
        Usage::new(slots, |slot| !is_install(slot), closed).with_lost(lost)
    }

    /// Budgets with room for at most one disruption, of the pods that have to leave.
    fn tight(&self, occupancy: &Occupancy) -> BTreeMap<ObjectKey, usize> {
        let leave = |claimant: &&Claimant| !matches!(claimant.class, ClaimantClass::DaemonSet { .. } | ClaimantClass::Mirror);
        tight(occupancy.claimants.iter().filter(leave).map(|claimant| &*claimant.pod), &self.view.budgets)
    }

    /// Admitted nodes from which pods have still to leave.
    fn draining(&self) -> Vec<Draining> {
        let admitted = self.slots.values().filter_map(|slot| {
            let node = self.view.node(&NodeName::from(slot.node.as_str()))?;
            let (_, occupancy) = node.components.iter().find(|(key, _)| key.to_string() == slot.component)?;
            let phase = occupancy.handoff.as_ref()?.status.phase;
            let tight = self.tight(occupancy);
            (phase <= Phase::Draining && !tight.is_empty()).then(|| Draining { node: node.name.clone(), tight })
        });
        admitted.collect()
    }

    /// A node's candidates: place, component, and whether it is in its queue.
    fn candidates<'n>(&'n self, node: &'n NodeDecision) -> impl Iterator<Item = (Place, usize, bool)> + 'n {
        node.contributions.iter().filter_map(|it| {
            let place = Place::of(&node.node, self.keys.get(it.component)?, it)?;
            Some((place, it.component, matches!(it.standing, Standing::Queued { .. })))
        })
    }

    /// The whole queue, and the nodes whose answer is not the one that they were decided with.
    fn queue(
        &self,
        previous: &Decisions,
        nodes: &Sorted<Arc<NodeDecision>>,
        usage: &Usage,
        tallies: &BTreeMap<ComponentKey, Tally>,
        draining: &[Draining],
    ) -> (Arc<Queue>, BTreeSet<NodeName>) {
        let candidates = nodes.iter().flat_map(|node| self.candidates(node)).collect();
        let queue = self.asking(nodes, usage, tallies, None, draining, |inputs| Queue::of(inputs, candidates, &previous.queue));
        let others = nodes.iter().filter(|node| self.admissions(&node.view, &queue) != node.admissions);
        let others = others.map(|node| node.node.clone()).collect();
        (Arc::new(queue), others)
    }

    /// The same, when only the nodes in `again` were decided again.
    #[expect(clippy::too_many_arguments, reason = "what an answer may rest on, each by its name")]
    fn queue_again(
        &self,
        previous: &Decisions,
        nodes: &Sorted<Arc<NodeDecision>>,
        again: &BTreeSet<NodeName>,
        usage: &Usage,
        tallies: &BTreeMap<ComponentKey, Tally>,
        budgets: &Budgets<'_>,
        draining: &[Draining],
        changed: Changed,
    ) -> (Arc<Queue>, BTreeSet<NodeName>) {
        let of = |nodes: &Sorted<Arc<NodeDecision>>| -> Vec<(Place, usize, bool)> {
            again.iter().filter_map(|name| nodes.get(name)).flat_map(|node| self.candidates(node).collect::<Vec<_>>()).collect()
        };
        let (gone, candidates) = (of(&previous.nodes).into_iter().map(|(place, ..)| place).collect::<Vec<_>>(), of(nodes));
        let due = previous.queue.recheck.is_some_and(|at| at <= self.view.now);
        if gone.is_empty() && candidates.is_empty() && !due && !changed.any() {
            return (previous.queue.clone(), BTreeSet::new());
        }
        let mut queue = Queue::clone(&previous.queue);
        let others =
            self.asking(nodes, usage, tallies, Some(budgets), draining, |inputs| queue.update(inputs, gone, candidates, changed));
        (Arc::new(queue), others.into_iter().map(|(node, _)| node).collect())
    }

    /// With all that the queue asks.
    fn asking<T>(
        &self,
        nodes: &Sorted<Arc<NodeDecision>>,
        usage: &Usage,
        tallies: &BTreeMap<ComponentKey, Tally>,
        budgets: Option<&Budgets<'_>>,
        draining: &[Draining],
        then: impl FnOnce(&Inputs<'_>) -> T,
    ) -> T {
        let by_place: Vec<Tally> = self.keys.iter().map(|key| tallies.get(*key).cloned().unwrap_or_default()).collect();
        let candidate = |(node, key): &Of| {
            let node = nodes.get(node)?;
            let (key, component) = self.view.components.get_key_value(key)?;
            let is = |at: usize| self.keys.get(at).is_some_and(|known| *known == key);
            let contribution = node.contributions.iter().find(|it| is(it.component))?;
            Some(Candidate { key, component, node: &node.view, contribution })
        };
        let busy = |it: &Candidate<'_>| others(it.node, it.key).first().map(|other| other.key.to_string());
        let preflight = |it: &Candidate<'_>| {
            let others = others(it.node, it.key);
            let slot = self.slots.get(it.node.name.as_str()).copied();
            let facts =
                it.node.components.get(it.key).and_then(|occupancy| self.facts(it.node, it.key, occupancy, slot, &others, None));
            // What needs no budget and no swap needs no preflight: it is Done, or a person's turn.
            facts
                .map(|facts| {
                    let again = [consent_ends(&facts), asked_again(&facts), budget_settled(&facts)];
                    (preflight::refusals(&facts), again.into_iter().flatten().min())
                })
                .unwrap_or_default()
        };
        let contended = |it: &Candidate<'_>| {
            let own = self.tight(it.node.components.get(it.key)?);
            let others = draining.iter().filter(|other| other.node != it.node.name);
            let pairs = others.map(|other| (other.node.clone(), contended(&own, &other.tight)));
            pairs.into_iter().find(|(_, budgets)| !budgets.is_empty())
        };
        let concerned =
            |(node, _): &Of| nodes.get(node).is_none_or(|node| budgets.is_none_or(|budgets| budgets.concern(&node.view)));
        then(&Inputs {
            now: self.view.now,
            context: self.context,
            slots: self.slots,
            garbage: self.garbage(),
            usage,
            tallies: &by_place,
            candidate: &candidate,
            busy: &busy,
            preflight: &preflight,
            contended: &contended,
            concerned: &concerned,
        })
    }
}

/// When the first of the handoff's overrides ends: what it overrides is refused from then on.
fn consent_ends(f: &Facts<'_>) -> Option<Timestamp> {
    let overrides = f.spec().map(|spec| &spec.overrides[..]).unwrap_or_default();
    let ends = overrides.iter().filter_map(|it| it.until.parse::<Timestamp>().ok());
    ends.filter(|until| *until > f.now).min()
}

/// When the first refused eviction of a claimant is due again: until then it speaks for itself, and then its budgets do.
fn asked_again(f: &Facts<'_>) -> Option<Timestamp> {
    let attempts = f.occupancy.claimants.iter().filter_map(|claimant| f.observed.evictions().get(&claimant.pod.meta.uid));
    attempts.filter_map(|attempt| attempt.next.filter(|next| *next > f.now)).min()
}

/// When a budget of a claimant whose last sync failed is first taken for one that can never allow anything.
fn budget_settled(f: &Facts<'_>) -> Option<Timestamp> {
    let budgets = f.occupancy.claimants.iter().flat_map(|claimant| budget::of(&claimant.pod, f.budgets));
    budgets.filter_map(|budget| budget::lasts_from(&budget.record)).filter(|at| *at > f.now).min()
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

/// A node that speaks of a component which does not exist. What is left there needs it, or a person; what is deleted and has nothing left there
/// goes, since nothing but its finalizer would keep it.
fn without_component(key: &ComponentKey, node: &NodeView, occupancy: &Occupancy, now: Timestamp) -> Verdict {
    use super::verdict::{BlockerKind, ObjectRef, Wait};
    let labels = &occupancy.labels;
    let handoff = occupancy.handoff.as_ref();
    let phase = handoff.map_or(Phase::Done, |handoff| handoff.status.phase);
    let owner = key.to_string();
    let closed = matches!(&node.cordon, Some(Ok(cordon)) if cordon.owners.contains(&owner));
    let bare = *labels == crate::fleet::view::NodeLabels::default() && !closed;
    let ours = [&labels.loader, &labels.plugin, &labels.ready].into_iter().any(Option::is_some) || labels.nonce.is_some();
    let left = ours || labels.loaded.is_some() || labels.mark.is_some() || closed;
    let kept = |it: &&Arc<HandoffRecord>| it.meta.deletion.is_some() && it.finalizers.iter().any(|known| &**known == FINALIZER);
    if let Some(handoff) = handoff.filter(|it| !left && kept(it)) {
        let why = format!(
            "NodeHandoff {} is deleted, its component does not exist, and nothing of it is on {}",
            handoff.key, node.name
        );
        let op = Op::SetHandoffFinalizer { of: HandoffRef::of(handoff), present: false };
        return Verdict::Act(Box::new(Action { op, evidence: Evidence::Watched, why }));
    }
    if bare && phase.is_ended() {
        return Verdict::Done;
    }
    // Queued before its component is there it waits for it; it does not stay for another one of that name.
    if let Some(handoff) = handoff.filter(|it| bare && phase == Phase::Queued && it.status.component_uid.is_some()) {
        let message = ending::deleted_under(key);
        let of = HandoffRef::of(handoff);
        let status = Box::new(transition::taken_back(handoff, ending::COMPONENT_DELETED, &message, now));
        return Verdict::Act(Box::new(Action {
            op: Op::PutHandoffStatus { of, status },
            evidence: Evidence::Watched,
            why: message,
        }));
    }
    let carries = labels.loader.is_some() || labels.plugin.is_some() || labels.loaded.is_some();
    let (mark, loaded) = (Role::Mark.key(key), Role::Loaded.key(key));
    let message = if closed || labels.mark.is_some() {
        format!(
            "NodeComponent {key} does not exist, and its handoff left {}{}. Create the component again: the handoff then ends in good order. Or \
             look at the node yourself, uncordon it and take the annotations {CORDON}, {mark} and {loaded} off; a NodeHandoff that is deleted goes then",
            node.name,
            if closed { " closed" } else { " half done" }
        )
    } else if carries {
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

/// Why what the watches show is too old to act upon, and when that may begin: of these kinds, or of those that all need.
fn staleness(view: &FleetView, kinds: &[Watched]) -> (Option<String>, Option<Timestamp>) {
    let mut next: Option<Timestamp> = None;
    // Not every generation of KMM has the last of its kinds.
    let is_one = |health: &WatchHealth| {
        let optional =
            *health.resource == *Watched::KmmImages.resource() && matches!(health.state, WatchState::Unavailable { .. });
        kinds.iter().any(|kind| *kind.resource() == *health.resource) && !optional
    };
    for health in view.health.iter().filter(|health| if kinds.is_empty() { health.required } else { is_one(health) }) {
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
