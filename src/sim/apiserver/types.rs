//! The Go types of builtin kinds: which fields there are, of what type, and which are left out of JSON when they hold nothing. An object is
//! brought into the form in which a real server has it after decoding. The wire form of protobuf is in `protobuf`, which reads the same table.

use std::{collections::BTreeMap, sync::OnceLock};

use serde_json::{Map, Value};

use super::patch::go_map;

/// Field numbers, names and types; printed by `tests/controlplane/protofields`.
const FIELDS: &str = include_str!("types.fields");

/// How often a field is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    One,
    List,
    Map,
}

/// What JSON shows of a field that holds nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Empty {
    /// Its zero value.
    Shown,
    /// Nothing, also when zero was given.
    Omitted,
    /// Nothing, unless something was given: a pointer.
    Absent,
    /// null, unless something was given.
    Null,
}

#[derive(Debug)]
pub struct Field {
    pub name: &'static str,
    pub empty: Empty,
    pub shape: Shape,
    pub of: &'static str,
}

/// A struct: its fields by protobuf number, and by JSON name with those of inline structs.
#[derive(Debug, Default)]
pub struct Message {
    pub numbers: BTreeMap<u64, Field>,
    names: BTreeMap<&'static str, (Empty, Shape, &'static str)>,
}

#[derive(Debug, Default)]
struct Types {
    /// By kind and apiVersion; `DeleteOptions` have no version of their own.
    kinds: BTreeMap<(&'static str, &'static str), &'static str>,
    messages: BTreeMap<&'static str, Message>,
}

fn types() -> &'static Types {
    static TYPES: OnceLock<Types> = OnceLock::new();
    TYPES.get_or_init(|| {
        let mut types = Types::default();
        for line in FIELDS.lines().filter(|line| !line.starts_with('#')) {
            if let Some(root) = line.strip_prefix("kind ") {
                let mut words = root.split(' ');
                let (kind, message) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
                types.kinds.insert((kind, words.next().unwrap_or_default()), message);
            } else if let Some((message, fields)) = line.split_once(": ") {
                let numbers = fields.split(", ").filter_map(field).collect();
                types.messages.insert(message, Message { numbers, names: BTreeMap::new() });
            }
        }
        let names: Vec<_> = types.messages.keys().map(|message| (*message, inlined(&types, message))).collect();
        for (message, names) in names {
            types.messages.entry(message).or_default().names = names;
        }
        types
    })
}

fn field(text: &'static str) -> Option<(u64, Field)> {
    let mut words = text.split(' ');
    let (number, name, of) = (words.next()?, words.next()?, words.next()?);
    let (name, empty) = match name.split_at_checked(name.len() - 1) {
        Some((name, "?")) => (name, Empty::Omitted),
        Some((name, "*")) => (name, Empty::Absent),
        Some((name, "!")) => (name, Empty::Null),
        _ => (name, Empty::Shown),
    };
    let (shape, of) = match (of.strip_prefix("[]"), of.strip_prefix("{}")) {
        (Some(of), _) => (Shape::List, of),
        (_, Some(of)) => (Shape::Map, of),
        _ => (Shape::One, of),
    };
    Some((number.parse().ok()?, Field { name, empty, shape, of }))
}

fn inlined(types: &Types, message: &str) -> BTreeMap<&'static str, (Empty, Shape, &'static str)> {
    let mut out = BTreeMap::new();
    for field in types.messages.get(message).into_iter().flat_map(|m| m.numbers.values()) {
        if field.name == "-" {
            out.extend(inlined(types, field.of));
        } else {
            out.insert(field.name, (field.empty, field.shape, field.of));
        }
    }
    out
}

/// The message of a kind; of any message by its bare name when there is no version.
pub fn message_name(kind: &str, api_version: &str) -> Option<&'static str> {
    let types = types();
    if api_version.is_empty() {
        return types.messages.keys().find(|name| name.split('.').next_back() == Some(kind)).copied();
    }
    types.kinds.get(&(kind, api_version)).copied()
}

/// As [`message_name`]; a kind without a version of its own, too.
pub fn message_of_any(kind: &str, api_version: &str) -> Option<&'static str> {
    message_name(kind, api_version).or_else(|| types().kinds.get(&(kind, "")).copied())
}

pub fn message(name: &str) -> Option<&'static Message> {
    types().messages.get(name)
}

/// Is it a kind, or a part of one?
pub fn is_object(message: &str) -> bool {
    types().kinds.values().any(|known| *known == message)
}

/// Names, shapes and types of a message's fields, inline ones among them.
pub fn fields_of(message: &str) -> Vec<(&'static str, Shape, &'static str)> {
    let names = types().messages.get(message).map(|m| &m.names);
    names.into_iter().flatten().map(|(name, (_, shape, of))| (*name, *shape, *of)).collect()
}

/// What a struct shows when nothing was set in it.
pub fn blank(message: &str) -> Value {
    let fields = types().messages.get(message).map(|m| &m.names);
    let shown = fields.into_iter().flatten().filter_map(|(name, (empty, shape, of))| match empty {
        Empty::Shown => Some(((*name).to_owned(), zero(*shape, of))),
        Empty::Null => Some(((*name).to_owned(), Value::Null)),
        Empty::Omitted | Empty::Absent => None,
    });
    Value::Object(shown.collect())
}

fn zero(shape: Shape, of: &str) -> Value {
    match (shape, of) {
        (Shape::List | Shape::Map, _) => Value::Null,
        (_, "string" | "items" | "duration") => Value::from(""),
        (_, "quantity") => Value::from("0"),
        (_, "bool") => Value::from(false),
        (_, "int" | "double" | "intstr") => Value::from(0),
        (_, "bytes" | "raw" | "time") => Value::Null,
        (_, message) => blank(message),
    }
}

/// Zero and empty, as `omitempty` sees it.
fn holds_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(true) => false,
    }
}

fn under(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// The words that Go's decoder has for a value.
fn go_kind(value: &Value) -> &'static str {
    match value {
        Value::Object(_) => "object",
        Value::Array(_) => "array",
        Value::String(_) => "string",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::Null => "null",
    }
}

/// A walk over one sent object.
struct Decoder<'a> {
    /// Paths of what no type has.
    unknown: &'a mut Vec<String>,
}

impl Decoder<'_> {
    fn wrong(value: &Value, owner: &str, path: &str, of: &str) -> String {
        let owner = owner.split('.').next_back().unwrap_or_default();
        let (list, of) = of.rfind(']').map_or(("", of), |at| of.split_at(at + 1));
        let of = match of {
            "int" => "int32".to_owned(),
            "double" => "float64".to_owned(),
            // The packages there are named by the version alone.
            message => message.split_once('.').map_or_else(|| message.to_owned(), |(_, name)| format!("v1.{name}")),
        };
        // Neither the number of an item nor the key of an entry is told.
        let path: String = path.split('[').map(|part| part.split_once(']').map_or(part, |(_, rest)| rest)).collect();
        format!("json: cannot unmarshal {} into Go struct field {owner}.{path} of type {list}{of}", go_kind(value))
    }

    fn one(&mut self, value: &mut Value, of: &'static str, owner: &str, path: &str) -> Result<(), String> {
        let fits = match of {
            "string" | "time" | "bytes" | "duration" => value.is_string(),
            "bool" => value.is_boolean(),
            "int" => value.is_i64() || value.is_u64(),
            "double" => value.is_number(),
            "intstr" => value.is_string() || value.is_i64(),
            "quantity" => value.is_string() || value.is_number(),
            "items" => value.as_array().is_some_and(|l| l.iter().all(Value::is_string)),
            "raw" => true,
            message => return self.object(value, message, owner, path),
        };
        if !fits {
            return Err(Self::wrong(value, owner, path, of));
        }
        match (of, value.as_str()) {
            ("time", Some(text)) if !text.is_empty() && text.parse::<jiff::Timestamp>().is_err() => {
                Err(format!("parsing time {text:?} as \"2006-01-02T15:04:05Z07:00\": cannot parse {text:?} as \"2006\""))
            }
            ("bytes", Some(text)) => {
                use base64::Engine as _;
                let known = base64::engine::general_purpose::STANDARD.decode(text).is_ok();
                if known { Ok(()) } else { Err("illegal base64 data at input byte 3".into()) }
            }
            _ => Ok(()),
        }
    }

    fn object(&mut self, value: &mut Value, of: &'static str, owner: &str, path: &str) -> Result<(), String> {
        if !value.is_object() {
            return Err(Self::wrong(value, owner, path, of));
        }
        let Some(message) = types().messages.get(of) else { return Ok(()) };
        let Value::Object(fields) = value else { return Ok(()) };
        self.fields(fields, message, of, path)
    }

    fn fields(&mut self, fields: &mut Map<String, Value>, message: &Message, of: &str, path: &str) -> Result<(), String> {
        let mut wrong = None;
        fields.retain(|name, field| {
            if path.is_empty() && matches!(name.as_str(), "apiVersion" | "kind") {
                return true;
            }
            let Some((empty, shape, inner)) = message.names.get(name.as_str()) else {
                self.unknown.push(under(path, name));
                return false;
            };
            if field.is_null() {
                return false;
            }
            let done = match shape {
                Shape::One => self.one(field, inner, of, &under(path, name)),
                Shape::List => self.list(field, inner, of, &under(path, name)),
                Shape::Map => self.map(field, inner, of, &under(path, name)),
            };
            if let Err(why) = done {
                wrong.get_or_insert(why);
            }
            match empty {
                Empty::Omitted => !holds_nothing(field),
                Empty::Shown | Empty::Absent | Empty::Null => true,
            }
        });
        if let Some(why) = wrong {
            return Err(why);
        }
        for (name, (empty, shape, inner)) in &message.names {
            if *empty == Empty::Omitted || *empty == Empty::Absent || fields.contains_key(*name) {
                continue;
            }
            let nothing = if *empty == Empty::Null { Value::Null } else { zero(*shape, inner) };
            fields.insert((*name).to_owned(), nothing);
        }
        Ok(())
    }

    fn list(&mut self, value: &mut Value, of: &'static str, owner: &str, path: &str) -> Result<(), String> {
        let Value::Array(items) = value else { return Err(Self::wrong(value, owner, path, &format!("[]{of}"))) };
        for (n, item) in items.iter_mut().enumerate() {
            if item.is_null() {
                *item = zero(Shape::One, of);
            } else {
                self.one(item, of, owner, &format!("{path}[{n}]"))?;
            }
        }
        Ok(())
    }

    fn map(&mut self, value: &mut Value, of: &'static str, owner: &str, path: &str) -> Result<(), String> {
        let Value::Object(entries) = value else { return Err(Self::wrong(value, owner, path, &format!("map[string]{of}"))) };
        for (name, entry) in entries.iter_mut() {
            if entry.is_null() {
                *entry = if of == "bytes" { Value::from("") } else { zero(Shape::One, of) };
            } else {
                let inner = if types().messages.contains_key(of) { under(path, name) } else { path.to_owned() };
                self.one(entry, of, owner, &inner)?;
            }
        }
        Ok(())
    }
}

/// Brings a struct into the form that decoding and encoding gives it: unknown fields and nulls go, as does what is left out when it is empty; what is
/// always shown is there. `path` is where it is in its object; `unknown` gets the paths of what no type has.
///
/// # Errors
/// A value of another type, in the words of Go's decoder.
pub fn decode(message: &'static str, value: &mut Value, path: &str, unknown: &mut Vec<String>) -> Result<(), String> {
    Decoder { unknown }.object(value, message, message, path)
}

/// What storage makes of a struct: of an empty list or map that is always shown it keeps nothing.
pub fn stored(message: &str, value: &mut Value) {
    let (Some(message), Value::Object(fields)) = (types().messages.get(message), value) else { return };
    for (name, field) in fields {
        let Some((empty, shape, of)) = message.names.get(name.as_str()) else { continue };
        match shape {
            Shape::One => stored(of, field),
            _ if *empty == Empty::Shown && holds_nothing(field) => *field = Value::Null,
            Shape::List => field.as_array_mut().into_iter().flatten().for_each(|item| stored(of, item)),
            Shape::Map => {}
        }
    }
}

/// What a configuration says that the schema of a message does not have, in the words of structured-merge-diff.
pub fn undeclared(message: &str, value: &Value, path: &str, out: &mut Vec<String>) {
    let Some(message) = types().messages.get(message) else { return };
    let Value::Object(fields) = value else { return out.push(format!("{path}: expected map, got &{{{}}}", go_map(value))) };
    for (name, field) in fields.iter().filter(|(_, field)| !field.is_null()) {
        if path.is_empty() && matches!(name.as_str(), "apiVersion" | "kind") {
            continue;
        }
        let path = format!("{path}.{name}");
        let Some((_, shape, of)) = message.names.get(name.as_str()) else {
            out.push(format!("{path}: field not declared in schema"));
            continue;
        };
        match (shape, field) {
            (Shape::One, _) => undeclared_one(of, field, &path, out),
            (Shape::List, Value::Array(items)) => {
                for item in items {
                    undeclared_one(of, item, &path, out);
                }
            }
            (Shape::List, _) => out.push(format!("{path}: expected list, got &{{{}}}", go_map(field))),
            (Shape::Map, Value::Object(entries)) => {
                for (key, entry) in entries {
                    undeclared_one(of, entry, &format!("{path}.{key}"), out);
                }
            }
            (Shape::Map, _) => out.push(format!("{path}: expected map, got &{{{}}}", go_map(field))),
        }
    }
}

fn undeclared_one(of: &str, value: &Value, path: &str, out: &mut Vec<String>) {
    let plain = value.is_null() || value.is_string() || value.is_number() || value.is_boolean();
    match of {
        "string" | "bytes" | "duration" if !value.is_string() && !value.is_null() => {
            out.push(format!("{path}: expected string, got {}", smd_value(value)));
        }
        "int" | "double" if !value.is_number() && !value.is_null() => {
            let have = if value.is_string() { "string" } else { go_kind(value) };
            out.push(format!("{path}: expected numeric (int or float), got {have}"));
        }
        "bool" if !value.is_boolean() && !value.is_null() => {
            out.push(format!("{path}: expected boolean, got &{{{}}}", go_map(value)));
        }
        "intstr" | "quantity" | "time" if !plain => {
            out.push(format!("{path}: expected any scalar, got &{{{}}}", go_map(value)));
        }
        "string" | "bytes" | "duration" | "int" | "double" | "bool" | "intstr" | "quantity" | "time" | "items" | "raw" => {}
        message => undeclared(message, value, path, out),
    }
}

/// As Go prints a value of structured-merge-diff.
fn smd_value(value: &Value) -> String {
    match value {
        Value::String(text) => format!("&value.valueUnstructured{{Value:{text:?}}}"),
        other => format!("&value.valueUnstructured{{Value:{other}}}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn decoded(kind: &str, version: &str, mut value: Value) -> (Value, Vec<String>) {
        let mut unknown = Vec::new();
        decode(message_name(kind, version).unwrap(), &mut value, "", &mut unknown).unwrap();
        (value, unknown)
    }

    #[test]
    fn what_holds_nothing_is_left_out_and_what_is_always_shown_is_there() {
        let sent = json!({"metadata": {"labels": {}}, "spec": {"paused": false, "replicas": 0, "template": {"spec": {
            "nodeSelector": {}, "containers": [{"name": "c", "env": [], "securityContext": {}}]}}}});
        let (object, unknown) = decoded("Deployment", "apps/v1", sent);
        assert!(unknown.is_empty());
        assert_eq!(
            object,
            json!({"metadata": {}, "status": {}, "spec": {"replicas": 0, "selector": null, "strategy": {}, "template": {"metadata": {}, "spec": {
                "containers": [{"name": "c", "resources": {}, "securityContext": {}}]}}}})
        );
    }

    #[test]
    fn unknown_fields_are_named_and_dropped() {
        let sent = json!({"x": 1, "metadata": {"y": 1}, "spec": {"containers": [{"name": "c", "z": {"more": 1}}]}});
        let (object, unknown) = decoded("Pod", "v1", sent);
        assert_eq!(unknown, ["metadata.y", "spec.containers[0].z", "x"]);
        assert_eq!(object["spec"]["containers"], json!([{"name": "c", "resources": {}}]));
    }

    #[test]
    fn a_value_of_another_type_is_refused() {
        for (sent, field) in [
            (json!({"data": {"k": 1}}), "ConfigMap.data of type string"),
            (json!({"data": "text"}), "ConfigMap.data of type map[string]string"),
            (json!({"metadata": {"labels": ["a"]}}), "ObjectMeta.metadata.labels of type map[string]string"),
        ] {
            let mut sent = sent;
            let why = decode("core.ConfigMap", &mut sent, "", &mut Vec::new()).unwrap_err();
            assert!(why.ends_with(field), "{why}");
        }
    }

    #[test]
    fn every_message_named_is_described() {
        let plain = ["string", "bytes", "bool", "int", "double", "raw", "quantity", "items", "intstr", "duration", "time"];
        let types = types();
        for (message, fields) in &types.messages {
            for field in fields.numbers.values() {
                assert!(plain.contains(&field.of) || types.messages.contains_key(field.of), "{message}: {field:?}");
            }
        }
        assert!(types.kinds.len() > 35 && types.messages["core.Container"].numbers.len() > 20);
    }
}
