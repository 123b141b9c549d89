//! What readers get: the facts, the verdicts on them, and the log of writes. One value for console, `status` and metrics.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;

use crate::{
    fleet::view::FleetView,
    handoff::{action::Subject, verdict::Verdict},
};

/// The latest picture. Cheap to clone; replaced as a whole, never changed.
#[derive(Debug, Clone)]
pub struct Picture {
    pub fleet: Arc<FleetView>,
    /// Verdicts by subject; a subject without one needs nothing.
    pub verdicts: Arc<BTreeMap<Subject, Verdict>>,
    /// Queue per component: nodes in the order in which they will be taken.
    pub queues: Arc<BTreeMap<crate::api::ComponentKey, Vec<crate::api::NodeName>>>,
    pub mode: Mode,
    pub leadership: LeadershipView,
}

/// How this process takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Sends nothing that changes anything.
    ReadOnly,
    /// Writes intents; somebody else's engine acts.
    Intents,
    /// Runs the engine when it holds the Lease.
    Engine,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LeadershipView {
    /// Identity in the Lease; None: nobody holds it.
    pub holder: Option<String>,
    pub ours: bool,
    pub epoch: i64,
    pub until: Option<Timestamp>,
}

/// One API write, for the Log screen: what was sent, and what a person would have typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteLogEntry {
    pub at: Timestamp,
    /// `PATCH`, `POST`, `DELETE`, `PUT`.
    pub verb: String,
    /// `Node n1`, `Pod ns/p (eviction)`.
    pub object: String,
    /// Why: the action's sentence; empty for renewals.
    pub why: String,
    /// The nearest kubectl command.
    pub kubectl: String,
    /// HTTP status; None: no answer.
    pub code: Option<u16>,
    pub millis: u64,
    /// The server's message when refused.
    pub message: String,
}
