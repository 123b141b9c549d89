//! Objects, their bytes and their history: one ordered table per resource, one revision counter over all of them.
//! Serialises each version of an object once; responses and watches share those bytes. Knows no HTTP and no kinds, but for the node index of pods.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::Value;

use super::watch::Watchers;

/// (namespace, name); the namespace of a cluster-scoped object is empty.
pub type Key = (String, String);

const ADDED: &[u8] = br#"{"type":"ADDED","object":"#;
const MODIFIED: &[u8] = br#"{"type":"MODIFIED","object":"#;
const DELETED: &[u8] = br#"{"type":"DELETED","object":"#;
const END: &[u8] = b"}\n";

/// One version of an object.
#[derive(Debug)]
pub struct Stored {
    pub value: Arc<Value>,
    pub rv: u64,
    /// First version of the object: its own watch line says ADDED.
    pub created: bool,
    /// Is there empty metadata of a custom object? It is kept in the JSON of a real server's storage, and never shown; the next write drops it, even if
    /// it changes nothing else.
    pub hidden: bool,
    line: OnceLock<Bytes>,
}

impl Stored {
    pub fn new(value: Value, rv: u64, created: bool) -> Self {
        Self { value: Arc::new(value), rv, created, hidden: false, line: OnceLock::new() }
    }

    #[must_use]
    pub fn hiding(mut self, hidden: bool) -> Self {
        self.hidden = hidden;
        self
    }

    fn own_kind(&self) -> EventKind {
        if self.created { EventKind::Added } else { EventKind::Modified }
    }

    fn line(&self) -> &Bytes {
        // "type" comes first: with "object" first, serde has to buffer every object.
        self.line.get_or_init(|| {
            let prefix = self.own_kind().prefix();
            let mut out = Vec::with_capacity(1024);
            out.extend_from_slice(prefix);
            serde_json::to_writer(&mut out, &*self.value).unwrap_or_default();
            out.extend_from_slice(END);
            Bytes::from(out)
        })
    }

    /// The object as JSON.
    pub fn json(&self) -> Bytes {
        let line = self.line();
        line.slice(self.own_kind().prefix().len()..line.len() - END.len())
    }

    /// The watch line of this version under an event type, as one or two pieces of shared bytes.
    pub fn watch_line(&self, kind: EventKind) -> Line {
        let line = self.line();
        if kind == self.own_kind() {
            return Line::One(line.clone());
        }
        Line::Two(Bytes::from_static(kind.prefix()), line.slice(self.own_kind().prefix().len()..))
    }
}

/// One line of a watch stream, ready to send.
#[derive(Debug, Clone)]
pub enum Line {
    One(Bytes),
    Two(Bytes, Bytes),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    Added,
    Modified,
    Deleted,
}

impl EventKind {
    pub fn prefix(self) -> &'static [u8] {
        match self {
            Self::Added => ADDED,
            Self::Modified => MODIFIED,
            Self::Deleted => DELETED,
        }
    }
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// One accepted write of a table.
#[derive(Debug)]
pub struct Event {
    pub rv: u64,
    pub at: Timestamp,
    pub key: Key,
    pub old: Option<Arc<Stored>>,
    pub new: Option<Arc<Stored>>,
    last_words: OnceLock<Arc<Stored>>,
}

impl Event {
    /// The previous content under the revision of this event: what a DELETED line carries.
    pub fn last_words(&self) -> Option<&Arc<Stored>> {
        let old = self.old.as_ref()?;
        Some(self.last_words.get_or_init(|| {
            let mut value = (*old.value).clone();
            set_revision(&mut value, self.rv);
            Arc::new(Stored::new(value, self.rv, false))
        }))
    }
}

pub fn set_revision(value: &mut Value, rv: u64) {
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("resourceVersion".into(), rv.to_string().into());
    }
}

/// The objects of one resource.
#[derive(Debug, Default)]
pub struct Table {
    pub objects: BTreeMap<Key, Arc<Stored>>,
    /// Pods by `spec.nodeName`, those without a node under the empty name; empty for other tables.
    pub by_node: BTreeMap<String, BTreeSet<Key>>,
    pub history: VecDeque<Arc<Event>>,
    /// Revisions up to this one are compacted away.
    pub floor: u64,
    pub watchers: Watchers,
}

pub fn node_name(value: &Value) -> Option<&str> {
    value.get("spec")?.get("nodeName")?.as_str().filter(|n| !n.is_empty())
}

impl Table {
    /// Puts a new version in place (or removes the object) and records the event; watchers are told by the caller.
    pub fn record(
        &mut self,
        key: Key,
        new: Option<Arc<Stored>>,
        rv: u64,
        at: Timestamp,
        indexed: bool,
        keep: usize,
    ) -> Arc<Event> {
        let old = match &new {
            Some(stored) => self.objects.insert(key.clone(), stored.clone()),
            None => self.objects.remove(&key),
        };
        if indexed {
            let node = |pod: &Option<Arc<Stored>>| pod.as_ref().map(|s| node_name(&s.value).unwrap_or_default().to_owned());
            let (before, after) = (node(&old), node(&new));
            if before != after {
                if let Some(node) = before
                    && let Some(set) = self.by_node.get_mut(&node)
                {
                    set.remove(&key);
                    if set.is_empty() {
                        self.by_node.remove(&node);
                    }
                }
                if let Some(node) = after {
                    self.by_node.entry(node).or_default().insert(key.clone());
                }
            }
        }
        let event = Arc::new(Event { rv, at, key, old, new, last_words: OnceLock::new() });
        self.history.push_back(event.clone());
        while self.history.len() > keep {
            if let Some(gone) = self.history.pop_front() {
                self.floor = gone.rv;
            }
        }
        event
    }

    /// The objects as they were at `rv`, rebuilt from the history; `None` if that is compacted.
    pub fn at(&self, rv: u64) -> Option<BTreeMap<Key, Arc<Stored>>> {
        if rv < self.floor {
            return None;
        }
        let mut out = self.objects.clone();
        for event in self.history.iter().rev().take_while(|e| e.rv > rv) {
            match &event.old {
                Some(old) => out.insert(event.key.clone(), old.clone()),
                None => out.remove(&event.key),
            };
        }
        Some(out)
    }

    /// The last revision of this table at or before a time; the floor when history does not reach back.
    pub fn revision_at(&self, at: Timestamp) -> u64 {
        self.history.iter().rev().find(|e| e.at <= at).map_or(self.floor, |e| e.rv)
    }

    /// One object as it was at `rv`.
    pub fn get_at(&self, key: &Key, rv: u64) -> Option<Arc<Stored>> {
        let next = self.history.iter().find(|e| e.rv > rv && e.key == *key);
        match next {
            Some(event) => event.old.clone(),
            None => self.objects.get(key).cloned(),
        }
    }
}
