//! One seed: a fleet taken from version to version under the troubles of its variant, on a runtime of its own with a paused clock.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::future::join_all;
use lockkeeper::sim::{
    apiserver::Faults,
    demo::{chaos, story, supervisor},
    people::{
        hands::Hands,
        meddler::{self, Plan},
        operator::{self, Order, Outcome},
    },
    scenarios::kernel_module::{self as scenario, GPU, Module, NIC},
    world::{ENGINE, Profile, World, WorldOptions},
};
use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use tokio::sync::Notify;

use crate::variant::Variant;

/// The longest simulated time for the installation, and for one round: far more than any needs. A fleet that is not through then is a failure.
const INSTALL: Duration = Duration::from_secs(2 * 3600);
const PATIENCE: Duration = Duration::from_secs(2 * 3600);
const SETTLE: Duration = Duration::from_secs(300);
/// After the last trouble, before the books are closed.
const CALM: Duration = Duration::from_secs(10);

pub type Counts = BTreeMap<&'static str, u64>;

/// What came of a seed.
#[derive(Debug, Default)]
pub struct Done {
    /// Nodes brought from one version to another, seen on the node and in its handoff.
    pub handoffs: u64,
    pub installs: u64,
    pub faults: Counts,
    pub people: Counts,
    pub machines: Counts,
    pub lives: u64,
    pub retries: u64,
    pub evicted: u64,
    pub disruptions: u64,
    pub violations: Vec<String>,
    /// Requests of the engine, from the first installation to the end.
    pub requests: u64,
    pub all_requests: u64,
    pub simulated: Duration,
    /// Why it is not through.
    pub problem: Option<String>,
}

/// Runs it on this thread.
pub fn run(variant: &Variant) -> Done {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    match runtime {
        Ok(runtime) => runtime.block_on(Story::play(variant)),
        Err(error) => Done { problem: Some(format!("no runtime: {error}")), ..Done::default() },
    }
}

struct Story<'v> {
    variant: &'v Variant,
    world: Arc<World>,
    hands: Hands,
    nodes: Vec<String>,
    modules: Vec<Module>,
    done: Done,
}

impl<'v> Story<'v> {
    async fn play(variant: &'v Variant) -> Done {
        let modules = if variant.two_components { vec![GPU, NIC] } else { vec![GPU] };
        let mut options = WorldOptions::new(variant.seed);
        options.controllers.scheduler.late_permille = if variant.faults == Profile::None { 0 } else { 50 };
        options.max_closed = usize::try_from(variant.max_unavailable).unwrap_or(1);
        options.modules = modules.iter().map(|module| (module.name.to_owned(), module.key())).collect();
        // Enough for the oldest view that a fault shows.
        options.server.history = 1_000;
        // Half as often as real kubelets do: a third of all writes would be node leases. A node may be silent for 50 s.
        options.kubelets.lease_interval = Duration::from_secs(20);
        let world = Arc::new(World::start(&options, &scenario::cluster(variant.nodes)));
        let told = variant.tell.then(|| story::collect(&world.api));
        let stop = Arc::new(Notify::new());
        let engine =
            tokio::spawn(supervisor::keep_running(world.clone(), ENGINE.to_owned(), variant.max_unavailable, stop.clone()));
        let hands = world.hands("operator");
        let nodes = scenario::node_names(variant.nodes);
        let mut story = Self { variant, world, hands, nodes, modules, done: Done::default() };
        if let Err(why) = story.rounds().await {
            story.done.problem = Some(why);
        }
        stop.notify_one();
        story.done.lives = u64::from(engine.await.unwrap_or_default());
        for line in told.iter().flat_map(|lines| lines.lock().map(|lines| lines.clone()).unwrap_or_default()) {
            println!("{line}");
        }
        story.close()
    }

    fn close(mut self) -> Done {
        let (report, log) = (self.world.report_at_rest(), self.world.api.log());
        let done = &mut self.done;
        done.faults = self.world.faults_injected();
        done.evicted = report.claimants_evicted;
        done.disruptions = report.disruptions;
        done.violations = report.violations.iter().map(ToString::to_string).collect();
        done.requests = log.requests(|(client, _, _)| client == ENGINE);
        done.all_requests = log.requests(|_| true);
        done.simulated = self.world.api.clock().elapsed();
        self.done
    }

    async fn rounds(&mut self) -> Result<(), String> {
        self.install().await?;
        let mut current = scenario::OLD.to_owned();
        for round in 1..=self.variant.rounds {
            let next = format!("{}.0", round + 1);
            self.break_things(round);
            // Once, half-way through the run, a release turns out bad half-way through the fleet.
            let taken_back = self.variant.rollback && round == self.variant.rounds.div_ceil(2);
            let order = self.order(round);
            self.release(&next, &order).await?;
            let trouble = self.trouble(round, &next);
            if taken_back {
                let half = self.nodes.len().div_ceil(2);
                let there = self.see(&next, &order, half).await;
                self.done.handoffs += there;
                self.release(&current, &order).await?;
                let back = self.through(&current, &order).await;
                // Those that had come to the new version were handed over once more.
                self.done.handoffs += there;
                back?;
            } else {
                self.through(&next, &order).await?;
            }
            for (task, people) in trouble {
                let counts = task.await.unwrap_or_default();
                let sum = if people { &mut self.done.people } else { &mut self.done.machines };
                for (kind, times) in counts {
                    *sum.entry(kind).or_default() += times;
                }
            }
            tokio::time::sleep(CALM).await;
            let target = if taken_back { current.clone() } else { next.clone() };
            // What was still meddled with is put right before the next version comes.
            self.through(&target, &order).await?;
            if !taken_back {
                self.done.handoffs += (self.nodes.len() * self.modules.len()) as u64;
            }
            current = target;
        }
        Ok(())
    }

    async fn install(&mut self) -> Result<(), String> {
        let no = |no: lockkeeper::sim::people::hands::No| no.to_string();
        for module in &self.modules {
            self.hands.create(&module.component(self.variant.max_unavailable)).await.map_err(no)?;
        }
        for module in &self.modules {
            let order = Order { module: *module, version: scenario::OLD, nodes: &self.nodes };
            if !order.ready(&self.hands, INSTALL).await {
                return Err(format!("{} {} was not installed on every node", module.name, scenario::OLD));
            }
        }
        self.done.installs = (self.nodes.len() * self.modules.len()) as u64;
        let mut workloads = scenario::workloads(self.nodes.len(), 1);
        if self.variant.two_components {
            workloads.extend(scenario::workloads_of_both(self.nodes.len()));
        }
        operator::apply(&self.hands, &workloads).await.map_err(no)?;
        operator::settled(&self.hands, SETTLE).await;
        Ok(())
    }

    /// A fresh supply of API faults: each strikes so often at the most.
    fn break_things(&self, round: u32) {
        let (seed, client) = (self.variant.seed ^ (u64::from(round) << 48), Some(ENGINE));
        let until = self.world.api.clock().elapsed() + Duration::from_secs(3600);
        let plan = match self.variant.faults {
            Profile::None => Faults::none(),
            Profile::Flaky => Faults::flaky(seed, client, until),
            Profile::Hostile => Faults::hostile(seed, client, until).without_crashes(),
        };
        let plan = if self.variant.crashes { plan.with_crashes(client, 20, 1, until) } else { plan };
        self.world.api.set_faults(Box::new(plan));
    }

    fn order(&self, round: u32) -> Vec<String> {
        let mut order = self.nodes.clone();
        order.shuffle(&mut ChaCha8Rng::seed_from_u64(self.variant.seed.wrapping_add(u64::from(round))));
        order
    }

    async fn release(&self, version: &str, nodes: &[String]) -> Result<(), String> {
        for module in &self.modules {
            let order = Order { module: *module, version, nodes };
            order.release(&self.hands).await.map_err(|no| no.to_string())?;
            order.ask(&self.hands).await.map_err(|no| no.to_string())?;
        }
        Ok(())
    }

    /// Until so many nodes have each component in the version; how many have.
    async fn see(&mut self, version: &str, nodes: &[String], enough: usize) -> u64 {
        self.outcomes(version, nodes, enough).await.iter().map(|outcome| outcome.upgraded as u64).sum()
    }

    /// Looks after all components at once: a handoff that waits for a person's choice keeps its node from the other component's.
    async fn outcomes(&mut self, version: &str, nodes: &[String], enough: usize) -> Vec<Outcome> {
        let orders: Vec<Order<'_>> = self.modules.iter().map(|module| Order { module: *module, version, nodes }).collect();
        let outcomes = join_all(orders.iter().map(|order| order.see(&self.hands, PATIENCE, enough))).await;
        self.done.retries += outcomes.iter().map(|outcome| outcome.retried as u64).sum::<u64>();
        outcomes
    }

    async fn through(&mut self, version: &str, nodes: &[String]) -> Result<(), String> {
        let outcomes = self.outcomes(version, nodes, nodes.len()).await;
        match self.modules.iter().zip(outcomes).find(|(_, outcome)| outcome.upgraded < nodes.len()) {
            Some((module, outcome)) => Err(format!(
                "{} of {} nodes came to {} {version} within {PATIENCE:?}:\n    {}",
                outcome.upgraded,
                nodes.len(),
                module.name,
                outcome.unfinished.join("\n    ")
            )),
            None => Ok(()),
        }
    }

    /// People and machines; true for people.
    fn trouble(&self, round: u32, version: &str) -> Vec<(tokio::task::JoinHandle<Counts>, bool)> {
        let variant = self.variant;
        let (seed, half) = (variant.seed ^ (u64::from(round) << 32), u32::try_from(self.nodes.len().div_ceil(2)).unwrap_or(1));
        let mut tasks = Vec::new();
        if variant.people {
            let plan = Plan {
                modules: self.modules.clone(),
                version: version.to_owned(),
                every: Duration::from_secs(40) / variant.max_unavailable,
                labels: variant.faults == Profile::Hostile,
                ..Plan::new(seed, half)
            };
            tasks.push((tokio::spawn(meddler::meddle(self.world.hands("meddler"), self.nodes.clone(), plan)), true));
        }
        if variant.faults == Profile::Hostile {
            let every = Duration::from_secs(90) / variant.max_unavailable;
            let chaos = chaos::strike(self.world.clone(), self.nodes.clone(), seed, half.div_ceil(2), every);
            tasks.push((tokio::spawn(chaos), false));
        }
        tasks
    }
}
