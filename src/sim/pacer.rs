//! Holds the simulation's virtual time back to a human pace. The simulated code is the same at every pace, and so is its log.
//! tokio does not advance a paused clock while a blocking job runs; that is the whole trick.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// How many virtual seconds a real second brings; may be changed while it runs.
#[derive(Debug, Clone)]
pub struct Speed(Arc<AtomicU64>);

impl Speed {
    /// Speeds that are not above 0 count as 1.
    pub fn new(times: f64) -> Self {
        let speed = Self(Arc::new(AtomicU64::new(0)));
        speed.set(times);
        speed
    }

    pub fn set(&self, times: f64) {
        let times = if times.is_finite() && times > 0.0 { times } else { 1.0 };
        self.0.store(times.to_bits(), Ordering::Relaxed);
    }

    pub fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }
}

/// One step of virtual time at speed 1.
const TICK: Duration = Duration::from_millis(10);

/// Runs for ever on the simulation's runtime.
pub async fn hold_back(speed: Speed) {
    loop {
        let times = speed.get();
        let (virtual_start, real_start) = (tokio::time::Instant::now(), real_now());
        while speed.get() == times {
            tokio::time::sleep(TICK.mul_f64(times)).await;
            let due = virtual_start.elapsed().div_f64(times);
            if let Some(ahead) = due.checked_sub(real_start.elapsed()).filter(|ahead| !ahead.is_zero()) {
                wait_really(ahead).await;
            }
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the pacer compares virtual with real time")]
fn real_now() -> std::time::Instant {
    std::time::Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "a blocking job holds the paused clock; one at a time")]
async fn wait_really(time: Duration) {
    let _ = tokio::task::spawn_blocking(move || std::thread::sleep(time)).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_virtual_minutes_at_six_thousand_times_take_a_tenth_of_a_second() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let real = real_now();
        runtime.block_on(async {
            let pacer = tokio::spawn(hold_back(Speed::new(6000.0)));
            tokio::time::sleep(Duration::from_secs(600)).await;
            pacer.abort();
        });
        let took = real.elapsed();
        assert!(took >= Duration::from_millis(80), "virtual time raced ahead: {took:?}");
        assert!(took < Duration::from_secs(300), "virtual time was not faster than real time: {took:?}");
    }
}
