//! What a picture says about one component on one node, in the console's words. Pure: reads the picture, decides nothing.

use std::{borrow::Cow, sync::LazyLock};

use jiff::Timestamp;

use crate::{
    api::{
        BootId, ComponentKey, NodeHandoffSpec, NodeName, Phase, Uid, Version,
        component::{ComponentKind, UnloadBy},
        handoff::{BY_LABEL, BlockerRecord, HandoffAction, NodeHandoffStatus},
    },
    engine::picture::Picture,
    fleet::{
        records::HandoffRecord,
        view::{ComponentView, NodeView, Occupancy},
    },
    handoff::{
        action::Subject,
        ending,
        observed::ready_plugin,
        phases, tally,
        verdict::{Blocker, BlockerKind, Verdict, Wait},
    },
    kmm::State,
};

/// One component on one node, by name and by the Node's UID: a node made again under its name is another one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowKey {
    pub component: ComponentKey,
    pub node: NodeName,
    pub uid: Option<Uid>,
}

/// How a node stands towards its component's aim, in the order in which a queue cares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// A handoff is between Preflight and its end.
    Running,
    /// A person's turn: Failed or Aborted, and nothing newer asked for.
    Ended,
    Queued,
    /// Runs another version than the aim, or none.
    Behind,
    /// Runs the aim, ready.
    Current,
}

/// What is on a node, as far as it is proven.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runs<'a> {
    Proven(&'a str),
    /// Proven to be nothing.
    Nothing,
    /// On its way in or out, a load that nobody saw the end of, or the node is silent.
    Unknown,
}

/// Everything about a row; borrowed, built for visible rows only.
#[derive(Clone, Copy)]
pub struct Facts<'a> {
    pub picture: &'a Picture,
    pub node: &'a NodeView,
    pub key: &'a ComponentKey,
    pub occupancy: &'a Occupancy,
    pub component: Option<&'a ComponentView>,
    pub verdict: Option<&'a Verdict>,
}

/// Why a handoff waits, whoever said so: the verdict of this moment, or the status written last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocked<'a> {
    pub word: Cow<'a, str>,
    pub object: Cow<'a, str>,
    pub message: Cow<'a, str>,
    pub since: Option<Timestamp>,
}

impl<'a> Blocked<'a> {
    fn recorded(record: &'a BlockerRecord) -> Self {
        Self {
            word: (&*record.kind).into(),
            object: (&*record.object).into(),
            message: (&*record.message).into(),
            since: time(&record.since),
        }
    }
}

impl<'a> Facts<'a> {
    pub fn of(picture: &'a Picture, component: &'a ComponentKey, node: &NodeName) -> Option<Self> {
        let node = picture.fleet.node(node)?;
        let (key, occupancy) = node.components.get_key_value(component)?;
        Some(Self::new(picture, node, key, occupancy))
    }

    pub fn new(picture: &'a Picture, node: &'a NodeView, key: &'a ComponentKey, occupancy: &'a Occupancy) -> Self {
        let subject = Subject::Occupancy { component: key.clone(), node: node.name.clone() };
        let component = picture.fleet.components.get(key).map(|component| &**component);
        Self { picture, node, key, occupancy, component, verdict: picture.verdicts.get(&subject) }
    }

    pub fn row(&self) -> RowKey {
        row_key(self.key, self.node)
    }

    pub fn handoff(&self) -> Option<&'a HandoffRecord> {
        self.occupancy.handoff.as_deref()
    }

    pub fn status(&self) -> Option<&'a NodeHandoffStatus> {
        self.handoff().map(|handoff| &handoff.status)
    }

    pub fn wait(&self) -> Option<&'a Wait> {
        match self.verdict {
            Some(Verdict::Wait(wait)) => Some(wait),
            _ => None,
        }
    }

    /// What another process that acts has written down of this handoff. It has seen what happened, and its judgement is the one that
    /// counts: this process judges as one that has just come and does not act. Empty: nothing is written, or nobody else acts.
    pub fn recorded(&self) -> &'a [BlockerRecord] {
        let elsewhere = self.picture.leadership.is_elsewhere();
        let status = self.status().filter(|status| elsewhere && !status.phase.is_ended());
        status.map(|status| &status.blockers[..]).unwrap_or_default()
    }

    /// Somebody has asked to stop it, and it has neither ended nor come to the choice.
    pub fn is_aborting(&self) -> bool {
        let Some(handoff) = self.handoff() else { return false };
        let (phase, word) = (handoff.status.phase, handoff.status.reason.as_ref().map(|reason| reason.word.as_str()));
        let told = || handoff.spec.as_ref().is_ok_and(|spec| matches!(spec.action, HandoffAction::Abort | HandoffAction::Leave));
        !phase.is_ended() && phase != Phase::Held && (word == Some(ending::GIVING_BACK) || told())
    }

    /// What is done next, if nothing is waited for.
    pub fn doing(&self) -> Option<&'a str> {
        match self.verdict {
            Some(Verdict::Act(action)) if self.recorded().is_empty() => Some(&action.why),
            _ => None,
        }
    }

    /// It waits for a person or for others, by the engine's own judgement, and not for something under way.
    pub fn is_stuck(&self) -> bool {
        match self.recorded() {
            [] => self.verdict.is_some_and(tally::is_blocked),
            recorded => recorded.iter().any(|record| tally::is_blocking(&record.kind)),
        }
    }

    /// Where the handoff stands; None without one.
    pub fn phase(&self) -> Option<Phase> {
        let status = self.status()?;
        Some(self.wait().map_or(status.phase, |wait| wait.phase))
    }

    /// The phase that a strip shows: none for a handoff that ended with another version than the aim.
    pub fn strip_phase(&self) -> Option<Phase> {
        self.phase().filter(|_| self.standing() != Standing::Behind)
    }

    /// The version that the node comes from while a handoff runs, else the one it runs.
    pub fn from(&self) -> Option<&'a str> {
        let run = self.status().filter(|status| !status.phase.is_ended()).and_then(|status| status.run.as_ref());
        run.and_then(|run| run.from.as_deref()).or_else(|| self.version().map(Version::as_str))
    }

    /// The phase that a handoff had reached which now is Held, Failed or Aborted.
    pub fn last_step(&self) -> Option<Phase> {
        self.status()?.steps.iter().rev().map(|step| step.phase).find(|phase| !phase.is_ended() && *phase != Phase::Held)
    }

    /// What the component's nodes are to run: `spec.version`, or the current revision of a nodeplugin.
    pub fn aim(&self) -> Option<&'a str> {
        let component = self.component?;
        match (&component.csi, &component.kmm) {
            (Some(csi), _) => csi.current.as_ref().map(Version::as_str),
            (None, Some(kmm)) => kmm.module.as_ref()?.version.as_deref(),
            (None, None) => Some(component.spec()?.version.as_str()),
        }
    }

    /// What the node runs or may still run: ready, else plugin, loader, record.
    pub fn version(&self) -> Option<&'a Version> {
        if let Some(csi) = &self.occupancy.csi {
            return csi.revision.as_ref();
        }
        if let Some(kmm) = &self.occupancy.kmm {
            return kmm.version.as_ref();
        }
        let labels = &self.occupancy.labels;
        labels
            .ready
            .as_ref()
            .or(labels.plugin.as_ref())
            .or(labels.loader.as_ref())
            .or(labels.loaded.as_ref().map(|loaded| &loaded.version))
    }

    /// What of the component is proven to be on the node. A label is no proof of KMM's: its record of this boot is.
    pub fn runs(&self) -> Runs<'a> {
        let Some(kmm) = &self.occupancy.kmm else {
            let nothing = if self.component.is_none() && !self.was_own() { Runs::Unknown } else { Runs::Nothing };
            return self.version().map_or(nothing, |it| Runs::Proven(it.as_str()));
        };
        if let Some(loaded) = kmm.here.as_ref().and_then(|here| here.loaded.as_deref()) {
            return Runs::Proven(loaded);
        }
        let boot = self.node.record.as_ref().map(|record| &record.boot_id);
        let of_this_boot = |of: &BootId| boot.is_none_or(|boot| boot == of);
        let own = self.occupancy.labels.loaded.as_ref();
        let maybe = kmm.here.as_ref().is_some_and(|here| here.state == State::Unknown)
            || !kmm.workers.is_empty()
            || kmm.recorded.as_ref().is_some_and(|entry| of_this_boot(&entry.boot_id))
            || own.is_some_and(|own| own.stopped_boot.as_ref().is_none_or(of_this_boot));
        if maybe { Runs::Unknown } else { Runs::Nothing }
    }

    /// Its handoff ran by versioned DaemonSets, whose labels and record say what is on the node also when the component is gone. What a
    /// Module of KMM or a nodeplugin has there, its component would have to say.
    fn was_own(&self) -> bool {
        let run = self.status().and_then(|status| status.run.as_ref());
        run.is_some_and(|run| run.kmm_config.is_none() && run.policy.csi_node_plugin.is_none())
    }

    /// What it runs or may still run, for a cell.
    pub fn shown(&self) -> &'a str {
        match (self.version(), self.runs()) {
            (Some(version), _) => version.as_str(),
            (None, Runs::Unknown) => "unknown",
            (None, _) => "-",
        }
    }

    /// Where the node is going: the handoff's target, else the aim if the node does not run it.
    pub fn target(&self) -> Option<&'a str> {
        let handoff = self.handoff().filter(|handoff| handoff.status.phase != Phase::Done);
        match handoff.and_then(|handoff| handoff.spec.as_ref().ok()) {
            Some(spec) => self.asked_for(spec),
            None => self.aim().filter(|aim| !self.is_current(aim)),
        }
    }

    /// The version that a handoff asks for; None: out of service.
    fn asked_for(&self, spec: &'a NodeHandoffSpec) -> Option<&'a str> {
        match spec.version.as_deref() {
            None if self.follows_aim(spec) => self.aim(),
            version => version,
        }
    }

    /// Where the handoff that is there goes, in words. One that names no version heads for what was current when it began; in the queue, for
    /// what will be current then.
    pub fn heading(&self) -> String {
        let begun = self.status().filter(|status| status.phase != Phase::Queued).and_then(|status| status.run.as_ref());
        let spec = self.handoff().and_then(|handoff| handoff.spec.as_ref().ok());
        let named = spec.and_then(|spec| spec.version.as_deref());
        match (begun.and_then(|run| run.target.as_deref()).or(named), spec, self.aim()) {
            (Some(version), ..) => version.to_owned(),
            (None, Some(spec), Some(aim)) if self.follows_aim(spec) => format!("what is current ({aim} now)"),
            (None, Some(spec), None) if self.follows_aim(spec) => "what is current".to_owned(),
            (None, ..) => "out of service".to_owned(),
        }
    }

    /// No version asks for what is current.
    pub fn follows_aim(&self, spec: &NodeHandoffSpec) -> bool {
        self.occupancy.csi.is_some() || self.occupancy.kmm.is_some() && spec.requested_by != BY_LABEL
    }

    pub fn is_current(&self, aim: &str) -> bool {
        if let Some(kmm) = &self.occupancy.kmm {
            let here = kmm.here.as_ref();
            let plugin = self.component.and_then(|it| it.kmm.as_ref()).and_then(|kmm| kmm.module.as_ref());
            let needed = plugin.is_some_and(|module| module.plugin || module.dra);
            return here.and_then(|here| here.loaded.as_deref()) == Some(aim)
                && (!needed || ready_plugin(self.occupancy).is_some());
        }
        if let Some(csi) = &self.occupancy.csi {
            return csi.revision.as_ref().is_some_and(|revision| revision.as_str() == aim) && csi.ready_pod().is_some();
        }
        self.occupancy.labels.ready.as_ref().is_some_and(|ready| ready.as_str() == aim)
    }

    pub fn standing(&self) -> Standing {
        match self.phase() {
            Some(Phase::Queued) => Standing::Queued,
            Some(Phase::Failed | Phase::Aborted) => Standing::Ended,
            Some(phase) if !phase.is_ended() => Standing::Running,
            _ if self.aim().is_some_and(|aim| self.is_current(aim)) => Standing::Current,
            _ => Standing::Behind,
        }
    }

    /// The place in the component's queue, from 1.
    pub fn position(&self) -> Option<usize> {
        self.picture.queues.position(self.key, &self.node.name).map(|at| at + 1)
    }

    /// The phase, or how the node stands without a running handoff.
    pub fn word(&self) -> &'static str {
        match (self.standing(), self.phase()) {
            (Standing::Current, _) => "current",
            (Standing::Behind, _) if self.version().is_none() => match self.runs() {
                Runs::Unknown => "unknown",
                _ => "no version",
            },
            (Standing::Behind, _) => "behind",
            (_, Some(phase)) => phase.as_str(),
            (_, None) => "",
        }
    }

    /// A blocker in words.
    pub fn said(&self, blocker: &'a Blocker) -> Blocked<'a> {
        let (word, object) = (blocker.kind.word(), blocker.object.to_string());
        self.told(Blocked {
            word: word.into(),
            object: object.into(),
            message: (&*blocker.message).into(),
            since: Some(blocker.since),
        })
    }

    /// The same of one that was written down.
    pub fn said_of(&self, record: &'a BlockerRecord) -> Blocked<'a> {
        self.told(Blocked::recorded(record))
    }

    /// That others are before it in the queue holds for thousands alike, in the same words: who it is, and why that one waits, is looked up
    /// only for those that are shown.
    fn told(&self, blocked: Blocked<'a>) -> Blocked<'a> {
        let by_others = blocked.word == BlockerKind::QueuedBehind.word() && blocked.object.starts_with("NodeComponent ");
        match by_others.then(|| self.picture.queues.before(self.key, &self.node.name)).flatten() {
            Some(first) => {
                let object = format!("NodeHandoff {}.{}", first.component, first.node).into();
                Blocked { object, message: first.sentence().into(), ..blocked }
            }
            None => blocked,
        }
    }

    pub fn blocked(&self) -> Option<Blocked<'a>> {
        if let Some(record) = self.recorded().first() {
            return Some(self.said_of(record));
        }
        if let Some(blocker) = self.wait().and_then(|wait| wait.blockers.first()) {
            return Some(self.said(blocker));
        }
        if let Some(Verdict::Failed { reason }) = self.verdict {
            return Some(Blocked {
                word: (&*reason.word).into(),
                object: "".into(),
                message: (&*reason.message).into(),
                since: None,
            });
        }
        let status = self.status()?;
        if let Some(reason) = status.reason.as_ref().filter(|_| status.phase != Phase::Done) {
            return Some(Blocked {
                word: (&*reason.word).into(),
                object: "".into(),
                message: (&*reason.message).into(),
                since: self.since(),
            });
        }
        // The verdict speaks of now; what the status says is older, and only counts when there is no verdict.
        let record = status.blockers.first().filter(|_| self.verdict.is_none() && !status.phase.is_ended())?;
        Some(Blocked::recorded(record))
    }

    /// Since when the phase runs.
    pub fn since(&self) -> Option<Timestamp> {
        time(self.status()?.phase_since.as_deref()?)
    }

    /// Phases of this component's kind, in order, without Queued and the ends.
    pub fn phases(&self) -> &'static [Phase] {
        use ComponentKind::{CsiNodePlugin, KernelModule, KmmModule};
        static STRIPS: LazyLock<[Vec<Phase>; 4]> = LazyLock::new(|| {
            [(KernelModule, false), (KernelModule, true), (CsiNodePlugin, false), (KmmModule, false)].map(|(kind, reboot)| {
                phases::strip(kind, reboot).filter(|phase| !matches!(phase, Phase::Queued | Phase::Done)).collect()
            })
        });
        let spec = self.component.and_then(ComponentView::spec);
        match spec.map(|spec| spec.kind()) {
            Some(CsiNodePlugin) => return STRIPS.get(2).map_or(&[], Vec::as_slice),
            Some(KmmModule) => return STRIPS.get(3).map_or(&[], Vec::as_slice),
            _ => {}
        }
        let reboot = spec.and_then(|spec| spec.kernel_module.as_ref()).is_some_and(|module| module.unload_by == UnloadBy::Reboot);
        STRIPS.get(usize::from(reboot)).map_or(&[], Vec::as_slice)
    }
}

pub fn row_key(component: &ComponentKey, node: &NodeView) -> RowKey {
    let uid = node.record.as_ref().map(|record| record.meta.uid.clone());
    RowKey { component: component.clone(), node: node.name.clone(), uid }
}

/// `Pod ns/name: what of it`; many messages name their object themselves.
pub fn of_object(object: &str, message: &str) -> String {
    let name = object.rsplit(' ').next().unwrap_or(object);
    if object.is_empty() || message.starts_with(object) || message.starts_with(name) {
        message.to_owned()
    } else {
        format!("{object}: {message}")
    }
}

/// RFC 3339 as the API objects have it.
pub fn time(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}

/// How many nodes of a component run the aim, and how many it has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// All that have anything of it.
    pub rows: usize,
    pub current: usize,
    /// Nodes that exist and match the component's selector.
    pub total: usize,
    pub running: usize,
    pub queued: usize,
    pub failed: usize,
    /// Stopped by a person: no failure.
    pub aborted: usize,
    /// Wait for a person or for others, wherever they stand.
    pub blocked: usize,
}

impl Progress {
    pub fn add(&mut self, other: &Self) {
        self.each(other, |mine, other| *mine += other);
    }

    pub fn take(&mut self, other: &Self) {
        self.each(other, |mine, other| *mine = mine.saturating_sub(other));
    }

    fn each(&mut self, other: &Self, change: impl Fn(&mut usize, usize)) {
        let Self { rows, current, total, running, queued, failed, aborted, blocked } = self;
        change(rows, other.rows);
        change(current, other.current);
        change(total, other.total);
        change(running, other.running);
        change(queued, other.queued);
        change(failed, other.failed);
        change(aborted, other.aborted);
        change(blocked, other.blocked);
    }
}
