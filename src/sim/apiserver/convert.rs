//! The form of an answer: the stored object, another version of it, its metadata alone, or a table row.

use bytes::Bytes;
use http::HeaderMap;
use serde_json::{Map, Value, json};

use super::resource::Resource;
use super::store::{EventKind, Line, Stored};
use super::table;
use crate::sim::clock::SimClock;

/// How objects are shown to one request.
#[derive(Debug, Clone)]
pub enum Form {
    /// As stored.
    Plain,
    /// As stored, but under another apiVersion of its kind.
    Version(String),
    /// `events.k8s.io/v1` names of an event.
    EventsV1,
    /// PartialObjectMetadata.
    Metadata,
    /// meta.k8s.io/v1 Table; true if the whole object is wanted in each row.
    Table { resource: std::sync::Arc<Resource>, whole: bool, clock: SimClock },
}

impl Form {
    pub fn of(headers: &HeaderMap, include_object: &str, resource: &std::sync::Arc<Resource>, clock: &SimClock) -> Self {
        let accept = headers.get("accept").and_then(|v| v.to_str().ok()).unwrap_or_default();
        // The first media type that can be served wins; protobuf cannot.
        for media in accept.split(',') {
            let media = media.replace(' ', "");
            if media.contains("protobuf") || media.contains("cbor") {
                continue;
            }
            if media.contains("as=Table") && media.contains("v=v1") && !media.contains("v1beta1") {
                return Self::Table { resource: resource.clone(), whole: include_object == "Object", clock: clock.clone() };
            }
            if media.contains("as=PartialObjectMetadata") && !media.contains("v1beta1") {
                return Self::Metadata;
            }
            if media.starts_with("application/json") || media == "*/*" {
                break;
            }
        }
        Self::plain(resource)
    }

    /// The form without content negotiation.
    pub fn plain(resource: &Resource) -> Self {
        if resource.is("events.k8s.io", "events") {
            return Self::EventsV1;
        }
        match &resource.custom {
            Some(custom) if custom.storage_version != resource.version => Self::Version(resource.api_version()),
            _ => Self::Plain,
        }
    }

    pub fn is_metadata(&self) -> bool {
        matches!(self, Self::Metadata)
    }

    /// Are the stored bytes the answer?
    pub fn is_plain(&self) -> bool {
        matches!(self, Self::Plain)
    }

    /// The object in this form; `None` when the stored bytes serve as they are.
    pub fn render(&self, value: &Value) -> Option<Value> {
        match self {
            Self::Plain => None,
            Self::Version(api_version) => {
                let mut out = value.clone();
                out["apiVersion"] = api_version.clone().into();
                Some(out)
            }
            Self::EventsV1 => Some(event_to_v1(value.clone())),
            Self::Metadata => Some(json!({
                "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
                "metadata": value.get("metadata").cloned().unwrap_or_default(),
            })),
            Self::Table { resource, whole, clock } => Some(table::of_one(resource, value, *whole, clock.now())),
        }
    }

    pub fn json(&self, stored: &Stored) -> Bytes {
        match self.render(&stored.value) {
            None => stored.json(),
            Some(value) => Bytes::from(value.to_string()),
        }
    }

    pub fn watch_line(&self, kind: EventKind, stored: &Stored) -> Line {
        match self.render(&stored.value) {
            None => stored.watch_line(kind),
            Some(value) => Line::One(Bytes::from(format!("{{\"type\":\"{}\",\"object\":{value}}}\n", kind.as_str()))),
        }
    }
}

/// (core/v1, events.k8s.io/v1)
const EVENT_NAMES: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

fn rename(value: Value, api_version: &str, name: impl Fn(&str) -> Option<&'static str>) -> Value {
    let Value::Object(fields) = value else {
        return value;
    };
    let mut out = Map::new();
    for (key, field) in fields {
        match name(&key) {
            Some(new) => out.insert(new.to_owned(), field),
            None => out.insert(key, field),
        };
    }
    out.insert("apiVersion".into(), api_version.into());
    Value::Object(out)
}

fn event_to_v1(value: Value) -> Value {
    rename(value, "events.k8s.io/v1", |key| EVENT_NAMES.iter().find(|(core, _)| *core == key).map(|(_, new)| *new))
}

fn event_to_core(value: Value) -> Value {
    rename(value, "v1", |key| EVENT_NAMES.iter().find(|(_, new)| *new == key).map(|(core, _)| *core))
}

/// A sent object in the form that is stored.
pub fn to_storage(resource: &Resource, value: Value) -> Value {
    if resource.is("events.k8s.io", "events") {
        return event_to_core(value);
    }
    match &resource.custom {
        Some(custom) if custom.storage_version != resource.version => {
            let mut out = value;
            out["apiVersion"] = format!("{}/{}", resource.group, custom.storage_version).into();
            out
        }
        _ => value,
    }
}
