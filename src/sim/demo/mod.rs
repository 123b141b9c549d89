//! The demo: a scenario on a simulated cluster, headless to its end, or at a human pace under the console.

pub mod baseline;
pub mod chaos;
pub mod csi;
pub mod headless;
pub mod interactive;
pub mod kmm;
pub mod serving;
pub mod story;
pub mod supervisor;

use serde::Serialize;

use super::world::Profile;

/// What to run.
#[derive(Debug, Clone)]
pub struct DemoOptions {
    pub scenario: Scenario,
    pub seed: u64,
    pub faults: Profile,
    pub baseline: Option<Baseline>,
    pub nodes: usize,
    /// Pods per node that hold nothing.
    pub pods_per_node: usize,
    /// Keep the text of the event log.
    pub keep_log: bool,
    /// Tell the story of nodes and handoffs.
    pub tell: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Scenario {
    /// A kernel module with its device plugin, and pods that use the devices
    #[default]
    KernelModule,
    /// Two CSI nodeplugins, and pods with FUSE, rbd-nbd and kernel mounts
    Csi,
    /// Modules that Kernel Module Management loads, and pods that use their devices
    Kmm,
}

impl Scenario {
    pub fn word(self) -> &'static str {
        match self {
            Self::KernelModule => "kernel-module",
            Self::Csi => "csi",
            Self::Kmm => "kmm",
        }
    }
}

/// What other tools do on the same fleet, to compare with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Baseline {
    /// A plain rolling update of the DaemonSets.
    RollingUpdate,
    /// Of scenario kmm: all nodes' version labels changed at once, as a script does.
    LabelAll,
}

impl Baseline {
    /// Whether other tools do this in a scenario.
    pub fn fits(self, scenario: Scenario) -> bool {
        (self == Self::LabelAll) == (scenario == Scenario::Kmm)
    }
}

/// The result of a headless run: the last line of `demo --headless -o json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    pub scenario: &'static str,
    pub seed: u64,
    pub nodes: usize,
    pub upgraded: usize,
    /// Nodes whose handoff stands at Failed or Aborted.
    pub failed: usize,
    pub claimants_evicted: u64,
    /// Workloads that lost their device or mount while running; DaemonSet pods, which cannot leave, are not counted for a mount.
    pub disruptions: u64,
    /// Those that KMM brought about at a person's order or by itself: with lockkeeper they are not part of `disruptions`.
    pub disruptions_by_others: u64,
    /// Broken invariants.
    pub violations: usize,
    /// Writes of the engine that the API server accepted.
    pub api_writes: u64,
    pub simulated_seconds: u64,
    /// How often the operator tried a failed or aborted handoff again.
    pub retries: usize,
    /// Faults injected into the API, crashes included, and what people and machines did.
    pub faults: u64,
    /// Digest of the whole event log: equal for equal runs.
    pub event_log: String,
}

/// What a run found, for people.
#[derive(Debug, Clone, Default)]
pub struct Findings {
    pub violations: Vec<String>,
    pub unfinished: Vec<String>,
    /// By kind.
    pub faults: std::collections::BTreeMap<String, u64>,
    /// The text of the event log, if it was to be kept.
    pub log: String,
    /// A line per write that matters, if it was to be told.
    pub story: Vec<String>,
}

impl Summary {
    pub fn is_good(&self) -> bool {
        self.upgraded == self.nodes && self.failed == 0 && self.disruptions == 0 && self.violations == 0
    }
}

/// A small fleet, for tests.
#[cfg(test)]
fn options(seed: u64, faults: Profile, nodes: usize) -> DemoOptions {
    DemoOptions {
        scenario: Scenario::KernelModule,
        seed,
        faults,
        baseline: None,
        nodes,
        pods_per_node: 2,
        keep_log: false,
        tell: false,
    }
}
