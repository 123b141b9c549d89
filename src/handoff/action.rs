//! What the engine may do: one guarded action at a time, each with the precondition under which it is right.

use crate::{
    api::{ComponentKey, NodeHandoffSpec, NodeHandoffStatus, NodeName, ObjectKey, Phase, Uid, Version, keys::Slot},
    fleet::records::{HandoffRecord, PodRecord, Str},
};

/// One guarded write (evictions of one round count as one). `why` is a sentence for logs, Events and the console.
#[derive(Debug, Clone, PartialEq)]
pub struct Action {
    pub op: Op,
    pub evidence: Evidence,
    pub why: String,
}

impl Action {
    /// It only writes down of one in the queue what it waits for. Thousands may have to be told at once, and who runs goes first.
    pub fn is_note(&self) -> bool {
        matches!(&self.op, Op::PutHandoffStatus { status, .. } if status.phase == Phase::Queued)
    }

    /// The second look came to the same: the same write to the same objects. What moves by itself meanwhile (resourceVersions, times,
    /// sentences) does not count; the later one is to be sent.
    pub fn is_same_as(&self, other: &Self) -> bool {
        match (&self.op, &other.op) {
            (Op::PatchNode(a), Op::PatchNode(b)) => a.node == b.node && a.uid == b.uid && same_changes(&a.changes, &b.changes),
            (Op::Evict { pods: a, .. }, Op::Evict { pods: b, .. }) => a == b,
            (Op::DeletePod(a), Op::DeletePod(b)) => a == b,
            (Op::CreatePod(a), Op::CreatePod(b)) | (Op::CreateDaemonSet(a), Op::CreateDaemonSet(b)) => a == b,
            (Op::PutHandoffStatus { of: a, status: x }, Op::PutHandoffStatus { of: b, status: y }) => {
                a.uid == b.uid && x.phase == y.phase && x.resume_at == y.resume_at
            }
            (Op::PatchHandoffSpec { of: a, spec: x }, Op::PatchHandoffSpec { of: b, spec: y }) => {
                a.uid == b.uid && x.version == y.version && x.attempt == y.attempt
            }
            (Op::CreateHandoff { key: a, spec: x }, Op::CreateHandoff { key: b, spec: y }) => a == b && x.version == y.version,
            (Op::SetHandoffFinalizer { of: a, present: x }, Op::SetHandoffFinalizer { of: b, present: y }) => {
                a.uid == b.uid && x == y
            }
            (Op::SetComponentFinalizer { uid: a, present: x, .. }, Op::SetComponentFinalizer { uid: b, present: y, .. }) => {
                a == b && x == y
            }
            (Op::PutComponentStatus { uid: a, .. }, Op::PutComponentStatus { uid: b, .. }) => a == b,
            (a, b) => a == b,
        }
    }
}

/// The same keys with the same labels; the mark's and the record's text, and a nonce, may be newer.
fn same_changes(a: &[NodeChange], b: &[NodeChange]) -> bool {
    let same = |(a, b): (&NodeChange, &NodeChange)| match (a, b) {
        (NodeChange::Label { key: a, value: x }, NodeChange::Label { key: b, value: y }) => {
            a == b && (x == y || is_nonce(a) && x.is_some() == y.is_some())
        }
        (NodeChange::Annotation { key: a, value: x }, NodeChange::Annotation { key: b, value: y }) => {
            a == b && x.is_some() == y.is_some()
        }
        (a, b) => a == b,
    };
    a.len() == b.len() && a.iter().zip(b).all(same)
}

fn is_nonce(key: &str) -> bool {
    crate::api::keys::Role::parse(key).is_some_and(|(role, _)| role == crate::api::keys::Role::Nonce)
}

/// How fresh the facts under an action must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Evidence {
    /// What the watches show; the write's own precondition guards it.
    Watched,
    /// Decide again on facts read just now from the API server, and act only if the decision is the same.
    Fresh,
    /// The same on two reads, one after the other.
    FreshTwice,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Op {
    /// One merge patch of a Node, with its UID and resourceVersion.
    PatchNode(NodePatch),
    /// `policy/v1` evictions, each pinned to its UID and resourceVersion.
    Evict {
        pods: Vec<PodRef>,
        grace_seconds: Option<u32>,
    },
    /// DELETE with UID and resourceVersion preconditions and the pod's own grace period.
    DeletePod(PodRef),
    /// Create a pod (unload pods). The body is complete.
    CreatePod(Box<serde_json::Value>),
    CreateDaemonSet(Box<serde_json::Value>),
    /// DELETE with UID precondition, background propagation.
    DeleteDaemonSet {
        key: ObjectKey,
        uid: Uid,
    },
    CreateHandoff {
        key: ObjectKey,
        spec: Box<NodeHandoffSpec>,
    },
    /// A merge patch of spec fields with resourceVersion (a Queued label handoff takes a new target, an ended one a new attempt).
    PatchHandoffSpec {
        of: HandoffRef,
        spec: Box<NodeHandoffSpec>,
    },
    /// DELETE with UID and resourceVersion preconditions (a Queued handoff is taken back).
    DeleteHandoff(HandoffRef),
    /// `spec.rollout.paused`, with resourceVersion.
    SetPaused {
        key: ComponentKey,
        uid: Uid,
        resource_version: Str,
        paused: bool,
    },
    /// Finalizer on or off, with resourceVersion.
    SetHandoffFinalizer {
        of: HandoffRef,
        present: bool,
    },
    /// Replace the status, with resourceVersion.
    PutHandoffStatus {
        of: HandoffRef,
        status: Box<NodeHandoffStatus>,
    },
    /// Add a slot to the Lease's annotation, with the Lease's resourceVersion.
    Admit(Slot),
    /// Take a slot off it.
    Release(Slot),
    /// Replace a component's status, with resourceVersion.
    PutComponentStatus {
        key: ComponentKey,
        uid: Uid,
        resource_version: Str,
        status: Box<crate::api::NodeComponentStatus>,
    },
    /// Component finalizer on or off (deleting the component runs the same order, then cleans its labels).
    SetComponentFinalizer {
        key: ComponentKey,
        uid: Uid,
        resource_version: Str,
        present: bool,
    },
}

impl Op {
    /// A stable word for metrics and logs.
    pub fn word(&self) -> &'static str {
        match self {
            Self::PatchNode(_) => "PatchNode",
            Self::Evict { .. } => "Evict",
            Self::DeletePod(_) => "DeletePod",
            Self::CreatePod(_) => "CreatePod",
            Self::CreateDaemonSet(_) => "CreateDaemonSet",
            Self::DeleteDaemonSet { .. } => "DeleteDaemonSet",
            Self::CreateHandoff { .. } => "CreateHandoff",
            Self::PatchHandoffSpec { .. } => "PatchHandoffSpec",
            Self::DeleteHandoff(_) => "DeleteHandoff",
            Self::SetPaused { .. } => "SetPaused",
            Self::SetHandoffFinalizer { .. } => "SetHandoffFinalizer",
            Self::PutHandoffStatus { .. } => "PutHandoffStatus",
            Self::Admit(_) => "Admit",
            Self::Release(_) => "Release",
            Self::PutComponentStatus { .. } => "PutComponentStatus",
            Self::SetComponentFinalizer { .. } => "SetComponentFinalizer",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandoffRef {
    pub key: ObjectKey,
    pub uid: Uid,
    pub resource_version: Str,
}

impl HandoffRef {
    pub fn of(record: &HandoffRecord) -> Self {
        let meta = &record.meta;
        Self { key: record.key.clone(), uid: meta.uid.clone(), resource_version: meta.resource_version.clone() }
    }
}

/// A pod as it was seen. Two of them are the same when they mean the same pod, in whatever state it was seen.
#[derive(Debug, Clone)]
pub struct PodRef {
    pub key: ObjectKey,
    pub uid: Uid,
    /// The state that was decided on: one that changed since (it is on its way out, it has ended) is looked at again, not evicted.
    pub resource_version: Str,
}

impl PodRef {
    pub fn of(pod: &PodRecord) -> Self {
        Self { key: pod.key.clone(), uid: pod.meta.uid.clone(), resource_version: pod.meta.resource_version.clone() }
    }
}

impl PartialEq for PodRef {
    fn eq(&self, other: &Self) -> bool {
        (&self.key, &self.uid) == (&other.key, &other.uid)
    }
}

impl Eq for PodRef {}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodePatch {
    pub node: NodeName,
    pub uid: Uid,
    pub resource_version: Str,
    pub changes: Vec<NodeChange>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeChange {
    /// None removes it.
    Label {
        key: String,
        value: Option<String>,
    },
    Annotation {
        key: String,
        value: Option<String>,
    },
    Unschedulable(bool),
}

/// Which handoff (or component, or the whole cluster) a decision is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// A component on a node; there may be a NodeHandoff for it or not.
    Occupancy {
        component: ComponentKey,
        node: NodeName,
    },
    Component(ComponentKey),
    /// A version's DaemonSets.
    Version {
        component: ComponentKey,
        version: Version,
    },
    Lease,
}
