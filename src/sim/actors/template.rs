//! What all workload controllers share: pods made from templates, owner references, template hashes.

use super::records::{Meta, Owner, Pod};
use serde_json::{Value, json};

const SAFE: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// A short hash of JSON content in the alphabet that Kubernetes uses for revisions.
#[must_use]
pub fn content_hash(content: &Value, collisions: i64) -> String {
    let mut hash: u32 = 0x811c_9dc5;
    let salt = if collisions == 0 { String::new() } else { collisions.to_string() };
    for byte in content.to_string().bytes().chain(salt.bytes()) {
        hash = (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    }
    hash.to_string().bytes().map(|digit| char::from(SAFE[digit as usize % SAFE.len()])).collect()
}

/// The controller reference to an owner.
#[must_use]
pub fn controller_of(api_version: &str, kind: &str, meta: &Meta) -> Value {
    json!([{"apiVersion": api_version, "kind": kind, "name": meta.name, "uid": meta.uid, "controller": true, "blockOwnerDeletion": true}])
}

/// A pod from a template, in the owner's namespace. `name` ending with `-` is a `generateName`.
#[must_use]
pub fn pod_from(template: &Value, api_version: &str, kind: &str, owner: &Meta, name: &str, labels: &[(&str, &str)]) -> Value {
    let mut metadata = json!({"namespace": owner.ns(), "ownerReferences": controller_of(api_version, kind, owner)});
    metadata[if name.ends_with('-') { "generateName" } else { "name" }] = json!(name);
    for field in ["labels", "annotations", "finalizers"] {
        if let Some(value) = template.pointer(&format!("/metadata/{field}")).filter(|value| !value.is_null()) {
            metadata[field] = value.clone();
        }
    }
    for (key, value) in labels {
        metadata["labels"][*key] = json!(value);
    }
    json!({"metadata": metadata, "spec": template["spec"]})
}

/// Whether this object controls the pod.
#[must_use]
pub fn controls(meta: &Meta, pod: &Pod) -> bool {
    pod.metadata.controller().is_some_and(|owner| owner.uid == meta.uid)
}

/// The key of the owner of this kind that controls an object.
#[must_use]
pub fn owner_key(meta: &Meta, kind: &str) -> Option<String> {
    let owner: &Owner = meta.controller().filter(|owner| owner.kind == kind)?;
    Some(format!("{}/{}", meta.ns(), owner.name))
}

/// An integer or a percentage of `total`, rounded up; `None` if it is neither.
#[must_use]
pub fn int_or_percent(value: &Value, total: i64) -> Option<i64> {
    match value {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => match text.strip_suffix('%') {
            Some(percent) => percent
                .trim()
                .parse::<i64>()
                .ok()
                .map(|percent| (percent * total).div_euclid(100) + i64::from((percent * total) % 100 != 0)),
            None => text.parse().ok(),
        },
        _ => None,
    }
}

/// The hash under which a template of a Deployment, StatefulSet or DaemonSet goes.
#[must_use]
pub fn template_of(revision: &Value) -> Value {
    let mut template = revision.pointer("/spec/template").cloned().unwrap_or_default();
    if let Some(object) = template.as_object_mut() {
        object.remove("$patch");
    }
    template
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_round_up_and_hashes_use_the_safe_alphabet() {
        assert_eq!(int_or_percent(&json!("25%"), 3), Some(1));
        assert_eq!(int_or_percent(&json!("50%"), 4), Some(2));
        assert_eq!(int_or_percent(&json!(2), 4), Some(2));
        assert_eq!(int_or_percent(&json!(null), 4), None);
        let (one, two) = (content_hash(&json!({"a": 1}), 0), content_hash(&json!({"a": 1}), 1));
        assert_ne!(one, two);
        assert!(one.bytes().all(|byte| SAFE.contains(&byte)));
    }
}
