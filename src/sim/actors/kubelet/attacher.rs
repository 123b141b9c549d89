//! The external attachers of the simulated CSI drivers: they report volumes as attached after a while, and let a deleted
//! attachment go after a while.

use super::super::informer::raced;
use super::Cluster;
use serde_json::json;
use std::time::Duration;

const PREFIX: &str = "external-attacher/";

impl Cluster {
    pub(super) async fn sync_attachment(&self, name: String) -> kube::Result<Option<Duration>> {
        let Some(attachment) = self.caches.attachments.get(&name) else { return Ok(None) };
        let (meta, range) = (&attachment.metadata, self.options().attach);
        let ours = meta.finalizers.iter().any(|finalizer| finalizer.starts_with(PREFIX));
        if meta.deleting() {
            if ours {
                tokio::time::sleep(self.caches.dice.between(range, &["detach", &meta.uid])).await;
                let left: Vec<&String> = meta.finalizers.iter().filter(|finalizer| !finalizer.starts_with(PREFIX)).collect();
                raced(
                    self.caches.attachments.merge(&name, "", &json!({"metadata": {"uid": meta.uid, "finalizers": left}})).await,
                )?;
            }
            return Ok(None);
        }
        if attachment.status["attached"] == true {
            return Ok(None);
        }
        if !ours {
            let driver = attachment.spec["attacher"].as_str().unwrap_or_default().replace('.', "-");
            let mut finalizers = meta.finalizers.clone();
            finalizers.push(format!("{PREFIX}{driver}"));
            let patch =
                json!({"metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version, "finalizers": finalizers}});
            // The event of this write brings the attachment back.
            raced(self.caches.attachments.merge(&name, "", &patch).await)?;
            return Ok(None);
        }
        tokio::time::sleep(self.caches.dice.between(range, &["attach", &meta.uid])).await;
        let patch = json!({"metadata": {"uid": meta.uid}, "status": {"attached": true}});
        raced(self.caches.attachments.merge(&name, "status", &patch).await)?;
        Ok(None)
    }
}
