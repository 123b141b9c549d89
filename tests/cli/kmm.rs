//! `status` on a cluster that has Kernel Module Management and nothing of lockkeeper's.

use lockkeeper::sim::actors::kmm::crds;
use serde_json::{Value, json};

use crate::{
    cluster::{ends, says},
    run::run,
    served::{Install, Served},
};

/// Two nodes in service at 1.0; the Module is at 2.0 and tolerates nothing, and one node's labels were edited by hand.
fn with_kmm() -> Vec<Value> {
    let config = json!({"containerImage": "mod:1.0-6.1", "kernelVersion": "6.1", "modprobe": {"moduleName": "mod"}});
    let entry = json!({"name": "mod", "namespace": "drv", "version": "1.0", "config": config, "tolerations": []});
    let mut recorded = entry.clone();
    recorded["bootId"] = json!("boot");
    let node = |name: &str, schedule: &str| {
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {
            "pool": "kmm", "kmm.node.kubernetes.io/version-module.drv.mod": "1.0",
            "beta.kmm.node.kubernetes.io/version-worker-pod.drv.mod": "1.0",
            "beta.kmm.node.kubernetes.io/version-schedule-pod.drv.mod": schedule}},
            "status": {"conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {"bootID": "boot", "kernelVersion": "6.1"}}})
    };
    let nmc = |name: &str| {
        json!({"apiVersion": "kmm.sigs.x-k8s.io/v1beta1", "kind": "NodeModulesConfig", "metadata": {"name": name},
            "spec": {"modules": [entry]}, "status": {"modules": [recorded]}})
    };
    let container = json!({"version": "2.0", "containerImage": "mod:2.0-${KERNEL_FULL_VERSION}", "modprobe": {"moduleName": "mod"},
        "kernelMappings": [{"regexp": "^.+$"}]});
    let module = json!({"apiVersion": "kmm.sigs.x-k8s.io/v1beta1", "kind": "Module", "metadata": {"name": "mod", "namespace": "drv"},
        "spec": {"moduleLoader": {"container": container}, "selector": {"pool": "kmm"}}});
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "drv"}});
    let mut all = crds();
    all.extend([namespace, module, node("k1", "1.0"), node("k2", "2.0"), nmc("k1"), nmc("k2")]);
    all
}

#[test]
fn status_shows_kmm_without_our_objects_with_what_is_stuck_and_its_repair_and_writes_nothing() {
    let home = tempfile::tempdir().unwrap();
    let served = Served::start(home.path(), Install::NoObjects, &with_kmm());
    let ran = run(home.path(), &served.args(&["status"]));
    ends(&ran, 0);
    says(
        &ran.stdout,
        &[
            "drv/mod 2.0 mod:2.0-${KERNEL_FULL_VERSION} 2 0",
            "k1 drv/mod 1.0 1.0 loaded",
            "k2 drv/mod 1.0 1.0 stuck",
            "problem StuckLabels of drv/mod on k2",
            "kubectl label node k2 beta.kmm.node.kubernetes.io/version-schedule-pod.drv.mod-",
            "trap OldVersionExposed of drv/mod on k1, k2",
            "nodecomponents.lockkeeper.dev",
        ],
    );
    let json = run(home.path(), &served.args(&["status", "-o", "json"]));
    let report: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!((&report["kmm"]["nodes"][0]["loaded"], &report["kmm"]["nodes"][1]["state"]), (&json!("1.0"), &json!("stuck")));
    assert_eq!(served.mutating(), []);
}

#[test]
fn beside_our_own_objects_it_comes_after_them() {
    let home = tempfile::tempdir().unwrap();
    let served = Served::start(home.path(), Install::All, &with_kmm());
    let ran = run(home.path(), &served.args(&["status"]));
    ends(&ran, 0);
    let (ours, kmm) = (ran.stdout.find("kmods/gpu").unwrap(), ran.stdout.find("KMM MODULE").unwrap());
    assert!(ours < kmm, "{}", ran.stdout);
    let json = run(home.path(), &served.args(&["status", "-o", "json"]));
    let report: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(report["kmm"]["modules"][0]["module"], json!("drv/mod"));
    assert_eq!(served.mutating(), []);
}
