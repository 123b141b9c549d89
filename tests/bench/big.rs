//! Projection and decision over 5,000 nodes and 150,000 pods, from cold and after one changed pod.

use std::{collections::BTreeSet, hint::black_box, sync::Arc, time::Instant};

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

/// One pod in ten claims the device; loader and plugin pods on every node; a budget for each application. With `queue`, every node that
/// is not being handed over waits for its turn, as in a rollout.
fn records(queue: bool) -> Vec<Record> {
    let many = u32::try_from(IN_FLIGHT).unwrap_or(u32::MAX);
    let gpu = component("ns/gpu").version("2").made("1").made("2").rollout(|rollout| rollout.max_unavailable = many);
    let mut records = gpu.records();
    let mut slots = lease("me");
    records.extend(component("ns/nic").resource("vendor.com/nic").on_nodes("nic", "yes").made("1").records());
    for number in 0..NODES {
        let name = format!("node-{number:05}");
        let made = node(&name).runs("ns/gpu", "1").allocatable(GPU, 8).label("zone", &format!("z{}", number % 3)).renewed(at(0));
        let closed = number % 100 == 0 && number / 100 < IN_FLIGHT;
        let made = if closed { made.cordoned_for("ns/gpu") } else { made };
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
        let name = format!("node-{:05}", number * 100);
        let run = serde_json::json!({
            "attempt": 1, "target": "2", "from": "1", "policy": RunPolicy::default(), "baseline": {GPU: 8},
            "nodeUid": format!("uid-Node-{name}"), "bootId": "boot-1", "epoch": 1, "startedAt": at(-60).to_string(),
        });
        let made = handoff("ns/gpu", &name).to("2").phase(Phase::Draining, at(-30)).status(|status| {
            status.run = serde_json::from_value(run).ok();
            status.cordon = Some(CordonRecord { ours: true, at: at(-50).to_string() });
        });
        records.extend(made.records());
        slots = slots.slot(&name, "ns/gpu");
    }
    for number in (0..NODES).filter(|number| queue && number % 100 != 0) {
        records.extend(handoff("ns/gpu", &format!("node-{number:05}")).to("2").records());
    }
    records.extend(slots.records());
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

/// What the engine's loop holds between two thoughts.
struct Loop {
    fleet: Fleet,
    observed: Observed,
    context: Context,
    decisions: Option<Decisions>,
}

impl Loop {
    fn new(records: Vec<Record>) -> Self {
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
    fn think(&mut self) -> (Arc<FleetView>, [f64; 2]) {
        let began = Instant::now();
        let view = black_box(self.fleet.project(at(0)));
        let projected = began.elapsed();
        self.observed.observe(&view);
        let before = self.decisions.take();
        let decisions = decide_fleet(&view, &self.observed, &self.context, before, &BTreeSet::new());
        self.decisions = Some(black_box(decisions));
        (view, [projected.as_secs_f64(), (began.elapsed() - projected).as_secs_f64()])
    }
}

pub fn project(budget: &mut Budget<'_>) {
    println!("project and decide over {NODES} nodes and {} pods, {IN_FLIGHT} handoffs in flight", NODES * PODS_A_NODE);
    let (cold, warm) = measure(records(false), false);
    budget("after one changed pod / from cold", warm / cold * 500.0, 1.0, "of 1/500");
    let (cold, warm) = measure(records(false), true);
    budget("the same, the pod's budget changes with it", warm / cold * 500.0, 1.0, "of 1/500");
    println!("the same, the other nodes queued (no budget, to be known)");
    let (cold, warm) = measure(records(true), true);
    println!("  after one changed pod / from cold: {:.2} of 1/500", warm / cold * 500.0);
}

/// Seconds from cold, and the median after one changed pod; `ready`: whether its readiness changes, which its budget counts.
fn measure(records: Vec<Record>, ready: bool) -> (f64, f64) {
    let mut cold = [f64::MAX; 2];
    let mut engine = Loop::new(Vec::new());
    for _ in 0..3 {
        engine = Loop::new(records.clone());
        let (view, spent) = engine.think();
        cold = [cold[0].min(spent[0]), cold[1].min(spent[1])];
        assert_eq!(view.nodes.len(), NODES);
        assert!(engine.decisions.as_ref().is_some_and(|it| it.nodes.len() == NODES));
    }
    drop(records);
    let mut view = engine.think().0;
    let mut each = [Vec::new(), Vec::new()];
    for round in 0..400usize {
        let made = application_pod(round * 37 % NODES, 3 + round % 27);
        let mut pod = if ready && round % 2 == 0 { made.not_ready() } else { made.priority(7) }.build();
        pod.meta.resource_version = (1_000 + round).to_string().into();
        let began = Instant::now();
        engine.fleet.apply(Kind::Pod, Event::Apply(Record::Pod(pod)));
        let applied = began.elapsed().as_secs_f64();
        let (next, spent) = engine.think();
        each[0].push(applied + spent[0]);
        each[1].push(spent[1]);
        assert_eq!(next.changes.nodes.len(), 1);
        view = next;
    }
    drop(view);
    let both: Vec<f64> = each[0].iter().zip(&each[1]).map(|(a, b)| a + b).collect();
    println!("  from cold: project {:.1} ms, decide {:.1} ms", cold[0] * 1e3, cold[1] * 1e3);
    for (name, times) in [("project", &each[0]), ("decide", &each[1]), ("both", &both)] {
        let (median, late) = (quantile(times, 50), quantile(times, 99));
        println!("  after one changed pod: {name} median {:.1} us, 99th percentile {:.1} us", median * 1e6, late * 1e6);
    }
    (cold[0] + cold[1], quantile(&both, 50))
}

fn quantile(times: &[f64], percent: usize) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get((sorted.len() * percent / 100).min(sorted.len().saturating_sub(1))).copied().unwrap_or(0.0)
}
