//! What the engine may do: one guarded action at a time, each with the precondition under which it is right.

use crate::{
    api::{ComponentKey, NodeHandoffSpec, NodeHandoffStatus, NodeName, ObjectKey, Uid, Version, keys::Slot},
    fleet::records::Str,
};

/// One guarded write (evictions of one round count as one). `why` is a sentence for logs, Events and the console.
#[derive(Debug, Clone, PartialEq)]
pub struct Action {
    pub op: Op,
    pub evidence: Evidence,
    pub why: String,
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
    /// `policy/v1` evictions, each pinned to its UID.
    Evict {
        pods: Vec<PodRef>,
        grace_seconds: Option<u32>,
    },
    /// DELETE with a UID precondition and the pod's own grace period.
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

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandoffRef {
    pub key: ObjectKey,
    pub uid: Uid,
    pub resource_version: Str,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodRef {
    pub key: ObjectKey,
    pub uid: Uid,
}

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
