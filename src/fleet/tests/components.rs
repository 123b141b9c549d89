//! Components as a whole: versions, refusals, conflicts, what was changed by hand.

use crate::{
    api::{
        Version, keys,
        versioned::{DaemonSetRole, daemon_set_name},
    },
    fleet::{build::*, event::Kind, view::*},
};

fn view_of(fleet: &mut FleetBuilder, name: &str) -> ComponentView {
    ComponentView::clone(&fleet.project(at(0)).components[&key(name)])
}

fn refusals(component: ComponentBuilder) -> String {
    let record = component.build();
    let name = record.key.clone();
    let view = fleet().with(crate::fleet::event::Record::Component(record)).project(at(0));
    view.components[&name].refusals.join("; ")
}

fn set_name(role: DaemonSetRole, version: &str) -> String {
    daemon_set_name("gpu", role, &Version::from(version))
}

#[test]
fn versions_come_from_the_spec_and_from_versioned_daemon_sets() {
    let mut fleet =
        fleet().with(component("ns/gpu").version("2").made("1")).with(node("n1").runs("ns/gpu", "1")).with(node("n2"));
    fleet.put(handoff("ns/gpu", "n1").to("2"));
    let view = view_of(&mut fleet, "ns/gpu");
    let versions: Vec<_> =
        view.versions.values().map(|it| (it.version.to_string(), it.loader.is_some(), it.plugin.is_some(), it.used_by)).collect();
    assert_eq!(versions, [("1".into(), true, true, 1), ("2".into(), false, false, 1)]);
    assert_eq!((view.refusals.len(), view.anomalies.len(), view.changed_without_version, view.matched_nodes), (0, 0, false, 2));
}

#[test]
fn a_template_changed_under_the_same_version_is_said_and_the_record_stays() {
    let changed = component("ns/gpu")
        .of_module(|module| module.daemon_sets.as_mut().unwrap().loader = serde_json::json!({"spec": {"other": 1}}));
    let mut fleet = fleet().with(component("ns/gpu").made("1")).with(changed);
    let view = view_of(&mut fleet, "ns/gpu");
    assert!(view.changed_without_version);
    assert_eq!(
        view.versions[&Version::from("1")].block.daemon_sets.as_ref().unwrap().loader["spec"]["containers"][0]["name"],
        "loader"
    );
    assert!(view.anomalies.is_empty());
}

#[test]
fn a_component_is_refused_with_every_reason_at_once() {
    assert_eq!(refusals(component("ns/gpu")), "");
    let table = [
        (component("ns/gpu").broken("spec: missing field `version`"), "does not decode: spec: missing field `version`"),
        (component("ns/gpu").version("a b"), "\"a b\" is not a legal label value"),
        (component("ns/gpu").version(""), "\"\" is not a legal label value"),
        (component(&format!("ns/{}", "x".repeat(53))), "has 53 characters, at most 52"),
        (component(&format!("{}/gpu", "x".repeat(60))), "have 63 characters together, at most 54"),
        (component("ns/gpu").devices(|it| it.resource_names.clear()), "names nothing"),
        (component("ns/gpu").resource("cpu"), "\"cpu\" is no extended resource"),
        (component("ns/gpu").devices(|it| it.pod_selector = Some(Default::default())), "podSelector is empty"),
        (component("ns/gpu").devices(|it| it.pod_selector = Some(Default::default())), "podNamespaces is required"),
        (component("ns/gpu").of_module(|it| it.daemon_sets.as_mut().unwrap().unload = None), "unload is missing"),
    ];
    for (component, expected) in table {
        let said = refusals(component);
        assert!(said.contains(expected), "{said:?} should say {expected:?}");
    }
}

#[test]
fn two_components_that_name_the_same_device_are_both_refused() {
    let mut fleet =
        fleet().with(component("ns/gpu")).with(component("other/card")).with(component("ns/nic").resource("vendor.com/nic"));
    assert_eq!(
        view_of(&mut fleet, "ns/gpu").refusals,
        [
            "resource vendor.com/gpu is named by NodeComponent other/card too: one owner must be chosen, since each would drain for the \
          other's upgrade"
        ]
    );
    assert!(view_of(&mut fleet, "other/card").refusals[0].contains("NodeComponent ns/gpu"));
    assert!(view_of(&mut fleet, "ns/nic").refusals.is_empty());
    fleet.put(component("other/card").resource("vendor.com/card"));
    assert!(view_of(&mut fleet, "ns/gpu").refusals.is_empty(), "the other one gave way");
    fleet.put(component("ns/a").driver("d.example")).put(component("ns/b").driver("d.example"));
    assert!(view_of(&mut fleet, "ns/b").refusals[0].starts_with("DRA driver d.example is named by NodeComponent ns/a too"));
}

#[test]
fn a_versioned_daemon_set_that_was_edited_is_an_anomaly_that_says_what_and_how_to_repair() {
    let block = component("ns/gpu").block("1");
    let made = || versioned_daemon_set(&key("ns/gpu"), DaemonSetRole::Loader, "1", &block);
    let anomalies = |change: fn(&mut crate::fleet::records::DaemonSetRecord)| {
        let mut set = made();
        change(&mut set);
        let mut fleet = fleet().with(component("ns/gpu").made("1"));
        fleet.put(crate::fleet::event::Record::DaemonSet(set));
        view_of(&mut fleet, "ns/gpu").anomalies.join("; ")
    };
    assert_eq!(anomalies(|_| {}), "");
    assert_eq!(anomalies(|set| set.generation = 3), "", "edited and put back");
    let said = anomalies(|set| {
        set.generation = 2;
        set.spec = Some(set.spec.clone().unwrap().replace("loader:1", "loader:9").into());
    });
    assert!(said.contains("spec.template.spec.containers[0].image is not what version 1 was made with"), "{said}");
    assert!(said.contains(&format!("kubectl rollout undo daemonset/{} -n ns", set_name(DaemonSetRole::Loader, "1"))), "{said}");
    assert!(anomalies(|set| set.on_delete = false).contains("updateStrategy"), "strategy");
    assert!(anomalies(|set| set.node_selector.clear()).contains("nodeSelector"), "selector");
    assert!(
        anomalies(|set| {
            set.annotations.insert(keys::CONTENT.into(), "0".into());
        })
        .contains("content")
    );
    assert!(
        anomalies(|set| {
            set.annotations.remove(keys::BLOCK);
        })
        .contains("no longer records what version 1 is")
    );
}

#[test]
fn a_versioned_daemon_set_that_was_deleted_is_an_anomaly_once_nodes_use_the_version() {
    let deleted = |role| key(&format!("ns/{}", set_name(role, "1")));
    let mut fleet = fleet().with(component("ns/gpu").version("2").made("1")).with(node("n1"));
    fleet.gone(Kind::DaemonSet, deleted(DaemonSetRole::Plugin));
    assert!(view_of(&mut fleet, "ns/gpu").anomalies.is_empty(), "nobody uses it");
    fleet.put(node("n1").runs("ns/gpu", "1"));
    let said = view_of(&mut fleet, "ns/gpu").anomalies.join("; ");
    assert!(said.contains("the plugin of version 1, was deleted while 1 nodes use it"), "{said}");
    fleet.gone(Kind::DaemonSet, deleted(DaemonSetRole::Loader));
    let said = view_of(&mut fleet, "ns/gpu").anomalies.join("; ");
    assert!(said.contains("the loader of version 1 and the record of its content, was deleted"), "{said}");
    fleet.put(node("n1").desired("ns/gpu", "2.o"));
    assert!(view_of(&mut fleet, "ns/gpu").anomalies.is_empty(), "a typo on a node is that node's matter");
}

#[test]
fn a_daemon_set_with_our_labels_that_we_did_not_make_is_an_anomaly() {
    let mut fleet = fleet().with(component("ns/gpu").made("1"));
    fleet.put(daemon_set("ns/copy").but(|set| {
        set.labels = std::sync::Arc::new([(keys::COMPONENT.into(), "gpu".into())].into());
    }));
    let said = view_of(&mut fleet, "ns/gpu").anomalies.join("; ");
    assert!(said.starts_with("DaemonSet ns/copy carries labels of component ns/gpu but is none that lockkeeper made"), "{said}");
}
