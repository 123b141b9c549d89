//! What is counted as it happens: actions, evictions, phases that handoffs have left. All else is computed when it is asked for.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use prometheus_client::metrics::histogram::Histogram;

use crate::{
    api::Phase,
    cluster::Written,
    drain::eviction::{Reply, classify},
    engine::execute::Executed,
    handoff::action::{Action, Op},
};

/// Seconds. Phases last from less than a second (a label) to hours (a reboot that a person makes).
const BUCKETS: [f64; 14] = [0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 14400.0];

/// Label values, in the order of the metric's labels.
pub(super) type Labels<const N: usize> = [String; N];

/// Cheap to clone; all clones count together.
#[derive(Debug, Clone, Default)]
pub struct Recorded(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
pub(super) struct Inner {
    pub actions: BTreeMap<Labels<2>, u64>,
    pub evictions: BTreeMap<Labels<1>, u64>,
    pub ended: BTreeMap<Labels<2>, u64>,
    pub phases: BTreeMap<Labels<2>, Histogram>,
}

impl Recorded {
    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An action was sent.
    pub fn acted(&self, action: &Action, executed: &Executed) {
        let mut all = self.lock();
        let labels = [action.op.word().to_owned(), outcome(executed).to_owned()];
        *all.actions.entry(labels).or_default() += 1;
        if matches!(action.op, Op::Evict { .. } | Op::DeletePod(_)) {
            for done in &executed.results {
                let word = classify(&Reply::from(&done.written)).word();
                *all.evictions.entry([word.to_owned()]).or_default() += 1;
            }
        }
    }

    /// A handoff has left a phase.
    pub fn left(&self, component: &str, phase: Phase, seconds: f64) {
        let labels = [component.to_owned(), phase.to_string()];
        self.lock().phases.entry(labels).or_insert_with(|| Histogram::new(BUCKETS)).observe(seconds);
    }

    /// A handoff has come to its end.
    pub fn ended(&self, component: &str, phase: Phase) {
        *self.lock().ended.entry([component.to_owned(), phase.to_string()]).or_default() += 1;
    }
}

/// The worst of what the server answered, as a stable word.
pub fn outcome(executed: &Executed) -> &'static str {
    let worst = executed.results.iter().map(|done| &done.written).find(|written| !written.is_applied());
    worst.or_else(|| executed.results.first().map(|done| &done.written)).map_or("NotSent", Written::word)
}
