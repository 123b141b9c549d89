//! Reviews: access answered from the roles, and who am I. Nothing is stored.

use serde_json::{Value, json};

use super::call::{Call, Identity};
use super::handler::Reply;
use super::managed::{self, Writer};
use super::rbac::Ask;
use super::refusal::Refusal;
use super::state::State;

pub fn create(state: &mut State, call: &Call) -> Result<Reply, Refusal> {
    let mut body = call.body_json()?;
    body["apiVersion"] = call.resource.api_version().into();
    body["kind"] = call.resource.kind.clone().into();
    if !body.get("metadata").is_some_and(Value::is_object) {
        body["metadata"] = json!({});
    }
    match call.resource.kind.as_str() {
        "SelfSubjectReview" => {
            body["status"] = json!({"userInfo": {"username": call.who.user, "groups": call.who.groups}});
        }
        "SelfSubjectRulesReview" => {
            body["status"] = json!({
                "resourceRules": state.rules_of(&call.who), "nonResourceRules": [], "incomplete": false,
            });
        }
        kind => {
            let spec = body.get("spec").cloned().unwrap_or_default();
            let who = if kind == "SubjectAccessReview" {
                let text = |v: Option<&Value>| v.and_then(Value::as_str).unwrap_or_default().to_owned();
                let groups = spec.get("groups").and_then(Value::as_array);
                super::call::Identity {
                    client: call.who.client.clone(),
                    user: text(spec.get("user")),
                    groups: groups.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect(),
                }
            } else {
                call.who.clone()
            };
            let attributes = spec.get("resourceAttributes").cloned().unwrap_or_default();
            let text = |key: &str| attributes.get(key).and_then(Value::as_str).unwrap_or_default();
            let ask = Ask {
                verb: text("verb"),
                group: text("group"),
                resource: text("resource"),
                sub: text("subresource"),
                namespace: text("namespace"),
                name: text("name"),
            };
            let other = spec.get("nonResourceAttributes").filter(|a| !a.is_null());
            check_spec(kind, &spec, attributes.is_null() == other.is_none())?;
            let reason = match other {
                // No roles over paths are kept: what is public is everybody's.
                Some(path) => path_reason(state, &who, path),
                None => state.reason(&who, &ask),
            };
            body["status"] = json!({"allowed": reason.is_some()});
            if let Some(reason) = reason.filter(|r| !r.is_empty()) {
                body["status"]["reason"] = reason.into();
            }
        }
    }
    let (api_version, now) = (call.resource.api_version(), state.now_text());
    let writer = Writer { manager: &call.manager, subresource: "", api_version: &api_version, now: &now };
    let mut owned = managed::owned(&call.resource, &body);
    owned.remove("f:status");
    managed::store(&mut body, vec![managed::new_entry("Update", &writer, owned)]);
    Ok(Reply::value(201, &body))
}

fn check_spec(kind: &str, spec: &Value, ill_asked: bool) -> Result<(), Refusal> {
    let refused = |field: &str, why: String| {
        let message = format!(".authorization.k8s.io \"\" is invalid: {field}: {why}");
        let mut refusal = Refusal::new(422, "Invalid", message);
        refusal.detail("group", "authorization.k8s.io".into());
        refusal.detail("causes", json!([{"reason": "FieldValueInvalid", "message": why, "field": field}]));
        Err(refusal)
    };
    if ill_asked {
        let why = "Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified";
        return refused("spec", why.into());
    }
    let nobody = |field: &str| spec.get(field).is_none_or(|v| v.as_str() == Some("") || v.as_array().is_some_and(Vec::is_empty));
    if kind == "SubjectAccessReview" && nobody("user") && nobody("groups") {
        return refused("spec.user", "Invalid value: \"\": at least one of user or group must be specified".into());
    }
    Ok(())
}

const PUBLIC: &[&str] = &["/healthz", "/livez", "/readyz", "/version", "/version/"];

fn path_reason(state: &mut State, who: &Identity, asked: &Value) -> Option<String> {
    let ask = Ask { verb: "*", group: "*", resource: "*", sub: "", namespace: "", name: "" };
    let all = state.reason(who, &ask);
    let path = asked.get("path").and_then(Value::as_str).unwrap_or_default();
    let public = PUBLIC.contains(&path) && asked.get("verb").and_then(Value::as_str) == Some("get");
    let binding = "system:public-info-viewer";
    let text =
        format!("RBAC: allowed by ClusterRoleBinding {binding:?} of ClusterRole {binding:?} to Group \"system:authenticated\"");
    all.or_else(|| public.then_some(text))
}
