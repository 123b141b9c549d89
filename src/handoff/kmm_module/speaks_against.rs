//! What speaks against a handoff of a followed Module before anything is written, what a person should know, and what is wrong on nodes that
//! nobody works on.

use super::{Followed, kernel, waits};
use crate::{
    api::{Phase, Version},
    handoff::{
        answers::wait,
        cordon::{self, Cordon},
        facts::Facts,
        start,
        verdict::{Blocker, BlockerKind, Verdict},
    },
    kmm::{
        Problem, State,
        keys::{Era, Label},
        problem::Weight,
        triple::Move,
    },
};

/// Of this kind on this node, beside what is asked of every kind.
pub(in crate::handoff) fn refusals(f: &Facts<'_>, k: Followed<'_>, all: &mut Vec<Blocker>) {
    if let Some(target) = f.target() {
        if !k.view.versions.iter().any(|known| **known == *target.as_str()) {
            let known: Vec<&str> = k.view.versions.iter().map(|known| &**known).collect();
            let message = format!("{target} is no version of the Module; known are {}", known.join(", "));
            all.push(f.blocker(BlockerKind::UnknownVersion, k.object(), message));
        }
        all.extend(waits::not_loadable(f, k));
    }
    labels(f, k, all);
    versions(f, k, all);
    let closes = cordon::is_wanted(f, &start::policy(f)) || f.record().is_some_and(|record| record.unschedulable);
    if let Some(trap) = k.view.trap().filter(|trap| trap.cordon && closes) {
        let message = format!(
            "the Module does not tolerate {}: {} makes KMM unload under whatever runs there, in any order. Before the node is closed, {}",
            trap.taints.join(", "),
            trap.what(),
            waits::tolerate(k)
        );
        all.push(f.blocker(BlockerKind::KmmTolerations, k.object(), message));
    }
    // An earlier attempt's load that nobody saw the end of: the drain would be for nothing.
    let idle = k.here.workers.is_empty() && k.here.recorded.is_none() && k.here.wanted.is_none();
    if idle
        && f.occupancy.labels.loaded.is_some()
        && let Err((blockers, _)) = kernel::out(f, k)
    {
        all.extend(blockers.into_iter().filter(|blocker| blocker.kind == BlockerKind::ModuleUnproven));
    }
}

fn labels(f: &Facts<'_>, k: Followed<'_>, all: &mut Vec<Blocker>) {
    all.extend(waits::stuck(f, k));
    let keys: Vec<String> = f.record().into_iter().flat_map(|node| node.labels.keys()).map(ToString::to_string).collect();
    let has = |label: Label, era: Era| label.key(&k.view.key, era).is_some_and(|key| keys.contains(&key));
    if has(Label::Loader, Era::First) {
        let message = "carries the loader label of KMM 1.x, which loads by DaemonSets and records nothing: its handoffs cannot be proven. Upgrade KMM to 2.0 or later";
        all.push(f.on_node(BlockerKind::PreflightRefused, message));
    }
    if has(Label::Schedule, Era::Second) && has(Label::Schedule, Era::Third) {
        let problem = Problem::OutdatedLabels { keys: k.labels().outdated.clone() };
        all.push(waits::named(f, k, BlockerKind::PreflightRefused, &problem));
    }
    // What an earlier attempt of ours left half-way is taken up; anybody else's is let end.
    if f.occupancy.labels.mark.is_some() || cordon::state(f) == Cordon::Ours || f.is_by_label() {
        return;
    }
    // An unload that fails because pods hold the module ends once they have left, and that is what a handoff does.
    let workers = waits::workers(f, k);
    let working = workers.iter().any(|blocker| blocker.kind == BlockerKind::WorkerPod);
    let moving = !matches!(k.moves(), Move::Nothing | Move::Stuck);
    if working {
        all.extend(workers);
    } else if workers.is_empty()
        && moving
        && matches!(k.module.state, State::Stopping | State::Starting | State::Unloading | State::Loading)
    {
        all.push(waits::kmm_moves(f, k, "end what it has begun on this node").0);
    }
}

/// Version and image belong together.
fn versions(f: &Facts<'_>, k: Followed<'_>, all: &mut Vec<Blocker>) {
    for problem in &k.module.problems {
        match problem {
            Problem::VersionWithoutImage { version, .. } if f.target().is_some_and(|target| **version == *target.as_str()) => {
                all.push(waits::named(f, k, BlockerKind::KmmVersion, problem));
            }
            Problem::ImageChanged { .. } => all.push(waits::named(f, k, BlockerKind::KmmVersion, problem)),
            _ => {}
        }
    }
}

/// What a person should know and may decide to live with.
pub(in crate::handoff) fn warnings(f: &Facts<'_>, k: Followed<'_>) -> Vec<String> {
    let mut all = Vec::new();
    if let Some(trap) = k.view.trap() {
        all.push(format!(
            "Module {} does not tolerate {}: {} on any node unloads it there under whatever runs. To close that, {}",
            k.view.key,
            trap.taints.join(", "),
            trap.what(),
            waits::tolerate(k)
        ));
    }
    if let Some(why) = &k.view.images_unknown {
        all.push(format!("whether the new version's image exists is not known: {why}"));
    }
    if !cordon::is_wanted(f, &start::policy(f)) && cordon::state(f) == Cordon::Open {
        all.push(
            "the node is not closed: KMM unloads right after the plugin has ended, whoever has come meanwhile. drain.cordon: Auto closes it".to_owned(),
        );
    }
    if has_outdated(f, k) {
        all.push("KMM is of an older generation (2.0 to 2.6): what it does was recorded of a later one".to_owned());
    }
    all
}

fn has_outdated(f: &Facts<'_>, k: Followed<'_>) -> bool {
    let key = Label::Schedule.key(&k.view.key, Era::Second).unwrap_or_default();
    f.record().is_some_and(|node| node.labels.contains_key(&*key))
}

/// The module is lost, or on its way out or in, on a node that nobody works on: a taint, an edit of the Module, a hand. The words say what it
/// is, all that is wrong there; empty: nothing. A node without a version label counts until KMM has taken out what it had there: so long its
/// device is gone, and its module may not be.
pub(in crate::handoff) fn disturbance(f: &Facts<'_>) -> Vec<&'static str> {
    let Some(k) = f.kmm() else { return Vec::new() };
    let idle = f.handoff().is_none_or(|handoff| handoff.status.phase.is_ended() || handoff.status.phase == Phase::Queued);
    let leaves = k.here.recorded.is_some()
        && matches!(k.module.state, State::Stopping | State::Unloading | State::Reloading | State::Stuck | State::Unknown);
    let wanted = f.desired().is_some() || matches!(k.labels().row().0, 9) || leaves;
    if !idle || !f.occupancy.selected || !wanted {
        return Vec::new();
    }
    let mut broken: Vec<&'static str> = Vec::new();
    // KMM is about to take it off, whatever it has done so far.
    broken.extend(k.here.taint.as_ref().map(|_| "KeptOut"));
    for problem in k.module.problems.iter().filter(|problem| problem.weight() == Weight::Broken) {
        if !broken.contains(&problem.kind()) {
            broken.push(problem.kind());
        }
    }
    let or = |word: &'static str| if broken.is_empty() { vec![word] } else { broken.clone() };
    match k.module.state {
        _ if k.here.taint.is_some() => broken,
        // Nothing has been there yet: a first install takes nothing away.
        State::Starting | State::Loading | State::Waiting if f.handoff().is_none() && broken.is_empty() => Vec::new(),
        State::Loaded if k.works(f) => Vec::new(),
        State::Absent => Vec::new(),
        // What a silent node runs is counted as not Ready.
        State::Loaded | State::Unknown => broken,
        State::Stopping | State::Unloading => or("Unloading"),
        State::Reloading => or("Reloading"),
        State::Starting | State::Loading | State::Waiting => or("Loading"),
        State::Stuck => or("Stuck"),
    }
}

/// A node that nobody works on: what KMM will not put right by itself.
pub(in crate::handoff) fn at_rest(f: &Facts<'_>) -> Option<Verdict> {
    let k = f.kmm()?;
    if !f.occupancy.selected {
        return None;
    }
    let broken = k.module.problems.iter().filter(|problem| problem.weight() == Weight::Broken);
    let blockers: Vec<Blocker> = broken
        .map(|problem| {
            let kind = match problem {
                Problem::StuckLabels { .. } => BlockerKind::KmmStuck,
                Problem::UnknownVersion { .. } => BlockerKind::UnknownVersion,
                Problem::OldVersionLost { .. } => BlockerKind::KmmVersion,
                Problem::ImageMissing { .. } | Problem::NoKernelMapping { .. } => BlockerKind::KmmImage,
                Problem::KeptOut { .. } => BlockerKind::KmmTaint,
                _ => BlockerKind::KmmTrouble,
            };
            waits::named(f, k, kind, problem)
        })
        .collect();
    (!blockers.is_empty()).then(|| wait(f, blockers, None))
}

/// Whether anything has to move for the target.
pub(in crate::handoff) fn swap_needed(f: &Facts<'_>, k: Followed<'_>) -> bool {
    let there = super::is_there(f.occupancy);
    let Some(target) = f.target() else { return there || f.desired().is_some() };
    let wanted = f.desired().is_none_or(|desired| *desired == target);
    let runs = k.loaded().as_ref() == Some(&target)
        && [f.desired(), f.loader(), f.plugin()].into_iter().all(|version: Option<&Version>| version == Some(&target));
    !(runs || !there && wanted)
}

/// The node runs the target, and nothing of an earlier attempt is left on it.
pub(in crate::handoff) fn runs_target(f: &Facts<'_>, k: Followed<'_>) -> bool {
    let target = f.target();
    target.is_some()
        && k.works(f)
        && f.desired() == target.as_ref()
        && f.occupancy.labels.mark.is_none()
        && matches!(cordon::state(f), Cordon::Open | Cordon::Foreign { stale: false })
}

/// What has become of the module when a handoff stops that has not moved its label: KMM may have been at it all the same.
pub(in crate::handoff) fn fate(f: &Facts<'_>) -> String {
    let Some(k) = f.kmm() else { return format!("what KMM has loaded on {} cannot be seen", f.node.name) };
    let from = f.run().and_then(|run| run.from.as_deref());
    match k.module.state {
        State::Loaded if k.module.loaded.as_deref() == from => "the module was not touched".to_owned(),
        State::Absent if from.is_none() => "the module was not touched".to_owned(),
        _ => {
            let had = from.map(|from| format!(", which had {from} when it began")).unwrap_or_default();
            format!("lockkeeper did not touch the module, but KMM did{had}: {}", k.module.sentence)
        }
    }
}
