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
                // With the last owner of anything in it a field goes as a whole, what nobody owns included.
                if others.is_none() && name != "metadata" {
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
        // What nothing is left of is no value any more, whoever counts as owner of it.
        let bare = child.as_object().is_some_and(Map::is_empty) || child.as_array().is_some_and(Vec::is_empty);
        if bare && let (Value::Object(fields), Some(name)) = (&mut *value, step.strip_prefix("f:")) {
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

/// What structured-merge-diff refuses before it merges: the same key twice in a list that is a map or a set.
pub fn typed(resource: &Resource, config: &Value) -> Result<(), Refusal> {
    let mut problems = Vec::new();
    if let Some(custom) = &resource.custom {
        undeclared(&custom.schema, config, "", &mut problems);
    }
    duplicates(config, Shape::root(resource), "", &mut problems);
    let Some(first) = problems.first() else { return Ok(()) };
    let text = |field: &str| config.get("metadata").and_then(|m| m.get(field)).and_then(Value::as_str).unwrap_or_default();
    let (version, kind) = (resource.api_version(), &resource.kind);
    let version = if version.contains('/') { version } else { format!("/{version}") };
    let message =
        format!("failed to create typed patch object ({}/{}; {version}, Kind={kind}): {first}", text("namespace"), text("name"));
    Err(Refusal::new(500, "", message))
}

fn undeclared(schema: &Value, value: &Value, path: &str, out: &mut Vec<String>) {
    let flag = |name: &str| schema.get(name) == Some(&json!(true));
    match value {
        Value::Object(fields) => {
            let known = schema.get("properties").and_then(Value::as_object);
            let extra = schema.get("additionalProperties").filter(|a| a.is_object());
            let any = flag("x-kubernetes-preserve-unknown-fields") || schema.get("additionalProperties") == Some(&json!(true));
            for (name, field) in fields {
                if path.is_empty() && matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
                    continue;
                }
                match known.and_then(|k| k.get(name)).or(extra) {
                    Some(inner) => undeclared(inner, field, &format!("{path}.{name}"), out),
                    None if any => {}
                    None => out.push(format!("{path}.{name}: field not declared in schema")),
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                undeclared(schema.get("items").unwrap_or(&Value::Null), item, path, out);
            }
        }
        Value::String(_) if matches!(schema.get("type").and_then(Value::as_str), Some("integer" | "number")) => {
            out.push(format!("{path}: expected numeric (int or float), got string"));
        }
        _ => {}
    }
}

fn duplicates(value: &Value, shape: Shape<'_>, path: &str, out: &mut Vec<String>) {
    match value {
        Value::Object(fields) if !shape.is_atomic() => {
            for (name, field) in fields {
                duplicates(field, shape.field(name), &format!("{path}.{name}"), out);
            }
        }
        Value::Array(items) => {
            let keys = match shape.list() {
                ListKind::Atomic => return,
                ListKind::Set => Vec::new(),
                ListKind::Map(keys) => keys,
            };
            let key_of = |item: &Value| if keys.is_empty() { vec![item.clone()] } else { item_key(item, &keys) };
            for (n, item) in items.iter().enumerate() {
                let key = key_of(item);
                if items.iter().take(n).any(|other| key_of(other) == key) {
                    let shown: Vec<String> = match keys.as_slice() {
                        [] => vec![format!("={item}")],
                        keys => keys.iter().zip(&key).map(|(k, v)| format!("{k}={v}")).collect(),
                    };
                    out.push(format!("{path}: duplicate entries for key [{}]", shown.join(",")));
                    return;
                }
                if !keys.is_empty() {
                    duplicates(item, shape.items(), path, out);
                }
            }
        }
        _ => {}
    }
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

/// The merged object and its new ownership entries. What was there before the first apply to a `tracked` kind belongs to somebody.
pub fn apply(
    resource: &Resource,
    live: Option<&Value>,
    mut config: Value,
    writer: &Writer<'_>,
    force: bool,
    tracked: bool,
) -> Result<(Value, Vec<Value>), Refusal> {
    meta_mut(&mut config).remove("managedFields");
    let mut mine = managed::applied(resource, &config);
    // What this path does not write is not owned through it.
    match writer.subresource {
        "status" => {
            let custom = resource.is_custom();
            mine.retain(|field, _| field == "f:status" || (!custom && field == "f:metadata"));
            if let Some(fields) = config.as_object_mut() {
                fields.retain(|field, _| matches!(field.as_str(), "apiVersion" | "kind" | "metadata" | "status"));
            }
        }
        _ if resource.has.status => {
            mine.remove("f:status");
            if live.is_some()
                && let Some(fields) = config.as_object_mut()
            {
                fields.remove("status");
            }
        }
        _ => {}
    }
    let Some(live) = live else {
        return Ok((config, vec![managed::new_entry("Apply", writer, mine)]));
    };
    let mut entries = managed::entries(live);
    if entries.is_empty() && tracked {
        let before = Writer { manager: "before-first-apply", subresource: "", ..writer.clone() };
        let set = managed::owned(resource, live);
        entries.push(managed::new_entry("Update", &before, set));
    }
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
