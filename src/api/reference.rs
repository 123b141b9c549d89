//! The page of the objects' fields, made from the same schema that a server gets: docs/reference.md. Compared with it by a test.

use std::fmt::Write;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};

use super::crds;

/// `field`, what it holds, its default, and what it means; one row per field, in the order of the schema.
fn page() -> String {
    let mut text = String::new();
    for crd in crds() {
        let _ = write!(text, "## {}\n\n", crd.spec.names.kind);
        for schema in crd.spec.versions.iter().filter_map(|version| version.schema.as_ref()?.open_api_v3_schema.as_ref()) {
            text.push_str("| field | holds | default | meaning |\n|---|---|---|---|\n");
            for top in ["spec", "status"] {
                if let Some(part) = schema.properties.as_ref().and_then(|all| all.get(top)) {
                    rows(&mut text, top, part);
                }
            }
        }
        text.push('\n');
    }
    text
}

fn rows(text: &mut String, path: &str, schema: &JSONSchemaProps) {
    let required = schema.required.clone().unwrap_or_default();
    for (name, field) in schema.properties.iter().flatten() {
        let path = format!("{path}.{name}");
        let needed = required.contains(name) && field.default.is_none();
        let default = match &field.default {
            Some(default) => format!("`{}`", default.0),
            None if needed => "required".to_owned(),
            None => String::new(),
        };
        let meaning = field.description.as_deref().unwrap_or_default().replace('\n', " ").replace('|', "\\|");
        let _ = writeln!(text, "| `{path}` | {} | {default} | {meaning} |", holds(field));
        if let Some((suffix, inner)) = inside(field) {
            rows(text, &format!("{path}{suffix}"), inner);
        }
    }
}

/// The schema in which a field's own fields are, and how its path goes on.
fn inside(field: &JSONSchemaProps) -> Option<(&'static str, &JSONSchemaProps)> {
    match (&field.items, &field.additional_properties) {
        (Some(JSONSchemaPropsOrArray::Schema(items)), _) => Some(("[]", items)),
        (_, Some(JSONSchemaPropsOrBool::Schema(values))) => Some((".*", values)),
        _ => Some(("", field)),
    }
}

fn holds(field: &JSONSchemaProps) -> String {
    let words: Vec<String> =
        field.enum_.iter().flatten().filter(|value| !value.0.is_null()).map(|value| format!("`{}`", value.0)).collect();
    if !words.is_empty() {
        return words.join(", ").replace('"', "");
    }
    match (&field.items, &field.additional_properties) {
        (Some(JSONSchemaPropsOrArray::Schema(items)), _) => format!("list of {}", holds(items)),
        (_, Some(JSONSchemaPropsOrBool::Schema(values))) => format!("map of {}", holds(values)),
        _ if field.x_kubernetes_int_or_string == Some(true) => "integer or text".to_owned(),
        _ => match field.type_.as_deref() {
            Some("string") => "text".to_owned(),
            Some(other) => other.to_owned(),
            None => "anything".to_owned(),
        },
    }
}

/// `UPDATE_DOCS=1 cargo test --lib docs_show` writes it anew.
#[test]
fn docs_show_every_field_of_the_objects() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/reference.md");
    let told = std::fs::read_to_string(path).unwrap();
    let head = told.find("## NodeComponent").unwrap();
    let wanted = format!("{}{}", &told[..head], page().trim_end().to_owned() + "\n");
    for field in
        ["`spec.version`", "`spec.kernelModule.daemonSets.loader`", "`spec.rollout.windows[].timeZone`", "`status.phase`"]
    {
        assert!(wanted.contains(field), "no {field} in {wanted}");
    }
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, &wanted).unwrap();
    } else {
        assert!(
            told == wanted,
            "docs/reference.md does not show the fields of the code: UPDATE_DOCS=1 cargo test --lib docs_show"
        );
    }
}
