//! A simulated KMM operator: an ordinary client that does what an operator of commit `de3f8c9` was recorded to do, its defects included. No
//! webhooks, builds, signing, or hub. What differs from the recording is listed in `docs/simulator.md`.
//!
//! A Module's annotations `sim.lockkeeper.dev/<part>.<name>` (parts `plugin`, `load`, `unload`, `pull`) become the annotation
//! `sim.lockkeeper.dev/<name>` of the pods that KMM makes for that part, for the simulated kubelet.

mod crds;
mod images;
mod labels;
mod modules;
mod nmc;
mod objects;
mod plugins;
#[cfg(test)]
mod tests;
mod workers;

pub use crds::crds;

use super::caches::Caches;
use super::clock::{Clock, Dice};
use super::informer::{Kind, Store};
use super::queue::Queue;
use super::records::{DaemonSet, Node, Pod, Record};
use crate::kmm::keys;
use kube::Client;
use objects::{Module, ModuleImagesConfig, NodeModulesConfig};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// How long things take, and what the operator is.
#[derive(Clone, Debug)]
pub struct KmmOptions {
    /// From the start of a worker's process to its end.
    pub worker: Duration,
    pub worker_image: String,
}

impl Default for KmmOptions {
    fn default() -> Self {
        Self { worker: Duration::from_secs(2), worker_image: "kmm-worker:sim".to_owned() }
    }
}

/// What the garbage collector must follow beside its own kinds: a NodeModulesConfig goes with its node, a DaemonSet with its Module.
#[must_use]
pub fn collected() -> Vec<Kind> {
    vec![Module::KIND, NodeModulesConfig::KIND, ModuleImagesConfig::KIND]
}

/// See where it is used.
const MODULES_LATER: Duration = Duration::from_millis(100);

/// What all controllers of the operator share.
struct Operator {
    caches: Arc<Caches>,
    modules: Arc<Store<Module>>,
    configs: Arc<Store<NodeModulesConfig>>,
    images: Arc<Store<ModuleImagesConfig>>,
    options: KmmOptions,
    /// Refused tries of the label controller in a row, by node.
    refused: Mutex<BTreeMap<String, u32>>,
    label_queue: Queue<String>,
    module_queue: Queue<String>,
    config_queue: Queue<String>,
    image_queue: Queue<String>,
    plugin_queue: Queue<String>,
    /// Node and `namespace/name` of a plugin's pod.
    pod_queue: Queue<(String, String)>,
}

/// The running operator; dropping it ends it, as `kill -9` does. Start another to go on.
pub struct Kmm(Arc<Operator>);

impl Drop for Kmm {
    fn drop(&mut self) {
        self.0.caches.tasks.abort();
    }
}

impl Kmm {
    /// Starts it. The CRDs of [`crds`] must be there.
    #[must_use]
    pub fn spawn(client: &Client, clock: Clock, seed: u64, options: KmmOptions) -> Self {
        let operator = Arc::new(Operator {
            caches: Caches::new(client, clock, Dice::new(seed)),
            modules: Store::new(client.clone(), &[]),
            configs: Store::new(client.clone(), &[]),
            images: Store::new(client.clone(), &[]),
            options,
            refused: Mutex::default(),
            label_queue: Queue::new(),
            module_queue: Queue::new(),
            config_queue: Queue::new(),
            image_queue: Queue::new(),
            plugin_queue: Queue::new(),
            pod_queue: Queue::new(),
        });
        operator.watch();
        operator.work();
        Self(operator)
    }
}

/// Calls `act` with the operator while it lives.
fn on<R>(
    operator: &Arc<Operator>,
    act: impl Fn(&Operator, Option<&Arc<R>>, Option<&Arc<R>>) + Send + Sync + 'static,
) -> super::informer::Handler<R> {
    let weak: Weak<Operator> = Arc::downgrade(operator);
    Arc::new(move |old, new| {
        if let Some(operator) = weak.upgrade() {
            act(&operator, old, new);
        }
    })
}

impl Operator {
    fn watch(self: &Arc<Self>) {
        self.caches.nodes.on_change(on(self, |this, old: Option<&Arc<Node>>, new| {
            let Some(node) = new.or(old) else { return };
            let name = &node.metadata.name;
            let versions = |node: Option<&Arc<Node>>| {
                node.map(|node| {
                    labels::version_labels(&node.metadata.labels)
                        .into_iter()
                        .map(|(key, value)| (key.to_owned(), value.to_owned()))
                        .collect::<Vec<_>>()
                })
            };
            if old.is_none() || versions(old) != versions(new) {
                this.label_queue.add(name.clone());
            }
            let relevant = |node: &Arc<Node>| {
                (
                    node.metadata.labels.clone(),
                    node.spec.clone(),
                    node.ready() == "True",
                    node.status.node_info.boot_id.clone(),
                    node.status.node_info.kernel_version.clone(),
                )
            };
            if old.map(relevant) != new.map(relevant) {
                this.config_queue.add(name.clone());
                for module in this.modules.keys() {
                    this.module_queue.add(module.clone());
                    this.plugin_queue.add(module);
                }
            }
        }));
        self.caches.pods.on_change(on(self, |this, old: Option<&Arc<Pod>>, new| {
            let Some(pod) = new.or(old) else { return };
            let labels = &pod.metadata.labels;
            if let Some(owner) = labels.get(keys::IMAGE_OWNER) {
                this.image_queue.add(format!("{}/{owner}", pod.metadata.ns()));
            } else if labels.contains_key(keys::WORKER_ACTION) {
                this.config_queue.add(pod.spec.node_name.clone());
            } else if labels.contains_key(keys::ROLE)
                && labels.contains_key(keys::MODULE_NAME)
                && let Some(node) = pod.target_node()
            {
                this.pod_queue.add((node.to_owned(), pod.metadata.key()));
            }
        }));
        self.caches.daemon_sets.on_change(on(self, |this, old: Option<&Arc<DaemonSet>>, new| {
            if let Some(set) = new.or(old)
                && let Some(module) = set.metadata.labels.get(keys::MODULE_NAME)
            {
                this.plugin_queue.add(format!("{}/{module}", set.metadata.ns()));
            }
        }));
        self.modules.on_change(on(self, |this, old: Option<&Arc<Module>>, new| {
            if let Some(module) = new.or(old) {
                this.module_queue.add(module.metadata.key());
                this.plugin_queue.add(module.metadata.key());
            }
        }));
        self.configs.on_change(on(self, |this, old: Option<&Arc<NodeModulesConfig>>, new| {
            let Some(config) = new.or(old) else { return };
            this.config_queue.add(config.metadata.name.clone());
            // A Module that is being deleted waits for the marks.
            if old.map(|old| nmc::used(old)) != new.map(|new| nmc::used(new)) {
                for module in this.modules.keys() {
                    this.module_queue.add(module);
                }
            }
        }));
        self.images.on_change(on(self, |this, old: Option<&Arc<ModuleImagesConfig>>, new| {
            if let Some(images) = new.or(old) {
                this.image_queue.add(images.metadata.key());
                this.module_queue.add(images.metadata.key());
            }
        }));
    }

    fn work(self: &Arc<Self>) {
        let (caches, tasks) = (&self.caches, &self.caches.tasks);
        caches.nodes.start(tasks);
        caches.pods.start(tasks);
        caches.daemon_sets.start(tasks);
        caches.device_classes.start(tasks);
        self.modules.start(tasks);
        self.configs.start(tasks);
        self.images.start(tasks);
        let weak = Arc::downgrade(self);
        let stores = (caches.nodes.clone(), caches.pods.clone(), caches.daemon_sets.clone(), caches.device_classes.clone());
        let own = (self.modules.clone(), self.configs.clone(), self.images.clone());
        tasks.spawn(async move {
            stores.0.synced().await;
            stores.1.synced().await;
            stores.2.synced().await;
            stores.3.synced().await;
            own.0.synced().await;
            own.1.synced().await;
            own.2.synced().await;
            if let Some(operator) = weak.upgrade() {
                operator.start();
            }
        });
    }

    fn start(self: &Arc<Self>) {
        macro_rules! run {
            ($queue:ident, $name:literal, $sync:ident) => {{
                let weak = Arc::downgrade(self);
                self.$queue.run(&self.caches.tasks, $name, 1, move |key| {
                    let weak = weak.clone();
                    async move {
                        match weak.upgrade() {
                            Some(operator) => operator.$sync(key).await,
                            None => Ok(None),
                        }
                    }
                });
            }};
        }
        run!(label_queue, "kmm-labels", sync_labels);
        run!(config_queue, "kmm-config", sync_config);
        run!(image_queue, "kmm-images", sync_images);
        run!(plugin_queue, "kmm-plugins", sync_plugins);
        run!(pod_queue, "kmm-pods", sync_plugin_pod);
        // After a start the Modules come last: a load that ended meanwhile is labelled before it is known to be unwanted.
        let weak = Arc::downgrade(self);
        self.caches.tasks.spawn(async move {
            tokio::time::sleep(MODULES_LATER).await;
            if let Some(operator) = weak.upgrade() {
                operator.start_modules();
            }
        });
    }

    fn start_modules(self: &Arc<Self>) {
        let weak = Arc::downgrade(self);
        self.module_queue.run(&self.caches.tasks, "kmm-module", 1, move |key| {
            let weak = weak.clone();
            async move {
                match weak.upgrade() {
                    Some(operator) => operator.sync_module(key).await,
                    None => Ok(None),
                }
            }
        });
    }
}
