//! The nearest kubectl command of an API write: shown beside it, so that a person could have done the same by hand.

use serde_json::Value;

use super::request::{Target, Verb};

/// What kubectl calls one object of a resource.
pub fn singular(resource: &str) -> &str {
    match resource {
        "networkpolicies" => "networkpolicy",
        "priorityclasses" => "priorityclass",
        other => other.strip_suffix('s').unwrap_or(other),
    }
}

/// `body` is the request's JSON, `Null` when it has none or it is no JSON.
pub fn equivalent(target: &Target, body: &Value) -> String {
    let namespace = if target.namespace.is_empty() { String::new() } else { format!(" -n {}", target.namespace) };
    let object = format!("{} {}", singular(&target.resource), target.name);
    let dry_run = if target.dry_run { " --dry-run=server" } else { "" };
    match (target.verb, target.subresource.as_str()) {
        (Verb::Create, "eviction") => {
            format!(
                "kubectl create --raw /api/v1/namespaces/{}/pods/{}/eviction -f - <<< {}{dry_run}",
                target.namespace,
                target.name,
                quoted(body)
            )
        }
        (Verb::Create, _) => format!("kubectl create{namespace}{dry_run} -f - <<< {}", quoted(&summary(body))),
        (Verb::Delete, _) => {
            let grace = body
                .get("gracePeriodSeconds")
                .and_then(Value::as_i64)
                .map(|s| format!(" --grace-period={s}"))
                .unwrap_or_default();
            format!("kubectl delete{namespace} {object}{grace}{dry_run}")
        }
        (Verb::DeleteCollection, _) => format!("kubectl delete{namespace} {} --all{dry_run}", target.resource),
        (Verb::Update, "") => format!("kubectl replace{namespace}{dry_run} -f - <<< {}", quoted(&summary(body))),
        (Verb::Update, subresource) => {
            let part = body.get(subresource).cloned().unwrap_or(Value::Null);
            patch(&namespace, &object, subresource, &Value::from_iter([(subresource, part)]), dry_run)
        }
        (Verb::Patch, "") if target.resource == "nodes" => {
            node_patch(&target.name, body, dry_run).unwrap_or_else(|| patch(&namespace, &object, "", body, dry_run))
        }
        (Verb::Patch, subresource) => patch(&namespace, &object, subresource, body, dry_run),
        _ => format!("kubectl {}{namespace} {object}", target.verb.as_str()),
    }
}

fn patch(namespace: &str, object: &str, subresource: &str, body: &Value, dry_run: &str) -> String {
    let subresource = if subresource.is_empty() { String::new() } else { format!(" --subresource={subresource}") };
    let kind = if body.is_array() { "json" } else { "merge" };
    format!("kubectl patch{namespace} {object}{subresource} --type={kind}{dry_run} -p {}", quoted(&without_preconditions(body)))
}

/// Labels, annotations and the cordon of a node have commands of their own.
fn node_patch(node: &str, body: &Value, dry_run: &str) -> Option<String> {
    let mut commands = Vec::new();
    let empty = serde_json::Map::new();
    for (top, value) in body.as_object()? {
        match top.as_str() {
            "metadata" => {
                for (part, value) in value.as_object()? {
                    let verb = match part.as_str() {
                        "labels" => "label",
                        "annotations" => "annotate",
                        "uid" | "resourceVersion" => continue,
                        _ => return None,
                    };
                    let pairs: Vec<String> =
                        value.as_object().unwrap_or(&empty).iter().map(|(key, value)| pair(key, value)).collect();
                    commands.push(format!("kubectl {verb} node {node} --overwrite{dry_run} {}", pairs.join(" ")));
                }
            }
            "spec" => {
                let spec = value.as_object()?;
                if spec.len() != 1 {
                    return None;
                }
                let cordon = spec.get("unschedulable")?.as_bool() == Some(true);
                commands.push(format!("kubectl {}cordon {node}{dry_run}", if cordon { "" } else { "un" }));
            }
            _ => return None,
        }
    }
    (!commands.is_empty()).then(|| commands.join(" && "))
}

fn pair(key: &str, value: &Value) -> String {
    match value.as_str() {
        Some(text) if text.chars().all(|c| c.is_ascii_alphanumeric() || "._-/".contains(c)) => format!("{key}={text}"),
        Some(text) => format!("'{key}={}'", text.replace('\'', r"'\''")),
        None => format!("{key}-"),
    }
}

fn without_preconditions(body: &Value) -> Value {
    let mut body = body.clone();
    if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("uid");
        metadata.remove("resourceVersion");
        if metadata.is_empty() {
            body.as_object_mut().map(|body| body.remove("metadata"));
        }
    }
    body
}

/// Kind and name of a body; the whole is too long for a line.
fn summary(body: &Value) -> Value {
    let name = body.pointer("/metadata/name").or_else(|| body.pointer("/metadata/generateName")).cloned().unwrap_or(Value::Null);
    serde_json::json!({"kind": body.get("kind"), "metadata": {"name": name}, "...": "..."})
}

fn quoted(body: &Value) -> String {
    format!("'{}'", body.to_string().replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use http::Method;
    use serde_json::json;

    use super::*;

    fn said(method: Method, uri: &str, body: Value) -> String {
        equivalent(&Target::of(&method, &uri.parse().unwrap()), &body)
    }

    #[test]
    fn node_patches_read_as_a_person_would_type_them() {
        let body = json!({
            "metadata": {"uid": "u", "resourceVersion": "7", "labels": {"lockkeeper.dev/plugin.ns.gpu": null, "lockkeeper.dev/loader.ns.gpu": "2.0"},
                "annotations": {"a": "{\"x\":1}"}},
            "spec": {"unschedulable": true},
        });
        assert_eq!(
            said(Method::PATCH, "/api/v1/nodes/n1", body),
            "kubectl annotate node n1 --overwrite 'a={\"x\":1}' && kubectl label node n1 --overwrite lockkeeper.dev/loader.ns.gpu=2.0 \
             lockkeeper.dev/plugin.ns.gpu- && kubectl cordon n1"
        );
        assert_eq!(said(Method::PATCH, "/api/v1/nodes/n1", json!({"spec": {"unschedulable": null}})), "kubectl uncordon n1");
    }

    #[test]
    fn other_writes_have_a_command_too() {
        assert_eq!(
            said(Method::DELETE, "/api/v1/namespaces/ns/pods/p", json!({"preconditions": {"uid": "u"}, "gracePeriodSeconds": 5})),
            "kubectl delete -n ns pod p --grace-period=5"
        );
        assert_eq!(
            said(
                Method::PUT,
                "/apis/lockkeeper.dev/v1alpha1/namespaces/ns/nodehandoffs/h/status",
                json!({"status": {"phase": "Done"}})
            ),
            r#"kubectl patch -n ns nodehandoff h --subresource=status --type=merge -p '{"status":{"phase":"Done"}}'"#
        );
        assert!(
            said(Method::POST, "/api/v1/namespaces/ns/pods/p/eviction", json!({"kind": "Eviction"}))
                .starts_with("kubectl create --raw")
        );
    }
}
