//! What came back from an eviction, what it means, when to try again, and the memory of it. It sends nothing and reads no budget.

use std::{collections::BTreeMap, time::Duration};

use jiff::{SignedDuration, Timestamp};

use super::budget::BudgetClass;
use crate::{api::Uid, handoff::action::PodRef};

/// The shortest time between two tries for one pod.
pub const FIRST_DELAY: Duration = Duration::from_secs(5);
/// The longest one, unless the server asks for more.
pub const LAST_DELAY: Duration = Duration::from_secs(30);

/// An eviction's (or a pod DELETE's) answer, without transport. The rim makes it from its own result: `Reply::from(&Written)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    Accepted,
    /// 404.
    Gone,
    /// 409.
    Conflict {
        message: String,
    },
    /// Any other error that the server stands by.
    Refused {
        code: u16,
        message: String,
        /// (reason, message) of `status.details.causes`.
        causes: Vec<(String, String)>,
        retry_after: Option<Duration>,
    },
    /// No answer (`code` is None), or a server error: it may have been applied.
    Lost {
        code: Option<u16>,
        message: String,
    },
    /// Not sent at all.
    NotSent {
        why: String,
    },
}

/// What an answer means for the pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It is being deleted now: wait for it, never evict it again.
    Accepted,
    /// No pod of that name: it is gone.
    Gone,
    /// Another pod has the name: the one that was meant is gone, and the other is none of ours.
    Replaced,
    /// The pod is no longer as it was seen: nothing was done, and it is looked at again.
    Changed,
    /// A PodDisruptionBudget does not allow it; the server's words, and the class that they tell. A FleetView knows more:
    /// `budget::standing`.
    Budget { class: BudgetClass, message: String, retry_after: Option<Duration> },
    /// The API server asks everybody to slow down: no budget's doing.
    Throttled { retry_after: Option<Duration> },
    /// The namespace is being deleted, and the pod with it, soon.
    NamespaceTerminating,
    /// More than one budget selects the pod.
    TwoBudgets { message: String },
    /// A permission is missing: `create pods/eviction in namespace shop`.
    Forbidden { missing: String },
    /// An admission webhook or policy said no, or could not be reached.
    Webhook { message: String },
    /// A server error, or not sent: nothing is wrong with the request.
    Transient { message: String },
    /// Whether it was applied is not known: look at the pod before anything else.
    Unknown { message: String },
}

impl Outcome {
    /// A stable word for metrics and logs.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Accepted => "Accepted",
            Self::Gone => "Gone",
            Self::Replaced => "Replaced",
            Self::Changed => "Changed",
            Self::Budget { .. } => "Budget",
            Self::Throttled { .. } => "Throttled",
            Self::NamespaceTerminating => "NamespaceTerminating",
            Self::TwoBudgets { .. } => "TwoBudgets",
            Self::Forbidden { .. } => "Forbidden",
            Self::Webhook { .. } => "Webhook",
            Self::Transient { .. } => "Transient",
            Self::Unknown { .. } => "Unknown",
        }
    }

    /// Nothing is left to be asked for: the pod goes, or has gone.
    pub fn is_settled(&self) -> bool {
        matches!(self, Self::Accepted | Self::Gone | Self::Replaced)
    }
}

/// The meaning of an answer; the same for an eviction and for a DELETE with UID precondition.
pub fn classify(reply: &Reply) -> Outcome {
    match reply {
        Reply::Accepted => Outcome::Accepted,
        Reply::Gone => Outcome::Gone,
        Reply::Conflict { message } if message.contains("UID in precondition") => Outcome::Replaced,
        Reply::Conflict { .. } => Outcome::Changed,
        Reply::Refused { code, message, causes, retry_after } => refused(*code, message, causes, *retry_after),
        Reply::Lost { code, message } => lost(*code, message),
        Reply::NotSent { why } => Outcome::Transient { message: format!("not sent: {why}") },
    }
}

fn refused(code: u16, message: &str, causes: &[(String, String)], retry_after: Option<Duration>) -> Outcome {
    let cause = |word: &str| causes.iter().find(|(reason, _)| reason == word).map(|(_, message)| message.as_str());
    // 403 with this cause: the budget's status is negative, or has too many unconfirmed disruptions.
    if let Some(told) = cause("DisruptionBudget").filter(|_| matches!(code, 429 | 403)) {
        let class = if code == 403 || told.contains("still being processed") {
            BudgetClass::ControllerLag
        } else if told.contains("failed sync") {
            BudgetClass::Permanent
        } else {
            BudgetClass::Waiting
        };
        let message = if told.is_empty() { message } else { told }.to_owned();
        return Outcome::Budget { class, message, retry_after };
    }
    match code {
        429 => Outcome::Throttled { retry_after },
        403 if cause("NamespaceTerminating").is_some() => Outcome::NamespaceTerminating,
        _ if by_admission(message) => Outcome::Webhook { message: message.to_owned() },
        401 => Outcome::Forbidden { missing: "valid credentials: the server does not know who asks".to_owned() },
        403 => Outcome::Forbidden { missing: missing_permission(message) },
        404 => Outcome::Gone,
        409 => classify(&Reply::Conflict { message: message.to_owned() }),
        408 | 500.. => lost(Some(code), message),
        _ => Outcome::Unknown { message: format!("{code}: {message}") },
    }
}

fn lost(code: Option<u16>, message: &str) -> Outcome {
    let message = message.to_owned();
    match code {
        // The handler has no better status for it.
        Some(500) if message.contains("more than one PodDisruptionBudget") => Outcome::TwoBudgets { message },
        Some(_) if by_admission(&message) => Outcome::Webhook { message },
        // The server, or a proxy before it, gave up waiting for somebody who may go on.
        Some(408 | 502 | 504) | None => Outcome::Unknown { message },
        Some(_) => Outcome::Transient { message },
    }
}

fn by_admission(message: &str) -> bool {
    ["admission webhook", "failed calling webhook", "failed to call webhook", "ValidatingAdmissionPolicy", "denied the request"]
        .iter()
        .any(|words| message.contains(words))
}

/// From `User "x" cannot create resource "pods/eviction" in API group "" in the namespace "shop"`, the server's own words.
fn missing_permission(message: &str) -> String {
    let quoted = |after: &str| message.split_once(after).and_then(|(_, rest)| rest.split('"').next()).filter(|it| !it.is_empty());
    let verb = message.split_once(" cannot ").and_then(|(_, rest)| rest.split(' ').next());
    match (verb, quoted("resource \"")) {
        (Some(verb), Some(resource)) => match quoted("namespace \"") {
            Some(namespace) => format!("{verb} {resource} in namespace {namespace}"),
            None => format!("{verb} {resource}"),
        },
        _ => message.to_owned(),
    }
}

/// How long to wait after the n-th try (from 1) that ended so; None: there is no next try. It doubles from 5 s to 30 s, and what the
/// server asks for counts when it is longer. No randomness: one process evicts for a cluster.
pub fn delay(outcome: &Outcome, tries: u32) -> Option<Duration> {
    let grown = FIRST_DELAY.saturating_mul(1 << tries.saturating_sub(1).min(8)).min(LAST_DELAY);
    match outcome {
        Outcome::Accepted | Outcome::Gone | Outcome::Replaced => None,
        Outcome::Budget { retry_after, .. } | Outcome::Throttled { retry_after } => {
            Some(retry_after.map_or(grown, |it| it.max(grown)))
        }
        // A person must do something first.
        Outcome::TwoBudgets { .. } | Outcome::Forbidden { .. } => Some(LAST_DELAY),
        Outcome::Changed
        | Outcome::NamespaceTerminating
        | Outcome::Webhook { .. }
        | Outcome::Transient { .. }
        | Outcome::Unknown { .. } => Some(grown),
    }
}

/// A time plus a length of it; the end of time when there is none.
pub(super) fn after(time: Timestamp, length: Duration) -> Timestamp {
    SignedDuration::try_from(length).ok().and_then(|length| time.checked_add(length).ok()).unwrap_or(Timestamp::MAX)
}

/// What this process saw of one pod's eviction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    pub pod: PodRef,
    pub outcome: Outcome,
    pub tries: u32,
    pub first: Timestamp,
    pub last: Timestamp,
    /// None: never again.
    pub next: Option<Timestamp>,
}

/// What this process saw, per pod UID. Volatile: after a restart `status.evicted` of the handoff says what was accepted, and the rest
/// is found out by asking again. One memory serves all handoffs of a cluster, since UIDs are never used twice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EvictionMemory {
    attempts: BTreeMap<Uid, Attempt>,
}

impl EvictionMemory {
    /// After each answer to an eviction or an override's DELETE. What is settled stays so, whatever comes later.
    pub fn record(&mut self, pod: &PodRef, outcome: Outcome, now: Timestamp) {
        let before = self.attempts.get(&pod.uid);
        if before.is_some_and(|it| it.outcome.is_settled()) && !outcome.is_settled() {
            return;
        }
        let tries = before.map_or(0, |it| it.tries).saturating_add(1);
        let next = delay(&outcome, tries).map(|length| after(now, length));
        let first = before.map_or(now, |it| it.first);
        self.attempts.insert(pod.uid.clone(), Attempt { pod: pod.clone(), outcome, tries, first, last: now, next });
    }

    pub fn get(&self, uid: &Uid) -> Option<&Attempt> {
        self.attempts.get(uid)
    }

    /// The server took the eviction, or said that the pod is gone: not to be evicted again by this process.
    pub fn is_settled(&self, uid: &Uid) -> bool {
        self.get(uid).is_some_and(|it| it.outcome.is_settled())
    }

    /// UIDs whose eviction the server accepted: what belongs into `status.evicted` of the handoff that asked for it.
    pub fn accepted(&self) -> impl Iterator<Item = &PodRef> {
        self.attempts.values().filter(|it| it.outcome == Outcome::Accepted).map(|it| &it.pod)
    }

    /// Throttling is meant for all: until when nothing is to be sent, and which attempt was told so. None: not now.
    pub fn throttled(&self, now: Timestamp) -> Option<(&Attempt, Timestamp)> {
        let asked = self.attempts.values().filter(|it| matches!(it.outcome, Outcome::Throttled { .. }));
        asked.filter_map(|it| it.next.filter(|next| *next > now).map(|next| (it, next))).max_by_key(|(_, next)| *next)
    }

    /// Forgets pods that do not exist any more. Call it with a complete and fresh list of UIDs only.
    pub fn prune(&mut self, exists: impl Fn(&Uid) -> bool) {
        self.attempts.retain(|uid, _| exists(uid));
    }

    pub fn len(&self) -> usize {
        self.attempts.len()
    }

    pub fn is_empty(&self) -> bool {
        self.attempts.is_empty()
    }
}

#[cfg(test)]
mod tests;
