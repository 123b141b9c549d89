//! What a real server refuses of one kind: pods, workloads, budgets, config maps, leases, roles. Rules that hold for all kinds are in `validate`.

use serde_json::{Map, Value, json};

use super::refusal::Cause;
use super::resource::Resource;
use super::select::label_selector_matches;
use super::validate::{SUBDOMAIN, at, go_struct, is_subdomain, labels, wrapped};
use super::write::meta;

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const CONFIG_KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
const PERCENT: &str = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')";
const POD_UPDATE: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

fn list<'a>(value: &'a Value, path: &str) -> &'a [Value] {
    at(value, path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn required(field: String) -> Cause {
    Cause { reason: "FieldValueRequired", message: "Required value".into(), field }
}

/// The sources of a volume in the order in which a real server looks at them, each with a field that it must have. Two are spelled otherwise there.
const SOURCES: &[(&str, &str)] = &[
    ("emptyDir", ""),
    ("hostPath", "path"),
    ("gitRepo", ""),
    ("gcePersistentDisk", ""),
    ("awsElasticBlockStore", ""),
    ("secret", "secretName"),
    ("nfs", ""),
    ("iscsi", ""),
    ("glusterfs", ""),
    ("flocker", ""),
    ("persistentVolumeClaim", "claimName"),
    ("rbd", ""),
    ("cinder", ""),
    ("cephfs", ""),
    ("quobyte", ""),
    ("downwardAPI", ""),
    ("fc", ""),
    ("flexVolume", ""),
    ("configMap", "name"),
    ("azureFile", ""),
    ("vsphereVolume", ""),
    ("photonPersistentDisk", ""),
    ("portworxVolume", ""),
    ("azureDisk", ""),
    ("storageos", ""),
    ("projected", ""),
    ("scaleIO", ""),
    ("csi", ""),
    ("ephemeral", ""),
    ("image", ""),
];

/// The names of the valid volumes.
fn volumes<'a>(path: &str, spec: &'a Value, causes: &mut Vec<Cause>) -> Vec<&'a Value> {
    let mut names: Vec<&Value> = Vec::new();
    for (n, volume) in list(spec, "volumes").iter().enumerate() {
        let at = format!("{path}.volumes[{n}]");
        let mut found = Vec::new();
        let mut sources = SOURCES.iter().filter_map(|(source, needs)| Some((source, needs, volume.get(*source)?)));
        if let Some((source, needs, first)) = sources.next()
            && !needs.is_empty()
            && first.get(*needs).and_then(Value::as_str).is_none_or(str::is_empty)
        {
            found.push(required(format!("{at}.{source}.{needs}")));
        }
        for (source, ..) in sources {
            let spelled = match *source {
                "downwardAPI" => "downwarAPI",
                "cephfs" => "cephFS",
                other => other,
            };
            found.push(Cause::forbidden(format!("{at}.{spelled}"), "may not specify more than 1 volume type"));
        }
        let name = volume.get("name").unwrap_or(&Value::Null);
        let text = name.as_str().unwrap_or_default();
        if text.is_empty() {
            found.push(required(format!("{at}.name")));
        } else if !wrapped(text, |c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-') {
            found.push(Cause::invalid(format!("{at}.name"), format!("Invalid value: {text:?}: {LABEL}")));
        }
        if names.contains(&name) {
            found.push(duplicate(format!("{at}.name"), name));
        }
        if found.is_empty() {
            names.push(name);
        }
        causes.append(&mut found);
    }
    names
}

fn pod_spec(path: &str, spec: Option<&Value>, causes: &mut Vec<Cause>) {
    let empty = json!({});
    let spec = spec.unwrap_or(&empty);
    let containers = list(spec, "containers");
    let volumes = volumes(path, spec, causes);
    if containers.is_empty() {
        causes.push(required(format!("{path}.containers")));
    }
    for part in ["containers", "initContainers"] {
        for (n, container) in list(spec, part).iter().enumerate() {
            let at = format!("{path}.{part}[{n}]");
            let text = |field: &str| container.get(field).and_then(Value::as_str).unwrap_or_default();
            let name = text("name");
            if name.is_empty() {
                causes.push(required(format!("{at}.name")));
            } else if !wrapped(name, |c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-') {
                causes.push(Cause::invalid(format!("{at}.name"), format!("Invalid value: {name:?}: {LABEL}")));
            } else if list(spec, part).iter().take(n).any(|c| c.get("name") == container.get("name")) {
                causes.push(duplicate(format!("{at}.name"), &json!(name)));
            }
            if text("image").is_empty() {
                causes.push(required(format!("{at}.image")));
            }
            for (m, mount) in list(container, "volumeMounts").iter().enumerate() {
                let name = mount.get("name").cloned().unwrap_or_default();
                if !volumes.contains(&&name) {
                    causes.push(Cause {
                        reason: "FieldValueNotFound",
                        message: format!("Not found: {name}"),
                        field: format!("{at}.volumeMounts[{m}].name"),
                    });
                }
            }
        }
    }
    let policy = spec.get("restartPolicy").and_then(Value::as_str).unwrap_or("Always");
    if path == "spec" && !matches!(policy, "Always" | "OnFailure" | "Never") {
        causes.push(Cause::unsupported("spec.restartPolicy", &policy.into(), &["Always", "OnFailure", "Never"]));
    }
    if let Some(node) = spec.get("nodeName").and_then(Value::as_str).filter(|n| !n.is_empty() && !is_subdomain(n)) {
        causes.push(Cause::invalid(format!("{path}.nodeName"), format!("Invalid value: {node:?}: {SUBDOMAIN}")));
    }
}

fn duplicate(field: String, shown: &Value) -> Cause {
    Cause { reason: "FieldValueDuplicate", message: format!("Duplicate value: {shown}"), field }
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

fn pod_update(new: &Value, old: &Value, causes: &mut Vec<Cause>) {
    if new.get("spec") == old.get("spec") {
        return;
    }
    pod_spec("spec", new.get("spec"), causes);
    for part in ["containers", "initContainers"] {
        let path = format!("spec.{part}");
        if list(new, &path).len() != list(old, &path).len() {
            causes.push(Cause::forbidden(path, "pod updates may not add or remove containers"));
            return;
        }
    }
    let deadline = |pod: &Value| at(pod, "spec.activeDeadlineSeconds").and_then(Value::as_i64);
    match (deadline(old), deadline(new)) {
        (Some(before), Some(now)) if now > before => {
            let why = format!("Invalid value: {now}: must be less than or equal to previous value");
            causes.push(Cause::invalid("spec.activeDeadlineSeconds", why));
            return;
        }
        (Some(_), None) => {
            let why = "Invalid value: null: must not update from a positive integer to nil value";
            causes.push(Cause::invalid("spec.activeDeadlineSeconds", why));
            return;
        }
        _ => {}
    }
    let now = list(new, "spec.tolerations");
    if list(old, "spec.tolerations").iter().any(|t| !now.contains(t)) {
        causes.push(Cause::forbidden("spec.tolerations", "existing toleration can not be modified except its tolerationSeconds"));
    }
    if frozen_pod_spec(old) != frozen_pod_spec(new) {
        causes.push(Cause::forbidden("spec", POD_UPDATE));
    }
}

fn workload(resource: &Resource, new: &Value, causes: &mut Vec<Cause>) {
    let selector = at(new, "spec.selector").filter(|s| !s.is_null());
    match selector {
        None => causes.push(required("spec.selector".into())),
        Some(s) if s.as_object().is_none_or(Map::is_empty) => {
            let why = format!("Invalid value: {{}}: empty selector is invalid for {}", resource.singular);
            causes.push(Cause::invalid("spec.selector", why));
        }
        Some(_) => {}
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
    pod_spec("spec.template.spec", template.get("spec"), causes);
    let policy = at(&template, "spec.restartPolicy").cloned().unwrap_or_else(|| json!("Always"));
    if policy != "Always" {
        causes.push(Cause::unsupported("spec.template.spec.restartPolicy", &policy, &["Always"]));
    }
    let replicas = at(new, "spec.replicas").and_then(Value::as_i64).unwrap_or(0);
    if replicas < 0 {
        causes.push(not_negative("spec.replicas", &json!(replicas)));
    }
    if resource.plural == "daemonsets" {
        daemon_strategy(new, causes);
    }
    let recreate = at(new, "spec.strategy.type").is_some_and(|t| t == "Recreate");
    if recreate && at(new, "spec.strategy.rollingUpdate").is_some() {
        let why = "may not be specified when strategy `type` is 'Recreate'";
        causes.push(Cause::forbidden("spec.strategy.rollingUpdate", why));
    }
}

fn not_negative(field: &str, shown: &Value) -> Cause {
    Cause::invalid(field, format!("Invalid value: {shown}: must be greater than or equal to 0"))
}

fn daemon_strategy(new: &Value, causes: &mut Vec<Cause>) {
    let empty = json!({});
    let strategy = at(new, "spec.updateStrategy").unwrap_or(&empty);
    let kind = strategy.get("type").and_then(Value::as_str).unwrap_or("RollingUpdate");
    if !matches!(kind, "RollingUpdate" | "OnDelete") {
        let rolling = strategy.get("rollingUpdate").unwrap_or(&Value::Null);
        let shown = go_struct(&[("Type", Some(&json!(kind))), ("RollingUpdate", Some(rolling))]);
        causes.push(Cause::unsupported_text("spec.updateStrategy", &shown, &["RollingUpdate", "OnDelete"]));
    }
    let zero = |field: &str| {
        let value = at(strategy, &format!("rollingUpdate.{field}"));
        value.is_some_and(|v| *v == json!(0) || *v == json!("0%"))
    };
    if kind == "RollingUpdate" && zero("maxUnavailable") && zero("maxSurge") {
        causes.push(Cause::required("spec.updateStrategy.rollingUpdate.maxUnavailable", "cannot be 0 when maxSurge is 0"));
    }
}

fn int_or_percent(field: &str, value: &Value, causes: &mut Vec<Cause>) {
    match value {
        Value::String(text) => match text.strip_suffix('%').and_then(|n| n.parse::<u64>().ok()) {
            None => causes.push(Cause::invalid(field, format!("Invalid value: {value}: {PERCENT}"))),
            Some(n) if n > 100 => {
                causes.push(Cause::invalid(field, format!("Invalid value: {value}: must not be greater than 100%")));
            }
            Some(_) => {}
        },
        value if value.as_i64().is_some_and(|n| n < 0) => causes.push(not_negative(field, value)),
        _ => {}
    }
}

fn budget(new: &Value, causes: &mut Vec<Cause>) {
    let (min, max) = (at(new, "spec.minAvailable"), at(new, "spec.maxUnavailable"));
    if min.is_some() && max.is_some() {
        let part = |field: &str| Some(at(new, &format!("spec.{field}")).unwrap_or(&Value::Null));
        let shown = go_struct(&[
            ("MinAvailable", part("minAvailable")),
            ("Selector", part("selector")),
            ("MaxUnavailable", part("maxUnavailable")),
            ("UnhealthyPodEvictionPolicy", part("unhealthyPodEvictionPolicy")),
        ]);
        causes
            .push(Cause::invalid("spec", format!("Invalid value: {shown}: minAvailable and maxUnavailable cannot be both set")));
    }
    if let Some(min) = min {
        int_or_percent("spec.minAvailable", min, causes);
    }
    if let Some(max) = max {
        int_or_percent("spec.maxUnavailable", max, causes);
    }
    let policy = at(new, "spec.unhealthyPodEvictionPolicy").filter(|p| !p.is_null());
    if let Some(policy) = policy.filter(|p| !matches!(p.as_str(), Some("AlwaysAllow" | "IfHealthyBudget"))) {
        causes.push(Cause::unsupported("spec.unhealthyPodEvictionPolicy", policy, &["AlwaysAllow", "IfHealthyBudget"]));
    }
    for field in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
        let path = format!("status.{field}");
        if let Some(value) = at(new, &path).filter(|v| v.as_i64().is_some_and(|n| n < 0)) {
            causes.push(not_negative(&path, value));
        }
    }
}

fn config_map(new: &Value, causes: &mut Vec<Cause>) {
    let keys = |field: &str| new.get(field).and_then(Value::as_object).map(|m| m.keys().collect::<Vec<_>>()).unwrap_or_default();
    let binary = keys("binaryData");
    let valid = |key: &str| !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c));
    for (field, names) in [("data", keys("data")), ("binaryData", binary.clone())] {
        for key in names {
            if !valid(key) {
                causes.push(Cause::invalid(format!("{field}[{key}]"), format!("Invalid value: {key:?}: {CONFIG_KEY}")));
            }
            if field == "data" && binary.contains(&key) {
                let why = format!("Invalid value: {key:?}: duplicate of key present in binaryData");
                causes.push(Cause::invalid(format!("data[{key}]"), why));
            }
        }
    }
}

fn lease(new: &Value, causes: &mut Vec<Cause>) {
    for field in ["leaseDurationSeconds", "leaseTransitions"] {
        let Some(n) = at(new, &format!("spec.{field}")).and_then(Value::as_i64) else { continue };
        if field == "leaseDurationSeconds" && n <= 0 {
            causes.push(Cause::invalid(format!("spec.{field}"), format!("Invalid value: {n}: must be greater than 0")));
        } else if n < 0 {
            causes.push(not_negative(&format!("spec.{field}"), &json!(n)));
        }
    }
}

/// All rules of the kind.
pub fn object(resource: &Resource, new: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    let changed = |part: &str| old.is_none_or(|o| o.get(part) != new.get(part));
    match (resource.group.as_str(), resource.plural.as_str(), old) {
        ("", "pods", Some(old)) => pod_update(new, old, causes),
        ("", "pods", None) => pod_spec("spec", new.get("spec"), causes),
        ("apps", "daemonsets" | "deployments" | "replicasets" | "statefulsets", _) if changed("spec") => {
            workload(resource, new, causes);
        }
        ("policy", "poddisruptionbudgets", _) if changed("spec") || changed("status") => budget(new, causes),
        ("", "configmaps", _) => config_map(new, causes),
        ("coordination.k8s.io", "leases", _) => lease(new, causes),
        ("rbac.authorization.k8s.io", "roles" | "clusterroles", _) => {
            for (n, rule) in list(new, "rules").iter().enumerate() {
                if list(rule, "verbs").is_empty() {
                    causes.push(required(format!("rules[{n}].verbs")));
                }
            }
        }
        ("resource.k8s.io", "resourceclaims", Some(_))
            if !list(new, "status.reservedFor").is_empty() && at(new, "status.allocation").is_none() =>
        {
            causes.push(Cause::forbidden("status.reservedFor", "may not be specified when `allocated` is not set"));
        }
        _ => {}
    }
}
