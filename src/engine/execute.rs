//! Carries out one action: the mapping from an `Op` to the one guarded write that it is. It decides nothing and retries nothing.

use serde_json::json;

use crate::{
    api::keys::Slot,
    cluster::{Writer, Written, lease::Keeper},
    fleet::{event::Record, view::FleetView},
    handoff::action::{Action, Op, PodRef},
};

/// What became of an action.
#[derive(Debug, Clone, PartialEq)]
pub struct Executed {
    /// What the server answered, worst first: for an eviction round one per pod, else one.
    pub results: Vec<Done>,
}

/// One write and its outcome.
#[derive(Debug, Clone, PartialEq)]
pub struct Done {
    /// The pod of an eviction or a delete.
    pub pod: Option<PodRef>,
    pub written: Written,
}

impl Executed {
    fn one(written: Written) -> Self {
        Self { results: vec![Done { pod: None, written }] }
    }

    /// Objects as the server returned them: known at once, though the watch tells them later.
    pub fn records(self) -> impl Iterator<Item = Record> {
        self.results.into_iter().filter_map(|done| match done.written {
            Written::Applied(Some(record)) => Some(*record),
            _ => None,
        })
    }

    pub fn is_applied(&self) -> bool {
        self.results.iter().all(|done| done.written.is_applied())
    }
}

/// Sends it. `view` is only asked for finalizers of others, which must stay.
pub async fn execute(writer: &Writer, keeper: Option<&Keeper>, view: &FleetView, action: &Action) -> Executed {
    let writer = writer.because(&action.why);
    Executed::one(match &action.op {
        Op::PatchNode(patch) => writer.patch_node(patch).await,
        Op::Evict { pods, grace_seconds } => return evict(&writer, pods, *grace_seconds).await,
        Op::DeletePod(pod) => {
            let written = writer.delete_pod(pod).await;
            return Executed { results: vec![Done { pod: Some(pod.clone()), written }] };
        }
        Op::CreatePod(body) => writer.create_pod(body).await,
        Op::CreateDaemonSet(body) => writer.create_daemon_set(body).await,
        Op::DeleteDaemonSet { key, uid } => writer.delete_daemon_set(key, uid).await,
        Op::CreateHandoff { key, spec } => writer.create_handoff(key, spec).await,
        Op::PatchHandoffSpec { of, spec } => writer.patch_handoff_spec(of, spec).await,
        Op::DeleteHandoff(of) => writer.delete_handoff(&of.key, &of.uid).await,
        Op::SetPaused { key, uid, resource_version, paused } => {
            writer.patch_component_spec(key, uid, resource_version, &json!({"rollout": {"paused": paused}})).await
        }
        Op::SetHandoffFinalizer { of, present } => {
            let known = view.handoffs.get(&of.key).map(|record| record.finalizers.clone()).unwrap_or_default();
            writer.set_handoff_finalizer(of, &known, *present).await
        }
        Op::PutHandoffStatus { of, status } => writer.put_handoff_status(of, status).await,
        Op::PutComponentStatus { key, uid, resource_version, status } => {
            writer.put_component_status(key, uid, resource_version, status).await
        }
        Op::SetComponentFinalizer { key, uid, resource_version, present } => {
            let known = view.components.get(key).map(|component| component.record.finalizers.clone()).unwrap_or_default();
            writer.set_component_finalizer(key, uid, resource_version, &known, *present).await
        }
        Op::Admit(slot) => match keeper {
            Some(keeper) => keeper.admit(slot, &slots(view)).await,
            None => no_lease(),
        },
        Op::Release(slot) => match keeper {
            Some(keeper) => keeper.release(slot, &slots(view)).await,
            None => no_lease(),
        },
    })
}

/// The slots that the decision was made on: with any others on the Lease now, the write is refused.
fn slots(view: &FleetView) -> Vec<Slot> {
    view.lease.as_ref().map(|lease| lease.slots.clone()).unwrap_or_default()
}

fn no_lease() -> Written {
    Written::NotSent { why: "this process does not hold the Lease".to_owned() }
}

/// One after the other: the order is the drain's, and a budget that the first eviction spends must be seen by the second.
async fn evict(writer: &Writer, pods: &[PodRef], grace_seconds: Option<u32>) -> Executed {
    let mut results = Vec::with_capacity(pods.len());
    for pod in pods {
        let written = writer.evict(pod, grace_seconds).await;
        let stop = matches!(written, Written::NotSent { .. });
        results.push(Done { pod: Some(pod.clone()), written });
        if stop {
            break;
        }
    }
    Executed { results }
}
