//! Who is before a node in its component's queue, and why that one waits. It is looked up for who asks, and in no answer: those of thousands
//! would change with every step of the first.

use super::{Of, Queue, Waiting};
use crate::{
    api::{ComponentKey, NodeName},
    handoff::facts::Admission,
};

/// A candidate that keeps its turn, and what it waits for itself.
#[derive(Debug, Clone, Copy)]
pub struct Before<'q> {
    pub node: &'q NodeName,
    pub component: &'q ComponentKey,
    pub answer: &'q Admission,
}

impl Before<'_> {
    /// What it waits for, in a sentence.
    pub fn sentence(&self) -> String {
        match self.answer {
            Admission::Granted(_) => "is before it in the queue, and is admitted now".to_owned(),
            Admission::Blocked { blockers, .. } => match blockers.first() {
                None => "is before it in the queue: it is asked for once more, and about to be queued again".to_owned(),
                Some(first) => {
                    let more = blockers.len().saturating_sub(1);
                    let more = if more > 0 { format!(" (and {more} more)") } else { String::new() };
                    format!(
                        "is before it in the queue, and waits for {} {}: {}{more}",
                        first.kind.word(),
                        first.object,
                        first.message
                    )
                }
            },
        }
    }
}

impl Queue {
    /// Who keeps the turn that the node waits for: the first of its component, or who is admitted at this moment; None: nobody is before it.
    pub fn before(&self, of: &Of) -> Option<Before<'_>> {
        let it = &self.by_node.get(of)?.0;
        let keeps = |other: &Waiting| other.holds && other.component == it.component;
        let own = self.by_place.leaves().filter(|leaf| leaf.sum().holds.contains(&it.component));
        let own = own.flat_map(|leaf| leaf.entries()).find(|other| keeps(other));
        let admitted =
            || self.by_place.leaves().filter(|leaf| leaf.sum().grants).flat_map(|leaf| leaf.entries()).find(|other| other.grants);
        let first = own.filter(|other| other.place < it.place).or_else(|| admitted().filter(|other| other.place < it.place))?;
        let (node, component) = &first.place.of;
        Some(Before { node, component, answer: first.answer.as_ref()? })
    }
}
