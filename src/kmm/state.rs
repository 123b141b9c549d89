//! Where a Module stands on a node: a total function of what the cluster says. What is loaded is believed only with proof; the labels that
//! KMM sets are none.

use std::{collections::BTreeSet, time::Duration};

use super::{
    keys::{self, Era, Label},
    ladder,
    problem::{Begun, Place, Problem, Weight},
    records::{Action, Entry, ImagesRecord, ModuleRecord, NmcRecord, Part, Phase, PodRecord, SetRecord},
    tolerations::{self, Trap},
    triple::{Move, Triple},
};
use crate::{
    api::ObjectKey,
    fleet::records::{NodeRecord, ReadyStatus, Str},
};

/// What is known of one Module on one node.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    pub node: &'a NodeRecord,
    pub module: &'a ObjectKey,
    pub spec: Option<&'a ModuleRecord>,
    pub nmc: Option<&'a NmcRecord>,
    pub images: Option<&'a ImagesRecord>,
    /// Of this Module: its pods on this node, and its pull pods on any.
    pub pods: &'a [&'a PodRecord],
    pub sets: &'a [&'a SetRecord],
    /// All Modules of the cluster.
    pub modules: &'a BTreeSet<ObjectKey>,
    /// Versions of this Module that anything in the cluster knows: Module, DaemonSets, NodeModulesConfigs.
    pub versions: &'a BTreeSet<Str>,
    pub seen: Seen,
}

/// What only somebody who watches can know.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    /// Worker pods of this Module on this node that ended as Failed within the last minute, those not counted that were deleted before.
    pub workers_failed: u32,
    /// Time since KMM's last change of a version label on the node: KMM's back-off counts from there.
    pub label_written: Option<Duration>,
    /// A Load pod was deleted before it ended, and no load or reboot came after it.
    pub load_cut_off: bool,
}

/// From here on it is no chance: KMM makes the next one at once, without back-off.
const MADE_AGAIN: u32 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Not wanted, and proven not to be there.
    Absent,
    /// Proven to be loaded as wanted.
    Loaded,
    /// KMM is taking its labels away: the plugin ends, the unload comes next.
    Stopping,
    Unloading,
    /// Wanted, not there; KMM goes on by itself.
    Starting,
    Loading,
    /// It goes out and comes in again, in one go: image changed, node rebooted, or an unload that is not wanted any more.
    Reloading,
    /// Wanted, not there, and something outside of KMM is missing.
    Waiting,
    /// KMM will not go on by itself.
    Stuck,
    /// The node is silent, or a load was cut off.
    Unknown,
}

impl State {
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Loaded => "loaded",
            Self::Stopping => "stopping",
            Self::Unloading => "unloading",
            Self::Starting => "starting",
            Self::Loading => "loading",
            Self::Reloading => "reloading",
            Self::Waiting => "waiting",
            Self::Stuck => "stuck",
            Self::Unknown => "unknown",
        }
    }
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeModule {
    pub module: ObjectKey,
    pub state: State,
    /// The version that the node's label asks for; a Module without version: None.
    pub wanted: Option<Str>,
    /// The version (or image, without one) that is proven to be in the kernel, whatever else happens.
    pub loaded: Option<Str>,
    /// What a worker pod is doing, and with which version or image.
    pub busy: Option<(Action, Str)>,
    pub labels: Triple,
    /// One sentence for people.
    pub sentence: String,
    /// The worst first.
    pub problems: Vec<Problem>,
    pub wait: Option<Wait>,
}

/// A wait of KMM's that it polls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    /// What it waits for, and None once that has come: then only for its next try.
    pub until: Option<String>,
    /// How long it waits at least, from now, if it is known when the wait began.
    pub more: Option<Duration>,
    /// What starts a try at once, where that is safe: to set the version that is wanted next.
    pub wake: Option<String>,
}

fn version_of(entry: &Entry) -> Str {
    entry.version.clone().unwrap_or_else(|| entry.image.clone())
}

struct View<'a> {
    facts: Facts<'a>,
    labels: Triple,
    wanted: Option<&'a Entry>,
    recorded: Option<&'a Entry>,
    worker: Option<&'a PodRecord>,
    plugins: Vec<&'a PodRecord>,
}

impl<'a> Facts<'a> {
    /// Where the Module stands on the node.
    #[must_use]
    pub fn read(self) -> NodeModule {
        let here = |pod: &&&PodRecord| pod.node.as_ref() == Some(&self.node.name);
        let view = View {
            facts: self,
            labels: Triple::of(&self.node.labels, self.module),
            wanted: self.nmc.and_then(|nmc| nmc.wanted(self.module)),
            recorded: self.nmc.and_then(|nmc| nmc.recorded(self.module)),
            worker: self.pods.iter().filter(here).find(|pod| pod.action().is_some()).copied(),
            plugins: self.pods.iter().filter(here).filter(|pod| matches!(pod.part, Part::Plugin { .. })).copied().collect(),
        };
        view.answer()
    }

    fn place(&self) -> Place<'a> {
        Place { node: self.node.name.as_str(), module: self.module, spec: self.spec }
    }
}

impl View<'_> {
    fn silent(&self) -> bool {
        self.facts.node.ready.status == ReadyStatus::Unknown
    }

    fn rebooted(&self) -> bool {
        self.recorded.is_some_and(|entry| entry.boot_id != self.facts.node.boot_id || entry.boot_id.as_str().is_empty())
    }

    fn same_config(&self) -> bool {
        matches!((self.wanted, self.recorded), (Some(wanted), Some(recorded)) if wanted.config == recorded.config)
    }

    /// No worker pod of the node, what KMM wants is what it has recorded, and in this boot.
    fn loaded(&self) -> Option<Str> {
        let proven = self.worker.is_none() && !self.silent() && !self.rebooted() && self.same_config();
        self.recorded.filter(|_| proven).map(version_of)
    }

    fn module_version(&self) -> Option<&Str> {
        self.facts.spec.and_then(|spec| spec.version.as_ref())
    }

    fn versioned(&self) -> bool {
        self.module_version().is_some()
    }

    fn taint(&self) -> Option<String> {
        let spec = self.facts.spec?;
        let taint = tolerations::untolerated(&self.facts.node.taints, &spec.tolerations)?;
        Some(match &*taint.value {
            "" => format!("{}:{}", taint.key, taint.effect),
            value => format!("{}={value}:{}", taint.key, taint.effect),
        })
    }

    fn image(&self) -> Option<String> {
        self.facts.spec.and_then(|spec| spec.image_for(&self.facts.node.kernel))
    }

    fn answer(self) -> NodeModule {
        let mut problems = self.problems();
        let state = self.state(&problems);
        problems.sort_by_key(|problem| std::cmp::Reverse(problem.weight()));
        let wait = self.wait(state);
        let busy = self.worker.and_then(|pod| {
            let Part::Worker { action, image, version } = &pod.part else { return None };
            let of = |entry: Option<&Entry>| entry.map(version_of);
            let version = match action {
                Action::Load => version.clone().or_else(|| of(self.wanted)),
                Action::Unload => of(self.recorded),
            };
            Some((*action, version.or_else(|| image.clone()).unwrap_or_else(|| "an unknown version".into())))
        });
        let sentence = self.sentence(state, busy.as_ref(), wait.as_ref(), problems.first());
        NodeModule {
            module: self.facts.module.clone(),
            state,
            wanted: self.labels.desired.clone(),
            loaded: self.loaded(),
            busy,
            labels: self.labels,
            sentence,
            problems,
            wait,
        }
    }

    fn state(&self, problems: &[Problem]) -> State {
        let has = |kinds: &[&str]| problems.iter().any(|problem| kinds.contains(&problem.kind()));
        if let Some(worker) = self.worker {
            return match worker.action() {
                _ if self.silent() => State::Unknown,
                _ if has(&["LoadCutOff"]) => State::Unknown,
                _ if has(&["UnloadCrashLoop", "LoadCrashLoop", "UnloadMadeAgain", "LoadMadeAgain", "WorkerImageMissing"]) => {
                    State::Stuck
                }
                // The same config in this boot: the load has ended, and the pod is about to go.
                Some(Action::Load) if self.recorded.is_some() && (self.rebooted() || !self.same_config()) => State::Reloading,
                Some(Action::Load) => State::Loading,
                _ if self.wanted.is_some() => State::Reloading,
                _ => State::Unloading,
            };
        }
        match (self.wanted, self.recorded) {
            _ if self.silent() && (self.wanted.is_some() || self.recorded.is_some()) => State::Unknown,
            (None, Some(_)) if !self.rebooted() => State::Unloading,
            (Some(_), None) if has(&["LoadMadeAgain"]) => State::Stuck,
            (Some(_), None) if self.taint().is_some() => State::Waiting,
            (Some(_), None) => State::Loading,
            (Some(_), Some(_)) if self.rebooted() || !self.same_config() => State::Reloading,
            (Some(_), Some(_)) => self.state_loaded(),
            (None, _) if self.facts.seen.load_cut_off => State::Unknown,
            (None, _) => self.state_out(problems),
        }
    }

    /// Proven to be loaded: is it to stay?
    fn state_loaded(&self) -> State {
        let row = self.labels.row();
        match row.moves() {
            Move::RemoveSchedule | Move::RemoveLoader => State::Stopping,
            // KMM takes it for not wanted without the worker label.
            _ if self.labels.loader.is_none() && self.versioned() => State::Stopping,
            Move::Stuck => State::Stuck,
            _ => State::Loaded,
        }
    }

    /// Proven not to be there: is it to come?
    fn state_out(&self, problems: &[Problem]) -> State {
        let has = |kinds: &[&str]| problems.iter().any(|problem| kinds.contains(&problem.kind()));
        let row = self.labels.row();
        if has(&["StuckLabels", "UnknownVersion", "OldVersionLost", "NoKernelMapping", "DottedName", "NoModule"]) {
            return State::Stuck;
        }
        let wanted = match self.facts.spec {
            None => self.labels.desired.is_some(),
            Some(spec) if spec.deleting || !spec.loads || !spec.selects(&self.facts.node.labels) => false,
            Some(_) if self.versioned() => self.labels.desired.is_some(),
            Some(_) => true,
        };
        match row.moves() {
            Move::RemoveSchedule | Move::RemoveLoader if !wanted => State::Stopping,
            _ if !wanted => State::Absent,
            _ if has(&["KeptOut", "ImageMissing"]) => State::Waiting,
            _ => State::Starting,
        }
    }

    fn problems(&self) -> Vec<Problem> {
        let mut found = Vec::new();
        self.worker_problems(&mut found);
        self.label_problems(&mut found);
        self.spec_problems(&mut found);
        self.plugin_problems(&mut found);
        self.name_problems(&mut found);
        found
    }

    fn worker_problems(&self, found: &mut Vec<Problem>) {
        let failed = self.facts.seen.workers_failed;
        let cut_off = self.facts.seen.load_cut_off && self.wanted.is_none() && self.recorded.is_none();
        let Some(worker) = self.worker else {
            if failed >= MADE_AGAIN && self.wanted.is_some() != self.recorded.is_some() {
                let action = if self.wanted.is_some() { Action::Load } else { Action::Unload };
                found.push(Problem::WorkerMadeAgain { action, times: failed });
            }
            if cut_off {
                found.push(Problem::LoadCutOff);
            }
            return;
        };
        let action = worker.action().unwrap_or(Action::Load);
        let (restarts, exit) = (worker.restarts, worker.failed.as_ref().map(|(code, _)| *code));
        let says = worker.failed_message.clone();
        // A pod that is being ended fails as it should.
        let crashing = worker.crashing() && !worker.deleting && worker.phase != Phase::Failed;
        if worker.image_missing() {
            let Part::Worker { image, .. } = &worker.part else { return };
            found.push(Problem::WorkerImageMissing { image: image.clone(), reason: worker.waits().unwrap_or_default() });
        } else if crashing {
            found.push(match action {
                Action::Load => Problem::LoadCrashLoop { restarts, exit, says },
                Action::Unload => Problem::UnloadCrashLoop { restarts, exit, says, begun: self.unload_begun() },
            });
        } else if failed >= MADE_AGAIN {
            found.push(Problem::WorkerMadeAgain { action, times: failed });
        }
        match action {
            Action::Load if worker.deleting && self.wanted.is_none() && self.recorded.is_none() => {
                found.push(Problem::LoadCutOff)
            }
            Action::Unload if worker.alive() && !worker.deleting => {
                if self.silent() {
                    found.push(Problem::UnloadOnSilentNode);
                } else if self.same_config() && !self.rebooted() {
                    found.push(Problem::UnloadNotCancelled { started: worker.phase != Phase::Pending });
                }
                let plugins: Vec<Str> =
                    self.plugins.iter().filter(|pod| pod.alive() && !self.silent()).map(|pod| pod.key.name.clone()).collect();
                if !plugins.is_empty() {
                    found.push(Problem::UnloadUnderPlugin { pods: plugins, begun: self.unload_begun() });
                }
            }
            _ => {}
        }
    }

    fn unload_begun(&self) -> Begun {
        let other_image = matches!((self.wanted, self.recorded), (Some(wanted), Some(recorded))
            if wanted.version == recorded.version && wanted.image != recorded.image);
        match self.taint() {
            _ if other_image => Begun::ByImage,
            Some(taint) if self.wanted.is_none() => Begun::ByTaint(taint),
            _ => Begun::ByLabel,
        }
    }

    fn label_problems(&self, found: &mut Vec<Problem>) {
        let row = self.labels.row();
        let present = |labels: &[Label]| {
            let keys = labels.iter().flat_map(|label| label.keys(self.facts.module));
            keys.filter(|key| self.facts.node.labels.contains_key(&**key)).collect::<Vec<String>>()
        };
        if row.stuck() {
            found.push(Problem::StuckLabels { row, schedule_keys: present(&[Label::Schedule]) });
        }
        if !self.labels.outdated.is_empty() {
            found.push(Problem::OutdatedLabels { keys: self.labels.outdated.clone() });
        }
        if self.facts.spec.is_none() {
            let keys = present(&[Label::Desired, Label::Schedule, Label::Loader]);
            if !keys.is_empty() && self.wanted.is_none() && self.recorded.is_none() {
                found.push(Problem::NoModule { keys });
            }
        }
        if self.labels.ready && self.loaded().is_none() {
            let why = if self.silent() {
                "the node is silent"
            } else if self.worker.is_some() {
                "a worker pod is on the node"
            } else if self.rebooted() {
                "the node has rebooted since the load"
            } else if self.recorded.is_none() {
                "KMM has recorded no load"
            } else {
                "what KMM has recorded is not what it wants"
            };
            found.push(Problem::ReadyIsWrong { why });
        }
    }

    fn spec_problems(&self, found: &mut Vec<Problem>) {
        let Some(spec) = self.facts.spec.filter(|spec| !spec.deleting && spec.loads && spec.selects(&self.facts.node.labels))
        else {
            return;
        };
        let out = self.wanted.is_none() && (self.recorded.is_none() || self.rebooted()) && self.worker.is_none();
        let desired = self.labels.desired.as_ref();
        let trap = Trap::of(&spec.tolerations);
        match (&spec.version, desired) {
            (None, Some(_)) | (None, None) => found.push(Problem::NoVersion),
            (Some(version), Some(desired)) if version != desired => {
                let known = self.facts.versions.contains(desired);
                if self.loaded().is_some_and(|loaded| loaded == *desired) {
                    if let Some(trap) = &trap {
                        let (version, module) = (desired.clone(), version.clone());
                        found.push(Problem::OldVersionExposed { version, module, by: trap.what() });
                    }
                } else if !known {
                    found.push(Problem::UnknownVersion { label: desired.clone(), module: Some(version.clone()) });
                } else if out {
                    found.push(Problem::OldVersionLost { version: desired.clone(), module: version.clone() });
                }
            }
            _ => {}
        }
        let meant = spec.version.as_ref().is_none_or(|version| desired == Some(version));
        let taint = self.taint();
        if let Some(taint) = taint.clone().filter(|_| out && (meant || desired.is_some())) {
            found.push(Problem::KeptOut { taint });
        } else if let Some(trap) = trap {
            let taints = trap.taints.clone();
            found.push(Problem::UnloadsOnTaints { by: trap.what(), taints });
        }
        match self.image() {
            None if meant => found.push(Problem::NoKernelMapping { kernel: self.facts.node.kernel.clone() }),
            Some(image) if meant && out && taint.is_none() && !self.facts.images.is_some_and(|images| images.exists(&image)) => {
                let pull =
                    self.facts.pods.iter().find(|pod| matches!(&pod.part, Part::Pull { image: Some(own) } if **own == *image));
                let pull = pull.filter(|pod| pod.image_missing()).and_then(|pod| pod.waits());
                found.push(Problem::ImageMissing { image, pull });
            }
            Some(image) => {
                if let (Some(version), Some(recorded)) = (&spec.version, self.recorded)
                    && recorded.version.as_ref().is_some_and(|old| old != version)
                    && *recorded.image == *image
                {
                    found.push(Problem::VersionWithoutImage { version: version.clone(), image: recorded.image.clone() });
                }
            }
            None => {}
        }
        if let Some(wanted) =
            self.wanted.filter(|wanted| *wanted.kernel != *self.facts.node.kernel.trim_end_matches('+') && !meant)
        {
            found.push(Problem::OldKernelKept { entry: wanted.kernel.clone(), kernel: self.facts.node.kernel.clone() });
        }
        if let (Some(wanted), Some(recorded)) = (self.wanted, self.recorded)
            && wanted.version == recorded.version
            && wanted.image != recorded.image
            && wanted.kernel == recorded.kernel
        {
            let (version, from, to) = (wanted.version.clone(), recorded.image.clone(), wanted.image.clone());
            found.push(Problem::ImageChanged { version, from, to });
        }
    }

    fn plugin_problems(&self, found: &mut Vec<Problem>) {
        let Some(spec) = self.facts.spec.filter(|spec| !spec.deleting && (spec.plugin || spec.dra)) else { return };
        if let Some(pod) =
            self.plugins.iter().find(|pod| !pod.ready && !pod.deleting && (pod.restarts > 2 || pod.waiting.is_some()))
            && self.loaded().is_some()
        {
            found.push(Problem::PluginNotReady { pod: pod.key.name.clone() });
        }
        if let Some(schedule) = &self.labels.schedule
            && self.labels.row().moves() == Move::Nothing
            && spec.version.as_ref() != Some(schedule)
            && self.loaded().as_ref() == Some(schedule)
            && !self.facts.sets.iter().any(|set| set.version.as_ref() == Some(schedule) && !set.deleting)
        {
            found.push(Problem::PluginSetCollected { version: schedule.clone() });
        }
        for dra in [false, true] {
            let mine = self.facts.sets.iter().filter(|set| set.dra == dra && set.version == spec.version && !set.deleting);
            let names: Vec<Str> = mine.map(|set| set.key.name.clone()).collect();
            if names.len() > 1 {
                found.push(Problem::PluginSetTwins { names });
            }
        }
    }

    fn name_problems(&self, found: &mut Vec<Problem>) {
        let module = self.facts.module;
        let read_as = keys::as_kmm_reads(module);
        if read_as != *module && (self.versioned() || self.labels.desired.is_some()) {
            found.push(Problem::DottedName { read_as });
        }
        let (length, limit) = (module.namespace.len() + module.name.len(), Era::Third.limit());
        if length > limit {
            found.push(Problem::LongName { length, limit });
        }
        for other in self.facts.modules.iter().filter(|other| *other != module) {
            if keys::mixed_up(module, other) {
                found.push(Problem::MixedUp { other: other.clone() });
            }
            if keys::share_ready_label(module, other) {
                found.push(Problem::SharedReadyLabel { other: other.clone() });
            }
        }
    }

    /// Of KMM's polled waits, the one that it is in now.
    fn wait(&self, state: State) -> Option<Wait> {
        if matches!(state, State::Stuck | State::Loaded | State::Absent)
            && !matches!(self.labels.row().moves(), Move::RemoveLoader | Move::AddLoader)
        {
            return None;
        }
        let until = match self.labels.row().moves() {
            Move::RemoveLoader => {
                let pods: Vec<&str> = self.plugins.iter().map(|pod| &*pod.key.name).collect();
                (!pods.is_empty()).then(|| format!("the end of {}", pods.join(", ")))
            }
            Move::AddLoader => self.labels.ready.then(|| "the end of the unload (.ready)".to_owned()),
            _ => return None,
        };
        let more = self.facts.seen.label_written.map(ladder::remaining);
        let wake = match (&until, self.labels.row().moves(), &self.labels.desired, self.module_version()) {
            // The next step of the handoff anyway, and its try goes on at once.
            (None, Move::RemoveLoader, None, Some(version)) => {
                let key = Label::Desired.key(self.facts.module, Era::Third).unwrap_or_default();
                Some(format!("kubectl label node {} {key}={version} --overwrite", self.facts.node.name))
            }
            _ => None,
        };
        Some(Wait { until, more, wake })
    }

    fn sentence(&self, state: State, busy: Option<&(Action, Str)>, wait: Option<&Wait>, worst: Option<&Problem>) -> String {
        let place = self.facts.place();
        let version = |entry: Option<&Entry>| entry.map_or_else(|| "the module".into(), version_of);
        let wanted = self.labels.desired.clone().or_else(|| self.wanted.map(version_of)).unwrap_or_else(|| "the module".into());
        let trouble = worst.filter(|problem| problem.weight() == Weight::Broken).map(|problem| problem.text(&place));
        let waits = wait.map(|wait| {
            let until = wait.until.as_ref().map_or_else(|| "KMM's next try".to_owned(), Clone::clone);
            match wait.more {
                Some(more) => format!(", waits for {until} (next try in about {:.1} s)", more.as_secs_f64()),
                None => format!(", waits for {until}"),
            }
        });
        let waits = waits.unwrap_or_default();
        let base = match state {
            State::Absent if self.rebooted() => {
                format!(
                    "not wanted here; {} was loaded in an earlier boot, and in this one KMM has recorded nothing",
                    version(self.recorded)
                )
            }
            State::Absent => "not wanted here, and KMM has nothing recorded as loaded".to_owned(),
            State::Loaded => format!("{} is loaded", version(self.recorded)),
            State::Stopping if self.recorded.is_some() && !self.rebooted() => {
                format!("{} is loaded and about to be unloaded{waits}", version(self.recorded))
            }
            State::Stopping => format!("nothing is loaded; KMM takes its labels away{waits}"),
            State::Unloading => format!("{} is being unloaded", version(self.recorded)),
            State::Starting => format!("{wanted} is about to be loaded{waits}"),
            State::Loading => format!("{wanted} is being loaded"),
            State::Reloading => match busy {
                Some((action, version)) => format!(
                    "{} of {version}, on the way from {} to {}",
                    action.word().to_lowercase(),
                    version_or(self.recorded),
                    version_or(self.wanted)
                ),
                None if self.rebooted() => {
                    format!("rebooted since the load: {} is about to be loaded again", version(self.wanted))
                }
                None => format!("{} is about to be replaced by {}", version_or(self.recorded), version_or(self.wanted)),
            },
            State::Waiting => format!("{wanted} is wanted and not loaded"),
            State::Stuck => "KMM does not go on by itself".to_owned(),
            State::Unknown if self.silent() => {
                let when = if self.rebooted() { "in an earlier boot" } else { "when it last spoke" };
                format!("the node is silent; {} was loaded {when}", version_or(self.recorded))
            }
            State::Unknown => "not known".to_owned(),
        };
        match trouble {
            Some(trouble) => format!("{base}: {trouble}"),
            None => base,
        }
    }
}

fn version_or(entry: Option<&Entry>) -> String {
    entry.map_or_else(
        || "nothing".to_owned(),
        |entry| entry.version.as_ref().map_or_else(|| entry.image.to_string(), |version| format!("{version} ({})", entry.image)),
    )
}
