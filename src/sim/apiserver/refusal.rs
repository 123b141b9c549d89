//! What the server says when it refuses: the `Status` bodies of a real API server, message for message.
//! Owns codes, reasons and texts; who decides to refuse is elsewhere.

use serde_json::{Map, Value, json};

use super::resource::Resource;

/// A refused request: becomes a `Status` body with the given HTTP code.
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal {
    pub code: u16,
    pub reason: &'static str,
    pub message: String,
    /// Shown even when empty; absent when `None`.
    pub details: Option<Map<String, Value>>,
    /// The answer is this text and no Status: what a server says of a group that it does not know.
    pub plain: bool,
    /// Seconds, also sent as the `Retry-After` header.
    pub retry_after: Option<u32>,
    /// `Warning` headers: they come with refusals, too.
    pub warnings: Vec<String>,
    /// A fresh token of an expired list (`metadata.continue`).
    pub continue_token: Option<String>,
}

/// One entry of `details.causes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    pub reason: &'static str,
    pub message: String,
    pub field: String,
}

impl Cause {
    pub fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { reason: "FieldValueInvalid", message: message.into(), field: field.into() }
    }
    pub fn required(field: impl Into<String>, message: impl std::fmt::Display) -> Self {
        Self { reason: "FieldValueRequired", message: format!("Required value: {message}"), field: field.into() }
    }
    pub fn forbidden(field: impl Into<String>, message: impl std::fmt::Display) -> Self {
        Self { reason: "FieldValueForbidden", message: format!("Forbidden: {message}"), field: field.into() }
    }
    /// A value that is none of the known ones.
    pub fn unsupported(field: impl Into<String>, shown: &Value, supported: &[&str]) -> Self {
        Self::unsupported_text(field, &shown.to_string(), supported)
    }
    pub fn unsupported_text(field: impl Into<String>, shown: &str, supported: &[&str]) -> Self {
        let list: Vec<String> = supported.iter().map(|s| format!("{s:?}")).collect();
        let message = format!("Unsupported value: {shown}: supported values: {}", list.join(", "));
        Self { reason: "FieldValueNotSupported", message, field: field.into() }
    }
    fn to_value(&self) -> Value {
        let mut out = json!({"reason": self.reason, "message": self.message});
        if !self.field.is_empty() {
            out["field"] = Value::from(self.field.clone());
        }
        out
    }
}

fn details(resource: &Resource, name: &str) -> Map<String, Value> {
    let mut out = Map::new();
    if !name.is_empty() {
        out.insert("name".into(), name.into());
    }
    if !resource.group.is_empty() {
        out.insert("group".into(), resource.group.clone().into());
    }
    out.insert("kind".into(), resource.plural.clone().into());
    out
}

impl Refusal {
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: None,
            plain: false,
            retry_after: None,
            warnings: Vec::new(),
            continue_token: None,
        }
    }

    pub fn not_found(resource: &Resource, name: &str) -> Self {
        let message = format!("{} {name:?} not found", resource.group_resource());
        Self { details: Some(details(resource, name)), ..Self::new(404, "NotFound", message) }
    }

    /// The answer to a path that names no served resource.
    pub fn no_such_path() -> Self {
        Self { details: Some(Map::new()), ..Self::new(404, "NotFound", "the server could not find the requested resource") }
    }

    /// The answer to a path of a group that is not served at all: plain text.
    pub fn no_such_group() -> Self {
        Self { plain: true, ..Self::new(404, "NotFound", "404 page not found\n") }
    }

    pub fn already_exists(resource: &Resource, name: &str) -> Self {
        let message = format!("{} {name:?} already exists", resource.group_resource());
        Self { details: Some(details(resource, name)), ..Self::new(409, "AlreadyExists", message) }
    }

    pub fn conflict(resource: &Resource, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} {name:?}: {why}", resource.group_resource());
        Self { details: Some(details(resource, name)), ..Self::new(409, "Conflict", message) }
    }

    pub fn stale(resource: &Resource, name: &str) -> Self {
        Self::conflict(
            resource,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    pub fn forbidden(resource: &Resource, name: &str, why: &str) -> Self {
        let message = format!("{} {name:?} is forbidden: {why}", resource.group_resource());
        Self { details: Some(details(resource, name)), ..Self::new(403, "Forbidden", message) }
    }

    pub fn invalid(resource: &Resource, name: &str, causes: &[Cause]) -> Self {
        let kind = resource.group_kind();
        let list: Vec<String> = causes.iter().map(|c| format!("{}: {}", c.field, c.message)).collect();
        let text = match list.as_slice() {
            [one] => one.clone(),
            more => format!("[{}]", more.join(", ")),
        };
        let mut details = details(resource, name);
        details.insert("kind".into(), resource.kind.clone().into());
        details.insert("causes".into(), causes.iter().map(Cause::to_value).collect());
        Self { details: Some(details), ..Self::new(422, "Invalid", format!("{kind} {name:?} is invalid: {text}")) }
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self { details: Some(Map::new()), ..Self::new(405, "MethodNotAllowed", message) }
    }

    pub fn unsupported_media_type() -> Self {
        Self { details: Some(Map::new()), ..Self::new(415, "UnsupportedMediaType", "415: Unsupported Media Type") }
    }

    /// A patch type that custom resources do not take.
    pub fn no_such_patch() -> Self {
        Self::new(
            415,
            "UnsupportedMediaType",
            "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
        )
    }

    /// Parameters that the options object of a request lacks or that say nothing known.
    pub fn bad_options(kind: &str, causes: &[Cause]) -> Self {
        let list: Vec<String> = causes.iter().map(|c| format!("{}: {}", c.field, c.message)).collect();
        let text = match list.as_slice() {
            [one] => one.clone(),
            more => format!("[{}]", more.join(", ")),
        };
        let mut out = Self::new(422, "Invalid", format!("{kind}.meta.k8s.io \"\" is invalid: {text}"));
        out.detail("group", "meta.k8s.io".into());
        out.detail("kind", kind.into());
        out.detail("causes", causes.iter().map(Cause::to_value).collect());
        out
    }

    /// A patched object that does not decode: the real server has no kind for it any more.
    pub fn patched_object(shown: &str, why: &str) -> Self {
        let cause = Cause::invalid("patch", format!("Invalid value: {shown:?}: {why}"));
        let mut out = Self::new(422, "Invalid", format!(" \"\" is invalid: patch: {}", cause.message));
        out.detail("causes", json!([cause.to_value()]));
        out
    }

    /// A UID that is not that of the stored object, found by the storage layer.
    pub fn other_uid(resource: &Resource, key: (&str, &str), sent: &str, stored: &str) -> Self {
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {sent}, UID in object meta: {stored}",
            resource.storage_path(key.0, key.1)
        );
        Self::conflict(resource, key.1, &why)
    }

    /// A revision that is not that of the stored object, found by the storage layer.
    pub fn other_revision(resource: &Resource, key: (&str, &str), sent: &str, stored: &str) -> Self {
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: ResourceVersion in precondition: {sent}, ResourceVersion in object meta: {stored}",
            resource.storage_path(key.0, key.1)
        );
        Self::conflict(resource, key.1, &why)
    }

    /// A failed precondition of a delete, which real servers report on the kind.
    pub fn failed_precondition(resource: &Resource, name: &str, why: &str) -> Self {
        let mut out = Self::conflict(resource, name, why);
        out.message = format!("Operation cannot be fulfilled on {} {name:?}: {why}", resource.group_kind());
        out.detail("kind", resource.kind.clone().into());
        out
    }

    /// Sets one entry of `details`.
    pub fn detail(&mut self, key: &str, value: Value) {
        self.details.get_or_insert_default().insert(key.to_owned(), value);
    }

    /// 410, both as an HTTP status and inside a watch.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    pub fn too_many(message: impl Into<String>, retry_after: Option<u32>) -> Self {
        let mut out = Self::new(429, "TooManyRequests", message);
        if let Some(seconds) = retry_after {
            out.retry_after = Some(seconds);
            out.detail("retryAfterSeconds", seconds.into());
        }
        out
    }

    pub fn timeout(message: impl Into<String>, retry_after: u32) -> Self {
        let mut out = Self::new(504, "Timeout", message);
        out.retry_after = Some(retry_after);
        out.detail("retryAfterSeconds", retry_after.into());
        out
    }

    pub fn internal(message: impl std::fmt::Display) -> Self {
        Self::new(500, "InternalError", format!("Internal error occurred: {message}"))
    }

    /// Adds one cause without a field, as the eviction handler does.
    #[must_use]
    pub fn with_cause(mut self, reason: &'static str, message: String) -> Self {
        let causes = self.details.get_or_insert_default().entry("causes").or_insert_with(|| Value::Array(Vec::new()));
        if let Value::Array(list) = causes {
            list.push(json!({"reason": reason, "message": message}));
        }
        self
    }

    /// The `Status` object.
    pub fn to_status(&self) -> Value {
        let mut metadata = Map::new();
        if let Some(token) = &self.continue_token {
            metadata.insert("continue".into(), token.clone().into());
        }
        let mut out = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": metadata,
            "status": "Failure", "message": self.message, "code": self.code,
        });
        if !self.reason.is_empty() {
            out["reason"] = self.reason.into();
        }
        if let Some(details) = &self.details {
            out["details"] = Value::Object(details.clone());
        }
        out
    }
}
