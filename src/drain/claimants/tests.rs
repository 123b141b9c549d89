use super::*;
use crate::{
    api::{NodeName, keys::Role},
    fleet::{
        build::*,
        records::PodPhase,
        view::{FleetView, Occupancy},
    },
};

const GPU: &str = "vendor.com/gpu";
const DRIVER: &str = "gpu.vendor.com";

fn occupancy(view: &FleetView) -> &Occupancy {
    &view.node(&NodeName::from("n1")).unwrap().components[&key("ns/gpu")]
}

/// Why this pod claims the component, and its class.
fn judged(component: ComponentBuilder, others: impl Records, pod: PodBuilder) -> Option<(ClaimReason, ClaimantClass)> {
    judged_on(node("n1"), component, others, pod)
}

fn judged_on(
    node: NodeBuilder,
    component: ComponentBuilder,
    others: impl Records,
    pod: PodBuilder,
) -> Option<(ClaimReason, ClaimantClass)> {
    let view = fleet().with(component).with(node).with(others).with(pod).project(at(0));
    let claimants = &occupancy(&view).claimants;
    assert!(claimants.len() <= 1);
    claimants.first().map(|claimant| (claimant.why.clone(), claimant.class))
}

fn reason_of(component: ComponentBuilder, others: impl Records, pod: PodBuilder) -> Option<ClaimReason> {
    judged(component, others, pod).map(|(why, _)| why)
}

fn none() -> Vec<crate::fleet::event::Record> {
    Vec::new()
}

#[test]
fn a_pod_claims_by_resource_claim_selector_or_reboot() {
    let by_resource = || component("ns/gpu");
    let by_claim = || component("ns/gpu").driver(DRIVER);
    let by_selector = || component("ns/gpu").resource("vendor.com/other").pods("a", "uses", "gpu");
    let by_reboot = || component("ns/gpu").unload_by_reboot();
    let app = || pod("a/p").on("n1").owned_by("ReplicaSet", "p");
    let ours = || claim("a/c").device(DRIVER, "n1", "d");
    let resource = Some(ClaimReason::Resource { name: GPU.into(), quantity: 2 });
    let claimed = Some(ClaimReason::Claim { claim: key("a/c"), driver: DRIVER.into() });
    let unresolved = |entry: &str| Some(ClaimReason::UnresolvedClaim { entry: entry.into() });

    assert_eq!(reason_of(by_resource(), none(), app().claims(GPU, 2)), resource, "resource");
    assert_eq!(reason_of(by_resource(), none(), app().claims("vendor.com/nic", 2)), None, "another resource");
    assert_eq!(reason_of(by_resource(), none(), app()), None, "nothing");
    assert_eq!(reason_of(by_claim(), ours().records(), app().claim("c")), claimed, "claim of our driver");
    assert_eq!(
        reason_of(by_claim(), claim("a/c").device("x", "p", "d").records(), app().claim("c")),
        None,
        "claim of another driver"
    );
    let both = claim("a/c").device("x", "p", "d").device(DRIVER, "n1", "d");
    assert_eq!(reason_of(by_claim(), both.records(), app().claim("c")), claimed, "one claim of two drivers");
    assert_eq!(
        reason_of(by_claim(), claim("b/c").device(DRIVER, "n1", "d").records(), app().claim("c")),
        unresolved("c"),
        "namespace"
    );
    assert_eq!(reason_of(by_claim(), none(), app().unresolved_claim("entry")), unresolved("entry"), "not made yet");
    assert_eq!(
        reason_of(by_resource(), none(), app().unresolved_claim("entry")),
        None,
        "a component without drivers has no claims"
    );
    assert_eq!(reason_of(by_selector(), none(), app().label("uses", "gpu")), Some(ClaimReason::Selector), "selector");
    assert_eq!(reason_of(by_selector(), none(), pod("b/p").on("n1").label("uses", "gpu")), None, "another namespace");
    let loaded = |pod| judged_on(node("n1").loaded("ns/gpu", "1"), by_reboot(), none(), pod).map(|(why, _)| why);
    assert_eq!(loaded(app()), Some(ClaimReason::Reboot), "everything drainable");
    assert_eq!(reason_of(by_reboot(), none(), app()), None, "nothing is loaded, so nothing has to be rebooted away");
    assert_eq!(loaded(app().claims(GPU, 2)), resource, "the exact reason comes first");
    assert_eq!(loaded(pod("a/d").on("n1").owned_by("DaemonSet", "d")), None, "a DaemonSet stays");
    assert_eq!(loaded(pod("a/m").on("n1").mirror()), None, "a static pod stays");
}

#[test]
fn an_empty_selector_of_a_refused_component_drains_nobody() {
    let component = component("ns/gpu").devices(|devices| {
        devices.pod_selector = Some(Default::default());
        devices.pod_namespaces = vec!["a".into()];
    });
    assert_eq!(reason_of(component, none(), pod("a/p").on("n1")), None);
}

#[test]
fn terminal_pods_hold_nothing_and_leaving_ones_do_until_they_are_gone() {
    let app = || pod("a/p").on("n1").claims(GPU, 1).owned_by("ReplicaSet", "p");
    let class = |pod| judged(component("ns/gpu"), none(), pod).map(|(_, class)| class);
    assert_eq!(class(app().phase(PodPhase::Succeeded)), None);
    assert_eq!(class(app().phase(PodPhase::Failed)), None);
    assert_eq!(class(app().phase(PodPhase::Pending)), Some(ClaimantClass::Evictable), "its containers may start at any moment");
    assert_eq!(class(app().phase(PodPhase::Unknown)), Some(ClaimantClass::Evictable));
    assert_eq!(class(app().terminating(at(30))), Some(ClaimantClass::Terminating));
    assert_eq!(
        class(app().terminating(at(-3600)).empty_dir()),
        Some(ClaimantClass::Terminating),
        "long overdue, but still there"
    );
}

#[test]
fn the_class_says_what_a_drain_can_do() {
    let ready = Role::Ready.key(&key("ns/gpu"));
    let app = || pod("a/p").on("n1").claims(GPU, 1);
    let class = |others: Vec<_>, pod| judged(component("ns/gpu"), others, pod).map(|(_, class)| class);
    assert_eq!(class(none(), app()), Some(ClaimantClass::Unmanaged));
    assert_eq!(class(none(), app().empty_dir()), Some(ClaimantClass::Unmanaged), "nobody brings it back: the graver of the two");
    assert_eq!(class(none(), app().owned_by("ReplicaSet", "p").empty_dir()), Some(ClaimantClass::EmptyDir));
    assert_eq!(class(none(), app().mirror()), Some(ClaimantClass::Mirror));
    let daemon = || app().owned_by("DaemonSet", "agent");
    let not_ready = Some(ClaimantClass::DaemonSet { selects_ready: false });
    assert_eq!(class(none(), daemon()), not_ready, "its DaemonSet is unknown");
    assert_eq!(class(daemon_set("a/agent").records(), daemon()), not_ready);
    assert_eq!(class(daemon_set("a/agent").requires("lockkeeper.dev/ready.ns.other").records(), daemon()), not_ready);
    let selects = daemon_set("a/agent").requires(&ready).records();
    assert_eq!(class(selects, daemon()), Some(ClaimantClass::DaemonSet { selects_ready: true }));
    let other_kind = app().owned_by("DaemonSet", "agent").but(|pod| {
        if let Some(owner) = &mut pod.owner {
            owner.is_apps = false;
        }
    });
    assert_eq!(class(none(), other_kind), Some(ClaimantClass::Evictable), "DaemonSets of other API groups are ordinary owners");
}

#[test]
fn a_daemon_set_that_learns_to_select_the_ready_label_changes_its_pods_class() {
    let mut fleet = fleet().with(component("ns/gpu")).with(node("n1")).with(daemon_set("a/agent"));
    fleet.put(pod("a/p").on("n1").claims(GPU, 1).owned_by("DaemonSet", "agent"));
    fleet.project(at(0));
    fleet.put(daemon_set("a/agent").requires(&Role::Ready.key(&key("ns/gpu"))));
    let view = fleet.project(at(1));
    assert_eq!(occupancy(&view).claimants[0].class, ClaimantClass::DaemonSet { selects_ready: true });
}
