//! What events about volumes concern: which nodes have to be judged again, and which components have to be made anew. Only while a
//! csiNodePlugin component exists does any of it concern anything.

use std::sync::Arc;

use super::{event::Kind, follow::Fleet, records::*};
use crate::api::{NodeName, ObjectKey};

impl Fleet {
    /// Components that are CSI nodeplugins.
    pub(super) fn csi_components(&self) -> impl Iterator<Item = &Arc<ComponentRecord>> {
        self.stores.components.iter().filter(|record| record.spec.as_ref().is_ok_and(|spec| spec.csi_node_plugin.is_some()))
    }

    /// Some component needs the kinds of [`Kind::OF_CSI`].
    pub fn wants_csi(&self) -> bool {
        self.csi_components().next().is_some()
    }

    /// The first of these kinds that has not been listed, and why.
    pub(super) fn csi_unlisted(&self) -> Option<String> {
        let kind = Kind::OF_CSI.into_iter().find(|kind| !self.stores.is_synced(*kind))?;
        let why = match self.watches.get(&kind).map(|status| &status.state) {
            Some(super::view::WatchState::Unavailable { why }) => format!("{} cannot be read: {why}", kind.resource()),
            Some(super::view::WatchState::Retrying { error, .. }) => format!("{} cannot be read: {error}", kind.resource()),
            _ => format!("{} have not been listed yet", kind.resource()),
        };
        Some(why)
    }

    pub(super) fn csi_changed(&mut self) {
        let keys: Vec<_> = self.csi_components().map(|record| record.key.clone()).collect();
        self.dirty.components.extend(keys);
    }

    /// A claim's users: those on nodes are judged again, the others may have another way to go.
    pub(super) fn volume_users_changed(&mut self, claim: &ObjectKey) {
        let users = self.index.by_volume_claim.get(claim).iter();
        let (bound, unbound): (Vec<_>, Vec<_>) =
            users.map(|pod| (pod.key.clone(), pod.node.clone())).partition(|(_, node)| node.is_some());
        for (pod, _) in unbound {
            self.find_destinations(&pod);
        }
        if self.wants_csi() {
            self.dirty.nodes.extend(bound.into_iter().filter_map(|(_, node)| node));
        }
    }

    pub(super) fn on_volume(&mut self, old: Option<Arc<VolumeRecord>>, new: Option<Arc<VolumeRecord>>) {
        let claims: Vec<ObjectKey> =
            [&old, &new].into_iter().flatten().filter_map(|volume| volume.claim.as_ref()).map(|(key, _)| key.clone()).collect();
        claims.iter().for_each(|claim| self.volume_users_changed(claim));
    }

    pub(super) fn on_attachment(&mut self, old: Option<Arc<AttachmentRecord>>, new: Option<Arc<AttachmentRecord>>) {
        if let Some(old) = &old {
            self.index.attachments_on.take(&old.node, &old.name);
            self.dirty.nodes.insert(old.node.clone());
        }
        if let Some(new) = &new {
            self.index.attachments_on.put(new.node.clone(), new.name.clone());
            self.dirty.nodes.insert(new.node.clone());
        }
    }

    pub(super) fn on_csi_node(&mut self, old: Option<Arc<CsiNodeRecord>>, new: Option<Arc<CsiNodeRecord>>) {
        self.dirty.nodes.extend(new.or(old).map(|record| record.node.clone()));
    }

    pub(super) fn on_csi_driver(&mut self, _: Option<Arc<CsiDriverRecord>>, _: Option<Arc<CsiDriverRecord>>) {
        self.csi_changed();
    }

    pub(super) fn on_revision(&mut self, old: Option<Arc<RevisionRecord>>, new: Option<Arc<RevisionRecord>>) {
        if let Some((old, owner)) = old.as_ref().and_then(|old| Some((old, old.owner.clone()?))) {
            self.index.revisions_of.take(&owner, &old.key);
        }
        if let Some((new, owner)) = new.as_ref().and_then(|new| Some((new, new.owner.clone()?))) {
            self.index.revisions_of.put(owner, new.key.clone());
        }
        self.csi_changed();
    }

    /// Its counts change with every pod, and say nothing here.
    pub(super) fn csi_set_changed(&mut self, old: Option<&DaemonSetRecord>, new: Option<&DaemonSetRecord>) {
        let facts = |set: &DaemonSetRecord| {
            let gone = set.meta.deletion.is_some();
            (set.meta.uid.clone(), set.generation, set.observed_generation >= set.generation, gone)
        };
        let template = |set: Option<&DaemonSetRecord>| set.and_then(|set| set.template.clone());
        if old.map(facts) != new.map(facts) || template(old) != template(new) {
            self.csi_changed();
            // Their pods are found by their owner.
            let nodes: Vec<NodeName> = [old, new]
                .into_iter()
                .flatten()
                .flat_map(|set| self.index.by_owner.get(&set.meta.uid))
                .filter_map(|pod| pod.node.clone())
                .collect();
            if self.wants_csi() {
                self.dirty.nodes.extend(nodes);
            }
        }
    }
}
