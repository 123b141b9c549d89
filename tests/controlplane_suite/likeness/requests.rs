//! Single requests, one after the other on one state (`requests/*.jsonl`), and watches that are open while `watched.jsonl` is written.

use std::{collections::BTreeMap, time::Duration};

use kube::Client;
use serde::Deserialize;
use serde_json::Value;

use super::answer::{Names, Raw, Request, send};
use super::compare::{self, Difference, Known};
use super::run::{Watch, open};

/// One request, and the known differences of its answer: by id, with the paths.
#[derive(Debug, Deserialize)]
struct Line {
    #[serde(rename = "do")]
    method: String,
    at: String,
    #[serde(default, rename = "as")]
    kind: String,
    #[serde(default)]
    body: Value,
    #[serde(default)]
    differs: BTreeMap<String, Vec<String>>,
}

impl Line {
    fn request(&self) -> Request {
        let body = if self.body.is_null() { String::new() } else { self.body.to_string() };
        Request { method: self.method.clone(), at: self.at.clone(), kind: self.kind.clone(), accept: String::new(), body }
    }
}

/// A real server needs a moment from a CRD to its resources.
async fn served(client: &Client, crd: &Value) {
    let text = |path: &str| crd.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let at = format!("/apis/{}/{}/{}", text("/spec/group"), text("/spec/versions/0/name"), text("/spec/names/plural"));
    let ask = Request { method: "GET".into(), at, ..Request::default() };
    for _ in 0..1200 {
        if send(client, &ask).await.code == 200 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

const FILES: &[&str] = &["nodes", "pods", "custom", "kinds"];

/// All requests to both; returns how many there were and what is unlike and not explained.
pub async fn answers(real: &Client, sim: &Client, known: &mut Known) -> (usize, Vec<String>) {
    let (mut count, mut unlike) = (0, Vec::new());
    for name in FILES {
        let (mut of_real, mut of_sim) = (Names::default(), Names::default());
        for (n, text) in super::data(&format!("requests/{name}.jsonl")).lines().enumerate() {
            let line: Line = serde_json::from_str(text).unwrap_or_else(|e| panic!("{name} line {}: {e}", n + 1));
            let unknown = known.unknown(line.differs.keys());
            assert!(unknown.is_empty(), "{name} line {}: not in explained.jsonl: {unknown:?}", n + 1);
            let request = line.request();
            let (a, b) = (send(real, &request).await, send(sim, &request).await);
            if request.method == "POST" && request.at.ends_with("/customresourcedefinitions") {
                served(real, &line.body).await;
            }
            let paged = request.at.contains("continue=");
            let (a, b) = (of_real.answer(a, paged), of_sim.answer(b, paged));
            count += 1;
            for Difference { path, what } in compare::answers(&a, &b) {
                let difference = Difference { path, what };
                if !known.explains(&line.differs, &difference) {
                    let Difference { path, what } = difference;
                    unlike.push(format!("{name} line {}: {} {}: {path}: {what}", n + 1, line.method, line.at));
                }
            }
        }
    }
    (count, unlike)
}

/// Watches of [`watched`], and what is written while they are open; `{rv}` is the revision before.
pub const WATCHED: &[&str] = &[
    "/api/v1/nodes?labelSelector=k%3D1&resourceVersion={rv}",
    "/api/v1/nodes?labelSelector=k&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
    "/api/v1/nodes?sendInitialEvents=true",
    "/api/v1/nodes?resourceVersion={rv}",
    "/api/v1/nodes?fieldSelector=metadata.name%3Dw2&resourceVersion={rv}",
    "/api/v1/namespaces/default/pods?resourceVersion={rv}",
    "/api/v1/pods?fieldSelector=spec.nodeName%3Dwn&resourceVersion={rv}",
];

/// The lines that each watch got of the writes; of the real server, once it has told as many as the simulated one, or some time.
pub async fn watched(client: &Client, wanted: Option<&[Vec<Value>]>) -> Vec<Vec<Value>> {
    /// How long more than that is listened to.
    const AFTER: Duration = Duration::from_secs(1);
    const PATIENCE: Duration = Duration::from_secs(60);
    let bare = |v: &Value| v["type"] == "BOOKMARK" && v.pointer("/object/metadata/annotations").is_none();
    let ask = |at: String| Request { method: "GET".into(), at, ..Request::default() };
    let lines = super::data("requests/watched.jsonl");
    let mut steps = lines.lines().map(|line| serde_json::from_str::<Line>(line).expect("a request").request());
    send(client, &steps.next().expect("a first request")).await;
    let list = send(client, &ask("/api/v1/nodes".into())).await.body;
    let rv = list["metadata"]["resourceVersion"].as_str().expect("a revision").to_owned();
    let mut watches = Vec::new();
    for (step, path) in WATCHED.iter().enumerate() {
        let at = format!("{}&watch=true&timeoutSeconds=300", path.replace("{rv}", &rv));
        watches.push(open(client, &ask(at), step).await);
    }
    // What was there before must not be mixed with what is written.
    let begun = |(path, watch): (&&str, &mut Result<Watch, Raw>)| match watch {
        Ok(watch) if path.contains("allowWatchBookmarks") => watch.told().iter().any(|v| v["type"] == "BOOKMARK"),
        _ => true,
    };
    let began = tokio::time::Instant::now();
    while !WATCHED.iter().zip(&mut watches).all(begun) && began.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for request in steps {
        send(client, &request).await;
    }
    let began = tokio::time::Instant::now();
    let count = |watch: &mut Result<Watch, Raw>| match watch {
        Ok(watch) => watch.told().iter().filter(|v| !bare(v)).count(),
        Err(_) => 1,
    };
    if let Some(wanted) = wanted {
        while !watches.iter_mut().zip(wanted).all(|(watch, wanted)| count(watch) >= wanted.len()) && began.elapsed() < PATIENCE {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    tokio::time::sleep(AFTER).await;
    let mut out = Vec::new();
    for watch in watches {
        let mut names = Names::default();
        let lines = watch.map_or_else(|refused| vec![refused.body], Watch::close);
        let lines: Vec<Value> = lines.into_iter().map(|v| names.value(v, false)).collect();
        out.push(lines.into_iter().filter(|v| !bare(v)).map(seen).collect());
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
