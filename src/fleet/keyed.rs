//! What every record is: something with a key and metadata.

use super::records::*;
use crate::{
    api::{ObjectKey, keys},
    kmm::records::{ImagesRecord, ModuleRecord, NmcRecord},
};

/// A record of any kind.
pub trait Keyed {
    /// Namespace and name; the namespace is empty for kinds without one.
    fn key(&self) -> ObjectKey;
    fn meta(&self) -> &Meta;
}

macro_rules! keyed {
    ($($record:ty: |$this:ident| $key:expr;)*) => {
        $(impl Keyed for $record {
            fn key(&self) -> ObjectKey {
                let $this = self;
                $key
            }
            fn meta(&self) -> &Meta {
                &self.meta
            }
        })*
    };
}

keyed! {
    NodeRecord: |it| cluster_scoped(it.name.shared());
    PodRecord: |it| it.key.clone();
    DaemonSetRecord: |it| it.key.clone();
    ScaleRecord: |it| it.key.clone();
    BudgetRecord: |it| it.key.clone();
    ClaimRecord: |it| it.key.clone();
    SliceRecord: |it| cluster_scoped(it.name.clone());
    VolumeClaimRecord: |it| it.key.clone();
    NodeLeaseRecord: |it| cluster_scoped(it.node.shared());
    VolumeRecord: |it| cluster_scoped(it.name.clone());
    AttachmentRecord: |it| cluster_scoped(it.name.clone());
    CsiNodeRecord: |it| cluster_scoped(it.node.shared());
    CsiDriverRecord: |it| cluster_scoped(it.name.clone());
    RevisionRecord: |it| it.key.clone();
    ModuleRecord: |it| it.key.clone();
    NmcRecord: |it| cluster_scoped(it.node.shared());
    ImagesRecord: |it| it.key.clone();
    ComponentRecord: |it| it.key.clone();
    HandoffRecord: |it| it.key.clone();
    LeaseRecord: |_it| ObjectKey::new(keys::LEASE.0, keys::LEASE.1);
}

/// The key of an object without a namespace.
pub fn cluster_scoped(name: Str) -> ObjectKey {
    ObjectKey { namespace: Str::default(), name }
}
