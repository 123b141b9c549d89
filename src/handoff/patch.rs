//! Builds the one merge patch of a Node that an action is: labels, record, mark and cordon, with the node's UID and resourceVersion.

use jiff::Timestamp;

use super::{
    action::{Action, Evidence, NodeChange, NodePatch, Op},
    facts::Facts,
};
use crate::api::{
    Version,
    keys::{CORDON, CordonOwners, DesiredBy, Loaded, LoaderBoot, Mark, Role},
};

/// A Node patch in the making. Changes that would change nothing are left out.
pub struct NodeEdit<'f, 'a> {
    facts: &'f Facts<'a>,
    changes: Vec<NodeChange>,
    mark: Option<Option<Mark>>,
}

impl<'f, 'a> NodeEdit<'f, 'a> {
    pub fn new(facts: &'f Facts<'a>) -> Self {
        Self { facts, changes: Vec::new(), mark: None }
    }

    pub fn label(mut self, role: Role, value: Option<&Version>) -> Self {
        let labels = &self.facts.occupancy.labels;
        let now = match role {
            Role::Desired => labels.desired.as_ref().map(Version::as_str),
            Role::Loader => labels.loader.as_ref().map(Version::as_str),
            Role::Plugin => labels.plugin.as_ref().map(Version::as_str),
            Role::Ready => labels.ready.as_ref().map(Version::as_str),
            Role::Nonce => labels.nonce.as_deref(),
            Role::Loaded | Role::Mark => return self,
        };
        if now != value.map(Version::as_str) {
            // Of KMM's labels only the desired one is ever written.
            let key = match (role, &self.facts.component.kmm) {
                (Role::Desired, _) => self.facts.desired_key(),
                (_, Some(_)) => return self,
                (role, None) => role.key(self.facts.key),
            };
            self.changes.push(NodeChange::Label { key, value: value.map(ToString::to_string) });
        }
        self
    }

    pub fn nonce(self, nonce: Option<&str>) -> Self {
        self.label(Role::Nonce, nonce.map(Version::from).as_ref())
    }

    pub fn loaded(mut self, record: Option<&Loaded>) -> Self {
        if self.facts.occupancy.labels.loaded.as_ref() != record {
            let value = record.map(loaded_text);
            self.changes.push(NodeChange::Annotation { key: Role::Loaded.key(self.facts.key), value });
        }
        self
    }

    /// What the handoff did to the desired label.
    pub fn desired_by(mut self, by: DesiredBy) -> Self {
        let mut mark = self.next_mark();
        mark.desired = by;
        self.mark = Some(Some(mark));
        self
    }

    /// From now on only a loader pod made at `since` or later, in this boot, proves that the module is loaded.
    pub fn loader_boot(mut self, since: Timestamp) -> Self {
        if let Some(boot) = self.facts.boot() {
            let mut mark = self.next_mark();
            mark.boot = Some(LoaderBoot { id: boot.clone(), since: whole_seconds(since) });
            self.mark = Some(Some(mark));
        }
        self
    }

    pub fn unmark(mut self) -> Self {
        self.mark = Some(None);
        self
    }

    /// The mark in its current form, whatever else changes: at a takeover, and with the first write.
    pub fn mark(mut self) -> Self {
        self.mark = Some(Some(self.next_mark()));
        self
    }

    fn next_mark(&self) -> Mark {
        match &self.mark {
            Some(Some(mark)) => mark.clone(),
            _ => current_mark(self.facts),
        }
    }

    pub fn cordon(mut self) -> Self {
        let mut owners = self.facts.cordon_owners().cloned().unwrap_or_default();
        if !owners.owners.contains(&self.facts.owner()) {
            owners.owners.push(self.facts.owner());
        }
        self.changes.push(NodeChange::Unschedulable(true));
        self.changes.push(cordon_annotation(Some(&owners)));
        self
    }

    /// Takes this handoff off the cordon's owners; the node is opened with the last one if `open`.
    pub fn leave_cordon(mut self, open: bool) -> Self {
        let mut owners = self.facts.cordon_owners().cloned().unwrap_or_default();
        owners.owners.retain(|owner| *owner != self.facts.owner());
        if owners.owners.is_empty() {
            if open {
                self.changes.push(NodeChange::Unschedulable(false));
            }
            self.changes.push(cordon_annotation(None));
        } else {
            self.changes.push(cordon_annotation(Some(&owners)));
        }
        self
    }

    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.mark_change().is_none()
    }

    fn mark_change(&self) -> Option<NodeChange> {
        let wanted = self.mark.as_ref()?;
        let now = self.facts.occupancy.labels.mark.as_ref();
        let key = Role::Mark.key(self.facts.key);
        (now != wanted.as_ref()).then(|| NodeChange::Annotation { key, value: wanted.as_ref().map(mark_text) })
    }

    /// The action, on facts that must be read fresh before it.
    pub fn fresh(self, why: impl Into<String>) -> Action {
        self.action(Evidence::Fresh, why.into())
    }

    /// The action; the resourceVersion alone guards it.
    pub fn watched(self, why: impl Into<String>) -> Action {
        self.action(Evidence::Watched, why.into())
    }

    fn action(mut self, evidence: Evidence, why: String) -> Action {
        // The first write of a run brings its mark along, and each later one keeps it in step.
        if self.mark.is_none() && self.facts.status().is_some_and(|status| !status.phase.is_ended()) && self.facts.run().is_some()
        {
            self = self.mark();
        }
        let mark = self.mark_change();
        self.changes.extend(mark);
        let (uid, resource_version) = match self.facts.record() {
            Some(record) => (record.meta.uid.clone(), record.meta.resource_version.clone()),
            None => ("".into(), "".into()),
        };
        let patch = NodePatch { node: self.facts.node.name.clone(), uid, resource_version, changes: self.changes };
        Action { op: Op::PatchNode(patch), evidence, why }
    }
}

/// The mark that the running attempt should have on the node: what is there if it is ours, else a new one. What an earlier attempt did to
/// the desired label stays known as long as the label is as it left it.
fn current_mark(facts: &Facts<'_>) -> Mark {
    let old = facts.mark().or(facts.occupancy.labels.mark.as_ref());
    let uid = facts.handoff().map(|handoff| handoff.meta.uid.to_string()).unwrap_or_default();
    let attempt = facts.run().map_or(0, |run| run.attempt);
    let desired = match old.map(|mark| mark.desired) {
        Some(by) if old.is_some_and(|mark| mark.uid == uid && mark.attempt == attempt) => by,
        Some(DesiredBy::Removed) if facts.desired().is_none() => DesiredBy::Removed,
        Some(DesiredBy::Set) if facts.desired().is_some() && facts.desired() == facts.target().as_ref() => DesiredBy::Set,
        _ => DesiredBy::Kept,
    };
    Mark { uid, attempt, epoch: facts.context.epoch, desired, boot: old.and_then(|mark| mark.boot.clone()) }
}

/// The text of the record's annotation.
pub fn loaded_text(record: &Loaded) -> String {
    serde_json::to_string(record).unwrap_or_default()
}

fn mark_text(mark: &Mark) -> String {
    serde_json::to_string(mark).unwrap_or_default()
}

fn cordon_annotation(owners: Option<&CordonOwners>) -> NodeChange {
    let value = owners.map(|owners| serde_json::to_string(owners).unwrap_or_default());
    NodeChange::Annotation { key: CORDON.to_owned(), value }
}

/// RFC 3339 without a fraction, rounded down: creation timestamps have none either.
pub fn whole_seconds(at: Timestamp) -> String {
    Timestamp::from_second(at.as_second()).unwrap_or(at).to_string()
}
