//! How each watch stands, for whoever looks: one row per kind, written by its task alone.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use jiff::Timestamp;
use tokio::{sync::Notify, time::Instant};

use crate::{
    cluster::kinds::{Need, served},
    fleet::{
        event::Kind,
        view::{WatchHealth, WatchState},
    },
};

/// Cheap to clone; all clones show the same rows.
#[derive(Debug, Clone)]
pub struct Board {
    rows: Arc<Mutex<BTreeMap<Kind, WatchHealth>>>,
    server: Arc<Server>,
}

/// What the watches know together of the server behind them.
#[derive(Debug)]
struct Server {
    /// When any of them last heard anything, and how often the server has come back.
    heard: Mutex<(Instant, u64)>,
    trouble: Notify,
    back: Notify,
}

impl Board {
    pub(super) fn new(kinds: &[Kind]) -> Self {
        let server = Server { heard: Mutex::new((Instant::now(), 0)), trouble: Notify::new(), back: Notify::new() };
        let board = Self { rows: Arc::default(), server: Arc::new(server) };
        for kind in kinds {
            board.add(*kind);
        }
        board
    }

    /// A row for this kind, and how many there were before; None: it has one.
    pub(super) fn add(&self, kind: Kind) -> Option<usize> {
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        if rows.contains_key(&kind) {
            return None;
        }
        let health = WatchHealth {
            resource: kind.resource().into(),
            required: !matches!(served(kind).need, Need::Optional | Need::Csi | Need::Kmm),
            state: WatchState::Syncing,
            last_event: None,
            objects: 0,
            errors: 0,
            undecodable: Vec::new(),
        };
        let before = rows.len();
        rows.insert(kind, health);
        Some(before)
    }

    /// A row per kind, in the order of kinds. `objects` and `undecodable` are left to the store, which knows them.
    pub fn health(&self) -> Vec<WatchHealth> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// The row of one kind.
    pub fn of(&self, kind: Kind) -> Option<WatchHealth> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner).get(&kind).cloned()
    }

    /// Every kind that must be live is. What is missing is named, with its state.
    pub fn missing(&self, need: impl Fn(Need) -> bool) -> Vec<String> {
        let rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        rows.iter()
            .filter(|(kind, health)| need(served(**kind).need) && health.state != WatchState::Live)
            .map(|(_, health)| match &health.state {
                WatchState::Syncing | WatchState::Live => format!("{}: not listed yet", health.resource),
                WatchState::Retrying { error, .. } => format!("{}: {error}", health.resource),
                WatchState::Unavailable { why } => format!("{}: {why}", health.resource),
            })
            .collect()
    }

    /// True if the state is another one than before; the time since when a failure lasts is kept while it lasts.
    pub(super) fn set(&self, kind: Kind, state: WatchState) -> bool {
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(row) = rows.get_mut(&kind) else { return false };
        let state = match (&row.state, state) {
            (WatchState::Retrying { since, .. }, WatchState::Retrying { error, next, .. }) => {
                WatchState::Retrying { error, since: *since, next }
            }
            (_, state) => state,
        };
        let moved = row.state != state;
        row.state = state;
        moved
    }

    pub(super) fn count_error(&self, kind: Kind) {
        if let Some(row) = self.rows.lock().unwrap_or_else(PoisonError::into_inner).get_mut(&kind) {
            row.errors += 1;
        }
    }

    pub(super) fn heard(&self, kind: Kind, at: Timestamp) {
        self.server().0 = Instant::now();
        if let Some(row) = self.rows.lock().unwrap_or_else(PoisonError::into_inner).get_mut(&kind) {
            row.last_event = Some(at);
        }
    }

    fn server(&self) -> MutexGuard<'_, (Instant, u64)> {
        self.server.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn last_heard(&self) -> Instant {
        self.server().0
    }

    /// A watch got no answer: whether that is the server's fault is to be found out now.
    pub(super) fn trouble(&self) {
        self.server.trouble.notify_one();
    }

    /// Resolves after [`Board::trouble`], for one listener.
    pub(super) async fn troubled(&self) {
        self.server.trouble.notified().await;
    }

    /// The server was away, and answers again.
    pub(super) fn came_back(&self) {
        self.server().1 += 1;
        self.server.back.notify_waiters();
    }

    /// How often the server has come back so far.
    pub(super) fn returns(&self) -> u64 {
        self.server().1
    }

    /// Resolves once the server has come back more often than `seen`.
    pub(super) async fn back(&self, seen: u64) {
        loop {
            let mut notified = std::pin::pin!(self.server.back.notified());
            notified.as_mut().enable();
            if self.returns() > seen {
                return;
            }
            notified.await;
        }
    }
}
