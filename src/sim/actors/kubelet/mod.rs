//! The kubelets of all simulated machines, on one set of watches, and the handle by which scenarios drive them.
//!
//! What a pod does is told by its annotations, all with the prefix `sim.lockkeeper.dev/`:
//!
//! | annotation | meaning |
//! |---|---|
//! | `behaviour` | `loader`, `device-plugin`, `dra-driver`, `csi-node-plugin`, `unload`, `claimant`; anything else is a plain pod |
//! | `module`, `version` | the kernel module and version that a loader loads, an unload pod takes out, a plugin belongs to, a claimant opens |
//! | `resource`, `devices` | what a device plugin serves, and how many |
//! | `driver` | what a DRA driver or CSI nodeplugin serves |
//! | `init: wait-for-module` | the init container ends only when this module is loaded in this version |
//! | `pull-seconds`, `init-seconds`, `start-seconds`, `ready-seconds`, `stop-seconds` | times, instead of those drawn from the options |
//! | `exit-after-seconds`, `exit-code` | the process ends by itself; for an unload pod: how long it works, and a failure after it |
//! | `crash: "true"`, `unready: "true"`, `force: "true"` | the process fails at its start; is never ready; unloads a module in use (a loader: the other version that it meets) |
//!
//! Any pod that requests extended resources, has claims or mounts CSI volumes holds them while its process runs.
//! On a Node object: `no-kubelet: "true"` keeps it without a machine.

mod attacher;
pub mod behaviour;
mod machine;
mod needs;
mod node;
pub mod options;
mod pods;
mod run;
mod status;

pub use machine::{MachineSpec, Power};
pub use options::KubeletOptions;

use super::caches::{BY_NODE, Caches};
use super::clock::{Clock, Dice};
use super::queue::{Queue, instant, lock};
use super::records::{Node, Pod};
use crate::sim::kernel::{Disruption, Event, Service, Snapshot};
use kube::Client;
use machine::Machine;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Node and `namespace/name` of a pod.
type PodKey = (String, String);

/// All machines and what their kubelets share.
struct Cluster {
    caches: Arc<Caches>,
    options: Mutex<Arc<KubeletOptions>>,
    /// Scenarios may call from another thread, where only this knows the (virtual) time.
    runtime: tokio::runtime::Handle,
    machines: Mutex<BTreeMap<String, Machine>>,
    events: Mutex<Vec<Event>>,
    pods: Queue<PodKey>,
    nodes: Queue<String>,
    attachments: Queue<String>,
}

/// The machines and kubelets of one cluster. Clones drive the same machines; they stop when the last clone is dropped.
#[derive(Clone)]
pub struct Kubelets(Arc<Cluster>);

impl Kubelets {
    /// Starts the machines of `specs`, and (with [`KubeletOptions::adopt`]) one for each Node that somebody else creates.
    #[must_use]
    pub fn spawn(client: &Client, clock: Clock, seed: u64, options: KubeletOptions, specs: Vec<MachineSpec>) -> Self {
        let caches = Caches::new(client, clock, Dice::new(seed));
        let cluster = Arc::new(Cluster {
            caches: caches.clone(),
            options: Mutex::new(Arc::new(options)),
            runtime: tokio::runtime::Handle::current(),
            machines: Mutex::new(BTreeMap::new()),
            events: Mutex::new(Vec::new()),
            pods: Queue::new(),
            nodes: Queue::new(),
            attachments: Queue::new(),
        });
        let kubelets = Self(cluster);
        for spec in specs {
            kubelets.add_machine(spec);
        }
        kubelets.watch();
        kubelets.work();
        kubelets
    }

    fn watch(&self) {
        let (caches, pods, nodes) = (&self.0.caches, self.0.pods.clone(), self.0.nodes.clone());
        let queue = pods.clone();
        caches.pods.on_change(Arc::new(move |old: Option<&Arc<Pod>>, new: Option<&Arc<Pod>>| {
            for pod in old.into_iter().chain(new).filter(|pod| !pod.spec.node_name.is_empty()) {
                queue.add((pod.spec.node_name.clone(), pod.metadata.key()));
            }
        }));
        let weak = Arc::downgrade(&self.0);
        caches.nodes.on_change(Arc::new(move |old: Option<&Arc<Node>>, new: Option<&Arc<Node>>| {
            let Some(cluster) = weak.upgrade() else { return };
            if let Some(node) = new {
                cluster.adopt(node);
            }
            if let Some(node) = new
                && old.map(|old| &old.metadata.labels) != Some(&node.metadata.labels)
                && let Some(machine) = lock(&cluster.machines).get_mut(&node.metadata.name)
            {
                machine.labels_changed(&node.metadata.labels, cluster.caches.dice, &cluster.options(), instant());
            }
            let changed = |node: &Arc<Node>| (node.metadata.uid.clone(), node.metadata.labels.clone(), node.ready() == "True");
            if old.map(changed) != new.map(changed)
                && let Some(node) = new.or(old)
            {
                nodes.add(node.metadata.name.clone());
                // Pods that wait for their Node object, were bound before it came, or were marked while it was unwell.
                if old.is_none_or(|old| old.ready() != "True") {
                    for pod in cluster.caches.pods.indexed(BY_NODE, &node.metadata.name) {
                        cluster.pods.add((node.metadata.name.clone(), pod.metadata.key()));
                    }
                }
            }
        }));
        // Pods that wait for a claim, a volume or an attachment are looked at again when one changes.
        let stir = |cluster: &Arc<Cluster>, node: Option<&str>, namespace: Option<&str>| {
            for machine in lock(&cluster.machines).values() {
                if node.is_none_or(|node| node == machine.spec.name) {
                    for run in machine
                        .runs
                        .values()
                        .filter(|run| run.missing.is_some() && namespace.is_none_or(|ns| ns == run.pod.namespace))
                    {
                        cluster.pods.add((machine.spec.name.clone(), run.key()));
                    }
                }
            }
        };
        let weak = Arc::downgrade(&self.0);
        caches.claims.on_change(Arc::new(move |_, new| {
            let (Some(cluster), Some(claim)) = (weak.upgrade(), new) else { return };
            for consumer in &claim.status.reserved_for {
                let key = format!("{}/{}", claim.metadata.ns(), consumer.name);
                if let Some(pod) = cluster.caches.pods.get(&key).filter(|pod| !pod.spec.node_name.is_empty()) {
                    cluster.pods.add((pod.spec.node_name.clone(), key));
                }
            }
        }));
        let weak = Arc::downgrade(&self.0);
        caches.attachments.on_change(Arc::new(move |_, new| {
            let (Some(cluster), Some(attachment)) = (weak.upgrade(), new) else { return };
            cluster.attachments.add(attachment.metadata.name.clone());
            stir(&cluster, attachment.spec["nodeName"].as_str(), None);
        }));
        let weak = Arc::downgrade(&self.0);
        caches.volume_claims.on_change(Arc::new(move |_, new| {
            let (Some(cluster), Some(claim)) = (weak.upgrade(), new) else { return };
            stir(&cluster, None, Some(claim.metadata.ns()));
        }));
        let weak = Arc::downgrade(&self.0);
        caches.volumes.on_change(Arc::new(move |_, _| {
            if let Some(cluster) = weak.upgrade() {
                stir(&cluster, None, None);
            }
        }));
    }

    fn work(&self) {
        let caches = self.0.caches.clone();
        caches.nodes.start(&caches.tasks);
        caches.pods.start(&caches.tasks);
        caches.claims.start(&caches.tasks);
        caches.slices.start(&caches.tasks);
        caches.volume_claims.start(&caches.tasks);
        caches.volumes.start(&caches.tasks);
        caches.csi_nodes.start(&caches.tasks);
        caches.csi_drivers.start(&caches.tasks);
        caches.attachments.start(&caches.tasks);
        let weak = Arc::downgrade(&self.0);
        self.0.caches.tasks.spawn(async move {
            caches.nodes.synced().await;
            caches.pods.synced().await;
            caches.claims.synced().await;
            caches.slices.synced().await;
            caches.volume_claims.synced().await;
            caches.volumes.synced().await;
            caches.csi_nodes.synced().await;
            caches.csi_drivers.synced().await;
            caches.attachments.synced().await;
            let Some(cluster) = weak.upgrade() else { return };
            for name in lock(&cluster.machines).keys() {
                cluster.nodes.add(name.clone());
            }
            let (workers, tasks) = (cluster.options().workers, &cluster.caches.tasks);
            let worker = weak.clone();
            cluster.nodes.run(tasks, "kubelet-node", workers, move |name| {
                let worker = worker.clone();
                async move {
                    match worker.upgrade() {
                        Some(cluster) => cluster.sync_node(name).await,
                        None => Ok(None),
                    }
                }
            });
            let worker = weak.clone();
            cluster.attachments.run(tasks, "attacher", 8, move |name| {
                let worker = worker.clone();
                async move {
                    match worker.upgrade() {
                        Some(cluster) => cluster.sync_attachment(name).await,
                        None => Ok(None),
                    }
                }
            });
            let worker = weak.clone();
            cluster.pods.run(tasks, "kubelet-pod", workers, move |key| {
                let worker = worker.clone();
                async move {
                    match worker.upgrade() {
                        Some(cluster) => cluster.sync_pod(key).await,
                        None => Ok(None),
                    }
                }
            });
        });
    }

    /// Changes the timing (lags, boot times) for everything that is drawn from now on.
    pub fn set_options(&self, change: impl FnOnce(&mut KubeletOptions)) {
        let mut options = lock(&self.0.options);
        let mut copy = (**options).clone();
        change(&mut copy);
        *options = Arc::new(copy);
    }

    /// Ends all kubelets; what runs in the kernels stays as it is.
    pub fn stop(&self) {
        self.0.caches.tasks.abort();
    }

    /// A handle that keeps nothing alive: for observers that the API server holds, which the kubelets hold in turn.
    #[must_use]
    pub fn weak(&self) -> WeakKubelets {
        WeakKubelets(Arc::downgrade(&self.0))
    }

    /// One more machine; its kubelet registers the Node.
    pub fn add_machine(&self, spec: MachineSpec) {
        self.0.add(spec);
    }

    fn change<T>(&self, node: &str, change: impl FnOnce(&mut Machine, &Cluster) -> T) -> Option<T> {
        let cluster = &self.0;
        let _inside = cluster.runtime.enter();
        let answer = {
            let mut machines = lock(&cluster.machines);
            let machine = machines.get_mut(node)?;
            let answer = change(machine, cluster);
            cluster.kernel_changed(machine);
            answer
        };
        cluster.nodes.add(node.to_owned());
        Some(answer)
    }

    fn stir_pods(&self, node: &str) {
        let mut keys: Vec<String> = self.0.caches.pods.indexed(BY_NODE, node).iter().map(|pod| pod.metadata.key()).collect();
        if let Some(machine) = lock(&self.0.machines).get(node) {
            keys.extend(machine.runs.values().map(run::Run::key));
        }
        for key in keys {
            self.0.pods.add((node.to_owned(), key));
        }
    }

    /// Cuts the power and boots again after a time drawn from the options: new boot ID, empty kernel, NotReady for a while.
    pub fn reboot(&self, node: &str) {
        let boots = lock(&self.0.machines).get(node).map_or(0, |machine| machine.boots);
        let down = self.0.caches.dice.between(self.0.options().boot, &["reboot", node, &boots.to_string()]);
        self.reboot_in(node, down);
    }

    /// As [`Self::reboot`], with the time that the machine is down.
    pub fn reboot_in(&self, node: &str, down: Duration) {
        let _inside = self.0.runtime.enter();
        let until = instant() + down;
        self.change(node, |machine, cluster| machine.power_off(Some(until), cluster.caches.clock.now()));
        self.0.nodes.add_after(node.to_owned(), down);
    }

    /// Cuts the power for good.
    pub fn power_off(&self, node: &str) {
        self.change(node, |machine, cluster| machine.power_off(None, cluster.caches.clock.now()));
    }

    /// Boots a machine that is off, now.
    pub fn power_on(&self, node: &str) {
        self.change(node, |machine, _| {
            if matches!(machine.power, Power::Off(_)) {
                machine.power = Power::Off(Some(instant()));
            }
        });
    }

    /// The kubelet dies or is cut off: no Lease, no status; processes run on.
    pub fn kill(&self, node: &str) {
        self.change(node, |machine, _| {
            if machine.power == Power::On {
                machine.power = Power::KubeletDown;
            }
        });
    }

    /// The kubelet comes back on the same boot and reports everything anew.
    pub fn revive(&self, node: &str) {
        self.change(node, |machine, _| {
            if machine.power == Power::KubeletDown {
                machine.power = Power::On;
                (machine.registered, machine.lease_at, machine.status_at, machine.reported) = (false, None, None, None);
                machine.runs.values_mut().for_each(|run| run.reported = None);
            }
        });
        self.stir_pods(node);
    }

    /// The kubelet registers its Node again if it is gone (it does so by itself after a boot only): same boot, same machine.
    pub fn register(&self, node: &str) {
        self.change(node, |machine, _| machine.registered = false);
    }

    /// The kubelet evicts a pod (`namespace/name`) for pressure: phase Failed, reason Evicted, its processes end at once.
    pub fn pressure_evict(&self, node: &str, pod: &str) {
        self.change(node, |machine, cluster| {
            let up = machine.power == Power::On;
            let uid = machine.runs.values().find(|run| up && run.key() == pod && run.active()).map(|run| run.pod.uid.clone());
            let (at, now) = (instant(), cluster.caches.clock.now());
            if let Some(uid) = uid
                && let Some((run, mut context)) = machine.with_run(&uid, &cluster.options(), cluster.caches.dice, at, now)
            {
                run.fail("Evicted", "The node was low on resource: memory.", &mut context);
            }
        });
        self.0.pods.add((node.to_owned(), pod.to_owned()));
    }

    /// The process of a pod (`namespace/name`) crashes now: its container is restarted, what it served or held is gone.
    pub fn crash(&self, node: &str, pod: &str) {
        self.change(node, |machine, _| {
            for run in machine.runs.values_mut().filter(|run| run.key() == pod && run.stage == run::Stage::Running) {
                run.exit_at = Some(instant());
                run.behaviour.exit_code = 139;
            }
        });
        self.0.pods.add((node.to_owned(), pod.to_owned()));
    }

    /// A process of a pod (`namespace/name`) that is being stopped ends now, however long it would have taken.
    pub fn end(&self, node: &str, pod: &str) {
        self.change(node, |machine, _| {
            for run in machine.runs.values_mut().filter(|run| run.key() == pod) {
                if let run::Stage::Stopping(until) = &mut run.stage {
                    *until = instant();
                }
            }
        });
        self.0.pods.add((node.to_owned(), pod.to_owned()));
    }

    /// Whatever a process of a pod (`namespace/name`) takes its time for is over now: its image, its start, its work or its stop. With times
    /// that never come by themselves, what is to be looked at stays as long as it takes to look.
    pub fn hurry(&self, node: &str, pod: &str) {
        self.change(node, |machine, _| {
            for run in machine.runs.values_mut().filter(|run| run.key() == pod) {
                run.hurry(instant());
            }
        });
        self.0.pods.add((node.to_owned(), pod.to_owned()));
    }

    /// The host loses its network (its DPU went away): processes that are not on the host network are hit.
    pub fn lose_network(&self, node: &str) {
        self.change(node, |machine, cluster| {
            let spared: Vec<String> =
                machine.runs.values().filter(|run| run.host_network).map(|run| run.pod.uid.clone()).collect();
            machine.kernel.lose_network(cluster.caches.clock.now(), |pod| spared.contains(&pod.uid));
        });
    }

    /// A device count shown in the node's allocatable that no plugin pod stands for (VFs of a DPU); 0 takes it away.
    pub fn set_devices(&self, node: &str, resource: &str, devices: i64) {
        self.change(node, |machine, _| {
            machine.spec.capacity.insert(resource.to_owned(), devices.to_string());
        });
    }

    /// The kernel that the machine boots into next.
    pub fn set_kernel_version(&self, node: &str, version: &str) {
        if let Some(machine) = lock(&self.0.machines).get_mut(node) {
            machine.spec.kernel_version = version.to_owned();
        }
    }

    /// The state of a machine's kernel now.
    #[must_use]
    pub fn kernel(&self, node: &str) -> Option<Snapshot> {
        lock(&self.0.machines).get(node).map(|machine| machine.kernel.snapshot())
    }

    /// Power of a machine and its kubelet.
    #[must_use]
    pub fn power(&self, node: &str) -> Option<Power> {
        lock(&self.0.machines).get(node).map(|machine| machine.power)
    }

    /// All machines, by name.
    #[must_use]
    pub fn machines(&self) -> Vec<String> {
        lock(&self.0.machines).keys().cloned().collect()
    }

    /// What happened in all kernels from the `from`th event on, in order.
    #[must_use]
    pub fn events(&self, from: usize) -> Vec<Event> {
        lock(&self.0.events).get(from..).map(<[Event]>::to_vec).unwrap_or_default()
    }

    /// Every workload that lost its device, mount or network while running, in order.
    #[must_use]
    pub fn disruptions(&self) -> Vec<Disruption> {
        let mut all: Vec<Disruption> =
            lock(&self.0.machines).values().flat_map(|machine| machine.kernel.disruptions().to_vec()).collect();
        all.sort_by(|one, two| (one.at, &one.node, &one.pod.uid).cmp(&(two.at, &two.node, &two.pod.uid)));
        all
    }

    /// Whether a service is registered on a node.
    #[must_use]
    pub fn serves(&self, node: &str, service: &Service) -> bool {
        lock(&self.0.machines).get(node).is_some_and(|machine| machine.kernel.provider(service).is_some())
    }
}

/// See [`Kubelets::weak`].
#[derive(Clone)]
pub struct WeakKubelets(std::sync::Weak<Cluster>);

impl WeakKubelets {
    /// The kubelets, while somebody else keeps them.
    #[must_use]
    pub fn get(&self) -> Option<Kubelets> {
        self.0.upgrade().map(Kubelets)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.caches.tasks.abort();
    }
}

impl Cluster {
    fn options(&self) -> Arc<KubeletOptions> {
        lock(&self.options).clone()
    }

    fn add(&self, spec: MachineSpec) {
        let _inside = self.runtime.enter();
        let name = spec.name.clone();
        {
            let mut machines = lock(&self.machines);
            if machines.contains_key(&name) {
                return;
            }
            let mut machine = Machine::new(spec, self.caches.dice, instant(), self.caches.clock.now());
            // Leases of a thousand nodes shall not be renewed in the same instant.
            let spread = self
                .caches
                .dice
                .between(super::clock::Range { min: Duration::ZERO, max: self.options().lease_interval }, &["lease", &name]);
            machine.lease_at = instant().checked_sub(spread);
            self.kernel_changed(&mut machine);
            machines.insert(name.clone(), machine);
        }
        self.nodes.add(name);
    }

    fn adopt(&self, node: &Node) {
        let no_kubelet =
            node.metadata.annotations.get(&format!("{}no-kubelet", behaviour::PREFIX)).is_some_and(|value| value == "true");
        if !self.options().adopt || no_kubelet || lock(&self.machines).contains_key(&node.metadata.name) {
            return;
        }
        let mut spec = MachineSpec::new(&node.metadata.name);
        spec.labels.clone_from(&node.metadata.labels);
        if !node.status.node_info.kernel_version.is_empty() {
            spec.kernel_version.clone_from(&node.status.node_info.kernel_version);
        }
        for (name, milli) in node.status.capacity.iter() {
            if !super::quantity::is_extended(name) {
                let text = if milli % 1000 == 0 { (milli / 1000).to_string() } else { format!("{milli}m") };
                spec.capacity.insert(name.to_owned(), text);
            }
        }
        self.add(spec);
    }
}
