//! What is there before the first request, and objects that a fixture puts in place without one.

use bytes::Bytes;
use serde_json::{Value, json};

use super::call::{Call, Identity, Query, Verb};
use super::convert::Form;
use super::refusal::Refusal;
use super::state::State;
use super::write;

/// Creates one object as if a client had posted it; an existing status is kept.
pub fn install(state: &mut State, client: &str, object: Value) -> Result<(), Refusal> {
    let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let resource = state.registry.by_kind(&text("apiVersion"), &text("kind")).cloned().ok_or_else(|| {
        Refusal::bad_request(format!("no resource of kind {} in version {} is served", text("kind"), text("apiVersion")))
    })?;
    let namespace = if resource.namespaced {
        match write::meta_str(&object, "namespace") {
            "" => "default".to_owned(),
            given => given.to_owned(),
        }
    } else {
        String::new()
    };
    let mut call = Call {
        verb: Verb::Create,
        form: Form::plain(&resource),
        resource: resource.clone(),
        namespace,
        name: String::new(),
        sub: String::new(),
        query: Query::default(),
        patch: None,
        who: Identity::new(client),
        manager: client.to_owned(),
        body: Bytes::from(object.to_string()),
        yaml: false,
        came: state.clock.now(),
    };
    write::create(state, &call)?;
    let status = object.get("status").filter(|_| resource.has.status && !resource.has.status_on_create);
    if let Some(status) = status {
        call.name = write::meta_str(&object, "name").to_owned();
        call.sub = "status".into();
        call.verb = Verb::Patch;
        call.patch = Some(super::call::PatchType::Merge);
        call.body = Bytes::from(json!({"status": status}).to_string());
        write::patch(state, &call)?;
    }
    Ok(())
}

/// Namespaces and priority classes of a fresh cluster.
pub fn fill(state: &mut State) {
    let namespaces = ["default", "kube-system", "kube-public", "kube-node-lease"];
    let mut objects: Vec<Value> =
        namespaces.iter().map(|n| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": n}})).collect();
    for (name, value) in [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)] {
        objects.push(json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value,
            "description": "Used for system critical pods.",
        }));
    }
    for object in objects {
        if let Err(refusal) = install(state, "kube-apiserver", object) {
            tracing::error!(message = %refusal.message, "the simulated server could not make its first objects");
        }
    }
}
