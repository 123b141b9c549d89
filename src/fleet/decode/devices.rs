//! Dynamic resource allocation: ResourceClaims and ResourceSlices.

use serde::{Deserialize, de::IgnoredAny};

use super::{
    Context, Slim,
    meta::RawMeta,
    pod::{RawNodeSelector, RawRequirement},
    text::{List, Text},
};
use crate::{
    api::{NodeName, Uid},
    fleet::{
        event::Record,
        records::{ClaimRecord, Reservation, SliceRecord},
    },
};

pub(super) struct Claim;

#[derive(Deserialize)]
pub(super) struct RawClaim<'a> {
    #[serde(borrow)]
    metadata: RawMeta<'a>,
    #[serde(borrow, default)]
    status: Option<RawClaimStatus<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawClaimStatus<'a> {
    #[serde(borrow)]
    allocation: Option<RawAllocation<'a>>,
    #[serde(borrow)]
    reserved_for: List<RawReservation<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawAllocation<'a> {
    #[serde(borrow)]
    devices: RawDevices<'a>,
    #[serde(borrow)]
    node_selector: Option<RawNodeSelector<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawDevices<'a> {
    #[serde(borrow)]
    results: List<RawResult<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawResult<'a> {
    #[serde(borrow)]
    driver: Text<'a>,
    #[serde(borrow)]
    pool: Text<'a>,
    #[serde(borrow)]
    device: Text<'a>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawReservation<'a> {
    #[serde(borrow)]
    api_group: Text<'a>,
    #[serde(borrow)]
    resource: Text<'a>,
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow)]
    uid: Text<'a>,
}

impl Slim for Claim {
    type Raw<'a> = RawClaim<'a>;

    fn record(raw: RawClaim<'_>, context: &mut Context) -> Result<Record, String> {
        let status = raw.status.unwrap_or_default();
        let allocation = status.allocation.as_ref();
        let results = allocation.map_or(&[][..], |allocation| &allocation.devices.results);
        Ok(Record::Claim(ClaimRecord {
            key: raw.metadata.key(context)?,
            meta: raw.metadata.meta(context)?,
            devices: results
                .iter()
                .map(|it| (context.text(&it.driver), context.text(&it.pool), context.text(&it.device)))
                .collect(),
            reserved: (status.reserved_for.iter())
                .map(|it| Reservation {
                    resource: if it.api_group.is_empty() {
                        context.text(&it.resource)
                    } else {
                        context.text(&format!("{}.{}", &*it.resource, &*it.api_group))
                    },
                    name: context.own(&it.name),
                    uid: Uid::from(&*it.uid),
                })
                .collect(),
            only_node: allocation
                .and_then(|allocation| allocation.node_selector.as_ref())
                .and_then(only_node)
                .map(|name| NodeName::from(context.text(&name))),
            allocated: allocation.is_some(),
        }))
    }
}

/// The one node that every alternative of the selector leads to.
fn only_node(selector: &RawNodeSelector<'_>) -> Option<String> {
    fn single<'t>(requirements: &'t [RawRequirement<'_>], key: &str) -> Option<&'t str> {
        let found = requirements.iter().find(|it| &*it.key == key && &*it.operator == "In" && it.values.len() == 1)?;
        found.values.first().map(|value| &**value)
    }
    let mut nodes = selector.node_selector_terms.iter().map(|term| {
        single(&term.match_fields, "metadata.name").or_else(|| single(&term.match_expressions, "kubernetes.io/hostname"))
    });
    let first = nodes.next()??;
    nodes.all(|node| node == Some(first)).then(|| first.to_owned())
}

pub(super) struct Slice;

#[derive(Deserialize)]
pub(super) struct RawSlice<'a> {
    #[serde(borrow)]
    metadata: RawMeta<'a>,
    #[serde(borrow, default)]
    spec: RawSliceSpec<'a>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawSliceSpec<'a> {
    #[serde(borrow)]
    driver: Text<'a>,
    #[serde(borrow)]
    node_name: Text<'a>,
    devices: List<IgnoredAny>,
}

impl Slim for Slice {
    type Raw<'a> = RawSlice<'a>;

    fn record(raw: RawSlice<'_>, context: &mut Context) -> Result<Record, String> {
        Ok(Record::Slice(SliceRecord {
            name: raw.metadata.name()?,
            meta: raw.metadata.meta(context)?,
            driver: context.text(&raw.spec.driver),
            node: (!raw.spec.node_name.is_empty()).then(|| NodeName::from(context.text(&raw.spec.node_name))),
            devices: u32::try_from(raw.spec.devices.len()).unwrap_or(u32::MAX),
        }))
    }
}
