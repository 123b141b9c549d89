//! What a pod needs from the API and from drivers before it starts: allocated claims, bound and attached volumes.

use super::super::caches::{BY_NODE, Caches};
use super::super::records::Pod;
use super::super::volumes::{attach_required, csi_volumes};
use super::run::Needs;
use crate::sim::kernel::{Hold, Kernel, Service};

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
    let mut names = Vec::new();
    for claim in &pod.spec.resource_claims {
        let generated = || {
            let statuses = pod.status.resource_claim_statuses.iter();
            statuses.filter(|status| status.name == claim.name).find_map(|status| status.resource_claim_name.clone())
        };
        let Some(name) = claim.resource_claim_name.clone().or_else(generated) else {
            return Err(format!("resource claim {} is not created yet", claim.name));
        };
        names.push(name);
    }
    names.extend(pod.status.extended_resource_claim_status.iter().map(|status| status.resource_claim_name.clone()));
    for name in names {
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
                heals: false,
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
        holds.push(Hold {
            service: Some(service),
            module,
            device: volume.handle,
            dies_with_provider: volume.dies_with_plugin,
            heals: volume.heals && attach_required(caches, &volume.driver),
        });
    }
    Ok(holds)
}
