//! The path of a story: what the engine did to the cluster, one short line per effect, in the order in which the API server accepted it.

use std::sync::{Arc, Mutex};

use lockkeeper::{
    api::keys::{Role, SLOTS},
    sim::{apiserver::log::Record, world::ENGINE},
};
use serde_json::Value;

use crate::stage::Stage;

/// `cordon n`, `uncordon n`, `loader n 1.0 -` (a label of ours, from and to), `evict ml/app`, `unload n`, `delete ns/pod`,
/// `phase component.n Draining`, `slot component n`, `free component n`, `set NAME`, `unset NAME`.
#[derive(Clone)]
pub struct Trace(Arc<Mutex<Vec<String>>>);

impl Trace {
    /// From now on.
    pub fn of(stage: &Stage) -> Self {
        let lines: Arc<Mutex<Vec<String>>> = Arc::default();
        let told = lines.clone();
        stage.world.api.log().observe(move |record| {
            if &*record.user == ENGINE {
                told.lock().unwrap().extend(effects(record));
            }
        });
        Self(lines)
    }

    pub fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    /// Lines that begin so.
    pub fn all(&self, start: &str) -> Vec<String> {
        self.lines().into_iter().filter(|line| line.starts_with(start)).collect()
    }

    /// Where the first line that begins so is.
    #[track_caller]
    pub fn at(&self, start: &str) -> usize {
        let lines = self.lines();
        lines.iter().position(|line| line.starts_with(start)).unwrap_or_else(|| panic!("no {start:?} in\n{}", lines.join("\n")))
    }

    /// These happened in this order, whatever else happened in between.
    #[track_caller]
    pub fn in_order(&self, wanted: &[&str]) {
        let lines = self.lines();
        let mut rest = lines.iter();
        for line in wanted {
            assert!(
                rest.any(|known| known.starts_with(line)),
                "{line:?} is missing, or not in its place, in\n{}",
                lines.join("\n")
            );
        }
    }

    /// Every line that begins with `first` comes before every one that begins with `then`; there are some of both.
    #[track_caller]
    pub fn before(&self, first: &str, then: &str) {
        let lines = self.lines();
        let last = lines.iter().rposition(|line| line.starts_with(first));
        let next = lines.iter().position(|line| line.starts_with(then));
        let right = last.zip(next).is_some_and(|(last, next)| last < next);
        assert!(right, "not all of {first:?} before {then:?} in\n{}", lines.join("\n"));
    }
}

fn text<'a>(object: Option<&'a Arc<Value>>, pointer: &str) -> &'a str {
    object.and_then(|object| object.pointer(pointer)).and_then(Value::as_str).unwrap_or_default()
}

fn effects(record: &Record) -> Vec<String> {
    let (old, new) = (record.old.as_ref(), record.new.as_ref());
    let object = new.or(old);
    let name = &record.name;
    let app = || match text(object, "/metadata/labels/app") {
        "" => format!("{}/{name}", record.namespace),
        app => format!("{}/{app}", record.namespace),
    };
    match (&*record.resource, record.verb) {
        ("nodes", _) => node(name, old, new),
        ("pods/eviction", _) => {
            let leaving = |pod: Option<&Arc<Value>>| !text(pod, "/metadata/deletionTimestamp").is_empty();
            if new.is_none() || leaving(new) && !leaving(old) { vec![format!("evict {}", app())] } else { Vec::new() }
        }
        ("pods", "create") => vec![format!("unload {}", text(new, "/spec/nodeName"))],
        ("pods", "delete") => vec![format!("delete {}/{name}", record.namespace)],
        ("nodehandoffs.lockkeeper.dev/status", _) => {
            let (from, to) = (text(old, "/status/phase"), text(new, "/status/phase"));
            if from == to { Vec::new() } else { vec![format!("phase {name} {to}")] }
        }
        ("leases.coordination.k8s.io", _) => slots(old, new),
        ("daemonsets.apps", "create") => vec![format!("set {name}")],
        ("daemonsets.apps", "delete") => vec![format!("unset {name}")],
        _ => Vec::new(),
    }
}

fn node(name: &str, old: Option<&Arc<Value>>, new: Option<&Arc<Value>>) -> Vec<String> {
    let mut lines = Vec::new();
    let closed =
        |node: Option<&Arc<Value>>| node.and_then(|node| node.pointer("/spec/unschedulable")?.as_bool()).unwrap_or(false);
    match (closed(old), closed(new)) {
        (false, true) => lines.push(format!("cordon {name}")),
        (true, false) => lines.push(format!("uncordon {name}")),
        _ => {}
    }
    let labels = |node: Option<&Arc<Value>>| {
        node.and_then(|node| node.pointer("/metadata/labels")?.as_object().cloned()).unwrap_or_default()
    };
    let (before, after) = (labels(old), labels(new));
    let mut keys: Vec<&String> = before.keys().chain(after.keys()).collect();
    keys.sort();
    keys.dedup();
    for key in keys {
        let Some((role, component)) = Role::parse(key) else { continue };
        let value = |labels: &serde_json::Map<String, Value>| labels.get(key).and_then(Value::as_str).unwrap_or("-").to_owned();
        let (from, to) = (value(&before), value(&after));
        let nonce = matches!(role, Role::Nonce);
        if from != to && !nonce {
            let word = key.trim_start_matches("lockkeeper.dev/").split('.').next().unwrap_or_default();
            lines.push(format!("{word} {}.{name} {from} {to}", component.name));
        }
    }
    lines
}

fn slots(old: Option<&Arc<Value>>, new: Option<&Arc<Value>>) -> Vec<String> {
    let list = |lease: Option<&Arc<Value>>| -> Vec<String> {
        let raw = lease.and_then(|lease| lease.pointer("/metadata/annotations")?.get(SLOTS)?.as_str().map(str::to_owned));
        let slots: Vec<Value> = raw.and_then(|raw| serde_json::from_str(&raw).ok()).unwrap_or_default();
        let owner =
            |slot: &Value| slot["component"].as_str().unwrap_or_default().rsplit('/').next().unwrap_or_default().to_owned();
        slots.iter().map(|slot| format!("{}.{}", owner(slot), slot["node"].as_str().unwrap_or_default())).collect()
    };
    let (before, after) = (list(old), list(new));
    let taken = after.iter().filter(|slot| !before.contains(slot)).map(|slot| format!("slot {slot}"));
    let freed = before.iter().filter(|slot| !after.contains(slot)).map(|slot| format!("free {slot}"));
    taken.chain(freed).collect()
}
