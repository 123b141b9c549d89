//! One request and its answer, in a normal form: what must differ between two servers (revisions, UIDs, times, generated names, tokens) is
//! replaced by what is comparable of it: which one it is of those seen so far, and whether a revision grew.

use std::collections::BTreeMap;

use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::{Map, Value};

/// An HTTP request as text.
#[derive(Debug, Clone, Default)]
pub struct Request {
    pub method: String,
    pub at: String,
    /// `json`, `merge`, `strategic`, `patch`, `apply`, a media type, or nothing.
    pub kind: String,
    pub accept: String,
    pub body: String,
}

/// What came back, as it came.
#[derive(Debug, Clone)]
pub struct Raw {
    pub code: u16,
    /// `retry-after` and all of `warning`.
    pub headers: Vec<String>,
    pub body: Value,
}

/// What came back, in normal form.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    pub code: u16,
    pub headers: Vec<String>,
    pub body: Value,
}

fn media_type(kind: &str) -> &str {
    match kind {
        "merge" => "application/merge-patch+json",
        "strategic" => "application/strategic-merge-patch+json",
        "patch" => "application/json-patch+json",
        "apply" => "application/apply-patch+yaml",
        "json" => "application/json",
        other => other,
    }
}

impl Request {
    pub fn to_http(&self) -> http::Request<Body> {
        let mut request = http::Request::builder().method(self.method.as_str()).uri(&self.at).header("user-agent", "likeness/1");
        if !self.kind.is_empty() {
            request = request.header("content-type", media_type(&self.kind));
        }
        if !self.accept.is_empty() {
            request = request.header("accept", &self.accept);
        }
        request.body(Body::from(self.body.clone().into_bytes())).unwrap_or_else(|e| panic!("{} {}: {e}", self.method, self.at))
    }
}

pub async fn send(client: &Client, request: &Request) -> Raw {
    let response = client.send(request.to_http()).await.unwrap_or_else(|e| panic!("{} {}: {e}", request.method, request.at));
    let text = |v: &http::HeaderValue| v.to_str().unwrap_or_default().to_owned();
    let headers = ["retry-after", "warning"].iter().flat_map(|name| response.headers().get_all(*name).iter().map(text)).collect();
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    let body = serde_json::from_slice(&bytes).unwrap_or_else(|_| Value::from(String::from_utf8_lossy(&bytes).into_owned()));
    Raw { code, headers, body }
}

/// Replaces every run of characters that `part` accepts by what `with` makes of it, if it makes anything.
fn replace_words(text: &str, part: fn(char) -> bool, mut with: impl FnMut(&str) -> Option<String>) -> String {
    let mut out = String::new();
    let mut word = String::new();
    for c in text.chars().chain(['\0']) {
        if part(c) {
            word.push(c);
            continue;
        }
        out.push_str(&with(&word).unwrap_or_else(|| word.clone()));
        word.clear();
        if c != '\0' {
            out.push(c);
        }
    }
    out
}

fn is_uid(word: &str) -> bool {
    let parts: Vec<usize> = word.split('-').map(str::len).collect();
    parts == [8, 4, 4, 4, 12] && word.chars().all(|c| c.is_ascii_hexdigit() || c == '-')
}

fn is_time(word: &str) -> bool {
    word.len() >= 20 && word.ends_with('Z') && word.parse::<jiff::Timestamp>().is_ok()
}

/// A number that follows one of these is a revision.
fn without_revisions(text: &str) -> String {
    let mut out = text.to_owned();
    for lead in [
        "current: ",
        "in record (",
        "in the precondition (",
        "ResourceVersion in object meta: ",
        "too old resource version: ",
        "resource version: N (",
        "resource version: ",
    ] {
        if let Some(at) = out.find(lead).map(|at| at + lead.len()) {
            let digits = out[at..].chars().take_while(char::is_ascii_digit).count();
            if digits > 0 {
                out.replace_range(at..at + digits, "N");
            }
        }
    }
    out
}

/// Times that a condition may leave out; the real one writes null.
const TIMES: &[&str] = &["lastHeartbeatTime", "lastTransitionTime", "lastProbeTime"];

/// What has been seen of one server so far, in order: the same on both if both are alike.
#[derive(Debug, Default)]
pub struct Names {
    uids: Vec<String>,
    /// By UID, in the order of appearance.
    revisions: BTreeMap<String, Vec<u64>>,
    highest: u64,
    /// The revision of the last list, which its next pages share.
    list: u64,
}

impl Names {
    fn uid(&mut self, uid: &str) -> String {
        let at = self.uids.iter().position(|u| u == uid).unwrap_or_else(|| {
            self.uids.push(uid.to_owned());
            self.uids.len() - 1
        });
        format!("UID{}", at + 1)
    }

    /// `RV1` is the first revision seen of an object, `RV2` the second.
    fn revision(&mut self, uid: &str, revision: u64) -> String {
        self.highest = self.highest.max(revision);
        let seen = self.revisions.entry(uid.to_owned()).or_default();
        if let Some(at) = seen.iter().position(|r| *r == revision) {
            return format!("RV{}", at + 1);
        }
        let back = seen.last().is_some_and(|last| *last > revision);
        seen.push(revision);
        format!("RV{}{}", seen.len(), if back { " (older than the one before)" } else { "" })
    }

    fn list_revision(&mut self, revision: u64, continued: bool) -> String {
        let out = match (continued, revision) {
            (true, r) if r == self.list => "RV of the page before",
            (_, r) if r < self.highest => "RV older than what was seen",
            _ => "RV",
        };
        self.list = revision;
        out.to_owned()
    }

    pub fn text(&mut self, text: &str) -> String {
        let text = replace_words(text, |c| c.is_ascii_hexdigit() || c == '-', |w| is_uid(w).then(|| self.uid(w)));
        let time = |w: &str| is_time(w).then(|| "TIME".to_owned());
        let text = replace_words(&text, |c| c.is_ascii_digit() || "-:.TZ".contains(c), time);
        without_revisions(&text)
    }

    pub fn answer(&mut self, raw: Raw, continued: bool) -> Answer {
        let headers = raw.headers.iter().map(|h| self.text(h)).collect();
        Answer { code: raw.code, headers, body: self.value(raw.body, continued) }
    }

    fn metadata(&mut self, mut fields: Map<String, Value>, continued: bool) -> Value {
        let uid = fields.get("uid").and_then(Value::as_str).unwrap_or_default().to_owned();
        let revision = fields.get("resourceVersion").and_then(Value::as_str).and_then(|t| t.parse().ok());
        if let Some(revision) = revision {
            let shown = match uid.as_str() {
                "" => self.list_revision(revision, continued),
                uid => self.revision(uid, revision),
            };
            fields.insert("resourceVersion".into(), shown.into());
        }
        if fields.get("continue").and_then(Value::as_str).is_some_and(|t| !t.is_empty()) {
            fields.insert("continue".into(), "TOKEN".into());
        }
        let prefix: String = fields.get("generateName").and_then(Value::as_str).unwrap_or_default().chars().take(58).collect();
        let made = |name: &str| !prefix.is_empty() && name.starts_with(&prefix);
        if let Some(name) = fields.get("name").and_then(Value::as_str).filter(|n| made(n)) {
            let drawn = name.len() - prefix.len();
            fields.insert("name".into(), format!("{prefix}<{drawn} drawn>").into());
        }
        self.fields(fields, continued)
    }

    fn fields(&mut self, fields: Map<String, Value>, continued: bool) -> Value {
        let mut out = Map::new();
        for (name, field) in fields {
            let plain = name.strip_prefix("f:").unwrap_or(&name);
            let empty = field.is_null() || field.as_object().is_some_and(Map::is_empty);
            if TIMES.contains(&plain) && empty {
                continue;
            }
            let field = match (name.as_str(), field) {
                ("metadata", Value::Object(inner)) => self.metadata(inner, continued),
                ("managedFields", Value::Array(entries)) => {
                    let mut entries: Vec<Value> = entries.into_iter().map(|e| self.value(e, continued)).collect();
                    // Two of the same second come in either order.
                    entries.sort_by_key(|e| ["manager", "operation", "subresource"].map(|f| e[f].to_string()));
                    Value::Array(entries)
                }
                ("causes", Value::Array(causes)) if causes.iter().all(|c| c["reason"] == "FieldManagerConflict") => {
                    // By manager, in the order of a Go map: any.
                    let mut causes: Vec<Value> = causes.into_iter().map(|c| self.value(c, continued)).collect();
                    causes.sort_by_key(ToString::to_string);
                    Value::Array(causes)
                }
                (_, field) => self.value(field, continued),
            };
            out.insert(name, field);
        }
        Value::Object(out)
    }

    pub fn value(&mut self, value: Value, continued: bool) -> Value {
        match value {
            Value::String(text) => self.text(&text).into(),
            Value::Array(items) => items.into_iter().map(|v| self.value(v, continued)).collect(),
            Value::Object(fields) => self.fields(fields, continued),
            other => other,
        }
    }
}
