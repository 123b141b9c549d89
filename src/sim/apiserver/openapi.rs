//! `/openapi`: which kinds take `fieldValidation`, asked before every apply, and what `kubectl explain` shows. Custom resources with the
//! schema of their CRD; builtin kinds with names and types alone.

use serde_json::{Map, Value, json};

use super::{
    resource::{Registry, Resource},
    types,
};

/// A whole, empty document of the second version: nothing is found there, which sends a client on.
pub const V2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

fn root_of(resource: &Resource) -> String {
    if resource.group.is_empty() {
        format!("api/{}", resource.version)
    } else {
        format!("apis/{}/{}", resource.group, resource.version)
    }
}

fn info() -> Value {
    json!({"title": "Kubernetes", "version": "v1.37.2+lockkeeper-sim"})
}

/// The list of documents.
pub fn index(registry: &Registry) -> Value {
    let paths: Map<String, Value> = registry
        .all()
        .map(|r| (root_of(r), json!({"serverRelativeURL": format!("/openapi/v3/{}?hash=0", root_of(r))})))
        .collect();
    json!({"paths": paths})
}

pub fn v2() -> Value {
    json!({"swagger": "2.0", "info": info(), "paths": {}, "definitions": {}})
}

/// The document of one group version (`api/v1`, `apis/apps/v1`).
pub fn document(registry: &Registry, root: &str) -> Option<Value> {
    let (mut paths, mut schemas) = (Map::new(), Map::new());
    for resource in registry.all().filter(|r| root_of(r) == root) {
        let scope = if resource.namespaced { "/namespaces/{namespace}" } else { "" };
        let names = ["dryRun", "fieldManager", "fieldValidation", "force"];
        let parameters: Vec<Value> =
            names.iter().map(|n| json!({"name": n, "in": "query", "schema": {"type": "string"}})).collect();
        let kind = json!({"group": resource.group, "version": resource.version, "kind": resource.kind});
        let operation = json!({"parameters": parameters, "responses": {}, "x-kubernetes-group-version-kind": kind});
        paths.insert(format!("/{root}{scope}/{}/{{name}}", resource.plural), json!({"patch": operation, "put": operation}));
        let name = match &resource.custom {
            Some(custom) => {
                let name = custom_name(resource);
                schemas.insert(name.clone(), custom_schema(&custom.schema));
                if let Some(metadata) = types::message_name("ObjectMeta", "") {
                    builtin(metadata, &mut schemas);
                }
                name
            }
            None => {
                let Some(message) = types::message_name(&resource.kind, &resource.api_version()) else { continue };
                builtin(message, &mut schemas);
                message.to_owned()
            }
        };
        if let Some(schema) = schemas.get_mut(&name) {
            schema["x-kubernetes-group-version-kind"] = json!([kind]);
        }
    }
    if paths.is_empty() {
        return None;
    }
    Some(json!({"openapi": "3.0.0", "info": info(), "paths": paths, "components": {"schemas": schemas}}))
}

/// `dev.lockkeeper.v1alpha1.NodeComponent`.
fn custom_name(resource: &Resource) -> String {
    let mut parts: Vec<&str> = resource.group.split('.').collect();
    parts.reverse();
    format!("{}.{}.{}", parts.join("."), resource.version, resource.kind)
}

const API_VERSION: &str = "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources";
const KIND: &str = "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";
const METADATA: &str = "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

/// The CRD's schema with what every object has.
fn custom_schema(schema: &Value) -> Value {
    let mut out = schema.clone();
    if !out.get("properties").is_some_and(Value::is_object) {
        out["properties"] = json!({});
    }
    out["properties"]["apiVersion"] = json!({"type": "string", "description": API_VERSION});
    out["properties"]["kind"] = json!({"type": "string", "description": KIND});
    if let Some(metadata) = types::message_name("ObjectMeta", "") {
        out["properties"]["metadata"] = json!({"description": METADATA, "allOf": [reference(metadata)]});
    }
    out
}

fn reference(message: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{message}")})
}

/// The schema of a message and of all that it holds.
fn builtin(message: &str, schemas: &mut Map<String, Value>) {
    if schemas.contains_key(message) {
        return;
    }
    schemas.insert(message.to_owned(), Value::Null);
    let is_object = types::is_object(message);
    let mut properties = Map::new();
    if is_object {
        properties.insert("apiVersion".into(), json!({"type": "string", "description": API_VERSION}));
        properties.insert("kind".into(), json!({"type": "string", "description": KIND}));
    }
    for (name, shape, of) in types::fields_of(message) {
        let one = match of {
            "string" | "quantity" | "duration" | "intstr" => json!({"type": "string"}),
            "time" => json!({"type": "string", "format": "date-time"}),
            "bytes" => json!({"type": "string", "format": "byte"}),
            "bool" => json!({"type": "boolean"}),
            "int" => json!({"type": "integer"}),
            "double" => json!({"type": "number"}),
            "items" => json!({"type": "array", "items": {"type": "string"}}),
            "raw" => json!({"type": "object"}),
            inner => {
                builtin(inner, schemas);
                reference(inner)
            }
        };
        let whole = match shape {
            types::Shape::One => one,
            types::Shape::List => json!({"type": "array", "items": one}),
            types::Shape::Map => json!({"type": "object", "additionalProperties": one}),
        };
        properties.insert(name.to_owned(), whole);
    }
    schemas.insert(message.to_owned(), json!({"type": "object", "properties": properties}));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reference_of_every_document_is_there() {
        fn references(value: &Value, out: &mut Vec<String>) {
            match value {
                Value::Object(fields) => {
                    out.extend(fields.get("$ref").and_then(Value::as_str).map(str::to_owned));
                    fields.values().for_each(|field| references(field, out));
                }
                Value::Array(items) => items.iter().for_each(|item| references(item, out)),
                _ => {}
            }
        }
        let registry = Registry::builtin();
        for root in index(&registry)["paths"].as_object().unwrap().keys() {
            let document = document(&registry, root).unwrap();
            let mut found = Vec::new();
            references(&document, &mut found);
            for reference in found {
                let name = reference.trim_start_matches("#/components/schemas/");
                assert!(document["components"]["schemas"][name].is_object(), "{root}: {reference}");
            }
        }
        assert!(document(&registry, "apis/none/v1").is_none());
    }
}
