//! All that is read of KMM in a cluster, and from it the state of every Module on a node.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    keys,
    records::{ImagesRecord, ModuleRecord, NmcRecord, Part, PodRecord, SetRecord},
    state::{Facts, NodeModule, Seen},
};
use crate::{
    api::{NodeName, ObjectKey},
    fleet::records::{NodeRecord, Str},
};

/// KMM's objects, by name.
#[derive(Debug, Clone, Default)]
pub struct Kmm {
    pub modules: BTreeMap<ObjectKey, ModuleRecord>,
    pub configs: BTreeMap<NodeName, NmcRecord>,
    pub images: BTreeMap<ObjectKey, ImagesRecord>,
    pub pods: BTreeMap<ObjectKey, PodRecord>,
    pub sets: BTreeMap<ObjectKey, SetRecord>,
}

impl Kmm {
    /// The Modules that have anything to do with this node: they select it, have an entry or a pod there, or its labels name them.
    #[must_use]
    pub fn concerning(&self, node: &NodeRecord) -> BTreeSet<ObjectKey> {
        let selecting = self.modules.values().filter(|module| module.selects(&node.labels)).map(|module| module.key.clone());
        let entries = self.configs.get(&node.name).into_iter().flat_map(|nmc| nmc.spec.iter().chain(&nmc.status));
        let pods =
            self.pods.values().filter(|pod| pod.node.as_ref() == Some(&node.name) && !matches!(pod.part, Part::Pull { .. }));
        let labels =
            node.labels.iter().filter_map(|(key, value)| keys::parse_among(key, value, |key| self.modules.contains_key(key)));
        selecting
            .chain(entries.map(|entry| entry.module.clone()))
            .chain(pods.map(|pod| pod.module.clone()))
            .chain(labels.map(|parsed| parsed.module))
            .collect()
    }

    /// Versions of a Module that anything in the cluster knows.
    #[must_use]
    pub fn versions(&self, module: &ObjectKey) -> BTreeSet<Str> {
        let own = self.modules.get(module).and_then(|module| module.version.clone());
        let sets = self.sets.values().filter(|set| set.module == *module).filter_map(|set| set.version.clone());
        let entries =
            self.configs.values().flat_map(|nmc| nmc.spec.iter().chain(&nmc.status)).filter(|entry| entry.module == *module);
        own.into_iter().chain(sets).chain(entries.filter_map(|entry| entry.version.clone())).collect()
    }

    /// Where one Module stands on one node.
    #[must_use]
    pub fn on(&self, node: &NodeRecord, module: &ObjectKey, seen: Seen) -> NodeModule {
        let here = |pod: &&PodRecord| {
            pod.module == *module && (pod.node.as_ref() == Some(&node.name) || matches!(pod.part, Part::Pull { .. }))
        };
        let pods: Vec<&PodRecord> = self.pods.values().filter(here).collect();
        let sets: Vec<&SetRecord> = self.sets.values().filter(|set| set.module == *module).collect();
        let modules: BTreeSet<ObjectKey> = self.modules.keys().cloned().collect();
        let versions = self.versions(module);
        let facts = Facts {
            node,
            module,
            spec: self.modules.get(module),
            nmc: self.configs.get(&node.name),
            images: self.images.get(module),
            pods: &pods,
            sets: &sets,
            modules: &modules,
            versions: &versions,
            seen,
        };
        facts.read()
    }
}
