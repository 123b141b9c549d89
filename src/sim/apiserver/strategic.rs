//! Strategic merge patch, as apimachinery's `strategicpatch` does it: directives, lists that merge by a key, and their order.

use serde_json::{Map, Value};

use super::patch::{go_map, not_a_map};
use super::refusal::Refusal;
use super::resource::Resource;
use super::shape::{ListKind, Shape};

const DIRECTIVE: &str = "$patch";
const RETAIN: &str = "$retainKeys";
const ORDER: &str = "$setElementOrder/";
const DELETE: &str = "$deleteFromPrimitiveList/";

type Object = Map<String, Value>;

pub fn strategic(resource: &Resource, object: Value, body: &Value) -> Result<Value, Refusal> {
    let (Value::Object(object), Value::Object(patch)) = (object, body) else {
        return Err(not_a_map(body));
    };
    merge_map(object, patch.clone(), Shape::root(resource)).map(Value::Object)
}

fn failed(why: impl Into<String>) -> Refusal {
    Refusal::new(500, "", why)
}

fn no_merge_key(item: &Value, key: &str) -> Refusal {
    failed(format!("map: {} does not contain declared merge key: {key}", go_map(item)))
}

fn unknown_directive(directive: &Value, patch: Object) -> Refusal {
    failed(format!("unknown patch type: {} in map: {}", go_map(directive), go_map(&Value::Object(patch))))
}

/// The key by which a list merges: empty for plain values, none when it is replaced as a whole.
fn merge_key(shape: Shape<'_>) -> Option<String> {
    match shape.strategic() {
        ListKind::Atomic => None,
        ListKind::Set => Some(String::new()),
        ListKind::Map(keys) => Some(keys.into_iter().next().unwrap_or_default()),
    }
}

fn discard_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(discard_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(discard_nulls),
        _ => {}
    }
}

/// What is there to stay of a patch that meets nothing. Only `$patch` counts as a directive here; the others are fields that nobody knows.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(fields) if fields.contains_key(DIRECTIVE) => None,
        Value::Object(fields) => {
            Some(Value::Object(fields.into_iter().filter_map(|(k, v)| Some((k, without_directives(v)?))).collect()))
        }
        Value::Array(items) => Some(Value::Array(items.into_iter().filter_map(without_directives).collect())),
        plain => Some(plain),
    }
}

fn merge_map(mut original: Object, mut patch: Object, shape: Shape<'_>) -> Result<Object, Refusal> {
    match patch.remove(DIRECTIVE) {
        None => {}
        Some(directive) if directive == "replace" => return Ok(patch),
        Some(directive) if directive == "delete" => return Ok(Object::new()),
        Some(directive) => {
            patch.insert(DIRECTIVE.into(), directive.clone());
            return Err(unknown_directive(&directive, patch));
        }
    }
    retain_keys(&mut original, &mut patch)?;
    in_asked_order(&mut original, &mut patch, shape)?;
    for (key, mut change) in patch {
        let (name, deletes) = key.strip_prefix(DELETE).map_or((key.as_str(), false), |name| (name, true));
        if change.is_null() {
            original.remove(name);
            continue;
        }
        let merged = match (original.remove(name), change) {
            (Some(Value::Object(old)), Value::Object(new)) => Some(Value::Object(merge_map(old, new, shape.field(name))?)),
            (Some(Value::Array(old)), Value::Array(new)) => {
                Some(Value::Array(merge_or_replace(old, new, shape.field(name), deletes)?))
            }
            (old, _) if deletes => old,
            (_, new) => {
                change = new;
                discard_nulls(&mut change);
                without_directives(change)
            }
        };
        if let Some(merged) = merged {
            original.insert(name.to_owned(), merged);
        }
    }
    Ok(original)
}

fn retain_keys(original: &mut Object, patch: &mut Object) -> Result<(), Refusal> {
    let Some(keys) = patch.remove(RETAIN) else { return Ok(()) };
    let bad = || Refusal::bad_request("invalid patch format of retainKeys");
    let keys = keys.as_array().ok_or_else(bad)?;
    let keeps = |name: &str| keys.iter().any(|key| key.as_str() == Some(name));
    let lost = |(name, value): (&String, &Value)| {
        !value.is_null() && !name.starts_with(DELETE) && !name.starts_with(ORDER) && !keeps(name)
    };
    if patch.iter().any(lost) {
        return Err(bad());
    }
    original.retain(|name, _| keeps(name));
    Ok(())
}

/// Lists whose order the patch asks for, with what the patch says of them otherwise.
fn in_asked_order(original: &mut Object, patch: &mut Object, shape: Shape<'_>) -> Result<(), Refusal> {
    let asked: Vec<String> = patch.keys().filter(|key| key.starts_with(ORDER)).cloned().collect();
    for key in asked {
        let name = key.strip_prefix(ORDER).unwrap_or_default();
        let list = |value: Option<Value>| match value {
            None => Ok(None),
            Some(Value::Array(list)) => Ok(Some(list)),
            Some(_) => Err(failed("expected a []interface {}, but received another type")),
        };
        let order = list(patch.remove(&key))?.unwrap_or_default();
        let old = list(original.remove(name))?;
        let new = list(patch.remove(name))?;
        let inner = shape.field(name);
        let by = merge_key(inner).unwrap_or_default();
        let before = old.clone().unwrap_or_default();
        check_order(new.as_deref().unwrap_or_default(), &order, &by)?;
        let merged = match (old, new) {
            (None, None) => continue,
            (Some(old), None) => old,
            (None, Some(new)) => new.into_iter().filter_map(without_directives).collect(),
            (Some(old), Some(new)) => merge_or_replace(old, new, inner, false)?,
        };
        original.insert(name.to_owned(), Value::Array(in_order(merged, &order, &before, &by)?));
    }
    Ok(())
}

/// The items of the patch come in the order that it asks for.
fn check_order(patch: &[Value], order: &[Value], by: &str) -> Result<(), Refusal> {
    if order.is_empty() {
        return Ok(());
    }
    let mut rest = order.iter();
    for item in patch.iter().filter(|item| item.get(DIRECTIVE).is_none()) {
        let wanted = key_of(item, by)?;
        loop {
            match rest.next() {
                Some(next) if key_of(next, by)? == wanted => break,
                Some(_) => {}
                None => {
                    let (have, asked) = (go_map(&Value::from(patch)), go_map(&Value::from(order)));
                    let list = ORDER.trim_end_matches('/');
                    return Err(failed(format!("The order in patch list:\n{have}\n doesn't match {list} list:\n{asked}\n")));
                }
            }
        }
    }
    Ok(())
}

fn merge_or_replace(old: Vec<Value>, new: Vec<Value>, shape: Shape<'_>, deletes: bool) -> Result<Vec<Value>, Refusal> {
    match merge_key(shape) {
        Some(by) => merge_list(old, new, shape, &by, deletes),
        None if deletes => merge_list(old, new, shape, "", true),
        None => Ok(new),
    }
}

/// Items of one list have one type, and none is a list.
fn check_types(items: &[&[Value]]) -> Result<bool, Refusal> {
    let mut maps = None;
    for item in items.iter().copied().flatten() {
        if item.is_array() {
            return Err(Refusal::new(422, "Invalid", "lists of lists are not supported"));
        }
        let one = item.is_object();
        if *maps.get_or_insert(one) != one {
            return Err(failed("list element types are not identical"));
        }
    }
    Ok(maps.unwrap_or(false))
}

fn merge_list(mut old: Vec<Value>, new: Vec<Value>, shape: Shape<'_>, by: &str, deletes: bool) -> Result<Vec<Value>, Refusal> {
    if old.is_empty() && new.is_empty() {
        return Ok(old);
    }
    if !check_types(&[&old, &new])? {
        if deletes {
            old.retain(|item| !new.contains(item));
            return Ok(old);
        }
        let before = [old.as_slice(), new.as_slice()].concat();
        let mut merged: Vec<Value> = Vec::new();
        for item in &before {
            if !merged.contains(item) {
                merged.push(item.clone());
            }
        }
        return in_order(merged, &new, &old, by);
    }
    if by.is_empty() {
        return Err(failed("cannot merge lists without merge key"));
    }
    let mut plain = Vec::new();
    let mut replace = false;
    for item in new {
        match item.get(DIRECTIVE) {
            None => plain.push(item),
            Some(directive) if directive == "delete" => {
                let gone = key_of(&item, by)?;
                old.retain(|other| other.get(by) != Some(gone));
            }
            Some(directive) if directive == "replace" => replace = true,
            Some(directive) if directive == "merge" => {
                return Err(failed("merging lists cannot yet be specified in the patch"));
            }
            Some(directive) => {
                return Err(unknown_directive(directive, item.as_object().cloned().unwrap_or_default()));
            }
        }
    }
    if replace {
        return Ok(plain);
    }
    let before = old.clone();
    for item in &plain {
        let key = key_of(item, by)?;
        match old.iter_mut().find(|other| other.get(by) == Some(key)) {
            Some(slot) => {
                let (Value::Object(have), Value::Object(change)) = (slot.take(), item.clone()) else { continue };
                *slot = Value::Object(merge_map(have, change, shape.items())?);
            }
            None => old.push(item.clone()),
        }
    }
    in_order(old, &plain, &before, by)
}

fn key_of<'a>(item: &'a Value, by: &str) -> Result<&'a Value, Refusal> {
    if by.is_empty() {
        return Ok(item);
    }
    item.get(by).ok_or_else(|| no_merge_key(item, by))
}

/// What the patch names comes in its order; the rest is put in where the old list had it before something that the patch names, and last otherwise.
fn in_order(list: Vec<Value>, wanted: &[Value], before: &[Value], by: &str) -> Result<Vec<Value>, Refusal> {
    for item in list.iter().chain(wanted) {
        key_of(item, by)?;
    }
    let key = |item: &Value| if by.is_empty() { Some(item.clone()) } else { item.get(by).cloned() };
    let place = |all: &[Value], item: &Value| all.iter().position(|other| key(other) == key(item));
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
    Ok(out)
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
    fn lists_merge_by_their_keys() {
        let object =
            json!({"status": {"conditions": [{"type": "Ready", "status": "False"}, {"type": "Other", "status": "True"}]}});
        let patch = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Other", "$patch": "delete"}, {"type": "New", "status": "True"}]}});
        let out = strategic(&pods(), object, &patch).unwrap();
        assert_eq!(out["status"]["conditions"], json!([{"type": "Ready", "status": "True"}, {"type": "New", "status": "True"}]));
    }

    #[test]
    fn primitive_sets_and_atomic_lists() {
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
    fn a_directive_that_meets_nothing_is_a_field() {
        let patch = json!({"spec": {"volumes": [{"name": "v", "$retainKeys": ["name"]}, {"name": "w", "$patch": "delete"}]}});
        let out = strategic(&pods(), json!({"spec": {}}), &patch).unwrap();
        assert_eq!(out["spec"]["volumes"], json!([{"name": "v", "$retainKeys": ["name"]}]));
    }
}
