//! The CustomResourceDefinitions of lockkeeper's objects, as a server takes them without a warning.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;

use super::{NodeComponent, NodeHandoff};

/// NodeComponent and NodeHandoff, derived from the Rust types.
pub fn crds() -> [CustomResourceDefinition; 2] {
    [NodeComponent::crd(), NodeHandoff::crd()].map(|mut crd| {
        for version in &mut crd.spec.versions {
            if let Some(schema) = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut()) {
                known_formats(schema);
            }
        }
        crd
    })
}

/// `uint32` is no format of OpenAPI: servers warn about it and check nothing. `int32` is checked, so what they let in is always decoded.
fn known_formats(schema: &mut JSONSchemaProps) {
    if schema.format.as_deref().is_some_and(|format| format.starts_with("uint")) {
        schema.format = Some("int32".to_owned());
    }
    schema.properties.iter_mut().flat_map(|properties| properties.values_mut()).for_each(known_formats);
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        known_formats(items);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        known_formats(values);
    }
}

#[cfg(test)]
mod tests;
