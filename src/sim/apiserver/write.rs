//! Create, update and patch: one pipeline for all kinds. Preconditions, what a client may not set, defaults, validation, ownership, commit.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::call::{Call, PatchType, Verb};
use super::convert;
use super::handler::Reply;
use super::managed::{self, Writer};
use super::refusal::{Cause, Refusal};
use super::resource::Resource;
use super::state::State;
use super::store::Stored;
use super::{admit, apply, decode, patch, strategic, validate};

/// How ownership is recorded for a write.
enum Ownership {
    /// Compare with the old object.
    Update,
    /// An apply has worked it out already.
    Given { entries: Vec<Value>, hidden: bool },
}

pub fn meta<'a>(object: &'a Value, key: &str) -> Option<&'a Value> {
    object.get("metadata")?.get(key)
}

pub fn meta_str<'a>(object: &'a Value, key: &str) -> &'a str {
    meta(object, key).and_then(Value::as_str).unwrap_or_default()
}

/// `metadata`, made if it is absent.
pub fn meta_mut(object: &mut Value) -> &mut Map<String, Value> {
    if !object.is_object() {
        *object = json!({});
    }
    if !object.get("metadata").is_some_and(Value::is_object) {
        object["metadata"] = json!({});
    }
    match object.get_mut("metadata") {
        Some(Value::Object(metadata)) => metadata,
        _ => unreachable!("set above"),
    }
}

pub fn is_terminating(object: &Value) -> bool {
    meta(object, "deletionTimestamp").is_some_and(|t| !t.is_null())
}

pub fn has_finalizers(object: &Value) -> bool {
    meta(object, "finalizers").and_then(Value::as_array).is_some_and(|f| !f.is_empty())
}

/// Kind and version must be what the path says.
fn check_type(call: &Call, body: &mut Value) -> Result<(), Refusal> {
    let resource = &call.resource;
    if resource.is_custom() && body.is_object() && body.get("kind").is_none() {
        return Err(Refusal::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): Object 'Kind' is missing in '{body}' ({body})",
            resource.kind
        )));
    }
    if !body.is_object() {
        return Err(Refusal::bad_request(format!("the object provided is unrecognized (must be of type {})", resource.kind)));
    }
    let expected = resource.api_version();
    let sent = body.get("apiVersion").and_then(Value::as_str).unwrap_or(&expected).to_owned();
    let kind = body.get("kind").and_then(Value::as_str).unwrap_or(&resource.kind).to_owned();
    let handled_as = |why: &str| {
        let version = sent.rsplit('/').next().unwrap_or_default();
        Refusal::bad_request(format!("{kind} in version {version:?} cannot be handled as a {}: {why}", resource.kind))
    };
    if sent != expected {
        return Err(handled_as(&format!(
            "no kind {kind:?} is registered for version {sent:?} in scheme \"pkg/runtime/scheme.go:111\""
        )));
    }
    if kind != resource.kind && resource.is_custom() {
        return Err(other_type(resource, meta_str(body, "name"), "kind", &kind, &resource.kind));
    }
    if kind != resource.kind {
        return Err(handled_as(&format!("converting ({sent}.{kind}) to ({}): unknown conversion", resource.internal_kind())));
    }
    body["apiVersion"] = expected.into();
    body["kind"] = kind.into();
    Ok(())
}

/// A custom object that says it is something else.
fn other_type(resource: &Resource, name: &str, field: &str, sent: &str, wanted: &str) -> Refusal {
    let cause = Cause::invalid(field, format!("Invalid value: {sent:?}: must be {wanted}"));
    let mut refusal = Refusal::invalid(resource, name, &[cause]);
    if field == "kind" {
        refusal.message = refusal.message.replacen(&resource.kind, sent, 1);
        refusal.detail("kind", sent.into());
    }
    refusal
}

/// What a patch has made must still be the object that it was sent for.
fn check_patched(call: &Call, patched: &Value) -> Result<(), Refusal> {
    if meta_str(patched, "name").is_empty() {
        let why = format!("the name of the object ({} based on URL) was undeterminable: name must be provided", call.name);
        return Err(Refusal::bad_request(why));
    }
    let resource = &call.resource;
    let text = |field: &str| patched.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    for (field, wanted) in [("kind", &resource.kind), ("apiVersion", &resource.api_version())] {
        if text(field) != *wanted && resource.is_custom() {
            return Err(other_type(resource, &call.name, field, &text(field), wanted));
        }
        if text(field) != *wanted {
            return Err(Refusal::patched_object(&patched.to_string(), "the object has another type"));
        }
    }
    Ok(())
}

fn check_namespace(call: &Call, body: &mut Value) -> Result<(), Refusal> {
    let sent = meta_str(body, "namespace").to_owned();
    if !call.resource.namespaced {
        meta_mut(body).remove("namespace");
        return Ok(());
    }
    if !sent.is_empty() && sent != call.namespace {
        return Err(Refusal::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    meta_mut(body).insert("namespace".into(), call.namespace.clone().into());
    Ok(())
}

fn check_name(call: &Call, body: &mut Value) -> Result<(), Refusal> {
    let sent = meta_str(body, "name").to_owned();
    if !sent.is_empty() && sent != call.name {
        return Err(Refusal::bad_request(format!(
            "the name of the object ({sent}) does not match the name on the URL ({})",
            call.name
        )));
    }
    meta_mut(body).insert("name".into(), call.name.clone().into());
    Ok(())
}

fn check_namespace_open(state: &State, call: &Call, name: &str) -> Result<(), Refusal> {
    if !call.resource.namespaced {
        return Ok(());
    }
    let Some(namespace) = state.lookup("", "namespaces", "", &call.namespace) else {
        let resource = state.registry.find("", "v1", "namespaces").cloned();
        return Err(resource.map_or_else(Refusal::no_such_path, |r| Refusal::not_found(&r, &call.namespace)));
    };
    if is_terminating(&namespace.value) {
        let ns = &call.namespace;
        let why = format!("unable to create new content in namespace {ns} because it is being terminated");
        let mut refusal = Refusal::forbidden(&call.resource, name, &why);
        let cause = json!({"reason": "NamespaceTerminating", "message": format!("namespace {ns} is being terminated"), "field": "metadata.namespace"});
        refusal.detail("causes", json!([cause]));
        return Err(refusal);
    }
    Ok(())
}

fn tracked(state: &State, resource: &Resource) -> bool {
    !state.config.no_managed_fields.contains(&resource.group_resource())
}

pub fn create(state: &mut State, call: &Call) -> Result<Reply, Refusal> {
    if call.resource.namespaced && call.namespace.is_empty() {
        return Err(Refusal::method_not_allowed());
    }
    let mut body = call.body_json()?;
    check_type(call, &mut body)?;
    let body = decode::object(state, call, body)?;
    let body = convert::to_storage(&call.resource, body);
    let stored = create_object(state, call, body, Ownership::Update)?;
    Ok(Reply::stored(201, call, &stored))
}

/// Fields that a write through the main path leaves as they are are not owned by who sends them.
fn without_status(resource: &Resource, set: &mut managed::Set) {
    if resource.has.status {
        set.remove("f:status");
    }
}

fn create_object(state: &mut State, call: &Call, mut body: Value, ownership: Ownership) -> Result<Arc<Stored>, Refusal> {
    let resource = call.resource.clone();
    check_namespace(call, &mut body)?;
    if !meta_str(&body, "resourceVersion").is_empty() && call.verb == Verb::Create {
        return Err(Refusal::new(500, "", "resourceVersion should not be set on objects to be created"));
    }
    let prefix = meta_str(&body, "generateName").to_owned();
    if meta_str(&body, "name").is_empty() && !prefix.is_empty() {
        let keep = prefix.char_indices().nth(58).map_or(prefix.as_str(), |(at, _)| &prefix[..at]);
        let name = format!("{keep}{}", state.name_suffix());
        meta_mut(&mut body).insert("name".into(), name.into());
    }
    let name = meta_str(&body, "name").to_owned();
    check_namespace_open(state, call, &name)?;
    let (uid, now) = (state.new_uid(), state.now_text());
    let metadata = meta_mut(&mut body);
    for field in ["resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "managedFields"] {
        metadata.remove(field);
    }
    metadata.insert("uid".into(), uid.into());
    metadata.insert("creationTimestamp".into(), now.clone().into());
    if resource.has.generation {
        metadata.insert("generation".into(), 1.into());
    }
    if resource.has.status
        && !resource.has.status_on_create
        && let Some(object) = body.as_object_mut()
    {
        object.remove("status");
    }
    let body = admit::defaults(call, admit::normalise(&resource, body));
    let mut hidden = false;
    let entries = match ownership {
        Ownership::Given { entries, hidden: other } => {
            hidden = other;
            entries
        }
        Ownership::Update if tracked(state, &resource) => {
            let api_version = resource.api_version();
            let writer = Writer { manager: &call.manager, subresource: "", api_version: &api_version, now: &now };
            let mut owned = managed::owned(&resource, &body);
            without_status(&resource, &mut owned);
            vec![managed::new_entry("Update", &writer, owned)]
        }
        Ownership::Update => Vec::new(),
    };
    let (mut body, warnings) = admit::on_create(state, call, body)?;
    state.warnings.extend(warnings);
    validate::object(&resource, &name, &body, None, Vec::new())?;
    let key = (if resource.namespaced { call.namespace.clone() } else { String::new() }, name.clone());
    if let Some(there) = state.get(&resource, &key) {
        let mut refusal = Refusal::already_exists(&resource, &name);
        if is_terminating(&there.value) {
            refusal.message = format!("object is being deleted: {}", refusal.message);
        }
        return Err(refusal);
    }
    managed::store(&mut body, entries);
    decode::stored(&resource, &mut body);
    if call.query.dry_run() {
        return Ok(Arc::new(Stored::new(body, 0, true)));
    }
    let stored = state.commit_hidden(call, &resource, key, Some(body), hidden);
    admit::after_write(state, &resource, None, Some(&stored.value));
    Ok(stored)
}

pub fn update(state: &mut State, call: &Call) -> Result<Reply, Refusal> {
    let mut body = call.body_json()?;
    check_type(call, &mut body)?;
    let body = decode::object(state, call, body)?;
    let mut body = convert::to_storage(&call.resource, body);
    check_name(call, &mut body)?;
    check_namespace(call, &mut body)?;
    let Some(old) = state.get(&call.resource, &call.key()).cloned() else {
        if call.resource.has.create_on_update && call.sub.is_empty() {
            let stored = create_object(state, call, body, Ownership::Update)?;
            return Ok(Reply::stored(201, call, &stored));
        }
        return Err(Refusal::not_found(&call.resource, &call.name));
    };
    let stored = save(state, call, &old, body, Ownership::Update)?;
    Ok(Reply::stored(200, call, &stored))
}

pub fn patch(state: &mut State, call: &Call) -> Result<Reply, Refusal> {
    let kind = call.patch.unwrap_or(PatchType::Merge);
    if kind == PatchType::Apply {
        return apply_patch(state, call);
    }
    let body = call.body_json()?;
    let Some(old) = state.get(&call.resource, &call.key()).cloned() else {
        return Err(Refusal::not_found(&call.resource, &call.name));
    };
    // A patch is written against the version of its path.
    let shown = call.form_of_path().render(&old.value).unwrap_or_else(|| (*old.value).clone());
    let patched = match kind {
        PatchType::Json => patch::json(shown, &body)?,
        PatchType::Strategic => strategic::strategic(&call.resource, shown, &body)?,
        PatchType::Merge | PatchType::Apply => patch::merge(shown, &body)?,
    };
    check_patched(call, &patched)?;
    let patched = decode::object(state, call, patched)?;
    let mut patched = convert::to_storage(&call.resource, patched);
    check_name(call, &mut patched)?;
    check_namespace(call, &mut patched)?;
    let stored = save(state, call, &old, patched, Ownership::Update)?;
    Ok(Reply::stored(200, call, &stored))
}

fn apply_patch(state: &mut State, call: &Call) -> Result<Reply, Refusal> {
    let mut config = apply::parse(&call.body)?;
    if call.query.get("fieldManager").is_empty() {
        return Err(Refusal::bad_options("PatchOptions", &[Cause::required("fieldManager", "is required for apply patch")]));
    }
    let old = state.get(&call.resource, &call.key()).cloned();
    if old.is_none() && !call.sub.is_empty() {
        return Err(Refusal::not_found(&call.resource, &call.name));
    }
    if config.get("apiVersion").is_none() || config.get("kind").is_none() {
        let text = |field: &str| config.get(field).and_then(Value::as_str).unwrap_or_default();
        let version = text("apiVersion");
        let version = if version.contains('/') { version.to_owned() } else { format!("/{version}") };
        return Err(Refusal::bad_request(format!("invalid object type: {version}, Kind={}", text("kind"))));
    }
    if meta(&config, "managedFields").is_some_and(|m| m.as_array().is_some_and(|l| !l.is_empty())) {
        return Err(Refusal::bad_request("metadata.managedFields must be nil"));
    }
    check_type(call, &mut config)?;
    apply::typed(&call.resource, &config)?;
    let mut config = convert::to_storage(&call.resource, config);
    check_name(call, &mut config)?;
    check_namespace(call, &mut config)?;
    let (api_version, now) = (call.resource.api_version(), state.now_text());
    let writer = Writer { manager: &call.manager, subresource: &call.sub, api_version: &api_version, now: &now };
    let force = call.query.on("force");
    let tracked = tracked(state, &call.resource);
    let (merged, entries) = apply::apply(&call.resource, old.as_ref().map(|s| &*s.value), config, &writer, force, tracked)?;
    let merged = decode::applied(call, merged)?;
    let ownership = Ownership::Given { entries, hidden: hides(call, &merged) };
    let Some(old) = old else {
        let stored = create_object(state, call, merged, ownership)?;
        return Ok(Reply::stored(201, call, &stored));
    };
    let stored = save(state, call, &old, merged, ownership)?;
    Ok(Reply::stored(200, call, &stored))
}

/// Does an apply put anything into the storage of a custom object that no reader is shown? Such a write is never taken for one that changes nothing.
fn hides(call: &Call, object: &Value) -> bool {
    let empty = |v: &Value| v.as_array().is_some_and(Vec::is_empty) || v.as_object().is_some_and(Map::is_empty);
    let stored = call.resource.is_custom() && call.sub.is_empty();
    stored && object.get("metadata").and_then(Value::as_object).is_some_and(|m| m.values().any(empty))
}

fn check_preconditions(call: &Call, old: &Value, new: &Value) -> Result<(), Refusal> {
    let resource = &call.resource;
    let uid = meta_str(new, "uid");
    if !uid.is_empty() && uid != meta_str(old, "uid") {
        if call.verb == Verb::Patch {
            let cause = Cause::invalid("metadata.uid", format!("Invalid value: {uid:?}: field is immutable"));
            return Err(Refusal::invalid(resource, &call.name, &[cause]));
        }
        return Err(Refusal::other_uid(resource, (&call.namespace, &call.name), uid, meta_str(old, "uid")));
    }
    let rv = meta_str(new, "resourceVersion");
    if rv.is_empty() {
        if !resource.has.unconditional_update {
            let cause = Cause::invalid("metadata.resourceVersion", "Invalid value: 0: must be specified for an update");
            let mut refusal = Refusal::invalid(resource, &call.name, &[cause]);
            refusal.message = refusal.message.replacen(&resource.group_kind(), &resource.group_resource(), 1);
            refusal.detail("kind", resource.plural.clone().into());
            return Err(refusal);
        }
    } else if rv != meta_str(old, "resourceVersion") {
        return Err(Refusal::stale(resource, &call.name));
    }
    Ok(())
}

/// What a write through this path may not touch comes from the old object.
fn keep_foreign_parts(call: &Call, old: &Value, new: &mut Value) {
    let resource = &call.resource;
    let copy = |new: &mut Value, field: &str| {
        // Comparing costs less than copying, and mostly nothing was touched.
        if let Some(object) = new.as_object_mut()
            && object.get(field) != old.get(field)
        {
            match old.get(field) {
                Some(value) => object.insert(field.to_owned(), value.clone()),
                None => object.remove(field),
            };
        }
    };
    match call.sub.as_str() {
        "status" => {
            let mut fields: Vec<String> =
                [old, new].iter().filter_map(|v| v.as_object()).flat_map(|o| o.keys().cloned()).collect();
            fields.retain(|f| !matches!(f.as_str(), "status" | "metadata"));
            for field in fields {
                copy(new, &field);
            }
            if resource.is_custom() {
                copy(new, "metadata");
            } else if resource.is("apps", "deployments") {
                let labels = meta(old, "labels").cloned();
                let metadata = meta_mut(new);
                match labels {
                    Some(labels) => metadata.insert("labels".into(), labels),
                    None => metadata.remove("labels"),
                };
            }
        }
        "finalize" => {
            let finalizers = new.get("spec").and_then(|s| s.get("finalizers")).cloned();
            copy(new, "spec");
            copy(new, "status");
            match finalizers {
                Some(Value::Array(list)) if !list.is_empty() => new["spec"]["finalizers"] = Value::Array(list),
                _ => new["spec"] = json!({}),
            }
        }
        _ => {
            if resource.has.status {
                copy(new, "status");
            }
            if resource.is("", "namespaces") {
                copy(new, "spec");
            }
        }
    }
    // A list with one empty entry gives all ownership up.
    let forget = call.sub.is_empty() && meta(new, "managedFields") == Some(&json!([{}]));
    let metadata = meta_mut(new);
    for field in [
        "uid",
        "creationTimestamp",
        "generation",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "resourceVersion",
        "selfLink",
        "managedFields",
    ] {
        match meta(old, field) {
            same if same == metadata.get(field) => {}
            Some(value) => {
                metadata.insert(field.into(), value.clone());
            }
            None => {
                metadata.remove(field);
            }
        }
    }
    if forget {
        metadata.remove("managedFields");
    }
}

/// Has anything moved that the kind's generation counts?
fn generation_moves(resource: &Resource, old: &Value, new: &Value) -> bool {
    let (Some(old), Some(new)) = (old.as_object(), new.as_object()) else {
        return false;
    };
    let counts = |field: &str| match field {
        "metadata" | "apiVersion" | "kind" => false,
        "status" => !resource.has.status,
        _ => resource.is_custom() || field == "spec",
    };
    old.keys().chain(new.keys()).any(|f| counts(f) && old.get(f) != new.get(f))
}

fn save(state: &mut State, call: &Call, old: &Arc<Stored>, mut new: Value, ownership: Ownership) -> Result<Arc<Stored>, Refusal> {
    let resource = call.resource.clone();
    check_preconditions(call, &old.value, &new)?;
    let frozen = validate::frozen_metadata(&old.value, &new);
    let left_out: Vec<&str> = ["deletionTimestamp", "deletionGracePeriodSeconds"]
        .into_iter()
        .filter(|field| meta(&new, field).is_none_or(Value::is_null) && meta(&old.value, field).is_some())
        .collect();
    keep_foreign_parts(call, &old.value, &mut new);
    let mut new = admit::update_defaults(call, admit::normalise(&resource, new));
    let mut hidden = false;
    match ownership {
        Ownership::Given { entries, hidden: other } => {
            hidden = other;
            managed::store(&mut new, entries);
        }
        Ownership::Update if tracked(state, &resource) => {
            // Seen on a real server: what nobody owned anything of is not tracked, until an apply.
            let owned = meta(&new, "managedFields").is_some();
            if owned {
                let mut changes = managed::diff(&resource, &call.sub, &old.value, &new);
                // Times of deletion stay, but who leaves them out takes them from their owner.
                managed::remove_metadata(&resource, &call.sub, &mut changes, &left_out);
                let (api_version, now) = (resource.api_version(), state.now_text());
                let writer = Writer { manager: &call.manager, subresource: &call.sub, api_version: &api_version, now: &now };
                let entries = managed::take_entries(&mut new);
                managed::track_update(&mut new, entries, &changes, &writer);
            }
        }
        Ownership::Update => {}
    }
    let (mut new, warnings) = admit::on_update(state, call, &old.value, new)?;
    state.warnings.extend(warnings);
    validate::object(&resource, &call.name, &new, Some(&old.value), frozen)?;
    if resource.has.generation && matches!(call.sub.as_str(), "" | "scale") && generation_moves(&resource, &old.value, &new) {
        let generation = meta(&old.value, "generation").and_then(Value::as_i64).unwrap_or(0) + 1;
        meta_mut(&mut new).insert("generation".into(), generation.into());
    }
    if resource.is("storage.k8s.io", "csidrivers") && old.value.get("spec") != new.get("spec") {
        // It counts from the first change on.
        let generation = meta(&old.value, "generation").and_then(Value::as_i64).unwrap_or(0) + 1;
        meta_mut(&mut new).insert("generation".into(), generation.into());
    }
    admit::count_update(&resource, &old.value, &mut new);
    decode::stored(&resource, &mut new);
    finish_hidden(state, call, old, new, hidden)
}

/// Commits a changed object, or removes it when its last finalizer went; a write that changes nothing leaves no trace.
pub fn finish(state: &mut State, call: &Call, old: &Arc<Stored>, new: Value) -> Result<Arc<Stored>, Refusal> {
    finish_hidden(state, call, old, new, false)
}

fn finish_hidden(state: &mut State, call: &Call, old: &Arc<Stored>, new: Value, hidden: bool) -> Result<Arc<Stored>, Refusal> {
    let resource = call.resource.clone();
    if !old.hidden && !hidden && (*old.value == new || managed::only_times_differ(&old.value, &new)) {
        return Ok(old.clone());
    }
    if call.dry_run() {
        return Ok(Arc::new(Stored::new(new, old.rv, false)));
    }
    let key = (meta_str(&old.value, "namespace").to_owned(), meta_str(&old.value, "name").to_owned());
    let waiting = meta(&new, "deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0) > 0;
    let namespace_open = resource.is("", "namespaces")
        && new.get("spec").and_then(|s| s.get("finalizers")).and_then(Value::as_array).is_some_and(|f| !f.is_empty());
    if is_terminating(&new) && !has_finalizers(&new) && !waiting && !namespace_open {
        let stored = state.commit(call, &resource, key, None);
        admit::after_write(state, &resource, Some(&old.value), None);
        // The answer shows the object as it was sent.
        return Ok(Arc::new(Stored::new(new, stored.rv, false)));
    }
    let stored = state.commit_hidden(call, &resource, key, Some(new), hidden);
    admit::after_write(state, &resource, Some(&old.value), Some(&stored.value));
    Ok(stored)
}

/// Saves a changed object for a subresource that shows only a part of it, and has its own way with owners.
pub fn save_owned(
    state: &mut State,
    call: &Call,
    old: &Arc<Stored>,
    new: Value,
    entries: Vec<Value>,
) -> Result<Arc<Stored>, Refusal> {
    save(state, call, old, new, Ownership::Given { entries, hidden: false })
}
