//! Pure: the numbers that follow from a picture, computed when they are asked for, so that nothing has to be kept in step.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::table::{self, Metric};
use crate::{
    api::{ComponentKey, Phase},
    engine::picture::Picture,
    fleet::{
        records::HandoffRecord,
        view::{WatchHealth, WatchState},
    },
    handoff::{action::Subject, verdict::Verdict},
};

/// Samples by metric; label values stand in the order of the metric's labels.
#[derive(Debug, Default, PartialEq)]
pub struct Samples(BTreeMap<&'static str, BTreeMap<Vec<String>, f64>>);

impl Samples {
    pub(super) fn set<const N: usize>(&mut self, metric: Metric, labels: [&str; N], value: f64) {
        debug_assert_eq!(metric.labels.len(), N, "{}", metric.name);
        self.0.entry(metric.name).or_default().insert(labels.map(str::to_owned).to_vec(), value);
    }

    fn add<const N: usize>(&mut self, metric: Metric, labels: [&str; N], value: f64) {
        *self.entry(metric, labels) += value;
    }

    fn at_least<const N: usize>(&mut self, metric: Metric, labels: [&str; N], value: f64) {
        let kept = self.entry(metric, labels);
        *kept = kept.max(value);
    }

    fn entry<const N: usize>(&mut self, metric: Metric, labels: [&str; N]) -> &mut f64 {
        debug_assert_eq!(metric.labels.len(), N, "{}", metric.name);
        self.0.entry(metric.name).or_default().entry(labels.map(str::to_owned).to_vec()).or_default()
    }

    pub(super) fn of(&self, metric: &Metric) -> impl Iterator<Item = (&Vec<String>, f64)> {
        self.0.get(metric.name).into_iter().flatten().map(|(labels, value)| (labels, *value))
    }
}

/// `cluster_max`: how many nodes may be admitted at once over all components.
pub fn samples(picture: &Picture, now: Timestamp, cluster_max: u32) -> Samples {
    let mut out = Samples::default();
    out.set(table::BUILD_INFO, [env!("CARGO_PKG_VERSION")], 1.0);
    let leadership = &picture.leadership;
    out.set(table::LEADER, [], flag(leadership.ours));
    out.set(table::LEASE_EPOCH, [], leadership.epoch as f64);
    out.set(table::LEASE_PROBLEM, [], flag(leadership.problem.is_some()));
    out.set(table::SYNCED, [], flag(picture.fleet.synced));
    components(&mut out, picture);
    handoffs(&mut out, picture, now);
    nodes(&mut out, picture);
    blockers(&mut out, picture, now);
    slots(&mut out, picture, cluster_max);
    out
}

pub(super) fn flag(is: bool) -> f64 {
    if is { 1.0 } else { 0.0 }
}

/// Of a time that may lie a little ahead, since two clocks told them.
pub(super) fn seconds_since(since: Timestamp, now: Timestamp) -> f64 {
    now.duration_since(since).as_secs_f64().max(0.0)
}

fn components(out: &mut Samples, picture: &Picture) {
    for (key, component) in &picture.fleet.components {
        let name = &*key.to_string();
        out.set(table::NODES_MATCHED, [name], component.matched_nodes.into());
        out.set(table::REFUSED, [name], component.refusals.len() as f64);
        let anomalies = component.anomalies.len() + usize::from(component.changed_without_version);
        out.set(table::ANOMALIES, [name], anomalies as f64);
        if let Some(spec) = component.spec() {
            out.set(table::PAUSED, [name], flag(spec.rollout.paused));
            out.set(table::SLOTS_ALLOWED, [name], spec.rollout.max_unavailable.into());
            out.set(table::FAILURES_ALLOWED, [name], spec.rollout.max_failures.into());
        }
        // What is counted below is told as 0, too: a rate or an alert needs the series before the first of its kind.
        out.set(table::SLOTS_USED, [name], 0.0);
        out.set(table::FAILURES, [name], 0.0);
        out.set(table::LEFT_CLOSED, [name], 0.0);
        out.set(table::UNLOAD_FAILURES, [name], 0.0);
        for phase in Phase::ALL {
            out.set(table::HANDOFFS, [name, phase.as_str()], 0.0);
        }
    }
}

fn handoffs(out: &mut Samples, picture: &Picture, now: Timestamp) {
    for handoff in picture.fleet.handoffs.values() {
        let (component, status) = (component_of(handoff), &handoff.status);
        let (name, phase) = (&*component, status.phase);
        out.add(table::HANDOFFS, [name, phase.as_str()], 1.0);
        if phase == Phase::Failed {
            out.add(table::FAILURES, [name], 1.0);
        }
        if phase.is_ended() {
            continue;
        }
        if let Some(since) = status.phase_since.as_deref().and_then(|since| since.parse().ok()) {
            out.at_least(table::HANDOFF_OLDEST, [name, phase.as_str()], seconds_since(since, now));
        }
        if let Some(unload) = &status.unload {
            out.add(table::UNLOAD_FAILURES, [name], unload.tries.into());
        }
    }
}

/// `namespace/name` of a handoff's component, as far as it can be told.
pub(in crate::engine) fn component_of(handoff: &HandoffRecord) -> String {
    match &handoff.spec {
        Ok(spec) => format!("{}/{}", handoff.key.namespace, spec.component),
        // A handoff's name begins with its component's, which may contain dots itself.
        Err(_) => format!("{}/unknown", handoff.key.namespace),
    }
}

fn nodes(out: &mut Samples, picture: &Picture) {
    let fleet = &picture.fleet;
    for (key, component) in &fleet.components {
        let name = &*key.to_string();
        for version in component.versions.keys() {
            out.set(table::NODES, [name, version.as_str()], 0.0);
            out.set(table::NODES_READY, [name, version.as_str()], 0.0);
        }
        for (_, occupancy) in fleet.occupancies(key) {
            let labels = &occupancy.labels;
            let known = |version: &crate::api::Version| component.versions.contains_key(version);
            match &labels.loader {
                Some(version) if known(version) => out.add(table::NODES, [name, version.as_str()], 1.0),
                Some(_) => out.add(table::NODES, [name, "unknown"], 1.0),
                None if occupancy.selected => out.add(table::NODES, [name, "none"], 1.0),
                None => {}
            }
            if let Some(version) = labels.ready.as_ref().filter(|version| known(version))
                && (labels.plugin.as_ref(), labels.loader.as_ref()) == (Some(version), Some(version))
            {
                out.add(table::NODES_READY, [name, version.as_str()], 1.0);
            }
        }
    }
    for node in fleet.nodes.iter() {
        let closed = node.record.as_ref().is_some_and(|record| record.unschedulable);
        let Some(Ok(cordon)) = node.cordon.as_ref().filter(|_| closed) else { continue };
        for owner in &cordon.owners {
            let occupancy = node.components.iter().find(|(component, _)| component.to_string() == *owner);
            let handoff = occupancy.and_then(|(_, occupancy)| occupancy.handoff.as_ref());
            if handoff.is_none_or(|handoff| handoff.status.phase.is_ended()) && is_component(picture, owner) {
                out.add(table::LEFT_CLOSED, [owner], 1.0);
            }
        }
    }
}

/// An annotation can name anything; only components become label values.
fn is_component(picture: &Picture, owner: &str) -> bool {
    owner
        .split_once('/')
        .is_some_and(|(namespace, name)| picture.fleet.components.contains_key(&ComponentKey::new(namespace, name)))
}

fn blockers(out: &mut Samples, picture: &Picture, now: Timestamp) {
    for (subject, verdict) in picture.verdicts.iter() {
        let Verdict::Wait(wait) = verdict else { continue };
        let component = match &subject {
            Subject::Occupancy { component, .. } | Subject::Version { component, .. } | Subject::Component(component) => {
                component.to_string()
            }
            Subject::Lease => String::new(),
        };
        let kinds: BTreeSet<_> = wait.blockers.iter().map(|blocker| blocker.kind).collect();
        for kind in kinds {
            let word = kind.word();
            out.add(table::BLOCKERS, [&component, &word], 1.0);
            for blocker in wait.blockers.iter().filter(|blocker| blocker.kind == kind) {
                out.at_least(table::BLOCKER_OLDEST, [&component, &word], seconds_since(blocker.since, now));
            }
        }
    }
}

fn slots(out: &mut Samples, picture: &Picture, cluster_max: u32) {
    let slots = picture.fleet.lease.as_ref().map(|lease| &lease.slots[..]).unwrap_or_default();
    for slot in slots.iter().filter(|slot| is_component(picture, &slot.component)) {
        out.add(table::SLOTS_USED, [&slot.component], 1.0);
    }
    let nodes: BTreeSet<&str> = slots.iter().map(|slot| slot.node.as_str()).collect();
    out.set(table::CLUSTER_SLOTS_USED, [], nodes.len() as f64);
    out.set(table::CLUSTER_SLOTS_ALLOWED, [], cluster_max.into());
}

/// How the watches fare.
pub(super) fn watches(out: &mut Samples, health: &[WatchHealth], now: Timestamp) {
    const STATES: [&str; 4] = ["Syncing", "Live", "Retrying", "Unavailable"];
    for watch in health {
        let resource = &*watch.resource;
        let is = state_word(&watch.state);
        for state in STATES {
            out.set(table::WATCH_STATE, [resource, state], flag(state == is));
        }
        out.set(table::WATCH_REQUIRED, [resource], flag(watch.required));
        out.set(table::WATCH_OBJECTS, [resource], watch.objects as f64);
        out.set(table::WATCH_UNDECODABLE, [resource], watch.undecodable.len() as f64);
        out.set(table::WATCH_ERRORS, [resource], watch.errors as f64);
        if let Some(last) = watch.last_event {
            out.set(table::WATCH_AGE, [resource], seconds_since(last, now));
        }
    }
}

pub(in crate::engine) fn state_word(state: &WatchState) -> &'static str {
    match state {
        WatchState::Syncing => "Syncing",
        WatchState::Live => "Live",
        WatchState::Retrying { .. } => "Retrying",
        WatchState::Unavailable { .. } => "Unavailable",
    }
}
