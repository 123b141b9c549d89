//! Incremental projection: the same picture as from cold, and nothing touched that did not change.

use std::{collections::BTreeSet, sync::Arc};

use proptest::prelude::*;

use crate::{
    api::{NodeName, Phase, Uid},
    fleet::{Fleet, build::*, event::*, occupancy::NodeFacts, view::*},
};

const GPU: &str = "vendor.com/gpu";
const DRIVER: &str = "gpu.vendor.com";

/// Everything of a picture but what counts pictures.
fn content(view: &FleetView) -> String {
    format!(
        "{:#?}\n{:#?}\n{:#?}\n{:#?}\n{:#?}\n{:#?}\n{:#?}\n{:#?}",
        view.components, view.nodes, view.handoffs, view.lease, view.budgets, view.daemon_sets, view.occupied, view.rules
    )
}

/// The same objects taken in at once.
fn from_cold(records: &[Record]) -> Arc<FleetView> {
    let mut fleet = Fleet::default();
    for kind in Kind::ALL {
        fleet.apply(kind, Event::Init);
        let records = records.iter().filter(|record| record.kind() == kind).cloned().collect();
        fleet.apply(kind, Event::Page { records, undecodable: Vec::new() });
        fleet.apply(kind, Event::InitDone { resource_version: "".into() });
    }
    fleet.project(at(0))
}

#[test]
fn one_changed_pod_changes_its_node_and_nothing_else() {
    let mut fleet = fleet().with(component("ns/gpu").made("1"));
    for number in 0..20 {
        let name = format!("n{number}");
        fleet.put(node(&name).runs("ns/gpu", "1"));
        fleet.put(pod(&format!("a/p{number}")).on(&name).claims(GPU, 1).owned_by("ReplicaSet", "p"));
    }
    let before = fleet.project(at(0));
    fleet.put(pod("a/p7").on("n7").claims(GPU, 1).owned_by("ReplicaSet", "p").terminating(at(30)));
    let after = fleet.project(at(1));
    assert_eq!(after.changes.nodes, BTreeSet::from([NodeName::from("n7")]));
    assert!(after.changes.components.is_empty() && !after.changes.all_nodes);
    for (old, new) in before.nodes.iter().zip(after.nodes.iter()) {
        assert_eq!(Arc::ptr_eq(old, new), old.name != "n7", "{}", old.name);
    }
    assert!(Arc::ptr_eq(&before.components[&key("ns/gpu")], &after.components[&key("ns/gpu")]));
    assert!(Arc::ptr_eq(&before.budgets, &after.budgets) && Arc::ptr_eq(&before.rules, &after.rules));
    let same = fleet.project(at(2));
    assert!(Arc::ptr_eq(&after.nodes, &same.nodes) && same.changes.nodes.is_empty());
    assert_eq!(same.generation, after.generation + 1);
}

#[test]
fn a_status_write_of_a_component_judges_no_node_again() {
    let mut fleet = fleet().with(component("ns/gpu").made("1")).with(node("n1"));
    fleet.project(at(0));
    let mut record = component("ns/gpu").build();
    record.status.nodes.total = 1;
    fleet.put(Record::Component(record));
    let view = fleet.project(at(1));
    assert!(view.changes.nodes.is_empty() && !view.changes.all_nodes);
    assert_eq!(view.components[&key("ns/gpu")].record.status.nodes.total, 1);
}

#[test]
fn a_renewed_lease_of_a_node_changes_only_that() {
    let mut fleet = fleet().with(component("ns/gpu")).with(node("n1").renewed(at(0)));
    let before = fleet.project(at(0));
    fleet.put(node("n1").renewed(at(10)).records().remove(1));
    let after = fleet.project(at(10));
    assert_eq!(after.nodes[0].lease.as_ref().and_then(|lease| lease.renewed), Some(at(10)));
    assert!(Arc::ptr_eq(&before.nodes[0].components[&key("ns/gpu")], &after.nodes[0].components[&key("ns/gpu")]));
}

#[test]
fn g34_the_only_claimant_on_the_third_page_is_found_and_nothing_is_ready_before() {
    let mut fleet = fleet().with(component("ns/gpu")).with(node("n1")).fleet;
    fleet.apply(Kind::Pod, Event::Init);
    let mut numbers = (0..1750).peekable();
    while numbers.peek().is_some() {
        let page = numbers.by_ref().take(500).map(|number| {
            let pod = pod(&format!("a/p{number:04}")).on("n1").owned_by("ReplicaSet", "p");
            Record::Pod(if number == 1200 { pod.claims(GPU, 1) } else { pod }.build())
        });
        fleet.apply(Kind::Pod, Event::Page { records: page.collect(), undecodable: Vec::new() });
    }
    fleet.apply(Kind::Pod, Event::InitDone { resource_version: "".into() });
    let view = fleet.project(at(0));
    assert!(view.synced);
    let occupancy = &view.nodes[0].components[&key("ns/gpu")];
    assert_eq!(occupancy.claimants.iter().map(|it| it.pod.key.to_string()).collect::<Vec<_>>(), ["a/p1200"]);
    let mut unfinished = Fleet::default();
    for kind in Kind::ALL {
        unfinished.apply(kind, Event::Init);
        if kind != Kind::Pod {
            unfinished.apply(kind, Event::InitDone { resource_version: "".into() });
        }
    }
    assert!(!unfinished.project(at(0)).synced);
}

#[test]
fn a_kind_that_is_not_served_and_not_required_does_not_keep_the_rest_waiting() {
    let mut fleet = Fleet::default();
    for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::Claim) {
        fleet.apply(kind, Event::Init);
        fleet.apply(kind, Event::InitDone { resource_version: "".into() });
    }
    assert!(!fleet.is_synced());
    let state = WatchState::Unavailable { why: "not served".into() };
    let mut status = crate::fleet::follow::WatchStatus { required: true, state, last_event: None, errors: 1 };
    fleet.set_watch(Kind::Claim, status.clone());
    assert!(!fleet.is_synced());
    status.required = false;
    fleet.set_watch(Kind::Claim, status);
    let view = fleet.project(at(0));
    assert!(view.synced);
    let health = view.health.iter().find(|health| health.resource.starts_with("resourceclaims")).unwrap();
    assert!(matches!(health.state, WatchState::Unavailable { .. }));
}

#[test]
fn g01_a_replacement_under_the_same_name_on_another_node_leaves_the_first_node_empty() {
    let mut fleet = fleet().with(component("ns/gpu")).with(node("n1")).with(node("n2"));
    fleet.put(pod("a/db-0").uid("A").on("n1").claims(GPU, 1).owned_by("StatefulSet", "db"));
    fleet.project(at(0));
    // The delete of A was never told; only B is seen.
    fleet.put(pod("a/db-0").uid("B").on("n2").claims(GPU, 1).owned_by("StatefulSet", "db"));
    let view = fleet.project(at(1));
    let claimants = |name: &str| {
        let occupancy = &view.node(&NodeName::from(name)).unwrap().components[&key("ns/gpu")];
        occupancy.claimants.iter().map(|it| it.pod.meta.uid.to_string()).collect::<Vec<_>>()
    };
    assert_eq!((claimants("n1"), claimants("n2")), (vec![], vec!["B".to_owned()]));
    // And when A's end is told late, B stays.
    fleet.fleet.apply(Kind::Pod, Event::Delete(RecordKey { key: key("a/db-0"), uid: Uid::from("A") }));
    let view = fleet.project(at(2));
    assert_eq!(view.node(&NodeName::from("n2")).unwrap().pods.len(), 1);
}

#[test]
fn budgets_know_their_unhealthy_pods_and_what_their_owners_want() {
    let mut fleet = fleet()
        .with(budget("a/b").selects("app", "web").min_available("1").counts(1, 1, 2))
        .with(scale("ReplicaSet", "a/web", 2))
        .with(pod("a/w1").label("app", "web").on("n1").owned_by("ReplicaSet", "web"))
        .with(pod("a/w2").label("app", "web").on("n2").not_ready().owned_by("ReplicaSet", "web"))
        .with(pod("a/other").label("app", "db").on("n1"))
        .with(pod("b/w3").label("app", "web").on("n1"));
    let budget_view = |fleet: &mut FleetBuilder| BudgetView::clone(&fleet.project(at(0)).budgets[&key("a/b")]);
    let seen = budget_view(&mut fleet);
    assert_eq!((seen.selected, seen.wanted), (2, Some(2)));
    assert_eq!(seen.unhealthy, [Unhealthy { pod: key("a/w2"), node: Some(NodeName::from("n2")), terminating: false }]);
    fleet.put(scale("ReplicaSet", "a/web", 3));
    assert_eq!(budget_view(&mut fleet).wanted, Some(3));
    fleet.put(pod("a/w2").label("app", "web").on("n2").owned_by("ReplicaSet", "web"));
    assert!(budget_view(&mut fleet).unhealthy.is_empty());
    fleet.put(pod("a/w4").label("app", "web").on("n2"));
    assert_eq!(budget_view(&mut fleet).wanted, None, "nobody brings w4 back");
    fleet.gone(Kind::Pod, key("a/w4"));
    fleet.put(budget("a/b").selects("app", "db"));
    assert_eq!((budget_view(&mut fleet).selected, budget_view(&mut fleet).wanted), (1, None));
}

/// One step of a random story, over few names so that things meet.
fn step() -> impl Strategy<Value = (u8, u8, u8, u8)> {
    (0u8..14, 0u8..4, 0u8..4, 0u8..4)
}

fn record((what, a, b, c): (u8, u8, u8, u8)) -> Vec<Record> {
    let (n, p) = (format!("n{a}"), format!("a/p{b}"));
    match what {
        0 => node(&n).allocatable(GPU, i64::from(b)).label("gpu", if c == 0 { "no" } else { "yes" }).records(),
        1 => node(&n).label("gpu", "yes").runs("ns/gpu", &b.to_string()).renewed(at(i64::from(c))).records(),
        2 => pod(&p).on(&n).claims(GPU, i64::from(c)).label("app", "web").owned_by("ReplicaSet", "web").records(),
        3 => pod(&p).on(&n).claim(&format!("c{c}")).records(),
        4 => pod(&p).nominated(&n).claims(GPU, 1).volume_claim(&format!("v{c}")).records(),
        5 => pod(&p).claim(&format!("c{c}")).volume_claim(&format!("v{a}")).claims(GPU, 1).uid(&format!("u{a}")).records(),
        6 => {
            let made = claim(&format!("a/c{c}")).device(DRIVER, "p", "d");
            let made = if b == 0 { made } else { made.only_on(&n) };
            (if a == 0 { made } else { made.reserved_for(&format!("p{b}")) }).records()
        }
        7 => claim(&format!("a/c{c}")).device(DRIVER, "p", "d").reserved_for_other("podgroups.scheduling.k8s.io", "g").records(),
        8 => volume_claim(&format!("a/v{c}")).selected(&n).records(),
        9 => slice(&format!("s{b}"), DRIVER, &n, u32::from(c)).records(),
        10 => component("ns/gpu").on_nodes("gpu", "yes").version(&a.to_string()).made(&b.to_string()).records(),
        11 => component("ns/dra").driver(DRIVER).version("1").records(),
        12 => handoff("ns/gpu", &n).to(&b.to_string()).phase(Phase::ALL[usize::from(c)], at(0)).records(),
        _ => vec![
            Record::Budget(budget("a/b").selects("app", if a == 0 { "db" } else { "web" }).build()),
            Record::Scale(scale("ReplicaSet", "a/web", i32::from(c)).build()),
            Record::Lease(lease("me").slot(&n, "ns/gpu").build()),
            Record::DaemonSet(daemon_set("a/agent").requires(&format!("lockkeeper.dev/ready.ns.gp{b}")).build()),
        ],
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever comes in whatever order, with deletes and pictures in between: the last picture is the one from cold. And a node judged
    /// by fresh records of everything is the node of that picture.
    #[test]
    fn incremental_and_fresh_and_cold_agree(steps in prop::collection::vec((step(), any::<bool>(), 0u8..6), 1..60)) {
        let mut story = fleet();
        let mut kept: Vec<Record> = Vec::new();
        for (step, look, delete) in steps {
            for record in record(step) {
                if delete == 0 {
                    story.gone(record.kind(), record.key());
                    kept.retain(|known| (known.kind(), known.key()) != (record.kind(), record.key()));
                } else {
                    story.put(record.clone());
                    kept.retain(|known| (known.kind(), known.key()) != (record.kind(), record.key()));
                    kept.push(record);
                }
            }
            if look {
                story.project(at(0));
            }
        }
        let view = story.project(at(0));
        let cold = from_cold(&kept);
        // Builders count resource versions up, the cold fleet has them as built.
        let strip = |text: String| text.lines().filter(|line| !line.contains("resource_version")).collect::<Vec<_>>().join("\n");
        let (left, right) = (strip(content(&view)), strip(content(&cold)));
        let difference = left.lines().zip(right.lines()).find(|(a, b)| a != b);
        prop_assert!(left == right, "incremental {:?}", difference);

        for judged in cold.nodes.iter() {
            let mut facts = NodeFacts::new(judged.name.clone());
            for record in kept.iter().cloned() {
                match record {
                    Record::Node(it) if it.name == judged.name => facts.record = Some(Arc::new(it)),
                    Record::NodeLease(it) if it.node == judged.name => facts.lease = Some(Arc::new(it)),
                    Record::Pod(it) if it.node.is_some() => facts.pods.push(Arc::new(it)),
                    Record::Pod(it) => facts.unbound.push(Arc::new(it)),
                    Record::Claim(it) => {
                        facts.claims.insert(it.key.clone(), Arc::new(it));
                    }
                    Record::VolumeClaim(it) => {
                        facts.volume_claims.insert(it.key.clone(), Arc::new(it));
                    }
                    Record::Slice(it) => facts.slices.push(Arc::new(it)),
                    Record::Handoff(it) => facts.handoffs.push(Arc::new(it)),
                    _ => {}
                }
            }
            prop_assert_eq!(&facts.view(&cold.rules), &**judged);
        }
    }
}
