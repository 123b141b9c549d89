//! The CRDs' size and formats, and their CEL rules run as a server runs them. Patterns and bounds are tried on a real server.

use kube::core::cel::Validator;
use serde_json::{Value, json};

use super::*;

#[test]
fn a_plain_kubectl_apply_takes_them() {
    for crd in crds() {
        let size = serde_json::to_string(&crd).unwrap().len();
        assert!(size < 256 * 1024, "kubectl apply keeps a copy in an annotation of at most 256 KiB: {size}");
    }
}

#[test]
fn no_format_is_unknown_to_a_server() {
    for crd in crds() {
        assert!(!serde_json::to_string(&crd).unwrap().contains("\"uint"));
    }
}

#[test]
fn both_have_a_status_of_their_own() {
    for crd in crds() {
        let status = crd.spec.versions[0].subresources.as_ref().and_then(|it| it.status.as_ref());
        assert!(status.is_some(), "{:?}: a spec's writer must not write the status", crd.metadata.name);
    }
}

/// What the rules say to `new`, as an update of `old` if there is one.
fn refusals(new: &Value, old: Option<&Value>) -> Vec<String> {
    let kind = new["kind"].as_str().unwrap();
    let crd = crds().into_iter().find(|crd| crd.spec.names.kind == kind).unwrap();
    let schema = crd.spec.versions[0].schema.clone().unwrap().open_api_v3_schema.unwrap();
    let schema = serde_json::to_value(schema).unwrap();
    match Validator::new().validate_with_defaults(&schema, new, old) {
        Ok(()) => Vec::new(),
        Err(errors) => errors.into_vec().into_iter().map(|error| error.message).collect(),
    }
}

fn component() -> Value {
    json!({
        "apiVersion": "lockkeeper.dev/v1alpha1", "kind": "NodeComponent",
        "metadata": {"namespace": "ns", "name": "gpu"},
        "spec": {
            "version": "1.0",
            "kernelModule": {
                "daemonSets": {"loader": {"spec": {"a": 1}}, "devicePlugin": {"spec": {}}, "unload": {"spec": {}}},
                "devices": {"resourceNames": ["vendor.example/gpu"]},
            },
        },
    })
}

fn handoff() -> Value {
    json!({
        "apiVersion": "lockkeeper.dev/v1alpha1", "kind": "NodeHandoff",
        "metadata": {"namespace": "ns", "name": "gpu.n1"},
        "spec": {"component": "gpu", "node": "n1", "version": "2.0", "attempt": 2},
    })
}

fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    *object.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer}")) = value;
    object
}

#[track_caller]
fn refused(object: Value, old: Option<&Value>, words: &str) {
    let said = refusals(&object, old);
    assert!(said.iter().any(|it| it.contains(words)), "wanted {words:?}, got {said:?}");
}

#[track_caller]
fn accepted(object: Value, old: Option<&Value>) {
    assert_eq!(refusals(&object, old), Vec::<String>::new());
}

#[test]
fn a_component_that_can_never_work_is_refused() {
    const DEVICES: &str = "/spec/kernelModule/devices";
    accepted(component(), None);
    refused(with(component(), "/metadata/name", json!("n".repeat(53))), None, "at most 52");
    refused(with(component(), DEVICES, json!({})), None, "devices names none");
    refused(with(component(), DEVICES, json!({"resourceNames": ["cpu"]})), None, "extended resources");
    refused(with(component(), DEVICES, json!({"resourceNames": ["a.kubernetes.io/x"]})), None, "extended resources");
    let some = json!({"matchLabels": {"a": "b"}});
    refused(with(component(), DEVICES, json!({"podSelector": {}, "podNamespaces": ["a"]})), None, "means every pod");
    refused(with(component(), DEVICES, json!({"podSelector": some})), None, "need one another");
    refused(with(component(), DEVICES, json!({"draDrivers": ["d"], "podNamespaces": ["a"]})), None, "need one another");
    accepted(with(component(), DEVICES, json!({"podSelector": some, "podNamespaces": ["a"]})), None);
    let bare = json!({"matchExpressions": [{"key": "a", "operator": "In"}]});
    refused(with(component(), DEVICES, json!({"podSelector": bare, "podNamespaces": ["a"]})), None, "need values");

    let mut no_unload = component();
    no_unload["spec"]["kernelModule"]["daemonSets"].as_object_mut().unwrap().remove("unload");
    refused(no_unload.clone(), None, "needs daemonSets.unload");
    no_unload["spec"]["kernelModule"]["unloadBy"] = json!("Reboot");
    accepted(no_unload, None);
}

#[test]
fn a_versions_content_changes_only_with_its_name() {
    let old = component();
    let changed = with(component(), "/spec/kernelModule/daemonSets/loader/spec/a", json!(2));
    refused(changed.clone(), Some(&old), "give the new content a new version");
    accepted(with(changed, "/spec/version", json!("2.0")), Some(&old));
    let mut policy = component();
    policy["spec"]["rollout"] = json!({"mode": "Auto"});
    accepted(policy, Some(&old));
}

#[test]
fn a_handoff_is_one_of_one_component_and_one_node() {
    let old = handoff();
    accepted(handoff(), None);
    refused(with(handoff(), "/metadata/name", json!("gpu.n2")), None, "one per component and node");
    refused(with(handoff(), "/spec/node", json!("n2")), Some(&old), "node is immutable");
    refused(with(handoff(), "/spec/component", json!("nic")), Some(&old), "component is immutable");
    refused(with(handoff(), "/spec/attempt", json!(1)), Some(&old), "attempt only rises");
    accepted(with(with(handoff(), "/spec/attempt", json!(3)), "/spec/version", json!("1.0")), Some(&old));
}

fn csi_component() -> Value {
    json!({
        "apiVersion": "lockkeeper.dev/v1alpha1", "kind": "NodeComponent",
        "metadata": {"namespace": "ceph", "name": "cephfs"},
        "spec": {"csiNodePlugin": {"driver": "cephfs.csi.ceph.com"}},
    })
}

fn kmm_component() -> Value {
    json!({
        "apiVersion": "lockkeeper.dev/v1alpha1", "kind": "NodeComponent",
        "metadata": {"namespace": "drv", "name": "mod"},
        "spec": {"kernelModule": {"kmmModule": {"name": "mod"}, "devices": {"resourceNames": ["vendor.example/gpu"]}}},
    })
}

#[test]
fn what_follows_a_module_of_kmm_has_no_version_and_no_templates_of_its_own() {
    accepted(kmm_component(), None);
    let mut versioned = kmm_component();
    versioned["spec"]["version"] = json!("1");
    refused(versioned, None, "the version in the Module");
    let mut both = kmm_component();
    both["spec"]["kernelModule"]["daemonSets"] = component()["spec"]["kernelModule"]["daemonSets"].clone();
    refused(both, None, "exactly one of daemonSets");
    let mut neither = kmm_component();
    neither["spec"]["kernelModule"].as_object_mut().unwrap().remove("kmmModule");
    refused(neither, None, "exactly one of daemonSets");
    let mut reboot = kmm_component();
    reboot["spec"]["kernelModule"]["unloadBy"] = json!("Reboot");
    refused(reboot, None, "cannot be kept with kmmModule");
    let old = kmm_component();
    refused(
        with(kmm_component(), "/spec/kernelModule/kmmModule/name", json!("other")),
        Some(&old),
        "never follows another Module",
    );
    let mut own = component();
    own["metadata"] = old["metadata"].clone();
    refused(own, Some(&old), "never becomes one of another kind");
    accepted(with(kmm_component(), "/spec/kernelModule/devices", json!({"draDrivers": ["d"]})), Some(&old));
    let mut unnamed = kmm_component();
    unnamed["spec"]["kernelModule"]["devices"] = json!({});
    refused(unnamed, None, "devices names none");
}

#[test]
fn a_component_is_of_exactly_one_kind_and_stays_so() {
    accepted(csi_component(), None);
    let mut both = component();
    both["spec"]["csiNodePlugin"] = json!({"driver": "a.b"});
    refused(both, None, "exactly one of");
    let mut none = csi_component();
    none["spec"] = json!({});
    refused(none, None, "exactly one of");
    let mut versioned = csi_component();
    versioned["spec"]["version"] = json!("1");
    refused(versioned, None, "csiNodePlugin takes no version");
    let mut unversioned = component();
    unversioned["spec"].as_object_mut().unwrap().remove("version");
    refused(unversioned, None, "daemonSets needs a version");
    let mut open = csi_component();
    open["spec"]["drain"] = json!({"cordon": "Never"});
    refused(open, None, "must be closed meanwhile");
    let module = json!({"apiVersion": "lockkeeper.dev/v1alpha1", "kind": "NodeComponent", "metadata": csi_component()["metadata"],
        "spec": component()["spec"]});
    refused(module, Some(&csi_component()), "never becomes one of another kind");
}
