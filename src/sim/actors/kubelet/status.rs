//! The status that a kubelet writes for a pod, built from its run. Pure.

use super::super::records::Pod;
use super::run::{Run, Stage};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;

fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn phase(run: &Run) -> &'static str {
    if run.failed.is_some() {
        return "Failed";
    }
    // A kubelet says how a pod has ended once it is torn down, and not before.
    if run.stage == Stage::Ended && run.stalled {
        return "Running";
    }
    if run.stage == Stage::Ended {
        let clean = run.succeeded || (run.ending && run.last_exit.as_ref().is_none_or(|exit| exit.code == 0));
        return if clean { "Succeeded" } else { "Failed" };
    }
    let began = run.started.is_some() || run.restarts > 0;
    if began && (run.initialized || !run.has_init) { "Running" } else { "Pending" }
}

fn container_state(run: &Run) -> Value {
    let terminated = |exit: &super::run::Exit| {
        let mut state = json!({"exitCode": exit.code, "reason": exit.reason, "startedAt": time(exit.started), "finishedAt": time(exit.finished)});
        if !exit.message.is_empty() {
            state["message"] = json!(exit.message);
        }
        json!({"terminated": state})
    };
    match run.stage {
        Stage::Running | Stage::Stopping(_) => json!({"running": {"startedAt": time(run.started.unwrap_or(run.admitted))}}),
        Stage::Ended => match &run.last_exit {
            Some(exit) => terminated(exit),
            None => json!({"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown"}}),
        },
        Stage::BackOff(_) => {
            let message = format!("back-off restarting failed container in pod {}", run.key());
            json!({"waiting": {"reason": "CrashLoopBackOff", "message": message}})
        }
        _ if run.has_init && !run.initialized => json!({"waiting": {"reason": "PodInitializing"}}),
        _ => match &run.missing {
            Some(missing) => json!({"waiting": {"reason": "ContainerCreating", "message": missing}}),
            None => json!({"waiting": {"reason": "ContainerCreating"}}),
        },
    }
}

fn container(run: &Run, name: &str, image: &str, ready: bool, state: &Value) -> Value {
    let mut status = json!({
        "name": name, "image": image, "imageID": format!("sim://{image}"), "restartCount": run.restarts,
        "ready": ready, "started": run.started.is_some(), "state": state, "lastState": {},
    });
    if run.started.is_some() || matches!(run.stage, Stage::Running | Stage::Stopping(_) | Stage::Ended) {
        status["containerID"] = json!(format!("sim://{}-{name}-{}", run.pod.uid, run.restarts));
    }
    if run.stage != Stage::Ended
        && let Some(exit) = &run.last_exit
    {
        let mut last = json!({"exitCode": exit.code, "reason": exit.reason, "startedAt": time(exit.started), "finishedAt": time(exit.finished)});
        if !exit.message.is_empty() {
            last["message"] = json!(exit.message);
        }
        status["lastState"] = json!({"terminated": last});
    }
    status
}

/// The whole status of the pod as its kubelet sees it now. Transition times are kept in the run.
pub fn pod_status(run: &mut Run, pod: &Pod, host_ip: &str, at: Instant, now: Timestamp) -> Value {
    let ready = run.is_ready(at);
    if let Some((reason, message)) = &run.failed {
        let start = time(run.admitted);
        return json!({"phase": "Failed", "reason": reason, "message": message, "startTime": start,
            "conditions": conditions(run, false, now)});
    }
    let state = container_state(run);
    let containers: Vec<Value> = pod.spec.containers.iter().map(|c| container(run, &c.name, &c.image, ready, &state)).collect();
    let init_state = if run.initialized {
        json!({"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": time(run.admitted), "finishedAt": time(run.admitted)}})
    } else if matches!(run.stage, Stage::Init(_) | Stage::WaitingForModule) {
        json!({"running": {"startedAt": time(run.admitted)}})
    } else {
        json!({"waiting": {"reason": "PodInitializing"}})
    };
    let inits: Vec<Value> = pod
        .spec
        .init_containers
        .iter()
        .map(|c| json!({"name": c.name, "image": c.image, "imageID": format!("sim://{}", c.image), "restartCount": 0, "ready": run.initialized, "state": init_state, "lastState": {}}))
        .collect();
    let mut status = json!({
        "phase": phase(run), "startTime": time(run.admitted), "hostIP": host_ip, "hostIPs": [{"ip": host_ip}],
        "conditions": conditions(run, ready, now), "containerStatuses": containers,
    });
    if !inits.is_empty() {
        status["initContainerStatuses"] = json!(inits);
    }
    status
}

fn conditions(run: &mut Run, ready: bool, now: Timestamp) -> Value {
    let initialized = run.initialized || (!run.has_init && run.failed.is_none());
    let sandbox = !matches!(run.stage, Stage::Preparing | Stage::Ended);
    let completed = run.stage == Stage::Ended && run.succeeded;
    let wanted = [
        ("PodReadyToStartContainers", sandbox),
        ("Initialized", initialized),
        ("Ready", ready),
        ("ContainersReady", ready),
        ("PodScheduled", true),
    ];
    let mut list = Vec::new();
    for (kind, value) in wanted {
        let entry = run.conditions.entry(kind).or_insert((value, now));
        if entry.0 != value {
            *entry = (value, now);
        }
        let mut condition = json!({"type": kind, "status": if value { "True" } else { "False" }, "lastTransitionTime": time(entry.1), "lastProbeTime": null});
        if !value && matches!(kind, "Ready" | "ContainersReady") {
            condition["reason"] = json!(if completed {
                "PodCompleted"
            } else if run.failed.is_some() {
                "PodFailed"
            } else {
                "ContainersNotReady"
            });
        }
        list.push(condition);
    }
    json!(list)
}
