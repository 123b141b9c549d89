//! Everything that speaks against a handoff before it writes anything: all refusals at once, and warnings. `plan` shows the same list.

use serde_json::Value;

use super::{
    evict,
    facts::Facts,
    in_use, start,
    verdict::{Blocker, BlockerKind, ObjectRef},
};
use crate::{
    api::{
        Version,
        component::{DaemonSets, UnloadBy},
        versioned::DaemonSetRole,
    },
    drain::order::Outlook,
    fleet::{records::DaemonSetRecord, view::VersionView},
};

/// Taints by which others announce that they are about to take the node away.
const MAINTENANCE: &[&str] = &[
    "medik8s.io/drain",
    "node.kubernetes.io/out-of-service",
    "ToBeDeletedByClusterAutoscaler",
    "karpenter.sh/disrupted",
    "karpenter.sh/disruption",
];

/// All reasons why the handoff may not start, in the order in which a person would look at them.
pub fn refusals(f: &Facts<'_>) -> Vec<Blocker> {
    let mut all = Vec::new();
    component(f, &mut all);
    node(f, &mut all);
    if let Some(csi) = f.csi() {
        super::csi_node_plugin::refusals(f, csi, &mut all);
        claimants(f, &mut all);
        return all;
    }
    if let Some(kmm) = f.kmm() {
        super::kmm_module::refusals(f, kmm, &mut all);
        if start::swap_needed(f) {
            claimants(f, &mut all);
        }
        return all;
    }
    if let Some(target) = f.target() {
        version(f, &target, &mut all);
    }
    if start::swap_needed(f) {
        old_version(f, &mut all);
        claimants(f, &mut all);
    }
    all
}

fn component(f: &Facts<'_>, all: &mut Vec<Blocker>) {
    let refuse = |kind, message: String| f.blocker(kind, ObjectRef::new("NodeComponent", f.key), message);
    if let Err(why) = &f.component.record.spec {
        all.push(refuse(BlockerKind::ComponentRefused, format!("its spec does not decode: {why}")));
    }
    all.extend(f.component.refusals.iter().map(|why| refuse(BlockerKind::ComponentRefused, why.clone())));
    let aims_there = f.component.spec().is_some_and(|spec| f.target().is_some_and(|target| *spec.version == *target.as_str()));
    if f.component.changed_without_version && aims_there {
        let message = "SpecChangedWithoutVersion: the spec's kernelModule is not what this version's DaemonSets were made from. Give the new content a new version, or take the change back";
        all.push(refuse(BlockerKind::ComponentRefused, message.to_owned()));
    }
}

fn node(f: &Facts<'_>, all: &mut Vec<Blocker>) {
    let Some(record) = f.record() else {
        all.push(f.on_node(BlockerKind::NodeGone, "the Node does not exist"));
        return;
    };
    all.extend(in_use::not_ready(f));
    let bare = f.desired().is_none() && f.loaded().is_none();
    if !f.occupancy.selected && f.target().is_some() && bare {
        all.push(f.on_node(
            BlockerKind::PreflightRefused,
            format!("does not match the nodeSelector of {} and carries nothing of it", f.key),
        ));
    }
    all.extend(
        f.occupancy
            .labels
            .garbage
            .iter()
            .map(|garbage| f.on_node(BlockerKind::LabelGarbage, format!("{garbage}; correct or remove it"))),
    );
    if let Some(Err(garbage)) = &f.node.cordon {
        all.push(f.on_node(BlockerKind::LabelGarbage, format!("{garbage}; correct or remove it")));
    }
    if f.is_by_label() && f.desired() != f.target().as_ref() {
        let say = |version: Option<&Version>| version.map_or_else(|| "no version".to_owned(), ToString::to_string);
        let message = format!(
            "requestedBy says that its version label asks for {}, and the label says {}: nothing is done for a label that does not ask. To ask for a \
             version yourself, say who asks in requestedBy",
            say(f.target().as_ref()),
            say(f.desired())
        );
        all.push(f.on_node(BlockerKind::PreflightRefused, message));
    }
    if let Some(desired) = f.desired().filter(|version| f.version(version).is_none()) {
        let has = f.loaded().or(f.loader()).map(|version| format!(" (the node has {version})")).unwrap_or_default();
        let message = format!(
            "the version label says {desired:?}, which is no version of {}: correct it first{has}. Taking it off would take the node out of service",
            f.key
        );
        all.push(f.on_node(BlockerKind::UnknownVersion, message));
    }
    let taken = record.taints.iter().filter(|taint| MAINTENANCE.contains(&&*taint.key));
    all.extend(taken.map(|taint| {
        f.on_node(
            BlockerKind::ForeignMaintenance,
            format!("carries the taint {}: somebody else has it in maintenance. Wait until it is off", taint.key),
        )
    }));
}

fn version(f: &Facts<'_>, target: &Version, all: &mut Vec<Blocker>) {
    let refuse = |message: String| f.blocker(BlockerKind::PreflightRefused, ObjectRef::new("NodeComponent", f.key), message);
    if let Err(why) = Version::parse(target.as_str()) {
        all.push(refuse(format!("version {why}")));
        return;
    }
    let Some(view) = f.version(target) else {
        let known: Vec<&str> = f.component.versions.keys().map(Version::as_str).collect();
        all.push(f.blocker(
            BlockerKind::UnknownVersion,
            ObjectRef::new("NodeComponent", f.key),
            format!("{target} is no version of it; known are {}", known.join(", ")),
        ));
        return;
    };
    // Somebody's edit has no version: it must not be handed out under this one.
    all.extend(view.edited.iter().map(|why| refuse(why.clone())));
    for (role, set) in daemon_sets(view) {
        if set.is_none() {
            all.push(refuse(format!("the {} DaemonSet of {target} is not there yet", role.word())));
        }
    }
}

/// What leaves must be known well enough to leave.
fn old_version(f: &Facts<'_>, all: &mut Vec<Blocker>) {
    let Some(loaded) = f.loaded().or(f.loader()) else { return };
    if f.version(loaded).is_none() {
        let message = format!(
            "{loaded} may be in its kernel, but its DaemonSets are gone, so nothing says how to unload it. Restore them, or reboot the node and remove the record"
        );
        all.push(f.on_node(BlockerKind::Anomaly, message));
    }
}

fn claimants(f: &Facts<'_>, all: &mut Vec<Blocker>) {
    // Whoever moves the label moves the pods.
    if f.is_by_label() {
        return;
    }
    all.extend(evict::plan(f).into_iter().filter_map(|planned| match planned.outlook {
        Outlook::Never(blocker) | Outlook::Unsettled(blocker) => Some(blocker),
        _ => None,
    }));
    // KMM has no label that goes before the unload.
    for blocker in all.iter_mut().filter(|it| f.component.kmm.is_some() && it.kind == BlockerKind::DaemonSetClaimant) {
        blocker.message = format!(
            "uses the device, and its DaemonSet would bring it straight back: no label of KMM's goes before the unload. Let its pod template select a \
             label of your own, and take that off {} before",
            f.node.name
        );
    }
}

fn daemon_sets(view: &VersionView) -> [(DaemonSetRole, Option<&DaemonSetRecord>); 2] {
    [(DaemonSetRole::Loader, view.loader.as_deref()), (DaemonSetRole::Plugin, view.plugin.as_deref())]
}

/// What a person should know and may decide to live with.
pub fn warnings(f: &Facts<'_>) -> Vec<String> {
    let mut all = f.kmm().map(|kmm| super::kmm_module::warnings(f, kmm)).unwrap_or_default();
    if let Some(csi) = f.csi() {
        all.extend(super::csi_node_plugin::left_to_die(f, csi));
        all.extend(super::csi_node_plugin::twins(f, csi));
        shared_warnings(f, &mut all);
        return all;
    }
    let Some(target) = f.target() else { return all };
    let Some(view) = f.version(&target) else { return all };
    let of_sets = view.block.daemon_sets.as_ref().map(|sets| of_templates(f, &target, view, sets));
    all.extend(of_sets.into_iter().flatten());
    shared_warnings(f, &mut all);
    all
}

fn of_templates(f: &Facts<'_>, target: &Version, view: &VersionView, sets: &DaemonSets) -> Vec<String> {
    let mut all = Vec::new();
    for (role, template) in [("loader", &sets.loader), ("devicePlugin", &sets.device_plugin)] {
        for change in imposed(template) {
            all.push(format!("{role}: {change}"));
        }
        if let Some(record) = f.record().filter(|record| !record.images.is_empty()) {
            for image in images(template).filter(|image| !record.images.iter().any(|known| **known == **image)) {
                all.push(format!(
                    "{role}: image {image} is not on {} yet (the kubelet lists 50 at most); it must be pullable",
                    f.node.name
                ));
            }
        }
    }
    if sets.device_plugin.pointer("/spec/initContainers").and_then(|it| it.as_array()).is_none_or(Vec::is_empty) {
        all.push(
            "devicePlugin has no init container: a reboot starts loader and plugin at once, so it must wait for its module"
                .to_owned(),
        );
    }
    let old_reboot = f.unloads_by_reboot() && start::swap_needed(f) && f.loaded().is_some();
    if old_reboot {
        all.push(format!(
            "{} leaves the kernel only with a reboot: everything drainable leaves the node, then somebody must reboot it",
            f.loaded().map(Version::as_str).unwrap_or_default()
        ));
    }
    if view.block.unload_by == UnloadBy::Reboot && !old_reboot {
        all.push(format!("{target} itself will leave the kernel only with a reboot"));
    }
    all
}

fn shared_warnings(f: &Facts<'_>, all: &mut Vec<String>) {
    if f.record().is_some_and(|record| record.unschedulable) && super::cordon::state(f) != super::cordon::Cordon::Ours {
        all.push(format!("{} is cordoned by somebody else and stays so afterwards", f.node.name));
    }
    // DaemonSet pods all tolerate it; those that select the ready label leave all the same.
    let returning = f.occupancy.claimants.iter().filter(|claimant| {
        let flags = &claimant.pod.flags;
        (flags.tolerates_cordon || flags.tolerates_all)
            && !matches!(claimant.class, crate::fleet::view::ClaimantClass::DaemonSet { .. })
    });
    for claimant in returning {
        all.push(format!("Pod {} tolerates the cordon: its replacement may come back to this node", claimant.pod.key));
    }
    all.extend(f.component.anomalies.iter().cloned());
}

/// What lockkeeper changes in a template.
fn imposed(template: &Value) -> Vec<String> {
    let has = |pointer: &str| template.pointer(pointer).is_some();
    let mut all = Vec::new();
    if has("/spec/nodeSelector") {
        all.push("its nodeSelector is replaced by lockkeeper's label: a changed node label would stop it at once".to_owned());
    }
    if has("/spec/affinity/nodeAffinity") {
        all.push("its node affinity stays: a node label changed under it would stop it at once".to_owned());
    }
    if template.pointer("/spec/priorityClassName").is_some_and(|class| class != "system-node-critical") {
        all.push("its priority class becomes system-node-critical".to_owned());
    }
    all
}

/// Images of a template's containers.
fn images(template: &Value) -> impl Iterator<Item = &str> {
    let of = |list: &str| template.pointer(list).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    of("/spec/initContainers").iter().chain(of("/spec/containers")).filter_map(|container| container.get("image")?.as_str())
}
