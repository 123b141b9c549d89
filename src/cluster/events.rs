//! Events of the cluster (`events.k8s.io/v1`): what happened, where people look for it. Best effort: a step never waits for one and
//! never fails with one. Names are made from what an event says, not from chance, so that a simulated run replays.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
};

use super::{CallError, Cluster, Fence, WriteCap, call::Call};
use crate::api::{MANAGER, Uid};

/// `Normal` or `Warning`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    Normal,
    Warning,
}

/// Which object an event is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Regarding {
    /// `v1`, `lockkeeper.dev/v1alpha1`.
    pub api_version: &'static str,
    pub kind: &'static str,
    /// Empty: cluster-scoped. Its events are in namespace `default`.
    pub namespace: String,
    pub name: String,
    pub uid: Uid,
}

/// What happened. Equal ones are counted on one Event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Happening {
    pub regarding: Regarding,
    pub severity: Severity,
    /// A stable word in CamelCase, at most 128 characters.
    pub reason: String,
    /// What was done, in CamelCase: `Evict`, `Cordon`.
    pub action: String,
    /// For people; cut at 1,024 bytes, which is what the API allows.
    pub note: String,
}

/// How many may wait; more are dropped and counted.
const WAITING: usize = 256;
/// `note` and `reason` may not be longer.
const LONGEST_NOTE: usize = 1024;
const LONGEST_REASON: usize = 128;

#[derive(Debug)]
enum Told {
    Happening(Happening),
    /// To be answered when everything told before has been sent or given up.
    Flush(oneshot::Sender<()>),
}

/// Hands events to a task of their own. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Events {
    out: mpsc::Sender<Told>,
    lost: Arc<AtomicU64>,
}

impl Events {
    /// `instance` names this process, as its Lease identity does. The fence is asked before each event is sent: a former leader is silent.
    pub fn start(cluster: &Cluster, _cap: WriteCap, fence: Fence, instance: &str) -> (Self, JoinHandle<()>) {
        let (out, mut waiting) = mpsc::channel::<Told>(WAITING);
        let lost = Arc::new(AtomicU64::new(0));
        let (cluster, instance, missed) = (cluster.clone(), instance.to_owned(), lost.clone());
        let task = tokio::spawn(async move {
            let (mut warned, mut recorder) = (false, Recorder::default());
            while let Some(told) = waiting.recv().await {
                let happening = match told {
                    Told::Happening(happening) => happening,
                    Told::Flush(done) => {
                        let _ = done.send(());
                        continue;
                    }
                };
                if fence().is_err() {
                    continue;
                }
                if let Err(error) = recorder.record(&cluster, &instance, &happening).await {
                    missed.fetch_add(1, Ordering::Relaxed);
                    if !warned {
                        tracing::warn!(%error, "events are not recorded; work goes on without them");
                        warned = true;
                    }
                }
            }
        });
        (Self { out, lost }, task)
    }

    /// Never waits.
    pub fn tell(&self, happening: Happening) {
        if self.out.try_send(Told::Happening(happening)).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until everything told so far has been sent; for so long at most. False: something may be left.
    pub async fn flush(&self, limit: Duration) -> bool {
        let (done, sent) = oneshot::channel();
        let all = async { self.out.send(Told::Flush(done)).await.is_ok() && sent.await.is_ok() };
        tokio::time::timeout(limit, all).await.unwrap_or(false)
    }

    /// How many were not recorded.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

/// How many names are remembered, to count what happens again.
const REMEMBERED: usize = 4096;

/// What this process has recorded: the count of each Event by its name. Reading events is no permission of ours.
#[derive(Default)]
struct Recorder {
    counts: BTreeMap<String, i64>,
}

impl Recorder {
    async fn record(&mut self, cluster: &Cluster, instance: &str, happening: &Happening) -> Result<(), CallError> {
        let namespace = if happening.regarding.namespace.is_empty() { "default" } else { &happening.regarding.namespace };
        let collection = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
        let now = cluster.clock().now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
        let name = name(happening);
        let mut count = self.counts.get(&name).copied().unwrap_or(0) + 1;
        if count == 1 {
            let body = body(happening, instance, namespace, &name, &now);
            match cluster.call(Call::post(format!("{collection}?fieldManager={MANAGER}"), &body).why("event")).await {
                // A former life has recorded it.
                Err(error) if error.code() == Some(409) => count = 2,
                Err(error) => return Err(error),
                Ok(_) => {}
            }
        }
        if count > 1 {
            let series = json!({"series": {"count": count, "lastObservedTime": now}});
            match cluster
                .call(Call::merge_patch(format!("{collection}/{name}?fieldManager={MANAGER}"), &series).why("event"))
                .await
            {
                // The server has let it expire: the next one is a first one again.
                Err(error) if error.is_not_found() => {
                    self.counts.remove(&name);
                    return Ok(());
                }
                Err(error) => return Err(error),
                Ok(_) => {}
            }
        }
        self.counts.insert(name, count);
        if self.counts.len() > REMEMBERED {
            self.counts.pop_first();
        }
        Ok(())
    }
}

fn body(happening: &Happening, instance: &str, namespace: &str, name: &str, now: &str) -> Value {
    let Regarding { api_version, kind, namespace: of, name: object, uid } = &happening.regarding;
    let mut regarding = json!({"apiVersion": api_version, "kind": kind, "name": object, "uid": uid});
    if !of.is_empty() {
        regarding["namespace"] = json!(of);
    }
    json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"namespace": namespace, "name": name},
        "eventTime": now,
        "reportingController": "lockkeeper.dev/lockkeeper",
        "reportingInstance": cut(instance, LONGEST_REASON),
        "action": cut(&happening.action, LONGEST_REASON),
        "reason": cut(&happening.reason, LONGEST_REASON),
        "regarding": regarding,
        "note": cut(&happening.note, LONGEST_NOTE),
        "type": match happening.severity { Severity::Normal => "Normal", Severity::Warning => "Warning" },
    })
}

/// The object's name and a hash of what is said: at most 253 characters, a legal name.
fn name(happening: &Happening) -> String {
    let mut hash = Sha256::new();
    for part in
        [happening.regarding.kind, happening.regarding.uid.as_str(), &happening.reason, &happening.action, &happening.note]
    {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    let hash: String = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("{}.{hash}", cut(&happening.regarding.name, 253 - 17).trim_end_matches(['.', '-']))
}

/// At most so many bytes, at a character's boundary.
fn cut(text: &str, longest: usize) -> &str {
    let mut end = text.len().min(longest);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{
        testing::{Answer, cluster, status},
        write::open,
    };

    fn happening(note: &str) -> Happening {
        let regarding =
            Regarding { api_version: "v1", kind: "Node", namespace: String::new(), name: "n1".into(), uid: "u".into() };
        Happening { regarding, severity: Severity::Normal, reason: "Cordoned".into(), action: "Cordon".into(), note: note.into() }
    }

    #[test]
    fn names_follow_from_what_is_said() {
        assert_eq!(name(&happening("a")), name(&happening("a")));
        assert_ne!(name(&happening("a")), name(&happening("b")));
        let mut long = happening("a");
        long.regarding.name = format!("{}.{}", "n".repeat(235), "x".repeat(60));
        assert!(name(&long).len() <= 253 && !name(&long).contains(".."));
        assert_eq!(cut("añb", 2), "a");
    }

    #[tokio::test(start_paused = true)]
    async fn a_repeated_event_is_counted_and_failures_stop_nothing() {
        let (cluster, heard) = cluster(false, |asked| match asked.method.as_str() {
            "POST" if asked.body["note"] == "fails" => status(403, "Forbidden"),
            "POST" if asked.body["note"] == "again" => status(409, "AlreadyExists"),
            _ => Answer::Json(201, json!({})),
        });
        let (events, task) = Events::start(&cluster, cluster.write_cap().unwrap(), open(), "me");
        for note in ["fails", "again", "first", "first", "first"] {
            events.tell(happening(note));
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(events.lost(), 1);
        let asked = heard.all();
        let counts: Vec<_> = asked.iter().filter_map(|asked| asked.body["series"]["count"].as_i64()).collect();
        assert_eq!((asked.len(), counts), (6, vec![2, 2, 3]));
        assert!(asked[0].uri.starts_with("/apis/events.k8s.io/v1/namespaces/default/events"));
        drop(events);
        task.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn what_waits_at_the_end_is_sent_within_the_limit() {
        let (cluster, heard) = cluster(false, |_| Answer::Json(201, json!({})));
        let (events, task) = Events::start(&cluster, cluster.write_cap().unwrap(), open(), "me");
        (0..20).for_each(|number| events.tell(happening(&number.to_string())));
        assert!(heard.all().is_empty(), "nothing waits for them");
        assert!(events.flush(Duration::from_secs(1)).await);
        assert_eq!(heard.all().len(), 20);
        task.abort();
        let (cluster, _) = super::super::testing::cluster(false, |_| Answer::Never);
        let (events, task) = Events::start(&cluster, cluster.write_cap().unwrap(), open(), "me");
        events.tell(happening("a"));
        let begun = tokio::time::Instant::now();
        assert!(!events.flush(Duration::from_secs(1)).await, "no server holds an end up");
        assert_eq!(begun.elapsed(), Duration::from_secs(1));
        task.abort();
    }
}
