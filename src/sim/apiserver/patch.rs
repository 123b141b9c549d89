//! JSON patch, merge patch and strategic merge patch on JSON values. Apply is in `apply`.

use serde_json::{Map, Value};

use super::refusal::Refusal;
use super::resource::Resource;
use super::shape::{ListKind, Shape, item_key};

/// RFC 6902; a failing `test` is 422 as from a real server.
pub fn json(object: Value, body: &Value) -> Result<Value, Refusal> {
    let operations: json_patch::Patch =
        serde_json::from_value(body.clone()).map_err(|e| Refusal::bad_request(format!("error decoding patch: {e}")))?;
    let mut out = object;
    json_patch::patch(&mut out, &operations).map_err(|_| Refusal {
        details: Some(Map::new()),
        ..Refusal::new(422, "Invalid", "the server rejected our request due to an error in our request")
    })?;
    Ok(out)
}

/// RFC 7386.
pub fn merge(object: Value, body: &Value) -> Result<Value, Refusal> {
    if !body.is_object() {
        return Err(Refusal::bad_request(
            "error decoding patch: json: cannot unmarshal into Go value of type map[string]interface {}",
        ));
    }
    let mut out = object;
    json_patch::merge(&mut out, body);
    Ok(out)
}

pub fn strategic(resource: &Resource, object: Value, body: &Value) -> Result<Value, Refusal> {
    let Value::Object(patch) = body else {
        return Err(Refusal::bad_request(
            "error decoding patch: json: cannot unmarshal into Go value of type map[string]interface {}",
        ));
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
    for (key, change) in patch {
        if let Some(name) = key.strip_prefix("$deleteFromPrimitiveList/") {
            if let (Some(Value::Array(list)), Value::Array(gone)) = (fields.get_mut(name), change) {
                list.retain(|v| !gone.contains(v));
            }
            continue;
        }
        if let Some(name) = key.strip_prefix("$setElementOrder/") {
            order(fields.get_mut(name), change, shape.field(name));
            continue;
        }
        if key.starts_with('$') {
            continue;
        }
        match change {
            Value::Null => {
                fields.remove(key);
            }
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
                for item in plain {
                    if !list.contains(&item) {
                        list.push(item);
                    }
                }
            }
            return Ok(());
        }
        ListKind::Map(keys) => keys,
    };
    let Value::Array(list) = into else {
        *into = Value::Array(plain);
        return Ok(());
    };
    for item in patch {
        let Value::Object(fields) = item else {
            return Err(Refusal::bad_request("invalid strategic merge patch: a merging list holds something that is no object"));
        };
        let key = item_key(item, &keys);
        if key.iter().any(Value::is_null) {
            return Err(Refusal::bad_request(format!("map: {item} does not contain declared merge key: {}", keys.join(", "))));
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
    Ok(())
}

/// Listed elements come first, in that order; the rest keep theirs.
fn order(list: Option<&mut Value>, wanted: &Value, shape: Shape<'_>) {
    let (Some(Value::Array(list)), Value::Array(wanted)) = (list, wanted) else {
        return;
    };
    let place = |item: &Value| {
        let at = match shape.strategic() {
            ListKind::Map(keys) => wanted.iter().position(|w| item_key(w, &keys) == item_key(item, &keys)),
            _ => wanted.iter().position(|w| w == item),
        };
        at.unwrap_or(usize::MAX)
    };
    list.sort_by_key(place);
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
        assert_eq!(out["metadata"]["finalizers"], json!(["b", "c"]));
        assert_eq!(out["spec"]["tolerations"], json!([{"key": "y"}]));
    }

    #[test]
    fn a_failing_test_is_422() {
        let refused = json(json!({"a": 1}), &json!([{"op": "test", "path": "/a", "value": 2}])).unwrap_err();
        assert_eq!((refused.code, refused.reason), (422, "Invalid"));
    }
}
