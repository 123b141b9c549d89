//! The walks of structured-merge-diff (`typed` there): what changed between two objects, which members an object has, the merge of an applied
//! configuration, and the removal of members. Who owns a member is in `managed`, what an apply makes of it in `apply`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::managed::{Changes, Set, is_member, leaf};
use super::shape::{ListKind, Shape, item_key};

/// A place in a set that is being made.
#[derive(Debug, Default)]
struct Place {
    member: bool,
    inner: Set,
}

impl Place {
    fn put_into(self, set: &mut Set, step: String) {
        let Self { member, mut inner } = self;
        if member && !inner.is_empty() {
            inner.insert(".".into(), leaf());
        }
        if member || !inner.is_empty() {
            set.insert(step, Value::Object(inner));
        }
    }
}

#[derive(Debug, Default)]
struct Compared {
    set: Place,
    removed: Place,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Map,
    List,
    Scalar,
}

/// null has the form of what it stands for.
fn form(value: Option<&Value>) -> Option<Form> {
    match value? {
        Value::Null => None,
        Value::Object(_) => Some(Form::Map),
        Value::Array(_) => Some(Form::List),
        _ => Some(Form::Scalar),
    }
}

fn fields(value: Option<&Value>) -> Option<&Map<String, Value>> {
    value.and_then(Value::as_object).filter(|m| !m.is_empty())
}

fn items(value: Option<&Value>) -> Option<&Vec<Value>> {
    value.and_then(Value::as_array).filter(|l| !l.is_empty())
}

/// The step of a list's item in a set.
fn step_of(item: &Value, kind: &ListKind) -> String {
    match kind {
        ListKind::Map(keys) => {
            let values = item_key(item, keys);
            let named: Map<String, Value> = keys.iter().cloned().zip(values).filter(|(_, v)| !v.is_null()).collect();
            format!("k:{}", Value::Object(named))
        }
        _ => format!("v:{item}"),
    }
}

/// Items by their steps; of those that are there twice the first.
fn by_step<'a>(list: Option<&'a Vec<Value>>, kind: &ListKind) -> BTreeMap<String, &'a Value> {
    let mut out = BTreeMap::new();
    for item in list.into_iter().flatten() {
        out.entry(step_of(item, kind)).or_insert(item);
    }
    out
}

fn names<'a>(old: Option<&'a Map<String, Value>>, new: Option<&'a Map<String, Value>>) -> BTreeSet<&'a String> {
    [old, new].into_iter().flatten().flat_map(Map::keys).collect()
}

fn compare_values(old: Option<&Value>, new: Option<&Value>, shape: Shape<'_>) -> Compared {
    let mut out = Compared::default();
    if old == new {
        return out;
    }
    let forms = (form(old), form(new));
    let add = |out: &mut Compared, step: String, inner: Compared| {
        inner.set.put_into(&mut out.set.inner, step.clone());
        inner.removed.put_into(&mut out.removed.inner, step);
    };
    let mut walked = false;
    match forms {
        (Some(a), Some(b)) if a != b => {
            out.removed = compare_values(old, Some(&Value::Null), shape).removed;
            out.set = compare_values(Some(&Value::Null), new, shape).set;
        }
        (Some(Form::Map), _) | (None, Some(Form::Map)) if !shape.is_atomic() => {
            let (a, b) = (fields(old), fields(new));
            walked = a.is_some() || b.is_some();
            for name in names(a, b) {
                let (before, now) = (a.and_then(|m| m.get(name)), b.and_then(|m| m.get(name)));
                if before != now {
                    add(&mut out, format!("f:{name}"), compare_values(before, now, shape.field(name)));
                }
            }
        }
        (Some(Form::List), _) | (None, Some(Form::List)) => {
            let kind = shape.list();
            if kind != ListKind::Atomic {
                let (a, b) = (items(old), items(new));
                walked = a.is_some() || b.is_some();
                let (a, b) = (by_step(a, &kind), by_step(b, &kind));
                let steps: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
                for step in steps {
                    let (before, now) = (a.get(step).copied(), b.get(step).copied());
                    add(&mut out, step.clone(), compare_values(before, now, shape.items()));
                }
            }
        }
        _ => {}
    }
    out.set.member |= old.is_none() || !(walked || new.is_none());
    out.removed.member |= new.is_none();
    out
}

/// What is added or changed, and what is removed.
pub fn compare(old: &Value, new: &Value, root: Shape<'_>) -> Changes {
    let Compared { set, removed } = compare_values(Some(old), Some(new), root);
    Changes { set: set.inner, removed: removed.inner }
}

fn members(value: &Value, shape: Shape<'_>) -> Place {
    let mut out = Place::default();
    match value {
        Value::Object(fields) if !shape.is_atomic() => {
            for (name, field) in fields {
                let mut place = members(field, shape.field(name));
                place.member |= field.is_null() || field.as_object().is_some_and(Map::is_empty) || !shape.has_field(name);
                place.put_into(&mut out.inner, format!("f:{name}"));
            }
        }
        Value::Array(list) if shape.list() != ListKind::Atomic => {
            for (step, item) in by_step(Some(list), &shape.list()) {
                let mut place = members(item, shape.items());
                place.member = true;
                place.put_into(&mut out.inner, step);
            }
        }
        Value::Null => {}
        _ => out.member = true,
    }
    out
}

/// All members of an object, as an applied configuration owns them.
pub fn field_set(value: &Value, root: Shape<'_>) -> Set {
    members(value, root).inner
}

/// The set with the named fields in it that only hold members: `spec` of `spec.size`.
pub fn with_named_fields(set: &Set, shape: Shape<'_>) -> Set {
    let mut out = Map::new();
    for (step, node) in set.iter().filter(|(step, _)| *step != ".") {
        let Value::Object(inner) = node else { continue };
        let (below, named) = match step.split_at_checked(2) {
            Some(("f:", name)) => (shape.field(name), shape.has_field(name)),
            _ => (shape.items(), false),
        };
        let place = Place { member: is_member(inner) || named, inner: with_named_fields(inner, below) };
        place.put_into(&mut out, step.clone());
    }
    out
}

/// The configuration laid over the live value. None when nothing is left.
pub fn merge(live: Option<&Value>, config: Option<&Value>, shape: Shape<'_>) -> Option<Value> {
    match form(config).or(form(live)) {
        Some(Form::Map) if !shape.is_atomic() && (fields(live).is_some() || fields(config).is_some()) => {
            let (a, b) = (fields(live), fields(config));
            let merged = |name: &String| {
                let value = merge(a.and_then(|m| m.get(name)), b.and_then(|m| m.get(name)), shape.field(name))?;
                Some((name.clone(), value))
            };
            let out: Map<String, Value> = names(a, b).into_iter().filter_map(merged).collect();
            if out.is_empty() { None } else { Some(Value::Object(out)) }
        }
        Some(Form::List) if shape.list() != ListKind::Atomic && (items(live).is_some() || items(config).is_some()) => {
            let out = merge_list(items(live), items(config), shape);
            if out.is_empty() { None } else { Some(Value::Array(out)) }
        }
        _ => config.or(live).cloned(),
    }
}

/// Items of both, in an order that keeps that of the configuration, and between its items that of the live list.
fn merge_list(live: Option<&Vec<Value>>, config: Option<&Vec<Value>>, shape: Shape<'_>) -> Vec<Value> {
    let kind = shape.list();
    let steps = |list: Option<&Vec<Value>>| -> Vec<String> { list.into_iter().flatten().map(|i| step_of(i, &kind)).collect() };
    let (left, right) = (steps(live), steps(config));
    let (of_live, of_config) = (by_step(live, &kind), by_step(config, &kind));
    let twice = |step: &String| left.iter().filter(|s| *s == step).count() > 1;
    let both = |step: &String| {
        // What is there twice is not merged with.
        let before = of_live.get(step).copied().filter(|_| !twice(step));
        merge(before, of_config.get(step).copied(), shape.items())
    };
    let mut shared = right.iter().filter(|s| of_live.contains_key(*s));
    let mut next = shared.next();
    let mut done = BTreeSet::new();
    let mut out = Vec::new();
    let (mut l, mut r) = (0, 0);
    while l < left.len() || r < right.len() {
        if let (Some(a), Some(b)) = (left.get(l), right.get(r)) {
            if a == b {
                done.insert(a);
                out.extend(both(a));
                l += 1;
                r += 1;
                next = shared.next();
                continue;
            }
            if of_config.contains_key(a) && next.is_some_and(|n| n != a) {
                // Shared, but not the one of this round.
                l += 1;
                continue;
            }
        }
        if let Some(a) = left.get(l) {
            if !of_config.contains_key(a) {
                out.extend(merge(live.and_then(|list| list.get(l)), None, shape.items()));
                l += 1;
                continue;
            }
            if done.contains(a) {
                l += 1;
            }
        }
        if let Some(b) = right.get(r) {
            done.insert(b);
            out.extend(both(b));
            r += 1;
            if next == Some(b) {
                next = shared.next();
            }
        }
    }
    out
}

/// The value without the members of a set; null when nothing is left.
pub fn remove(value: &Value, gone: &Set, shape: Shape<'_>) -> Value {
    let node = |step: &str| gone.get(step).and_then(Value::as_object);
    // Whole, in parts, or not at all.
    let kept = |value: &Value, node: Option<&Set>, shape: Shape<'_>| match node {
        Some(inner) if is_member(inner) => None,
        Some(inner) => Some(remove(value, inner, shape)),
        None => Some(value.clone()),
    };
    match value {
        Value::Object(fields) if !shape.is_atomic() => {
            let left = |(name, field): (&String, &Value)| {
                Some((name.clone(), kept(field, node(&format!("f:{name}")), shape.field(name))?))
            };
            let out: Map<String, Value> = fields.iter().filter_map(left).collect();
            if out.is_empty() { Value::Null } else { Value::Object(out) }
        }
        Value::Array(list) if shape.list() != ListKind::Atomic => {
            let kind = shape.list();
            let out: Vec<Value> = list.iter().filter_map(|item| kept(item, node(&step_of(item, &kind)), shape.items())).collect();
            if out.is_empty() { Value::Null } else { Value::Array(out) }
        }
        Value::Object(_) | Value::Array(_) => Value::Null,
        scalar => scalar.clone(),
    }
}
