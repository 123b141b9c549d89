//! Commands on a cluster that answers: what they say, what they write, and what they never send. No engine acts on it.

use serde_json::{Value, json};

use crate::{
    run::{Ran, run},
    served::{Install, Served},
};

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[track_caller]
pub fn says(text: &str, wanted: &[&str]) {
    let said = words(text);
    for wanted in wanted {
        assert!(said.contains(wanted), "no {wanted:?} in {text}");
    }
}

#[track_caller]
pub fn ends(ran: &Ran, code: i32) {
    assert_eq!(ran.code, Some(code), "{ran:?}");
}

#[test]
fn doctor_says_what_is_missing() {
    let home = tempfile::tempdir().unwrap();
    let served = Served::start(home.path(), Install::All, &[]);
    let ran = run(home.path(), &served.args(&["doctor"]));
    ends(&ran, 0);
    says(
        &ran.stdout,
        &["objects ok", "admission note", "manifests --admission", "there is no Lease lockkeeper-system/lockkeeper"],
    );
    assert_eq!(served.mutating(), []);
}

#[test]
fn status_shows_the_fleet_and_who_acts() {
    let home = tempfile::tempdir().unwrap();
    let served = Served::start(home.path(), Install::All, &[queued("n2", 1)]);
    let ran = run(home.path(), &served.args(&["status"]));
    ends(&ran, 0);
    says(
        &ran.stdout,
        &["kmods/gpu 2.0 Manual 3 0 1", "n2 kmods/gpu - 2.0 Queued", "n1 kmods/gpu - 2.0 - -", "nobody holds the Lease"],
    );

    let json = run(home.path(), &served.args(&["status", "gpu", "-o", "json"]));
    let report: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(
        (&report["complete"], &report["nodes"][0]["node"], &report["nodes"][0]["position"]),
        (&json!(true), &json!("n2"), &json!(1))
    );
    let yaml = run(home.path(), &served.args(&["status", "-o", "yaml"]));
    says(&yaml.stdout, &["component: kmods/gpu"]);

    let ran = run(home.path(), &served.args(&["status", "other/nic"]));
    ends(&ran, 2);
    says(&ran.stderr, &["no NodeComponent other/nic", "sim", "kmods/gpu"]);
    assert_eq!(served.mutating(), []);
}

#[test]
fn plan_looks_and_says_what_would_happen() {
    let home = tempfile::tempdir().unwrap();
    let served = Served::start(home.path(), Install::All, &[pod("train", json!({})), old_node()]);
    let ran = run(home.path(), &served.args(&["plan", "gpu", "n2"]));
    ends(&ran, 0);
    says(&ran.stdout, &["kmods/gpu to 2.0 on", "No pod has to leave", "Nothing was written"]);

    let ran = run(home.path(), &served.args(&["plan", "gpu", "old", "-o", "json"]));
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(report["nodes"][0]["pods"][0]["pod"], "default/train");

    for (args, wanted) in [
        (vec!["plan", "gpu", "n9"], vec!["no Node n9", "sim"]),
        (vec!["plan", "nic", "n1"], vec!["no NodeComponent kmods/nic", "kmods/gpu"]),
        (vec!["plan", "gpu", "n1", "n1"], vec!["n1 is named twice"]),
    ] {
        let ran = run(home.path(), &served.args(&args));
        ends(&ran, 2);
        says(&ran.stderr, &wanted);
    }
    assert_eq!(served.mutating(), []);
}

#[test]
fn what_preflight_refuses_ends_with_3_and_writes_nothing() {
    let home = tempfile::tempdir().unwrap();
    let mirror = json!({"kubernetes.io/config.mirror": "x"});
    // A node whose old version cannot be unloaded for two reasons: both are given.
    let served = Served::start(home.path(), Install::All, &[pod("static", mirror), old_node()]);
    let plan = run(home.path(), &served.args(&["plan", "gpu", "old"]));
    ends(&plan, 3);
    says(&plan.stdout, &["default/static", "nothing says how to unload", "Nothing was written"]);
    let handoff = run(home.path(), &served.args(&["handoff", "gpu", "n2", "old"]));
    ends(&handoff, 3);
    says(&handoff.stderr, &["preflight refuses", "Node old", "default/static", "nothing was written"]);
    // What the component does not have was not meant: that is no question of the node.
    let unknown = run(home.path(), &served.args(&["handoff", "gpu", "n2", "--to", "9.9"]));
    ends(&unknown, 2);
    says(&unknown.stderr, &["kmods/gpu", "9.9 is no version of it", "2.0", "spec.version"]);
    ends(&run(home.path(), &served.args(&["plan", "gpu", "n2", "--to", "9.9"])), 3);
    assert_eq!(served.mutating(), []);
}

#[test]
fn handoffs_queue_in_the_order_given() {
    let home = tempfile::tempdir().unwrap();
    let served = Served::start(home.path(), Install::All, &[]);
    let ran =
        run(home.path(), &served.args(&["handoff", "gpu", "n3", "n1", "--reason", "ticket 7", "--pause-after", "Unloading"]));
    ends(&ran, 0);
    assert_eq!(ran.stdout, "nodehandoff.lockkeeper.dev/gpu.n3 created\nnodehandoff.lockkeeper.dev/gpu.n1 created\n");
    let spec = |name: &str| served.handoff(name).unwrap()["spec"].clone();
    let (third, first) = (spec("gpu.n3"), spec("gpu.n1"));
    assert_eq!((&third["position"], &first["position"]), (&json!(1), &json!(2)));
    assert_eq!(
        (&third["version"], &third["reason"], &third["pauseAfter"]),
        (&json!("2.0"), &json!("ticket 7"), &json!(["Unloading"]))
    );
    assert_eq!(third["requestedBy"], "cli");

    let ran = run(home.path(), &served.args(&["handoff", "gpu", "n2", "--position", "1"]));
    ends(&ran, 0);
    assert_eq!(spec("gpu.n2")["position"], 1);

    // A busy machine may have seen nothing yet when the time is up.
    for timeout in ["2", "20", "120"] {
        let ran = run(home.path(), &served.args(&["handoff", "gpu", "n2", "--wait", "--timeout", timeout]));
        ends(&ran, 1);
        says(&ran.stdout, &["gpu.n2 patched"]);
        says(&ran.stderr, &["not all done in time", "n2"]);
        let seen = words(&ran.stdout).contains("n2 Queued") && words(&ran.stderr).contains("n2 waits");
        assert!(seen || timeout != "120", "{ran:?}");
        if seen {
            break;
        }
    }
}

#[test]
fn a_pause_that_never_comes_is_refused_and_one_that_may_not_come_is_said() {
    let home = tempfile::tempdir().unwrap();
    let served = Served::start(home.path(), Install::All, &[]);
    let ran = run(home.path(), &served.args(&["handoff", "gpu", "n1", "--pause-after", "ReplacingPod"]));
    ends(&ran, 2);
    says(&ran.stderr, &["kmods/gpu", "never stops after ReplacingPod", "it may after Preflight, Cordoning, Draining"]);
    assert_eq!(served.mutating(), []);
    ends(&run(home.path(), &served.args(&["handoff", "gpu", "n1", "--pause-after", "Uncordoning"])), 2);
    let ran = run(home.path(), &served.args(&["handoff", "gpu", "n1", "--pause-after", "AwaitingReboot"]));
    ends(&ran, 0);
    says(&ran.stderr, &["warning: n1 does not pass through AwaitingReboot"]);
}

#[test]
fn a_handoff_is_steered() {
    let home = tempfile::tempdir().unwrap();
    let served = Served::start(home.path(), Install::All, &[queued("n1", 1), queued("n2", 2)]);
    let ask = |args: &[&str]| run(home.path(), &served.args(args));
    ends(&ask(&["hold", "gpu", "n1"]), 0);
    assert_eq!(served.handoff("gpu.n1").unwrap()["spec"]["action"], "Hold");
    ends(&ask(&["continue", "gpu", "n1"]), 0);
    assert_eq!(served.handoff("gpu.n1").unwrap()["spec"]["action"], "Run");
    ends(&ask(&["abort", "gpu", "n1", "--reason", "not today"]), 0);
    assert_eq!(served.handoff("gpu.n1").unwrap()["spec"]["reason"], "not today");
    ends(&ask(&["withdraw", "gpu", "n2"]), 0);
    assert_eq!(served.handoff("gpu.n2"), None);

    let before = served.mutating().len();
    for (args, wanted) in [
        (vec!["retry", "gpu", "n3"], vec!["no NodeHandoff kmods/gpu.n3", "sim"]),
        (vec!["rollback", "gpu", "n1"], vec!["gpu.n1", "no version"]),
        // The first could be held; since the second cannot, neither is.
        (vec!["hold", "gpu", "n1", "n3"], vec!["gpu.n3"]),
    ] {
        let ran = ask(&args);
        ends(&ran, 2);
        says(&ran.stderr, &wanted);
    }
    assert_eq!(served.mutating().len(), before);
}

#[test]
fn a_read_only_run_of_any_command_changes_nothing() {
    let home = tempfile::tempdir().unwrap();
    let served = Served::start(home.path(), Install::All, &[queued("n1", 1)]);
    let nodes: &[&str] = &["gpu", "n1"];
    for command in ["status", "doctor", "plan", "handoff", "abort", "retry", "rollback", "hold", "continue", "withdraw"] {
        let mut args = vec!["--read-only", command];
        if !matches!(command, "status" | "doctor") {
            args.extend(nodes);
        }
        let ran = run(home.path(), &served.args(&args));
        assert!(!ran.stderr.contains("panicked"), "{ran:?}");
    }
    assert!(served.requests().len() > 20, "they did look");
    assert_eq!(served.mutating(), []);
}

#[test]
fn without_the_objects_or_the_rights_the_error_names_them() {
    let home = tempfile::tempdir().unwrap();
    let bare = Served::start(home.path(), Install::NoObjects, &[]);
    for args in [&["status"][..], &["plan", "gpu", "n1"], &["handoff", "gpu", "n1"]] {
        let ran = run(home.path(), &bare.args(args));
        ends(&ran, 2);
        says(&ran.stderr, &["sim", "nodecomponents.lockkeeper.dev", "lockkeeper doctor"]);
    }
    let doctor = run(home.path(), &bare.args(&["doctor"]));
    ends(&doctor, 2);
    says(&doctor.stdout, &["objects MISSING", "manifests --crds"]);

    let home = tempfile::tempdir().unwrap();
    let closed = Served::start(home.path(), Install::NoRights, &[]);
    let ran = run(home.path(), &closed.args(&["status"]));
    ends(&ran, 2);
    says(&ran.stderr, &["sim", "nobody may not list nodes", "lockkeeper doctor"]);
    let doctor = run(home.path(), &closed.args(&["doctor"]));
    ends(&doctor, 2);
    says(&doctor.stdout, &["may be viewer MISSING", "list nodes", "manifests --role viewer"]);
    assert_eq!([bare.mutating(), closed.mutating()].concat(), []);
}

#[test]
fn what_the_cluster_says_never_reaches_the_terminal_raw() {
    let home = tempfile::tempdir().unwrap();
    let mut evil = queued("n1", 1);
    evil["status"] = json!({
        "phase": "Failed",
        "reason": {"word": "x\u{1b}[2J", "message": "\u{9b}31m\r\u{7}"},
    });
    let served = Served::start(home.path(), Install::All, &[evil]);
    for output in ["table", "wide", "json", "yaml"] {
        let ran = run(home.path(), &served.args(&["status", "-o", output]));
        ends(&ran, 0);
        let acts: Vec<char> = ran.stdout.chars().filter(|c| c.is_control() && *c != '\n').collect();
        assert!(acts.is_empty(), "{output}: {acts:?}");
    }
}

/// A handoff that nobody has taken up.
fn queued(node: &str, position: i32) -> Value {
    json!({
        "apiVersion": "lockkeeper.dev/v1alpha1", "kind": "NodeHandoff", "metadata": {"namespace": "kmods", "name": format!("gpu.{node}")},
        "spec": {"component": "gpu", "node": node, "version": "2.0", "position": position, "attempt": 1},
    })
}

/// A node that runs version 1.0, of which nothing else is left.
fn old_node() -> Value {
    let key = |word: &str| format!("lockkeeper.dev/{word}.kmods.gpu");
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": "old",
            "labels": {key("version"): "1.0", key("loader"): "1.0", key("plugin"): "1.0", key("ready"): "1.0"},
            "annotations": {key("loaded"): r#"{"version":"1.0"}"#},
        },
        "status": {"conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {"bootID": "b", "kernelVersion": "6.1"}},
    })
}

/// A pod on `old` that claims the device.
fn pod(name: &str, annotations: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "namespace": "default", "name": name, "annotations": annotations,
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": true}],
        },
        "spec": {
            "nodeName": "old",
            "containers": [{"name": "c", "image": "i", "resources": {"limits": {"vendor.example/gpu": "1"}}}],
        },
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    })
}
