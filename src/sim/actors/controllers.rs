//! The controller-manager and the scheduler of the simulated cluster: one set of watches, all controllers on it.

use super::caches::Caches;
use super::clock::{Clock, Dice};
use super::daemonset::DaemonSets;
use super::disruption::Budgets;
use super::informer::{Kind, Store};
use super::node_lifecycle::{Lifecycle, LifecycleOptions};
use super::records::Bare;
use super::scheduler::{Scheduler, SchedulerOptions};
use kube::Client;
use std::sync::Arc;
use std::time::Duration;

/// Which controllers run, and how.
#[derive(Clone, Debug)]
pub struct ControllerOptions {
    pub scheduler: SchedulerOptions,
    pub lifecycle: LifecycleOptions,
    /// The disruption controller gathers pod events for this long.
    pub budget_delay: Duration,
    /// Further kinds whose owners and dependents the garbage collector follows (custom resources).
    pub collect: Vec<Kind>,
}

impl Default for ControllerOptions {
    fn default() -> Self {
        Self {
            scheduler: SchedulerOptions::default(),
            lifecycle: LifecycleOptions::default(),
            budget_delay: Duration::from_millis(50),
            collect: Vec::new(),
        }
    }
}

/// The running controllers; dropping the last clone ends them, as a crash does.
#[derive(Clone)]
pub struct ControllerManager(Arc<Running>);

/// The controllers' tasks hold their caches, so it takes somebody outside of them to end them.
struct Running(Arc<Caches>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.tasks.abort();
    }
}

impl ControllerManager {
    /// Starts scheduler and controllers. They act once all their watches are in step.
    #[must_use]
    pub fn spawn(client: &Client, clock: Clock, seed: u64, options: ControllerOptions) -> Self {
        let caches = Caches::new(client, clock, Dice::new(seed));
        let weak = Arc::downgrade(&caches);
        let extra = super::garbage::extra_stores(&caches, &options.collect);
        extra.iter().for_each(|store| store.start(&caches.tasks));
        macro_rules! stores {
            ($($store:ident),*) => {{
                $(caches.$store.start(&caches.tasks);)*
                $(let $store = caches.$store.clone();)*
                caches.tasks.spawn(async move {
                    $($store.synced().await;)*
                    for store in &extra {
                        store.synced().await;
                    }
                    if let Some(caches) = weak.upgrade() {
                        start(&caches, options, extra);
                    }
                });
            }};
        }
        stores!(
            nodes,
            pods,
            leases,
            namespaces,
            daemon_sets,
            replica_sets,
            deployments,
            stateful_sets,
            jobs,
            revisions,
            budgets,
            claims,
            claim_templates,
            device_classes,
            slices,
            volume_claims,
            volumes,
            csi_nodes,
            csi_drivers,
            attachments
        );
        Self(Arc::new(Running(caches)))
    }

    /// Ends all controllers now.
    pub fn stop(&self) {
        self.0.0.tasks.abort();
    }
}

fn start(caches: &Arc<Caches>, options: ControllerOptions, extra: Vec<Arc<Store<Bare>>>) {
    Scheduler::start(caches, options.scheduler);
    DaemonSets::start(caches);
    Budgets::start(caches, options.budget_delay);
    Lifecycle::start(caches, options.lifecycle);
    super::replicas::start(caches);
    super::claims::start(caches);
    super::attach::start(caches);
    super::garbage::start(caches, extra);
}
