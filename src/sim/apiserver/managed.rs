//! Field ownership: `metadata.managedFields` as a real server keeps it, and the arithmetic of field sets. What changed between two objects is worked
//! out in `structured`. A field set is a fieldsV1 tree: `{"f:spec": {"f:unschedulable": {}}}`; an empty node is a member.

use serde_json::{Map, Value, json};

use super::resource::Resource;
use super::shape::Shape;
use super::{structured, types};

pub type Set = Map<String, Value>;

/// What a write changed.
#[derive(Debug, Default, PartialEq)]
pub struct Changes {
    pub set: Set,
    pub removed: Set,
}

/// What never belongs to anybody (`stripMetaManager`).
const NOBODYS: &[&str] = &[
    "name",
    "namespace",
    "creationTimestamp",
    "selfLink",
    "uid",
    "clusterName",
    "generation",
    "managedFields",
    "resourceVersion",
];

pub fn leaf() -> Value {
    Value::Object(Map::new())
}

/// Takes off what never belongs to anybody.
pub fn strip(set: &mut Set) {
    set.remove("f:apiVersion");
    set.remove("f:kind");
    let Some(Value::Object(metadata)) = set.get_mut("f:metadata") else { return };
    metadata.remove(".");
    for name in NOBODYS {
        metadata.remove(&format!("f:{name}"));
    }
    if metadata.is_empty() {
        set.remove("f:metadata");
    }
}

/// The paths that a write through this path of the resource leaves as they are, whatever it sends (`GetResetFields`).
fn reset_fields(resource: &Resource, sub: &str) -> &'static [&'static str] {
    match (sub, resource.plural.as_str()) {
        ("status", _) if resource.is_custom() => &["f:spec", "f:metadata"],
        ("status", "volumeattachments" | "resourceclaims" | "validatingadmissionpolicies") => &["f:spec", "f:metadata"],
        ("status", "pods") => &["f:spec", "f:metadata/f:deletionTimestamp", "f:metadata/f:ownerReferences"],
        ("status", "deployments") => &["f:spec", "f:metadata/f:labels"],
        ("status", _) => &["f:spec"],
        _ if resource.has.status => &["f:status"],
        _ => &[],
    }
}

/// Takes the reset paths off a set, with all that is below them.
pub fn reset(resource: &Resource, sub: &str, set: &mut Set) {
    for path in reset_fields(resource, sub) {
        match path.split_once('/') {
            None => {
                set.remove(*path);
            }
            Some((outer, inner)) => {
                let Some(Value::Object(part)) = set.get_mut(outer) else { continue };
                part.remove(inner);
                if part.is_empty() {
                    set.remove(outer);
                }
            }
        }
    }
}

/// What changed between two versions of an object, of what a write through this path counts for.
pub fn diff(resource: &Resource, sub: &str, old: &Value, new: &Value) -> Changes {
    let mut out = structured::compare(old, new, Shape::root(resource));
    reset(resource, sub, &mut out.set);
    reset(resource, sub, &mut out.removed);
    strip(&mut out.set);
    out
}

/// Counts fields of the metadata as removed.
pub fn remove_metadata(resource: &Resource, sub: &str, changes: &mut Changes, fields: &[&str]) {
    if fields.is_empty() {
        return;
    }
    if let Value::Object(metadata) = changes.removed.entry("f:metadata").or_insert_with(leaf) {
        metadata.extend(fields.iter().map(|field| (format!("f:{field}"), leaf())));
    }
    reset(resource, sub, &mut changes.removed);
}

/// An object of the kind in which nothing was set.
pub fn blank(resource: &Resource) -> Value {
    if resource.is("apiextensions.k8s.io", "customresourcedefinitions") {
        return json!({"metadata": {}, "spec": {"group": "", "names": {"plural": "", "kind": ""}, "scope": "", "versions": null}, "status": {}});
    }
    let message = if resource.is_custom() { None } else { types::message_name(&resource.kind, &resource.api_version()) };
    message.map_or_else(|| json!({}), types::blank)
}

/// What belongs to the creator of an object.
pub fn owned(resource: &Resource, object: &Value) -> Set {
    diff(resource, "", &blank(resource), object).set
}

/// What a configuration applies, with what never belongs to anybody.
pub fn applied(resource: &Resource, sub: &str, config: &Value) -> Set {
    let mut out = structured::field_set(config, Shape::root(resource));
    reset(resource, sub, &mut out);
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

/// Is the node itself in the set?
pub fn is_member(node: &Map<String, Value>) -> bool {
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
            let member = ours.remove(".").is_some();
            subtract(ours, theirs);
            match (ours.is_empty(), member) {
                (true, false) => {
                    from.remove(step);
                }
                (false, true) => {
                    ours.insert(".".into(), leaf());
                }
                _ => {}
            }
        }
    }
}

/// The members of both.
pub fn intersect(a: &Set, b: &Set) -> Set {
    let mut out = Map::new();
    for (step, node) in a.iter().filter(|(step, _)| *step != ".") {
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

/// What tells two entries apart: manager, operation, subresource, and the version of an update.
fn identity(entry: &Value) -> [&str; 4] {
    let [manager, operation, sub, version] =
        ["manager", "operation", "subresource", "apiVersion"].map(|f| entry.get(f).and_then(Value::as_str).unwrap_or_default());
    [manager, operation, sub, if operation == "Apply" { "" } else { version }]
}

/// Of two with one identity the later one counts.
fn distinct(mut entries: Vec<Value>) -> Vec<Value> {
    let mut at = 0;
    while at < entries.len() {
        let again = entries.iter().skip(at + 1).any(|later| entries.get(at).is_some_and(|e| identity(later) == identity(e)));
        if again {
            entries.remove(at);
        } else {
            at += 1;
        }
    }
    entries
}

pub fn entries(object: &Value) -> Vec<Value> {
    distinct(object.get("metadata").and_then(|m| m.get("managedFields")).and_then(Value::as_array).cloned().unwrap_or_default())
}

/// The entries, out of the object.
pub fn take_entries(object: &mut Value) -> Vec<Value> {
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
    match metadata.and_then(|m| m.remove("managedFields")) {
        Some(Value::Array(entries)) => distinct(entries),
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

/// Is nothing but times of ownership another? Such a write is none (`IgnoreManagedFieldsTimestampsTransformer`).
pub fn only_times_differ(old: &Value, new: &Value) -> bool {
    fn without<'a>(value: &'a Value, name: &'a str) -> impl Iterator<Item = (&'a String, &'a Value)> {
        value.as_object().into_iter().flatten().filter(move |(field, _)| *field != name)
    }
    let (Some(a), Some(b)) = (old.get("metadata"), new.get("metadata")) else { return false };
    let same =
        without(old, "metadata").eq(without(new, "metadata")) && without(a, "managedFields").eq(without(b, "managedFields"));
    let owners = [a, b].map(|m| m.get("managedFields").and_then(Value::as_array));
    match owners {
        [Some(a), Some(b)] if same && a.len() == b.len() => {
            a.iter().zip(b).all(|(x, y)| without(x, "time").eq(without(y, "time")))
        }
        _ => false,
    }
}

/// Entries without members go; the rest are in the server's order: applies first, then by time and name.
pub fn store(object: &mut Value, mut entries: Vec<Value>) {
    entries.retain(|e| e.get("fieldsV1").and_then(Value::as_object).is_some_and(|f| !f.is_empty()));
    let text = |e: &Value, key: &str| e.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    entries.sort_by_cached_key(|e| {
        (text(e, "operation"), text(e, "time"), text(e, "manager"), text(e, "apiVersion"), text(e, "subresource"))
    });
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
