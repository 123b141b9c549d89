//! Server-side apply of plain JSON as a user, strict about unknown fields, and what the server said to it.

use kube::Client;
use serde_json::Value;

/// Whether a write is to stay.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Stay {
    Yes,
    /// Checked like any other, and not kept.
    No,
}

/// The server's refusal: HTTP code and message.
#[derive(Debug)]
pub struct Refused {
    pub code: u16,
    pub message: String,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.code, self.message)
    }
}

/// The path of an object's resource collection. Kinds of these tests only.
pub fn path(object: &Value) -> String {
    let word = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (word("/apiVersion"), word("/kind"));
    let root = if api_version.contains('/') { "apis" } else { "api" };
    let namespace = match word("/metadata/namespace") {
        "" => String::new(),
        namespace => format!("/namespaces/{namespace}"),
    };
    format!("/{root}/{api_version}{namespace}/{}s", kind.to_lowercase())
}

/// Applies an object, taking over every field that it names.
pub async fn apply(client: &Client, object: &Value, stay: Stay) -> Result<Value, Refused> {
    let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let dry_run = if stay == Stay::No { "&dryRun=All" } else { "" };
    let uri = format!("{}/{name}?fieldManager=test&force=true&fieldValidation=Strict{dry_run}", path(object));
    send(client, "PATCH", &uri, "application/apply-patch+yaml", object).await
}

/// Sends a body, or none if it is null.
pub async fn send(client: &Client, method: &str, uri: &str, content_type: &str, body: &Value) -> Result<Value, Refused> {
    let body = if body.is_null() { Vec::new() } else { serde_json::to_vec(body).expect("JSON") };
    let request =
        http::Request::builder().method(method).uri(uri).header("content-type", content_type).body(body).expect("request");
    match client.request(request).await {
        Ok(answer) => Ok(answer),
        Err(kube::Error::Api(status)) => Err(Refused { code: status.code, message: status.message }),
        Err(error) => panic!("{method} {uri}: {error}"),
    }
}

/// Sets what a JSON pointer names, making objects on the way; null removes it.
pub fn edit(object: &mut Value, pointer: &str, value: Value) {
    let mut at = object;
    let mut words = pointer.trim_start_matches('/').split('/').map(|word| word.replace("~1", "/").replace("~0", "~")).peekable();
    while let Some(word) = words.next() {
        if at.is_null() {
            *at = Value::Object(serde_json::Map::new());
        }
        let fields = at.as_object_mut().unwrap_or_else(|| panic!("{pointer}: no object before {word}"));
        if words.peek().is_none() {
            if value.is_null() {
                fields.remove(&word);
            } else {
                fields.insert(word, value);
            }
            return;
        }
        at = fields.entry(word).or_insert(Value::Null);
    }
}
