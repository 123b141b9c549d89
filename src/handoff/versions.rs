//! The versioned DaemonSets: their bodies, which are missing, and which nobody needs any more. They are the record of what a version is.

use serde_json::{Value, json};

use super::action::{Action, Evidence, Op};
use crate::{
    api::{
        ComponentKey, Version,
        component::KernelModule,
        keys::{self, Role},
        versioned::{DaemonSetRole, content_hash, daemon_set_name},
    },
    fleet::{
        records::DaemonSetRecord,
        view::{ComponentView, VersionView},
    },
};

/// The whole DaemonSet of a version: OnDelete, never edited, without owner, on our label alone, tolerating everything.
pub fn daemon_set(component: &ComponentKey, version: &Version, role: DaemonSetRole, block: &KernelModule) -> Value {
    let labels = json!({keys::COMPONENT: component.name, keys::ROLE: role.word(), keys::VERSION: version});
    let mut template = match role {
        DaemonSetRole::Loader => block.daemon_sets.as_ref().map(|sets| sets.loader.clone()),
        DaemonSetRole::Plugin => block.daemon_sets.as_ref().map(|sets| sets.device_plugin.clone()),
    }
    .unwrap_or_default();
    for (key, value) in labels.as_object().into_iter().flatten() {
        put(&mut template, &["metadata", "labels", key], value.clone());
    }
    let selects = match role {
        DaemonSetRole::Loader => Role::Loader,
        DaemonSetRole::Plugin => Role::Plugin,
    };
    put(&mut template, &["spec", "nodeSelector"], json!({selects.key(component): version}));
    // Taints and pressure eviction would stop loader and plugin in any order.
    put(&mut template, &["spec", "tolerations"], json!([{"operator": "Exists"}]));
    put(&mut template, &["spec", "priorityClassName"], json!("system-node-critical"));
    let mut annotations = json!({keys::CONTENT: content_hash(block)});
    if role == DaemonSetRole::Loader {
        annotations[keys::BLOCK] = json!(serde_json::to_string(block).unwrap_or_default());
    }
    json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {
            "namespace": component.namespace,
            "name": daemon_set_name(&component.name, role, version),
            "labels": labels,
            "annotations": annotations,
        },
        "spec": {
            "updateStrategy": {"type": "OnDelete"},
            "selector": {"matchLabels": labels},
            "template": template,
        },
    })
}

/// Sets a value at a path, making objects on the way (what is there and is no object gives way).
fn put(object: &mut Value, path: &[&str], value: Value) {
    let Some((first, rest)) = path.split_first() else {
        *object = value;
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    if let Some(map) = object.as_object_mut() {
        put(map.entry(*first).or_insert(Value::Null), rest, value);
    }
}

/// The next DaemonSet to create: those of `spec.version`, and a plugin one that somebody deleted, from the block on its loader one.
/// Nothing for a component that is refused, or whose content changed under the same version.
pub fn missing(component: &ComponentView) -> Option<Action> {
    if !component.refusals.is_empty() || component.changed_without_version || component.record.meta.deletion.is_some() {
        return None;
    }
    let key = &component.record.key;
    let aim = Version::from(component.spec()?.version.as_str());
    component.versions.values().find_map(|version| {
        let is_aim = version.version == aim;
        let (role, why) = match (&version.loader, &version.plugin) {
            (None, _) if is_aim => (DaemonSetRole::Loader, "is the version that nodes shall run"),
            (Some(_), None) if is_aim => (DaemonSetRole::Plugin, "is the version that nodes shall run"),
            (Some(_), None) if version.used_by > 0 => (DaemonSetRole::Plugin, "is on nodes, and its DaemonSet was deleted"),
            _ => return None,
        };
        let body = daemon_set(key, &version.version, role, &version.block);
        Some(Action {
            why: format!("create the {} DaemonSet of {key} version {}, which {why}", role.word(), version.version),
            op: Op::CreateDaemonSet(Box::new(body)),
            evidence: Evidence::Watched,
        })
    })
}

/// The next DaemonSet to delete: of a version that no node and no handoff names, that has no pod, that is not the aim and not among the last
/// `keepVersions`. The plugin's goes first, since the loader's carries what the version is.
pub fn collectable(component: &ComponentView) -> Option<Action> {
    let spec = component.spec()?;
    let aim = spec.version.as_str();
    let mut by_age: Vec<&VersionView> = component.versions.values().filter(|version| version.loader.is_some()).collect();
    by_age.sort_by_key(|version| {
        std::cmp::Reverse((version.loader.as_ref().and_then(|loader| loader.meta.created), &version.version))
    });
    let kept = usize::try_from(spec.rollout.keep_versions).unwrap_or(usize::MAX);
    let old = by_age.into_iter().skip(kept).filter(|version| version.version != aim && version.used_by == 0);
    old.rev().find_map(|version| {
        let set = version.plugin.as_ref().or(version.loader.as_ref())?;
        let others = [&version.plugin, &version.loader].into_iter().flatten();
        if set.meta.deletion.is_some() || others.into_iter().any(|set| !is_empty(set)) {
            return None;
        }
        Some(Action {
            op: Op::DeleteDaemonSet { key: set.key.clone(), uid: set.meta.uid.clone() },
            evidence: Evidence::Fresh,
            why: format!(
                "delete DaemonSet {}: no node and no handoff names version {}, and the last {kept} are kept",
                set.key, version.version
            ),
        })
    })
}

/// Its controller has seen it and runs nothing.
fn is_empty(set: &DaemonSetRecord) -> bool {
    set.observed_generation >= set.generation && set.current == 0 && set.desired == 0
}

/// Why a DaemonSet is kept, for people; None: it may go.
pub fn kept_because(component: &ComponentView, version: &VersionView) -> Option<String> {
    let aim = component.spec().map(|spec| spec.version.as_str());
    if aim == Some(version.version.as_str()) {
        return Some("the component's version".to_owned());
    }
    if version.used_by > 0 {
        return Some(format!("named by {} nodes or handoffs", version.used_by));
    }
    let running: i32 = [&version.plugin, &version.loader].into_iter().flatten().map(|set| set.current).sum();
    if running > 0 {
        return Some(format!("{running} pods"));
    }
    match collectable(component) {
        Some(Action { op: Op::DeleteDaemonSet { key, .. }, .. })
            if [&version.plugin, &version.loader].into_iter().flatten().any(|set| set.key == key) =>
        {
            None
        }
        _ => Some("among the last that are kept, or next after another".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block() -> KernelModule {
        serde_json::from_value(json!({
            "daemonSets": {
                "loader": {"metadata": {"labels": {"app": "x"}}, "spec": {"tolerations": [{"key": "a"}], "nodeSelector": {"zone": "1"}}},
                "devicePlugin": {"spec": {"containers": [{"name": "p", "image": "p:1"}]}},
            },
            "devices": {"resourceNames": ["vendor.example/gpu"]},
            "unloadBy": "Reboot",
        }))
        .unwrap()
    }

    #[test]
    fn only_our_label_places_the_pods_and_every_taint_is_tolerated() {
        let key = ComponentKey::new("ns", "gpu");
        let body = daemon_set(&key, &Version::from("2.0"), DaemonSetRole::Loader, &block());
        let spec = &body["spec"]["template"]["spec"];
        assert_eq!(spec["nodeSelector"], json!({"lockkeeper.dev/loader.ns.gpu": "2.0"}));
        assert_eq!(spec["tolerations"], json!([{"operator": "Exists"}]));
        assert_eq!(spec["priorityClassName"], "system-node-critical");
        assert_eq!(body["spec"]["updateStrategy"]["type"], "OnDelete");
        assert!(body["metadata"].get("ownerReferences").is_none());
    }

    #[test]
    fn the_selector_is_in_the_pods_labels_and_the_users_own_stay() {
        let body = daemon_set(&ComponentKey::new("ns", "gpu"), &Version::from("2.0"), DaemonSetRole::Loader, &block());
        let labels = &body["spec"]["template"]["metadata"]["labels"];
        assert_eq!(labels["app"], "x");
        for (key, value) in body["spec"]["selector"]["matchLabels"].as_object().unwrap() {
            assert_eq!(&labels[key], value);
        }
    }

    #[test]
    fn the_loaders_one_carries_the_whole_block_both_carry_its_hash() {
        let key = ComponentKey::new("ns", "gpu");
        let of = |role| daemon_set(&key, &Version::from("2.0"), role, &block());
        let (loader, plugin) = (of(DaemonSetRole::Loader), of(DaemonSetRole::Plugin));
        let kept: KernelModule = serde_json::from_str(loader["metadata"]["annotations"][keys::BLOCK].as_str().unwrap()).unwrap();
        assert_eq!(kept, block());
        assert!(plugin["metadata"]["annotations"].get(keys::BLOCK).is_none());
        assert_eq!(loader["metadata"]["annotations"][keys::CONTENT], plugin["metadata"]["annotations"][keys::CONTENT]);
    }
}
