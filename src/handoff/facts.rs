//! What a decision may look at: one component on one node, the handoff, the lease, what this process saw, and the time. Borrowed, never changed.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;

use super::{
    action::HandoffRef,
    observed::{Observed, ready_plugin},
    verdict::{Blocker, BlockerKind, ObjectRef},
};
use crate::{
    api::{
        BootId, ComponentKey, NodeHandoffSpec, NodeHandoffStatus, ObjectKey, Phase, Version,
        component::{ComponentKind, KernelModule, UnloadBy},
        handoff::{BY_INSTALL, BY_LABEL, HandoffAction, Run},
        keys::{CordonOwners, Mark, Slot},
    },
    fleet::{
        records::{HandoffRecord, NodeRecord, PodRecord, Str},
        view::{BudgetView, ComponentView, NodeView, Occupancy, VersionView},
    },
};

/// What the engine knows about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Context {
    /// This process holds the Lease and may act.
    pub lease_held: bool,
    /// `leaseTransitions` of the Lease while it is held.
    pub epoch: i64,
    /// This process' name in the Lease.
    pub identity: Str,
    /// How many nodes may be admitted at once over all components.
    pub cluster_max_unavailable: u32,
    pub read_only: bool,
}

/// Whether a node may be admitted now.
#[derive(Debug, Clone, PartialEq)]
pub enum Admission {
    /// Admit it: this slot.
    Granted(Slot),
    /// It waits, because of these; `recheck` is when time alone may change that.
    Blocked { blockers: Vec<Blocker>, recheck: Option<Timestamp> },
}

/// An active handoff of another component on the same node.
#[derive(Debug, Clone, PartialEq)]
pub struct OtherHandoff {
    pub key: ObjectKey,
    pub phase: Phase,
}

#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    pub now: Timestamp,
    pub key: &'a ComponentKey,
    pub component: &'a ComponentView,
    pub node: &'a NodeView,
    pub occupancy: &'a Occupancy,
    /// This node's slot in the Lease, whosever it is.
    pub slot: Option<&'a Slot>,
    pub others: &'a [OtherHandoff],
    /// None: not asked for (nothing needs a slot), or not worked out yet.
    pub admission: Option<&'a Admission>,
    pub budgets: &'a BTreeMap<ObjectKey, Arc<BudgetView>>,
    pub observed: &'a Observed,
    pub context: &'a Context,
    /// Why what the watches show is not current; None: it is.
    pub stale: Option<&'a str>,
}

impl<'a> Facts<'a> {
    pub fn handoff(&self) -> Option<&'a HandoffRecord> {
        self.occupancy.handoff.as_deref()
    }

    pub fn spec(&self) -> Option<&'a NodeHandoffSpec> {
        self.handoff()?.spec.as_ref().ok()
    }

    pub fn status(&self) -> Option<&'a NodeHandoffStatus> {
        self.handoff().map(|handoff| &handoff.status)
    }

    pub fn run(&self) -> Option<&'a Run> {
        self.status()?.run.as_ref()
    }

    pub fn phase(&self) -> Phase {
        self.status().map_or(Phase::Queued, |status| status.phase)
    }

    pub fn kind(&self) -> ComponentKind {
        match self.component.spec() {
            Some(spec) => spec.kind(),
            None if self.component.csi.is_some() => ComponentKind::CsiNodePlugin,
            None => ComponentKind::KernelModule,
        }
    }

    pub fn record(&self) -> Option<&'a NodeRecord> {
        self.node.record.as_deref()
    }

    pub fn boot(&self) -> Option<&'a BootId> {
        self.record().map(|record| &record.boot_id).filter(|boot| !boot.as_str().is_empty())
    }

    /// D, L, P.
    pub fn desired(&self) -> Option<&'a Version> {
        self.occupancy.labels.desired.as_ref()
    }
    pub fn loader(&self) -> Option<&'a Version> {
        self.occupancy.labels.loader.as_ref()
    }
    pub fn plugin(&self) -> Option<&'a Version> {
        self.occupancy.labels.plugin.as_ref()
    }
    /// The version in the record R.
    pub fn loaded(&self) -> Option<&'a Version> {
        self.occupancy.labels.loaded.as_ref().map(|loaded| &loaded.version)
    }

    pub fn version(&self, version: &Version) -> Option<&'a VersionView> {
        self.component.versions.get(version)
    }

    /// The content by which what is on the node is stopped and unloaded: the old version's own.
    pub fn old_block(&self) -> Option<&'a KernelModule> {
        let version = self.loaded().or(self.loader()).or(self.plugin())?;
        self.version(version).map(|view| &*view.block)
    }

    /// The old version leaves the kernel only with a reboot: it says so, or it has no unload pod.
    pub fn unloads_by_reboot(&self) -> bool {
        self.component.kmm.is_none()
            && self.old_block().is_some_and(|block| block.unload_by == UnloadBy::Reboot || block.unload().is_none())
    }

    /// Devices of any version concerned are chosen by a pod selector, which no missing device stops.
    pub fn has_selector(&self) -> bool {
        let of = |version: Option<&Version>| {
            version.and_then(|it| self.version(it)).is_some_and(|view| view.block.devices.pod_selector.is_some())
        };
        of(self.loaded()) || of(self.loader()) || of(self.plugin()) || of(self.desired())
    }

    /// What the running attempt heads for: when it is being given back, the version whose loader label is still there.
    pub fn target(&self) -> Option<Version> {
        let status = self.status()?;
        if self.is_giving_back() {
            return status.copy.as_ref().and_then(|copy| copy.desired.as_deref()).map(Version::from);
        }
        match &status.run {
            Some(run) if status.phase != Phase::Queued => run.target.as_deref().map(Version::from),
            _ => {
                let asked = self.spec().and_then(|spec| spec.version.as_deref()).map(Version::from);
                // Of a nodeplugin, whatever revision is current; of a Module of KMM, whatever version it has.
                asked.or_else(|| self.follows_aim().then(|| self.component.aim()).flatten())
            }
        }
    }

    /// No version asks for what is current when the attempt begins: of a nodeplugin, and of a Module of KMM unless its label was taken off.
    pub fn follows_aim(&self) -> bool {
        let by_label = || self.spec().is_some_and(|spec| spec.requested_by == BY_LABEL);
        let unnamed = self.spec().is_some_and(|spec| spec.version.is_none());
        unnamed && (self.component.csi.is_some() || self.component.kmm.is_some() && !by_label())
    }

    /// An abort under way: the node is being restored.
    pub fn is_giving_back(&self) -> bool {
        self.status().is_some_and(|status| {
            !status.phase.is_ended() && status.reason.as_ref().is_some_and(|reason| reason.word == super::ending::GIVING_BACK)
        })
    }

    /// A person moved the label; nothing is evicted and nothing is cordoned for it. While it runs that is what the engine has written down.
    /// Before, `requestedBy` claims it: such a handoff takes its version from the node's label, and runs only while the two agree.
    pub fn is_by_label(&self) -> bool {
        match self.run().filter(|_| self.phase() != Phase::Queued && !self.phase().is_ended()) {
            Some(run) => run.by_label,
            None => self.claims_label(),
        }
    }

    /// Its spec says that the node's label asks for it. A nodeplugin has no label that could.
    pub fn claims_label(&self) -> bool {
        self.component.csi.is_none() && self.spec().is_some_and(|spec| spec.requested_by == BY_LABEL)
    }

    pub fn is_install(&self) -> bool {
        self.spec().is_some_and(|spec| spec.requested_by == BY_INSTALL)
    }

    /// A person (or the deletion of the handoff) asks to stop.
    pub fn abort_asked(&self) -> bool {
        let deleted = self.handoff().is_some_and(|handoff| handoff.meta.deletion.is_some());
        // A deleted handoff is resumed by a new attempt: its action may never have been anything but Run.
        let resumed = || self.run().zip(self.spec()).is_some_and(|(run, spec)| run.resumed || spec.attempt > run.attempt);
        let told = self.spec().is_some_and(|spec| matches!(spec.action, HandoffAction::Abort | HandoffAction::Leave));
        told || deleted && !resumed()
    }

    /// The mark on the node, if it is this handoff's.
    pub fn mark(&self) -> Option<&'a Mark> {
        let uid = &self.handoff()?.meta.uid;
        self.occupancy.labels.mark.as_ref().filter(|mark| *uid == *mark.uid)
    }

    /// `<namespace>/<component>`, as in slots and cordon owners.
    pub fn owner(&self) -> String {
        self.key.to_string()
    }

    pub fn cordon_owners(&self) -> Option<&'a CordonOwners> {
        self.node.cordon.as_ref().and_then(|cordon| cordon.as_ref().ok())
    }

    pub fn holds_slot(&self) -> bool {
        self.slot.is_some_and(|slot| slot.component == self.owner())
    }

    /// Since when the phase lasts.
    pub fn phase_since(&self) -> Timestamp {
        self.status().and_then(|status| status.phase_since.as_deref()).and_then(|text| text.parse().ok()).unwrap_or(self.now)
    }

    pub fn handoff_ref(&self) -> Option<HandoffRef> {
        self.handoff().map(HandoffRef::of)
    }

    /// The running plugin pod of the version that the plugin label names, if it is Ready.
    pub fn ready_plugin(&self) -> Option<&'a Arc<PodRecord>> {
        ready_plugin(self.occupancy)
    }

    /// What the node offers of the component now: extended resources by name, DRA devices by driver.
    pub fn offered(&self) -> BTreeMap<String, i64> {
        let resources = self.occupancy.allocatable.iter();
        resources.chain(&self.occupancy.slices).map(|(name, count)| (name.to_string(), *count)).collect()
    }

    /// Nothing of the component's devices is offered.
    pub fn offers_nothing(&self) -> bool {
        self.occupancy.allocatable.values().chain(self.occupancy.slices.values()).all(|count| *count <= 0)
    }

    /// The first device that is not back to what it was, as a sentence; None: all are.
    pub fn missing_device(&self) -> Option<String> {
        let offered = self.offered();
        let empty = BTreeMap::new();
        let baseline = self.run().map_or(&empty, |run| &run.baseline);
        for (name, wanted) in baseline {
            let has = offered.get(name).copied().unwrap_or(0);
            if has < *wanted {
                return Some(format!("{name}: {has} of {wanted} allocatable"));
            }
        }
        let devices = self.desired().and_then(|version| self.version(version)).map(|view| &view.block.devices);
        let names = devices.is_some_and(|devices| !devices.resource_names.is_empty() || !devices.dra_drivers.is_empty());
        if names && offered.values().all(|count| *count <= 0) {
            let wanted = devices.map(|devices| [&devices.resource_names[..], &devices.dra_drivers[..]].concat().join(", "));
            return Some(format!("{}: none allocatable", wanted.unwrap_or_default()));
        }
        None
    }

    /// D = L = P and the plugin Ready (of a nodeplugin its pod, whatever its revision): what makes a node fit to be opened.
    pub fn works(&self) -> bool {
        if self.csi().is_some() {
            return self.ready_plugin().is_some();
        }
        if self.component.kmm.is_some() {
            return self.kmm().is_some_and(|kmm| kmm.works(self));
        }
        self.desired().is_some()
            && self.desired() == self.loader()
            && self.desired() == self.plugin()
            && self.desired() == self.loaded()
            && self.ready_plugin().is_some()
    }

    /// A blocker whose `since` goes back to when the handoff's status first named it.
    pub fn blocker(&self, kind: BlockerKind, object: ObjectRef, message: impl Into<String>) -> Blocker {
        let word = kind.word();
        let text = object.to_string();
        let recorded = self.status().and_then(|status| {
            let known = status.blockers.iter().find(|known| known.kind == word && known.object == text)?;
            known.since.parse().ok()
        });
        let since = recorded.unwrap_or_else(|| self.phase_since());
        Blocker { kind, object, message: message.into(), since }
    }

    pub fn on_node(&self, kind: BlockerKind, message: impl Into<String>) -> Blocker {
        self.blocker(kind, ObjectRef::new("Node", &self.node.name), message)
    }

    pub fn on_pod(&self, kind: BlockerKind, pod: &PodRecord, message: impl Into<String>) -> Blocker {
        self.blocker(kind, ObjectRef::new("Pod", &pod.key), message)
    }
}
