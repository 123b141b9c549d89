//! What one component on one node adds to the fleet's counts: small, comparable, made once per changed node.

use std::collections::{BTreeMap, BTreeSet};

use std::sync::Arc;

use jiff::Timestamp;

use super::{
    action::Op,
    cordon::{self, Cordon},
    ending,
    facts::Facts,
    named::FirstOf,
    verdict::{BlockerKind, Verdict},
};
use crate::{
    api::{
        NodeName, ObjectKey, Phase, Version,
        handoff::{BY_INSTALL, BY_LABEL},
        keys::FINALIZER,
    },
    fleet::{
        records::{HandoffRecord, Str},
        view::Occupancy,
    },
};

/// How a handoff came to be, as far as the budget cares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A running handoff that lost its slot.
    Resumed,
    /// Counts against the budget and is not held back by it.
    Label,
    /// Takes nothing out of service, and so does not count.
    Install,
    Ordered,
}

/// Where a node stands with a component.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// No handoff, or one that has ended well.
    Idle,
    Queued {
        position: Option<i32>,
    },
    Running,
    Failed,
}

/// An ended handoff that is asked for once more, and whose next step is the one back to the queue: its place is its own already, though
/// its status does not say so yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Returning {
    pub position: Option<i32>,
}

/// Something on a node that a person puts right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anomaly {
    /// The blocker's word.
    pub kind: Str,
    /// With the way out.
    pub message: Str,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Contribution {
    /// Place of the component in the sorted list of components.
    pub component: usize,
    pub standing: Standing,
    pub returning: Option<Returning>,
    pub kind: Kind,
    pub selected: bool,
    /// Labels, record or pods of the component are on the node.
    pub occupied: bool,
    /// The version that the node runs, ready.
    pub runs: Option<Version>,
    /// It is selected, runs the component's version, and nothing is asked of it.
    pub current: bool,
    /// What its handoff heads for.
    pub target: Option<Version>,
    /// A person's turn, or somebody else's.
    pub blocked: bool,
    /// What is wrong there that neither a handoff nor the component's owner puts right by itself.
    pub anomaly: Option<Anomaly>,
    /// It is out of service for a handoff, or has lost what it was handed over to.
    pub under_way: Option<UnderWay>,
    /// Its cordon is ours.
    pub closed: bool,
    /// A silent upgrade has taken mounts from its pods, and nobody hands it over.
    pub unplanned: bool,
    /// A Module of KMM is being lost there, or is lost, and nobody hands the node over: the problems' names, the first one foremost.
    pub disturbed: Vec<&'static str>,
    /// Its version label was moved, and the handoff that follows it is being made: it counts as that one will.
    pub ordered_by_label: bool,
    /// Pods on it whose mounts died with the nodeplugin's process.
    pub stale: Vec<ObjectKey>,
    /// Cordoned by others, or not Ready: which of it.
    pub foreign: Option<&'static str>,
    /// When its last handoff ended, unless that was of a label or an install.
    pub ended: Option<Timestamp>,
}

/// The word for a silent upgrade that took mounts from pods.
const UNPLANNED: &str = "UnplannedUpgrade";

impl Contribution {
    /// Out of service by itself: to hand it over takes nothing more out of service.
    pub fn is_lost(&self) -> bool {
        !self.disturbed.is_empty() || self.unplanned
    }

    /// Why it counts against the budgets though no handoff speaks for it yet, in a word.
    pub fn out_of_service(&self) -> Option<&'static str> {
        foremost(&self.disturbed, self.unplanned).or(self.ordered_by_label.then_some("its version label was moved"))
    }

    /// Out of service because of others. A node under way is counted by its slot, and one that we closed by our cordon.
    pub fn counts_as_foreign(&self) -> bool {
        self.selected && self.foreign.is_some() && !self.closed && !self.is_lost() && self.standing != Standing::Running
    }
}

pub fn contribution(f: &Facts<'_>, component: usize, verdict: &Verdict) -> Contribution {
    let labels = &f.occupancy.labels;
    let spec = f.spec();
    let by = spec.map(|spec| spec.requested_by.as_str()).unwrap_or_default();
    let phase = f.handoff().map(|_| f.phase());
    let cordon = cordon::state(f);
    let resumed = phase.is_some_and(|phase| !phase.is_ended() && phase != Phase::Queued)
        && !ending::is_out_of_service(f)
        && !f.holds_slot();
    let ready = f.works() && (labels.ready == labels.plugin || f.kmm().is_some());
    let runs = match (f.csi(), f.kmm()) {
        (Some(csi), _) => csi.revision(),
        (None, Some(kmm)) => kmm.loaded(),
        (None, None) => labels.plugin.clone(),
    };
    let standing = match phase {
        None | Some(Phase::Done | Phase::Aborted) => Standing::Idle,
        Some(Phase::Failed) => Standing::Failed,
        Some(Phase::Queued) => Standing::Queued { position: spec.and_then(|spec| spec.position) },
        Some(_) if ending::is_out_of_service(f) => Standing::Idle,
        Some(_) => Standing::Running,
    };
    let selected = f.occupancy.selected && f.record().is_some();
    let disturbed = super::kmm_module::disturbance(f);
    let unplanned = super::csi_node_plugin::is_unplanned(f);
    let lost = foremost(&disturbed, unplanned);
    let runs = runs.filter(|_| ready);
    let aim = f.component.aim();
    Contribution {
        component,
        standing,
        // Not merely asked for: what cannot go back to the queue would keep it waiting for ever.
        returning: (phase.is_some_and(|phase| phase != Phase::Queued) && goes_to_the_queue(verdict))
            .then(|| Returning { position: spec.and_then(|spec| spec.position) }),
        kind: match by {
            _ if resumed => Kind::Resumed,
            _ if f.is_by_label() => Kind::Label,
            BY_INSTALL
                if f.run().is_none_or(|run| run.from.is_none())
                    && f.loaded().is_none_or(|loaded| f.target().as_ref() == Some(loaded)) =>
            {
                Kind::Install
            }
            _ => Kind::Ordered,
        },
        selected,
        occupied: is_occupied(f.occupancy),
        current: selected && standing == Standing::Idle && runs.is_some() && runs == aim,
        runs,
        target: f.target(),
        blocked: is_blocked(verdict),
        under_way: under_way(f, verdict, standing, cordon == Cordon::Ours, lost),
        anomaly: anomaly(verdict, standing),
        closed: cordon == Cordon::Ours,
        unplanned,
        disturbed,
        ordered_by_label: follows_label(verdict),
        stale: stale(f),
        foreign: foreign(f, cordon),
        ended: match (phase, by) {
            (_, BY_LABEL | BY_INSTALL) => None,
            (Some(Phase::Done | Phase::Failed | Phase::Aborted), _) if f.run().is_some() => Some(f.phase_since()),
            _ => None,
        },
    }
}

/// What has taken the component from a node that nobody hands over.
pub fn lost(f: &Facts<'_>) -> Option<&'static str> {
    foremost(&super::kmm_module::disturbance(f), super::csi_node_plugin::is_unplanned(f))
}

fn foremost(disturbed: &[&'static str], unplanned: bool) -> Option<&'static str> {
    disturbed.first().copied().or(unplanned.then_some(UNPLANNED))
}

fn foreign(f: &Facts<'_>, cordon: Cordon) -> Option<&'static str> {
    let silent = f.record().is_some_and(|record| !record.ready.is_true());
    match (matches!(cordon, Cordon::Foreign { .. }), silent) {
        (false, false) => None,
        (true, false) => Some("cordoned by others"),
        (false, true) => Some("not Ready"),
        (true, true) => Some("cordoned by others, not Ready"),
    }
}

/// What makes no sense wherever it is found; and on a node that nobody works on, what its component will not put right there by itself.
fn anomaly(verdict: &Verdict, standing: Standing) -> Option<Anomaly> {
    use BlockerKind::{
        Anomaly as Odd, KmmImage, KmmStuck, KmmTaint, KmmTrouble, KmmVersion, LabelGarbage, StaleMount, UnknownVersion,
        UnplannedUpgrade,
    };
    let Verdict::Wait(wait) = verdict else { return None };
    let is_one = |kind: BlockerKind| match kind {
        UnknownVersion | LabelGarbage | Odd => true,
        KmmStuck | KmmVersion | KmmImage | KmmTaint | KmmTrouble | UnplannedUpgrade | StaleMount => standing == Standing::Idle,
        _ => false,
    };
    let it = wait.blockers.iter().find(|it| is_one(it.kind))?;
    Some(Anomaly { kind: it.kind.word().into(), message: it.message.as_str().into() })
}

/// Its next action writes down that it is queued.
fn goes_to_the_queue(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Act(action)
        if matches!(&action.op, Op::PutHandoffStatus { status, .. } if status.phase == Phase::Queued))
}

/// Its next action makes the handoff that follows a label.
fn follows_label(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Act(action)
        if matches!(&action.op, Op::CreateHandoff { spec, .. } | Op::PatchHandoffSpec { spec, .. } if spec.requested_by == BY_LABEL))
}

/// Labels, a record, a mark or pods of the component are there.
pub fn is_occupied(occupancy: &Occupancy) -> bool {
    let labels = &occupancy.labels;
    if occupancy.kmm.is_some() {
        // What KMM has there stays KMM's; a handoff that has touched the node ends first.
        let touched = |handoff: &Arc<HandoffRecord>| handoff.finalizers.iter().any(|known| &**known == FINALIZER);
        return labels.mark.is_some() || labels.loaded.is_some() || occupancy.handoff.as_ref().is_some_and(touched);
    }
    [&labels.desired, &labels.loader, &labels.plugin, &labels.ready].into_iter().any(Option::is_some)
        || labels.loaded.is_some()
        || labels.mark.is_some()
        || labels.nonce.is_some()
        || !(occupancy.loader_pods.is_empty() && occupancy.plugin_pods.is_empty() && occupancy.unload_pods.is_empty())
}

/// What passes by itself: a turn, a window, something under way; and what is only said beside it.
const PASSING: [BlockerKind; 28] = {
    use BlockerKind::*;
    [
        QueuedBehind,
        BudgetSpent,
        FailureBudgetSpent,
        Soaking,
        Canary,
        OutsideWindow,
        Paused,
        NodeBusy,
        NoLease,
        StaleView,
        Terminating,
        Allocatable,
        PluginPod,
        LoaderPod,
        UnloadPod,
        LoaderNotReady,
        PluginNotReady,
        Stabilising,
        VolumeAttached,
        Settling,
        Throttled,
        DisruptionBudgetLag,
        KmmMoves,
        KmmBackOff,
        WorkerPod,
        HandoffFailed,
        SpecChanged,
        PauseSkipped,
    ]
};

/// It waits for a person or for others, and not merely for its turn or for something under way.
pub fn is_blocked(verdict: &Verdict) -> bool {
    blocking(verdict).is_some()
}

fn blocking(verdict: &Verdict) -> Option<BlockerKind> {
    let Verdict::Wait(wait) = verdict else { return None };
    wait.blockers.iter().map(|blocker| blocker.kind).find(|kind| !PASSING.contains(kind))
}

/// The same of a blocker that a handoff's status names by its word.
pub fn is_blocking(word: &str) -> bool {
    !BlockerKind::names_one_of(&PASSING, word)
}

/// Sums over the fleet for one component.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tally {
    pub total: u32,
    pub current: u32,
    pub queued: u32,
    pub running: u32,
    pub blocked: u32,
    pub failed: u32,
    /// Those of them that spend the failure budget: a label that nobody drained for is no sign of a bad version.
    pub failures: u32,
    /// By the blocker's word.
    pub anomalies: BTreeMap<Str, FirstOf<Str>>,
    pub under_way: FirstOf<UnderWay>,
    pub occupied: u32,
    pub foreign: FirstOf<&'static str>,
    /// Nodes by the version that they run, ready.
    pub versions: BTreeMap<Version, u32>,
    pub last_end: Option<Timestamp>,
    /// Nodes on which KMM is losing the module, or has lost it; and by the problem's name, where a node may have several.
    pub lost: u32,
    pub disturbed: BTreeMap<&'static str, Disturbed>,
    pub stale: Stale,
}

/// Nodes with a problem, and those of them where it is the foremost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Disturbed {
    pub nodes: u32,
    pub foremost: u32,
}

/// How a node stands that is out of service for a handoff, or has lost what it was handed over to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnderWay {
    standing: Standing,
    target: Option<Version>,
    /// What it waits for beside its turn.
    blocked_by: Option<BlockerKind>,
    /// What has taken the component from it.
    lost: Option<&'static str>,
}

impl UnderWay {
    /// Why it does not count as a node that runs this version.
    fn why(&self, target: &Version) -> String {
        let blocked =
            self.blocked_by.map(|kind| format!(", and waits for a person or for others ({})", kind.word())).unwrap_or_default();
        let to = self.target.as_ref().filter(|to| *to != target).map(|to| format!(" to {to}")).unwrap_or_default();
        match (self.standing, self.lost) {
            (Standing::Running, _) => format!("is being handed over{to}{blocked}"),
            (Standing::Failed, _) => format!("was handed over{to} and has failed"),
            (_, Some(lost)) => format!("has lost it without a handoff ({lost})"),
            (Standing::Queued { .. }, None) => format!("is admitted, and about to be handed over{to}"),
            (Standing::Idle, None) => "was left closed".to_owned(),
        }
    }
}

fn under_way(f: &Facts<'_>, verdict: &Verdict, standing: Standing, closed: bool, lost: Option<&'static str>) -> Option<UnderWay> {
    let target = f.target();
    let was_there = || lost.is_some() && target.is_some() && target == f.component.aim() && standing == Standing::Idle;
    if !(closed || f.holds_slot() || matches!(standing, Standing::Running | Standing::Failed) || was_there()) {
        return None;
    }
    // What one in the queue waits for is the queue's answer, and not what that rests on.
    let blocked_by = blocking(verdict).filter(|_| standing == Standing::Running);
    Some(UnderWay { standing, target, blocked_by, lost })
}

/// Pods whose mounts died with the nodeplugin's process.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Stale {
    pub pods: usize,
    /// The first of them by name.
    pub first: BTreeSet<ObjectKey>,
}

impl Stale {
    /// So many are named.
    pub const NAMED: usize = 10;

    fn merge<'a>(&mut self, pods: usize, first: impl IntoIterator<Item = &'a ObjectKey>) {
        self.pods += pods;
        self.first.extend(first.into_iter().cloned());
        while self.first.len() > Self::NAMED {
            self.first.pop_last();
        }
    }
}

fn stale(f: &Facts<'_>) -> Vec<ObjectKey> {
    let mut pods: Vec<ObjectKey> = f.csi().into_iter().flat_map(|csi| csi.here.stale()).map(|it| it.pod.key.clone()).collect();
    pods.sort();
    pods.dedup();
    pods
}

impl Tally {
    pub fn add(&mut self, node: &NodeName, it: &Contribution) {
        self.total += u32::from(it.selected);
        if let Some(why) = it.foreign.as_ref().filter(|_| it.counts_as_foreign()) {
            self.foreign.merge(1, [(node, why)]);
        }
        if let Some(version) = &it.runs {
            self.runs(version, 1);
        }
        self.current += u32::from(it.current);
        match it.standing {
            Standing::Idle => {}
            Standing::Queued { .. } => self.queued += 1,
            Standing::Running => self.running += 1,
            Standing::Failed => {
                self.failed += 1;
                self.failures += u32::from(it.kind != Kind::Label);
            }
        }
        self.blocked += u32::from(it.blocked);
        if let Some(it) = &it.anomaly {
            self.anomalies.entry(it.kind.clone()).or_default().merge(1, [(node, &it.message)]);
        }
        if let Some(it) = &it.under_way {
            self.under_way.merge(1, [(node, it)]);
        }
        self.occupied += u32::from(it.occupied);
        self.last_end = self.last_end.max(it.ended);
        self.lost += u32::from(!it.disturbed.is_empty());
        for (at, kind) in it.disturbed.iter().enumerate() {
            let all = self.disturbed.entry(kind).or_default();
            all.nodes += 1;
            all.foremost += u32::from(at == 0);
        }
        self.stale.merge(it.stale.len(), &it.stale);
    }

    /// The counts of other nodes.
    pub fn merge(&mut self, other: &Self) {
        self.total += other.total;
        self.current += other.current;
        self.queued += other.queued;
        self.running += other.running;
        self.blocked += other.blocked;
        self.failed += other.failed;
        self.failures += other.failures;
        for (kind, it) in &other.anomalies {
            self.anomalies.entry(kind.clone()).or_default().merge(it.nodes, &it.first);
        }
        self.under_way.merge(other.under_way.nodes, &other.under_way.first);
        self.occupied += other.occupied;
        self.foreign.merge(other.foreign.nodes, &other.foreign.first);
        for (version, count) in &other.versions {
            self.runs(version, *count);
        }
        self.last_end = self.last_end.max(other.last_end);
        self.lost += other.lost;
        for (kind, others) in &other.disturbed {
            let all = self.disturbed.entry(kind).or_default();
            all.nodes += others.nodes;
            all.foremost += others.foremost;
        }
        self.stale.merge(other.stale.pods, &other.stale.first);
    }

    /// Which nodes, this one left out, would run the version and do not yet, and why: the first of them by name.
    pub fn under_way_to(&self, target: &Version, without: Option<&NodeName>) -> String {
        let own = without.filter(|node| self.under_way.first.contains_key(*node));
        let others = own.map(|node| self.under_way.without(node));
        others.as_ref().unwrap_or(&self.under_way).named(|node, it| format!("{node} {}", it.why(target)), "; ")
    }

    fn runs(&mut self, version: &Version, nodes: u32) {
        // Looked up first: cloning the key for an entry that is there mostly would cost more.
        match self.versions.get_mut(version) {
            Some(count) => *count += nodes,
            None => {
                self.versions.insert(version.clone(), nodes);
            }
        }
    }
}
