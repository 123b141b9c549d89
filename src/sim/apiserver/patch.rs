//! JSON patch, merge patch and strategic merge patch on JSON values. Apply is in `apply`.

use serde_json::{Map, Value};

use super::refusal::Refusal;
use super::resource::Resource;
use super::shape::{ListKind, Shape, item_key};

/// RFC 6902; a failing `test` is 422 as from a real server. As there, `replace` of an absent member adds it.
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
    for operation in list {
        let mut operation = operation.clone();
        let op = operation.get("op").and_then(Value::as_str).unwrap_or_default();
        if op == "replace" && is_absent_member(&out, &operation) {
            operation["op"] = "add".into();
        } else if op == "test" && operation.get("value") == Some(&Value::Null) && is_absent_member(&out, &operation) {
            continue;
        }
        let operation: json_patch::PatchOperation = serde_json::from_value(operation).map_err(|_| rejected())?;
        json_patch::patch(&mut out, &[operation]).map_err(|_| rejected())?;
    }
    Ok(out)
}

fn is_absent_member(object: &Value, operation: &Value) -> bool {
    let path = operation.get("path").and_then(Value::as_str).unwrap_or_default();
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
fn go_map(value: &Value) -> String {
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

fn not_a_map(body: &Value) -> Refusal {
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

pub fn strategic(resource: &Resource, object: Value, body: &Value) -> Result<Value, Refusal> {
    let Value::Object(patch) = body else {
        return Err(not_a_map(body));
    };
    let mut out = object;
    merge_object(&mut out, patch, Shape::root(resource))?;
    Ok(out)
}

fn directive(patch: &Map<String, Value>) -> Option<&str> {
    patch.get("$patch").and_then(Value::as_str)
}

fn without_directives(patch: &Map<String, Value>) -> Map<String, Value> {
    patch.iter().filter(|(k, v)| !k.starts_with('$') && !v.is_null()).map(|(k, v)| (k.clone(), v.clone())).collect()
}

fn merge_object(into: &mut Value, patch: &Map<String, Value>, shape: Shape<'_>) -> Result<(), Refusal> {
    match directive(patch) {
        Some("replace") => {
            *into = Value::Object(without_directives(patch));
            return Ok(());
        }
        Some("delete") => {
            *into = Value::Object(Map::new());
            return Ok(());
        }
        _ => {}
    }
    if !into.is_object() {
        *into = Value::Object(Map::new());
    }
    let Value::Object(fields) = into else {
        return Ok(());
    };
    if let Some(keep) = patch.get("$retainKeys").and_then(Value::as_array) {
        fields.retain(|k, _| keep.iter().any(|x| x.as_str() == Some(k)));
    }
    let ordered: Vec<(&str, &Vec<Value>)> =
        patch.iter().filter_map(|(key, order)| Some((key.strip_prefix("$setElementOrder/")?, order.as_array()?))).collect();
    for (name, order) in &ordered {
        let before = fields.get(*name).and_then(Value::as_array).cloned();
        let change = patch.get(*name).and_then(Value::as_array);
        if let Some(change) = change {
            let slot = fields.entry((*name).to_owned()).or_insert_with(|| Value::Array(Vec::new()));
            merge_list(slot, change, shape.field(name))?;
        }
        if let Some(Value::Array(list)) = fields.get_mut(*name) {
            let before = before.unwrap_or_default();
            *list = in_order(std::mem::take(list), order, &before, shape.field(name));
        }
    }
    for (key, change) in patch {
        if let Some(name) = key.strip_prefix("$deleteFromPrimitiveList/") {
            if let (Some(Value::Array(list)), Value::Array(gone)) = (fields.get_mut(name), change) {
                list.retain(|v| !gone.contains(v));
            }
            continue;
        }
        if key.starts_with('$') || ordered.iter().any(|(name, _)| name == key) {
            continue;
        }
        match change {
            Value::Null => {
                fields.remove(key);
            }
            // Of a whole field, the directive takes the field away; on what is not there, none does anything.
            Value::Object(inner) if directive(inner) == Some("delete") => {
                fields.remove(key);
            }
            Value::Object(inner) if !fields.contains_key(key) && directive(inner).is_some() => {}
            Value::Object(inner) => {
                let slot = fields.entry(key.clone()).or_insert(Value::Null);
                merge_object(slot, inner, shape.field(key))?;
            }
            Value::Array(items) => {
                let slot = fields.entry(key.clone()).or_insert_with(|| Value::Array(Vec::new()));
                merge_list(slot, items, shape.field(key))?;
            }
            plain => {
                fields.insert(key.clone(), plain.clone());
            }
        }
    }
    Ok(())
}

fn merge_list(into: &mut Value, patch: &[Value], shape: Shape<'_>) -> Result<(), Refusal> {
    let plain: Vec<Value> = patch
        .iter()
        .filter(|i| i.get("$patch").is_none() || i.as_object().is_some_and(|o| o.len() > 1))
        .map(|i| i.as_object().map_or_else(|| i.clone(), |o| Value::Object(without_directives(o))))
        .collect();
    let replace = patch.iter().any(|i| i.as_object().is_some_and(|o| o.len() == 1 && directive(o) == Some("replace")));
    let keys = match shape.strategic() {
        _ if replace => {
            *into = Value::Array(plain);
            return Ok(());
        }
        ListKind::Atomic => {
            *into = Value::Array(plain);
            return Ok(());
        }
        ListKind::Set => {
            if let Value::Array(list) = into {
                let before = list.clone();
                for item in &plain {
                    if !list.contains(item) {
                        list.push(item.clone());
                    }
                }
                *list = in_order(std::mem::take(list), &plain, &before, shape);
            }
            return Ok(());
        }
        ListKind::Map(keys) => keys,
    };
    let Value::Array(list) = into else {
        *into = Value::Array(plain);
        return Ok(());
    };
    let before = list.clone();
    for item in patch {
        let Value::Object(fields) = item else {
            return Err(Refusal::new(500, "", "list element types are not identical"));
        };
        let key = item_key(item, &keys);
        if key.iter().any(Value::is_null) {
            let shown = go_map(item);
            return Err(Refusal::new(500, "", format!("map: {shown} does not contain declared merge key: {}", keys.join(", "))));
        }
        let found = list.iter().position(|have| item_key(have, &keys) == key);
        match (directive(fields), found) {
            (Some("delete"), Some(at)) => {
                list.remove(at);
            }
            (Some("delete"), None) => {}
            (_, Some(at)) => {
                if let Some(slot) = list.get_mut(at) {
                    merge_object(slot, fields, shape.items())?;
                }
            }
            (_, None) => {
                let mut new = Value::Object(Map::new());
                merge_object(&mut new, fields, shape.items())?;
                list.push(new);
            }
        }
    }
    *list = in_order(std::mem::take(list), &plain, &before, shape);
    Ok(())
}

/// The order of apimachinery's strategicpatch: what the patch names comes in its order; the rest is put in where the old list had it
/// before something that the patch names, and last otherwise.
fn in_order(list: Vec<Value>, wanted: &[Value], before: &[Value], shape: Shape<'_>) -> Vec<Value> {
    let same = |a: &Value, b: &Value| match shape.strategic() {
        ListKind::Map(keys) => item_key(a, &keys) == item_key(b, &keys),
        _ => a == b,
    };
    let place = |all: &[Value], item: &Value| all.iter().position(|other| same(other, item));
    let (mut named, mut rest): (Vec<Value>, Vec<Value>) = list.into_iter().partition(|item| place(wanted, item).is_some());
    named.sort_by_key(|item| place(wanted, item));
    rest.sort_by_key(|item| place(before, item));
    let mut out = Vec::with_capacity(named.len() + rest.len());
    let (mut named, mut rest) = (named.into_iter().peekable(), rest.into_iter().peekable());
    while let (Some(left), Some(right)) = (rest.peek(), named.peek()) {
        let earlier = matches!((place(before, left), place(before, right)), (Some(l), Some(r)) if l < r);
        out.extend(if earlier { rest.next() } else { named.next() });
    }
    out.extend(named);
    out.extend(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::apiserver::resource::Registry;
    use serde_json::json;

    fn pods() -> Resource {
        Resource::clone(Registry::builtin().find("", "v1", "pods").unwrap())
    }

    #[test]
    fn strategic_lists_merge_by_their_keys() {
        let object =
            json!({"status": {"conditions": [{"type": "Ready", "status": "False"}, {"type": "Other", "status": "True"}]}});
        let patch = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Other", "$patch": "delete"}, {"type": "New", "status": "True"}]}});
        let out = strategic(&pods(), object, &patch).unwrap();
        assert_eq!(out["status"]["conditions"], json!([{"type": "Ready", "status": "True"}, {"type": "New", "status": "True"}]));
    }

    #[test]
    fn strategic_primitive_sets_and_atomic_lists() {
        let object = json!({"metadata": {"finalizers": ["a", "b"]}, "spec": {"tolerations": [{"key": "x"}]}});
        let patch = json!({
            "metadata": {"finalizers": ["c"], "$deleteFromPrimitiveList/finalizers": ["a"]},
            "spec": {"tolerations": [{"key": "y"}]},
        });
        let out = strategic(&pods(), object, &patch).unwrap();
        assert_eq!(out["metadata"]["finalizers"], json!(["c", "b"]));
        assert_eq!(out["spec"]["tolerations"], json!([{"key": "y"}]));
    }

    #[test]
    fn a_failing_test_is_422() {
        let refused = json(json!({"a": 1}), &json!([{"op": "test", "path": "/a", "value": 2}])).unwrap_err();
        assert_eq!((refused.code, refused.reason), (422, "Invalid"));
    }
}
