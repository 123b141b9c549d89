//! PodDisruptionBudgets.

use serde::Deserialize;

use super::{
    Context, Slim,
    meta::{RawCondition, RawMeta},
    text::{IntOrText, List, Text},
};
use crate::{
    api::component::LabelSelector,
    fleet::{event::Record, records::BudgetRecord},
};

pub(super) struct Budget;

#[derive(Deserialize)]
pub(super) struct RawBudget<'a> {
    #[serde(borrow)]
    metadata: RawMeta<'a>,
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

impl Slim for Budget {
    type Raw<'a> = RawBudget<'a>;

    fn record(raw: RawBudget<'_>, context: &mut Context) -> Result<Record, String> {
        let sync_failed = raw
            .status
            .conditions
            .iter()
            .find(|it| &*it.kind == "DisruptionAllowed" && &*it.status == "False" && &*it.reason == "SyncFailed");
        let sync_failed = sync_failed.map(|it| context.own(&it.message));
        Ok(Record::Budget(BudgetRecord {
            key: raw.metadata.key(context)?,
            meta: raw.metadata.meta(context)?,
            generation: raw.metadata.generation.unwrap_or(0),
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
