//! What the component's status, its waits and its plan tell of a nodeplugin, in words and columns.

use super::*;
use crate::{
    console::plan::{Plan, Request, from_facts},
    engine::{
        intent::NodeTarget,
        picture::{Mode, Picture},
    },
    handoff::tests::printed,
};

fn picture(mut fleet: FleetBuilder) -> Picture {
    Picture { fleet: fleet.project(at(NOW)), ..Picture::empty(Default::default(), Mode::ReadOnly) }
}

fn planned(fleet: FleetBuilder) -> Plan {
    let node = NodeTarget { node: "n1".into(), uid: Some("uid-Node-n1".into()) };
    from_facts(&picture(fleet), &Request { component: key(KEY), nodes: vec![node], to: "new".into() })
}

fn condition(mut fleet: FleetBuilder, kind: &str) -> crate::api::component::Condition {
    let view = fleet.project(at(NOW));
    let context = Context { lease_held: true, epoch: 1, identity: "me".into(), cluster_max_unavailable: 1, read_only: false };
    let mut observed = Observed::default();
    observed.observe(&view);
    let decisions = decide_fleet(&view, &observed, &context, None, &BTreeSet::new());
    let status = crate::handoff::component::status(&view.components[&key(KEY)], &decisions.tallies[&key(KEY)], at(NOW));
    status.conditions.into_iter().find(|it| it.kind == kind).expect(kind)
}

/// The plugin pod was replaced by a hand, under a mount that died with it.
fn unplanned() -> FleetBuilder {
    let container = crate::fleet::records::ContainerRecord {
        last_exit: None,
        last_message: Default::default(),
        name: "csi-cephfsplugin".into(),
        init: false,
        ready: true,
        restarts: 0,
        state: crate::fleet::records::ContainerState::Running { since: Some(at(-20)) },
    };
    let new = plugin_pod("csi-new", "new").created(at(-20)).but(|pod| {
        pod.extra.get_or_insert_default().containers = vec![container];
    });
    let since = revision(SET, "new", 2, "template-new").but(|it| it.meta.created = Some(at(-60)));
    let mut fleet = story().with(since).with(new).with(app("a")).with(fuse("a"));
    fleet.gone(crate::fleet::event::Kind::Pod, key("ceph/csi-old"));
    fleet
}

#[test]
fn kubectls_version_column_shows_the_current_revision_or_the_remount() {
    let shown = |mut fleet: FleetBuilder| {
        let view = fleet.project(at(NOW));
        let component = &view.components[&key(KEY)];
        let status = crate::handoff::component::status(component, &Default::default(), at(NOW));
        printed(&status, "Version")
    };
    assert_eq!(shown(story()).as_deref(), Some("new"));
    let remount = csi_component(|_| {})
        .spec(|spec| spec.csi_node_plugin = Some(CsiNodePlugin { remount: Some("keys-1".into()), ..plugin() }));
    assert_eq!(shown(story().with(remount)).as_deref(), Some("keys-1"));
}

#[test]
fn a_silent_upgrade_is_an_anomaly_with_the_nodes_name_and_the_way_out() {
    let said = condition(unplanned(), "Anomaly");
    assert_eq!(said.status, "True");
    assert!(said.message.starts_with("UnplannedUpgrade on n1: ") && said.message.contains("shop/a"), "{}", said.message);
    assert_eq!(condition(story(), "Anomaly").status, "False");
}

#[test]
fn content_of_a_nodeplugin_has_nothing_to_do_with_kernel_modules() {
    let said = condition(story(), "SpecChangedWithoutVersion");
    assert!(said.status == "False" && !said.message.contains("kernelModule"), "{}", said.message);
    assert!(said.message.contains("revision"), "{}", said.message);
}

#[test]
fn the_plan_of_a_nodeplugin_names_each_pod_that_is_deleted_under_its_step() {
    let plan = planned(story().with(app("a")).with(fuse("a")));
    let changes: Vec<String> =
        plan.nodes[0].steps.iter().flat_map(|step| &step.changes).map(|it| format!("{} {}", it.phase, it.object)).collect();
    assert_eq!(changes, ["Cordoning Node n1", "ReplacingPod Pod ceph/csi-old", "Uncordoning Node n1"]);
}

#[test]
fn a_node_is_not_said_to_be_done_while_pods_have_to_leave_it_or_mounts_are_dead() {
    let done = |plan: &Plan| plan.nodes[0].warnings.iter().any(|told| told.contains("Done without a write"));
    let plan = planned(unplanned());
    assert!(!done(&plan) && plan.nodes[0].pods.len() == 1 && !plan.nodes[0].steps.is_empty(), "{plan:?}");
    // Nobody is evicted, and the dead mount is there all the same.
    let none =
        csi_component(|_| {}).spec(|spec| spec.csi_node_plugin = Some(CsiNodePlugin { drain: VolumeDrain::None, ..plugin() }));
    let plan = planned(unplanned().with(none));
    assert!(!done(&plan), "{plan:?}");
    let mut right = story().with(plugin_pod("csi-new", "new"));
    right.gone(crate::fleet::event::Kind::Pod, key("ceph/csi-old"));
    let plan = planned(right);
    assert!(done(&plan) && plan.nodes[0].steps.is_empty(), "{plan:?}");
}

#[test]
fn a_handoff_without_a_version_that_is_queued_is_to_what_is_current() {
    let queued = handoff(KEY, "n1").spec(|spec| spec.version = None);
    let picture = picture(story().with(queued));
    let report = crate::cli::plan::report(&picture, &key(KEY), &["n1".to_owned()], None).unwrap();
    let [told] = &report.nodes[0].warnings[..] else { panic!("{report:?}") };
    assert!(told.contains("to what is current (new now) is queued already") && !told.contains("out of service"), "{told}");
}
