//! What the model's world consists of: per node what the API shows, what is true on the machine, and what the engine remembers; the engine,
//! a former leader's write that is still on its way, and how much more may go wrong. Small and comparable; time is told as order or as "due".

use std::{
    hash::{Hash, Hasher},
    sync::Arc,
};

use lockkeeper::{
    api::{NodeHandoffStatus, handoff::HandoffAction, keys::DesiredBy},
    handoff::action::Action,
};

/// A version: none, 1, 2, or a typo.
pub type V = u8;
pub const NONE: V = 0;
pub const TYPO: V = 3;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    pub nodes: Vec<Node>,
    /// (node, its UID when it was admitted).
    pub slots: Vec<(u8, u8)>,
    /// Of the engine that leads now.
    pub epoch: u8,
    pub engine: Engine,
    /// A write of a former leader that is still on its way: the only thing of it that can still do anything.
    pub former: Option<Flight>,
    pub left: Left,
    /// The first invariant that was broken.
    pub broken: Option<Broken>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Node {
    pub shown: Shown,
    pub truth: Truth,
    pub memory: Memory,
}

/// What the API shows of a node, its pods and its handoff.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Shown {
    pub object: Object,
    pub pods: Pods,
    pub handoff: Option<Handoff>,
}

/// The Node object.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Object {
    pub uid: u8,
    pub boot: u8,
    pub ready: bool,
    pub closed: Closed,
    /// Our cordon annotation.
    pub owned: bool,
    pub desired: V,
    pub loader: V,
    pub plugin: V,
    pub serves: V,
    /// (version, boot in which it was stopped or 0).
    pub record: Option<(V, u8)>,
    pub nonce: u8,
    pub mark: Option<Mark>,
    /// Devices are allocatable.
    pub offers: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Closed {
    Open,
    ByUs,
    ByPerson,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Mark {
    /// Which handoff object.
    pub handoff: u8,
    pub attempt: u8,
    pub epoch: u8,
    pub desired: By,
    /// 0: none.
    pub boot: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum By {
    Kept,
    Removed,
    Set,
}

impl From<DesiredBy> for By {
    fn from(by: DesiredBy) -> Self {
        match by {
            DesiredBy::Kept => Self::Kept,
            DesiredBy::Removed => Self::Removed,
            DesiredBy::Set => Self::Set,
        }
    }
}

impl From<By> for DesiredBy {
    fn from(by: By) -> Self {
        match by {
            By::Kept => Self::Kept,
            By::Removed => Self::Removed,
            By::Set => Self::Set,
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Pods {
    /// By version, 1 and 2.
    pub loader: [Option<Pod>; 2],
    pub plugin: [Option<Pod>; 2],
    pub unload: Vec<Unload>,
    pub user: User,
}

/// A pod of a versioned DaemonSet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Pod {
    /// As its status says.
    pub ready: bool,
    /// Its processes run and have done their work.
    pub runs: bool,
    pub leaving: bool,
    /// Made before the mark's boot was written down.
    pub before_mark: bool,
    /// Made before the last unload pod ended.
    pub before_end: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Unload {
    pub version: V,
    pub nonce: u8,
    pub stage: Stage,
    pub leaving: bool,
    /// Its result is in the handoff's status.
    pub recorded: bool,
    /// Its node selector asks for the nonce.
    pub bound: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    Pending,
    Running,
    Done,
    Failed,
    /// The kubelet did not take it: the node lacks its nonce.
    Refused,
}

/// The pod that uses the device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum User {
    #[default]
    None,
    Running,
    /// Its object says that it runs, but the machine has been restarted.
    Dead,
    Leaving,
    /// Its object was deleted by force; its processes run on.
    Orphan,
}

impl User {
    pub fn holds_device(self) -> bool {
        matches!(self, Self::Running | Self::Leaving | Self::Orphan)
    }
    pub fn has_object(self) -> bool {
        matches!(self, Self::Running | Self::Leaving | Self::Dead)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Handoff {
    /// Each object another.
    pub uid: u8,
    /// NONE: out of service.
    pub version: V,
    pub attempt: u8,
    pub action: Say,
    pub by: Who,
    pub finalizer: bool,
    pub deleting: bool,
    /// Its phase's deadline has passed.
    pub late: bool,
    /// A failed unload's pause has passed.
    pub retry_due: bool,
    pub status: Kept,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Say {
    Run,
    Hold,
    Abort,
    Leave,
}

impl From<Say> for HandoffAction {
    fn from(say: Say) -> Self {
        match say {
            Say::Run => Self::Run,
            Say::Hold => Self::Hold,
            Say::Abort => Self::Abort,
            Say::Leave => Self::Leave,
        }
    }
}

impl From<HandoffAction> for Say {
    fn from(action: HandoffAction) -> Self {
        match action {
            HandoffAction::Run => Self::Run,
            HandoffAction::Hold => Self::Hold,
            HandoffAction::Abort => Self::Abort,
            HandoffAction::Leave => Self::Leave,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Who {
    Operator,
    Label,
    Install,
}

/// A status without what only people read, and without times.
#[derive(Debug, Clone)]
pub struct Kept {
    pub text: Arc<str>,
    pub status: Arc<NodeHandoffStatus>,
}

impl PartialEq for Kept {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}
impl Eq for Kept {}
impl Hash for Kept {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

/// What is so on the machine, whatever the API shows.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Truth {
    pub boot: u8,
    pub kubelet: bool,
    /// The version in the kernel.
    pub kernel: V,
    /// The scheduler has chosen this node for a pod that is not bound yet.
    pub picked: bool,
    /// Processes of a plugin pod deleted by force.
    pub orphan_plugin: V,
    /// Processes of an unload pod deleted by force.
    pub orphan_unload: V,
    /// Versions that somebody has asked for: bit 0 out of service, bits 1 and 2 the versions.
    pub asked: u8,
    /// What a person has set the desired label to since the running attempt began.
    pub ordered: Option<V>,
}

/// What the engine saw itself of this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Memory {
    pub left: Gone,
    /// Plugin and devices have been good for long enough.
    pub stable: bool,
}

/// A pod that left: what is still awaited before it counts as gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Gone {
    Nothing,
    /// The node's Lease must be renewed.
    Renewal,
    /// Its grace must pass.
    Grace,
    Both,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Engine {
    /// It has only just started and does not know what left before.
    pub blind: bool,
    /// What it sees lags behind what is.
    pub lag: Option<Lag>,
    /// Decided, checked and sent, and not there yet.
    pub flight: Option<Flight>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Late {
    Pods,
    Nodes,
    Handoffs,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Lag {
    pub what: Late,
    pub old: Vec<Shown>,
    pub holds: Vec<Holds>,
}

/// A write on its way.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Flight {
    pub act: Act,
    pub holds: Holds,
}

/// Which preconditions of a write still hold: the object has not been written since it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Holds {
    pub object: bool,
    pub handoff: bool,
    pub lease: bool,
    pub pod: bool,
    /// The node has been made again since.
    pub same_node: bool,
    /// Loader pods that were there: a mark's boot makes them old.
    pub loaders: [bool; 2],
    /// A user of the device was bound since, which nobody can know.
    pub came: bool,
}

impl Holds {
    pub fn all(shown: &Shown) -> Self {
        let loaders = [shown.pods.loader[0].is_some(), shown.pods.loader[1].is_some()];
        Self { object: true, handoff: true, lease: true, pod: true, same_node: true, loaders, came: false }
    }
}

/// What was decided, as the engine has it.
#[derive(Debug, Clone)]
pub struct Act {
    pub node: u8,
    pub text: Arc<str>,
    pub action: Arc<Action>,
}

impl PartialEq for Act {
    fn eq(&self, other: &Self) -> bool {
        self.node == other.node && self.text == other.text
    }
}
impl Eq for Act {}
impl Hash for Act {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.node, &self.text).hash(state);
    }
}

/// How much more may happen on this path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Left {
    pub people: u8,
    pub faults: u8,
    /// Together: people and faults.
    pub total: u8,
    pub arrivals: u8,
    /// A person has meddled, or a deadline passed, or an unload failed: the handoff need not end in success.
    pub meddled: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Broken {
    /// `I1` to `I11`.
    pub rule: &'static str,
    pub what: &'static str,
}

/// 0 for version 1, 1 for version 2.
pub fn at(version: V) -> usize {
    usize::from(version.saturating_sub(1)).min(1)
}

impl State {
    pub fn broke(&mut self, rule: &'static str, what: &'static str) {
        self.broken.get_or_insert(Broken { rule, what });
    }

    fn flights(&mut self) -> impl Iterator<Item = &mut Flight> {
        self.engine.flight.iter_mut().chain(&mut self.former)
    }

    fn each_hold(&mut self, node: usize, change: impl Fn(&mut Holds)) {
        for flight in self.flights().filter(|flight| usize::from(flight.act.node) == node) {
            change(&mut flight.holds);
        }
        if let Some(holds) = self.engine.lag.as_mut().and_then(|lag| lag.holds.get_mut(node)) {
            change(holds);
        }
    }

    /// The Node object is written: what was decided on it before conflicts.
    pub fn object(&mut self, node: usize) -> &mut Object {
        self.each_hold(node, |holds| holds.object = false);
        &mut self.nodes[node].shown.object
    }

    pub fn handoff(&mut self, node: usize) -> &mut Option<Handoff> {
        self.each_hold(node, |holds| holds.handoff = false);
        &mut self.nodes[node].shown.handoff
    }

    pub fn slots(&mut self) -> &mut Vec<(u8, u8)> {
        for flight in self.flights() {
            flight.holds.lease = false;
        }
        if let Some(lag) = &mut self.engine.lag {
            lag.holds.iter_mut().for_each(|holds| holds.lease = false);
        }
        &mut self.slots
    }

    /// A pod that a write on its way may be about is another one now.
    pub fn pod_replaced(&mut self, node: usize) {
        self.each_hold(node, |holds| holds.pod = false);
    }

    /// A user of the device has been bound.
    pub fn user_came(&mut self, node: usize) {
        for flight in self.flights().filter(|flight| usize::from(flight.act.node) == node) {
            flight.holds.came = true;
        }
    }

    pub fn made_again(&mut self, node: usize) {
        self.each_hold(node, |holds| (holds.object, holds.same_node) = (false, false));
    }

    /// A pod's object has gone; `ended`: its end was reported.
    pub fn left(&mut self, node: usize, ended: bool) {
        self.pod_replaced(node);
        let memory = &mut self.nodes[node].memory;
        memory.left = match (memory.left, ended) {
            (Gone::Nothing | Gone::Renewal, true) => Gone::Renewal,
            _ => Gone::Both,
        };
    }

    pub fn unsettle(&mut self, node: usize) {
        self.nodes[node].memory.stable = false;
    }
}
