//! What a real server refuses with 422: names, labels, finalizers of deleting objects, owners, immutable fields.
//! Only rules that a client of ours can run into; custom kinds are checked by their schema in `crd`.

use serde_json::{Map, Value, json};

use super::refusal::{Cause, Refusal};
use super::resource::Resource;
use super::select::label_selector_matches;
use super::write::{is_terminating, meta};

const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const QUALIFIED_NAME: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

fn wrapped(text: &str, inner: fn(char) -> bool) -> bool {
    let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    ends(text.chars().next()) && ends(text.chars().last()) && text.chars().all(inner)
}

fn name_chars(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

pub fn is_subdomain(text: &str) -> bool {
    let part_ok = |p: &str| wrapped(p, |c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    text.len() <= 253 && text.split('.').all(part_ok)
}

fn label_key_problem(key: &str) -> Option<String> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    if prefix.is_some_and(|p| !is_subdomain(p)) {
        return Some(format!("prefix part {SUBDOMAIN}"));
    }
    if name.len() > 63 {
        return Some("name part must be no more than 63 bytes".into());
    }
    (!wrapped(name, name_chars)).then(|| QUALIFIED_NAME.into())
}

fn label_value_problem(value: &str) -> Option<String> {
    if value.len() > 63 {
        return Some("must be no more than 63 bytes".into());
    }
    (!value.is_empty() && !wrapped(value, name_chars)).then(|| LABEL_VALUE.into())
}

fn labels(field: &str, labels: Option<&Value>, causes: &mut Vec<Cause>) {
    let Some(labels) = labels else { return };
    let Some(map) = labels.as_object() else {
        causes.push(Cause::invalid(field, format!("Invalid value: {labels}: must be a map of strings")));
        return;
    };
    for (key, value) in map {
        if let Some(problem) = label_key_problem(key) {
            causes.push(Cause::invalid(field, format!("Invalid value: {key:?}: {problem}")));
        }
        match value.as_str() {
            None => causes.push(Cause::invalid(field, format!("Invalid value: {value}: must be a string"))),
            Some(text) => {
                if let Some(problem) = label_value_problem(text) {
                    causes.push(Cause::invalid(field, format!("Invalid value: {text:?}: {problem}")));
                }
            }
        }
    }
}

fn metadata(resource: &Resource, name: &str, new: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    if old.is_none() {
        if name.is_empty() {
            causes.push(Cause::required("metadata.name", "name or generateName is required"));
        } else if resource.group == "rbac.authorization.k8s.io" {
            if name == "." || name == ".." || name.contains(['/', '%']) {
                causes.push(Cause::invalid("metadata.name", format!("Invalid value: {name:?}: may not contain '/' or '%'")));
            }
        } else if !is_subdomain(name) {
            causes.push(Cause::invalid("metadata.name", format!("Invalid value: {name:?}: {SUBDOMAIN}")));
        }
    }
    let changed = |field: &str| old.is_none_or(|o| meta(o, field) != meta(new, field));
    if changed("labels") {
        labels("metadata.labels", meta(new, "labels"), causes);
    }
    if changed("annotations")
        && let Some(map) = meta(new, "annotations").and_then(Value::as_object)
    {
        for key in map.keys() {
            if let Some(problem) = label_key_problem(&key.to_lowercase()) {
                causes.push(Cause::invalid("metadata.annotations", format!("Invalid value: {key:?}: {problem}")));
            }
        }
        let size: usize = map.iter().map(|(k, v)| k.len() + v.as_str().map_or(0, str::len)).sum();
        if map.values().any(|v| !v.is_string()) {
            causes.push(Cause::invalid("metadata.annotations", "Invalid value: must be a map of strings"));
        }
        if size > 262_144 {
            causes.push(Cause {
                reason: "FieldValueTooLong",
                message: "Too long: may not be more than 262144 bytes".into(),
                field: "metadata.annotations".into(),
            });
        }
    }
    let owners = meta(new, "ownerReferences").and_then(Value::as_array);
    let controllers = owners.map_or(0, |l| l.iter().filter(|o| o.get("controller") == Some(&json!(true))).count());
    if controllers > 1 {
        causes.push(Cause::invalid(
            "metadata.ownerReferences",
            "Invalid value: Only one reference can have Controller set to true. Found \"true\" in references for several owners",
        ));
    }
    if let Some(old) = old
        && is_terminating(old)
    {
        let empty = Vec::new();
        let list = |v: &Value| meta(v, "finalizers").and_then(Value::as_array).unwrap_or(&empty).clone();
        let before = list(old);
        let added: Vec<String> = list(new).iter().filter(|f| !before.contains(f)).map(ToString::to_string).collect();
        if !added.is_empty() {
            causes.push(Cause::forbidden(
                "metadata.finalizers",
                format!(
                    "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                    added.join(", ")
                ),
            ));
        }
    }
}

fn at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(value, |v, step| v.get(step))
}

/// (group, plural, path): 422 `field is immutable` when it changes.
const IMMUTABLE: &[(&str, &str, &str)] = &[
    ("apps", "daemonsets", "spec.selector"),
    ("apps", "deployments", "spec.selector"),
    ("apps", "replicasets", "spec.selector"),
    ("apps", "controllerrevisions", "data"),
    ("storage.k8s.io", "storageclasses", "provisioner"),
    ("storage.k8s.io", "storageclasses", "parameters"),
    ("storage.k8s.io", "volumeattachments", "spec"),
    ("storage.k8s.io", "csidrivers", "spec.attachRequired"),
    ("resource.k8s.io", "resourceclaims", "spec"),
    ("resource.k8s.io", "resourceslices", "spec.driver"),
    ("resource.k8s.io", "resourceslices", "spec.nodeName"),
    ("scheduling.k8s.io", "priorityclasses", "value"),
    ("rbac.authorization.k8s.io", "rolebindings", "roleRef"),
    ("rbac.authorization.k8s.io", "clusterrolebindings", "roleRef"),
    ("", "secrets", "type"),
    ("batch", "jobs", "spec.template"),
    ("batch", "jobs", "spec.selector"),
];

fn immutable(resource: &Resource, new: &Value, old: &Value, causes: &mut Vec<Cause>) {
    for (_, _, path) in IMMUTABLE.iter().filter(|(group, plural, _)| resource.is(group, plural)) {
        if at(old, path) != at(new, path) {
            let shown = match resource.group.as_str() {
                "storage.k8s.io" => Value::Null,
                _ => at(new, path).cloned().unwrap_or_default(),
            };
            if resource.plural == "priorityclasses" {
                causes.push(Cause::forbidden(*path, "may not be changed in an update."));
                continue;
            }
            causes.push(Cause::invalid(*path, format!("Invalid value: {shown}: field is immutable")));
        }
    }
    if matches!(resource.plural.as_str(), "secrets" | "configmaps") && old.get("immutable") == Some(&json!(true)) {
        for field in ["data", "binaryData"].into_iter().filter(|f| old.get(*f) != new.get(*f)) {
            causes.push(Cause::forbidden(field, "field is immutable when `immutable` is set"));
        }
    }
    if resource.is("apps", "statefulsets") {
        let frozen = |v: &Value| {
            let mut spec = v.get("spec").and_then(Value::as_object).cloned().unwrap_or_default();
            for field in [
                "replicas",
                "ordinals",
                "template",
                "updateStrategy",
                "revisionHistoryLimit",
                "persistentVolumeClaimRetentionPolicy",
                "minReadySeconds",
            ] {
                spec.remove(field);
            }
            spec
        };
        if frozen(old) != frozen(new) {
            causes.push(Cause::forbidden("spec", "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"));
        }
    }
}

fn frozen_pod_spec(pod: &Value) -> Map<String, Value> {
    let mut spec = pod.get("spec").and_then(Value::as_object).cloned().unwrap_or_default();
    for list in ["containers", "initContainers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(fields) = container.as_object_mut() {
                fields.remove("image");
            }
        }
    }
    for field in ["activeDeadlineSeconds", "tolerations", "schedulingGates", "ephemeralContainers"] {
        spec.remove(field);
    }
    if spec.get("terminationGracePeriodSeconds").and_then(Value::as_i64).is_some_and(|g| g == 1) {
        spec.remove("terminationGracePeriodSeconds");
    }
    spec
}

fn pod(new: &Value, old: &Value, causes: &mut Vec<Cause>) {
    if new.get("spec") == old.get("spec") {
        return;
    }
    if frozen_pod_spec(old) != frozen_pod_spec(new) {
        causes.push(Cause::forbidden("spec", "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"));
    }
    let empty = Vec::new();
    let tolerations = |v: &Value| at(v, "spec.tolerations").and_then(Value::as_array).unwrap_or(&empty).clone();
    let now = tolerations(new);
    if tolerations(old).iter().any(|t| !now.contains(t)) {
        causes.push(Cause::forbidden("spec.tolerations", "existing toleration can not be modified except its tolerationSeconds"));
    }
}

fn workload(new: &Value, causes: &mut Vec<Cause>) {
    let selector = at(new, "spec.selector");
    let empty = selector.is_none_or(|s| s.as_object().is_none_or(Map::is_empty));
    if empty {
        causes.push(Cause::invalid("spec.selector", "Invalid value: {}: empty selector is invalid for deployment"));
        return;
    }
    let template = at(new, "spec.template").cloned().unwrap_or_default();
    labels("spec.template.labels", meta(&template, "labels"), causes);
    if !label_selector_matches(selector, &template) {
        let shown = meta(&template, "labels").cloned().unwrap_or_default();
        causes.push(Cause::invalid(
            "spec.template.metadata.labels",
            format!("Invalid value: {shown}: `selector` does not match template `labels`"),
        ));
    }
    containers("spec.template.spec", template.get("spec"), causes);
}

fn containers(path: &str, spec: Option<&Value>, causes: &mut Vec<Cause>) {
    let list = spec.and_then(|s| s.get("containers")).and_then(Value::as_array);
    if list.is_none_or(Vec::is_empty) {
        causes.push(Cause {
            reason: "FieldValueRequired",
            message: "Required value".into(),
            field: format!("{path}.containers"),
        });
    }
    for (n, container) in list.into_iter().flatten().enumerate() {
        if container.get("name").and_then(Value::as_str).is_none_or(str::is_empty) {
            causes.push(Cause {
                reason: "FieldValueRequired",
                message: "Required value".into(),
                field: format!("{path}.containers[{n}].name"),
            });
        }
    }
}

/// All rules; `name` is what the message shows.
pub fn object(resource: &Resource, name: &str, new: &Value, old: Option<&Value>) -> Result<(), Refusal> {
    let mut causes = Vec::new();
    metadata(resource, name, new, old, &mut causes);
    if let Some(old) = old {
        immutable(resource, new, old, &mut causes);
    }
    match (resource.group.as_str(), resource.plural.as_str(), old) {
        ("", "pods", Some(old)) => pod(new, old, &mut causes),
        ("", "pods", None) => containers("spec", new.get("spec"), &mut causes),
        ("apps", "daemonsets" | "deployments" | "replicasets" | "statefulsets", _)
            if old.is_none_or(|o| o.get("spec") != new.get("spec")) =>
        {
            workload(new, &mut causes);
        }
        ("policy", "poddisruptionbudgets", _)
            if at(new, "spec.minAvailable").is_some() && at(new, "spec.maxUnavailable").is_some() =>
        {
            causes.push(Cause::invalid("spec", "Invalid value: minAvailable and maxUnavailable cannot be both set"));
        }
        _ => {}
    }
    if causes.is_empty() { Ok(()) } else { Err(Refusal::invalid(resource, name, &causes)) }
}
