//! The columns that `kubectl get` shows of builtin kinds, as a real server computes them (kubernetes pkg/printers/internalversion).
//! How a table is put together is `table`'s.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::table::{Column, Getter, age};
use super::write::meta_str;

type Get = fn(&Value, Timestamp) -> Value;

fn text(name: &str, get: Get) -> Column {
    Column { name: name.into(), priority: 0, kind: "string".into(), get: Getter::With(get) }
}

fn number(name: &str, get: Get) -> Column {
    Column { kind: "integer".into(), ..text(name, get) }
}

fn flag(name: &str, get: Get) -> Column {
    Column { kind: "boolean".into(), ..text(name, get) }
}

fn wide(name: &str, get: Get) -> Column {
    Column { priority: 1, ..text(name, get) }
}

pub fn name_column() -> Column {
    text("Name", |o, _| meta_str(o, "name").into())
}

pub fn age_column() -> Column {
    text("Age", |o, now| age(meta_str(o, "creationTimestamp"), now).into())
}

fn at<'a>(object: &'a Value, pointer: &str) -> &'a Value {
    object.pointer(pointer).unwrap_or(&Value::Null)
}

fn str_at<'a>(object: &'a Value, pointer: &str) -> &'a str {
    at(object, pointer).as_str().unwrap_or_default()
}

fn int_at(object: &Value, pointer: &str) -> i64 {
    at(object, pointer).as_i64().unwrap_or(0)
}

fn list_at<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    at(object, pointer).as_array().map_or(&[], Vec::as_slice)
}

fn or<'a>(text: &'a str, otherwise: &'a str) -> &'a str {
    if text.is_empty() { otherwise } else { text }
}

fn joined<'a>(items: impl Iterator<Item = &'a str>) -> String {
    items.collect::<Vec<_>>().join(",")
}

fn is_deleting(object: &Value) -> bool {
    !meta_str(object, "deletionTimestamp").is_empty()
}

/// `a=b,c=d` of a map of labels.
fn labels(map: &Value) -> String {
    let pairs: Vec<String> =
        map.as_object().into_iter().flatten().map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or_default())).collect();
    or(&pairs.join(","), "<none>").to_owned()
}

/// A label selector in its one-line form.
fn selector(selector: &Value) -> String {
    let mut parts: Vec<(String, String)> = Vec::new();
    for (key, value) in selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten() {
        parts.push((key.clone(), format!("{key}={}", value.as_str().unwrap_or_default())));
    }
    for expression in list_at(selector, "/matchExpressions") {
        let key = str_at(expression, "/key");
        let mut values: Vec<&str> = list_at(expression, "/values").iter().filter_map(Value::as_str).collect();
        values.sort_unstable();
        let values = values.join(",");
        let shown = match str_at(expression, "/operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            _ => format!("!{key}"),
        };
        parts.push((key.to_owned(), shown));
    }
    parts.sort();
    let shown: Vec<&str> = parts.iter().map(|(_, shown)| shown.as_str()).collect();
    or(&shown.join(","), "<none>").to_owned()
}

/// Containers, images and selector of a workload, shown with `-o wide`.
fn workload(columns: Vec<Column>, with_selector: bool) -> Vec<Column> {
    let mut columns = columns;
    columns.push(wide("Containers", |o, _| {
        joined(list_at(o, "/spec/template/spec/containers").iter().map(|c| str_at(c, "/name"))).into()
    }));
    columns.push(wide("Images", |o, _| {
        joined(list_at(o, "/spec/template/spec/containers").iter().map(|c| str_at(c, "/image"))).into()
    }));
    if with_selector {
        columns.push(wide("Selector", |o, _| selector(at(o, "/spec/selector")).into()));
    }
    columns
}

/// The first condition of this type.
fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    list_at(object, "/status/conditions").iter().find(|c| str_at(c, "/type") == kind).unwrap_or(&Value::Null)
}

fn has_condition(object: &Value, kind: &str) -> bool {
    str_at(condition(object, kind), "/status") == "True"
}

fn node_status(node: &Value) -> String {
    let ready = match str_at(condition(node, "Ready"), "/status") {
        "" => "Unknown",
        "True" => "Ready",
        _ => "NotReady",
    };
    let closed = at(node, "/spec/unschedulable") == &json!(true);
    format!("{ready}{}", if closed { ",SchedulingDisabled" } else { "" })
}

fn node_roles(node: &Value) -> String {
    let mut roles: Vec<&str> = Vec::new();
    for (key, value) in at(node, "/metadata/labels").as_object().into_iter().flatten() {
        match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) if !role.is_empty() => roles.push(role),
            None if key == "kubernetes.io/role" => roles.extend(value.as_str().filter(|role| !role.is_empty())),
            _ => {}
        }
    }
    roles.sort_unstable();
    roles.dedup();
    or(&roles.join(","), "<none>").to_owned()
}

fn node_address(node: &Value, kind: &str) -> Value {
    let found = list_at(node, "/status/addresses").iter().find(|a| str_at(a, "/type") == kind);
    found.map_or("<none>", |a| or(str_at(a, "/address"), "<none>")).into()
}

fn node_kernel(node: &Value) -> String {
    let kernel = or(str_at(node, "/status/nodeInfo/kernelVersion"), "<unknown>");
    match str_at(node, "/status/nodeInfo/architecture") {
        "" => kernel.to_owned(),
        architecture => format!("{kernel} ({architecture})"),
    }
}

fn access_modes(modes: &[Value]) -> String {
    let short = |mode: &Value| match mode.as_str() {
        Some("ReadWriteOnce") => "RWO",
        Some("ReadOnlyMany") => "ROX",
        Some("ReadWriteMany") => "RWX",
        Some("ReadWriteOncePod") => "RWOP",
        _ => "",
    };
    joined(modes.iter().map(short).filter(|mode| !mode.is_empty()))
}

fn phase(object: &Value) -> Value {
    if is_deleting(object) { "Terminating".into() } else { str_at(object, "/status/phase").into() }
}

/// A number or a percentage, as it was given.
fn int_or_percent(value: &Value) -> Value {
    match value {
        Value::Null => "N/A".into(),
        Value::String(text) => text.clone().into(),
        number => number.to_string().into(),
    }
}

fn event_times(event: &Value, now: Timestamp) -> (String, String) {
    let made = str_at(event, "/eventTime");
    let first = age(or(str_at(event, "/firstTimestamp"), made), now);
    let last = str_at(event, "/lastTimestamp");
    let last = match str_at(event, "/series/lastObservedTime") {
        "" if last.is_empty() => first.clone(),
        "" => age(last, now),
        seen => age(seen, now),
    };
    (first, last)
}

fn event_source(event: &Value) -> Value {
    let component = or(str_at(event, "/source/component"), str_at(event, "/reportingComponent"));
    match or(str_at(event, "/source/host"), str_at(event, "/reportingInstance")) {
        "" => component.into(),
        host => format!("{component}, {host}").into(),
    }
}

fn event_count(event: &Value) -> i64 {
    match (at(event, "/series/count").as_i64(), int_at(event, "/count")) {
        (Some(count), _) => count,
        (None, count) => count.max(1),
    }
}

fn claim_state(claim: &Value) -> String {
    let mut states = Vec::new();
    let deleting = is_deleting(claim);
    if deleting {
        states.push("deleted");
    }
    match at(claim, "/status/allocation") {
        Value::Null if deleting => {}
        Value::Null => states.push("pending"),
        _ => {
            states.push("allocated");
            if !list_at(claim, "/status/reservedFor").is_empty() {
                states.push("reserved");
            }
        }
    }
    states.join(",")
}

fn job_status(job: &Value) -> &'static str {
    const STATES: [(&str, &str); 2] = [("Complete", "Complete"), ("Failed", "Failed")];
    const LATER: [&str; 3] = ["Suspended", "FailureTarget", "SuccessCriteriaMet"];
    let found = STATES.iter().find(|(kind, _)| has_condition(job, kind)).map(|(_, shown)| *shown);
    let later = || LATER.into_iter().find(|kind| has_condition(job, kind));
    found.or_else(|| is_deleting(job).then_some("Terminating")).or_else(later).unwrap_or("Running")
}

fn job_completions(job: &Value) -> String {
    let done = int_at(job, "/status/succeeded");
    match (at(job, "/spec/completions").as_i64(), int_at(job, "/spec/parallelism")) {
        (Some(wanted), _) => format!("{done}/{wanted}"),
        (None, many) if many > 1 => format!("{done}/1 of {many}"),
        _ => format!("{done}/1"),
    }
}

fn job_duration(job: &Value, now: Timestamp) -> String {
    let start = str_at(job, "/status/startTime");
    if start.is_empty() {
        return String::new();
    }
    age(start, str_at(job, "/status/completionTime").parse().unwrap_or(now))
}

fn service_ports(service: &Value) -> String {
    let ports: Vec<String> = list_at(service, "/spec/ports")
        .iter()
        .map(|port| {
            let (number, protocol) = (int_at(port, "/port"), or(str_at(port, "/protocol"), "TCP"));
            match int_at(port, "/nodePort") {
                0 => format!("{number}/{protocol}"),
                node => format!("{number}:{node}/{protocol}"),
            }
        })
        .collect();
    or(&ports.join(","), "<none>").to_owned()
}

fn subjects(binding: &Value, kind: &str) -> Value {
    let of_kind = list_at(binding, "/subjects").iter().filter(|s| str_at(s, "/kind") == kind);
    let name = |s: &Value| match str_at(s, "/namespace") {
        "" => str_at(s, "/name").to_owned(),
        namespace => format!("{namespace}/{}", str_at(s, "/name")),
    };
    of_kind.map(name).collect::<Vec<_>>().join(", ").into()
}

fn controller(object: &Value) -> String {
    let owner = list_at(object, "/metadata/ownerReferences").iter().find(|o| at(o, "/controller") == &json!(true));
    let Some(owner) = owner else { return "<none>".into() };
    let kind = str_at(owner, "/kind").to_lowercase();
    match str_at(owner, "/apiVersion").split_once('/') {
        Some((group, _)) => format!("{kind}.{group}/{}", str_at(owner, "/name")),
        None => format!("{kind}/{}", str_at(owner, "/name")),
    }
}

/// Columns by group and plural name; a kind that is not here shows its age.
#[rustfmt::skip]
pub fn of(group: &str, plural: &str) -> Vec<Column> {
    let mut columns = match (group, plural) {
        ("", "pods") => super::pod_columns::columns(),
        ("", "nodes") => vec![
            text("Status", |o, _| node_status(o).into()),
            text("Roles", |o, _| node_roles(o).into()),
            age_column(),
            text("Version", |o, _| str_at(o, "/status/nodeInfo/kubeletVersion").into()),
            wide("Internal-IP", |o, _| node_address(o, "InternalIP")),
            wide("External-IP", |o, _| node_address(o, "ExternalIP")),
            wide("OS-Image", |o, _| or(str_at(o, "/status/nodeInfo/osImage"), "<unknown>").into()),
            wide("Kernel-Version", |o, _| node_kernel(o).into()),
            wide("Container-Runtime", |o, _| or(str_at(o, "/status/nodeInfo/containerRuntimeVersion"), "<unknown>").into()),
        ],
        (_, "events") => return vec![
            text("Last Seen", |o, now| event_times(o, now).1.into()),
            text("Type", |o, _| str_at(o, "/type").into()),
            text("Reason", |o, _| str_at(o, "/reason").into()),
            text("Object", |o, _| {
                let (kind, name) = (str_at(o, "/involvedObject/kind").to_lowercase(), str_at(o, "/involvedObject/name"));
                if name.is_empty() { kind.into() } else { format!("{kind}/{name}").into() }
            }),
            wide("Subobject", |o, _| str_at(o, "/involvedObject/fieldPath").into()),
            wide("Source", |o, _| event_source(o)),
            text("Message", |o, _| str_at(o, "/message").trim().into()),
            wide("First Seen", |o, now| event_times(o, now).0.into()),
            wide("Count", |o, _| event_count(o).into()),
            Column { priority: 1, ..name_column() },
        ],
        ("", "namespaces") => vec![text("Status", |o, _| str_at(o, "/status/phase").into()), age_column()],
        ("", "configmaps") => vec![
            number("Data", |o, _| ["/data", "/binaryData"].iter().map(|p| at(o, p).as_object().map_or(0, |m| m.len())).sum::<usize>().into()),
            age_column(),
        ],
        ("", "secrets") => vec![
            text("Type", |o, _| str_at(o, "/type").into()),
            number("Data", |o, _| at(o, "/data").as_object().map_or(0, |m| m.len()).into()),
            age_column(),
        ],
        ("", "services") => vec![
            text("Type", |o, _| or(str_at(o, "/spec/type"), "ClusterIP").into()),
            text("Cluster-IP", |o, _| or(or(str_at(o, "/spec/clusterIPs/0"), str_at(o, "/spec/clusterIP")), "<none>").into()),
            text("External-IP", |o, _| or(&joined(list_at(o, "/spec/externalIPs").iter().filter_map(Value::as_str)), "<none>").into()),
            text("Port(s)", |o, _| service_ports(o).into()),
            age_column(),
            wide("Selector", |o, _| labels(at(o, "/spec/selector")).into()),
        ],
        ("", "persistentvolumes") => vec![
            text("Capacity", |o, _| or(str_at(o, "/spec/capacity/storage"), "0").into()),
            text("Access Modes", |o, _| access_modes(list_at(o, "/spec/accessModes")).into()),
            text("Reclaim Policy", |o, _| str_at(o, "/spec/persistentVolumeReclaimPolicy").into()),
            text("Status", |o, _| phase(o)),
            text("Claim", |o, _| match at(o, "/spec/claimRef") {
                Value::Null => "".into(),
                claim => format!("{}/{}", str_at(claim, "/namespace"), str_at(claim, "/name")).into(),
            }),
            text("StorageClass", |o, _| str_at(o, "/spec/storageClassName").into()),
            text("VolumeAttributesClass", |o, _| or(str_at(o, "/spec/volumeAttributesClassName"), "<unset>").into()),
            text("Reason", |o, _| str_at(o, "/status/reason").into()),
            age_column(),
            wide("VolumeMode", |o, _| or(str_at(o, "/spec/volumeMode"), "<unset>").into()),
        ],
        ("", "persistentvolumeclaims") => vec![
            text("Status", |o, _| phase(o)),
            text("Volume", |o, _| str_at(o, "/spec/volumeName").into()),
            text("Capacity", |o, _| if str_at(o, "/spec/volumeName").is_empty() { "".into() } else { or(str_at(o, "/status/capacity/storage"), "0").into() }),
            text("Access Modes", |o, _| if str_at(o, "/spec/volumeName").is_empty() { "".into() } else { access_modes(list_at(o, "/status/accessModes")).into() }),
            text("StorageClass", |o, _| str_at(o, "/spec/storageClassName").into()),
            text("VolumeAttributesClass", |o, _| or(str_at(o, "/spec/volumeAttributesClassName"), "<unset>").into()),
            age_column(),
            wide("VolumeMode", |o, _| or(str_at(o, "/spec/volumeMode"), "<unset>").into()),
        ],
        ("apps", "daemonsets") => workload(vec![
            number("Desired", |o, _| int_at(o, "/status/desiredNumberScheduled").into()),
            number("Current", |o, _| int_at(o, "/status/currentNumberScheduled").into()),
            number("Ready", |o, _| int_at(o, "/status/numberReady").into()),
            number("Up-to-date", |o, _| int_at(o, "/status/updatedNumberScheduled").into()),
            number("Available", |o, _| int_at(o, "/status/numberAvailable").into()),
            text("Node Selector", |o, _| labels(at(o, "/spec/template/spec/nodeSelector")).into()),
            age_column(),
        ], true),
        ("apps", "replicasets") => workload(vec![
            number("Desired", |o, _| int_at(o, "/spec/replicas").into()),
            number("Current", |o, _| int_at(o, "/status/replicas").into()),
            number("Ready", |o, _| int_at(o, "/status/readyReplicas").into()),
            age_column(),
        ], true),
        ("apps", "deployments") => workload(vec![
            text("Ready", |o, _| format!("{}/{}", int_at(o, "/status/readyReplicas"), int_at(o, "/spec/replicas")).into()),
            text("Up-to-date", |o, _| int_at(o, "/status/updatedReplicas").into()),
            text("Available", |o, _| int_at(o, "/status/availableReplicas").into()),
            age_column(),
        ], true),
        ("apps", "statefulsets") => workload(vec![
            text("Ready", |o, _| format!("{}/{}", int_at(o, "/status/readyReplicas"), int_at(o, "/spec/replicas")).into()),
            age_column(),
        ], false),
        ("apps", "controllerrevisions") => vec![
            text("Controller", |o, _| controller(o).into()),
            text("Revision", |o, _| int_at(o, "/revision").into()),
            age_column(),
        ],
        ("batch", "jobs") => workload(vec![
            text("Status", |o, _| job_status(o).into()),
            text("Completions", |o, _| job_completions(o).into()),
            text("Duration", |o, now| job_duration(o, now).into()),
            age_column(),
        ], true),
        ("policy", "poddisruptionbudgets") => vec![
            text("Min Available", |o, _| int_or_percent(at(o, "/spec/minAvailable"))),
            text("Max Unavailable", |o, _| int_or_percent(at(o, "/spec/maxUnavailable"))),
            number("Allowed Disruptions", |o, _| int_at(o, "/status/disruptionsAllowed").into()),
            age_column(),
        ],
        ("coordination.k8s.io", "leases") => vec![text("Holder", |o, _| str_at(o, "/spec/holderIdentity").into()), age_column()],
        ("storage.k8s.io", "storageclasses") => vec![
            text("Provisioner", |o, _| str_at(o, "/provisioner").into()),
            text("ReclaimPolicy", |o, _| or(str_at(o, "/reclaimPolicy"), "Delete").into()),
            text("VolumeBindingMode", |o, _| or(str_at(o, "/volumeBindingMode"), "Immediate").into()),
            text("AllowVolumeExpansion", |o, _| at(o, "/allowVolumeExpansion").as_bool().unwrap_or(false).into()),
            age_column(),
        ],
        ("storage.k8s.io", "csinodes") => vec![number("Drivers", |o, _| list_at(o, "/spec/drivers").len().into()), age_column()],
        ("storage.k8s.io", "csidrivers") => vec![
            flag("AttachRequired", |o, _| at(o, "/spec/attachRequired").as_bool().unwrap_or(true).into()),
            flag("PodInfoOnMount", |o, _| at(o, "/spec/podInfoOnMount").as_bool().unwrap_or(false).into()),
            flag("StorageCapacity", |o, _| at(o, "/spec/storageCapacity").as_bool().unwrap_or(false).into()),
            text("TokenRequests", |o, _| match at(o, "/spec/tokenRequests") {
                Value::Null => "<unset>".into(),
                _ => joined(list_at(o, "/spec/tokenRequests").iter().map(|t| str_at(t, "/audience"))).into(),
            }),
            flag("RequiresRepublish", |o, _| at(o, "/spec/requiresRepublish").as_bool().unwrap_or(false).into()),
            text("Modes", |o, _| or(&joined(list_at(o, "/spec/volumeLifecycleModes").iter().filter_map(Value::as_str)), "<none>").into()),
            age_column(),
        ],
        ("storage.k8s.io", "volumeattachments") => vec![
            text("Attacher", |o, _| str_at(o, "/spec/attacher").into()),
            text("PV", |o, _| str_at(o, "/spec/source/persistentVolumeName").into()),
            text("Node", |o, _| str_at(o, "/spec/nodeName").into()),
            flag("Attached", |o, _| at(o, "/status/attached").as_bool().unwrap_or(false).into()),
            age_column(),
        ],
        ("resource.k8s.io", "resourceclaims") => vec![text("State", |o, _| claim_state(o).into()), age_column()],
        ("resource.k8s.io", "resourceslices") => vec![
            text("Node", |o, _| str_at(o, "/spec/nodeName").into()),
            text("Driver", |o, _| str_at(o, "/spec/driver").into()),
            text("Pool", |o, _| str_at(o, "/spec/pool/name").into()),
            age_column(),
        ],
        ("scheduling.k8s.io", "priorityclasses") => vec![
            number("Value", |o, _| int_at(o, "/value").into()),
            flag("Global-Default", |o, _| at(o, "/globalDefault").as_bool().unwrap_or(false).into()),
            age_column(),
            text("PreemptionPolicy", |o, _| or(str_at(o, "/preemptionPolicy"), "PreemptLowerPriority").into()),
        ],
        ("rbac.authorization.k8s.io", "roles" | "clusterroles") => vec![text("Created At", |o, _| meta_str(o, "creationTimestamp").into())],
        ("rbac.authorization.k8s.io", _) => vec![
            text("Role", |o, _| format!("{}/{}", str_at(o, "/roleRef/kind"), str_at(o, "/roleRef/name")).into()),
            age_column(),
            wide("Users", |o, _| subjects(o, "User")),
            wide("Groups", |o, _| subjects(o, "Group")),
            wide("ServiceAccounts", |o, _| subjects(o, "ServiceAccount")),
        ],
        ("admissionregistration.k8s.io", "validatingadmissionpolicies") => vec![
            number("Validations", |o, _| list_at(o, "/spec/validations").len().into()),
            text("ParamKind", |o, _| match at(o, "/spec/paramKind") {
                Value::Null => "<unset>".into(),
                kind => format!("{}/{}", str_at(kind, "/apiVersion"), str_at(kind, "/kind")).into(),
            }),
            age_column(),
        ],
        ("admissionregistration.k8s.io", "validatingadmissionpolicybindings") => vec![
            text("PolicyName", |o, _| str_at(o, "/spec/policyName").into()),
            text("ParamRef", |o, _| or(str_at(o, "/spec/paramRef/name"), "<unset>").into()),
            age_column(),
        ],
        ("apiextensions.k8s.io", "customresourcedefinitions") => vec![
            text("Scope", |o, _| str_at(o, "/spec/scope").into()),
            text("Versions", |o, _| {
                let shown = |v: &Value| format!("{}{}", str_at(v, "/name"), if at(v, "/storage") == &json!(true) { "(storage)" } else { "" });
                list_at(o, "/spec/versions").iter().map(shown).collect::<Vec<_>>().join(",").into()
            }),
            text("Created At", |o, _| meta_str(o, "creationTimestamp").into()),
        ],
        ("autoscaling", "scales") => vec![
            number("Desired", |o, _| int_at(o, "/spec/replicas").into()),
            number("Available", |o, _| int_at(o, "/status/replicas").into()),
            age_column(),
        ],
        _ => vec![age_column()],
    };
    columns.insert(0, name_column());
    columns
}
