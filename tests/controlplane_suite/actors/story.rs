//! What a story of the controllers is made of: objects, hands on them, and machines. Data only; `play.rs` acts on it.
//!
//! In bodies `$NS` is the story's namespace, `$a` to `$d` are its nodes. All nodes carry `pool: $NS`.

use serde_json::{Value, json};

/// The resource that each machine of a story has two of, without a plugin.
pub const THING: &str = "example.com/thing";

#[derive(Debug, Clone)]
pub enum Step {
    /// Create it in the story's namespace: plural, body.
    Make(&'static str, Value),
    /// Merge patch of `plural/name`, of `nodes/a`, or of a pod by its place (see [`Step::Evict`]).
    Merge(String, Value),
    /// The same, of the status.
    Status(String, Value),
    /// With these DeleteOptions.
    Delete(String, Value),
    /// `pods/web@a` is the pod with `app: web` on node a, `pods/web#1` the second oldest one; else a name. The answer's code is part of
    /// what is compared.
    Evict(String),
    /// The kubelet evicts the pod for pressure: it fails.
    Fail(String),
    /// One more machine.
    AddMachine(&'static str),
    /// The Node object and its machine go.
    RemoveMachine(&'static str),
    /// Nothing is done, but the clock goes on so many seconds before the next look.
    Pass(u64),
}

#[derive(Debug, Clone)]
pub struct Story {
    pub name: &'static str,
    /// Machines at the start, named a, b, c, d.
    pub nodes: usize,
    /// The order of events holds over all pods too, with nodes called by the order in which they are first heard of.
    pub ordered: bool,
    pub steps: Vec<Step>,
}

pub fn story(name: &'static str, nodes: usize, steps: impl IntoIterator<Item = Step>) -> Story {
    Story { name, nodes, ordered: false, steps: steps.into_iter().collect() }
}

impl Story {
    pub fn ordered(mut self) -> Self {
        self.ordered = true;
        self
    }
}

pub fn merge(what: &str, patch: Value) -> Step {
    Step::Merge(what.to_owned(), patch)
}

pub fn status(what: &str, patch: Value) -> Step {
    Step::Status(what.to_owned(), patch)
}

pub fn delete(what: &str) -> Step {
    Step::Delete(what.to_owned(), json!({"propagationPolicy": "Background"}))
}

pub fn delete_as(what: &str, policy: &str) -> Step {
    Step::Delete(what.to_owned(), json!({"propagationPolicy": policy}))
}

pub fn evict(what: &str) -> Step {
    Step::Evict(what.to_owned())
}

pub fn fail(what: &str) -> Step {
    Step::Fail(what.to_owned())
}

pub fn label(node: &str, key: &str, value: Option<&str>) -> Step {
    merge(&format!("nodes/{node}"), json!({"metadata": {"labels": {key: value}}}))
}

pub fn cordon(node: &str, closed: bool) -> Step {
    merge(&format!("nodes/{node}"), json!({"spec": {"unschedulable": if closed { json!(true) } else { Value::Null }}}))
}

pub fn taint(node: &str, effect: Option<&str>) -> Step {
    let taints = effect.map(|effect| json!([{"key": "story", "value": "x", "effect": effect}]));
    merge(&format!("nodes/{node}"), json!({"spec": {"taints": taints}}))
}

/// A pod template on the story's nodes; `image` tells versions apart.
pub fn template(app: &str, image: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": app}},
        "spec": {"terminationGracePeriodSeconds": 2, "nodeSelector": {"pool": "$NS"}, "containers": [{"name": "main", "image": image}]},
    })
}

/// A template changed by a merge of its spec.
pub fn with(mut template: Value, spec: Value) -> Value {
    for (key, value) in spec.as_object().into_iter().flatten() {
        template["spec"][key] = value.clone();
    }
    template
}

pub fn things(template: Value, count: u32) -> Value {
    let mut template = template;
    template["spec"]["containers"][0]["resources"] = json!({"limits": {THING: count.to_string()}});
    template
}

pub fn daemon_set(app: &str, strategy: Value, template: Value) -> Step {
    let body = json!({"metadata": {"name": app}, "spec": {
        "selector": {"matchLabels": {"app": app}}, "updateStrategy": strategy, "template": template,
    }});
    Step::Make("daemonsets", body)
}

pub fn on_delete() -> Value {
    json!({"type": "OnDelete"})
}

pub fn rolling(how: Value) -> Value {
    json!({"type": "RollingUpdate", "rollingUpdate": how})
}

/// Another image, and so another revision.
pub fn image(what: &str, image: &str) -> Step {
    // A merge replaces lists whole.
    merge(what, json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": image}]}}}}))
}

fn replicated(kind: &'static str, app: &str, replicas: u32, template: Value, extra: Value) -> Step {
    let mut body = json!({"metadata": {"name": app}, "spec": {
        "replicas": replicas, "selector": {"matchLabels": {"app": app}}, "template": template,
    }});
    for (key, value) in extra.as_object().into_iter().flatten() {
        body["spec"][key] = value.clone();
    }
    Step::Make(kind, body)
}

pub fn replica_set(app: &str, replicas: u32, template: Value) -> Step {
    replicated("replicasets", app, replicas, template, json!({}))
}

pub fn deployment(app: &str, replicas: u32, template: Value, extra: Value) -> Step {
    replicated("deployments", app, replicas, template, extra)
}

pub fn stateful_set(app: &str, replicas: u32, template: Value, policy: &str) -> Step {
    replicated("statefulsets", app, replicas, template, json!({"serviceName": app, "podManagementPolicy": policy}))
}

pub fn scale(what: &str, replicas: u32) -> Step {
    merge(what, json!({"spec": {"replicas": replicas}}))
}

pub fn budget(name: &str, app: &str, rule: Value) -> Step {
    let mut body = json!({"metadata": {"name": name}, "spec": {"selector": {"matchLabels": {"app": app}}}});
    for (key, value) in rule.as_object().into_iter().flatten() {
        body["spec"][key] = value.clone();
    }
    Step::Make("poddisruptionbudgets", body)
}

/// A pod of nobody.
pub fn pod(name: &str, template: Value) -> Step {
    let mut body = template;
    body["metadata"]["name"] = json!(name);
    Step::Make("pods", body)
}

/// An object that can own and be owned, and that no controller touches.
pub fn thing(name: &str, extra: Value) -> Step {
    let mut metadata = json!({"name": name});
    for (key, value) in extra.as_object().into_iter().flatten() {
        metadata[key] = value.clone();
    }
    Step::Make("leases", json!({"metadata": metadata, "spec": {}}))
}

/// A reference to a lease of the story by name; `$UID(name)` becomes its UID.
pub fn owner(name: &str, block: bool) -> Value {
    json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "name": name, "uid": format!("$UID({name})"), "blockOwnerDeletion": block})
}
