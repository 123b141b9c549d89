//! The newest API writes, bounded. Entries are known by their number, which never changes.

use std::{collections::VecDeque, future::Future, pin::Pin};

use futures::{Stream, stream};

use crate::engine::picture::WriteLogEntry;

/// What was written since the last batch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Writes {
    pub entries: Vec<WriteLogEntry>,
    /// Entries before these that were kept nowhere any more.
    pub lost: u64,
}

pub type WriteStream = Pin<Box<dyn Stream<Item = Writes> + Send>>;

/// Follows a numbered log: `grown` resolves when there is more than was read, `since` gives that and the new total.
pub fn follow<L, F>(
    log: L,
    grown: impl Fn(L, u64) -> F + Send + 'static,
    since: impl Fn(&L, u64) -> (Vec<WriteLogEntry>, u64) + Send + 'static,
) -> WriteStream
where
    L: Clone + Send + 'static,
    F: Future<Output = ()> + Send,
{
    Box::pin(stream::unfold((log, grown, since, 0), |(log, grown, since, read)| async move {
        grown(log.clone(), read).await;
        let (entries, total) = since(&log, read);
        let lost = total.saturating_sub(read).saturating_sub(entries.len() as u64);
        Some((Writes { entries, lost }, (log, grown, since, total)))
    }))
}

#[derive(Debug, Clone, Default)]
pub struct WriteLog {
    entries: VecDeque<WriteLogEntry>,
    /// Number of the first one kept.
    first: u64,
    /// Entries that were never received.
    lost: u64,
}

const KEPT: usize = 5000;

impl WriteLog {
    pub fn push(&mut self, entry: WriteLogEntry) {
        if self.entries.len() == KEPT {
            self.entries.pop_front();
            self.first += 1;
        }
        self.entries.push_back(entry);
    }

    pub fn lose(&mut self, count: u64) {
        self.lost += count;
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Entries no longer kept or never received.
    pub fn missing(&self) -> u64 {
        self.first + self.lost
    }

    /// By place, oldest first.
    pub fn at(&self, place: usize) -> Option<&WriteLogEntry> {
        self.entries.get(place)
    }

    pub fn number(&self, place: usize) -> u64 {
        self.first + place as u64
    }

    /// The place of an entry; the oldest kept when it is gone.
    pub fn place(&self, number: u64) -> usize {
        usize::try_from(number.saturating_sub(self.first)).unwrap_or(usize::MAX).min(self.len().saturating_sub(1))
    }
}
