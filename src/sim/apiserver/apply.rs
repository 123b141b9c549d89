//! Server-side apply: merge of an applied configuration, conflicts, forced ownership, removal of what is no longer applied.

use serde_json::{Map, Value, json};

use super::managed::{self, Set, Writer};
use super::refusal::Refusal;
use super::resource::Resource;
use super::shape::{ListKind, Shape, item_key};
use super::write::meta_mut;

/// The body of an apply patch: JSON or YAML.
pub fn parse(body: &[u8]) -> Result<Value, Refusal> {
    if let Ok(value) = serde_json::from_slice(body) {
        return Ok(value);
    }
    let text = std::str::from_utf8(body).unwrap_or_default();
    serde_saphyr::from_str(text).map_err(|e| Refusal::bad_request(format!("error decoding YAML: {e}")))
}

fn merge(live: &mut Value, config: &Value, shape: Shape<'_>) {
    match (&mut *live, config) {
        (Value::Object(into), Value::Object(from)) if !shape.is_atomic() => {
            for (name, value) in from {
                match into.get_mut(name) {
                    Some(slot) => merge(slot, value, shape.field(name)),
                    None => {
                        into.insert(name.clone(), value.clone());
                    }
                }
            }
        }
        (Value::Array(into), Value::Array(from)) => match shape.list() {
            ListKind::Atomic => *live = config.clone(),
            ListKind::Set => {
                for item in from {
                    if !into.contains(item) {
                        into.push(item.clone());
                    }
                }
            }
            ListKind::Map(keys) => {
                for item in from {
                    let key = item_key(item, &keys);
                    match into.iter_mut().find(|have| item_key(have, &keys) == key) {
                        Some(slot) => merge(slot, item, shape.items()),
                        None => into.push(item.clone()),
                    }
                }
            }
        },
        _ => *live = config.clone(),
    }
}

/// The item that a `k:` or `v:` step names.
fn item_at(list: &[Value], step: &str) -> Option<usize> {
    if let Some(text) = step.strip_prefix("v:") {
        let value: Value = serde_json::from_str(text).ok()?;
        return list.iter().position(|i| *i == value);
    }
    let wanted: Map<String, Value> = serde_json::from_str(step.strip_prefix("k:")?).ok()?;
    let same = |item: &Value| {
        wanted.iter().all(|(k, v)| match item.get(k) {
            Some(have) => have == v,
            None => k == "protocol" && *v == json!("TCP"),
        })
    };
    list.iter().position(same)
}

/// Removes the members of `gone`; containers stay unless they are members themselves and nobody keeps a part of them.
fn remove(value: &mut Value, gone: &Set, kept: &Set) {
    for (step, node) in gone.iter().filter(|(step, _)| *step != ".") {
        let Value::Object(inner) = node else { continue };
        let empty = Map::new();
        let others = kept.get(step).and_then(Value::as_object);
        let whole = (inner.is_empty() || inner.contains_key(".")) && others.is_none();
        let child = match &mut *value {
            Value::Object(fields) => {
                let name = step.strip_prefix("f:").unwrap_or(step);
                if whole && inner.is_empty() {
                    fields.remove(name);
                    continue;
                }
                fields.get_mut(name)
            }
            Value::Array(list) => {
                let Some(at) = item_at(list, step) else {
                    continue;
                };
                if whole {
                    list.remove(at);
                    continue;
                }
                list.get_mut(at)
            }
            _ => None,
        };
        let Some(child) = child else { continue };
        remove(child, inner, others.unwrap_or(&empty));
        let bare = child.as_object().is_some_and(Map::is_empty) || child.as_array().is_some_and(Vec::is_empty);
        if whole
            && bare
            && let (Value::Object(fields), Some(name)) = (&mut *value, step.strip_prefix("f:"))
        {
            fields.remove(name);
        }
    }
}

fn field_paths(set: &Set, prefix: &str, out: &mut Vec<String>) {
    for (step, node) in set {
        let path = match step.split_at_checked(2) {
            _ if step == "." => prefix.to_owned(),
            Some(("f:", name)) => format!("{prefix}.{name}"),
            Some(("k:", key)) => {
                let keys: Map<String, Value> = serde_json::from_str(key).unwrap_or_default();
                let list: Vec<String> = keys.iter().map(|(k, v)| format!("{k}={v}")).collect();
                format!("{prefix}[{}]", list.join(","))
            }
            Some(("v:", value)) => format!("{prefix}[={value}]"),
            _ => continue,
        };
        match node.as_object() {
            Some(inner) if !inner.is_empty() => field_paths(inner, &path, out),
            _ => out.push(path),
        }
    }
}

fn conflict_refusal(conflicts: &[(String, Vec<String>)]) -> Refusal {
    let total: usize = conflicts.iter().map(|(_, paths)| paths.len()).sum();
    let text = match conflicts {
        [(who, paths)] if paths.len() == 1 => format!("conflict with {who}: {}", paths.concat()),
        [(who, paths)] => format!("conflicts with {who}:\n- {}", paths.join("\n- ")),
        many => {
            let parts: Vec<String> =
                many.iter().map(|(who, paths)| format!("conflicts with {who}:\n- {}", paths.join("\n- "))).collect();
            parts.join("\n")
        }
    };
    let plural = if total == 1 { "" } else { "s" };
    let mut refusal = Refusal::new(409, "Conflict", format!("Apply failed with {total} conflict{plural}: {text}"));
    let causes: Vec<Value> = conflicts
        .iter()
        .flat_map(|(who, paths)| {
            paths
                .iter()
                .map(move |p| json!({"reason": "FieldManagerConflict", "message": format!("conflict with {who}"), "field": p}))
        })
        .collect();
    refusal.detail("causes", Value::Array(causes));
    refusal
}

fn describe(entry: &Value) -> String {
    let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
    let subresource = match text("subresource") {
        "" => String::new(),
        sub => format!(" with subresource {sub:?}"),
    };
    let version = if text("operation") == "Update" { format!(" using {}", text("apiVersion")) } else { String::new() };
    format!("{:?}{subresource}{version}", text("manager"))
}

/// The merged object and its new ownership entries.
pub fn apply(
    resource: &Resource,
    live: Option<&Value>,
    mut config: Value,
    writer: &Writer<'_>,
    force: bool,
) -> Result<(Value, Vec<Value>), Refusal> {
    meta_mut(&mut config).remove("managedFields");
    let mine = managed::applied(resource, &config);
    let Some(live) = live else {
        return Ok((config, vec![managed::new_entry("Apply", writer, mine)]));
    };
    let mut entries = managed::entries(live);
    let before = entries.iter().position(|e| managed::is_entry_of(e, "Apply", writer));
    let last = before.map(|at| managed::entry_set(&entries[at])).unwrap_or_default();
    if let Some(at) = before {
        entries.remove(at);
    }
    let mut merged = live.clone();
    merge(&mut merged, &config, Shape::root(resource));

    let changed = managed::diff(resource, live, &merged).set;
    let mut conflicts: Vec<(String, Vec<String>)> = Vec::new();
    for entry in &mut entries {
        let overlap = managed::intersect(&managed::entry_set(entry), &changed);
        if overlap.is_empty() {
            continue;
        }
        if force {
            if let Some(set) = entry.get_mut("fieldsV1").and_then(Value::as_object_mut) {
                managed::subtract(set, &overlap);
            }
        } else {
            let mut paths = Vec::new();
            field_paths(&overlap, "", &mut paths);
            conflicts.push((describe(entry), paths));
        }
    }
    if !conflicts.is_empty() {
        return Err(conflict_refusal(&conflicts));
    }

    let mut gone = last.clone();
    managed::subtract(&mut gone, &mine);
    let mut kept = mine.clone();
    for entry in &entries {
        let set = managed::entry_set(entry);
        managed::subtract(&mut gone, &set);
        managed::union(&mut kept, &set);
    }
    if !gone.is_empty() {
        remove(&mut merged, &gone, &kept);
    }
    // An apply that changes nothing but ownership has the time of its last entry, or none.
    let untouched = managed::diff(resource, live, &merged).is_empty();
    let mut entry =
        managed::new_entry("Apply", &Writer { now: if untouched { "" } else { writer.now }, ..writer.clone() }, mine.clone());
    let old = managed::entries(live).into_iter().find(|e| managed::is_entry_of(e, "Apply", writer));
    if let (true, Some(time)) = (untouched, old.as_ref().and_then(|e| e.get("time"))) {
        entry["time"] = time.clone();
    }
    entries.push(entry);
    Ok((merged, entries))
}
