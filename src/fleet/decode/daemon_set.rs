//! DaemonSets: the versioned ones whole, of the others what tells how they behave when a device leaves a node.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    Context, Slim,
    meta::RawMeta,
    pod::{RawAffinity, RawContainer, RawTerm, effective_requests},
    template,
    text::{All, Extended, List, Map, Text, is_ours},
};
use crate::{
    api::keys,
    fleet::{
        event::Record,
        records::{DaemonSetRecord, Str},
    },
};

pub(super) struct DaemonSet;

#[derive(Deserialize)]
pub(super) struct RawDaemonSet<'a> {
    #[serde(borrow)]
    metadata: RawMeta<'a>,
    #[serde(borrow)]
    spec: Option<&'a RawValue>,
    #[serde(default)]
    status: RawStatus,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawStatus {
    observed_generation: Option<i64>,
    desired_number_scheduled: Option<i32>,
    number_ready: Option<i32>,
    current_number_scheduled: Option<i32>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawSpec<'a> {
    #[serde(borrow)]
    update_strategy: RawStrategy<'a>,
    #[serde(borrow)]
    template: RawTemplate<'a>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawStrategy<'a> {
    #[serde(borrow, rename = "type")]
    kind: Text<'a>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawTemplate<'a> {
    #[serde(borrow)]
    spec: RawPodSpec<'a>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawPodSpec<'a> {
    #[serde(borrow)]
    containers: List<RawContainer<'a>>,
    #[serde(borrow)]
    init_containers: List<RawContainer<'a>>,
    #[serde(borrow)]
    overhead: Extended<'a>,
    #[serde(borrow)]
    node_selector: Map<'a, All>,
    #[serde(borrow)]
    affinity: Option<RawAffinity<'a>>,
}

impl Slim for DaemonSet {
    type Raw<'a> = RawDaemonSet<'a>;

    fn record(mut raw: RawDaemonSet<'_>, context: &mut Context) -> Result<Record, String> {
        let spec = match raw.spec {
            Some(spec) => serde_json::from_str::<RawSpec<'_>>(spec.get()).map_err(|error| format!("spec: {error}"))?,
            None => RawSpec::default(),
        };
        let pod = &spec.template.spec;
        let versioned = raw.metadata.label(keys::COMPONENT).is_some();
        Ok(Record::DaemonSet(DaemonSetRecord {
            key: raw.metadata.key(context)?,
            meta: raw.metadata.meta(context)?,
            labels: raw.metadata.labels(context),
            annotations: raw.metadata.our_annotations(context),
            generation: raw.metadata.generation.unwrap_or(0),
            observed_generation: raw.status.observed_generation.unwrap_or(0),
            on_delete: &*spec.update_strategy.kind == "OnDelete",
            node_selector: pod.node_selector.pairs.iter().map(|(key, value)| (context.text(key), context.text(value))).collect(),
            spec: raw.spec.filter(|_| versioned).map(|spec| Str::from(spec.get())),
            desired: raw.status.desired_number_scheduled.unwrap_or(0),
            ready: raw.status.number_ready.unwrap_or(0),
            current: raw.status.current_number_scheduled.unwrap_or(0),
            claims_resources: effective_requests(&pod.containers, &pod.init_containers, &pod.overhead, context),
            requires_labels: requires_labels(pod, context),
            template: raw.spec.filter(|_| !versioned).map(|spec| Box::new(template::record(spec, &raw.metadata, context))),
        }))
    }
}

fn requires_labels(pod: &RawPodSpec<'_>, context: &mut Context) -> Vec<Str> {
    fn needed<'t>(term: &'t RawTerm<'_>) -> impl Iterator<Item = &'t str> {
        let expressions = term.match_expressions.iter().filter(|it| matches!(&*it.operator, "In" | "Exists" | "Gt" | "Lt"));
        expressions.map(|it| &*it.key).filter(|key| is_ours(key))
    }
    let mut labels: Vec<Str> =
        pod.node_selector.pairs.iter().filter(|(key, _)| is_ours(key)).map(|(key, _)| context.text(key)).collect();
    let terms = pod.affinity.as_ref().map_or(&[][..], |affinity| affinity.terms());
    if let Some((first, others)) = terms.split_first() {
        // Terms are alternatives: only what each of them asks for is needed.
        let common = needed(first).filter(|key| others.iter().all(|term| needed(term).any(|other| other == *key)));
        labels.extend(common.map(|key| context.text(key)));
    }
    labels.sort();
    labels.dedup();
    labels
}
