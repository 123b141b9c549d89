//! The scale subresource: `spec.replicas` and `status.replicas` of a workload, shown as `autoscaling/v1 Scale`.

use serde_json::{Value, json};

use super::call::{Call, PatchType, Verb};
use super::convert::Form;
use super::handler::Reply;
use super::managed::{self, Writer};
use super::patch;
use super::refusal::{Cause, Refusal};
use super::state::State;
use super::table;
use super::write::{self, meta};

fn scale_of(call: &Call, object: &Value) -> Value {
    let (spec_path, status_path) = call
        .resource
        .custom
        .as_ref()
        .and_then(|c| c.scale.clone())
        .unwrap_or_else(|| (".spec.replicas".into(), ".status.replicas".into()));
    let at = |path: &str| {
        path.split('.').filter(|s| !s.is_empty()).try_fold(object, |v, step| v.get(step)).and_then(Value::as_i64).unwrap_or(0)
    };
    let mut metadata = json!({});
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = meta(object, field) {
            metadata[field] = value.clone();
        }
    }
    let selector =
        object.get("spec").and_then(|s| s.get("selector")).and_then(|s| s.get("matchLabels")).and_then(Value::as_object);
    let selector: Vec<String> =
        selector.into_iter().flatten().map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or_default())).collect();
    let custom = call.resource.custom.as_ref().map(|c| c.scale_selector.as_str()).filter(|p| !p.is_empty());
    let own = custom.and_then(|p| p.split('.').filter(|s| !s.is_empty()).try_fold(object, |v, step| v.get(step)));
    let selector = match own.and_then(Value::as_str) {
        Some(own) => vec![own.to_owned()],
        None => selector,
    };
    let mut status = json!({"replicas": at(&status_path)});
    if !selector.is_empty() {
        status["selector"] = selector.join(",").into();
    }
    // Zero replicas are left out of the spec.
    let spec = match at(&spec_path) {
        0 => json!({}),
        replicas => json!({"replicas": replicas}),
    };
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status})
}

pub fn handle(state: &mut State, call: &Call) -> Result<Reply, Refusal> {
    let old = state.get(&call.resource, &call.key()).cloned().ok_or_else(|| Refusal::not_found(&call.resource, &call.name))?;
    let shown = scale_of(call, &old.value);
    let body = call.body_json()?;
    let wanted = match call.verb {
        Verb::Get => {
            return Ok(match &call.form {
                Form::Table { whole, clock, .. } => Reply::value(200, &table::of_scale(&shown, *whole, clock.now())),
                _ => Reply::value(200, &shown),
            });
        }
        Verb::Update => body,
        Verb::Patch if call.patch == Some(PatchType::Json) => patch::json(shown, &body)?,
        Verb::Patch => patch::merge(shown, &body)?,
        _ => return Err(Refusal::method_not_allowed()),
    };
    let name = write::meta_str(&wanted, "name");
    if name != call.name {
        return Err(Refusal::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            call.name
        )));
    }
    let replicas = wanted.get("spec").and_then(|s| s.get("replicas")).and_then(Value::as_i64).unwrap_or(0);
    if replicas < 0 {
        let why = format!("Invalid value: {replicas}: must be greater than or equal to 0");
        let mut refusal = Refusal::invalid(&call.resource, &call.name, &[Cause::invalid("spec.replicas", why)]);
        refusal.message = refusal.message.replacen(&call.resource.group_kind(), "Scale.autoscaling", 1);
        refusal.detail("kind", "Scale".into());
        refusal.detail("group", "autoscaling".into());
        return Err(refusal);
    }
    let path = call.resource.custom.as_ref().and_then(|c| c.scale.clone()).map_or(".spec.replicas".into(), |s| s.0);
    let mut new = (*old.value).clone();
    let pointer = path.replace('.', "/");
    match new.pointer_mut(&pointer) {
        Some(slot) => *slot = replicas.into(),
        None => new["spec"]["replicas"] = replicas.into(),
    }
    if let Some(rv) = meta(&wanted, "resourceVersion") {
        write::meta_mut(&mut new).insert("resourceVersion".into(), rv.clone());
    }
    // A custom object without replicas has a number that nobody sends.
    let before = old.value.pointer(&pointer).map_or(Some(i64::MIN), |n| n.as_i64().filter(|n| *n != 0));
    let entries = owners(call, &old.value, &path, before, Some(replicas).filter(|n| *n != 0));
    let stored = write::save_owned(state, call, &old, new, entries)?;
    Ok(Reply::value(200, &scale_of(call, &stored.value)))
}

/// Who owns what after a change of the replicas (`ScaleHandler` of apimachinery). Owners of the replicas are told apart there by the version of the
/// Scale: an update's entry is split, and what is about the replicas has no time. Zero replicas are left out, so nobody owns them.
fn owners(call: &Call, old: &Value, path: &str, before: Option<i64>, now: Option<i64>) -> Vec<Value> {
    let steps = path.split('.').filter(|s| !s.is_empty()).rev();
    let node = steps.fold(json!({}), |inner, step| json!({format!("f:{step}"): inner}));
    let replicas = node.as_object().cloned().unwrap_or_default();
    let parents = managed::entries(old);
    let owns = |entry: &Value| !managed::intersect(&managed::entry_set(entry), &replicas).is_empty();
    let mut scaled: Vec<Value> = parents.iter().filter(|e| owns(e)).cloned().collect();
    let api_version = call.resource.api_version();
    // A PUT of a custom kind's scale leaves the owners as they are.
    let moves = !(call.resource.is_custom() && call.verb == Verb::Update);
    if !scaled.is_empty() && before != now && moves {
        let writer = Writer { manager: &call.manager, subresource: &call.sub, api_version: &api_version, now: "" };
        scaled = now.map(|_| managed::new_entry("Update", &writer, replicas.clone())).into_iter().collect();
    }
    let mut out = Vec::new();
    for mut entry in parents {
        let applied = entry.get("operation").is_some_and(|o| o == "Apply");
        let same = |other: &Value| ["operation", "manager", "subresource"].iter().all(|f| other.get(*f) == entry.get(*f));
        match scaled.iter().position(same) {
            Some(at) if applied && owns(&entry) => {
                scaled.remove(at);
            }
            _ if owns(&entry) => {
                if let Some(set) = entry.get_mut("fieldsV1").and_then(Value::as_object_mut) {
                    managed::subtract(set, &replicas);
                }
            }
            _ => {}
        }
        out.push(entry);
    }
    for mut entry in scaled {
        if let Some(fields) = entry.as_object_mut() {
            fields.remove("time");
            fields.insert("apiVersion".into(), api_version.clone().into());
            fields.insert("fieldsV1".into(), Value::Object(replicas.clone()));
        }
        out.push(entry);
    }
    out
}
