//! The node half of a kubelet: registers the Node, renews its Lease, writes its status, and shows what plugins and drivers
//! offer (allocatable, ResourceSlices, CSINode) with their lag.

use super::super::informer::raced;
use super::super::queue::{instant, lock};
use super::super::records::Node;
use super::super::volumes::{CsiVolume, attach_required, csi_volumes};
use super::Cluster;
use super::machine::{Machine, Power, wait};
use crate::sim::kernel::Service;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;

const LEASES: &str = "kube-node-lease";

/// Kubelets say by this annotation that the attach-detach controller attaches their volumes.
const MANAGED_ATTACH: &str = "volumes.kubernetes.io/controller-managed-attach-detach";

/// What is to be written for one node, decided under the lock and done outside of it.
#[derive(Default)]
struct Plan {
    register: Option<Value>,
    status: Option<Value>,
    lease: bool,
    slices: Vec<(String, i64)>,
    drivers: Option<Vec<String>>,
    wake: Option<Duration>,
}

impl Cluster {
    pub(super) async fn sync_node(&self, name: String) -> kube::Result<Option<Duration>> {
        let object = self.caches.nodes.get(&name);
        let Some(plan) = self.plan_node(&name, object.as_deref()) else { return Ok(None) };
        if let Some(body) = plan.register {
            match self.caches.nodes.create(None, body).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => return Err(error),
            }
            self.with(&name, |machine| machine.registered = true);
            return Ok(Some(Duration::from_millis(1)));
        }
        if let (Some(status), Some(node)) = (&plan.status, &object) {
            if !node.metadata.annotations.contains_key(MANAGED_ATTACH) {
                let patch = json!({"metadata": {"uid": node.metadata.uid, "annotations": {MANAGED_ATTACH: "true"}}});
                raced(self.caches.nodes.merge(&name, "", &patch).await)?;
            }
            let patch = json!({"metadata": {"uid": node.metadata.uid}, "status": self.with_heartbeat(status)});
            if raced(self.caches.nodes.strategic(&name, "status", &patch).await)?.is_some() {
                let at = instant();
                self.with(&name, |machine| {
                    machine.reported = Some((node.metadata.uid.clone(), status.clone()));
                    machine.status_at = Some(at);
                });
            }
        }
        if plan.lease {
            self.renew(&name, object.as_ref()).await?;
            let at = instant();
            self.with(&name, |machine| machine.lease_at = Some(at));
        }
        for (driver, devices) in &plan.slices {
            self.publish(&name, driver, *devices).await?;
        }
        if let Some(drivers) = &plan.drivers {
            self.register_drivers(&name, object.as_ref(), drivers).await?;
        }
        Ok(plan.wake)
    }

    fn with<T>(&self, name: &str, change: impl FnOnce(&mut Machine) -> T) -> Option<T> {
        lock(&self.machines).get_mut(name).map(change)
    }

    fn plan_node(&self, name: &str, object: Option<&Node>) -> Option<Plan> {
        let (at, now, dice) = (instant(), self.caches.clock.now(), self.caches.dice);
        let mut machines = lock(&self.machines);
        let machine = machines.get_mut(name)?;
        let mut plan = Plan::default();
        match machine.power {
            Power::Off(Some(until)) if until <= at => {
                machine.boot(dice, &self.options(), at, now);
                self.kernel_changed(machine);
                for run in machine.runs.values() {
                    self.pods.add((name.to_owned(), run.key()));
                }
                for pod in self.caches.pods.indexed(super::super::caches::BY_NODE, name) {
                    self.pods.add((name.to_owned(), pod.metadata.key()));
                }
            }
            Power::Off(until) => return Some(Plan { wake: until.map(|until| wait(at, until)), ..plan }),
            Power::KubeletDown => return Some(plan),
            Power::On => {}
        }
        let Some(node) = object else {
            if !machine.registered {
                let status = status(machine, at, now, &machine.address(dice), &[]);
                plan.register = Some(registration(machine, &status));
            }
            return Some(plan);
        };
        machine.registered = true;
        machine.plan_shown(dice, &self.options(), at);
        let changed = machine.show_due(at);
        let fresh = machine.reported.as_ref().is_none_or(|(uid, _)| *uid != node.metadata.uid);
        let volumes: Vec<String> = self.volumes_in_use(machine);
        let status = status(machine, at, now, &machine.address(dice), &volumes);
        let due = machine.status_at.is_none_or(|last| last + self.options().status_interval <= at);
        if fresh || due || machine.reported.as_ref().is_some_and(|(_, known)| *known != status) {
            plan.status = Some(status);
        }
        plan.lease = machine.lease_at.is_none_or(|last| last + self.options().lease_interval <= at);
        if changed || fresh {
            let shown = machine.shown.iter();
            plan.slices = shown
                .filter_map(
                    |(service, shown)| {
                        if let Service::Dra(driver) = service { Some((driver.clone(), shown.devices)) } else { None }
                    },
                )
                .collect();
            let drivers = machine.shown.iter().filter_map(|(service, shown)| {
                if let Service::Csi(driver) = service { Some((driver, shown.devices)) } else { None }
            });
            let drivers: Vec<_> = drivers.collect();
            if !drivers.is_empty() || fresh {
                plan.drivers =
                    Some(drivers.iter().filter(|(_, devices)| *devices > 0).map(|(driver, _)| (*driver).clone()).collect());
            }
        }
        let lease_base = machine.lease_at.filter(|_| !plan.lease).unwrap_or(at);
        let status_base = machine.status_at.filter(|_| plan.status.is_none()).unwrap_or(at);
        let next = [lease_base + self.options().lease_interval, status_base + self.options().status_interval];
        let ready = Some(machine.ready_at).filter(|ready| *ready > at);
        plan.wake = next.into_iter().chain(ready).chain(machine.next_shown()).min().map(|until| wait(at, until));
        Some(plan)
    }

    fn volumes_in_use(&self, machine: &Machine) -> Vec<String> {
        let mut names = Vec::new();
        for run in machine.runs.values().filter(|run| run.active() || !run.prepared.is_empty()) {
            if !run.prepared.iter().any(|service| matches!(service, Service::Csi(_))) {
                continue;
            }
            if let Some(pod) = self.caches.pods.get_uid(&run.key(), &run.pod.uid) {
                let volumes = csi_volumes(&self.caches, &pod).unwrap_or_default();
                let attachable = volumes.iter().filter(|v| v.volume.is_some() && attach_required(&self.caches, &v.driver));
                names.extend(attachable.map(CsiVolume::unique_name));
            }
        }
        names.sort();
        names.dedup();
        names
    }

    fn with_heartbeat(&self, status: &Value) -> Value {
        let (mut status, time) = (status.clone(), self.caches.clock.time());
        if let Some(conditions) = status["conditions"].as_array_mut() {
            for condition in conditions {
                condition["lastHeartbeatTime"] = json!(time);
            }
        }
        status
    }

    async fn renew(&self, name: &str, node: Option<&Arc<Node>>) -> kube::Result<()> {
        let (key, time) = (format!("{LEASES}/{name}"), self.caches.clock.micro_time());
        let patch = json!({"spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": time}});
        match self.caches.leases.merge(&key, "", &patch).await {
            Ok(_) => return Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(error),
        }
        let mut lease = json!({"metadata": {"name": name, "namespace": LEASES}, "spec": patch["spec"]});
        if let Some(node) = node {
            lease["metadata"]["ownerReferences"] =
                json!([{"apiVersion": "v1", "kind": "Node", "name": name, "uid": node.metadata.uid}]);
        }
        match self.caches.leases.create(Some(LEASES), lease).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => {
                // Real API servers make this namespace themselves, some time after their start.
                raced(self.caches.namespaces.create(None, json!({"metadata": {"name": LEASES}})).await)?;
                Err(kube::Error::Api(status))
            }
            Err(error) => Err(error),
        }
    }

    async fn publish(&self, node: &str, driver: &str, devices: i64) -> kube::Result<()> {
        let name = format!("{node}-{}", driver.replace('/', "-"));
        let known = self.caches.slices.get(&name);
        match (devices, known) {
            (0, None) => Ok(()),
            (0, Some(slice)) => self.caches.slices.delete(&slice.metadata, None).await,
            (_, Some(slice)) if slice.spec.devices.len() as i64 == devices => Ok(()),
            (_, Some(slice)) => {
                self.caches.slices.delete(&slice.metadata, None).await?;
                raced(self.caches.slices.create(None, slice_body(&name, node, driver, devices)).await).map(|_| ())
            }
            (_, None) => raced(self.caches.slices.create(None, slice_body(&name, node, driver, devices)).await).map(|_| ()),
        }
    }

    async fn register_drivers(&self, name: &str, node: Option<&Arc<Node>>, drivers: &[String]) -> kube::Result<()> {
        let list: Vec<Value> = drivers.iter().map(|driver| json!({"name": driver, "nodeID": name, "topologyKeys": []})).collect();
        match self.caches.csi_nodes.get(name) {
            Some(known)
                if known.spec["drivers"].as_array().map(Vec::len).unwrap_or(0) == list.len()
                    && known.spec["drivers"] == json!(list) =>
            {
                Ok(())
            }
            Some(_) => raced(self.caches.csi_nodes.merge(name, "", &json!({"spec": {"drivers": list}})).await).map(|_| ()),
            None if list.is_empty() => Ok(()),
            None => {
                let mut body = json!({"metadata": {"name": name}, "spec": {"drivers": list}});
                if let Some(node) = node {
                    body["metadata"]["ownerReferences"] =
                        json!([{"apiVersion": "v1", "kind": "Node", "name": name, "uid": node.metadata.uid}]);
                }
                raced(self.caches.csi_nodes.create(None, body).await).map(|_| ())
            }
        }
    }
}

fn slice_body(name: &str, node: &str, driver: &str, devices: i64) -> Value {
    let devices: Vec<Value> = (0..devices).map(|index| json!({"name": format!("device-{index}")})).collect();
    json!({"metadata": {"name": name}, "spec": {"driver": driver, "nodeName": node,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}, "devices": devices}})
}

fn registration(machine: &Machine, status: &Value) -> Value {
    json!({
        "metadata": {"name": machine.spec.name, "labels": machine.spec.labels, "annotations": {MANAGED_ATTACH: "true"}},
        "spec": {"taints": machine.spec.taints}, "status": status,
    })
}

/// Node status without heartbeat times, so that it can be compared with what was written last.
fn status(machine: &mut Machine, at: tokio::time::Instant, now: jiff::Timestamp, address: &str, volumes: &[String]) -> Value {
    let ready = machine.ready_at <= at;
    if machine.ready_since.0 != ready {
        machine.ready_since = (ready, now);
    }
    let since = machine.ready_since.1.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let mut amounts: Map<String, Value> =
        machine.spec.capacity.iter().map(|(name, amount)| (name.clone(), json!(amount))).collect();
    for (service, shown) in &machine.shown {
        if let Service::Resource(resource) = service {
            amounts.insert(resource.clone(), json!(shown.devices.to_string()));
        }
    }
    let (reason, message) = if ready {
        ("KubeletReady", "kubelet is posting ready status")
    } else {
        ("KubeletNotReady", "container runtime network not ready")
    };
    let condition = |kind: &str, value: bool, reason: &str, message: &str| json!({"type": kind, "status": if value { "True" } else { "False" }, "reason": reason, "message": message, "lastTransitionTime": since});
    let spec = &machine.spec;
    json!({
        "capacity": amounts, "allocatable": amounts, "volumesInUse": volumes,
        "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": spec.name}],
        "conditions": [
            condition("Ready", ready, reason, message),
            condition("MemoryPressure", false, "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
            condition("DiskPressure", false, "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
            condition("PIDPressure", false, "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ],
        "nodeInfo": {
            "bootID": machine.kernel.boot_id(), "kernelVersion": spec.kernel_version, "machineID": spec.name, "systemUUID": spec.name,
            "osImage": "Simulated Linux", "containerRuntimeVersion": "sim://1.0", "kubeletVersion": "v1.37.0", "kubeProxyVersion": "",
            "operatingSystem": "linux", "architecture": "amd64",
        },
    })
}
