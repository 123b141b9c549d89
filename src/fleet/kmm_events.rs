//! What events about KMM concern: which nodes have to be judged again, and which components have to be made anew. Only while a component
//! follows a Module does any of it concern anything.

use std::sync::Arc;

use super::{
    event::Kind,
    follow::Fleet,
    kmm::{self, KmmView, Known},
    records::*,
    view::WatchState,
};
use crate::{
    api::{ComponentKey, ObjectKey},
    kmm::records::{ImagesRecord, ModuleRecord, NmcRecord},
};

impl Fleet {
    /// Components that follow a Module.
    pub(super) fn kmm_components(&self) -> impl Iterator<Item = &Arc<ComponentRecord>> {
        self.stores.components.iter().filter(|record| kmm_module(record).is_some())
    }

    /// Some component needs the kinds of [`Kind::OF_KMM`].
    pub fn wants_kmm(&self) -> bool {
        self.kmm_components().next().is_some()
    }

    pub(super) fn kmm_changed(&mut self) {
        let keys: Vec<_> = self.kmm_components().map(|record| record.key.clone()).collect();
        self.dirty.components.extend(keys);
    }

    pub(super) fn module_changed(&mut self, module: &ObjectKey) {
        let of_it = |record: &&Arc<ComponentRecord>| {
            record.key.namespace == module.namespace && kmm_module(record).is_some_and(|name| *name == *module.name)
        };
        let keys: Vec<_> = self.kmm_components().filter(of_it).map(|record| record.key.clone()).collect();
        self.dirty.components.extend(keys);
    }

    /// Why one of these kinds cannot be read.
    fn unread(&self, kind: Kind) -> Option<String> {
        match self.watches.get(&kind).map(|status| &status.state) {
            Some(WatchState::Unavailable { why }) => Some(why.clone()),
            Some(WatchState::Retrying { error, .. }) if !self.stores.is_synced(kind) => Some(error.clone()),
            _ if !self.stores.is_synced(kind) => Some("they have not been listed yet".to_owned()),
            _ => None,
        }
    }

    /// What the component comes to, and why it is refused.
    pub(super) fn kmm_view(&self, component: &ComponentKey, name: &str, sets: &[Arc<DaemonSetRecord>]) -> (KmmView, Vec<String>) {
        let key = ObjectKey::new(component.namespace.clone(), name);
        let needed = [Kind::KmmModule, Kind::KmmConfig].into_iter();
        let unread = needed.filter_map(|kind| Some((kind, self.unread(kind)?))).next().map(|(kind, why)| {
            format!(
                "{} of Kernel Module Management cannot be read: {why}. Without KMM (2.0 or later) nothing can be followed",
                kind.resource()
            )
        });
        let modules: Vec<Arc<ModuleRecord>> = self.stores.modules.iter().cloned().collect();
        let versions = self.index.kmm_versions.get(&key).map(|versions| versions.keys().cloned().collect());
        let known = Known {
            modules: &modules,
            images: self.stores.images.get(&key),
            images_unknown: self.unread(Kind::KmmImages),
            versions: versions.unwrap_or_default(),
            pulls: self.index.kmm_pulls.get(&key).map(|pulls| pulls.values().cloned().collect()).unwrap_or_default(),
            unread,
        };
        kmm::build(component, name, sets, known)
    }

    pub(super) fn on_module(&mut self, old: Option<Arc<ModuleRecord>>, new: Option<Arc<ModuleRecord>>) {
        // Its counters change with every node.
        if old.as_deref().map(kmm::settled) != new.as_deref().map(kmm::settled) {
            self.kmm_changed();
        }
    }

    pub(super) fn on_images(&mut self, old: Option<Arc<ImagesRecord>>, new: Option<Arc<ImagesRecord>>) {
        if let Some(key) = new.or(old).map(|images| images.key.clone()) {
            self.module_changed(&key);
        }
    }

    pub(super) fn on_config(&mut self, old: Option<Arc<NmcRecord>>, new: Option<Arc<NmcRecord>>) {
        let Some(node) = new.as_ref().or(old.as_ref()).map(|config| config.node.clone()) else { return };
        self.dirty.nodes.insert(node);
        for module in self.index.config(old.as_deref(), new.as_deref()) {
            self.module_changed(&module);
        }
    }

    /// Their counts change with every pod, and say nothing here.
    pub(super) fn kmm_set_changed(&mut self, old: Option<&DaemonSetRecord>, new: Option<&DaemonSetRecord>) {
        let (old, new) = (old.and_then(kmm::settled_set), new.and_then(kmm::settled_set));
        if old == new {
            return;
        }
        let modules: Vec<ObjectKey> = [old, new].into_iter().flatten().map(|set| set.module).collect();
        modules.iter().for_each(|module| self.module_changed(module));
    }
}

/// The name of the Module that the component follows.
pub(super) fn kmm_module(record: &ComponentRecord) -> Option<&str> {
    let module = record.spec.as_ref().ok()?.kernel_module.as_ref()?;
    module.kmm_module.as_ref().map(|module| module.name.as_str())
}
