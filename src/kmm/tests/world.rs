//! A few objects of a cluster with KMM as JSON, changed by the recorded events, and read as lockkeeper reads them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::story::Start;
use crate::{
    api::{NodeName, ObjectKey},
    fleet::{
        decode::Decoder,
        event::{Kind, Record},
        records::NodeRecord,
    },
    kmm::{
        Kmm, NodeModule,
        decode::{self, Decoded},
        keys::{self, Era, Label},
        state::Seen,
    },
};

pub const KERNEL: &str = "6.1.0-test";

pub fn module() -> ObjectKey {
    ObjectKey::new("drv", "mod")
}

pub fn key(label: Label) -> String {
    label.key(&module(), Era::Third).unwrap_or_default()
}

fn label(word: &str) -> Label {
    match word {
        "want" => Label::Desired,
        "worker" => Label::Loader,
        "schedule" => Label::Schedule,
        "target" => Label::Target,
        "ready" => Label::Ready,
        "version.ready" => Label::VersionReady,
        "plugin-ready" => Label::PluginReady,
        "dra-ready" => Label::DraReady,
        other => panic!("label {other}"),
    }
}

/// The image that a tag of the recording stands for.
pub fn image(tag: &str) -> String {
    if tag.contains("-test") { format!("mod:{tag}") } else { format!("mod:{tag}-{KERNEL}") }
}

fn entry(text: &str) -> Value {
    let (head, boot) = text.split_once('#').unwrap_or((text, ""));
    let (tag, version) = head.split_once('@').unwrap_or((head, "-"));
    let kernel = tag.split_once('-').map_or(KERNEL, |(_, kernel)| kernel);
    let config = json!({"containerImage": image(tag), "kernelVersion": kernel, "imagePullPolicy": "", "modprobe": {"dirName": "/opt", "moduleName": "mod"}});
    let mut entry =
        json!({"name": "mod", "namespace": "drv", "config": config, "tolerations": [], "serviceAccountName": "default"});
    if version != "-" {
        entry["version"] = json!(version);
    }
    if !boot.is_empty() {
        entry["bootId"] = json!(boot);
    }
    entry
}

#[derive(Debug, Default)]
pub struct World {
    pub nodes: BTreeMap<String, Value>,
    pub modules: Option<Value>,
    pub configs: BTreeMap<String, Value>,
    pub images: Option<Value>,
    /// By what they are for and where: `worker node-a`.
    pub pods: BTreeMap<String, Value>,
    pub sets: BTreeMap<String, Value>,
    pub seen: BTreeMap<String, Seen>,
    /// When the version labels of a node were last changed by KMM.
    pub written: BTreeMap<String, u64>,
    dra: bool,
    counter: u64,
}

impl World {
    /// Two nodes, and what the story starts from.
    pub fn new(start: &Start) -> Self {
        let mut world = Self { dra: start.dra, ..Self::default() };
        for name in ["node-a", "node-b"] {
            let labels = json!({"pool": "dev"});
            world.nodes.insert(
                name.to_owned(),
                json!({"metadata": {"name": name, "uid": name, "resourceVersion": "1", "labels": labels}, "spec": {},
                    "status": {"nodeInfo": {"bootID": "boot-1", "kernelVersion": KERNEL}, "conditions": [{"type": "Ready", "status": "True"}]}}),
            );
            if let Some(version) = &start.labels {
                world.apply(0, &format!("node {name} want={version} worker={version} schedule={version}"));
            }
        }
        let Some(version) = &start.module else { return world };
        world.apply(0, &format!("module create {version} {version}"));
        if start.tolerates {
            world.tolerate();
        }
        world.apply(0, &format!("mic 1.0 {version}"));
        for set in ["1.0", version] {
            world.apply(0, &format!("set {set} create {set}"));
        }
        for (name, version) in ["node-a", "node-b"].into_iter().zip(&start.nodes) {
            world.apply(0, &format!("node {name} want={version} worker={version} schedule={version} target= ready= version.ready={version} plugin-ready="));
            world.apply(0, &format!("nmc {name} spec={version}@{version} status={version}@{version}#boot-1"));
            world.apply(0, &format!("plugin {name} create {version}"));
            world.apply(0, &format!("plugin {name} Running Ready"));
        }
        world.written.clear();
        world
    }

    pub fn tolerate(&mut self) {
        if let Some(module) = &mut self.modules {
            module["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
        }
    }

    pub fn apply(&mut self, ms: u64, what: &str) {
        let words: Vec<&str> = what.split(' ').collect();
        match words.as_slice() {
            ["node", name, "gone"] => _ = self.nodes.remove(*name),
            ["node", name, changes @ ..] => changes.iter().for_each(|change| self.node(ms, name, change)),
            ["module", "create", version, tag] => self.modules = Some(self.module(version, tag)),
            ["module", "edit", version, tag] => {
                let tolerations = self.modules.as_ref().map(|module| module["spec"]["tolerations"].clone());
                self.modules = Some(self.module(version, tag));
                if let (Some(module), Some(tolerations)) = (&mut self.modules, tolerations) {
                    module["spec"]["tolerations"] = tolerations;
                }
            }
            ["module", "delete"] => {
                if let Some(module) = &mut self.modules {
                    module["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
                }
            }
            ["module", "finalizer-"] => self.modules = None,
            ["module", "finalizer+"] | ["class", _] | ["user-pod", ..] => {}
            ["nmc", name, changes @ ..] => {
                let config =
                    self.configs.entry((*name).to_owned()).or_insert_with(|| json!({"metadata": {"name": name, "uid": "nmc"}}));
                for change in changes {
                    let (part, entries) = change.split_once('=').expect("part=entries");
                    if part != "marks" {
                        let entries: Vec<Value> = entries.split(',').filter(|text| !text.is_empty()).map(entry).collect();
                        if part == "status" && !entries.is_empty() {
                            self.seen.entry((*name).to_owned()).or_default().load_cut_off = false;
                        }
                        config[part] = json!({"modules": entries});
                    }
                }
            }
            ["mic", tags @ ..] => {
                let states: Vec<Value> = tags.iter().map(|tag| json!({"image": image(tag), "status": "Exists"})).collect();
                self.images = Some(
                    json!({"metadata": {"name": "mod", "namespace": "drv", "uid": "mic"}, "status": {"imagesStates": states}}),
                );
            }
            ["set", version, "gone"] => _ = self.sets.remove(*version),
            ["set", _, "image", _] => {}
            ["set", version, "create", _] => _ = self.sets.insert((*version).to_owned(), self.set(version)),
            ["worker", node, "create", action, tag] => {
                let labels = json!({keys::MODULE_NAME: "mod", keys::WORKER_ACTION: action});
                let config = format!("containerImage: {}\nkernelVersion: x\n", image(tag));
                let pod = self.pod(&format!("kmm-worker-{node}-mod"), node, labels);
                let pod = self.pods.entry(format!("worker {node}")).insert_entry(pod).into_mut();
                pod["metadata"]["annotations"] = json!({keys::WORKER_CONFIG: config});
            }
            ["plugin", node, "create", version] => {
                let mut labels = json!({keys::MODULE_NAME: "mod", keys::ROLE: if self.dra { "dra" } else { "device-plugin" }});
                if *version != "-" {
                    labels[key(Label::Schedule)] = json!(version);
                }
                let pod = self.pod(&format!("plugin-{node}"), node, labels);
                self.pods.insert(format!("plugin {node}"), pod);
            }
            ["pull", tag, "create"] => {
                let mut pod = self.pod(&format!("mod-pull-pod-{tag}"), "node-b", json!({keys::IMAGE_OWNER: "mod"}));
                pod["spec"]["containers"][0]["image"] = json!(image(tag));
                self.pods.insert(format!("pull {tag}"), pod);
            }
            [part @ ("worker" | "plugin" | "pull"), place, changes @ ..] => self.pod_changes(part, place, changes),
            other => panic!("unknown: {other:?}"),
        }
    }

    fn node(&mut self, ms: u64, name: &str, change: &str) {
        let node = self.nodes.get_mut(name).expect("the node");
        match change.split_once('=') {
            _ if change == "cordon" => node["spec"]["unschedulable"] = json!(true),
            _ if change == "uncordon" => node["spec"]["unschedulable"] = json!(false),
            Some(("taints", taints)) => {
                let taints = taints.split(',').filter_map(|taint| taint.split_once(':'));
                node["spec"]["taints"] =
                    taints.map(|(key, effect)| json!({"key": format!("node.kubernetes.io/{key}"), "effect": effect})).collect();
            }
            Some(("Ready", status)) => node["status"]["conditions"][0]["status"] = json!(status),
            Some(("boot", boot)) => {
                if node["status"]["nodeInfo"]["bootID"] != json!(boot) {
                    self.seen.entry(name.to_owned()).or_default().load_cut_off = false;
                }
                node["status"]["nodeInfo"]["bootID"] = json!(boot);
            }
            Some((word, value)) => {
                node["metadata"]["labels"][key(label(word))] = json!(value);
                self.wrote(ms, name, word);
            }
            None => {
                let word = change.strip_suffix('-').expect("label-");
                node["metadata"]["labels"].as_object_mut().expect("labels").remove(&key(label(word)));
                self.wrote(ms, name, word);
            }
        }
    }

    fn wrote(&mut self, ms: u64, name: &str, word: &str) {
        if matches!(word, "worker" | "schedule") {
            self.written.insert(name.to_owned(), ms);
        }
    }

    /// The node boots into another kernel (not in the recording).
    pub fn kernel(&mut self, name: &str, kernel: &str) {
        self.nodes.get_mut(name).expect("the node")["status"]["nodeInfo"]["kernelVersion"] = json!(kernel);
    }

    fn module(&self, version: &str, tag: &str) -> Value {
        let mut container = json!({"containerImage": format!("mod:{tag}-${{KERNEL_FULL_VERSION}}"), "kernelMappings": [{"regexp": "^.+$"}],
            "modprobe": {"moduleName": "mod"}});
        if version != "-" {
            container["version"] = json!(version);
        }
        let driver = if self.dra { "dra" } else { "devicePlugin" };
        json!({"metadata": {"name": "mod", "namespace": "drv", "uid": "module", "resourceVersion": "1"},
            "spec": {"moduleLoader": {"container": container}, driver: {}, "selector": {"pool": "dev"}, "tolerations": []}})
    }

    fn set(&self, version: &str) -> Value {
        let mut labels = json!({keys::MODULE_NAME: "mod", keys::ROLE: if self.dra { "dra" } else { "device-plugin" }});
        if version != "-" {
            labels[key(Label::Schedule)] = json!(version);
        }
        json!({"metadata": {"name": format!("mod-{version}"), "namespace": "drv", "uid": version, "labels": labels}})
    }

    fn pod(&mut self, name: &str, node: &str, labels: Value) -> Value {
        self.counter += 1;
        json!({"metadata": {"name": name, "namespace": "drv", "uid": format!("pod-{}", self.counter), "labels": labels},
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]},
            "status": {"phase": "Pending", "conditions": [], "containerStatuses": [{"restartCount": 0, "state": {}}]}})
    }

    fn pod_changes(&mut self, part: &str, place: &str, changes: &[&str]) {
        let id = format!("{part} {place}");
        let Some(pod) = self.pods.get_mut(&id) else { return };
        let load =
            pod["metadata"]["labels"][keys::WORKER_ACTION] == json!("Load") && pod["status"]["phase"] != json!("Succeeded");
        let deleting = !pod["metadata"]["deletionTimestamp"].is_null();
        let status = &mut pod["status"];
        let mut state = json!({"running": {}});
        let mut ready = false;
        for change in changes {
            match change.split_once('=') {
                Some(("restarts", count)) => {
                    status["containerStatuses"][0]["restartCount"] = json!(count.parse::<u32>().expect("a number"))
                }
                Some(("exit", code)) => {
                    state = json!({"terminated": {"exitCode": code.parse::<i32>().expect("a code"), "reason": "Error"}});
                    status["containerStatuses"][0]["lastState"] = state.clone();
                }
                None if *change == "gone" => {
                    if load {
                        self.seen.entry(place.to_owned()).or_default().load_cut_off = true;
                    }
                    self.pods.remove(&id);
                    return;
                }
                None if matches!(*change, "marked" | "evicted") => {
                    if load {
                        self.seen.entry(place.to_owned()).or_default().load_cut_off = true;
                    }
                    pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
                    return;
                }
                None if *change == "Ready" => ready = true,
                None if change.ends_with("BackOff") => state = json!({"waiting": {"reason": change}}),
                _ => status["phase"] = json!(change),
            }
        }
        if status["phase"] == json!("Succeeded") {
            status["containerStatuses"][0]["lastState"] = json!({});
        }
        if status["phase"] == json!("Failed") && !deleting {
            self.seen.entry(place.to_owned()).or_default().workers_failed += 1;
        }
        status["containerStatuses"][0]["state"] = state;
        status["conditions"] = json!([{"type": "Ready", "status": if ready { "True" } else { "False" }}]);
    }

    pub fn node_record(&self, name: &str) -> Option<NodeRecord> {
        let bytes = self.nodes.get(name)?.to_string();
        match Decoder::new(Kind::Node).object(bytes.as_bytes()) {
            Ok(Record::Node(node)) => Some(node),
            other => panic!("{other:?}"),
        }
    }

    pub fn kmm(&self) -> Kmm {
        fn read<R: Decoded>(value: &Value) -> R {
            decode::object(value.to_string().as_bytes()).unwrap_or_else(|error| panic!("{error}\n{value}"))
        }
        Kmm {
            modules: self
                .modules
                .iter()
                .map(read::<crate::kmm::records::ModuleRecord>)
                .map(|record| (record.key.clone(), record))
                .collect(),
            configs: self.configs.iter().map(|(name, value)| (NodeName::from(name.as_str()), read(value))).collect(),
            images: self
                .images
                .iter()
                .map(read::<crate::kmm::records::ImagesRecord>)
                .map(|record| (record.key.clone(), record))
                .collect(),
            pods: self
                .pods
                .values()
                .map(read::<crate::kmm::records::PodRecord>)
                .map(|record| (record.key.clone(), record))
                .collect(),
            sets: self
                .sets
                .values()
                .map(read::<crate::kmm::records::SetRecord>)
                .map(|record| (record.key.clone(), record))
                .collect(),
        }
    }

    pub fn seen(&self, node: &str, ms: u64) -> Seen {
        let since = self.written.get(node).map(|at| std::time::Duration::from_millis(ms.saturating_sub(*at)));
        Seen { label_written: since, ..self.seen.get(node).copied().unwrap_or_default() }
    }

    pub fn read(&self, node: &str, ms: u64) -> Option<NodeModule> {
        let record = self.node_record(node)?;
        Some(self.kmm().on(&record, &module(), self.seen(node, ms)))
    }
}
