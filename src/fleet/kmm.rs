//! A Module of KMM as a whole, for the component that follows it: what it asks for, what is known of its versions, and why it cannot be
//! followed. What is on a node is `kmm_occupancy`'s, what it means `crate::kmm`'s.

use std::{collections::BTreeSet, sync::Arc};

use super::records::{DaemonSetRecord, Meta, Str};
use crate::{
    api::{ComponentKey, ObjectKey, Version},
    kmm::{
        keys::{self, Era},
        records::{ImagesRecord, ModuleRecord, SetRecord},
        tolerations::Trap,
    },
};

/// What a component that follows a Module comes to, without anything that changes with every pod or node.
#[derive(Debug, Clone, PartialEq)]
pub struct KmmView {
    pub key: ObjectKey,
    /// None: there is no such Module, or it cannot be read. Its resourceVersion is left out: every node that loads changes it.
    pub module: Option<Arc<ModuleRecord>>,
    /// None: KMM keeps none for it, or this generation of KMM has no such kind.
    pub images: Option<Arc<ImagesRecord>>,
    /// Why it is not known which images exist.
    pub images_unknown: Option<String>,
    /// What the kubelets say of pull pods of its images that fail.
    pub pulls: Vec<Str>,
    /// Its plugin and DRA DaemonSets, without their counts.
    pub sets: Vec<SetRecord>,
    /// Versions that anything in the cluster knows: the Module, DaemonSets, NodeModulesConfigs.
    pub versions: BTreeSet<Str>,
    /// All Modules of the cluster.
    pub modules: BTreeSet<ObjectKey>,
}

/// What is known of all Modules.
pub struct Known<'a> {
    pub modules: &'a [Arc<ModuleRecord>],
    pub images: Option<&'a Arc<ImagesRecord>>,
    pub images_unknown: Option<String>,
    /// Versions of this Module that NodeModulesConfigs name.
    pub versions: BTreeSet<Str>,
    /// What the kubelets say of its pull pods that fail.
    pub pulls: Vec<Str>,
    /// Why KMM's kinds cannot be read; None: they are.
    pub unread: Option<String>,
}

impl KmmView {
    /// What its nodes shall run.
    #[must_use]
    pub fn aim(&self) -> Option<Version> {
        let version = self.module.as_ref()?.version.as_ref()?;
        Version::parse(version).ok()
    }

    /// Why KMM's pull pod cannot have this image, as its kubelet says; None: none is known to fail.
    #[must_use]
    pub fn pull(&self, image: &str) -> Option<Str> {
        let named = self.pulls.iter().find(|says| says.contains(image));
        let only = || self.pulls.first().filter(|_| self.pulls.len() == 1);
        named.or_else(only).cloned()
    }

    /// What a cordon or a moment of NotReady does to it; None: nothing.
    #[must_use]
    pub fn trap(&self) -> Option<Trap> {
        self.module.as_ref().and_then(|module| Trap::of(&module.tolerations))
    }
}

/// The record without what moves by itself.
pub(super) fn settled(module: &ModuleRecord) -> ModuleRecord {
    ModuleRecord { meta: Meta { resource_version: Str::default(), ..module.meta.clone() }, ..module.clone() }
}

pub(super) fn settled_set(set: &DaemonSetRecord) -> Option<SetRecord> {
    SetRecord::of(set).map(|set| SetRecord { desired: 0, ready: 0, ..set })
}

/// The view, and everything that speaks against following the Module as it is. `sets` are the DaemonSets of its namespace.
pub fn build(component: &ComponentKey, name: &str, sets: &[Arc<DaemonSetRecord>], known: Known<'_>) -> (KmmView, Vec<String>) {
    let key = ObjectKey::new(component.namespace.clone(), name);
    let module = known.modules.iter().find(|module| module.key == key).map(|module| Arc::new(settled(module)));
    let sets: Vec<SetRecord> = sets.iter().filter_map(|set| settled_set(set)).filter(|set| set.module == key).collect();
    let own = module.as_ref().and_then(|module| module.version.clone());
    let of_sets = sets.iter().filter_map(|set| set.version.clone());
    let images = known.images.map(|images| {
        Arc::new(ImagesRecord {
            meta: Meta { resource_version: Str::default(), ..images.meta.clone() },
            ..ImagesRecord::clone(images)
        })
    });
    let view = KmmView {
        versions: own.into_iter().chain(of_sets).chain(known.versions).collect(),
        modules: known.modules.iter().map(|module| module.key.clone()).collect(),
        images,
        images_unknown: known.images_unknown,
        pulls: known.pulls,
        key,
        module,
        sets,
    };
    let refusals = match known.unread {
        // Without them nothing is known, whatever it looks like.
        Some(why) => vec![why],
        None => refusals(&view, known.modules),
    };
    (view, refusals)
}

fn refusals(view: &KmmView, modules: &[Arc<ModuleRecord>]) -> Vec<String> {
    let key = &view.key;
    let Some(module) = &view.module else {
        return vec![format!(
            "there is no Module {key} of KMM (spec.kernelModule.kmmModule.name): make it, or correct the name; it must be in the component's namespace"
        )];
    };
    let mut all = Vec::new();
    if module.deleting {
        all.push(format!("Module {key} is being deleted: KMM unloads it on all nodes by itself, whoever uses it"));
    }
    if !module.loads {
        all.push(format!(
            "Module {key} has no moduleLoader: KMM loads nothing for it, and no version label has any effect. Follow one that loads"
        ));
    } else {
        match &module.version {
            None => all.push(format!(
                "Module {key} has no moduleLoader.container.version: node labels have no effect, and every edit unloads and loads on all nodes at \
                 once. KMM's webhook refuses to add one: delete the Module (this unloads it on all nodes) and make it again with a version"
            )),
            Some(version) => {
                if let Err(why) = Version::parse(version) {
                    all.push(format!(
                        "version of Module {key}: {why}. No node label can say it: give the Module's next version a legal name"
                    ));
                }
            }
        }
    }
    let read_as = keys::as_kmm_reads(key);
    if read_as != *key {
        all.push(format!(
            "KMM reads the version label of Module {key} as that of {read_as} and never acts on it: make the Module again under a name without dots"
        ));
    }
    let (length, limit) = (key.namespace.len() + key.name.len(), Era::Third.limit());
    if length > limit {
        all.push(format!(
            "namespace and name of Module {key} have {length} characters together, KMM's label keys have room for {limit}: some cannot be written. \
             Make the Module again under a shorter name"
        ));
    }
    for other in modules.iter().filter(|other| other.key != *key) {
        if keys::mixed_up(key, &other.key) {
            all.push(format!(
                "KMM takes the version labels of Module {key} and {} on one node for those of one: give one of them another name",
                other.key
            ));
        }
        if keys::share_ready_label(key, &other.key) {
            all.push(format!(
                "Module {key} and {} share one label key on nodes (ready of the one, version of the other): give one of them another name",
                other.key
            ));
        }
        if loads_the_same(module, other) {
            all.push(format!(
                "Module {key} and {} both load {} on the same nodes: each would unload it for the other's upgrade. Keep one of them, or let their \
                 selectors exclude each other",
                other.key,
                module.kernel_module.as_deref().unwrap_or_default()
            ));
        }
    }
    all
}

/// Both load one kernel module, and a node may match both selectors.
fn loads_the_same(one: &ModuleRecord, other: &ModuleRecord) -> bool {
    let named = one.kernel_module.is_some() && one.kernel_module == other.kernel_module && other.loads && !other.deleting;
    let apart = one.selector.iter().any(|(key, value)| other.selector.get(key).is_some_and(|another| another != value));
    named && !apart
}
