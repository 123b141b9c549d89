//! What a person asks for. Intents become writes of NodeHandoff specs and NodeComponent specs, never of nodes or pods.

use crate::api::{ComponentKey, NodeName, Phase, Uid, Version};

/// One request of the operator, with what the operator saw when asking: a request made on an outdated picture is refused, not guessed at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Intent {
    /// Hand these nodes over, in this order, after what is queued already. A node with an ended handoff gets a new attempt.
    HandOver {
        component: ComponentKey,
        nodes: Vec<NodeTarget>,
        to: Version,
        pause_after: Vec<Phase>,
        reason: String,
    },
    /// Replace the queue's order: positions 1, 2, 3… in this order.
    Reorder {
        component: ComponentKey,
        nodes: Vec<NodeName>,
    },
    /// Stop after the running phase.
    Hold {
        component: ComponentKey,
        node: NodeName,
    },
    /// Go on after Hold or a pause.
    Continue {
        component: ComponentKey,
        node: NodeName,
    },
    Abort {
        component: ComponentKey,
        node: NodeName,
        reason: String,
    },
    /// Try again after Failed or Aborted: attempt + 1.
    Retry {
        component: ComponentKey,
        node: NodeName,
    },
    /// Hand over to the version the node came from.
    RollBack {
        component: ComponentKey,
        node: NodeName,
    },
    /// The third choice after a failure, or after an abort that came too late to restore the node: it ends as it stands. The node
    /// stays as it is, its cordon is the person's from then on, and its slot is free.
    Leave {
        component: ComponentKey,
        node: NodeName,
    },
    /// Take a Queued handoff back.
    Withdraw {
        component: ComponentKey,
        node: NodeName,
    },
    /// `spec.rollout.paused`.
    Pause {
        component: ComponentKey,
        paused: bool,
    },
}

/// A node as the operator saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeTarget {
    pub node: NodeName,
    /// UID of the Node shown; another UID now refuses the intent.
    pub uid: Option<Uid>,
}

/// What became of an intent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IntentOutcome {
    Done {
        message: String,
    },
    /// Nothing was written; the text says why and what to do.
    Refused {
        message: String,
    },
}
