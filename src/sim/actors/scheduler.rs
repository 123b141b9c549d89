//! The scheduler: picks a node for each unbound pod, from dirty keys, with per-node usage kept between decisions.
//! Binding happens apart from deciding and, when options say so, minutes later: nobody looks at the node again then.

use super::allocation::{Claims, Plan as ClaimPlan};
use super::caches::{BY_NODE, Caches};
use super::clock::Range;
use super::informer::raced;
use super::quantity::Amounts;
use super::queue::{Queue, lock};
use super::records::{Node, Pod, Record, Taint};
use super::selectors::{node_selector_matches, pod_matches_node, tolerated, untolerated};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How the scheduler behaves.
#[derive(Clone, Debug)]
pub struct SchedulerOptions {
    /// From the decision to the binding.
    pub bind: Range,
    /// Of a thousand pods this many bind late instead (a slow PreBind plugin), after this time.
    pub late_permille: u64,
    pub late: Range,
    /// Writes `status.nominatedNodeName` before a late binding.
    pub nominate: bool,
    /// Of the feasible nodes this many are compared; the one with the fewest pods wins.
    pub compare: usize,
}

impl Default for SchedulerOptions {
    fn default() -> Self {
        Self { bind: Range::ZERO, late_permille: 0, late: Range::millis(30_000, 180_000), nominate: true, compare: 8 }
    }
}

#[derive(Clone)]
struct Assumed {
    key: String,
    node: String,
    requests: Amounts,
    claims: Vec<ClaimPlan>,
}

#[derive(Default)]
struct State {
    /// Used amounts by node; dropped when a pod of the node changes.
    usage: BTreeMap<String, Amounts>,
    /// Decided and not yet seen as bound, by pod UID.
    assumed: BTreeMap<String, Assumed>,
    /// Pods that fit nowhere, with the one node they are made for.
    parked: BTreeMap<String, Option<String>>,
    /// Nodes that changed since a parked pod was looked at.
    hints: BTreeMap<String, BTreeSet<String>>,
    cursor: usize,
}

pub(super) struct Scheduler {
    caches: Arc<Caches>,
    options: SchedulerOptions,
    state: Mutex<State>,
    queue: Queue<String>,
    binds: Queue<String>,
}

/// Requests with the pod slot itself.
fn wanted(pod: &Pod) -> Amounts {
    let mut amounts = pod.requests();
    amounts.set("pods", 1000);
    amounts
}

impl Scheduler {
    pub(super) fn start(caches: &Arc<Caches>, options: SchedulerOptions) {
        let scheduler =
            Arc::new(Self { caches: caches.clone(), options, state: Mutex::default(), queue: Queue::new(), binds: Queue::new() });
        scheduler.watch();
        let decide = scheduler.clone();
        scheduler.queue.run(&caches.tasks, "scheduler", 1, move |key| {
            let scheduler = decide.clone();
            async move { scheduler.decide(&key).await }
        });
        let bind = scheduler.clone();
        scheduler.binds.run(&caches.tasks, "binding", 32, move |uid| {
            let scheduler = bind.clone();
            async move { scheduler.bind(&uid).await }
        });
    }

    fn watch(self: &Arc<Self>) {
        let scheduler = Arc::downgrade(self);
        self.caches.pods.on_change(Arc::new(move |old, new| {
            if let Some(scheduler) = scheduler.upgrade() {
                scheduler.pod_changed(old.map(AsRef::as_ref), new.map(AsRef::as_ref));
            }
        }));
        let scheduler = Arc::downgrade(self);
        self.caches.nodes.on_change(Arc::new(move |old: Option<&Arc<Node>>, new: Option<&Arc<Node>>| {
            let same = |old: &Arc<Node>, new: &Arc<Node>| {
                old.metadata.labels == new.metadata.labels
                    && old.spec == new.spec
                    && old.status.allocatable == new.status.allocatable
            };
            if let (Some(scheduler), Some(node)) = (scheduler.upgrade(), new)
                && !old.is_some_and(|old| same(old, node))
            {
                scheduler.hint(&node.metadata.name);
            }
        }));
        // Claims, slices, volumes: rare, so every parked pod is looked at again.
        macro_rules! wake {
            ($store:ident) => {
                let scheduler = Arc::downgrade(self);
                self.caches.$store.on_change(Arc::new(move |_, _| {
                    if let Some(scheduler) = scheduler.upgrade() {
                        scheduler.wake_all();
                    }
                }));
            };
        }
        wake!(claims);
        wake!(slices);
        wake!(device_classes);
        wake!(volume_claims);
        wake!(volumes);
    }

    fn pod_changed(&self, old: Option<&Pod>, new: Option<&Pod>) {
        for pod in old.into_iter().chain(new).filter(|pod| !pod.spec.node_name.is_empty()) {
            lock(&self.state).usage.remove(&pod.spec.node_name);
        }
        if let Some(pod) = new {
            if pod.spec.node_name.is_empty() {
                let settled = old.is_some_and(|old| {
                    old.metadata.uid == pod.metadata.uid && lock(&self.state).parked.contains_key(&pod.metadata.key())
                });
                if !settled && !pod.metadata.deleting() && !pod.terminal() {
                    self.queue.add(pod.metadata.key());
                }
            } else {
                let mut state = lock(&self.state);
                state.assumed.remove(&pod.metadata.uid);
                state.parked.remove(&pod.metadata.key());
            }
        }
        if let Some(old) = old
            && new.is_none_or(|new| new.metadata.uid != old.metadata.uid || new.terminal())
        {
            let replaced = new.is_some_and(|new| new.metadata.uid != old.metadata.uid);
            {
                let mut state = lock(&self.state);
                if new.is_none() || replaced {
                    state.parked.remove(&old.metadata.key());
                }
                state.assumed.remove(&old.metadata.uid);
            }
            if !old.spec.node_name.is_empty() && !old.terminal() {
                self.hint(&old.spec.node_name);
            }
        }
    }

    /// Parked pods are tried again, on this node alone.
    fn hint(&self, node: &str) {
        let keys: Vec<String> = {
            let mut state = lock(&self.state);
            let keys: Vec<String> = state
                .parked
                .iter()
                .filter(|(_, pinned)| pinned.as_ref().is_none_or(|p| p == node))
                .map(|(key, _)| key.clone())
                .collect();
            for key in &keys {
                state.hints.entry(key.clone()).or_default().insert(node.to_owned());
            }
            keys
        };
        for key in keys {
            self.queue.add(key);
        }
    }

    fn wake_all(&self) {
        let keys: Vec<String> = {
            let mut state = lock(&self.state);
            let keys: Vec<String> = state.parked.keys().cloned().collect();
            for key in &keys {
                state.hints.remove(key);
            }
            state.parked.clear();
            keys
        };
        for key in keys {
            self.queue.add(key);
        }
    }

    fn used(&self, state: &mut State, node: &str) -> Amounts {
        let mut used = if let Some(known) = state.usage.get(node) {
            known.clone()
        } else {
            let mut sum = Amounts::default();
            for pod in self.caches.pods.indexed(BY_NODE, node).iter().filter(|pod| !pod.terminal()) {
                sum.add(&wanted(pod));
            }
            state.usage.insert(node.to_owned(), sum.clone());
            sum
        };
        for assumed in state.assumed.values().filter(|assumed| assumed.node == node) {
            used.add(&assumed.requests);
        }
        used
    }

    /// Why a pod cannot go to a node, in the words of the real scheduler; the pods on it if it can.
    fn fits(&self, state: &mut State, pod: &Pod, requests: &Amounts, node: &Node) -> Result<i64, String> {
        let cordon = Taint { key: "node.kubernetes.io/unschedulable".into(), effect: "NoSchedule".into(), ..Taint::default() };
        if node.spec.unschedulable && !tolerated(&pod.spec.tolerations, &cordon) {
            return Err("node(s) were unschedulable".into());
        }
        if !pod_matches_node(&pod.spec, node) {
            return Err("node(s) didn't match Pod's node affinity/selector".into());
        }
        if let Some(taint) = untolerated(node, &pod.spec.tolerations, &["NoSchedule", "NoExecute"]) {
            return Err(format!("node(s) had untolerated taint {{{}: {}}}", taint.key, taint.value));
        }
        let used = self.used(state, &node.metadata.name);
        for (name, amount) in requests.iter().filter(|(_, amount)| *amount > 0) {
            if node.status.allocatable.get(name) - used.get(name) < amount {
                return Err(if name == "pods" { "Too many pods".into() } else { format!("Insufficient {name}") });
            }
        }
        self.volumes_fit(pod, node)?;
        Ok(used.get("pods"))
    }

    fn volumes_fit(&self, pod: &Pod, node: &Node) -> Result<(), String> {
        for volume in &pod.spec.volumes {
            let Some(claim) = volume.pointer("/persistentVolumeClaim/claimName").and_then(|v| v.as_str()) else { continue };
            let Some(bound) = self.caches.volume_claims.get(&format!("{}/{claim}", pod.metadata.ns())) else {
                return Err(format!("persistentvolumeclaim \"{claim}\" not found"));
            };
            let affinity = self
                .caches
                .volumes
                .get(&bound.spec.volume_name)
                .and_then(|pv| pv.spec.pointer("/nodeAffinity/required").cloned());
            let selector = affinity.and_then(|value| serde_json::from_value(value).ok());
            if selector.is_some_and(|selector| !node_selector_matches(&selector, node)) {
                return Err("node(s) didn't match PersistentVolume's node affinity".into());
            }
        }
        Ok(())
    }

    async fn decide(&self, key: &str) -> kube::Result<Option<Duration>> {
        let Some(pod) = self.caches.pods.get(key) else { return Ok(None) };
        let own = matches!(pod.spec.scheduler_name.as_str(), "" | "default-scheduler");
        let open = pod.spec.node_name.is_empty() && !pod.metadata.deleting() && !pod.terminal();
        if !own || !open || lock(&self.state).assumed.contains_key(&pod.metadata.uid) {
            return Ok(None);
        }
        if !pod.spec.scheduling_gates.is_empty() {
            self.gated(key, &pod).await?;
            return Ok(None);
        }
        match self.choose(key, &pod) {
            Ok(assumed) => {
                let uid = pod.metadata.uid.clone();
                let dice = self.caches.dice;
                let late = dice.roll(&["late", &uid]) % 1000 < self.options.late_permille;
                let delay = dice.between(if late { self.options.late } else { self.options.bind }, &["bind", &uid]);
                let node = assumed.node.clone();
                lock(&self.state).assumed.insert(uid.clone(), assumed);
                if late && self.options.nominate {
                    let patch = json!({"metadata": {"uid": uid}, "status": {"nominatedNodeName": node}});
                    raced(self.caches.pods.strategic(key, "status", &patch).await)?;
                }
                self.binds.add_after(uid, delay);
            }
            Err((message, partial)) => {
                let known = super::records::condition(&pod.status.conditions, "PodScheduled");
                // A look at some nodes only says nothing new of the rest.
                let told = known.is_some_and(|known| known.status == "False" && (partial || known.message == message));
                if !told {
                    let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message, "lastTransitionTime": self.caches.clock.time()});
                    let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}});
                    raced(self.caches.pods.strategic(key, "status", &patch).await)?;
                    super::recorder::warn(
                        &self.caches,
                        Pod::KIND,
                        &pod.metadata,
                        "default-scheduler",
                        "FailedScheduling",
                        &message,
                    )
                    .await;
                }
            }
        }
        Ok(None)
    }

    /// A pod with gates waits for their end. The real API server says so as it creates the pod.
    async fn gated(&self, key: &str, pod: &Pod) -> kube::Result<()> {
        let known = super::records::condition(&pod.status.conditions, "PodScheduled");
        if known.is_some_and(|known| known.reason == "SchedulingGated") {
            return Ok(());
        }
        let condition = json!({"type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates", "lastTransitionTime": self.caches.clock.time()});
        let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}});
        raced(self.caches.pods.strategic(key, "status", &patch).await).map(drop)
    }

    fn choose(&self, key: &str, pod: &Pod) -> Result<Assumed, (String, bool)> {
        let mut guard = lock(&self.state);
        let state = &mut *guard;
        let requests = wanted(pod);
        let pinned = pod.target_node().map(str::to_owned);
        let hints = state.hints.remove(key).filter(|_| state.parked.contains_key(key));
        let partial = hints.is_some();
        let names: Vec<String> = match (&pinned, hints) {
            (Some(node), _) => vec![node.clone()],
            (None, Some(hints)) => hints.into_iter().collect(),
            (None, None) => {
                let mut all = self.caches.nodes.keys();
                if !all.is_empty() {
                    state.cursor %= all.len();
                    all.rotate_left(state.cursor);
                }
                all
            }
        };
        let busy = state.assumed.values().flat_map(|assumed| &assumed.claims).cloned().collect::<Vec<_>>();
        let claims = Claims::of(&self.caches, pod, &busy);
        let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
        let mut best: Option<(i64, String, Vec<ClaimPlan>)> = None;
        let mut found = 0;
        let mut looked = 0;
        for name in &names {
            looked += 1;
            let Some(node) = self.caches.nodes.get(name) else { continue };
            let outcome = match &claims {
                Err(reason) => Err(reason.clone()),
                Ok(claims) => self.fits(state, pod, &requests, &node).and_then(|pods| Ok((pods, claims.plan(&node)?))),
            };
            match outcome {
                Ok((pods, plan)) => {
                    found += 1;
                    if best.as_ref().is_none_or(|(fewest, _, _)| pods < *fewest) {
                        best = Some((pods, name.clone(), plan));
                    }
                    if found >= self.options.compare {
                        break;
                    }
                }
                Err(reason) => *reasons.entry(reason).or_insert(0) += 1,
            }
        }
        if !partial && pinned.is_none() {
            state.cursor += looked;
        }
        match best {
            Some((_, node, claims)) => {
                state.parked.remove(key);
                Ok(Assumed { key: key.to_owned(), node, requests, claims })
            }
            None => {
                state.parked.insert(key.to_owned(), pinned);
                let parts: Vec<String> = reasons.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
                Err((format!("0/{} nodes are available: {}.", self.caches.nodes.keys().len(), parts.join(", ")), partial))
            }
        }
    }

    async fn bind(&self, uid: &str) -> kube::Result<Option<Duration>> {
        let Some(assumed) = lock(&self.state).assumed.get(uid).cloned() else { return Ok(None) };
        let Some(pod) = self.caches.pods.get_uid(&assumed.key, uid) else {
            lock(&self.state).assumed.remove(uid);
            return Ok(None);
        };
        for plan in &assumed.claims {
            if raced(plan.write(&self.caches, &pod).await)?.is_none() {
                lock(&self.state).assumed.remove(uid);
                self.queue.add_after(assumed.key, Duration::from_millis(100));
                return Ok(None);
            }
        }
        let body = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod.metadata.name, "namespace": pod.metadata.ns(), "uid": uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": assumed.node}});
        match raced(self.caches.pods.post(&assumed.key, "binding", &body).await) {
            // The assumption ends when the watch shows the pod as bound.
            Ok(Some(_)) => Ok(None),
            Ok(None) => {
                lock(&self.state).assumed.remove(uid);
                self.queue.add_after(assumed.key, Duration::from_millis(100));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}
