//! One process's view of the cluster: the stores of all kinds that its actors use, started on demand and shared by them.

use super::clock::{Clock, Dice};
use super::informer::{Kind, Store};
use super::queue::Tasks;
use super::records::{
    Bare, CSIDriver, CSINode, ControllerRevision, DaemonSet, Deployment, DeviceClass, Job, Lease, Namespace, Node,
    PersistentVolume, PersistentVolumeClaim, Pod, PodDisruptionBudget, ReplicaSet, ResourceClaim, ResourceClaimTemplate,
    ResourceSlice, StatefulSet, VolumeAttachment,
};
use kube::Client;
use std::sync::Arc;

/// Index of pods by the node that they are bound to.
pub const BY_NODE: usize = 0;
/// Index (pods, ReplicaSets, revisions, claims) by the UID of each owner.
pub const BY_OWNER: usize = 1;
/// Index of pods by `controller UID|node`, unbound DaemonSet pods included.
pub const BY_OWNER_AND_NODE: usize = 2;

/// Index of pods and revisions that nobody controls, by namespace.
pub const ORPHANS: usize = 3;

/// The stores of one process (a controller-manager, or all kubelets).
pub struct Caches {
    pub client: Client,
    pub clock: Clock,
    pub dice: Dice,
    pub tasks: Tasks,
    pub pods: Arc<Store<Pod>>,
    pub nodes: Arc<Store<Node>>,
    pub leases: Arc<Store<Lease>>,
    pub namespaces: Arc<Store<Namespace>>,
    pub daemon_sets: Arc<Store<DaemonSet>>,
    pub replica_sets: Arc<Store<ReplicaSet>>,
    pub deployments: Arc<Store<Deployment>>,
    pub stateful_sets: Arc<Store<StatefulSet>>,
    pub jobs: Arc<Store<Job>>,
    pub revisions: Arc<Store<ControllerRevision>>,
    pub budgets: Arc<Store<PodDisruptionBudget>>,
    pub claims: Arc<Store<ResourceClaim>>,
    pub claim_templates: Arc<Store<ResourceClaimTemplate>>,
    pub device_classes: Arc<Store<DeviceClass>>,
    pub slices: Arc<Store<ResourceSlice>>,
    pub volume_claims: Arc<Store<PersistentVolumeClaim>>,
    pub volumes: Arc<Store<PersistentVolume>>,
    pub csi_nodes: Arc<Store<CSINode>>,
    pub csi_drivers: Arc<Store<CSIDriver>>,
    pub attachments: Arc<Store<VolumeAttachment>>,
    /// Never started: for writing only.
    pub events: Arc<Store<Bare>>,
}

pub(super) fn owners(meta: &super::records::Meta) -> Vec<String> {
    meta.owner_references.iter().map(|owner| owner.uid.clone()).collect()
}

/// The entry of [`ORPHANS`].
fn orphaned(meta: &super::records::Meta) -> Vec<String> {
    if meta.controller().is_some() { Vec::new() } else { vec![meta.ns().to_owned()] }
}

pub(super) fn none<R>(_: &R) -> Vec<String> {
    Vec::new()
}

/// The entry of [`BY_OWNER_AND_NODE`].
#[must_use]
pub fn owner_and_node(uid: &str, node: &str) -> String {
    format!("{uid}|{node}")
}

impl Caches {
    #[must_use]
    pub fn new(client: &Client, clock: Clock, dice: Dice) -> Arc<Self> {
        let by_node = |pod: &Pod| if pod.spec.node_name.is_empty() { Vec::new() } else { vec![pod.spec.node_name.clone()] };
        let by_both = |pod: &Pod| match (pod.metadata.controller(), pod.target_node()) {
            (Some(owner), Some(node)) => vec![owner_and_node(&owner.uid, node)],
            _ => Vec::new(),
        };
        let c = client;
        Arc::new(Self {
            client: client.clone(),
            clock,
            dice,
            tasks: Tasks::default(),
            pods: Store::new(c.clone(), &[by_node, |pod| owners(&pod.metadata), by_both, |pod| orphaned(&pod.metadata)]),
            nodes: Store::new(c.clone(), &[]),
            leases: Store::new(c.clone(), &[none, |lease| owners(&lease.metadata)]),
            namespaces: Store::new(c.clone(), &[]),
            daemon_sets: Store::new(c.clone(), &[none, |set| owners(&set.metadata)]),
            replica_sets: Store::new(c.clone(), &[none, |set| owners(&set.metadata)]),
            deployments: Store::new(c.clone(), &[none, |set| owners(&set.metadata)]),
            stateful_sets: Store::new(c.clone(), &[none, |set| owners(&set.metadata)]),
            jobs: Store::new(c.clone(), &[none, |job| owners(&job.metadata)]),
            revisions: Store::new(
                c.clone(),
                &[none, |revision| owners(&revision.metadata), none, |revision| orphaned(&revision.metadata)],
            ),
            budgets: Store::new(c.clone(), &[none, |budget| owners(&budget.metadata)]),
            claims: Store::new(c.clone(), &[none, |claim| owners(&claim.metadata)]),
            claim_templates: Store::new(c.clone(), &[]),
            device_classes: Store::new(c.clone(), &[]),
            slices: Store::new(c.clone(), &[|slice| slice.spec.node_name.iter().cloned().collect()]),
            volume_claims: Store::new(c.clone(), &[none, |claim| owners(&claim.metadata)]),
            volumes: Store::new(c.clone(), &[]),
            csi_nodes: Store::new(c.clone(), &[none, |node| owners(&node.metadata)]),
            csi_drivers: Store::new(c.clone(), &[]),
            attachments: Store::new(c.clone(), &[|va| va.spec["nodeName"].as_str().map(str::to_owned).into_iter().collect()]),
            events: Store::of_kind(c.clone(), Kind { api_version: "v1", kind: "Event", plural: "events", namespaced: true }, &[]),
        })
    }
}
