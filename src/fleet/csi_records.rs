//! Slim records of what CSI volumes are made of: volumes, attachments, drivers, and the revisions and templates of DaemonSets. What they
//! mean for a node is worked out in `volumes` and `csi`.

use std::collections::BTreeMap;

use super::records::{Meta, Str};
use crate::api::{NodeName, ObjectKey, Uid};

/// A PersistentVolume.
#[derive(Debug, Clone, PartialEq)]
pub struct VolumeRecord {
    pub name: Str,
    pub meta: Meta,
    /// `spec.claimRef`.
    pub claim: Option<(ObjectKey, Uid)>,
    /// `status.phase` is Released or Failed: no claim holds it any more.
    pub released: bool,
    /// None: not a CSI volume, and not one that a CSI driver serves in its place.
    pub csi: Option<CsiSource>,
}

/// Where a volume comes from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CsiSource {
    pub driver: Str,
    /// Empty for a migrated in-tree volume: only its driver is known.
    pub handle: Str,
    /// `volumeAttributes`: what was copied from the StorageClass when it was provisioned.
    pub attributes: BTreeMap<Str, Str>,
}

/// A VolumeAttachment. Only its absence means detached; `status.attached: false` does not.
#[derive(Debug, Clone, PartialEq)]
pub struct AttachmentRecord {
    pub name: Str,
    pub meta: Meta,
    pub attacher: Str,
    pub node: NodeName,
    /// `spec.source.persistentVolumeName`; None: an inline volume.
    pub volume: Option<Str>,
    pub attached: bool,
    /// `status.detachError.message`.
    pub detach_error: Option<Str>,
}

/// A CSINode: the drivers that its kubelet has registered.
#[derive(Debug, Clone, PartialEq)]
pub struct CsiNodeRecord {
    pub node: NodeName,
    pub meta: Meta,
    pub drivers: Vec<Str>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct CsiDriverRecord {
    pub name: Str,
    pub meta: Meta,
    pub attach_required: bool,
}

/// A ControllerRevision of a DaemonSet.
#[derive(Debug, Clone, PartialEq)]
pub struct RevisionRecord {
    pub key: ObjectKey,
    pub meta: Meta,
    /// The DaemonSet that is its controller; None: it has none, or another kind.
    pub owner: Option<Uid>,
    pub revision: i64,
    /// Label `controller-revision-hash`, as pods of this revision carry it.
    pub hash: Str,
    /// Digest of the template, as [`TemplateRecord::digest`].
    pub digest: Str,
}

/// A volume that a pod names, as far as it can be a CSI driver's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodVolume {
    /// The volume's name in the pod.
    pub name: Str,
    pub source: PodVolumeSource,
    /// A container mounts it or has it as a device. The kubelet leaves others alone; they are attached all the same.
    pub used: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PodVolumeSource {
    /// A PersistentVolumeClaim of the pod's namespace. `ephemeral`: made for this pod, and must be owned by it.
    Claim { claim: Str, ephemeral: bool },
    /// Inline CSI: no claim, no attachment, no staging.
    Inline(CsiSource),
    /// An in-tree source that this driver serves.
    Migrated { driver: Str },
}

/// What of a DaemonSet's pod template counts when its pods are replaced one by one.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TemplateRecord {
    /// Equal digests are equal templates, whatever the order of keys.
    pub digest: Str,
    pub host_network: bool,
    /// Drivers that it may register, by `--drivername`, the registrar's socket path, and the socket's hostPath.
    pub drivers: Vec<Str>,
    /// It mounts the kubelet's `plugins_registry`: it registers a driver.
    pub registers: bool,
    /// `--type`: `rbd`, `cephfs`, `nfs`, `nvmeof`.
    pub driver_type: Option<Str>,
    /// `--forcecephkernelclient=true`.
    pub forces_kernel_client: bool,
    pub node_selector: BTreeMap<Str, Str>,
    /// Required node affinity: alternatives, each a list of requirements.
    pub terms: Vec<Vec<Requirement>>,
    pub tolerations: Vec<Toleration>,
    pub min_ready_seconds: i64,
    pub images: Vec<Str>,
    /// `spec.updateStrategy.type`.
    pub strategy: Str,
    pub deployed_by: DeployedBy,
}

/// Who writes the DaemonSet, and so where its update strategy is set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum DeployedBy {
    #[default]
    Manifest,
    Helm {
        release: Str,
    },
    /// ceph-csi-operator: the name of the `Driver` that owns it.
    CsiOperator {
        driver: Str,
    },
    /// Rook before 1.20.
    Rook,
}

/// One requirement of a node selector term.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    /// A field (`metadata.name`), not a label.
    pub field: bool,
    pub key: Str,
    pub operator: Str,
    pub values: Vec<Str>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Toleration {
    pub key: Str,
    pub operator: Str,
    pub value: Str,
    pub effect: Str,
}
