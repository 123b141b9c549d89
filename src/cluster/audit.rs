//! The log of API writes: every one that left this process, with its result and its kubectl equivalent. It observes; it decides nothing.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::Notify;

use crate::engine::picture::WriteLogEntry;

/// How many writes are kept.
const KEPT: usize = 2000;

/// A ring of the last writes, numbered. Readers remember the number they have read up to.
#[derive(Debug, Clone, Default)]
pub struct WriteLog(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    ring: Mutex<Ring>,
    grown: Notify,
}

#[derive(Debug, Default)]
struct Ring {
    entries: VecDeque<WriteLogEntry>,
    /// How many were ever written.
    total: u64,
}

impl WriteLog {
    pub(super) fn push(&self, entry: WriteLogEntry) {
        let mut ring = self.0.ring.lock().unwrap_or_else(PoisonError::into_inner);
        if ring.entries.len() == KEPT {
            ring.entries.pop_front();
        }
        ring.entries.push_back(entry);
        ring.total += 1;
        drop(ring);
        self.0.grown.notify_waiters();
    }

    /// The entries after the first `read` ones, oldest first, and how many there have been in all. Entries that have left the ring are skipped.
    pub fn since(&self, read: u64) -> (Vec<WriteLogEntry>, u64) {
        let ring = self.0.ring.lock().unwrap_or_else(PoisonError::into_inner);
        let first = ring.total - ring.entries.len() as u64;
        let skip = usize::try_from(read.saturating_sub(first)).unwrap_or(usize::MAX);
        (ring.entries.iter().skip(skip).cloned().collect(), ring.total)
    }

    /// Resolves when there is more than the first `read` entries.
    pub async fn grown(&self, read: u64) {
        loop {
            let mut notified = std::pin::pin!(self.0.grown.notified());
            notified.as_mut().enable();
            if self.0.ring.lock().unwrap_or_else(PoisonError::into_inner).total > read {
                return;
            }
            notified.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(millis: u64) -> WriteLogEntry {
        WriteLogEntry {
            at: jiff::Timestamp::UNIX_EPOCH,
            verb: "PATCH".into(),
            object: "node n1".into(),
            why: String::new(),
            kubectl: String::new(),
            code: Some(200),
            millis,
            message: String::new(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn readers_get_what_they_have_not_read() {
        let log = WriteLog::default();
        for millis in 0..(KEPT as u64 + 5) {
            log.push(entry(millis));
        }
        let (all, total) = log.since(0);
        assert_eq!((all.len(), all[0].millis, total), (KEPT, 5, KEPT as u64 + 5));
        log.grown(total - 1).await;
        let (new, total) = log.since(total - 2);
        assert_eq!((new.len(), total), (2, KEPT as u64 + 5));
        assert!(tokio::time::timeout(std::time::Duration::from_secs(1), log.grown(total)).await.is_err());
    }
}
