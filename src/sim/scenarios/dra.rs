//! The GPU module with a DRA driver instead of a device plugin, and pods that hold its devices in every form of claim. Objects only.

use serde_json::{Value, json};

use super::{
    kernel_module as gpu,
    objects::{self, Object},
};

/// The component's own driver, and another one on the same nodes that is none of its business.
pub const DRIVER: &str = "gpu.vendor.example";
pub const OTHER_DRIVER: &str = "nic.vendor.example";
/// Device classes of the two.
pub const CLASS: &str = "gpu";
pub const OTHER_CLASS: &str = "nic";
/// Devices of each driver on a node.
pub const DEVICES: u32 = 8;

/// `spec.kernelModule` of a version, with the DRA driver's DaemonSet where a device plugin would be.
pub fn kernel_module(version: &str) -> Value {
    json!({
        "daemonSets": {"loader": gpu::loader(version), "devicePlugin": driver(version), "unload": gpu::unload(version)},
        "devices": {"draDrivers": [DRIVER]},
    })
}

fn driver(version: &str) -> Value {
    let mut template = gpu::device_plugin(version);
    let annotations = &mut template["metadata"]["annotations"];
    annotations["sim.lockkeeper.dev/behaviour"] = json!("dra-driver");
    annotations["sim.lockkeeper.dev/driver"] = json!(DRIVER);
    annotations["sim.lockkeeper.dev/devices"] = json!(DEVICES.to_string());
    template
}

/// The NodeComponent's spec at a version.
pub fn component_spec(version: &str) -> Value {
    let mut spec = gpu::component_spec(version);
    spec["kernelModule"] = kernel_module(version);
    spec
}

/// Device classes of both drivers, and the other driver itself.
pub fn drivers() -> Vec<Object> {
    let annotations = json!({
        "sim.lockkeeper.dev/behaviour": "dra-driver", "sim.lockkeeper.dev/driver": OTHER_DRIVER, "sim.lockkeeper.dev/devices": DEVICES.to_string(),
    });
    let mut template = objects::template("nic-driver", None, 5);
    template["metadata"]["annotations"] = annotations;
    let set = json!({"selector": {"matchLabels": {"app": "nic-driver"}}, "template": template});
    vec![
        class(CLASS, DRIVER),
        class(OTHER_CLASS, OTHER_DRIVER),
        Object::new(
            "apps/v1",
            "DaemonSet",
            "daemonsets",
            Some("kube-system"),
            json!({"metadata": {"name": "nic-driver"}, "spec": set}),
        ),
    ]
}

pub fn class(name: &str, driver: &str) -> Object {
    let spec = json!({"selectors": [{"cel": {"expression": format!("device.driver == \"{driver}\"")}}]});
    let body = json!({"metadata": {"name": name}, "spec": spec});
    Object::new("resource.k8s.io/v1", "DeviceClass", "deviceclasses", None, body)
}

/// One request for a device of a class.
pub fn request(name: &str, class: &str) -> Value {
    json!({"name": name, "exactly": {"deviceClassName": class}})
}

/// A ResourceClaim that pods name.
pub fn claim(namespace: &str, name: &str, requests: Value) -> Object {
    let body = json!({"metadata": {"name": name}, "spec": {"devices": {"requests": requests}}});
    Object::new("resource.k8s.io/v1", "ResourceClaim", "resourceclaims", Some(namespace), body)
}

/// A ResourceClaimTemplate: one claim for each pod.
pub fn claim_template(namespace: &str, name: &str, requests: Value) -> Object {
    let body = json!({"metadata": {"name": name}, "spec": {"spec": {"devices": {"requests": requests}}}});
    Object::new("resource.k8s.io/v1", "ResourceClaimTemplate", "resourceclaimtemplates", Some(namespace), body)
}

/// A pod template that holds one claim: `resourceClaimName` or `resourceClaimTemplateName`.
pub fn holder(app: &str, how: &str, name: &str, grace: u32) -> Value {
    let mut template = objects::template(app, None, grace);
    template["spec"]["resourceClaims"] = json!([{"name": "device", how: name}]);
    template["spec"]["containers"][0]["resources"] = json!({"claims": [{"name": "device"}]});
    template
}

pub const BY_NAME: &str = "resourceClaimName";
pub const BY_TEMPLATE: &str = "resourceClaimTemplateName";
