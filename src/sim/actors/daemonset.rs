//! The DaemonSet controller: per node from dirty keys, with running sums for the status. OnDelete and RollingUpdate
//! (maxUnavailable, maxSurge). Its pods name their node by affinity and are bound by the scheduler.

use super::adoption;
use super::caches::{BY_OWNER, BY_OWNER_AND_NODE, Caches, owner_and_node};
use super::informer::raced;
use super::queue::{Queue, lock};
use super::records::{ControllerRevision, DaemonSet, Meta, Node, Pod, PodSpec, Record, Taint, Toleration};
use super::replicas::changes_hands;
use super::selectors::{labels_match, pod_matches_node, untolerated};
use super::template::{content_hash, controller_of, int_or_percent, owner_key, pod_from, template_of};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const HASH: &str = "controller-revision-hash";
const GENERATION: &str = "pod-template-generation";
const FAILED_FIRST: Duration = Duration::from_secs(1);
const FAILED_LAST: Duration = Duration::from_secs(900);
/// Status writes are gathered for this long.
const STATUS_DELAY: Duration = Duration::from_millis(100);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    /// Revisions, and all nodes when the spec changed.
    Set(String),
    Node(String, String),
    /// Status and the rolling update.
    Sums(String),
}

/// What one node adds to the status of one set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Share {
    should_run: bool,
    has_pod: bool,
    ready: bool,
    available: bool,
    updated: bool,
    /// The oldest pod of an older revision and whether it is available, and whether the one of the present revision is, for the rolling
    /// update.
    old: Option<((String, String), bool)>,
    new: Option<bool>,
    /// More than one of either: the node's own turn cleans it up first.
    crowded: bool,
}

#[derive(Default)]
struct Set {
    uid: String,
    generation: i64,
    hash: String,
    shares: BTreeMap<String, Share>,
    /// Deletions of failed pods by node, for the back-off.
    failures: BTreeMap<String, u32>,
    pending: BTreeSet<String>,
}

pub(super) struct DaemonSets {
    caches: Arc<Caches>,
    sets: Mutex<BTreeMap<String, Set>>,
    queue: Queue<Key>,
}

/// The tolerations that the controller adds to every daemon pod.
fn automatic(host_network: bool) -> Vec<Value> {
    let mut list = vec![
        json!({"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}),
        json!({"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}),
        json!({"key": "node.kubernetes.io/disk-pressure", "operator": "Exists", "effect": "NoSchedule"}),
        json!({"key": "node.kubernetes.io/memory-pressure", "operator": "Exists", "effect": "NoSchedule"}),
        json!({"key": "node.kubernetes.io/pid-pressure", "operator": "Exists", "effect": "NoSchedule"}),
        json!({"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}),
    ];
    if host_network {
        list.push(json!({"key": "node.kubernetes.io/network-unavailable", "operator": "Exists", "effect": "NoSchedule"}));
    }
    list
}

/// Whether the set's pod should be started on the node, and whether one that is there may stay.
#[must_use]
pub fn should_run(template: &PodSpec, node: &Node) -> (bool, bool) {
    let named = template.node_name.is_empty() || template.node_name == node.metadata.name;
    if !named || !pod_matches_node(template, node) {
        return (false, false);
    }
    let added = automatic(template.host_network);
    let mut tolerations = template.tolerations.clone();
    tolerations.extend(added.into_iter().filter_map(|value| serde_json::from_value::<Toleration>(value).ok()));
    let no_execute: Option<&Taint> = untolerated(node, &tolerations, &["NoExecute"]);
    let any = untolerated(node, &tolerations, &["NoSchedule", "NoExecute"]);
    (any.is_none(), no_execute.is_none())
}

fn template_spec(set: &DaemonSet) -> PodSpec {
    set.spec.template.get("spec").and_then(|spec| serde_json::from_value(spec.clone()).ok()).unwrap_or_default()
}

impl DaemonSets {
    pub(super) fn start(caches: &Arc<Caches>) {
        let controller = Arc::new(Self { caches: caches.clone(), sets: Mutex::default(), queue: Queue::new() });
        let queue = controller.queue.clone();
        caches.daemon_sets.on_change(Arc::new(move |old: Option<&Arc<DaemonSet>>, new: Option<&Arc<DaemonSet>>| {
            let version = |set: &Arc<DaemonSet>| (set.metadata.uid.clone(), set.metadata.generation, set.metadata.deleting());
            if old.map(version) != new.map(version)
                && let Some(set) = new.or(old)
            {
                queue.add(Key::Set(set.metadata.key()));
            }
        }));
        let weak = Arc::downgrade(&controller);
        caches.nodes.on_change(Arc::new(move |old: Option<&Arc<Node>>, new: Option<&Arc<Node>>| {
            let relevant = |node: &Arc<Node>| (node.metadata.uid.clone(), node.metadata.labels.clone(), node.spec.taints.clone());
            if let (Some(controller), Some(node)) = (weak.upgrade(), new.or(old))
                && old.map(relevant) != new.map(relevant)
            {
                for set in controller.caches.daemon_sets.keys() {
                    controller.queue.add(Key::Node(set, node.metadata.name.clone()));
                }
            }
        }));
        let queue = controller.queue.clone();
        caches.pods.on_change(Arc::new(move |old: Option<&Arc<Pod>>, new: Option<&Arc<Pod>>| {
            for pod in old.into_iter().chain(new) {
                if let (Some(set), Some(node)) = (owner_key(&pod.metadata, "DaemonSet"), pod.target_node()) {
                    queue.add(Key::Node(set, node.to_owned()));
                }
            }
        }));
        let weak = Arc::downgrade(&controller);
        caches.pods.on_change(Arc::new(move |old: Option<&Arc<Pod>>, new: Option<&Arc<Pod>>| {
            if let (true, Some(pod), Some(controller)) = (changes_hands(old, new), new, weak.upgrade()) {
                for set in controller.caches.daemon_sets.in_namespace(pod.metadata.ns()) {
                    if labels_match(&set.spec.selector, &pod.metadata.labels) {
                        controller.queue.add(Key::Set(set.metadata.key()));
                    }
                }
            }
        }));
        let worker = controller.clone();
        controller.queue.run(&caches.tasks, "daemonset", 16, move |key| {
            let controller = worker.clone();
            async move { controller.sync(key).await }
        });
    }

    async fn sync(&self, key: Key) -> kube::Result<Option<Duration>> {
        match key {
            Key::Set(set) => self.sync_set(&set).await,
            Key::Node(set, node) => self.sync_node(&set, &node).await,
            Key::Sums(set) => self.sync_sums(&set).await,
        }
    }

    /// A set that exists, is not being deleted, and whose revision is known.
    fn current(&self, key: &str) -> Option<Arc<DaemonSet>> {
        self.caches.daemon_sets.get(key).filter(|set| !set.metadata.deleting())
    }

    async fn sync_set(&self, key: &str) -> kube::Result<Option<Duration>> {
        let Some(set) = self.caches.daemon_sets.get(key) else {
            lock(&self.sets).remove(key);
            return Ok(None);
        };
        if set.metadata.deleting() {
            return Ok(None);
        }
        adoption::claim(&self.caches, &set.metadata, DaemonSet::KIND.api_version, DaemonSet::KIND.kind, &set.spec.selector)
            .await?;
        let (version, kind) = (DaemonSet::KIND.api_version, DaemonSet::KIND.kind);
        adoption::claim_of(&self.caches.revisions, &set.metadata, version, kind, &set.spec.selector).await?;
        let hash = self.current_revision(&set).await?;
        let nodes = self.caches.nodes.keys();
        {
            let mut sets = lock(&self.sets);
            let state = sets.entry(key.to_owned()).or_default();
            if state.uid != set.metadata.uid {
                *state = Set { uid: set.metadata.uid.clone(), ..Set::default() };
            }
            state.hash = hash;
            state.generation = set.metadata.generation;
            // The generation counts as observed only when every node was looked at with it.
            state.pending = nodes.iter().cloned().collect();
        }
        for node in nodes {
            self.queue.add(Key::Node(key.to_owned(), node));
        }
        self.queue.add(Key::Sums(key.to_owned()));
        Ok(None)
    }

    /// Finds or makes the revision of the present template, the highest one, and returns its hash.
    async fn current_revision(&self, set: &DaemonSet) -> kube::Result<String> {
        let owned = self.caches.revisions.indexed(BY_OWNER, &set.metadata.uid);
        let newest = owned.iter().map(|revision| revision.revision).max().unwrap_or(0);
        let found = owned
            .iter()
            .filter(|revision| template_of(&revision.data) == set.spec.template)
            .max_by_key(|revision| revision.revision);
        if let Some(revision) = found {
            if revision.revision < newest {
                // A rollback: the old object is used again, its hash stays.
                self.caches.revisions.merge(&revision.metadata.key(), "", &json!({"revision": newest + 1})).await?;
            }
            return Ok(revision.metadata.labels.get(HASH).cloned().unwrap_or_default());
        }
        let mut collisions = 0;
        loop {
            let hash = content_hash(&set.spec.template, collisions);
            let mut labels = set.spec.template.pointer("/metadata/labels").cloned().unwrap_or_else(|| json!({}));
            labels[HASH] = json!(hash);
            let mut template = set.spec.template.clone();
            template["$patch"] = json!("replace");
            let body = json!({
                "metadata": {"name": format!("{}-{hash}", set.metadata.name), "namespace": set.metadata.ns(), "labels": labels,
                    "ownerReferences": controller_of("apps/v1", "DaemonSet", &set.metadata)},
                "revision": newest + 1, "data": {"spec": {"template": template}},
            });
            match self.caches.revisions.create(Some(set.metadata.ns()), body).await {
                Ok(_) => return Ok(hash),
                Err(kube::Error::Api(status)) if status.code == 409 && collisions < 5 => collisions += 1,
                Err(error) => return Err(error),
            }
        }
    }

    async fn collect_revisions(&self, set: &DaemonSet, owned: &[Arc<ControllerRevision>], current: &str) -> kube::Result<()> {
        let limit = set.spec.revision_history_limit.unwrap_or(10);
        let is_current = |r: &Arc<ControllerRevision>| r.metadata.labels.get(HASH).is_some_and(|hash| hash == current);
        let excess = owned.iter().filter(|r| !is_current(r)).count().saturating_sub(limit);
        if excess == 0 {
            return Ok(());
        }
        let pods = self.caches.pods.indexed(BY_OWNER, &set.metadata.uid);
        let live: BTreeSet<&str> =
            pods.iter().filter_map(|pod| pod.metadata.labels.get(HASH)).map(String::as_str).chain([current]).collect();
        let mut old: Vec<_> =
            owned.iter().filter(|r| r.metadata.labels.get(HASH).is_none_or(|hash| !live.contains(hash.as_str()))).collect();
        old.sort_by_key(|revision| revision.revision);
        for revision in old.into_iter().take(excess) {
            self.caches.revisions.delete(&revision.metadata, None).await?;
        }
        Ok(())
    }

    async fn sync_node(&self, key: &str, node: &str) -> kube::Result<Option<Duration>> {
        let Some(set) = self.current(key) else { return Ok(None) };
        let let_go = |pod: &Arc<Pod>| !labels_match(&set.spec.selector, &pod.metadata.labels);
        if self.caches.pods.indexed(BY_OWNER_AND_NODE, &owner_and_node(&set.metadata.uid, node)).iter().any(let_go) {
            adoption::claim(&self.caches, &set.metadata, DaemonSet::KIND.api_version, DaemonSet::KIND.kind, &set.spec.selector)
                .await?;
        }
        let hash = match lock(&self.sets).get(key) {
            Some(state) if state.uid == set.metadata.uid && state.generation == set.metadata.generation => state.hash.clone(),
            // The set's own turn comes, and brings this node back.
            _ => return Ok(None),
        };
        let object = self.caches.nodes.get(node);
        let all = self.caches.pods.indexed(BY_OWNER_AND_NODE, &owner_and_node(&set.metadata.uid, node));
        let (run, stay) = object.as_ref().map_or((false, false), |node| should_run(&template_spec(&set), node));
        let present: Vec<&Arc<Pod>> = all.iter().filter(|pod| !(pod.terminal() && pod.metadata.deleting())).collect();
        let mut again = None;
        if object.is_some() && stay {
            again = self.prune(&set, &hash, node, &present).await?;
        } else {
            // What is bound to a node that is gone is left to the pod garbage collector.
            let ours = |pod: &&&Arc<Pod>| object.is_some() || pod.spec.node_name.is_empty();
            for pod in present.iter().filter(ours).filter(|pod| !pod.metadata.deleting()) {
                self.caches.pods.delete(&pod.metadata, None).await?;
            }
        }
        if present.is_empty() && run {
            self.create(&set, node, &hash).await?;
        }
        let (share, available_in) = self.share(&set, &hash, run, &all);
        let changed = {
            let mut sets = lock(&self.sets);
            let Some(state) = sets.get_mut(key) else { return Ok(None) };
            let last = state.pending.remove(node) && state.pending.is_empty();
            if share.ready {
                state.failures.remove(node);
            }
            let known = state.shares.get(node).cloned().unwrap_or_default();
            if object.is_none() && all.is_empty() {
                state.shares.remove(node);
            } else {
                state.shares.insert(node.to_owned(), share.clone());
            }
            known != share || last
        };
        if changed {
            self.queue.add_after(Key::Sums(key.to_owned()), STATUS_DELAY);
        }
        Ok(again.into_iter().chain(available_in).min())
    }

    /// Deletes finished pods (failed ones with a back-off), and of several all but the oldest, or with surge all but the oldest of each
    /// revision, as long as the old one still serves and the new one does not yet.
    async fn prune(&self, set: &DaemonSet, hash: &str, node: &str, present: &[&Arc<Pod>]) -> kube::Result<Option<Duration>> {
        let key = set.metadata.key();
        let mut running: Vec<&Arc<Pod>> = Vec::new();
        let mut again = None;
        for pod in present.iter().filter(|pod| !pod.metadata.deleting()) {
            match pod.status.phase.as_str() {
                "Succeeded" => self.caches.pods.delete(&pod.metadata, None).await?,
                "Failed" => match self.failed(&key, node, &pod.metadata) {
                    None => self.caches.pods.delete(&pod.metadata, None).await?,
                    wait => again = wait,
                },
                _ => running.push(pod),
            }
        }
        running.sort_by(|one, two| {
            (&one.metadata.creation_timestamp, &one.metadata.name).cmp(&(&two.metadata.creation_timestamp, &two.metadata.name))
        });
        // Bound pods first: an unbound twin is the one to go.
        running.sort_by_key(|pod| pod.spec.node_name.is_empty());
        let mut excess: Vec<&Arc<Pod>> = Vec::new();
        if surges(set) {
            let is_new = |pod: &&&Arc<Pod>| pod.metadata.labels.get(HASH).is_some_and(|own| own == hash);
            let (new, old): (Vec<&Arc<Pod>>, Vec<&Arc<Pod>>) = running.iter().partition(is_new);
            excess.extend(new.iter().skip(1).chain(old.iter().skip(1)));
            if let (Some(new), Some(old)) = (new.first(), old.first())
                && (!old.ready() || self.available(set, new).0)
            {
                excess.push(old);
            }
        } else {
            excess.extend(running.iter().skip(1));
        }
        for pod in excess {
            self.caches.pods.delete(&pod.metadata, None).await?;
        }
        Ok(again)
    }

    /// How long a failed pod still stays; counts the failure when its time has come.
    fn failed(&self, key: &str, node: &str, meta: &Meta) -> Option<Duration> {
        let mut sets = lock(&self.sets);
        let failures = sets.get_mut(key)?.failures.entry(node.to_owned()).or_insert(0);
        let backoff = if *failures == 0 {
            Duration::ZERO
        } else {
            FAILED_FIRST.saturating_mul(1 << (*failures - 1).min(10)).min(FAILED_LAST)
        };
        let created: Option<jiff::Timestamp> = meta.creation_timestamp.as_ref().and_then(|text| text.parse().ok());
        let age = created
            .and_then(|created| Duration::try_from(self.caches.clock.now().duration_since(created)).ok())
            .unwrap_or_default();
        if age >= backoff {
            *failures += 1;
            return None;
        }
        Some(backoff.checked_sub(age).unwrap_or(FAILED_FIRST))
    }

    async fn create(&self, set: &DaemonSet, node: &str, hash: &str) -> kube::Result<()> {
        let generation = set
            .metadata
            .annotations
            .get("deprecated.daemonset.template.generation")
            .cloned()
            .unwrap_or_else(|| set.metadata.generation.to_string());
        let labels = [(HASH, hash), (GENERATION, generation.as_str())];
        let mut pod = pod_from(
            &set.spec.template,
            DaemonSet::KIND.api_version,
            "DaemonSet",
            &set.metadata,
            &format!("{}-", set.metadata.name),
            &labels,
        );
        let field = json!({"key": "metadata.name", "operator": "In", "values": [node]});
        let required = "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
        let spec = &mut pod["spec"];
        match spec.pointer_mut(required).and_then(Value::as_array_mut) {
            Some(terms) if !terms.is_empty() => {
                for term in terms {
                    term["matchFields"] = json!([field]);
                }
            }
            _ => {
                if !spec["affinity"].is_object() {
                    spec["affinity"] = json!({});
                }
                if !spec["affinity"]["nodeAffinity"].is_object() {
                    spec["affinity"]["nodeAffinity"] = json!({});
                }
                spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
                    json!({"nodeSelectorTerms": [{"matchFields": [field]}]});
            }
        }
        let host_network = spec["hostNetwork"].as_bool().unwrap_or(false);
        let mut tolerations = spec["tolerations"].as_array().cloned().unwrap_or_default();
        for toleration in automatic(host_network) {
            if !tolerations.contains(&toleration) {
                tolerations.push(toleration);
            }
        }
        spec["tolerations"] = json!(tolerations);
        raced(self.caches.pods.create(Some(set.metadata.ns()), pod).await).map(|_| ())
    }

    /// Whether a pod has been ready for long enough, and when it will have been.
    fn available(&self, set: &DaemonSet, pod: &Pod) -> (bool, Option<Duration>) {
        if !pod.ready() || set.spec.min_ready_seconds == 0 {
            return (pod.ready(), None);
        }
        let since = super::records::condition(&pod.status.conditions, "Ready")
            .and_then(|ready| ready.last_transition_time.as_ref()?.parse::<jiff::Timestamp>().ok());
        let age = since.map_or(0, |since| self.caches.clock.now().duration_since(since).as_secs());
        if age >= set.spec.min_ready_seconds {
            return (true, None);
        }
        (false, Some(Duration::from_secs((set.spec.min_ready_seconds - age).max(1) as u64)))
    }

    fn share(&self, set: &DaemonSet, hash: &str, should_run: bool, pods: &[Arc<Pod>]) -> (Share, Option<Duration>) {
        let mut live: Vec<&Arc<Pod>> = pods.iter().filter(|pod| !pod.metadata.deleting() && !pod.terminal()).collect();
        live.sort_by(|one, two| {
            (&one.metadata.creation_timestamp, &one.metadata.name).cmp(&(&two.metadata.creation_timestamp, &two.metadata.name))
        });
        let generation = set.metadata.annotations.get("deprecated.daemonset.template.generation");
        let is_new = |pod: &&Arc<Pod>| {
            let labels = &pod.metadata.labels;
            labels.get(HASH).is_some_and(|own| own == hash) || (generation.is_some() && labels.get(GENERATION) == generation)
        };
        let mut share = Share { should_run, ..Share::default() };
        let mut again = None;
        if let Some(pod) = live.first() {
            share.has_pod = true;
            share.ready = pod.ready();
            (share.available, again) = self.available(set, pod);
            share.updated = is_new(pod);
        }
        let (new, old): (Vec<&Arc<Pod>>, Vec<&Arc<Pod>>) = live.into_iter().partition(is_new);
        share.crowded = new.len() > 1 || old.len() > 1;
        if let Some(pod) = new.first() {
            let (available, later) = self.available(set, pod);
            share.new = Some(available);
            again = again.into_iter().chain(later).min();
        }
        if let Some(pod) = old.first() {
            share.old = Some(((pod.metadata.key(), pod.metadata.uid.clone()), self.available(set, pod).0));
        }
        (share, again)
    }

    async fn sync_sums(&self, key: &str) -> kube::Result<Option<Duration>> {
        let Some(set) = self.current(key) else { return Ok(None) };
        let (status, (victims, additional), hash, settled) = {
            let sets = lock(&self.sets);
            let Some(state) = sets.get(key).filter(|state| state.uid == set.metadata.uid) else { return Ok(None) };
            let count = |test: fn(&Share) -> bool| state.shares.values().filter(|share| test(share)).count() as i64;
            let desired = count(|s| s.should_run);
            let available = count(|s| s.should_run && s.available);
            let observed =
                if state.pending.is_empty() { state.generation } else { set.status["observedGeneration"].as_i64().unwrap_or(0) };
            let status = json!({
                "observedGeneration": observed, "desiredNumberScheduled": desired, "currentNumberScheduled": count(|s| s.should_run && s.has_pod),
                "numberMisscheduled": count(|s| !s.should_run && s.has_pod), "numberReady": count(|s| s.should_run && s.ready),
                "numberAvailable": available, "numberUnavailable": desired - available, "updatedNumberScheduled": count(|s| s.should_run && s.updated),
            });
            (status, rolling(&set, state, desired), state.hash.clone(), state.pending.is_empty())
        };
        let same = status
            .as_object()
            .is_some_and(|fields| fields.iter().all(|(name, value)| set.status.get(name).unwrap_or(&json!(0)) == value));
        if !same {
            raced(
                self.caches
                    .daemon_sets
                    .merge(key, "status", &json!({"metadata": {"uid": set.metadata.uid}, "status": status}))
                    .await,
            )?;
        }
        if settled {
            for (pod, uid) in victims {
                if let Some(pod) = self.caches.pods.get_uid(&pod, &uid).filter(|pod| !pod.metadata.deleting()) {
                    self.caches.pods.delete(&pod.metadata, None).await?;
                }
            }
            let owned = self.caches.revisions.indexed(BY_OWNER, &set.metadata.uid);
            self.collect_revisions(&set, &owned, &hash).await?;
            for node in additional {
                self.create(&set, &node, &hash).await?;
            }
        }
        Ok(None)
    }
}

/// Whether a new pod may come before the old one goes.
fn surges(set: &DaemonSet) -> bool {
    let strategy = &set.spec.update_strategy;
    let none =
        |value: &Value| matches!(value, Value::Null) || value == &json!(0) || value == &json!("0%") || value == &json!("0");
    strategy.kind == "RollingUpdate" && strategy.rolling_update.max_surge.as_ref().is_some_and(|value| !none(value))
}

/// What the rolling update does now: pods to delete, and nodes that get a second one. As `rollingUpdate` of `pkg/controller/daemon/update.go`.
fn rolling(set: &DaemonSet, state: &Set, desired: i64) -> (Vec<(String, String)>, Vec<String>) {
    let strategy = &set.spec.update_strategy;
    if !matches!(strategy.kind.as_str(), "RollingUpdate" | "") {
        return (Vec::new(), Vec::new());
    }
    let count = |value: &Option<Value>| value.as_ref().and_then(|value| int_or_percent(value, desired));
    let shares = || state.shares.iter().filter(|(_, share)| share.should_run);
    let mut victims = Vec::new();
    if surges(set) {
        let mut allowed = count(&strategy.rolling_update.max_surge).unwrap_or(0);
        allowed -=
            shares().filter(|(_, share)| share.crowded || (share.old.is_some() && share.new == Some(false))).count() as i64;
        let mut additional = Vec::new();
        for (node, share) in shares().filter(|(_, share)| !share.crowded) {
            match (&share.old, share.new) {
                (Some((old, _)), Some(true)) => victims.push(old.clone()),
                // An old one that is down anyway is replaced at once.
                (Some((_, false)), None) => additional.push(node.clone()),
                (Some((_, true)), None) if allowed > 0 => {
                    allowed -= 1;
                    additional.push(node.clone());
                }
                _ => {}
            }
        }
        return (victims, additional);
    }
    let limit = count(&strategy.rolling_update.max_unavailable).unwrap_or(1);
    let down = shares().filter(|(_, share)| !share.available).count() as i64;
    let mut allowed = limit - down;
    for share in state.shares.values() {
        let (Some((old, available)), None) = (&share.old, share.new) else { continue };
        if !available {
            victims.push(old.clone());
        } else if allowed > 0 {
            allowed -= 1;
            victims.push(old.clone());
        }
    }
    (victims, Vec::new())
}
