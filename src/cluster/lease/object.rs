//! The Lease as JSON: what is read of it, and the bodies that are written. Slots are changed in one place, with the resourceVersion.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::decide::{Config, Seen};
use crate::{
    api::keys::{LEASE, SLOTS, Slot},
    fleet::records::Str,
};

/// A Lease that was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Object {
    pub uid: Str,
    pub resource_version: Str,
    pub seen: Seen,
    /// Err: the annotation does not parse; the text says why.
    pub slots: Result<Vec<Slot>, String>,
}

impl Object {
    pub fn read(body: &[u8]) -> Result<Self, String> {
        let value: Value = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        let text = |path: &str| value.pointer(path).and_then(Value::as_str);
        let resource_version = text("/metadata/resourceVersion").ok_or("no metadata.resourceVersion")?;
        let slots = match value.pointer("/metadata/annotations").and_then(|all| all.get(SLOTS)).and_then(Value::as_str) {
            None => Ok(Vec::new()),
            Some(slots) => {
                serde_json::from_str(slots).map_err(|error| format!("annotation {SLOTS} is no list of slots: {error}"))
            }
        };
        Ok(Self {
            uid: text("/metadata/uid").unwrap_or_default().into(),
            resource_version: resource_version.into(),
            seen: Seen {
                holder: text("/spec/holderIdentity").filter(|holder| !holder.is_empty()).map(Into::into),
                epoch: value.pointer("/spec/leaseTransitions").and_then(Value::as_i64).unwrap_or_default(),
                resource_version: resource_version.into(),
                duration: Duration::from_secs(
                    value.pointer("/spec/leaseDurationSeconds").and_then(Value::as_u64).unwrap_or_default(),
                ),
            },
            slots,
        })
    }

    fn guard(&self) -> Value {
        json!({"uid": self.uid, "resourceVersion": self.resource_version})
    }

    /// Renewals change one field.
    pub fn renewal(&self, now: Timestamp) -> Value {
        json!({"metadata": self.guard(), "spec": {"renewTime": micro(now)}})
    }

    pub fn taking(&self, me: &str, epoch: i64, now: Timestamp, config: &Config) -> Value {
        json!({"metadata": self.guard(), "spec": spec(me, epoch, now, config)})
    }

    /// Free for whoever comes next; the slots stay, since what they stand for does.
    pub fn releasing(&self, now: Timestamp) -> Value {
        json!({"metadata": self.guard(), "spec": {"holderIdentity": null, "leaseDurationSeconds": 1, "renewTime": micro(now)}})
    }

    pub fn with_slots(&self, slots: &[Slot]) -> Value {
        let mut metadata = self.guard();
        let text = if slots.is_empty() { Value::Null } else { Value::String(json!(slots).to_string()) };
        metadata["annotations"] = Value::from_iter([(SLOTS, text)]);
        json!({ "metadata": metadata })
    }
}

/// A new Lease, held from the start.
pub fn creating(me: &str, now: Timestamp, config: &Config) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"namespace": LEASE.0, "name": LEASE.1},
        "spec": spec(me, 1, now, config),
    })
}

fn spec(me: &str, epoch: i64, now: Timestamp, config: &Config) -> Value {
    json!({
        "holderIdentity": me,
        "leaseDurationSeconds": config.duration.as_secs().max(1),
        "acquireTime": micro(now),
        "renewTime": micro(now),
        "leaseTransitions": epoch,
    })
}

/// `metav1.MicroTime`.
fn micro(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}
