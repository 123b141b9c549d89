//! The actors' one way to read time: a starting point plus tokio's elapsed time (virtual when the runtime is paused).
//! Also the seeded dice: a value depends on its name alone, never on the order in which tasks run.

use jiff::Timestamp;
use std::time::Duration;
use tokio::time::Instant;

/// Wall-clock time for objects (`renewTime`, `lastTransitionTime`), derived from tokio's clock.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    base: Timestamp,
    start: Instant,
}

impl Clock {
    /// A clock that shows `base` now and advances with tokio's time.
    #[must_use]
    pub fn starting_at(base: Timestamp) -> Self {
        Self { base, start: Instant::now() }
    }

    /// The clock of a simulated API server, so that actors and server agree on the time.
    #[must_use]
    pub fn of(clock: &crate::sim::clock::SimClock) -> Self {
        Self::starting_at(clock.now())
    }

    /// The present time of the simulated (or real) cluster.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.base.checked_add(self.start.elapsed()).unwrap_or(self.base)
    }

    /// RFC 3339 with whole seconds, as in `metav1.Time`.
    #[must_use]
    pub fn time(&self) -> String {
        self.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    /// RFC 3339 with microseconds, as in `metav1.MicroTime` (Lease `renewTime`).
    #[must_use]
    pub fn micro_time(&self) -> String {
        self.now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
    }

    /// Time since this clock was made.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }
}

/// Seeded randomness without state: the same seed and name give the same value, in whatever order the actors ask.
#[derive(Clone, Copy, Debug)]
pub struct Dice {
    seed: u64,
}

impl Dice {
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// A value that depends on the seed and the names only.
    #[must_use]
    pub fn roll(&self, names: &[&str]) -> u64 {
        let mut hash = 0xcbf2_9ce4_8422_2325 ^ self.seed;
        for name in names {
            for byte in name.bytes().chain([0]) {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
            }
        }
        // splitmix64's finish: FNV alone leaves the high bits of short names alike.
        hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        hash ^ (hash >> 31)
    }

    /// A duration between `range.min` and `range.max`, in whole milliseconds.
    #[must_use]
    pub fn between(&self, range: Range, names: &[&str]) -> Duration {
        let (low, high) = (range.min.as_millis() as u64, range.max.as_millis() as u64);
        if high <= low {
            return range.min;
        }
        Duration::from_millis(low + self.roll(names) % (high - low + 1))
    }
}

/// How long something takes, at least and at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub min: Duration,
    pub max: Duration,
}

impl Range {
    /// From `min` to `max` milliseconds.
    #[must_use]
    pub const fn millis(min: u64, max: u64) -> Self {
        Self { min: Duration::from_millis(min), max: Duration::from_millis(max) }
    }

    /// No time at all.
    pub const ZERO: Self = Self::millis(0, 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dice_depend_on_seed_and_names_alone() {
        let (one, two) = (Dice::new(1), Dice::new(2));
        assert_eq!(one.roll(&["a", "b"]), one.roll(&["a", "b"]));
        assert_ne!(one.roll(&["a", "b"]), one.roll(&["ab"]));
        assert_ne!(one.roll(&["a"]), two.roll(&["a"]));
        let drawn = one.between(Range::millis(10, 20), &["x"]);
        assert!(drawn >= Duration::from_millis(10) && drawn <= Duration::from_millis(20));
    }
}
