//! `unloadBy: Reboot`: the module leaves only with the boot, so nothing but a new boot ID is a proof, and nobody is hurried.

use lockkeeper::sim::scenarios::{
    kernel_module::{self as scenario, NAME, NAMESPACE},
    objects,
};
use serde_json::json;

use crate::{
    pods::{claimants, device_user, node_of, pinned, pods_of, running, uids},
    stage::{Stage, play},
    trace::Trace,
};

/// The module of a version that leaves only with a reboot.
fn module(version: &str) -> serde_json::Value {
    let mut module = scenario::kernel_module(version);
    module["unloadBy"] = json!("Reboot");
    module["daemonSets"].as_object_mut().unwrap().remove("unload");
    module
}

async fn stage(seed: u64, nodes: usize) -> Stage {
    let mut spec = scenario::component_spec("1.0");
    spec["kernelModule"] = module("1.0");
    Stage::new(seed, nodes).installed_as(&objects::component(NAMESPACE, NAME, spec)).await
}

async fn release(stage: &Stage) {
    stage.spec(json!({"version": "2.0", "kernelModule": module("2.0")})).await;
}

fn boot(stage: &Stage, node: &str) -> String {
    stage.node(node).pointer("/status/nodeInfo/bootID").and_then(|id| id.as_str()).unwrap_or_default().to_owned()
}

#[test]
fn everything_drainable_leaves_and_the_new_boot_id_is_the_proof() {
    play(|| async {
        let stage = stage(71, 2).await;
        let node = stage.nodes[0].clone();
        let plain = pinned(objects::template("plain", None, 2), &node);
        let agent = objects::template("agent", None, 2);
        stage
            .apply(&[
                objects::deployment("ml", "user", 1, pinned(device_user("user"), &node)),
                objects::deployment("ml", "plain", 1, plain),
                objects::daemon_set("monitoring", "agent", json!({"pool": "gpu"}), json!({"type": "OnDelete"}), agent),
            ])
            .await;
        stage.until("all run", || running(&stage, "user") + running(&stage, "plain") == 2 && running(&stage, "agent") == 2).await;
        let (agents, old_boot) = (uids(&stage, "agent"), boot(&stage, &node));
        let (engine, trace) = (stage.engine(), Trace::of(&stage));
        release(&stage).await;
        stage.ask(std::slice::from_ref(&node)).await;
        stage.names(&node, "RebootRequired", &node, &["1.0", "only with a reboot", &old_boot]).await;
        assert_eq!(stage.phase(&node), "AwaitingReboot");
        // Users first, then whatever else can be drained; nothing of a DaemonSet, which the reboot does not hurt.
        trace.in_order(&[
            &format!("cordon {node}"),
            "evict ml/user",
            "evict ml/plain",
            &format!("plugin gpu.{node} 1.0 -"),
            &format!("loader gpu.{node} 1.0 -"),
        ]);
        assert_eq!(uids(&stage, "agent"), agents);
        // It has no deadline: a reboot that never comes stays a named wait, with the module in the kernel and the node closed.
        stage.pass(900).await;
        assert_eq!(
            (stage.phase(&node).as_str(), stage.loaded(&node).as_deref(), stage.is_open(&node)),
            ("AwaitingReboot", Some("1.0"), false)
        );
        assert!(stage.named(&node, "RebootRequired", &node, &["reboot the node"]));
        assert_eq!(stage.label(&node, "loader"), None);
        stage.world.kubelets.reboot(&node);
        stage.until("the new version runs", || stage.is_done(&node, "2.0") && stage.runs(&node, "2.0")).await;
        let proof = stage.proof(&node, "AwaitingReboot");
        assert!(proof.contains("recorded"), "{proof}");
        assert_ne!(boot(&stage, &node), old_boot);
        assert!(trace.all("unload ").is_empty(), "an unload pod was made");
        let report = stage.clean();
        assert_eq!(report.modules_unloaded, 0, "nothing but the reboot took it out");
        engine.stop().await;
    });
}

/// Only what is in the kernel needs the reboot: a version that is to come moves nobody but the users of the one that leaves.
#[test]
fn to_a_version_that_will_need_a_reboot_nobody_but_users_leaves() {
    play(|| async {
        let stage = Stage::new(74, 2).installed().await;
        let node = stage.nodes[0].clone();
        stage
            .apply(&[
                objects::deployment("ml", "user", 1, pinned(device_user("user"), &node)),
                objects::deployment("ml", "plain", 1, pinned(objects::template("plain", None, 2), &node)),
            ])
            .await;
        stage.until("both run", || running(&stage, "user") + running(&stage, "plain") == 2).await;
        let plain = uids(&stage, "plain");
        let (engine, trace) = (stage.engine(), Trace::of(&stage));
        // The unload pod is no part of the new version.
        let mut module = module("2.0");
        module["daemonSets"]["unload"] = serde_json::Value::Null;
        stage.spec(json!({"version": "2.0", "kernelModule": module})).await;
        stage.ask(std::slice::from_ref(&node)).await;
        stage.until("the new version runs", || stage.is_done(&node, "2.0") && stage.runs(&node, "2.0")).await;
        assert_eq!(uids(&stage, "plain"), plain, "a bystander was moved");
        assert_eq!(trace.all("evict ").len(), 1, "{:?}", trace.all("evict "));
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn a_reboot_before_it_was_asked_for_proves_nothing() {
    play(|| async {
        let stage = stage(72, 2).await;
        stage.apply(&[claimants("stuck", 1), objects::budget("ml", "stuck", "minAvailable", json!(0))]).await;
        stage.until("it runs", || running(&stage, "stuck") == 1).await;
        let node = node_of(&pods_of(&stage, "stuck")[0]);
        // Its budget does not let it go for now.
        let budget = "/apis/policy/v1/namespaces/ml/poddisruptionbudgets/stuck";
        let mut sibling = objects::template("stuck", None, 2);
        sibling["metadata"]["labels"]["part"] = json!("sibling");
        sibling["metadata"]["annotations"] = json!({"sim.lockkeeper.dev/unready": "true"});
        let mut sibling = objects::deployment("ml", "sibling", 1, pinned(sibling, "plain-1"));
        sibling.body["spec"]["selector"] = json!({"matchLabels": {"part": "sibling"}});
        stage.apply(&[sibling]).await;
        stage.hands.merge(budget, &json!({"spec": {"minAvailable": null, "maxUnavailable": 1}})).await.unwrap();
        stage.until("the sibling is there", || running(&stage, "stuck") == 2).await;
        let (engine, trace) = (stage.engine(), Trace::of(&stage));
        release(&stage).await;
        stage.ask(std::slice::from_ref(&node)).await;
        stage.names(&node, "DisruptionBudget", "ml/stuck", &["stuck"]).await;
        assert_eq!(stage.phase(&node), "Draining");
        // Rebooted while it drains: the loader label is still there, so 1.0 is loaded again. That boot ends nothing.
        stage.world.kubelets.reboot(&node);
        stage.until("1.0 is in the new boot's kernel", || stage.loaded(&node).as_deref() == Some("1.0")).await;
        let second = boot(&stage, &node);
        stage.hands.delete("/apis/policy/v1/namespaces/ml/poddisruptionbudgets/stuck").await.unwrap();
        stage.names(&node, "RebootRequired", &node, &["1.0", &second]).await;
        stage.pass(900).await;
        assert_eq!((stage.phase(&node).as_str(), stage.loaded(&node).as_deref()), ("AwaitingReboot", Some("1.0")));
        stage.world.kubelets.reboot(&node);
        stage.until("the second reboot is the proof", || stage.is_done(&node, "2.0")).await;
        assert_eq!(trace.all("loader "), [format!("loader gpu.{node} 1.0 -"), format!("loader gpu.{node} - 2.0")]);
        assert_eq!(stage.loaded(&node).as_deref(), Some("2.0"));
        let report = stage.world.report_at_rest();
        assert!(report.violations.is_empty(), "{:#?}", report.violations);
        engine.stop().await;
    });
}

#[test]
fn the_same_boot_in_a_new_guise_is_no_reboot() {
    play(|| async {
        let stage = stage(73, 1).await;
        let (engine, node) = (stage.engine(), stage.nodes[0].clone());
        release(&stage).await;
        stage.ask(std::slice::from_ref(&node)).await;
        stage.until("it waits for the reboot", || stage.phase(&node) == "AwaitingReboot").await;
        let old = boot(&stage, &node);
        // The kubelet is gone for a while and comes back.
        stage.world.kubelets.kill(&node);
        stage.pass(300).await;
        stage.world.kubelets.revive(&node);
        stage.pass(300).await;
        assert_eq!((stage.phase(&node).as_str(), boot(&stage, &node)), ("AwaitingReboot", old.clone()));
        // The Node object is deleted and made again on the same boot: its labels are gone, the module is not.
        stage.lose(&node).await;
        stage.register(&node).await;
        stage.pass(600).await;
        assert_eq!((stage.phase(&node).as_str(), boot(&stage, &node)), ("AwaitingReboot", old.clone()));
        assert_eq!(stage.loaded(&node).as_deref(), Some("1.0"), "the toy kernel was not rebooted");
        assert_eq!(stage.label(&node, "loader"), None, "a module was loaded beside the old one");
        assert!(stage.named(&node, "RebootRequired", &node, &[&old]), "{:?}", stage.blockers(&node));
        // Twice in a row, the second before anybody has looked.
        stage.world.kubelets.reboot_in(&node, std::time::Duration::from_secs(5));
        stage.pass(6).await;
        stage.world.kubelets.reboot(&node);
        stage.until("it runs 2.0", || stage.is_done(&node, "2.0") && stage.loaded(&node).as_deref() == Some("2.0")).await;
        let report = stage.world.report_at_rest();
        assert!(report.violations.is_empty(), "{:#?}", report.violations);
        engine.stop().await;
    });
}

#[test]
fn a_reboot_while_nobody_looks_counts_when_somebody_does() {
    play(|| async {
        let stage = stage(74, 1).await;
        let (engine, node) = (stage.engine(), stage.nodes[0].clone());
        release(&stage).await;
        stage.ask(std::slice::from_ref(&node)).await;
        stage.until("it waits for the reboot", || stage.phase(&node) == "AwaitingReboot").await;
        engine.abort();
        stage.world.kubelets.reboot(&node);
        stage.pass(1200).await;
        assert_eq!(stage.loaded(&node), None, "nothing loads before the proof is written down");
        let engine = stage.engine();
        stage.until("it runs 2.0", || stage.is_done(&node, "2.0")).await;
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn an_abort_while_it_waits_for_the_reboot_waits_for_the_boot_and_then_asks() {
    play(|| async {
        let stage = stage(75, 1).await;
        let (engine, node) = (stage.engine(), stage.nodes[0].clone());
        release(&stage).await;
        stage.ask(std::slice::from_ref(&node)).await;
        stage.until("it waits for the reboot", || stage.phase(&node) == "AwaitingReboot").await;
        stage.edit(&node, json!({"action": "Abort"}), false).await;
        stage.pass(600).await;
        assert_eq!(stage.phase(&node), "AwaitingReboot", "its module may still be in the kernel");
        stage.world.kubelets.reboot(&node);
        stage.until("it asks", || stage.reason(&node).0 == "AwaitingChoice").await;
        assert!(stage.reason(&node).1.contains("roll back (version: 1.0"), "{:?}", stage.reason(&node));
        assert_eq!(stage.label(&node, "loader"), None);
        stage.edit(&node, json!({"version": "1.0", "action": "Run"}), true).await;
        stage.until("it is back on 1.0", || stage.is_done(&node, "1.0") && stage.runs(&node, "1.0")).await;
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn g10_the_next_node_waits_for_the_new_boot_the_plugin_the_devices_and_the_soak() {
    play(|| async {
        let stage = stage(76, 2).await;
        stage.spec(json!({"rollout": {"soak": "120s", "canary": 0}})).await;
        let (engine, trace) = (stage.engine(), Trace::of(&stage));
        let (first, second) = (stage.nodes[0].clone(), stage.nodes[1].clone());
        release(&stage).await;
        stage.ask(&stage.nodes).await;
        stage.until("the first waits for its reboot", || stage.phase(&first) == "AwaitingReboot").await;
        let began = || trace.lines().iter().any(|line| *line == format!("slot gpu.{second}"));
        stage.world.kubelets.reboot(&first);
        // While it is down its Node still says Ready, from before.
        stage.pass(3).await;
        assert!(
            stage.node(&first)["status"]["conditions"].to_string().contains("KubeletReady")
                || stage.node(&first)["status"].is_object()
        );
        stage.until("its plugin has its label", || stage.label(&first, "plugin").as_deref() == Some("2.0")).await;
        assert!(!began(), "the next began before the first had devices");
        stage.until("it is done", || stage.is_done(&first, "2.0")).await;
        let offered = stage.node(&first)["status"]["allocatable"][scenario::RESOURCE].clone();
        assert!(offered == json!(scenario::DEVICES.to_string()) && !began(), "{offered}");
        let done = stage.world.api.now();
        stage.until("the next begins", began).await;
        assert!(stage.world.api.now().duration_since(done).as_secs() >= 118, "it did not wait for the soak");
        trace.in_order(&[&format!("ready gpu.{first} - 2.0"), &format!("free gpu.{first}"), &format!("slot gpu.{second}")]);
        stage.until("it waits too", || stage.phase(&second) == "AwaitingReboot").await;
        stage.world.kubelets.reboot(&second);
        stage.until("both are done", || stage.is_done(&second, "2.0")).await;
        stage.clean();
        engine.stop().await;
    });
}
