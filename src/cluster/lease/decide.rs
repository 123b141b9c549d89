//! Pure: what a process does about the Lease, given what it has seen of it and when. No I/O, no clock.
//!
//! Whether a lease has run out is judged by how long this process has seen it unchanged, on its own monotonic clock. The times written
//! in it are never compared: clocks of different machines disagree (kubernetes/client-go#448). The holder in turn counts from the
//! moment at which it *sent* its last successful renewal, which is before anybody can have seen it, and stops acting after
//! `renew_deadline`, which is shorter than the `duration` that others wait. So at no instant do two processes think they hold it.

use std::time::Duration;

use crate::fleet::records::Str;

/// Time on this process' monotonic clock, from any start.
pub type Mono = Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// How long others wait, without seeing a change, before they take over.
    pub duration: Duration,
    /// How long the holder acts after its last successful renewal.
    pub renew_deadline: Duration,
    /// Time between attempts.
    pub retry: Duration,
    /// The longest one attempt may take. A third of the renew deadline at most, or one slow answer costs the lease.
    pub attempt: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry: Duration::from_secs(2),
            attempt: Duration::from_secs(3),
        }
    }
}

/// A Lease as read: the parts that the decision rests on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// None: released, or never held.
    pub holder: Option<Str>,
    /// `leaseTransitions`.
    pub epoch: i64,
    /// Moves with every renewal and every slot. Only whether it has changed is asked.
    pub resource_version: Str,
    /// `leaseDurationSeconds`: what its holder asked others to wait.
    pub duration: Duration,
}

/// The last successful read, and when this process first saw the Lease as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    /// None: there is no Lease object.
    pub lease: Option<Seen>,
    pub since: Mono,
}

impl Observed {
    /// A new read. `since` moves only with a change.
    pub fn next(before: Option<&Self>, lease: Option<Seen>, read_at: Mono) -> Self {
        match before {
            Some(before) if before.lease == lease => before.clone(),
            _ => Self { lease, since: read_at },
        }
    }
}

/// A hold on the Lease: that of this process now, or one that it asked for without hearing the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hold {
    pub epoch: i64,
    /// When the last successful request of it was sent.
    pub sent: Mono,
}

impl Hold {
    /// Nothing may be written from then on.
    pub fn until(&self, config: &Config) -> Mono {
        self.sent + config.renew_deadline
    }
}

/// What a process knows of itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Own {
    pub hold: Option<Hold>,
    /// Asked for, outcome unknown.
    pub asked: Option<Hold>,
    /// When the last attempt to write was sent.
    pub attempted: Option<Mono>,
    /// A hold that ran out before it could be renewed. What is still seen of it can only be a late renewal of our own.
    pub lost: Option<Hold>,
}

impl Own {
    /// The hold is over.
    pub fn lose(&mut self) {
        self.lost = self.hold.take();
        self.asked = None;
    }

    /// A request for the Lease whose outcome is unknown. Of several for one epoch the first counts: it may be the one that was applied,
    /// and others have then waited since that.
    pub fn asked_for(&mut self, hold: Hold) {
        if self.asked.is_none_or(|asked| asked.epoch != hold.epoch) {
            self.asked = Some(hold);
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// There is no Lease: make it, held by us.
    Create,
    /// It is free, or has run out: take it with this epoch.
    Take {
        epoch: i64,
    },
    /// A request whose answer was lost has been applied: this is our hold.
    Adopt(Hold),
    Renew,
    /// Nothing to do before then.
    Wait {
        until: Mono,
    },
    /// Stop acting at once.
    Lose {
        why: String,
    },
}

/// Total: every input has one answer. `observed` None: nothing was read yet.
pub fn decide(me: &str, observed: Option<&Observed>, own: &Own, now: Mono, config: &Config) -> Action {
    let pause = own.attempted.map_or(now, |sent| (sent + config.retry).max(now));
    if let Some(hold) = own.hold {
        if now >= hold.until(config) {
            return Action::Lose { why: format!("not renewed for {} s", (now - hold.sent).as_secs()) };
        }
        return match observed.map(|observed| &observed.lease) {
            Some(Some(seen)) if seen.holder.as_deref() != Some(me) || seen.epoch != hold.epoch => {
                let holder = seen.holder.as_deref().unwrap_or("nobody");
                Action::Lose { why: format!("it is held by {holder}, epoch {}", seen.epoch) }
            }
            Some(None) => Action::Lose { why: "the Lease object was deleted".to_owned() },
            _ => {
                let due = (hold.sent + config.retry).max(pause);
                if now >= due { Action::Renew } else { Action::Wait { until: due.min(hold.until(config)) } }
            }
        };
    }
    let Some(observed) = observed else { return Action::Wait { until: pause } };
    let attempt = |action| if now >= pause { action } else { Action::Wait { until: pause } };
    let Some(seen) = &observed.lease else { return attempt(Action::Create) };
    let Some(holder) = &seen.holder else { return attempt(Action::Take { epoch: seen.epoch + 1 }) };
    if let Some(asked) = own.asked
        && **holder == *me
        && seen.epoch == asked.epoch
        && now < asked.until(config)
    {
        return Action::Adopt(asked);
    }
    // Held by somebody, or by a former life of ours: its writes may still be on their way. Of a hold that this very process has lost it is known
    // since when nothing was sent, whatever a server that was away has applied since.
    let mut expiry = observed.since + config.duration.max(seen.duration);
    if let Some(lost) = own.lost
        && **holder == *me
        && seen.epoch == lost.epoch
    {
        expiry = expiry.min(lost.sent + config.duration.max(seen.duration));
    }
    if now >= expiry { attempt(Action::Take { epoch: seen.epoch + 1 }) } else { Action::Wait { until: expiry.max(pause) } }
}
