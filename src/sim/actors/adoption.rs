//! Whose pod is it? A workload takes pods that match its selector and that nobody controls, and lets go of its own that match no more, as
//! `ControllerRefManager` of Kubernetes does (`pkg/controller/controller_ref_manager.go`).

use super::caches::{BY_OWNER, Caches, ORPHANS};
use super::informer::{Store, raced};
use super::records::{LabelSelector, Meta, Owner, Record};
use super::selectors::labels_match;
use super::template::controller_of;
use serde_json::{Value, json};
use std::sync::Arc;

/// Makes the references of pods what the selector says.
pub(super) async fn claim(
    caches: &Caches,
    owner: &Meta,
    api_version: &str,
    kind: &str,
    selector: &LabelSelector,
) -> kube::Result<()> {
    claim_of(&caches.pods, owner, api_version, kind, selector).await
}

/// The same for any kind: DaemonSets claim revisions too.
pub(super) async fn claim_of<R: Record>(
    store: &Arc<Store<R>>,
    owner: &Meta,
    api_version: &str,
    kind: &str,
    selector: &LabelSelector,
) -> kube::Result<()> {
    for stray in store.indexed(BY_OWNER, &owner.uid) {
        let meta = stray.meta();
        let controlled = meta.controller().is_some_and(|known| known.uid == owner.uid);
        if controlled && !meta.deleting() && !labels_match(selector, &meta.labels) {
            let kept: Vec<&Owner> = meta.owner_references.iter().filter(|known| known.uid != owner.uid).collect();
            refer(store, meta, json!(kept)).await?;
        }
    }
    if owner.deleting() {
        return Ok(());
    }
    for orphan in store.indexed(ORPHANS, owner.ns()) {
        let meta = orphan.meta();
        if !meta.deleting() && labels_match(selector, &meta.labels) {
            let mut references = json!(meta.owner_references);
            if let (Some(list), Some(ours)) = (references.as_array_mut(), controller_of(api_version, kind, owner).get(0)) {
                list.push(ours.clone());
            }
            refer(store, meta, references).await?;
        }
    }
    Ok(())
}

async fn refer<R: Record>(store: &Arc<Store<R>>, meta: &Meta, references: Value) -> kube::Result<()> {
    let patch = json!({"metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version, "ownerReferences": references}});
    raced(store.merge(&meta.key(), "", &patch).await).map(drop)
}
