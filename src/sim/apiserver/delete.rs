//! Deletion: preconditions, grace of pods, finalizers, propagation, namespaces, collections. Evictions end here, too.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::call::Call;
use super::handler::Reply;
use super::managed;
use super::read::to_delete;
use super::refusal::{Cause, Refusal};
use super::resource::Resource;
use super::state::{State, seconds};
use super::store::{Key, Stored, node_name};
use super::write::{finish, has_finalizers, is_terminating, meta, meta_mut, meta_str};

/// The parts of `DeleteOptions` that matter, from body and query.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    pub grace: Option<i64>,
    pub uid: String,
    pub resource_version: String,
    /// `Orphan`, `Background`, `Foreground`, or empty.
    pub propagation: String,
    pub dry_run: bool,
}

impl DeleteOptions {
    pub fn from_value(value: &Value) -> Self {
        let pre = |key: &str| {
            value.get("preconditions").and_then(|p| p.get(key)).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let orphan = match value.get("orphanDependents").and_then(Value::as_bool) {
            Some(true) => "Orphan",
            Some(false) => "Background",
            None => "",
        };
        Self {
            grace: value.get("gracePeriodSeconds").and_then(Value::as_i64),
            uid: pre("uid"),
            resource_version: pre("resourceVersion"),
            propagation: value.get("propagationPolicy").and_then(Value::as_str).unwrap_or(orphan).to_owned(),
            dry_run: value.get("dryRun").and_then(Value::as_array).is_some_and(|l| l.contains(&json!("All"))),
        }
    }

    pub fn of(call: &Call) -> Result<Self, Refusal> {
        let body = call.body_json()?;
        if let Some(grace) = body.get("gracePeriodSeconds").filter(|g| !g.is_null() && !g.is_i64()) {
            let have = if grace.is_string() { "string" } else { "number" };
            let why =
                format!("json: cannot unmarshal {have} into Go struct field DeleteOptions.gracePeriodSeconds of type int64");
            return Err(Refusal::bad_request(why));
        }
        let both = body.get("orphanDependents").is_some_and(Value::is_boolean)
            && body.get("propagationPolicy").is_some_and(Value::is_string);
        let mut out = Self::from_value(&body);
        // With a body nobody looks at the query.
        if call.body.is_empty() {
            out.grace = call.query.get("gracePeriodSeconds").parse().ok();
            out.propagation = call.query.get("propagationPolicy").to_owned();
            out.dry_run = call.query.dry_run();
        }
        let mut causes = Vec::new();
        if both {
            let why = "orphanDependents and deletionPropagation cannot be both set";
            causes.push(Cause::invalid("propagationPolicy", format!("Invalid value: {:?}: {why}", out.propagation)));
        }
        if !matches!(out.propagation.as_str(), "" | "Orphan" | "Background" | "Foreground") {
            let known = ["Foreground", "Background", "Orphan", "nil"];
            causes.push(Cause::unsupported("propagationPolicy", &out.propagation.clone().into(), &known));
        }
        if let Some(dry) = body.get("dryRun").and_then(Value::as_array).filter(|l| l.iter().any(|d| d != "All")) {
            causes.push(Cause::unsupported("dryRun", &Value::Array(dry.clone()), &["All"]));
        }
        if causes.is_empty() { Ok(out) } else { Err(Refusal::bad_options("DeleteOptions", &causes)) }
    }
}

/// Conflicts of the two preconditions, with the wording of `resource` (the eviction handler says `Pod`).
pub fn check_preconditions(resource: &Resource, object: &Value, options: &DeleteOptions) -> Result<(), Refusal> {
    let (name, uid, rv) = (meta_str(object, "name"), meta_str(object, "uid"), meta_str(object, "resourceVersion"));
    if !options.uid.is_empty() && options.uid != uid {
        let why = format!(
            "the UID in the precondition ({}) does not match the UID in record ({uid}). The object might have been deleted and then recreated",
            options.uid
        );
        return Err(Refusal::failed_precondition(resource, name, &why));
    }
    if !options.resource_version.is_empty() && options.resource_version != rv {
        let why = format!(
            "the ResourceVersion in the precondition ({}) does not match the ResourceVersion in record ({rv}). The object might have been modified",
            options.resource_version
        );
        return Err(Refusal::failed_precondition(resource, name, &why));
    }
    Ok(())
}

fn with_propagation(object: &mut Value, propagation: &str) {
    let mut list: Vec<Value> = meta(object, "finalizers").and_then(Value::as_array).cloned().unwrap_or_default();
    let had = |name: &str, list: &[Value]| list.contains(&json!(name));
    let (orphan, foreground) = match propagation {
        "Orphan" => (true, false),
        "Foreground" => (false, true),
        "Background" => (false, false),
        _ => (had("orphan", &list), had("foregroundDeletion", &list)),
    };
    list.retain(|f| f != "orphan" && f != "foregroundDeletion");
    if orphan {
        list.push("orphan".into());
    }
    if foreground {
        list.push("foregroundDeletion".into());
    }
    let metadata = meta_mut(object);
    if list.is_empty() {
        metadata.remove("finalizers");
    } else {
        metadata.insert("finalizers".into(), Value::Array(list));
    }
}

fn mark(object: &mut Value, now: Timestamp, grace: i64) {
    let at = now.checked_add(SignedDuration::from_secs(grace)).unwrap_or(now);
    let metadata = meta_mut(object);
    metadata.insert("deletionTimestamp".into(), seconds(at).into());
    metadata.insert("deletionGracePeriodSeconds".into(), grace.into());
    if let Some(generation) = metadata.get("generation").and_then(Value::as_i64).filter(|g| *g > 0) {
        metadata.insert("generation".into(), (generation + 1).into());
    }
}

/// Seconds that a pod gets: asked, or its own; none when nothing can run.
fn pod_grace(pod: &Value, asked: Option<i64>) -> i64 {
    let own = pod.get("spec").and_then(|s| s.get("terminationGracePeriodSeconds")).and_then(Value::as_i64).unwrap_or(30);
    let grace = asked.unwrap_or(own);
    let phase = pod.get("status").and_then(|s| s.get("phase")).and_then(Value::as_str);
    if node_name(pod).is_none() || matches!(phase, Some("Succeeded" | "Failed")) {
        return 0;
    }
    if grace < 0 { 1 } else { grace }
}

/// A shorter grace counts from the beginning of the old one. What is over by then has a second, unless none was asked for.
fn shorten(object: &mut Value, grace: i64, now: Timestamp) {
    let old = meta(object, "deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0);
    let at: Option<Timestamp> = meta_str(object, "deletionTimestamp").parse().ok();
    if let Some(at) = at.and_then(|t| t.checked_add(SignedDuration::from_secs(grace - old)).ok()) {
        let over = at < now;
        let grace = if over && grace != 0 { 1 } else { grace };
        let metadata = meta_mut(object);
        metadata.insert("deletionTimestamp".into(), seconds(if over { now } else { at }).into());
        metadata.insert("deletionGracePeriodSeconds".into(), grace.into());
    }
}

/// What became of a delete.
pub enum Outcome {
    /// The object is gone; this is what it was.
    Gone(Arc<Stored>),
    /// It waits for grace or finalizers.
    Marked(Arc<Stored>),
}

/// Deletes one object as far as it can be deleted now.
pub fn delete_one(
    state: &mut State,
    call: &Call,
    resource: &Arc<Resource>,
    key: &Key,
    options: &DeleteOptions,
) -> Result<Outcome, Refusal> {
    let old = state.get(resource, key).cloned().ok_or_else(|| Refusal::not_found(resource, &key.1))?;
    check_preconditions(resource, &old.value, options)?;
    let now = state.clock.now();
    let mut new = (*old.value).clone();
    with_propagation(&mut new, &options.propagation);
    let terminating = is_terminating(&old.value);
    if resource.is("", "namespaces") {
        return delete_namespace(state, call, &old, new, options);
    }
    let current = meta(&old.value, "deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0);
    // Only pods are deleted gracefully, and that once; a grace that runs can be shortened.
    let mut graceful = false;
    if !terminating {
        graceful = resource.is_pod();
        mark(&mut new, now, if graceful { pod_grace(&old.value, options.grace) } else { 0 });
    } else if resource.is_pod() && current > 0 {
        let asked = options.grace.map(|g| if g < 0 { 1 } else { g });
        let Some(grace) = asked.filter(|g| *g < current) else { return Ok(Outcome::Marked(old)) };
        graceful = true;
        shorten(&mut new, grace, now);
    }
    // The finalizers of a deletion are written first, unless nothing else is: then what was written counts as nothing at all.
    let finalizers = |v: &Value| meta(v, "finalizers").cloned();
    let hollow = !graceful && !has_finalizers(&new) && (has_finalizers(&old.value) || finalizers(&old.value) != finalizers(&new));
    let waits = has_finalizers(&new) || meta(&new, "deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0) > 0;
    if options.dry_run && hollow {
        let mut empty = managed::blank(resource);
        empty["apiVersion"] = resource.api_version().into();
        empty["kind"] = resource.kind.clone().into();
        return Ok(Outcome::Marked(Arc::new(Stored::new(empty, old.rv, false))));
    }
    if options.dry_run {
        let shown = Arc::new(Stored::new(new, old.rv, false));
        return Ok(if waits { Outcome::Marked(shown) } else { Outcome::Gone(shown) });
    }
    if hollow && !options.resource_version.is_empty() {
        return Err(Refusal::other_revision(resource, (&key.0, &key.1), "", meta_str(&old.value, "resourceVersion")));
    }
    if waits {
        return finish(state, call, &old, new).map(Outcome::Marked);
    }
    if graceful {
        // The mark is written first, even when nothing is waited for.
        state.commit(call, resource, key.clone(), Some(new));
    }
    let gone = state.commit(call, resource, key.clone(), None);
    super::admit::after_write(state, resource, Some(&old.value), None);
    Ok(Outcome::Gone(gone))
}

fn delete_namespace(
    state: &mut State,
    call: &Call,
    old: &Arc<Stored>,
    mut new: Value,
    options: &DeleteOptions,
) -> Result<Outcome, Refusal> {
    if is_terminating(&old.value) {
        return Ok(Outcome::Marked(old.clone()));
    }
    let at = seconds(state.clock.now());
    meta_mut(&mut new).insert("deletionTimestamp".into(), at.into());
    new["status"]["phase"] = "Terminating".into();
    if options.dry_run {
        return Ok(Outcome::Marked(Arc::new(Stored::new(new, old.rv, false))));
    }
    finish(state, call, old, new).map(Outcome::Marked)
}

pub fn delete(state: &mut State, call: &Call) -> Result<Reply, Refusal> {
    let options = DeleteOptions::of(call)?;
    let resource = call.resource.clone();
    Ok(match delete_one(state, call, &resource, &call.key(), &options)? {
        Outcome::Marked(stored) => Reply::stored(200, call, &stored),
        Outcome::Gone(stored) if resource.has.delete_returns_object => Reply::stored(200, call, &stored),
        Outcome::Gone(stored) => {
            let mut details = json!({"name": call.name, "kind": resource.plural, "uid": meta_str(&stored.value, "uid")});
            if !resource.group.is_empty() {
                details["group"] = resource.group.clone().into();
            }
            Reply::value(
                200,
                &json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}),
            )
        }
    })
}

pub fn delete_collection(state: &mut State, call: &Call) -> Result<Reply, Refusal> {
    let options = DeleteOptions::of(call)?;
    let resource = call.resource.clone();
    // The answer is the list as it was before.
    let (items, answer) = to_delete(state, call)?;
    for item in items {
        let key = (meta_str(&item.value, "namespace").to_owned(), meta_str(&item.value, "name").to_owned());
        match delete_one(state, call, &resource, &key, &options) {
            Err(refusal) if refusal.code != 404 => return Err(refusal),
            _ => {}
        }
    }
    Ok(answer)
}
