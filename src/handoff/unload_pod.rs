//! The pod that takes a module out of the kernel: its body from the old version's block, and what its end proves.

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::{
    api::{
        ComponentKey, NodeName, Version,
        component::KernelModule,
        keys::{self, Role},
        versioned::{self, version_hash},
    },
    fleet::records::{ContainerState, PodPhase, PodRecord},
};

/// What an unload pod shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It exited 0: the module is out.
    Unloaded,
    /// It ended otherwise: exit code (-1: it never ran) and the end of its log or the reason.
    Failed { exit_code: i32, message: String },
    /// Not yet ended; the text says what it is doing.
    Running { message: String },
}

/// Reads a pod's end. Only exit 0 of every container is a proof.
pub fn outcome(pod: &PodRecord) -> Outcome {
    let containers = pod.extra.as_ref().map(|extra| &extra.containers[..]).unwrap_or_default();
    let failed = containers.iter().find_map(|container| match &container.state {
        ContainerState::Terminated { exit_code, reason, message, .. } if *exit_code != 0 => {
            let text = if message.trim().is_empty() { reason } else { message };
            Some((*exit_code, format!("container {}: {}", container.name, text.trim())))
        }
        _ => None,
    });
    let ended = |container: &crate::fleet::records::ContainerRecord| matches!(container.state, ContainerState::Terminated { .. });
    match pod.phase {
        PodPhase::Succeeded if failed.is_none() && !containers.is_empty() && containers.iter().all(ended) => Outcome::Unloaded,
        PodPhase::Succeeded | PodPhase::Failed => {
            let (exit_code, message) = failed.unwrap_or_else(|| {
                let extra = pod.extra.as_deref();
                let (reason, message) = extra.map_or(("", ""), |extra| (&*extra.reason, &*extra.message));
                (-1, format!("the pod ended without running: {reason} {message}").trim().to_owned())
            });
            Outcome::Failed { exit_code, message }
        }
        _ => {
            let waiting = containers.iter().find_map(|container| match &container.state {
                ContainerState::Waiting { reason, message } if !reason.is_empty() => {
                    Some(format!("container {} waits: {reason} {message}", container.name))
                }
                _ => None,
            });
            let state = match pod.phase {
                PodPhase::Pending => "it is Pending: the kubelet has not started it yet",
                PodPhase::Unknown => "it is Unknown: its node does not say",
                _ => "it is running",
            };
            Outcome::Running { message: waiting.unwrap_or_else(|| state.to_owned()).trim().to_owned() }
        }
    }
}

/// The nonce that the pod was made for.
pub fn nonce_of(pod: &PodRecord) -> Option<&str> {
    pod.extra.as_ref()?.annotations.get(keys::NONCE).map(|text| &**text)
}

/// A nonce: a legal label value and part of a name. Made from what never comes twice, since decisions know no chance.
pub fn nonce(parts: &[&str]) -> String {
    let hash = Sha256::digest(parts.join("\n").as_bytes());
    hash.iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

/// The pod's body; None when the version has no `unload`. It is bound to its node and to the nonce label: one that comes late, from a
/// leader that no longer is, finds another nonce or none, and the kubelet refuses it.
pub fn body(component: &ComponentKey, version: &Version, block: &KernelModule, node: &NodeName, nonce: &str) -> Option<Value> {
    let template = block.unload()?;
    let mut spec = template.get("spec").and_then(Value::as_object).cloned().unwrap_or_default();
    spec.remove("affinity");
    spec.remove("topologySpreadConstraints");
    spec.insert("nodeName".into(), json!(node.as_str()));
    spec.insert("nodeSelector".into(), json!({Role::Nonce.key(component): nonce}));
    spec.insert("restartPolicy".into(), json!("Never"));
    spec.insert("tolerations".into(), json!([{"operator": "Exists"}]));
    spec.insert("priorityClassName".into(), json!("system-node-critical"));
    spec.remove("priority");
    let mut labels = map_of(template, "/metadata/labels");
    labels.insert(keys::COMPONENT.into(), json!(&*component.name));
    labels.insert(keys::ROLE.into(), json!(versioned::UNLOAD));
    labels.insert(keys::VERSION.into(), json!(version.as_str()));
    let mut annotations = map_of(template, "/metadata/annotations");
    annotations.insert(keys::NONCE.into(), json!(nonce));
    Some(json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": format!("{}-unload-{}-{nonce}", component.name, version_hash(version)),
            "namespace": &*component.namespace,
            "labels": labels,
            "annotations": annotations,
        },
        "spec": spec,
    }))
}

pub(super) fn map_of(value: &Value, pointer: &str) -> Map<String, Value> {
    value.pointer(pointer).and_then(Value::as_object).cloned().unwrap_or_default()
}
