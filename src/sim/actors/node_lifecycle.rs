//! Node lifecycle, taint eviction and pod garbage collection: what happens to nodes that stop reporting, to nodes that are
//! gone, and to the pods on them.

use super::caches::{BY_NODE, Caches};
use super::informer::raced;
use super::queue::{Queue, instant, lock};
use super::records::{Lease, Node, Pod, Record, Taint};
use super::selectors::covers;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
/// What the DefaultTolerationSeconds admission plugin adds to pods that say nothing.
const DEFAULT_STAY: Duration = Duration::from_secs(300);

/// How long nodes may be silent, and how long pods of vanished nodes stay.
#[derive(Clone, Copy, Debug)]
pub struct LifecycleOptions {
    /// Without a renewed Lease for this long a node turns Unknown (`--node-monitor-grace-period`).
    pub grace: Duration,
    /// Pods of a node that is gone are removed by force after this time.
    pub quarantine: Duration,
    /// How long the NoExecute taints of a node's readiness follow those of NoSchedule: the real controller sees to them in its next round,
    /// and there is one every 5 s. Nothing: both in one write.
    pub execute_lag: Duration,
}

impl Default for LifecycleOptions {
    fn default() -> Self {
        Self { grace: Duration::from_secs(50), quarantine: Duration::from_secs(40), execute_lag: Duration::ZERO }
    }
}

pub(super) struct Lifecycle {
    caches: Arc<Caches>,
    options: LifecycleOptions,
    /// When a node's Lease (or the node itself) was last seen to change, by our own clock.
    seen: Mutex<BTreeMap<String, Instant>>,
    /// What a node's readiness was last, and since when.
    turned: Mutex<BTreeMap<String, (String, Instant)>>,
    /// Since when a pod's node is missing.
    missing: Mutex<BTreeMap<String, Instant>>,
    /// Since when a pod must leave for a NoExecute taint, by pod UID and taint.
    leaving: Mutex<BTreeMap<(String, String), Instant>>,
    nodes: Queue<String>,
    pods: Queue<String>,
}

impl Lifecycle {
    pub(super) fn start(caches: &Arc<Caches>, options: LifecycleOptions) {
        let lifecycle = Arc::new(Self {
            caches: caches.clone(),
            options,
            seen: Mutex::default(),
            turned: Mutex::default(),
            missing: Mutex::default(),
            leaving: Mutex::default(),
            nodes: Queue::new(),
            pods: Queue::new(),
        });
        let weak = Arc::downgrade(&lifecycle);
        caches.leases.on_change(Arc::new(move |_: Option<&Arc<Lease>>, new: Option<&Arc<Lease>>| {
            let (Some(this), Some(lease)) = (weak.upgrade(), new.filter(|lease| lease.metadata.ns() == "kube-node-lease")) else {
                return;
            };
            let silent = lock(&this.seen).insert(lease.metadata.name.clone(), instant()).is_none();
            let unknown = this.caches.nodes.get(&lease.metadata.name).is_some_and(|node| node.ready() == "Unknown");
            if silent || unknown {
                this.nodes.add(lease.metadata.name.clone());
            }
        }));
        let weak = Arc::downgrade(&lifecycle);
        caches.nodes.on_change(Arc::new(move |old: Option<&Arc<Node>>, new: Option<&Arc<Node>>| {
            let (Some(this), Some(node)) = (weak.upgrade(), new.or(old)) else { return };
            let name = &node.metadata.name;
            lock(&this.seen).insert(name.clone(), instant());
            let relevant = |node: &Arc<Node>| (node.metadata.uid.clone(), node.ready().to_owned(), node.spec.clone());
            if old.map(relevant) == new.map(relevant) {
                return;
            }
            this.nodes.add(name.clone());
            let no_execute = |node: &Arc<Node>| {
                node.spec.taints.iter().filter(|taint| taint.effect == "NoExecute").cloned().collect::<Vec<_>>()
            };
            if new.is_none() || old.map(no_execute).unwrap_or_default() != new.map(no_execute).unwrap_or_default() {
                for pod in this.caches.pods.indexed(BY_NODE, name) {
                    this.pods.add(pod.metadata.key());
                }
            }
        }));
        let weak = Arc::downgrade(&lifecycle);
        caches.pods.on_change(Arc::new(move |old: Option<&Arc<Pod>>, new: Option<&Arc<Pod>>| {
            let Some(this) = weak.upgrade() else { return };
            let Some(pod) = new else {
                if let Some(old) = old {
                    lock(&this.missing).remove(&old.metadata.uid);
                    lock(&this.leaving).retain(|(uid, _), _| *uid != old.metadata.uid);
                }
                return;
            };
            let bound = !pod.spec.node_name.is_empty()
                && old.is_none_or(|old| old.spec.node_name.is_empty() || old.metadata.uid != pod.metadata.uid);
            if bound || (pod.metadata.deleting() && pod.spec.node_name.is_empty()) {
                this.pods.add(pod.metadata.key());
            }
        }));
        let worker = lifecycle.clone();
        lifecycle.nodes.run(&caches.tasks, "node-lifecycle", 8, move |name| {
            let this = worker.clone();
            async move { this.sync_node(&name).await }
        });
        let worker = lifecycle.clone();
        lifecycle.pods.run(&caches.tasks, "taint-eviction", 8, move |key| {
            let this = worker.clone();
            async move { this.sync_pod(&key).await }
        });
    }

    async fn sync_node(&self, name: &str) -> kube::Result<Option<Duration>> {
        let Some(node) = self.caches.nodes.get(name) else {
            lock(&self.seen).remove(name);
            lock(&self.turned).remove(name);
            return Ok(None);
        };
        let since = *lock(&self.seen).entry(name.to_owned()).or_insert_with(instant);
        let silent = since.elapsed();
        let mut ready = node.ready().to_owned();
        if silent >= self.options.grace && ready != "Unknown" {
            ready = "Unknown".to_owned();
            let time = self.caches.clock.time();
            let unknown = |kind: &str| json!({"type": kind, "status": "Unknown", "reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status.", "lastTransitionTime": time});
            let conditions = [unknown("Ready"), unknown("MemoryPressure"), unknown("DiskPressure"), unknown("PIDPressure")];
            let patch = json!({"metadata": {"uid": node.metadata.uid}, "status": {"conditions": conditions}});
            raced(self.caches.nodes.strategic(name, "status", &patch).await)?;
            let message = "Kubelet stopped posting node status.";
            super::recorder::warn(&self.caches, Node::KIND, &node.metadata, "node-controller", "NodeNotReady", message).await;
        }
        if ready != "True" {
            self.mark_pods(name).await?;
        }
        let lag = self.execute_lag(name, &ready);
        self.taint(&node, &ready, lag.is_zero()).await?;
        let left = self.options.grace.saturating_sub(silent).max(Duration::from_millis(500));
        Ok(match (lag.is_zero(), ready.as_str()) {
            (false, _) => Some(lag),
            (true, "Unknown") => None,
            (true, _) => Some(left),
        })
    }

    /// How long it still takes until the NoExecute taints follow.
    fn execute_lag(&self, node: &str, ready: &str) -> Duration {
        let mut turned = lock(&self.turned);
        let (known, since) = turned.entry(node.to_owned()).or_insert_with(|| (ready.to_owned(), instant()));
        if known != ready {
            (*known, *since) = (ready.to_owned(), instant());
        }
        self.options.execute_lag.saturating_sub(since.elapsed())
    }

    /// Pods of a node that is not Ready are not Ready.
    async fn mark_pods(&self, node: &str) -> kube::Result<()> {
        for pod in self.caches.pods.indexed(BY_NODE, node).iter().filter(|pod| pod.ready()) {
            let condition = json!({"type": "Ready", "status": "False", "reason": "NodeNotReady", "lastTransitionTime": self.caches.clock.time()});
            let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}});
            raced(self.caches.pods.strategic(&pod.metadata.key(), "status", &patch).await)?;
        }
        Ok(())
    }

    /// Keeps the taints that stand for conditions and for `spec.unschedulable`.
    async fn taint(&self, node: &Node, ready: &str, execute: bool) -> kube::Result<()> {
        let ours = [NOT_READY, UNREACHABLE, UNSCHEDULABLE];
        let mut taints: Vec<Taint> = node.spec.taints.clone();
        let mut want: Vec<(&str, &str)> = Vec::new();
        match ready {
            "True" => {}
            "Unknown" => want.extend([(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")]),
            _ => want.extend([(NOT_READY, "NoSchedule"), (NOT_READY, "NoExecute")]),
        }
        if node.spec.unschedulable {
            want.push((UNSCHEDULABLE, "NoSchedule"));
        }
        // Those of NoExecute stay as they are until their round.
        let late = |effect: &str| effect == "NoExecute" && !execute;
        want.retain(|(_, effect)| !late(effect));
        taints.retain(|taint| {
            late(&taint.effect)
                || !ours.contains(&taint.key.as_str())
                || want.contains(&(taint.key.as_str(), taint.effect.as_str()))
        });
        for (key, effect) in want {
            if !taints.iter().any(|taint| taint.key == key && taint.effect == effect) {
                let time_added = Some(self.caches.clock.time());
                taints.push(Taint { key: key.to_owned(), value: String::new(), effect: effect.to_owned(), time_added });
            }
        }
        if taints == node.spec.taints {
            return Ok(());
        }
        let list = if taints.is_empty() { serde_json::Value::Null } else { json!(taints) };
        let patch = json!({"metadata": {"uid": node.metadata.uid, "resourceVersion": node.metadata.resource_version}, "spec": {"taints": list}});
        match self.caches.nodes.merge(&node.metadata.name, "", &patch).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            // The node changed meanwhile; its event brings it back, a retry makes sure.
            Err(error) => Err(error),
        }
    }

    async fn sync_pod(&self, key: &str) -> kube::Result<Option<Duration>> {
        let Some(pod) = self.caches.pods.get(key) else { return Ok(None) };
        let meta = &pod.metadata;
        if pod.spec.node_name.is_empty() {
            if meta.deleting() && meta.finalizers.is_empty() {
                self.caches.pods.delete(meta, Some(0)).await?;
            }
            return Ok(None);
        }
        let Some(node) = self.caches.nodes.get(&pod.spec.node_name) else {
            let since = *lock(&self.missing).entry(meta.uid.clone()).or_insert_with(instant);
            let gone = since.elapsed();
            if gone < self.options.quarantine {
                return Ok(Some(self.options.quarantine - gone));
            }
            // The node may have come back unnoticed: pod GC asks the API server before it uses force.
            if self.caches.nodes.read(&pod.spec.node_name).await?.is_none() {
                if !pod.terminal() {
                    let condition = json!({"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC",
                        "message": "PodGC: node no longer exists", "lastTransitionTime": self.caches.clock.time()});
                    let patch = json!({"metadata": {"uid": meta.uid}, "status": {"phase": "Failed", "conditions": [condition]}});
                    raced(self.caches.pods.strategic(key, "status", &patch).await)?;
                }
                self.caches.pods.delete(meta, Some(0)).await?;
            }
            return Ok(Some(self.options.quarantine));
        };
        lock(&self.missing).remove(&meta.uid);
        if meta.deleting() {
            return Ok(None);
        }
        let mut wait: Option<Duration> = None;
        for taint in node.spec.taints.iter().filter(|taint| taint.effect == "NoExecute") {
            let stay = stay(&pod, taint);
            let entry = (meta.uid.clone(), taint.key.clone());
            let since = *lock(&self.leaving).entry(entry).or_insert_with(instant);
            if let Some(stay) = stay {
                let left = stay.saturating_sub(since.elapsed());
                if left.is_zero() {
                    self.caches.pods.delete(meta, None).await?;
                    return Ok(None);
                }
                wait = Some(wait.map_or(left, |known| known.min(left)));
            }
        }
        let tainted: Vec<&String> =
            node.spec.taints.iter().filter(|taint| taint.effect == "NoExecute").map(|taint| &taint.key).collect();
        lock(&self.leaving).retain(|(uid, key), _| *uid != meta.uid || tainted.contains(&key));
        Ok(wait)
    }
}

/// How long a pod may stay under a NoExecute taint; `None` means for ever.
fn stay(pod: &Pod, taint: &Taint) -> Option<Duration> {
    let mut covering = pod.spec.tolerations.iter().filter(|toleration| covers(toleration, taint)).peekable();
    if covering.peek().is_none() {
        let default = taint.key == NOT_READY || taint.key == UNREACHABLE;
        return Some(if default { DEFAULT_STAY } else { Duration::ZERO });
    }
    let seconds: Vec<Option<i64>> = covering.map(|toleration| toleration.toleration_seconds).collect();
    seconds
        .into_iter()
        .collect::<Option<Vec<i64>>>()
        .and_then(|all| all.into_iter().min())
        .map(|seconds| Duration::from_secs(seconds.max(0) as u64))
}
