//! A pause that grows with each failure and forgets only after a time of health. Without jitter, so that a simulated run replays.
//!
//! kube's own back-off resets with every item, and a watcher yields one before each list: on failing lists it never grows.

use std::time::Duration;

use tokio::time::Instant;

#[derive(Debug)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    healthy: Duration,
    next: Duration,
    healthy_since: Option<Instant>,
    /// Failures since the last reset.
    pub failures: u32,
}

impl Backoff {
    pub fn new(first: Duration, longest: Duration, healthy: Duration) -> Self {
        Self { first, longest, healthy, next: first, healthy_since: None, failures: 0 }
    }

    /// Things work. Only the first call after a failure counts.
    pub fn works(&mut self) {
        self.healthy_since.get_or_insert_with(Instant::now);
    }

    /// What failed before says nothing any more.
    pub fn reset(&mut self) {
        self.next = self.first;
        self.failures = 0;
    }

    /// Something failed: how long to wait before the next try.
    pub fn failed(&mut self) -> Duration {
        if self.healthy_since.take().is_some_and(|since| since.elapsed() >= self.healthy) {
            self.reset();
        }
        let pause = self.next;
        self.next = (self.next * 2).min(self.longest);
        self.failures = self.failures.saturating_add(1);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn grows_and_forgets_only_after_health() {
        let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30), Duration::from_secs(60));
        let pauses: Vec<u128> = (0..8).map(|_| backoff.failed().as_millis()).collect();
        assert_eq!(pauses, [500, 1000, 2000, 4000, 8000, 16000, 30000, 30000]);
        backoff.works();
        tokio::time::advance(Duration::from_secs(59)).await;
        assert_eq!(backoff.failed().as_millis(), 30000);
        backoff.works();
        tokio::time::advance(Duration::from_secs(61)).await;
        backoff.works();
        assert_eq!(backoff.failed().as_millis(), 500);
    }
}
