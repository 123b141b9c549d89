//! How each watch stands, for whoever looks: one row per kind, written by its task alone.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use jiff::Timestamp;

use crate::{
    cluster::kinds::{Need, served},
    fleet::{
        event::Kind,
        view::{WatchHealth, WatchState},
    },
};

/// Cheap to clone; all clones show the same rows.
#[derive(Debug, Clone)]
pub struct Board(Arc<Mutex<BTreeMap<Kind, WatchHealth>>>);

impl Board {
    pub(super) fn new(kinds: &[Kind]) -> Self {
        let row = |kind: &Kind| {
            let health = WatchHealth {
                resource: kind.resource().into(),
                required: served(*kind).need != Need::Optional,
                state: WatchState::Syncing,
                last_event: None,
                objects: 0,
                errors: 0,
                undecodable: Vec::new(),
            };
            (*kind, health)
        };
        Self(Arc::new(Mutex::new(kinds.iter().map(row).collect())))
    }

    /// A row per kind, in the order of kinds. `objects` and `undecodable` are left to the store, which knows them.
    pub fn health(&self) -> Vec<WatchHealth> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// The row of one kind.
    pub fn of(&self, kind: Kind) -> Option<WatchHealth> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&kind).cloned()
    }

    /// Every kind that must be live is. What is missing is named, with its state.
    pub fn missing(&self, need: impl Fn(Need) -> bool) -> Vec<String> {
        let rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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
        let mut rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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
        if let Some(row) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get_mut(&kind) {
            row.errors += 1;
        }
    }

    pub(super) fn heard(&self, kind: Kind, at: Timestamp) {
        if let Some(row) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get_mut(&kind) {
            row.last_event = Some(at);
        }
    }
}
