//! `pods/eviction` and `pods/binding`. The eviction follows registry/core/pod/storage/eviction.go step by step, its order and messages included.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::call::Call;
use super::delete::{DeleteOptions, Outcome, check_preconditions, delete_one};
use super::handler::Reply;
use super::managed::{self, Writer};
use super::refusal::{Cause, Refusal};
use super::resource::Resource;
use super::select::label_selector_matches;
use super::state::State;
use super::store::{Key, Stored};
use super::write::{finish, is_terminating, meta, meta_mut, meta_str};

/// How a running eviction goes on.
pub enum Progress {
    Done(Result<Reply, Refusal>),
    /// The real server's conflict loop: wait, then call again.
    Again(Duration),
}

/// A conflict inside the direct path is tried this often, this far apart.
pub const RETRIES: u32 = 20;
const RETRY_AFTER: Duration = Duration::from_millis(500);

const CANNOT: &str = "Cannot evict pod as it would violate the pod's disruption budget.";
const MAX_DISRUPTED: usize = 2000;

fn success() -> Reply {
    Reply::value(201, &json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}))
}

fn phase(pod: &Value) -> &str {
    pod.get("status").and_then(|s| s.get("phase")).and_then(Value::as_str).unwrap_or_default()
}

pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    let list = object.get("status")?.get("conditions")?.as_array()?;
    list.iter().find(|c| c.get("type").and_then(Value::as_str) == Some(kind))
}

fn is_ready(pod: &Value) -> bool {
    condition(pod, "Ready").is_some_and(|c| c.get("status").and_then(Value::as_str) == Some("True"))
}

/// A pod whose end disrupts nothing (any more).
fn ignores_budgets(pod: &Value) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed" | "Pending") || is_terminating(pod)
}

fn being_processed(name: &str) -> Refusal {
    Refusal::too_many(CANNOT, Some(10))
        .with_cause("DisruptionBudget", format!("The disruption budget {name} is still being processed by the server."))
}

fn number(budget: &Value, part: &str, field: &str) -> i64 {
    budget.get(part).and_then(|s| s.get(field)).and_then(Value::as_i64).unwrap_or(0)
}

fn why_blocked(budget: &Value, name: &str) -> String {
    let failed = condition(budget, "DisruptionAllowed").filter(|c| {
        let text = |f: &str| c.get(f).and_then(Value::as_str).unwrap_or_default();
        text("status") == "False" && !text("message").is_empty()
    });
    let text = |c: &Value, f: &str| c.get(f).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (healthy, needed) = (number(budget, "status", "currentHealthy"), number(budget, "status", "desiredHealthy"));
    match failed {
        Some(c) if text(c, "reason") == "SyncFailed" => {
            format!(
                "The disruption budget {name} does not allow evicting pods currently because it failed sync: {}",
                text(c, "message")
            )
        }
        _ if healthy <= needed => format!("The disruption budget {name} needs {needed} healthy pods and has {healthy} currently"),
        Some(c) => {
            format!(
                "The disruption budget {name} does not allow evicting pods currently ({}): {}",
                text(c, "reason"),
                text(c, "message")
            )
        }
        None => format!("The disruption budget {name} does not allow evicting pods currently"),
    }
}

fn set_condition(object: &mut Value, mut new: Value, now: &str) {
    let status = super::admit::part(object, "status");
    let list = status.entry("conditions").or_insert_with(|| json!([]));
    let Some(list) = list.as_array_mut() else {
        return;
    };
    let same = |c: &Value| c.get("type") == new.get("type");
    match list.iter().position(same) {
        Some(at) => {
            let moved = list.get(at).and_then(|c| c.get("status")) != new.get("status");
            let since = list.get(at).and_then(|c| c.get("lastTransitionTime")).cloned();
            new["lastTransitionTime"] = if moved { now.into() } else { since.unwrap_or_else(|| now.into()) };
            list[at] = new;
        }
        None => {
            new["lastTransitionTime"] = now.into();
            list.push(new);
        }
    }
}

fn server_write(
    state: &mut State,
    call: &Call,
    resource: &Arc<Resource>,
    old: &Arc<Stored>,
    mut new: Value,
) -> Result<Arc<Stored>, Refusal> {
    if !state.config.no_managed_fields.contains(&resource.group_resource()) {
        let changes = managed::diff(resource, "status", &old.value, &new);
        let (api_version, now) = (resource.api_version(), state.now_text());
        let writer = Writer { manager: "kube-apiserver", subresource: "status", api_version: &api_version, now: &now };
        managed::track_update(&mut new, managed::entries(&old.value), &changes, &writer);
    }
    let call = Call { resource: resource.clone(), sub: "eviction".into(), ..call.clone() };
    finish(state, &call, old, new)
}

/// Takes one disruption off the budget, or says why not.
fn check_and_decrement(
    state: &mut State,
    call: &Call,
    resource: &Arc<Resource>,
    budget: &Arc<Stored>,
    dry_run: bool,
) -> Result<(), Refusal> {
    let name = meta_str(&budget.value, "name").to_owned();
    let generation = meta(&budget.value, "generation").and_then(Value::as_i64).unwrap_or(0);
    if number(&budget.value, "status", "observedGeneration") < generation {
        return Err(being_processed(&name));
    }
    let allowed = number(&budget.value, "status", "disruptionsAllowed");
    let forbidden = |why: &str, cause: &str| {
        let mut refusal = Refusal::forbidden(resource, &name, why);
        refusal.message = format!("poddisruptionbudget.policy {name:?} is forbidden: {why}");
        refusal.with_cause(
            "DisruptionBudget",
            format!("The disruption budget {name} does not allow evicting pods currently: {cause}"),
        )
    };
    if allowed < 0 {
        return Err(forbidden("pdb disruptions allowed is negative", "pdb disruptions allowed is negative"));
    }
    let disrupted =
        budget.value.get("status").and_then(|s| s.get("disruptedPods")).and_then(Value::as_object).map_or(0, |m| m.len());
    if disrupted > MAX_DISRUPTED {
        return Err(forbidden(
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
            "too many pending evictions not confirmed by PDB controller",
        ));
    }
    if allowed == 0 {
        return Err(Refusal::too_many(CANNOT, None).with_cause("DisruptionBudget", why_blocked(&budget.value, &name)));
    }
    if dry_run {
        return Ok(());
    }
    let now = state.now_text();
    let mut new = (*budget.value).clone();
    new["status"]["disruptionsAllowed"] = (allowed - 1).into();
    new["status"]["disruptedPods"][&call.name] = now.clone().into();
    if allowed == 1 {
        let generation = number(&new, "status", "observedGeneration");
        let condition = json!({
            "type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": "", "observedGeneration": generation,
        });
        set_condition(&mut new, condition, &now);
    }
    server_write(state, call, resource, budget, new).map(|_| ())
}

/// Marks the pod as disrupted, then deletes it.
fn mark_and_delete(state: &mut State, call: &Call, key: &Key, options: &DeleteOptions) -> Result<(), Refusal> {
    let pods = call.resource.clone();
    let mut options = options.clone();
    if !options.dry_run {
        let old = state.get(&pods, key).cloned().ok_or_else(|| Refusal::not_found(&pods, &key.1))?;
        check_preconditions(&pods, &old.value, &options)?;
        let mut new = (*old.value).clone();
        let now = state.now_text();
        let condition = json!({
            "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting",
            "lastProbeTime": null,
        });
        set_condition(&mut new, condition, &now);
        // Written by the handler itself, past the field managers.
        let marked = finish(state, call, &old, new)?;
        if !options.resource_version.is_empty() {
            options.resource_version = marked.rv.to_string();
        }
    }
    match delete_one(state, call, &pods, key, &options)? {
        Outcome::Gone(_) | Outcome::Marked(_) => Ok(()),
    }
}

fn budgets_of(state: &State, pod: &Value) -> Vec<Arc<Stored>> {
    let Some(resource) = state.registry.find("policy", "v1", "poddisruptionbudgets") else {
        return Vec::new();
    };
    let namespace = meta_str(pod, "namespace");
    super::watch::scoped(&state.table(resource).objects, None, namespace, None)
        .filter(|(_, b)| label_selector_matches(b.value.get("spec").and_then(|s| s.get("selector")), pod))
        .map(|(_, b)| b.clone())
        .collect()
}

fn options_of(call: &Call) -> Result<DeleteOptions, Refusal> {
    let body = call.body_json()?;
    let text = |field: &str| body.get(field).and_then(Value::as_str).unwrap_or_default();
    let (kind, version) = (text("kind"), text("apiVersion"));
    if !matches!(kind, "" | "Eviction") {
        let short = version.rsplit('/').next().unwrap_or_default();
        let why = format!("converting ({version}.{kind}) to (policy.Eviction): unknown conversion");
        return Err(Refusal::bad_request(format!("{kind} in version {short:?} cannot be handled as a Eviction: {why}")));
    }
    let namespace = meta_str(&body, "namespace");
    if !namespace.is_empty() && namespace != call.namespace {
        let why = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Refusal::bad_request(why));
    }
    if meta_str(&body, "name") != call.name {
        return Err(Refusal::bad_request("name in URL does not match name in Eviction object"));
    }
    let mut options = DeleteOptions::from_value(body.get("deleteOptions").unwrap_or(&Value::Null));
    options.dry_run |= call.query.dry_run();
    Ok(options)
}

/// A warning for each field that an Eviction has not.
fn unknown_fields(call: &Call) -> Result<Vec<String>, Refusal> {
    let body = call.body_json()?;
    let known = ["apiVersion", "kind", "metadata", "deleteOptions"];
    let names = body.as_object().into_iter().flatten().map(|(name, _)| name).filter(|n| !known.contains(&n.as_str()));
    Ok(names.map(|name| format!("unknown field {name:?}")).collect())
}

/// One try. `attempt` counts from 0 and only grows after `Again`.
pub fn evict(state: &mut State, call: &Call, attempt: u32) -> Progress {
    match try_evict(state, call, attempt) {
        Ok(progress) => progress,
        Err(refusal) => Progress::Done(Err(refusal)),
    }
}

fn try_evict(state: &mut State, call: &Call, attempt: u32) -> Result<Progress, Refusal> {
    state.rbac_check(call)?;
    let original = options_of(call)?;
    state.warnings = unknown_fields(call)?;
    let key = call.key();
    let pod = state.get(&call.resource, &key).cloned().ok_or_else(|| Refusal::not_found(&call.resource, &call.name))?;
    if ignores_budgets(&pod.value) {
        let mut options = original.clone();
        if phase(&pod.value) == "Pending" && options.resource_version.is_empty() {
            options.resource_version = pod.rv.to_string();
        }
        return match mark_and_delete(state, call, &key, &options) {
            Ok(()) => Ok(Progress::Done(Ok(success()))),
            Err(refusal) if refusal.reason == "Conflict" && original.resource_version.is_empty() && attempt + 1 < RETRIES => {
                Ok(Progress::Again(RETRY_AFTER))
            }
            Err(refusal) => Err(refusal),
        };
    }
    let budgets = budgets_of(state, &pod.value);
    let mut options = original.clone();
    let mut unready_allowed = false;
    let mut budget_name = String::new();
    match budgets.as_slice() {
        [] => {}
        [budget] => {
            budget_name = meta_str(&budget.value, "name").to_owned();
            let policy = budget.value.get("spec").and_then(|s| s.get("unhealthyPodEvictionPolicy")).and_then(Value::as_str);
            let (healthy, needed) =
                (number(&budget.value, "status", "currentHealthy"), number(&budget.value, "status", "desiredHealthy"));
            unready_allowed = !is_ready(&pod.value) && (policy == Some("AlwaysAllow") || (healthy >= needed && needed > 0));
            if !unready_allowed {
                let resource =
                    state.registry.find("policy", "v1", "poddisruptionbudgets").cloned().ok_or_else(Refusal::no_such_path)?;
                check_and_decrement(state, call, &resource, budget, original.dry_run)?;
            }
        }
        _ => {
            let message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
            return Err(Refusal::new(500, "", message));
        }
    }
    if unready_allowed && options.resource_version.is_empty() {
        options.resource_version = pod.rv.to_string();
    }
    match mark_and_delete(state, call, &key, &options) {
        Ok(()) => Ok(Progress::Done(Ok(success()))),
        Err(refusal) if refusal.reason == "Conflict" && unready_allowed && original.resource_version.is_empty() => {
            Err(being_processed(&budget_name))
        }
        Err(refusal) => Err(refusal),
    }
}

/// `POST pods/NAME/binding`.
pub fn bind(state: &mut State, call: &Call) -> Result<Reply, Refusal> {
    let body = call.body_json()?;
    let kind = body.get("target").and_then(|t| t.get("kind")).and_then(Value::as_str).unwrap_or_default();
    if !matches!(kind, "" | "Node") {
        let cause = Cause::unsupported("target.kind", &kind.into(), &["Node", "<empty>"]);
        return Err(Refusal::new(500, "", format!("{}: {}", cause.field, cause.message)));
    }
    let target = body.get("target").and_then(|t| t.get("name")).and_then(Value::as_str).unwrap_or_default();
    if target.is_empty() {
        return Err(Refusal::invalid(&call.resource, &call.name, &[Cause::required("target.name", "")]));
    }
    let old = state.get(&call.resource, &call.key()).cloned().ok_or_else(|| Refusal::not_found(&call.resource, &call.name))?;
    let uid = meta_str(&body, "uid");
    if !uid.is_empty() && uid != meta_str(&old.value, "uid") {
        let key = (call.namespace.as_str(), call.name.as_str());
        return Err(Refusal::other_uid(&call.resource, key, uid, meta_str(&old.value, "uid")));
    }
    let taken = |why: String| {
        let mut refusal = Refusal::conflict(&call.resource, &call.name, &why);
        refusal.message = format!("Operation cannot be fulfilled on pods/binding {:?}: {why}", call.name);
        refusal.detail("kind", "pods/binding".into());
        refusal
    };
    if is_terminating(&old.value) {
        return Err(taken(format!("pod {} is being deleted, cannot be assigned to a host", call.name)));
    }
    if let Some(node) = super::store::node_name(&old.value) {
        return Err(taken(format!("pod {} is already assigned to node {node:?}", call.name)));
    }
    let mut new = (*old.value).clone();
    new["spec"]["nodeName"] = target.into();
    if let Some(annotations) = meta(&body, "annotations").and_then(Value::as_object) {
        let into = meta_mut(&mut new).entry("annotations").or_insert_with(|| json!({}));
        for (key, value) in annotations {
            into[key] = value.clone();
        }
    }
    let now = state.now_text();
    set_condition(&mut new, json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null}), &now);
    finish(state, call, &old, new)?;
    Ok(Reply::value(201, &json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})))
}
