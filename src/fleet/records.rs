//! Slim records: only the fields that lockkeeper uses of each kind. How they are decoded is in `decode/`.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;

pub use super::csi_records::*;
use crate::api::{
    BootId, ComponentKey, NodeComponentSpec, NodeComponentStatus, NodeHandoffSpec, NodeHandoffStatus, NodeName, ObjectKey, Uid,
    component::LabelSelector,
};

/// Interned text.
pub type Str = Arc<str>;
/// Labels or annotations, sorted by key; equal maps share one allocation.
pub type Labels = Arc<BTreeMap<Str, Str>>;

/// What every record has of `metadata`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meta {
    pub uid: Uid,
    pub resource_version: Str,
    pub created: Option<Timestamp>,
    pub deletion: Option<Deletion>,
}

/// The object is being deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deletion {
    /// When the grace period ends: the request's time plus the grace period.
    pub at: Timestamp,
    /// Seconds.
    pub grace: i64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct NodeRecord {
    pub name: NodeName,
    pub meta: Meta,
    pub labels: Labels,
    /// Only `lockkeeper.dev/*` ones.
    pub annotations: BTreeMap<Str, Str>,
    pub unschedulable: bool,
    /// Field managers that own `spec.unschedulable`.
    pub unschedulable_managers: Vec<Str>,
    pub taints: Vec<Taint>,
    pub ready: Ready,
    pub boot_id: BootId,
    pub kernel: Str,
    /// Extended resources only (names with a `/` outside `kubernetes.io`).
    pub allocatable: BTreeMap<Str, i64>,
    /// Names of the images on the node, by tag and by digest; the kubelet lists 50 images at most. Nodes share the texts.
    pub images: Vec<Str>,
    /// CSI volumes that its kubelet has in use or that are attached to it: (driver, handle), by `volumesInUse` and `volumesAttached`.
    pub csi_volumes: Vec<(Str, Str)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taint {
    pub key: Str,
    pub value: Str,
    pub effect: Str,
}

/// A condition `Ready`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ready {
    pub status: ReadyStatus,
    /// Last transition.
    pub since: Option<Timestamp>,
    /// Nodes: the last heartbeat in the status (the node's Lease is newer).
    pub heartbeat: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadyStatus {
    True,
    False,
    Unknown,
    /// No such condition.
    Absent,
}

impl Ready {
    pub const ABSENT: Self = Self { status: ReadyStatus::Absent, since: None, heartbeat: None };
    pub fn is_true(&self) -> bool {
        self.status == ReadyStatus::True
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodPhase {
    Pending,
    Running,
    Succeeded,
    Failed,
    Unknown,
}

impl PodPhase {
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// A pod. At 150,000 of them this is what memory goes to: rare parts are boxed in `extra`.
#[derive(Debug, Clone, PartialEq)]
pub struct PodRecord {
    pub key: ObjectKey,
    pub meta: Meta,
    pub labels: Labels,
    pub owner: Option<Owner>,
    /// `spec.nodeName`; None: not bound.
    pub node: Option<NodeName>,
    pub phase: PodPhase,
    pub ready: Ready,
    pub flags: PodFlags,
    /// `spec.priority`, 0 when left out: lower ones are evicted first.
    pub priority: i32,
    pub extra: Option<Box<PodExtra>>,
}

impl PodRecord {
    /// The kubelet reported that nothing of it runs any more.
    pub fn has_ended(&self) -> bool {
        let containers = self.extra.as_ref().map(|extra| &extra.containers[..]).unwrap_or_default();
        let all = !containers.is_empty() && containers.iter().all(|it| matches!(it.state, ContainerState::Terminated { .. }));
        self.phase.is_terminal() || all
    }
}

/// Facts that are one bit each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PodFlags {
    /// Carries our component label: a loader, plugin or unload pod.
    pub ours: bool,
    /// Carries KMM's module label: a worker, plugin or pull pod of a Module.
    pub of_kmm: bool,
    /// Static pod: annotation `kubernetes.io/config.mirror`.
    pub mirror: bool,
    /// Mounts the kubelet's `plugins_registry` from the host: it may be a CSI driver's nodeplugin.
    pub registers: bool,
    /// Has an emptyDir volume.
    pub empty_dir: bool,
    /// Tolerates `node.kubernetes.io/unschedulable:NoSchedule`.
    pub tolerates_cordon: bool,
    /// Tolerates every taint (`operator: Exists` without key or effect).
    pub tolerates_all: bool,
    /// Condition PodScheduled is False: the scheduler tried and found no place.
    pub unschedulable: bool,
}

/// What few pods have.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PodExtra {
    /// Effective requests of extended resources above 0 (init containers and sidecars included).
    pub resources: BTreeMap<Str, i64>,
    /// Names of ResourceClaims in the pod's namespace: from `spec.resourceClaims`, `status.resourceClaimStatuses` and
    /// `status.extendedResourceClaimStatus`.
    pub claims: Vec<Str>,
    /// `spec.resourceClaims` entries by template whose claim is not known yet.
    pub unresolved_claims: Vec<Str>,
    pub nominated_node: Option<NodeName>,
    /// Of an unbound pod: `spec.nodeSelector`, and whether required node affinity or more narrows it further.
    pub node_selector: BTreeMap<Str, Str>,
    /// Node names of a required affinity by `metadata.name`, as DaemonSet pods have it.
    pub affinity_nodes: Vec<NodeName>,
    /// Volumes that can be a CSI driver's.
    pub volumes: Vec<PodVolume>,
    /// Only of pods with our component label or KMM's, and of those that register a driver.
    pub containers: Vec<ContainerRecord>,
    /// Only `lockkeeper.dev/*` ones, and what KMM notes on its worker pods.
    pub annotations: BTreeMap<Str, Str>,
    /// `spec.terminationGracePeriodSeconds` when it is not 30.
    pub grace: Option<i64>,
    /// Only of these pods, and of those with volumes.
    pub start_time: Option<Timestamp>,
    /// Only of pods with volumes: when at the latest they were mounted.
    pub mounted: Option<Timestamp>,
    /// `status.reason` and `status.message` of a failed pod.
    pub reason: Str,
    pub message: Str,
}

impl PodExtra {
    /// The PersistentVolumeClaims that it names.
    pub fn volume_claims(&self) -> impl Iterator<Item = &Str> {
        self.volumes.iter().filter_map(|volume| match &volume.source {
            PodVolumeSource::Claim { claim, .. } => Some(claim),
            _ => None,
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerRecord {
    pub name: Str,
    pub init: bool,
    pub ready: bool,
    pub restarts: i32,
    pub state: ContainerState,
    /// Exit code of the run before this one.
    pub last_exit: Option<i32>,
    /// What it said as it ended then (`lastState.terminated.message`); mostly nothing.
    pub last_message: Str,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContainerState {
    Waiting { reason: Str, message: Str },
    Running { since: Option<Timestamp> },
    Terminated { exit_code: i32, reason: Str, message: Str, finished: Option<Timestamp> },
    Unknown,
}

/// The controller ownerReference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    pub kind: Str,
    pub name: Str,
    pub uid: Uid,
    /// The API group of its `apiVersion` is `apps`.
    pub is_apps: bool,
}

impl Owner {
    pub fn is_daemon_set(&self) -> bool {
        self.is_apps && &*self.kind == "DaemonSet"
    }
}

/// A DaemonSet; `lockkeeper` parts are set for versioned ones.
#[derive(Debug, Clone, PartialEq)]
pub struct DaemonSetRecord {
    pub key: ObjectKey,
    pub meta: Meta,
    pub labels: Labels,
    /// Only `lockkeeper.dev/*` ones.
    pub annotations: BTreeMap<Str, Str>,
    pub generation: i64,
    pub observed_generation: i64,
    pub on_delete: bool,
    pub node_selector: BTreeMap<Str, Str>,
    /// The whole of `spec` as JSON text, for versioned DaemonSets only: compared with what they were made from.
    pub spec: Option<Str>,
    pub desired: i32,
    pub ready: i32,
    pub current: i32,
    /// Extended resources its pods claim.
    pub claims_resources: BTreeMap<Str, i64>,
    /// Label keys of ours that a node must carry for its pods: from `nodeSelector`, and from a required node affinity when
    /// every term asks for them. A claimant that needs the ready label leaves and returns by itself.
    pub requires_labels: Vec<Str>,
    /// None: one of ours.
    pub template: Option<Box<TemplateRecord>>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct BudgetRecord {
    pub key: ObjectKey,
    pub meta: Meta,
    pub generation: i64,
    pub observed_generation: i64,
    /// None: selects nothing.
    pub selector: Option<LabelSelector>,
    pub min_available: Option<Str>,
    pub max_unavailable: Option<Str>,
    pub always_allow_unhealthy: bool,
    pub disruptions_allowed: i32,
    pub current_healthy: i32,
    pub desired_healthy: i32,
    pub expected_pods: i32,
    /// Condition DisruptionAllowed is False with reason SyncFailed.
    pub sync_failed: Option<SyncFailed>,
}

/// The disruption controller could not compute a budget, and allows nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct SyncFailed {
    pub message: Str,
    /// Since when at the latest: when the condition became False, or when the status was last written, if that was later (a budget that
    /// had no room before keeps the condition's time when its sync fails). None: neither is told.
    pub since: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ClaimRecord {
    pub key: ObjectKey,
    pub meta: Meta,
    /// (driver, pool, device) of each allocated device; admin access included.
    pub devices: Vec<(Str, Str, Str)>,
    /// `status.reservedFor`: pods by (name, uid); entries that are no pods by their resource.
    pub reserved: Vec<Reservation>,
    /// Allocated for one node only: its name (by `metadata.name` or `kubernetes.io/hostname`).
    pub only_node: Option<NodeName>,
    pub allocated: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    /// `pods`, or another resource.
    pub resource: Str,
    pub name: Str,
    pub uid: Uid,
}

#[derive(Debug, Clone, PartialEq)]
pub struct SliceRecord {
    pub name: Str,
    pub meta: Meta,
    pub driver: Str,
    pub node: Option<NodeName>,
    pub devices: u32,
}

/// A Lease in `kube-node-lease`: the node's heartbeat.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeLeaseRecord {
    pub node: NodeName,
    pub meta: Meta,
    pub renewed: Option<Timestamp>,
}

/// A PersistentVolumeClaim.
#[derive(Debug, Clone, PartialEq)]
pub struct VolumeClaimRecord {
    pub key: ObjectKey,
    pub meta: Meta,
    /// Annotation `volume.kubernetes.io/selected-node`.
    pub selected_node: Option<NodeName>,
    /// `status.phase` is Bound: the scheduler no longer waits for it.
    pub bound: bool,
    /// `spec.volumeName`.
    pub volume: Option<Str>,
    /// The pod that is its controller: a generic ephemeral volume.
    pub pod: Option<Uid>,
}

/// Something with replicas: ReplicaSet, StatefulSet (for PDB arithmetic). `spec.replicas`.
#[derive(Debug, Clone, PartialEq)]
pub struct ScaleRecord {
    pub key: ObjectKey,
    pub kind: Str,
    pub meta: Meta,
    pub replicas: i32,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ComponentRecord {
    pub key: ComponentKey,
    pub meta: Meta,
    pub generation: i64,
    /// Err: the object's spec does not decode; the text says why, naming the field.
    pub spec: Result<NodeComponentSpec, String>,
    pub status: NodeComponentStatus,
    pub finalizers: Vec<Str>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct HandoffRecord {
    pub key: ObjectKey,
    pub meta: Meta,
    pub generation: i64,
    pub spec: Result<NodeHandoffSpec, String>,
    pub status: NodeHandoffStatus,
    pub finalizers: Vec<Str>,
}

/// The one lockkeeper Lease.
#[derive(Debug, Clone, PartialEq)]
pub struct LeaseRecord {
    pub meta: Meta,
    pub holder: Option<Str>,
    /// `leaseTransitions`: the epoch.
    pub epoch: i64,
    pub slots: Vec<crate::api::keys::Slot>,
    /// The slots annotation does not parse: nothing may be admitted.
    pub slots_garbage: Option<String>,
    /// UID of the handoff... kept by the holder.
    pub renewed: Option<Timestamp>,
}
