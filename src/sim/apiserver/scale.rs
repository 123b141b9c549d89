//! The scale subresource: `spec.replicas` and `status.replicas` of a workload, shown as `autoscaling/v1 Scale`.

use serde_json::{Value, json};

use super::call::{Call, PatchType, Verb};
use super::convert::Form;
use super::handler::Reply;
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
    let stored = write::save_whole(state, call, &old, new)?;
    Ok(Reply::value(200, &scale_of(call, &stored.value)))
}
