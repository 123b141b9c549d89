//! Objects of lockkeeper that a server accepts, to be spoilt in one place by a test.

use serde_json::{Value, json};

/// A pod template with one container.
pub fn template(name: &str, image: &str) -> Value {
    json!({"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": name, "image": image}]}})
}

/// A component with loader, plugin and unload templates of the version.
pub fn component(namespace: &str, name: &str, version: &str) -> Value {
    json!({
        "apiVersion": "lockkeeper.dev/v1alpha1", "kind": "NodeComponent",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {
            "version": version,
            "kernelModule": {
                "daemonSets": {
                    "loader": template("loader", &format!("loader:{version}")),
                    "devicePlugin": template("plugin", &format!("plugin:{version}")),
                    "unload": template("unload", &format!("unload:{version}")),
                },
                "devices": {"resourceNames": [format!("{namespace}.example.com/{name}")]},
            },
        },
    })
}

/// The handoff of a node to a version.
pub fn handoff(namespace: &str, component: &str, node: &str, version: &str) -> Value {
    json!({
        "apiVersion": "lockkeeper.dev/v1alpha1", "kind": "NodeHandoff",
        "metadata": {"namespace": namespace, "name": format!("{component}.{node}")},
        "spec": {"component": component, "node": node, "version": version},
    })
}
