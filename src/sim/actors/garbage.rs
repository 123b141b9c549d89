//! The garbage collector: objects whose owners are gone (by UID), foreground and orphan deletion, and the contents of
//! namespaces that are being deleted.

use super::caches::{BY_OWNER, Caches, none, owners};
use super::informer::{Kind, Store, lost_race};
use super::queue::{Queue, lock};
use super::records::{Bare, Meta, Namespace, Owner, Record};
use serde_json::json;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

type Answer<'a, T> = Pin<Box<dyn Future<Output = kube::Result<T>> + Send + 'a>>;

/// What the collector needs of a store, whatever its records are.
trait Collected: Send + Sync {
    fn kind(&self) -> Kind;
    fn meta(&self, key: &str) -> Option<Meta>;
    fn owned_by(&self, uid: &str) -> Vec<Meta>;
    fn in_namespace(&self, namespace: &str) -> Vec<Meta>;
    fn live_uid<'a>(&'a self, key: &'a str) -> Answer<'a, Option<String>>;
    fn remove<'a>(&'a self, meta: &'a Meta, policy: &'static str) -> Answer<'a, ()>;
    fn edit<'a>(&'a self, meta: &'a Meta, change: serde_json::Value) -> Answer<'a, ()>;
}

impl<R: Record> Collected for Arc<Store<R>> {
    fn kind(&self) -> Kind {
        Store::kind(self)
    }

    fn meta(&self, key: &str) -> Option<Meta> {
        self.get(key).map(|record| record.meta().clone())
    }

    fn owned_by(&self, uid: &str) -> Vec<Meta> {
        self.indexed(BY_OWNER, uid).iter().map(|record| record.meta().clone()).collect()
    }

    fn in_namespace(&self, namespace: &str) -> Vec<Meta> {
        Store::in_namespace(self, namespace).iter().map(|record| record.meta().clone()).collect()
    }

    fn live_uid<'a>(&'a self, key: &'a str) -> Answer<'a, Option<String>> {
        Box::pin(async move { Ok(self.read(key).await?.and_then(|value| value["metadata"]["uid"].as_str().map(str::to_owned))) })
    }

    fn remove<'a>(&'a self, meta: &'a Meta, policy: &'static str) -> Answer<'a, ()> {
        Box::pin(self.delete_as(meta, policy))
    }

    fn edit<'a>(&'a self, meta: &'a Meta, change: serde_json::Value) -> Answer<'a, ()> {
        let mut patch = json!({"metadata": change});
        patch["metadata"]["uid"] = json!(meta.uid);
        patch["metadata"]["resourceVersion"] = json!(meta.resource_version);
        Box::pin(async move {
            match self.merge(&meta.key(), "", &patch).await {
                Err(error) if !lost_race(&error) => Err(error),
                _ => Ok(()),
            }
        })
    }
}

/// Position of the store, and key of the object.
type Key = (usize, String);

struct Collector {
    caches: Arc<Caches>,
    stores: Vec<Box<dyn Collected>>,
    queue: Queue<Key>,
    /// Position of each kind, by its name.
    kinds: Mutex<BTreeMap<String, usize>>,
}

/// The stores of kinds that only the collector follows.
pub(super) fn extra_stores(caches: &Caches, kinds: &[Kind]) -> Vec<Arc<Store<Bare>>> {
    let stores =
        kinds.iter().map(|kind| Store::of_kind(caches.client.clone(), *kind, &[none, |bare: &Bare| owners(&bare.metadata)]));
    stores.collect()
}

pub(super) fn start(caches: &Arc<Caches>, extra: Vec<Arc<Store<Bare>>>) {
    let mut stores: Vec<Box<dyn Collected>> = Vec::new();
    let queue: Queue<Key> = Queue::new();
    let (gone, changed) = (Queue::<(usize, String)>::new(), queue.clone());
    // Dependents are looked up when the owner's end is handled, not inside of the event.
    macro_rules! follow {
        ($store:expr) => {{
            let (index, changed, gone) = (stores.len(), changed.clone(), gone.clone());
            $store.on_change(Arc::new(move |old, new| {
                let replaced = old.zip(new).is_some_and(|(old, new)| old.metadata.uid != new.metadata.uid);
                if let Some(old) = old.filter(|_| new.is_none() || replaced) {
                    gone.add((index, old.metadata.uid.clone()));
                    // An owner in foreground deletion waits for this dependent.
                    for owner in &old.metadata.owner_references {
                        gone.add((usize::MAX, format!("{}/{}/{}", owner.kind, old.metadata.ns(), owner.name)));
                    }
                }
                if let Some(new) = new {
                    let meta = &new.metadata;
                    let owned = !meta.owner_references.is_empty()
                        && old.is_none_or(|old| replaced || old.metadata.owner_references != meta.owner_references);
                    let waits = meta.deleting() && meta.finalizers.iter().any(|f| f == FOREGROUND || f == ORPHAN);
                    if owned || waits {
                        changed.add((index, meta.key()));
                    }
                }
            }));
            stores.push(Box::new($store.clone()));
        }};
    }
    follow!(caches.pods);
    follow!(caches.nodes);
    follow!(caches.daemon_sets);
    follow!(caches.replica_sets);
    follow!(caches.deployments);
    follow!(caches.stateful_sets);
    follow!(caches.jobs);
    follow!(caches.revisions);
    follow!(caches.budgets);
    follow!(caches.claims);
    follow!(caches.volume_claims);
    follow!(caches.leases);
    follow!(caches.csi_nodes);
    for store in &extra {
        follow!(store);
    }
    let kinds = stores.iter().enumerate().map(|(index, store)| (store.kind().kind.to_owned(), index)).collect();
    let collector = Arc::new(Collector { caches: caches.clone(), stores, queue: queue.clone(), kinds: Mutex::new(kinds) });
    let worker = collector.clone();
    gone.run(&caches.tasks, "garbage-owner", 1, move |(index, uid)| {
        let collector = worker.clone();
        async move {
            collector.owner_gone(index, &uid);
            Ok::<_, kube::Error>(None)
        }
    });
    let worker = collector.clone();
    queue.run(&caches.tasks, "garbage", 8, move |key| {
        let collector = worker.clone();
        async move { collector.sync(&key).await }
    });
    let namespaces: Queue<String> = Queue::new();
    let dirty = namespaces.clone();
    caches.namespaces.on_change(Arc::new(move |_: Option<&Arc<Namespace>>, new: Option<&Arc<Namespace>>| {
        if let Some(namespace) = new.filter(|namespace| namespace.metadata.deleting()) {
            dirty.add(namespace.metadata.name.clone());
        }
    }));
    namespaces.run(&caches.tasks, "namespace", 2, move |name| {
        let collector = collector.clone();
        async move { collector.empty_namespace(&name).await }
    });
}

/// The key of an owner: owners live in the namespace of their dependents, or in none.
fn owner_key(kind: Kind, namespace: &str, name: &str) -> String {
    if kind.namespaced { format!("{namespace}/{name}") } else { name.to_owned() }
}

impl Collector {
    fn store_of(&self, kind: &str) -> Option<(usize, &dyn Collected)> {
        let index = *lock(&self.kinds).get(kind)?;
        self.stores.get(index).map(|store| (index, store.as_ref()))
    }

    fn owner_gone(&self, index: usize, uid: &str) {
        if index == usize::MAX {
            let mut parts = uid.splitn(3, '/');
            if let (Some(kind), Some(namespace), Some(name)) = (parts.next(), parts.next(), parts.next())
                && let Some((index, store)) = self.store_of(kind)
            {
                let key = owner_key(store.kind(), namespace, name);
                if store.meta(&key).is_some_and(|meta| meta.deleting()) {
                    self.queue.add((index, key));
                }
            }
            return;
        }
        for (index, store) in self.stores.iter().enumerate() {
            for dependent in store.owned_by(uid) {
                self.queue.add((index, dependent.key()));
            }
        }
    }

    fn dependents(&self, uid: &str) -> Vec<(usize, Meta)> {
        let all = self.stores.iter().enumerate();
        all.flat_map(|(index, store)| store.owned_by(uid).into_iter().map(move |meta| (index, meta))).collect()
    }

    async fn sync(&self, (index, key): &Key) -> kube::Result<Option<Duration>> {
        let Some(store) = self.stores.get(*index) else { return Ok(None) };
        let Some(meta) = store.meta(key) else { return Ok(None) };
        let has = |finalizer: &str| meta.finalizers.iter().any(|f| f == finalizer);
        if meta.deleting() && has(ORPHAN) {
            for (index, dependent) in self.dependents(&meta.uid) {
                let kept: Vec<&Owner> = dependent.owner_references.iter().filter(|owner| owner.uid != meta.uid).collect();
                self.stores[index].edit(&dependent, json!({"ownerReferences": kept})).await?;
            }
            return self.release(store.as_ref(), &meta, ORPHAN).await;
        }
        if meta.deleting() && has(FOREGROUND) {
            let dependents = self.dependents(&meta.uid);
            for (index, dependent) in dependents.iter().filter(|(_, dependent)| !dependent.deleting()) {
                self.queue.add((*index, dependent.key()));
            }
            let blocks = |owner: &Owner| owner.uid == meta.uid && owner.block_owner_deletion;
            if !dependents.iter().any(|(_, dependent)| dependent.owner_references.iter().any(blocks)) {
                return self.release(store.as_ref(), &meta, FOREGROUND).await;
            }
            return Ok(None);
        }
        if !meta.deleting() && !meta.owner_references.is_empty() {
            return self.check_owners(store.as_ref(), &meta).await;
        }
        Ok(None)
    }

    async fn release(&self, store: &dyn Collected, meta: &Meta, finalizer: &str) -> kube::Result<Option<Duration>> {
        let kept: Vec<&String> = meta.finalizers.iter().filter(|known| *known != finalizer).collect();
        store.edit(meta, json!({"finalizers": kept})).await?;
        Ok(None)
    }

    /// As `attemptToDeleteItem` of `pkg/controller/garbagecollector`: with an owner that stays the object stays too, and loses its references to
    /// the others; without one it goes.
    async fn check_owners(&self, store: &dyn Collected, meta: &Meta) -> kube::Result<Option<Duration>> {
        let (mut stays, mut waited_for, mut kept) = (false, false, Vec::new());
        for owner in &meta.owner_references {
            // A kind that nobody follows is taken to be there.
            let Some((_, owners)) = self.store_of(&owner.kind) else { return Ok(None) };
            let key = owner_key(owners.kind(), meta.ns(), &owner.name);
            match owners.meta(&key).filter(|known| known.uid == owner.uid) {
                Some(known) if known.deleting() && known.finalizers.iter().any(|f| f == FOREGROUND) => waited_for = true,
                Some(_) => {
                    stays = true;
                    kept.push(owner);
                }
                // The cache may lag behind a new owner: absence counts on a fresh read only.
                None if owners.live_uid(&key).await?.is_some_and(|uid| uid == owner.uid) => {
                    return Ok(Some(Duration::from_secs(1)));
                }
                None => {}
            }
        }
        if stays {
            if kept.len() < meta.owner_references.len() {
                store.edit(meta, json!({"ownerReferences": kept})).await?;
            }
        } else if waited_for && !self.dependents(&meta.uid).is_empty() {
            store.remove(meta, "Foreground").await?;
        } else {
            store.remove(meta, "Background").await?;
        }
        Ok(None)
    }

    async fn empty_namespace(&self, name: &str) -> kube::Result<Option<Duration>> {
        let Some(namespace) = self.caches.namespaces.get(name).filter(|namespace| namespace.metadata.deleting()) else {
            return Ok(None);
        };
        let mut left = 0;
        for store in &self.stores {
            for meta in store.in_namespace(name) {
                left += 1;
                if !meta.deleting() {
                    store.remove(&meta, "Background").await?;
                }
            }
        }
        if left > 0 {
            return Ok(Some(Duration::from_secs(1)));
        }
        if !namespace.spec.finalizers.is_empty() {
            let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "uid": namespace.metadata.uid}, "spec": {"finalizers": []}});
            self.caches.namespaces.put(name, "finalize", &body).await?;
        }
        Ok(None)
    }
}
