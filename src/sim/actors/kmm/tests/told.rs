//! What was written, in the words of the recording, sorted into channels: what is compared is the order within each.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::kmm::keys::{self, Label};
use crate::kmm::tests::story::Event;
use crate::sim::apiserver::Record;

/// What happened on each channel, in order.
pub type Told = BTreeMap<String, Vec<String>>;

const WORDS: [(&str, Label); 8] = [
    ("want", Label::Desired),
    ("worker", Label::Loader),
    ("schedule", Label::Schedule),
    ("target", Label::Target),
    ("ready", Label::Ready),
    ("version.ready", Label::VersionReady),
    ("plugin-ready", Label::PluginReady),
    ("dra-ready", Label::DraReady),
];

fn channel(word: &str) -> &'static str {
    match word {
        "want" | "worker" | "schedule" => "labels",
        "ready" | "version.ready" => "ready",
        "target" => "target",
        _ => "plugin-ready",
    }
}

fn add(told: &mut Told, channel: String, text: String) {
    let plugin = channel.starts_with("plugin node");
    let list = told.entry(channel).or_default();
    // Whether a plugin's next pod is made in the moment between the old one's end and its removal is a matter of milliseconds.
    if plugin && text == "gone" && list.last().is_some_and(|last| last.starts_with("create")) {
        list.insert(list.len() - 1, text);
        return;
    }
    // The same request twice is one change.
    if list.last() != Some(&text) {
        list.push(text);
    }
}

/// A node's label changes of one write.
fn add_labels(told: &mut Told, node: &str, changes: &[(&str, String)]) {
    for name in ["labels", "ready", "target", "plugin-ready"] {
        let own: Vec<&str> = changes.iter().filter(|(word, _)| channel(word) == name).map(|(_, text)| text.as_str()).collect();
        if !own.is_empty() {
            add(told, format!("{name} {node}"), own.join(" "));
        }
    }
    if let Some((_, text)) = changes.iter().find(|(word, _)| *word == "worker") {
        add(told, format!("chain {node}"), text.clone());
    }
}

/// The recorded step.
pub fn recorded(events: &[Event]) -> Told {
    let mut told = Told::new();
    for event in events {
        let words: Vec<&str> = event.what.split(' ').collect();
        match words.as_slice() {
            ["node", node, changes @ ..] => {
                let word = |change: &str| {
                    WORDS
                        .iter()
                        .find(|(word, _)| change.trim_end_matches('-').split('=').next() == Some(word))
                        .map(|(word, _)| *word)
                };
                let labels: Vec<(&str, String)> =
                    changes.iter().filter_map(|change| Some((word(change)?, (*change).to_owned()))).collect();
                add_labels(&mut told, node, &labels);
            }
            ["nmc", node, changes @ ..] => {
                for change in changes {
                    let part = change.split('=').next().unwrap_or_default();
                    add(&mut told, format!("nmc {part} {node}"), (*change).to_owned());
                    if part != "marks" {
                        add(&mut told, format!("chain {node}"), (*change).to_owned());
                    }
                }
            }
            ["mic", tags @ ..] => add(&mut told, "mic".into(), sorted(tags.iter().map(|tag| (*tag).to_owned()).collect())),
            ["module", change @ ("finalizer+" | "finalizer-")] => add(&mut told, "module".into(), (*change).to_owned()),
            ["set", version, what @ ("create" | "gone"), ..] => add(&mut told, format!("set {version}"), (*what).to_owned()),
            ["set", version, "image", _] => add(&mut told, format!("set {version}"), "image".to_owned()),
            ["class", what] => add(&mut told, "class".into(), (*what).to_owned()),
            ["pull", tag, what, ..] => add(&mut told, format!("pull {tag}"), (*what).to_owned()),
            ["worker", node, "create", action, tag] => {
                // A pod whose finalizer was taken off when it was marked already leaves no trace in the recording.
                if told.get(&format!("worker {node}")).and_then(|list| list.last()).is_some_and(|last| last == "Failed") {
                    worker(&mut told, node, "gone".to_owned());
                }
                worker(&mut told, node, format!("{action} {tag}"));
            }
            ["worker", node, what @ ("Succeeded" | "Failed" | "gone"), ..] => worker(&mut told, node, (*what).to_owned()),
            ["plugin", node, "create", version] => add(&mut told, format!("plugin {node}"), format!("create {version}")),
            ["plugin", node, what @ ("marked" | "gone")] => add(&mut told, format!("plugin {node}"), (*what).to_owned()),
            _ => {}
        }
    }
    told
}

fn worker(told: &mut Told, node: &str, text: String) {
    add(told, format!("chain {node}"), text.clone());
    add(told, format!("worker {node}"), text);
}

fn sorted(mut tags: Vec<String>) -> String {
    tags.sort();
    tags.join(" ")
}

/// Makes the recording's words of the simulated server's log.
#[derive(Default)]
pub struct Teller {
    /// Boot IDs of each node in the order in which they came.
    boots: BTreeMap<String, Vec<String>>,
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object["metadata"]["labels"].get(key).and_then(Value::as_str)
}

fn tag(image: &str) -> String {
    let tag = image.rsplit_once(':').map_or(image, |(_, tag)| tag);
    tag.trim_end_matches("-6.1.0-test").to_owned()
}

fn key(label: Label) -> String {
    super::super::objects::key(label, &crate::kmm::tests::world::module())
}

impl Teller {
    fn boot(&mut self, node: &str, boot: &str) {
        let known = self.boots.entry(node.to_owned()).or_default();
        if !boot.is_empty() && !known.iter().any(|known| known == boot) {
            known.push(boot.to_owned());
        }
    }

    fn entries(&self, node: &str, config: &Value, part: &str) -> String {
        let list = config[part]["modules"].as_array().map(Vec::as_slice).unwrap_or_default();
        let entry = |entry: &Value| {
            let version = entry["version"].as_str().unwrap_or("-");
            let mut told = format!("{}@{version}", tag(text(entry, "/config/containerImage")));
            if let Some(boot) = entry["bootId"].as_str() {
                let n = self.boots.get(node).and_then(|known| known.iter().position(|known| known == boot));
                told.push_str(&n.map_or_else(|| "#?".to_owned(), |n| format!("#boot-{}", n + 1)));
            }
            told
        };
        format!("{part}={}", list.iter().map(entry).collect::<Vec<_>>().join(","))
    }

    fn marks(config: &Value) -> String {
        let labels = config["metadata"]["labels"].as_object();
        let words = ["configured", "in-use"];
        let has = |word: &&str| labels.is_some_and(|labels| labels.keys().any(|key| key.ends_with(&format!(".module-{word}"))));
        format!("marks={}", words.into_iter().filter(has).collect::<Vec<_>>().join(","))
    }

    pub fn tell(&mut self, record: &Record, told: &mut Told) {
        let (old, new) = (record.old.as_deref(), record.new.as_deref());
        let name = record.name.as_str();
        match &*record.stored_as {
            "nodes" => {
                if let Some(new) = new {
                    self.boot(name, text(new, "/status/nodeInfo/bootID"));
                }
                let Some(new) = new else { return };
                let mut changes = Vec::new();
                for (word, kind) in WORDS {
                    let key = key(kind);
                    match (old.and_then(|old| label(old, &key)), label(new, &key)) {
                        (Some(_), None) => changes.push((word, format!("{word}-"))),
                        (before, Some(now)) if before != Some(now) => changes.push((word, format!("{word}={now}"))),
                        _ => {}
                    }
                }
                add_labels(told, name, &changes);
            }
            "nodemodulesconfigs.kmm.sigs.x-k8s.io" => {
                let Some(new) = new else { return };
                for part in ["spec", "status"] {
                    let (before, now) = (old.map(|old| self.entries(name, old, part)), self.entries(name, new, part));
                    let first = before.is_none() && part == "spec";
                    if first || before.is_some_and(|before| before != now) {
                        add(told, format!("nmc {part} {name}"), now.clone());
                        add(told, format!("chain {name}"), now);
                    }
                }
                let (before, now) = (old.map(Self::marks), Self::marks(new));
                if before.as_ref() != Some(&now) {
                    add(told, format!("nmc marks {name}"), now);
                }
            }
            "moduleimagesconfigs.kmm.sigs.x-k8s.io" => {
                let states = |object: &Value| {
                    let list = object["status"]["imagesStates"].as_array().cloned().unwrap_or_default();
                    sorted(list.iter().map(|state| tag(text(state, "/image"))).collect())
                };
                let (before, now) = (old.map(states).unwrap_or_default(), new.map(states).unwrap_or_default());
                if before != now && !now.is_empty() {
                    add(told, "mic".into(), now);
                }
            }
            "modules.kmm.sigs.x-k8s.io" => {
                let has = |object: Option<&Value>| {
                    object.is_some_and(|object| object["metadata"]["finalizers"].as_array().is_some_and(|list| !list.is_empty()))
                };
                match (has(old), has(new)) {
                    (false, true) => add(told, "module".into(), "finalizer+".into()),
                    (true, false) => add(told, "module".into(), "finalizer-".into()),
                    _ => {}
                }
            }
            "daemonsets.apps" => {
                let Some(set) = new.or(old) else { return };
                let version = label(set, &key(Label::Schedule)).unwrap_or("-");
                let image = |object: &Value| text(object, "/spec/template/spec/containers/0/image").to_owned();
                match (old, new) {
                    (None, Some(_)) => add(told, format!("set {version}"), "create".into()),
                    (Some(_), None) => add(told, format!("set {version}"), "gone".into()),
                    (Some(old), Some(new)) if image(old) != image(new) => add(told, format!("set {version}"), "image".into()),
                    _ => {}
                }
            }
            "deviceclasses.resource.k8s.io" => match (old, new) {
                (None, Some(_)) => add(told, "class".into(), "create".into()),
                (Some(_), None) => add(told, "class".into(), "gone".into()),
                _ => {}
            },
            "pods" => Self::pod(old, new, told),
            _ => {}
        }
    }

    fn pod(old: Option<&Value>, new: Option<&Value>, told: &mut Told) {
        let Some(pod) = new.or(old) else { return };
        let phase = |pod: Option<&Value>| pod.map(|pod| text(pod, "/status/phase").to_owned()).unwrap_or_default();
        let ended = phase(old) != phase(new) && matches!(phase(new).as_str(), "Succeeded" | "Failed");
        let marked = |pod: Option<&Value>| pod.is_some_and(|pod| !pod["metadata"]["deletionTimestamp"].is_null());
        if let Some(action) = label(pod, keys::WORKER_ACTION) {
            let node = text(pod, "/spec/nodeName");
            let image = tag(text(pod, "/spec/initContainers/0/image"));
            match (old, new) {
                (None, Some(_)) => worker(told, node, format!("{action} {image}")),
                (Some(_), None) => worker(told, node, "gone".into()),
                _ if ended => worker(told, node, phase(new)),
                _ => {}
            }
        } else if label(pod, keys::IMAGE_OWNER).is_some() {
            let image = tag(text(pod, "/spec/containers/0/image"));
            match old {
                None => add(told, format!("pull {image}"), "create".into()),
                Some(_) if ended => add(told, format!("pull {image}"), phase(new)),
                Some(_) => {}
            }
        } else if label(pod, keys::ROLE).is_some() {
            let terms = pod.pointer("/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchFields/0/values/0");
            let node = terms.and_then(Value::as_str).unwrap_or_default();
            match (old, new) {
                (None, Some(_)) => {
                    add(told, format!("plugin {node}"), format!("create {}", label(pod, &key(Label::Schedule)).unwrap_or("-")))
                }
                (Some(_), None) => add(told, format!("plugin {node}"), "gone".into()),
                _ if marked(new) && !marked(old) => add(told, format!("plugin {node}"), "marked".into()),
                _ => {}
            }
        }
    }
}
