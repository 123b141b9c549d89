//! Runs one sequence on one server. The simulated one gets a thread and a paused clock of its own, so it never waits.

use std::{collections::BTreeMap, sync::mpsc, thread, time::Duration};

use http_body_util::BodyExt;
use kube::Client;
use lockkeeper::sim::apiserver::{ApiServer, Config, Identity};
use serde_json::Value;
use tokio::task::JoinHandle;

use super::answer::{Answer, Names, Raw, Request, send};
use super::sequence::{Memory, Sequence, Step};

/// What a sequence was answered with: one entry a line, in order.
#[derive(Debug, Clone)]
pub enum Seen {
    Answer(Answer),
    /// The events of a watch, up to the end of the sequence.
    Events(Vec<Value>),
}

/// The server that a sequence is run on.
pub struct Side<'a> {
    pub clients: &'a BTreeMap<String, Client>,
    /// The simulated one.
    pub sim: Option<&'a ApiServer>,
    /// Lines that each watch is to see, when that is known: those of the other server.
    pub expected: Vec<usize>,
    /// So many times as long as at first it is waited for what a real server does in its own time.
    pub slack: u32,
}

/// How long a real watch may take to tell what was written.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long it is listened to after that: an event too many would come now.
const AFTER: Duration = Duration::from_millis(120);
/// A read of the watch cache, and not of the store, may be this late.
const CACHE: Duration = Duration::from_millis(150);

pub(super) struct Watch {
    step: usize,
    lines: mpsc::Receiver<Value>,
    task: JoinHandle<()>,
    seen: Vec<Value>,
}

impl Watch {
    /// All that it was told so far.
    pub(super) fn told(&mut self) -> &[Value] {
        self.seen.extend(self.lines.try_iter());
        &self.seen
    }

    pub(super) fn close(mut self) -> Vec<Value> {
        self.told();
        self.task.abort();
        self.seen
    }
}

/// Opens a watch; `Err` is a refusal.
pub(super) async fn open(client: &Client, request: &Request, step: usize) -> Result<Watch, Raw> {
    let response = client.send(request.to_http()).await.unwrap_or_else(|e| panic!("watch {}: {e}", request.at));
    let code = response.status().as_u16();
    let mut body = response.into_body();
    if code != 200 {
        let bytes = body.collect().await.expect("a body").to_bytes();
        let body = serde_json::from_slice(&bytes).unwrap_or_default();
        return Err(Raw { code, headers: Vec::new(), body });
    }
    let (out, lines) = mpsc::channel();
    let task = tokio::spawn(async move {
        let mut rest = Vec::new();
        while let Some(Ok(frame)) = body.frame().await {
            rest.extend_from_slice(frame.data_ref().map_or(&[][..], |d| d));
            while let Some(end) = rest.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = rest.drain(..=end).collect();
                let Ok(event) = serde_json::from_slice(&line) else { continue };
                if out.send(event).is_err() {
                    return;
                }
            }
        }
    });
    Ok(Watch { step, lines, task, seen: Vec::new() })
}

/// Until all watches have seen what they are to see, and a moment longer.
async fn settle(watches: &mut [Watch], side: &Side<'_>) {
    if side.sim.is_some() {
        // Virtual time: everything that is due by then has come.
        tokio::time::sleep(Duration::from_secs(9)).await;
    }
    let began = tokio::time::Instant::now();
    let mut complete = None;
    loop {
        for watch in watches.iter_mut() {
            watch.seen.extend(watch.lines.try_iter());
        }
        let wanted = |n: usize| side.expected.get(n).copied().unwrap_or(0);
        let all = watches.iter().enumerate().all(|(n, w)| w.seen.len() >= wanted(n));
        if all {
            complete.get_or_insert_with(tokio::time::Instant::now);
        }
        let over = complete.is_some_and(|at| at.elapsed() >= AFTER * side.slack);
        if watches.is_empty() || side.sim.is_some() || over || began.elapsed() > PATIENCE * side.slack {
            return;
        }
        tokio::time::sleep(Duration::from_millis(15)).await;
    }
}

/// A real server needs a moment from a CRD to its resources.
async fn served(client: &Client, crd: &Value) {
    let text = |path: &str| crd.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let at = format!("/apis/{}/{}/{}", text("/spec/group"), text("/spec/versions/0/name"), text("/spec/names/plural"));
    for _ in 0..1200 {
        let ask = Request { method: "GET".into(), at: at.clone(), ..Request::default() };
        if send(client, &ask).await.code == 200 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Until a real server's watch cache of what is asked for is as new as its store, which is what a list without a revision waits for.
async fn caught_up(client: &Client, at: &str) {
    let path = at.split('?').next().unwrap_or_default();
    let above = path.rsplit_once('/').map_or(path, |(above, _)| above);
    for at in [path, above] {
        send(client, &Request { method: "GET".into(), at: at.to_owned(), ..Request::default() }).await;
    }
}

/// Waits until a real server has forgotten the revision of a list's next page; the simulated one is told to.
async fn forget(client: &Client, request: &Request, side: &Side<'_>) {
    if let Some(sim) = side.sim {
        sim.compact();
        return;
    }
    for _ in 0..600 {
        if send(client, request).await.code == 410 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

pub async fn run(sequence: &Sequence, namespace: &str, side: &Side<'_>) -> Vec<Seen> {
    let mut memory = Memory::default();
    let mut names = Names::default();
    let mut watches: Vec<Watch> = Vec::new();
    let mut out = Vec::new();
    for (n, step) in sequence.steps.iter().enumerate() {
        let user = if step.user.is_empty() { "admin" } else { &step.user };
        let client = side.clients.get(user).unwrap_or_else(|| panic!("no user {user:?}: {}", step.text));
        if step.verb == "settle" {
            // What a real server does in its own time: CRDs, roles.
            tokio::time::sleep(Duration::from_secs(2) * side.slack).await;
            out.push(Seen::Events(Vec::new()));
            continue;
        }
        let request = step.request(&memory, namespace);
        if from_cache(step, &request.at) && side.sim.is_none() {
            caught_up(client, &request.at).await;
            tokio::time::sleep(CACHE * side.slack).await;
        }
        match step.verb.as_str() {
            "forget" => {
                forget(client, &Request { method: "GET".into(), ..request }, side).await;
                out.push(Seen::Events(Vec::new()));
                continue;
            }
            "watch" => match open(client, &request, n).await {
                Ok(watch) => {
                    watches.push(watch);
                    out.push(Seen::Events(Vec::new()));
                }
                Err(raw) => out.push(Seen::Answer(names.answer(raw, false))),
            },
            _ => {
                let raw = send(client, &request).await;
                if side.sim.is_none() && raw.code == 201 && raw.body["kind"] == "CustomResourceDefinition" {
                    served(client, &raw.body).await;
                }
                memory.keep(&step.label, &raw.body);
                if raw.body["kind"] != "Status" && raw.body.pointer("/metadata/uid").is_some() {
                    memory.keep(&step.object(namespace), &raw.body);
                }
                out.push(Seen::Answer(names.answer(raw, continues(&request.at))));
            }
        }
    }
    settle(&mut watches, side).await;
    for watch in watches {
        watch.task.abort();
        if let Some(slot) = out.get_mut(watch.step) {
            // When a watch gets a bookmark besides is a matter of time, unless it is near its end.
            let timed = sequence.steps.get(watch.step).is_some_and(|s| s.path.contains("timeoutSeconds="));
            let bare = |v: &Value| v["type"] == "BOOKMARK" && v.pointer("/object/metadata/annotations").is_none();
            let events = watch.seen.into_iter().filter(|v| timed || !bare(v));
            *slot = Seen::Events(events.map(|event| names.value(event, false)).collect());
        }
    }
    out
}

/// Does it go on with a list? Without a token it begins one.
fn continues(at: &str) -> bool {
    at.split_once("continue=").is_some_and(|(_, token)| !token.is_empty() && !token.starts_with('&'))
}

/// Is it answered from the watch cache, which may be late?
fn from_cache(step: &Step, at: &str) -> bool {
    let unset = !at.contains("resourceVersion=") || at.contains("resourceVersion=&");
    at.contains("resourceVersion=0") || (step.verb == "watch" && unset)
}

/// Users that both servers know.
pub const USERS: &[&str] = &["admin", "operator", "reconciler", "viewer"];

/// The custom kinds that sequences share.
pub fn crds() -> Vec<Value> {
    super::data("sequences/crds.jsonl").lines().map(|crd| serde_json::from_str(crd).expect("a CRD")).collect()
}

/// The sequence on a fresh simulated server.
pub fn simulated(sequence: &Sequence, namespace: &str) -> tokio::sync::oneshot::Receiver<Vec<Seen>> {
    let (out, result) = tokio::sync::oneshot::channel();
    let (sequence, namespace) = (sequence.clone(), namespace.to_owned());
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
        let seen = runtime.block_on(async {
            let sim = ApiServer::new(Config { rbac: true, ..Config::default() });
            let admin = Identity::new("admin");
            let clients: BTreeMap<String, Client> = USERS
                .iter()
                .map(|u| {
                    let who = if *u == "admin" { admin.clone() } else { Identity::new(*u).user(*u) };
                    ((*u).to_owned(), sim.client(&who))
                })
                .collect();
            for crd in crds() {
                let made = sim.install(crd);
                made.unwrap_or_else(|refusal| panic!("{}", refusal.message));
            }
            let made = sim.install(serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}));
            made.unwrap_or_else(|refusal| panic!("{}", refusal.message));
            // The history of a real server begins at its start.
            sim.compact();
            run(&sequence, &namespace, &Side { clients: &clients, sim: Some(&sim), expected: Vec::new(), slack: 1 }).await
        });
        out.send(seen).ok();
    });
    result
}
