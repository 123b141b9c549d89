//! Takes, renews and releases the Lease as `decide` says, and writes its slots. All writes of the Lease by this process go through one
//! turnstile here, so that renewals and slots never conflict with each other.

use std::{
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use tokio::{
    sync::Notify,
    task::JoinHandle,
    time::{Instant, sleep_until},
};

use super::{
    decide::{Action, Config, Hold, Mono, Observed, Own, decide},
    object::{self, Object},
};
use crate::{
    api::{
        MANAGER,
        keys::{LEASE, SLOTS, Slot},
    },
    cluster::{CallError, Cluster, Fence, WriteCap, Written, call::Call, decoding, kinds::served, write::WRITE_LIMIT},
    fleet::{event::Kind, records::Str},
};

/// The lease is held: until then at the latest, if no renewal succeeds meanwhile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leadership {
    /// Rises with every change of hands.
    pub epoch: i64,
    pub until: Instant,
    pub resource_version: Str,
}

/// How the Lease stands, for people.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Standing {
    pub holder: Option<Str>,
    pub ours: bool,
    pub epoch: i64,
    /// Why the Lease cannot be read or written; None while it can.
    pub problem: Option<String>,
}

/// The handle; the task runs until [`Keeper::stop`], or until no handle and no fence is left. Cheap to clone.
#[derive(Clone)]
pub struct Keeper(Arc<Inner>);

struct Inner {
    cluster: Cluster,
    me: Str,
    config: Config,
    start: Instant,
    state: Mutex<State>,
    /// One request about the Lease at a time.
    turn: tokio::sync::Mutex<()>,
    changed: Notify,
    stop: Arc<Notify>,
}

#[derive(Default)]
struct State {
    observed: Option<Observed>,
    object: Option<Object>,
    own: Own,
    problem: Option<String>,
    /// Counts what `changed` tells about.
    version: u64,
    stopping: bool,
}

impl Keeper {
    /// Start to ask for the Lease. `me` must be unique to this process: a name that a former life had is treated as somebody else.
    pub fn start(cluster: &Cluster, _cap: WriteCap, me: &str, config: Config) -> (Self, JoinHandle<()>) {
        let keeper = Self(Arc::new(Inner {
            cluster: cluster.clone(),
            me: me.into(),
            config,
            start: Instant::now(),
            state: Mutex::default(),
            turn: tokio::sync::Mutex::new(()),
            changed: Notify::new(),
            stop: Arc::default(),
        }));
        let task = tokio::spawn(run(Arc::downgrade(&keeper.0), keeper.0.stop.clone()));
        (keeper, task)
    }

    /// Some while the lease is held and its deadline lies ahead.
    pub fn leadership(&self) -> Option<Leadership> {
        self.0.leadership()
    }

    /// Open while the lease is held with the epoch it has now: a later hold of the same process does not open it again, so take a new
    /// fence with each hold.
    pub fn fence(&self) -> Fence {
        let inner = self.0.clone();
        let epoch = inner.leadership().map(|held| held.epoch);
        Arc::new(move || match (inner.leadership(), epoch) {
            (Some(held), Some(epoch)) if held.epoch == epoch => Ok(()),
            (Some(_), _) => Err("the lease changed hands since this was decided".to_owned()),
            (None, _) => Err("the lease is not held, or its renewal is overdue".to_owned()),
        })
    }

    pub fn standing(&self) -> Standing {
        let ours = self.0.leadership().is_some();
        let state = self.0.lock();
        let seen = state.object.as_ref().map(|object| &object.seen);
        Standing {
            holder: seen.and_then(|seen| seen.holder.clone()),
            ours,
            epoch: seen.map_or(0, |seen| seen.epoch),
            problem: state.problem.clone(),
        }
    }

    /// A number that rises when the lease is taken or lost, when slots change, and when a problem comes or goes.
    pub fn version(&self) -> u64 {
        self.0.lock().version
    }

    /// Resolves when [`Keeper::version`] is above `seen`. The fence shuts by itself at the deadline, whether or not this was heard.
    pub async fn changed(&self, seen: u64) {
        loop {
            let mut notified = std::pin::pin!(self.0.changed.notified());
            notified.as_mut().enable();
            if self.version() > seen {
                return;
            }
            notified.await;
        }
    }

    /// Add a slot. `seen` are the slots that the decision rests on: if the Lease's are others by now, nothing is written.
    pub async fn admit(&self, slot: &Slot, seen: &[Slot]) -> Written {
        self.change_slots(seen, |slots| {
            if !slots.contains(slot) {
                slots.push(slot.clone());
                slots.sort();
            }
        })
        .await
    }

    /// Take a slot off; one that is not there is no error.
    pub async fn release(&self, slot: &Slot, seen: &[Slot]) -> Written {
        self.change_slots(seen, |slots| slots.retain(|listed| listed != slot)).await
    }

    /// Release the lease if it is ours, and end the task. The slots stay.
    pub async fn stop(&self) {
        self.0.lock().stopping = true;
        self.0.stop.notify_one();
        let _turn = self.0.turn.lock().await;
        let object = {
            let mut state = self.0.lock();
            let held = state.own.hold.take();
            state.own.asked = None;
            held.and(state.object.clone())
        };
        if let Some(object) = object {
            let body = object.releasing(self.0.cluster.clock().now());
            // Best effort: whoever comes next waits for its end otherwise.
            let _ = self.0.send(Call::merge_patch(path(), &body).why("lease released")).await;
        }
        self.0.tell();
    }

    async fn change_slots(&self, seen: &[Slot], change: impl FnOnce(&mut Vec<Slot>)) -> Written {
        let inner = &self.0;
        let _turn = inner.turn.lock().await;
        if inner.leadership().is_none() {
            return Written::NotSent { why: "the lease is not held, or its renewal is overdue".to_owned() };
        }
        let Some(object) = inner.lock().object.clone() else {
            return Written::NotSent { why: "the Lease was not read yet".to_owned() };
        };
        let mut slots = match &object.slots {
            Ok(slots) => slots.clone(),
            Err(why) => {
                return Written::NotSent { why: format!("Lease {}/{}: {why}; correct or remove {SLOTS}", LEASE.0, LEASE.1) };
            }
        };
        let sorted = |slots: &[Slot]| {
            let mut slots = slots.to_vec();
            slots.sort();
            slots
        };
        if sorted(&slots) != sorted(seen) {
            return Written::Conflict { message: "the Lease's slots are not those that the decision was made on".to_owned() };
        }
        change(&mut slots);
        let call =
            Call::merge_patch(path(), &object.with_slots(&slots)).limit(inner.config.attempt.min(WRITE_LIMIT)).why("slots");
        match inner.cluster.call(call).await {
            Ok(body) => {
                inner.read(&body);
                inner.tell();
                match decoding::object(Kind::Lease, &body) {
                    Ok(record) => Written::Applied(Some(Box::new(record))),
                    Err(_) => Written::Applied(None),
                }
            }
            Err(error) => {
                // Applied or not, or changed by somebody: the next renewal must know the resourceVersion.
                inner.look().await;
                Written::failed(error)
            }
        }
    }
}

/// Holds nothing while it waits: an owner that is dropped without a word, as in a crash, does not renew for ever.
async fn run(keeper: Weak<Inner>, stop: Arc<Notify>) {
    while let Some(inner) = keeper.upgrade() {
        if inner.lock().stopping {
            return;
        }
        let until = inner.start + inner.step().await;
        drop(inner);
        tokio::select! {
            biased;
            () = stop.notified() => {}
            () = sleep_until(until) => {}
        }
    }
}

impl Inner {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn mono(&self) -> Mono {
        self.start.elapsed()
    }

    fn leadership(&self) -> Option<Leadership> {
        let state = self.lock();
        let hold = state.own.hold?;
        let until = hold.until(&self.config);
        (self.mono() < until).then(|| Leadership {
            epoch: hold.epoch,
            until: self.start + until,
            resource_version: state.object.as_ref().map(|object| object.resource_version.clone()).unwrap_or_default(),
        })
    }

    fn tell(&self) {
        self.lock().version += 1;
        self.changed.notify_waiters();
    }

    /// One turn: look if we do not hold it, decide, do. Returns when to come again.
    async fn step(&self) -> Mono {
        let _turn = self.turn.lock().await;
        let soon = |now: Mono| now + self.config.retry;
        let held = self.lock().own.hold.is_some();
        if !held && !self.look().await {
            return soon(self.mono());
        }
        let now = self.mono();
        let action = {
            let state = self.lock();
            if state.stopping {
                return now;
            }
            decide(&self.me, state.observed.as_ref(), &state.own, now, &self.config)
        };
        let time = self.cluster.clock().now();
        let object = self.lock().object.clone();
        match (action, object) {
            (Action::Wait { until }, _) => {
                // While somebody else holds it, look again every `retry`: expiry is judged by what was seen.
                if self.lock().own.hold.is_some() { until } else { until.min(soon(now)).max(now + Duration::from_millis(1)) }
            }
            (Action::Lose { why }, _) => {
                tracing::warn!(%why, "lost the lease");
                {
                    let mut state = self.lock();
                    state.own.lose();
                    state.problem = Some(format!("lost the lease: {why}"));
                }
                self.tell();
                now
            }
            (Action::Adopt(hold), _) => self.held(hold),
            (Action::Renew, Some(object)) => {
                let call = Call::merge_patch(path(), &object.renewal(time)).routine();
                let hold = self.lock().own.hold;
                self.attempt(call, now, hold.map(|hold| Hold { sent: now, ..hold })).await
            }
            (Action::Take { epoch }, Some(object)) => {
                let call = Call::merge_patch(path(), &object.taking(&self.me, epoch, time, &self.config)).why("lease taken");
                self.attempt(call, now, Some(Hold { epoch, sent: now })).await
            }
            (Action::Create, _) => {
                let uri = format!("{}?fieldManager={MANAGER}", served(Kind::Lease).collection(LEASE.0));
                let call = Call::post(uri, &object::creating(&self.me, time, &self.config)).why("lease created");
                self.attempt(call, now, Some(Hold { epoch: 1, sent: now })).await
            }
            (Action::Renew | Action::Take { .. }, None) => soon(now),
        }
    }

    async fn attempt(&self, call: Call, sent: Mono, hold: Option<Hold>) -> Mono {
        self.lock().own.attempted = Some(sent);
        match self.send(call).await {
            Ok(body) => {
                self.read(&body);
                hold.map_or(sent, |hold| self.held(hold))
            }
            Err(error) => {
                tracing::debug!(%error, "lease attempt");
                {
                    let mut state = self.lock();
                    // A renewal keeps the hold it has; only what is not held yet is remembered as asked for.
                    if let (None, Some(hold)) = (state.own.hold, hold) {
                        state.own.asked_for(hold);
                    }
                }
                self.trouble(&error);
                if self.lock().own.hold.is_some() {
                    self.look().await;
                }
                self.mono().max(sent + Duration::from_millis(1))
            }
        }
    }

    fn held(&self, hold: Hold) -> Mono {
        let news = {
            let mut state = self.lock();
            let news = state.own.hold.map(|before| before.epoch) != Some(hold.epoch) || state.problem.is_some();
            state.own.hold = Some(hold);
            state.own.asked = None;
            state.problem = None;
            news
        };
        if news {
            self.tell();
        }
        hold.sent + self.config.retry
    }

    async fn send(&self, call: Call) -> Result<bytes::Bytes, CallError> {
        self.cluster.call(call.limit(self.config.attempt)).await
    }

    /// Read the Lease. False: it could not be read, and nothing is known to have changed.
    async fn look(&self) -> bool {
        match self.send(Call::get(served(Kind::Lease).object(LEASE.0, LEASE.1))).await {
            Ok(body) => self.read(&body),
            Err(error) if error.is_not_found() => {
                let at = self.mono();
                let mut state = self.lock();
                state.object = None;
                state.observed = Some(Observed::next(state.observed.as_ref(), None, at));
                true
            }
            Err(error) => {
                self.trouble(&error);
                false
            }
        }
    }

    fn read(&self, body: &[u8]) -> bool {
        let at = self.mono();
        match Object::read(body) {
            Ok(object) => {
                let mut state = self.lock();
                state.observed = Some(Observed::next(state.observed.as_ref(), Some(object.seen.clone()), at));
                let moved = state
                    .object
                    .as_ref()
                    .is_none_or(|before| before.seen.holder != object.seen.holder || before.slots != object.slots);
                state.object = Some(object);
                if state.own.hold.is_none() {
                    state.problem = None;
                }
                drop(state);
                if moved {
                    self.tell();
                }
                true
            }
            Err(why) => {
                self.lock().problem = Some(format!("Lease {}/{} does not decode: {why}", LEASE.0, LEASE.1));
                false
            }
        }
    }

    fn trouble(&self, error: &CallError) {
        let hint = match error.code() {
            Some(403) => "; the role for the Lease is missing (lockkeeper manifests prints it)",
            Some(404) => "; the namespace is missing (lockkeeper manifests prints it)",
            _ => "",
        };
        let text = format!("Lease {}/{} on {}: {error}{hint}", LEASE.0, LEASE.1, self.cluster.info().context);
        let news = {
            let mut state = self.lock();
            let news = state.problem.is_none();
            state.problem = Some(text);
            news
        };
        if news {
            self.tell();
        }
    }
}

fn path() -> String {
    format!("{}?fieldManager={MANAGER}", served(Kind::Lease).object(LEASE.0, LEASE.1))
}
