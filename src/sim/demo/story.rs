//! The event log told for people: what changed on nodes, handoffs, the Lease and claimants, one line a write. For finding out what happened.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use serde_json::Value;

use crate::{
    kmm::keys,
    sim::apiserver::{ApiServer, Record},
};

/// Collects the lines from now on.
pub fn collect(api: &ApiServer) -> Arc<Mutex<Vec<String>>> {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let told = lines.clone();
    api.log().observe(move |record| {
        if let Some(line) = line(record) {
            told.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        }
    });
    lines
}

/// What of an object a story tells, flat.
fn telling(resource: &str, object: &Value) -> BTreeMap<String, String> {
    let mut told = BTreeMap::new();
    let mut tell = |name: &str, value: Option<&Value>| {
        if let Some(value) = value.filter(|value| !value.is_null()) {
            told.insert(name.to_owned(), value.as_str().map_or_else(|| value.to_string(), str::to_owned));
        }
    };
    let own = |map: &str| {
        object.pointer(map).and_then(Value::as_object).into_iter().flatten().filter(|(key, _)| key.starts_with("lockkeeper.dev/"))
    };
    match resource {
        "nodes" => {
            for (key, value) in own("/metadata/labels").chain(own("/metadata/annotations")) {
                tell(key.trim_start_matches("lockkeeper.dev/"), Some(value));
            }
            for (key, value) in object.pointer("/metadata/labels").and_then(Value::as_object).into_iter().flatten() {
                if let Some(parsed) = keys::parse(key) {
                    tell(&format!("KMM:{:?}.{}", parsed.label, parsed.module.name), Some(value));
                }
            }
            tell("unschedulable", object.pointer("/spec/unschedulable"));
            tell("boot", object.pointer("/status/nodeInfo/bootID"));
            let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
            let ready = conditions.into_iter().flatten().find(|it| it["type"] == "Ready");
            tell("Ready", ready.map(|it| &it["status"]));
        }
        "nodehandoffs" => {
            for (name, pointer) in [
                ("phase", "/status/phase"),
                ("reason", "/status/reason"),
                ("version", "/spec/version"),
                ("attempt", "/spec/attempt"),
                ("action", "/spec/action"),
                ("by", "/spec/requestedBy"),
                ("finalizers", "/metadata/finalizers"),
                ("deleted", "/metadata/deletionTimestamp"),
                ("epoch", "/status/run/epoch"),
                ("runAttempt", "/status/run/attempt"),
                ("target", "/status/run/target"),
            ] {
                tell(name, object.pointer(pointer));
            }
            let kinds = object.pointer("/status/blockers").and_then(Value::as_array);
            let kinds: Vec<&str> = kinds.into_iter().flatten().filter_map(|blocker| blocker["kind"].as_str()).collect();
            tell("blockers", Some(&Value::from(kinds.join(","))));
        }
        "nodemodulesconfigs" => {
            for part in ["spec", "status"] {
                let entries = object.pointer(&format!("/{part}/modules")).and_then(Value::as_array);
                let told: Vec<String> = entries
                    .into_iter()
                    .flatten()
                    .map(|entry| {
                        let of = |pointer| entry.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
                        format!("{}@{}#{}", of("/name"), of("/version"), of("/bootId"))
                    })
                    .collect();
                tell(part, Some(&Value::from(told.join(","))));
            }
        }
        "modules" => tell("version", object.pointer("/spec/moduleLoader/container/version")),
        "leases" => {
            tell("holder", object.pointer("/spec/holderIdentity"));
            tell("slots", object.pointer("/metadata/annotations/lockkeeper.dev~1slots"));
        }
        _ => {
            tell("node", object.pointer("/spec/nodeName"));
            tell("phase", object.pointer("/status/phase"));
            tell("restarts", object.pointer("/status/containerStatuses/0/restartCount").filter(|it| it.as_i64() != Some(0)));
            tell("deleted", object.pointer("/metadata/deletionTimestamp"));
        }
    }
    told
}

fn line(record: &Record) -> Option<String> {
    let resource = record.stored_as.split('.').next().unwrap_or_default();
    let object = record.new.as_ref().or(record.old.as_ref())?;
    let ours = object.pointer("/metadata/labels/lockkeeper.dev~1component").is_some();
    let kmms = [keys::WORKER_ACTION, keys::ROLE].iter().any(|key| object["metadata"]["labels"].get(key).is_some());
    let wanted = match resource {
        "nodes" | "nodehandoffs" => true,
        "leases" => record.name == "lockkeeper",
        "modules" | "nodemodulesconfigs" => true,
        "pods" => ours || kmms || record.resource.ends_with("/eviction"),
        _ => false,
    };
    if !wanted {
        return None;
    }
    let of = |object: &Option<Arc<Value>>| object.as_ref().map(|object| telling(resource, object)).unwrap_or_default();
    let (old, new) = (of(&record.old), of(&record.new));
    let mut changes = Vec::new();
    for (key, value) in &new {
        if old.get(key) != Some(value) {
            changes.push(format!("{key}={value}"));
        }
    }
    changes.extend(old.keys().filter(|key| !new.contains_key(*key)).map(|key| format!("{key}-")));
    if changes.is_empty() && record.effect() == "MODIFIED" {
        return None;
    }
    Some(format!("{} {} {} {} {} {}", record.at, record.client, record.effect(), record.resource, record.name, changes.join(" ")))
}
