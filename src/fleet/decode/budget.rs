//! PodDisruptionBudgets.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    Context, Slim,
    meta::{RawCondition, RawMeta},
    text::{IntOrText, List, Text, timestamp},
};
use crate::{
    api::component::LabelSelector,
    fleet::{
        event::Record,
        records::{BudgetRecord, SyncFailed},
    },
};

pub(super) struct Budget;

#[derive(Deserialize)]
pub(super) struct RawBudget<'a> {
    #[serde(borrow)]
    metadata: &'a RawValue,
    #[serde(borrow, default)]
    spec: RawSpec<'a>,
    #[serde(borrow, default)]
    status: RawStatus<'a>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawSpec<'a> {
    selector: Option<LabelSelector>,
    min_available: Option<IntOrText>,
    max_unavailable: Option<IntOrText>,
    #[serde(borrow)]
    unhealthy_pod_eviction_policy: Text<'a>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawStatus<'a> {
    observed_generation: Option<i64>,
    disruptions_allowed: Option<i32>,
    current_healthy: Option<i32>,
    desired_healthy: Option<i32>,
    expected_pods: Option<i32>,
    #[serde(borrow)]
    conditions: List<RawCondition<'a>>,
}

/// When the status was last written, by `metadata.managedFields`.
fn status_written(metadata: &RawValue) -> Option<Timestamp> {
    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    struct Managed<'a> {
        #[serde(borrow)]
        managed_fields: List<Entry<'a>>,
    }
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Entry<'a> {
        #[serde(borrow)]
        subresource: Text<'a>,
        #[serde(borrow)]
        time: Text<'a>,
    }
    let managed = serde_json::from_str::<Managed<'_>>(metadata.get()).unwrap_or_default().managed_fields;
    managed.iter().filter(|entry| &*entry.subresource == "status").filter_map(|entry| timestamp(&entry.time)).max()
}

impl Slim for Budget {
    type Raw<'a> = RawBudget<'a>;

    fn record(raw: RawBudget<'_>, context: &mut Context) -> Result<Record, String> {
        let sync_failed = raw
            .status
            .conditions
            .iter()
            .find(|it| &*it.kind == "DisruptionAllowed" && &*it.status == "False" && &*it.reason == "SyncFailed");
        let sync_failed = sync_failed.map(|it| SyncFailed {
            message: context.own(&it.message),
            // The long list is read for such budgets only.
            since: it.since().max(status_written(raw.metadata)),
        });
        let metadata: RawMeta<'_> = serde_json::from_str(raw.metadata.get()).map_err(|error| format!("metadata: {error}"))?;
        Ok(Record::Budget(BudgetRecord {
            key: metadata.key(context)?,
            meta: metadata.meta(context)?,
            generation: metadata.generation.unwrap_or(0),
            observed_generation: raw.status.observed_generation.unwrap_or(0),
            selector: raw.spec.selector,
            min_available: raw.spec.min_available.map(|it| context.text(&it.0)),
            max_unavailable: raw.spec.max_unavailable.map(|it| context.text(&it.0)),
            always_allow_unhealthy: &*raw.spec.unhealthy_pod_eviction_policy == "AlwaysAllow",
            disruptions_allowed: raw.status.disruptions_allowed.unwrap_or(0),
            current_healthy: raw.status.current_healthy.unwrap_or(0),
            desired_healthy: raw.status.desired_healthy.unwrap_or(0),
            expected_pods: raw.status.expected_pods.unwrap_or(0),
            sync_failed,
        }))
    }
}
