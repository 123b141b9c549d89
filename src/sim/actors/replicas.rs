//! ReplicaSet, Deployment (one ReplicaSet per template, replaced in one go), StatefulSet (ordered identity) and Job controllers.

use super::adoption;
use super::caches::{BY_OWNER, Caches};
use super::informer::raced;
use super::queue::Queue;
use super::records::{Deployment, Job, Meta, Pod, Record, ReplicaSet, StatefulSet};
use super::selectors::labels_match;
use super::template::{content_hash, controller_of, controls, owner_key, pod_from};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const HASH: &str = "pod-template-hash";
const REVISION: &str = "controller-revision-hash";

type Work = kube::Result<Option<Duration>>;

/// Pods that nobody controls wake those whose selector they match.
macro_rules! adopts {
    ($caches:ident, $store:ident, $queue:expr) => {{
        let (queue, sets) = ($queue, Arc::downgrade(&$caches.$store));
        $caches.pods.on_change(Arc::new(move |old: Option<&Arc<Pod>>, new: Option<&Arc<Pod>>| {
            if let (true, Some(pod), Some(sets)) = (changes_hands(old, new), new, sets.upgrade()) {
                for set in sets.in_namespace(pod.metadata.ns()) {
                    if labels_match(&set.spec.selector, &pod.metadata.labels) {
                        queue.add_after(set.metadata.key(), GATHER);
                    }
                }
            }
        }));
    }};
}

/// Starts one controller: dirty keys from its own kind and from the pods (or sets) that it owns.
macro_rules! controller {
    ($caches:ident, $store:ident, $owned:ident, $kind:literal, $work:ident) => {{
        let queue: Queue<String> = Queue::new();
        let own = queue.clone();
        $caches.$store.on_change(Arc::new(move |old, new| {
            let version = |object: &Arc<_>| spec_version(object);
            if old.map(version) != new.map(version)
                && let Some(object) = new
            {
                own.add(object.metadata.key());
            }
        }));
        let (owned, delay) = (queue.clone(), $caches.clone());
        $caches.$owned.on_change(Arc::new(move |old, new| {
            let _ = &delay;
            for object in old.into_iter().chain(new) {
                if let Some(owner) = owner_key(&object.metadata, $kind) {
                    owned.add_after(owner, GATHER);
                }
            }
        }));
        let caches = $caches.clone();
        queue.run(&$caches.tasks, $kind, 8, move |key| {
            let caches = caches.clone();
            async move { $work(&caches, &key).await }
        });
        queue
    }};
}

/// Pod events are gathered for this long.
const GATHER: Duration = Duration::from_millis(20);

fn spec_version<R: Record>(object: &Arc<R>) -> (String, i64, bool, Option<String>) {
    let meta = object.meta();
    // Kinds without a generation count by resource version.
    let version = if meta.generation == 0 { Some(meta.resource_version.clone()) } else { None };
    (meta.uid.clone(), meta.generation, meta.deleting(), version)
}

pub(super) fn start(caches: &Arc<Caches>) {
    adopts!(caches, replica_sets, controller!(caches, replica_sets, pods, "ReplicaSet", sync_replica_set));
    controller!(caches, deployments, replica_sets, "Deployment", sync_deployment);
    adopts!(caches, stateful_sets, controller!(caches, stateful_sets, pods, "StatefulSet", sync_stateful_set));
    controller!(caches, jobs, pods, "Job", sync_job);
}

/// Whether a pod's change may make somebody take it or let it go.
pub(super) fn changes_hands(old: Option<&Arc<Pod>>, new: Option<&Arc<Pod>>) -> bool {
    let Some(new) = new.filter(|pod| !pod.metadata.deleting()) else { return false };
    let relabelled = old.is_some_and(|old| old.metadata.labels != new.metadata.labels);
    new.metadata.controller().is_none() && (relabelled || old.is_none_or(|old| old.metadata.controller().is_some()))
}

/// The pods of an owner that count: neither finished nor going.
fn active(caches: &Caches, meta: &Meta) -> Vec<Arc<Pod>> {
    let pods = caches.pods.indexed(BY_OWNER, &meta.uid);
    pods.into_iter().filter(|pod| controls(meta, pod) && !pod.terminal() && !pod.metadata.deleting()).collect()
}

/// Writes the status fields that differ.
macro_rules! report {
    ($store:expr, $object:ident, $status:expr) => {{
        let status: Value = $status;
        let same = status.as_object().is_some_and(|fields| fields.iter().all(|(name, value)| $object.status.get(name).unwrap_or(&json!(0)) == value));
        if !same {
            raced($store.merge(&$object.metadata.key(), "status", &json!({"metadata": {"uid": $object.metadata.uid}, "status": status})).await)?;
        }
    }};
}

async fn sync_replica_set(caches: &Arc<Caches>, key: &str) -> Work {
    let Some(set) = caches.replica_sets.get(key).filter(|set| !set.metadata.deleting()) else { return Ok(None) };
    adoption::claim(caches, &set.metadata, "apps/v1", ReplicaSet::KIND.kind, &set.spec.selector).await?;
    let mut pods = active(caches, &set.metadata);
    let wanted = set.spec.replicas.unwrap_or(1).max(0) as usize;
    for _ in pods.len()..wanted {
        let body = pod_from(
            &set.spec.template,
            "apps/v1",
            ReplicaSet::KIND.kind,
            &set.metadata,
            &format!("{}-", set.metadata.name),
            &[],
        );
        if let Some(pod) = raced(caches.pods.create(Some(set.metadata.ns()), body).await)? {
            pods.push(pod);
        }
    }
    if pods.len() > wanted {
        // Unbound and unready pods go first, as in Kubernetes; then the youngest.
        pods.sort_by_key(|pod| {
            (
                !pod.spec.node_name.is_empty(),
                pod.ready(),
                pod.metadata.creation_timestamp.clone().map(std::cmp::Reverse).is_none(),
                pod.metadata.name.clone(),
            )
        });
        let excess = pods.len() - wanted;
        for pod in pods.drain(..excess) {
            caches.pods.delete(&pod.metadata, None).await?;
        }
    }
    let ready = pods.iter().filter(|pod| pod.ready()).count();
    report!(
        caches.replica_sets,
        set,
        json!({"replicas": pods.len(), "fullyLabeledReplicas": pods.len(), "readyReplicas": ready, "availableReplicas": ready, "observedGeneration": set.metadata.generation})
    );
    Ok(None)
}

async fn sync_deployment(caches: &Arc<Caches>, key: &str) -> Work {
    let Some(deployment) = caches.deployments.get(key).filter(|d| !d.metadata.deleting()) else { return Ok(None) };
    let hash = content_hash(&deployment.spec.template, 0);
    let name = format!("{}-{hash}", deployment.metadata.name);
    let replicas = deployment.spec.replicas.unwrap_or(1);
    let owned = caches.replica_sets.indexed(BY_OWNER, &deployment.metadata.uid);
    let current = owned.iter().find(|set| set.metadata.name == name);
    match current {
        None => {
            let mut template = deployment.spec.template.clone();
            template["metadata"]["labels"][HASH] = json!(hash);
            let mut selector = json!({"matchLabels": deployment.spec.selector.match_labels});
            selector["matchLabels"][HASH] = json!(hash);
            let body = json!({
                "metadata": {"name": name, "namespace": deployment.metadata.ns(), "labels": template["metadata"]["labels"],
                    "ownerReferences": controller_of("apps/v1", Deployment::KIND.kind, &deployment.metadata)},
                "spec": {"replicas": replicas, "selector": selector, "template": template},
            });
            raced(caches.replica_sets.create(Some(deployment.metadata.ns()), body).await)?;
        }
        Some(set) if set.spec.replicas != Some(replicas) => {
            raced(caches.replica_sets.merge(&set.metadata.key(), "", &json!({"spec": {"replicas": replicas}})).await)?;
        }
        Some(_) => {}
    }
    // The former template's pods leave once the new ones are ready.
    let ready = |set: &ReplicaSet| set.status["readyReplicas"].as_i64().unwrap_or(0);
    let arrived = current.is_some_and(|set| ready(set) >= replicas);
    for set in owned.iter().filter(|set| set.metadata.name != name && set.spec.replicas != Some(0)) {
        if arrived {
            raced(caches.replica_sets.merge(&set.metadata.key(), "", &json!({"spec": {"replicas": 0}})).await)?;
        }
    }
    let sum = |field: &str| owned.iter().map(|set| set.status[field].as_i64().unwrap_or(0)).sum::<i64>();
    let ready = sum("readyReplicas");
    report!(
        caches.deployments,
        deployment,
        json!({
            "observedGeneration": deployment.metadata.generation, "replicas": sum("replicas"), "readyReplicas": ready, "availableReplicas": ready,
            "updatedReplicas": current.map_or(0, |set| set.status["replicas"].as_i64().unwrap_or(0)), "unavailableReplicas": (replicas - ready).max(0),
        })
    );
    Ok(None)
}

async fn sync_stateful_set(caches: &Arc<Caches>, key: &str) -> Work {
    let Some(set) = caches.stateful_sets.get(key).filter(|set| !set.metadata.deleting()) else { return Ok(None) };
    adoption::claim(caches, &set.metadata, "apps/v1", StatefulSet::KIND.kind, &set.spec.selector).await?;
    let replicas = set.spec.replicas.unwrap_or(1);
    let parallel = set.spec.pod_management_policy == "Parallel";
    let revision = format!("{}-{}", set.metadata.name, content_hash(&set.spec.template, 0));
    let current = set.status["currentRevision"].as_str().filter(|known| !known.is_empty()).unwrap_or(&revision).to_owned();
    let mut of_current = 0;
    let (mut present, mut ready, mut may_create) = (0, 0, true);
    let mut outdated = None;
    let mut updated = 0;
    for ordinal in 0..replicas {
        let name = format!("{}-{ordinal}", set.metadata.name);
        let pod = caches.pods.get(&format!("{}/{name}", set.metadata.ns())).filter(|pod| controls(&set.metadata, pod));
        match pod {
            // The identity is free only when the old object is gone.
            Some(pod) if pod.metadata.deleting() => may_create &= parallel,
            Some(pod) if pod.terminal() => {
                caches.pods.delete(&pod.metadata, None).await?;
                may_create &= parallel;
            }
            Some(pod) => {
                present += 1;
                ready += i64::from(pod.ready());
                of_current += i64::from(pod.metadata.labels.get(REVISION) == Some(&current));
                if pod.metadata.labels.get(REVISION) == Some(&revision) {
                    updated += 1;
                } else {
                    outdated = Some(pod.clone());
                }
                may_create &= parallel || pod.ready();
            }
            None if may_create => {
                create_member(caches, &set, &name, ordinal, &revision).await?;
                present += 1;
                updated += 1;
                of_current += i64::from(current == revision);
                may_create = parallel;
            }
            None => {}
        }
    }
    // The rolling update takes the highest ordinal first, and only while all are ready.
    if ready == replicas
        && set.spec.update_strategy.kind != "OnDelete"
        && let Some(pod) = outdated
    {
        caches.pods.delete(&pod.metadata, None).await?;
    }
    let ordinal_of = |pod: &Pod| pod.metadata.name.rsplit('-').next().and_then(|text| text.parse::<i64>().ok()).unwrap_or(-1);
    let mut beyond: Vec<Arc<Pod>> = active(caches, &set.metadata).into_iter().filter(|pod| ordinal_of(pod) >= replicas).collect();
    beyond.sort_by_key(|pod| std::cmp::Reverse(ordinal_of(pod)));
    for pod in beyond.iter().take(if parallel { usize::MAX } else { 1 }) {
        caches.pods.delete(&pod.metadata, None).await?;
    }
    // An update has come to its end: what was new is what is there.
    let settled = set.spec.update_strategy.kind != "OnDelete" && updated == replicas && ready == replicas;
    let (current, of_current) = if settled { (revision.clone(), updated) } else { (current, of_current) };
    report!(
        caches.stateful_sets,
        set,
        json!({"observedGeneration": set.metadata.generation, "replicas": present, "readyReplicas": ready,
        "availableReplicas": ready, "currentReplicas": of_current, "updatedReplicas": updated, "currentRevision": current, "updateRevision": revision})
    );
    Ok(None)
}

async fn create_member(caches: &Caches, set: &StatefulSet, name: &str, ordinal: i64, revision: &str) -> kube::Result<()> {
    let labels = [
        ("statefulset.kubernetes.io/pod-name", name),
        ("apps.kubernetes.io/pod-index", &ordinal.to_string()),
        (REVISION, revision),
    ];
    let mut body = pod_from(&set.spec.template, "apps/v1", StatefulSet::KIND.kind, &set.metadata, name, &labels);
    body["spec"]["hostname"] = json!(name);
    if !set.spec.service_name.is_empty() {
        body["spec"]["subdomain"] = json!(set.spec.service_name);
    }
    for template in &set.spec.volume_claim_templates {
        let volume = template.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        let claim = format!("{volume}-{name}");
        if caches.volume_claims.get(&format!("{}/{claim}", set.metadata.ns())).is_none() {
            let object = json!({"metadata": {"name": claim, "namespace": set.metadata.ns()}, "spec": template["spec"]});
            raced(caches.volume_claims.create(Some(set.metadata.ns()), object).await)?;
        }
        let entry = json!({"name": volume, "persistentVolumeClaim": {"claimName": claim}});
        match body["spec"]["volumes"].as_array_mut() {
            Some(volumes) => volumes.push(entry),
            None => body["spec"]["volumes"] = json!([entry]),
        }
    }
    raced(caches.pods.create(Some(set.metadata.ns()), body).await).map(|_| ())
}

async fn sync_job(caches: &Arc<Caches>, key: &str) -> Work {
    let Some(job) = caches.jobs.get(key).filter(|job| !job.metadata.deleting()) else { return Ok(None) };
    let done = job.status["conditions"].as_array().is_some_and(|list| !list.is_empty());
    if done {
        return Ok(None);
    }
    let pods = caches.pods.indexed(BY_OWNER, &job.metadata.uid);
    let count = |phase: &str| pods.iter().filter(|pod| pod.status.phase == phase).count() as i64;
    let (succeeded, failed) = (count("Succeeded"), count("Failed"));
    let mut running = active(caches, &job.metadata).len() as i64;
    let (wanted, limit) = (job.spec.completions.unwrap_or(1), job.spec.backoff_limit.unwrap_or(6));
    let started = job.status["startTime"].as_str().map_or_else(|| caches.clock.time(), str::to_owned);
    let mut status = json!({"succeeded": succeeded, "failed": failed, "startTime": started});
    if succeeded >= wanted || failed > limit {
        let complete = succeeded >= wanted;
        let (first, last, reason) = if complete {
            ("SuccessCriteriaMet", "Complete", "CompletionsReached")
        } else {
            ("FailureTarget", "Failed", "BackoffLimitExceeded")
        };
        let time = caches.clock.time();
        let condition = |kind: &str| json!({"type": kind, "status": "True", "reason": reason, "lastTransitionTime": time, "lastProbeTime": time});
        status["conditions"] = json!([condition(first), condition(last)]);
        if complete {
            status["completionTime"] = json!(time);
        }
    } else {
        let parallel = job.spec.parallelism.unwrap_or(1).min(wanted - succeeded);
        while running < parallel {
            let labels = [("job-name", job.metadata.name.as_str()), ("batch.kubernetes.io/job-name", job.metadata.name.as_str())];
            let body = pod_from(
                &job.spec.template,
                "batch/v1",
                Job::KIND.kind,
                &job.metadata,
                &format!("{}-", job.metadata.name),
                &labels,
            );
            if raced(caches.pods.create(Some(job.metadata.ns()), body).await)?.is_none() {
                break;
            }
            running += 1;
        }
    }
    status["active"] = json!(running);
    report!(caches.jobs, job, status);
    Ok(None)
}
