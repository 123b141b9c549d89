//! Everything that can happen next: the engine's writes, what controllers, kubelet and scheduler do, faults, and people. `enabled` lists them; `take`
//! in `taken` carries out. A step that is no fault and no person's is progress: it happens by itself.

use lockkeeper::api::Phase;

use crate::{decide::Memo, mistakes::Mistake, picture::uid_of, state::*};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Set {
    Loader,
    Plugin,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Step {
    /// The engine's n-th write: decided, looked at again, sent, and applied.
    Write(u8),
    /// A write on its way arrives.
    Lands,
    FormerLands,
    /// The watches tell all.
    CatchUp,
    // What the cluster does by itself.
    Make(u8, Set, V),
    Drop(u8, Set, V),
    End(u8, Set, V),
    Run(u8, Set, V),
    /// The device manager reports what it has.
    Offer(u8),
    Admit(u8, u8),
    /// The unload pod has done its work.
    Unloads(u8, u8),
    UnloadEnds(u8, u8),
    UserEnds(u8),
    /// The kubelet reports its boot, and that containers were restarted.
    ReportsBoot(u8),
    ReportsPods(u8),
    Silent(u8),
    Back(u8),
    /// The kubelet ends what no object explains.
    Orphans(u8),
    Renews(u8),
    /// Half a minute passes without anything.
    Passes,
    Binds(u8),
    // Not by itself.
    Picks(u8),
    /// The pod's owner takes it away.
    Quits(u8),
    // Faults.
    Delays(u8),
    Crash,
    Takeover,
    Lags(Late),
    Reboot(u8),
    Again(u8),
    Dies(u8),
    ForceUser(u8),
    ForcePlugin(u8, V),
    ForceUnload(u8, u8),
    Fails(u8, u8),
    OrphanUnloads(u8),
    Deadline(u8),
    // People.
    Label(u8, V),
    Strip(u8, Set),
    Cordon(u8),
    Uncordon(u8),
    Ask(u8, V),
    Says(u8, Say),
    Deletes(u8),
}

impl Step {
    pub fn is_fault(&self) -> bool {
        use Step::*;
        matches!(
            self,
            Delays(_)
                | Crash
                | Takeover
                | Lags(_)
                | Reboot(_)
                | Again(_)
                | Dies(_)
                | ForceUser(_)
                | ForcePlugin(..)
                | ForceUnload(..)
                | Fails(..)
                | OrphanUnloads(_)
                | Deadline(_)
        )
    }

    pub fn is_persons(&self) -> bool {
        use Step::*;
        matches!(self, Label(..) | Strip(..) | Cordon(_) | Uncordon(_) | Ask(..) | Says(..) | Deletes(_))
    }

    pub fn is_progress(&self) -> bool {
        !self.is_fault() && !self.is_persons() && !matches!(self, Self::Picks(_) | Self::Quits(_))
    }
}

pub fn enabled(state: &State, memo: &Memo, mistake: Option<Mistake>, steps: &mut Vec<Step>) {
    use Step::*;
    let look = memo.look(state, mistake == Some(Mistake::NoSecondLook));
    let busy = state.engine.flight.as_ref().map(|flight| flight.act.node);
    let writes: Vec<u8> = (0..).zip(&look.acts).filter(|(_, decided)| busy != Some(decided.act.node)).map(|(at, _)| at).collect();
    steps.extend(writes.iter().map(|at| Write(*at)));
    if state.engine.flight.is_some() {
        steps.push(Lands);
    }
    if state.former.is_some() {
        steps.push(FormerLands);
    }
    if state.engine.lag.is_some() {
        steps.push(CatchUp);
    }
    for (n, node) in (0u8..).zip(&state.nodes) {
        cluster(n, node, steps);
    }
    if can_pass(state) {
        steps.push(Passes);
    }
    for (n, node) in (0u8..).zip(&state.nodes) {
        let object = &node.shown.object;
        let plugin_runs = node.shown.pods.plugin.iter().flatten().any(|pod| pod.runs);
        if state.left.arrivals > 0
            && !node.truth.picked
            && node.shown.pods.user == User::None
            && object.closed == Closed::Open
            && object.offers
            && plugin_runs
        {
            steps.push(Picks(n));
        }
        if state.left.arrivals > 0 && node.shown.pods.user == User::Running {
            steps.push(Quits(n));
        }
    }
    if state.left.total == 0 {
        return;
    }
    if state.left.faults > 0 {
        faults(state, &writes, steps);
    }
    if state.left.people > 0 {
        for (n, node) in (0u8..).zip(&state.nodes) {
            people(n, node, steps);
        }
    }
}

fn cluster(n: u8, node: &Node, steps: &mut Vec<Step>) {
    use Step::*;
    let (object, pods, truth) = (&node.shown.object, &node.shown.pods, &node.truth);
    // A kubelet registers its node, boot ID and all, before it reports anything of pods but that they were restarted.
    let reports = truth.kubelet && object.boot == truth.boot;
    for (set, wanted, all) in [(Set::Loader, object.loader, &pods.loader), (Set::Plugin, object.plugin, &pods.plugin)] {
        for version in [1, 2] {
            match all[at(version)] {
                None if wanted == version => steps.push(Make(n, set, version)),
                Some(pod) if wanted != version && !pod.leaving => steps.push(Drop(n, set, version)),
                _ => {}
            }
            let Some(pod) = all[at(version)].filter(|_| truth.kubelet) else { continue };
            if pod.leaving && reports {
                steps.push(End(n, set, version));
            } else if !pod.leaving && !pod.runs && (set == Set::Loader || truth.kernel == version) {
                steps.push(Run(n, set, version));
            }
        }
    }
    let serving = pods.plugin.iter().flatten().any(|pod| pod.runs) || truth.orphan_plugin != NONE;
    if reports && object.offers != serving {
        steps.push(Offer(n));
    }
    for unload in pods.unload.iter().filter(|_| reports) {
        match unload.stage {
            Stage::Pending => steps.push(Admit(n, unload.nonce)),
            _ if unload.leaving => steps.push(UnloadEnds(n, unload.nonce)),
            _ => {}
        }
        if unload.stage == Stage::Running {
            steps.push(Unloads(n, unload.nonce));
        }
    }
    if reports && matches!(pods.user, User::Leaving) {
        steps.push(UserEnds(n));
    }
    if truth.kubelet && object.boot != truth.boot {
        steps.push(ReportsBoot(n));
    }
    let restarted = pods.loader.iter().chain(&pods.plugin).flatten().any(|pod| pod.ready && !pod.runs);
    if truth.kubelet && (restarted || pods.user == User::Dead) {
        steps.push(ReportsPods(n));
    }
    if !truth.kubelet {
        if object.ready {
            steps.push(Silent(n));
        }
        steps.push(Back(n));
    } else if !object.ready {
        steps.push(Back(n));
    }
    if truth.kubelet && has_orphans(node) {
        steps.push(Orphans(n));
    }
    if reports && matches!(node.memory.left, Gone::Renewal | Gone::Both) {
        steps.push(Renews(n));
    }
    if truth.picked && reports {
        steps.push(Binds(n));
    }
}

pub fn has_orphans(node: &Node) -> bool {
    node.shown.pods.user == User::Orphan || node.truth.orphan_plugin != NONE || node.truth.orphan_unload != NONE
}

pub fn is_good(node: &Node) -> bool {
    let object = &node.shown.object;
    let pod = node.shown.pods.plugin[at(object.plugin)];
    object.plugin != NONE && object.offers && object.ready && pod.is_some_and(|pod| pod.ready && pod.runs && !pod.leaving)
}

/// What a living kubelet does promptly is done, and something would become due.
fn can_pass(state: &State) -> bool {
    if state.nodes.iter().any(|node| node.truth.kubelet && has_orphans(node)) {
        return false;
    }
    state.engine.blind
        || state.nodes.iter().any(|node| {
            matches!(node.memory.left, Gone::Grace | Gone::Both)
                || is_good(node) && !node.memory.stable
                || node.shown.handoff.as_ref().is_some_and(|handoff| !handoff.retry_due)
        })
}

fn faults(state: &State, writes: &[u8], steps: &mut Vec<Step>) {
    use Step::*;
    if state.engine.flight.is_none() {
        steps.extend(writes.iter().map(|at| Delays(*at)));
    }
    steps.push(Crash);
    steps.push(Takeover);
    if state.engine.lag.is_none() {
        steps.extend([Lags(Late::Pods), Lags(Late::Nodes), Lags(Late::Handoffs)]);
    }
    for (n, node) in (0u8..).zip(&state.nodes) {
        let (pods, truth) = (&node.shown.pods, &node.truth);
        // The model tells boots and UIDs apart as far as the budget reaches.
        steps.push(Reboot(n));
        // Where a person has deleted the handoff, nothing is left that knows what the node had: then it passes for new.
        if node.shown.handoff.as_ref().is_some_and(|handoff| handoff.status.status.copy.is_some()) {
            steps.push(Again(n));
        }
        if truth.kubelet {
            steps.push(Dies(n));
        }
        if matches!(pods.user, User::Running | User::Leaving) {
            steps.push(ForceUser(n));
        }
        for version in [1, 2] {
            if pods.plugin[at(version)].is_some_and(|pod| pod.runs) {
                steps.push(ForcePlugin(n, version));
            }
        }
        for unload in pods.unload.iter().filter(|unload| unload.stage == Stage::Running) {
            steps.push(ForceUnload(n, unload.nonce));
            if truth.kubelet {
                steps.push(Fails(n, unload.nonce));
            }
        }
        if truth.orphan_unload != NONE {
            steps.push(OrphanUnloads(n));
        }
        let runs = |handoff: &&Handoff| !handoff.late && !handoff.status.status.phase.is_ended();
        if node.shown.handoff.as_ref().filter(runs).is_some_and(|it| it.status.status.phase != Phase::Queued) {
            steps.push(Deadline(n));
        }
    }
}

fn people(n: u8, node: &Node, steps: &mut Vec<Step>) {
    use Step::*;
    let object = &node.shown.object;
    for version in [NONE, 1, 2, TYPO] {
        if object.desired != version {
            steps.push(Label(n, version));
        }
    }
    if object.loader != NONE {
        steps.push(Strip(n, Set::Loader));
    }
    if object.plugin != NONE {
        steps.push(Strip(n, Set::Plugin));
    }
    match object.closed {
        Closed::Open => steps.push(Cordon(n)),
        // An uncordon and a cordon of one's own are two steps.
        _ => steps.push(Uncordon(n)),
    }
    steps.extend([Ask(n, 1), Ask(n, 2)]);
    if let Some(handoff) = &node.shown.handoff {
        let all = [Say::Run, Say::Hold, Say::Abort, Say::Leave];
        steps.extend(all.into_iter().filter(|say| *say != handoff.action).map(|say| Says(n, say)));
        // As above: not between a node's being made again and its being put right, or the last who knows is gone.
        let known = handoff.status.status.run.as_ref().is_none_or(|run| uid_of(&run.node_uid) == object.uid);
        if !handoff.deleting && known {
            steps.push(Deletes(n));
        }
    }
}
