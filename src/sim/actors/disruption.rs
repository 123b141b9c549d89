//! The PodDisruptionBudget controller: membership kept by pod events, arithmetic as in Kubernetes (`pkg/controller/disruption`).

use super::caches::Caches;
use super::informer::raced;
use super::queue::{Queue, lock};
use super::records::{Map, Pod, PodDisruptionBudget};
use super::selectors::labels_match;
use super::template::int_or_percent;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Entries of `disruptedPods` expire after this: the eviction was accepted, the deletion never came.
const DISRUPTED_FOR: i64 = 120;

pub(super) struct Budgets {
    caches: Arc<Caches>,
    members: Mutex<BTreeMap<String, BTreeSet<String>>>,
    queue: Queue<String>,
    delay: Duration,
}

/// The numbers of a budget.
struct Arithmetic {
    expected: i64,
    desired: i64,
}

impl Budgets {
    pub(super) fn start(caches: &Arc<Caches>, delay: Duration) {
        let controller = Arc::new(Self { caches: caches.clone(), members: Mutex::default(), queue: Queue::new(), delay });
        let weak = Arc::downgrade(&controller);
        caches.budgets.on_change(Arc::new(
            move |old: Option<&Arc<PodDisruptionBudget>>, new: Option<&Arc<PodDisruptionBudget>>| {
                if let Some(controller) = weak.upgrade() {
                    controller.budget_changed(old.map(AsRef::as_ref), new.map(AsRef::as_ref));
                }
            },
        ));
        let weak = Arc::downgrade(&controller);
        caches.pods.on_change(Arc::new(move |old: Option<&Arc<Pod>>, new: Option<&Arc<Pod>>| {
            if let Some(controller) = weak.upgrade() {
                controller.pod_changed(old.map(AsRef::as_ref), new.map(AsRef::as_ref));
            }
        }));
        // Scales count, so a change of replicas touches the budgets of the namespace.
        let weak = Arc::downgrade(&controller);
        let touch = move |namespace: &str| {
            let Some(controller) = weak.upgrade() else { return };
            for budget in controller.caches.budgets.in_namespace(namespace) {
                controller.queue.add_after(budget.metadata.key(), controller.delay);
            }
        };
        macro_rules! scale {
            ($store:ident) => {
                let touch = touch.clone();
                caches.$store.on_change(Arc::new(move |old, new| {
                    if let Some(new) = new
                        && old.map(|old| old.spec.replicas) != Some(new.spec.replicas)
                    {
                        touch(new.metadata.ns());
                    }
                }));
            };
        }
        scale!(deployments);
        scale!(replica_sets);
        scale!(stateful_sets);
        let worker = controller.clone();
        controller.queue.run(&caches.tasks, "disruption", 4, move |key| {
            let controller = worker.clone();
            async move { controller.sync(&key).await }
        });
    }

    fn budget_changed(&self, old: Option<&PodDisruptionBudget>, new: Option<&PodDisruptionBudget>) {
        match new {
            None => {
                if let Some(old) = old {
                    lock(&self.members).remove(&old.metadata.key());
                }
            }
            Some(budget) => {
                let key = budget.metadata.key();
                if old.is_none_or(|old| old.metadata.uid != budget.metadata.uid || old.spec != budget.spec) {
                    let pods = self.caches.pods.in_namespace(budget.metadata.ns());
                    let matching =
                        pods.iter().filter(|pod| selects(budget, &pod.metadata.labels)).map(|pod| pod.metadata.key()).collect();
                    lock(&self.members).insert(key.clone(), matching);
                }
                self.queue.add_after(key, self.delay);
            }
        }
    }

    fn pod_changed(&self, old: Option<&Pod>, new: Option<&Pod>) {
        let Some(pod) = new.or(old) else { return };
        if let (Some(old), Some(new)) = (old, new) {
            let relevant = |pod: &Pod| {
                (pod.metadata.uid.clone(), pod.metadata.labels.clone(), pod.ready(), pod.metadata.deleting(), pod.terminal())
            };
            if relevant(old) == relevant(new) {
                return;
            }
        }
        let key = pod.metadata.key();
        for budget in self.caches.budgets.in_namespace(pod.metadata.ns()) {
            let matches = new.is_some_and(|pod| selects(&budget, &pod.metadata.labels));
            let name = budget.metadata.key();
            let touched = {
                let mut members = lock(&self.members);
                let set = members.entry(name.clone()).or_default();
                if matches { set.insert(key.clone()) || old.is_some() } else { set.remove(&key) }
            };
            if touched {
                self.queue.add_after(name, self.delay);
            }
        }
    }

    /// Sum of the scales of the pods' controllers; an error names one without a scale.
    fn scale(&self, pods: &[Arc<Pod>]) -> Result<i64, String> {
        let mut scales: BTreeMap<String, i64> = BTreeMap::new();
        for pod in pods {
            let Some(owner) = pod.metadata.controller() else { continue };
            let key = format!("{}/{}", pod.metadata.ns(), owner.name);
            let (uid, replicas) = match owner.kind.as_str() {
                "ReplicaSet" => {
                    let Some(set) = self.caches.replica_sets.get_uid(&key, &owner.uid) else { continue };
                    let deployment = set.metadata.controller().filter(|owner| owner.kind == "Deployment").and_then(|owner| {
                        self.caches.deployments.get_uid(&format!("{}/{}", pod.metadata.ns(), owner.name), &owner.uid)
                    });
                    match deployment {
                        Some(deployment) => (deployment.metadata.uid.clone(), deployment.spec.replicas.unwrap_or(1)),
                        None => (set.metadata.uid.clone(), set.spec.replicas.unwrap_or(1)),
                    }
                }
                "StatefulSet" => {
                    let Some(set) = self.caches.stateful_sets.get_uid(&key, &owner.uid) else { continue };
                    (set.metadata.uid.clone(), set.spec.replicas.unwrap_or(1))
                }
                kind => return Err(format!("{} does not implement the scale subresource", kind.to_lowercase())),
            };
            scales.insert(uid, replicas);
        }
        Ok(scales.values().sum())
    }

    fn arithmetic(&self, budget: &PodDisruptionBudget, pods: &[Arc<Pod>]) -> Result<Arithmetic, String> {
        if let Some(value) = &budget.spec.max_unavailable {
            let expected = self.scale(pods)?;
            let unavailable = int_or_percent(value, expected).ok_or("maxUnavailable is neither a number nor a percentage")?;
            return Ok(Arithmetic { expected, desired: (expected - unavailable).max(0) });
        }
        match &budget.spec.min_available {
            Some(Value::String(text)) if text.ends_with('%') => {
                let expected = self.scale(pods)?;
                let desired = int_or_percent(&json!(text), expected).ok_or("minAvailable is no percentage")?;
                Ok(Arithmetic { expected, desired })
            }
            Some(value) => {
                let desired = int_or_percent(value, 0).ok_or("minAvailable is neither a number nor a percentage")?;
                Ok(Arithmetic { expected: pods.len() as i64, desired })
            }
            // Neither is a budget that allows nothing.
            None => Ok(Arithmetic { expected: 0, desired: 0 }),
        }
    }

    async fn sync(&self, key: &str) -> kube::Result<Option<Duration>> {
        let Some(budget) = self.caches.budgets.get(key) else { return Ok(None) };
        if budget.metadata.deleting() {
            return Ok(None);
        }
        let keys: Vec<String> = lock(&self.members).get(key).into_iter().flatten().cloned().collect();
        let pods: Vec<Arc<Pod>> = keys.iter().filter_map(|key| self.caches.pods.get(key)).collect();
        let (disrupted, expires) = self.disrupted(&budget, &pods);
        let healthy = pods
            .iter()
            .filter(|pod| pod.ready() && !pod.metadata.deleting() && !disrupted.contains_key(&pod.metadata.name))
            .count() as i64;
        let arithmetic = match self.arithmetic(&budget, &pods) {
            Ok(numbers) => numbers,
            Err(problem) => {
                self.fail_safe(&budget, &problem).await?;
                return Ok(expires);
            }
        };
        let mut allowed = (healthy - arithmetic.desired).max(0);
        if arithmetic.expected == 0 {
            allowed = 0;
        }
        let (status, reason) = if allowed == 0 { ("False", "InsufficientPods") } else { ("True", "SufficientPods") };
        let old = &budget.status;
        let known = super::records::condition(&old.conditions, "DisruptionAllowed");
        let same = old.disruptions_allowed == allowed
            && old.current_healthy == healthy
            && old.desired_healthy == arithmetic.desired
            && old.expected_pods == arithmetic.expected
            && old.observed_generation == budget.metadata.generation
            && old.disrupted_pods == disrupted
            && known.is_some_and(|condition| condition.reason == reason);
        if !same {
            let since = known
                .filter(|known| known.status == status)
                .and_then(|known| known.last_transition_time.clone())
                .unwrap_or_else(|| self.caches.clock.time());
            let mut entries: serde_json::Map<String, Value> =
                disrupted.iter().map(|(name, time)| (name.clone(), json!(time))).collect();
            for name in old.disrupted_pods.keys().filter(|name| !disrupted.contains_key(*name)) {
                entries.insert(name.clone(), Value::Null);
            }
            let condition = json!({"type": "DisruptionAllowed", "status": status, "reason": reason, "message": "",
                "observedGeneration": budget.metadata.generation, "lastTransitionTime": since});
            let patch = json!({"metadata": {"uid": budget.metadata.uid, "resourceVersion": budget.metadata.resource_version}, "status": {
                "observedGeneration": budget.metadata.generation, "disruptionsAllowed": allowed, "currentHealthy": healthy,
                "desiredHealthy": arithmetic.desired, "expectedPods": arithmetic.expected, "disruptedPods": entries, "conditions": [condition]}});
            match self.caches.budgets.merge(key, "status", &patch).await {
                Ok(_) => {}
                // An eviction was quicker: its event brings this budget back.
                Err(kube::Error::Api(status)) if status.code == 409 => return Ok(Some(self.delay)),
                Err(kube::Error::Api(status)) if status.code == 404 => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        Ok(expires)
    }

    /// Nothing is allowed, and nothing else is said: not even that the generation was seen.
    async fn fail_safe(&self, budget: &PodDisruptionBudget, problem: &str) -> kube::Result<()> {
        let known = super::records::condition(&budget.status.conditions, "DisruptionAllowed");
        let told = known.is_some_and(|known| known.reason == "SyncFailed" && known.message == problem);
        if told && budget.status.disruptions_allowed == 0 {
            return Ok(());
        }
        let since = known.filter(|known| known.status == "False").and_then(|known| known.last_transition_time.clone());
        let condition = json!({"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed", "message": problem,
            "observedGeneration": budget.status.observed_generation, "lastTransitionTime": since.unwrap_or_else(|| self.caches.clock.time())});
        // The schema demands all numbers.
        let old = &budget.status;
        let patch = json!({"metadata": {"uid": budget.metadata.uid, "resourceVersion": budget.metadata.resource_version}, "status": {
            "disruptionsAllowed": 0, "currentHealthy": old.current_healthy, "desiredHealthy": old.desired_healthy,
            "expectedPods": old.expected_pods, "conditions": [condition]}});
        raced(self.caches.budgets.merge(&budget.metadata.key(), "status", &patch).await).map(drop)
    }

    /// The evicted pods that are still waited for, and when the next entry expires.
    fn disrupted(&self, budget: &PodDisruptionBudget, pods: &[Arc<Pod>]) -> (Map, Option<Duration>) {
        let now = self.caches.clock.now();
        let mut kept = Map::new();
        let mut next = None::<i64>;
        for pod in pods.iter().filter(|pod| !pod.metadata.deleting()) {
            let Some(time) = budget.status.disrupted_pods.get(&pod.metadata.name) else { continue };
            let age = time.parse::<jiff::Timestamp>().map_or(0, |since| now.duration_since(since).as_secs());
            if age < DISRUPTED_FOR {
                kept.insert(pod.metadata.name.clone(), time.clone());
                let left = DISRUPTED_FOR - age;
                next = Some(next.map_or(left, |known| known.min(left)));
            }
        }
        (kept, next.map(|seconds| Duration::from_secs(seconds.max(1) as u64)))
    }
}

fn selects(budget: &PodDisruptionBudget, labels: &Map) -> bool {
    budget.spec.selector.as_ref().is_some_and(|selector| labels_match(selector, labels))
}
