//! FleetView: the immutable picture that the console, `status`, metrics and the engine all read. Facts only; verdicts are in `handoff`.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;

use super::{csi::CsiView, kmm::KmmView, records::*, rules::Rules};
use crate::{
    api::{
        BootId, ComponentKey, NodeComponentSpec, NodeName, ObjectKey, Uid, Version,
        component::KernelModule,
        keys::{CordonOwners, Garbage, Loaded, Mark},
    },
    kmm::{NodeModule, records::Entry},
};

/// One picture of a cluster. Cloning is cheap; unchanged parts are shared with the picture before.
#[derive(Debug, Clone, Default)]
pub struct FleetView {
    /// Rises with every picture.
    pub generation: u64,
    /// The API server's time when it was projected.
    pub now: Timestamp,
    pub cluster: Arc<ClusterInfo>,
    /// By key.
    pub components: BTreeMap<ComponentKey, Arc<ComponentView>>,
    /// By name: every Node, and every node that only a handoff, slot or label still names.
    pub nodes: Arc<NodeList>,
    /// By key; all NodeHandoffs, also those of nodes or components that are gone.
    pub handoffs: Arc<BTreeMap<ObjectKey, Arc<HandoffRecord>>>,
    pub lease: Option<Arc<LeaseRecord>>,
    /// By key; those of one namespace are a range. Which of them hold a pod: `drain::budget::of`.
    pub budgets: Arc<BTreeMap<ObjectKey, Arc<BudgetView>>>,
    /// By key; all DaemonSets of the cluster, ours and others'.
    pub daemon_sets: Arc<BTreeMap<ObjectKey, Arc<DaemonSetRecord>>>,
    /// By component: the nodes that have an Occupancy of it.
    pub occupied: Arc<BTreeMap<ComponentKey, Arc<BTreeSet<NodeName>>>>,
    /// What judges a node; with it `NodeFacts::view` judges one by fresh reads.
    pub rules: Arc<Rules>,
    /// What is different from the picture before, of generation - 1.
    pub changes: Arc<Changes>,
    pub health: Arc<Vec<WatchHealth>>,
    /// Everything needed has been listed completely once.
    pub synced: bool,
}

/// Sorted by name; binary search by `get`.
pub type NodeList = Vec<Arc<NodeView>>;

impl FleetView {
    /// One component on every node that has anything of it, by node name.
    pub fn occupancies(&self, component: &ComponentKey) -> impl Iterator<Item = (&Arc<NodeView>, &Arc<Occupancy>)> {
        let nodes = self.occupied.get(component).into_iter().flat_map(|nodes| nodes.iter());
        nodes.filter_map(move |name| {
            let node = self.node(name)?;
            Some((node, node.components.get(component)?))
        })
    }

    pub fn node(&self, name: &NodeName) -> Option<&Arc<NodeView>> {
        self.nodes.binary_search_by(|node| node.name.cmp(name)).ok().and_then(|at| self.nodes.get(at))
    }
}

/// Names of nodes whose view is another one, and of those that only one of the lists has. Compares pointers, and looks into no node that is
/// the same: for 5,000 nodes a few microseconds, whichever pictures the lists are of.
pub fn changed_nodes(old: &Arc<NodeList>, new: &Arc<NodeList>) -> Vec<NodeName> {
    let mut changed = Vec::new();
    if Arc::ptr_eq(old, new) {
        return changed;
    }
    let (mut at, mut then) = (0, 0);
    loop {
        match (old.get(then), new.get(at)) {
            (Some(a), Some(b)) if Arc::ptr_eq(a, b) => (then, at) = (then + 1, at + 1),
            (Some(a), Some(b)) => match a.name.cmp(&b.name) {
                Ordering::Equal => {
                    changed.push(b.name.clone());
                    (then, at) = (then + 1, at + 1);
                }
                Ordering::Less => {
                    changed.push(a.name.clone());
                    then += 1;
                }
                Ordering::Greater => {
                    changed.push(b.name.clone());
                    at += 1;
                }
            },
            (Some(a), None) => {
                changed.push(a.name.clone());
                then += 1;
            }
            (None, Some(b)) => {
                changed.push(b.name.clone());
                at += 1;
            }
            (None, None) => return changed,
        }
    }
}

/// What a picture has that the one before had not. Who skipped a picture looks at everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Every node was judged again.
    pub all_nodes: bool,
    /// Nodes whose view is another one, and nodes that are gone.
    pub nodes: BTreeSet<NodeName>,
    pub components: BTreeSet<ComponentKey>,
    pub handoffs: BTreeSet<ObjectKey>,
    pub budgets: BTreeSet<ObjectKey>,
    /// Pods that are gone and were seen to end before: no picture need have shown them ended, since a kubelet deletes a pod at once when it
    /// has reported its end.
    pub ended: BTreeSet<Uid>,
    pub lease: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterInfo {
    /// kubeconfig context, or `in-cluster`, or `simulated`.
    pub context: String,
    pub server: String,
    pub version: String,
    /// UID of namespace kube-system.
    pub uid: String,
    pub user: String,
}

/// A watch's state, one per kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchHealth {
    /// Plural, with the group if it has one: `pods`, `nodecomponents.lockkeeper.dev`.
    pub resource: Str,
    pub required: bool,
    pub state: WatchState,
    pub last_event: Option<Timestamp>,
    pub objects: usize,
    pub errors: u64,
    /// The objects whose decoding failed, by name, with the reason.
    pub undecodable: Vec<(Str, String)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchState {
    Syncing,
    Live,
    /// Last error, and when the next try is due.
    Retrying {
        error: String,
        since: Timestamp,
        next: Timestamp,
    },
    /// The kind is not served (CRD not installed), or may not be read.
    Unavailable {
        why: String,
    },
}

/// A PodDisruptionBudget and the pods that it selects now.
#[derive(Debug, Clone, PartialEq)]
pub struct BudgetView {
    pub record: Arc<BudgetRecord>,
    /// Pods that it selects, terminal ones left out.
    pub selected: u32,
    /// Those of them that do not count as healthy: not Ready, or being deleted.
    pub unhealthy: Vec<Unhealthy>,
    /// Sum of `spec.replicas` of the ReplicaSets and StatefulSets that own them; None: one of them has another owner or none.
    pub wanted: Option<i32>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unhealthy {
    pub pod: ObjectKey,
    pub node: Option<NodeName>,
    pub terminating: bool,
}

/// A component, its versions, and what is wrong with it as a whole.
#[derive(Debug, Clone, PartialEq)]
pub struct ComponentView {
    pub record: Arc<ComponentRecord>,
    /// Every version known from the spec or from versioned DaemonSets.
    pub versions: BTreeMap<Version, VersionView>,
    /// Why the component is refused: conflicts with others, too long names, an empty selector, a legal version missing.
    pub refusals: Vec<String>,
    /// The spec's content differs from what the DaemonSets of the same version were made from.
    pub changed_without_version: bool,
    /// DaemonSets of a version edited, or one of the two deleted, by hand: text says which and how to repair.
    pub anomalies: Vec<String>,
    /// Objects of `spec.nodeSelector` matches, counted.
    pub matched_nodes: u32,
    /// Of a csiNodePlugin: `versions` is empty then.
    pub csi: Option<Arc<CsiView>>,
    /// Of one that follows a Module of KMM: `versions` are those that are known, without DaemonSets of ours.
    pub kmm: Option<Arc<KmmView>>,
}

/// Conditions of a NodeComponent that tell of harm under way on nodes which nobody hands over.
pub const LOUD: [&str; 1] = ["Disturbed"];

impl ComponentView {
    pub fn spec(&self) -> Option<&NodeComponentSpec> {
        self.record.spec.as_ref().ok()
    }

    /// What its nodes shall run: `spec.version`, the Module's version, or the DaemonSet's current revision. None: the spec does not decode, or it is not known.
    pub fn aim(&self) -> Option<Version> {
        match (&self.csi, &self.kmm) {
            (Some(csi), _) => csi.current.clone(),
            (None, Some(kmm)) => kmm.aim(),
            (None, None) => self.spec().filter(|spec| !spec.version.is_empty()).map(|spec| Version::from(spec.version.as_str())),
        }
    }

    /// What was found over all its nodes and is nobody's to wait for: the conditions that are said loudly, as they stand in its status.
    pub fn alarms(&self) -> impl Iterator<Item = String> {
        let loud = self.record.status.conditions.iter().filter(|it| LOUD.contains(&it.kind.as_str()) && it.status == "True");
        loud.map(|it| format!("{}: {}", it.reason, it.message))
    }

    /// A handoff to this version can go on as things stand: it is one of the component's own; of a nodeplugin and of a Module of KMM only
    /// what is current is. What is current may not be known: that is refused for its own reasons.
    pub fn offers(&self, version: &Version) -> bool {
        match (&self.csi, &self.kmm) {
            (Some(csi), _) => csi.current.as_ref().is_none_or(|current| current == version),
            (None, Some(kmm)) => kmm.aim().is_none_or(|aim| aim == *version),
            (None, None) => self.versions.contains_key(version),
        }
    }
}

/// A version: its content as recorded on its loader DaemonSet, or as `spec.version` has it when there is none yet.
#[derive(Debug, Clone, PartialEq)]
pub struct VersionView {
    pub version: Version,
    pub block: Arc<KernelModule>,
    /// Hash of the block, as in the `content` annotation.
    pub content: Str,
    pub loader: Option<Arc<DaemonSetRecord>>,
    pub plugin: Option<Arc<DaemonSetRecord>>,
    /// What of its DaemonSets is not what they were made with, and the repair: nothing new is handed over to such a version.
    pub edited: Vec<String>,
    /// Nodes whose D, L, P or R names it, and handoffs (from or target) that do.
    pub used_by: u32,
}

/// A node and, per component, what is on it.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeView {
    pub name: NodeName,
    /// None: the Node object does not exist.
    pub record: Option<Arc<NodeRecord>>,
    pub lease: Option<Arc<NodeLeaseRecord>>,
    pub cordon: Option<Result<CordonOwners, Garbage>>,
    /// Pods bound to the node, all phases, by (namespace, name).
    pub pods: Vec<Arc<PodRecord>>,
    pub components: BTreeMap<ComponentKey, Arc<Occupancy>>,
}

/// One component on one node: labels, pods, claimants. The input of the handoff's decisions.
#[derive(Debug, Clone, PartialEq)]
pub struct Occupancy {
    /// The node's labels match `spec.nodeSelector`.
    pub selected: bool,
    pub labels: NodeLabels,
    /// Pods of the component on this node (by our labels), all versions, any phase.
    pub loader_pods: Vec<Arc<PodRecord>>,
    pub plugin_pods: Vec<Arc<PodRecord>>,
    pub unload_pods: Vec<Arc<PodRecord>>,
    pub claimants: Vec<Claimant>,
    /// Unbound pods that may yet land here as claimants.
    pub incoming: Vec<Incoming>,
    /// Claims of the component's DRA drivers that are still reserved for pods of this node (or for something unresolved).
    pub reserved_claims: Vec<ObjectKey>,
    /// ResourceSlices of the component's DRA drivers on this node: devices by driver.
    pub slices: BTreeMap<Str, i64>,
    /// Allocatable of the component's extended resources on this node.
    pub allocatable: BTreeMap<Str, i64>,
    pub handoff: Option<Arc<HandoffRecord>>,
    /// Of a csiNodePlugin; all of the above but claimants, incoming and handoff is empty then.
    pub csi: Option<Box<CsiOccupancy>>,
    /// Of a component that follows a Module of KMM: `labels` are KMM's then, and `plugin_pods` those of its plugin or DRA driver.
    pub kmm: Option<Box<KmmOccupancy>>,
}

/// A Module of KMM on one node.
#[derive(Debug, Clone, PartialEq)]
pub struct KmmOccupancy {
    /// Where it stands, as one look tells; None: the Node does not exist.
    pub here: Option<NodeModule>,
    /// Its entry in the spec of the node's NodeModulesConfig, and in the status.
    pub wanted: Option<Entry>,
    pub recorded: Option<Entry>,
    /// The version in the status, if it is of this boot: what may be in the kernel.
    pub version: Option<Version>,
    /// UID of the NodeModulesConfig: another one has forgotten what the one before had recorded.
    pub config: Option<Uid>,
    /// Worker pods, Load and Unload.
    pub workers: Vec<Arc<PodRecord>>,
    /// The image for the node's kernel; None: no mapping fits.
    pub image: Option<Str>,
    /// None: not known.
    pub image_exists: Option<bool>,
    /// A taint of the node that the Module does not tolerate.
    pub taint: Option<String>,
}

/// A CSI nodeplugin on one node.
#[derive(Debug, Clone, PartialEq)]
pub struct CsiOccupancy {
    /// Pods of the DaemonSet on this node, any phase: two while one is followed by the next.
    pub pods: Vec<Arc<PodRecord>>,
    /// The revision of the oldest pod that has not ended; None: there is none, or it has no hash.
    pub revision: Option<Version>,
    /// The node's CSINode lists the driver. It may be out of date after a crash: necessary, not sufficient.
    pub registered: bool,
    /// Whether the DaemonSet's controller would make a pod here; if not, why.
    pub should_run: Result<(), String>,
    /// Volumes of the driver that pods of this node use, whoever they are.
    pub uses: Vec<VolumeUse>,
    /// DaemonSet pods whose mounts die with the plugin pod: they are restarted after it, for they would come straight back.
    pub restart: Vec<Claimant>,
    /// VolumeAttachments of the driver on this node, by name.
    pub attachments: Vec<Arc<AttachmentRecord>>,
    /// What must be unmounted before the plugin pod goes: volumes at risk that are attached or in use here and that no pod which stays uses.
    pub attached: Vec<Attached>,
}

/// One pod's use of one volume of the driver.
#[derive(Debug, Clone, PartialEq)]
pub struct VolumeUse {
    pub pod: Arc<PodRecord>,
    /// The volume's name in the pod.
    pub name: Str,
    pub claim: Option<ObjectKey>,
    /// The PersistentVolume.
    pub volume: Option<Str>,
    /// Empty: not known, or an inline volume.
    pub handle: Str,
    pub risk: Risk,
    /// A container mounts it; otherwise it is attached at most.
    pub used: bool,
    /// It was mounted before the plugin's process began, and its mount died with the one before.
    pub stale: bool,
}

/// What becomes of a mount when the plugin pod is replaced, and by which rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Risk {
    /// `mounter: fuse`: the process that serves the mount runs in the plugin pod.
    Fuse,
    /// The node's kernel has no quota support for CephFS, so that the driver falls back to FUSE.
    KernelTooOld { kernel: Str },
    /// `mounter: rbd-nbd`: dies with the pod; a healer may bring it back if it is attached.
    Nbd { attached: bool },
    /// `tryOtherMounters`: rbd-nbd where the kernel cannot do it, which the API does not tell.
    MayBeNbd,
    /// The plugin is not on the host's network: kernel mounts made in its network namespace hang when it goes.
    PodNetwork,
    /// The component is a holder: every mount of the driver lives in the network namespace of its pod, and hangs when that goes.
    Holder,
    /// A volume attribute that the component names.
    Attribute { key: Str, value: Str },
    /// A driver that lockkeeper does not know.
    UnknownDriver,
    /// The kernel serves it.
    Kernel,
    /// The component's attributes do not name it.
    NotNamed,
}

impl Risk {
    pub fn dies(&self) -> bool {
        !matches!(self, Self::Kernel | Self::NotNamed)
    }
}

/// A volume that is still attached to the node, or in use there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attached {
    pub driver: Str,
    /// PersistentVolume, if it is known.
    pub volume: Option<Str>,
    pub handle: Str,
    /// Name of the VolumeAttachment, if that is what shows it.
    pub attachment: Option<Str>,
    /// Its PersistentVolume is Released or gone: nothing of this run waits for it.
    pub orphan: bool,
    pub detach_error: Option<Str>,
}

/// What the node's labels and annotations say about one component; garbage is kept aside, never guessed at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeLabels {
    /// D. `Some("")` is possible: rule 0.
    pub desired: Option<Version>,
    /// L.
    pub loader: Option<Version>,
    /// P.
    pub plugin: Option<Version>,
    pub ready: Option<Version>,
    pub nonce: Option<Str>,
    /// R.
    pub loaded: Option<Loaded>,
    pub mark: Option<Mark>,
    pub garbage: Vec<Garbage>,
}

/// A pod that would break if the component went away now, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Claimant {
    pub pod: Arc<PodRecord>,
    pub why: ClaimReason,
    pub class: ClaimantClass,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimReason {
    Resource {
        name: Str,
        quantity: i64,
    },
    Claim {
        claim: ObjectKey,
        driver: Str,
    },
    /// A claim that cannot be resolved is taken for one of ours.
    UnresolvedClaim {
        entry: Str,
    },
    Selector,
    /// Uses a volume of the driver that dies with the plugin pod, or all are to leave.
    Volume {
        /// The volume's name in the pod.
        name: Str,
        claim: Option<ObjectKey>,
        risk: Risk,
        /// Its mount has died already.
        stale: bool,
    },
    /// A volume that cannot be resolved is taken for one of ours.
    UnresolvedVolume {
        name: Str,
        why: String,
    },
    /// `unloadBy: Reboot`: everything drainable leaves.
    Reboot,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClaimantClass {
    /// Evicted.
    Evictable,
    /// Deleted already, not gone yet: waited for.
    Terminating,
    /// Leaves and returns by itself with the ready label, if it selects it.
    DaemonSet { selects_ready: bool },
    /// No controller brings it back: consent needed.
    Unmanaged,
    /// Static pod: cannot be moved.
    Mirror,
    /// Loses emptyDir data: consent needed.
    EmptyDir,
}

/// An unbound pod on its way to a node (nominated, selected by its volume, or allocated a device of this node only).
#[derive(Debug, Clone, PartialEq)]
pub struct Incoming {
    pub pod: Arc<PodRecord>,
    pub why: IncomingReason,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IncomingReason {
    Nominated,
    VolumeSelectedNode { claim: ObjectKey },
    ClaimOnlyHere { claim: ObjectKey },
}

/// Who the loader of a boot is; see rule 8 of the interlock.
pub type Boot = BootId;
