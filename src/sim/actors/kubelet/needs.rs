//! What a pod needs from the API and from drivers before it starts: allocated claims, bound and attached volumes.

use super::super::caches::{BY_NODE, Caches};
use super::super::records::Pod;
use super::run::Needs;
use crate::sim::kernel::{Hold, Kernel, Service};
use serde_json::Value;

/// A CSI volume that a pod mounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsiVolume {
    pub driver: String,
    pub handle: String,
    /// Name of the PersistentVolume; `None` for an inline volume.
    pub volume: Option<String>,
    /// The mount's process lives in the nodeplugin pod.
    pub dies_with_plugin: bool,
}

impl CsiVolume {
    fn new(driver: &str, handle: &str, volume: Option<String>, attributes: &Value) -> Self {
        let mounter = attributes["mounter"].as_str().unwrap_or_default();
        let dies_with_plugin = matches!(mounter, "fuse" | "rbd-nbd") || driver.contains("fuse");
        Self { driver: driver.to_owned(), handle: handle.to_owned(), volume, dies_with_plugin }
    }

    /// The name in `status.volumesInUse`.
    #[must_use]
    pub fn unique_name(&self) -> String {
        format!("kubernetes.io/csi/{}^{}", self.driver, self.handle)
    }
}

fn mounted(pod: &Pod, volume: &str) -> bool {
    let containers = pod.spec.containers.iter().chain(&pod.spec.init_containers);
    containers.into_iter().any(|c| c.volume_mounts.iter().chain(&c.volume_devices).any(|mount| mount.name == volume))
}

/// The CSI volumes that a pod uses.
///
/// # Errors
/// A claim that is missing or not bound: what the kubelet says it waits for.
pub fn csi_volumes(caches: &Caches, pod: &Pod) -> Result<Vec<CsiVolume>, String> {
    let mut found = Vec::new();
    for volume in &pod.spec.volumes {
        let name = volume["name"].as_str().unwrap_or_default();
        let claim = if let Some(claim) = volume.pointer("/persistentVolumeClaim/claimName").and_then(Value::as_str) {
            claim.to_owned()
        } else if volume.get("ephemeral").is_some() {
            format!("{}-{name}", pod.metadata.name)
        } else {
            if let Some(driver) = volume.pointer("/csi/driver").and_then(Value::as_str)
                && mounted(pod, name)
            {
                found.push(CsiVolume::new(
                    driver,
                    &format!("csi-{}", pod.metadata.uid),
                    None,
                    &volume["csi"]["volumeAttributes"],
                ));
            }
            continue;
        };
        let key = format!("{}/{claim}", pod.metadata.ns());
        let Some(bound) = caches.volume_claims.get(&key).filter(|claim| !claim.spec.volume_name.is_empty()) else {
            return Err(format!("persistentvolumeclaim {key} is not bound"));
        };
        let Some(pv) = caches.volumes.get(&bound.spec.volume_name) else {
            return Err(format!("persistentvolume {} does not exist", bound.spec.volume_name));
        };
        let csi = &pv.spec["csi"];
        if let (Some(driver), Some(handle)) = (csi["driver"].as_str(), csi["volumeHandle"].as_str())
            && mounted(pod, name)
        {
            found.push(CsiVolume::new(driver, handle, Some(pv.metadata.name.clone()), &csi["volumeAttributes"]));
        }
    }
    Ok(found)
}

/// Whether volumes of this driver must be attached first: `CSIDriver.spec.attachRequired`, true by default.
#[must_use]
pub fn attach_required(caches: &Caches, driver: &str) -> bool {
    caches.csi_drivers.get(driver).is_none_or(|object| object.spec["attachRequired"].as_bool().unwrap_or(true))
}

/// What a pod needs to start on this machine.
#[must_use]
pub fn needs(caches: &Caches, pod: &Pod, kernel: &Kernel) -> Needs {
    match resolve(caches, pod, kernel) {
        Ok(holds) => Needs { holds, missing: None },
        Err(missing) => Needs { holds: Vec::new(), missing: Some(missing) },
    }
}

fn resolve(caches: &Caches, pod: &Pod, kernel: &Kernel) -> Result<Vec<Hold>, String> {
    let mut holds = Vec::new();
    for claim in &pod.spec.resource_claims {
        let generated = || {
            let statuses = pod.status.resource_claim_statuses.iter();
            statuses.filter(|status| status.name == claim.name).find_map(|status| status.resource_claim_name.clone())
        };
        let Some(name) = claim.resource_claim_name.clone().or_else(generated) else {
            return Err(format!("resource claim {} is not created yet", claim.name));
        };
        let key = format!("{}/{name}", pod.metadata.ns());
        let Some(object) = caches.claims.get(&key) else { return Err(format!("resourceclaim {key} does not exist")) };
        let reserved = object.status.reserved_for.iter().any(|consumer| consumer.uid == pod.metadata.uid);
        let Some(allocation) = object.status.allocation.as_ref().filter(|_| reserved) else {
            return Err(format!("resourceclaim {key} is not allocated for this pod"));
        };
        for result in &allocation.devices.results {
            let service = Service::Dra(result.driver.clone());
            let Some(provider) = kernel.provider(&service) else {
                return Err(format!("DRA driver {} is not registered", result.driver));
            };
            let module = provider.module.as_ref().map(|(module, _)| module.clone());
            holds.push(Hold {
                service: Some(service),
                module,
                device: format!("{}/{}", result.pool, result.device),
                dies_with_provider: true,
            });
        }
    }
    for volume in csi_volumes(caches, pod)? {
        let service = Service::Csi(volume.driver.clone());
        if let Some(name) = &volume.volume
            && attach_required(caches, &volume.driver)
        {
            let attachments = caches.attachments.indexed(BY_NODE, &pod.spec.node_name);
            let attached = attachments.iter().any(|va| {
                va.spec["attacher"] == volume.driver
                    && va.spec["source"]["persistentVolumeName"] == *name
                    && va.status["attached"] == true
            });
            if !attached {
                return Err(format!("volume {name} is not attached to {}", pod.spec.node_name));
            }
        }
        let Some(provider) = kernel.provider(&service) else {
            return Err(format!("driver name {} not found in the list of registered CSI drivers", volume.driver));
        };
        let module = provider.module.as_ref().map(|(module, _)| module.clone());
        holds.push(Hold { service: Some(service), module, device: volume.handle, dies_with_provider: volume.dies_with_plugin });
    }
    Ok(holds)
}
