//! How many requests went out, by verb, resource and code: for metrics, and for tests that count.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use super::request::{Target, Verb};

/// One series.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Series {
    pub verb: Verb,
    /// `pods/eviction`, `nodehandoffs.lockkeeper.dev/status`.
    pub resource: String,
    /// HTTP status; 0: no answer.
    pub code: u16,
}

/// Of one series: how many, and how long they took together (watches: until the headers).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    pub count: u64,
    pub time: Duration,
}

#[derive(Debug, Clone, Default)]
pub struct Counters(Arc<Mutex<BTreeMap<Series, Tally>>>);

impl Counters {
    pub fn add(&self, target: &Target, code: u16, time: Duration) {
        let series = Series { verb: target.verb, resource: target.resource_word(), code };
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let tally = all.entry(series).or_default();
        tally.count += 1;
        tally.time += time;
    }

    /// All series, sorted.
    pub fn read(&self) -> BTreeMap<Series, Tally> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// All requests that changed something.
    pub fn writes(&self) -> u64 {
        self.read()
            .iter()
            .filter(|(series, _)| series.verb.changes_something() && !series.resource.contains("selfsubject"))
            .map(|(_, t)| t.count)
            .sum()
    }
}
