//! The phases of `csiNodePlugin`: who uses a volume that dies with the plugin pod leaves, what is attached is awaited, the pod is deleted by
//! its UID, and its successor is verified. Queue, abort, ends and the cordon are shared with every kind. Total: any facts give a verdict.

use std::sync::Arc;

use jiff::Timestamp;

use super::{
    action::{Action, Evidence, Op, PodRef},
    answers::{act, effect, enter, enter_with, wait},
    by_hand,
    cordon::{self, Cordon},
    ending,
    facts::Facts,
    in_use, offer,
    patch::whole_seconds,
    pod_state::state_of,
    shared_phases::{cordon_kept, cordoning, evictions, forget_cordon, held, preflight, uncordoning},
    start,
    transition::Transition,
    verdict::{Blocker, BlockerKind, ObjectRef, Verdict},
};
use crate::{
    api::{
        ObjectKey, Phase, Version,
        component::{CsiNodePlugin, RolloutMode, VolumeDrain},
        handoff::BY_ROLLOUT,
    },
    drain::volumes,
    fleet::{
        csi::{CsiView, revision_of},
        records::PodRecord,
        view::{Attached, Claimant, CsiOccupancy, VolumeUse},
    },
};

/// The revision that was asked for is no longer the current one, and a deleted pod would come back with another.
pub const REVISION_CHANGED: &str = "RevisionChanged";

/// What a csiNodePlugin's decision rests on beside the facts of every kind.
#[derive(Clone, Copy)]
pub struct Csi<'a> {
    pub view: &'a CsiView,
    pub here: &'a CsiOccupancy,
}

impl<'a> Facts<'a> {
    /// None: the component is of another kind.
    pub fn csi(&self) -> Option<Csi<'a>> {
        Some(Csi { view: self.component.csi.as_deref()?, here: self.occupancy.csi.as_deref()? })
    }

    /// The driver's part of the policy that the run began with.
    fn plugin_policy(&self, csi: Csi<'a>) -> &'a CsiNodePlugin {
        let run = self.run().filter(|_| self.phase() != Phase::Queued);
        run.and_then(|run| run.policy.csi_node_plugin.as_ref()).unwrap_or(&csi.view.plugin)
    }
}

impl<'a> Csi<'a> {
    /// Pods that have not ended, those being deleted too.
    fn live(&self) -> impl Iterator<Item = &'a PodRecord> {
        self.here.pods.iter().map(|pod| &**pod).filter(|pod| !pod.phase.is_terminal())
    }

    /// Pods of another revision than the current one.
    fn old(&self) -> impl Iterator<Item = &'a PodRecord> {
        let view = self.view;
        self.live().filter(move |pod| !view.is_current(pod))
    }

    /// Nobody has asked for the old pod to go yet: until then the node can be given back as it was.
    fn is_untouched(&self) -> bool {
        self.old().any(|pod| pod.meta.deletion.is_none())
    }

    /// The node's plugin pod is of the current revision, and no other is there.
    pub fn is_current(&self) -> bool {
        if self.view.plugin.remount.is_some() {
            return self.here.revision == self.view.current;
        }
        self.live().next().is_some() && self.old().next().is_none()
    }

    /// The revision that the node runs: of its oldest pod.
    pub fn revision(&self) -> Option<Version> {
        self.here.revision.clone()
    }

    /// Pods whose mounts have died already.
    pub fn stale(&self) -> impl Iterator<Item = &'a VolumeUse> {
        self.here.stale()
    }
}

/// The plugin pod was replaced by somebody else (it failed, the node returned), and mounts died under running pods.
pub fn is_unplanned(f: &Facts<'_>) -> bool {
    let Some(csi) = f.csi() else { return false };
    let idle = f.handoff().is_none_or(|handoff| handoff.status.phase.is_ended() || handoff.status.phase == Phase::Queued);
    let since = csi.view.current_since;
    let replaced = csi.view.known.len() > 1 && csi.live().all(|pod| pod.meta.created >= since);
    let ours = f.status().is_some_and(|status| {
        status
            .history
            .iter()
            .any(|end| end.phase == Phase::Done && end.target.as_deref() == csi.revision().as_ref().map(Version::as_str))
    });
    idle && replaced && !ours && csi.is_current() && csi.stale().next().is_some()
}

/// Between admission and the end.
pub(super) fn running(f: &Facts<'_>, csi: Csi<'_>) -> Verdict {
    if let Some(verdict) = abort(f).or_else(|| uncordoned(f, csi)).or_else(|| revision_changed(f, csi)) {
        return verdict;
    }
    match f.phase() {
        Phase::Preflight => preflight(f),
        Phase::Cordoning => cordoning(f),
        Phase::Draining => draining(f),
        Phase::Detaching => detaching(f, csi),
        Phase::ReplacingPod => replacing(f, csi),
        Phase::Verifying => verifying(f, csi),
        Phase::RestartingUsers => restarting(f, csi),
        Phase::Held => held(f),
        Phase::Uncordoning => uncordoning(f),
        phase => ending::fail(f, "Anomaly", format!("{phase} is no phase of a CSI nodeplugin: its status was edited")),
    }
}

/// There is no way back from a deleted pod, and none is needed: the handoff ends, and the node is opened when its plugin pod is in order,
/// whichever it is.
fn abort(f: &Facts<'_>) -> Option<Verdict> {
    let deleted = f.component.record.meta.deletion.is_some();
    if !(ending::choice_is_due(f) || deleted) || f.phase() == Phase::Uncordoning {
        return None;
    }
    Some(ending::stop(f))
}

/// A person's uncordon ends it while the old pod stays; after that the node is open anyway.
fn uncordoned(f: &Facts<'_>, csi: Csi<'_>) -> Option<Verdict> {
    let phase = match f.phase() {
        Phase::Held => f.status()?.resume_at?,
        phase => phase,
    };
    let ours = f.status()?.cordon.as_ref().is_some_and(|cordon| cordon.ours);
    let before = phase < Phase::ReplacingPod || phase == Phase::ReplacingPod && csi.is_untouched();
    match cordon::state(f) {
        Cordon::Lifted if before && phase >= Phase::Cordoning => Some(ending::aborted_by_uncordon(f)),
        Cordon::Open if before && ours && phase >= Phase::Draining => Some(ending::aborted_by_uncordon(f)),
        Cordon::Lifted | Cordon::Foreign { stale: true } if (Phase::ReplacingPod..=Phase::RestartingUsers).contains(&phase) => {
            Some(forget_cordon(f))
        }
        _ => None,
    }
}

/// Up to the pod's deletion: an OnDelete pod always takes the current template, so that another one than was asked for would come.
fn revision_changed(f: &Facts<'_>, csi: Csi<'_>) -> Option<Verdict> {
    let (run, current) = (f.run()?, csi.view.current.as_ref()?);
    let target = run.target.as_deref().map(Version::from);
    let phase = match f.phase() {
        Phase::Held => f.status()?.resume_at?,
        phase => phase,
    };
    if target.as_ref() == Some(current) || phase > Phase::ReplacingPod {
        return None;
    }
    let asked = f.spec().is_some_and(|spec| spec.version.is_some());
    let was = target.map(|target| target.to_string()).unwrap_or_default();
    if phase == Phase::ReplacingPod && !csi.is_untouched() {
        // The pod is gone already: what comes is of the new revision, and is verified as such.
        let current = current.to_string();
        let why = format!(
            "the DaemonSet's template changed from {was} to {current} while the pod was being replaced: that is what comes"
        );
        let next = Transition::new(f).edit(|status| {
            if let Some(run) = &mut status.run {
                run.target = Some(current);
            }
        });
        return Some(next.put(Evidence::Watched, why));
    }
    if asked {
        let message = format!("{was} was asked for, and nothing was replaced: {}", offer::instead(csi.view, current));
        return Some(Transition::new(f).reason(REVISION_CHANGED, &message).end(Phase::Aborted).put(Evidence::Watched, message));
    }
    let current = current.to_string();
    let why = format!("the DaemonSet's current revision changed from {was} to {current}: begin again with Preflight");
    let next = Transition::new(f).edit(|status| {
        if let Some(run) = &mut status.run {
            run.target = Some(current);
        }
    });
    Some(next.to(Phase::Preflight).put(Evidence::Watched, why))
}

/// Only who must leave is evicted; which volumes they use is written down before, for afterwards nothing tells.
fn draining(f: &Facts<'_>) -> Verdict {
    if let Some(verdict) = cordon_kept(f) {
        return verdict;
    }
    if let Some(verdict) = note_volumes(f) {
        return verdict;
    }
    if let Some(verdict) = evictions(f) {
        return verdict;
    }
    let incoming = super::evict::incoming(f);
    if !incoming.is_empty() {
        return wait(f, incoming, None);
    }
    if let Some(held_back) = in_use::not_settled(f) {
        return effect(f, held_back);
    }
    let proof = format!("no pod on {} has a mount that would die with the plugin pod: a fresh list was empty twice", f.node.name);
    enter_with(f, Phase::Detaching, Evidence::FreshTwice, &proof, |next| {
        next.edit(|status| {
            let accepted = f.observed.evictions().accepted().map(|pod| pod.uid.to_string());
            let of_this_node: Vec<String> = accepted.filter(|uid| f.observed.has_left(&f.node.name, uid)).collect();
            status.evicted.extend(of_this_node);
            status.evicted.dedup();
        })
    })
}

fn note_volumes(f: &Facts<'_>) -> Option<Verdict> {
    let csi = f.csi()?;
    let leaves = |uid: &crate::api::Uid| f.occupancy.claimants.iter().any(|claimant| claimant.pod.meta.uid == *uid);
    let known = &f.status()?.volumes;
    let of_leaving = csi.here.uses.iter().filter(|it| leaves(&it.pod.meta.uid));
    let names = of_leaving.flat_map(|it| it.volume.as_deref().into_iter().chain([&*it.handle]));
    let mut new: Vec<String> =
        names.filter(|name| !name.is_empty() && !known.iter().any(|it| it == name)).map(str::to_owned).collect();
    new.sort();
    new.dedup();
    if new.is_empty() {
        return None;
    }
    let why = format!("write down which volumes on {} must be unmounted: {}", f.node.name, new.join(", "));
    Some(Transition::new(f).edit(|status| status.volumes.extend(new)).put(Evidence::Watched, why))
}

/// A VolumeAttachment's absence, where there are any; else a time in which the kubelet unmounts, which no object tells.
fn detaching(f: &Facts<'_>, csi: Csi<'_>) -> Verdict {
    if let Some(verdict) = note_volumes(f).or_else(|| evictions(f)) {
        return verdict;
    }
    let waiting: Vec<Blocker> = awaited(f, csi).map(|it| attached(f, it)).collect();
    if !waiting.is_empty() {
        return wait(f, waiting, None);
    }
    if !csi.view.attach_required && f.status().is_some_and(|status| !status.volumes.is_empty()) {
        let settle = f.plugin_policy(csi).settle;
        let until = f.phase_since().checked_add(settle.signed()).unwrap_or(Timestamp::MAX);
        if f.now < until {
            let message = format!(
                "driver {} needs no attachment, so nothing in the API tells when its volumes are unmounted; they are given {settle}, until {}",
                csi.view.plugin.driver,
                whole_seconds(until)
            );
            return wait(f, vec![f.on_node(BlockerKind::Settling, message)], Some(until));
        }
    }
    let proof = match csi.view.attach_required {
        true => format!("no volume of this run is attached to {} any more", f.node.name),
        false => format!("the pods' volumes had {} to be unmounted", f.plugin_policy(csi).settle),
    };
    let stays = csi.old().next().is_none();
    let next = if stays { Phase::Verifying } else { Phase::ReplacingPod };
    enter(f, next, Evidence::Fresh, &proof)
}

/// Of what is attached here, what this run waits for: what its pods used, and what nobody knows not to be in use. A volume that was
/// released before, or has no object any more, may stay attached for ever.
fn awaited<'a>(f: &Facts<'a>, csi: Csi<'a>) -> impl Iterator<Item = &'a Attached> {
    let noted = f.status().map(|status| &status.volumes[..]).unwrap_or_default();
    let ours = move |it: &&Attached| {
        let named = |name: &str| !name.is_empty() && noted.iter().any(|known| *known == *name);
        it.volume.as_deref().is_some_and(named) || named(&it.handle)
    };
    csi.here.attached.iter().filter(move |it| !it.orphan || ours(it))
}

fn attached(f: &Facts<'_>, it: &Attached) -> Blocker {
    let volume = it.volume.as_deref().unwrap_or(&it.handle);
    let error = it.detach_error.as_deref().map(|error| format!("; the attacher says: {error}")).unwrap_or_default();
    match &it.attachment {
        Some(name) => {
            let message = format!("PersistentVolume {volume} is still attached to {}{error}", f.node.name);
            f.blocker(BlockerKind::VolumeAttached, ObjectRef::new("VolumeAttachment", name), message)
        }
        None => {
            let message = format!("volume {volume} of {} is still in use, as its kubelet reports{error}", it.driver);
            f.on_node(BlockerKind::VolumeAttached, message)
        }
    }
}

/// The old pod goes by its UID, on fresh facts; then the next one is awaited. Both must not be there at once for it to be over.
fn replacing(f: &Facts<'_>, csi: Csi<'_>) -> Verdict {
    if let Some(old) = csi.old().find(|pod| pod.meta.deletion.is_none()) {
        if let Some(verdict) = note_volumes(f).or_else(|| evictions(f)) {
            return verdict;
        }
        let mut waiting = super::evict::incoming(f);
        waiting.extend(f.component.refusals.iter().map(|why| refused(f, why)));
        waiting.extend(awaited(f, csi).map(|it| attached(f, it)));
        if let Err(why) = &csi.here.should_run {
            waiting.push(f.on_node(BlockerKind::PreflightRefused, not_coming_back(f, why)));
        }
        if !waiting.is_empty() {
            return wait(f, waiting, None);
        }
        if let Some(held_back) = in_use::not_settled(f) {
            return effect(f, held_back);
        }
        let was = revision_of(old).map(|hash| hash.to_string()).unwrap_or_else(|| "no known revision".to_owned());
        let why = format!(
            "delete {} ({was}): no mount on {} dies with it, and its DaemonSet makes the next one of {}",
            old.key,
            f.node.name,
            f.target().map(|target| target.to_string()).unwrap_or_default()
        );
        return act(delete(old, why));
    }
    let going: Vec<Blocker> = csi
        .here
        .pods
        .iter()
        .filter(|pod| !csi.view.is_current(pod))
        .map(|pod| f.on_pod(BlockerKind::PluginPod, pod, format!("the old plugin pod is {}", state_of(pod))))
        .collect();
    if !going.is_empty() {
        return wait(f, going, None);
    }
    if let Some(held_back) = in_use::not_settled(f) {
        return effect(f, held_back);
    }
    match f.ready_plugin() {
        Some(pod) => {
            let proof = format!(
                "plugin pod {} (UID {}) of the current revision is Ready, and the driver is registered",
                pod.key, pod.meta.uid
            );
            enter(f, Phase::Verifying, Evidence::Fresh, &proof)
        }
        None => wait(f, not_ready(f, csi), None),
    }
}

fn not_coming_back(f: &Facts<'_>, why: &str) -> String {
    format!("a deleted plugin pod would not come back to {}: {why}. Its volumes could not even be unmounted", f.node.name)
}

fn refused(f: &Facts<'_>, why: &str) -> Blocker {
    f.blocker(BlockerKind::ComponentRefused, ObjectRef::new("NodeComponent", f.key), why)
}

fn delete(pod: &PodRecord, why: String) -> Action {
    Action { op: Op::DeletePod(PodRef::of(pod)), evidence: Evidence::Fresh, why }
}

/// Why the node's plugin does not count as Ready.
pub(super) fn not_ready(f: &Facts<'_>, csi: Csi<'_>) -> Vec<Blocker> {
    let mut all = Vec::new();
    for pod in &csi.here.pods {
        let message = match pod.ready.is_true() && pod.meta.deletion.is_none() {
            true if !csi.here.registered => {
                format!("is Ready, but the CSINode of {} does not list driver {} yet", f.node.name, csi.view.plugin.driver)
            }
            _ => format!("the plugin pod is {}", state_of(pod)),
        };
        all.push(f.on_pod(BlockerKind::PluginNotReady, pod, message));
    }
    if all.is_empty() {
        let message = match &csi.here.should_run {
            Ok(()) => "no plugin pod is on the node; its DaemonSet makes one".to_owned(),
            Err(why) => format!("no plugin pod is on the node, and its DaemonSet makes none: {why}"),
        };
        all.push(f.on_node(BlockerKind::PluginNotReady, message));
    }
    all.extend(in_use::not_ready(f));
    all
}

fn verifying(f: &Facts<'_>, csi: Csi<'_>) -> Verdict {
    if csi.old().next().is_some() {
        let message = "a plugin pod of another revision is there again: its DaemonSet's template was changed";
        return wait(f, vec![f.on_node(BlockerKind::PluginPod, message)], None);
    }
    match ending::unstable(f) {
        Some((blockers, recheck)) => wait(f, blockers, recheck),
        None => {
            let next = if dead_users(csi).next().is_some() { Phase::RestartingUsers } else { Phase::Uncordoning };
            let proof = format!("the plugin pod stayed Ready and registered for {}", start::policy(f).verify.stable_for);
            enter(f, next, Evidence::Watched, &proof)
        }
    }
}

/// DaemonSet pods whose mounts died with the old plugin pod, or are to be mounted anew.
fn dead_users<'a>(csi: Csi<'a>) -> impl Iterator<Item = &'a Claimant> {
    let remount = csi.view.plugin.remount.is_some();
    csi.here.restart.iter().filter(move |claimant| remount || csi.stale().any(|it| it.pod.meta.uid == claimant.pod.meta.uid))
}

/// They were not evicted, for they would have come straight back; now they come back with a living mount. One after the other.
fn restarting(f: &Facts<'_>, csi: Csi<'_>) -> Verdict {
    if f.ready_plugin().is_none() {
        return wait(f, not_ready(f, csi), None);
    }
    let going: Vec<Blocker> = dead_users(csi)
        .filter(|claimant| claimant.pod.meta.deletion.is_some())
        .map(|claimant| f.on_pod(BlockerKind::Terminating, &claimant.pod, "is stopping; its mount died with the old plugin pod"))
        .collect();
    if !going.is_empty() {
        return wait(f, going, None);
    }
    if let Some(next) = dead_users(csi).min_by(|a, b| a.pod.key.cmp(&b.pod.key)) {
        let why = format!("restart {}: its mount died with the old plugin pod, and its DaemonSet brings it back", next.pod.key);
        return act(delete(&next.pod, why));
    }
    let begun = Timestamp::from_second(f.phase_since().as_second()).unwrap_or(f.phase_since());
    let coming = csi.here.uses.iter().map(|it| &it.pod).filter(|pod| {
        let daemon = pod.owner.as_ref().is_some_and(|owner| owner.is_daemon_set());
        daemon && pod.meta.created.is_some_and(|at| at >= begun) && !pod.ready.is_true()
    });
    let coming: Vec<Blocker> =
        coming.map(|pod| f.on_pod(BlockerKind::PluginNotReady, pod, format!("was restarted and is {}", state_of(pod)))).collect();
    if !coming.is_empty() {
        return wait(f, coming, None);
    }
    enter(f, Phase::Uncordoning, Evidence::Fresh, "every DaemonSet pod with a volume of the driver has a living mount")
}

/// With `drain: None` nobody leaves: which mounts die all the same, by the driver's rules.
pub(super) fn left_to_die(f: &Facts<'_>, csi: Csi<'_>) -> Option<String> {
    if f.plugin_policy(csi).drain != VolumeDrain::None || csi.is_current() {
        return None;
    }
    let daemon = |pod: &PodRecord| pod.owner.as_ref().is_some_and(|owner| owner.is_daemon_set());
    let mut pods: Vec<String> = csi
        .here
        .uses
        .iter()
        .filter(|it| it.used && it.risk.dies() && !daemon(&it.pod))
        .map(|it| it.pod.key.to_string())
        .collect();
    pods.sort();
    pods.dedup();
    (!pods.is_empty()).then(|| {
        format!(
            "drain is None, so that nobody leaves {}: by the rules of {} these pods lose their mounts with the plugin pod: {}",
            f.node.name,
            csi.view.plugin.driver,
            pods.join(", ")
        )
    })
}

/// Other DaemonSets of the driver: whichever pod of two on a node comes last has its socket, and whichever goes takes the registration along.
pub(super) fn twins(f: &Facts<'_>, csi: Csi<'_>) -> Vec<String> {
    let here = |twin: &ObjectKey| {
        let owned = |pod: &&Arc<PodRecord>| {
            *pod.key.namespace == *twin.namespace
                && pod.owner.as_ref().is_some_and(|owner| owner.is_daemon_set() && *owner.name == *twin.name)
        };
        f.node.pods.iter().find(owned).map(|pod| format!(", and its pod {} is on this node", pod.key)).unwrap_or_default()
    };
    let text = |twin: &ObjectKey| {
        format!(
            "DaemonSet {twin} registers {} too{}: where the pods of both are on a node each takes the driver's socket from the other, and the end \
             of one takes its registration along. Keep one of them off these nodes, or delete it before the handoff",
            csi.view.plugin.driver,
            here(twin)
        )
    };
    csi.view.twins.iter().map(text).collect()
}

/// What speaks against a handoff of this kind on this node, beside what is asked of every kind.
pub(super) fn refusals(f: &Facts<'_>, csi: Csi<'_>, all: &mut Vec<Blocker>) {
    let current = csi.view.current.as_ref();
    if let Some((asked, current)) = f.target().zip(current).filter(|(asked, current)| asked != *current) {
        all.push(f.blocker(
            BlockerKind::UnknownVersion,
            ObjectRef::new("NodeComponent", f.key),
            format!("{asked} was asked for: {}", offer::instead(csi.view, current)),
        ));
    }
    if csi.here.pods.is_empty() {
        all.push(missing(f, csi));
    } else if let Err(why) = &csi.here.should_run
        && csi.old().next().is_some()
    {
        all.push(f.on_node(BlockerKind::PreflightRefused, not_coming_back(f, why)));
    }
    for pod in csi.here.pods.iter().filter(|pod| pod.phase.is_terminal()) {
        let message =
            format!("the plugin pod is {}: its DaemonSet replaces it by itself, with the current revision", state_of(pod));
        all.push(f.on_pod(BlockerKind::PluginPod, pod, message));
    }
    if !csi.here.registered && !f.occupancy.claimants.is_empty() && !csi.here.pods.is_empty() {
        all.push(f.on_node(
            BlockerKind::PluginNotReady,
            format!(
                "its CSINode does not list driver {}: the kubelet cannot unmount its volumes, and pods that leave would hang in \
                 Terminating. Repair the plugin pod first",
                csi.view.plugin.driver
            ),
        ));
    }
}

/// A node of the component without a plugin pod.
fn missing(f: &Facts<'_>, csi: Csi<'_>) -> Blocker {
    let hint = match &csi.here.should_run {
        Ok(()) => "its DaemonSet should make one: look at its events".to_owned(),
        Err(why) => format!("its DaemonSet makes none: {why}"),
    };
    let message = format!(
        "the plugin pod of {} is missing on {}: the kubelet can neither mount nor unmount its volumes, and pods that use them hang. Bring \
         the plugin pod back ({hint}); do not delete those pods by force",
        csi.view.plugin.driver, f.node.name
    );
    f.on_node(BlockerKind::PluginMissing, message)
}

/// A node that nobody works on: what a person should know of it all the same. None: nothing.
pub(super) fn at_rest(f: &Facts<'_>) -> Option<Verdict> {
    let csi = f.csi()?;
    f.record()?;
    let hangs = !csi.here.uses.is_empty() && csi.here.pods.is_empty();
    if hangs {
        return Some(wait(f, vec![missing(f, csi)], None));
    }
    let mut pods: Vec<String> = csi.stale().map(|it| it.pod.key.to_string()).collect();
    pods.sort();
    pods.dedup();
    if pods.is_empty() {
        return None;
    }
    let dead = format!(
        "the mounts of {} died with the plugin process before: delete these pods (a restarted container keeps a dead mount)",
        pods.join(", ")
    );
    let blocker = if is_unplanned(f) {
        let message = format!(
            "the plugin pod was replaced without a handoff (it failed, was evicted, or the node came back): {dead}, or finish it with a \
             handoff, which evicts them"
        );
        f.on_node(BlockerKind::UnplannedUpgrade, message)
    } else {
        f.on_node(BlockerKind::StaleMount, dead)
    };
    Some(wait(f, vec![blocker], None))
}

/// What an automatic rollout asks for: every node whose plugin pod is not of the current revision, and those that lost mounts.
pub(super) fn automatic(f: &Facts<'_>, csi: Csi<'_>) -> Option<Verdict> {
    let component = &f.component.record;
    let policy = f.component.spec()?;
    let aim = csi.view.current.clone()?;
    let free = f.handoff().is_none_or(|handoff| handoff.meta.deletion.is_none());
    let wanted = policy.rollout.mode == RolloutMode::Auto
        && f.occupancy.selected
        && f.component.refusals.is_empty()
        && component.meta.deletion.is_none()
        && f.record().is_some()
        && free;
    let needed = !csi.is_current() || is_unplanned(f);
    if !wanted {
        return None;
    }
    let why = format!("the rollout of {} aims at revision {aim}", f.key);
    match f.spec() {
        None => needed.then(|| by_hand::ask(f, Some(aim), BY_ROLLOUT, why)),
        Some(spec) => {
            let elsewhere = by_hand::asked_for_elsewhere(f, spec, &aim, needed);
            elsewhere.then(|| by_hand::ask(f, Some(aim), BY_ROLLOUT, why))
        }
    }
}

/// The node runs what is asked for, and no mount on it is dead.
pub(super) fn runs_target(f: &Facts<'_>, csi: Csi<'_>) -> bool {
    csi.is_current()
        && f.works()
        && f.target() == csi.view.current
        && csi.stale().next().is_none()
        && f.occupancy.labels.mark.is_none()
        && matches!(cordon::state(f), Cordon::Open | Cordon::Foreign { stale: false })
}

/// Its restarts: another count is another process.
pub(super) fn restarts(pod: &PodRecord) -> i32 {
    let containers = pod.extra.as_ref().map(|extra| &extra.containers[..]).unwrap_or_default();
    containers.iter().map(|it| it.restarts).sum()
}

impl CsiOccupancy {
    /// The one plugin pod, if it is Ready with all its containers and its driver is registered.
    pub fn ready_pod(&self) -> Option<&std::sync::Arc<PodRecord>> {
        let mut live = self.pods.iter().filter(|pod| !pod.phase.is_terminal());
        let (pod, other) = (live.next()?, live.next());
        let containers = pod.extra.as_ref().map(|extra| &extra.containers[..]).unwrap_or_default();
        let whole = containers.iter().filter(|it| !it.init).all(|it| it.ready);
        (other.is_none() && self.registered && pod.meta.deletion.is_none() && pod.ready.is_true() && whole).then_some(pod)
    }

    /// Uses whose mounts died with the process that served them. While a node is being handed over some are expected.
    pub fn stale(&self) -> impl Iterator<Item = &VolumeUse> {
        self.uses.iter().filter(|it| it.stale)
    }

    /// Since when the process that serves the mounts runs.
    pub fn began(&self) -> Option<Timestamp> {
        self.ready_pod().and_then(|pod| volumes::began(pod))
    }
}

#[cfg(test)]
mod tests;
