//! What the server adds to a sent object before it is stored: normal form, defaults, admission. Values as the 1.37 defaulters set them.

use base64::Engine as _;
use serde_json::{Map, Value, json};

use super::call::Call;
use super::pod_defaults;
use super::refusal::Refusal;
use super::resource::Resource;
use super::state::State;
use super::write::{meta_mut, meta_str};

const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// What every object goes through besides the decoding of its kind: empty parts of the metadata, and all that is empty of an event, are left out.
pub fn normalise(resource: &Resource, mut value: Value) -> Value {
    let metadata = meta_mut(&mut value);
    metadata.retain(|_, v| match v {
        Value::Null => false,
        Value::Array(list) => !list.is_empty(),
        Value::Object(map) => !map.is_empty(),
        Value::String(text) => !text.is_empty(),
        _ => true,
    });
    if resource.plural == "events"
        && let Value::Object(fields) = &mut value
    {
        fields.retain(|_, v| !v.is_null());
        fields.iter_mut().filter(|(name, _)| *name != "metadata").for_each(|(_, field)| drop_empty(field));
    }
    if resource.is("", "nodes") {
        let capacity = value.pointer("/status/capacity").filter(|c| c.is_object()).cloned();
        if let (Some(capacity), Some(status)) = (capacity, value.get_mut("status").and_then(Value::as_object_mut)) {
            status.entry("allocatable").or_insert(capacity);
        }
    }
    value
}

fn drop_empty(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, v| !v.is_null() && v.as_array().is_none_or(|l| !l.is_empty()));
            fields.values_mut().for_each(drop_empty);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_empty),
        _ => {}
    }
}

pub(super) fn default(fields: &mut Map<String, Value>, name: &str, value: impl FnOnce() -> Value) {
    if !fields.contains_key(name) {
        fields.insert(name.to_owned(), value());
    }
}

/// `object[name]` as a map, made if it is absent.
pub(super) fn part<'a>(object: &'a mut Value, name: &str) -> &'a mut Map<String, Value> {
    if !object.get(name).is_some_and(Value::is_object) {
        object[name] = json!({});
    }
    match object.get_mut(name) {
        Some(Value::Object(fields)) => fields,
        _ => unreachable!("set above"),
    }
}

fn workload(value: &mut Value, set: &[(&str, Value)]) {
    let spec = part(value, "spec");
    for (name, v) in set {
        default(spec, name, || v.clone());
    }
    if let Some(template) = spec.get_mut("template") {
        pod_defaults::template(template);
    }
}

/// The strategy of a workload, and the numbers of a rolling one.
fn rolling(value: &mut Value, name: &str, numbers: &[(&str, Value)]) {
    let strategy = part(value, "spec").entry(name).or_insert_with(|| json!({}));
    let Some(strategy) = strategy.as_object_mut() else { return };
    default(strategy, "type", || json!("RollingUpdate"));
    if strategy.get("type") == Some(&json!("RollingUpdate"))
        && let Some(rolling) = strategy.entry("rollingUpdate").or_insert_with(|| json!({})).as_object_mut()
    {
        for (name, number) in numbers {
            default(rolling, name, || number.clone());
        }
    }
}

fn spec_defaults(resource: &Resource, value: &mut Value) {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "pods") => {
            let spec = part(value, "spec");
            default(spec, "enableServiceLinks", || json!(true));
            if spec.get("terminationGracePeriodSeconds").and_then(Value::as_i64).is_some_and(|g| g < 0) {
                spec.insert("terminationGracePeriodSeconds".into(), json!(1));
            }
            pod_defaults::spec(spec);
            pod_defaults::requests(spec);
        }
        ("", "namespaces") => {
            let name = meta_str(value, "name").to_owned();
            let labels = meta_mut(value).entry("labels").or_insert_with(|| json!({}));
            labels["kubernetes.io/metadata.name"] = name.into();
        }
        ("resource.k8s.io", "resourceclaims") => claim_defaults(value),
        ("apps", "daemonsets") => {
            let annotations = meta_mut(value).entry("annotations").or_insert_with(|| json!({}));
            if annotations.get(TEMPLATE_GENERATION).is_none() {
                annotations[TEMPLATE_GENERATION] = "1".into();
            }
            workload(value, &[("revisionHistoryLimit", json!(10))]);
            rolling(value, "updateStrategy", &[("maxSurge", json!(0)), ("maxUnavailable", json!(1))]);
        }
        ("apps", "deployments") => {
            let numbers = [("revisionHistoryLimit", json!(10)), ("progressDeadlineSeconds", json!(600)), ("replicas", json!(1))];
            workload(value, &numbers);
            rolling(value, "strategy", &[("maxSurge", json!("25%")), ("maxUnavailable", json!("25%"))]);
        }
        ("apiextensions.k8s.io", "customresourcedefinitions") => super::crd::defaults(value),
        ("apps", "replicasets") => workload(value, &[("replicas", json!(1))]),
        ("apps", "statefulsets") => {
            workload(
                value,
                &[
                    ("replicas", json!(1)),
                    ("podManagementPolicy", json!("OrderedReady")),
                    ("revisionHistoryLimit", json!(10)),
                    ("persistentVolumeClaimRetentionPolicy", json!({"whenDeleted": "Retain", "whenScaled": "Retain"})),
                ],
            );
            rolling(value, "updateStrategy", &[("maxUnavailable", json!(1)), ("partition", json!(0))]);
        }
        ("batch", "jobs") => workload(value, &[("parallelism", json!(1)), ("completions", json!(1)), ("backoffLimit", json!(6))]),
        ("", "persistentvolumes") => {
            let spec = part(value, "spec");
            default(spec, "persistentVolumeReclaimPolicy", || json!("Retain"));
            default(spec, "volumeMode", || json!("Filesystem"));
        }
        ("", "persistentvolumeclaims") => default(part(value, "spec"), "volumeMode", || json!("Filesystem")),
        ("storage.k8s.io", "csidrivers") => {
            let spec = part(value, "spec");
            default(spec, "attachRequired", || json!(true));
            default(spec, "podInfoOnMount", || json!(false));
            default(spec, "storageCapacity", || json!(false));
            default(spec, "requiresRepublish", || json!(false));
            default(spec, "preventPodSchedulingIfMissing", || json!(false));
            default(spec, "seLinuxMount", || json!(false));
            default(spec, "fsGroupPolicy", || json!("ReadWriteOnceWithFSType"));
            default(spec, "volumeLifecycleModes", || json!(["Persistent"]));
        }
        ("storage.k8s.io", "storageclasses") => {
            if let Some(fields) = value.as_object_mut() {
                default(fields, "reclaimPolicy", || json!("Delete"));
                default(fields, "volumeBindingMode", || json!("Immediate"));
            }
        }
        ("scheduling.k8s.io", "priorityclasses") => {
            if let Some(fields) = value.as_object_mut() {
                default(fields, "preemptionPolicy", || json!("PreemptLowerPriority"));
            }
        }
        ("admissionregistration.k8s.io", "validatingadmissionpolicies") => policy_defaults(value),
        ("", "secrets") => secret_defaults(value),
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") => {
            for subject in value.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten() {
                let user = matches!(subject.get("kind").and_then(Value::as_str), Some("User" | "Group"));
                if let (true, Some(fields)) = (user, subject.as_object_mut()) {
                    default(fields, "apiGroup", || json!("rbac.authorization.k8s.io"));
                }
            }
        }
        _ => {}
    }
}

/// A new node is closed until it is seen ready, as the TaintNodesByCondition plugin does it.
fn node_defaults(value: &mut Value) {
    let not_ready = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
    // Fixtures that come with a Ready condition need no lifecycle controller to be open (a real server taints them, too).
    let ready = super::eviction::condition(value, "Ready").is_some_and(|c| c.get("status") == Some(&json!("True")));
    if !ready
        && let Some(list) = part(value, "spec").entry("taints").or_insert_with(|| json!([])).as_array_mut()
        && !list.iter().any(|t| t.get("key") == not_ready.get("key") && t.get("effect") == not_ready.get("effect"))
    {
        list.push(not_ready);
    }
    let status = part(value, "status");
    default(status, "daemonEndpoints", || json!({"kubeletEndpoint": {"Port": 0}}));
    let info = status.entry("nodeInfo").or_insert_with(|| json!({}));
    if let Some(info) = info.as_object_mut() {
        let fields = [
            "machineID",
            "systemUUID",
            "bootID",
            "kernelVersion",
            "osImage",
            "containerRuntimeVersion",
            "kubeletVersion",
            "kubeProxyVersion",
            "operatingSystem",
            "architecture",
        ];
        for field in fields {
            default(info, field, || json!(""));
        }
    }
}

fn claim_defaults(value: &mut Value) {
    let requests = value.get_mut("spec").and_then(|s| s.get_mut("devices")).and_then(|d| d.get_mut("requests"));
    for request in requests.and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(Value::Object(exactly)) = request.get_mut("exactly") {
            default(exactly, "allocationMode", || json!("ExactCount"));
            if exactly.get("allocationMode") == Some(&json!("ExactCount")) {
                default(exactly, "count", || json!(1));
            }
        }
    }
}

fn policy_defaults(value: &mut Value) {
    let spec = part(value, "spec");
    default(spec, "failurePolicy", || json!("Fail"));
    if let Some(constraints) = spec.get_mut("matchConstraints").and_then(Value::as_object_mut) {
        default(constraints, "matchPolicy", || json!("Equivalent"));
        default(constraints, "namespaceSelector", || json!({}));
        default(constraints, "objectSelector", || json!({}));
        for rule in constraints.get_mut("resourceRules").and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(rule) = rule.as_object_mut() {
                default(rule, "scope", || json!("*"));
            }
        }
    }
}

fn secret_defaults(value: &mut Value) {
    let Some(fields) = value.as_object_mut() else {
        return;
    };
    default(fields, "type", || json!("Opaque"));
    if let Some(Value::Object(plain)) = fields.remove("stringData") {
        let data = fields.entry("data").or_insert_with(|| json!({}));
        for (name, text) in plain {
            let encoded = base64::engine::general_purpose::STANDARD.encode(text.as_str().unwrap_or_default());
            data[name] = encoded.into();
        }
    }
}

fn initial_status(resource: &Resource) -> Option<Value> {
    Some(match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "pods") => json!({"phase": "Pending"}),
        ("", "namespaces") => json!({"phase": "Active"}),
        ("", "persistentvolumes" | "persistentvolumeclaims") => json!({"phase": "Pending"}),
        ("apps", "daemonsets") => {
            json!({"currentNumberScheduled": 0, "desiredNumberScheduled": 0, "numberMisscheduled": 0, "numberReady": 0})
        }
        ("apps", "replicasets") => json!({"replicas": 0}),
        ("apps", "statefulsets") => json!({"availableReplicas": 0, "replicas": 0}),
        ("policy", "poddisruptionbudgets") => {
            json!({"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0})
        }
        ("storage.k8s.io", "volumeattachments") => json!({"attached": false}),
        ("apps", "deployments")
        | ("batch", "jobs")
        | ("resource.k8s.io", "resourceclaims")
        | ("storage.k8s.io", "csinodes")
        | ("admissionregistration.k8s.io", "validatingadmissionpolicies") => {
            json!({})
        }
        _ => return None,
    })
}

/// Defaults of a new object: what its creator counts as owner of, too. Those of custom kinds come with decoding.
pub fn defaults(call: &Call, mut value: Value) -> Value {
    if !call.resource.is_custom() {
        spec_defaults(&call.resource, &mut value);
    }
    value
}

/// What the kind's strategy and admission add to a new object; nobody owns that.
/// With it come warnings.
pub fn on_create(state: &State, call: &Call, mut value: Value) -> Result<(Value, Vec<String>), Refusal> {
    let resource = &call.resource;
    if let Some(custom) = &resource.custom {
        let warnings = custom.admit(resource, &value, None, call)?;
        return Ok((value, warnings));
    }
    if let Some(status) = initial_status(resource) {
        value["status"] = status;
    }
    match resource.plural.as_str() {
        "namespaces" => {
            part(&mut value, "spec").insert("finalizers".into(), json!(["kubernetes"]));
        }
        "persistentvolumes" => value["status"]["lastPhaseTransitionTime"] = state.now_text().into(),
        "nodes" => node_defaults(&mut value),
        "pods" => pod_defaults::admit(state, call, &mut value)?,
        "customresourcedefinitions" => super::crd::establish(state, &mut value)?,
        _ => {}
    }
    Ok((value, Vec::new()))
}

/// Defaults of a changed object: what its writer counts as owner of, too.
pub fn update_defaults(call: &Call, mut value: Value) -> Value {
    let resource = &call.resource;
    if !resource.is_custom() && (call.sub.is_empty() || resource.is("", "namespaces")) {
        spec_defaults(resource, &mut value);
    }
    value
}

/// What the kind's strategy and admission add to a changed object; nobody owns that. With it come warnings.
pub fn on_update(state: &State, call: &Call, old: &Value, mut value: Value) -> Result<(Value, Vec<String>), Refusal> {
    let resource = &call.resource;
    if let Some(custom) = &resource.custom {
        let warnings = custom.admit(resource, &value, Some(old), call)?;
        return Ok((value, warnings));
    }
    if call.sub == "status"
        && resource.is_pod()
        && let Some(class) = old.pointer("/status/qosClass")
    {
        default(part(&mut value, "status"), "qosClass", || class.clone());
    }
    if call.sub.is_empty() && resource.is_pod() {
        pod_defaults::admit_update(old, &mut value);
    }
    if call.sub.is_empty() && resource.is("apiextensions.k8s.io", "customresourcedefinitions") {
        super::crd::establish(state, &mut value)?;
    }
    Ok((value, Vec::new()))
}

/// What the server itself counts on an update; no manager's change.
pub fn count_update(resource: &Resource, old: &Value, value: &mut Value) {
    if !resource.is("apps", "daemonsets") {
        return;
    }
    let template = |v: &Value| v.get("spec").and_then(|s| s.get("template")).cloned();
    let counted = super::write::meta(old, "annotations").and_then(|a| a.get(TEMPLATE_GENERATION)).and_then(Value::as_str);
    let before = counted.and_then(|t| t.parse::<u64>().ok()).unwrap_or(1);
    let now = if template(old) == template(value) { before } else { before + 1 };
    let annotations = meta_mut(value).entry("annotations").or_insert_with(|| json!({}));
    annotations[TEMPLATE_GENERATION] = now.to_string().into();
}

/// What follows from a committed write inside the server: CRDs start and stop to be served, roles are read again.
pub fn after_write(state: &mut State, resource: &Resource, old: Option<&Value>, new: Option<&Value>) {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("apiextensions.k8s.io", "customresourcedefinitions") => super::crd::serve(state, old, new),
        ("rbac.authorization.k8s.io", _) => state.rbac.forget(),
        _ => {}
    }
}
