//! Our own objects: NodeComponent, NodeHandoff and the one Lease. What does not decode in them is kept as a text that says why.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Context, Slim, meta::RawMeta, small::RawLease, text::timestamp};
use crate::{
    api::keys,
    fleet::{
        event::Record,
        records::{ComponentRecord, HandoffRecord, LeaseRecord},
    },
};

#[derive(Deserialize)]
pub(super) struct RawOwn<'a> {
    #[serde(borrow)]
    metadata: RawMeta<'a>,
    #[serde(borrow, default)]
    spec: Option<&'a RawValue>,
    #[serde(borrow, default)]
    status: Option<&'a RawValue>,
}

fn part<T: for<'de> Deserialize<'de>>(name: &str, raw: Option<&RawValue>) -> Result<T, String> {
    let raw = raw.ok_or_else(|| format!("{name} is missing"))?;
    serde_json::from_str(raw.get()).map_err(|error| {
        let text = error.to_string();
        format!("{name}: {}", text.split(" at line ").next().unwrap_or_default())
    })
}

pub(super) struct Component;

impl Slim for Component {
    type Raw<'a> = RawOwn<'a>;

    fn record(raw: RawOwn<'_>, context: &mut Context) -> Result<Record, String> {
        Ok(Record::Component(ComponentRecord {
            key: raw.metadata.key(context)?,
            meta: raw.metadata.meta(context)?,
            generation: raw.metadata.generation.unwrap_or(0),
            spec: part("spec", raw.spec),
            // Computed by us alone, so a status that does not decode is just written again.
            status: part("status", raw.status).unwrap_or_default(),
            finalizers: raw.metadata.finalizers(context),
        }))
    }
}

pub(super) struct Handoff;

impl Slim for Handoff {
    type Raw<'a> = RawOwn<'a>;

    fn record(raw: RawOwn<'_>, context: &mut Context) -> Result<Record, String> {
        let mut spec = part("spec", raw.spec);
        let status = if raw.status.is_some() { part("status", raw.status) } else { Ok(Default::default()) };
        if let Err(why) = &status {
            // The status is the only record of a run: without it nothing may be decided, least of all to begin again.
            spec = Err(why.clone());
        }
        Ok(Record::Handoff(HandoffRecord {
            key: raw.metadata.key(context)?,
            meta: raw.metadata.meta(context)?,
            generation: raw.metadata.generation.unwrap_or(0),
            spec,
            status: status.unwrap_or_default(),
            finalizers: raw.metadata.finalizers(context),
        }))
    }
}

pub(super) struct OurLease;

impl Slim for OurLease {
    type Raw<'a> = RawLease<'a>;

    fn record(raw: RawLease<'_>, context: &mut Context) -> Result<Record, String> {
        let (slots, slots_garbage) = match raw.metadata.annotations.get(keys::SLOTS) {
            None | Some("") => (Vec::new(), None),
            Some(text) => match serde_json::from_str(text) {
                Ok(slots) => (slots, None),
                Err(error) => (Vec::new(), Some(format!("annotation {} = {text:?}: {error}", keys::SLOTS))),
            },
        };
        let holder = raw.spec.holder_identity;
        Ok(Record::Lease(LeaseRecord {
            meta: raw.metadata.meta(context)?,
            holder: (!holder.is_empty()).then(|| context.text(&holder)),
            epoch: raw.spec.lease_transitions.unwrap_or(0),
            slots,
            slots_garbage,
            renewed: timestamp(&raw.spec.renew_time),
        }))
    }
}
