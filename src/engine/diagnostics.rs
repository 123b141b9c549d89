//! `/diagnostics`: what this process knows, decided and wrote, as JSON for a person with a question. Not an API: its fields may change.

use serde_json::{Value, json};

use super::{
    metrics::{Sources, state_word},
    picture::{Picture, Queues},
};
use crate::{
    api::ComponentKey,
    fleet::view::{WatchHealth, WatchState},
    handoff::{
        action::Subject,
        verdict::{Blocker, Verdict},
    },
};

/// How many of the last writes are told.
const WRITES: usize = 50;
/// How many names of objects that do not decode are told for each kind.
const UNDECODABLE: usize = 20;

pub fn diagnostics(sources: &Sources) -> Value {
    let picture = sources.pictures.borrow().clone();
    let cluster = sources.cluster.info();
    let heartbeat = &sources.probes.heartbeat;
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "now": sources.cluster.clock().now().to_string(),
        "cluster": {
            "context": cluster.context, "server": cluster.server, "version": cluster.version,
            "uid": cluster.uid, "user": cluster.user,
        },
        "loop": {
            "alive": heartbeat.is_alive(), "ageSeconds": heartbeat.age().as_secs_f64(), "turns": heartbeat.turns(),
            "busySeconds": heartbeat.busy().as_secs_f64(), "eventsLost": sources.probes.events_lost(),
        },
        "picture": {
            "generation": picture.fleet.generation, "at": picture.fleet.now.to_string(), "synced": picture.fleet.synced,
            "mode": format!("{:?}", picture.mode), "nodes": picture.fleet.nodes.len(),
        },
        "lease": lease(&picture, sources.cluster_max_unavailable),
        "watches": sources.watches(&picture).iter().map(watch).collect::<Vec<_>>(),
        "components": components(&picture),
        "queues": queues(&picture.queues),
        "handoffs": handoffs(&picture),
        "verdicts": picture.verdicts.iter().filter_map(|(subject, it)| verdict(&subject, it)).collect::<Vec<_>>(),
        "writes": writes(sources),
    })
}

fn queues(queues: &Queues) -> Value {
    let of = |key: ComponentKey| (key.to_string(), json!(queues.nodes(&key)));
    queues.components().into_iter().map(of).collect::<serde_json::Map<_, _>>().into()
}

fn lease(picture: &Picture, cluster_max: u32) -> Value {
    let lease = picture.fleet.lease.as_ref();
    json!({
        "holder": picture.leadership.holder,
        "ours": picture.leadership.ours,
        "epoch": picture.leadership.epoch,
        "problem": picture.leadership.problem,
        "renewed": lease.and_then(|lease| lease.renewed).map(|at| at.to_string()),
        "slots": lease.map(|lease| json!(lease.slots)),
        "slotsGarbage": lease.and_then(|lease| lease.slots_garbage.clone()),
        "clusterMaxUnavailable": cluster_max,
    })
}

fn watch(watch: &WatchHealth) -> Value {
    let (error, since) = match &watch.state {
        WatchState::Retrying { error, since, .. } => (Some(error.as_str()), Some(since.to_string())),
        WatchState::Unavailable { why } => (Some(why.as_str()), None),
        WatchState::Syncing | WatchState::Live => (None, None),
    };
    let undecodable = watch.undecodable.iter().take(UNDECODABLE);
    json!({
        "resource": watch.resource, "required": watch.required, "state": state_word(&watch.state), "error": error, "since": since,
        "lastEvent": watch.last_event.map(|at| at.to_string()), "objects": watch.objects, "errors": watch.errors,
        "undecodable": undecodable.map(|(name, why)| json!({"name": name, "why": why})).collect::<Vec<_>>(),
    })
}

fn components(picture: &Picture) -> Vec<Value> {
    let all = picture.fleet.components.iter();
    all.map(|(key, component)| {
        json!({
            "name": key.to_string(),
            "version": component.aim().map(|aim| aim.to_string()),
            "undecodable": component.record.spec.as_ref().err(),
            "versions": component.versions.values().map(|it| json!({"version": it.version, "usedBy": it.used_by})).collect::<Vec<_>>(),
            "matchedNodes": component.matched_nodes,
            "refusals": component.refusals,
            "anomalies": component.anomalies,
            "changedWithoutVersion": component.changed_without_version,
        })
    })
    .collect()
}

/// Of handoffs that have not ended well.
fn handoffs(picture: &Picture) -> Vec<Value> {
    let open = picture.fleet.handoffs.values().filter(|it| it.status.phase != crate::api::Phase::Done);
    open.map(|handoff| {
        let status = &handoff.status;
        let run = status.run.as_ref();
        json!({
            "name": handoff.key.to_string(),
            "node": handoff.spec.as_ref().ok().map(|spec| &spec.node),
            "undecodable": handoff.spec.as_ref().err(),
            "phase": status.phase,
            "since": status.phase_since,
            "from": run.and_then(|run| run.from.as_ref()),
            "target": run.and_then(|run| run.target.as_ref()),
            "attempt": run.map(|run| run.attempt),
            "epoch": run.map(|run| run.epoch),
            "reason": status.reason,
            "steps": status.steps,
        })
    })
    .collect()
}

/// Every verdict but Done.
fn verdict(subject: &Subject, verdict: &Verdict) -> Option<Value> {
    let subject = match subject {
        Subject::Occupancy { component, node } => json!({"component": component.to_string(), "node": node}),
        Subject::Component(component) => json!({"component": component.to_string()}),
        Subject::Version { component, version } => json!({"component": component.to_string(), "version": version}),
        Subject::Lease => json!({"lease": true}),
    };
    let told = match verdict {
        Verdict::Done => return None,
        Verdict::Act(action) => json!({"act": action.op.word(), "evidence": format!("{:?}", action.evidence), "why": action.why}),
        Verdict::Wait(wait) => json!({
            "wait": wait.phase, "since": wait.since.to_string(), "recheck": wait.recheck.map(|at| at.to_string()),
            "next": wait.next, "blockers": wait.blockers.iter().map(blocker).collect::<Vec<_>>(),
        }),
        Verdict::Failed { reason } => json!({"failed": reason}),
    };
    Some(json!({"of": subject, "verdict": told}))
}

fn blocker(blocker: &Blocker) -> Value {
    json!({
        "kind": blocker.kind.word(), "object": blocker.object.to_string(), "message": blocker.message,
        "since": blocker.since.to_string(),
    })
}

fn writes(sources: &Sources) -> Vec<Value> {
    let (all, _) = sources.cluster.log().since(0);
    let last = all.iter().skip(all.len().saturating_sub(WRITES));
    last.map(|it| {
        json!({
            "at": it.at.to_string(), "verb": it.verb, "object": it.object, "why": it.why, "kubectl": it.kubectl,
            "code": it.code, "millis": it.millis, "message": it.message,
        })
    })
    .collect()
}
