//! What decoding makes of a sent object, before anything is asked of it: unknown fields go and are warned of, values of another type are refused,
//! what holds nothing is left out, and custom objects get the defaults of their schema. Builtin defaults are in `admit`.

use serde_json::Value;

use super::call::{Call, PatchType};
use super::refusal::Refusal;
use super::resource::Resource;
use super::state::State;
use super::{patch, schema, types};

/// The type of a builtin kind. Events are many, and stored as they are sent.
fn message_of(resource: &Resource) -> Option<&'static str> {
    if resource.is_custom() || resource.plural == "events" {
        return None;
    }
    types::message_name(&resource.kind, &resource.api_version())
}

/// The paths of what the kind does not know, which is dropped.
///
/// # Errors
/// A value of another type.
fn known_fields(resource: &Resource, value: &mut Value) -> Result<Vec<String>, String> {
    let mut unknown = Vec::new();
    match (&resource.custom, message_of(resource)) {
        (Some(custom), _) => {
            let metadata = value.get_mut("metadata").filter(|m| !m.is_null());
            if let (Some(metadata), Some(message)) = (metadata, types::message_name("ObjectMeta", "")) {
                types::decode(message, metadata, "metadata", &mut unknown)?;
            }
            schema::prune(&custom.schema, value, "", true, &mut unknown);
            unknown.sort();
        }
        (None, Some(message)) => types::decode(message, value, "", &mut unknown)?,
        (None, None) => {}
    }
    Ok(unknown)
}

/// A sent or a patched object, decoded. Its warnings are those of the answer, also when it is refused for another reason.
pub fn object(state: &mut State, call: &Call, mut value: Value) -> Result<Value, Refusal> {
    let resource = &call.resource;
    let sent = match call.patch {
        None => None,
        // There the patch itself is shown.
        Some(PatchType::Strategic) => Some(patch::go_map(&call.body_json()?)),
        Some(_) => Some(value.to_string()),
    };
    let refused = |why: &str| match &sent {
        Some(sent) => Refusal::patched_object(sent, why),
        None => {
            let (kind, version) = (&resource.kind, &resource.version);
            Refusal::bad_request(format!("{kind} in version {version:?} cannot be handled as a {kind}: {why}"))
        }
    };
    let unknown = known_fields(resource, &mut value).map_err(|why| refused(&why))?;
    let warnings: Vec<String> = unknown.iter().map(|path| format!("unknown field {path:?}")).collect();
    match call.query.get("fieldValidation") {
        "Strict" if !warnings.is_empty() => return Err(refused(&format!("strict decoding error: {}", warnings.join(", ")))),
        "Ignore" => {}
        _ => state.warnings.extend(warnings),
    }
    default(resource, &mut value);
    Ok(value)
}

/// The result of an apply: it was merged by its schema, and knows no unknown fields.
pub fn applied(call: &Call, mut value: Value) -> Result<Value, Refusal> {
    debug_assert_eq!(call.patch, Some(PatchType::Apply));
    if !call.resource.is_custom() {
        known_fields(&call.resource, &mut value).map_err(Refusal::internal)?;
    }
    default(&call.resource, &mut value);
    Ok(value)
}

/// What is left of a decoded object when it was stored.
pub fn stored(resource: &Resource, value: &mut Value) {
    if let Some(message) = message_of(resource) {
        types::stored(message, value);
    }
}

fn default(resource: &Resource, value: &mut Value) {
    if let Some(custom) = &resource.custom {
        schema::default(&custom.schema, value);
    }
}
