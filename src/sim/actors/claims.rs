//! The resourceclaim controller: makes claims from templates, and takes reservations and allocations back.

use super::caches::{BY_OWNER, Caches};
use super::informer::raced;
use super::queue::Queue;
use super::records::{Consumer, Pod, ResourceClaim};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

const PROTECTION: &str = "resource.kubernetes.io/delete-protection";
const POD_CLAIM: &str = "resource.kubernetes.io/pod-claim-name";

pub(super) fn start(caches: &Arc<Caches>) {
    let (pods, claims): (Queue<String>, Queue<String>) = (Queue::new(), Queue::new());
    let (dirty_pods, dirty_claims, weak) = (pods.clone(), claims.clone(), Arc::downgrade(caches));
    caches.pods.on_change(Arc::new(move |old: Option<&Arc<Pod>>, new: Option<&Arc<Pod>>| {
        let Some(pod) = new.or(old).filter(|pod| !pod.spec.resource_claims.is_empty()) else { return };
        let ended = |pod: &Arc<Pod>| pod.terminal();
        if old.is_none()
            || old.map(|old| &old.metadata.uid) != new.map(|new| &new.metadata.uid)
            || old.map(ended) != new.map(ended)
        {
            dirty_pods.add(pod.metadata.key());
            let named = pod.spec.resource_claims.iter().filter_map(|claim| claim.resource_claim_name.as_ref());
            let generated = pod.status.resource_claim_statuses.iter().filter_map(|status| status.resource_claim_name.as_ref());
            for name in named.chain(generated) {
                dirty_claims.add(format!("{}/{name}", pod.metadata.ns()));
            }
            if let (Some(caches), Some(old)) = (weak.upgrade(), old) {
                for claim in caches.claims.indexed(BY_OWNER, &old.metadata.uid) {
                    dirty_claims.add(claim.metadata.key());
                }
            }
        }
    }));
    let dirty = claims.clone();
    caches.claims.on_change(Arc::new(move |_: Option<&Arc<ResourceClaim>>, new: Option<&Arc<ResourceClaim>>| {
        if let Some(claim) = new {
            dirty.add(claim.metadata.key());
        }
    }));
    // Templates that come after the pods that name them.
    let (dirty, weak) = (pods.clone(), Arc::downgrade(caches));
    caches.claim_templates.on_change(Arc::new(move |old, new| {
        if let (None, Some(template), Some(caches)) = (old, new, weak.upgrade()) {
            for pod in caches.pods.in_namespace(template.metadata.ns()).iter().filter(|pod| !pod.spec.resource_claims.is_empty())
            {
                dirty.add(pod.metadata.key());
            }
        }
    }));
    let worker = caches.clone();
    pods.run(&caches.tasks, "resourceclaim-pod", 4, move |key| {
        let caches = worker.clone();
        async move { make_claims(&caches, &key).await }
    });
    let worker = caches.clone();
    claims.run(&caches.tasks, "resourceclaim", 4, move |key| {
        let caches = worker.clone();
        async move { release(&caches, &key).await }
    });
}

async fn make_claims(caches: &Caches, key: &str) -> kube::Result<Option<Duration>> {
    let Some(pod) = caches.pods.get(key).filter(|pod| !pod.metadata.deleting()) else { return Ok(None) };
    let own = caches.claims.indexed(BY_OWNER, &pod.metadata.uid);
    if pod.terminal() {
        for claim in own.iter().filter(|claim| !claim.metadata.deleting()) {
            caches.claims.delete(&claim.metadata, None).await?;
        }
        return Ok(None);
    }
    let mut statuses = Vec::new();
    for entry in &pod.spec.resource_claims {
        let Some(name) = &entry.resource_claim_template_name else { continue };
        if pod.status.resource_claim_statuses.iter().any(|status| status.name == entry.name) {
            continue;
        }
        let made = own.iter().find(|claim| claim.metadata.annotations.get(POD_CLAIM) == Some(&entry.name));
        let made = match made {
            Some(claim) => claim.metadata.name.clone(),
            None => {
                let Some(template) = caches.claim_templates.get(&format!("{}/{name}", pod.metadata.ns())) else { continue };
                let mut annotations = template.spec.pointer("/metadata/annotations").cloned().unwrap_or_else(|| json!({}));
                annotations[POD_CLAIM] = json!(entry.name);
                let owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": pod.metadata.name, "uid": pod.metadata.uid, "controller": true, "blockOwnerDeletion": true}]);
                let mut metadata = json!({"generateName": format!("{}-{}-", pod.metadata.name, entry.name), "namespace": pod.metadata.ns(), "annotations": annotations, "ownerReferences": owner});
                if let Some(labels) = template.spec.pointer("/metadata/labels") {
                    metadata["labels"] = labels.clone();
                }
                let body = json!({"metadata": metadata, "spec": template.spec["spec"]});
                match raced(caches.claims.create(Some(pod.metadata.ns()), body).await)? {
                    Some(claim) => claim.metadata.name.clone(),
                    None => continue,
                }
            }
        };
        statuses.push(json!({"name": entry.name, "resourceClaimName": made}));
    }
    if !statuses.is_empty() {
        let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": {"resourceClaimStatuses": statuses}});
        raced(caches.pods.strategic(key, "status", &patch).await)?;
    }
    Ok(None)
}

/// Whether the pod of a reservation may still use the claim. Absence is asked of the API server.
async fn uses(caches: &Caches, namespace: &str, consumer: &Consumer) -> kube::Result<bool> {
    if consumer.resource != "pods" || !consumer.api_group.is_empty() {
        return Ok(true);
    }
    let key = format!("{namespace}/{}", consumer.name);
    match caches.pods.get(&key) {
        Some(pod) if pod.metadata.uid == consumer.uid => Ok(!pod.terminal()),
        _ => Ok(caches.pods.read(&key).await?.is_some_and(|pod| pod["metadata"]["uid"] == consumer.uid.as_str())),
    }
}

async fn release(caches: &Caches, key: &str) -> kube::Result<Option<Duration>> {
    let Some(claim) = caches.claims.get(key) else { return Ok(None) };
    let meta = &claim.metadata;
    let mut kept = Vec::new();
    for consumer in &claim.status.reserved_for {
        if uses(caches, meta.ns(), consumer).await? {
            kept.push(consumer.clone());
        }
    }
    let mut version = meta.resource_version.clone();
    let removed = kept.len() != claim.status.reserved_for.len();
    let deallocate = kept.is_empty() && claim.status.allocation.is_some() && (removed || meta.deleting());
    if removed || deallocate {
        let mut status = json!({"reservedFor": kept});
        if deallocate {
            status["allocation"] = serde_json::Value::Null;
        }
        let patch = json!({"metadata": {"uid": meta.uid, "resourceVersion": version}, "status": status});
        match raced(caches.claims.merge(key, "status", &patch).await)? {
            Some(written) => version.clone_from(&written.metadata.resource_version),
            None => return Ok(Some(Duration::from_millis(200))),
        }
    }
    let free = kept.is_empty() && (deallocate || claim.status.allocation.is_none());
    if free && meta.finalizers.iter().any(|finalizer| finalizer == PROTECTION) && (deallocate || meta.deleting()) {
        let left: Vec<&String> = meta.finalizers.iter().filter(|finalizer| *finalizer != PROTECTION).collect();
        let patch = json!({"metadata": {"uid": meta.uid, "resourceVersion": version, "finalizers": left}});
        if raced(caches.claims.merge(key, "", &patch).await)?.is_none() {
            return Ok(Some(Duration::from_millis(200)));
        }
    }
    Ok(None)
}
