//! What the loop tells of itself: heartbeat, counts, log lines and Kubernetes Events. It observes; nothing waits for it and nothing
//! depends on it.

use std::{
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use jiff::SignedDuration;
use tokio::task::JoinHandle;

use super::{
    announce,
    execute::Executed,
    heartbeat::Heartbeat,
    metrics::{Recorded, component_of, outcome},
    picture::Picture,
};
use crate::{
    api::ObjectKey,
    cluster::{Cluster, WriteCap, events::Events, lease::Keeper},
    fleet::view::FleetView,
    handoff::action::{Action, Op, Subject},
};

/// Cheap to clone; all clones are one.
#[derive(Debug, Clone, Default)]
pub struct Probes {
    pub heartbeat: Heartbeat,
    pub recorded: Recorded,
    /// Kubernetes Events are published; not so in a default one.
    pub announces: bool,
    events: Arc<OnceLock<Events>>,
    told: Arc<Mutex<Option<Told>>>,
}

/// Up to where everything was told.
#[derive(Debug)]
struct Told {
    last: Picture,
    /// When all verdicts were last looked at.
    looked: Picture,
}

/// Pictures come in bursts; all verdicts are looked at no more often than this.
const PAUSE: SignedDuration = SignedDuration::from_secs(1);

impl Probes {
    /// Probes that also publish Kubernetes Events.
    pub fn announcing() -> Self {
        Self { announces: true, ..Self::default() }
    }

    /// Starts to publish Events, if these probes do. The Lease is asked before each: a former leader is silent.
    pub fn start(&self, cluster: &Cluster, cap: WriteCap, keeper: &Keeper, identity: &str) -> Option<JoinHandle<()>> {
        if !self.announces || self.events.get().is_some() {
            return None;
        }
        let keeper = keeper.clone();
        let fence = Arc::new(move || match keeper.leadership() {
            Some(_) => Ok(()),
            None => Err("the Lease is not held".to_owned()),
        });
        let (events, task) = Events::start(cluster, cap, fence, identity);
        let _ = self.events.set(events);
        Some(task)
    }

    /// At the end: lets Events that wait be sent, for so long at most.
    pub async fn flush(&self, limit: Duration) {
        if let Some(events) = self.events.get()
            && !events.flush(limit).await
        {
            tracing::warn!("the last events may not have been recorded: the API server did not answer in time");
        }
    }

    pub fn events_lost(&self) -> u64 {
        self.events.get().map_or(0, Events::lost)
    }

    /// An action has come to its end: one line of the log, and its counts.
    pub fn acted(&self, view: &FleetView, subject: &Subject, action: &Action, executed: &Executed, took: Duration) {
        self.recorded.acted(action, executed);
        if let Some(events) = self.events.get() {
            let evicted = announce::evicted(view, subject, action, executed);
            let told = evicted.into_iter().chain(announce::reclaimed(view, subject, action, executed));
            told.for_each(|happening| events.tell(happening));
        }
        let (component, node) = names(subject);
        let phase = phase(view, subject);
        let (op, why, outcome) = (action.op.word(), action.why.as_str(), outcome(executed));
        let millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let trouble = executed.results.iter().find(|done| !done.written.is_applied());
        match trouble {
            None => tracing::info!(component, node, phase, op, why, outcome, millis, object = object(&action.op), "acted"),
            Some(done) => {
                let said = done.written.to_string();
                let object = object(&action.op);
                tracing::info!(component, node, phase, op, why, outcome, millis, object, said, "acted");
            }
        }
    }

    /// A new picture: tells what it has that the last one had not.
    pub fn pictured(&self, picture: &Picture) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Told { last, looked }) = told.as_mut() else {
            *told = Some(Told { last: picture.clone(), looked: picture.clone() });
            return;
        };
        leadership(last, picture);
        if last.fleet.synced != picture.fleet.synced {
            tracing::info!(synced = picture.fleet.synced, nodes = picture.fleet.nodes.len(), "everything needed has been listed");
        }
        let look = picture.fleet.now.duration_since(looked.fleet.now) >= PAUSE;
        // Who leads tells; the others would tell the same again.
        if picture.leadership.ours && last.fleet.synced {
            self.changes(last, picture);
            if let Some(events) = self.events.get() {
                announce::moments(last, picture).into_iter().for_each(|happening| events.tell(happening));
                if look {
                    announce::lasting(looked, picture).into_iter().for_each(|happening| events.tell(happening));
                }
            }
        }
        if look {
            *looked = picture.clone();
        }
        *last = picture.clone();
    }

    fn changes(&self, before: &Picture, picture: &Picture) {
        for (old, new) in announce::changed(&before.fleet, &picture.fleet) {
            let component = component_of(new);
            for (phase, seconds) in announce::left(old, new) {
                self.recorded.left(&component, phase, seconds);
            }
            let (was, is) = (old.map(|old| old.status.phase), new.status.phase);
            if was == Some(is) {
                continue;
            }
            if is.is_ended() {
                self.recorded.ended(&component, is);
            }
            let node = new.spec.as_ref().map(|spec| spec.node.as_str()).unwrap_or_default();
            let was = was.map_or("", |was| was.as_str());
            let reason = new.status.reason.as_ref().map_or("", |reason| reason.word.as_str());
            let message = new.status.reason.as_ref().map_or("", |reason| reason.message.as_str());
            tracing::info!(component, node, phase = is.as_str(), was, reason, said = message, "phase");
        }
    }
}

fn leadership(before: &Picture, picture: &Picture) {
    let (was, is) = (&before.leadership, &picture.leadership);
    if was.ours != is.ours {
        let holder = is.holder.as_deref().unwrap_or("nobody");
        let now = if is.ours {
            "this process holds the Lease and acts"
        } else {
            "this process does not hold the Lease and does not act"
        };
        tracing::info!(epoch = is.epoch, holder, "{now}");
    }
    if was.problem != is.problem {
        match &is.problem {
            Some(problem) => tracing::warn!(problem, "the Lease cannot be kept"),
            None => tracing::info!("the Lease can be kept again"),
        }
    }
}

fn names(subject: &Subject) -> (String, &str) {
    match subject {
        Subject::Occupancy { component, node } => (component.to_string(), node.as_str()),
        Subject::Component(component) | Subject::Version { component, .. } => (component.to_string(), ""),
        Subject::Lease => (String::new(), ""),
    }
}

fn phase(view: &FleetView, subject: &Subject) -> &'static str {
    let Subject::Occupancy { component, node } = subject else { return "" };
    let key = ObjectKey::new(component.namespace.clone(), format!("{}.{node}", component.name));
    view.handoffs.get(&key).map_or("", |handoff| handoff.status.phase.as_str())
}

/// The object that an operation writes, as far as its subject does not say it.
fn object(op: &Op) -> String {
    match op {
        Op::Evict { pods, .. } => pods.iter().map(|pod| pod.key.to_string()).collect::<Vec<_>>().join(", "),
        Op::DeletePod(pod) => pod.key.to_string(),
        Op::DeleteDaemonSet { key, .. } | Op::CreateHandoff { key, .. } => key.to_string(),
        Op::CreatePod(body) | Op::CreateDaemonSet(body) => {
            let text = |path: &str| body.pointer(path).and_then(serde_json::Value::as_str).unwrap_or_default();
            format!("{}/{}", text("/metadata/namespace"), text("/metadata/name"))
        }
        Op::Admit(slot) | Op::Release(slot) => slot.node.clone(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Engine, EngineOptions, heartbeat::LIMIT, picture::Mode};

    #[tokio::test(start_paused = true)]
    async fn the_loop_goes_round_though_no_server_ever_answers() {
        let service = tower::service_fn(|_: http::Request<kube::client::Body>| async {
            std::future::pending::<Result<http::Response<kube::client::Body>, tower::BoxError>>().await
        });
        let cluster = Cluster::over(kube::Client::new(service, "default"), false, "test", "http://test");
        let probes = Probes::announcing();
        let options = EngineOptions { mode: Mode::Engine, probes: probes.clone(), ..EngineOptions::default() };
        let engine = Engine::start(cluster, options);
        tokio::time::sleep(LIMIT * 10).await;
        assert!(probes.heartbeat.is_alive(), "{:?}", probes.heartbeat.age());
        assert!(probes.heartbeat.turns() >= 60, "{}", probes.heartbeat.turns());
        engine.abort();
        tokio::time::sleep(LIMIT * 2).await;
        assert!(!probes.heartbeat.is_alive());
    }
}
