//! `kubectl get` output: meta.k8s.io/v1 Table with a few columns per kind.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::resource::Resource;
use super::select::field_at;
use super::write::meta_str;

struct Column {
    name: String,
    /// 0 is always shown, 1 only with `-o wide`.
    priority: i64,
    kind: &'static str,
    get: Getter,
}

enum Getter {
    Path(String),
    With(fn(&Value) -> String),
}

fn by_path(name: &str, path: &str) -> Column {
    Column { name: name.into(), priority: 0, kind: "string", get: Getter::Path(path.into()) }
}

fn with(name: &str, get: fn(&Value) -> String) -> Column {
    Column { name: name.into(), priority: 0, kind: "string", get: Getter::With(get) }
}

fn wide(mut column: Column) -> Column {
    column.priority = 1;
    column
}

fn list<'a>(object: &'a Value, part: &str, field: &str) -> impl Iterator<Item = &'a Value> {
    object.get(part).and_then(|p| p.get(field)).and_then(Value::as_array).into_iter().flatten()
}

fn pod_ready(pod: &Value) -> String {
    let ready = list(pod, "status", "containerStatuses").filter(|c| c.get("ready") == Some(&json!(true))).count();
    format!("{ready}/{}", list(pod, "spec", "containers").count())
}

fn pod_status(pod: &Value) -> String {
    if !meta_str(pod, "deletionTimestamp").is_empty() {
        return "Terminating".into();
    }
    let reason = field_at(pod, "status.reason");
    if reason.is_empty() { field_at(pod, "status.phase") } else { reason }
}

fn pod_restarts(pod: &Value) -> String {
    list(pod, "status", "containerStatuses").filter_map(|c| c.get("restartCount")?.as_i64()).sum::<i64>().to_string()
}

fn node_status(node: &Value) -> String {
    let ready = list(node, "status", "conditions").find(|c| c.get("type") == Some(&json!("Ready")));
    let mut out = match ready.and_then(|c| c.get("status")).and_then(Value::as_str) {
        Some("True") => "Ready",
        Some("False") => "NotReady",
        _ => "Unknown",
    }
    .to_owned();
    if node.get("spec").and_then(|s| s.get("unschedulable")) == Some(&json!(true)) {
        out.push_str(",SchedulingDisabled");
    }
    out
}

fn node_roles(node: &Value) -> String {
    let labels = node.get("metadata").and_then(|m| m.get("labels")).and_then(Value::as_object);
    let roles: Vec<&str> =
        labels.into_iter().flat_map(|l| l.keys()).filter_map(|k| k.strip_prefix("node-role.kubernetes.io/")).collect();
    if roles.is_empty() { "<none>".into() } else { roles.join(",") }
}

fn selector_text(object: &Value) -> String {
    let map = object.get("spec").and_then(|s| s.get("template")).and_then(|t| t.get("spec")).and_then(|s| s.get("nodeSelector"));
    let pairs: Vec<String> = map
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or_default()))
        .collect();
    if pairs.is_empty() { "<none>".into() } else { pairs.join(",") }
}

fn ready_of_replicas(object: &Value) -> String {
    let number = |path: &str| Some(field_at(object, path)).filter(|t| !t.is_empty()).unwrap_or_else(|| "0".into());
    format!("{}/{}", number("status.readyReplicas"), number("spec.replicas"))
}

fn columns(resource: &Resource) -> Vec<Column> {
    if let Some(custom) = &resource.custom {
        return custom
            .columns
            .iter()
            .map(|c| Column { name: c.name.clone(), priority: c.priority, kind: "string", get: Getter::Path(c.path.clone()) })
            .collect();
    }
    match resource.plural.as_str() {
        "pods" => vec![
            with("Ready", pod_ready),
            with("Status", pod_status),
            with("Restarts", pod_restarts),
            wide(by_path("IP", "status.podIP")),
            wide(by_path("Node", "spec.nodeName")),
        ],
        "nodes" => {
            vec![with("Status", node_status), with("Roles", node_roles), by_path("Version", "status.nodeInfo.kubeletVersion")]
        }
        "namespaces" => vec![by_path("Status", "status.phase")],
        "daemonsets" => vec![
            by_path("Desired", "status.desiredNumberScheduled"),
            by_path("Current", "status.currentNumberScheduled"),
            by_path("Ready", "status.numberReady"),
            by_path("Up-to-date", "status.updatedNumberScheduled"),
            by_path("Available", "status.numberAvailable"),
            with("Node Selector", selector_text),
        ],
        "deployments" | "statefulsets" => vec![with("Ready", ready_of_replicas)],
        "replicasets" => {
            vec![
                by_path("Desired", "spec.replicas"),
                by_path("Current", "status.replicas"),
                by_path("Ready", "status.readyReplicas"),
            ]
        }
        "poddisruptionbudgets" => vec![
            by_path("Min Available", "spec.minAvailable"),
            by_path("Max Unavailable", "spec.maxUnavailable"),
            by_path("Allowed Disruptions", "status.disruptionsAllowed"),
        ],
        "events" => vec![by_path("Type", "type"), by_path("Reason", "reason"), by_path("Message", "message")],
        "leases" => vec![by_path("Holder", "spec.holderIdentity")],
        "persistentvolumeclaims" => vec![by_path("Status", "status.phase"), by_path("Volume", "spec.volumeName")],
        "persistentvolumes" => vec![by_path("Status", "status.phase"), by_path("Claim", "spec.claimRef.name")],
        "volumeattachments" => {
            vec![by_path("Attacher", "spec.attacher"), by_path("Node", "spec.nodeName"), by_path("Attached", "status.attached")]
        }
        _ => Vec::new(),
    }
}

/// How long ago, as a real server writes it.
fn age(created: &str, now: Timestamp) -> String {
    let Ok(created) = created.parse::<Timestamp>() else { return "<unknown>".into() };
    let seconds = now.duration_since(created).as_secs().max(0);
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 if seconds % 60 != 0 => format!("{minutes}m{}s", seconds % 60),
        120..10_800 => format!("{minutes}m"),
        10_800..28_800 if minutes % 60 != 0 => format!("{hours}h{}m", minutes % 60),
        10_800..172_800 => format!("{hours}h"),
        _ => format!("{}d", hours / 24),
    }
}

/// A Table of these objects.
pub fn of(resource: &Resource, objects: &[Value], whole: bool, token: &str, now: Timestamp) -> Value {
    let columns = columns(resource);
    let mut definitions = vec![json!({"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0})];
    definitions.extend(
        columns.iter().map(|c| json!({"name": c.name, "type": c.kind, "format": "", "description": "", "priority": c.priority})),
    );
    definitions.push(json!({"name": "Age", "type": "string", "format": "", "description": "", "priority": 0}));
    let rows: Vec<Value> = objects
        .iter()
        .map(|object| {
            let mut cells = vec![json!(meta_str(object, "name"))];
            cells.extend(columns.iter().map(|c| {
                json!(match &c.get {
                    Getter::Path(path) => field_at(object, path),
                    Getter::With(get) => get(object),
                })
            }));
            cells.push(json!(age(meta_str(object, "creationTimestamp"), now)));
            let shown = if whole {
                object.clone()
            } else {
                json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object.get("metadata")})
            };
            json!({"cells": cells, "object": shown})
        })
        .collect();
    let mut metadata = json!({});
    if !token.is_empty() {
        metadata["continue"] = token.into();
    }
    json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "columnDefinitions": definitions, "rows": rows})
}
