//! What asks for a handoff of a followed Module without a person having written one: KMM's label moved by hand, a first install, an
//! automatic rollout. A label that a person moves is observed and not steered: KMM follows it whatever anybody thinks.

use super::{Followed, is_there};
use crate::{
    api::{
        Phase, Version,
        component::{InstallMode, RolloutMode},
        handoff::{BY_INSTALL, BY_ROLLOUT},
        keys::DesiredBy,
    },
    handoff::{
        by_hand::{LabelOrder, ask, asked_for_elsewhere, was_followed},
        ending,
        facts::Facts,
        verdict::Verdict,
    },
    kmm::State,
};

/// KMM is on its way to or from a version, and no handoff explains it. A typo is no order: it is named, and nothing is made of it.
pub fn label_order(f: &Facts<'_>, k: Followed<'_>) -> Option<LabelOrder> {
    let (labels, desired) = (&f.occupancy.labels, f.desired());
    let moving = matches!(k.module.state, State::Stopping | State::Unloading | State::Starting | State::Loading);
    // One that claims the label takes its version from it also where KMM has nothing to do: the order was taken back, or there was none.
    let claims = f.claims_label() && f.phase() == Phase::Queued;
    if !(moving || claims)
        // A hand on KMM's own labels: named, and no order.
        || k.labels().row().stuck()
        || !f.occupancy.selected
        || !labels.garbage.is_empty()
        || !f.component.refusals.is_empty()
        || desired.is_some_and(|version| f.version(version).is_none())
        || f.component.record.meta.deletion.is_some()
        || k.here.taint.is_some()
    {
        return None;
    }
    let in_kernel = k.here.recorded.as_ref().and_then(|entry| entry.version.clone()).map(Version::from);
    let order = Some(LabelOrder { version: desired.cloned() });
    let moved = match desired {
        Some(version) => in_kernel.as_ref() != Some(version),
        None => is_there(f.occupancy),
    };
    let Some((handoff, spec)) = f.handoff().zip(f.spec()) else { return order.filter(|_| moved) };
    let asked = spec.version.as_deref().map(Version::from);
    let by_label = f.claims_label();
    let run = handoff.status.run.as_ref();
    // What the last attempt did to the label is no person's order.
    let explained = match labels.mark.as_ref().filter(|mark| handoff.meta.uid == *mark.uid) {
        Some(mark) => {
            let left = match mark.desired {
                DesiredBy::Kept => run.and_then(|run| run.desired.as_deref()).map(Version::from),
                DesiredBy::Removed => None,
                DesiredBy::Set => run.and_then(|run| run.target.as_deref()).map(Version::from),
            };
            desired == left.as_ref()
        }
        None => !moved,
    };
    match handoff.status.phase {
        Phase::Queued if by_label => order.filter(|_| desired != asked.as_ref()),
        // What a person has asked for stays asked for, whatever KMM is doing meanwhile.
        Phase::Queued => None,
        _ if was_followed(f, spec) => None,
        _ => order.filter(|_| !explained),
    }
}

/// What the component's policy asks for on its own. Its removal asks for nothing: the Module stays KMM's.
pub fn automatic(f: &Facts<'_>, k: Followed<'_>) -> Option<Verdict> {
    let policy = f.component.spec()?;
    let aim = k.view.aim()?;
    let free = f.handoff().is_none_or(|handoff| handoff.meta.deletion.is_none());
    if !f.occupancy.selected
        || !f.component.refusals.is_empty()
        || !f.occupancy.labels.garbage.is_empty()
        || f.component.record.meta.deletion.is_some()
        || f.record().is_none()
        || !free
    {
        return None;
    }
    let empty = f.desired().is_none() && !is_there(f.occupancy);
    if (f.spec().is_none() || ending::ended_with_component(f)) && empty {
        let ready = f.record().is_some_and(|record| record.ready.is_true());
        let why = format!("{} has no version of Module {}: install {aim}", f.node.name, k.view.key);
        return (policy.rollout.install == InstallMode::Auto && ready).then(|| ask(f, Some(aim), BY_INSTALL, why));
    }
    if policy.rollout.mode != RolloutMode::Auto {
        return None;
    }
    let runs = k.here.recorded.as_ref().and_then(|entry| entry.version.clone()).map(Version::from);
    let why = format!("the rollout of {} aims at {aim}, the Module's version", f.key);
    match f.spec() {
        None => runs.is_some_and(|runs| runs != aim).then(|| ask(f, Some(aim), BY_ROLLOUT, why)),
        Some(spec) => {
            let needed = runs.as_ref() != Some(&aim);
            asked_for_elsewhere(f, spec, &aim, needed).then(|| ask(f, Some(aim), BY_ROLLOUT, why))
        }
    }
}
