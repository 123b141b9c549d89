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

/// All members of a value.
pub fn members(value: &Value, shape: Shape<'_>) -> Value {
    match value {
        Value::Object(fields) if !fields.is_empty() && !shape.is_atomic() => {
            let mut out = Map::new();
            if shape.is_string_map() {
                out.insert(".".into(), leaf());
            }
            for (name, field) in fields {
                out.insert(format!("f:{name}"), members(field, shape.field(name)));
            }
            Value::Object(out)
        }
        Value::Array(items) if !items.is_empty() => match shape.list() {
            ListKind::Atomic => leaf(),
            ListKind::Set => {
                let mut out = Map::new();
                out.insert(".".into(), leaf());
                out.extend(items.iter().map(|i| (format!("v:{i}"), leaf())));
                Value::Object(out)
            }
            ListKind::Map(keys) => {
                let mut out = Map::new();
                out.insert(".".into(), leaf());
                out.extend(items.iter().map(|i| (key_step(i, &keys), item_members(i, shape.items()))));
                Value::Object(out)
            }
        },
        _ => leaf(),
    }
}

fn item_members(item: &Value, shape: Shape<'_>) -> Value {
    let Value::Object(fields) = item else {
        return leaf();
    };
    let mut out = Map::new();
    out.insert(".".into(), leaf());
    for (name, field) in fields {
        out.insert(format!("f:{name}"), members(field, shape.field(name)));
    }
    Value::Object(out)
}

fn diff_fields(old: &Map<String, Value>, new: &Map<String, Value>, shape: Shape<'_>, out: &mut Changes) {
    for (name, now) in new {
        match old.get(name) {
            None => {
                out.set.insert(format!("f:{name}"), members(now, shape.field(name)));
            }
            Some(before) if before != now => diff_one(format!("f:{name}"), before, now, shape.field(name), out),
            Some(_) => {}
        }
    }
    for (name, before) in old.iter().filter(|(name, _)| !new.contains_key(*name)) {
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
    let other = |fields: &Map<String, Value>, name: &str| {
        fields.get(name).is_some_and(|_| !matches!(name, "apiVersion" | "kind" | "metadata"))
    };
    for (name, now) in new.iter().filter(|(n, _)| other(new, n)) {
        match old.get(name) {
            None => {
                out.set.insert(format!("f:{name}"), members(now, root.field(name)));
            }
            Some(before) if before != now => diff_one(format!("f:{name}"), before, now, root.field(name), &mut out),
            Some(_) => {}
        }
    }
    for (name, before) in old.iter().filter(|(n, _)| other(old, n) && !new.contains_key(*n)) {
        out.removed.insert(format!("f:{name}"), members(before, root.field(name)));
    }
    let empty = Map::new();
    let metadata = |fields: &Map<String, Value>| -> Map<String, Value> {
        let all = fields.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
        all.iter().filter(|(k, _)| !SYSTEM.contains(&k.as_str())).map(|(k, v)| (k.clone(), v.clone())).collect()
    };
    let mut inner = Changes::default();
    diff_fields(&metadata(old), &metadata(new), root.field("metadata"), &mut inner);
    nest("f:metadata".into(), inner, &mut out);
    out
}

/// All members of a whole object that managers can own.
pub fn owned(resource: &Resource, object: &Value) -> Set {
    diff(resource, &json!({}), object).set
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
                if ours.is_empty() && !theirs.is_empty() {
                    ours.insert(".".into(), leaf());
                } else if theirs.is_empty() && !ours.is_empty() {
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
        "time": writer.now, "fieldsType": "FieldsV1", "fieldsV1": set,
    });
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
        let before = set.clone();
        subtract(set, &changes.removed);
        if own {
            union(set, &changes.set);
            mine = Some(at);
        } else {
            subtract(set, &changes.set);
        }
        if *set != before && own {
            entry["time"] = writer.now.into();
        }
    }
    if mine.is_none() && !changes.set.is_empty() {
        entries.push(new_entry("Update", writer, changes.set.clone()));
    }
    store(object, entries);
}
