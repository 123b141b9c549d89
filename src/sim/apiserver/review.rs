//! Reviews: access answered from the roles, and who am I. Nothing is stored.

use serde_json::{Value, json};

use super::call::Call;
use super::handler::Reply;
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
            let allowed = if attributes.is_null() { true } else { state.may(&who, &ask) };
            body["status"] = json!({"allowed": allowed});
            if allowed && state.config.rbac {
                body["status"]["reason"] = "RBAC: allowed".into();
            }
        }
    }
    Ok(Reply::value(201, &body))
}
