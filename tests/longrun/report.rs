//! The sum over all seeds, and how it is told.

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use crate::{
    fleet::{Counts, Done},
    variant::Variant,
};

#[derive(Debug, Default)]
pub struct Total {
    pub handoffs: u64,
    seeds: u64,
    installs: u64,
    faults: Counts,
    people: Counts,
    machines: Counts,
    restarts: u64,
    retries: u64,
    evicted: u64,
    disruptions: u64,
    violations: u64,
    requests: u64,
    all_requests: u64,
    simulated: Duration,
    by_faults: BTreeMap<String, (u64, u64)>,
    with: BTreeMap<&'static str, u64>,
    /// A line or more per failed seed, its replay command the last.
    pub failed: Vec<String>,
}

fn sum(into: &mut Counts, from: &Counts) {
    for (kind, times) in from {
        *into.entry(kind).or_default() += times;
    }
}

impl Total {
    /// Adds a seed; what is to be said at once, if it failed.
    pub fn add(&mut self, variant: &Variant, done: Done) -> Option<String> {
        self.seeds += 1;
        self.handoffs += done.handoffs;
        self.installs += done.installs;
        sum(&mut self.faults, &done.faults);
        sum(&mut self.people, &done.people);
        sum(&mut self.machines, &done.machines);
        self.restarts += done.lives.saturating_sub(1);
        self.retries += done.retries;
        self.evicted += done.evicted;
        self.disruptions += done.disruptions;
        self.violations += done.violations.len() as u64;
        self.requests += done.requests;
        self.all_requests += done.all_requests;
        self.simulated += done.simulated;
        let profile = self.by_faults.entry(format!("{:?}", variant.faults).to_lowercase()).or_default();
        *profile = (profile.0 + 1, profile.1 + done.handoffs);
        let several = variant.max_unavailable > 1;
        for (on, word) in [
            (several, "several nodes at once"),
            (variant.crashes, "crashes"),
            (variant.people, "people"),
            (variant.two_components, "two components"),
            (variant.rollback, "a rollback"),
        ] {
            *self.with.entry(word).or_default() += if on { done.handoffs } else { 0 };
        }
        let mut wrong: Vec<String> = done.problem.into_iter().collect();
        if done.disruptions > 0 {
            wrong.push(format!("{} workloads lost their device while running", done.disruptions));
        }
        wrong.extend(done.violations.iter().take(10).cloned());
        if wrong.is_empty() {
            return None;
        }
        let text = format!("FAILED seed {} ({}): {}\n  {}", variant.seed, variant.told(), wrong.join("\n  "), variant.replay());
        self.failed.push(text.clone());
        Some(text)
    }

    pub fn progress(&self, real: Duration) -> String {
        let minutes = real.as_secs_f64() / 60.0;
        let (seeds, handoffs, failed) = (self.seeds, self.handoffs, self.failed.len());
        format!("{minutes:.1} min: {seeds} seeds, {handoffs} handoffs, {} violations, {failed} seeds failed", self.violations)
    }

    /// The whole report.
    pub fn told(&self, real: Duration) -> String {
        let mut out = String::new();
        let seconds = real.as_secs_f64().max(0.001);
        let per = |count: u64| count as f64 / self.handoffs.max(1) as f64;
        let mut line = |text: String| writeln!(out, "{text}").unwrap_or_default();
        let by_faults = self.by_faults.iter().map(|(name, (seeds, handoffs))| format!("{name} {handoffs} in {seeds} seeds"));
        line(format!(
            "{} handoffs in {} seeds ({}), and {} first installs",
            self.handoffs,
            self.seeds,
            by_faults.collect::<Vec<_>>().join(", "),
            self.installs
        ));
        line(format!(
            "  with {}",
            self.with.iter().map(|(word, count)| format!("{word}: {count}")).collect::<Vec<_>>().join(", ")
        ));
        for (title, counts) in [("API faults", &self.faults), ("people", &self.people), ("machines", &self.machines)] {
            let all: u64 = counts.values().sum();
            let kinds = counts.iter().map(|(kind, times)| format!("{kind} {times}")).collect::<Vec<_>>().join(", ");
            line(format!("{title}: {all} ({kinds})"));
        }
        line(format!(
            "engine: {} restarts after a crash, {:.1} API requests a handoff ({:.1} of everybody)",
            self.restarts,
            per(self.requests),
            per(self.all_requests)
        ));
        line(format!("operator: {} retries; {} claimants evicted", self.retries, self.evicted));
        line(format!("{} disruptions, {} violations, {} seeds failed", self.disruptions, self.violations, self.failed.len()));
        line(format!(
            "{:.1} minutes, {:.1} handoffs/s, {:.0} simulated hours",
            seconds / 60.0,
            self.handoffs as f64 / seconds,
            self.simulated.as_secs_f64() / 3600.0
        ));
        for failed in &self.failed {
            line(failed.clone());
        }
        out
    }
}
