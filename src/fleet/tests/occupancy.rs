//! What is on one node, by component.

use crate::{
    api::{
        NodeName,
        keys::{CordonOwners, Role},
    },
    fleet::{build::*, view::*},
};

const GPU: &str = "vendor.com/gpu";

fn occupancy(view: &FleetView, node: &str, component: &str) -> Occupancy {
    Occupancy::clone(&view.node(&NodeName::from(node)).unwrap().components[&key(component)])
}

fn claimants(occupancy: &Occupancy) -> Vec<String> {
    occupancy.claimants.iter().map(|claimant| claimant.pod.key.to_string()).collect()
}

#[test]
fn a_component_is_on_the_nodes_that_its_selector_matches() {
    let view = fleet()
        .with(component("ns/gpu").on_nodes("gpu", "yes"))
        .with(node("n1").label("gpu", "yes").allocatable(GPU, 4).allocatable("other.com/nic", 2))
        .with(node("n2"))
        .project(at(0));
    let there = occupancy(&view, "n1", "ns/gpu");
    assert!(there.selected);
    assert_eq!(there.allocatable, [(GPU.into(), 4)].into());
    assert!(view.node(&NodeName::from("n2")).unwrap().components.is_empty());
    assert_eq!(view.components[&key("ns/gpu")].matched_nodes, 1);
}

#[test]
fn g21_what_a_narrowed_selector_leaves_behind_is_still_seen() {
    let view = fleet()
        .with(component("ns/gpu").on_nodes("gpu", "yes"))
        .with(node("n1").loader("ns/gpu", "1"))
        .with(node("n2").loaded("ns/gpu", "1"))
        .with(node("n3"))
        .with(loader_pod("ns/gpu", "1", "n3"))
        .with(node("n4"))
        .with(handoff("ns/gpu", "n4"))
        .with(node("n5"))
        .project(at(0));
    for name in ["n1", "n2", "n3", "n4"] {
        assert!(!occupancy(&view, name, "ns/gpu").selected, "{name}");
    }
    assert!(view.node(&NodeName::from("n5")).unwrap().components.is_empty());
    assert_eq!(view.components[&key("ns/gpu")].matched_nodes, 0, "it counts nowhere");
    assert_eq!(view.occupancies(&key("ns/gpu")).count(), 4);
}

#[test]
fn labels_of_a_component_that_is_gone_are_still_seen() {
    let view = fleet().with(node("n1").loader("ns/gpu", "1")).project(at(0));
    let left = occupancy(&view, "n1", "ns/gpu");
    assert_eq!(left.labels.loader.as_ref().map(|version| version.as_str()), Some("1"));
    assert!(left.claimants.is_empty());
}

#[test]
fn a_node_that_only_a_handoff_or_a_slot_still_names_is_shown() {
    let view = fleet().with(handoff("ns/gpu", "n1")).with(lease("me").slot("n2", "ns/gpu")).project(at(0));
    assert_eq!(view.nodes.iter().map(|node| node.name.to_string()).collect::<Vec<_>>(), ["n1", "n2"]);
    assert!(view.nodes.iter().all(|node| node.record.is_none()));
    assert!(occupancy(&view, "n1", "ns/gpu").handoff.is_some());
}

#[test]
fn pods_of_the_component_are_told_apart_by_role_and_are_no_claimants() {
    let view = fleet()
        .with(component("ns/gpu").unload_by_reboot())
        .with(node("n1").runs("ns/gpu", "1"))
        .with(loader_pod("ns/gpu", "1", "n1"))
        .with(plugin_pod("ns/gpu", "1", "n1").claims(GPU, 1))
        .with(unload_pod("ns/gpu", "1", "n1", "nonce"))
        .with(pod("ns/app").on("n1").owned_by("ReplicaSet", "app"))
        .project(at(0));
    let on = occupancy(&view, "n1", "ns/gpu");
    assert_eq!((on.loader_pods.len(), on.plugin_pods.len(), on.unload_pods.len()), (1, 1, 1));
    assert_eq!(claimants(&on), ["ns/app"]);
}

#[test]
fn nobody_leaves_for_a_reboot_where_nothing_is_loaded() {
    let view = fleet()
        .with(component("ns/gpu").unload_by_reboot().version("2").made("2"))
        .with(node("bare"))
        .with(node("to-come").desired("ns/gpu", "2"))
        .with(node("loaded").desired("ns/gpu", "2").loaded("ns/gpu", "2"))
        .with(pod("ns/a").on("bare").owned_by("ReplicaSet", "app"))
        .with(pod("ns/b").on("to-come").owned_by("ReplicaSet", "app"))
        .with(pod("ns/user").on("to-come").owned_by("ReplicaSet", "app").claims(GPU, 1))
        .with(pod("ns/c").on("loaded").owned_by("ReplicaSet", "app"))
        .project(at(0));
    let on = |node: &str| claimants(&occupancy(&view, node, "ns/gpu"));
    assert!(on("bare").is_empty());
    assert_eq!((on("to-come"), on("loaded")), (vec!["ns/user".to_owned()], vec!["ns/c".to_owned()]));
}

#[test]
fn the_block_of_what_is_loaded_says_who_claims_it() {
    let old = component("ns/gpu").resource("vendor.com/old").made("1");
    let mut fleet = fleet().with(old).with(component("ns/gpu").resource("vendor.com/new").version("2").made("2"));
    fleet
        .put(node("n1").runs("ns/gpu", "1"))
        .put(node("n2").runs("ns/gpu", "2"))
        .put(node("n3"))
        .put(node("n4").desired("ns/gpu", "2").loaded("ns/gpu", "1"))
        .put(node("n5").desired("ns/gpu", "typo"));
    for name in ["n1", "n2", "n3", "n4", "n5"] {
        for resource in ["old", "new"] {
            fleet.put(pod(&format!("a/{name}-{resource}")).on(name).claims(&format!("vendor.com/{resource}"), 1));
        }
    }
    let view = fleet.project(at(0));
    let table = [("n1", "a/n1-old"), ("n2", "a/n2-new"), ("n3", "a/n3-new"), ("n4", "a/n4-old"), ("n5", "a/n5-new")];
    for (name, claimant) in table {
        assert_eq!(claimants(&occupancy(&view, name, "ns/gpu")), [claimant], "{name}");
    }
}

#[test]
fn reserved_claims_are_those_that_somebody_here_may_still_hold() {
    let driver = "gpu.vendor.com";
    let view = fleet()
        .with(component("ns/gpu").driver(driver))
        .with(node("n1"))
        .with(node("n2"))
        .with(pod("a/here").on("n1").claim("roaming"))
        .with(pod("a/there").on("n2").claim("other"))
        .with(claim("a/roaming").device(driver, "p", "d").reserved_for("here"))
        .with(claim("a/other").device(driver, "p", "d").reserved_for("there"))
        .with(claim("a/pinned").device(driver, "n1", "d").only_on("n1").reserved_for("gone"))
        .with(claim("a/free").device(driver, "n1", "d").only_on("n1"))
        .with(claim("a/group").device(driver, "p", "d").reserved_for_other("podgroups.scheduling.k8s.io", "g"))
        .with(claim("a/elsewhere").device(driver, "n2", "d").only_on("n2").reserved_for_other("podgroups.scheduling.k8s.io", "g"))
        .with(claim("a/foreign").device("nic.vendor.com", "n1", "d").only_on("n1").reserved_for("here"))
        .with(slice("s1", driver, "n1", 3))
        .with(slice("s2", driver, "n1", 2))
        .with(slice("s3", "nic.vendor.com", "n1", 9))
        .project(at(0));
    let on = occupancy(&view, "n1", "ns/gpu");
    let names: Vec<_> = on.reserved_claims.iter().map(|claim| claim.to_string()).collect();
    assert_eq!(names, ["a/group", "a/pinned", "a/roaming"]);
    assert_eq!(on.slices, [(driver.into(), 5)].into());
}

#[test]
fn g22_an_unbound_pod_or_a_node_that_is_not_ready_hides_nothing_of_the_others() {
    let mut fleet = fleet().with(component("ns/gpu").made("1")).with(node("n1").not_ready().runs("ns/gpu", "1"));
    fleet.put(plugin_pod("ns/gpu", "1", "n1").but(|pod| pod.node = None).phase(crate::fleet::records::PodPhase::Pending));
    for name in ["n2", "n3", "n4", "n5"] {
        fleet.put(node(name).runs("ns/gpu", "1")).put(plugin_pod("ns/gpu", "1", name));
    }
    let view = fleet.project(at(0));
    for name in ["n2", "n3", "n4", "n5"] {
        assert_eq!(occupancy(&view, name, "ns/gpu").plugin_pods.len(), 1, "{name}");
    }
    let n1 = view.node(&NodeName::from("n1")).unwrap();
    assert!(!n1.record.as_ref().unwrap().ready.is_true());
    assert!(occupancy(&view, "n1", "ns/gpu").plugin_pods.is_empty());
    assert!(view.components[&key("ns/gpu")].anomalies.is_empty());
}

#[test]
fn g11_a_node_that_somebody_else_closed_is_drained_like_any_other() {
    let view = fleet()
        .with(component("ns/gpu"))
        .with(node("n1").cordoned_by("kubectl"))
        .with(pod("a/p").on("n1").claims(GPU, 1).owned_by("ReplicaSet", "p"))
        .with(node("n2").cordoned_for("ns/gpu"))
        .project(at(0));
    let n1 = view.node(&NodeName::from("n1")).unwrap();
    assert_eq!((n1.cordon.clone(), claimants(&occupancy(&view, "n1", "ns/gpu"))), (None, vec!["a/p".to_owned()]));
    assert_eq!(n1.record.as_ref().unwrap().unschedulable_managers, ["kubectl".into()] as [std::sync::Arc<str>; 1]);
    let ours = view.node(&NodeName::from("n2")).unwrap();
    assert_eq!(ours.cordon, Some(Ok(CordonOwners { owners: vec!["ns/gpu".into()] })));
    let _ = Role::ALL;
}
