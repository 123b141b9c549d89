//! The phases of `kernelModule.daemonSets`: one match, every transition at one sight. Total: any facts give a verdict.
//! What all kinds of components share is in `shared_phases`; what comes before any phase, in `attempt`.

use super::{
    action::Evidence,
    answers::{act, effect, enter, enter_with, wait},
    attempt::uncordoned,
    ending,
    facts::Facts,
    in_use,
    interlock::{self, Effect, Order, Rule, Step},
    patch::NodeEdit,
    shared_phases::{cordon_kept, cordoning, detaching, drained, evictions, held, preflight, uncordoning},
    start, unload_pod,
    verdict::{BlockerKind, Verdict},
};
use crate::api::{
    Phase, Version,
    keys::{DesiredBy, Role},
};

/// Between admission and the end.
pub(super) fn running(f: &Facts<'_>) -> Verdict {
    if let Some(verdict) = ending::abort(f).or_else(|| label_edited(f)).or_else(|| uncordoned(f)) {
        return verdict;
    }
    match f.phase() {
        Phase::Preflight => preflight(f),
        Phase::Cordoning => cordoning(f),
        Phase::Draining => draining(f),
        Phase::Detaching => detaching(f),
        Phase::StoppingPlugin => stopping_plugin(f),
        Phase::Unloading | Phase::AwaitingReboot => unloading(f),
        Phase::Held => held(f),
        Phase::Loading => loading(f),
        Phase::StartingPlugin => starting_plugin(f),
        Phase::Verifying => verifying(f),
        Phase::Uncordoning => uncordoning(f),
        Phase::ReplacingPod | Phase::RestartingUsers => {
            ending::fail(f, "Anomaly", format!("{} is no phase of a kernel module: its status was edited", f.phase()))
        }
        Phase::Queued | Phase::Done | Phase::Failed | Phase::Aborted => Verdict::Done,
    }
}

fn draining(f: &Facts<'_>) -> Verdict {
    if let Some(verdict) = cordon_kept(f) {
        return verdict;
    }
    if f.occupancy.labels.ready.is_some() {
        let edit = NodeEdit::new(f).label(Role::Ready, None);
        return act(
            edit.watched(format!("{} is not ready for DaemonSets that use the devices: they leave by themselves", f.node.name))
        );
    }
    drained(f)
}

/// Rules 2 and 3, under a desired label that this handoff takes off first.
fn stopping_plugin(f: &Facts<'_>) -> Verdict {
    if let Some(verdict) = evictions(f) {
        return verdict;
    }
    // A person's label is a person's order: it stays.
    let order =
        if f.is_by_label() { Order::label(f) } else { Order { desired: None, moves: Some(DesiredBy::Removed), stopped: None } };
    match interlock::step(f, &order) {
        Some(step) if step.rule <= Rule::PluginGone => effect(f, step.effect),
        _ if order.moves.is_some() && f.desired().is_some() => {
            let edit = NodeEdit::new(f).label(Role::Desired, None).desired_by(DesiredBy::Removed);
            act(edit.fresh(format!("take the version off {}: nothing is started there meanwhile", f.node.name)))
        }
        _ => {
            let stays = f.plugin().is_some() || !f.occupancy.plugin_pods.is_empty();
            let proof = if stays {
                format!("the plugin on {} is the wanted one and stays", f.node.name)
            } else {
                format!("no plugin pod is on {} and it offers no device", f.node.name)
            };
            enter_with(f, Phase::Unloading, Evidence::Fresh, &proof, |next| {
                next.copy(f.desired().map(Version::as_str), start::record_text(f))
            })
        }
    }
}

/// Rules 4 to 6.
fn unloading(f: &Facts<'_>) -> Verdict {
    let waits_for_reboot = f.phase() == Phase::AwaitingReboot;
    if !waits_for_reboot && let Some(verdict) = evictions(f) {
        return verdict;
    }
    let order = Order::label(f);
    match interlock::step(f, &order) {
        Some(Step { rule: Rule::ModuleOut, effect: Effect::Wait { blockers, .. } })
            if !waits_for_reboot && blockers.iter().any(|blocker| blocker.kind == BlockerKind::RebootRequired) =>
        {
            enter(
                f,
                Phase::AwaitingReboot,
                Evidence::Fresh,
                &format!("the loader on {} has stopped; the module stays until a reboot", f.node.name),
            )
        }
        Some(step) if step.rule <= Rule::ModuleOut => effect(f, step.effect),
        _ => unloaded(f),
    }
}

fn unloaded(f: &Facts<'_>) -> Verdict {
    let proof = unload_proof(f);
    if ending::choice_is_due(f) {
        return ending::await_choice(f, Phase::Loading, Some(&proof));
    }
    match f.target() {
        Some(_) => enter(f, Phase::Loading, Evidence::Fresh, &proof),
        None => enter_with(f, Phase::Uncordoning, Evidence::Fresh, &proof, |next| next.copy(None, None)),
    }
}

/// What took the record off, as far as it can still be seen.
fn unload_proof(f: &Facts<'_>) -> String {
    let exited = f.occupancy.unload_pods.iter().find(|pod| unload_pod::outcome(pod) == unload_pod::Outcome::Unloaded);
    let began = f.run().map(|run| run.boot_id.as_str());
    let fact = match (exited, f.boot(), began) {
        (Some(pod), ..) => format!("Pod {} (UID {}) unloaded it, exit 0; ", pod.key, pod.meta.uid),
        (None, Some(boot), Some(began)) if *boot != *began => format!("boot {boot} is not the {began} in which it was loaded; "),
        _ => String::new(),
    };
    format!("{fact}nothing of {} is recorded in the kernel of {}", f.key, f.node.name)
}

/// Rule 7 and the first half of 8, towards a desired label that this handoff sets.
fn loading(f: &Facts<'_>) -> Verdict {
    let Some(target) = f.target() else { return out_of_targets(f) };
    let order = Order { desired: Some(target.clone()), moves: (!f.is_by_label()).then_some(DesiredBy::Set), stopped: None };
    match interlock::step(f, &order) {
        Some(step) if step.rule <= Rule::LoaderOn => effect(f, step.effect),
        _ if f.desired() != Some(&target) => {
            let edit = NodeEdit::new(f).label(Role::Desired, Some(&target)).desired_by(DesiredBy::Set);
            act(edit.fresh(format!("{target} is wanted on {}", f.node.name)))
        }
        Some(step) if step.rule == Rule::LoaderReady => effect(f, step.effect),
        _ => {
            let pods: Vec<String> = f.occupancy.loader_pods.iter().map(|pod| pod.key.to_string()).collect();
            enter(
                f,
                Phase::StartingPlugin,
                Evidence::Fresh,
                &format!("loader pod {} of {target} is Ready in this boot", pods.join(", ")),
            )
        }
    }
}

/// Rule 8.
fn starting_plugin(f: &Facts<'_>) -> Verdict {
    match interlock::step(f, &Order::label(f)) {
        Some(step) if step.rule < Rule::DevicesBack => effect(f, step.effect),
        _ => match in_use::plugin_not_ready(f) {
            blockers if !blockers.is_empty() => wait(f, blockers, None),
            _ => {
                let pod = f.ready_plugin().map(|pod| pod.key.to_string()).unwrap_or_default();
                enter(f, Phase::Verifying, Evidence::Watched, &format!("plugin pod {pod} is Ready"))
            }
        },
    }
}

/// Rule 9, and that it stays so.
fn verifying(f: &Facts<'_>) -> Verdict {
    if let Some(step) = interlock::step(f, &Order::label(f)) {
        return effect(f, step.effect);
    }
    match ending::unstable(f) {
        Some((blockers, recheck)) => wait(f, blockers, recheck),
        None => {
            let offered: Vec<String> = f.offered().iter().map(|(name, count)| format!("{name}: {count}")).collect();
            let stable = start::policy(f).verify.stable_for;
            enter(
                f,
                Phase::Uncordoning,
                Evidence::Watched,
                &format!("plugin Ready and allocatable back ({}), stable for {stable}", offered.join(", ")),
            )
        }
    }
}

fn out_of_targets(f: &Facts<'_>) -> Verdict {
    ending::fail(f, "Anomaly", "the run has no version to load: its status was edited".to_owned())
}

/// From the first node write to Verifying: a desired label that the mark and the phase do not explain is somebody's order.
fn label_edited(f: &Facts<'_>) -> Option<Verdict> {
    let phase = match f.phase() {
        Phase::Held => f.status()?.resume_at?,
        phase => phase,
    };
    let run = f.run()?;
    // Without a mark of this attempt the handoff has not touched the label.
    let by = f.mark().filter(|mark| mark.attempt == run.attempt).map_or(DesiredBy::Kept, |mark| mark.desired);
    // The target is set in Loading: before it, the mark is of another target that this attempt had before somebody changed it.
    let by = if by == DesiredBy::Set && phase < Phase::Loading { DesiredBy::Kept } else { by };
    if !(Phase::StoppingPlugin..=Phase::Verifying).contains(&phase) {
        return None;
    }
    let target = f.target();
    let wanted = match by {
        DesiredBy::Kept => run.desired.as_deref().map(Version::from),
        DesiredBy::Removed => None,
        DesiredBy::Set => target.clone(),
    };
    if f.desired() == wanted.as_ref() {
        return None;
    }
    let say = |version: Option<&Version>| version.map_or_else(|| "no version".to_owned(), ToString::to_string);
    let message = format!(
        "somebody changed the label {} on {} to {} in {phase}, where this handoff has {}: the order of who edits the label counts",
        Role::Desired.key(f.key),
        f.node.name,
        say(f.desired()),
        say(wanted.as_ref()),
    );
    Some(ending::fail(f, ending::LABEL_EDITED, message))
}
