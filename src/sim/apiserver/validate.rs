//! What a real server refuses with 422: names, labels, finalizers of deleting objects, owners, immutable fields.
//! Only rules that a client of ours can run into; custom kinds are checked by their schema in `crd`.

use serde_json::{Value, json};

use super::refusal::{Cause, Refusal};
use super::resource::Resource;
use super::validate_kinds;
use super::write::{is_terminating, meta};

const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const QUALIFIED_NAME: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
pub const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

pub fn wrapped(text: &str, inner: fn(char) -> bool) -> bool {
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

pub fn label_key_problem(key: &str) -> Option<String> {
    if key.matches('/').count() > 1 {
        return Some(format!(
            "a valid label key must consist of {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
            QUALIFIED_NAME.trim_start_matches("name part must consist of ")
        ));
    }
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

pub fn label_value_problem(value: &str) -> Option<String> {
    if value.len() > 63 {
        return Some("must be no more than 63 bytes".into());
    }
    (!value.is_empty() && !wrapped(value, name_chars)).then(|| LABEL_VALUE.into())
}

pub fn labels(field: &str, labels: Option<&Value>, causes: &mut Vec<Cause>) {
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

/// Fields in their order, as Go prints a struct as JSON; absent ones are left out.
pub fn go_struct(fields: &[(&str, Option<&Value>)]) -> String {
    let shown: Vec<String> = fields.iter().filter_map(|(name, value)| Some(format!("{name:?}:{}", (*value)?))).collect();
    format!("{{{}}}", shown.join(","))
}

fn owners(object: &Value, causes: &mut Vec<Cause>) {
    let Some(list) = meta(object, "ownerReferences").and_then(Value::as_array) else { return };
    let text = |owner: &Value, field: &str| owner.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    for (n, owner) in list.iter().enumerate() {
        for field in ["kind", "name", "uid"].into_iter().filter(|f| text(owner, f).is_empty()) {
            causes.push(Cause::required(format!("metadata.ownerReferences[{n}].{field}"), "must not be empty"));
        }
    }
    let mut controllers = list.iter().filter(|o| o.get("controller") == Some(&json!(true)));
    if let (Some(a), Some(b)) = (controllers.next(), controllers.next()) {
        let named = |o: &Value| format!("{}/{}", text(o, "kind"), text(o, "name"));
        let ordered: Vec<String> = list
            .iter()
            .map(|o| {
                let known = ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];
                go_struct(&known.map(|f| (f, o.get(f))))
            })
            .collect();
        causes.push(Cause::invalid(
            "metadata.ownerReferences",
            format!(
                "Invalid value: [{}]: Only one reference can have Controller set to true. Found \"true\" in references for {} and {}",
                ordered.join(","),
                named(a),
                named(b)
            ),
        ));
    }
}

/// Builtin kinds want a domain before a finalizer's name; custom kinds only warn, see [`finalizer_warnings`].
fn finalizers(object: &Value, causes: &mut Vec<Cause>) {
    for (n, name) in meta(object, "finalizers").and_then(Value::as_array).into_iter().flatten().enumerate() {
        let text = name.as_str().unwrap_or_default();
        let standard = matches!(text, "orphan" | "foregroundDeletion" | "kubernetes");
        let field = format!("metadata.finalizers[{n}]");
        if let Some(problem) = label_key_problem(text) {
            causes.push(Cause::invalid(field, format!("Invalid value: {text:?}: {problem}")));
        } else if !text.contains('/') && !standard {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            causes.push(Cause::invalid(field, format!("Invalid value: {text:?}: {why}")));
        }
    }
}

/// What a server says of the finalizers of a custom object.
pub fn finalizer_warnings(object: &Value) -> Vec<String> {
    let list = meta(object, "finalizers").and_then(Value::as_array);
    let bare = |name: &&str| !name.contains('/') && !matches!(*name, "orphan" | "foregroundDeletion");
    list.into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .filter(bare)
        .map(|name| format!("metadata.finalizers: {name:?}: prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers"))
        .collect()
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
            let prefix = meta(new, "generateName").and_then(Value::as_str).unwrap_or_default();
            if !prefix.is_empty() && !is_subdomain(&format!("{}a", prefix.trim_end_matches('-'))) {
                causes.push(Cause::invalid("metadata.generateName", format!("Invalid value: {prefix:?}: {SUBDOMAIN}")));
            }
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
    if changed("ownerReferences") {
        owners(new, causes);
    }
    if changed("finalizers") && !resource.is_custom() {
        finalizers(new, causes);
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

pub fn at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(value, |v, step| v.get(step))
}

/// (group, plural, path): 422 `field is immutable` when it changes.
const IMMUTABLE: &[(&str, &str, &str)] = &[
    ("apps", "daemonsets", "spec.selector"),
    ("apps", "deployments", "spec.selector"),
    ("apps", "replicasets", "spec.selector"),
    ("apps", "statefulsets", "spec.serviceName"),
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

fn go_role_ref(binding: &Value) -> Value {
    let text = |field: &str| at(binding, &format!("roleRef.{field}")).cloned().unwrap_or_default();
    json!({"APIGroup": text("apiGroup"), "Kind": text("kind"), "Name": text("name")})
}

fn immutable(resource: &Resource, new: &Value, old: &Value, causes: &mut Vec<Cause>) {
    for (_, _, path) in IMMUTABLE.iter().filter(|(group, plural, _)| resource.is(group, plural)) {
        if at(old, path) != at(new, path) {
            let shown = match (resource.group.as_str(), *path) {
                (_, "spec.attachRequired") => at(new, path).cloned().unwrap_or_default(),
                ("storage.k8s.io" | "resource.k8s.io", _) => Value::Null,
                ("rbac.authorization.k8s.io", _) => go_role_ref(new),
                _ => at(new, path).cloned().unwrap_or_default(),
            };
            // So spelled there.
            let path = if *path == "spec.attachRequired" { &"spec.attachedRequired" } else { path };
            if resource.plural == "priorityclasses" {
                causes.push(Cause::forbidden(*path, "may not be changed in an update."));
                continue;
            }
            causes.push(Cause::invalid(*path, format!("Invalid value: {shown}: field is immutable")));
        }
    }
    if matches!(resource.plural.as_str(), "secrets" | "configmaps") && old.get("immutable") == Some(&json!(true)) {
        if new.get("immutable") != Some(&json!(true)) {
            causes.push(Cause::forbidden("immutable", "field is immutable when `immutable` is set"));
        }
        for field in ["data", "binaryData"].into_iter().filter(|f| old.get(*f) != new.get(*f)) {
            causes.push(Cause::forbidden(field, "field is immutable when `immutable` is set"));
        }
    }
    if resource.is("apps", "statefulsets") {
        let frozen = |v: &Value| {
            let mut spec = v.get("spec").and_then(Value::as_object).cloned().unwrap_or_default();
            for field in [
                "serviceName",
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

/// Times of deletion are the server's: what a client sends of them must be what is there. A change that leaves them out keeps them.
pub fn frozen_metadata(old: &Value, new: &Value) -> Vec<Cause> {
    let changed = |field: &&str| {
        let sent = meta(new, field).filter(|v| !v.is_null());
        sent.is_some_and(|sent| meta(old, field) != Some(sent))
    };
    ["deletionTimestamp", "deletionGracePeriodSeconds"]
        .iter()
        .filter(|f| changed(f))
        .map(|field| {
            let shown = meta(new, field).cloned().unwrap_or_default();
            Cause::invalid(format!("metadata.{field}"), format!("Invalid value: {shown}: field is immutable"))
        })
        .collect()
}

/// All rules; `name` is what the message shows, `causes` what was found already.
pub fn object(resource: &Resource, name: &str, new: &Value, old: Option<&Value>, mut causes: Vec<Cause>) -> Result<(), Refusal> {
    metadata(resource, name, new, old, &mut causes);
    // The order of the real one's messages.
    let early = resource.plural == "daemonsets";
    if let Some(old) = old.filter(|_| early) {
        immutable(resource, new, old, &mut causes);
    }
    validate_kinds::object(resource, new, old, &mut causes);
    if let Some(old) = old.filter(|_| !early) {
        immutable(resource, new, old, &mut causes);
    }
    if causes.is_empty() { Ok(()) } else { Err(Refusal::invalid(resource, name, &causes)) }
}
