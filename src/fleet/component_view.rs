//! One component as a whole: its versions as the versioned DaemonSets record them, why it is refused, and what was changed by hand.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;

use super::{
    content,
    kmm::KmmView,
    records::*,
    selector,
    view::{ComponentView, VersionView},
};
use crate::api::{
    ComponentKey, ObjectKey, Version,
    component::{ComponentKind, CordonPolicy, KernelModule, UnloadBy},
    keys::{self, Role},
    versioned::{DaemonSetRole, content_hash, daemon_set_name},
};

/// Blocks already read from annotations, by their text: DaemonSets change with every pod, their blocks never do.
pub(super) type Blocks = BTreeMap<Str, Result<(Arc<KernelModule>, Str), String>>;

/// A component's view without what is counted over nodes and handoffs. `sets` are the DaemonSets of its namespace that are labelled
/// as its own.
pub(super) fn build(record: &Arc<ComponentRecord>, sets: &[Arc<DaemonSetRecord>], blocks: &mut Blocks) -> ComponentView {
    let sets = sets.iter().filter(|set| set.labels.get(keys::COMPONENT) == Some(&record.key.name));
    let mut view = ComponentView {
        record: record.clone(),
        versions: BTreeMap::new(),
        refusals: refusals(record),
        changed_without_version: false,
        anomalies: Vec::new(),
        matched_nodes: 0,
        csi: None,
        kmm: None,
    };
    let mut by_version: BTreeMap<Version, [Option<Arc<DaemonSetRecord>>; 2]> = BTreeMap::new();
    for set in sets {
        match identify(&record.key, set) {
            Ok((version, DaemonSetRole::Loader)) => by_version.entry(version).or_default()[0] = Some(set.clone()),
            Ok((version, DaemonSetRole::Plugin)) => by_version.entry(version).or_default()[1] = Some(set.clone()),
            Err(why) => view.anomalies.push(why),
        }
    }
    let from_spec = record.spec.as_ref().ok().and_then(|spec| {
        let version = Version::parse(&spec.version).ok()?;
        let module = spec.kernel_module.as_ref()?;
        Some((version, Arc::new(module.clone()), Str::from(content_hash(module))))
    });
    if let Some((version, ..)) = &from_spec {
        by_version.entry(version.clone()).or_default();
    }
    for (version, [loader, plugin]) in by_version {
        let spec_block = from_spec.as_ref().filter(|(of, ..)| *of == version);
        let recorded = match &loader {
            Some(loader) => read_block(loader, &version, blocks).map(Some),
            None => Ok(None),
        };
        let (block, content) = match (recorded, spec_block) {
            (Ok(Some((block, content))), spec_block) => {
                if spec_block.is_some_and(|(_, _, of_spec)| *of_spec != content) {
                    view.changed_without_version = true;
                }
                (block, content)
            }
            (Ok(None), Some((_, block, content))) => (block.clone(), content.clone()),
            (Ok(None), None) => {
                view.anomalies.push(loader_gone(record, &version, plugin.as_ref()));
                continue;
            }
            (Err(why), _) => {
                view.anomalies.push(why);
                continue;
            }
        };
        let sets = [(DaemonSetRole::Loader, &loader), (DaemonSetRole::Plugin, &plugin)];
        let edits =
            sets.into_iter().filter_map(|(role, set)| edited(&record.key, set.as_ref()?, role, &version, &block, &content));
        let edited: Vec<String> = edits.collect();
        view.anomalies.extend(edited.iter().cloned());
        view.versions.insert(version.clone(), VersionView { version, block, content, loader, plugin, edited, used_by: 0 });
    }
    view
}

/// The versions of a followed Module that are known, each with the component's devices: KMM keeps what else they are.
pub(super) fn followed(record: &ComponentRecord, kmm: &KmmView) -> BTreeMap<Version, VersionView> {
    let Some(module) = record.spec.as_ref().ok().and_then(|spec| spec.kernel_module.as_ref()) else { return BTreeMap::new() };
    let (block, content) = (Arc::new(module.clone()), Str::from(content_hash(module)));
    let legal = kmm.versions.iter().filter_map(|version| Version::parse(version).ok());
    let view = |version: Version| VersionView {
        version,
        block: block.clone(),
        content: content.clone(),
        loader: None,
        plugin: None,
        edited: Vec::new(),
        used_by: 0,
    };
    legal.map(|version| (version.clone(), view(version))).collect()
}

/// Which version and role a DaemonSet with our component label stands for.
fn identify(component: &ComponentKey, set: &DaemonSetRecord) -> Result<(Version, DaemonSetRole), String> {
    let label = |key| set.labels.get(key).map(|value| &**value).unwrap_or_default();
    let role = DaemonSetRole::ALL.into_iter().find(|role| role.word() == label(keys::ROLE));
    match (role, Version::parse(label(keys::VERSION))) {
        (Some(role), Ok(version)) if daemon_set_name(&component.name, role, &version) == *set.key.name => Ok((version, role)),
        _ => Err(format!(
            "DaemonSet {} carries labels of component {component} but is none that lockkeeper made (role {:?}, version {:?}): \
             take the label {} off it, or delete it if it was copied by hand",
            set.key,
            label(keys::ROLE),
            label(keys::VERSION),
            keys::COMPONENT
        )),
    }
}

fn read_block(loader: &DaemonSetRecord, version: &Version, blocks: &mut Blocks) -> Result<(Arc<KernelModule>, Str), String> {
    let bad = |why: &str| {
        format!(
            "DaemonSet {} no longer records what version {version} is (annotation {}: {why}): nodes on this version cannot be handed \
             over; put the annotation back",
            loader.key,
            keys::BLOCK
        )
    };
    let text = loader.annotations.get(keys::BLOCK).ok_or_else(|| bad("it is missing"))?;
    let read = blocks.entry(text.clone()).or_insert_with(|| {
        let block: KernelModule = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let content = content_hash(&block).into();
        Ok((Arc::new(block), content))
    });
    read.clone().map_err(|why| bad(&why))
}

fn loader_gone(record: &ComponentRecord, version: &Version, plugin: Option<&Arc<DaemonSetRecord>>) -> String {
    let name = daemon_set_name(&record.key.name, DaemonSetRole::Loader, version);
    let rest = plugin.map(|plugin| format!(" while {} is still there", plugin.key)).unwrap_or_default();
    format!(
        "DaemonSet {}/{name}, the loader of version {version} and the record of its content, was deleted{rest}: set spec.version back \
         to {version} with that version's content and it is made again",
        record.key.namespace
    )
}

/// How a versioned DaemonSet differs from what it was made from.
fn edited(
    component: &ComponentKey,
    set: &DaemonSetRecord,
    role: DaemonSetRole,
    version: &Version,
    block: &KernelModule,
    content: &Str,
) -> Option<String> {
    let what = if set.annotations.get(keys::CONTENT) != Some(content) {
        format!("annotation {} is not the hash of the version's content", keys::CONTENT)
    } else if !set.on_delete {
        "spec.updateStrategy.type is not OnDelete".to_owned()
    } else if !is_selector(component, role, version, &set.node_selector) {
        "spec.template.spec.nodeSelector is not lockkeeper's label alone".to_owned()
    } else if set.generation > 1 {
        // Only an edit of the spec raises the generation, so one that was never edited is not compared at all.
        let spec: Value = serde_json::from_str(set.spec.as_deref()?).ok()?;
        let path = content::difference(&asked(block, role), spec.get("template")?)?;
        format!("spec.template.{path} is not what version {version} was made with")
    } else {
        return None;
    };
    Some(format!(
        "DaemonSet {} ({} of version {version}) was edited: {what}. A version's content never changes; put it back (kubectl rollout \
         undo daemonset/{} -n {}), or give the new content a new version",
        set.key,
        role.word(),
        set.key.name,
        set.key.namespace
    ))
}

fn is_selector(component: &ComponentKey, role: DaemonSetRole, version: &Version, selector: &BTreeMap<Str, Str>) -> bool {
    let key = match role {
        DaemonSetRole::Loader => Role::Loader,
        DaemonSetRole::Plugin => Role::Plugin,
    };
    selector.len() == 1 && selector.get(key.key(component).as_str()).is_some_and(|value| *version == **value)
}

/// The part of a template that is the operator's: what lockkeeper sets or adds to itself is left out.
fn asked(block: &KernelModule, role: DaemonSetRole) -> Value {
    let Some(sets) = &block.daemon_sets else { return Value::Null };
    let mut template = match role {
        DaemonSetRole::Loader => sets.loader.clone(),
        DaemonSetRole::Plugin => sets.device_plugin.clone(),
    };
    if let Some(spec) = template.get_mut("spec").and_then(Value::as_object_mut) {
        for ours in ["nodeSelector", "tolerations", "priorityClassName", "priority", "restartPolicy"] {
            spec.remove(ours);
        }
    }
    template
}

/// What is wrong with the component itself. Conflicts with others are found by [`conflicts`].
fn refusals(record: &ComponentRecord) -> Vec<String> {
    let key = &record.key;
    let spec = match &record.spec {
        Ok(spec) => spec,
        Err(why) => return vec![format!("NodeComponent {key} does not decode: {why}")],
    };
    let mut refusals = Vec::new();
    if spec.kind() == ComponentKind::KernelModule
        && let Err(why) = Version::parse(&spec.version)
    {
        refusals.push(format!("spec.version: {why}"));
    }
    if key.name.len() > keys::MAX_NAME {
        refusals.push(format!(
            "metadata.name has {} characters, at most {} leave room for label keys",
            key.name.len(),
            keys::MAX_NAME
        ));
    }
    let both = key.namespace.len() + key.name.len();
    if both > keys::MAX_NAMESPACE_AND_NAME {
        refusals.push(format!(
            "namespace and name have {both} characters together, at most {} leave room for label keys: choose a shorter name",
            keys::MAX_NAMESPACE_AND_NAME
        ));
    }
    match (&spec.kernel_module, &spec.csi_node_plugin) {
        (Some(module), None) => refusals.extend(module_refusals(module)),
        (None, Some(_)) => {
            if spec.drain.cordon == CordonPolicy::Never {
                refusals.push("spec.drain.cordon: Never is not possible for a csiNodePlugin: a pod that came meanwhile would lose its mount".to_owned());
            }
        }
        _ => refusals.push("spec must have exactly one of kernelModule and csiNodePlugin".to_owned()),
    }
    refusals
}

fn module_refusals(module: &KernelModule) -> Vec<String> {
    let mut refusals = Vec::new();
    let devices = &module.devices;
    if devices.resource_names.is_empty() && devices.dra_drivers.is_empty() && devices.pod_selector.is_none() {
        refusals.push(
            "spec.kernelModule.devices names nothing, so nobody could be known to use the device: name resourceNames, draDrivers or a \
             podSelector"
                .to_owned(),
        );
    }
    for name in devices.resource_names.iter().filter(|name| !super::decode::is_extended(name)) {
        refusals
            .push(format!("spec.kernelModule.devices.resourceNames: {name:?} is no extended resource (vendor.example/device)"));
    }
    if let Some(selector) = &devices.pod_selector {
        if selector::is_empty(selector) {
            refusals.push("spec.kernelModule.devices.podSelector is empty: it would mean every pod".to_owned());
        }
        if devices.pod_namespaces.is_empty() {
            refusals.push("spec.kernelModule.devices.podNamespaces is required beside podSelector".to_owned());
        }
    }
    match (&module.daemon_sets, &module.kmm_module) {
        (Some(_), None) => {}
        (None, Some(_)) if module.unload_by == UnloadBy::Reboot => refusals.push(
            "spec.kernelModule.unloadBy: Reboot cannot be kept with kmmModule: KMM unloads by a pod as soon as the version label goes".to_owned(),
        ),
        (None, Some(_)) => {}
        _ => refusals.push("spec.kernelModule must have exactly one of daemonSets and kmmModule".to_owned()),
    }
    if module.daemon_sets.as_ref().is_some_and(|sets| sets.unload.is_none()) && module.unload_by == UnloadBy::Pod {
        refusals.push(
            "spec.kernelModule.daemonSets.unload is missing: without it nothing unloads the module, so only unloadBy: Reboot is \
             possible"
                .to_owned(),
        );
    }
    refusals
}

/// What each of these components names that another one names too: both are refused.
pub(super) fn conflicts(views: &BTreeMap<ComponentKey, ComponentView>) -> BTreeMap<ComponentKey, Vec<String>> {
    let mut named: BTreeMap<(&'static str, &str), Vec<&ComponentKey>> = BTreeMap::new();
    for (key, view) in views {
        let of_spec = view.spec().and_then(|spec| spec.kernel_module.as_ref());
        let mut names: Vec<(&'static str, &str)> = Vec::new();
        for block in view.versions.values().map(|version| &*version.block).chain(of_spec) {
            names.extend(block.devices.resource_names.iter().map(|name| ("resource", name.as_str())));
            names.extend(block.devices.dra_drivers.iter().map(|name| ("DRA driver", name.as_str())));
        }
        if let Some(kmm) = &view.kmm {
            names.push(("Module", &kmm.key.name));
        }
        if let Some(csi) = &view.csi {
            // Kernel mounts hang on the holder and the others on the plugin: each is handed over on its own.
            names.push((if csi.holder { "holder of CSI driver" } else { "CSI driver" }, &csi.plugin.driver));
        }
        names.sort();
        names.dedup();
        names.into_iter().for_each(|name| named.entry(name).or_default().push(key));
    }
    let mut conflicts: BTreeMap<ComponentKey, Vec<String>> = BTreeMap::new();
    for ((what, name), keys) in named.into_iter().filter(|(_, keys)| keys.len() > 1) {
        for key in &keys {
            let others: Vec<_> =
                keys.iter().filter(|other| *other != key).map(|other| format!("NodeComponent {other}")).collect();
            conflicts.entry((*key).clone()).or_default().push(format!(
                "{what} {name} is named by {} too: one owner must be chosen, since each would drain for the other's upgrade",
                others.join(" and ")
            ));
        }
    }
    // Names are joined by dots in label keys, and only the first dot separates: no two components can share a key. DaemonSets are
    // named after their component, so only a name that reads as another's can collide.
    for (key, view) in views {
        let own = |view: &ComponentView| view.kmm.is_none();
        let others = views.iter().filter(|(other, view)| *other != key && other.namespace == key.namespace && own(view));
        for (other, other_view) in others.filter(|_| own(view)) {
            let sets = |view: &ComponentView, of: &ComponentKey| {
                let names = view
                    .versions
                    .keys()
                    .flat_map(|version| DaemonSetRole::ALL.map(|role| daemon_set_name(&of.name, role, version)));
                names.map(|name| ObjectKey::new(of.namespace.clone(), name)).collect::<Vec<_>>()
            };
            if let Some(shared) = sets(view, key).into_iter().find(|name| sets(other_view, other).contains(name)) {
                conflicts
                    .entry(key.clone())
                    .or_default()
                    .push(format!("DaemonSet {shared} would be made for NodeComponent {other} too: rename one of the two"));
            }
        }
    }
    conflicts
}

/// DaemonSets of versions in use that were deleted by hand. A version that nobody uses yet is just being made.
pub(super) fn missing<'v>(view: &mut ComponentView, there: impl Iterator<Item = (&'v Version, u32)>) {
    if view.kmm.is_some() {
        return;
    }
    for (version, nodes) in there {
        let why = match view.versions.get(version) {
            Some(VersionView { loader: Some(_), plugin: None, .. }) => format!(
                "DaemonSet {}/{}, the plugin of version {version}, was deleted while {nodes} nodes use it: it is made again from the \
                 version's record",
                view.record.key.namespace,
                daemon_set_name(&view.record.key.name, DaemonSetRole::Plugin, version)
            ),
            Some(_) => continue,
            None => {
                let why = loader_gone(&view.record, version, None);
                if view.anomalies.iter().any(|known| known.starts_with(why.split(", ").next().unwrap_or_default())) {
                    continue;
                }
                format!("{why} ({nodes} nodes use it)")
            }
        };
        view.anomalies.push(why);
    }
}
