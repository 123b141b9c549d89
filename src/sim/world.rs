//! A whole simulated cluster: API server, controllers, kubelets, faults, and the monitor that watches it. Scenarios and tests start here.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::{
    api::{ComponentKey, NodeComponent, NodeHandoff},
    cluster::Cluster,
    sim::{
        actors::{
            Clock, ControllerManager, ControllerOptions, KubeletOptions, Kubelets,
            kmm::{self, Kmm, KmmOptions},
        },
        apiserver::{ApiServer, Config, Faults, Identity},
        monitor::{Monitor, Report, Rules, Write},
        people::hands::Hands,
        scenarios::{kernel_module, objects::Object},
    },
};

/// How rough the world is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Profile {
    /// Nothing goes wrong.
    #[default]
    None,
    /// What any busy cluster does: conflicts, throttling, short outages, watches that end, pods that come and go.
    Flaky,
    /// Everything at once: lost answers, stale lists, crashes of the engine, reboots, dead kubelets, people who meddle.
    Hostile,
}

#[derive(Debug, Clone)]
pub struct WorldOptions {
    pub seed: u64,
    pub faults: Profile,
    /// Virtual time after which no API fault strikes any more.
    pub faults_until: Duration,
    pub kubelets: KubeletOptions,
    pub controllers: ControllerOptions,
    /// Names of engines that may run; the fault plan strikes these, the monitor judges them.
    pub engines: Vec<String>,
    pub read_only: Vec<String>,
    /// A hostile world ends engines after a write, too: for those that somebody starts again.
    pub crashes: bool,
    /// Nodes that engines may keep closed at once.
    pub max_closed: usize,
    /// Which component each module of the toy kernels belongs to.
    pub modules: BTreeMap<String, ComponentKey>,
    pub server: Config,
    /// Kernel Module Management runs in the cluster.
    pub kmm: Option<KmmOptions>,
}

impl WorldOptions {
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            faults: Profile::None,
            faults_until: Duration::from_secs(3600),
            kubelets: KubeletOptions::default(),
            controllers: ControllerOptions::default(),
            engines: vec![ENGINE.to_owned()],
            crashes: true,
            read_only: Vec::new(),
            max_closed: 1,
            modules: BTreeMap::from([(kernel_module::MODULE.to_owned(), kernel_module::key())]),
            // A minute or more of any fleet here; whole histories only cost memory.
            server: Config { seed, log_records: Some(0), history: 4_000, ..Config::default() },
            kmm: None,
        }
    }
}

/// The name of KMM's operator where there is one.
pub const KMM: &str = "kmm";

/// The engine's name where there is one.
pub const ENGINE: &str = "lockkeeper";

/// The running world. Dropping it ends its controllers and kubelets.
pub struct World {
    pub api: ApiServer,
    pub controllers: ControllerManager,
    pub kubelets: Kubelets,
    monitor: Arc<Mutex<Watching>>,
    kmm: Mutex<Option<Kmm>>,
    clock: Clock,
    seed: u64,
    kmm_options: Option<KmmOptions>,
}

struct Watching {
    monitor: Monitor,
    /// Kernel events already seen.
    seen: usize,
}

impl World {
    /// Starts it on the current runtime, with these objects in place. The runtime's clock should be paused.
    pub fn start(options: &WorldOptions, objects: &[Object]) -> Self {
        let api = ApiServer::new(options.server.clone());
        for object in objects.iter().filter(|object| object.kind == "Namespace") {
            // Some are there from the beginning.
            let _ = api.install(object.body.clone());
        }
        let installed = api.install_crd::<NodeComponent>().and_then(|()| api.install_crd::<NodeHandoff>());
        debug_assert!(installed.is_ok(), "our own CRDs are legal: {installed:?}");
        let mut controllers = options.controllers.clone();
        if options.kmm.is_some() {
            for crd in kmm::crds() {
                let installed = api.install(crd);
                debug_assert!(installed.is_ok(), "KMM's CRDs are legal: {installed:?}");
            }
            controllers.collect.extend(kmm::collected());
        }
        for object in objects.iter().filter(|object| object.kind != "Namespace") {
            let installed = api.install(object.body.clone());
            debug_assert!(installed.is_ok(), "{} {}: {installed:?}", object.kind, object.name());
        }
        let clock = Clock::starting_at(api.now());
        let kubelets =
            Kubelets::spawn(&api.client(&Identity::new("kubelet")), clock, options.seed, options.kubelets.clone(), Vec::new());
        let controllers =
            ControllerManager::spawn(&api.client(&Identity::new("controller-manager")), clock, options.seed, controllers);
        let monitor = watch(&api, &kubelets, rules(options));
        let (kmm, kmm_options, seed) = (Mutex::default(), options.kmm.clone(), options.seed);
        let world = Self { api, controllers, kubelets, monitor, kmm, clock, seed, kmm_options };
        world.start_kmm();
        world.set_faults(options);
        world
    }

    fn set_faults(&self, options: &WorldOptions) {
        let client = options.engines.first().map(String::as_str);
        let plan = match options.faults {
            Profile::None => return,
            Profile::Flaky => Faults::flaky(options.seed, client, options.faults_until),
            Profile::Hostile => Faults::hostile(options.seed, client, options.faults_until),
        };
        self.api.set_faults(Box::new(if options.crashes { plan } else { plan.without_crashes() }));
    }

    /// Starts KMM's operator where there is one and it does not run.
    pub fn start_kmm(&self) {
        let mut running = lock(&self.kmm);
        if let (None, Some(options)) = (&*running, &self.kmm_options) {
            *running = Some(Kmm::spawn(&self.api.client(&Identity::new(KMM)), self.clock, self.seed, options.clone()));
        }
    }

    /// Ends KMM's operator at once, in the middle of whatever it does.
    pub fn kill_kmm(&self) {
        *lock(&self.kmm) = None;
    }

    /// A person.
    pub fn hands(&self, name: &str) -> Hands {
        Hands::new(self.api.client(&Identity::new(name)))
    }

    /// A connection as lockkeeper makes it, under this name.
    pub fn cluster(&self, name: &str, read_only: bool) -> Cluster {
        Cluster::over(self.api.client(&Identity::new(name)), read_only, "simulated", "in this process")
    }

    fn watching(&self) -> MutexGuard<'_, Watching> {
        lock(&self.monitor)
    }

    /// What the monitor has found so far.
    pub fn report(&self) -> Report {
        let mut watching = self.watching();
        watching.catch_up(&self.kubelets);
        watching.monitor.report().clone()
    }

    /// As [`World::report`], with what must hold once everything has come to rest.
    pub fn report_at_rest(&self) -> Report {
        let mut watching = self.watching();
        watching.catch_up(&self.kubelets);
        watching.monitor.at_rest(self.api.now());
        watching.monitor.report().clone()
    }

    /// Faults injected so far, by kind.
    pub fn faults_injected(&self) -> BTreeMap<&'static str, u64> {
        self.api.injected()
    }
}

impl Watching {
    fn catch_up(&mut self, kubelets: &Kubelets) {
        let events = kubelets.events(self.seen);
        self.seen += events.len();
        for event in &events {
            self.monitor.on_kernel(event);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn rules(options: &WorldOptions) -> Rules {
    Rules {
        engines: options.engines.iter().cloned().collect(),
        read_only: options.read_only.iter().cloned().collect::<BTreeSet<_>>(),
        max_closed: options.max_closed,
        modules: options.modules.iter().map(|(module, component)| (module.clone(), component.to_string())).collect(),
    }
}

/// Before each write the monitor takes in what the kernels did until then.
fn watch(api: &ApiServer, kubelets: &Kubelets, rules: Rules) -> Arc<Mutex<Watching>> {
    let watching = Arc::new(Mutex::new(Watching { monitor: Monitor::new(rules), seen: 0 }));
    // What is there already was put there by the scenario.
    for resource in [
        "nodecomponents.lockkeeper.dev",
        "nodehandoffs.lockkeeper.dev",
        "nodes",
        "persistentvolumeclaims",
        "persistentvolumes",
        "pods",
    ] {
        let stored_as = resource.split('.').next().unwrap_or_default();
        for object in api.list(resource) {
            let write = Write {
                came: api.now(),
                at: api.now(),
                user: "fixture",
                verb: "create",
                resource: stored_as,
                stored_as,
                old: None,
                new: Some(&object),
            };
            lock(&watching).monitor.on_write(&write);
        }
    }
    // Weak: the server keeps its observers, and the kubelets keep the server.
    let (told, kubelets) = (watching.clone(), kubelets.weak());
    api.log().observe(move |record| {
        let mut watching = lock(&told);
        if let Some(kubelets) = kubelets.get() {
            watching.catch_up(&kubelets);
        }
        watching.monitor.on_write(&Write::of(record));
    });
    watching
}
