//! What a component's policy holds back beside its budget: pause, windows, the failure budget, canary and soak. The first that holds is named.

use jiff::Timestamp;

use super::{
    tally::Tally,
    verdict::{Blocker, BlockerKind, ObjectRef},
    windows::{self, Windows},
};
use crate::{
    api::{Version, component::Rollout},
    fleet::view::ComponentView,
};

/// Why nothing new of the component may start, and when time alone may change that.
pub type Held = (Blocker, Option<Timestamp>);

/// For anything new, installs too.
pub fn stopped(component: &ComponentView, tally: &Tally, now: Timestamp) -> Option<Held> {
    let rollout = &component.spec()?.rollout;
    if rollout.paused {
        return Some((
            blocker(
                component,
                BlockerKind::Paused,
                "spec.rollout.paused is true: nothing new starts; what runs goes on".to_owned(),
                now,
            ),
            None,
        ));
    }
    (tally.failures >= rollout.max_failures).then(|| {
        let message = format!(
            "{} handoffs have failed and maxFailures is {}: nothing new starts until one of them is tried again, rolled back or left (action Leave, then delete it)",
            tally.failures, rollout.max_failures
        );
        (blocker(component, BlockerKind::FailureBudgetSpent, message, now), None)
    })
}

/// For handoffs that take a node out of service. `admitted` counts the component's nodes under way to `target`.
pub fn held_back(
    component: &ComponentView,
    tally: &Tally,
    target: Option<&Version>,
    admitted: u32,
    now: Timestamp,
) -> Option<Held> {
    let rollout = &component.spec()?.rollout;
    outside_window(component, rollout, now)
        .or_else(|| canary(component, rollout, tally, target, admitted, now))
        .or_else(|| soaking(component, rollout, tally, now))
}

fn outside_window(component: &ComponentView, rollout: &Rollout, now: Timestamp) -> Option<Held> {
    let (message, recheck) = match windows::at(&rollout.windows, now) {
        Ok(Windows::Open { .. }) => return None,
        Ok(Windows::Closed { opens: Some(opens) }) => {
            (format!("outside the rollout's windows; the next opens at {opens}"), Some(opens))
        }
        Ok(Windows::Closed { opens: None }) => ("outside the rollout's windows; none opens within two weeks".to_owned(), None),
        Err(bad) => (format!("{bad}; nothing starts until it is corrected"), None),
    };
    Some((blocker(component, BlockerKind::OutsideWindow, message, now), recheck))
}

fn canary(
    component: &ComponentView,
    rollout: &Rollout,
    tally: &Tally,
    target: Option<&Version>,
    admitted: u32,
    now: Timestamp,
) -> Option<Held> {
    let target = target?;
    let done = tally.versions.get(target).copied().unwrap_or(0);
    (done < rollout.canary && done.saturating_add(admitted) >= rollout.canary).then(|| {
        let message = format!(
            "{done} of {} canary nodes run {target}; the others wait until all of them do, and have soaked",
            rollout.canary
        );
        (blocker(component, BlockerKind::Canary, message, now), None)
    })
}

fn soaking(component: &ComponentView, rollout: &Rollout, tally: &Tally, now: Timestamp) -> Option<Held> {
    let last = tally.last_end?;
    let until = last.checked_add(rollout.soak.signed()).unwrap_or(Timestamp::MAX);
    (now < until).then(|| {
        let message = format!("the last handoff ended at {last}; the next starts after {}, at {until}", rollout.soak);
        (blocker(component, BlockerKind::Soaking, message, last), Some(until))
    })
}

pub(super) fn blocker(component: &ComponentView, kind: BlockerKind, message: String, since: Timestamp) -> Blocker {
    Blocker { kind, object: ObjectRef::new("NodeComponent", &component.record.key), message, since }
}
