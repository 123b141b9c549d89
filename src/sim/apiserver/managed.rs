//! Field ownership: `metadata.managedFields` as a real server keeps it for updates, with the set arithmetic that apply needs, too.
//! A field set is a fieldsV1 tree: `{"f:spec": {"f:unschedulable": {}}}`; an empty node is a member.

use serde_json::{Map, Value, json};

use super::resource::Resource;
use super::shape::{ListKind, Shape, item_key};

pub type Set = Map<String, Value>;

/// What a write changed.
#[derive(Debug, Default, PartialEq)]
pub struct Changes {
    pub set: Set,
    pub removed: Set,
}

impl Changes {
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.removed.is_empty()
    }
}

const SYSTEM: &[&str] = &[
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "generation",
    "resourceVersion",
    "selfLink",
    "managedFields",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
];

fn leaf() -> Value {
    Value::Object(Map::new())
}

fn key_step(item: &Value, keys: &[String]) -> String {
    let values = item_key(item, keys);
    let object: Map<String, Value> = keys.iter().cloned().zip(values).filter(|(_, v)| !v.is_null()).collect();
    format!("k:{}", Value::Object(object))
}

/// Structs that are there even when nothing is in them: they are no members. Inside of list items everything is new together.
const ALWAYS_THERE: &[&str] = &[
    "source",
    "devices",
    "pool",
    "spec",
    "status",
    "metadata",
    "template",
    "updateStrategy",
    "strategy",
    "names",
    "nodeInfo",
    "daemonEndpoints",
    "kubeletEndpoint",
    "resources",
];

/// How containers count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// What an update has added: new containers are members themselves.
    Added,
    /// Inside of a new list item.
    InItem,
    /// What an apply says: only leaves and list items.
    Applied,
}

/// All members of a value that an update has added.
pub fn members(value: &Value, shape: Shape<'_>) -> Value {
    members_in(value, shape, Mode::Added)
}

fn members_in(value: &Value, shape: Shape<'_>, mode: Mode) -> Value {
    match value {
        Value::Object(fields) if !fields.is_empty() && !shape.is_atomic() => {
            let mut out = Map::new();
            let there = !shape.is_custom() && ALWAYS_THERE.contains(&shape.name());
            if mode == Mode::InItem || (mode == Mode::Added && !there) {
                out.insert(".".into(), leaf());
            }
            for (name, field) in fields.iter().filter(|(name, field)| counts(field, shape.field(name), mode)) {
                out.insert(format!("f:{name}"), members_in(field, shape.field(name), mode));
            }
            Value::Object(out)
        }
        Value::Array(items) if !items.is_empty() => {
            let mut out = Map::new();
            // A pod spec always has its list of containers.
            if mode == Mode::InItem || (mode == Mode::Added && !matches!(shape.name(), "containers" | "drivers")) {
                out.insert(".".into(), leaf());
            }
            match shape.list() {
                ListKind::Atomic => return leaf(),
                ListKind::Set => out.extend(items.iter().map(|i| (format!("v:{i}"), leaf()))),
                ListKind::Map(keys) => {
                    out.extend(items.iter().map(|i| (key_step(i, &keys), item_members_in(i, shape.items(), mode))))
                }
            }
            Value::Object(out)
        }
        _ => leaf(),
    }
}

/// An applied list that merges says nothing when it is empty.
fn counts(value: &Value, shape: Shape<'_>, mode: Mode) -> bool {
    mode != Mode::Applied || value.as_array().is_none_or(|l| !l.is_empty()) || shape.list() == ListKind::Atomic
}

fn item_members(item: &Value, shape: Shape<'_>) -> Value {
    item_members_in(item, shape, Mode::Added)
}

fn item_members_in(item: &Value, shape: Shape<'_>, mode: Mode) -> Value {
    let Value::Object(fields) = item else { return leaf() };
    // References are one value each.
    if matches!(shape.name(), "ownerReferences" | "imagePullSecrets" | "secrets") {
        return leaf();
    }
    let inside = if mode == Mode::Applied { mode } else { Mode::InItem };
    let mut out = Map::new();
    out.insert(".".into(), leaf());
    for (name, field) in fields {
        out.insert(format!("f:{name}"), members_in(field, shape.field(name), inside));
    }
    Value::Object(out)
}

fn diff_fields(old: &Map<String, Value>, new: &Map<String, Value>, shape: Shape<'_>, out: &mut Changes) {
    diff_some_fields(old, new, shape, |_| true, out);
}

fn diff_some_fields(
    old: &Map<String, Value>,
    new: &Map<String, Value>,
    shape: Shape<'_>,
    wanted: fn(&str) -> bool,
    out: &mut Changes,
) {
    for (name, now) in new.iter().filter(|(name, _)| wanted(name)) {
        match old.get(name) {
            None => {
                out.set.insert(format!("f:{name}"), members(now, shape.field(name)));
            }
            Some(before) if before != now => diff_one(format!("f:{name}"), before, now, shape.field(name), out),
            Some(_) => {}
        }
    }
    for (name, before) in old.iter().filter(|(name, _)| wanted(name) && !new.contains_key(*name)) {
        out.removed.insert(format!("f:{name}"), members(before, shape.field(name)));
    }
}

fn nest(step: String, inner: Changes, out: &mut Changes) {
    if !inner.set.is_empty() {
        out.set.insert(step.clone(), Value::Object(inner.set));
    }
    if !inner.removed.is_empty() {
        out.removed.insert(step, Value::Object(inner.removed));
    }
}

fn diff_one(step: String, before: &Value, now: &Value, shape: Shape<'_>, out: &mut Changes) {
    let mut inner = Changes::default();
    match (before, now) {
        (Value::Object(old), Value::Object(new)) if !shape.is_atomic() && !old.is_empty() && !new.is_empty() => {
            diff_fields(old, new, shape, &mut inner);
            nest(step, inner, out);
        }
        (Value::Array(old), Value::Array(new)) if !old.is_empty() && !new.is_empty() => match shape.list() {
            ListKind::Atomic => {
                out.set.insert(step, leaf());
            }
            ListKind::Set => {
                inner.set.extend(new.iter().filter(|i| !old.contains(i)).map(|i| (format!("v:{i}"), leaf())));
                inner.removed.extend(old.iter().filter(|i| !new.contains(i)).map(|i| (format!("v:{i}"), leaf())));
                nest(step, inner, out);
            }
            ListKind::Map(keys) => {
                for item in new {
                    let key = item_key(item, &keys);
                    match old.iter().find(|o| item_key(o, &keys) == key) {
                        None => {
                            inner.set.insert(key_step(item, &keys), item_members(item, shape.items()));
                        }
                        Some(other) if other != item => {
                            if let (Value::Object(o), Value::Object(n)) = (other, item) {
                                let mut deeper = Changes::default();
                                diff_fields(o, n, shape.items(), &mut deeper);
                                nest(key_step(item, &keys), deeper, &mut inner);
                            }
                        }
                        Some(_) => {}
                    }
                }
                for item in old {
                    let key = item_key(item, &keys);
                    if !new.iter().any(|n| item_key(n, &keys) == key) {
                        inner.removed.insert(key_step(item, &keys), item_members(item, shape.items()));
                    }
                }
                if inner.is_empty() {
                    // Only the order changed: owned by nobody, but a change.
                    inner.set.insert(".".into(), leaf());
                }
                nest(step, inner, out);
            }
        },
        // A container that was empty or becomes so, or another type: the old members go, the new ones come.
        _ => {
            let (old, new) = (members(before, shape), members(now, shape));
            if old != leaf() && new == leaf() {
                out.removed.insert(step.clone(), old);
            }
            out.set.insert(step, new);
        }
    }
}

/// What changed between two versions of an object, without what the server itself sets.
pub fn diff(resource: &Resource, old: &Value, new: &Value) -> Changes {
    let mut out = Changes::default();
    let (Value::Object(old), Value::Object(new)) = (old, new) else {
        return out;
    };
    let root = Shape::root(resource);
    // An empty struct at the top is as good as absent.
    let filled = |v: &Value| v.as_object().is_none_or(|o| !o.is_empty());
    let other = |fields: &Map<String, Value>, name: &str| {
        !matches!(name, "apiVersion" | "kind" | "metadata") && fields.get(name).is_some_and(filled)
    };
    for (name, now) in new.iter().filter(|(n, _)| other(new, n)) {
        match old.get(name).filter(|_| other(old, name)) {
            None => {
                out.set.insert(format!("f:{name}"), members(now, root.field(name)));
            }
            Some(before) if before != now => diff_one(format!("f:{name}"), before, now, root.field(name), &mut out),
            Some(_) => {}
        }
    }
    for (name, before) in old.iter().filter(|(n, _)| other(old, n) && !other(new, n)) {
        out.removed.insert(format!("f:{name}"), members(before, root.field(name)));
    }
    let empty = Map::new();
    let (before, now) = (old.get("metadata").and_then(Value::as_object), new.get("metadata").and_then(Value::as_object));
    let mut inner = Changes::default();
    let wanted = |name: &str| !SYSTEM.contains(&name);
    diff_some_fields(before.unwrap_or(&empty), now.unwrap_or(&empty), root.field("metadata"), wanted, &mut inner);
    nest("f:metadata".into(), inner, &mut out);
    out
}

/// All members of a whole object that managers can own.
pub fn owned(resource: &Resource, object: &Value) -> Set {
    diff(resource, &json!({}), object).set
}

/// All members of an applied configuration.
pub fn applied(resource: &Resource, config: &Value) -> Set {
    let root = Shape::root(resource);
    let mut out = Map::new();
    for (name, field) in
        config.as_object().into_iter().flatten().filter(|(n, _)| !matches!(n.as_str(), "apiVersion" | "kind" | "metadata"))
    {
        out.insert(format!("f:{name}"), members_in(field, root.field(name), Mode::Applied));
    }
    let metadata: Map<String, Value> = config
        .get("metadata")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter(|(name, _)| !SYSTEM.contains(&name.as_str()))
        .filter(|(name, field)| counts(field, root.field("metadata").field(name), Mode::Applied))
        .map(|(name, field)| (format!("f:{name}"), members_in(field, root.field("metadata").field(name), Mode::Applied)))
        .collect();
    if !metadata.is_empty() {
        out.insert("f:metadata".into(), Value::Object(metadata));
    }
    out
}

pub fn union(into: &mut Set, other: &Set) {
    for (step, node) in other {
        let Value::Object(theirs) = node else {
            continue;
        };
        match into.get_mut(step) {
            None => {
                into.insert(step.clone(), node.clone());
            }
            Some(Value::Object(ours)) => {
                // A member that gets children stays a member itself.
                if ours.is_empty() != theirs.is_empty() {
                    ours.insert(".".into(), leaf());
                }
                union(ours, theirs);
            }
            Some(_) => {}
        }
    }
}

fn is_member(node: &Map<String, Value>) -> bool {
    node.is_empty() || node.contains_key(".")
}

/// Removes every member of `other`.
pub fn subtract(from: &mut Set, other: &Set) {
    for (step, node) in other {
        let (Some(Value::Object(ours)), Value::Object(theirs)) = (from.get_mut(step), node) else {
            continue;
        };
        let was_leaf = ours.is_empty();
        if is_member(theirs) {
            if was_leaf {
                from.remove(step);
                continue;
            }
            ours.remove(".");
        }
        if !was_leaf {
            subtract(ours, theirs);
            if ours.is_empty() {
                from.remove(step);
            }
        }
    }
}

/// The members of both.
pub fn intersect(a: &Set, b: &Set) -> Set {
    let mut out = Map::new();
    for (step, node) in a {
        let (Value::Object(x), Some(Value::Object(y))) = (node, b.get(step)) else {
            continue;
        };
        let both = is_member(x) && is_member(y);
        let mut inner = intersect(x, y);
        if both && !inner.is_empty() {
            inner.insert(".".into(), leaf());
        }
        if both || !inner.is_empty() {
            out.insert(step.clone(), Value::Object(inner));
        }
    }
    out
}

/// Who writes, for ownership.
#[derive(Debug, Clone)]
pub struct Writer<'a> {
    pub manager: &'a str,
    pub subresource: &'a str,
    pub api_version: &'a str,
    pub now: &'a str,
}

pub fn entries(object: &Value) -> Vec<Value> {
    object.get("metadata").and_then(|m| m.get("managedFields")).and_then(Value::as_array).cloned().unwrap_or_default()
}

/// The entries, out of the object.
pub fn take_entries(object: &mut Value) -> Vec<Value> {
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
    match metadata.and_then(|m| m.remove("managedFields")) {
        Some(Value::Array(entries)) => entries,
        _ => Vec::new(),
    }
}

pub fn entry_set(entry: &Value) -> Set {
    entry.get("fieldsV1").and_then(Value::as_object).cloned().unwrap_or_default()
}

pub fn is_entry_of(entry: &Value, operation: &str, writer: &Writer<'_>) -> bool {
    let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
    text("manager") == writer.manager
        && text("operation") == operation
        && text("subresource") == writer.subresource
        && (operation == "Apply" || text("apiVersion") == writer.api_version)
}

pub fn new_entry(operation: &str, writer: &Writer<'_>, set: Set) -> Value {
    let mut entry = json!({
        "manager": writer.manager, "operation": operation, "apiVersion": writer.api_version,
        "fieldsType": "FieldsV1", "fieldsV1": set,
    });
    if !writer.now.is_empty() {
        entry["time"] = writer.now.into();
    }
    if !writer.subresource.is_empty() {
        entry["subresource"] = writer.subresource.into();
    }
    entry
}

/// Entries without members go; the rest are in the server's order: applies first, then by time and name.
pub fn store(object: &mut Value, mut entries: Vec<Value>) {
    entries.retain(|e| e.get("fieldsV1").and_then(Value::as_object).is_some_and(|f| !f.is_empty()));
    let text = |e: &Value, key: &str| e.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    entries.sort_by_cached_key(|e| (text(e, "operation"), text(e, "time"), text(e, "manager"), text(e, "subresource")));
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        if entries.is_empty() {
            metadata.remove("managedFields");
        } else {
            metadata.insert("managedFields".into(), Value::Array(entries));
        }
    }
}

/// Ownership after an update: the writer owns what it changed, everybody loses what was removed, others lose what was changed.
pub fn track_update(object: &mut Value, mut entries: Vec<Value>, changes: &Changes, writer: &Writer<'_>) {
    let mut mine = None;
    for (at, entry) in entries.iter_mut().enumerate() {
        let own = is_entry_of(entry, "Update", writer);
        let Some(set) = entry.get_mut("fieldsV1").and_then(Value::as_object_mut) else {
            continue;
        };
        subtract(set, &changes.removed);
        if own {
            union(set, &changes.set);
            mine = Some(at);
        } else {
            subtract(set, &changes.set);
        }
        if own && !changes.set.is_empty() && !writer.now.is_empty() {
            entry["time"] = writer.now.into();
        }
    }
    if mine.is_none() && !changes.set.is_empty() {
        entries.push(new_entry("Update", writer, changes.set.clone()));
    }
    store(object, entries);
}
