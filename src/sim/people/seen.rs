//! Objects as a person who looks at them sees them: the few fields that the operator goes by. Everything else is skipped while reading, since a
//! person looks every few seconds and whole objects would be the dearest part of a run.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Meta {
    pub name: String,
    pub uid: String,
    pub resource_version: String,
    pub deletion_timestamp: Option<String>,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Node {
    pub metadata: Meta,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Pod {
    pub metadata: Meta,
    pub spec: PodSpec,
    pub status: PodStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodSpec {
    pub node_name: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct PodStatus {
    pub phase: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Handoff {
    pub metadata: Meta,
    pub spec: HandoffSpec,
    pub status: HandoffStatus,
}

impl Handoff {
    /// Waits because of this, among others.
    pub fn is_held_by(&self, kind: &str) -> bool {
        let blockers = self.status.blockers.as_ref().and_then(Value::as_array);
        blockers.is_some_and(|blockers| blockers.iter().any(|it| it.get("kind").and_then(Value::as_str) == Some(kind)))
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct HandoffSpec {
    pub component: String,
    pub node: String,
    pub version: String,
    pub attempt: Option<i64>,
    pub position: Option<i64>,
    pub action: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct HandoffStatus {
    pub phase: String,
    pub reason: Option<Value>,
    pub blockers: Option<Value>,
    pub run: Option<Run>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Run {
    pub by_label: bool,
}

/// A list's items.
#[derive(Debug, Default, Deserialize)]
pub struct Items<T> {
    #[serde(default = "Vec::new")]
    pub items: Vec<T>,
}
