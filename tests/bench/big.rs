//! Projection over 5,000 nodes and 150,000 pods, from cold and after one changed pod.

use std::{hint::black_box, time::Instant};

use lockkeeper::{
    api::{Phase, keys::Role},
    fleet::{Fleet, build::*, event::*},
};

use super::Budget;

const NODES: usize = 5_000;
const PODS_A_NODE: usize = 30;
const IN_FLIGHT: usize = 20;
const GPU: &str = "vendor.com/gpu";

/// One pod in ten claims the device; loader and plugin pods on every node; a budget for each application.
fn records() -> Vec<Record> {
    let mut records = component("ns/gpu").version("2").made("1").made("2").records();
    records.extend(component("ns/nic").resource("vendor.com/nic").on_nodes("nic", "yes").made("1").records());
    for number in 0..NODES {
        let name = format!("node-{number:05}");
        let made = node(&name).runs("ns/gpu", "1").allocatable(GPU, 8).label("zone", &format!("z{}", number % 3)).renewed(at(0));
        let made = if number % 2 == 0 { made.label("nic", "yes").role(Role::Desired, "ns/nic", "1") } else { made };
        records.extend(made.records());
        records.extend(loader_pod("ns/gpu", "1", &name).records());
        records.extend(plugin_pod("ns/gpu", "1", &name).records());
        for pod_number in 2..PODS_A_NODE {
            records.extend(application_pod(number, pod_number).records());
        }
    }
    for application in 0..NODES {
        records.extend(
            budget(&format!("team-{}/app-{application}", application % 50))
                .selects("app", &format!("app-{application}"))
                .records(),
        );
    }
    for number in 0..IN_FLIGHT {
        let made = handoff("ns/gpu", &format!("node-{:05}", number * 100)).to("2").phase(Phase::Draining, at(0));
        records.extend(made.records());
    }
    records
}

fn application_pod(node: usize, number: usize) -> PodBuilder {
    let application = (node * PODS_A_NODE + number) % NODES;
    let made = pod(&format!("team-{}/app-{application}-{node}-{number}", application % 50))
        .on(&format!("node-{node:05}"))
        .label("app", &format!("app-{application}"))
        .owned_by("ReplicaSet", &format!("app-{application}"));
    if number % 10 == 3 { made.claims(GPU, 1) } else { made }
}

fn filled(records: Vec<Record>) -> Fleet {
    let mut fleet = Fleet::default();
    for kind in Kind::ALL {
        fleet.apply(kind, Event::Init);
    }
    for record in records {
        fleet.apply(record.kind(), Event::Page { records: vec![record], undecodable: Vec::new() });
    }
    for kind in Kind::ALL {
        fleet.apply(kind, Event::InitDone { resource_version: "".into() });
    }
    fleet
}

pub fn project(budget: &mut Budget<'_>) {
    println!("project over {NODES} nodes and {} pods, {IN_FLIGHT} handoffs in flight", NODES * PODS_A_NODE);
    let records = records();
    let mut cold = f64::MAX;
    let mut fleet = Fleet::default();
    for _ in 0..3 {
        fleet = filled(records.clone());
        let began = Instant::now();
        let view = black_box(fleet.project(at(0)));
        cold = cold.min(began.elapsed().as_secs_f64());
        assert_eq!(view.nodes.len(), NODES);
    }
    drop(records);
    let mut view = fleet.project(at(0));
    let mut each = Vec::new();
    for round in 0..400usize {
        let made = application_pod(round * 37 % NODES, 3 + round % 27);
        let mut pod = if round % 2 == 0 { made.terminating(at(60)) } else { made.not_ready() }.build();
        pod.meta.resource_version = (1_000 + round).to_string().into();
        let began = Instant::now();
        fleet.apply(Kind::Pod, Event::Apply(Record::Pod(pod)));
        let next = black_box(fleet.project(at(0)));
        each.push(began.elapsed().as_secs_f64());
        assert_eq!(next.changes.nodes.len(), 1);
        view = next;
    }
    drop(view);
    each.sort_by(f64::total_cmp);
    let (median, worst) = (each[each.len() / 2], each[each.len() * 99 / 100]);
    println!("  from cold: {:.1} ms", cold * 1e3);
    println!("  after one changed pod: median {:.1} us, 99th percentile {:.1} us", median * 1e6, worst * 1e6);
    budget("after one changed pod / from cold", median / cold * 500.0, 1.0, "of 1/500");
}
