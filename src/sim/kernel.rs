//! The toy kernel of one simulated node: modules, who serves devices and mounts, which processes hold them, and who lost
//! one while running. Pure; the kubelet actor drives it, scenarios and the invariant monitor read it.

use jiff::Timestamp;
use serde::Serialize;
use std::collections::BTreeMap;

/// The pod behind a process.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct PodRef {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

/// What a process of a device plugin, DRA driver or CSI nodeplugin serves.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Service {
    /// An extended resource, by device plugin.
    Resource(String),
    /// A DRA driver.
    Dra(String),
    /// A CSI driver.
    Csi(String),
}

/// A registered provider of devices or volumes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Provider {
    pub service: Service,
    pub pod: PodRef,
    /// The module behind the devices and the version the provider was made for.
    pub module: Option<(String, String)>,
    /// How many devices it offers.
    pub devices: i64,
}

/// Something that a process holds open.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Hold {
    /// Who served it; `None` for a module opened directly (claimants known by a pod selector).
    pub service: Option<Service>,
    /// The module that must stay loaded.
    pub module: Option<String>,
    /// Device or volume name, for people.
    pub device: String,
    /// The hold breaks when the provider's process ends (devices of a plugin, FUSE and rbd-nbd mounts; not kernel mounts).
    pub dies_with_provider: bool,
    /// It only stalls, and lives again if the provider is back within [`HEALS_WITHIN`] (rbd-nbd's reattach timeout, with its healer).
    pub heals: bool,
}

/// After this many seconds without its daemon a network block device fails.
pub const HEALS_WITHIN: i64 = 300;

/// A running process, by pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Process {
    pub pod: PodRef,
    pub holds: Vec<Hold>,
    pub since: Timestamp,
    /// It lost one of its holds while running and was counted for it.
    pub broken: bool,
}

/// Why a running process lost what it held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Cause {
    ModuleUnloaded,
    PluginGone,
    DriverGone,
    MountLost,
    NetworkLost,
}

/// A workload that lost its device, mount or network while running.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Disruption {
    pub at: Timestamp,
    pub node: String,
    pub pod: PodRef,
    pub cause: Cause,
    pub device: String,
}

/// What happened in a kernel. The list of these is stable for a seed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum What {
    Booted {
        boot_id: String,
    },
    PoweredOff {
        processes: usize,
    },
    ModuleLoaded {
        module: String,
        version: String,
        pod: PodRef,
    },
    /// A loader met another version: two versions at once were asked for.
    LoadRefused {
        module: String,
        version: String,
        loaded: String,
        pod: PodRef,
    },
    ModuleUnloaded {
        module: String,
        version: String,
        pod: PodRef,
        forced: bool,
    },
    UnloadRefused {
        module: String,
        users: Vec<PodRef>,
        pod: PodRef,
    },
    ProviderRegistered {
        service: Service,
        pod: PodRef,
        module: Option<(String, String)>,
    },
    /// A provider serves although its module is missing or of another version.
    ProviderWithoutModule {
        service: Service,
        pod: PodRef,
        module: String,
        version: String,
        loaded: Option<String>,
    },
    ProviderGone {
        service: Service,
        pod: PodRef,
    },
    ProcessStarted {
        pod: PodRef,
        holds: Vec<Hold>,
    },
    ProcessEnded {
        pod: PodRef,
    },
    Disrupted {
        pod: PodRef,
        cause: Cause,
        device: String,
    },
}

/// One entry of the event list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Event {
    pub at: Timestamp,
    pub node: String,
    pub what: What,
}

/// A copy of a kernel's state at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Snapshot {
    pub node: String,
    pub boot_id: String,
    pub powered: bool,
    /// Loaded version by module name.
    pub modules: BTreeMap<String, String>,
    pub providers: Vec<Provider>,
    /// Running processes, those that hold something and those that do not, sorted by pod UID.
    pub processes: Vec<Process>,
    pub disruptions: Vec<Disruption>,
}

impl Snapshot {
    /// The processes that hold a device of this module now, the providers' own not counted.
    #[must_use]
    pub fn users_of(&self, module: &str) -> Vec<&PodRef> {
        let holds = |process: &&Process| process.holds.iter().any(|hold| hold.module.as_deref() == Some(module));
        self.processes.iter().filter(holds).map(|process| &process.pod).collect()
    }
}

/// The kernel of one node.
#[derive(Clone, Debug)]
pub struct Kernel {
    node: String,
    boot_id: String,
    powered: bool,
    modules: BTreeMap<String, String>,
    providers: Vec<Provider>,
    processes: BTreeMap<String, Process>,
    /// Services whose provider has gone while something that heals hung on it, and since when.
    stalled: BTreeMap<Service, Timestamp>,
    disruptions: Vec<Disruption>,
    events: Vec<Event>,
}

impl Kernel {
    #[must_use]
    pub fn new(node: &str, boot_id: String, now: Timestamp) -> Self {
        let mut kernel = Self {
            node: node.to_owned(),
            boot_id: String::new(),
            powered: false,
            modules: BTreeMap::new(),
            providers: Vec::new(),
            processes: BTreeMap::new(),
            stalled: BTreeMap::new(),
            disruptions: Vec::new(),
            events: Vec::new(),
        };
        kernel.boot(boot_id, now);
        kernel
    }

    fn log(&mut self, at: Timestamp, what: What) {
        self.events.push(Event { at, node: self.node.clone(), what });
    }

    /// Takes the events since the last call.
    pub fn drain_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Starts with an empty kernel under a new boot ID.
    pub fn boot(&mut self, boot_id: String, now: Timestamp) {
        if self.powered {
            self.power_off(now);
        }
        self.boot_id.clone_from(&boot_id);
        self.powered = true;
        self.log(now, What::Booted { boot_id });
    }

    /// Everything in it is gone. Processes end with the machine, which is the scenario's doing and no disruption.
    pub fn power_off(&mut self, now: Timestamp) {
        let processes = self.processes.len();
        self.powered = false;
        self.modules.clear();
        self.providers.clear();
        self.processes.clear();
        self.stalled.clear();
        self.log(now, What::PoweredOff { processes });
    }

    #[must_use]
    pub fn boot_id(&self) -> &str {
        &self.boot_id
    }

    /// The loaded version of a module.
    #[must_use]
    pub fn loaded(&self, module: &str) -> Option<&str> {
        self.modules.get(module).map(String::as_str)
    }

    /// Who serves devices or volumes now.
    #[must_use]
    pub fn providers(&self) -> &[Provider] {
        &self.providers
    }

    #[must_use]
    pub fn provider(&self, service: &Service) -> Option<&Provider> {
        self.providers.iter().find(|provider| provider.service == *service)
    }

    /// How many devices of a service running processes hold.
    #[must_use]
    pub fn held(&self, service: &Service) -> i64 {
        let holds = self.processes.values().flat_map(|process| &process.holds);
        holds.filter(|hold| hold.service.as_ref() == Some(service)).count() as i64
    }

    /// Loads a module; loading what is loaded already is no change.
    ///
    /// # Errors
    /// Another version is loaded: what the loader prints.
    pub fn load(&mut self, module: &str, version: &str, pod: &PodRef, now: Timestamp) -> Result<(), String> {
        match self.modules.get(module).cloned() {
            Some(loaded) if loaded == version => Ok(()),
            Some(loaded) => {
                let error = format!("insmod: module {module} is already loaded in version {loaded}, cannot load {version}");
                self.log(now, What::LoadRefused { module: module.into(), version: version.into(), loaded, pod: pod.clone() });
                Err(error)
            }
            None => {
                self.modules.insert(module.to_owned(), version.to_owned());
                self.log(now, What::ModuleLoaded { module: module.into(), version: version.into(), pod: pod.clone() });
                Ok(())
            }
        }
    }

    /// Unloads a module; one that is not loaded is success. `force` takes it from under its users.
    ///
    /// # Errors
    /// It is in use by a running process or provider: what rmmod prints.
    pub fn unload(&mut self, module: &str, pod: &PodRef, force: bool, now: Timestamp) -> Result<(), String> {
        let Some(version) = self.modules.get(module).cloned() else { return Ok(()) };
        let mut users: Vec<PodRef> =
            self.providers.iter().filter(|p| p.module.as_ref().is_some_and(|m| m.0 == module)).map(|p| p.pod.clone()).collect();
        for process in self.processes.values() {
            if process.holds.iter().any(|hold| hold.module.as_deref() == Some(module)) {
                users.push(process.pod.clone());
            }
        }
        if !users.is_empty() && !force {
            let names: Vec<String> = users.iter().map(|user| format!("{}/{}", user.namespace, user.name)).collect();
            self.log(now, What::UnloadRefused { module: module.into(), users, pod: pod.clone() });
            return Err(format!("rmmod: ERROR: module {module} is in use by {}", names.join(", ")));
        }
        self.modules.remove(module);
        self.log(now, What::ModuleUnloaded { module: module.into(), version, pod: pod.clone(), forced: !users.is_empty() });
        self.disrupt(Cause::ModuleUnloaded, now, |hold| hold.module.as_deref() == Some(module));
        Ok(())
    }

    fn disrupt(&mut self, cause: Cause, now: Timestamp, hit: impl Fn(&Hold) -> bool) {
        let mut lost = Vec::new();
        for process in self.processes.values_mut().filter(|process| !process.broken) {
            if let Some(hold) = process.holds.iter().find(|hold| hit(hold)) {
                lost.push((process.pod.clone(), hold.device.clone()));
                process.broken = true;
            }
        }
        for (pod, device) in lost {
            self.disruptions.push(Disruption {
                at: now,
                node: self.node.clone(),
                pod: pod.clone(),
                cause,
                device: device.clone(),
            });
            self.log(now, What::Disrupted { pod, cause, device });
        }
    }

    /// The host lost its network (a DPU went away): every process that is not on the host's own wire is hit.
    pub fn lose_network(&mut self, now: Timestamp, spared: impl Fn(&PodRef) -> bool) {
        let mut lost = Vec::new();
        for process in self.processes.values_mut().filter(|process| !process.broken && !spared(&process.pod)) {
            process.broken = true;
            lost.push(process.pod.clone());
        }
        for pod in lost {
            let (cause, device) = (Cause::NetworkLost, "network".to_owned());
            self.disruptions.push(Disruption {
                at: now,
                node: self.node.clone(),
                pod: pod.clone(),
                cause,
                device: device.clone(),
            });
            self.log(now, What::Disrupted { pod, cause, device });
        }
    }

    /// A provider starts to serve. The newest registration of a service replaces an older one.
    pub fn register(&mut self, provider: Provider, now: Timestamp) {
        self.providers.retain(|known| known.service != provider.service);
        if let Some(since) = self.stalled.remove(&provider.service)
            && now.duration_since(since).as_secs() > HEALS_WITHIN
        {
            self.disrupt(Cause::MountLost, now, |hold| hold.heals && hold.service.as_ref() == Some(&provider.service));
        }
        if let Some((module, version)) = &provider.module
            && self.loaded(module) != Some(version)
        {
            let loaded = self.loaded(module).map(str::to_owned);
            let (service, pod, module, version) =
                (provider.service.clone(), provider.pod.clone(), module.clone(), version.clone());
            self.log(now, What::ProviderWithoutModule { service, pod, module, version, loaded });
        }
        self.log(
            now,
            What::ProviderRegistered {
                service: provider.service.clone(),
                pod: provider.pod.clone(),
                module: provider.module.clone(),
            },
        );
        self.providers.push(provider);
    }

    /// A process starts and opens what it needs.
    pub fn start(&mut self, pod: &PodRef, holds: Vec<Hold>, now: Timestamp) {
        self.log(now, What::ProcessStarted { pod: pod.clone(), holds: holds.clone() });
        self.processes.insert(pod.uid.clone(), Process { pod: pod.clone(), holds, since: now, broken: false });
    }

    /// A process ends: what it held is closed, what it served is gone (and hits who still holds it).
    pub fn end(&mut self, uid: &str, now: Timestamp) {
        if let Some(process) = self.processes.remove(uid) {
            self.log(now, What::ProcessEnded { pod: process.pod });
        }
        let (gone, kept) =
            std::mem::take(&mut self.providers).into_iter().partition::<Vec<_>, _>(|provider| provider.pod.uid == uid);
        self.providers = kept;
        for provider in gone {
            self.log(now, What::ProviderGone { service: provider.service.clone(), pod: provider.pod.clone() });
            let cause = match provider.service {
                Service::Resource(_) => Cause::PluginGone,
                Service::Dra(_) => Cause::DriverGone,
                Service::Csi(_) => Cause::MountLost,
            };
            let of = |hold: &Hold| hold.dies_with_provider && hold.service.as_ref() == Some(&provider.service);
            self.disrupt(cause, now, |hold| of(hold) && !hold.heals);
            if self.processes.values().flat_map(|process| &process.holds).any(|hold| of(hold) && hold.heals) {
                self.stalled.entry(provider.service.clone()).or_insert(now);
            }
        }
    }

    #[must_use]
    pub fn running(&self, uid: &str) -> Option<&Process> {
        self.processes.get(uid)
    }

    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            node: self.node.clone(),
            boot_id: self.boot_id.clone(),
            powered: self.powered,
            modules: self.modules.clone(),
            providers: self.providers.clone(),
            processes: self.processes.values().cloned().collect(),
            disruptions: self.disruptions.clone(),
        }
    }

    #[must_use]
    pub fn disruptions(&self) -> &[Disruption] {
        &self.disruptions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str) -> PodRef {
        PodRef { namespace: "ns".into(), name: name.into(), uid: format!("uid-{name}") }
    }

    fn gpu() -> Service {
        Service::Resource("vendor.com/gpu".into())
    }

    fn hold() -> Hold {
        Hold { service: Some(gpu()), module: Some("gpu".into()), device: "gpu0".into(), dies_with_provider: true, heals: false }
    }

    fn kernel() -> Kernel {
        let mut kernel = Kernel::new("n1", "boot-1".into(), Timestamp::UNIX_EPOCH);
        kernel.load("gpu", "1", &pod("loader"), Timestamp::UNIX_EPOCH).unwrap();
        let provider = Provider { service: gpu(), pod: pod("plugin"), module: Some(("gpu".into(), "1".into())), devices: 4 };
        kernel.register(provider, Timestamp::UNIX_EPOCH);
        kernel
    }

    #[test]
    fn a_module_in_use_is_not_unloaded_and_force_disrupts_its_users() {
        let (mut kernel, now) = (kernel(), Timestamp::UNIX_EPOCH);
        kernel.start(&pod("app"), vec![hold()], now);
        let error = kernel.unload("gpu", &pod("unload"), false, now).unwrap_err();
        assert!(error.contains("ns/plugin, ns/app"), "{error}");
        kernel.unload("gpu", &pod("unload"), true, now).unwrap();
        assert_eq!(kernel.disruptions().len(), 1);
        assert_eq!(kernel.disruptions()[0].cause, Cause::ModuleUnloaded);
    }

    #[test]
    fn a_plugin_that_ends_hits_who_holds_its_devices_once() {
        let (mut kernel, now) = (kernel(), Timestamp::UNIX_EPOCH);
        kernel.start(&pod("app"), vec![hold()], now);
        kernel.end("uid-plugin", now);
        kernel.unload("gpu", &pod("unload"), true, now).unwrap();
        assert_eq!(kernel.disruptions().iter().map(|d| d.cause).collect::<Vec<_>>(), [Cause::PluginGone]);
    }

    #[test]
    fn a_block_device_heals_if_its_daemon_is_back_in_time() {
        for (seconds, lost) in [(HEALS_WITHIN, 0), (HEALS_WITHIN + 1, 1)] {
            let (mut kernel, now) = (kernel(), Timestamp::UNIX_EPOCH);
            let service = Service::Csi("rbd.csi.ceph.com".into());
            let provider = |name: &str| Provider { service: service.clone(), pod: pod(name), module: None, devices: 0 };
            kernel.register(provider("old"), now);
            let hold = Hold { service: Some(service.clone()), module: None, heals: true, ..hold() };
            kernel.start(&pod("app"), vec![hold], now);
            kernel.end("uid-old", now);
            assert!(kernel.disruptions().is_empty());
            kernel.register(provider("new"), Timestamp::from_second(seconds).unwrap());
            assert_eq!(kernel.disruptions().len(), lost, "{seconds}");
        }
    }

    #[test]
    fn another_version_is_refused_and_a_reboot_empties_the_kernel() {
        let (mut kernel, now) = (kernel(), Timestamp::UNIX_EPOCH);
        assert!(kernel.load("gpu", "2", &pod("loader-2"), now).unwrap_err().contains("already loaded in version 1"));
        kernel.start(&pod("app"), vec![hold()], now);
        kernel.boot("boot-2".into(), now);
        let snapshot = kernel.snapshot();
        assert!(snapshot.modules.is_empty() && snapshot.processes.is_empty() && snapshot.disruptions.is_empty());
        kernel.load("gpu", "2", &pod("loader-2"), now).unwrap();
    }

    #[test]
    fn a_plugin_on_the_wrong_module_is_recorded() {
        let mut kernel = kernel();
        let provider = Provider { service: gpu(), pod: pod("plugin-2"), module: Some(("gpu".into(), "2".into())), devices: 4 };
        kernel.register(provider, Timestamp::UNIX_EPOCH);
        assert!(
            kernel
                .drain_events()
                .iter()
                .any(|event| matches!(&event.what, What::ProviderWithoutModule { loaded: Some(v), .. } if v == "1"))
        );
    }
}
