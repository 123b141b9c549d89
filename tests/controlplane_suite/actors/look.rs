//! What is compared of a cluster: a story's objects without what must differ (names by chance, hashes, times, the nodes of like pods), and
//! what was heard of its pods, in order.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

/// Plural, API root, and whether it lives in a namespace.
pub const KINDS: &[(&str, &str, bool)] = &[
    ("pods", "/api/v1", true),
    ("nodes", "/api/v1", false),
    ("daemonsets", "/apis/apps/v1", true),
    ("controllerrevisions", "/apis/apps/v1", true),
    ("replicasets", "/apis/apps/v1", true),
    ("deployments", "/apis/apps/v1", true),
    ("statefulsets", "/apis/apps/v1", true),
    ("poddisruptionbudgets", "/apis/policy/v1", true),
    ("leases", "/apis/coordination.k8s.io/v1", true),
    ("resourceclaims", "/apis/resource.k8s.io/v1", true),
    ("resourceclaimtemplates", "/apis/resource.k8s.io/v1", true),
    ("deviceclasses", "/apis/resource.k8s.io/v1", false),
    ("resourceslices", "/apis/resource.k8s.io/v1", false),
];

pub fn collection(plural: &str, namespace: &str) -> String {
    let (_, root, namespaced) = KINDS.iter().find(|kind| kind.0 == plural).unwrap_or_else(|| panic!("no kind {plural}"));
    if *namespaced { format!("{root}/namespaces/{namespace}/{plural}") } else { format!("{root}/{plural}") }
}

pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn number(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or_default()
}

fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn owners(object: &Value) -> Vec<String> {
    let word = |owner: &Value| format!("{}/{}", text(owner, "/kind"), stem(text(owner, "/name"), text(owner, "/kind")));
    list(object, "/metadata/ownerReferences").iter().map(word).collect()
}

/// A ReplicaSet of a Deployment, and a claim of a pod, have a part by chance in their names.
fn stem(name: &str, kind: &str) -> String {
    match kind {
        "ReplicaSet" | "Pod" => name.split('-').next().unwrap_or_default().to_owned(),
        _ => name.to_owned(),
    }
}

fn controller<'a>(object: &'a Value, part: &str) -> &'a str {
    let owner = list(object, "/metadata/ownerReferences").iter().find(|owner| owner["controller"] == true);
    owner.map_or("", |owner| text(owner, part))
}

fn image(object: &Value, spec: &str) -> String {
    text(object, &format!("{spec}/containers/0/image")).to_owned()
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    list(object, "/status/conditions").iter().find(|condition| condition["type"] == kind)
}

fn is_deleting(object: &Value) -> bool {
    !text(object, "/metadata/deletionTimestamp").is_empty()
}

/// Where a pod belongs: a node for a DaemonSet's, its name for a StatefulSet's and nobody's, and anywhere for a ReplicaSet's.
fn place(pod: &Value, story: &str) -> String {
    match controller(pod, "/kind") {
        "ReplicaSet" => text(pod, "/metadata/labels/app").to_owned(),
        "DaemonSet" => format!("{}@{}", text(pod, "/metadata/labels/app"), target(pod).trim_start_matches(&format!("{story}-"))),
        "StatefulSet" => text(pod, "/metadata/name").to_owned(),
        _ if text(pod, "/metadata/generateName").is_empty() => text(pod, "/metadata/name").to_owned(),
        // Released or orphaned.
        _ => format!("{}~", text(pod, "/metadata/labels/app")),
    }
}

/// The node that a pod is on or made for.
fn target(pod: &Value) -> &str {
    let bound = text(pod, "/spec/nodeName");
    if !bound.is_empty() {
        return bound;
    }
    let terms =
        "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchFields/0/values/0";
    text(pod, terms)
}

/// Why a pod fits nowhere, without counts, and without what nodes of other stories may be the reason for.
fn reasons(message: &str) -> Vec<String> {
    let message = message.split("preemption:").next().unwrap_or_default();
    let message = message.split_once("nodes are available:").map_or(message, |(_, rest)| rest);
    let words = message.split([',', '.']).map(|part| part.trim().trim_start_matches(|c: char| c.is_ascii_digit()).trim());
    let all: BTreeSet<String> = words
        .filter(|word| !word.is_empty() && !word.starts_with("no new claims") && !word.starts_with("com/"))
        .map(|word| word.split_whitespace().take(3).collect::<Vec<_>>().join(" "))
        .collect();
    let foreign = ["node(s) didn't match", "node(s) didn't satisfy", "node(s) had untolerated", "node(s) were unschedulable"];
    all.into_iter().filter(|word| !foreign.contains(&word.as_str())).collect()
}

fn pod(pod: &Value, story: &str, revisions: &BTreeMap<String, String>) -> Value {
    let owner = controller(pod, "/kind");
    let hash = text(pod, "/metadata/labels/controller-revision-hash");
    let revision = if owner == "DaemonSet" { revisions.get(hash).cloned().unwrap_or_else(|| "?".into()) } else { String::new() };
    let unfit = condition(pod, "PodScheduled").filter(|it| it["status"] == "False");
    // Which of like nodes a scheduler takes is a matter of its taste.
    let matters = story.starts_with("sched") || story.starts_with("dra");
    let node =
        if owner.is_empty() && matters { text(pod, "/spec/nodeName").trim_start_matches(&format!("{story}-")) } else { "" };
    json!({
        "place": place(pod, story), "owners": owners(pod), "image": image(pod, "/spec"), "revision": revision, "node": node,
        "generation": text(pod, "/metadata/labels/pod-template-generation"), "phase": text(pod, "/status/phase"),
        "ready": condition(pod, "Ready").is_some_and(|it| it["status"] == "True"), "deleting": is_deleting(pod),
        "reason": text(pod, "/status/reason"), "bound": !text(pod, "/spec/nodeName").is_empty(),
        "unfit": unfit.map(|it| json!([it["reason"], reasons(text(it, "/message"))])),
        "priority": number(pod, "/spec/priority"), "claims": list(pod, "/status/resourceClaimStatuses").len(),
        "tolerations": tolerations(pod),
    })
}

fn tolerations(pod: &Value) -> Vec<String> {
    let mut all: Vec<String> = list(pod, "/spec/tolerations").iter().map(Value::to_string).collect();
    all.sort();
    all
}

fn statuses(object: &Value, fields: &[&str]) -> Value {
    let mut out = json!({"observed": number(object, "/status/observedGeneration") == number(object, "/metadata/generation")});
    for field in fields {
        out[*field] = json!(number(object, &format!("/status/{field}")));
    }
    out
}

const DAEMON_SET: &[&str] = &[
    "desiredNumberScheduled",
    "currentNumberScheduled",
    "numberMisscheduled",
    "numberReady",
    "numberAvailable",
    "numberUnavailable",
    "updatedNumberScheduled",
];

/// One kind of a story's objects.
pub fn kind(plural: &str, objects: &[Value], story: &str, revisions: &BTreeMap<String, String>) -> Value {
    let look = |object: &Value| {
        let common = json!({"name": text(object, "/metadata/name"), "owners": owners(object),
            "finalizers": list(object, "/metadata/finalizers"), "deleting": is_deleting(object)});
        let mut more = match plural {
            "pods" => return pod(object, story, revisions),
            "daemonsets" => statuses(object, DAEMON_SET),
            "replicasets" => {
                let mut more = statuses(object, &["replicas", "readyReplicas", "availableReplicas", "fullyLabeledReplicas"]);
                more["name"] = json!(stem(text(object, "/metadata/name"), "ReplicaSet"));
                more["wanted"] = object["spec"]["replicas"].clone();
                more["image"] = json!(image(object, "/spec/template/spec"));
                more
            }
            "deployments" => {
                statuses(object, &["replicas", "readyReplicas", "availableReplicas", "updatedReplicas", "unavailableReplicas"])
            }
            "statefulsets" => {
                let mut more =
                    statuses(object, &["replicas", "readyReplicas", "availableReplicas", "updatedReplicas", "currentReplicas"]);
                more["settled"] = json!(text(object, "/status/currentRevision") == text(object, "/status/updateRevision"));
                more
            }
            "controllerrevisions" => {
                let mut more = json!({"revision": object["revision"], "image": image(object, "/data/spec/template/spec")});
                more["name"] = json!(text(object, "/metadata/name").rsplit_once('-').map_or("", |(set, _)| set));
                more
            }
            "poddisruptionbudgets" => {
                let fields = ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"];
                let mut more = statuses(object, &fields);
                let disrupted =
                    object.pointer("/status/disruptedPods").and_then(Value::as_object).map_or(0, serde_json::Map::len);
                more["disrupted"] = json!(disrupted);
                more["conditions"] =
                    list(object, "/status/conditions").iter().map(|it| json!([it["type"], it["status"], it["reason"]])).collect();
                more
            }
            "resourceclaims" => json!({
                "name": "", "devices": list(object, "/status/allocation/devices/results").len(),
                "reserved": list(object, "/status/reservedFor").len(),
            }),
            "nodes" => json!({
                "name": text(object, "/metadata/name").trim_start_matches(&format!("{story}-")),
                "closed": object["spec"]["unschedulable"] == true,
                "taints": list(object, "/spec/taints").iter().map(|it| json!([it["key"], it["effect"]])).collect::<Value>(),
                "finalizers": [],
            }),
            _ => json!({}),
        };
        for (key, value) in common.as_object().into_iter().flatten() {
            if more.get(key).is_none() {
                more[key] = value.clone();
            }
        }
        more
    };
    let mut all: Vec<Value> = objects.iter().map(look).collect();
    // Like pods are told apart by nothing.
    all.sort_by_key(Value::to_string);
    Value::Array(all)
}

/// The image that each revision's hash stands for.
pub fn revisions(objects: &[Value]) -> BTreeMap<String, String> {
    let hash = |object: &Value| text(object, "/metadata/labels/controller-revision-hash").to_owned();
    objects.iter().map(|object| (hash(object), image(object, "/data/spec/template/spec"))).collect()
}

/// What is known of a pod, and its part of the story.
#[derive(Debug, Default, Clone)]
struct Part {
    known: BTreeMap<&'static str, String>,
    place: String,
    words: Vec<String>,
}

/// What was heard of the pods of one story.
#[derive(Debug, Default, Clone)]
pub struct Heard {
    /// By UID.
    pods: BTreeMap<String, Part>,
    /// All of it, as (place, word).
    all: Vec<(String, String)>,
    /// The resourceVersion heard last of each pod that is there, by UID.
    there: BTreeMap<String, String>,
}

impl Heard {
    /// An object as the watch told it; `gone` when it was deleted.
    pub fn hear(&mut self, pod: &Value, gone: bool, story: &str) {
        let uid = text(pod, "/metadata/uid").to_owned();
        match gone {
            true => drop(self.there.remove(&uid)),
            false => drop(self.there.insert(uid.clone(), text(pod, "/metadata/resourceVersion").to_owned())),
        }
        let new = !self.pods.contains_key(&uid);
        let at = place(pod, story);
        let part = self.pods.entry(uid).or_default();
        let (known, words) = (&mut part.known, &mut part.words);
        let mut say = |word: String| {
            words.push(word.clone());
            self.all.push((at.clone(), word));
        };
        if new {
            say(format!("made {}", image(pod, "/spec")));
        }
        let ready = condition(pod, "Ready").is_some_and(|it| it["status"] == "True");
        let facts = [
            ("bound", (!text(pod, "/spec/nodeName").is_empty()).to_string()),
            ("ready", ready.to_string()),
            ("ended", text(pod, "/status/phase").to_owned()),
            ("ending", is_deleting(pod).to_string()),
            ("owners", owners(pod).join(",")),
        ];
        for (what, now) in facts {
            let before = known.insert(what, now.clone());
            if before.as_ref() == Some(&now) {
                continue;
            }
            match (what, now.as_str()) {
                // Whether it came up in its last moments is chance.
                ("ready", "true") if is_deleting(pod) => {}
                ("bound" | "ready" | "ending", "true") => say(what.to_owned()),
                ("ready", "false") if before.is_some() && !is_deleting(pod) => say("unready".to_owned()),
                ("ended", "Failed" | "Succeeded") if !is_deleting(pod) => say(now),
                ("owners", _) if before.is_some() => say(format!("owned by {now}")),
                _ => {}
            }
        }
        if gone {
            say("gone".to_owned());
        }
        part.place = at;
    }

    /// Whether the watch has told all that a list of the pods shows.
    pub fn is_up_to(&self, pods: &[Value]) -> bool {
        let told = |pod: &Value| {
            self.there.get(text(pod, "/metadata/uid")).is_some_and(|known| known == text(pod, "/metadata/resourceVersion"))
        };
        pods.len() == self.there.len() && pods.iter().all(told)
    }

    /// The parts, sorted by place: of each pod, in order.
    pub fn parts(&self) -> Vec<String> {
        let mut parts: Vec<String> =
            self.pods.values().map(|part| format!("{}: {}", part.place, part.words.join(", "))).collect();
        parts.sort();
        parts
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// The whole between two marks, with places called by the order in which they come. That a pod was bound or is gone comes in its own
    /// time, beside what becomes of the next one.
    pub fn whole(&self, from: usize, to: usize, by_order: bool) -> Vec<String> {
        let mut names: Vec<&String> = Vec::new();
        let mut out = Vec::new();
        let heard = self.all.iter().take(to).skip(from);
        for (place, word) in heard.filter(|(_, word)| word != "bound" && word != "gone") {
            if !names.contains(&place) {
                names.push(place);
            }
            let at = names.iter().position(|known| *known == place).unwrap_or_default();
            out.push(if by_order { format!("{at} {word}") } else { format!("{place} {word}") });
        }
        out
    }
}
