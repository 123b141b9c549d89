//! What was decided for a handoff. The same value feeds the console, logs, Events, status and metrics, so they cannot disagree.

use std::fmt;

use jiff::Timestamp;

use super::action::Action;
use crate::api::{Phase, handoff::Reason};

#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    Act(Box<Action>),
    Wait(Wait),
    /// Nothing is to be done: the node runs what is asked for.
    Done,
    Failed {
        reason: Reason,
    },
}

/// A wait always has a name: what is awaited, since when, because of which object, and what comes next.
#[derive(Debug, Clone, PartialEq)]
pub struct Wait {
    pub phase: Phase,
    pub since: Timestamp,
    /// At least one.
    pub blockers: Vec<Blocker>,
    /// Decide again then at the latest, though nothing has changed.
    pub recheck: Option<Timestamp>,
    /// The step that follows, as a sentence.
    pub next: String,
}

/// A structured reason why a handoff waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocker {
    pub kind: BlockerKind,
    pub object: ObjectRef,
    /// What is awaited of the object, with its arithmetic, and what to do if it does not come by itself.
    pub message: String,
    pub since: Timestamp,
}

/// `Pod ns/name`, `Node n1`.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectRef {
    pub kind: String,
    /// `namespace/name`, or a name.
    pub name: String,
}

impl ObjectRef {
    pub fn new(kind: impl Into<String>, name: impl fmt::Display) -> Self {
        Self { kind: kind.into(), name: name.to_string() }
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.name)
    }
}

/// Stable words; the table in the docs lists each with its repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BlockerKind {
    // Before a node is touched
    QueuedBehind,
    BudgetSpent,
    FailureBudgetSpent,
    Soaking,
    Canary,
    OutsideWindow,
    Paused,
    NodeBusy,
    ForeignMaintenance,
    NodeLeftClosed,
    NoLease,
    StaleView,
    PreflightRefused,
    ComponentRefused,
    // Draining
    DisruptionBudget,
    DisruptionBudgetNever,
    DisruptionBudgetLag,
    EvictionRefused,
    Throttled,
    Terminating,
    Unmanaged,
    EmptyDir,
    MirrorPod,
    DaemonSetClaimant,
    PodBinding,
    Cordon,
    // Handing over
    Claimant,
    ClaimReserved,
    PluginPod,
    Allocatable,
    LoaderPod,
    UnloadPod,
    UnloadFailed,
    RebootRequired,
    NodeNotReady,
    NodeGone,
    PluginNotReady,
    LoaderNotReady,
    Stabilising,
    // CSI nodeplugins
    VolumeAttached,
    Settling,
    UnresolvedVolume,
    PluginMissing,
    StaleMount,
    UnplannedUpgrade,
    // Modules of KMM
    /// KMM does it by itself, now.
    KmmMoves,
    /// KMM looks again later.
    KmmBackOff,
    KmmSilent,
    KmmStuck,
    KmmVersion,
    KmmImage,
    KmmTaint,
    KmmTolerations,
    KmmTrouble,
    WorkerPod,
    WorkerFailed,
    ModuleUnproven,
    // Beside what is waited for
    /// The component was edited while the handoff runs, which does not follow that.
    SpecChanged,
    /// `pauseAfter` names a phase after which this kind never stops.
    PauseSkipped,
    // A person's turn
    HandoffFailed,
    HandoffHeld,
    AwaitingChoice,
    UnknownVersion,
    LabelGarbage,
    Anomaly,
}

impl BlockerKind {
    /// One of these has this word, as a handoff's status keeps it.
    pub fn names_one_of(kinds: &[Self], word: &str) -> bool {
        kinds.iter().any(|kind| kind.word() == word)
    }

    /// The word itself.
    pub fn word(self) -> String {
        format!("{self:?}")
    }
}
