//! The columns that `kubectl get pods` shows: how many containers are ready, and one word for what the pod is at.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::columns::age_column;
use super::table::{Column, Getter, age};
use super::write::meta_str;

pub fn columns() -> Vec<Column> {
    let column = |name: &str, priority: i64, get: fn(&Value, Timestamp) -> Value| Column {
        name: name.into(),
        priority,
        kind: "string".into(),
        get: Getter::With(get),
    };
    vec![
        column("Ready", 0, |pod, now| Summary::of(pod, now).ready.into()),
        column("Status", 0, |pod, now| Summary::of(pod, now).status.into()),
        column("Restarts", 0, |pod, now| Summary::of(pod, now).restarts.into()),
        age_column(),
        column("IP", 1, |pod, _| some(pod, "/status/podIPs/0/ip").or_else(|| some(pod, "/status/podIP")).unwrap_or_else(none)),
        column("Node", 1, |pod, _| some(pod, "/spec/nodeName").unwrap_or_else(none)),
        column("Nominated Node", 1, |pod, _| some(pod, "/status/nominatedNodeName").unwrap_or_else(none)),
        column("Readiness Gates", 1, |pod, _| gates(pod).unwrap_or_else(none)),
    ]
}

fn none() -> Value {
    "<none>".into()
}

fn some(pod: &Value, pointer: &str) -> Option<Value> {
    pod.pointer(pointer).filter(|it| it.as_str().is_some_and(|text| !text.is_empty())).cloned()
}

fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn number(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

fn condition(pod: &Value, kind: &str) -> bool {
    list(pod, "/status/conditions").iter().any(|c| text(c, "/type") == kind && text(c, "/status") == "True")
}

fn gates(pod: &Value) -> Option<Value> {
    let gates = list(pod, "/spec/readinessGates");
    let open = gates.iter().filter(|gate| condition(pod, text(gate, "/conditionType"))).count();
    (!gates.is_empty()).then(|| format!("{open}/{}", gates.len()).into())
}

/// What the columns say of a pod.
struct Summary {
    ready: String,
    status: String,
    restarts: String,
}

/// Why a container is not running.
fn ended(state: &Value) -> String {
    match (text(state, "/reason"), number(state, "/signal")) {
        ("", 0) => format!("ExitCode:{}", number(state, "/exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

impl Summary {
    fn of(pod: &Value, now: Timestamp) -> Self {
        let phase = text(pod, "/status/phase");
        let mut status = Some(text(pod, "/status/reason")).filter(|reason| !reason.is_empty()).unwrap_or(phase).to_owned();
        if list(pod, "/status/conditions").iter().any(|c| text(c, "/reason") == "SchedulingGated") {
            status = "SchedulingGated".into();
        }
        let mut tally = Tally::default();
        let initial = list(pod, "/spec/initContainers");
        let sidecar = |name: &str| initial.iter().any(|c| text(c, "/name") == name && text(c, "/restartPolicy") == "Always");
        let sidecars = initial.iter().filter(|c| text(c, "/restartPolicy") == "Always").count();
        let mut initializing = false;
        let mut of_sidecars = Tally::default();
        for (n, container) in list(pod, "/status/initContainerStatuses").iter().enumerate() {
            tally.restarted(container);
            let is_sidecar = sidecar(text(container, "/name"));
            if is_sidecar {
                of_sidecars.restarted(container);
            }
            let ended_as = container.pointer("/state/terminated");
            if ended_as.is_some_and(|it| number(it, "/exitCode") == 0) {
                continue;
            }
            if is_sidecar && container.get("started") == Some(&json!(true)) {
                tally.ready += usize::from(container.get("ready") == Some(&json!(true)));
                continue;
            }
            let waits = text(container, "/state/waiting/reason");
            status = match ended_as {
                Some(state) => format!("Init:{}", ended(state)),
                None if !waits.is_empty() && waits != "PodInitializing" => format!("Init:{waits}"),
                None => format!("Init:{n}/{}", initial.len()),
            };
            initializing = true;
            break;
        }
        if !initializing || condition(pod, "Initialized") {
            tally = Tally { ready: tally.ready, ..of_sidecars };
            status = running(pod, &mut tally, status);
        }
        let over = matches!(phase, "Succeeded" | "Failed");
        if !meta_str(pod, "deletionTimestamp").is_empty() {
            if text(pod, "/status/reason") == "NodeLost" {
                status = "Unknown".into();
            } else if !over {
                status = "Terminating".into();
            }
        }
        let restarts = match tally.last.as_str() {
            last if tally.restarts > 0 && !last.is_empty() => format!("{} ({} ago)", tally.restarts, age(last, now)),
            _ => tally.restarts.to_string(),
        };
        let all = list(pod, "/spec/containers").len() + sidecars;
        Self { ready: format!("{}/{all}", tally.ready), status, restarts }
    }
}

#[derive(Default)]
struct Tally {
    ready: usize,
    restarts: i64,
    /// When the last one that was restarted had ended.
    last: String,
}

impl Tally {
    fn restarted(&mut self, container: &Value) {
        self.restarts += number(container, "/restartCount");
        let finished = text(container, "/lastState/terminated/finishedAt");
        if finished > self.last.as_str() {
            self.last = finished.to_owned();
        }
    }
}

/// The status of a pod whose initialization is over.
fn running(pod: &Value, tally: &mut Tally, before: String) -> String {
    let (mut status, mut any_runs, mut error) = (before, false, String::new());
    for container in list(pod, "/status/containerStatuses").iter().rev() {
        tally.restarted(container);
        let waits = text(container, "/state/waiting/reason");
        if !waits.is_empty() {
            status = waits.to_owned();
        } else if let Some(state) = container.pointer("/state/terminated") {
            status = ended(state);
            if number(state, "/exitCode") != 0 {
                error = status.clone();
            }
        } else if container.get("ready") == Some(&json!(true)) && container.pointer("/state/running").is_some() {
            any_runs = true;
            tally.ready += 1;
        }
    }
    match status.as_str() {
        "Completed" if any_runs && condition(pod, "Ready") => "Running".into(),
        "Completed" if !error.is_empty() => error,
        "Completed" if any_runs => "NotReady".into(),
        _ => status,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(pod: Value) -> String {
        let summary = Summary::of(&pod, "2026-01-01T00:10:00Z".parse().unwrap());
        format!("{} {} {}", summary.ready, summary.status, summary.restarts)
    }

    #[test]
    fn a_pod_is_summed_up_in_a_word() {
        let spec = json!({"containers": [{"name": "a"}, {"name": "b"}], "initContainers": [{"name": "i"}]});
        let runs = json!({"name": "a", "ready": true, "state": {"running": {}}});
        assert_eq!(shown(json!({"spec": spec, "status": {"phase": "Pending"}})), "0/2 Pending 0");
        let waiting = json!({"initContainerStatuses": [{"name": "i", "state": {"running": {}}}], "phase": "Pending"});
        assert_eq!(shown(json!({"spec": spec, "status": waiting})), "0/2 Init:0/1 0");
        let crashed = json!({
            "name": "b", "restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": {"terminated": {"finishedAt": "2026-01-01T00:09:00Z"}},
        });
        let status = json!({"phase": "Running", "containerStatuses": [runs, crashed]});
        assert_eq!(shown(json!({"spec": spec, "status": status})), "1/2 CrashLoopBackOff 3 (60s ago)");
        let failed = json!({"name": "a", "state": {"terminated": {"exitCode": 3}}});
        assert_eq!(
            shown(json!({"spec": spec, "status": {"phase": "Failed", "containerStatuses": [failed]}})),
            "0/2 ExitCode:3 0"
        );
        let leaving = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": spec, "status": {"phase": "Running", "containerStatuses": [runs]}});
        assert_eq!(shown(leaving), "1/2 Terminating 0");
        let evicted = json!({"spec": spec, "status": {"phase": "Failed", "reason": "Evicted"}});
        assert_eq!(shown(evicted), "0/2 Evicted 0");
    }
}
