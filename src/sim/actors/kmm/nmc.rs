//! The NodeModulesConfig controller: worker pods for what spec and status differ in, status from their ends, and the ready labels.

use super::super::caches::BY_NODE;
use super::super::informer::raced;
use super::super::records::{Node, Pod};
use super::Operator;
use super::objects::{CONFIGURED, Entry, IN_USE, NodeModulesConfig, key, mark, parsed, schedulable, with_pressures};
use super::workers::Job;
use crate::api::ObjectKey;
use crate::kmm::keys::{self, Label};
use crate::kmm::records::Action;
use serde_json::{Map as Object, Value, json};
use std::sync::Arc;
use std::time::Duration;

fn worker(pod: &Pod) -> bool {
    pod.metadata.labels.contains_key(keys::WORKER_ACTION)
}

fn restarted(pod: &Pod) -> bool {
    pod.status.container_statuses.iter().any(|status| status.name == "worker" && status.restart_count > 0)
}

impl Operator {
    pub(super) async fn sync_config(&self, name: String) -> kube::Result<Option<Duration>> {
        let (Some(_), Some(node)) = (self.configs.get(&name), self.caches.nodes.get(&name)) else { return Ok(None) };
        self.take_results(&node).await?;
        let Some(config) = self.configs.get(&name) else { return Ok(None) };
        if self.tainted(&node, &config).await? {
            return Ok(None);
        }
        for entry in &config.spec.modules {
            self.process_wanted(&node, &config, entry).await?;
        }
        self.process_unwanted(&node, &config).await?;
        let Some(config) = self.configs.get(&name) else { return Ok(None) };
        self.unmark(&config).await?;
        self.collect_workers(&node, &config).await?;
        self.label(&node, &config).await?;
        Ok(None)
    }

    /// Status from the worker pods that have ended; those that failed go without a trace.
    async fn take_results(&self, node: &Node) -> kube::Result<()> {
        let name = &node.metadata.name;
        let Some(config) = self.configs.get(name) else { return Ok(()) };
        let pods: Vec<Arc<Pod>> = self.caches.pods.indexed(BY_NODE, name).into_iter().filter(|pod| worker(pod)).collect();
        let mut status = config.status.modules.clone();
        let succeeded: Vec<&Arc<Pod>> = pods.iter().filter(|pod| pod.status.phase == "Succeeded").collect();
        for job in succeeded.iter().filter_map(|pod| Job::of(pod)) {
            let id = job.entry.key();
            status.retain(|entry| !entry.is_of(&id));
            if job.action == Action::Load {
                status.push(Entry { boot_id: node.status.node_info.boot_id.clone(), ..job.entry });
            }
        }
        if status != config.status.modules {
            self.configs.merge(name, "status", &json!({"status": {"modules": status}})).await?;
        }
        for pod in pods.iter().filter(|pod| pod.terminal()) {
            self.end_worker(pod).await?;
        }
        Ok(())
    }

    /// A taint that is not tolerated takes the ready labels at once, whatever is in the kernel; then nothing else is done in this pass.
    async fn tainted(&self, node: &Node, config: &NodeModulesConfig) -> kube::Result<bool> {
        let out = |entry: &&Entry| !schedulable(node, &parsed(&entry.tolerations));
        let wanted = config.spec.modules.iter().filter(out);
        // What the spec has no more was taken out for the taint a moment ago, if the Module does not tolerate it. Tolerations of the status are
        // those of the load, however old.
        let recorded = config.status.modules.iter().filter(|entry| {
            let module = self.modules.get(&format!("{}/{}", entry.namespace, entry.name));
            let tolerations = module.map_or_else(|| entry.tolerations.clone(), |module| with_pressures(&module.spec.tolerations));
            config.spec.find(&entry.key()).is_none() && !schedulable(node, &parsed(&tolerations))
        });
        let kept_out = wanted.clone().next().is_some();
        let mut labels = Object::new();
        for entry in wanted.chain(recorded) {
            for key in [key(Label::Ready, &entry.key()), key(Label::VersionReady, &entry.key())] {
                if node.metadata.labels.contains_key(&key) {
                    labels.insert(key, Value::Null);
                }
            }
        }
        let any = !labels.is_empty();
        if any {
            raced(self.caches.nodes.merge(&node.metadata.name, "", &json!({"metadata": {"labels": labels}})).await)?;
        }
        Ok(any || kept_out)
    }

    async fn process_wanted(&self, node: &Node, config: &NodeModulesConfig, entry: &Entry) -> kube::Result<()> {
        if let Some(pod) = self.worker(&node.metadata.name, entry) {
            let Some(job) = Job::of(&pod) else { return Ok(()) };
            // An Unload pod is never cancelled, a Load pod replaced only once it has failed.
            if job.action == Action::Load && restarted(&pod) && job.entry.config != entry.config && !pod.metadata.deleting() {
                return self.end_worker(&pod).await;
            }
            return Ok(());
        }
        let Some(recorded) = config.status.find(&entry.key()) else {
            return self.make_worker(Action::Load, node, entry, config).await;
        };
        if recorded.config != entry.config {
            // Another kernel: the node must have been rebooted, so nothing is to be unloaded.
            if recorded.config["kernelVersion"] == entry.config["kernelVersion"] {
                return self.make_worker(Action::Unload, node, recorded, config).await;
            }
            return self.make_worker(Action::Load, node, entry, config).await;
        }
        if self.rebooted(node, recorded) {
            return self.make_worker(Action::Load, node, entry, config).await;
        }
        Ok(())
    }

    fn rebooted(&self, node: &Node, recorded: &Entry) -> bool {
        node.ready() == "True" && recorded.boot_id != node.status.node_info.boot_id
    }

    async fn process_unwanted(&self, node: &Node, config: &NodeModulesConfig) -> kube::Result<()> {
        let unwanted = config.status.modules.iter().filter(|entry| config.spec.find(&entry.key()).is_none());
        let mut status = config.status.modules.clone();
        for entry in unwanted {
            if self.rebooted(node, entry) {
                status.retain(|known| !known.is_of(&entry.key()));
                continue;
            }
            match self.worker(&node.metadata.name, entry) {
                None => self.make_worker(Action::Unload, node, entry, config).await?,
                Some(pod) if Job::of(&pod).is_some_and(|job| job.action == Action::Load) && !pod.metadata.deleting() => {
                    self.end_worker(&pod).await?;
                }
                Some(_) => {}
            }
        }
        if status != config.status.modules {
            self.configs.merge(&config.metadata.name, "status", &json!({"status": {"modules": status}})).await?;
        }
        Ok(())
    }

    async fn unmark(&self, config: &NodeModulesConfig) -> kube::Result<()> {
        let known: Vec<String> =
            config.spec.modules.iter().chain(&config.status.modules).map(|entry| mark(&entry.key(), IN_USE)).collect();
        let old = config.metadata.labels.keys().filter(|key| key.ends_with(&format!(".{IN_USE}")) && !known.contains(key));
        let gone: Object<String, Value> = old.map(|key| (key.clone(), Value::Null)).collect();
        if !gone.is_empty() {
            // Not over an entry that was written meanwhile.
            let meta = json!({"resourceVersion": config.metadata.resource_version, "labels": gone});
            raced(self.configs.merge(&config.metadata.name, "", &json!({"metadata": meta})).await)?;
        }
        Ok(())
    }

    /// Worker pods of modules that are in neither spec nor status; names are compared alone.
    async fn collect_workers(&self, node: &Node, config: &NodeModulesConfig) -> kube::Result<()> {
        let entries = || config.spec.modules.iter().chain(&config.status.modules);
        for pod in self.caches.pods.indexed(BY_NODE, &node.metadata.name) {
            let name = pod.metadata.labels.get(keys::MODULE_NAME);
            if worker(&pod) && !entries().any(|entry| Some(&entry.name) == name) && !pod.metadata.deleting() {
                self.end_worker(&pod).await?;
            }
        }
        Ok(())
    }

    async fn label(&self, node: &Node, config: &NodeModulesConfig) -> kube::Result<()> {
        let Some(node) = self.caches.nodes.get_uid(&node.metadata.name, &node.metadata.uid) else { return Ok(()) };
        let labels = &node.metadata.labels;
        let mut patch = Object::new();
        for recorded in &config.status.modules {
            let id = recorded.key();
            let ready = key(Label::Ready, &id);
            let same = config.spec.find(&id).is_some_and(|wanted| wanted.config == recorded.config);
            if same && !labels.contains_key(&ready) {
                patch.insert(ready, json!(""));
                let version = key(Label::VersionReady, &id);
                if !recorded.version.is_empty() && labels.get(&version) != Some(&recorded.version) {
                    patch.insert(version, json!(recorded.version));
                }
            }
        }
        let known = |id: &ObjectKey| config.spec.find(id).is_some() || config.status.find(id).is_some();
        let ready = labels.keys().filter_map(|key| keys::parse(key)).filter(|parsed| parsed.label == Label::Ready);
        for id in ready.map(|parsed| parsed.module).filter(|id| !known(id)) {
            patch.insert(key(Label::Ready, &id), Value::Null);
            if labels.contains_key(&key(Label::VersionReady, &id)) {
                patch.insert(key(Label::VersionReady, &id), Value::Null);
            }
        }
        if !patch.is_empty() {
            raced(self.caches.nodes.merge(&node.metadata.name, "", &json!({"metadata": {"labels": patch}})).await)?;
        }
        Ok(())
    }
}

/// Whether a NodeModulesConfig still says that the module is in use; the Module's end waits for it.
pub fn used(config: &NodeModulesConfig) -> Vec<String> {
    let marks = config.metadata.labels.keys();
    marks.filter(|key| key.ends_with(&format!(".{IN_USE}")) || key.ends_with(&format!(".{CONFIGURED}"))).cloned().collect()
}
