//! Server-side apply: merge of an applied configuration, conflicts, forced ownership, removal of what is no longer applied (`Updater` of
//! structured-merge-diff). Its walks are in `structured`.

use serde_json::{Map, Value, json};

use super::managed::{self, Set, Writer};
use super::refusal::Refusal;
use super::resource::Resource;
use super::shape::{ListKind, Shape, item_key};
use super::write::meta_mut;
use super::{structured, types};

/// The body of an apply patch: JSON or YAML.
pub fn parse(body: &[u8]) -> Result<Value, Refusal> {
    if let Ok(value) = serde_json::from_slice(body) {
        return Ok(value);
    }
    let text = std::str::from_utf8(body).unwrap_or_default();
    serde_saphyr::from_str(text).map_err(|e| Refusal::bad_request(format!("error decoding YAML: {e}")))
}

/// Takes off what its owner no longer applies and nobody else owns (`prune` of structured-merge-diff's updater). `owned` is what all own now, `last` what
/// the applier owned before.
fn prune(merged: Value, last: &Set, owned: &Set, root: Shape<'_>) -> Value {
    if last.is_empty() {
        return merged;
    }
    let named = |set: &Set| structured::with_named_fields(set, root);
    let members = |value: &Value| named(&structured::field_set(value, root));
    let (last, all) = (named(last), members(&merged));
    let pruned = structured::remove(&merged, &last, root);
    // What others own comes back.
    let mut keep = members(&pruned);
    managed::union(&mut keep, &named(owned));
    let mut gone = all.clone();
    managed::subtract(&mut gone, &keep);
    let pruned = structured::remove(&merged, &gone, root);
    // So does what was in it and was never the applier's.
    let mut gone = all;
    managed::subtract(&mut gone, &members(&pruned));
    structured::remove(&merged, &managed::intersect(&gone, &last), root)
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
    } else if let Some(message) = types::message_name(&resource.kind, &resource.api_version()) {
        types::undeclared(message, config, "", &mut problems);
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
    let (root, sub) = (Shape::root(resource), writer.subresource);
    meta_mut(&mut config).remove("managedFields");
    let mine = managed::applied(resource, sub, &config);
    let blank = managed::blank(resource);
    let base = live.unwrap_or(&blank);
    let mut entries = managed::entries(base);
    if live.is_some() && entries.is_empty() && tracked {
        let before = Writer { manager: "before-first-apply", ..writer.clone() };
        let set = managed::diff(resource, sub, &blank, base).set;
        entries.push(managed::new_entry("Update", &before, set));
    }
    let old = entries.iter().position(|e| managed::is_entry_of(e, "Apply", writer)).map(|at| entries.remove(at));
    let last = old.as_ref().map(managed::entry_set).unwrap_or_default();
    let mut owned = mine.clone();
    for entry in &entries {
        managed::union(&mut owned, &managed::entry_set(entry));
    }
    let merged = structured::merge(Some(base), Some(&config), root).unwrap_or_else(|| json!({}));
    let merged = prune(merged, &last, &owned, root);

    let changes = managed::diff(resource, sub, base, &merged);
    let mut conflicts: Vec<(String, Vec<String>)> = Vec::new();
    for entry in &mut entries {
        let overlap = managed::intersect(&managed::entry_set(entry), &changes.set);
        if !overlap.is_empty() && !force {
            let mut paths = Vec::new();
            field_paths(&overlap, "", &mut paths);
            conflicts.push((describe(entry), paths));
        } else if let Some(set) = entry.get_mut("fieldsV1").and_then(Value::as_object_mut) {
            managed::subtract(set, &overlap);
            managed::subtract(set, &changes.removed);
        }
    }
    if !conflicts.is_empty() {
        return Err(conflict_refusal(&conflicts));
    }
    // An apply that changes nothing but ownership has the time of its last entry, or none.
    let mut mine = mine;
    managed::strip(&mut mine);
    let mut entry = managed::new_entry("Apply", writer, mine);
    if *base == merged
        && let Some(fields) = entry.as_object_mut()
    {
        match old.as_ref().and_then(|e| e.get("time")) {
            Some(time) => fields.insert("time".into(), time.clone()),
            None => fields.remove("time"),
        };
    }
    entries.push(entry);
    Ok((merged, entries))
}
