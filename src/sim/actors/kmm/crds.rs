//! The CustomResourceDefinitions of KMM, as far as the simulated operator needs them: names, scopes, status, and open schemas.

use serde_json::{Value, json};

use crate::kmm::records::{GROUP, VERSION};

fn crd(kind: &str, plural: &str, short: &[&str], scope: &str) -> Value {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let schema = json!({"type": "object", "properties": {"spec": open, "status": open}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{GROUP}")},
        "spec": {
            "group": GROUP, "scope": scope,
            "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": kind.to_lowercase(), "shortNames": short},
            "versions": [{"name": VERSION, "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}}}],
        },
    })
}

/// Module, NodeModulesConfig and ModuleImagesConfig.
#[must_use]
pub fn crds() -> Vec<Value> {
    vec![
        crd("Module", "modules", &[], "Namespaced"),
        crd("NodeModulesConfig", "nodemodulesconfigs", &["nmc"], "Cluster"),
        crd("ModuleImagesConfig", "moduleimagesconfigs", &["mic"], "Namespaced"),
    ]
}
