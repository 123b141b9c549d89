//! Protobuf request bodies, turned into the JSON that everything else reads: typed Go clients send nothing else for builtin kinds, and do
//! not ask whether the server can. Answers stay JSON, which those clients accept. What it knows of messages is in `types`.

use base64::Engine as _;
use serde_json::{Map, Value};

use super::types::{self, Empty, Shape};

/// Before the envelope of every body.
const MAGIC: &[u8] = b"k8s\0";

/// Deeper than any Kubernetes object; a body must not exhaust the stack.
const DEPTH: usize = 40;

/// Why a body cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    NoMagic,
    #[error("unexpected end or an illegal field in the protobuf message")]
    Broken,
    #[error("no protobuf fields are known of kind {kind:?} in version {version:?}")]
    UnknownKind { kind: String, version: String },
}

/// The JSON of a body.
pub fn to_json(body: &[u8]) -> Result<Value, Unreadable> {
    let envelope = body.strip_prefix(MAGIC).ok_or(Unreadable::NoMagic)?;
    let (mut kind, mut version, mut raw) = (String::new(), String::new(), &[][..]);
    for part in Parts(envelope) {
        match part? {
            (1, Wire::Bytes(meta)) => {
                for part in Parts(meta) {
                    match part? {
                        (1, Wire::Bytes(text)) => version = string(text),
                        (2, Wire::Bytes(text)) => kind = string(text),
                        _ => {}
                    }
                }
            }
            (2, Wire::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let Some(message) = types::message_of_any(&kind, &version) else { return Err(Unreadable::UnknownKind { kind, version }) };
    let mut object = message_of(message, raw, 0)?;
    object.insert("kind".into(), kind.into());
    object.insert("apiVersion".into(), version.into());
    Ok(Value::Object(object))
}

fn string(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A value on the wire.
#[derive(Debug, Clone, Copy)]
enum Wire<'a> {
    Number(u64),
    Double(f64),
    Bytes(&'a [u8]),
}

/// The fields of a message, in the order in which they were sent.
struct Parts<'a>(&'a [u8]);

impl<'a> Parts<'a> {
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7F).checked_shl(shift)?;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn part(&mut self) -> Option<(u64, Wire<'a>)> {
        let tag = self.varint()?;
        let wire = match tag & 7 {
            0 => Wire::Number(self.varint()?),
            1 => Wire::Double(f64::from_le_bytes(self.take(8)?.try_into().ok()?)),
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                Wire::Bytes(self.take(length)?)
            }
            5 => Wire::Number(u64::from(u32::from_le_bytes(self.take(4)?.try_into().ok()?))),
            _ => return None,
        };
        Some((tag >> 3, wire))
    }
}

impl<'a> Iterator for Parts<'a> {
    type Item = Result<(u64, Wire<'a>), Unreadable>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let part = self.part().ok_or(Unreadable::Broken);
        if part.is_err() {
            self.0 = &[];
        }
        Some(part)
    }
}

fn message_of(message: &str, bytes: &[u8], depth: usize) -> Result<Map<String, Value>, Unreadable> {
    if depth > DEPTH {
        return Err(Unreadable::Broken);
    }
    let mut out = Map::new();
    let Some(fields) = types::message(message).map(|m| &m.numbers) else { return Ok(out) };
    for part in Parts(bytes) {
        let (number, wire) = part?;
        // A field of a newer client.
        let Some(field) = fields.get(&number) else { continue };
        match field.shape {
            Shape::List => {
                let value = value_of(field.of, wire, depth)?;
                if let Value::Array(list) = out.entry(field.name).or_insert_with(|| Value::Array(Vec::new())) {
                    list.push(value);
                }
            }
            Shape::Map => {
                let Wire::Bytes(entry) = wire else { return Err(Unreadable::Broken) };
                let (key, value) = entry_of(field.of, entry, depth)?;
                if let Value::Object(map) = out.entry(field.name).or_insert_with(|| Value::Object(Map::new())) {
                    map.insert(key, value);
                }
            }
            Shape::One => match value_of(field.of, wire, depth)? {
                Value::Object(inner) if field.name == "-" => out.extend(inner),
                // Go sends what was never set.
                value if is_empty(&value) && (field.empty == Empty::Omitted || value.is_null()) => {}
                value => {
                    out.insert(field.name.to_owned(), value);
                }
            },
        }
    }
    Ok(out)
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(true) => false,
    }
}

/// A map's entry is a message of key 1 and value 2.
fn entry_of(of: &str, entry: &[u8], depth: usize) -> Result<(String, Value), Unreadable> {
    let (mut key, mut value) = (String::new(), None);
    for part in Parts(entry) {
        match part? {
            (1, Wire::Bytes(text)) => key = string(text),
            (2, wire) => value = Some(value_of(of, wire, depth)?),
            _ => {}
        }
    }
    let absent = || if of == "string" { Value::from("") } else { Value::Object(Map::new()) };
    Ok((key, value.unwrap_or_else(absent)))
}

fn value_of(of: &str, wire: Wire<'_>, depth: usize) -> Result<Value, Unreadable> {
    // Negative numbers are sent as their two's complement of 64 bits.
    let signed = |number: u64| i64::from_ne_bytes(number.to_ne_bytes());
    Ok(match (of, wire) {
        ("string", Wire::Bytes(text)) => string(text).into(),
        ("bytes", Wire::Bytes(bytes)) => base64::engine::general_purpose::STANDARD.encode(bytes).into(),
        ("bool", Wire::Number(number)) => (number != 0).into(),
        ("int", Wire::Number(number)) => signed(number).into(),
        ("double", Wire::Double(number)) => number.into(),
        ("raw", Wire::Bytes(bytes)) => {
            let text = field_bytes(bytes, 1)?;
            serde_json::from_slice(text).unwrap_or(Value::Null)
        }
        ("quantity", Wire::Bytes(bytes)) => string(field_bytes(bytes, 1)?).into(),
        ("items", Wire::Bytes(bytes)) => {
            let items = Parts(bytes).filter_map(|part| match part {
                Ok((1, Wire::Bytes(text))) => Some(Ok(Value::from(string(text)))),
                Ok(_) => None,
                Err(broken) => Some(Err(broken)),
            });
            Value::Array(items.collect::<Result<_, _>>()?)
        }
        ("intstr", Wire::Bytes(bytes)) => {
            if field_number(bytes, 1)? == 0 {
                signed(field_number(bytes, 2)?).into()
            } else {
                string(field_bytes(bytes, 3)?).into()
            }
        }
        ("duration", Wire::Bytes(bytes)) => format!("{}ns", signed(field_number(bytes, 1)?)).into(),
        ("time", Wire::Bytes(bytes)) => time(signed(field_number(bytes, 1)?), signed(field_number(bytes, 2)?)),
        (message, Wire::Bytes(bytes)) => Value::Object(message_of(message, bytes, depth + 1)?),
        _ => return Err(Unreadable::Broken),
    })
}

/// As an API server writes it; null when it was never set.
fn time(seconds: i64, nanos: i64) -> Value {
    if seconds == 0 && nanos == 0 {
        return Value::Null;
    }
    let at = jiff::Timestamp::new(seconds, i32::try_from(nanos).unwrap_or(0)).unwrap_or_default();
    if nanos == 0 { at.to_string().into() } else { format!("{at:.6}").into() }
}

fn field_bytes(bytes: &[u8], wanted: u64) -> Result<&[u8], Unreadable> {
    for part in Parts(bytes) {
        if let (number, Wire::Bytes(found)) = part?
            && number == wanted
        {
            return Ok(found);
        }
    }
    Ok(&[])
}

fn field_number(bytes: &[u8], wanted: u64) -> Result<u64, Unreadable> {
    for part in Parts(bytes) {
        if let (number, Wire::Number(found)) = part?
            && number == wanted
        {
            return Ok(found);
        }
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn tagged(number: u8, wire: u8) -> u8 {
        (number << 3) | wire
    }

    fn part(number: u8, bytes: &[u8]) -> Vec<u8> {
        let mut out = vec![tagged(number, 2), u8::try_from(bytes.len()).unwrap()];
        out.extend_from_slice(bytes);
        out
    }

    fn body(version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
        let types = [part(1, version.as_bytes()), part(2, kind.as_bytes())].concat();
        [MAGIC.to_vec(), part(1, &types), part(2, raw)].concat()
    }

    #[test]
    fn an_eviction_with_its_options_is_read() {
        let metadata = [part(1, b"web-1"), part(2, b""), part(3, b"web"), part(8, b"")].concat();
        let preconditions = part(2, &part(1, b"0000-1111"));
        let options = [vec![tagged(1, 0), 30], preconditions, part(5, b"All")].concat();
        let eviction = [part(1, &metadata), part(2, &options)].concat();
        let wanted = json!({
            "kind": "Eviction", "apiVersion": "policy/v1", "metadata": {"name": "web-1", "namespace": "web"},
            "deleteOptions": {"gracePeriodSeconds": 30, "preconditions": {"uid": "0000-1111"}, "dryRun": ["All"]},
        });
        assert_eq!(to_json(&body("policy/v1", "Eviction", &eviction)), Ok(wanted));
    }

    #[test]
    fn delete_options_of_any_version_inline_fields_maps_and_small_types_are_read() {
        assert_eq!(
            to_json(&body("apps/v1", "DeleteOptions", &part(4, b"Orphan"))).unwrap(),
            json!({"kind": "DeleteOptions", "apiVersion": "apps/v1", "propagationPolicy": "Orphan"})
        );
        let data = part(2, &[part(1, b"k"), part(2, b"v")].concat());
        assert_eq!(to_json(&body("v1", "ConfigMap", &data)).unwrap()["data"], json!({"k": "v"}));
        let budget = part(2, &part(1, &[tagged(1, 0), 1, tagged(3, 2), 3, b'5', b'0', b'%']));
        assert_eq!(to_json(&body("policy/v1", "PodDisruptionBudget", &budget)).unwrap()["spec"]["minAvailable"], "50%");
        // A volume's source is inline; its emptyDir is set, and empty.
        let volume = [part(1, b"scratch"), part(2, &part(2, b""))].concat();
        let pod = part(2, &part(1, &volume));
        assert_eq!(to_json(&body("v1", "Pod", &pod)).unwrap()["spec"]["volumes"], json!([{"name": "scratch", "emptyDir": {}}]));
        let lease = part(2, &part(4, &[tagged(1, 0), 60, tagged(2, 0), 0xC0, 0x84, 0x3D]));
        assert_eq!(
            to_json(&body("coordination.k8s.io/v1", "Lease", &lease)).unwrap()["spec"]["renewTime"],
            "1970-01-01T00:01:00.001000Z"
        );
    }

    #[test]
    fn what_cannot_be_read_says_why() {
        assert_eq!(to_json(b"{}"), Err(Unreadable::NoMagic));
        assert!(matches!(to_json(&body("v1", "Gadget", b"")), Err(Unreadable::UnknownKind { .. })));
        assert_eq!(to_json(&body("v1", "Pod", &[tagged(1, 2), 9, 1])), Err(Unreadable::Broken));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(raw in proptest::collection::vec(any::<u8>(), 0..120)) {
            let _ = to_json(&[MAGIC, &raw].concat());
            let _ = message_of("core.Pod", &raw, 0);
        }
    }
}
