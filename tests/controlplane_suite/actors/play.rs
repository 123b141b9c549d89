//! Plays a story on one cluster, simulated or real, with machines of its own; what it looks like after each step is what is compared.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::StreamExt;
use http::{Method, Request};
use jiff::Timestamp;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject},
    core::GroupVersionKind,
    runtime::watcher,
};
use lockkeeper::sim::actors::{Kubelets, MachineSpec};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::{
    look::{self, Heard, collection, text},
    story::{Step, Story, THING},
};

/// A cluster to play on.
#[derive(Clone)]
pub struct Stage {
    pub client: Client,
    pub kubelets: Kubelets,
    pub now: fn() -> Timestamp,
    pub start: tokio::time::Instant,
    /// The simulated one has a clock of its own, which costs nothing.
    pub base: Option<Timestamp>,
}

/// How long a simulated cluster is given after each step. Real controllers must have done the same within [`PATIENCE`], which a machine
/// with other things to do needs at times; what is alike is seen at once, and what is not costs it once a story.
const SETTLE: Duration = Duration::from_secs(20);
const PATIENCE: Duration = Duration::from_secs(240);
/// Pods of a node that is gone stay for more than a minute.
const LONG_SETTLE: Duration = Duration::from_secs(100);
const LONG_PATIENCE: Duration = Duration::from_secs(360);
/// Once a story is known to differ nothing is gained by waiting.
const IMPATIENCE: Duration = Duration::from_secs(5);
/// What looks right must stay so for this long.
const STAYS: Duration = Duration::from_millis(1500);

/// What a story was like.
#[derive(Debug, Default, Clone)]
pub struct Played {
    /// After each step.
    pub looks: Vec<Value>,
    pub heard: Heard,
    /// Events heard until the end of each step.
    pub marks: Vec<usize>,
    /// What went wrong beside that.
    pub trouble: Vec<String>,
}

struct Play<'a> {
    stage: &'a Stage,
    story: &'a Story,
    kinds: BTreeSet<&'static str>,
    codes: Vec<u16>,
}

/// Steps are played one after the other. With `model`, each look is awaited until it is that of the model, but for the parts that are known
/// to differ; without, some time.
pub async fn play(stage: &Stage, story: &Story, model: Option<&[Value]>, differ: &[&str]) -> Played {
    let heard = Arc::new(Mutex::new(Heard::default()));
    let mut play = Play { stage, story, kinds: kinds(story), codes: Vec::new() };
    let mut played = Played::default();
    play.send(Method::POST, "/api/v1/namespaces", Some(&json!({"metadata": {"name": story.name}}))).await;
    for node in ["a", "b", "c", "d"].iter().take(story.nodes) {
        play.add_machine(node);
    }
    play.until_ready(story.nodes).await;
    let (begun, begins) = oneshot::channel();
    let listening = tokio::spawn(listen(stage.client.clone(), story.name.to_owned(), heard.clone(), begun));
    begins.await.expect("a watch");
    let mut differs = false;
    for (number, step) in story.steps.iter().enumerate() {
        if let Err(why) = play.act(step).await {
            played.trouble.push(format!("step {}: {why}", number + 1));
        }
        let long = matches!(step, Step::RemoveMachine(_));
        let look = match model.map(|model| model.get(number).cloned().unwrap_or_default()) {
            None => {
                tokio::time::sleep(if long { LONG_SETTLE } else { SETTLE }).await;
                play.look().await
            }
            Some(wanted) => {
                let patience = match (differs, long) {
                    (true, _) => IMPATIENCE,
                    (false, true) => LONG_PATIENCE,
                    (false, false) => PATIENCE,
                };
                let look = play.look_until(&wanted, differ, patience).await;
                differs |= !alike(&look, &wanted, differ);
                play.until_heard(&heard).await;
                look
            }
        };
        played.looks.push(look);
        played.marks.push(locked(&heard).len());
    }
    listening.abort();
    played.heard = locked(&heard).clone();
    for node in ["a", "b", "c", "d"] {
        stage.kubelets.power_off(&format!("{}-{node}", story.name));
    }
    played
}

/// All but the parts that are known to differ.
fn alike(look: &Value, wanted: &Value, differ: &[&str]) -> bool {
    let parts = |look: &Value| look.as_object().map(|parts| parts.keys().cloned().collect::<BTreeSet<_>>()).unwrap_or_default();
    let all = parts(look).into_iter().chain(parts(wanted));
    all.filter(|part| !differ.contains(&part.as_str())).all(|part| look.get(&part) == wanted.get(&part))
}

fn locked(heard: &Mutex<Heard>) -> MutexGuard<'_, Heard> {
    heard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The kinds that a story is about.
fn kinds(story: &Story) -> BTreeSet<&'static str> {
    let mut kinds = BTreeSet::from(["pods"]);
    for step in &story.steps {
        match step {
            Step::Make("daemonsets", _) => kinds.extend(["daemonsets", "controllerrevisions"]),
            Step::Make("deployments", _) => kinds.extend(["deployments", "replicasets"]),
            Step::Make("resourceclaimtemplates", _) => kinds.extend(["resourceclaims"]),
            Step::Make("deviceclasses" | "resourceslices", _) => {}
            Step::Make(plural, _) => kinds.extend([*plural]),
            Step::Merge(what, _) if what.starts_with("nodes/") => kinds.extend(["nodes"]),
            _ => {}
        }
    }
    kinds
}

/// Tells that it has begun: what comes after that is heard in its order.
async fn listen(client: Client, namespace: String, heard: Arc<Mutex<Heard>>, begun: oneshot::Sender<()>) {
    let mut begun = Some(begun);
    let pods = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("", "v1", "Pod"), "pods");
    let pods: Api<DynamicObject> = Api::namespaced_with(client, &namespace, &pods);
    let mut events = watcher(pods, watcher::Config::default()).boxed();
    while let Some(event) = events.next().await {
        let (pod, gone) = match event {
            Ok(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod)) => (pod, false),
            Ok(watcher::Event::Delete(pod)) => (pod, true),
            Ok(watcher::Event::InitDone) => {
                begun.take().map(|begun| begun.send(()));
                continue;
            }
            _ => continue,
        };
        let pod = serde_json::to_value(&pod).unwrap_or_default();
        locked(&heard).hear(&pod, gone, &namespace);
    }
}

impl Play<'_> {
    async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> (u16, Value) {
        let bytes = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let kind = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let request = || Request::builder().method(method.clone()).uri(path).header("content-type", kind).body(bytes.clone());
        // A busy server may need a second try; what it says then is what counts.
        for _ in 0..5 {
            match self.stage.client.request::<Value>(request().expect("a request")).await {
                Ok(answer) => return (200, answer),
                Err(kube::Error::Api(status)) => return (status.code, json!({"message": status.message})),
                Err(error) => {
                    eprintln!("{}: {method} {path}: {error}", self.story.name);
                    tokio::time::sleep(Duration::from_millis(300)).await;
                }
            }
        }
        (0, Value::Null)
    }

    async fn items(&self, plural: &str) -> Vec<Value> {
        let (_, mut list) = self.send(Method::GET, &collection(plural, self.story.name), None).await;
        match list.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => items,
            _ => Vec::new(),
        }
    }

    fn node(&self, short: &str) -> String {
        format!("{}-{short}", self.story.name)
    }

    fn add_machine(&self, short: &str) {
        let mut spec = MachineSpec::new(&self.node(short)).label("pool", self.story.name);
        spec.capacity.insert(THING.to_owned(), "2".to_owned());
        self.stage.kubelets.add_machine(spec);
    }

    async fn until_ready(&self, count: usize) {
        let end = tokio::time::Instant::now() + PATIENCE;
        while tokio::time::Instant::now() < end {
            let mut ready = 0;
            for short in ["a", "b", "c", "d"].iter().take(count) {
                let (_, node) = self.send(Method::GET, &format!("/api/v1/nodes/{}", self.node(short)), None).await;
                let conditions = node.pointer("/status/conditions").and_then(Value::as_array).cloned().unwrap_or_default();
                let is_ready = conditions.iter().any(|it| it["type"] == "Ready" && it["status"] == "True");
                ready += usize::from(is_ready && node.pointer("/spec/taints").is_none_or(Value::is_null));
            }
            if ready == count {
                return;
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        panic!("{}: the nodes do not become ready", self.story.name);
    }

    /// A list may be ahead of the watch.
    async fn until_heard(&self, heard: &Mutex<Heard>) {
        let end = tokio::time::Instant::now() + PATIENCE;
        while tokio::time::Instant::now() < end {
            let pods = self.items("pods").await;
            if locked(heard).is_up_to(&pods) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    async fn act(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Make(plural, body) => {
                let body = self.filled(body).await;
                self.agreed(Method::POST, &collection(plural, self.story.name), &body).await
            }
            Step::Merge(what, patch) | Step::Status(what, patch) => {
                let patch = self.filled(patch).await;
                let mut path = self.path(what).await?;
                if matches!(step, Step::Status(..)) {
                    path.push_str("/status");
                }
                self.agreed(Method::PATCH, &path, &patch).await
            }
            Step::Delete(what, options) => self.agreed(Method::DELETE, &self.path(what).await?, options).await,
            Step::Evict(what) => {
                let path = self.path(what).await?;
                let name = path.rsplit('/').next().unwrap_or_default();
                let body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": self.story.name}});
                let (mut code, mut answer) = self.send(Method::POST, &format!("{path}/eviction"), Some(&body)).await;
                // The budget's status is not there yet: that is a matter of time, not of the answer.
                while code == 429 && text(&answer, "/message").contains("still being processed") {
                    tokio::time::sleep(Duration::from_millis(500)).await;
                    (code, answer) = self.send(Method::POST, &format!("{path}/eviction"), Some(&body)).await;
                }
                self.codes.push(code);
                Ok(())
            }
            Step::Fail(what) => {
                let path = self.path(what).await?;
                let (_, pod) = self.send(Method::GET, &path, None).await;
                let key = format!("{}/{}", self.story.name, text(&pod, "/metadata/name"));
                self.stage.kubelets.pressure_evict(text(&pod, "/spec/nodeName"), &key);
                Ok(())
            }
            Step::AddMachine(short) => {
                self.add_machine(short);
                Ok(())
            }
            Step::RemoveMachine(short) => {
                self.stage.kubelets.power_off(&self.node(short));
                self.agreed(Method::DELETE, &format!("/api/v1/nodes/{}", self.node(short)), &json!({})).await
            }
            Step::Pass(seconds) => {
                tokio::time::sleep(Duration::from_secs(*seconds)).await;
                Ok(())
            }
        }
    }

    async fn agreed(&self, method: Method, path: &str, body: &Value) -> Result<(), String> {
        // What others write meanwhile is no reason to give up.
        for _ in 0..10 {
            let (code, answer) = self.send(method.clone(), path, Some(body)).await;
            match code {
                200 => return Ok(()),
                409 if method == Method::PATCH => tokio::time::sleep(Duration::from_millis(100)).await,
                _ => return Err(format!("{method} {path}: {code} {}", text(&answer, "/message"))),
            }
        }
        Err(format!("{method} {path}: conflicts"))
    }

    async fn path(&self, what: &str) -> Result<String, String> {
        let (plural, name) = what.split_once('/').unwrap_or((what, ""));
        let name = match plural {
            "nodes" => self.node(name),
            "pods" => self.pod(name).await?,
            _ => name.to_owned(),
        };
        Ok(format!("{}/{name}", collection(plural, self.story.name)))
    }

    async fn pod(&self, place: &str) -> Result<String, String> {
        let Some(at) = place.find(['@', '#']) else { return Ok(place.to_owned()) };
        let (app, rest) = (&place[..at], &place[at + 1..]);
        let mut pods = self.items("pods").await;
        pods.retain(|pod| text(pod, "/metadata/labels/app") == app && text(pod, "/metadata/deletionTimestamp").is_empty());
        pods.sort_by_key(|pod| (text(pod, "/metadata/creationTimestamp").to_owned(), text(pod, "/metadata/name").to_owned()));
        let found = match place.as_bytes()[at] {
            b'@' => pods.iter().find(|pod| text(pod, "/spec/nodeName") == self.node(rest)),
            _ => pods.get(rest.parse::<usize>().unwrap_or_default()),
        };
        found.map(|pod| text(pod, "/metadata/name").to_owned()).ok_or_else(|| format!("there is no pod {place}"))
    }

    /// A body with its words filled in.
    async fn filled(&self, body: &Value) -> Value {
        let mut out = body.to_string();
        for (word, plural) in [("$UID(", "leases"), ("$NODE(", "nodes"), ("$POD(", "pods")] {
            while let Some(at) = out.find(word) {
                let end = out[at..].find(')').map_or(out.len(), |end| at + end);
                let inner = out[at + word.len()..end].to_owned();
                let path = self.path(&format!("{plural}/{inner}")).await.unwrap_or_default();
                let (_, object) = self.send(Method::GET, &path, None).await;
                let field = if plural == "pods" { "/metadata/name" } else { "/metadata/uid" };
                out.replace_range(at..=end, text(&object, field));
            }
        }
        if out.contains("$ELSEWHERE") {
            let other = format!("{}-other", self.story.name);
            self.send(Method::POST, "/api/v1/namespaces", Some(&json!({"metadata": {"name": other}}))).await;
            let lease = json!({"metadata": {"name": "elsewhere"}, "spec": {}});
            let (_, made) = self.send(Method::POST, &collection("leases", &other), Some(&lease)).await;
            out = out.replace("$ELSEWHERE", text(&made, "/metadata/uid"));
        }
        while let Some(at) = out.find("$AGO(") {
            let end = out[at..].find(')').map_or(out.len(), |end| at + end);
            let seconds: i64 = out[at + 5..end].parse().unwrap_or_default();
            let now = self.stage.base.map_or_else(self.stage.now, |base| base + self.stage.start.elapsed());
            let then = now - jiff::SignedDuration::from_secs(seconds);
            out.replace_range(at..=end, &then.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
        }
        out = out.replace("$NS", self.story.name);
        for short in ["a", "b", "c", "d"] {
            out = out.replace(&format!("${short}"), &self.node(short));
        }
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{}: {error}: {out}", self.story.name))
    }

    async fn look(&self) -> Value {
        let mut objects: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
        for plural in &self.kinds {
            let mut items = self.items(plural).await;
            if *plural == "nodes" {
                items.retain(|node| text(node, "/metadata/labels/pool") == self.story.name);
            }
            objects.insert(plural, items);
        }
        let revisions = look::revisions(objects.get("controllerrevisions").map(Vec::as_slice).unwrap_or_default());
        let mut look = json!({"codes": self.codes});
        for (plural, items) in objects {
            look[plural] = look::kind(plural, &items, self.story.name, &revisions);
        }
        look
    }

    async fn look_until(&self, wanted: &Value, differ: &[&str], patience: Duration) -> Value {
        let end = tokio::time::Instant::now() + patience;
        let mut since = None;
        loop {
            let look = self.look().await;
            let now = tokio::time::Instant::now();
            let right = alike(&look, wanted, differ);
            since = if right { since.or(Some(now)) } else { None };
            if since.is_some_and(|since| now - since >= STAYS) || now >= end {
                return look;
            }
            tokio::time::sleep(Duration::from_millis(700)).await;
        }
    }
}
