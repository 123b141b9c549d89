//! What the facts of CSI volumes cost over 5,000 nodes and 150,000 pods, beside the same objects when no component asks for them.

use std::sync::Arc;

use lockkeeper::{
    api::{component::CsiNodePlugin, duration::Duration},
    fleet::{build::*, csi::REVISION_HASH, event::Record},
};

use super::{
    Budget,
    big::{Loop, quantile},
};

const NODES: usize = 5_000;
const PODS_A_NODE: usize = 30;
/// Of a node's pods: FUSE, kernel, and rbd-like ones by turns.
const WITH_VOLUME: usize = 6;
const DRIVER: &str = "cephfs.csi.ceph.com";
const SET: &str = "ceph/csi-cephfsplugin";

fn node_name(number: usize) -> String {
    format!("node-{number:05}")
}

fn plugin(number: usize) -> PodBuilder {
    let made = pod(&format!("ceph/csi-{number:05}")).owned_by("DaemonSet", "csi-cephfsplugin").on(&node_name(number));
    made.label(REVISION_HASH, "old").created(at(-500))
}

fn app(node: usize, number: usize) -> PodBuilder {
    let name = format!("app-{node}-{number}");
    let made = pod(&format!("shop/{name}")).owned_by("ReplicaSet", &format!("app-{number}")).on(&node_name(node));
    if number < WITH_VOLUME {
        made.volume_claim(&name).but(|pod| pod.extra.get_or_insert_default().mounted = Some(at(-100)))
    } else {
        made
    }
}

fn of_claim(node: usize, number: usize) -> Vec<Record> {
    let (claim, volume_name) = (format!("shop/app-{node}-{number}"), format!("pv-{node}-{number}"));
    let mounter = ["fuse", "kernel", "kernel"][number % 3];
    let mut records = volume_claim(&claim).to_volume(&volume_name).records();
    records.extend(volume(&volume_name, DRIVER, &claim).attribute("mounter", mounter).records());
    records.extend(attached(node, number, true));
    records
}

fn attached(node: usize, number: usize, attached: bool) -> Vec<Record> {
    let name = format!("pv-{node}-{number}");
    attachment(&format!("csi-{node}-{number}"), DRIVER, &node_name(node), &name).but(|it| it.attached = attached).records()
}

fn records(asked: bool) -> Vec<Record> {
    let mut records = nodeplugin(SET, DRIVER, "template-new").records();
    records.extend(revision(SET, "old", 1, "template-old").records());
    records.extend(revision(SET, "new", 2, "template-new").records());
    records.extend(csi_driver(DRIVER, true).records());
    if asked {
        let component = component("ceph/cephfs").spec(|spec| {
            spec.version.clear();
            spec.kernel_module = None;
            spec.csi_node_plugin = Some(CsiNodePlugin {
                driver: DRIVER.into(),
                daemon_set: None,
                drain: Default::default(),
                at_risk_attributes: Default::default(),
                settle: Duration::from_secs(15),
                remount: None,
            });
        });
        records.extend(component.records());
    }
    for number in 0..NODES {
        records.extend(node(&node_name(number)).renewed(at(0)).records());
        records.extend(csi_node(&node_name(number), &[DRIVER]).records());
        records.extend(plugin(number).records());
        for pod_number in 0..PODS_A_NODE - 1 {
            records.extend(app(number, pod_number).records());
        }
        for pod_number in 0..WITH_VOLUME {
            records.extend(of_claim(number, pod_number));
        }
    }
    records.extend(lease("me").records());
    records
}

type Change = fn(usize) -> Vec<Record>;

/// What is different in a round.
const CHANGES: [(&str, Change); 4] = [
    ("a pod with a volume", |round| {
        let made = app(round * 37 % NODES, round % WITH_VOLUME);
        if round.is_multiple_of(2) { made.not_ready() } else { made }.records()
    }),
    ("a VolumeAttachment", |round| attached(round * 37 % NODES, round % WITH_VOLUME, !round.is_multiple_of(2))),
    ("a nodeplugin's pod", |round| {
        let made = plugin(round * 37 % NODES);
        if round.is_multiple_of(2) { made.not_ready() } else { made }.records()
    }),
    ("a CSINode", |round| {
        let drivers: &[&str] = if round.is_multiple_of(2) { &[] } else { &[DRIVER] };
        csi_node(&node_name(round * 37 % NODES), drivers).records()
    }),
];

struct Cost {
    cold: f64,
    changes: Vec<f64>,
}

fn cost(asked: bool) -> Cost {
    let records = records(asked);
    let mut cold = f64::MAX;
    let mut engine = Loop::new(Vec::new());
    for _ in 0..3 {
        engine = Loop::new(records.clone());
        let (view, spent) = engine.think(0);
        cold = cold.min(spent[0] + spent[1]);
        let judged = view.nodes.iter().filter(|node| node.components.values().any(|it| it.csi.is_some())).count();
        assert_eq!(judged, if asked { NODES } else { 0 });
        if asked {
            let leave: usize = view.nodes.iter().flat_map(|node| node.components.values()).map(|it| it.claimants.len()).sum();
            assert_eq!(leave, NODES * WITH_VOLUME / 3, "those with FUSE, and no others");
        }
    }
    let mut version = 0;
    let changes = CHANGES.iter().map(|(_, change)| {
        let mut times = Vec::new();
        for round in 0..400usize {
            version += 1;
            let records = change(round);
            let began = std::time::Instant::now();
            engine.tell(version, records);
            let told = began.elapsed().as_secs_f64();
            let (view, spent) = engine.think(1 + (version / 50) as i64);
            times.push(told + spent[0] + spent[1]);
            drop(Arc::clone(&view));
        }
        quantile(&times, 50)
    });
    Cost { cold, changes: changes.collect() }
}

/// One that is changed costs work for its node only, whoever asks.
pub fn volumes(budget: &mut Budget<'_>) {
    println!("CSI volumes over {NODES} nodes and {} pods, {} of them with one", NODES * PODS_A_NODE, NODES * WITH_VOLUME);
    let (floor, ours) = (cost(false), cost(true));
    println!(
        "  from cold, project and decide: {:.1} ms; floor, nobody asks and so nothing is judged: {:.1} ms; {:.1} times that",
        ours.cold * 1e3,
        floor.cold * 1e3,
        ours.cold / floor.cold
    );
    for (((name, _), ours_us), floor_us) in CHANGES.iter().zip(&ours.changes).zip(&floor.changes) {
        let times = ours_us / floor_us;
        println!("  {name}: {:.1} us; floor, nobody asks: {:.1} us; {times:.1} times that", ours_us * 1e6, floor_us * 1e6);
        budget(&format!("{name}, of cold"), ours_us / ours.cold * 500.0, 1.0, "of 1/500");
    }
}
