//! Nodes: labels, our annotations, whether they are closed and by whom, readiness, boot, kernel, extended resources.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    Context, Slim,
    meta::{RawCondition, RawMeta, ready, unschedulable_managers},
    text::{Extended, List, Text},
};
use crate::{
    api::{BootId, NodeName},
    fleet::{
        event::Record,
        records::{NodeRecord, Taint},
    },
};

pub(super) struct Node;

#[derive(Deserialize)]
pub(super) struct RawNode<'a> {
    #[serde(borrow)]
    metadata: &'a RawValue,
    #[serde(borrow, default)]
    spec: RawSpec<'a>,
    #[serde(borrow, default)]
    status: RawStatus<'a>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Managed<'a> {
    #[serde(borrow)]
    managed_fields: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawSpec<'a> {
    unschedulable: Option<bool>,
    #[serde(borrow)]
    taints: List<RawTaint<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawTaint<'a> {
    #[serde(borrow)]
    key: Text<'a>,
    #[serde(borrow)]
    value: Text<'a>,
    #[serde(borrow)]
    effect: Text<'a>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawStatus<'a> {
    #[serde(borrow)]
    conditions: List<RawCondition<'a>>,
    #[serde(borrow)]
    node_info: RawInfo<'a>,
    #[serde(borrow)]
    allocatable: Extended<'a>,
    #[serde(borrow)]
    images: List<RawImage<'a>>,
    #[serde(borrow)]
    volumes_in_use: List<Text<'a>>,
    #[serde(borrow)]
    volumes_attached: List<RawAttached<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawAttached<'a> {
    #[serde(borrow)]
    name: Text<'a>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawInfo<'a> {
    #[serde(borrow, rename = "bootID")]
    boot_id: Text<'a>,
    #[serde(borrow)]
    kernel_version: Text<'a>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawImage<'a> {
    #[serde(borrow)]
    names: List<Text<'a>>,
}

impl Slim for Node {
    type Raw<'a> = RawNode<'a>;

    fn record(raw: RawNode<'_>, context: &mut Context) -> Result<Record, String> {
        let mut meta: RawMeta<'_> = serde_json::from_str(raw.metadata.get()).map_err(|error| format!("metadata: {error}"))?;
        let unschedulable = raw.spec.unschedulable.unwrap_or(false);
        // Nobody owns a field that is not set, so the long list is read for closed nodes only.
        let managed = if unschedulable {
            serde_json::from_str::<Managed<'_>>(raw.metadata.get()).unwrap_or_default().managed_fields
        } else {
            None
        };
        let images = raw.status.images.iter().flat_map(|image| image.names.iter());
        let images = images.map(|name| context.text(name)).collect();
        let allocatable = raw.status.allocatable.0.iter();
        let volumes = raw.status.volumes_in_use.iter().chain(raw.status.volumes_attached.iter().map(|it| &it.name));
        let mut csi_volumes: Vec<_> = volumes.filter_map(|name| super::volumes::csi_volume(name, context)).collect();
        csi_volumes.sort();
        csi_volumes.dedup();
        Ok(Record::Node(NodeRecord {
            name: NodeName::from(context.text(&meta.name()?)),
            labels: meta.labels(context),
            annotations: meta.our_annotations(context),
            meta: meta.meta(context)?,
            unschedulable,
            unschedulable_managers: managed.map_or_else(Vec::new, |managed| unschedulable_managers(managed, context)),
            taints: (raw.spec.taints.iter())
                .map(|taint| Taint {
                    key: context.text(&taint.key),
                    value: context.text(&taint.value),
                    effect: context.text(&taint.effect),
                })
                .collect(),
            ready: ready(&raw.status.conditions),
            boot_id: BootId::from(&*raw.status.node_info.boot_id),
            kernel: context.text(&raw.status.node_info.kernel_version),
            allocatable: allocatable.filter_map(|(name, quantity)| Some((context.text(name), (*quantity)?))).collect(),
            images,
            csi_volumes,
        }))
    }
}
