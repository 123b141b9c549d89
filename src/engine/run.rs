//! The loop: take in what the watches say, project, decide, start what is to be done, show it, and wait for the next change or the next recheck.
//! It owns the fleet's stores; nothing is shared but the picture. Killing it at any instruction loses nothing: the cluster is the only record.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use tokio::{
    sync::{Notify, mpsc, oneshot, watch},
    task::JoinHandle,
    time::Instant,
};

use super::{
    brain::Brain,
    execute::{Executed, execute},
    heartbeat::TICK,
    intent::{Intent, IntentOutcome},
    look_again::{Second, look_again},
    picture::{LeadershipView, Mode, Picture},
    probes::Probes,
    request,
};
use crate::{
    cluster::{
        Cluster, Writer,
        lease::{Config as LeaseConfig, Keeper},
        watch::{Board, Pace, Signal, Watches},
    },
    fleet::{
        event::{Kind, Record},
        view::FleetView,
    },
    handoff::action::{Action, Evidence, Subject},
};

/// How a process takes part.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    pub mode: Mode,
    /// Unique to this process: the Lease's holder.
    pub identity: String,
    /// How many nodes may be admitted at once over all components.
    pub cluster_max_unavailable: u32,
    /// Actions under way at once.
    pub parallel: usize,
    /// How long changes are gathered before they are looked at.
    pub gather: Duration,
    pub lease: LeaseConfig,
    pub pace: Pace,
    /// What it tells of itself; by default no Kubernetes Events.
    pub probes: Probes,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            mode: Mode::Intents,
            identity: String::from("lockkeeper"),
            cluster_max_unavailable: 1,
            parallel: 8,
            gather: Duration::from_millis(20),
            lease: LeaseConfig::default(),
            pace: Pace::default(),
            probes: Probes::default(),
        }
    }
}

/// A request of a person, and where its outcome goes.
pub type Request = (Intent, oneshot::Sender<IntentOutcome>);

/// The handle on a running engine. Dropping it does not end it.
pub struct Engine {
    cluster: Cluster,
    board: Board,
    pictures: watch::Receiver<Picture>,
    requests: mpsc::Sender<Request>,
    stop: Arc<Notify>,
    task: JoinHandle<()>,
}

/// Requests that may wait for the loop; a person types slower than that.
const REQUESTS: usize = 32;
/// A write in flight at the end is awaited this long.
const LAST_WRITES: Duration = Duration::from_secs(5);
/// Events that wait at the end, this long.
const LAST_EVENTS: Duration = Duration::from_secs(2);

impl Engine {
    /// Starts watching, and acting if the mode and the Lease allow it.
    pub fn start(cluster: Cluster, options: EngineOptions) -> Self {
        let (shown, pictures) = watch::channel(Picture::empty(cluster.info().clone(), options.mode));
        let (requests, asked) = mpsc::channel(REQUESTS);
        let stop = Arc::new(Notify::new());
        let engine = Loop::new(cluster.clone(), options, shown, asked, stop.clone());
        let board = engine.watches.board().clone();
        let task = tokio::spawn(engine.run());
        Self { cluster, board, pictures, requests, stop, task }
    }

    /// The latest picture, for one reader: more than one would wake in random order.
    pub fn pictures(&self) -> watch::Receiver<Picture> {
        self.pictures.clone()
    }

    pub fn requests(&self) -> mpsc::Sender<Request> {
        self.requests.clone()
    }

    /// How the watches fare at this moment.
    pub fn board(&self) -> Board {
        self.board.clone()
    }

    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Waits until a picture satisfies this, and returns it; None when the engine ended before.
    pub async fn until(&self, wanted: impl FnMut(&Picture) -> bool) -> Option<Picture> {
        let mut pictures = self.pictures.clone();
        let picture = pictures.wait_for(wanted).await.ok()?;
        Some(picture.clone())
    }

    /// Asks, and waits for the outcome.
    pub async fn ask(&self, intent: Intent) -> IntentOutcome {
        let (reply, outcome) = oneshot::channel();
        let gone = || IntentOutcome::Refused { message: "the engine has ended".to_owned() };
        if self.requests.send((intent, reply)).await.is_err() {
            return gone();
        }
        outcome.await.unwrap_or_else(|_| gone())
    }

    /// Takes no new step, lets the write in flight land, releases the Lease.
    pub async fn stop(self) {
        self.stop.notify_one();
        let _ = self.task.await;
    }

    /// Ends it at once, as a crash does.
    pub fn abort(self) {
        self.task.abort();
    }
}

struct Loop {
    cluster: Cluster,
    options: EngineOptions,
    watches: Watches,
    signals: mpsc::Receiver<Signal>,
    keeper: Option<Keeper>,
    keeper_task: Option<JoinHandle<()>>,
    events_task: Option<JoinHandle<()>>,
    keeper_version: u64,
    brain: Brain,
    running: FuturesUnordered<BoxFuture<'static, Finished>>,
    /// Subjects with an action under way.
    busy: BTreeSet<Subject>,
    /// Requests of people under way; each yields the objects it wrote.
    requests: FuturesUnordered<BoxFuture<'static, Vec<Record>>>,
    asked: mpsc::Receiver<Request>,
    shown: watch::Sender<Picture>,
    stop: Arc<Notify>,
}

/// An action that has come to its end.
struct Finished {
    subject: Subject,
    action: Action,
    end: End,
    took: Duration,
    /// What the first look saw.
    view: Arc<FleetView>,
    /// Facts read on the way, newer than the watches.
    read: Vec<Record>,
}

enum End {
    Sent(Executed),
    /// Fresh facts decided otherwise; nothing was sent.
    Other,
    /// Fresh facts could not be had; nothing was sent.
    Unread(String),
}

impl Loop {
    fn new(
        cluster: Cluster,
        options: EngineOptions,
        shown: watch::Sender<Picture>,
        asked: mpsc::Receiver<Request>,
        stop: Arc<Notify>,
    ) -> Self {
        let (watches, signals) = Watches::start(&cluster, &Kind::always(), options.pace);
        let cap = cluster.write_cap().filter(|_| options.mode == Mode::Engine);
        let kept = cap.map(|cap| Keeper::start(&cluster, cap, &options.identity, options.lease));
        let (keeper, keeper_task) = kept.unzip();
        let announced = cap.zip(keeper.as_ref());
        let events_task = announced.and_then(|(cap, keeper)| options.probes.start(&cluster, cap, keeper, &options.identity));
        let brain = Brain::new(cluster.info().clone(), &options);
        Self {
            cluster,
            options,
            watches,
            signals,
            keeper,
            keeper_task,
            events_task,
            keeper_version: 0,
            brain,
            running: FuturesUnordered::new(),
            busy: BTreeSet::new(),
            requests: FuturesUnordered::new(),
            asked,
            shown,
            stop,
        }
    }

    async fn run(mut self) {
        loop {
            let begun = Instant::now();
            self.think();
            self.launch();
            self.options.probes.heartbeat.beat(begun.elapsed());
            if !self.wait().await {
                break;
            }
        }
        self.end().await;
    }

    fn think(&mut self) {
        let leadership = self.keeper.as_ref().and_then(Keeper::leadership);
        // Watches tell when their state turns; when they last heard something is asked for.
        Kind::ALL.into_iter().for_each(|kind| self.take_in(Signal::Health(kind)));
        if self.brain.wants_csi() {
            self.watches.add(&Kind::OF_CSI);
        }
        if self.brain.wants_kmm() {
            self.watches.add(&Kind::OF_KMM);
        }
        let now = self.cluster.clock().now();
        self.brain.think(now, leadership.as_ref().map(|held| held.epoch));
        let leadership = self.leadership_view();
        let picture = self.brain.picture(self.options.mode, leadership);
        self.options.probes.pictured(&picture);
        self.shown.send_replace(picture);
    }

    fn leadership_view(&self) -> LeadershipView {
        match &self.keeper {
            Some(keeper) => {
                let standing = keeper.standing();
                LeadershipView {
                    holder: standing.holder.map(|holder| holder.to_string()),
                    ours: standing.ours,
                    epoch: standing.epoch,
                    until: None,
                    problem: standing.problem,
                }
            }
            None => self.brain.leadership_seen(),
        }
    }

    /// Starts what was decided, as far as this process may act.
    fn launch(&mut self) {
        // What was decided as an onlooker is not done: it leaves out what only who acts must wait for.
        let acts = |keeper: &Keeper| keeper.leadership().is_some_and(|held| self.brain.decided_as(held.epoch));
        let Some(keeper) = self.keeper.clone().filter(acts) else { return };
        let Some(cap) = self.cluster.write_cap() else { return };
        let writer = Writer::new(&self.cluster, cap, keeper.fence());
        for (subject, action) in self.brain.actions() {
            if self.running.len() >= self.options.parallel {
                break;
            }
            if !self.busy.insert(subject.clone()) {
                continue;
            }
            let (view, mind) = (self.brain.view(), self.brain.mind());
            let (cluster, writer, keeper) = (self.cluster.clone(), writer.clone(), keeper.clone());
            self.running.push(Box::pin(async move {
                let (mut read, mut sent) = (Vec::new(), Instant::now());
                let second = match action.evidence {
                    Evidence::Watched => Second::Same(Box::new(action.clone())),
                    _ => look_again(&cluster, &mind, &subject, &action, &mut read).await,
                };
                let (action, end) = match second {
                    Second::Same(action) => {
                        sent = Instant::now();
                        let executed = execute(&writer, Some(&keeper), &view, &action).await;
                        (*action, End::Sent(executed))
                    }
                    Second::Other => (action, End::Other),
                    Second::Unread(why) => (action, End::Unread(why)),
                };
                Finished { subject, action, end, took: sent.elapsed(), view, read }
            }));
        }
    }

    /// Until something has changed, and for a tick at most. False: it is time to end.
    async fn wait(&mut self) -> bool {
        let recheck = self.brain.recheck_in(self.cluster.clock().now()).map_or(TICK, |wait| wait.min(TICK));
        let keeper = self.keeper.clone();
        let seen = self.keeper_version;
        let keeper_changed = async {
            match &keeper {
                Some(keeper) => keeper.changed(seen).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.stop.notified() => return false,
            Some(finished) = self.running.next(), if !self.running.is_empty() => self.finish(finished),
            () = keeper_changed => self.keeper_version = self.keeper.as_ref().map_or(0, Keeper::version),
            Some(records) = self.requests.next(), if !self.requests.is_empty() => self.brain.learn_records(records),
            Some(request) = self.asked.recv() => self.ask(request),
            signal = self.signals.recv() => match signal {
                Some(signal) => {
                    self.take_in(signal);
                    self.gather().await;
                }
                None => return false,
            },
            () = tokio::time::sleep(recheck) => {}
        }
        true
    }

    fn take_in(&mut self, signal: Signal) {
        match signal {
            Signal::Change(change) => self.brain.apply(change),
            Signal::Health(kind) => {
                if let Some(health) = self.watches.board().of(kind) {
                    self.brain.health_changed(kind, health);
                }
            }
        }
    }

    /// One change seldom comes alone.
    async fn gather(&mut self) {
        let until = Instant::now() + self.options.gather;
        while let Ok(Some(signal)) = tokio::time::timeout_at(until, self.signals.recv()).await {
            self.take_in(signal);
        }
    }

    /// Takes in what was read and written, so that the next decision knows it before the watches tell.
    fn finish(&mut self, finished: Finished) {
        self.busy.remove(&finished.subject);
        let now = self.cluster.clock().now();
        self.brain.learn_records(finished.read);
        let (subject, action) = (&finished.subject, &finished.action);
        match finished.end {
            End::Sent(executed) => {
                self.options.probes.acted(&finished.view, subject, action, &executed, finished.took);
                self.brain.learn(subject, action, executed, now);
            }
            End::Other => {
                tracing::info!(?subject, why = %action.why, "not done: fresh facts say otherwise");
                self.brain.not_sent(subject, now);
            }
            End::Unread(problem) => {
                tracing::warn!(?subject, why = %action.why, problem, "not done: fresh facts cannot be read");
                self.brain.not_sent(subject, now);
            }
        }
    }

    /// A person's request: planned on what is known, then written without the Lease, since it touches specs only.
    fn ask(&mut self, (intent, reply): Request) {
        let (cluster, view) = (self.cluster.clone(), self.brain.view());
        self.requests.push(Box::pin(async move {
            let (outcome, records) = request::carry_out(&cluster, &view, &intent).await;
            let _ = reply.send(outcome);
            records
        }));
    }

    async fn end(mut self) {
        let until = Instant::now() + LAST_WRITES;
        while let Ok(Some(finished)) = tokio::time::timeout_at(until, self.running.next()).await {
            self.finish(finished);
        }
        // What the last writes came to is told, too, while the Lease is still held.
        self.think();
        self.options.probes.flush(LAST_EVENTS).await;
        if let Some(keeper) = &self.keeper {
            keeper.stop().await;
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // An aborted engine must not go on renewing.
        for task in self.keeper_task.iter().chain(&self.events_task) {
            task.abort();
        }
    }
}
