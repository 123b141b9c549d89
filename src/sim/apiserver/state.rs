//! Everything behind the server's one lock: tables, registry, counters, and the one way to commit a write.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use jiff::Timestamp;
use serde_json::Value;

use super::call::Call;
use super::log::{self, Draft, EventLog};
use super::rbac::Rbac;
use super::resource::{Registry, Resource};
use super::store::{Key, Stored, Table, set_revision};
use crate::sim::clock::{Dice, SimClock};

/// How the server behaves.
#[derive(Debug, Clone)]
pub struct Config {
    pub seed: u64,
    /// Wall-clock time at the start.
    pub start: Timestamp,
    /// Virtual time that every request takes, half of it before the write.
    pub latency: Duration,
    /// Seeded extra on top of `latency`, at most this much.
    pub latency_spread: Duration,
    /// Events kept per resource; a watch from before them gets 410.
    pub history: usize,
    pub bookmark_period: Duration,
    /// The longest watch without `timeoutSeconds`; a seeded part up to twice of it, as a real server does.
    pub watch_timeout: Duration,
    /// Lines that may wait for one stream before it is cut.
    pub watch_backlog: usize,
    /// How long a paged list can be continued.
    pub continue_for: Duration,
    /// Log records kept; all when `None`.
    pub log_records: Option<usize>,
    /// Resources (`pods`, `events`) without managedFields, to save time in big runs.
    pub no_managed_fields: Vec<String>,
    /// Enforce RBAC from the stored roles and bindings.
    pub rbac: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            seed: 0,
            start: Timestamp::from_second(1_767_225_600).unwrap_or(Timestamp::UNIX_EPOCH),
            latency: Duration::from_millis(2),
            latency_spread: Duration::ZERO,
            history: 20_000,
            bookmark_period: Duration::from_secs(60),
            watch_timeout: Duration::from_secs(1800),
            watch_backlog: 100_000,
            continue_for: Duration::from_secs(300),
            log_records: None,
            no_managed_fields: vec!["events".into()],
            rbac: false,
        }
    }
}

/// A consistent view for paged lists.
#[derive(Debug)]
pub struct Snapshot {
    pub table: usize,
    pub rv: u64,
    pub at: Timestamp,
    pub objects: std::collections::BTreeMap<Key, Arc<Stored>>,
}

/// The state of the whole server.
#[derive(Debug)]
pub struct State {
    pub rv: u64,
    pub registry: Registry,
    pub tables: Vec<Table>,
    pub snapshots: VecDeque<Snapshot>,
    pub dice: Dice,
    pub uids: Dice,
    pub watches: u64,
    pub rbac: Rbac,
    /// Warnings for the answer to the request at hand.
    pub warnings: Vec<String>,
    pub config: Config,
    pub clock: SimClock,
    pub log: EventLog,
}

const SUFFIX: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

impl State {
    pub fn new(config: Config, clock: SimClock, log: EventLog) -> Self {
        let dice = Dice::new(config.seed);
        let registry = Registry::builtin();
        let tables = registry.tables.iter().map(|_| Table::default()).collect();
        Self {
            // A fresh cluster has written something already; 0 would mean "any version".
            rv: 100,
            registry,
            tables,
            snapshots: VecDeque::new(),
            uids: dice.fork("uid"),
            dice: dice.fork("server"),
            watches: 0,
            warnings: Vec::new(),
            rbac: Rbac::new(config.rbac),
            config,
            clock,
            log,
        }
    }

    pub fn table(&self, resource: &Resource) -> &Table {
        &self.tables[resource.table.min(self.tables.len() - 1)]
    }

    pub fn get(&self, resource: &Resource, key: &Key) -> Option<&Arc<Stored>> {
        self.table(resource).objects.get(key)
    }

    /// Finds a stored object of a builtin kind.
    pub fn lookup(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<&Arc<Stored>> {
        let resource = self.registry.find(group, "v1", plural)?;
        self.get(resource, &(namespace.to_owned(), name.to_owned()))
    }

    pub fn new_uid(&mut self) -> String {
        let (a, b) = (self.uids.draw(), self.uids.draw());
        format!(
            "{:08x}-{:04x}-4{:03x}-{:x}{:03x}-{:012x}",
            a >> 32,
            (a >> 16) & 0xFFFF,
            a & 0xFFF,
            8 | (b >> 62),
            (b >> 48) & 0xFFF,
            b & 0xFFFF_FFFF_FFFF
        )
    }

    /// Five characters for `generateName`.
    pub fn name_suffix(&mut self) -> String {
        (0..5)
            .map(|_| {
                let at = usize::try_from(self.dice.below(SUFFIX.len() as u64)).unwrap_or(0);
                char::from(SUFFIX.get(at).copied().unwrap_or(b'x'))
            })
            .collect()
    }

    /// RFC 3339 with whole seconds, as object times are written.
    pub fn now_text(&self) -> String {
        seconds(self.clock.now())
    }

    /// Writes one version.
    pub fn commit(&mut self, call: &Call, resource: &Resource, key: Key, new: Option<Value>) -> Arc<Stored> {
        self.commit_hidden(call, resource, key, new, false)
    }

    /// Writes one version, with what storage keeps of it and nobody sees: revision, table, log, watchers. The only way an object changes.
    pub fn commit_hidden(&mut self, call: &Call, resource: &Resource, key: Key, new: Option<Value>, hidden: bool) -> Arc<Stored> {
        self.rv += 1;
        let rv = self.rv;
        let at = self.clock.now();
        let keep = self.config.history;
        let limit = self.config.watch_backlog;
        let index = resource.table.min(self.tables.len() - 1);
        let table = &mut self.tables[index];
        let existed = table.objects.contains_key(&key);
        let stored = new.map(|mut value| {
            set_revision(&mut value, rv);
            Arc::new(Stored::new(value, rv, !existed).hiding(hidden))
        });
        let event = table.record(key, stored.clone(), rv, at, resource.is_pod(), keep);
        let bytes = stored.as_ref().or(event.old.as_ref()).map(|s| s.json()).unwrap_or_default();
        self.log.write(Draft {
            came: call.came,
            at,
            client: &call.who.client,
            user: &call.who.user,
            verb: call.verb.as_str(),
            resource: &call.resource_name(),
            stored_as: &resource.group_resource(),
            namespace: &event.key.0,
            name: &event.key.1,
            rv,
            old: event.old.as_ref().map(|s| s.value.clone()),
            new: stored.as_ref().map(|s| s.value.clone()),
            digest: log::digest(&bytes),
        });
        let now = self.clock.instant();
        table.watchers.tell(&event, now, limit);
        // A removed object is answered with what it was last.
        stored.or_else(|| event.last_words().cloned()).unwrap_or_else(|| Arc::new(Stored::new(Value::Null, rv, false)))
    }

    /// Keeps the view that a paged list is continued from.
    pub fn keep_snapshot(&mut self, view: Snapshot) {
        if self.snapshots.iter().any(|s| s.table == view.table && s.rv == view.rv) {
            return;
        }
        let at = view.at;
        self.snapshots.push_back(view);
        let oldest = at.checked_sub(jiff::SignedDuration::try_from(self.config.continue_for).unwrap_or_default());
        while self.snapshots.len() > 16 || self.snapshots.front().is_some_and(|s| oldest.as_ref().is_ok_and(|o| s.at < *o)) {
            self.snapshots.pop_front();
        }
    }

    /// Forgets all events and list views, as etcd's compaction does: running watches go on, older ones get 410.
    pub fn compact(&mut self) {
        let rv = self.rv;
        self.snapshots.clear();
        for table in &mut self.tables {
            table.history.clear();
            table.floor = rv;
        }
    }
}

pub fn seconds(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The token of the next page.
pub fn continue_token(rv: i64, key: &Key) -> String {
    let text = serde_json::json!({"v": "meta.k8s.io/v1", "rv": rv, "start": format!("{}/{}", key.0, key.1)}).to_string();
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(text)
}

/// (revision or -1, key after which to go on), or why not.
pub fn parse_continue(token: &str) -> Result<(i64, Key), String> {
    let bytes = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(token).map_err(|e| e.to_string())?;
    let value: Value = serde_json::from_slice(&bytes).map_err(|e| e.to_string())?;
    let version = value.get("v").and_then(Value::as_str).unwrap_or_default();
    let start = value.get("start").and_then(Value::as_str).and_then(|s| s.split_once('/'));
    match (version, value.get("rv").and_then(Value::as_i64), start) {
        ("meta.k8s.io/v1", Some(rv), Some((namespace, name))) => Ok((rv, (namespace.to_owned(), name.to_owned()))),
        ("meta.k8s.io/v1", ..) => Err("incorrect encoded start resourceVersion 0".into()),
        _ => Err(format!("server does not recognize this encoded version {version}")),
    }
}
