//! What readers get: the facts, the verdicts on them, and the log of writes. One value for console, `status` and metrics.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;

use crate::{
    api::{ComponentKey, NodeName},
    fleet::{
        follow::Fleet,
        view::{ClusterInfo, FleetView},
    },
    handoff::{
        action::Subject,
        decide::Decisions,
        queue::{Before, Place, Queue},
        verdict::Verdict,
    },
};

/// The latest picture. Cheap to clone; replaced as a whole, never changed.
#[derive(Debug, Clone)]
pub struct Picture {
    pub fleet: Arc<FleetView>,
    /// Verdicts by subject; a subject without one needs nothing.
    pub verdicts: Verdicts,
    /// Queue per component: nodes in the order in which they will be taken.
    pub queues: Queues,
    pub mode: Mode,
    pub leadership: LeadershipView,
}

impl Picture {
    /// Before anything is known.
    pub fn empty(cluster: Arc<ClusterInfo>, mode: Mode) -> Self {
        Self {
            fleet: Fleet::new((*cluster).clone()).project(Timestamp::UNIX_EPOCH),
            verdicts: Verdicts::default(),
            queues: Queues::default(),
            mode,
            leadership: LeadershipView::default(),
        }
    }
}

/// By component, the nodes in the order in which they will be taken. Cheap to clone.
#[derive(Debug, Clone)]
pub enum Queues {
    /// As the engine decided them.
    Decided(Arc<Queue>),
    /// Made by hand, for tests.
    Listed(Arc<BTreeMap<ComponentKey, Vec<NodeName>>>),
}

impl Default for Queues {
    fn default() -> Self {
        Self::Listed(Arc::default())
    }
}

impl From<BTreeMap<ComponentKey, Vec<NodeName>>> for Queues {
    fn from(listed: BTreeMap<ComponentKey, Vec<NodeName>>) -> Self {
        Self::Listed(Arc::new(listed))
    }
}

/// Where a node is in its component's queue: sorts as they are taken, and stays the same while others come and go.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    Decided(Place),
    Listed(usize),
}

impl Queues {
    pub fn rank(&self, component: &ComponentKey, node: &NodeName) -> Option<Rank> {
        match self {
            Self::Decided(queue) => queue.place(&(node.clone(), component.clone())).cloned().map(Rank::Decided),
            Self::Listed(_) => self.position(component, node).map(Rank::Listed),
        }
    }

    /// The node's place in the component's queue, from 0. None: it is not in it.
    pub fn position(&self, component: &ComponentKey, node: &NodeName) -> Option<usize> {
        match self {
            Self::Decided(queue) => queue.position(&(node.clone(), component.clone())),
            Self::Listed(listed) => listed.get(component)?.iter().position(|queued| queued == node),
        }
    }

    /// Who keeps the turn that the node waits for; None: nobody does, or it is not known.
    pub fn before(&self, component: &ComponentKey, node: &NodeName) -> Option<Before<'_>> {
        match self {
            Self::Decided(queue) => queue.before(&(node.clone(), component.clone())),
            Self::Listed(_) => None,
        }
    }

    pub fn len(&self, component: &ComponentKey) -> usize {
        match self {
            Self::Decided(queue) => queue.len_of(component),
            Self::Listed(listed) => listed.get(component).map_or(0, Vec::len),
        }
    }

    /// The component's nodes in the order in which they will be taken.
    pub fn nodes(&self, component: &ComponentKey) -> Vec<NodeName> {
        match self {
            Self::Decided(queue) => queue.order(component).cloned().collect(),
            Self::Listed(listed) => listed.get(component).cloned().unwrap_or_default(),
        }
    }

    /// Components with a queue.
    pub fn components(&self) -> Vec<ComponentKey> {
        match self {
            Self::Decided(queue) => queue.components().into_iter().cloned().collect(),
            Self::Listed(listed) => listed.keys().cloned().collect(),
        }
    }
}

/// The verdicts of one picture. Cheap to clone.
#[derive(Debug, Clone)]
pub enum Verdicts {
    /// As the engine decided them.
    Decided(Arc<Decisions>),
    /// Made by hand, for tests.
    Listed(Arc<BTreeMap<Subject, Verdict>>),
}

impl Default for Verdicts {
    fn default() -> Self {
        Self::Listed(Arc::default())
    }
}

impl From<BTreeMap<Subject, Verdict>> for Verdicts {
    fn from(listed: BTreeMap<Subject, Verdict>) -> Self {
        Self::Listed(Arc::new(listed))
    }
}

impl Verdicts {
    pub fn get(&self, subject: &Subject) -> Option<&Verdict> {
        match self {
            Self::Decided(decisions) => decisions.verdict(subject),
            Self::Listed(listed) => listed.get(subject),
        }
    }

    /// All of them, in the order of subjects.
    pub fn iter(&self) -> Box<dyn Iterator<Item = (Subject, &Verdict)> + '_> {
        match self {
            Self::Decided(decisions) => Box::new(decisions.iter()),
            Self::Listed(listed) => Box::new(listed.iter().map(|(subject, verdict)| (subject.clone(), verdict))),
        }
    }
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
    /// Why the Lease cannot be read or written.
    pub problem: Option<String>,
}

impl LeadershipView {
    /// Another process acts.
    pub fn is_elsewhere(&self) -> bool {
        !self.ours && self.holder.is_some()
    }
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
