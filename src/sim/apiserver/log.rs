//! The record of what the server did: every accepted write in order, and counts of every request.
//! The invariant monitor and the "same seed, same log" tests read it. It never influences an answer.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use serde_json::Value;

/// One accepted write. A no-op or a dry run leaves no record.
#[derive(Debug, Clone)]
pub struct Record {
    /// 1, 2, 3, ... over the whole run.
    pub n: u64,
    /// When the request came, and when it was carried out.
    pub came: Timestamp,
    pub at: Timestamp,
    pub client: Arc<str>,
    pub user: Arc<str>,
    /// `create`, `update`, `patch`, `delete`; an eviction's parts are `create` on `pods/eviction`.
    pub verb: &'static str,
    /// `pods`, `nodes/status`, `daemonsets.apps`, `pods/eviction`.
    pub resource: Arc<str>,
    /// What was written, without the subresource: `pods`, `poddisruptionbudgets.policy`.
    pub stored_as: Arc<str>,
    pub namespace: String,
    pub name: String,
    /// The revision of the write.
    pub rv: u64,
    pub old: Option<Arc<Value>>,
    /// `None` when the object is gone.
    pub new: Option<Arc<Value>>,
    /// FNV-1a of the new content's bytes, of the old one's when it is gone.
    pub digest: u64,
}

impl Record {
    /// What happened to the object.
    pub fn effect(&self) -> &'static str {
        match (&self.old, &self.new) {
            (None, _) => "ADDED",
            (_, None) => "DELETED",
            _ => "MODIFIED",
        }
    }

    /// The stable text form: one line, equal for equal runs.
    pub fn line(&self) -> String {
        format!(
            "{:06} {} {} {} {} {}/{} {} rv={} {:016x}",
            self.n,
            self.at,
            self.client,
            self.verb,
            self.resource,
            self.namespace,
            self.name,
            self.effect(),
            self.rv,
            self.digest
        )
    }
}

/// How many requests of one kind came, and how many were refused, by HTTP code.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Count {
    pub total: u64,
    pub refused: BTreeMap<u16, u64>,
}

/// (client, verb, resource)
pub type CountKey = (String, &'static str, String);

type Observer = Box<dyn FnMut(&Record) + Send>;

#[derive(Default)]
struct Inner {
    records: VecDeque<Arc<Record>>,
    written: u64,
    digest: u64,
    keep: Option<usize>,
    counts: BTreeMap<CountKey, Count>,
    observers: Vec<Observer>,
    names: BTreeMap<String, Arc<str>>,
}

/// A handle on the log; clones share it.
#[derive(Clone, Default)]
pub struct EventLog(Arc<Mutex<Inner>>);

impl std::fmt::Debug for EventLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "EventLog({} writes)", self.written())
    }
}

/// What the server knows of a write before it is numbered.
#[derive(Debug)]
pub(super) struct Draft<'a> {
    pub came: Timestamp,
    pub at: Timestamp,
    pub client: &'a str,
    pub user: &'a str,
    pub verb: &'static str,
    pub resource: &'a str,
    pub stored_as: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
    pub rv: u64,
    pub old: Option<Arc<Value>>,
    pub new: Option<Arc<Value>>,
    pub digest: u64,
}

fn fnv(seed: u64, bytes: &[u8]) -> u64 {
    let mut hash = seed;
    // Eight bytes a step: the digest must not cost more than the write.
    let mut chunks = bytes.chunks_exact(8);
    for chunk in &mut chunks {
        let word = <[u8; 8]>::try_from(chunk).map_or(0, u64::from_le_bytes);
        hash = (hash ^ word).wrapping_mul(0x0100_0000_01B3).rotate_left(23);
    }
    for byte in chunks.remainder() {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3);
    }
    hash
}

/// The digest of one object's bytes.
pub(super) fn digest(bytes: &[u8]) -> u64 {
    fnv(0xCBF2_9CE4_8422_2325, bytes)
}

impl EventLog {
    pub(super) fn new(keep: Option<usize>) -> Self {
        let log = Self::default();
        log.locked().keep = keep;
        log
    }

    fn locked(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn write(&self, draft: Draft<'_>) {
        let mut inner = self.locked();
        inner.written += 1;
        let n = inner.written;
        let mut name = |text: &str| match inner.names.get(text) {
            Some(known) => known.clone(),
            None => {
                let new: Arc<str> = text.into();
                inner.names.insert(text.to_owned(), new.clone());
                new
            }
        };
        let record = Arc::new(Record {
            n,
            came: draft.came,
            at: draft.at,
            client: name(draft.client),
            user: name(draft.user),
            verb: draft.verb,
            resource: name(draft.resource),
            stored_as: name(draft.stored_as),
            namespace: draft.namespace.to_owned(),
            name: draft.name.to_owned(),
            rv: draft.rv,
            old: draft.old,
            new: draft.new,
            digest: draft.digest,
        });
        inner.digest = fnv(inner.digest, record.line().as_bytes());
        inner.records.push_back(record.clone());
        if let Some(keep) = inner.keep {
            while inner.records.len() > keep {
                inner.records.pop_front();
            }
        }
        let mut observers = std::mem::take(&mut inner.observers);
        drop(inner);
        for observer in &mut observers {
            observer(&record);
        }
        let mut inner = self.locked();
        observers.append(&mut inner.observers);
        inner.observers = observers;
    }

    pub(super) fn count(&self, client: &str, verb: &'static str, resource: &str, code: u16) {
        let mut inner = self.locked();
        let count = inner.counts.entry((client.to_owned(), verb, resource.to_owned())).or_default();
        count.total += 1;
        if code >= 400 {
            *count.refused.entry(code).or_default() += 1;
        }
    }

    /// Calls `observer` for every further write, in order and before anybody can see the write's answer. It runs inside the server: it must not
    /// call it (its own state is fine).
    pub fn observe(&self, observer: impl FnMut(&Record) + Send + 'static) {
        self.locked().observers.push(Box::new(observer));
    }

    /// How many writes were accepted so far.
    pub fn written(&self) -> u64 {
        self.locked().written
    }

    /// A digest of all lines so far, also of those no longer kept.
    pub fn digest(&self) -> u64 {
        self.locked().digest
    }

    /// All kept records after the n-th, in order.
    pub fn since(&self, n: u64) -> Vec<Arc<Record>> {
        let inner = self.locked();
        let first = inner.records.front().map_or(0, |r| r.n);
        let skip = usize::try_from((n + 1).saturating_sub(first)).unwrap_or(usize::MAX);
        inner.records.iter().skip(skip).cloned().collect()
    }

    pub fn records(&self) -> Vec<Arc<Record>> {
        self.since(0)
    }

    /// The text form of all kept records, one line each.
    pub fn text(&self) -> String {
        let inner = self.locked();
        let mut out = String::new();
        for record in &inner.records {
            writeln!(out, "{}", record.line()).unwrap_or_default();
        }
        out
    }

    /// Requests by client, verb and resource, refused ones included.
    pub fn counts(&self) -> BTreeMap<CountKey, Count> {
        self.locked().counts.clone()
    }

    /// Requests that a filter picks, summed.
    pub fn requests(&self, wanted: impl Fn(&CountKey) -> bool) -> u64 {
        self.locked().counts.iter().filter(|(k, _)| wanted(k)).map(|(_, c)| c.total).sum()
    }
}
