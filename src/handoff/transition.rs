//! Every change of a handoff's status: from phase to phase, with steps, proofs, history and conditions. Each is one write.

use jiff::Timestamp;

use super::{
    action::{Action, Evidence, Op},
    facts::Facts,
    phases,
    verdict::{Blocker, BlockerKind, Verdict},
};
use crate::{
    api::{
        NodeHandoffStatus, Phase,
        component::Condition,
        handoff::{BlockerRecord, Ended, NodeCopy, Proof, Reason, Step},
    },
    fleet::records::HandoffRecord,
};

const STEPS_KEPT: usize = 64;
const PROOFS_KEPT: usize = 32;
const HISTORY_KEPT: usize = 10;

/// A status in the making.
pub struct Transition<'f, 'a> {
    facts: &'f Facts<'a>,
    status: NodeHandoffStatus,
}

impl<'f, 'a> Transition<'f, 'a> {
    pub fn new(facts: &'f Facts<'a>) -> Self {
        Self { facts, status: facts.status().cloned().unwrap_or_default() }
    }

    /// Enters a phase: the running step ends, the blockers are over.
    pub fn to(mut self, phase: Phase) -> Self {
        let now = self.facts.now.to_string();
        if let Some(last) = self.status.steps.last_mut()
            && last.finished_at.is_none()
        {
            last.finished_at = Some(now.clone());
        }
        if !phase.is_ended() && phase != Phase::Queued {
            self.status.steps.push(Step { phase, started_at: now.clone(), finished_at: None });
        }
        let excess = self.status.steps.len().saturating_sub(STEPS_KEPT);
        self.status.steps.drain(..excess);
        self.status.phase = phase;
        self.status.phase_since = Some(now);
        self.status.blockers.clear();
        self
    }

    /// An observed fact that ended the phase which is being left. Call it before [`Self::to`].
    pub fn proof(mut self, fact: impl Into<String>) -> Self {
        let phase = self.facts.phase();
        self.status.proofs.push(Proof { phase, fact: fact.into(), at: self.facts.now.to_string() });
        let excess = self.status.proofs.len().saturating_sub(PROOFS_KEPT);
        self.status.proofs.drain(..excess);
        self
    }

    pub fn reason(mut self, word: &str, message: impl Into<String>) -> Self {
        self.status.reason = Some(Reason { word: word.to_owned(), message: message.into() });
        self
    }

    pub fn edit(mut self, change: impl FnOnce(&mut NodeHandoffStatus)) -> Self {
        change(&mut self.status);
        self
    }

    /// The copy of D and R that a node made again gets back.
    pub fn copy(mut self, desired: Option<&str>, loaded: Option<String>) -> Self {
        let copy = NodeCopy { desired: desired.map(str::to_owned), loaded };
        self.status.copy = (copy != NodeCopy::default()).then_some(copy);
        self
    }

    /// The attempt is over: it goes to the history, and the conditions say how it ended.
    pub fn end(self, phase: Phase) -> Self {
        let facts = self.facts;
        let mut next = self.to(phase);
        let does = phases::row(facts.kind(), phase).does;
        if let Some(record) = facts.handoff() {
            close(&mut next.status, record, does, facts.now);
        }
        next
    }

    pub fn put(mut self, evidence: Evidence, why: impl Into<String>) -> Verdict {
        let Some(of) = self.facts.handoff_ref() else { return Verdict::Done };
        self.status.observed_generation = self.facts.handoff().map(|handoff| handoff.generation);
        if self.status.phase == Phase::Held
            && let Some(reason) = &self.status.reason
        {
            // Whoever reads the API finds here, too, what is waited for.
            let blocker = super::ending::held_by(self.facts, &reason.word, reason.message.clone());
            self.status.blockers = recorded(&[blocker]);
        }
        let op = Op::PutHandoffStatus { of, status: Box::new(self.status) };
        Verdict::Act(Box::new(Action { op, evidence, why: why.into() }))
    }
}

/// The status of one that is taken out of the queue though its component, and with it all facts about it, is gone.
pub fn taken_back(record: &HandoffRecord, word: &str, message: &str, now: Timestamp) -> NodeHandoffStatus {
    let mut status = record.status.clone();
    status.phase = Phase::Aborted;
    status.phase_since = Some(now.to_string());
    status.blockers.clear();
    status.reason = Some(Reason { word: word.to_owned(), message: message.to_owned() });
    status.observed_generation = Some(record.generation);
    close(&mut status, record, "", now);
    status
}

/// The end that the status speaks of goes to the history, and the conditions say which it was. `record` is as it was before.
fn close(status: &mut NodeHandoffStatus, record: &HandoffRecord, does: &str, now: Timestamp) {
    let phase = status.phase;
    // Ended in the queue: what was asked for last has not run at all.
    let run = status.run.as_ref().filter(|_| record.status.phase != Phase::Queued);
    let spec = record.spec.as_ref().ok();
    let ended = Ended {
        attempt: run.map_or_else(|| spec.map_or(1, |spec| spec.attempt), |run| run.attempt),
        target: run.map_or_else(|| spec.and_then(|spec| spec.version.clone()), |run| run.target.clone()),
        phase,
        reason: status.reason.clone(),
        at: now.to_string(),
    };
    status.history.push(ended);
    let excess = status.history.len().saturating_sub(HISTORY_KEPT);
    status.history.drain(..excess);
    status.resume_at = None;
    let (word, message) = match &status.reason {
        Some(reason) => (reason.word.clone(), reason.message.clone()),
        None => (phase.to_string(), does.to_owned()),
    };
    set_condition(status, record.generation, now, "Complete", phase == Phase::Done, &word, &message);
    set_condition(status, record.generation, now, "Failed", phase == Phase::Failed, &word, &message);
}

fn set_condition(
    status: &mut NodeHandoffStatus,
    generation: i64,
    now: Timestamp,
    kind: &str,
    is: bool,
    reason: &str,
    message: &str,
) {
    let value = if is { "True" } else { "False" };
    let before = status.conditions.iter().find(|known| known.kind == kind && known.status == value);
    let condition = Condition {
        kind: kind.to_owned(),
        status: value.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        last_transition_time: before.map_or_else(|| super::patch::whole_seconds(now), |known| known.last_transition_time.clone()),
        observed_generation: Some(generation),
    };
    status.conditions.retain(|known| known.kind != kind);
    status.conditions.push(condition);
}

/// Blockers as the status keeps them.
pub fn recorded(blockers: &[Blocker]) -> Vec<BlockerRecord> {
    const KEPT: usize = 8;
    let one = |blocker: &Blocker| BlockerRecord {
        kind: blocker.kind.word(),
        object: blocker.object.to_string(),
        message: blocker.message.clone(),
        since: blocker.since.to_string(),
    };
    blockers.iter().take(KEPT).map(one).collect()
}

/// The status names other blockers than these, or says something else of them. That a time or a count has moved on is nothing else, but for
/// budgets and for what the first of a queue waits for; `many`: so many may wait for that that they are not written anew for a name.
pub fn differs(record: &HandoffRecord, blockers: &[Blocker], many: impl FnOnce() -> bool) -> bool {
    let (wanted, known) = (recorded(blockers), &record.status.blockers);
    if wanted.len() != known.len() {
        return true;
    }
    let others = |a: &BlockerRecord, b: &BlockerRecord| (&a.kind, &a.object) != (&b.kind, &b.object) || !words(a).eq(words(b));
    let pairs = || wanted.iter().zip(known).filter(|(a, b)| (&a.kind, &a.object, &a.message) != (&b.kind, &b.object, &b.message));
    pairs().any(|(a, b)| others(a, b) || is_arithmetic(a)) || pairs().any(|(a, _)| is_turn(a)) && !many()
}

/// A budget's numbers, and the version that is asked for now, are what the blocker is about; those of tries and times are not.
fn is_arithmetic(blocker: &BlockerRecord) -> bool {
    let numbers = blocker.kind.starts_with("DisruptionBudget") && !blocker.message.contains("(tried ");
    numbers || BlockerKind::names_one_of(&[BlockerKind::SpecChanged], &blocker.kind)
}

/// What only the first of a component's queue waits for: which nodes, how many, and until when.
fn is_turn(blocker: &BlockerRecord) -> bool {
    use BlockerKind::{BudgetSpent, Canary, OutsideWindow, Soaking};
    BlockerKind::names_one_of(&[BudgetSpent, Canary, OutsideWindow, Soaking], &blocker.kind)
}

/// What a message says, without times, counts, durations and generated names.
fn words(blocker: &BlockerRecord) -> impl Iterator<Item = &str> {
    blocker.message.split_whitespace().filter(|word| !word.contains(|letter: char| letter.is_ascii_digit()))
}
