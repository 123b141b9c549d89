//! What of the components decides who is where: selectors, and what each version says its devices are. Compiled from component views,
//! so that a node can be judged without looking at specs; status changes of components leave it as it is.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    csi::CsiView,
    kmm::KmmView,
    records::{Labels, Str},
    selector,
    view::{ComponentView, NodeLabels},
};
use crate::api::{
    ComponentKey, Uid, Version,
    component::{KernelModule, LabelSelector, UnloadBy},
    keys::Role,
};

/// All components, and what DaemonSets' pods need of a node.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rules {
    pub components: BTreeMap<ComponentKey, ComponentRules>,
    /// By UID of the DaemonSet: the label keys of ours that its pods need on a node. Those that need none are left out.
    pub required_labels: BTreeMap<Uid, Vec<Str>>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ComponentRules {
    /// None: the spec does not decode, so no node is selected.
    selector: Option<BTreeMap<String, String>>,
    /// Key of the ready label.
    pub ready_key: String,
    /// As the spec has it now.
    fallback: Option<VersionRules>,
    versions: BTreeMap<Version, VersionRules>,
    /// Of a csiNodePlugin.
    pub csi: Option<Arc<CsiView>>,
    /// Of one that follows a Module of KMM.
    pub kmm: Option<Arc<KmmView>>,
}

/// What makes a pod a claimant of one version.
#[derive(Debug, Clone, PartialEq)]
struct VersionRules {
    /// Where it is.
    there: Arc<BlockRules>,
    /// Where it is to come: nothing of it has to leave the kernel, so nobody has to leave for a reboot.
    to_come: Arc<BlockRules>,
}

impl VersionRules {
    fn of(block: &KernelModule) -> Self {
        let there = Arc::new(BlockRules::of(block));
        let to_come = if there.reboot { Arc::new(BlockRules { reboot: false, ..(*there).clone() }) } else { there.clone() };
        Self { there, to_come }
    }
}

/// What makes a pod a claimant, by one version's block.
#[derive(Debug, Clone, PartialEq)]
pub struct BlockRules {
    pub resources: BTreeSet<String>,
    pub drivers: BTreeSet<String>,
    /// Pods of these namespaces that the selector matches.
    pub selector: Option<(LabelSelector, BTreeSet<String>)>,
    /// `unloadBy: Reboot`: everything drainable.
    pub reboot: bool,
}

impl BlockRules {
    pub fn of(block: &KernelModule) -> Self {
        let devices = &block.devices;
        // An empty selector would mean every pod; the component is refused, and nobody is drained for it.
        let selector = devices.pod_selector.clone().filter(|selector| !selector::is_empty(selector));
        Self {
            resources: devices.resource_names.iter().cloned().collect(),
            drivers: devices.dra_drivers.iter().cloned().collect(),
            selector: selector.map(|selector| (selector, devices.pod_namespaces.iter().cloned().collect())),
            reboot: block.unload_by == UnloadBy::Reboot,
        }
    }
}

impl ComponentRules {
    pub fn of(view: &ComponentView) -> Self {
        let spec = view.spec();
        Self {
            selector: spec.map(|spec| spec.node_selector.clone()),
            // No label of a Module of KMM takes a claimant away before the unload.
            ready_key: if view.kmm.is_some() { String::new() } else { Role::Ready.key(&view.record.key) },
            fallback: spec.and_then(|spec| Some(VersionRules::of(spec.kernel_module.as_ref()?))),
            csi: view.csi.clone(),
            kmm: view.kmm.clone(),
            versions: view.versions.values().map(|it| (it.version.clone(), VersionRules::of(&it.block))).collect(),
        }
    }

    pub fn selects(&self, labels: &Labels) -> bool {
        self.selector.as_ref().is_some_and(|selector| selector::matches_all(selector, labels))
    }

    /// The blocks that say who claims the component on a node with these labels: those of the versions that are there (plugin, loader,
    /// record). With none there, that of the version which is to come; a version that nobody knows any more counts as the spec's.
    pub fn blocks(&self, labels: &NodeLabels) -> Vec<&BlockRules> {
        let there = [labels.plugin.as_ref(), labels.loader.as_ref(), labels.loaded.as_ref().map(|loaded| &loaded.version)];
        let mut named: Vec<&Version> = there.into_iter().flatten().collect();
        let known = |version: &Version| self.versions.get(version).or(self.fallback.as_ref());
        if named.is_empty() {
            let to_come = labels.desired.as_ref().and_then(known).or(self.fallback.as_ref());
            return to_come.map(|it| &*it.to_come).into_iter().collect();
        }
        named.sort();
        named.dedup();
        let mut blocks: Vec<&Arc<BlockRules>> = named.into_iter().filter_map(known).map(|it| &it.there).collect();
        blocks.dedup_by(|a, b| Arc::ptr_eq(a, b));
        blocks.into_iter().map(|block| &**block).collect()
    }
}

impl Rules {
    /// Everything but what DaemonSets need: when this is the same, no node that did not change itself has to be judged again.
    pub fn same_components(&self, other: &Self) -> bool {
        self.components == other.components
    }
}
