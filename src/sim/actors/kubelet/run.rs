//! One pod on one machine, from admission to its end: a state machine over the toy kernel. Pure, except that it draws from
//! the seeded dice; the API is spoken to elsewhere.

use super::super::clock::Dice;
use super::super::records::Pod;
use super::behaviour::{Behaviour, Part};
use super::options::KubeletOptions;
use crate::sim::kernel::{Hold, Kernel, PodRef, Provider, Service};
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// Where a pod stands on its machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Volumes, claims or drivers are not there yet.
    Preparing,
    Pulling(Instant),
    Init(Instant),
    /// The init container waits for its module.
    WaitingForModule,
    Starting(Instant),
    Running,
    BackOff(Instant),
    /// Told to end; ends at this time at the latest.
    Stopping(Instant),
    /// No process any more and none to come.
    Ended,
}

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    pub code: i64,
    pub reason: &'static str,
    pub message: String,
    pub started: Timestamp,
    pub finished: Timestamp,
}

/// What a pod needs before its processes may start, resolved from the API.
#[derive(Clone, Debug, Default)]
pub struct Needs {
    /// Devices of claims and volumes that are ready to be used.
    pub holds: Vec<Hold>,
    /// Why it cannot go on yet, if so.
    pub missing: Option<String>,
}

/// A pod on a machine.
#[derive(Clone, Debug)]
pub struct Run {
    pub pod: PodRef,
    pub behaviour: Behaviour,
    pub restart_policy: String,
    pub grace: Duration,
    pub has_init: bool,
    pub host_network: bool,
    pub resources: Vec<(String, i64)>,
    pub stage: Stage,
    pub initialized: bool,
    pub restarts: i64,
    pub crashes: u32,
    pub admitted: Timestamp,
    pub started: Option<Timestamp>,
    pub ready_at: Option<Instant>,
    pub exit_at: Option<Instant>,
    pub last_exit: Option<Exit>,
    /// Set when the phase is Failed for a reason of the kubelet's own (admission, eviction).
    pub failed: Option<(String, String)>,
    pub succeeded: bool,
    /// The API object asked for the end (deletion or its absence).
    pub ending: bool,
    /// Services that must be there to unprepare claims and unmount volumes.
    pub prepared: Vec<Service>,
    /// It has been stopped, but what was prepared cannot be given back: its pod is not over yet.
    pub stalled: bool,
    pub missing: Option<String>,
    /// Last status written, and since when each condition has its value.
    pub reported: Option<serde_json::Value>,
    pub conditions: BTreeMap<&'static str, (bool, Timestamp)>,
}

/// What a step of a run may use.
pub struct Context<'a> {
    pub kernel: &'a mut Kernel,
    pub options: &'a KubeletOptions,
    pub dice: Dice,
    pub at: Instant,
    pub now: Timestamp,
}

impl Run {
    #[must_use]
    pub fn new(pod: &Pod, now: Timestamp) -> Self {
        let meta = &pod.metadata;
        let grace = meta.deletion_grace_period_seconds.or(pod.spec.termination_grace_period_seconds).unwrap_or(30);
        Self {
            pod: PodRef { namespace: meta.ns().to_owned(), name: meta.name.clone(), uid: meta.uid.clone() },
            behaviour: Behaviour::parse(&meta.annotations),
            restart_policy: pod.spec.restart_policy.clone(),
            grace: Duration::from_secs(grace.max(0) as u64),
            has_init: !pod.spec.init_containers.is_empty(),
            host_network: pod.spec.host_network,
            resources: pod.requests().extended().map(|(name, count)| (name.to_owned(), count)).collect(),
            stage: Stage::Preparing,
            initialized: false,
            restarts: 0,
            crashes: 0,
            admitted: now,
            started: None,
            ready_at: None,
            exit_at: None,
            last_exit: None,
            failed: None,
            succeeded: false,
            ending: false,
            prepared: Vec::new(),
            stalled: false,
            missing: None,
            reported: None,
            conditions: BTreeMap::new(),
        }
    }

    #[must_use]
    pub fn key(&self) -> String {
        format!("{}/{}", self.pod.namespace, self.pod.name)
    }

    /// Has processes or will have them: counts against devices.
    #[must_use]
    pub fn active(&self) -> bool {
        self.stage != Stage::Ended
    }

    #[must_use]
    pub fn is_ready(&self, at: Instant) -> bool {
        matches!(self.stage, Stage::Running | Stage::Stopping(_))
            && !self.behaviour.unready
            && self.ready_at.is_some_and(|ready| ready <= at)
    }

    fn draw(&self, context: &Context<'_>, what: &str, own: Option<Duration>, range: super::super::clock::Range) -> Duration {
        own.unwrap_or_else(|| context.dice.between(range, &[what, &self.pod.uid, &self.restarts.to_string()]))
    }

    /// Fails the pod for a reason of the kubelet's: admission, eviction. Its process ends at once.
    pub fn fail(&mut self, reason: &str, message: &str, context: &mut Context<'_>) {
        context.kernel.end(&self.pod.uid, context.now);
        self.failed = Some((reason.to_owned(), message.to_owned()));
        self.stage = Stage::Ended;
    }

    /// The machine went down under it: nothing of it runs, the kubelet will start it again.
    pub fn power_cut(&mut self, now: Timestamp) {
        if self.stage == Stage::Ended {
            return;
        }
        if let Some(started) = self.started.take() {
            self.last_exit = Some(Exit { code: 255, reason: "Unknown", message: String::new(), started, finished: now });
            self.restarts += 1;
        }
        self.stage = if self.ending { Stage::Ended } else { Stage::Preparing };
        (self.initialized, self.ready_at, self.exit_at, self.reported) = (false, None, None, None);
        self.prepared.clear();
    }

    /// SIGTERM, and SIGKILL after the grace.
    pub fn stop(&mut self, context: &Context<'_>) {
        if self.ending {
            return;
        }
        self.ending = true;
        self.stage = match self.stage {
            Stage::Running => {
                let wish = self.draw(context, "stop", self.behaviour.stop, context.options.stop);
                Stage::Stopping(context.at + wish.min(self.grace))
            }
            Stage::Stopping(at) => Stage::Stopping(at),
            _ => Stage::Ended,
        };
    }

    /// What it waits for by the clock is due.
    pub fn hurry(&mut self, at: Instant) {
        match &mut self.stage {
            Stage::Pulling(until)
            | Stage::Init(until)
            | Stage::Starting(until)
            | Stage::BackOff(until)
            | Stage::Stopping(until) => *until = at.min(*until),
            Stage::Running => self.exit_at = self.exit_at.map(|exit| exit.min(at)),
            Stage::Preparing | Stage::WaitingForModule | Stage::Ended => {}
        }
    }

    /// Goes as far as time and kernel allow; returns when to look again (`None`: when something changes).
    pub fn step(&mut self, context: &mut Context<'_>, needs: &Needs) -> Option<Instant> {
        loop {
            let next = match self.stage {
                Stage::Preparing => {
                    self.missing.clone_from(&needs.missing);
                    if self.missing.is_some() {
                        return None;
                    }
                    self.prepared = needs.holds.iter().filter_map(|hold| hold.service.clone()).collect();
                    let pull = self.draw(context, "pull", self.behaviour.pull, context.options.pull);
                    Stage::Pulling(context.at + pull)
                }
                Stage::Pulling(until) if until <= context.at => {
                    let init = if self.has_init {
                        self.draw(context, "init", self.behaviour.init, context.options.init)
                    } else {
                        Duration::ZERO
                    };
                    Stage::Init(context.at + init)
                }
                Stage::Init(until) if until <= context.at => Stage::WaitingForModule,
                Stage::WaitingForModule => {
                    let ours = self
                        .behaviour
                        .module_version()
                        .is_some_and(|(module, version)| context.kernel.loaded(&module) == Some(&version));
                    if self.behaviour.wait_for_module && !ours {
                        return None;
                    }
                    self.initialized = true;
                    Stage::Starting(context.at + self.draw(context, "start", self.behaviour.start, context.options.start))
                }
                Stage::Starting(until) if until <= context.at => match self.launch(context, needs) {
                    Ok(()) => Stage::Running,
                    Err(message) => self.exited(1, message, context.now, context),
                },
                Stage::BackOff(until) if until <= context.at => {
                    Stage::Starting(context.at + self.draw(context, "start", self.behaviour.start, context.options.start))
                }
                Stage::Running => match self.exit_at {
                    Some(at) if at <= context.at => {
                        let (code, message) = self.finish(context);
                        context.kernel.end(&self.pod.uid, context.now);
                        let started = self.started.unwrap_or(context.now);
                        self.exited(code, message, started, context)
                    }
                    exit => return exit.into_iter().chain(self.ready_at.filter(|ready| *ready > context.at)).min(),
                },
                Stage::Stopping(until) if until <= context.at => {
                    context.kernel.end(&self.pod.uid, context.now);
                    let started = self.started.unwrap_or(context.now);
                    // A service ends well on SIGTERM; one that had work to do has not done it.
                    let unfinished = self.behaviour.part == Part::Unload || self.behaviour.exit_after.is_some();
                    let (code, reason) = if unfinished { (143, "Error") } else { (0, "Completed") };
                    self.last_exit = Some(Exit { code, reason, message: String::new(), started, finished: context.now });
                    Stage::Ended
                }
                Stage::Stopping(until) => {
                    return Some(self.ready_at.filter(|ready| *ready > context.at).map_or(until, |ready| ready.min(until)));
                }
                Stage::Pulling(until) | Stage::Init(until) | Stage::Starting(until) | Stage::BackOff(until) => {
                    return Some(until);
                }
                Stage::Ended => return None,
            };
            self.stage = next;
        }
    }

    /// Starts the process: opens what it needs, serves what it serves.
    fn launch(&mut self, context: &mut Context<'_>, needs: &Needs) -> Result<(), String> {
        let behaviour = &self.behaviour;
        if behaviour.crash {
            return Err("simulated crash".into());
        }
        let mut holds = needs.holds.clone();
        for (resource, count) in &self.resources {
            let service = Service::Resource(resource.clone());
            let Some(provider) = context.kernel.provider(&service) else {
                if context.options.is_static(resource) {
                    continue;
                }
                return Err(format!("no device plugin serves {resource}"));
            };
            let module = provider.module.as_ref().map(|(module, _)| module.clone());
            if let Some(module) = &module
                && context.kernel.loaded(module).is_none()
            {
                return Err(format!("open /dev/{module}: no such device"));
            }
            for index in 0..*count {
                holds.push(Hold {
                    service: Some(service.clone()),
                    module: module.clone(),
                    device: format!("{resource}#{index}"),
                    dies_with_provider: true,
                    heals: false,
                });
            }
        }
        match behaviour.part {
            Part::Loader => {
                if let Some((module, version)) = behaviour.module_version() {
                    if behaviour.force && context.kernel.loaded(&module).is_some_and(|loaded| loaded != version) {
                        context.kernel.unload(&module, &self.pod, true, context.now)?;
                    }
                    context.kernel.load(&module, &version, &self.pod, context.now)?;
                }
            }
            Part::Claimant => {
                if let Some(module) = &behaviour.module
                    && !holds.iter().any(|hold| hold.module.as_ref() == Some(module))
                {
                    if context.kernel.loaded(module).is_none() {
                        return Err(format!("open /dev/{module}: no such device"));
                    }
                    holds.push(Hold {
                        service: None,
                        module: Some(module.clone()),
                        device: format!("/dev/{module}"),
                        dies_with_provider: false,
                        heals: false,
                    });
                }
            }
            Part::DevicePlugin | Part::DraDriver => {
                if let Some(module) = &behaviour.module
                    && context.kernel.loaded(module).is_none()
                {
                    return Err(format!("no device of module {module} found"));
                }
            }
            Part::CsiNodePlugin | Part::Unload | Part::Plain => {}
        }
        context.kernel.start(&self.pod, holds, context.now);
        let service = match behaviour.part {
            Part::DevicePlugin => behaviour.resource.clone().map(Service::Resource),
            Part::DraDriver => behaviour.driver.clone().map(Service::Dra),
            Part::CsiNodePlugin => behaviour.driver.clone().map(Service::Csi),
            _ => None,
        };
        if let Some(service) = service {
            let devices = behaviour.devices.unwrap_or(context.options.devices);
            let provider = Provider { service, pod: self.pod.clone(), module: behaviour.module_version(), devices };
            context.kernel.register(provider, context.now);
        }
        self.started = Some(context.now);
        self.ready_at = Some(context.at + self.draw(context, "ready", self.behaviour.ready, context.options.ready));
        let work = if self.behaviour.part == Part::Unload {
            Some(self.draw(context, "unload", self.behaviour.exit_after, context.options.unload))
        } else {
            self.behaviour.exit_after
        };
        self.exit_at = work.map(|work| context.at + work);
        Ok(())
    }

    /// What a process that ends by itself does last.
    fn finish(&self, context: &mut Context<'_>) -> (i64, String) {
        match (&self.behaviour.part, &self.behaviour.module) {
            (Part::Unload, Some(module)) => match context.kernel.unload(module, &self.pod, self.behaviour.force, context.now) {
                Ok(()) if self.behaviour.exit_code != 0 => (self.behaviour.exit_code, "simulated failure".into()),
                Ok(()) => (0, format!("module {module} is not loaded")),
                Err(message) => (1, message),
            },
            _ => (self.behaviour.exit_code, String::new()),
        }
    }

    fn exited(&mut self, code: i64, message: String, started: Timestamp, context: &Context<'_>) -> Stage {
        let reason = if code == 0 { "Completed" } else { "Error" };
        self.last_exit = Some(Exit { code, reason, message, started, finished: context.now });
        (self.started, self.ready_at, self.exit_at) = (None, None, None);
        let again = match self.restart_policy.as_str() {
            "Never" => false,
            "OnFailure" => code != 0,
            _ => true,
        };
        if !again {
            self.succeeded = code == 0;
            return Stage::Ended;
        }
        self.restarts += 1;
        self.crashes += 1;
        let wait =
            context.options.crash_backoff.saturating_mul(1 << (self.crashes - 1).min(10)).min(context.options.crash_backoff_max);
        Stage::BackOff(context.at + wait)
    }
}
