//! Worker pods: made for one load or unload on one node, past the scheduler; what they are told to do to the toy kernel.

use super::super::records::{Node, Owner, Pod, Record};
use super::Operator;
use super::objects::{Entry, Module, NodeModulesConfig, WORKER_FINALIZER, bits};
use crate::kmm::keys;
use crate::kmm::records::Action;
use serde_json::{Value, json};

/// What a worker pod was made for, read back from it.
pub struct Job {
    pub action: Action,
    pub entry: Entry,
}

impl Job {
    pub fn of(pod: &Pod) -> Option<Self> {
        let action = match pod.metadata.labels.get(keys::WORKER_ACTION)?.as_str() {
            "Load" => Action::Load,
            "Unload" => Action::Unload,
            _ => return None,
        };
        let annotation = |key: &str| pod.metadata.annotations.get(key).map(String::as_str).unwrap_or_default();
        let parsed = |key: &str| serde_json::from_str::<Value>(annotation(key)).unwrap_or_default();
        let entry = Entry {
            config: parsed(keys::WORKER_CONFIG),
            name: pod.metadata.labels.get(keys::MODULE_NAME)?.clone(),
            namespace: pod.metadata.ns().to_owned(),
            service_account_name: "default".to_owned(),
            tolerations: parsed("kmm.node.kubernetes.io/worker-tolerations").as_array().cloned().unwrap_or_default(),
            version: annotation(keys::WORKER_VERSION).to_owned(),
            boot_id: String::new(),
        };
        Some(Self { action, entry })
    }
}

fn text(config: &Value, field: &str) -> String {
    config[field].as_str().unwrap_or_default().to_owned()
}

impl Operator {
    /// The worker pod of this entry on this node, by its name alone.
    pub(super) fn worker(&self, node: &str, entry: &Entry) -> Option<std::sync::Arc<Pod>> {
        self.caches.pods.get(&format!("{}/{}", entry.namespace, keys::worker_pod(node, &entry.name)))
    }

    pub(super) async fn make_worker(
        &self,
        action: Action,
        node: &Node,
        entry: &Entry,
        config: &NodeModulesConfig,
    ) -> kube::Result<()> {
        let module = self.modules.get(&format!("{}/{}", entry.namespace, entry.name));
        let kernel = text(&entry.config, "kernelVersion");
        let image = text(&entry.config, "containerImage");
        let word = action.word();
        let mut annotations = json!({
            keys::WORKER_CONFIG: entry.config.to_string(),
            "kmm.node.kubernetes.io/worker-tolerations": Value::Array(entry.tolerations.clone()).to_string(),
            "sim.lockkeeper.dev/behaviour": if action == Action::Load { "loader" } else { "unload" },
            "sim.lockkeeper.dev/module": entry.config["modprobe"]["moduleName"],
            "sim.lockkeeper.dev/version": bits(&image, &kernel),
            "sim.lockkeeper.dev/exit-after-seconds": self.options.worker.as_secs_f64().to_string(),
        });
        if action == Action::Load && !entry.version.is_empty() {
            annotations[keys::WORKER_VERSION] = json!(entry.version);
        }
        for (key, value) in module.iter().flat_map(|module: &std::sync::Arc<Module>| module.told(&word.to_lowercase())) {
            annotations[key] = value;
        }
        let mut tolerations = entry.tolerations.clone();
        for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
            tolerations.push(json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}));
        }
        let args = json!(["kmod", word.to_lowercase(), "/etc/kmm-worker/config.yaml"]);
        let owner = Owner {
            api_version: NodeModulesConfig::KIND.api_version.to_owned(),
            kind: NodeModulesConfig::KIND.kind.to_owned(),
            name: config.metadata.name.clone(),
            uid: config.metadata.uid.clone(),
            controller: true,
            block_owner_deletion: true,
        };
        let meta = json!({
            "name": keys::worker_pod(&node.metadata.name, &entry.name), "namespace": entry.namespace, "annotations": annotations,
            "labels": {
                keys::MODULE_NAME: entry.name, keys::WORKER_ACTION: word, "app.kubernetes.io/name": "kmm",
                "app.kubernetes.io/component": "worker", "app.kubernetes.io/part-of": "kmm",
            },
            "finalizers": [WORKER_FINALIZER], "ownerReferences": [owner],
        });
        let spec = json!({
            "nodeName": node.metadata.name, "restartPolicy": "OnFailure", "tolerations": tolerations,
            "initContainers": [{"name": "image-extractor", "image": image}],
            "containers": [{"name": "worker", "image": self.options.worker_image, "args": args,
                "resources": {"requests": {"cpu": "500m", "memory": "64Mi"}}}],
        });
        super::super::informer::raced(
            self.caches.pods.create(Some(&entry.namespace), json!({"metadata": meta, "spec": spec})).await,
        )?;
        Ok(())
    }

    /// Takes the finalizer off and deletes the pod.
    pub(super) async fn end_worker(&self, pod: &Pod) -> kube::Result<()> {
        if !pod.metadata.finalizers.is_empty() {
            let patch = json!({"metadata": {"uid": pod.metadata.uid, "finalizers": []}});
            super::super::informer::raced(self.caches.pods.merge(&pod.metadata.key(), "", &patch).await)?;
        }
        if pod.metadata.deleting() {
            return Ok(());
        }
        self.caches.pods.delete(&pod.metadata, None).await
    }
}
