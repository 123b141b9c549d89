//! Decisions that took over what did not change are those of a decision from cold, after whatever happened in between: pods, budgets, nodes,
//! labels, handoffs, components, slots, evictions, a lease that moves, and time that passes.

use std::{collections::BTreeSet, sync::Arc};

use jiff::Timestamp;
use proptest::{prelude::*, test_runner::RngSeed};

use crate::{
    api::{
        NodeName, Phase, Version,
        component::{BlockedPolicy, Window},
        duration::Duration,
        handoff::{BY_INSTALL, BY_LABEL, BY_ROLLOUT, HandoffAction, Override, Run},
        keys::{FINALIZER, Role},
    },
    drain::{budget::BudgetClass, eviction::Outcome},
    fleet::{
        build::*,
        event::Kind,
        follow::WatchStatus,
        view::{FleetView, WatchState},
    },
    handoff::{
        action::{Action, Op, PodRef},
        decide::{Decisions, decide_fleet},
        facts::{Admission, Context},
        observed::Observed,
        verdict::Verdict,
    },
};

const GPU: &str = "ns/gpu";
const NIC: &str = "ns/nic";
const NODES: u8 = 6;

fn component_of(nic: bool) -> &'static str {
    if nic { NIC } else { GPU }
}

fn resource(nic: bool) -> &'static str {
    if nic { "vendor.com/nic" } else { "vendor.com/gpu" }
}

fn name(node: u8) -> String {
    format!("n{node}")
}

#[derive(Debug, Clone)]
pub(crate) enum Step {
    Pod {
        node: u8,
        number: u8,
        claims: Option<bool>,
        ready: bool,
        app: u8,
        going: bool,
    },
    PodGone {
        node: u8,
        number: u8,
    },
    Budget {
        number: u8,
        app: u8,
        allowed: u8,
        desired: u8,
    },
    BudgetGone(u8),
    Node {
        node: u8,
        ready: bool,
        cordon: u8,
        devices: bool,
        versions: [Option<&'static str>; 4],
        nic: bool,
        runs: bool,
        again: bool,
    },
    NodeGone(u8),
    Own {
        node: u8,
        nic: bool,
        version: &'static str,
        loader: bool,
        there: bool,
    },
    Handoff {
        node: u8,
        nic: bool,
        phase: usize,
        to: &'static str,
        position: Option<i32>,
        by: u8,
        action: u8,
        attempt: u32,
        consent: bool,
        run: bool,
    },
    HandoffGone {
        node: u8,
        nic: bool,
    },
    Component {
        nic: bool,
        policy: Policy,
    },
    NicGone,
    Slots {
        slots: Vec<(u8, bool)>,
        garbage: bool,
    },
    Passes(i64),
    Evicted {
        node: u8,
        number: u8,
        outcome: u8,
    },
    Leads {
        held: bool,
        epoch: i64,
        most: u32,
    },
    Watch {
        broken: bool,
    },
}

#[derive(Debug, Clone)]
pub(crate) struct Policy {
    paused: bool,
    most: u32,
    failures: u32,
    canary: u32,
    soak: u64,
    window: bool,
    skip: bool,
    foreign: bool,
    version: &'static str,
}

fn version() -> impl Strategy<Value = &'static str> {
    prop_oneof![Just("1"), Just("2")]
}

fn policy() -> impl Strategy<Value = Policy> {
    let first = (proptest::bool::weighted(0.15), 1u32..4, 1u32..3, 0u32..2, prop_oneof![Just(0u64), Just(40)]);
    let second = (proptest::bool::weighted(0.3), any::<bool>(), any::<bool>(), version());
    (first, second).prop_map(|((paused, most, failures, canary, soak), (window, skip, foreign, version))| Policy {
        paused,
        most,
        failures,
        canary,
        soak,
        window,
        skip,
        foreign,
        version,
    })
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    let node = 0..NODES;
    let label = || proptest::option::weighted(0.8, version());
    prop_oneof![
        6 => (node.clone(), 0u8..3, proptest::option::of(proptest::bool::weighted(0.3)), any::<bool>(), 0u8..3, proptest::bool::weighted(0.2))
            .prop_map(|(node, number, claims, ready, app, going)| Step::Pod { node, number, claims, ready, app, going }),
        2 => (node.clone(), 0u8..3).prop_map(|(node, number)| Step::PodGone { node, number }),
        5 => (0u8..3, 0u8..3, 0u8..3, 0u8..4).prop_map(|(number, app, allowed, desired)| Step::Budget { number, app, allowed, desired }),
        1 => (0u8..3).prop_map(Step::BudgetGone),
        5 => (
            (node.clone(), proptest::bool::weighted(0.85), 0u8..4, proptest::bool::weighted(0.8)),
            ([label(), label(), label(), label()], any::<bool>(), proptest::bool::weighted(0.7), proptest::bool::weighted(0.1)),
        )
            .prop_map(|((node, ready, cordon, devices), (versions, nic, runs, again))| Step::Node {
                node, ready, cordon, devices, versions, nic, runs, again
            }),
        1 => node.clone().prop_map(Step::NodeGone),
        3 => (node.clone(), any::<bool>(), version(), any::<bool>(), proptest::bool::weighted(0.8))
            .prop_map(|(node, nic, version, loader, there)| Step::Own { node, nic, version, loader, there }),
        8 => (
            (node.clone(), proptest::bool::weighted(0.3), prop_oneof![5 => Just(0usize), 4 => 0usize..16], version(), proptest::option::weighted(0.4, -1i32..3)),
            (0u8..8, 0u8..8, 1u32..3, any::<bool>(), proptest::bool::weighted(0.8)),
        )
            .prop_map(|((node, nic, phase, to, position), (by, action, attempt, consent, run))| Step::Handoff {
                node, nic, phase, to, position, by, action, attempt, consent, run
            }),
        2 => (node.clone(), any::<bool>()).prop_map(|(node, nic)| Step::HandoffGone { node, nic }),
        2 => (proptest::bool::weighted(0.3), policy()).prop_map(|(nic, policy)| Step::Component { nic, policy }),
        1 => Just(Step::NicGone),
        4 => (proptest::collection::vec((node.clone(), proptest::bool::weighted(0.3)), 0..4), proptest::bool::weighted(0.08))
            .prop_map(|(slots, garbage)| Step::Slots { slots, garbage }),
        6 => prop_oneof![1i64..4, 10i64..40, 100i64..900].prop_map(Step::Passes),
        2 => (node, 0u8..3, 0u8..4).prop_map(|(node, number, outcome)| Step::Evicted { node, number, outcome }),
        1 => (proptest::bool::weighted(0.8), 1i64..3, 1u32..4).prop_map(|(held, epoch, most)| Step::Leads { held, epoch, most }),
        1 => any::<bool>().prop_map(|broken| Step::Watch { broken }),
    ]
}

pub(crate) struct Story {
    fleet: FleetBuilder,
    observed: Observed,
    context: Context,
    pub decisions: Option<Decisions>,
    pub view: Arc<FleetView>,
    dirty: BTreeSet<NodeName>,
    now: i64,
}

impl Story {
    pub fn new() -> Self {
        let mut fleet = fleet()
            .with(component(GPU).version("2").made("1").made("2").finalizer(FINALIZER))
            .with(component(NIC).resource(resource(true)).on_nodes("nic", "yes").made("1").made("2"))
            .with(lease("me"));
        for node_number in 0..NODES - 1 {
            let on = name(node_number);
            let made = node(&on).runs(GPU, "1").allocatable(resource(false), 4).renewed(at(-5));
            fleet.put(if node_number % 2 == 0 { made.label("nic", "yes") } else { made });
            fleet.put(loader_pod(GPU, "1", &on)).put(plugin_pod(GPU, "1", &on));
            fleet.put(handoff(GPU, &on));
        }
        let context = Context { lease_held: true, epoch: 1, identity: "me".into(), cluster_max_unavailable: 2, read_only: false };
        Self {
            fleet,
            observed: Observed::default(),
            context,
            decisions: None,
            view: Arc::default(),
            dirty: BTreeSet::new(),
            now: 0,
        }
    }

    pub fn apply(&mut self, step: &Step) {
        match step {
            Step::Pod { node, number, claims, ready, app, going } => {
                let pod = pod(&format!("shop/app-{node}-{number}")).on(&name(*node)).label("app", &app.to_string()).ready(*ready);
                let pod = pod.owned_by("ReplicaSet", &format!("app-{app}")).created(at(-500));
                let pod = if let Some(nic) = claims { pod.claims(resource(*nic), 1) } else { pod };
                self.fleet.put(if *going { pod.terminating(at(-3)) } else { pod });
            }
            Step::PodGone { node, number } => {
                self.fleet.gone(Kind::Pod, key(&format!("shop/app-{node}-{number}")));
            }
            Step::Budget { number, app, allowed, desired } => {
                let (allowed, desired) = (i32::from(*allowed), i32::from(*desired));
                let made = budget(&format!("shop/b{number}")).selects("app", &app.to_string());
                self.fleet.put(made.counts(desired + allowed, desired, desired + allowed));
            }
            Step::BudgetGone(number) => {
                self.fleet.gone(Kind::Budget, key(&format!("shop/b{number}")));
            }
            Step::Node { node: number, ready, cordon, devices, versions, nic, runs, again } => {
                let mut made = node(&name(*number)).ready(*ready).renewed(at(self.now - 5));
                if *runs {
                    made = made.runs(GPU, versions[0].unwrap_or("1"));
                } else {
                    for (role, value) in [Role::Desired, Role::Loader, Role::Plugin, Role::Ready].into_iter().zip(versions) {
                        if let Some(value) = value {
                            made = made.role(role, GPU, value);
                        }
                    }
                }
                made = match cordon {
                    0 | 1 => made,
                    2 => made.cordoned_for(GPU),
                    _ => made.cordoned_by("kubectl"),
                };
                made = if *devices { made.allocatable(resource(false), 4) } else { made };
                made = if *nic { made.label("nic", "yes") } else { made };
                self.fleet.put(if *again { made.uid("another") } else { made });
            }
            Step::NodeGone(node) => {
                self.fleet.gone(Kind::Node, key(&format!("/{}", name(*node))));
            }
            Step::Own { node, nic, version, loader, there } => {
                let on = name(*node);
                let of = component_of(*nic);
                let made = if *loader { loader_pod(of, version, &on) } else { plugin_pod(of, version, &on) };
                if *there {
                    self.fleet.put(made);
                } else {
                    self.fleet.gone(Kind::Pod, made.build().key);
                }
            }
            Step::Handoff { node, nic, phase, to, position, by, action, attempt, consent, run } => {
                let by = match by {
                    0 => BY_LABEL,
                    1 | 2 => BY_INSTALL,
                    3 => BY_ROLLOUT,
                    _ => "ada",
                };
                let action = match action {
                    0 => HandoffAction::Hold,
                    1 => HandoffAction::Abort,
                    2 => HandoffAction::Leave,
                    _ => HandoffAction::Run,
                };
                let run = run.then(|| Run {
                    attempt: 1,
                    target: Some((*to).to_owned()),
                    from: Some("1".into()),
                    desired: Some("1".into()),
                    aim: Some("2".into()),
                    policy: Default::default(),
                    baseline: [(resource(*nic).to_owned(), 4)].into(),
                    node_uid: format!("uid-Node-{}", name(*node)),
                    boot_id: "boot-1".into(),
                    epoch: 1,
                    started_at: at(-40).to_string(),
                    by_label: by == BY_LABEL,
                    resumed: false,
                    kmm_config: None,
                });
                let overrides = (0..3).filter(|_| *consent).map(|number| Override {
                    pod_uid: format!("uid-Pod-shop/app-{node}-{number}"),
                    reason: "told".into(),
                    until: at(200).to_string(),
                });
                let overrides = overrides.collect();
                let made = handoff(component_of(*nic), &name(*node)).phase(Phase::ALL[*phase], at(-20)).spec(|spec| {
                    spec.version = Some((*to).to_owned());
                    spec.position = *position;
                    spec.requested_by = by.to_owned();
                    spec.action = action;
                    spec.attempt = *attempt;
                    spec.overrides = overrides;
                });
                self.fleet.put(made.status(|status| status.run = run));
            }
            Step::HandoffGone { node, nic } => {
                self.fleet.gone(Kind::Handoff, key(&format!("{}.{}", component_of(*nic), name(*node))));
            }
            Step::Component { nic, policy } => {
                let night = Window { start: "00:00".into(), duration: Duration::from_secs(300), time_zone: None };
                let made = component(component_of(*nic)).resource(resource(*nic)).version(policy.version).finalizer(FINALIZER);
                let made = if *nic { made.on_nodes("nic", "yes") } else { made };
                self.fleet.put(made.rollout(|it| {
                    it.paused = policy.paused;
                    it.max_unavailable = policy.most;
                    it.max_failures = policy.failures;
                    it.canary = policy.canary;
                    it.soak = Duration::from_secs(policy.soak);
                    it.windows = if policy.window { vec![night] } else { Vec::new() };
                    it.blocked = if policy.skip { BlockedPolicy::Skip } else { BlockedPolicy::Wait };
                    it.count_foreign = policy.foreign;
                }));
            }
            Step::NicGone => {
                self.fleet.gone(Kind::Component, key(NIC));
            }
            Step::Slots { slots, garbage } => {
                let mut made = lease("me");
                for (node, nic) in slots {
                    made = made.slot(&name(*node), component_of(*nic));
                }
                self.fleet.put(made.but(|it| it.slots_garbage = garbage.then(|| "half".into())));
            }
            Step::Passes(seconds) => self.now += seconds,
            Step::Evicted { node, number, outcome } => {
                let pod = PodRef {
                    key: key(&format!("shop/app-{node}-{number}")),
                    uid: format!("uid-Pod-shop/app-{node}-{number}").into(),
                    resource_version: "1".into(),
                };
                let outcome = match outcome {
                    0 => Outcome::Accepted,
                    1 => Outcome::Throttled { retry_after: None },
                    2 => Outcome::Transient { message: "503".into() },
                    _ => Outcome::Budget { class: BudgetClass::Waiting, message: "needs 2".into(), retry_after: None },
                };
                self.observed.evictions_mut().record(&pod, outcome, at(self.now));
                self.dirty.insert(name(*node).into());
            }
            Step::Leads { held, epoch, most } => {
                self.context =
                    Context { lease_held: *held, epoch: *epoch, cluster_max_unavailable: *most, ..self.context.clone() };
            }
            Step::Watch { broken } => {
                let state = match broken {
                    true => WatchState::Retrying { error: "refused".into(), since: at(self.now), next: at(self.now + 5) },
                    false => WatchState::Live,
                };
                self.fleet.fleet.set_watch(Kind::Pod, WatchStatus { required: true, state, last_event: None, errors: 1 });
            }
        }
    }

    /// Decides on what is, as the engine's loop does.
    pub fn decide(&mut self) {
        self.view = self.fleet.project(at(self.now));
        self.observed.observe(&self.view);
        let before = self.decisions.take();
        let dirty = std::mem::take(&mut self.dirty);
        self.decisions = Some(decide_fleet(&self.view, &self.observed, &self.context, before, &dirty));
    }

    /// Decides, and compares with a decision from cold.
    fn check(&mut self) {
        self.decide();
        let cold = decide_fleet(&self.view, &self.observed, &self.context, None, &BTreeSet::new());
        same(&self.view, self.decisions.as_ref().unwrap(), &cold);
    }
}

fn same(view: &FleetView, warm: &Decisions, cold: &Decisions) {
    assert_eq!(warm.tallies, cold.tallies, "counts");
    assert_eq!(warm.queue.components(), cold.queue.components());
    for component in view.components.keys() {
        let order = cold.queue.order(component).collect::<Vec<_>>();
        assert_eq!(warm.queue.order(component).collect::<Vec<_>>(), order, "the order of {component}");
        assert_eq!(warm.queue.len_of(component), order.len());
        for (at, node) in order.into_iter().enumerate() {
            assert_eq!(warm.queue.position(&(node.clone(), component.clone())), Some(at));
        }
    }
    for node in view.nodes.iter() {
        for component in node.components.keys() {
            let of = (node.name.clone(), component.clone());
            let (a, b) = (warm.queue.admission(&of), cold.queue.admission(&of));
            assert_eq!(a.map(answer), b.map(answer), "the queue's answer to {of:?}");
        }
    }
    let names = |decisions: &Decisions| decisions.nodes.iter().map(|node| node.node.clone()).collect::<Vec<_>>();
    assert_eq!(names(warm), names(cold));
    for ((subject, a), (other, b)) in warm.iter().zip(cold.iter()) {
        assert_eq!(subject, other);
        match (a, b) {
            (Verdict::Act(a), Verdict::Act(b)) => {
                assert!(a.is_same_as(b), "{subject:?}: {a:#?}\nfrom cold: {b:#?}");
                assert_eq!(act(a), act(b), "{subject:?}");
            }
            (a, b) => assert_eq!(told(a), told(b), "{subject:?}"),
        }
    }
    let actions = |decisions: &Decisions| decisions.actions().map(|(subject, _)| subject).collect::<Vec<_>>();
    assert_eq!(actions(warm), actions(cold));
    if let Some(due) = cold.recheck {
        assert!(warm.recheck.is_some_and(|at| at <= due), "looks again at {:?}, and from cold at {due}", warm.recheck);
    }
}

fn answer(admission: &Admission) -> String {
    match admission {
        Admission::Granted(slot) => format!("{slot:?}"),
        Admission::Blocked { blockers, recheck } => masked(&format!("{blockers:?} {}", recheck.is_some())),
    }
}

fn act(action: &Action) -> String {
    match &action.op {
        Op::PutHandoffStatus { status, .. } => masked(&format!("{:?} {} {status:?}", action.evidence, action.why)),
        _ => masked(&format!("{:?} {}", action.evidence, action.why)),
    }
}

fn told(verdict: &Verdict) -> String {
    masked(&format!("{verdict:?}"))
}

/// Without what tells when it was decided: times from the beginning of the story on, `since`, and how long ago something was.
fn masked(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("20") {
        let (before, from) = rest.split_at(start);
        out.push_str(before);
        let time = from.find('Z').filter(|end| *end < 40).and_then(|end| from.get(..=end));
        let since = out.trim_end_matches(['"', '\\', '(']).trim_end_matches("Some").ends_with("since: ");
        match time.and_then(|time| Some((time, time.parse::<Timestamp>().ok()?))) {
            Some((time, parsed)) => {
                out.push_str(if parsed >= at(0) || since { "T" } else { time });
                rest = &from[time.len()..];
            }
            None => {
                out.push_str("20");
                rest = &from[2..];
            }
        }
    }
    out.push_str(rest);
    let mut words: Vec<&str> = Vec::new();
    for word in out.split(' ') {
        if word.starts_with("ago") {
            words.pop();
        }
        words.push(word);
    }
    words.join(" ")
}

/// The same stories each time: a change must not be refused for what it did not do. PROPTEST_RNG_SEED and PROPTEST_CASES draw others.
fn stories() -> ProptestConfig {
    let config = ProptestConfig::default();
    let rng_seed = match config.rng_seed {
        RngSeed::Random => RngSeed::Fixed(20_261_130),
        fixed => fixed,
    };
    ProptestConfig { rng_seed, ..config }
}

proptest! {
    #![proptest_config(stories())]

    #[test]
    fn what_is_taken_over_is_what_would_be_decided(turns in proptest::collection::vec(proptest::collection::vec(step(), 1..4), 1..24)) {
        let mut story = Story::new();
        story.check();
        for (number, steps) in turns.iter().enumerate() {
            for step in steps {
                story.apply(step);
            }
            // Now and then a picture is skipped, as by a loop that was busy.
            if number % 5 == 4 {
                story.fleet.project(at(story.now));
            }
            story.check();
        }
    }
}

/// The property above must be able to see: these are the changes whose neglect it has to find.
#[test]
fn a_budget_that_allows_nothing_any_more_is_heard_of_by_the_queue_and_by_a_drain() {
    let mut story = Story::new();
    for step in [
        Step::Pod { node: 0, number: 0, claims: Some(false), ready: true, app: 0, going: false },
        Step::Budget { number: 0, app: 0, allowed: 1, desired: 1 },
    ] {
        story.apply(&step);
    }
    story.check();
    let granted = |story: &Story| {
        let decisions = story.decisions.as_ref().unwrap();
        matches!(decisions.queue.admission(&("n0".into(), key(GPU))), Some(Admission::Granted(_)))
    };
    assert!(granted(&story));
    story.apply(&Step::Budget { number: 0, app: 0, allowed: 0, desired: 2 });
    story.check();
    assert!(!granted(&story), "it can never be evicted");
    let verdicts = story.decisions.as_ref().unwrap().nodes.iter().flat_map(|node| &node.verdicts).count();
    assert_eq!(verdicts, 5 + 3);
    assert_eq!(story.decisions.as_ref().unwrap().tallies[&key(GPU)].versions, [(Version::from("1"), 5)].into());
}
