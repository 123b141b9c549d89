//! What a component's policy holds back beside its budget: pause, windows, the failure budget, canary and soak. The first that holds is named.

use jiff::Timestamp;

use super::{
    patch::whole_seconds,
    tally::Tally,
    verdict::{Blocker, BlockerKind, ObjectRef},
    windows::{self, Windows},
};
use crate::{
    api::{NodeName, Version, component::Rollout},
    fleet::view::ComponentView,
};

/// Why nothing new of the component may start, and until when at the most that is so; None: nothing holds it back.
pub type Held = (Option<Blocker>, Option<Timestamp>);

/// For anything new, installs too.
pub fn stopped(component: &ComponentView, tally: &Tally, now: Timestamp) -> Option<Blocker> {
    let rollout = &component.spec()?.rollout;
    if rollout.paused {
        return Some(blocker(
            component,
            BlockerKind::Paused,
            "spec.rollout.paused is true: nothing new starts; what runs goes on".to_owned(),
            now,
        ));
    }
    (tally.failures >= rollout.max_failures).then(|| {
        let message = format!(
            "{} handoffs have failed and maxFailures is {}: nothing new starts until one of them is tried again, rolled back or left (action Leave, then delete it)",
            tally.failures, rollout.max_failures
        );
        blocker(component, BlockerKind::FailureBudgetSpent, message, now)
    })
}

/// For handoffs that take a node out of service, that of `node` if there is one. `admitted` counts the component's other nodes out of service
/// for it.
pub fn held_back(
    component: &ComponentView,
    tally: &Tally,
    target: Option<&Version>,
    admitted: u32,
    node: Option<&NodeName>,
    now: Timestamp,
) -> Held {
    let Some(spec) = component.spec() else { return (None, None) };
    let rollout = &spec.rollout;
    let (outside, turns) = outside_window(component, rollout, now);
    if outside.is_some() {
        return (outside, turns);
    }
    if let Some(canary) = canary(component, rollout, tally, target, admitted, node, now) {
        return (Some(canary), turns);
    }
    let (soaking, soaked) = soaking(component, rollout, tally, now);
    (soaking, [turns, soaked].into_iter().flatten().min())
}

fn outside_window(component: &ComponentView, rollout: &Rollout, now: Timestamp) -> Held {
    let (message, recheck) = match windows::at(&rollout.windows, now) {
        // What waits for something else now will wait for the window once it has closed.
        Ok(Windows::Open { until }) => return (None, until),
        Ok(Windows::Closed { opens: Some(opens) }) => {
            (format!("outside the rollout's windows; the next opens at {opens}"), Some(opens))
        }
        Ok(Windows::Closed { opens: None }) => ("outside the rollout's windows; none opens within two weeks".to_owned(), None),
        Err(bad) => (format!("{bad}; nothing starts until it is corrected"), None),
    };
    (Some(blocker(component, BlockerKind::OutsideWindow, message, now)), recheck)
}

fn canary(
    component: &ComponentView,
    rollout: &Rollout,
    tally: &Tally,
    target: Option<&Version>,
    admitted: u32,
    node: Option<&NodeName>,
    now: Timestamp,
) -> Option<Blocker> {
    let target = target?;
    let done = tally.versions.get(target).copied().unwrap_or(0);
    (done < rollout.canary && done.saturating_add(admitted) >= rollout.canary).then(|| {
        let message = format!(
            "{done} of {} canary nodes run {target}; the others wait until all of them do, and have soaked. Not yet: {}. Bring them there, or lower \
             rollout.canary",
            rollout.canary,
            tally.under_way_to(target, node)
        );
        blocker(component, BlockerKind::Canary, message, now)
    })
}

fn soaking(component: &ComponentView, rollout: &Rollout, tally: &Tally, now: Timestamp) -> Held {
    let Some(last) = tally.last_end else { return (None, None) };
    let until = last.checked_add(rollout.soak.signed()).unwrap_or(Timestamp::MAX);
    if now >= until {
        return (None, None);
    }
    let message = format!(
        "the last handoff ended at {}; the next starts after {}, at {}",
        whole_seconds(last),
        rollout.soak,
        whole_seconds(until)
    );
    (Some(blocker(component, BlockerKind::Soaking, message, last)), Some(until))
}

pub(super) fn blocker(component: &ComponentView, kind: BlockerKind, message: String, since: Timestamp) -> Blocker {
    Blocker { kind, object: ObjectRef::new("NodeComponent", &component.record.key), message, since }
}
