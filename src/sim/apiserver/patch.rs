//! JSON patch and merge patch on JSON values. Strategic merge patch is in `strategic`, apply in `apply`.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::refusal::Refusal;

/// RFC 6902; a failing `test` is 422 as from a real server. As there, `replace` of an absent member adds it, and `copy` takes it for null.
pub fn json(object: Value, body: &Value) -> Result<Value, Refusal> {
    let Some(list) = body.as_array() else {
        let why = format!("json: cannot unmarshal {} into Go value of type []handlers.jsonPatchOp", go_type(body));
        return Err(Refusal::bad_request(format!("error decoding patch: {why}")));
    };
    let rejected = || Refusal {
        details: Some(Map::new()),
        ..Refusal::new(422, "Invalid", "the server rejected our request due to an error in our request")
    };
    let mut out = object;
    let mut nulls = Nulls::default();
    for operation in list {
        let mut operation = operation.clone();
        let text = |field: &str| operation.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (op, path, from) = (text("op"), text("path"), text("from"));
        let absent = |at: &str| is_absent_member(&out, at) || nulls.is_below_hollow(at);
        let source = if op == "copy" { nulls.of(&from) } else { Null::No };
        if op == "replace" && is_absent_member(&out, &path) {
            operation["op"] = "add".into();
        } else if op == "copy" && absent(&from) {
            operation = json!({"op": "add", "path": path, "value": null});
        } else if op == "test" && operation.get("value") == Some(&Value::Null) && absent(&path) {
            continue;
        }
        let given = matches!(op.as_str(), "add" | "replace") && operation.get("value") == Some(&Value::Null);
        let operation: json_patch::PatchOperation = serde_json::from_value(operation).map_err(|_| rejected())?;
        json_patch::patch(&mut out, &[operation]).map_err(|_| rejected())?;
        if op != "test" {
            let null = if given { Null::Given } else { source };
            nulls.set(&path, if null == Null::Given && op == "copy" { Null::Hollow } else { null });
        }
    }
    Ok(out)
}

/// The patch library tells nulls apart: one that was given is a value, a copy of it is an object without members.
#[derive(Debug, Default)]
struct Nulls(BTreeMap<String, Null>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Null {
    No,
    Given,
    Hollow,
}

impl Nulls {
    fn of(&self, path: &str) -> Null {
        self.0.get(path).copied().unwrap_or(Null::No)
    }

    fn set(&mut self, path: &str, null: Null) {
        let below = format!("{path}/");
        self.0.retain(|known, _| known != path && !known.starts_with(&below));
        if null != Null::No {
            self.0.insert(path.to_owned(), null);
        }
    }

    fn is_below_hollow(&self, path: &str) -> bool {
        path.rsplit_once('/').is_some_and(|(parent, _)| self.of(parent) == Null::Hollow)
    }
}

fn is_absent_member(object: &Value, path: &str) -> bool {
    let Some((parent, _)) = path.rsplit_once('/') else { return false };
    object.pointer(path).is_none() && object.pointer(parent).is_some_and(Value::is_object)
}

/// How Go's decoder names the type of a JSON value.
fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Object(_) => "object",
        Value::Array(_) => "array",
        Value::String(_) => "string",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::Null => "null",
    }
}

/// A value as Go prints it.
pub fn go_map(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let list: Vec<String> = fields.iter().map(|(name, field)| format!("{name}:{}", go_map(field))).collect();
            format!("map[{}]", list.join(" "))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(go_map).collect::<Vec<_>>().join(" ")),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

pub fn not_a_map(body: &Value) -> Refusal {
    let why = format!("json: cannot unmarshal {} into Go value of type map[string]interface {{}}", go_type(body));
    Refusal::bad_request(format!("error decoding patch: {why}"))
}

/// RFC 7386.
pub fn merge(object: Value, body: &Value) -> Result<Value, Refusal> {
    if !body.is_object() {
        return Err(not_a_map(body));
    }
    let mut out = object;
    json_patch::merge(&mut out, body);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_test_is_422() {
        let refused = json(json!({"a": 1}), &json!([{"op": "test", "path": "/a", "value": 2}])).unwrap_err();
        assert_eq!((refused.code, refused.reason), (422, "Invalid"));
    }
}
