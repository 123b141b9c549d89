//! As much of `/openapi/v3` as kubectl asks before it applies: which kinds take `fieldValidation`. No schemas.

use serde_json::{Map, Value, json};

use super::resource::{Registry, Resource};

fn root_of(resource: &Resource) -> String {
    if resource.group.is_empty() {
        format!("api/{}", resource.version)
    } else {
        format!("apis/{}/{}", resource.group, resource.version)
    }
}

/// The list of documents.
pub fn index(registry: &Registry) -> Value {
    let paths: Map<String, Value> = registry
        .all()
        .map(|r| (root_of(r), json!({"serverRelativeURL": format!("/openapi/v3/{}?hash=0", root_of(r))})))
        .collect();
    json!({"paths": paths})
}

/// The document of one group version (`api/v1`, `apis/apps/v1`).
pub fn document(registry: &Registry, root: &str) -> Option<Value> {
    let mut paths = Map::new();
    for resource in registry.all().filter(|r| root_of(r) == root) {
        let scope = if resource.namespaced { "/namespaces/{namespace}" } else { "" };
        let names = ["dryRun", "fieldManager", "fieldValidation", "force"];
        let parameters: Vec<Value> =
            names.iter().map(|n| json!({"name": n, "in": "query", "schema": {"type": "string"}})).collect();
        let kind = json!({"group": resource.group, "version": resource.version, "kind": resource.kind});
        let operation = json!({"parameters": parameters, "responses": {}, "x-kubernetes-group-version-kind": kind});
        paths.insert(format!("/{root}{scope}/{}/{{name}}", resource.plural), json!({"patch": operation, "put": operation}));
    }
    if paths.is_empty() {
        return None;
    }
    let info = json!({"title": "Kubernetes", "version": "v1.37.2+lockkeeper-sim"});
    Some(json!({"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": {}}}))
}
