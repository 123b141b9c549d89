//! Structural schemas of custom resources: pruning of unknown fields, defaults, and the checks that need no CEL.

use serde_json::{Map, Value, json};

use super::refusal::Cause;

fn flag(schema: &Value, name: &str) -> bool {
    schema.get(name) == Some(&json!(true))
}

fn properties(schema: &Value) -> Option<&Map<String, Value>> {
    schema.get("properties").and_then(Value::as_object)
}

fn child_path(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Removes what the schema does not know; `unknown` gets the paths. A null goes where none may be.
pub fn prune(schema: &Value, value: &mut Value, path: &str, root: bool, unknown: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            let known = properties(schema);
            let extra = schema.get("additionalProperties").filter(|a| !a.is_boolean());
            let keep_all =
                flag(schema, "x-kubernetes-preserve-unknown-fields") || schema.get("additionalProperties") == Some(&json!(true));
            let embedded = flag(schema, "x-kubernetes-embedded-resource");
            let system = |name: &str| (root || embedded) && matches!(name, "apiVersion" | "kind" | "metadata");
            fields.retain(|name, _| {
                let keep = system(name) || keep_all || extra.is_some() || known.is_some_and(|k| k.contains_key(name));
                if !keep {
                    unknown.push(child_path(path, name));
                }
                keep
            });
            for (name, field) in fields.iter_mut() {
                if system(name) {
                    continue;
                }
                if let Some(inner) = known.and_then(|k| k.get(name)).or(extra) {
                    prune(inner, field, &child_path(path, name), false, unknown);
                }
            }
            // A null where none may be is as good as nothing, and gives way to the default.
            fields.retain(|name, field| {
                let inner = known.and_then(|k| k.get(name)).or(extra);
                !field.is_null() || inner.is_none_or(|i| flag(i, "nullable") || flag(i, "x-kubernetes-preserve-unknown-fields"))
            });
        }
        Value::Array(items) => {
            if let Some(inner) = schema.get("items") {
                for (n, item) in items.iter_mut().enumerate() {
                    prune(inner, item, &format!("{path}[{n}]"), false, unknown);
                }
            }
        }
        _ => {}
    }
}

/// Fills in defaults, outer ones first.
pub fn default(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if let Some(known) = properties(schema) {
                for (name, inner) in known {
                    if let Some(wanted) = inner.get("default")
                        && !fields.contains_key(name)
                    {
                        fields.insert(name.clone(), wanted.clone());
                    }
                    if let Some(field) = fields.get_mut(name) {
                        default(inner, field);
                    }
                }
            }
            if let Some(inner) = schema.get("additionalProperties").filter(|a| a.is_object()) {
                let known = properties(schema);
                for (name, field) in fields.iter_mut() {
                    if known.is_none_or(|k| !k.contains_key(name)) {
                        default(inner, field);
                    }
                }
            }
        }
        Value::Array(items) => {
            if let Some(inner) = schema.get("items") {
                items.iter_mut().for_each(|i| default(inner, i));
            }
        }
        _ => {}
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn type_ok(schema: &Value, value: &Value) -> bool {
    if flag(schema, "x-kubernetes-int-or-string") {
        return matches!(type_name(value), "integer" | "string");
    }
    match (schema.get("type").and_then(Value::as_str), type_name(value)) {
        (None, _) => true,
        (Some("number"), "integer" | "number") => true,
        (Some("integer"), "number") => value.as_f64().is_some_and(|f| f.fract() == 0.0),
        (Some(wanted), have) => wanted == have,
    }
}

fn invalid(path: &str, shown: &Value, why: &str) -> Cause {
    Cause::invalid(path, format!("Invalid value: {shown}: {path} in body {why}"))
}

fn limits(schema: &Value, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    let number = |name: &str| schema.get(name).and_then(Value::as_f64);
    let count = |name: &str| schema.get(name).and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok());
    match value {
        Value::Number(n) => {
            let n = n.as_f64().unwrap_or(0.0);
            if let Some(min) = number("minimum").filter(|min| n < *min) {
                causes.push(invalid(path, value, &format!("should be greater than or equal to {min}")));
            }
            if let Some(max) = number("maximum").filter(|max| n > *max) {
                causes.push(invalid(path, value, &format!("should be less than or equal to {max}")));
            }
        }
        Value::String(text) => {
            let length = text.chars().count();
            if let Some(min) = count("minLength").filter(|min| length < *min) {
                causes.push(invalid(path, value, &format!("should be at least {min} chars long")));
            }
            if let Some(max) = count("maxLength").filter(|max| length > *max) {
                causes.push(Cause {
                    reason: "FieldValueTooLong",
                    message: format!("Too long: may not be more than {max} bytes"),
                    field: path.to_owned(),
                });
            }
        }
        Value::Array(items) => {
            if let Some(min) = count("minItems").filter(|min| items.len() < *min) {
                causes.push(invalid(path, &json!(items.len()), &format!("should have at least {min} items")));
            }
            if let Some(max) = count("maxItems").filter(|max| items.len() > *max) {
                causes.push(Cause {
                    reason: "FieldValueTooMany",
                    message: format!("Too many: {}: must have at most {max} items", items.len()),
                    field: path.to_owned(),
                });
            }
        }
        Value::Object(fields) => {
            if let Some(max) = count("maxProperties").filter(|max| fields.len() > *max) {
                causes.push(Cause {
                    reason: "FieldValueTooMany",
                    message: format!("Too many: {}: must have at most {max} items", fields.len()),
                    field: path.to_owned(),
                });
            }
            if let Some(min) = count("minProperties").filter(|min| fields.len() < *min) {
                causes.push(invalid(path, &json!(fields.len()), &format!("should have at least {min} properties")));
            }
        }
        _ => {}
    }
    if let Some(allowed) = schema.get("enum").and_then(Value::as_array)
        && !allowed.contains(value)
    {
        let list: Vec<String> = allowed.iter().map(ToString::to_string).collect();
        causes.push(Cause {
            reason: "FieldValueNotSupported",
            message: format!("Unsupported value: {value}: supported values: {}", list.join(", ")),
            field: path.to_owned(),
        });
    }
}

/// Types, required fields, enums, bounds, and the combinators that generated schemas use. Patterns are not looked at.
pub fn check(schema: &Value, value: &Value, path: &str, root: bool, causes: &mut Vec<Cause>) {
    if value.is_null() && flag(schema, "nullable") {
        return;
    }
    if !type_ok(schema, value) {
        let wanted = schema.get("type").and_then(Value::as_str).unwrap_or("integer,string");
        let have = json!(type_name(value));
        causes.push(Cause {
            reason: "FieldValueTypeInvalid",
            message: format!("Invalid value: {have}: {path} in body must be of type {wanted}: {have}"),
            field: path.to_owned(),
        });
        if wanted == "integer" && value.is_f64() {
            let why = format!("Invalid value: \"\": Checked value must be of type integer (default format) in {path}");
            causes.push(Cause::invalid("<nil>", why));
        }
        return;
    }
    limits(schema, value, path, causes);
    match value {
        Value::Object(fields) => {
            for name in schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str) {
                if !fields.contains_key(name) {
                    causes.push(Cause {
                        reason: "FieldValueRequired",
                        message: "Required value".into(),
                        field: child_path(path, name),
                    });
                }
            }
            let known = properties(schema);
            let extra = schema.get("additionalProperties").filter(|a| a.is_object());
            for (name, field) in fields {
                if root && matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
                    continue;
                }
                if let Some(inner) = known.and_then(|k| k.get(name)).or(extra) {
                    check(inner, field, &child_path(path, name), false, causes);
                }
            }
        }
        Value::Array(items) => {
            if let Some(inner) = schema.get("items") {
                for (n, item) in items.iter().enumerate() {
                    check(inner, item, &format!("{path}[{n}]"), false, causes);
                }
            }
            unique(schema, items, path, causes);
        }
        _ => {}
    }
    combinators(schema, value, path, causes);
}

/// Is this a cause that keeps CEL rules from being looked at?
pub fn blocks_rules(cause: &Cause) -> bool {
    !matches!(cause.reason, "FieldValueInvalid" | "FieldValueDuplicate")
}

fn unique(schema: &Value, items: &[Value], path: &str, causes: &mut Vec<Cause>) {
    let keys: Vec<String> = match schema.get("x-kubernetes-list-type").and_then(Value::as_str) {
        Some("set") => Vec::new(),
        Some("map") => schema
            .get("x-kubernetes-list-map-keys")
            .and_then(Value::as_array)
            .map(|l| l.iter().filter_map(Value::as_str).map(str::to_owned).collect())
            .unwrap_or_default(),
        _ => return,
    };
    let named = |item: &Value| keys.iter().cloned().zip(super::shape::item_key(item, &keys)).collect::<Map<_, _>>().into();
    let key_of = |item: &Value| if keys.is_empty() { item.clone() } else { named(item) };
    let all: Vec<Value> = items.iter().map(key_of).collect();
    for (n, key) in all.iter().enumerate() {
        if all.iter().take(n).any(|k| k == key) {
            causes.push(Cause {
                reason: "FieldValueDuplicate",
                message: format!("Duplicate value: {key}"),
                field: format!("{path}[{n}]"),
            });
        }
    }
}

fn combinators(schema: &Value, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    let passes = |s: &Value| {
        let mut inner = Vec::new();
        check(s, value, path, false, &mut inner);
        inner.is_empty()
    };
    let list = |name: &str| schema.get(name).and_then(Value::as_array).filter(|l| !l.is_empty());
    for inner in list("allOf").into_iter().flatten() {
        check(inner, value, path, false, causes);
    }
    if let Some(any) = list("anyOf")
        && !any.iter().any(passes)
    {
        causes.push(invalid(path, &json!(""), "must validate at least one schema (anyOf)"));
    }
    if let Some(one) = list("oneOf")
        && one.iter().filter(|s| passes(s)).count() != 1
    {
        causes.push(invalid(path, &json!(""), "must validate one and only one schema (oneOf)"));
    }
    if let Some(not) = schema.get("not")
        && passes(not)
    {
        causes.push(invalid(path, &json!(""), "must not validate the schema (not)"));
    }
}
