//! Builders of records and whole fleets for tests, benches and demos: they read like the given part of a story. Everything left out is
//! the plain healthy case. Nothing in the program itself uses them.
//!
//! ```
//! use lockkeeper::fleet::build::*;
//! let view = fleet()
//!     .with(component("ns/gpu").version("2").made("1").made("2"))
//!     .with(node("n1").runs("ns/gpu", "1").allocatable("vendor.com/gpu", 4))
//!     .with(pod("shop/train-0").on("n1").claims("vendor.com/gpu", 1).owned_by("ReplicaSet", "train"))
//!     .project(at(0));
//! let occupancy = &view.nodes[0].components[&key("ns/gpu")];
//! assert_eq!(occupancy.claimants.len(), 1);
//! ```

mod component;
mod node;
mod others;
mod pod;

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

pub use self::{component::*, node::*, others::*, pod::*};
use super::{
    Fleet,
    event::{Event, Kind, Record, RecordKey},
    records::{Meta, Str},
    view::{ClusterInfo, FleetView},
};
use crate::api::{ObjectKey, Uid};

/// The story's clock: seconds after its beginning, 2026-01-01T00:00:00Z.
pub fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_767_225_600)
        .unwrap_or_default()
        .saturating_add(SignedDuration::from_secs(seconds))
        .unwrap_or_default()
}

/// `namespace/name`; without a slash the namespace is `default`.
pub fn key(text: &str) -> ObjectKey {
    let (namespace, name) = text.split_once('/').unwrap_or(("default", text));
    ObjectKey::new(namespace, name)
}

/// An object that a builder makes: one record, or some that belong together.
pub trait Records {
    fn records(self) -> Vec<Record>;
}

impl Records for Record {
    fn records(self) -> Vec<Record> {
        vec![self]
    }
}

impl<T: Records> Records for Vec<T> {
    fn records(self) -> Vec<Record> {
        self.into_iter().flat_map(Records::records).collect()
    }
}

fn meta(kind: &str, name: &str) -> Meta {
    Meta { uid: Uid::from(format!("uid-{kind}-{name}")), resource_version: "0".into(), created: Some(at(-3600)), deletion: None }
}

/// A fleet in which every kind has been listed and is empty.
pub fn fleet() -> FleetBuilder {
    let mut fleet = Fleet::new(ClusterInfo { context: "story".into(), ..ClusterInfo::default() });
    for kind in Kind::ALL {
        fleet.apply(kind, Event::Init);
        fleet.apply(kind, Event::InitDone { resource_version: Str::default() });
    }
    FleetBuilder { fleet, version: 100 }
}

#[derive(Debug)]
pub struct FleetBuilder {
    pub fleet: Fleet,
    version: u64,
}

impl FleetBuilder {
    /// Adds these objects, or replaces those of the same kind and key.
    pub fn with(mut self, objects: impl Records) -> Self {
        self.put(objects);
        self
    }

    /// As [`FleetBuilder::with`], in the middle of a story.
    pub fn put(&mut self, objects: impl Records) -> &mut Self {
        for mut record in objects.records() {
            self.version += 1;
            set_version(&mut record, &self.version.to_string());
            self.fleet.apply(record.kind(), Event::Apply(record));
        }
        self
    }

    /// An object is gone.
    pub fn gone(&mut self, kind: Kind, key: ObjectKey) -> &mut Self {
        self.fleet.apply(kind, Event::Delete(RecordKey { key, uid: Uid::from("") }));
        self
    }

    pub fn project(&mut self, now: Timestamp) -> Arc<FleetView> {
        self.fleet.project(now)
    }
}

fn set_version(record: &mut Record, version: &str) {
    let meta = match record {
        Record::Node(it) => &mut it.meta,
        Record::Pod(it) => &mut it.meta,
        Record::DaemonSet(it) => &mut it.meta,
        Record::Budget(it) => &mut it.meta,
        Record::Claim(it) => &mut it.meta,
        Record::Slice(it) => &mut it.meta,
        Record::NodeLease(it) => &mut it.meta,
        Record::VolumeClaim(it) => &mut it.meta,
        Record::Scale(it) => &mut it.meta,
        Record::Volume(it) => &mut it.meta,
        Record::Attachment(it) => &mut it.meta,
        Record::CsiNode(it) => &mut it.meta,
        Record::CsiDriver(it) => &mut it.meta,
        Record::Revision(it) => &mut it.meta,
        Record::KmmModule(it) => &mut it.meta,
        Record::KmmConfig(it) => &mut it.meta,
        Record::KmmImages(it) => &mut it.meta,
        Record::Component(it) => &mut it.meta,
        Record::Handoff(it) => &mut it.meta,
        Record::Lease(it) => &mut it.meta,
    };
    meta.resource_version = version.into();
}
