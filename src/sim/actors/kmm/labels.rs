//! The label controller: one label change for each module and pass by KMM's table, two of them only when something is gone, which it polls
//! with a back-off and is not woken for. It knows no Modules, only labels.

use super::super::caches::BY_NODE;
use super::super::informer::raced;
use super::super::queue::lock;
use super::super::records::Map;
use super::Operator;
use super::objects::key;
use crate::api::ObjectKey;
use crate::kmm::keys::{self, Label};
use crate::kmm::triple::{Held, Move, Row};
use serde_json::{Map as Object, Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

const FIRST: Duration = Duration::from_millis(5);
const LONGEST: Duration = Duration::from_secs(1000);

const WORDS: [(&str, Label); 3] = [
    ("kmm.node.kubernetes.io/version-module", Label::Desired),
    ("beta.kmm.node.kubernetes.io/version-worker-pod", Label::Loader),
    ("beta.kmm.node.kubernetes.io/version-schedule-pod", Label::Schedule),
];

/// The version labels of a node: nothing else wakes this controller.
pub fn version_labels(labels: &Map) -> BTreeMap<&str, &str> {
    let ours = labels.iter().filter(|(key, _)| WORDS.iter().any(|(word, _)| key.starts_with(word)));
    ours.map(|(key, value)| (key.as_str(), value.as_str())).collect()
}

#[derive(Default)]
struct Group {
    module: Option<ObjectKey>,
    values: BTreeMap<Label, String>,
}

/// Labels by module as KMM groups them: the last two segments of the key, joined by a dash.
fn groups(labels: &Map) -> BTreeMap<String, Group> {
    let mut found: BTreeMap<String, Group> = BTreeMap::new();
    for (key, value) in version_labels(labels) {
        let Some((_, label)) = WORDS.iter().find(|(word, _)| key.starts_with(word)) else { continue };
        let mut parts = key.rsplit('.');
        let (Some(name), Some(namespace)) = (parts.next(), parts.next()) else { continue };
        let group = found.entry(format!("{namespace}-{name}")).or_default();
        group.module = Some(ObjectKey::new(namespace, name));
        group.values.insert(*label, value.to_owned());
    }
    found
}

impl Group {
    fn get(&self, label: Label) -> Option<&String> {
        self.values.get(&label).filter(|value| !value.is_empty())
    }

    fn moves(&self) -> Move {
        let desired = self.get(Label::Desired);
        let held = |label: Label| match (self.get(label), desired) {
            (None, _) => Held::Missing,
            (Some(value), Some(desired)) if value != desired => Held::Different,
            _ => Held::Present,
        };
        Row::of(desired.is_some(), held(Label::Loader), held(Label::Schedule)).moves()
    }
}

impl Operator {
    pub(super) async fn sync_labels(&self, name: String) -> kube::Result<Option<Duration>> {
        let Some(node) = self.caches.nodes.get(&name) else { return Ok(None) };
        let (mut patch, mut again) = (Object::new(), false);
        for group in groups(&node.metadata.labels).values() {
            let Some(module) = &group.module else { continue };
            let desired = group.get(Label::Desired).map_or(Value::Null, |value| json!(value));
            match group.moves() {
                Move::RemoveSchedule => _ = patch.insert(key(Label::Schedule, module), Value::Null),
                Move::RemoveLoader if self.driver_on(&name, module) => again = true,
                Move::RemoveLoader => _ = patch.insert(key(Label::Loader, module), Value::Null),
                Move::AddLoader if node.metadata.labels.contains_key(&key(Label::Ready, module)) => again = true,
                Move::AddLoader => _ = patch.insert(key(Label::Loader, module), desired),
                Move::AddSchedule => _ = patch.insert(key(Label::Schedule, module), desired),
                Move::Nothing | Move::Stuck => {}
            }
        }
        if !patch.is_empty() {
            raced(self.caches.nodes.merge(&name, "", &json!({"metadata": {"labels": patch}})).await)?;
        }
        let mut refused = lock(&self.refused);
        if !again {
            refused.remove(&name);
            return Ok(None);
        }
        let times = refused.entry(name).or_insert(0);
        let delay = FIRST.saturating_mul(1 << (*times).min(20)).min(LONGEST);
        *times += 1;
        Ok(Some(delay))
    }

    /// A pod of the module's plugin or DRA driver is on the node, in whatever phase.
    fn driver_on(&self, node: &str, module: &ObjectKey) -> bool {
        self.caches.pods.indexed(BY_NODE, node).iter().any(|pod| {
            let label = |key: &str| pod.metadata.labels.get(key).map(String::as_str);
            pod.metadata.ns() == &*module.namespace
                && label(keys::MODULE_NAME) == Some(&module.name)
                && matches!(label(keys::ROLE), Some("device-plugin" | "dra"))
        })
    }
}
