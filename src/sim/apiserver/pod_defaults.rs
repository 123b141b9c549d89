//! Defaults and admission of pods and pod templates: what the API server fills in, so that templates come back as from a real one.

use serde_json::{Map, Value, json};

use super::admit::{default, part};
use super::call::Call;
use super::refusal::Refusal;
use super::state::State;

/// A `PodTemplateSpec`.
pub fn template(template: &mut Value) {
    if !template.is_object() {
        return;
    }
    spec(part(template, "spec"));
}

/// A `PodSpec`, of a template or a pod.
pub fn spec(spec: &mut Map<String, Value>) {
    default(spec, "restartPolicy", || json!("Always"));
    default(spec, "terminationGracePeriodSeconds", || json!(30));
    default(spec, "dnsPolicy", || json!("ClusterFirst"));
    default(spec, "schedulerName", || json!("default-scheduler"));
    default(spec, "securityContext", || json!({}));
    if let Some(account) = spec.get("serviceAccountName").cloned() {
        default(spec, "serviceAccount", || account);
    } else if let Some(account) = spec.get("serviceAccount").cloned() {
        default(spec, "serviceAccountName", || account);
    }
    let host_network = spec.get("hostNetwork") == Some(&json!(true));
    for list in ["containers", "initContainers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(fields) = container.as_object_mut() {
                container_defaults(fields, host_network);
            }
        }
    }
    for volume in spec.get_mut("volumes").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(fields) = volume.as_object_mut() {
            volume_defaults(fields);
        }
    }
}

/// Requests that a pod leaves out are its limits. Templates stay as they are.
pub fn requests(spec: &mut Map<String, Value>) {
    for list in ["containers", "initContainers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let Some(Value::Object(resources)) = container.get_mut("resources") else { continue };
            let Some(Value::Object(limits)) = resources.get("limits").cloned() else { continue };
            let requests = resources.entry("requests").or_insert_with(|| json!({}));
            if let Some(requests) = requests.as_object_mut() {
                for (name, amount) in limits {
                    requests.entry(name).or_insert(amount);
                }
            }
        }
    }
}

fn container_defaults(fields: &mut Map<String, Value>, host_network: bool) {
    let latest = fields.get("image").and_then(Value::as_str).is_some_and(|image| {
        let tail = image.rsplit('/').next().unwrap_or(image);
        !image.contains('@') && (tail.ends_with(":latest") || !tail.contains(':'))
    });
    default(fields, "imagePullPolicy", || json!(if latest { "Always" } else { "IfNotPresent" }));
    default(fields, "terminationMessagePath", || json!("/dev/termination-log"));
    default(fields, "terminationMessagePolicy", || json!("File"));
    default(fields, "resources", || json!({}));
    for port in fields.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(port) = port.as_object_mut() {
            default(port, "protocol", || json!("TCP"));
            if host_network && let Some(number) = port.get("containerPort").cloned() {
                default(port, "hostPort", || number);
            }
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = fields.get_mut(probe).and_then(Value::as_object_mut) {
            for (name, value) in [("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)]
            {
                default(probe, name, || json!(value));
            }
            if let Some(get) = probe.get_mut("httpGet").and_then(Value::as_object_mut) {
                default(get, "path", || json!("/"));
                default(get, "scheme", || json!("HTTP"));
            }
        }
    }
    for env in fields.get_mut("env").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(field) = env.get_mut("valueFrom").and_then(|v| v.get_mut("fieldRef")).and_then(Value::as_object_mut) {
            default(field, "apiVersion", || json!("v1"));
        }
    }
}

fn volume_defaults(fields: &mut Map<String, Value>) {
    if fields.len() == 1 {
        fields.insert("emptyDir".into(), json!({}));
    }
    for (name, field, value) in [
        ("secret", "defaultMode", json!(420)),
        ("configMap", "defaultMode", json!(420)),
        ("downwardAPI", "defaultMode", json!(420)),
        ("projected", "defaultMode", json!(420)),
        ("hostPath", "type", json!("")),
    ] {
        if let Some(source) = fields.get_mut(name).and_then(Value::as_object_mut) {
            default(source, field, || value);
        }
    }
    if let Some(claim) =
        fields.get_mut("ephemeral").and_then(|e| e.get_mut("volumeClaimTemplate")).and_then(|t| t.get_mut("spec"))
        && let Some(claim) = claim.as_object_mut()
    {
        default(claim, "volumeMode", || json!("Filesystem"));
    }
}

fn qos(spec: &Map<String, Value>) -> &'static str {
    let containers: Vec<&Value> =
        ["containers", "initContainers"].iter().filter_map(|l| spec.get(*l)).filter_map(Value::as_array).flatten().collect();
    let amount =
        |c: &Value, part: &str, name: &str| c.get("resources").and_then(|r| r.get(part)).and_then(|p| p.get(name)).cloned();
    let any = containers
        .iter()
        .any(|c| ["cpu", "memory"].iter().any(|n| amount(c, "requests", n).is_some() || amount(c, "limits", n).is_some()));
    let all = containers.iter().all(|c| {
        ["cpu", "memory"].iter().all(|n| amount(c, "limits", n).is_some() && amount(c, "limits", n) == amount(c, "requests", n))
    });
    match (any, all) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

fn tolerates(tolerations: &[Value], key: &str) -> bool {
    tolerations.iter().any(|t| {
        let text = |f: &str| t.get(f).and_then(Value::as_str).unwrap_or_default();
        (text("key") == key || text("key").is_empty()) && matches!(text("effect"), "" | "NoExecute")
    })
}

fn default_tolerations(spec: &mut Map<String, Value>) {
    let tolerations = spec.entry("tolerations").or_insert_with(|| json!([]));
    if let Some(list) = tolerations.as_array_mut() {
        for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
            if !tolerates(list, key) {
                list.push(json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}));
            }
        }
    }
}

/// Admission of a changed pod: what was filled in at first, and is left out now, is filled in again.
pub fn admit_update(old: &Value, pod: &mut Value) {
    let spec = part(pod, "spec");
    for field in ["serviceAccountName", "serviceAccount", "priority", "preemptionPolicy"] {
        if let Some(before) = old.get("spec").and_then(|s| s.get(field)) {
            default(spec, field, || before.clone());
        }
    }
    default_tolerations(spec);
}

/// Admission of a new pod: service account, priority, the two default tolerations, QoS class.
pub fn admit(state: &State, call: &Call, pod: &mut Value) -> Result<(), Refusal> {
    let name = super::write::meta_str(pod, "name").to_owned();
    let spec = part(pod, "spec");
    default(spec, "serviceAccountName", || json!("default"));
    if let Some(account) = spec.get("serviceAccountName").cloned() {
        default(spec, "serviceAccount", || account);
    }
    let class = spec.get("priorityClassName").and_then(Value::as_str).map(str::to_owned);
    let (priority, preemption) = match class {
        None => (json!(0), json!("PreemptLowerPriority")),
        Some(class) => {
            let found = state.lookup("scheduling.k8s.io", "priorityclasses", "", &class).ok_or_else(|| {
                Refusal::forbidden(&call.resource, &name, &format!("no PriorityClass with name {class} was found"))
            })?;
            let get = |field: &str| found.value.get(field).cloned();
            (get("value").unwrap_or(json!(0)), get("preemptionPolicy").unwrap_or(json!("PreemptLowerPriority")))
        }
    };
    spec.insert("priority".into(), priority);
    default(spec, "preemptionPolicy", || preemption);
    default_tolerations(spec);
    let class = qos(spec);
    pod["status"]["qosClass"] = class.into();
    Ok(())
}
