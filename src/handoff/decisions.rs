//! The verdicts of one picture, cheap to copy and to compare with those before. How they come about is `decide`'s.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;

use super::{
    action::{Action, Subject},
    again::Seen,
    facts::Admission,
    queue::Queue,
    tally::{Contribution, Tally},
    verdict::Verdict,
};
use crate::{
    api::{ComponentKey, NodeName},
    fleet::{
        sorted::{Entry, Sorted},
        view::NodeView,
    },
};

/// The verdicts of one picture. Cheap to clone; unchanged parts are shared with the decisions before.
#[derive(Debug, Clone, Default)]
pub struct Decisions {
    /// Sorted by name.
    pub nodes: Sorted<Arc<NodeDecision>>,
    /// Components, versions, the Lease; only those that need something.
    pub others: Arc<BTreeMap<Subject, Verdict>>,
    /// Who is admitted next and why each of the others waits, in the order in which nodes will be taken.
    pub queue: Arc<Queue>,
    /// By component.
    pub tallies: Arc<BTreeMap<ComponentKey, Tally>>,
    /// Decide again then at the latest, though nothing has changed.
    pub recheck: Option<Timestamp>,
    pub(super) inputs: Option<Arc<Seen>>,
}

/// The verdicts of one node, by component.
#[derive(Debug)]
pub struct NodeDecision {
    pub node: NodeName,
    pub verdicts: Vec<(ComponentKey, Verdict)>,
    pub recheck: Option<Timestamp>,
    pub(super) view: Arc<NodeView>,
    pub(super) admissions: Vec<Option<Admission>>,
    pub(super) contributions: Vec<Contribution>,
    /// A verdict rests on budgets: of claimants that are being drained.
    pub(super) drains: bool,
}

/// What a few dozen nodes come to.
#[derive(Debug, Default)]
pub struct NodeSum {
    pub(super) recheck: Option<Timestamp>,
    /// Something moves on; something is only written down.
    moves: bool,
    notes: bool,
    pub(super) drains: bool,
    /// By the component's place in the sorted list of components.
    pub(super) tallies: Vec<Tally>,
    /// Nodes with our cordon, with the component's place.
    pub(super) closed: Vec<(usize, NodeName)>,
    /// Nodes that have lost their component and that nobody hands over yet, with a word for why.
    pub(super) lost: Vec<(usize, NodeName, &'static str)>,
}

impl Entry for Arc<NodeDecision> {
    type Key = NodeName;
    type Sum = NodeSum;

    fn key(&self) -> &NodeName {
        &self.node
    }

    fn sum(entries: &[Self]) -> NodeSum {
        let mut sum = NodeSum::default();
        for node in entries {
            sum.recheck = [sum.recheck, node.recheck].into_iter().flatten().min();
            for (_, verdict) in &node.verdicts {
                if let Verdict::Act(action) = verdict {
                    let kind = if action.is_note() { &mut sum.notes } else { &mut sum.moves };
                    *kind = true;
                }
            }
            sum.drains |= node.drains;
            for it in &node.contributions {
                if sum.tallies.len() <= it.component {
                    sum.tallies.resize_with(it.component + 1, Tally::default);
                }
                if let Some(tally) = sum.tallies.get_mut(it.component) {
                    tally.add(&node.node, it);
                }
                if let Some(why) = it.out_of_service() {
                    sum.lost.push((it.component, node.node.clone(), why));
                }
                if it.closed {
                    sum.closed.push((it.component, node.node.clone()));
                }
            }
        }
        sum
    }
}

impl Decisions {
    pub fn node(&self, name: &NodeName) -> Option<&Arc<NodeDecision>> {
        self.nodes.get(name)
    }

    /// None: nothing is known of it, or it needs nothing.
    pub fn verdict(&self, subject: &Subject) -> Option<&Verdict> {
        match subject {
            Subject::Occupancy { component, node } => self.node(node)?.verdict(component),
            other => self.others.get(other),
        }
    }

    /// Every verdict, in the order of subjects.
    pub fn iter(&self) -> impl Iterator<Item = (Subject, &Verdict)> {
        let nodes = self.nodes.iter().flat_map(|node| {
            node.verdicts.iter().map(|(component, verdict)| {
                (Subject::Occupancy { component: component.clone(), node: node.node.clone() }, verdict)
            })
        });
        nodes.chain(self.others.iter().map(|(subject, verdict)| (subject.clone(), verdict)))
    }

    /// At most one action per subject. The Lease and versions first, since the others wait for them; notes last.
    pub fn actions(&self) -> impl Iterator<Item = (Subject, &Action)> {
        let others = self.others.iter().rev().filter_map(|(subject, verdict)| Some((subject.clone(), action_of(verdict)?)));
        others.chain(self.of_nodes(|sum| sum.moves, false)).chain(self.of_nodes(|sum| sum.notes, true))
    }

    fn of_nodes(&self, has: fn(&NodeSum) -> bool, notes: bool) -> impl Iterator<Item = (Subject, &Action)> {
        let nodes = self.nodes.leaves().filter(move |leaf| has(leaf.sum())).flat_map(|leaf| leaf.entries());
        let verdicts = nodes.flat_map(|node| node.verdicts.iter().map(move |(component, verdict)| (node, component, verdict)));
        verdicts.filter_map(move |(node, component, verdict)| {
            let action = action_of(verdict).filter(|action| action.is_note() == notes)?;
            Some((Subject::Occupancy { component: component.clone(), node: node.node.clone() }, action))
        })
    }
}

fn action_of(verdict: &Verdict) -> Option<&Action> {
    match verdict {
        Verdict::Act(action) => Some(action),
        _ => None,
    }
}

impl NodeDecision {
    pub fn verdict(&self, component: &ComponentKey) -> Option<&Verdict> {
        self.verdicts.iter().find(|(key, _)| key == component).map(|(_, verdict)| verdict)
    }
}
