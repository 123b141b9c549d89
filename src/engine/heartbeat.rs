//! The sign of life of the engine's loop, for the liveness probe: how long ago it last went round, and how long its turns took.
//! It says nothing about the API server: a loop that waits for a dead server still goes round.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

/// How often the loop goes round at the least, when nothing happens at all.
pub const TICK: Duration = Duration::from_secs(5);
/// A loop that has not gone round for this long is stuck: six ticks.
pub const LIMIT: Duration = Duration::from_secs(30);

/// Cheap to clone; all clones share one state.
#[derive(Debug, Clone)]
pub struct Heartbeat(Arc<State>);

#[derive(Debug)]
struct State {
    start: Instant,
    /// Milliseconds after `start`.
    last: AtomicU64,
    turns: AtomicU64,
    /// Microseconds.
    busy: AtomicU64,
}

impl Default for Heartbeat {
    /// It counts from now: a loop that never began is stuck too.
    fn default() -> Self {
        Self(Arc::new(State {
            start: Instant::now(),
            last: AtomicU64::new(0),
            turns: AtomicU64::new(0),
            busy: AtomicU64::new(0),
        }))
    }
}

impl Heartbeat {
    /// The loop went round; deciding took so long.
    pub fn beat(&self, took: Duration) {
        let last = u64::try_from(self.0.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.0.last.store(last, Ordering::Relaxed);
        self.0.turns.fetch_add(1, Ordering::Relaxed);
        self.0.busy.fetch_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub fn age(&self) -> Duration {
        self.0.start.elapsed().saturating_sub(Duration::from_millis(self.0.last.load(Ordering::Relaxed)))
    }

    pub fn is_alive(&self) -> bool {
        self.age() < LIMIT
    }

    /// How many turns there were.
    pub fn turns(&self) -> u64 {
        self.0.turns.load(Ordering::Relaxed)
    }

    /// How long all turns took together.
    pub fn busy(&self) -> Duration {
        Duration::from_micros(self.0.busy.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_stops_going_round_is_stuck_and_one_that_goes_round_again_is_not() {
        let heartbeat = Heartbeat::default();
        assert!(heartbeat.is_alive());
        tokio::time::advance(LIMIT).await;
        assert!(!heartbeat.is_alive());
        heartbeat.beat(Duration::from_millis(3));
        assert!(heartbeat.is_alive());
        assert_eq!((heartbeat.turns(), heartbeat.busy()), (1, Duration::from_millis(3)));
        tokio::time::advance(TICK).await;
        assert_eq!((heartbeat.age(), heartbeat.is_alive()), (TICK, true));
    }
}
