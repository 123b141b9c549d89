//! Kinds of which one or two fields are used: node Leases, PersistentVolumeClaims, ReplicaSets and StatefulSets.

use serde::Deserialize;

use super::{
    Context, Slim,
    meta::RawMeta,
    text::{SELECTED_NODE, Text, timestamp},
};
use crate::{
    api::NodeName,
    fleet::{
        event::Record,
        records::{NodeLeaseRecord, ScaleRecord, VolumeClaimRecord},
    },
};

pub(super) struct NodeLease;

#[derive(Deserialize)]
pub(super) struct RawLease<'a> {
    #[serde(borrow)]
    pub metadata: RawMeta<'a>,
    #[serde(borrow, default)]
    pub spec: RawLeaseSpec<'a>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RawLeaseSpec<'a> {
    #[serde(borrow)]
    pub holder_identity: Text<'a>,
    pub lease_transitions: Option<i64>,
    #[serde(borrow)]
    pub renew_time: Text<'a>,
}

impl Slim for NodeLease {
    type Raw<'a> = RawLease<'a>;

    fn record(raw: RawLease<'_>, context: &mut Context) -> Result<Record, String> {
        Ok(Record::NodeLease(NodeLeaseRecord {
            node: NodeName::from(context.text(&raw.metadata.name()?)),
            meta: raw.metadata.meta(context)?,
            renewed: timestamp(&raw.spec.renew_time),
        }))
    }
}

pub(super) struct VolumeClaim;

#[derive(Deserialize)]
pub(super) struct RawVolumeClaim<'a> {
    #[serde(borrow)]
    metadata: RawMeta<'a>,
    #[serde(borrow, default)]
    spec: RawVolumeClaimSpec<'a>,
    #[serde(borrow, default)]
    status: RawVolumeClaimStatus<'a>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawVolumeClaimSpec<'a> {
    #[serde(borrow)]
    volume_name: Text<'a>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawVolumeClaimStatus<'a> {
    #[serde(borrow)]
    phase: Text<'a>,
}

impl Slim for VolumeClaim {
    type Raw<'a> = RawVolumeClaim<'a>;

    fn record(raw: RawVolumeClaim<'_>, context: &mut Context) -> Result<Record, String> {
        let selected = raw.metadata.annotations.get(SELECTED_NODE).filter(|node| !node.is_empty());
        Ok(Record::VolumeClaim(VolumeClaimRecord {
            selected_node: selected.map(|node| NodeName::from(context.text(node))),
            key: raw.metadata.key(context)?,
            meta: raw.metadata.meta(context)?,
            bound: &*raw.status.phase == "Bound",
            volume: (!raw.spec.volume_name.is_empty()).then(|| context.own(&raw.spec.volume_name)),
            pod: raw.metadata.owner(context).filter(|owner| &*owner.kind == "Pod").map(|owner| owner.uid),
        }))
    }
}

pub(super) struct Scale;

#[derive(Deserialize)]
pub(super) struct RawScale<'a> {
    #[serde(borrow)]
    metadata: RawMeta<'a>,
    #[serde(default)]
    spec: RawScaleSpec,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawScaleSpec {
    replicas: Option<i32>,
}

impl Slim for Scale {
    type Raw<'a> = RawScale<'a>;

    fn record(raw: RawScale<'_>, context: &mut Context) -> Result<Record, String> {
        Ok(Record::Scale(ScaleRecord {
            key: raw.metadata.key(context)?,
            kind: context.replica_kind.clone(),
            meta: raw.metadata.meta(context)?,
            replicas: raw.spec.replicas.unwrap_or(1),
        }))
    }
}
