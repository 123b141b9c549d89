//! Commands on handoffs: marks, order, and the dialogs that end in an intent. Nothing here writes to a cluster.

use super::{
    command::Command,
    effect::Effect,
    facts::{Facts, RowKey, Standing},
    messages::Level,
    model::Model,
    overlays::{ask::Ask, plan::PlanDialog},
    plan::Request,
};
use crate::{
    api::{ComponentKey, NodeName, Version},
    engine::intent::{Intent, NodeTarget},
};

/// What a confirmed plan becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    HandOver,
    Retry,
    RollBack,
}

impl Purpose {
    pub fn verb(self) -> &'static str {
        match self {
            Self::HandOver => "Hand over",
            Self::Retry => "Try again",
            Self::RollBack => "Roll back",
        }
    }

    /// The intent; None when a request names no node.
    pub fn intent(self, request: &Request) -> Option<Intent> {
        let component = request.component.clone();
        let node = request.nodes.first()?.node.clone();
        Some(match self {
            Self::HandOver => Intent::HandOver {
                component,
                nodes: request.nodes.clone(),
                to: request.to.clone(),
                pause_after: Vec::new(),
                reason: String::new(),
            },
            Self::Retry => Intent::Retry { component, node },
            Self::RollBack => Intent::RollBack { component, node },
        })
    }
}

/// Sends an intent to the engine; its outcome shows in the status line.
pub fn submit(model: &mut Model, what: String, intent: Intent) -> Effect {
    let id = model.next_intent;
    model.next_intent += 1;
    model.in_flight.insert(id, what);
    Effect::Submit(id, Box::new(intent))
}

/// Runs a command that is enabled.
pub(super) fn run(model: &mut Model, command: Command) -> Vec<Effect> {
    match command {
        Command::Mark => mark(model),
        Command::Unmark => model.marks.clear(),
        Command::Earlier | Command::Later => return reorder(model, command == Command::Earlier),
        Command::HandOver => plan(model, Purpose::HandOver),
        Command::Retry => plan(model, Purpose::Retry),
        Command::RollBack => plan(model, Purpose::RollBack),
        _ => ask(model, command),
    }
    Vec::new()
}

fn mark(model: &mut Model) {
    let Some(key) = model.selected.clone() else { return };
    match model.mark_of(&key) {
        Some(at) => {
            model.marks.remove(at - 1);
        }
        None => model.marks.push(key),
    }
}

fn target(key: &RowKey) -> NodeTarget {
    NodeTarget { node: key.node.clone(), uid: key.uid.clone() }
}

/// Swaps with the neighbour: in the marks, or in the queue that the engine keeps.
fn reorder(model: &mut Model, earlier: bool) -> Vec<Effect> {
    let Some(key) = model.selected.clone() else { return Vec::new() };
    let other = |at: usize| if earlier { at.checked_sub(1) } else { at.checked_add(1) };
    if let Some(at) = model.mark_of(&key).map(|at| at - 1) {
        if let Some(to) = other(at).filter(|to| *to < model.marks.len()) {
            model.marks.swap(at, to);
        }
        return Vec::new();
    }
    let mut nodes = model.picture.queues.nodes(&key.component);
    let Some(at) = nodes.iter().position(|node| *node == key.node) else { return Vec::new() };
    let Some(to) = other(at).filter(|to| *to < nodes.len()) else { return Vec::new() };
    nodes.swap(at, to);
    let what = format!("{} to place {}", key.node, to + 1);
    vec![submit(model, what, Intent::Reorder { component: key.component, nodes })]
}

/// Opens the plan of what a disruptive command would do.
fn plan(model: &mut Model, purpose: Purpose) {
    match request(model, purpose) {
        Some(request) => {
            let plan = (model.planner)(&model.picture, &request);
            model.overlays.push(Box::new(PlanDialog::new(purpose, request, plan)));
        }
        None => model.note(Level::Warn, format!("{}: nothing to do it with", purpose.verb())),
    }
}

fn request(model: &Model, purpose: Purpose) -> Option<Request> {
    let facts = model.selection().ok();
    match purpose {
        Purpose::HandOver => {
            let keys: Vec<&RowKey> =
                if model.marks.is_empty() { model.selected.iter().collect() } else { model.marks.iter().collect() };
            let component = keys.first()?.component.clone();
            let view = model.picture.fleet.components.get(&component)?;
            // What is refused has no aim; the plan says why.
            let to = view.aim().or_else(|| Some(Version::from(view.spec()?.version.as_str())))?;
            Some(Request { component, nodes: keys.into_iter().map(target).collect(), to })
        }
        Purpose::Retry => {
            let facts = facts?;
            // One that named none aims at what is current.
            let asked = facts.handoff()?.spec.as_ref().ok()?.version.clone();
            let to = asked.or_else(|| facts.component?.aim().map(|aim| aim.to_string()))?;
            Some(one(&facts, to))
        }
        Purpose::RollBack => {
            let facts = facts?;
            let from = facts.status()?.run.as_ref()?.from.clone()?;
            Some(one(&facts, from))
        }
    }
}

fn one(facts: &Facts<'_>, to: String) -> Request {
    Request { component: facts.key.clone(), nodes: vec![target(&facts.row())], to: Version::from(to) }
}

/// Opens the dialog of a reversible command.
fn ask(model: &mut Model, command: Command) {
    if let Some((verb, text, intent)) = question(model, command) {
        model.overlays.push(Box::new(Ask::new(command, verb, text, intent)));
    }
}

/// What a reversible command would do with what is selected, as things stand: its verb, the sentence, and what is asked for.
pub(super) fn question(model: &Model, command: Command) -> Option<(&'static str, String, Intent)> {
    let facts = model.selection().ok()?;
    let (component, node): (ComponentKey, NodeName) = (facts.key.clone(), facts.node.name.clone());
    let phase = facts.phase().map_or("", |phase| phase.as_str());
    let paused = facts.component.and_then(|component| component.spec()).is_some_and(|spec| spec.rollout.paused);
    let running = facts.standing() == Standing::Running;
    Some(match command {
        Command::Hold => (
            "Hold",
            format!("{node} stops after {phase} and waits there until C. Its slot stays taken."),
            Intent::Hold { component, node: node.clone() },
        ),
        Command::Continue => {
            ("Go on", format!("{node} goes on with the next phase."), Intent::Continue { component, node: node.clone() })
        }
        Command::Abort => (
            "Abort",
            format!(
                "{node} is in {phase}. While the old module is still loaded, the node is restored and opened again. \
                 Once it is unloaded, the handoff waits for its result and asks: resume (R), roll back (B), or leave the node as it is (L)."
            ),
            Intent::Abort { component, node: node.clone(), reason: String::new() },
        ),
        Command::Leave => (
            "Leave",
            format!(
                "{node} stays as it is: closed if it is closed, and its cordon is yours from now on. Its slot is freed for the next \
                 node. R tries again later."
            ),
            Intent::Leave { component, node: node.clone() },
        ),
        Command::Withdraw => (
            "Withdraw",
            format!("{node} leaves the queue. Nothing was done to it."),
            Intent::Withdraw { component, node: node.clone() },
        ),
        Command::PauseRollout if paused => (
            "Go on",
            format!("{component} admits nodes from its queue again."),
            Intent::Pause { component: component.clone(), paused: false },
        ),
        Command::PauseRollout => (
            "Pause",
            format!("{component} admits no further node until P.{}", if running { " What runs now goes on." } else { "" }),
            Intent::Pause { component: component.clone(), paused: true },
        ),
        _ => return None,
    })
}
