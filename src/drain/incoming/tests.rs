use super::*;
use crate::fleet::{
    build::*,
    view::{FleetView, Incoming},
};

const GPU: &str = "vendor.com/gpu";
const DRIVER: &str = "gpu.vendor.com";

fn incoming(view: &FleetView, node: &str) -> Vec<Incoming> {
    view.node(&NodeName::from(node)).unwrap().components[&key("ns/gpu")].incoming.clone()
}

fn reason_on_n1(component: ComponentBuilder, others: impl Records, pod: PodBuilder) -> Option<IncomingReason> {
    let view = fleet().with(component).with(node("n1")).with(node("n2")).with(others).with(pod).project(at(0));
    assert!(incoming(&view, "n2").is_empty());
    incoming(&view, "n1").first().map(|incoming| incoming.why.clone())
}

#[test]
fn a_pod_whose_binding_has_begun_is_on_its_way() {
    let gpu = || component("ns/gpu");
    let app = || pod("a/p").claims(GPU, 1);
    let volume = Some(IncomingReason::VolumeSelectedNode { claim: key("a/v") });
    let nothing = || Vec::<crate::fleet::event::Record>::new();
    assert_eq!(reason_on_n1(gpu(), nothing(), app().nominated("n1")), Some(IncomingReason::Nominated));
    assert_eq!(reason_on_n1(gpu(), nothing(), pod("a/p").nominated("n1")), None, "it would be no claimant");
    assert_eq!(reason_on_n1(gpu(), nothing(), app().nominated("n1").terminating(at(30))), None, "it is leaving");
    assert_eq!(reason_on_n1(gpu(), nothing(), app()), None, "merely pending");
    assert_eq!(reason_on_n1(gpu(), volume_claim("a/v").selected("n1").records(), app().volume_claim("v")), volume);
    assert_eq!(reason_on_n1(gpu(), volume_claim("b/v").selected("n1").records(), app().volume_claim("v")), None, "namespace");
    assert_eq!(
        reason_on_n1(gpu(), volume_claim("a/v").selected("n1").records(), app().volume_claim("v").unschedulable()),
        volume,
        "an earlier try failed, this one waits for its volume"
    );
    assert_eq!(reason_on_n1(gpu(), volume_claim("a/v").selected("n1").bound().records(), app().volume_claim("v")), volume);
    let dra = || component("ns/gpu").driver(DRIVER);
    let here = || claim("a/c").device(DRIVER, "n1", "d").only_on("n1");
    assert_eq!(
        reason_on_n1(dra(), here().records(), pod("a/p").claim("c")),
        Some(IncomingReason::ClaimOnlyHere { claim: key("a/c") })
    );
    assert_eq!(
        reason_on_n1(dra(), claim("a/c").device(DRIVER, "p", "d").records(), pod("a/p").claim("c")),
        None,
        "any node will do"
    );
}

#[test]
fn g02_a_pod_that_can_only_live_here_but_has_no_node_is_neither_target_nor_on_its_way() {
    // db-0 is pinned to n1 by its bound volume; n1 is cordoned, so the scheduler finds no place for it.
    let view = fleet()
        .with(component("ns/gpu"))
        .with(node("n1").cordoned_for("ns/gpu"))
        .with(volume_claim("a/data-db-0").selected("n1").bound())
        .with(pod("a/db-0").claims(GPU, 1).volume_claim("data-db-0").unschedulable().owned_by("StatefulSet", "db"))
        .with(budget("a/db").selects("app", "db").min_available("1").counts(0, 1, 1))
        .project(at(0));
    assert!(incoming(&view, "n1").is_empty());
    let occupancy = &view.nodes[0].components[&key("ns/gpu")];
    assert!(occupancy.claimants.is_empty() && view.nodes[0].pods.is_empty());
}

#[test]
fn a_pod_that_binds_turns_from_incoming_to_claimant() {
    let mut fleet = fleet().with(component("ns/gpu")).with(node("n1")).with(pod("a/p").claims(GPU, 1).nominated("n1"));
    assert_eq!(incoming(&fleet.project(at(0)), "n1").len(), 1);
    fleet.put(pod("a/p").claims(GPU, 1).on("n1"));
    let view = fleet.project(at(1));
    assert!(incoming(&view, "n1").is_empty());
    assert_eq!(view.nodes[0].components[&key("ns/gpu")].claimants.len(), 1);
}
