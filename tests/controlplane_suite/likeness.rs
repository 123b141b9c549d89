//! Is the simulated API server like a real one? The same requests go to both, and the answers are compared.
//! The requests are data (`likeness/*.jsonl`); `differs` names what is known to be unlike, so nothing else may be.

use std::{collections::BTreeSet, time::Duration};

use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use lockkeeper::sim::apiserver::{ApiServer, Config, Identity};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::support::controlplane::{Component, ControlPlane, User};

/// One request, and the paths of its answer that are known to differ.
#[derive(Debug, Deserialize)]
struct Step {
    #[serde(rename = "do")]
    method: String,
    at: String,
    #[serde(default, rename = "as")]
    kind: String,
    #[serde(default)]
    body: Value,
    #[serde(default)]
    differs: Vec<String>,
}

/// Everywhere: the real one runs without its service account plugin.
const DIFFERS: &[&str] = &[".spec.serviceAccount", ".spec.serviceAccountName"];

/// Times that a condition may leave out; the real one writes null.
const TIMES: &[&str] = &["lastHeartbeatTime", "lastTransitionTime", "lastProbeTime"];

fn media_type(kind: &str) -> &'static str {
    match kind {
        "merge" => "application/merge-patch+json",
        "strategic" => "application/strategic-merge-patch+json",
        "patch" => "application/json-patch+json",
        "apply" => "application/apply-patch+yaml",
        _ => "application/json",
    }
}

struct Answer {
    code: u16,
    /// `retry-after` and `warning`.
    headers: Vec<Option<String>>,
    body: Value,
}

fn header_texts(response: &http::Response<Body>) -> Vec<Option<String>> {
    let text = |name: &str| response.headers().get(name).and_then(|v| v.to_str().ok()).map(str::to_owned);
    vec![text("retry-after"), text("warning")]
}

async fn send(client: &Client, step: &Step) -> Answer {
    let mut request = http::Request::builder().method(step.method.as_str()).uri(&step.at).header("user-agent", "likeness/1");
    if !step.kind.is_empty() {
        request = request.header("content-type", media_type(&step.kind));
    }
    let body = if step.body.is_null() { Vec::new() } else { step.body.to_string().into_bytes() };
    let response = client.send(request.body(Body::from(body)).expect("a request")).await.expect("an answer");
    let headers = header_texts(&response);
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    let body = serde_json::from_slice(&bytes).unwrap_or_else(|_| Value::from(String::from_utf8_lossy(&bytes).into_owned()));
    Answer { code, headers, body: normal(body) }
}

/// Replaces every run of characters that `part` accepts and that `whole` recognises.
fn replace_words(text: &str, part: fn(char) -> bool, whole: fn(&str) -> bool, with: &str) -> String {
    let mut out = String::new();
    let mut word = String::new();
    for c in text.chars().chain(['\0']) {
        if part(c) {
            word.push(c);
            continue;
        }
        out.push_str(if whole(&word) { with } else { &word });
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
    for lead in ["current: ", "in record ("] {
        if let Some(at) = out.find(lead).map(|at| at + lead.len()) {
            let digits = out[at..].chars().take_while(char::is_ascii_digit).count();
            out.replace_range(at..at + digits, "N");
        }
    }
    out
}

fn normal_text(text: &str) -> String {
    let text = replace_words(text, |c| c.is_ascii_hexdigit() || c == '-', is_uid, "UID");
    let text = replace_words(&text, |c| c.is_ascii_digit() || "-:.TZ".contains(c), is_time, "TIME");
    without_revisions(&text)
}

/// An answer without what must differ: revisions, UIDs, times, the order of managers.
fn normal(value: Value) -> Value {
    match value {
        Value::String(text) => normal_text(&text).into(),
        Value::Array(items) => items.into_iter().map(normal).collect(),
        Value::Object(fields) => {
            let mut out = Map::new();
            for (name, field) in fields {
                let plain = name.strip_prefix("f:").unwrap_or(&name);
                let empty = field.is_null() || field.as_object().is_some_and(Map::is_empty);
                if TIMES.contains(&plain) && empty {
                    continue;
                }
                let field = match (name.as_str(), field) {
                    ("resourceVersion", Value::String(text)) if !text.is_empty() => "RV".into(),
                    ("uid", Value::String(_)) => "UID".into(),
                    ("managedFields", Value::Array(entries)) => {
                        let mut entries: Vec<Value> = entries.into_iter().map(normal).collect();
                        entries.sort_by_key(|e| ["manager", "operation", "subresource"].map(|f| e[f].to_string()));
                        Value::Array(entries)
                    }
                    (_, field) => normal(field),
                };
                out.insert(name, field);
            }
            Value::Object(out)
        }
        other => other,
    }
}

fn compare(real: &Value, sim: &Value, path: &str, out: &mut Vec<(String, String)>) {
    match (real, sim) {
        (Value::Object(a), Value::Object(b)) => {
            let names: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for name in names {
                let path = format!("{path}.{name}");
                match (a.get(name), b.get(name)) {
                    (Some(x), Some(y)) => compare(x, y, &path, out),
                    (x, y) => out.push((path, format!("real {}, simulated {}", shown(x), shown(y)))),
                }
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (n, (x, y)) in a.iter().zip(b).enumerate() {
                compare(x, y, &format!("{path}[{n}]"), out);
            }
        }
        (x, y) if x == y => {}
        (x, y) => out.push((path.to_owned(), format!("real {x}, simulated {y}"))),
    }
}

fn shown(value: Option<&Value>) -> String {
    value.map_or_else(|| "absent".into(), Value::to_string)
}

fn differences(real: &Answer, sim: &Answer) -> Vec<(String, String)> {
    let mut out = Vec::new();
    if real.code != sim.code {
        out.push(("code".into(), format!("real {}, simulated {}", real.code, sim.code)));
    }
    if real.headers != sim.headers {
        out.push(("headers".into(), format!("real {:?}, simulated {:?}", real.headers, sim.headers)));
    }
    compare(&real.body, &sim.body, "", &mut out);
    out
}

/// A real server needs a moment from a CRD to its resources.
async fn served(client: &Client, crd: &Value) {
    let text = |path: &str| crd.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let at = format!("/apis/{}/{}/{}", text("/spec/group"), text("/spec/versions/0/name"), text("/spec/names/plural"));
    let ask = Step { method: "GET".into(), at, kind: String::new(), body: Value::Null, differs: Vec::new() };
    for _ in 0..100 {
        if send(client, &ask).await.code == 200 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn the_simulated_server_is_like_a_real_one() {
    let Some(plane) = ControlPlane::own(&[]) else { return };
    // Only the API server is compared: nobody else may write.
    plane.kill(Component::ControllerManager);
    plane.kill(Component::Scheduler);
    let real = plane.client(User::Admin).await;
    let sim = ApiServer::new(Config::default()).client(&Identity::new("likeness"));
    answers(&real, &sim).await;
    let (a, b) = tokio::join!(watched(&real), watched(&sim));
    for ((path, real), sim) in WATCHED.iter().zip(a).zip(b) {
        assert!(!real.is_empty(), "{path}: nothing seen");
        assert_eq!(real, sim, "{path}");
    }
}

async fn answers(real: &Client, sim: &Client) {
    let scenarios = [
        ("nodes", include_str!("likeness/nodes.jsonl")),
        ("pods", include_str!("likeness/pods.jsonl")),
        ("custom", include_str!("likeness/custom.jsonl")),
        ("kinds", include_str!("likeness/kinds.jsonl")),
    ];
    let mut unlike = Vec::new();
    for (name, steps) in scenarios {
        for (n, line) in steps.lines().enumerate() {
            let step: Step = serde_json::from_str(line).unwrap_or_else(|e| panic!("{name} line {}: {e}", n + 1));
            let (a, b) = (send(real, &step).await, send(sim, &step).await);
            if step.method == "POST" && step.at.ends_with("/customresourcedefinitions") {
                served(real, &step.body).await;
            }
            let known =
                |path: &str| step.differs.iter().map(String::as_str).chain(DIFFERS.iter().copied()).any(|d| path.starts_with(d));
            for (path, what) in differences(&a, &b).into_iter().filter(|(path, _)| !known(path)) {
                unlike.push(format!("{name} line {}: {} {}: {path}: {what}", n + 1, step.method, step.at));
            }
        }
    }
    assert!(unlike.is_empty(), "{} differences:\n{}", unlike.len(), unlike.join("\n"));
}

/// Watches of `watched`, and what is written while they are open; `{rv}` is the revision before.
const WATCHED: &[&str] = &[
    "/api/v1/nodes?labelSelector=k%3D1&resourceVersion={rv}",
    "/api/v1/nodes?labelSelector=k&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
    "/api/v1/nodes?sendInitialEvents=true",
    "/api/v1/nodes?resourceVersion={rv}",
    "/api/v1/nodes?fieldSelector=metadata.name%3Dw2&resourceVersion={rv}",
    "/api/v1/namespaces/default/pods?resourceVersion={rv}",
    "/api/v1/pods?fieldSelector=spec.nodeName%3Dwn&resourceVersion={rv}",
];

const WRITTEN: &str = include_str!("likeness/watched.jsonl");

/// The lines that each watch got while the writes were made.
async fn watched(client: &Client) -> Vec<Vec<Value>> {
    let ask = |at: String| Step { method: "GET".into(), at, kind: String::new(), body: Value::Null, differs: Vec::new() };
    let mut steps = WRITTEN.lines().map(|line| serde_json::from_str::<Step>(line).expect("a step"));
    send(client, &steps.next().expect("a first step")).await;
    let request = http::Request::get("/api/v1/nodes").body(Vec::new()).expect("a request");
    let list: Value = client.request(request).await.expect("a list");
    let rv = list["metadata"]["resourceVersion"].as_str().expect("a revision").to_owned();
    let mut streams = Vec::new();
    for path in WATCHED {
        let at = format!("{}&watch=true&timeoutSeconds=6", path.replace("{rv}", &rv));
        let (client, step) = (client.clone(), ask(at));
        streams.push(tokio::spawn(async move { send(&client, &step).await.body }));
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    for step in steps {
        send(client, &step).await;
    }
    let mut out = Vec::new();
    for stream in streams {
        let text = match stream.await.expect("a stream") {
            Value::String(lines) => lines,
            refused => refused.to_string(),
        };
        let lines = text.lines().filter_map(|line| serde_json::from_str(line).ok()).map(normal);
        let bare = |v: &Value| v["type"] == "BOOKMARK" && v.pointer("/object/metadata/annotations").is_none();
        out.push(lines.filter(|v| !bare(v)).map(seen).collect());
    }
    out
}

/// Of an event, what a watcher goes by.
fn seen(event: Value) -> Value {
    let at = |path: &str| event.pointer(path).cloned().unwrap_or_default();
    serde_json::json!({
        "type": event["type"], "kind": at("/object/kind"), "name": at("/object/metadata/name"), "labels": at("/object/metadata/labels"),
        "annotations": at("/object/metadata/annotations"), "finalizers": at("/object/metadata/finalizers"),
        "deleting": at("/object/metadata/deletionTimestamp"), "grace": at("/object/metadata/deletionGracePeriodSeconds"),
        "node": at("/object/spec/nodeName"), "code": event["code"], "message": event["message"],
    })
}
