//! When a subject may act again after a write that did not succeed: soon at first, then ever later. No chance in it: a run must replay.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use crate::handoff::action::{Op, Subject};

/// What is remembered of a subject's last tries.
#[derive(Debug, Clone)]
struct Memory {
    failures: u32,
    not_before: Timestamp,
    /// The write that succeeded last; the same one again means that the watch has not told it yet.
    applied: Option<Op>,
}

#[derive(Debug, Clone, Default)]
pub struct Backoff(BTreeMap<Subject, Memory>);

const FIRST: SignedDuration = SignedDuration::from_millis(200);
const LONGEST: SignedDuration = SignedDuration::from_secs(15);
/// A write that was applied shows in the watch within this time, or it is looked at anew.
const ECHO: SignedDuration = SignedDuration::from_secs(5);

impl Backoff {
    pub fn succeeded(&mut self, subject: &Subject, op: &Op, now: Timestamp) {
        let memory = Memory { failures: 0, not_before: after(now, ECHO), applied: Some(op.clone()) };
        self.0.insert(subject.clone(), memory);
    }

    pub fn failed(&mut self, subject: &Subject, now: Timestamp) {
        let failures = self.0.get(subject).map_or(0, |memory| memory.failures).saturating_add(1);
        let pause = FIRST * (1 << failures.min(10).saturating_sub(1));
        self.0.insert(subject.clone(), Memory { failures, not_before: after(now, pause.min(LONGEST)), applied: None });
    }

    /// Until when this write must wait; None: it may be sent.
    pub fn wait_for(&self, subject: &Subject, op: &Op, now: Timestamp) -> Option<Timestamp> {
        let memory = self.0.get(subject)?;
        let same = memory.applied.as_ref().is_none_or(|applied| applied == op);
        (same && now < memory.not_before).then_some(memory.not_before)
    }

    /// Forgets subjects that no decision names any more.
    pub fn retain(&mut self, known: impl Fn(&Subject) -> bool) {
        self.0.retain(|subject, _| known(subject));
    }
}

fn after(now: Timestamp, pause: SignedDuration) -> Timestamp {
    now.checked_add(pause).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ComponentKey;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(millis).unwrap()
    }

    fn release(node: &str) -> Op {
        Op::Release(crate::api::keys::Slot { node: node.into(), node_uid: "u".into(), component: "ns/gpu".into() })
    }

    #[test]
    fn pauses_grow_to_a_limit_and_a_success_ends_them() {
        let (mut backoff, subject) = (Backoff::default(), Subject::Component(ComponentKey::new("ns", "gpu")));
        let mut now = at(0);
        let mut pauses = Vec::new();
        for _ in 0..9 {
            backoff.failed(&subject, now);
            let until = backoff.wait_for(&subject, &release("n1"), now).unwrap();
            pauses.push(until.duration_since(now).as_millis());
            now = until;
        }
        assert_eq!(pauses, [200, 400, 800, 1600, 3200, 6400, 12800, 15000, 15000]);
        backoff.succeeded(&subject, &release("n1"), now);
        assert_eq!(backoff.wait_for(&subject, &release("n2"), now), None, "another write may follow at once");
    }

    #[test]
    fn the_same_write_is_not_sent_again_before_its_echo() {
        let (mut backoff, subject) = (Backoff::default(), Subject::Lease);
        backoff.succeeded(&subject, &release("n1"), at(0));
        assert_eq!(backoff.wait_for(&subject, &release("n1"), at(4999)), Some(at(5000)));
        assert_eq!(backoff.wait_for(&subject, &release("n1"), at(5000)), None);
    }
}
