//! Watches: who is told of an event, in what form, and when. Each stream has its own queue, lag, bookmarks and end.
//! Events are pushed to the few watchers that an index names, never offered to all.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use super::convert::Form;
use super::refusal::Refusal;
use super::select::Selectors;
use super::store::{Event, EventKind, Key, Line, Stored, node_name};

/// What narrows a watch enough to be looked up instead of asked.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Slot {
    All,
    Namespace(String),
    Name(String, String),
    Node(String),
}

/// The open watches of one table.
#[derive(Debug, Default)]
pub struct Watchers {
    slots: BTreeMap<Slot, BTreeSet<u64>>,
    by_id: BTreeMap<u64, Watcher>,
}

/// One open watch.
#[derive(Debug)]
pub struct Watcher {
    pub selectors: Selectors,
    pub namespace: String,
    pub lag: Lag,
    pub queue: Arc<Queue>,
    pub form: Form,
    pub client: String,
}

/// How late a stream is told: a constant part, and more after events whose revision a hash picks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lag {
    pub constant: Duration,
    pub spread: Duration,
    pub salt: u64,
}

impl Lag {
    pub fn of(&self, rv: u64) -> Duration {
        if self.spread.is_zero() {
            return self.constant;
        }
        let mut x = rv.wrapping_add(self.salt).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        x ^= x >> 29;
        x = x.wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x ^= x >> 32;
        let permille = u32::try_from(x % 1000).unwrap_or(0);
        self.constant + self.spread * permille / 1000
    }
}

#[derive(Debug, Default)]
struct QueueState {
    lines: VecDeque<(Instant, u64, Line)>,
    last_due: Option<Instant>,
    end: Option<End>,
}

/// How a stream is ended from outside.
#[derive(Debug, Clone)]
pub enum End {
    /// Closed without a word, as a broken connection.
    Cut,
    /// One ERROR event with 410, then closed.
    Gone,
}

/// The lines on their way to one stream.
#[derive(Debug, Default)]
pub struct Queue {
    state: Mutex<QueueState>,
    wake: Notify,
}

impl Queue {
    fn locked(&self) -> std::sync::MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn push(&self, due: Instant, rv: u64, line: Line, limit: usize) {
        let mut state = self.locked();
        // A stream never overtakes itself.
        let due = state.last_due.map_or(due, |last| last.max(due));
        state.last_due = Some(due);
        state.lines.push_back((due, rv, line));
        if state.lines.len() > limit {
            state.end = Some(End::Cut);
        }
        drop(state);
        self.wake.notify_one();
    }

    pub fn end(&self, end: End) {
        self.locked().end = Some(end);
        self.wake.notify_one();
    }
}

impl Watchers {
    fn slot(watcher: &Watcher) -> Slot {
        if let Some(name) = watcher.selectors.required("metadata.name") {
            return Slot::Name(watcher.namespace.clone(), name.to_owned());
        }
        if let Some(node) = watcher.selectors.required("spec.nodeName") {
            return Slot::Node(node.to_owned());
        }
        if watcher.namespace.is_empty() { Slot::All } else { Slot::Namespace(watcher.namespace.clone()) }
    }

    pub fn add(&mut self, id: u64, watcher: Watcher) {
        self.slots.entry(Self::slot(&watcher)).or_default().insert(id);
        self.by_id.insert(id, watcher);
    }

    pub fn remove(&mut self, id: u64) {
        if let Some(watcher) = self.by_id.remove(&id)
            && let Some(set) = self.slots.get_mut(&Self::slot(&watcher))
        {
            set.remove(&id);
            if set.is_empty() {
                self.slots.remove(&Self::slot(&watcher));
            }
        }
    }

    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    pub fn all(&self) -> impl Iterator<Item = &Watcher> {
        self.by_id.values()
    }

    /// Queues the event for every stream that it concerns.
    pub fn tell(&self, event: &Event, now: Instant, limit: usize) {
        if self.by_id.is_empty() {
            return;
        }
        let (namespace, name) = &event.key;
        let mut slots = vec![Slot::All, Slot::Name(namespace.clone(), name.clone())];
        if !namespace.is_empty() {
            slots.push(Slot::Namespace(namespace.clone()));
            slots.push(Slot::Name(String::new(), name.clone()));
        }
        let before = event.old.as_ref().and_then(|s| node_name(&s.value));
        let after = event.new.as_ref().and_then(|s| node_name(&s.value));
        slots.extend(before.map(|n| Slot::Node(n.to_owned())));
        if before != after {
            slots.extend(after.map(|n| Slot::Node(n.to_owned())));
        }
        for id in slots.iter().filter_map(|s| self.slots.get(s)).flatten() {
            let Some(watcher) = self.by_id.get(id) else {
                continue;
            };
            if !watcher.namespace.is_empty() && watcher.namespace != *namespace {
                continue;
            }
            if let Some(line) = line_for(event, &watcher.selectors, &watcher.form) {
                watcher.queue.push(now + watcher.lag.of(event.rv), event.rv, line, limit);
            }
        }
    }
}

/// What a stream with these selectors sees of an event: a change of matching becomes ADDED or DELETED.
pub fn line_for(event: &Event, selectors: &Selectors, form: &Form) -> Option<Line> {
    let matches = |s: &Option<Arc<Stored>>| s.as_ref().is_some_and(|s| selectors.matches(&s.value));
    let (kind, stored) = match (matches(&event.old), matches(&event.new)) {
        (false, false) => return None,
        (false, true) => (EventKind::Added, event.new.as_ref()?),
        (true, true) => (EventKind::Modified, event.new.as_ref()?),
        (true, false) => (EventKind::Deleted, event.last_words()?),
    };
    Some(form.watch_line(kind, stored))
}

/// The keys that a list or the start of a watch looks at.
pub fn scoped<'a>(
    objects: &'a BTreeMap<Key, Arc<Stored>>,
    by_node: Option<&'a BTreeSet<Key>>,
    namespace: &'a str,
    after: Option<&'a Key>,
) -> Box<dyn Iterator<Item = (&'a Key, &'a Arc<Stored>)> + 'a> {
    use std::ops::Bound;
    let start = match after {
        Some(key) => Bound::Excluded(key.clone()),
        None => Bound::Included((namespace.to_owned(), String::new())),
    };
    let inside = move |key: &Key| namespace.is_empty() || key.0 == namespace;
    match by_node {
        Some(keys) => Box::new(
            keys.range((start, Bound::Unbounded)).filter(move |k| inside(k)).filter_map(move |k| objects.get_key_value(k)),
        ),
        None => Box::new(objects.range((start, Bound::Unbounded)).take_while(move |(k, _)| inside(k))),
    }
}

pub fn bookmark(form: &Form, api_version: &str, kind: &str, rv: u64, initial_end: bool) -> Bytes {
    let mut metadata = json!({"resourceVersion": rv.to_string()});
    if initial_end {
        metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
    }
    let (api_version, kind) = if form.is_metadata() { ("meta.k8s.io/v1", "PartialObjectMetadata") } else { (api_version, kind) };
    let object = json!({"kind": kind, "apiVersion": api_version, "metadata": metadata});
    Bytes::from(format!("{{\"type\":\"BOOKMARK\",\"object\":{object}}}\n"))
}

pub fn error_line(refusal: &Refusal) -> Bytes {
    Bytes::from(format!("{{\"type\":\"ERROR\",\"object\":{}}}\n", refusal.to_status()))
}

pub fn too_old(asked: u64, floor: u64) -> Refusal {
    Refusal::expired(format!("too old resource version: {asked} ({floor})"))
}

/// How long before its end a stream gets its last bookmark.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);

/// What the pump of one stream needs.
pub struct Stream {
    pub queue: Arc<Queue>,
    pub form: Form,
    pub api_version: String,
    pub kind: String,
    pub bookmarks: Option<Duration>,
    pub deadline: Instant,
    /// The newest revision of the whole store, for bookmarks.
    pub revision: Box<dyn Fn() -> u64 + Send>,
}

enum Step {
    Line(Line),
    Sleep(Instant),
    Wait,
    End(End),
}

impl Stream {
    fn next(&self, now: Instant) -> Step {
        let mut state = self.queue.locked();
        if let Some(end) = state.end.clone() {
            return Step::End(end);
        }
        match state.lines.front() {
            Some((due, _, _)) if *due <= now => match state.lines.pop_front() {
                Some((_, _, line)) => Step::Line(line),
                None => Step::Wait,
            },
            Some((due, _, _)) => Step::Sleep(*due),
            None => Step::Wait,
        }
    }

    fn first_pending(&self) -> Option<u64> {
        self.queue.locked().lines.front().map(|(_, rv, _)| *rv)
    }

    /// Feeds the stream until it ends: the client went away, the deadline, a cut.
    pub async fn run(self, out: mpsc::Sender<Bytes>) {
        // One each period, and a last one shortly before the end.
        let last = self.deadline.checked_sub(LAST_BOOKMARK).unwrap_or(self.deadline);
        let mut next_bookmark = self.bookmarks.map(|every| last.min(Instant::now() + every));
        loop {
            let now = Instant::now();
            if now >= self.deadline {
                return;
            }
            if let (Some(at), Some(every)) = (next_bookmark, self.bookmarks)
                && now >= at
            {
                next_bookmark = Some(if now >= last { self.deadline } else { last.min(now + every) });
                // A stream with lines still on their way must not promise their revisions.
                let rv = self.first_pending().map_or_else(&self.revision, |rv| rv.saturating_sub(1));
                if out.send(bookmark(&self.form, &self.api_version, &self.kind, rv, false)).await.is_err() {
                    return;
                }
                continue;
            }
            let mut wake_at = next_bookmark.map_or(self.deadline, |b| b.min(self.deadline));
            match self.next(now) {
                Step::Line(Line::One(line)) => {
                    if out.send(line).await.is_err() {
                        return;
                    }
                    continue;
                }
                Step::Line(Line::Two(head, tail)) => {
                    if out.send(head).await.is_err() || out.send(tail).await.is_err() {
                        return;
                    }
                    continue;
                }
                Step::End(End::Cut) => return,
                Step::End(End::Gone) => {
                    let gone = Refusal::expired("The resourceVersion for the provided watch is too old.");
                    out.send(error_line(&gone)).await.unwrap_or_default();
                    return;
                }
                Step::Sleep(due) => wake_at = wake_at.min(due),
                Step::Wait => {}
            }
            tokio::select! {
                biased;
                () = out.closed() => return,
                () = self.queue.wake.notified() => {}
                () = tokio::time::sleep_until(wake_at) => {}
            }
        }
    }
}
