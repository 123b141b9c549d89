//! What a watch tells the fleet: decoded records of one kind, in the order of the API server. No transport; `cluster::watch` makes them.
//!
//! The decoder of a kind is `decode::Decoder`: `new(kind)`, `list(&mut self, &[u8]) -> Result<ListPage, DecodeError>`,
//! `line(&mut self, &[u8]) -> Result<WatchLine, DecodeError>` and `object(&mut self, &[u8]) -> Result<Record, Undecodable>`; it is `Send`.

use super::{keyed::Keyed, records::*};
use crate::{
    api::{ObjectKey, Uid},
    kmm::records::{ImagesRecord, ModuleRecord, NmcRecord},
};

/// The kinds that are watched, each by one task with its own back-off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Node,
    Pod,
    DaemonSet,
    Budget,
    Claim,
    Slice,
    NodeLease,
    VolumeClaim,
    ReplicaSet,
    StatefulSet,
    /// This and the next four only while a csiNodePlugin component exists.
    Volume,
    Attachment,
    CsiNode,
    CsiDriver,
    Revision,
    /// This and the next two only while a component follows a Module of KMM.
    KmmModule,
    KmmConfig,
    KmmImages,
    Component,
    Handoff,
    /// Only the one lockkeeper Lease.
    Lease,
}

impl Kind {
    pub const ALL: [Self; 21] = [
        Self::Node,
        Self::Pod,
        Self::DaemonSet,
        Self::Budget,
        Self::Claim,
        Self::Slice,
        Self::NodeLease,
        Self::VolumeClaim,
        Self::ReplicaSet,
        Self::StatefulSet,
        Self::Volume,
        Self::Attachment,
        Self::CsiNode,
        Self::CsiDriver,
        Self::Revision,
        Self::KmmModule,
        Self::KmmConfig,
        Self::KmmImages,
        Self::Component,
        Self::Handoff,
        Self::Lease,
    ];

    /// What only csiNodePlugin components need, and so is watched only while there is one.
    pub const OF_CSI: [Self; 5] = [Self::Volume, Self::Attachment, Self::CsiNode, Self::CsiDriver, Self::Revision];

    /// What only components that follow a Module of KMM need; the last of them is not served by all of its generations.
    pub const OF_KMM: [Self; 3] = [Self::KmmModule, Self::KmmConfig, Self::KmmImages];

    /// What every cluster is watched for.
    pub fn always() -> Vec<Self> {
        Self::ALL.into_iter().filter(|kind| !kind.is_asked_for()).collect()
    }

    /// Watched only while there is a component of the kind that needs it.
    pub fn is_asked_for(self) -> bool {
        Self::OF_CSI.contains(&self) || Self::OF_KMM.contains(&self)
    }

    /// Plural, with the group if it has one; the two kinds of Lease with their namespace.
    pub fn resource(self) -> &'static str {
        match self {
            Self::Node => "nodes",
            Self::Pod => "pods",
            Self::DaemonSet => "daemonsets.apps",
            Self::ReplicaSet => "replicasets.apps",
            Self::StatefulSet => "statefulsets.apps",
            Self::Budget => "poddisruptionbudgets.policy",
            Self::Claim => "resourceclaims.resource.k8s.io",
            Self::Slice => "resourceslices.resource.k8s.io",
            Self::VolumeClaim => "persistentvolumeclaims",
            Self::Volume => "persistentvolumes",
            Self::Attachment => "volumeattachments.storage.k8s.io",
            Self::CsiNode => "csinodes.storage.k8s.io",
            Self::CsiDriver => "csidrivers.storage.k8s.io",
            Self::Revision => "controllerrevisions.apps",
            Self::KmmModule => "modules.kmm.sigs.x-k8s.io",
            Self::KmmConfig => "nodemodulesconfigs.kmm.sigs.x-k8s.io",
            Self::KmmImages => "moduleimagesconfigs.kmm.sigs.x-k8s.io",
            Self::NodeLease => "leases.coordination.k8s.io (kube-node-lease)",
            Self::Component => "nodecomponents.lockkeeper.dev",
            Self::Handoff => "nodehandoffs.lockkeeper.dev",
            Self::Lease => "leases.coordination.k8s.io (lockkeeper-system)",
        }
    }
}

/// One object of any watched kind. Large ones are boxed by the store, not here: pages are moved, not copied.
#[allow(clippy::large_enum_variant, reason = "the store boxes; pages are moved, not copied")]
#[derive(Debug, Clone, PartialEq)]
pub enum Record {
    Node(NodeRecord),
    Pod(PodRecord),
    DaemonSet(DaemonSetRecord),
    Budget(BudgetRecord),
    Claim(ClaimRecord),
    Slice(SliceRecord),
    NodeLease(NodeLeaseRecord),
    VolumeClaim(VolumeClaimRecord),
    /// ReplicaSet or StatefulSet, by its `kind`.
    Scale(ScaleRecord),
    Volume(VolumeRecord),
    Attachment(AttachmentRecord),
    CsiNode(CsiNodeRecord),
    CsiDriver(CsiDriverRecord),
    Revision(RevisionRecord),
    KmmModule(ModuleRecord),
    KmmConfig(NmcRecord),
    KmmImages(ImagesRecord),
    Component(ComponentRecord),
    Handoff(HandoffRecord),
    Lease(LeaseRecord),
}

impl Record {
    pub fn meta(&self) -> &Meta {
        match self {
            Self::Node(it) => &it.meta,
            Self::Pod(it) => &it.meta,
            Self::DaemonSet(it) => &it.meta,
            Self::Budget(it) => &it.meta,
            Self::Claim(it) => &it.meta,
            Self::Slice(it) => &it.meta,
            Self::NodeLease(it) => &it.meta,
            Self::VolumeClaim(it) => &it.meta,
            Self::Scale(it) => &it.meta,
            Self::Volume(it) => &it.meta,
            Self::Attachment(it) => &it.meta,
            Self::CsiNode(it) => &it.meta,
            Self::CsiDriver(it) => &it.meta,
            Self::Revision(it) => &it.meta,
            Self::KmmModule(it) => &it.meta,
            Self::KmmConfig(it) => &it.meta,
            Self::KmmImages(it) => &it.meta,
            Self::Component(it) => &it.meta,
            Self::Handoff(it) => &it.meta,
            Self::Lease(it) => &it.meta,
        }
    }

    pub fn key(&self) -> ObjectKey {
        match self {
            Self::Node(it) => it.key(),
            Self::Pod(it) => it.key(),
            Self::DaemonSet(it) => it.key(),
            Self::Budget(it) => it.key(),
            Self::Claim(it) => it.key(),
            Self::Slice(it) => it.key(),
            Self::NodeLease(it) => it.key(),
            Self::VolumeClaim(it) => it.key(),
            Self::Scale(it) => it.key(),
            Self::Volume(it) => it.key(),
            Self::Attachment(it) => it.key(),
            Self::CsiNode(it) => it.key(),
            Self::CsiDriver(it) => it.key(),
            Self::Revision(it) => it.key(),
            Self::KmmModule(it) => it.key(),
            Self::KmmConfig(it) => it.key(),
            Self::KmmImages(it) => it.key(),
            Self::Component(it) => it.key(),
            Self::Handoff(it) => it.key(),
            Self::Lease(it) => it.key(),
        }
    }

    /// Key and UID, as the end of this object would be told.
    pub fn record_key(&self) -> RecordKey {
        RecordKey { key: self.key(), uid: self.meta().uid.clone() }
    }

    /// The kind it is stored under.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Node(_) => Kind::Node,
            Self::Pod(_) => Kind::Pod,
            Self::DaemonSet(_) => Kind::DaemonSet,
            Self::Scale(it) if &*it.kind == "StatefulSet" => Kind::StatefulSet,
            Self::Scale(_) => Kind::ReplicaSet,
            Self::Budget(_) => Kind::Budget,
            Self::Claim(_) => Kind::Claim,
            Self::Slice(_) => Kind::Slice,
            Self::VolumeClaim(_) => Kind::VolumeClaim,
            Self::NodeLease(_) => Kind::NodeLease,
            Self::Volume(_) => Kind::Volume,
            Self::Attachment(_) => Kind::Attachment,
            Self::CsiNode(_) => Kind::CsiNode,
            Self::CsiDriver(_) => Kind::CsiDriver,
            Self::Revision(_) => Kind::Revision,
            Self::KmmModule(_) => Kind::KmmModule,
            Self::KmmConfig(_) => Kind::KmmConfig,
            Self::KmmImages(_) => Kind::KmmImages,
            Self::Component(_) => Kind::Component,
            Self::Handoff(_) => Kind::Handoff,
            Self::Lease(_) => Kind::Lease,
        }
    }
}

/// Which object: cluster-scoped ones have an empty namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordKey {
    pub key: ObjectKey,
    /// Empty: unknown (an object that did not decode).
    pub uid: Uid,
}

/// An object that did not decode: what the store holds of it stays, since to forget it could hide a claimant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undecodable {
    pub key: ObjectKey,
    pub why: String,
}

/// One step of a watch. A list is `Init`, any number of `Page`, `InitDone`; an `Init` that comes before the `InitDone` starts over.
/// What the store held before `Init` stays visible until `InitDone`, which takes away what no page named: deletes that the watch missed.
#[allow(clippy::large_enum_variant, reason = "short-lived: one at a time, moved once")]
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    Init,
    Page {
        records: Vec<Record>,
        undecodable: Vec<Undecodable>,
    },
    InitDone {
        resource_version: Str,
    },
    /// Added or changed.
    Apply(Record),
    Delete(RecordKey),
    Undecodable(Undecodable),
    Bookmark {
        resource_version: Str,
    },
    /// What a fresh read or a write returned: as new as it says, and silent about all other objects.
    Observed(Record),
}

/// An event, and the kind whose watch it came from.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    pub kind: Kind,
    pub event: Event,
}

/// A decoded page of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct ListPage {
    pub records: Vec<Record>,
    pub undecodable: Vec<Undecodable>,
    /// `metadata.resourceVersion` of the list.
    pub resource_version: Str,
    /// `metadata.continue`, when there is a next page.
    pub next: Option<String>,
}

/// A decoded line of a watch's body.
#[allow(clippy::large_enum_variant, reason = "short-lived: one at a time, moved once")]
#[derive(Debug, Clone, PartialEq)]
pub enum WatchLine {
    /// `ADDED` (true) or `MODIFIED` (false).
    Apply {
        record: Record,
        added: bool,
    },
    Delete {
        key: RecordKey,
        resource_version: Str,
    },
    Bookmark {
        resource_version: Str,
    },
    /// An event of type `ERROR`: its Status.
    Error {
        code: u16,
        reason: String,
        message: String,
    },
    /// `ADDED` or `MODIFIED` with an object that did not decode; its resourceVersion is empty when even that is missing.
    Undecodable {
        object: Undecodable,
        resource_version: Str,
    },
}
