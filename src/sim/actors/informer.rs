//! List, watch and write of one kind: a sorted store of slim records with indexes, change handlers and write-through.
//! Own back-off (no jitter, it grows on failing lists), pages, bookmarks, deletes found at a re-list.

use super::queue::{Tasks, instant, lock};
use super::records::{Meta, Record};
use futures::{StreamExt, TryStreamExt};
use kube::Client;
use kube::api::{ListParams, WatchEvent, WatchParams};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;

const PAGE: u32 = 500;
const WATCH_SECONDS: u32 = 290;
const BACKOFF_FIRST: Duration = Duration::from_millis(200);
const BACKOFF_LAST: Duration = Duration::from_secs(10);
/// A watch that lived shorter than this counts as a failure.
const SHORT_WATCH: Duration = Duration::from_secs(1);

/// Where a kind lives in the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    /// `v1` or `group/version`.
    pub api_version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    pub namespaced: bool,
}

impl Kind {
    /// The URL path of one namespace's collection, or of the whole cluster's.
    #[must_use]
    pub fn collection(&self, namespace: Option<&str>) -> String {
        let root = if self.api_version.contains('/') { "/apis" } else { "/api" };
        match namespace.filter(|_| self.namespaced) {
            Some(ns) => format!("{root}/{}/namespaces/{ns}/{}", self.api_version, self.plural),
            None => format!("{root}/{}/{}", self.api_version, self.plural),
        }
    }

    /// The URL path of one object, `key` being `namespace/name` or `name`.
    #[must_use]
    pub fn object(&self, key: &str) -> String {
        match key.split_once('/') {
            Some((ns, name)) => format!("{}/{name}", self.collection(Some(ns))),
            None => format!("{}/{key}", self.collection(None)),
        }
    }
}

/// Called for each change of a store with the former and the present record.
pub type Handler<R> = Arc<dyn Fn(Option<&Arc<R>>, Option<&Arc<R>>) + Send + Sync>;
/// Gives the index keys of a record.
pub type IndexBy<R> = fn(&R) -> Vec<String>;

/// Keys by entry.
type Index = BTreeMap<String, BTreeSet<String>>;

struct Inner<R> {
    items: BTreeMap<String, Arc<R>>,
    indexes: Vec<(IndexBy<R>, Index)>,
    handlers: Vec<Handler<R>>,
    seen: u64,
}

impl<R: Record> Inner<R> {
    fn set(&mut self, key: &str, new: Option<Arc<R>>) -> Option<Arc<R>> {
        let old = match &new {
            Some(record) => self.items.insert(key.to_owned(), record.clone()),
            None => self.items.remove(key),
        };
        for (by, index) in &mut self.indexes {
            for entry in old.iter().flat_map(|record| by(record)) {
                if let Some(keys) = index.get_mut(&entry) {
                    keys.remove(key);
                    if keys.is_empty() {
                        index.remove(&entry);
                    }
                }
            }
            for entry in new.iter().flat_map(|record| by(record)) {
                index.entry(entry).or_default().insert(key.to_owned());
            }
        }
        old
    }
}

/// The records of one kind, and the one way to write that kind.
pub struct Store<R> {
    client: Client,
    kind: Kind,
    inner: Mutex<Inner<R>>,
    started: AtomicBool,
    synced: AtomicBool,
    notify: Notify,
}

#[derive(Deserialize)]
struct Page<R> {
    metadata: PageMeta,
    #[serde(default = "Vec::new")]
    items: Vec<R>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct PageMeta {
    resource_version: String,
    #[serde(rename = "continue")]
    more: Option<String>,
}

fn number(resource_version: &str) -> u64 {
    resource_version.parse().unwrap_or(0)
}

impl<R: Record> Store<R> {
    #[must_use]
    pub fn new(client: Client, indexes: &[IndexBy<R>]) -> Arc<Self> {
        Self::of_kind(client, R::KIND, indexes)
    }

    /// A store of another kind than the record's own (records of metadata alone fit any kind).
    #[must_use]
    pub fn of_kind(client: Client, kind: Kind, indexes: &[IndexBy<R>]) -> Arc<Self> {
        let indexes = indexes.iter().map(|by| (*by, BTreeMap::new())).collect();
        let inner = Inner { items: BTreeMap::new(), indexes, handlers: Vec::new(), seen: 0 };
        Arc::new(Self {
            client,
            kind,
            inner: Mutex::new(inner),
            started: AtomicBool::new(false),
            synced: AtomicBool::new(false),
            notify: Notify::new(),
        })
    }

    /// Starts the watch if it does not run yet.
    pub fn start(self: &Arc<Self>, tasks: &Tasks) {
        if !self.started.swap(true, Ordering::SeqCst) {
            let store = self.clone();
            tasks.spawn(async move { store.follow().await });
        }
    }

    /// Waits for the end of the first complete list.
    pub async fn synced(&self) {
        while !self.synced.load(Ordering::SeqCst) {
            let notified = self.notify.notified();
            if self.synced.load(Ordering::SeqCst) {
                return;
            }
            notified.await;
        }
    }

    /// Calls `handler` for what is there and for each later change.
    pub fn on_change(&self, handler: Handler<R>) {
        let present = {
            let mut inner = lock(&self.inner);
            inner.handlers.push(handler.clone());
            inner.items.values().cloned().collect::<Vec<_>>()
        };
        for record in &present {
            handler(None, Some(record));
        }
    }

    /// The kind that this store follows.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The record under `namespace/name` (or `name`).
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Arc<R>> {
        lock(&self.inner).items.get(key).cloned()
    }

    /// The record under this key, if it is this very object.
    #[must_use]
    pub fn get_uid(&self, key: &str, uid: &str) -> Option<Arc<R>> {
        self.get(key).filter(|record| record.meta().uid == uid)
    }

    /// All records, sorted by key.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<R>> {
        lock(&self.inner).items.values().cloned().collect()
    }

    /// All keys, sorted.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        lock(&self.inner).items.keys().cloned().collect()
    }

    /// The records of one namespace.
    #[must_use]
    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<R>> {
        let start = format!("{namespace}/");
        let inner = lock(&self.inner);
        inner
            .items
            .range(start.clone()..)
            .take_while(|(key, _)| key.starts_with(&start))
            .map(|(_, record)| record.clone())
            .collect()
    }

    /// The records under `entry` of the index given at this position to [`Store::new`].
    #[must_use]
    pub fn indexed(&self, index: usize, entry: &str) -> Vec<Arc<R>> {
        let inner = lock(&self.inner);
        let keys = inner.indexes.get(index).and_then(|(_, entries)| entries.get(entry));
        keys.into_iter().flatten().filter_map(|key| inner.items.get(key).cloned()).collect()
    }

    fn change(&self, key: &str, new: Option<Arc<R>>, version: u64) {
        let (old, handlers) = {
            let mut inner = lock(&self.inner);
            inner.seen = inner.seen.max(version);
            // A write of our own may be ahead of the watch; what the watch brings up later is older.
            if let (Some(known), Some(record)) = (inner.items.get(key), &new)
                && known.meta().uid == record.meta().uid
                && number(&known.meta().resource_version) >= number(&record.meta().resource_version)
            {
                return;
            }
            let old = inner.set(key, new.clone());
            (old, inner.handlers.clone())
        };
        if old.is_none() && new.is_none() {
            return;
        }
        for handler in &handlers {
            handler(old.as_ref(), new.as_ref());
        }
    }

    /// Takes the answer to a write at once, unless the watch has already gone past it.
    fn wrote(&self, record: &R) {
        let version = number(&record.meta().resource_version);
        let key = record.meta().key();
        if record.meta().uid.is_empty() || !self.synced.load(Ordering::SeqCst) {
            return;
        }
        let (old, handlers, new) = {
            let mut inner = lock(&self.inner);
            let known = inner.items.get(&key).map_or(0, |known| number(&known.meta().resource_version));
            if version <= inner.seen || version <= known {
                return;
            }
            let new = Arc::new(record.clone());
            (inner.set(&key, Some(new.clone())), inner.handlers.clone(), new)
        };
        for handler in &handlers {
            handler(old.as_ref(), Some(&new));
        }
    }

    async fn list(&self) -> kube::Result<String> {
        let path = self.kind.collection(None);
        let mut params = ListParams::default().limit(PAGE);
        let mut found = BTreeMap::new();
        let version = loop {
            let request = kube::core::Request::new(path.clone()).list(&params).map_err(kube::Error::BuildRequest)?;
            let page: Page<R> = self.client.request(request).await?;
            for record in page.items {
                found.insert(record.meta().key(), Arc::new(record));
            }
            match page.metadata.more.filter(|more| !more.is_empty()) {
                Some(more) => params = params.continue_token(&more),
                None => break page.metadata.resource_version,
            }
        };
        let at = number(&version);
        let gone: Vec<String> = {
            let inner = lock(&self.inner);
            // What we wrote after the list was taken is not gone.
            let old = |record: &Arc<R>| number(&record.meta().resource_version) <= at;
            inner
                .items
                .iter()
                .filter(|(key, record)| !found.contains_key(*key) && old(record))
                .map(|(key, _)| key.clone())
                .collect()
        };
        for key in gone {
            self.change(&key, None, at);
        }
        for (key, record) in found {
            self.change(&key, Some(record), at);
        }
        if !self.synced.swap(true, Ordering::SeqCst) {
            self.notify.notify_waiters();
        }
        Ok(version)
    }

    /// Follows the watch until it ends; `None` means: list again.
    async fn watch(&self, mut version: String) -> (Option<String>, Option<String>) {
        let params = WatchParams::default().timeout(WATCH_SECONDS);
        let opened = async {
            let request = kube::core::Request::new(self.kind.collection(None))
                .watch(&params, &version)
                .map_err(kube::Error::BuildRequest)?;
            self.client.request_events::<R>(request).await
        };
        let mut events = match opened.await {
            Ok(events) => events.boxed(),
            Err(kube::Error::Api(status)) if status.code == 410 => return (None, Some(status.message.clone())),
            Err(error) => return (Some(version), Some(error.to_string())),
        };
        loop {
            match events.try_next().await {
                Ok(Some(WatchEvent::Added(record) | WatchEvent::Modified(record))) => {
                    version.clone_from(&record.meta().resource_version);
                    let at = number(&version);
                    self.change(&record.meta().key(), Some(Arc::new(record)), at);
                }
                Ok(Some(WatchEvent::Deleted(record))) => {
                    version.clone_from(&record.meta().resource_version);
                    self.deleted(&record);
                }
                Ok(Some(WatchEvent::Bookmark(bookmark))) => {
                    version = bookmark.metadata.resource_version;
                    let mut inner = lock(&self.inner);
                    inner.seen = inner.seen.max(number(&version));
                }
                Ok(Some(WatchEvent::Error(status))) if status.code == 410 => return (None, Some(status.message.clone())),
                Ok(Some(WatchEvent::Error(status))) => return (Some(version), Some(status.message.clone())),
                Ok(None) => return (Some(version), None),
                Err(error) => return (Some(version), Some(error.to_string())),
            }
        }
    }

    fn deleted(&self, record: &R) {
        let (key, at) = (record.meta().key(), number(&record.meta().resource_version));
        let newer = self.get(&key).is_some_and(|known| number(&known.meta().resource_version) > at);
        if newer {
            // The successor of the same name was written by us already.
            let mut inner = lock(&self.inner);
            inner.seen = inner.seen.max(at);
        } else {
            self.change(&key, None, at);
        }
    }

    async fn follow(self: Arc<Self>) {
        let mut pause = Duration::ZERO;
        let mut version: Option<String> = None;
        loop {
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            let opened = instant();
            let error = match version.take() {
                None => match self.list().await {
                    Ok(listed) => {
                        let (next, error) = self.watch(listed).await;
                        version = next;
                        error
                    }
                    Err(error) => Some(error.to_string()),
                },
                Some(known) => {
                    let (next, error) = self.watch(known).await;
                    version = next;
                    error
                }
            };
            if let Some(error) = &error {
                tracing::debug!(kind = self.kind.kind, %error, "watch ended");
            }
            pause = if opened.elapsed() >= SHORT_WATCH { BACKOFF_FIRST } else { (pause * 2).clamp(BACKOFF_FIRST, BACKOFF_LAST) };
        }
    }

    async fn send(&self, method: &str, path: &str, content: &str, body: &Value) -> kube::Result<Value> {
        let bytes = serde_json::to_vec(body).map_err(kube::Error::SerdeError)?;
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", content)
            .header("accept", "application/json");
        let request = request.body(bytes).map_err(kube::Error::HttpError)?;
        self.client.request::<Value>(request).await
    }

    fn take(&self, answer: Value) -> kube::Result<Arc<R>> {
        let record: R = serde_json::from_value(answer).map_err(kube::Error::SerdeError)?;
        self.wrote(&record);
        Ok(Arc::new(record))
    }

    /// Creates an object; `apiVersion` and `kind` are filled in.
    ///
    /// # Errors
    /// What the API server answers: 409 when it exists, 403 or 404 for the namespace, 422 when invalid.
    pub async fn create(&self, namespace: Option<&str>, mut body: Value) -> kube::Result<Arc<R>> {
        typed(&mut body, self.kind);
        let path = self.kind.collection(namespace);
        self.take(self.send("POST", &path, "application/json", &body).await?)
    }

    /// A JSON merge patch of the object or one of its subresources. Put `uid` or `resourceVersion` into it as precondition.
    ///
    /// # Errors
    /// What the API server answers: 404, 409 on a precondition, 422.
    pub async fn merge(&self, key: &str, subresource: &str, patch: &Value) -> kube::Result<Arc<R>> {
        self.patch(key, subresource, "application/merge-patch+json", patch).await
    }

    /// A strategic merge patch: conditions are merged by type, so those of other writers stay.
    ///
    /// # Errors
    /// As [`Store::merge`]; 415 for custom resources.
    pub async fn strategic(&self, key: &str, subresource: &str, patch: &Value) -> kube::Result<Arc<R>> {
        self.patch(key, subresource, "application/strategic-merge-patch+json", patch).await
    }

    async fn patch(&self, key: &str, subresource: &str, content: &str, patch: &Value) -> kube::Result<Arc<R>> {
        let mut path = self.kind.object(key);
        if !subresource.is_empty() {
            path = format!("{path}/{subresource}");
        }
        self.take(self.send("PATCH", &path, content, patch).await?)
    }

    /// PUT to a subresource.
    ///
    /// # Errors
    /// What the API server answers.
    pub async fn put(&self, key: &str, subresource: &str, body: &Value) -> kube::Result<Value> {
        let path = format!("{}/{subresource}", self.kind.object(key));
        self.send("PUT", &path, "application/json", body).await
    }

    /// POST to a subresource (`binding`, `eviction`); the answer is not an object of this kind.
    ///
    /// # Errors
    /// What the API server answers.
    pub async fn post(&self, key: &str, subresource: &str, body: &Value) -> kube::Result<Value> {
        let path = format!("{}/{subresource}", self.kind.object(key));
        self.send("POST", &path, "application/json", body).await
    }

    /// Deletes this very object. Already gone, or replaced by a namesake, is success.
    ///
    /// # Errors
    /// Anything but 404 and 409.
    pub async fn delete(&self, meta: &Meta, grace: Option<i64>) -> kube::Result<()> {
        self.delete_with(meta, grace, "Background").await
    }

    /// The same with another propagation policy.
    ///
    /// # Errors
    /// Anything but 404 and 409.
    pub async fn delete_as(&self, meta: &Meta, policy: &str) -> kube::Result<()> {
        self.delete_with(meta, None, policy).await
    }

    async fn delete_with(&self, meta: &Meta, grace: Option<i64>, policy: &str) -> kube::Result<()> {
        let mut options =
            json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": meta.uid}, "propagationPolicy": policy});
        if let Some(seconds) = grace {
            options["gracePeriodSeconds"] = json!(seconds);
        }
        let path = self.kind.object(&meta.key());
        match self.send("DELETE", &path, "application/json", &options).await {
            Ok(answer) => {
                // Only an object that is still there (with deletionTimestamp) comes back as one that the store may take.
                if answer.pointer("/metadata/deletionTimestamp").is_some() && grace != Some(0) {
                    let finalizers =
                        answer.pointer("/metadata/finalizers").and_then(Value::as_array).is_some_and(|list| !list.is_empty());
                    let graceful =
                        answer.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0) > 0;
                    if finalizers || graceful {
                        self.take(answer)?;
                    }
                }
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// A fresh read; `None` when absent.
    ///
    /// # Errors
    /// Anything but 404.
    pub async fn read(&self, key: &str) -> kube::Result<Option<Value>> {
        let request = http::Request::get(self.kind.object(key)).body(Vec::new()).map_err(kube::Error::HttpError)?;
        match self.client.request::<Value>(request).await {
            Ok(value) => Ok(Some(value)),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn typed(body: &mut Value, kind: Kind) {
    body["apiVersion"] = json!(kind.api_version);
    body["kind"] = json!(kind.kind);
}

/// True for answers that mean "somebody else was quicker": the next event brings the truth.
#[must_use]
pub fn lost_race(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404 || status.code == 409)
}

/// The answer of a write for which losing a race is no error.
///
/// # Errors
/// All but 404 and 409.
pub fn raced<T>(result: kube::Result<T>) -> kube::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if lost_race(&error) => Ok(None),
        Err(error) => Err(error),
    }
}
