//! One watch per kind, each with its own back-off, its own health and its own task: none of them can hold up another.
//! They turn the API server's bytes into events of decoded records; what the records mean is the fleet's.

pub(super) mod backoff;
mod board;
mod lines;
mod pulse;
mod task;
#[cfg(test)]
mod tests;

use std::time::Duration;

use tokio::{sync::mpsc, task::JoinSet};

pub use self::board::Board;
use super::Cluster;
use crate::fleet::event::{Change, Kind};

/// What the watches tell, in the order of each kind; there is no order between kinds.
#[allow(clippy::large_enum_variant, reason = "short-lived: one at a time, moved once")]
#[derive(Debug)]
pub enum Signal {
    /// For the fleet's store.
    Change(Change),
    /// A watch's [`crate::fleet::view::WatchState`] is another one now: read [`Board::health`].
    Health(Kind),
}

/// How patient a watch is.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// The first pause after a failure; it doubles with each further one.
    pub first: Duration,
    pub longest: Duration,
    /// A watch that has been healthy for this long starts at `first` again.
    pub healthy: Duration,
    /// Servers send a bookmark about every minute: nothing at all for this long means that the connection is dead.
    pub idle: Duration,
    /// Objects per page of a list.
    pub page: usize,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(500),
            longest: Duration::from_secs(30),
            healthy: Duration::from_secs(60),
            idle: Duration::from_secs(150),
            page: 500,
        }
    }
}

/// How many signals may wait for their reader: a page of a list is one.
const WAITING: usize = 64;

/// The running watches. Dropping it ends them.
#[derive(Debug)]
pub struct Watches {
    cluster: Cluster,
    pace: Pace,
    board: Board,
    out: mpsc::Sender<Signal>,
    tasks: JoinSet<()>,
}

impl Watches {
    /// Watch these kinds. Signals must be read: a watch waits for its reader.
    pub fn start(cluster: &Cluster, kinds: &[Kind], pace: Pace) -> (Self, mpsc::Receiver<Signal>) {
        let (out, signals) = mpsc::channel(WAITING);
        let board = Board::new(&[]);
        let mut watches = Self { cluster: cluster.clone(), pace, board, out, tasks: JoinSet::new() };
        watches.add(kinds);
        let pulse = pulse::run(cluster.clone(), kinds.to_vec(), watches.board.clone(), watches.out.clone());
        watches.tasks.spawn(pulse);
        (watches, signals)
    }

    /// Watch these, too; those that are watched already are left alone.
    pub fn add(&mut self, kinds: &[Kind]) {
        for kind in kinds {
            let Some(index) = self.board.add(*kind) else { continue };
            // Spread, so that failing watches do not all come at the same instant; by a fixed step, since chance would not replay.
            let offset = Duration::from_millis(37 * u64::try_from(index).unwrap_or_default());
            let pace = Pace { first: self.pace.first + offset, ..self.pace };
            let task = task::Task::new(self.cluster.clone(), *kind, pace, self.board.clone(), self.out.clone());
            self.tasks.spawn(task.run());
        }
    }

    pub fn board(&self) -> &Board {
        &self.board
    }
}
