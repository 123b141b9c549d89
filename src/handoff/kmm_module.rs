//! The phases of `kernelModule.kmmModule`: KMM loads and unloads, lockkeeper decides when and where. Who uses the device leaves, KMM's version
//! label is moved, and what KMM does is proven by its own records. Of KMM's things nothing but that label is ever written. Total.

mod abort;
mod asked;
mod failing;
mod kernel;
mod planned;
mod seen;
mod speaks_against;
mod stranded;
mod waits;

use super::{
    action::Evidence,
    answers::{act, effect, enter, enter_with, wait},
    attempt::uncordoned,
    ending,
    facts::Facts,
    in_use,
    patch::NodeEdit,
    shared_phases::{cordon_kept, cordoning, detaching, drained, evictions, held, preflight, uncordoning},
    start,
    verdict::{Blocker, BlockerKind, ObjectRef, Verdict},
};
use crate::{
    api::{
        Phase, Version,
        handoff::HandoffAction,
        keys::{DesiredBy, Loaded, Role},
    },
    fleet::{
        kmm::KmmView,
        records::{PodRecord, Str},
        view::KmmOccupancy,
    },
    kmm::{
        NodeModule,
        keys::{Era, Label},
        problem::Place,
        triple::{Move, Triple},
    },
};
use jiff::SignedDuration;

pub use asked::{automatic, label_order};
pub use kernel::is_there;
pub(super) use planned::{phases, writes};
pub use seen::KmmSeen;
pub(super) use speaks_against::{at_rest, disturbance, fate, refusals, runs_target, swap_needed, warnings};
pub(super) use stranded::{is_out_already, is_stranded, left_over};
pub(super) use waits::{cure, plugin_not_ready};

/// KMM's next try of a polled wait is woken when it is further away than this.
const WORTH_WAKING: SignedDuration = SignedDuration::from_secs(2);

/// What the decision of a followed Module rests on beside the facts of every kind.
#[derive(Clone, Copy)]
pub struct Followed<'a> {
    pub view: &'a KmmView,
    pub here: &'a KmmOccupancy,
    /// Where the Module stands on the node.
    pub module: &'a NodeModule,
}

impl<'a> Facts<'a> {
    /// None: the component is of another kind, or the Node does not exist.
    pub fn kmm(&self) -> Option<Followed<'a>> {
        let here = self.occupancy.kmm.as_deref()?;
        Some(Followed { view: self.component.kmm.as_deref()?, here, module: here.here.as_ref()? })
    }

    /// The key of the label that says what the node shall run.
    pub fn desired_key(&self) -> String {
        match &self.component.kmm {
            Some(view) => Label::Desired.key(&view.key, Era::Third).unwrap_or_default(),
            None => Role::Desired.key(self.key),
        }
    }
}

impl<'a> Followed<'a> {
    pub fn labels(&self) -> &'a Triple {
        &self.module.labels
    }

    fn moves(&self) -> Move {
        self.labels().row().moves()
    }

    /// The version (or image, without one) that is proven to be in the kernel.
    pub fn loaded(&self) -> Option<Version> {
        self.module.loaded.clone().map(Version::from)
    }

    /// The Module has something that offers its devices.
    pub fn has_plugin(&self) -> bool {
        self.view.module.as_ref().is_some_and(|module| module.plugin || module.dra)
    }

    fn place(&self, f: &'a Facts<'_>) -> Place<'a> {
        Place { node: f.node.name.as_str(), module: &self.view.key, spec: self.view.module.as_deref() }
    }

    fn object(&self) -> ObjectRef {
        ObjectRef::new("Module", &self.view.key)
    }

    /// Plugin pods of another version than this one.
    fn old_plugins(&self, f: &'a Facts<'_>, target: Option<&'a Version>) -> impl Iterator<Item = &'a PodRecord> {
        let key = &self.view.key;
        f.occupancy.plugin_pods.iter().map(|pod| &**pod).filter(move |pod| {
            let of = version_of(pod, key);
            target.is_none() || of.as_deref() != target.map(Version::as_str)
        })
    }

    /// It runs as the labels ask, and its plugin is Ready.
    pub fn works(&self, f: &Facts<'_>) -> bool {
        let loaded = self.loaded();
        loaded.is_some()
            && loaded.as_ref() == f.desired()
            && f.desired() == f.loader()
            && f.desired() == f.plugin()
            && (!self.has_plugin() || f.ready_plugin().is_some())
    }
}

/// The version that a plugin pod was made for.
fn version_of(pod: &PodRecord, module: &crate::api::ObjectKey) -> Option<Str> {
    Label::Schedule.keys(module).iter().find_map(|key| pod.labels.get(&**key)).cloned()
}

/// The plugin or DRA pod of the version that KMM lets run, if it is Ready and stays.
pub(super) fn ready_plugin<'o>(
    occupancy: &'o crate::fleet::view::Occupancy,
    kmm: &KmmOccupancy,
) -> Option<&'o std::sync::Arc<PodRecord>> {
    let (version, module) = (occupancy.labels.plugin.as_ref()?, &kmm.here.as_ref()?.module);
    occupancy.plugin_pods.iter().find(|pod| {
        pod.meta.deletion.is_none()
            && pod.ready.is_true()
            && !pod.phase.is_terminal()
            && version_of(pod, module).is_some_and(|of| *of == *version.as_str())
    })
}

/// Between admission and the end.
pub(super) fn running(f: &Facts<'_>, k: Followed<'_>) -> Verdict {
    failing::told(f, k, next(f, k))
}

fn next(f: &Facts<'_>, k: Followed<'_>) -> Verdict {
    if let Some(verdict) = abort::abort(f, k).or_else(|| label_edited(f)).or_else(|| uncordoned(f)) {
        return verdict;
    }
    match f.phase() {
        Phase::Preflight => preflight(f),
        Phase::Cordoning => cordoning(f),
        Phase::Draining => cordon_kept(f).unwrap_or_else(|| drained(f)),
        Phase::Detaching => detaching(f),
        Phase::StoppingPlugin => stopping_plugin(f, k),
        Phase::Unloading => unloading(f, k),
        Phase::Held => held(f),
        Phase::Loading => loading(f, k),
        Phase::StartingPlugin => starting_plugin(f, k),
        Phase::Verifying => verifying(f, k),
        Phase::Uncordoning => uncordoning(f),
        phase => ending::fail(f, "Anomaly", format!("{phase} is no phase of a Module of KMM: its status was edited")),
    }
}

/// What the running attempt has done to KMM's label.
fn label_by(f: &Facts<'_>) -> DesiredBy {
    let attempt = f.run().map(|run| run.attempt);
    f.mark().filter(|mark| Some(mark.attempt) == attempt).map_or(DesiredBy::Kept, |mark| mark.desired)
}

/// Nobody asks to stop between here and the load, and nobody used the device: one change of the label takes KMM all the way.
fn goes_straight(f: &Facts<'_>) -> bool {
    f.spec().is_some_and(|spec| {
        let pauses = [Phase::StoppingPlugin, Phase::Unloading].iter().any(|phase| spec.pause_after.contains(phase));
        spec.action == HandoffAction::Run && !pauses
    }) && !f.abort_asked()
        && !f.is_giving_back()
}

fn is_short(f: &Facts<'_>, k: Followed<'_>) -> bool {
    let nobody = f.occupancy.claimants.is_empty() && f.status().is_some_and(|status| status.evicted.is_empty());
    f.target().is_some() && nobody && goes_straight(f) && k.labels().row().0 == 6 && waits::not_loadable(f, k).is_empty()
}

/// The record of what is being taken out: in which boot KMM had it down as loaded. Without such an entry what was recorded before stays.
fn leaving(f: &Facts<'_>, k: Followed<'_>) -> Option<Loaded> {
    let boot = f.boot()?;
    match &k.here.recorded {
        Some(entry) if entry.boot_id == *boot => {
            let version = entry.version.clone().unwrap_or_else(|| entry.image.clone());
            Some(Loaded { version: Version::from(version), stopped_boot: Some(boot.clone()) })
        }
        _ => f.occupancy.labels.loaded.clone(),
    }
}

/// The label goes, or moves on where nobody stands in between; then the plugin's pod must be gone. KMM unloads right after it.
fn stopping_plugin(f: &Facts<'_>, k: Followed<'_>) -> Verdict {
    if let Some(verdict) = evictions(f) {
        return verdict;
    }
    let target = f.target();
    let by_label = f.is_by_label();
    if !by_label && f.desired().is_some() && f.desired() != target.as_ref() {
        if let Some(held_back) = in_use::in_use(f) {
            return effect(f, held_back);
        }
        let mut against = waits::stuck(f, k);
        // What was found in Preflight may be another thing by now, and after this step there is no way back.
        against.extend(
            f.component
                .refusals
                .iter()
                .map(|why| f.blocker(BlockerKind::ComponentRefused, ObjectRef::new("NodeComponent", f.key), why.clone())),
        );
        against.extend(waits::not_loadable(f, k));
        if !against.is_empty() {
            return wait(f, against, None);
        }
        let loading = waits::loading(f, k);
        if !loading.is_empty() {
            return wait(f, loading, waits::look_again(f));
        }
        let record = leaving(f, k);
        let edit = NodeEdit::new(f).loaded(record.as_ref());
        let action = match target.as_ref().filter(|_| is_short(f, k)) {
            Some(target) => edit.label(Role::Desired, Some(target)).desired_by(DesiredBy::Set).fresh(format!(
                "let KMM take {} from {} to {target}: nobody uses the device there",
                f.node.name,
                f.desired().map(Version::as_str).unwrap_or_default()
            )),
            None => edit
                .label(Role::Desired, None)
                .desired_by(DesiredBy::Removed)
                .fresh(format!("take KMM's version label off {}: it stops the plugin, then unloads", f.node.name)),
        };
        return act(action);
    }
    let going: Vec<Blocker> = k
        .old_plugins(f, target.as_ref())
        .map(|pod| {
            let message = format!(
                "the plugin pod (UID {}) is {}; KMM unloads once it is gone",
                pod.meta.uid,
                super::pod_state::state_of(pod)
            );
            f.on_pod(BlockerKind::PluginPod, pod, message)
        })
        .collect();
    let schedule_left = f.plugin().is_some() && (f.plugin() != target.as_ref() || f.desired().is_none());
    if schedule_left {
        let mut blockers = waits::stuck(f, k);
        if blockers.is_empty() {
            blockers = going;
            let (moving, recheck) = waits::kmm_moves(f, k, "take its plugin label off");
            blockers.push(moving);
            return wait(f, blockers, recheck);
        }
        return wait(f, blockers, None);
    }
    if !going.is_empty() {
        let mut blockers = going;
        blockers.extend(in_use::not_ready(f));
        return wait(f, blockers, None);
    }
    if let Some(held_back) = in_use::not_settled(f) {
        return effect(f, held_back);
    }
    if let Some(verdict) = wake(f, k) {
        return verdict;
    }
    let proof = format!("no plugin pod of another version is on {} any more", f.node.name);
    enter_with(f, Phase::Unloading, Evidence::Fresh, &proof, |next| {
        next.copy(f.desired().map(Version::as_str), start::record_text(f))
    })
}

/// KMM polls for the plugin's end, further and further apart; a change of the version label starts a try at once. The one that comes next
/// anyway does, where nobody wants to stop before it.
fn wake(f: &Facts<'_>, k: Followed<'_>) -> Option<Verdict> {
    let target = f.target()?;
    let due = f.observed.kmm(&f.node.name, f.key)?.next_try(f.now)?;
    let worth = due.duration_since(f.now) > WORTH_WAKING;
    let safe = !f.is_by_label()
        && f.desired().is_none()
        && label_by(f) == DesiredBy::Removed
        && k.moves() == Move::RemoveLoader
        && in_use::claimants(f).is_empty()
        && goes_straight(f)
        && waits::not_loadable(f, k).is_empty();
    (worth && safe).then(|| {
        let edit = NodeEdit::new(f).label(Role::Desired, Some(&target)).desired_by(DesiredBy::Set);
        act(edit.fresh(format!(
            "wake KMM on {}: the plugin is gone, and it would look again only at {}; {target} is what comes next",
            f.node.name,
            super::patch::whole_seconds(due)
        )))
    })
}

/// Proven by what KMM has recorded, never by a label or a pod that is no longer there.
fn unloading(f: &Facts<'_>, k: Followed<'_>) -> Verdict {
    if let Some(verdict) = evictions(f) {
        return verdict;
    }
    let target = f.target();
    // KMM would go on to load it, and a person wants to be asked before.
    let on_its_way = target.is_some() && f.loader() == target.as_ref();
    if ending::choice_is_due(f) && label_by(f) == DesiredBy::Set && f.desired().is_some() && !on_its_way && !f.is_by_label() {
        let edit = NodeEdit::new(f).label(Role::Desired, None).desired_by(DesiredBy::Removed);
        return act(
            edit.fresh(format!("take KMM's version label off {} again: a person wants to stop after the unload", f.node.name))
        );
    }
    if on_its_way && (k.loaded() == target || k.here.recorded.is_none() && k.here.wanted.is_some()) {
        let proof = format!(
            "KMM has taken {} out of {} and asks for {} there: its entry in the NodeModulesConfig says so",
            f.run().and_then(|run| run.from.as_deref()).unwrap_or("what was there"),
            f.node.name,
            target.map(|target| target.to_string()).unwrap_or_default()
        );
        return enter(f, Phase::Loading, Evidence::Fresh, &proof);
    }
    match kernel::out(f, k) {
        Err((blockers, recheck)) => wait(f, blockers, recheck),
        Ok(proof) if ending::choice_is_due(f) => ending::await_choice(f, Phase::Loading, Some(&proof)),
        Ok(proof) if target.is_some() => enter(f, Phase::Loading, Evidence::Fresh, &proof),
        Ok(proof) => enter_with(f, Phase::Uncordoning, Evidence::Fresh, &proof, |next| next.copy(None, None)),
    }
}

/// The label says the target; KMM's Load pod must succeed, and its entry be recorded in this boot.
fn loading(f: &Facts<'_>, k: Followed<'_>) -> Verdict {
    let Some(target) = f.target() else {
        return ending::fail(f, "Anomaly", "the run has no version to load: its status was edited".to_owned());
    };
    let record = Loaded { version: target.clone(), stopped_boot: None };
    if !f.is_by_label() && f.desired() != Some(&target) {
        let mut against = in_use::not_ready(f);
        against.extend(waits::stuck(f, k));
        if !f.is_giving_back() {
            against.extend(waits::not_loadable(f, k));
            if k.loaded().as_ref() != Some(&target)
                && let Err((blockers, _)) = kernel::out(f, k)
            {
                against.extend(blockers);
            }
        }
        if !against.is_empty() {
            return wait(f, against, None);
        }
        let edit = NodeEdit::new(f).label(Role::Desired, Some(&target)).desired_by(DesiredBy::Set).loaded(Some(&record));
        return act(edit.loader_boot(f.now).fresh(format!("let KMM load {target} on {}", f.node.name)));
    }
    let proven = k.loaded().as_ref() == Some(&target) && f.loader() == Some(&target);
    if !f.is_by_label() && !proven && f.occupancy.labels.loaded.as_ref() != Some(&record) {
        let edit = NodeEdit::new(f).loaded(Some(&record)).loader_boot(f.now);
        return act(edit.fresh(format!("record that {target} may be in the kernel of {}: KMM loads it", f.node.name)));
    }
    if !proven {
        let (blockers, recheck) = waits::not_loaded(f, k, &target);
        return wait(f, blockers, recheck);
    }
    // Before the phase ends: held after it, what becomes of the module is KMM's to record.
    if let Some(done) = on_kmms_record(f) {
        return done;
    }
    let entry = k.here.recorded.as_ref();
    let proof = format!(
        "KMM has recorded {target} as loaded on {} in boot {} ({}); no worker pod is there",
        f.node.name,
        entry.map(|entry| entry.boot_id.as_str()).unwrap_or_default(),
        entry.map(|entry| &*entry.image).unwrap_or_default()
    );
    enter(f, Phase::StartingPlugin, Evidence::Fresh, &proof)
}

/// The load is proven by KMM's own record. Kept beside it, ours would speak of a load that nobody saw the end of once that entry is gone.
fn on_kmms_record(f: &Facts<'_>) -> Option<Verdict> {
    (f.occupancy.labels.loaded.is_some() && !f.is_by_label()).then(|| {
        act(NodeEdit::new(f).loaded(None).fresh(format!(
            "KMM has on record what is loaded on {}: lockkeeper's own record is not needed any more",
            f.node.name
        )))
    })
}

fn starting_plugin(f: &Facts<'_>, k: Followed<'_>) -> Verdict {
    if let Some(verdict) = lost_again(f, k) {
        return verdict;
    }
    if let Some(done) = on_kmms_record(f) {
        return done;
    }
    if !k.has_plugin() {
        let proof = format!("Module {} has neither a device plugin nor a DRA driver", k.view.key);
        return enter(f, Phase::Verifying, Evidence::Watched, &proof);
    }
    match in_use::plugin_not_ready(f) {
        blockers if !blockers.is_empty() => wait(f, blockers, None),
        _ => {
            let pod = f.ready_plugin().map(|pod| format!("{} (UID {})", pod.key, pod.meta.uid)).unwrap_or_default();
            enter(f, Phase::Verifying, Evidence::Watched, &format!("plugin pod {pod} is Ready"))
        }
    }
}

/// What was proven to be loaded is not any more: a cordon or NotReady that KMM does not tolerate, an edited Module, a reboot.
fn lost_again(f: &Facts<'_>, k: Followed<'_>) -> Option<Verdict> {
    let target = f.target()?;
    if k.loaded().as_ref() == Some(&target) && f.loader() == Some(&target) {
        return None;
    }
    let (blockers, recheck) = waits::not_loaded(f, k, &target);
    Some(wait(f, blockers, recheck))
}

/// Devices must come back and stay; KMM's `.version.ready` is awaited and proves nothing by itself.
fn verifying(f: &Facts<'_>, k: Followed<'_>) -> Verdict {
    if let Some(verdict) = lost_again(f, k) {
        return verdict;
    }
    if let Some((blockers, recheck)) = ending::unstable(f) {
        return wait(f, blockers, recheck);
    }
    let labels = k.labels();
    let said = labels.version_ready.as_deref();
    let target = f.target();
    // Generations before 2.6 have no such label.
    if !labels.ready || said.is_some_and(|said| target.as_ref().is_none_or(|target| *said != *target.as_str())) {
        let (moving, recheck) = waits::kmm_moves(f, k, "say in its .version.ready label what it has loaded");
        return wait(f, vec![moving], recheck);
    }
    let offered: Vec<String> = f.offered().iter().map(|(name, count)| format!("{name}: {count}")).collect();
    let stable = start::policy(f).verify.stable_for;
    let offered = if offered.is_empty() { "no device is named".to_owned() } else { offered.join(", ") };
    let proof = format!("plugin Ready and allocatable back ({offered}), stable for {stable}");
    enter(f, Phase::Uncordoning, Evidence::Watched, &proof)
}

/// From the first write of the label to Verifying: a label that the mark and the phase do not explain is somebody's order.
fn label_edited(f: &Facts<'_>) -> Option<Verdict> {
    let phase = match f.phase() {
        Phase::Held => f.status()?.resume_at?,
        phase => phase,
    };
    let run = f.run()?;
    if !(Phase::Cordoning..=Phase::Verifying).contains(&phase) {
        return None;
    }
    let (by, target) = (label_by(f), f.target());
    let began = run.desired.as_deref().map(Version::from);
    let wanted = match by {
        DesiredBy::Kept => began.clone(),
        DesiredBy::Removed => None,
        DesiredBy::Set => target.clone(),
    };
    // The mark may be of another target that this attempt had before somebody changed it.
    let earlier = by == DesiredBy::Set && phase == Phase::StoppingPlugin && f.desired() == began.as_ref();
    if f.desired() == wanted.as_ref() || earlier {
        return None;
    }
    let say = |version: Option<&Version>| version.map_or_else(|| "no version".to_owned(), ToString::to_string);
    let message = format!(
        "somebody changed the label {} on {} to {} in {phase}, where this handoff has {}: the order of who edits the label counts",
        f.desired_key(),
        f.node.name,
        say(f.desired()),
        say(wanted.as_ref()),
    );
    Some(ending::fail(f, ending::LABEL_EDITED, message))
}

#[cfg(test)]
mod tests;
