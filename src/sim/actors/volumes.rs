//! Which CSI volumes a pod uses, and what their drivers ask for. Shared by kubelets and the attach-detach controller.

use super::caches::Caches;
use super::records::Pod;
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
    /// It comes back if the nodeplugin does in time: rbd-nbd that is attached.
    pub heals: bool,
}

impl CsiVolume {
    fn new(driver: &str, handle: &str, volume: Option<String>, attributes: &Value) -> Self {
        let mounter = attributes["mounter"].as_str().unwrap_or_default();
        let dies_with_plugin = matches!(mounter, "fuse" | "rbd-nbd") || driver.contains("fuse");
        let heals = mounter == "rbd-nbd" && volume.is_some();
        Self { driver: driver.to_owned(), handle: handle.to_owned(), volume, dies_with_plugin, heals }
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
