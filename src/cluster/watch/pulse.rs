//! The sign of life of a server from which nothing is heard. An open watch says nothing when its server is stopped, cut off or hung, and
//! watches that failed pause ever longer; so one small read is asked for instead, and when it is answered again all watches go on at once.
//! It reads nothing of what the answer says, and one kind that fails by itself is not its business.

use std::time::Duration;

use jiff::SignedDuration;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, timeout_at},
};

use super::{Board, Signal};
use crate::{
    api::keys::LEASE,
    cluster::{CallError, Cluster, call::Call, kinds::served},
    fleet::{event::Kind, view::WatchState},
};

/// Where there are nodes, their leases alone are heard of more often than this.
const SILENCE: Duration = Duration::from_secs(10);
/// A server that takes longer for one small object is as good as away.
const LIMIT: Duration = Duration::from_secs(5);
/// Between two questions to a server that does not answer, at first; it doubles up to the longest.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(5);

/// Runs as long as somebody reads the signals.
pub async fn run(cluster: Cluster, kinds: Vec<Kind>, board: Board, out: mpsc::Sender<Signal>) {
    let mut last = Instant::now();
    loop {
        // After trouble of some watch at once, else once nothing was heard for a while.
        let quiet = board.last_heard().max(last) + SILENCE;
        if timeout_at(quiet, board.troubled()).await.is_err() && board.last_heard() + SILENCE > Instant::now() {
            continue;
        }
        last = Instant::now();
        let Err(error) = ask(&cluster).await else { continue };
        let mut pause = FIRST;
        let mut error = error;
        loop {
            for kind in &kinds {
                if let Some(state) = away(&cluster, &board, *kind, &error, pause)
                    && board.set(*kind, state)
                    && out.send(Signal::Health(*kind)).await.is_err()
                {
                    return;
                }
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST);
            match ask(&cluster).await {
                Ok(()) => break,
                Err(still) => error = still,
            }
        }
        last = Instant::now();
        board.came_back();
    }
}

/// An answer of any kind but "I cannot" shows that the server and its storage are there.
async fn ask(cluster: &Cluster) -> Result<(), CallError> {
    match cluster.call(Call::get(served(Kind::Lease).object(LEASE.0, LEASE.1)).limit(LIMIT)).await {
        Err(error) if is_away(&error) => Err(error),
        _ => Ok(()),
    }
}

/// No connection, no answer, or none that the server could give; or it does not accept us, and what it accepts next is known by asking.
pub fn is_away(error: &CallError) -> bool {
    match error {
        CallError::TimedOut { .. } | CallError::Transport { .. } | CallError::NotAccepted { .. } => true,
        CallError::Refused { refusal, .. } => refusal.code >= 500 || refusal.code == 408,
        CallError::ReadOnly(_) | CallError::Undecodable { .. } => false,
    }
}

/// What a watch that was live is now.
fn away(cluster: &Cluster, board: &Board, kind: Kind, error: &CallError, pause: Duration) -> Option<WatchState> {
    let live = board.of(kind)?.state == WatchState::Live;
    let now = cluster.clock().now();
    let next = now + SignedDuration::try_from(pause).unwrap_or_default();
    let error = match error {
        CallError::NotAccepted { why, .. } => why.to_string(),
        error => format!("the server does not answer: {error}"),
    };
    live.then_some(WatchState::Retrying { error, since: now, next })
}
