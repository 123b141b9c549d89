//! The attach-detach controller: VolumeAttachments follow the pods of each node. The attachers are with the kubelets.

use super::caches::{BY_NODE, Caches};
use super::informer::raced;
use super::queue::Queue;
use super::records::{Node, Pod};
use super::volumes::{CsiVolume, attach_required, csi_volumes};
use serde_json::json;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

/// The name that Kubernetes gives the attachment of a volume to a node.
fn attachment_name(volume: &CsiVolume, node: &str) -> String {
    let digest = Sha256::digest(format!("{}{}{node}", volume.handle, volume.driver));
    digest.iter().fold("csi-".to_owned(), |mut name, byte| {
        let _ = write!(name, "{byte:02x}");
        name
    })
}

pub(super) fn start(caches: &Arc<Caches>) {
    let nodes: Queue<String> = Queue::new();
    let dirty = nodes.clone();
    caches.pods.on_change(Arc::new(move |old: Option<&Arc<Pod>>, new: Option<&Arc<Pod>>| {
        let state = |pod: &Arc<Pod>| (pod.metadata.uid.clone(), pod.spec.node_name.clone(), pod.terminal());
        if old.map(state) != new.map(state) {
            for pod in old.into_iter().chain(new).filter(|pod| !pod.spec.node_name.is_empty() && !pod.spec.volumes.is_empty()) {
                dirty.add(pod.spec.node_name.clone());
            }
        }
    }));
    let (dirty, weak) = (nodes.clone(), Arc::downgrade(caches));
    caches.nodes.on_change(Arc::new(move |old: Option<&Arc<Node>>, new: Option<&Arc<Node>>| {
        let Some(caches) = weak.upgrade() else { return };
        // Volumes in use shrink, or the node is gone: only then may something be detached.
        if let Some(node) = new.or(old)
            && (old.map(|node| &node.status.volumes_in_use) != new.map(|node| &node.status.volumes_in_use) || new.is_none())
            && !caches.attachments.indexed(BY_NODE, &node.metadata.name).is_empty()
        {
            dirty.add(node.metadata.name.clone());
        }
    }));
    macro_rules! rescan {
        ($store:ident) => {
            // Claims and volumes that are bound late: the nodes with pods that mount something.
            let (dirty, weak) = (nodes.clone(), Arc::downgrade(caches));
            caches.$store.on_change(Arc::new(move |old, new| {
                let (None, Some(_), Some(caches)) = (old, new, weak.upgrade()) else { return };
                for pod in caches.pods.all().iter().filter(|pod| {
                    !pod.spec.node_name.is_empty() && pod.spec.volumes.iter().any(|v| v.get("persistentVolumeClaim").is_some())
                }) {
                    dirty.add(pod.spec.node_name.clone());
                }
            }));
        };
    }
    rescan!(volumes);
    rescan!(csi_drivers);
    let worker = caches.clone();
    nodes.run(&caches.tasks, "attach-detach", 4, move |node| {
        let caches = worker.clone();
        async move { sync_node(&caches, &node).await }
    });
}

async fn sync_node(caches: &Caches, name: &str) -> kube::Result<Option<Duration>> {
    let node = caches.nodes.get(name);
    let mut wanted = BTreeMap::new();
    let mut unresolved = false;
    for pod in caches.pods.indexed(BY_NODE, name).iter().filter(|pod| !pod.terminal() && !pod.spec.volumes.is_empty()) {
        match csi_volumes(caches, pod) {
            Ok(volumes) => wanted.extend(
                volumes
                    .into_iter()
                    .filter(|v| v.volume.is_some() && attach_required(caches, &v.driver))
                    .map(|v| (attachment_name(&v, name), v)),
            ),
            Err(_) => unresolved = true,
        }
    }
    let present = caches.attachments.indexed(BY_NODE, name);
    if node.is_some() {
        for (attachment, volume) in wanted.iter().filter(|(key, _)| !present.iter().any(|va| va.metadata.name == **key)) {
            let body = json!({"metadata": {"name": attachment},
                "spec": {"attacher": volume.driver, "nodeName": name, "source": {"persistentVolumeName": volume.volume}}});
            raced(caches.attachments.create(None, body).await)?;
        }
    }
    let mut again = None;
    for attachment in present.iter().filter(|va| !wanted.contains_key(&va.metadata.name) && !va.metadata.deleting()) {
        let volume = attachment
            .spec
            .pointer("/source/persistentVolumeName")
            .and_then(|v| v.as_str())
            .and_then(|pv| caches.volumes.get(pv));
        let handle = volume
            .and_then(|pv| pv.spec.pointer("/csi/volumeHandle").and_then(|v| v.as_str()).map(str::to_owned))
            .unwrap_or_default();
        let unique = format!("kubernetes.io/csi/{}^{handle}", attachment.spec["attacher"].as_str().unwrap_or_default());
        let in_use = node.as_ref().is_some_and(|node| node.status.volumes_in_use.contains(&unique));
        if !in_use && !unresolved {
            caches.attachments.delete(&attachment.metadata, None).await?;
        } else if unresolved {
            again = Some(Duration::from_secs(5));
        }
    }
    Ok(again)
}
