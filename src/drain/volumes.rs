//! Which pods of a node use a CSI driver's volumes, what becomes of their mounts when the driver's plugin pod is replaced, and so who must
//! leave before. The same dereferencing with the same identity checks as a kubelet does; what cannot be resolved is taken for the driver's.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;

use super::incoming::VolumeClaims;
use crate::{
    api::{ObjectKey, component::VolumeDrain},
    fleet::{
        csi::CsiView,
        records::*,
        view::{Attached, ClaimReason, Risk, VolumeUse},
    },
};

/// PersistentVolumes by name: at least those of the claims of the judged pods.
pub type Volumes = BTreeMap<Str, Arc<VolumeRecord>>;

/// What a volume of a pod turned out to be.
#[derive(Debug, Clone, PartialEq)]
pub enum Resolved<'a> {
    /// A CSI volume, of whatever driver.
    Csi { claim: Option<ObjectKey>, volume: Option<Str>, source: &'a CsiSource },
    /// An in-tree source in the pod itself, served by this driver.
    Migrated { driver: &'a str },
    /// No CSI volume, or one that the kubelet cannot mount and so has not.
    Nothing,
    /// It is mounted, and nothing tells what it is.
    Unknown(String),
}

/// Follows a pod's volume to its source.
pub fn resolve<'a>(pod: &PodRecord, volume: &'a PodVolume, claims: &VolumeClaims, volumes: &'a Volumes) -> Resolved<'a> {
    let (name, ephemeral) = match &volume.source {
        PodVolumeSource::Inline(source) => return Resolved::Csi { claim: None, volume: None, source },
        PodVolumeSource::Migrated { driver } => return Resolved::Migrated { driver },
        PodVolumeSource::Claim { claim, ephemeral } => (claim, *ephemeral),
    };
    let key = ObjectKey { namespace: pod.key.namespace.clone(), name: name.clone() };
    // A pod that has never run has mounted nothing of what is not there; one that runs has.
    let missing = |why: String| if pod.phase == PodPhase::Pending { Resolved::Nothing } else { Resolved::Unknown(why) };
    let Some(claim) = claims.get(&key) else {
        return missing(format!("PersistentVolumeClaim {key} does not exist"));
    };
    if ephemeral && claim.pod.as_ref() != Some(&pod.meta.uid) {
        return missing(format!("PersistentVolumeClaim {key} was not made for this pod"));
    }
    let Some(bound) = &claim.volume else {
        return missing(format!("PersistentVolumeClaim {key} names no volume"));
    };
    let Some(record) = volumes.get(bound) else {
        return Resolved::Unknown(format!("PersistentVolume {bound} of its claim {key} does not exist"));
    };
    match &record.claim {
        Some((of, uid)) if *of == key && *uid == claim.meta.uid => {}
        Some((of, _)) => {
            return Resolved::Unknown(format!(
                "PersistentVolume {bound} is of {of} and not of its claim {key} as it is now: somebody has bound it anew"
            ));
        }
        None => return Resolved::Unknown(format!("PersistentVolume {bound} of its claim {key} names no claim")),
    }
    match &record.csi {
        Some(source) => Resolved::Csi { claim: Some(key), volume: Some(bound.clone()), source },
        None => Resolved::Nothing,
    }
}

/// What becomes of a mount when the plugin pod goes. `attached`: a VolumeAttachment of it says that it is.
pub fn risk(csi: &CsiView, source: &CsiSource, kernel: &str, attached: bool) -> Risk {
    let named = csi
        .plugin
        .at_risk_attributes
        .iter()
        .find(|(key, value)| source.attributes.get(key.as_str()).is_some_and(|known| **known == **value));
    if let Some((key, value)) = named {
        return Risk::Attribute { key: key.as_str().into(), value: value.as_str().into() };
    }
    if csi.holder {
        return Risk::Holder;
    }
    let template = csi.set.as_ref().map(|set| &set.template);
    if csi.held_by.is_none() && csi.driver_type().is_some() && template.is_some_and(|template| !template.host_network) {
        return Risk::PodNetwork;
    }
    let attribute = |key: &str| source.attributes.get(key).map(|value| &**value);
    match csi.driver_type() {
        Some("cephfs") if attribute("mounter") == Some("fuse") => Risk::Fuse,
        Some("cephfs") if template.is_some_and(|it| it.forces_kernel_client) || has_quota(kernel) => Risk::Kernel,
        Some("cephfs") => Risk::KernelTooOld { kernel: kernel.into() },
        Some("rbd") if attribute("mounter") == Some("rbd-nbd") => Risk::Nbd { attached },
        Some("rbd") if attribute("tryOtherMounters") == Some("true") => Risk::MayBeNbd,
        Some(_) => Risk::Kernel,
        None if csi.plugin.at_risk_attributes.is_empty() => Risk::UnknownDriver,
        None => Risk::NotNamed,
    }
}

/// The kernel's CephFS client does quotas: from 4.17 on, or RHEL 7's from 3.10.0-1062 (ceph-csi internal/util `kernelSupportsQuota`).
fn has_quota(kernel: &str) -> bool {
    let numbers: Vec<u64> =
        kernel.split(|c: char| !c.is_ascii_digit()).filter(|part| !part.is_empty()).map_while(|part| part.parse().ok()).collect();
    let at = |place: usize| numbers.get(place).copied().unwrap_or(0);
    (at(0), at(1)) >= (4, 17) || ((at(0), at(1), at(2)) == (3, 10, 0) && at(3) >= 1062 && kernel.contains(".el7"))
}

/// The uses of one driver's volumes on a node, and the volumes that nobody can resolve.
#[derive(Debug, Default)]
pub struct Uses {
    pub uses: Vec<VolumeUse>,
    /// Pod, name of the volume in it, and why.
    pub unknown: Vec<(Arc<PodRecord>, Str, String)>,
}

/// `began`: since when the plugin's process runs; None: it does not.
pub fn uses<'p>(
    csi: &CsiView,
    pods: impl Iterator<Item = &'p Arc<PodRecord>>,
    claims: &VolumeClaims,
    volumes: &Volumes,
    attachments: &[Arc<AttachmentRecord>],
    kernel: &str,
    began: Option<Timestamp>,
) -> Uses {
    let mut found = Uses::default();
    for pod in pods.filter(|pod| !pod.phase.is_terminal()) {
        let Some(extra) = &pod.extra else { continue };
        let mounted_before = pod.phase != PodPhase::Pending && extra.mounted.zip(began).is_some_and(|(at, began)| at < began);
        for volume in &extra.volumes {
            let (claim, name, source) = match resolve(pod, volume, claims, volumes) {
                Resolved::Csi { claim, volume, source } if *source.driver == *csi.plugin.driver => {
                    (claim, volume, source.clone())
                }
                Resolved::Migrated { driver } if *driver == *csi.plugin.driver => {
                    (None, None, CsiSource { driver: driver.into(), ..CsiSource::default() })
                }
                Resolved::Unknown(why) if volume.used => {
                    found.unknown.push((pod.clone(), volume.name.clone(), why));
                    continue;
                }
                _ => continue,
            };
            let attached = attachments.iter().any(|it| it.attached && it.volume.is_some() && it.volume == name);
            let risk = risk(csi, &source, kernel, attached);
            found.uses.push(VolumeUse {
                pod: pod.clone(),
                name: volume.name.clone(),
                claim,
                volume: name,
                handle: source.handle,
                stale: volume.used && risk.dies() && mounted_before,
                risk,
                used: volume.used,
            });
        }
    }
    found
}

/// Whether the plugin pod is about to go, or only what died with the one before has to be put right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ahead {
    /// The plugin pod stays, and what was mounted before this time is to be mounted anew. None: whatever is mounted.
    Remount { since: Option<Timestamp> },
    /// Every mount that would die counts.
    Replacement,
    /// The plugin pod stays: only mounts that are dead already count.
    Repair,
}

/// Why a pod must leave, if it must: the gravest of its uses.
pub fn reason(pod: &PodRecord, found: &Uses, drain: VolumeDrain, ahead: Ahead) -> Option<ClaimReason> {
    let counts = |it: &&VolumeUse| match ahead {
        _ if !it.used || drain == VolumeDrain::None => false,
        Ahead::Repair => it.stale,
        Ahead::Remount { since } => {
            let mounted = it.pod.extra.as_ref().and_then(|extra| extra.mounted);
            since.is_none_or(|since| mounted.is_none_or(|at| at < since))
        }
        Ahead::Replacement => drain == VolumeDrain::All || it.risk.dies(),
    };
    let own = found.uses.iter().filter(|it| it.pod.meta.uid == pod.meta.uid).filter(counts);
    // The one that dies is the better reason.
    if let Some(worst) = own.max_by_key(|it| (it.risk.dies(), it.stale, std::cmp::Reverse(&it.name))) {
        return Some(ClaimReason::Volume {
            name: worst.name.clone(),
            claim: worst.claim.clone(),
            risk: worst.risk.clone(),
            stale: worst.stale,
        });
    }
    if drain == VolumeDrain::None || ahead == Ahead::Repair {
        return None;
    }
    let (_, name, why) = found.unknown.iter().find(|(of, ..)| of.meta.uid == pod.meta.uid)?;
    Some(ClaimReason::UnresolvedVolume { name: name.clone(), why: why.clone() })
}

/// Why a pod must leave, with the rule that made it so: the end of a sentence that begins with its name.
pub fn sentence(name: &str, claim: Option<&ObjectKey>, risk: &Risk, stale: bool) -> String {
    let dead = if stale { "lost its mount with the plugin process before; " } else { "" };
    let all = if risk.dies() { "" } else { "; all leave, by drain: All or to be mounted anew" };
    format!("{dead}{}{all}", use_of(name, claim, risk))
}

/// A pod's use of a volume, and what becomes of the mount.
pub fn use_of(name: &str, claim: Option<&ObjectKey>, risk: &Risk) -> String {
    let of = claim.map(|claim| format!(" (PersistentVolumeClaim {})", claim.name)).unwrap_or_default();
    let why = match risk {
        Risk::Fuse => "mounter fuse: served by a process in the plugin pod".to_owned(),
        Risk::KernelTooOld { kernel } => {
            format!("kernel {kernel} has no CephFS quotas (4.17, or 3.10.0-1062.el7), so the driver falls back to FUSE")
        }
        Risk::Nbd { attached: true } => {
            "mounter rbd-nbd: served by a process in the plugin pod; a healer may bring it back".to_owned()
        }
        Risk::Nbd { attached: false } => "mounter rbd-nbd, not attached: nothing heals it".to_owned(),
        Risk::MayBeNbd => "tryOtherMounters: it may be rbd-nbd, which the API does not tell".to_owned(),
        Risk::PodNetwork => "the plugin is not on the host's network: its kernel mounts hang when it goes".to_owned(),
        Risk::Holder => "the mount is in the network namespace of the holder pod, and hangs when that goes".to_owned(),
        Risk::Attribute { key, value } => format!("volumeAttributes {key}={value}, as the component names it"),
        Risk::UnknownDriver => "the driver is not known, so that any mount of it may die".to_owned(),
        Risk::Kernel => "a kernel mount, which survives".to_owned(),
        Risk::NotNamed => "survives by the component's atRiskAttributes".to_owned(),
    };
    format!("uses volume {name}{of}: {why}")
}

/// Volumes of the driver that are attached to the node or in use there, without those that pods which stay use. Only absence is detached.
pub fn attached(
    csi: &CsiView,
    node: Option<&NodeRecord>,
    attachments: &[Arc<AttachmentRecord>],
    volumes: &Volumes,
    kept: &[&VolumeUse],
) -> Vec<Attached> {
    let kernel = node.map(|node| &*node.kernel).unwrap_or_default();
    let stays = |volume: Option<&Str>, handle: &str| {
        kept.iter().any(|it| volume.is_some() && it.volume.as_ref() == volume || !handle.is_empty() && *it.handle == *handle)
    };
    let dies = |record: Option<&Arc<VolumeRecord>>| {
        // Nobody can say of what is not known that it does not.
        record.and_then(|record| record.csi.as_ref()).is_none_or(|source| risk(csi, source, kernel, true).dies())
            || csi.plugin.drain == VolumeDrain::All
    };
    let mut all: Vec<Attached> = Vec::new();
    for it in attachments {
        let record = it.volume.as_ref().and_then(|name| volumes.get(name));
        let handle = record.and_then(|record| record.csi.as_ref()).map(|source| source.handle.clone()).unwrap_or_default();
        if stays(it.volume.as_ref(), &handle) || !dies(record) {
            continue;
        }
        all.push(Attached {
            driver: it.attacher.clone(),
            volume: it.volume.clone(),
            handle,
            attachment: Some(it.name.clone()),
            orphan: record.is_none_or(|record| record.released),
            detach_error: it.detach_error.clone(),
        });
    }
    let in_use = node.into_iter().flat_map(|node| &node.csi_volumes).filter(|(driver, _)| **driver == *csi.plugin.driver);
    for (driver, handle) in in_use {
        let of_handle =
            |record: &&Arc<VolumeRecord>| record.csi.as_ref().is_some_and(|it| it.driver == *driver && it.handle == *handle);
        let record = volumes.values().find(of_handle);
        let known = all.iter().any(|it| it.handle == *handle);
        if known || stays(record.map(|record| &record.name), handle) || !dies(record) {
            continue;
        }
        all.push(Attached {
            driver: driver.clone(),
            volume: record.map(|record| record.name.clone()),
            handle: handle.clone(),
            attachment: None,
            orphan: record.is_none_or(|record| record.released),
            detach_error: None,
        });
    }
    all
}

/// Since when the process that serves the mounts runs: the latest start among the plugin's containers. What registers, logs or watches
/// beside it may restart without harm.
pub fn began(pod: &PodRecord) -> Option<Timestamp> {
    let containers = pod.extra.as_ref().map(|extra| &extra.containers[..]).unwrap_or_default();
    let beside = |name: &str| ["registrar", "liveness", "log-", "logrotate", "addons"].iter().any(|word| name.contains(word));
    let running = |it: &&ContainerRecord| !it.init && !beside(&it.name);
    let started = |it: &ContainerRecord| match it.state {
        ContainerState::Running { since } => since,
        _ => None,
    };
    containers.iter().filter(running).filter_map(started).max()
}

#[cfg(test)]
mod tests;
