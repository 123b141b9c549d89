//! The dirty-key queue: a key is handled by one worker at a time, repeats are merged, and timers and retries are deterministic.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The tasks of one actor or process; dropping it ends them all at once, as a crash does.
#[derive(Debug, Default)]
pub struct Tasks(Mutex<Vec<tokio::task::AbortHandle>>);

impl Tasks {
    /// Runs `future` until it ends or this group is dropped.
    pub fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        let handle = tokio::spawn(future).abort_handle();
        let mut handles = lock(&self.0);
        if handles.len() % 1024 == 1023 {
            handles.retain(|handle| !handle.is_finished());
        }
        handles.push(handle);
    }

    /// Ends all tasks now.
    pub fn abort(&self) {
        for handle in lock(&self.0).drain(..) {
            handle.abort();
        }
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.abort();
    }
}

/// A mutex is poisoned only when an actor panicked; the simulation then goes on with what is there.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Present time of the runtime (virtual under a paused clock).
#[must_use]
pub fn instant() -> Instant {
    Instant::now()
}

const RETRY_FIRST: Duration = Duration::from_millis(200);
const RETRY_LAST: Duration = Duration::from_secs(30);

struct Inner<K> {
    ready: VecDeque<K>,
    queued: BTreeSet<K>,
    running: BTreeSet<K>,
    later: BTreeMap<(Instant, u64), K>,
    due: BTreeMap<K, (Instant, u64)>,
    failures: BTreeMap<K, u32>,
    counter: u64,
}

/// Keys that need work. Cheap to clone; all clones are the same queue.
pub struct Queue<K> {
    inner: Arc<Mutex<Inner<K>>>,
    ready: Arc<Notify>,
    timers: Arc<Notify>,
}

impl<K> Clone for Queue<K> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), ready: self.ready.clone(), timers: self.timers.clone() }
    }
}

impl<K: Ord + Clone + Send + 'static> Default for Queue<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Ord + Clone + Send + 'static> Queue<K> {
    #[must_use]
    pub fn new() -> Self {
        let inner = Inner {
            ready: VecDeque::new(),
            queued: BTreeSet::new(),
            running: BTreeSet::new(),
            later: BTreeMap::new(),
            due: BTreeMap::new(),
            failures: BTreeMap::new(),
            counter: 0,
        };
        Self { inner: Arc::new(Mutex::new(inner)), ready: Arc::new(Notify::new()), timers: Arc::new(Notify::new()) }
    }

    /// The key is dirty now.
    pub fn add(&self, key: K) {
        let mut inner = lock(&self.inner);
        if inner.queued.insert(key.clone()) {
            if !inner.running.contains(&key) {
                inner.ready.push_back(key);
            }
            drop(inner);
            self.ready.notify_one();
        }
    }

    /// The key becomes dirty after `delay`; an earlier wish stands.
    pub fn add_after(&self, key: K, delay: Duration) {
        if delay.is_zero() {
            return self.add(key);
        }
        let at = instant() + delay;
        let mut inner = lock(&self.inner);
        if let Some(&known) = inner.due.get(&key) {
            if known.0 <= at {
                return;
            }
            inner.later.remove(&known);
        }
        inner.counter += 1;
        let slot = (at, inner.counter);
        let first = inner.later.first_key_value().is_none_or(|(known, _)| slot < *known);
        inner.later.insert(slot, key.clone());
        inner.due.insert(key, slot);
        drop(inner);
        if first {
            self.timers.notify_one();
        }
    }

    fn retry(&self, key: K) {
        let delay = {
            let mut inner = lock(&self.inner);
            let failures = inner.failures.entry(key.clone()).or_insert(0);
            *failures += 1;
            RETRY_FIRST.saturating_mul(1 << (*failures - 1).min(10)).min(RETRY_LAST)
        };
        self.add_after(key, delay);
    }

    async fn next(&self) -> K {
        loop {
            let notified = self.ready.notified();
            {
                let mut inner = lock(&self.inner);
                if let Some(key) = inner.ready.pop_front() {
                    inner.queued.remove(&key);
                    inner.running.insert(key.clone());
                    let more = !inner.ready.is_empty();
                    drop(inner);
                    // A permit is stored once only, so each worker wakes the next.
                    if more {
                        self.ready.notify_one();
                    }
                    return key;
                }
            }
            notified.await;
        }
    }

    fn done(&self, key: &K) {
        let mut inner = lock(&self.inner);
        inner.running.remove(key);
        if inner.queued.contains(key) {
            inner.ready.push_back(key.clone());
            drop(inner);
            self.ready.notify_one();
        }
    }

    async fn pump(self) {
        loop {
            let first = lock(&self.inner).later.first_key_value().map(|(slot, _)| slot.0);
            match first {
                None => self.timers.notified().await,
                Some(at) => {
                    tokio::select! {
                        biased;
                        () = self.timers.notified() => continue,
                        () = tokio::time::sleep_until(at) => {}
                    }
                    let now = instant();
                    loop {
                        let mut inner = lock(&self.inner);
                        let Some((&slot, _)) = inner.later.first_key_value() else { break };
                        if slot.0 > now {
                            break;
                        }
                        let Some(key) = inner.later.remove(&slot) else { break };
                        inner.due.remove(&key);
                        drop(inner);
                        self.add(key);
                    }
                }
            }
        }
    }

    /// Starts `workers` loops that hand each dirty key to `work`. `Ok(Some(delay))` makes the key dirty again after that
    /// time, an error after a growing back-off. Errors are the work of other actors or of faults: logged at debug level.
    pub fn run<F, Fut, E>(&self, tasks: &Tasks, name: &'static str, workers: usize, work: F)
    where
        F: Fn(K) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Option<Duration>, E>> + Send,
        E: std::fmt::Display + Send,
        K: std::fmt::Debug + Sync,
    {
        tasks.spawn(self.clone().pump());
        let work = Arc::new(work);
        for _ in 0..workers {
            let (queue, work) = (self.clone(), work.clone());
            tasks.spawn(async move {
                loop {
                    let key = queue.next().await;
                    match work(key.clone()).await {
                        Ok(again) => {
                            lock(&queue.inner).failures.remove(&key);
                            if let Some(delay) = again {
                                queue.add_after(key.clone(), delay);
                            }
                        }
                        Err(error) => {
                            tracing::debug!(actor = name, ?key, %error, "will try again");
                            queue.retry(key.clone());
                        }
                    }
                    queue.done(&key);
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn repeats_are_merged_and_failures_back_off() {
        let (queue, tasks, seen) = (Queue::new(), Tasks::default(), Arc::new(Mutex::new(Vec::new())));
        let start = instant();
        let log = seen.clone();
        queue.run(&tasks, "test", 2, move |key: u32| {
            let log = log.clone();
            async move {
                let failed = lock(&log).iter().any(|(known, _)| *known == key);
                lock(&log).push((key, start.elapsed().as_millis()));
                if key == 1 && !failed { Err("once") } else { Ok(None) }
            }
        });
        queue.add(1);
        queue.add(1);
        queue.add_after(2, Duration::from_millis(50));
        queue.add_after(2, Duration::from_millis(10));
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(*lock(&seen), [(1, 0), (2, 10), (1, 200)]);
    }
}
