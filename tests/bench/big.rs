//! Projection and decision over 5,000 nodes and 150,000 pods, from cold and after one thing has changed.

use std::{
    collections::{BTreeMap, BTreeSet},
    hint::black_box,
    sync::Arc,
    time::Instant,
};

use lockkeeper::{
    api::{
        Phase,
        handoff::{CordonRecord, RunPolicy},
        keys::Role,
    },
    fleet::{Fleet, build::*, event::*, view::FleetView},
    handoff::{
        decide::{Decisions, decide_fleet},
        facts::Context,
        observed::Observed,
    },
};

use super::Budget;

const NODES: usize = 5_000;
const PODS_A_NODE: usize = 30;
const IN_FLIGHT: usize = 20;
const GPU: &str = "vendor.com/gpu";

/// Three pods of a node claim the device, one has no budget; loader and plugin pods on every node; a budget for each application; every node
/// that is not being handed over waits for its turn, as in a rollout, but for 30.
fn records() -> Vec<Record> {
    let many = u32::try_from(IN_FLIGHT).unwrap_or(u32::MAX);
    let gpu = component("ns/gpu").version("2").made("1").made("2").rollout(|rollout| rollout.max_unavailable = many);
    let mut records = gpu.records();
    let mut slots = lease("me");
    records.extend(component("ns/nic").resource("vendor.com/nic").on_nodes("nic", "yes").made("1").records());
    for number in 0..NODES {
        let name = format!("node-{number:05}");
        records.extend(device_node(number).renewed(at(0)).records());
        records.extend(loader_pod("ns/gpu", "1", &name).records());
        records.extend(plugin_pod("ns/gpu", "1", &name).records());
        for pod_number in 2..PODS_A_NODE {
            records.extend(application_pod(number, pod_number).records());
        }
    }
    for application in 0..NODES {
        records.extend(application_budget(application, 3).records());
    }
    for number in 0..IN_FLIGHT {
        let name = format!("node-{:05}", number * 100);
        records.extend(in_flight(number, Phase::Draining).records());
        slots = slots.slot(&name, "ns/gpu");
    }
    for number in (0..NODES).filter(|number| number % 100 != 0) {
        records.extend(handoff("ns/gpu", &format!("node-{number:05}")).to("2").phase(Phase::Queued, at(-60)).records());
    }
    records.extend(slots.records());
    records
}

fn device_node(number: usize) -> NodeBuilder {
    let name = format!("node-{number:05}");
    let made = node(&name).runs("ns/gpu", "1").allocatable(GPU, 8).label("zone", &format!("z{}", number % 3));
    let closed = number.is_multiple_of(100) && number / 100 < IN_FLIGHT;
    let made = if closed { made.cordoned_for("ns/gpu") } else { made };
    if number.is_multiple_of(2) { made.label("nic", "yes").role(Role::Desired, "ns/nic", "1") } else { made }
}

/// One of the handoffs in flight, by its number.
fn in_flight(number: usize, phase: Phase) -> HandoffBuilder {
    let name = format!("node-{:05}", number * 100);
    let run = serde_json::json!({
        "attempt": 1, "target": "2", "from": "1", "policy": RunPolicy::default(), "baseline": {GPU: 8},
        "nodeUid": format!("uid-Node-{name}"), "bootId": "boot-1", "epoch": 1, "startedAt": at(-60).to_string(),
    });
    handoff("ns/gpu", &name).to("2").phase(phase, at(-30)).status(|status| {
        status.run = serde_json::from_value(run).ok();
        status.cordon = Some(CordonRecord { ours: true, at: at(-50).to_string() });
    })
}

fn application_budget(application: usize, allowed: i32) -> BudgetBuilder {
    budget(&format!("team-{}/app-{application}", application % 50)).selects("app", &format!("app-{application}")).counts(
        20 + allowed,
        20,
        28,
    )
}

/// The application of a node's pod; the first of a node has none, and so no budget.
fn application(node: usize, number: usize) -> usize {
    (node * PODS_A_NODE + number) % NODES
}

fn application_pod(node: usize, number: usize) -> PodBuilder {
    let application = application(node, number);
    let made = pod(&format!("team-{}/app-{application}-{node}-{number}", application % 50))
        .on(&format!("node-{node:05}"))
        .owned_by("ReplicaSet", &format!("app-{application}"));
    let made = if number == 2 { made } else { made.label("app", &format!("app-{application}")) };
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

/// What the engine's loop holds between two thoughts.
pub struct Loop {
    fleet: Fleet,
    observed: Observed,
    context: Context,
    decisions: Option<Decisions>,
}

impl Loop {
    pub fn new(records: Vec<Record>) -> Self {
        let context = Context {
            lease_held: true,
            epoch: 1,
            identity: "me".into(),
            cluster_max_unavailable: u32::try_from(IN_FLIGHT).unwrap_or(u32::MAX),
            read_only: false,
        };
        Self { fleet: filled(records), observed: Observed::default(), context, decisions: None }
    }

    /// Projects and decides; the seconds of both.
    pub fn think(&mut self, now: i64) -> (Arc<FleetView>, [f64; 2]) {
        let began = Instant::now();
        let view = black_box(self.fleet.project(at(now)));
        let projected = began.elapsed();
        self.observed.observe(&view);
        let before = self.decisions.take();
        let decisions = decide_fleet(&view, &self.observed, &self.context, before, &BTreeSet::new());
        self.decisions = Some(black_box(decisions));
        (view, [projected.as_secs_f64(), (began.elapsed() - projected).as_secs_f64()])
    }

    pub fn tell(&mut self, version: usize, records: Vec<Record>) {
        for mut record in records {
            let version = (1_000 + version).to_string().into();
            match &mut record {
                Record::Pod(it) => it.meta.resource_version = version,
                Record::Node(it) => it.meta.resource_version = version,
                Record::Budget(it) => it.meta.resource_version = version,
                Record::Handoff(it) => it.meta.resource_version = version,
                Record::Attachment(it) => it.meta.resource_version = version,
                Record::CsiNode(it) => it.meta.resource_version = version,
                _ => {}
            }
            self.fleet.apply(record.kind(), Event::Apply(record));
        }
    }
}

/// What is different in a round, and how many nodes are judged again for it.
type Change = fn(usize) -> Vec<Record>;

const CHANGES: [(&str, Change, usize); 5] = [
    ("a pod without a budget", |round| changed_pod(round, 2).records(), 1),
    (
        "a pod and its PodDisruptionBudget's status",
        |round| {
            let (node, number) = (round * 37 % NODES, 3 + round % 27);
            let mut records = changed_pod(round, number).records();
            records.extend(application_budget(application(node, number), i32::from(round.is_multiple_of(2))).records());
            records
        },
        1,
    ),
    ("a node's status", |round| device_node(round * 37 % NODES).allocatable("vendor.com/other", (round % 7) as i64).records(), 1),
    (
        "a handoff's status",
        |round| {
            let phase = if (round / IN_FLIGHT).is_multiple_of(2) { Phase::Detaching } else { Phase::Draining };
            in_flight(round % IN_FLIGHT, phase).records()
        },
        1,
    ),
    ("nothing but the time", |_| Vec::new(), 0),
];

/// It becomes ready or not, which its budget counts.
fn changed_pod(round: usize, number: usize) -> PodBuilder {
    let made = application_pod(round * 37 % NODES, number);
    if round.is_multiple_of(2) { made.not_ready() } else { made.priority(7) }
}

pub fn project(budget: &mut Budget<'_>) {
    println!(
        "project and decide over {NODES} nodes and {} pods, {IN_FLIGHT} handoffs in flight, 4,950 nodes queued",
        NODES * PODS_A_NODE
    );
    let records = records();
    let least = floor(&records);
    let mut cold = [f64::MAX; 2];
    let mut engine = Loop::new(Vec::new());
    for _ in 0..3 {
        engine = Loop::new(records.clone());
        let (view, spent) = engine.think(0);
        cold = [cold[0].min(spent[0]), cold[1].min(spent[1])];
        assert_eq!(view.nodes.len(), NODES);
        let queued = engine.decisions.as_ref().map(|it| it.queue.len_of(&key("ns/gpu")));
        assert_eq!(queued, Some(4_950));
    }
    drop(records);
    let from_cold = cold[0] + cold[1];
    println!("  from cold: project {:.1} ms, decide {:.1} ms, together {:.1} ms", cold[0] * 1e3, cold[1] * 1e3, from_cold * 1e3);
    println!(
        "  floor of cold, each pod looked at once: {:.1} ms; cold is {:.1} times that",
        least[0] * 1e3,
        from_cold / least[0]
    );
    println!("  floor of a change, one record put into a map of all pods: {:.2} us", least[1] * 1e6);
    let mut view = engine.think(0).0;
    let mut version = 0;
    for (name, change, nodes) in CHANGES {
        let mut each = [Vec::new(), Vec::new(), Vec::new()];
        for round in 0..400usize {
            version += 1;
            let records = change(round);
            let began = Instant::now();
            engine.tell(version, records);
            let told = began.elapsed().as_secs_f64();
            let (next, spent) = engine.think(1 + (version / 50) as i64);
            each[0].push(told + spent[0]);
            each[1].push(spent[1]);
            each[2].push(told + spent[0] + spent[1]);
            assert_eq!(next.changes.nodes.len(), nodes, "{name}");
            view = next;
        }
        let median = each.each_ref().map(|times| quantile(times, 50) * 1e6);
        println!(
            "  {name}: project {:.1} us, decide {:.1} us, together {:.1} us (99th percentile {:.1} us), {:.1} times the floor",
            median[0],
            median[1],
            median[2],
            quantile(&each[2], 99) * 1e6,
            median[2] / least[1] / 1e6,
        );
        budget(&format!("{name}, of cold"), median[2] / 1e6 / from_cold * 500.0, 1.0, "of 1/500");
    }
    drop(view);
}

/// Seconds to look at every pod once, and to put one into a map of all.
fn floor(records: &[Record]) -> [f64; 2] {
    let mut pods = BTreeMap::new();
    for record in records {
        if let Record::Pod(pod) = record {
            pods.insert(pod.key.clone(), Arc::new(pod.clone()));
        }
    }
    let mut least = [f64::MAX; 2];
    for _ in 0..5 {
        let began = Instant::now();
        let looked = pods.values().filter(|pod| pod.ready.is_true() && pod.labels.len() < 9 && pod.owner.is_some()).count();
        black_box(looked);
        least[0] = least[0].min(began.elapsed().as_secs_f64());
    }
    let mut times = Vec::new();
    for round in 0..400 {
        let pod = changed_pod(round, 2).build();
        let began = Instant::now();
        black_box(pods.insert(pod.key.clone(), Arc::new(pod)));
        times.push(began.elapsed().as_secs_f64());
    }
    least[1] = quantile(&times, 50);
    least
}

pub fn quantile(times: &[f64], percent: usize) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get((sorted.len() * percent / 100).min(sorted.len().saturating_sub(1))).copied().unwrap_or(0.0)
}
