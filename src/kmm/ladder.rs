//! How long KMM still waits: it polls two of its waits (no plugin pod on the node; `.ready` gone) with a back-off that doubles, counted
//! from the label write before the wait. Nothing wakes it but a change of one of the version labels on that node.

use std::time::Duration;

/// The first delay, doubled after each refused try.
const FIRST: Duration = Duration::from_millis(5);
/// The longest delay between two tries.
const LONGEST: Duration = Duration::from_secs(1000);

/// The times of KMM's tries after the label write: 5, 15, 35, 75, 155, 315, 635 ms, 1.3, 2.6, 5.1, 10.2, 20.5, 41, 82, 164, 328, 655, 1311 s,
/// then every 1000 s. They hold when nothing else woke KMM meanwhile; each wake-up that finds nothing to do makes the later delays longer.
pub fn tries() -> impl Iterator<Item = Duration> {
    let mut delay = FIRST;
    let mut at = Duration::ZERO;
    std::iter::from_fn(move || {
        at += delay;
        delay = (delay * 2).min(LONGEST);
        Some(at)
    })
}

/// The first try at or after this time since the label write.
#[must_use]
pub fn next_try(since_write: Duration) -> Duration {
    // Beyond the doubling the tries are evenly spaced: no need to walk through years of them.
    let doubling: Duration = tries().take(DOUBLINGS).last().unwrap_or_default();
    if since_write > doubling {
        let beyond = (since_write - doubling).as_nanos().div_ceil(LONGEST.as_nanos());
        return doubling.saturating_add(LONGEST.saturating_mul(u32::try_from(beyond).unwrap_or(u32::MAX)));
    }
    tries().find(|at| *at >= since_write).unwrap_or(doubling)
}

/// Tries until the delay has reached its longest.
const DOUBLINGS: usize = 18;

/// How long KMM still waits once what it waits for has come.
#[must_use]
pub fn remaining(since_write: Duration) -> Duration {
    next_try(since_write).saturating_sub(since_write)
}
