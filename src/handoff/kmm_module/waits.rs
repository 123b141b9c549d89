//! What KMM is awaited for, in its own words: which object, since when, and when it looks again. Each wait has a name.

use jiff::{SignedDuration, Timestamp};

use super::{Followed, kernel::Waits};
use crate::{
    api::{ObjectKey, Version},
    fleet::{kmm::KmmView, records::PodRecord},
    handoff::{
        facts::Facts,
        in_use,
        patch::whole_seconds,
        pod_state::state_of,
        verdict::{Blocker, BlockerKind, ObjectRef},
    },
    kmm::{
        Problem,
        records::{self, Action, Part},
        tolerations,
        triple::Move,
    },
};

/// KMM moves its labels and objects within a second when nothing holds it up.
const SILENT_AFTER: SignedDuration = SignedDuration::from_secs(30);
/// How long one worker pod may fail before it is no chance.
const OFTEN: usize = 2;

/// The labels are in a combination that KMM leaves alone for ever, and that a change of the version label does not get it out of.
pub(super) fn stuck(f: &Facts<'_>, k: Followed<'_>) -> Vec<Blocker> {
    // Taken off, the label leads from 12 and 13 back into the table.
    if !matches!(k.labels().row().0, 9..=11) {
        return Vec::new();
    }
    let problems = k.module.problems.iter().filter(|problem| matches!(problem, Problem::StuckLabels { .. }));
    problems.map(|problem| named(f, k, BlockerKind::KmmStuck, problem)).collect()
}

/// A problem in KMM's words, with its repair.
pub(super) fn named(f: &Facts<'_>, k: Followed<'_>, kind: BlockerKind, problem: &Problem) -> Blocker {
    let place = k.place(f);
    // Its pull pod may be on any node.
    let told = match problem {
        Problem::ImageMissing { image, pull: None } => {
            Some(Problem::ImageMissing { image: image.clone(), pull: k.view.pull(image) })
        }
        _ => None,
    };
    let problem = told.as_ref().unwrap_or(problem);
    let repair = match problem.advice(&place) {
        advice if advice.is_empty() => advice,
        advice => format!(". Repair: {advice}"),
    };
    f.on_node(kind, format!("{}: {}{repair}", problem.kind(), problem.text(&place)))
}

/// Something that KMM does by itself, at once or at the next of its tries; after a while it is said that it does not.
pub(super) fn kmm_moves(f: &Facts<'_>, k: Followed<'_>, what: &str) -> (Blocker, Option<Timestamp>) {
    let seen = f.observed.kmm(&f.node.name, f.key);
    let polls = matches!(k.moves(), Move::RemoveLoader | Move::AddLoader);
    let next = seen.and_then(|seen| seen.next_try(f.now)).filter(|_| polls);
    if let Some(next) = next {
        let for_what = match k.moves() {
            Move::RemoveLoader => "the end of the plugin's pod",
            _ => "the end of the unload (.ready)",
        };
        let message = format!(
            "KMM is to {what}. It polls for {for_what}, ever further apart; its next try is at about {}, and a change of the version label starts \
             one at once",
            whole_seconds(next)
        );
        return (f.blocker(BlockerKind::KmmBackOff, k.object(), message), Some(next));
    }
    let since = seen.and_then(|seen| seen.moved).map_or(f.phase_since(), |moved| moved.max(f.phase_since()));
    let late = since.checked_add(SILENT_AFTER).unwrap_or(Timestamp::MAX);
    if f.now >= late {
        let message = format!(
            "KMM is to {what}, which takes it a second, and has not moved since {}: is its operator running? It may itself be on a node that is \
             being drained",
            whole_seconds(since)
        );
        return (f.blocker(BlockerKind::KmmSilent, k.object(), message), None);
    }
    (f.blocker(BlockerKind::KmmMoves, k.object(), format!("KMM is to {what}")), Some(late))
}

/// What a worker pod of the Module does on the node, and how it fares.
pub(super) fn workers(f: &Facts<'_>, k: Followed<'_>) -> Vec<Blocker> {
    let pods = k.here.workers.iter();
    pods.filter_map(|pod| records::PodRecord::of(pod).map(|of| (pod, of))).map(|(pod, of)| worker(f, k, pod, &of)).collect()
}

/// KMM loads here, or is about to after a reboot. A label that goes meanwhile makes it delete its Load pod and count the module as never
/// loaded: the kernel may then hold it, and no unload is made (`tests/kmm/recorded.txt`, s44). A load that fails is none.
pub(super) fn loading(f: &Facts<'_>, k: Followed<'_>) -> Vec<Blocker> {
    let pods = k.here.workers.iter().filter_map(|pod| records::PodRecord::of(pod).map(|of| (pod, of)));
    let loads = pods.filter(|(_, of)| of.action() == Some(Action::Load)).map(|(pod, of)| worker(f, k, pod, &of));
    let loads: Vec<Blocker> = loads.filter(|blocker| blocker.kind == BlockerKind::WorkerPod).collect();
    let recorded =
        k.here.recorded.as_ref().filter(|_| k.here.wanted.is_some() && k.here.workers.is_empty() && k.here.taint.is_none());
    let rebooted = recorded.is_some_and(|entry| f.boot().is_some_and(|boot| entry.boot_id != *boot));
    if loads.is_empty() && rebooted { vec![kmm_moves(f, k, "load again what the reboot has taken out").0] } else { loads }
}

fn worker(f: &Facts<'_>, k: Followed<'_>, pod: &PodRecord, of: &records::PodRecord) -> Blocker {
    let action = of.action().unwrap_or(Action::Load);
    let image = match &of.part {
        Part::Worker { image: Some(image), .. } => format!(" of {image}"),
        _ => String::new(),
    };
    let words = format!("KMM's {} pod{image}", action.word());
    let crashing = of.crashing() && !of.deleting && of.phase != records::Phase::Failed;
    let trouble = |problem: &Problem| {
        matches!(
            (problem, action),
            (Problem::UnloadCrashLoop { .. }, Action::Unload)
                | (Problem::LoadCrashLoop { .. }, Action::Load)
                | (Problem::WorkerImageMissing { .. }, _)
        )
    };
    if let Some(problem) = k.module.problems.iter().find(|problem| trouble(problem)) {
        let Blocker { message, since, .. } = named(f, k, BlockerKind::WorkerFailed, problem);
        return Blocker { kind: BlockerKind::WorkerFailed, object: ObjectRef::new("Pod", &pod.key), message, since };
    }
    if crashing || of.phase == records::Phase::Failed {
        return f.on_pod(BlockerKind::WorkerFailed, pod, format!("{words} is {}", state_of(pod)));
    }
    let message = match of.phase {
        records::Phase::Succeeded => format!("{words} has succeeded; KMM is to record that"),
        _ => format!("{words} is {}", state_of(pod)),
    };
    f.on_pod(BlockerKind::WorkerPod, pod, message)
}

/// Worker pods that come and go are seen by who looks again only.
pub(super) fn look_again(f: &Facts<'_>) -> Option<Timestamp> {
    f.now.checked_add(SILENT_AFTER).ok()
}

/// KMM makes the worker again and again, without back-off and without a word.
fn made_again(f: &Facts<'_>, k: Followed<'_>, action: Action) -> Option<Blocker> {
    let times = f.observed.kmm(&f.node.name, f.key)?.failed_lately(f.now);
    (times >= OFTEN).then(|| {
        let times = u32::try_from(times).unwrap_or(u32::MAX);
        named(f, k, BlockerKind::WorkerFailed, &Problem::WorkerMadeAgain { action, times })
    })
}

/// What speaks against KMM being able to load the target here.
pub(super) fn not_loadable(f: &Facts<'_>, k: Followed<'_>) -> Vec<Blocker> {
    let mut all = Vec::new();
    let (Some(target), Some(module)) = (f.target(), &k.view.module) else { return all };
    let key = &k.view.key;
    if module.version.as_deref() != Some(target.as_str()) {
        let is = module.version.as_deref().unwrap_or("no version");
        let message = format!(
            "the Module is at {is}, and KMM loads nothing else: {target} comes only once it is in the Module again, with its image (nodes at {is} do not move \
             by that). Or abort, and ask for {is}"
        );
        all.push(f.blocker(BlockerKind::KmmVersion, k.object(), message));
        return all;
    }
    if let Some(taint) = &k.here.taint {
        all.push(named(f, k, BlockerKind::KmmTaint, &Problem::KeptOut { taint: taint.clone() }));
    }
    let Some(image) = &k.here.image else {
        let kernel = f.record().map(|record| record.kernel.clone()).unwrap_or_default();
        all.push(named(f, k, BlockerKind::KmmImage, &Problem::NoKernelMapping { kernel }));
        return all;
    };
    if k.here.image_exists == Some(false) {
        let problem = Problem::ImageMissing { image: image.to_string(), pull: None };
        all.push(named(f, k, BlockerKind::KmmImage, &problem));
    }
    if k.view.images.is_none() && k.view.images_unknown.is_none() {
        let message = format!(
            "KMM has made no ModuleImagesConfig {key}, which it does as soon as the Module is there: nothing says that {image} exists. Is its operator running?"
        );
        let object = ObjectRef::new("ModuleImagesConfig", ObjectKey::clone(key));
        all.push(f.blocker(BlockerKind::KmmImage, object, message));
    }
    all
}

/// Why the target is not proven to be loaded yet.
pub(super) fn not_loaded(f: &Facts<'_>, k: Followed<'_>, target: &Version) -> Waits {
    let mut all = in_use::not_ready(f);
    all.extend(workers(f, k));
    all.extend(made_again(f, k, Action::Load));
    if !all.is_empty() {
        return (all, look_again(f));
    }
    all.extend(stuck(f, k));
    let telling = k.module.problems.iter().filter_map(|problem| match problem {
        Problem::KeptOut { .. } => Some((BlockerKind::KmmTaint, problem)),
        Problem::ImageMissing { .. } | Problem::NoKernelMapping { .. } => Some((BlockerKind::KmmImage, problem)),
        Problem::UnknownVersion { .. } => Some((BlockerKind::UnknownVersion, problem)),
        Problem::OldVersionLost { .. } => Some((BlockerKind::KmmVersion, problem)),
        Problem::ImageChanged { .. } | Problem::NoModule { .. } => Some((BlockerKind::KmmTrouble, problem)),
        _ => None,
    });
    all.extend(telling.map(|(kind, problem)| named(f, k, kind, problem)));
    if !all.is_empty() {
        return (all, None);
    }
    let what = if f.loader() == Some(target) {
        format!("load {target} here and record it")
    } else {
        format!("set its worker label to {target}")
    };
    let (moving, recheck) = kmm_moves(f, k, &what);
    (vec![moving], recheck)
}

/// The plugin or DRA pod is not Ready.
pub(in crate::handoff) fn plugin_not_ready(f: &Facts<'_>, k: Followed<'_>) -> Vec<Blocker> {
    if !k.has_plugin() {
        return Vec::new();
    }
    let pods = f.occupancy.plugin_pods.iter();
    let mut all: Vec<Blocker> =
        pods.map(|pod| f.on_pod(BlockerKind::PluginNotReady, pod, format!("the plugin pod is {}", state_of(pod)))).collect();
    let collected = k.module.problems.iter().find(|problem| matches!(problem, Problem::PluginSetCollected { .. }));
    match collected {
        Some(problem) => all.push(named(f, k, BlockerKind::PluginNotReady, problem)),
        None if all.is_empty() && f.plugin().is_none() => {
            all.push(kmm_moves(f, k, "set its plugin label").0);
        }
        None if all.is_empty() => {
            let message = format!(
                "no plugin pod of {} is on the node yet; KMM's DaemonSet makes it once .ready and the plugin label are there",
                f.plugin().map(Version::as_str).unwrap_or_default()
            );
            all.push(f.on_node(BlockerKind::PluginNotReady, message));
        }
        None => {}
    }
    all.extend(in_use::not_ready(f));
    all
}

/// The lines that let a cordon and NotReady leave the module alone.
pub(super) fn tolerate(k: Followed<'_>) -> String {
    format!("add to its spec:\n{}\nor run: {}", tolerations::LINES, cure(k.view))
}

/// The command that adds them.
pub(in crate::handoff) fn cure(view: &KmmView) -> String {
    view.module.as_ref().map(|module| tolerations::command(module)).unwrap_or_default()
}
