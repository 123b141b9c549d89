//! Builders of the Kubernetes objects that scenarios and tests start with, as JSON. They are what a user would apply.

use serde_json::{Value, json};

/// An object for the API server: where to create it, and its body.
#[derive(Debug, Clone)]
pub struct Object {
    /// `v1`, `apps/v1`.
    pub api_version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    pub namespace: Option<String>,
    pub body: Value,
}

impl Object {
    pub(in crate::sim) fn new(
        api_version: &'static str,
        kind: &'static str,
        plural: &'static str,
        namespace: Option<&str>,
        mut body: Value,
    ) -> Self {
        body["apiVersion"] = json!(api_version);
        body["kind"] = json!(kind);
        if let Some(namespace) = namespace {
            body["metadata"]["namespace"] = json!(namespace);
        }
        Self { api_version, kind, plural, namespace: namespace.map(str::to_owned), body }
    }

    pub fn name(&self) -> &str {
        self.body.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
    }

    /// Path of the collection.
    pub fn collection(&self) -> String {
        let root = if self.api_version.contains('/') { "/apis" } else { "/api" };
        match &self.namespace {
            Some(namespace) => format!("{root}/{}/namespaces/{namespace}/{}", self.api_version, self.plural),
            None => format!("{root}/{}/{}", self.api_version, self.plural),
        }
    }
}

pub fn namespace(name: &str) -> Object {
    Object::new("v1", "Namespace", "namespaces", None, json!({"metadata": {"name": name}}))
}

/// A worker node; its kubelet fills in the status.
pub fn node(name: &str, labels: &[(&str, &str)]) -> Object {
    let mut all = serde_json::Map::new();
    all.insert("kubernetes.io/hostname".into(), json!(name));
    all.extend(labels.iter().map(|(key, value)| ((*key).to_owned(), json!(value))));
    Object::new("v1", "Node", "nodes", None, json!({"metadata": {"name": name, "labels": all}}))
}

/// A pod template with one container that may ask for an extended resource.
pub fn template(app: &str, resource: Option<(&str, u32)>, grace: u32) -> Value {
    let mut container = json!({"name": "main", "image": format!("{app}:1")});
    if let Some((name, count)) = resource {
        container["resources"] = json!({"requests": {name: count.to_string()}, "limits": {name: count.to_string()}});
    }
    json!({
        "metadata": {"labels": {"app": app}},
        "spec": {"terminationGracePeriodSeconds": grace, "containers": [container]},
    })
}

/// A pod that nobody manages.
pub fn pod(namespace: &str, body: Value) -> Object {
    Object::new("v1", "Pod", "pods", Some(namespace), body)
}

pub fn deployment(namespace: &str, app: &str, replicas: u32, template: Value) -> Object {
    let spec = json!({"replicas": replicas, "selector": {"matchLabels": {"app": app}}, "template": template});
    Object::new("apps/v1", "Deployment", "deployments", Some(namespace), json!({"metadata": {"name": app}, "spec": spec}))
}

pub fn stateful_set(namespace: &str, app: &str, replicas: u32, template: Value) -> Object {
    let spec = json!({
        "replicas": replicas, "serviceName": app, "selector": {"matchLabels": {"app": app}}, "template": template,
        "podManagementPolicy": "Parallel",
    });
    Object::new("apps/v1", "StatefulSet", "statefulsets", Some(namespace), json!({"metadata": {"name": app}, "spec": spec}))
}

/// A DaemonSet on nodes that carry a label key, whatever its value.
pub fn daemon_set_where_label(namespace: &str, app: &str, label_key: &str, mut template: Value) -> Object {
    template["spec"]["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": label_key, "operator": "Exists"}]}],
    }}});
    let spec = json!({"selector": {"matchLabels": {"app": app}}, "template": template});
    Object::new("apps/v1", "DaemonSet", "daemonsets", Some(namespace), json!({"metadata": {"name": app}, "spec": spec}))
}

/// A DaemonSet with any strategy, on nodes that carry all of these labels.
pub fn daemon_set(namespace: &str, app: &str, node_selector: Value, strategy: Value, mut template: Value) -> Object {
    template["spec"]["nodeSelector"] = node_selector;
    template["metadata"]["labels"] = json!({"app": app});
    let spec = json!({"selector": {"matchLabels": {"app": app}}, "updateStrategy": strategy, "template": template});
    Object::new("apps/v1", "DaemonSet", "daemonsets", Some(namespace), json!({"metadata": {"name": app}, "spec": spec}))
}

/// A PodDisruptionBudget; `rule` is `minAvailable` or `maxUnavailable`.
pub fn budget(namespace: &str, app: &str, rule: &str, value: Value) -> Object {
    let spec = json!({rule: value, "selector": {"matchLabels": {"app": app}}});
    let body = json!({"metadata": {"name": app}, "spec": spec});
    Object::new("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets", Some(namespace), body)
}

pub fn component(namespace: &str, name: &str, spec: Value) -> Object {
    let body = json!({"metadata": {"name": name}, "spec": spec});
    Object::new("lockkeeper.dev/v1alpha1", "NodeComponent", "nodecomponents", Some(namespace), body)
}

pub fn handoff(namespace: &str, component: &str, node: &str, version: &str, position: i32) -> Object {
    let spec = json!({"component": component, "node": node, "version": version, "position": position, "requestedBy": "operator"});
    let body = json!({"metadata": {"name": format!("{component}.{node}")}, "spec": spec});
    Object::new("lockkeeper.dev/v1alpha1", "NodeHandoff", "nodehandoffs", Some(namespace), body)
}
