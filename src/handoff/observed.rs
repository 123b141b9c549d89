//! What this process saw itself and no object records: since when a plugin is Ready, which pods left and when their processes are
//! certainly gone, which evictions were refused. A restart starts anew, and so waits again. Pure: fed with pictures and results.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::{SignedDuration, Timestamp};

use super::kmm_module::KmmSeen;
use crate::{
    api::{BootId, ComponentKey, NodeName, ObjectKey, Uid},
    drain::EvictionMemory,
    fleet::{
        records::{PodRecord, Str},
        sorted::{Entry, Sorted},
        view::{FleetView, NodeList, NodeView, Occupancy, changed_nodes},
    },
};

/// The grace of a pod that says nothing else, and so the time after a start in which a pod deleted by force may still run.
pub const DEFAULT_GRACE: SignedDuration = SignedDuration::from_secs(30);
const FORGET_AFTER: SignedDuration = SignedDuration::from_mins(10);

/// Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Observed {
    /// The first complete picture.
    since: Option<Timestamp>,
    list: Option<Arc<NodeList>>,
    nodes: Sorted<Arc<NodeSeen>>,
    evictions: Arc<EvictionMemory>,
    prune_at: usize,
    reported: BTreeMap<ComponentKey, Timestamp>,
}

#[derive(Debug, Clone)]
pub struct NodeSeen {
    view: Arc<NodeView>,
    departed: Vec<Departed>,
    components: BTreeMap<ComponentKey, Seen>,
}

#[derive(Debug, Clone, Default, PartialEq)]
struct Seen {
    /// Pod, its restarts, and since when.
    plugin_ready: Option<(Uid, i32, Timestamp)>,
    allocatable: Option<Timestamp>,
    kmm: Option<KmmSeen>,
}

/// A pod that used the component and whose object is no longer there. Its processes may outlive it.
#[derive(Debug, Clone, PartialEq)]
pub struct Departed {
    pub pod: ObjectKey,
    pub uid: Uid,
    /// When its absence was first seen.
    pub at: Timestamp,
    /// When its grace has passed; `at` itself if it was seen to have ended.
    pub clear_at: Timestamp,
    boot: BootId,
    /// The node's Lease when it was last seen: another one shows that the kubelet lives.
    lease: Option<Str>,
}

/// Why departed pods do not count as gone yet.
#[derive(Debug, Clone, PartialEq)]
pub struct NotGone {
    pub pod: ObjectKey,
    /// None: until the node's Lease is renewed.
    pub until: Option<Timestamp>,
}

impl Observed {
    /// Takes in a picture. Returns the names of nodes whose view has changed since the last one.
    pub fn observe(&mut self, view: &FleetView) -> Vec<NodeName> {
        if !view.synced {
            return Vec::new();
        }
        self.since.get_or_insert(view.now);
        let before = self.list.take().unwrap_or_default();
        let changed = changed_nodes(&before, &view.nodes);
        let edits = changed.iter().map(|name| {
            let seen = view.node(name).map(|node| match self.nodes.get(name) {
                Some(seen) => {
                    let mut seen = NodeSeen::clone(seen);
                    seen.update(node, view.now, &view.changes.ended);
                    Arc::new(seen)
                }
                None => Arc::new(NodeSeen::first(node, view.now)),
            });
            (name.clone(), seen)
        });
        let edits = edits.collect();
        self.nodes.edit(edits);
        self.list = Some(view.nodes.clone());
        // UIDs are never used twice, so that what is remembered too long does no harm; only its size does.
        if self.evictions.len() > self.prune_at.max(1024) {
            let exists: BTreeSet<&Uid> = view.nodes.iter().flat_map(|node| &node.pods).map(|pod| &pod.meta.uid).collect();
            let evictions = Arc::make_mut(&mut self.evictions);
            evictions.prune(|uid| exists.contains(uid));
            self.prune_at = evictions.len() * 2;
        }
        changed
    }

    /// What became of evictions; one memory for all handoffs.
    pub fn evictions(&self) -> &EvictionMemory {
        &self.evictions
    }

    /// To record an answer in: `drain::eviction::classify` says what it means.
    pub fn evictions_mut(&mut self) -> &mut EvictionMemory {
        Arc::make_mut(&mut self.evictions)
    }

    /// The server asked to be left alone until then, which is meant for all evictions. None: not now.
    pub fn throttled(&self, now: Timestamp) -> Option<Timestamp> {
        self.evictions.throttled(now).map(|(_, until)| until)
    }

    /// The component's status was written.
    pub fn reported(&mut self, component: &ComponentKey, now: Timestamp) {
        self.reported.insert(component.clone(), now);
    }

    pub fn last_report(&self, component: &ComponentKey) -> Option<Timestamp> {
        self.reported.get(component).copied()
    }

    /// When the first complete picture came.
    pub fn since(&self) -> Option<Timestamp> {
        self.since
    }

    fn node(&self, name: &NodeName) -> Option<&NodeSeen> {
        self.nodes.get(name).map(|seen| &**seen)
    }

    /// Since when this process has seen this very plugin pod Ready without a break.
    pub fn plugin_ready_since(&self, node: &NodeName, component: &ComponentKey, pod: &Uid) -> Option<Timestamp> {
        let (uid, _, since) = self.node(node)?.components.get(component)?.plugin_ready.as_ref()?;
        (uid == pod).then_some(*since)
    }

    /// Since when this process has seen the component's allocatable devices unchanged.
    pub fn allocatable_since(&self, node: &NodeName, component: &ComponentKey) -> Option<Timestamp> {
        self.node(node)?.components.get(component)?.allocatable
    }

    /// Of a component that follows a Module: what was seen of KMM on the node.
    pub fn kmm(&self, node: &NodeName, component: &ComponentKey) -> Option<&KmmSeen> {
        self.node(node)?.components.get(component)?.kmm.as_ref()
    }

    /// The first pod that has left the node but does not count as gone: no Lease renewed since, or its grace has not passed. `fresh` may be
    /// newer than the last picture.
    pub fn not_gone(&self, fresh: &NodeView, now: Timestamp) -> Option<NotGone> {
        self.first_left(fresh, now, |_| true)
    }

    /// The same for pods that were not seen to end: what was reported to have ended needs no renewed Lease to have done so.
    pub fn not_ended(&self, fresh: &NodeView, now: Timestamp) -> Option<NotGone> {
        self.first_left(fresh, now, |departed| departed.clear_at > departed.at)
    }

    fn first_left(&self, fresh: &NodeView, now: Timestamp, counts: impl Fn(&Departed) -> bool) -> Option<NotGone> {
        let record = fresh.record.as_ref()?;
        let seen = self.node(&fresh.name)?;
        let lease = fresh.lease.as_ref().map(|lease| &lease.meta.resource_version);
        // What the fresh read shows missing has only just been seen to leave.
        let missing =
            if std::ptr::eq(&*seen.view, fresh) { Vec::new() } else { departures(&seen.view, fresh, now, &BTreeSet::new()) };
        let left = seen.departed.iter().chain(&missing).filter(|departed| departed.boot == record.boot_id && counts(departed));
        left.into_iter().find_map(|departed| {
            if lease.is_none() || lease == departed.lease.as_ref() {
                return Some(NotGone { pod: departed.pod.clone(), until: None });
            }
            (now < departed.clear_at).then(|| NotGone { pod: departed.pod.clone(), until: Some(departed.clear_at) })
        })
    }

    /// This pod used a component on the node and has left it.
    pub fn has_left(&self, node: &NodeName, uid: &str) -> bool {
        self.node(node).is_some_and(|seen| seen.departed.iter().any(|departed| departed.uid == *uid))
    }

    /// Until then a pod deleted by force before this process looked may still run.
    pub fn blind_until(&self) -> Option<Timestamp> {
        self.since?.checked_add(DEFAULT_GRACE).ok()
    }
}

impl Entry for Arc<NodeSeen> {
    type Key = NodeName;
    type Sum = ();

    fn key(&self) -> &NodeName {
        &self.view.name
    }

    fn sum(_: &[Self]) {}
}

impl NodeSeen {
    fn first(view: &Arc<NodeView>, now: Timestamp) -> Self {
        let mut seen = Self { view: view.clone(), departed: Vec::new(), components: BTreeMap::new() };
        seen.components = seen.look(view, now, &BTreeSet::new());
        seen
    }

    fn update(&mut self, view: &Arc<NodeView>, now: Timestamp, ended: &BTreeSet<Uid>) {
        self.departed.retain(|departed| now.duration_since(departed.clear_at) < FORGET_AFTER);
        self.departed.extend(departures(&self.view, view, now, ended));
        self.components = self.look(view, now, ended);
        self.view = view.clone();
    }

    fn look(&self, view: &NodeView, now: Timestamp, ended: &BTreeSet<Uid>) -> BTreeMap<ComponentKey, Seen> {
        let boot = |view: &NodeView| view.record.as_ref().map(|record| record.boot_id.clone());
        let same_boot = boot(&self.view) == boot(view);
        let look = |(key, occupancy): (&ComponentKey, &Arc<Occupancy>)| {
            let before = self.components.get(key);
            let plugin_ready = ready_plugin(occupancy).map(|pod| {
                let restarts = super::csi_node_plugin::restarts(pod);
                let same = |(uid, count, _): &&(Uid, i32, Timestamp)| *uid == pod.meta.uid && *count == restarts;
                let kept = before.and_then(|seen| seen.plugin_ready.as_ref()).filter(same);
                (pod.meta.uid.clone(), restarts, kept.map_or(now, |(.., since)| *since))
            });
            let old = self.view.components.get(key);
            let same = old.is_some_and(|old| old.allocatable == occupancy.allocatable && old.slices == occupancy.slices);
            let allocatable = before.and_then(|seen| seen.allocatable).filter(|_| same).unwrap_or(now);
            let kmm = occupancy.kmm.as_ref().map(|new| {
                let old = old.and_then(|old| old.kmm.as_deref());
                let before = before.and_then(|seen| seen.kmm.as_ref());
                KmmSeen::follow(before, old, new, &occupancy.labels, same_boot, ended, now)
            });
            (key.clone(), Seen { plugin_ready, allocatable: Some(allocatable), kmm })
        };
        view.components.iter().map(look).collect()
    }
}

/// The plugin pod of the version that the plugin label names, if it is Ready and stays.
pub fn ready_plugin(occupancy: &Occupancy) -> Option<&Arc<PodRecord>> {
    if let Some(csi) = &occupancy.csi {
        return csi.ready_pod();
    }
    if let Some(kmm) = &occupancy.kmm {
        return super::kmm_module::ready_plugin(occupancy, kmm);
    }
    let version = occupancy.labels.plugin.as_ref()?;
    occupancy.plugin_pods.iter().find(|pod| {
        pod.meta.deletion.is_none()
            && pod.ready.is_true()
            && !pod.phase.is_terminal()
            && pod.labels.get(crate::api::keys::VERSION).is_some_and(|label| **label == *version.as_str())
    })
}

/// `ended`: pods that were seen to end in between.
fn departures(old: &NodeView, new: &NodeView, now: Timestamp, ended: &BTreeSet<Uid>) -> Vec<Departed> {
    let Some(boot) = old.record.as_ref().map(|record| record.boot_id.clone()) else { return Vec::new() };
    let lease = old.lease.as_ref().map(|lease| lease.meta.resource_version.clone());
    let mut departed: Vec<Departed> = Vec::new();
    for occupancy in old.components.values() {
        let users = occupancy.claimants.iter().map(|claimant| &claimant.pod);
        let own = occupancy.loader_pods.iter().chain(&occupancy.plugin_pods).chain(&occupancy.unload_pods);
        let own = own.chain(occupancy.csi.iter().flat_map(|csi| &csi.pods));
        for pod in users.chain(own) {
            let stays = new
                .pods
                .binary_search_by(|other| key_of(other).cmp(&key_of(pod)))
                .is_ok_and(|at| new.pods.get(at).is_some_and(|other| other.meta.uid == pod.meta.uid));
            if !stays && !departed.iter().any(|other| other.uid == pod.meta.uid) {
                departed.push(Departed {
                    pod: pod.key.clone(),
                    uid: pod.meta.uid.clone(),
                    at: now,
                    clear_at: if pod.has_ended() || ended.contains(&pod.meta.uid) {
                        now
                    } else {
                        now.checked_add(grace(pod)).unwrap_or(Timestamp::MAX)
                    },
                    boot: boot.clone(),
                    lease: lease.clone(),
                });
            }
        }
    }
    departed
}

fn key_of(pod: &PodRecord) -> (&str, &str) {
    (&pod.key.namespace, &pod.key.name)
}

fn grace(pod: &PodRecord) -> SignedDuration {
    let own = pod.extra.as_ref().and_then(|extra| extra.grace).map_or(DEFAULT_GRACE, SignedDuration::from_secs);
    pod.meta.deletion.map_or(own, |deletion| own.max(SignedDuration::from_secs(deletion.grace)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::{build::*, event::Kind, records::PodPhase};

    #[test]
    fn a_pod_whose_end_no_picture_showed_need_not_be_waited_for() {
        let train = || pod("shop/train-0").on("n1").claims("vendor.com/gpu", 1).owned_by("ReplicaSet", "train");
        let clear_at = |last: PodBuilder| {
            let mut fleet = fleet().with(component("ns/gpu").made("1")).with(node("n1").runs("ns/gpu", "1")).with(train());
            let mut observed = Observed::default();
            observed.observe(&fleet.project(at(0)));
            fleet.put(last).gone(Kind::Pod, key("shop/train-0"));
            observed.observe(&fleet.project(at(1)));
            observed.node(&"n1".into()).map(|seen| seen.departed.iter().map(|it| it.clear_at).collect::<Vec<_>>())
        };
        assert_eq!(clear_at(train().terminating(at(30)).phase(PodPhase::Succeeded)), Some(vec![at(1)]));
        assert_eq!(clear_at(train().terminating(at(30))), Some(vec![at(31)]), "its processes may run on");
    }
}
