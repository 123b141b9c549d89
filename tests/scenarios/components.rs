//! Two components on the same nodes: one handoff per node, the other one waits for it by name; and components that claim the same things.

use std::collections::BTreeMap;

use lockkeeper::{
    api::{ComponentKey, keys::Role},
    engine::{Engine, EngineOptions, picture::Mode},
    handoff::verdict::BlockerKind,
    sim::{
        actors::{KubeletOptions, Range},
        scenarios::{
            kernel_module::{self as scenario, NAMESPACE},
            objects::{self, Object},
        },
        world::{ENGINE, WorldOptions},
    },
};
use serde_json::{Value, json};

use crate::{
    stage::{Stage, blockers_of, play},
    trace::Trace,
};

const NIC: &str = "nic";

/// `spec.kernelModule` of the second component, with a module and a resource of its own.
fn nic_module(version: &str) -> Value {
    let mut module = scenario::kernel_module(version);
    for part in ["loader", "devicePlugin", "unload"] {
        module["daemonSets"][part]["metadata"]["annotations"]["sim.lockkeeper.dev/module"] = json!(NIC);
    }
    module["daemonSets"]["devicePlugin"]["metadata"]["annotations"]["sim.lockkeeper.dev/resource"] = json!("vendor.example/nic");
    module["devices"] = json!({"resourceNames": ["vendor.example/nic"]});
    module
}

fn nic(version: &str) -> Object {
    let mut spec = scenario::component_spec(version);
    spec["kernelModule"] = nic_module(version);
    objects::component(NAMESPACE, NIC, spec)
}

fn nic_path() -> String {
    format!("/apis/lockkeeper.dev/v1alpha1/namespaces/{NAMESPACE}/nodecomponents/{NIC}")
}

fn options(seed: u64) -> WorldOptions {
    let mut options = WorldOptions { kubelets: KubeletOptions::quick(), max_closed: 4, ..WorldOptions::new(seed) };
    options.modules.insert(NIC.to_owned(), ComponentKey::new(NAMESPACE, NIC));
    // A handoff takes long enough for others to want something meanwhile.
    options.kubelets.stop = Range::millis(3000, 3001);
    options
}

fn runs(stage: &Stage, component: &str, node: &str, version: &str) -> bool {
    ["version", "loader", "plugin", "ready"].iter().all(|word| stage.label_of(component, node, word).as_deref() == Some(version))
}

fn done(stage: &Stage, component: &str, node: &str, version: &str) -> bool {
    stage.handoff_of(component, node)["status"]["phase"] == "Done" && runs(stage, component, node, version) && stage.is_open(node)
}

/// Both components at 1.0 on all nodes.
async fn both(seed: u64, nodes: usize) -> Stage {
    let stage = Stage::with(options(seed), nodes).installed().await;
    let engine = stage.engine();
    stage.apply(&[nic("1.0")]).await;
    stage.until("the second is installed", || stage.nodes.iter().all(|node| done(&stage, NIC, node, "1.0"))).await;
    engine.stop().await;
    stage
}

async fn release_both(stage: &Stage) {
    stage.release().await;
    stage.hands.merge(&nic_path(), &json!({"spec": {"version": "2.0", "kernelModule": nic_module("2.0")}})).await.unwrap();
}

/// A person asks for 2.0 of the second component.
async fn ask_nic(stage: &Stage, node: &str, position: i32) {
    let path = format!("/apis/lockkeeper.dev/v1alpha1/namespaces/{NAMESPACE}/nodehandoffs/{NIC}.{node}");
    let body = json!({"spec": {"version": "2.0", "attempt": 2, "position": position, "requestedBy": "operator"}});
    stage.hands.merge(&path, &body).await.unwrap();
}

fn roomy(stage: &Stage) -> Engine {
    stage.engine_with(ENGINE, Mode::Engine, EngineOptions { cluster_max_unavailable: 4, ..EngineOptions::default() })
}

/// No node was in two hands at once.
fn one_per_node(trace: &Trace) {
    let mut held: BTreeMap<String, String> = BTreeMap::new();
    for line in trace.lines() {
        let Some((verb, slot)) = line.split_once(' ') else { continue };
        let Some((component, node)) = slot.split_once('.') else { continue };
        match verb {
            "slot" => {
                if let Some(other) = held.insert(node.to_owned(), component.to_owned()) {
                    panic!("{node} was given to {component} while {other} had it:\n{}", trace.lines().join("\n"));
                }
            }
            "free" => assert_eq!(held.remove(node).as_deref(), Some(component), "{line}"),
            _ => {}
        }
    }
    assert!(held.is_empty(), "{held:?}");
}

#[test]
fn one_waits_for_the_other_by_name_and_goes_elsewhere_meanwhile() {
    play(|| async {
        let stage = both(21, 2).await;
        let (engine, trace) = (roomy(&stage), Trace::of(&stage));
        let (first, second) = (stage.nodes[0].clone(), stage.nodes[1].clone());
        release_both(&stage).await;
        stage.spec(json!({"rollout": {"canary": 0}})).await;
        stage.ask(&stage.nodes).await;
        stage.until("gpu has the first node", || stage.phase(&first) != "Queued" && stage.phase(&first) != "Done").await;
        ask_nic(&stage, &first, 1).await;
        let busy =
            stage.waits(&engine, NIC, &first, BlockerKind::NodeBusy, &["gpu-system/gpu", "at most one handoff per node"]).await;
        assert_eq!(busy.object.to_string(), format!("Node {first}"));
        assert!(runs(&stage, NIC, &first, "1.0"), "the second component was touched");
        ask_nic(&stage, &second, 2).await;
        stage
            .until("both components are on 2.0 everywhere", || {
                stage.nodes.iter().all(|node| stage.is_done(node, "2.0") && done(&stage, NIC, node, "2.0"))
            })
            .await;
        one_per_node(&trace);
        // The second component did not stand idle: it took the free node while the first had the other.
        let began = trace.at(&format!("slot {NIC}.{second}"));
        assert!(began < trace.at(&format!("free gpu.{first}")), "{}", trace.lines().join("\n"));
        assert!(trace.at(&format!("slot {NIC}.{first}")) > trace.at(&format!("free gpu.{first}")));
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn with_one_slot_for_all_the_one_that_waits_names_who_has_it() {
    play(|| async {
        let stage = both(22, 2).await;
        let (engine, trace) = (stage.engine(), Trace::of(&stage));
        let (first, second) = (stage.nodes[0].clone(), stage.nodes[1].clone());
        release_both(&stage).await;
        stage.ask(std::slice::from_ref(&first)).await;
        stage.until("gpu has the first node", || stage.phase(&first) != "Queued" && stage.phase(&first) != "Done").await;
        ask_nic(&stage, &second, 1).await;
        let spent = stage
            .waits(&engine, NIC, &second, BlockerKind::BudgetSpent, &["1 of at most 1 nodes", "over all components", &first])
            .await;
        assert_eq!(spent.object.to_string(), "Lease lockkeeper-system/lockkeeper");
        stage.until("one after the other", || stage.is_done(&first, "2.0") && done(&stage, NIC, &second, "2.0")).await;
        trace.in_order(&[&format!("slot gpu.{first}"), &format!("free gpu.{first}"), &format!("slot {NIC}.{second}")]);
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn a_label_of_the_second_edited_while_the_first_runs_waits_for_it_and_is_followed_then() {
    play(|| async {
        let stage = both(23, 1).await;
        let (engine, trace) = (roomy(&stage), Trace::of(&stage));
        let node = stage.nodes[0].clone();
        release_both(&stage).await;
        stage.ask(std::slice::from_ref(&node)).await;
        stage.until("gpu has unloaded", || stage.label(&node, "loader").is_none()).await;
        let key = Role::Desired.key(&ComponentKey::new(NAMESPACE, NIC));
        stage.hands.label_node(&node, &key, Some("2.0")).await.unwrap();
        stage.waits(&engine, NIC, &node, BlockerKind::NodeBusy, &["gpu-system/gpu"]).await;
        let (loader, plugin) = (stage.label_of(NIC, &node, "loader"), stage.label_of(NIC, &node, "plugin"));
        assert_eq!([loader.as_deref(), plugin.as_deref()], [Some("1.0"), Some("1.0")], "its labels moved on a busy node");
        stage.until("both end", || stage.is_done(&node, "2.0") && done(&stage, NIC, &node, "2.0")).await;
        assert_eq!(stage.handoff_of(NIC, &node)["spec"]["requestedBy"], "label");
        one_per_node(&trace);
        let nic_moves = trace.at(&format!("plugin {NIC}.{node} 1.0 -"));
        assert!(nic_moves > trace.at(&format!("ready gpu.{node} - 2.0")) && nic_moves > trace.at(&format!("free gpu.{node}")));
        stage.clean();
        engine.stop().await;
    });
}

#[test]
fn two_that_claim_the_same_resource_are_both_refused_by_name_until_one_gives_way() {
    play(|| async {
        let stage = both(24, 1).await;
        let (engine, trace) = (roomy(&stage), Trace::of(&stage));
        let node = stage.nodes[0].clone();
        release_both(&stage).await;
        let mut thief = scenario::component_spec("1.0");
        thief["kernelModule"] = nic_module("1.0");
        thief["kernelModule"]["devices"] = json!({"resourceNames": [scenario::RESOURCE]});
        stage.apply(&[objects::component(NAMESPACE, "thief", thief)]).await;
        stage.until("the refusal is told", || stage.condition("Invalid").0 == "True").await;
        let told = stage.condition("Invalid").1;
        assert!(told.contains(scenario::RESOURCE) && told.contains("gpu-system/thief"), "{told}");
        stage.ask(std::slice::from_ref(&node)).await;
        ask_nic(&stage, &node, 1).await;
        stage.names(&node, "ComponentRefused", "NodeComponent gpu-system/gpu", &[scenario::RESOURCE, "gpu-system/thief"]).await;
        // The third component is none of this quarrel.
        stage.until("nic goes on", || done(&stage, NIC, &node, "2.0")).await;
        assert!(
            stage.runs(&node, "1.0") && trace.all("slot gpu.").is_empty() && trace.all("set thief").is_empty(),
            "{}",
            trace.lines().join("\n")
        );
        let thief_on_node = blockers_of(&stage.handoff_of("thief", &node));
        assert!(stage.label_of("thief", &node, "loader").is_none(), "{thief_on_node:?}");
        stage.hands.delete(&nic_path().replace(NIC, "thief")).await.unwrap();
        stage.until("it goes on", || stage.is_done(&node, "2.0") && stage.condition("Invalid").0 == "False").await;
        stage.clean();
        engine.stop().await;
    });
}
