//! `metadata`, and the ownerReference that is a controller.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    Context,
    text::{All, Known, List, Map, Text, is_ours, timestamp},
};
use crate::{
    api::{ObjectKey, Uid},
    fleet::records::{Deletion, Labels, Meta, Owner, Str},
    kmm::keys as kmm,
};

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RawMeta<'a> {
    #[serde(borrow)]
    pub name: Text<'a>,
    #[serde(borrow)]
    pub namespace: Text<'a>,
    #[serde(borrow)]
    uid: Text<'a>,
    #[serde(borrow)]
    resource_version: Text<'a>,
    #[serde(borrow)]
    creation_timestamp: Text<'a>,
    #[serde(borrow)]
    deletion_timestamp: Text<'a>,
    deletion_grace_period_seconds: Option<i64>,
    pub generation: Option<i64>,
    #[serde(borrow)]
    labels: Map<'a, All>,
    #[serde(borrow)]
    pub annotations: Map<'a, Known>,
    #[serde(borrow)]
    owner_references: List<RawOwner<'a>>,
    #[serde(borrow)]
    finalizers: List<Text<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawOwner<'a> {
    #[serde(borrow)]
    api_version: Text<'a>,
    #[serde(borrow)]
    kind: Text<'a>,
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow)]
    uid: Text<'a>,
    controller: Option<bool>,
}

impl RawMeta<'_> {
    /// # Errors
    /// Without a UID nothing can be pinned to this object.
    pub fn meta(&self, context: &mut Context) -> Result<Meta, String> {
        if self.uid.is_empty() {
            return Err("metadata.uid is missing".to_owned());
        }
        Ok(Meta {
            uid: Uid::from(&*self.uid),
            resource_version: context.own(&self.resource_version),
            created: timestamp(&self.creation_timestamp),
            deletion: timestamp(&self.deletion_timestamp)
                .map(|at| Deletion { at, grace: self.deletion_grace_period_seconds.unwrap_or(0) }),
        })
    }

    /// # Errors
    /// Names the part that is missing.
    pub fn key(&self, context: &mut Context) -> Result<ObjectKey, String> {
        if self.namespace.is_empty() {
            return Err("metadata.namespace is missing".to_owned());
        }
        Ok(ObjectKey { namespace: context.text(&self.namespace), name: self.name()? })
    }

    /// # Errors
    /// If it is missing.
    pub fn name(&self) -> Result<Str, String> {
        if self.name.is_empty() { Err("metadata.name is missing".to_owned()) } else { Ok(Str::from(&*self.name)) }
    }

    pub fn resource_version(&self) -> Str {
        Str::from(&*self.resource_version)
    }

    pub fn labels(&mut self, context: &mut Context) -> Labels {
        context.interner.labels(&mut self.labels.pairs)
    }

    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key)
    }

    /// Only `lockkeeper.dev/*` ones.
    pub fn our_annotations(&self, context: &mut Context) -> BTreeMap<Str, Str> {
        self.annotations
            .pairs
            .iter()
            .filter(|(key, _)| is_ours(key))
            .map(|(key, value)| (context.text(key), context.own(value)))
            .collect()
    }

    /// What KMM notes on its worker pods.
    pub fn worker_annotations(&self, context: &mut Context) -> Vec<(Str, Str)> {
        let wanted = |key: &str| key == kmm::WORKER_CONFIG || key == kmm::WORKER_VERSION;
        let pairs = self.annotations.pairs.iter().filter(|(key, _)| wanted(key));
        pairs.map(|(key, value)| (context.text(key), context.own(value))).collect()
    }

    pub fn owner(&self, context: &mut Context) -> Option<Owner> {
        let owner = self.owner_references.iter().find(|owner| owner.controller == Some(true))?;
        Some(Owner {
            kind: context.text(&owner.kind),
            name: context.text(&owner.name),
            uid: Uid::from(context.text(&owner.uid)),
            is_apps: owner.api_version.starts_with("apps/"),
        })
    }

    pub fn finalizers(&self, context: &mut Context) -> Vec<Str> {
        self.finalizers.iter().map(|text| context.text(text)).collect()
    }
}

/// Which managers own `spec.unschedulable`, by `metadata.managedFields`.
pub(super) fn unschedulable_managers(managed: &RawValue, context: &mut Context) -> Vec<Str> {
    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    struct Entry<'a> {
        #[serde(borrow)]
        manager: Text<'a>,
        fields_v1: Option<Fields>,
    }
    #[derive(Deserialize)]
    struct Fields {
        #[serde(rename = "f:spec")]
        spec: Option<Spec>,
    }
    #[derive(Deserialize)]
    struct Spec {
        #[serde(rename = "f:unschedulable")]
        unschedulable: Option<serde::de::IgnoredAny>,
    }
    let entries = serde_json::from_str::<List<Entry<'_>>>(managed.get()).unwrap_or_default();
    let mut managers: Vec<Str> = entries
        .iter()
        .filter(|entry| {
            entry.fields_v1.as_ref().and_then(|fields| fields.spec.as_ref()).is_some_and(|spec| spec.unschedulable.is_some())
        })
        .map(|entry| context.text(&entry.manager))
        .collect();
    managers.sort();
    managers.dedup();
    managers
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RawCondition<'a> {
    #[serde(borrow, rename = "type")]
    pub kind: Text<'a>,
    #[serde(borrow)]
    pub status: Text<'a>,
    #[serde(borrow)]
    pub reason: Text<'a>,
    #[serde(borrow)]
    pub message: Text<'a>,
    #[serde(borrow)]
    last_transition_time: Text<'a>,
    #[serde(borrow)]
    last_heartbeat_time: Text<'a>,
}

impl RawCondition<'_> {
    pub fn since(&self) -> Option<jiff::Timestamp> {
        timestamp(&self.last_transition_time)
    }
}

/// The condition `Ready` of these.
pub(super) fn ready(conditions: &[RawCondition<'_>]) -> crate::fleet::records::Ready {
    use crate::fleet::records::{Ready, ReadyStatus};
    conditions.iter().find(|condition| &*condition.kind == "Ready").map_or(Ready::ABSENT, |condition| Ready {
        status: match &*condition.status {
            "True" => ReadyStatus::True,
            "False" => ReadyStatus::False,
            _ => ReadyStatus::Unknown,
        },
        since: timestamp(&condition.last_transition_time),
        heartbeat: timestamp(&condition.last_heartbeat_time),
    })
}
