//! The times of KMM's tries, against those that were measured.

use std::time::Duration;

use crate::kmm::ladder::{next_try, remaining, tries};

fn ms(number: u64) -> Duration {
    Duration::from_millis(number)
}

#[test]
fn tries_double_from_5_ms_to_a_thousand_seconds() {
    let first: Vec<u128> = tries().take(8).map(|at| at.as_millis()).collect();
    assert_eq!(first, [5, 15, 35, 75, 155, 315, 635, 1275]);
    let late: Vec<u64> = tries().skip(8).take(12).map(|at| at.as_secs()).collect();
    assert_eq!(late, [2, 5, 10, 20, 40, 81, 163, 327, 655, 1310, 2310, 3310]);
}

/// (when what was awaited had come, when KMM was seen to go on), ms after the label write, of nodes that nobody woke.
#[test]
fn the_measured_waits_lie_on_the_ladder() {
    for (came, went_on) in [(1034 - 7, 1357 - 7), (1031 - 7, 1367 - 7), (25_387 - 328, 43_158 - 328), (3434 - 1367, 3994 - 1367)]
    {
        let expected = next_try(ms(came)).as_millis() as u64;
        // A try takes some 10 ms itself, and each adds to the next.
        assert!((expected..expected + expected / 20 + 90).contains(&went_on), "{came}: {expected}, seen {went_on}");
    }
}

#[test]
fn the_remaining_wait_is_to_the_next_try_however_late_it_is() {
    assert_eq!(remaining(ms(1000)), ms(275));
    assert_eq!(remaining(ms(1275)), Duration::ZERO);
    assert_eq!(next_try(Duration::from_secs(1400)), Duration::from_millis(2_310_715));
    assert!(remaining(Duration::from_secs(1_000_000)) <= Duration::from_secs(1000));
    let century = Duration::from_secs(100 * 365 * 86_400);
    assert!(next_try(century) >= century);
    // No overflow.
    assert!(next_try(Duration::MAX) > Duration::from_secs(1_000_000));
}
