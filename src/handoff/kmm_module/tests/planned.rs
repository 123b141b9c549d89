//! What `plan` says of a followed Module before anything is done: lockkeeper's writes, and each step of KMM's that is awaited.

use super::*;
use crate::{
    cli::render::plan as shown,
    console::plan::{NodePlan, Request, from_facts},
    engine::{
        intent::NodeTarget,
        picture::{Mode, Picture},
    },
};

fn planned(mut fleet: FleetBuilder, to: &str) -> NodePlan {
    let picture = Picture { fleet: fleet.project(at(NOW)), ..Picture::empty(Default::default(), Mode::ReadOnly) };
    let node = NodeTarget { node: "n1".into(), uid: Some("uid-Node-n1".into()) };
    let request = Request { component: key(KEY), nodes: vec![node], to: to.into() };
    let mut plan = from_facts(&picture, &request);
    assert!(!plan.is_refused(), "{plan:?}");
    plan.nodes.remove(0)
}

/// `Phase Object: change`, one a line.
fn changes(plan: &NodePlan) -> Vec<String> {
    let all = plan.steps.iter().flat_map(|step| &step.changes);
    all.map(|it| format!("{} {}: {}", it.phase, it.object, it.change)).collect()
}

const RECORD: &str = "lockkeeper.dev/loaded.drv.mod";

#[test]
fn each_step_of_kmms_is_named_between_lockkeepers_own_writes() {
    let plan = planned(story().with(user("train")), "2.0");
    let desired = label(Label::Desired);
    let (ready, version) = (label(Label::Ready), label(Label::VersionReady));
    assert_eq!(
        changes(&plan),
        [
            format!("Cordoning Node n1: spec.unschedulable=true, annotation lockkeeper.dev/cordon names {KEY}"),
            format!("StoppingPlugin Node n1: label {desired} removed"),
            format!("StoppingPlugin Node n1: annotation {RECORD} says what is being unloaded"),
            "StoppingPlugin Pod drv/mod-device-plugin-1.0: deleted by KMM's DaemonSet once its plugin label is off (awaited)"
                .into(),
            "Unloading Pod drv/kmm-worker-n1-mod: KMM's Unload pod (awaited: it must succeed)".into(),
            "Unloading NodeModulesConfig n1: KMM takes its entry of drv/mod off (awaited: the proof)".into(),
            format!("Loading Node n1: label {desired}=2.0, annotation {RECORD} says 2.0"),
            "Loading Pod drv/kmm-worker-n1-mod: KMM's Load pod of mod:2.0 (awaited: it must succeed)".into(),
            "Loading NodeModulesConfig n1: KMM records 2.0 in this boot (awaited: the proof)".into(),
            "StartingPlugin Node n1: a Ready pod of KMM's plugin of 2.0 (awaited)".into(),
            format!("Verifying Node n1: KMM's labels {ready} and {version}=2.0 (awaited; they prove nothing)"),
            format!(
                "Uncordoning Node n1: spec.unschedulable removed, annotation lockkeeper.dev/cordon removed, annotations {RECORD} and \
                 lockkeeper.dev/handoff.drv.mod removed"
            ),
        ]
    );
}

#[test]
fn nobody_there_means_one_change_of_the_label() {
    let all = changes(&planned(story(), "2.0"));
    let desired = label(Label::Desired);
    let moves: Vec<&String> = all.iter().filter(|line| line.contains(&format!("label {desired}"))).collect();
    assert_eq!(moves, [&format!("StoppingPlugin Node n1: label {desired}=2.0: nobody uses the device, so one change is enough")]);
    assert!(all.iter().any(|line| line.starts_with("Loading Pod drv/kmm-worker-n1-mod: KMM's Load pod")), "{all:#?}");
}

#[test]
fn text_and_json_show_the_changes_under_their_steps() {
    let node = planned(story().with(user("train")), "2.0");
    let plan = crate::console::plan::Plan { nodes: vec![node], refusals: Vec::new(), warnings: Vec::new() };
    let report = shown::report("lab", KEY, "2.0", &plan);
    let text = shown::text(&report);
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let at = lines.iter().position(|line| line.contains(". Unloading: ")).expect(&text);
    assert_eq!(lines[at + 1], "- Pod drv/kmm-worker-n1-mod: KMM's Unload pod (awaited: it must succeed)");
    assert_eq!(lines[at + 2], "- NodeModulesConfig n1: KMM takes its entry of drv/mod off (awaited: the proof)");
    let json = serde_json::to_value(&report).unwrap();
    let told = json["nodes"][0]["changes"].as_array().unwrap();
    assert_eq!(told.len(), 12, "{told:#?}");
    assert_eq!(told[4]["object"], "Pod drv/kmm-worker-n1-mod");
}

#[test]
fn a_node_that_runs_it_changes_nothing() {
    let there = story().with(at_version("2.0")).with(config(Some("2.0"), Some(("2.0", "boot-1")))).with(plugin_pod("2.0"));
    let mut there = there;
    there.gone(crate::fleet::event::Kind::Pod, key("drv/mod-device-plugin-1.0"));
    assert!(planned(there, "2.0").steps.is_empty());
}
