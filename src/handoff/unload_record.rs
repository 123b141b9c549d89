//! Results of unload pods that did not unload: recorded with their log's end, tried again with a growing pause until the deadline.

use jiff::{SignedDuration, Timestamp};

use super::{
    action::{Action, Evidence, Op},
    facts::Facts,
    interlock::{Effect, Rule, Step},
    patch::whole_seconds,
    verdict::{BlockerKind, ObjectRef},
};
use crate::{api::handoff::UnloadRecord, fleet::records::PodRecord};

/// Pause after the n-th failed try.
fn pause(tries: u32) -> SignedDuration {
    SignedDuration::from_secs([5, 10, 20, 40, 60].get(tries.saturating_sub(1) as usize).copied().unwrap_or(60))
}

/// Writes the result down before the pod that shows it is deleted.
pub(super) fn record(f: &Facts<'_>, pod: &PodRecord, exit_code: i32, message: &str, rule: Rule) -> Option<Step> {
    let (of, status) = (f.handoff_ref()?, f.status()?);
    let tries = status.unload.as_ref().map_or(0, |record| record.tries).saturating_add(1);
    let retry_at = f.now.checked_add(pause(tries)).unwrap_or(Timestamp::MAX);
    let mut status = status.clone();
    status.unload = Some(UnloadRecord {
        tries,
        pod: pod.meta.uid.to_string(),
        exit_code,
        message: end_of(message).to_owned(),
        retry_at: Some(retry_at.to_string()),
    });
    let why = format!("record that Pod {} did not unload: exit {exit_code}", pod.key);
    let op = Op::PutHandoffStatus { of, status: Box::new(status) };
    Some(Step { rule, effect: Effect::Act(Box::new(Action { op, evidence: Evidence::Watched, why })) })
}

/// A failed try whose pause has not passed.
pub(super) fn backing_off(f: &Facts<'_>, rule: Rule) -> Option<Step> {
    let record = f.status()?.unload.as_ref()?;
    let retry_at: Timestamp = record.retry_at.as_ref()?.parse().ok()?;
    (f.now < retry_at).then(|| {
        let message = format!(
            "unload pod try {} exited {}: {}. No other try before {}; find what holds the module (lsmod, fuser) if it goes on",
            record.tries,
            record.exit_code,
            record.message,
            whole_seconds(retry_at)
        );
        let blocker = f.blocker(BlockerKind::UnloadFailed, ObjectRef::new("Node", &f.node.name), message);
        Step { rule, effect: Effect::Wait { blockers: vec![blocker], recheck: Some(retry_at) } }
    })
}

/// The last 600 bytes, at a character's edge: the end of a log says what went wrong.
fn end_of(message: &str) -> &str {
    let mut at = message.len().saturating_sub(600);
    while !message.is_char_boundary(at) {
        at += 1;
    }
    message.get(at..).unwrap_or_default()
}
