//! Time and chance of the simulated cluster: the start time plus tokio's virtual clock, and a seeded generator.
//! Nothing else in the simulation may read a clock or draw a number.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::runtime::Handle;
use tokio::time::Instant;

/// Wall-clock time of the simulation.
#[derive(Debug, Clone)]
pub struct SimClock {
    start: Timestamp,
    epoch: Instant,
    runtime: Handle,
}

impl SimClock {
    /// A clock that shows `start` now.
    ///
    /// # Panics
    /// Outside of a tokio runtime: the clock is the runtime's.
    pub fn new(start: Timestamp) -> Self {
        Self { start, epoch: Instant::now(), runtime: Handle::current() }
    }

    pub fn start(&self) -> Timestamp {
        self.start
    }

    /// The runtime that the simulated cluster lives on.
    pub fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// The runtime's instant, also when asked from another thread.
    pub fn instant(&self) -> Instant {
        let _inside = self.runtime.enter();
        Instant::now()
    }

    /// Virtual time since the start.
    pub fn elapsed(&self) -> Duration {
        self.instant().saturating_duration_since(self.epoch)
    }

    pub fn now(&self) -> Timestamp {
        self.start.checked_add(SignedDuration::try_from(self.elapsed()).unwrap_or(SignedDuration::ZERO)).unwrap_or(Timestamp::MAX)
    }
}

/// A small seeded generator (splitmix64); the same seed gives the same numbers on every machine.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number in `0..bound`; 0 when `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.draw() % bound }
    }

    /// True with a chance of `permille` in a thousand.
    pub fn chance(&mut self, permille: u32) -> bool {
        self.below(1000) < u64::from(permille)
    }

    /// A generator of its own for a named part, so that one part's draws do not shift another's.
    #[must_use]
    pub fn fork(&self, name: &str) -> Self {
        let mut hash = 0xCBF2_9CE4_8422_2325_u64 ^ self.0;
        for byte in name.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
        }
        Self(hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_clock_is_start_plus_virtual_time() {
        let clock = SimClock::new("2026-01-01T00:00:00Z".parse().unwrap());
        tokio::time::sleep(Duration::from_secs(90)).await;
        assert_eq!(clock.now().to_string(), "2026-01-01T00:01:30Z");
    }

    #[test]
    fn forks_are_independent_and_repeatable() {
        let a = Dice::new(1);
        assert_eq!(a.fork("x").draw(), Dice::new(1).fork("x").draw());
        assert_ne!(a.fork("x").draw(), a.fork("y").draw());
    }
}
