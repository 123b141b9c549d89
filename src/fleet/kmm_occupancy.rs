//! A Module of KMM on one node, for the component that follows it: where it stands, its pods, who uses its devices.

use std::sync::Arc;

use super::{
    kmm::KmmView,
    occupancy::NodeFacts,
    records::*,
    rules::{ComponentRules, Rules},
    view::{KmmOccupancy, NodeLabels, Occupancy},
};
use crate::{
    api::{
        ComponentKey, Version,
        keys::{Garbage, Role},
    },
    drain::claimants,
    kmm::{
        keys::Label,
        records as kmm,
        records::Part,
        state::{Facts, Seen},
        tolerations,
        triple::Triple,
    },
};

impl NodeFacts {
    /// The component's nodes are those that it and the Module select, and those of its own that carry anything of the Module.
    pub(super) fn carries_module(&self, component: &ComponentRules, view: &KmmView, node: &NodeRecord) -> bool {
        let said = || {
            let labels = Triple::of(&node.labels, &view.key);
            labels.desired.is_some() || labels.loader.is_some() || labels.schedule.is_some()
        };
        let entry = || self.config.as_ref().is_some_and(|nmc| nmc.wanted(&view.key).or(nmc.recorded(&view.key)).is_some());
        component.selects(&node.labels)
            && (view.module.as_ref().is_some_and(|module| module.selects(&node.labels)) || said() || entry())
    }

    pub(super) fn of_kmm(
        &self,
        rules: &Rules,
        component: &ComponentRules,
        view: &KmmView,
        key: &ComponentKey,
        own: NodeLabels,
    ) -> Occupancy {
        let of_module =
            |pod: &&Arc<PodRecord>| pod.flags.of_kmm && kmm::PodRecord::of(pod).is_some_and(|pod| pod.module == view.key);
        let pods: Vec<(Arc<PodRecord>, kmm::PodRecord)> =
            self.pods.iter().filter(of_module).filter_map(|pod| Some((pod.clone(), kmm::PodRecord::of(pod)?))).collect();
        let pick = |wanted: fn(&Part) -> bool| -> Vec<Arc<PodRecord>> {
            pods.iter().filter(|(_, of)| wanted(&of.part)).map(|(pod, _)| pod.clone()).collect()
        };
        let (workers, plugins) =
            (pick(|part| matches!(part, Part::Worker { .. })), pick(|part| matches!(part, Part::Plugin { .. })));
        let nmc = self.config.as_deref();
        let node = self.record.as_deref();
        let here = node.map(|node| {
            let pods: Vec<&kmm::PodRecord> = pods.iter().map(|(_, of)| of).collect();
            let sets: Vec<&kmm::SetRecord> = view.sets.iter().collect();
            let facts = Facts {
                node,
                module: &view.key,
                spec: view.module.as_deref(),
                nmc,
                images: view.images.as_deref(),
                pods: &pods,
                sets: &sets,
                modules: &view.modules,
                versions: &view.versions,
                seen: Seen::default(),
            };
            facts.read()
        });
        let recorded = nmc.and_then(|nmc| nmc.recorded(&view.key));
        let labels = said(node, view, key, own);
        let blocks = component.blocks(&labels);
        let resources = blocks.iter().flat_map(|block| &block.resources);
        let allocatable = resources.filter_map(|name| node?.allocatable.get_key_value(name.as_str()));
        // What KMM runs of the Module uses no device of it.
        let others = self.pods.iter().filter(|pod| !of_module(pod));
        let module = view.module.as_deref();
        let image = node.and_then(|node| module?.image_for(&node.kernel));
        let taint = node.zip(module).and_then(|(node, module)| tolerations::untolerated(&node.taints, &module.tolerations));
        Occupancy {
            selected: node
                .is_some_and(|node| component.selects(&node.labels) && module.is_some_and(|module| module.selects(&node.labels))),
            claimants: claimants::of(others, &blocks, &self.claims, |pod| {
                claimants::class(pod, &component.ready_key, &rules.required_labels)
            }),
            incoming: self.incoming(&blocks),
            reserved_claims: self.reserved_claims(&blocks),
            slices: self.slices(&blocks),
            allocatable: allocatable.map(|(name, quantity)| (name.clone(), *quantity)).collect(),
            handoff: self.own_handoffs().find(|(of, _)| of == key).map(|(_, handoff)| handoff.clone()),
            csi: None,
            kmm: Some(Box::new(KmmOccupancy {
                here,
                wanted: nmc.and_then(|nmc| nmc.wanted(&view.key)).cloned(),
                recorded: recorded.cloned(),
                version: recorded
                    .filter(|entry| node.is_some_and(|node| node.boot_id == entry.boot_id))
                    .and_then(|entry| entry.version.clone())
                    .map(Version::from),
                config: nmc.map(|nmc| nmc.meta.uid.clone()),
                workers,
                image_exists: image.as_ref().zip(view.images.as_ref()).map(|(image, images)| images.exists(image)),
                image: image.map(Str::from),
                taint: taint.map(|taint| match &*taint.value {
                    "" => format!("{}:{}", taint.key, taint.effect),
                    value => format!("{}={value}:{}", taint.key, taint.effect),
                }),
            })),
            loader_pods: Vec::new(),
            plugin_pods: plugins,
            unload_pods: Vec::new(),
            labels,
        }
    }
}

/// KMM's labels in the place of our own: desired, worker and plugin label, `.version.ready`. Record and mark stay ours.
fn said(node: Option<&NodeRecord>, view: &KmmView, key: &ComponentKey, own: NodeLabels) -> NodeLabels {
    let mut garbage = own.garbage;
    let wrong = [
        (Role::Desired, own.desired.as_ref().map(ToString::to_string)),
        (Role::Loader, own.loader.as_ref().map(ToString::to_string)),
        (Role::Plugin, own.plugin.as_ref().map(ToString::to_string)),
        (Role::Ready, own.ready.as_ref().map(ToString::to_string)),
        (Role::Nonce, own.nonce.as_ref().map(ToString::to_string)),
    ];
    for (role, value) in wrong {
        let Some(value) = value else { continue };
        let meant = view.key.clone();
        garbage.push(Garbage {
            key: role.key(key),
            value,
            why: format!(
                "this component follows Module {meant} of KMM, whose version label is {}: remove this one",
                Label::Desired.keys(&meant).into_iter().next().unwrap_or_default()
            ),
        });
    }
    let triple = node.map(|node| Triple::of(&node.labels, &view.key)).unwrap_or_default();
    let version = |value: Option<Str>| value.map(Version::from);
    NodeLabels {
        desired: version(triple.desired),
        loader: version(triple.loader),
        plugin: version(triple.schedule),
        ready: version(triple.version_ready),
        nonce: None,
        loaded: own.loaded,
        mark: own.mark,
        garbage,
    }
}
