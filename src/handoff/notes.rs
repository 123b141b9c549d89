//! What a handoff says beside what it waits for: a pause that will not come, and edits of its component that it does not follow. It holds
//! nothing up.

use super::{
    answers::on_handoff,
    facts::Facts,
    phases,
    verdict::{Blocker, BlockerKind, ObjectRef, Verdict},
};
use crate::api::{
    NodeComponentSpec, Phase, Version,
    component::ComponentKind,
    handoff::{Run, RunPolicy},
};

/// The verdict, with the notes beside what is waited for.
pub(super) fn told(f: &Facts<'_>, verdict: Verdict) -> Verdict {
    let phase = f.phase();
    // What a Held one waits for is written down once, as it becomes so.
    if f.handoff().is_none_or(|it| it.spec.is_err()) || phase.is_ended() || phase == Phase::Held {
        return verdict;
    }
    let Verdict::Wait(mut waited) = verdict else { return verdict };
    waited.blockers.extend(no_pause(f));
    if let Some(run) = f.run().filter(|_| phase != Phase::Queued) {
        let told = |kind| waited.blockers.iter().any(|blocker| blocker.kind == kind);
        let changed =
            if told(BlockerKind::ComponentRefused) { Vec::new() } else { changed(f, run, told(BlockerKind::KmmVersion)) };
        let object = || ObjectRef::new("NodeComponent", f.key);
        waited.blockers.extend(changed.into_iter().map(|message| f.blocker(BlockerKind::SpecChanged, object(), message)));
    }
    Verdict::Wait(waited)
}

/// `pauseAfter` of a phase that the kind does not have.
fn no_pause(f: &Facts<'_>) -> Option<Blocker> {
    let asked = &f.spec()?.pause_after;
    let message = no_such_pause(f.kind(), asked)?;
    Some(on_handoff(f, BlockerKind::PauseSkipped, format!("it will not pause as asked: {message}")))
}

/// Why a handoff of this kind never pauses after one of these phases, with those after which it does; None: it may.
pub fn no_such_pause(kind: ComponentKind, asked: &[Phase]) -> Option<String> {
    let odd: Vec<&str> =
        asked.iter().filter(|phase| !phases::pausable(kind).any(|it| it == **phase)).map(|it| it.as_str()).collect();
    let known: Vec<&str> = phases::pausable(kind).map(Phase::as_str).collect();
    let of = match kind {
        ComponentKind::KernelModule => "a kernel module",
        ComponentKind::KmmModule => "a Module of KMM",
        ComponentKind::CsiNodePlugin => "a CSI nodeplugin",
    };
    (!odd.is_empty())
        .then(|| format!("a handoff of {of} never stops after {}; it may after {}", odd.join(", "), known.join(", ")))
}

/// Edits of the component since the attempt began that it does not follow.
fn changed(f: &Facts<'_>, run: &Run, version_told: bool) -> Vec<String> {
    let mut all = Vec::new();
    let Some(target) = run.target.as_deref().map(Version::from).filter(|_| !f.is_giving_back()) else { return all };
    let spec = match &f.component.record.spec {
        Ok(spec) => spec,
        Err(why) => {
            all.push(format!("its spec does not decode any more ({why}): this goes on with what it began with"));
            return all;
        }
    };
    let aim = f.component.aim();
    let moved = aim.filter(|aim| run.aim.as_deref() != Some(aim.as_str()) && *aim != target && f.csi().is_none());
    if let Some(aim) = moved.filter(|_| !version_told) {
        let where_ = match &f.component.kmm {
            Some(kmm) => format!("Module {} is at {aim} now, and KMM loads nothing else", kmm.key),
            None => format!("spec.version is {aim} now"),
        };
        let way = match f.component.kmm.is_some() && f.phase() < Phase::StartingPlugin {
            true => format!("put {target} and its image back into the Module, or abort and ask for {aim}"),
            false => format!("it ends with {target}; hand the node over to {aim} afterwards, or abort first"),
        };
        all.push(format!("{where_}, and this handoff heads for {target} since it began: {way}"));
    }
    if f.component.changed_without_version && *spec.version == *target.as_str() {
        all.push(format!(
            "spec.kernelModule was changed under version {target}: what is handed over is what that version's DaemonSets were made from. Give the \
             new content a new version"
        ));
    }
    if !f.occupancy.selected && f.record().is_some() {
        let more = if f.component.kmm.is_some() { " and its Module's: KMM keeps nothing where it does not select" } else { "" };
        all.push(format!(
            "{} does not match its nodeSelector{more}; this ends as it began, and nothing follows by itself",
            f.node.name
        ));
    }
    let other = other_policy(spec, &run.policy);
    if !other.is_empty() {
        all.push(format!(
            "{} changed since this attempt began, which ends under what it began with. To have the new: abort, and ask again",
            other.join(", ")
        ));
    }
    all
}

/// What of the policy is another one in the spec than the run began with.
fn other_policy(spec: &NodeComponentSpec, run: &RunPolicy) -> Vec<&'static str> {
    [
        ("spec.drain", spec.drain != run.drain),
        ("spec.deadlines", spec.deadlines != run.deadlines),
        ("spec.verify", spec.verify != run.verify),
        ("spec.csiNodePlugin", spec.csi_node_plugin != run.csi_node_plugin),
    ]
    .into_iter()
    .filter_map(|(field, other)| other.then_some(field))
    .collect()
}
