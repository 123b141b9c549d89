//! What a step makes of a state: the cluster's doing, faults and people here; a write of the engine in `apply`.

use lockkeeper::api::Phase;

use crate::{
    apply,
    apply::From,
    decide::Memo,
    mistakes::Mistake,
    picture::{kept, version_of},
    state::*,
    steps::{Set, Step, is_good},
};

/// None: nothing changes.
pub fn take(before: &State, step: &Step, memo: &Memo, mistake: Option<Mistake>) -> Option<State> {
    use Step::*;
    let mut state = before.clone();
    if step.is_fault() {
        state.left.faults -= 1;
        state.left.total -= 1;
    }
    if step.is_persons() {
        state.left.people -= 1;
        state.left.total -= 1;
    }
    state.left.meddled |= step.is_persons() || matches!(step, Fails(..) | Deadline(_) | OrphanUnloads(_));
    match *step {
        Write(at) => {
            let flight = decided(before, at, memo, mistake)?;
            if !apply::land(&mut state, &flight, From::Leader, mistake) {
                // Refused: what was seen is too old.
                state.engine.lag.as_ref()?;
                state.engine.lag = None;
            }
        }
        Delays(at) => state.engine.flight = Some(decided(before, at, memo, mistake)?),
        Lands => {
            let flight = state.engine.flight.take()?;
            apply::land(&mut state, &flight, From::Leader, mistake);
        }
        FormerLands => {
            let flight = state.former.take()?;
            apply::land(&mut state, &flight, From::FormerLeader, mistake);
        }
        CatchUp => state.engine.lag = None,
        Crash => restart(&mut state),
        Takeover => {
            state.former = state.engine.flight.take().or(state.former);
            restart(&mut state);
            state.slots();
            state.epoch += 1;
        }
        Lags(what) => {
            let old: Vec<Shown> = state.nodes.iter().map(|node| node.shown.clone()).collect();
            let holds = old.iter().map(Holds::all).collect();
            state.engine.lag = Some(Lag { what, old, holds });
        }
        Passes => {
            state.engine.blind = false;
            for node in &mut state.nodes {
                node.memory.left = match node.memory.left {
                    _ if node.truth.kubelet => Gone::Nothing,
                    Gone::Both | Gone::Renewal => Gone::Renewal,
                    _ => Gone::Nothing,
                };
                node.memory.stable = is_good(node);
                if let Some(handoff) = &mut node.shown.handoff {
                    handoff.retry_due = true;
                }
            }
        }
        Make(n, set, version) => {
            pods(&mut state, n, set)[at(version)] = Some(Pod::default());
            state.unsettle(n.into());
        }
        Drop(n, set, version) => pods(&mut state, n, set)[at(version)].as_mut()?.leaving = true,
        End(n, set, version) => {
            pods(&mut state, n, set)[at(version)] = None;
            state.left(n.into(), true);
            state.unsettle(n.into());
        }
        Run(n, set, version) => run(&mut state, n.into(), set, version)?,
        Offer(n) => {
            let node = &state.nodes[usize::from(n)];
            let serving = node.shown.pods.plugin.iter().flatten().any(|pod| pod.runs) || node.truth.orphan_plugin != NONE;
            state.object(n.into()).offers = serving;
            state.unsettle(n.into());
        }
        Admit(n, nonce) => {
            let label = state.nodes[usize::from(n)].shown.object.nonce;
            let pod = unload(&mut state, n, nonce)?;
            let taken = label == nonce || !pod.bound || mistake == Some(Mistake::NoNonce);
            pod.stage = if taken { Stage::Running } else { Stage::Refused };
        }
        Unloads(n, nonce) => {
            let version = unload(&mut state, n, nonce)?.version;
            let done = unloads(&mut state, n.into(), version);
            unload(&mut state, n, nonce)?.stage = if done { Stage::Done } else { Stage::Failed };
            ended(&mut state, n.into());
        }
        Fails(n, nonce) => {
            unload(&mut state, n, nonce)?.stage = Stage::Failed;
            ended(&mut state, n.into());
        }
        UnloadEnds(n, nonce) => {
            state.nodes[usize::from(n)].shown.pods.unload.retain(|unload| unload.nonce != nonce);
            state.left(n.into(), true);
        }
        UserEnds(n) => {
            state.nodes[usize::from(n)].shown.pods.user = User::None;
            state.left(n.into(), true);
        }
        ReportsBoot(n) => {
            let boot = state.nodes[usize::from(n)].truth.boot;
            state.object(n.into()).boot = boot;
            state.nodes[usize::from(n)].memory.left = Gone::Nothing;
        }
        ReportsPods(n) => {
            let pods = &mut state.nodes[usize::from(n)].shown.pods;
            for pod in pods.loader.iter_mut().chain(&mut pods.plugin).flatten() {
                pod.ready &= pod.runs;
            }
            if pods.user == User::Dead {
                pods.user = User::None;
                state.left(n.into(), true);
            }
            state.unsettle(n.into());
        }
        Silent(n) => {
            state.object(n.into()).ready = false;
            state.unsettle(n.into());
        }
        Back(n) => {
            state.nodes[usize::from(n)].truth.kubelet = true;
            state.object(n.into()).ready = true;
        }
        Orphans(n) => {
            let node = &mut state.nodes[usize::from(n)];
            if node.shown.pods.user == User::Orphan {
                node.shown.pods.user = User::None;
            }
            (node.truth.orphan_plugin, node.truth.orphan_unload) = (NONE, NONE);
        }
        Renews(n) => {
            let left = &mut state.nodes[usize::from(n)].memory.left;
            *left = if *left == Gone::Both { Gone::Grace } else { Gone::Nothing };
        }
        Picks(n) => {
            state.left.arrivals -= 1;
            state.nodes[usize::from(n)].truth.picked = true;
        }
        Quits(n) => {
            state.left.arrivals -= 1;
            state.nodes[usize::from(n)].shown.pods.user = User::Leaving;
        }
        Binds(n) => {
            let node = &mut state.nodes[usize::from(n)];
            node.truth.picked = false;
            // The device manager refuses a pod for which it has no device.
            if node.shown.pods.user == User::None && node.shown.pods.plugin.iter().flatten().any(|pod| pod.runs) {
                node.shown.pods.user = User::Running;
                state.user_came(n.into());
            }
        }
        Reboot(n) => {
            let node = &mut state.nodes[usize::from(n)];
            node.truth.boot += 1;
            node.truth.kubelet = true;
            node.truth.kernel = NONE;
            (node.truth.orphan_plugin, node.truth.orphan_unload) = (NONE, NONE);
            for pod in node.shown.pods.loader.iter_mut().chain(&mut node.shown.pods.plugin).flatten() {
                pod.runs = false;
            }
            // A container that had not ended is run again.
            node.shown.pods.user = match node.shown.pods.user {
                User::Running => User::Dead,
                User::Leaving => User::Leaving,
                User::Orphan => User::None,
                other => other,
            };
            state.unsettle(n.into());
        }
        Again(n) => {
            state.made_again(n.into());
            let node = &mut state.nodes[usize::from(n)];
            // An order that nobody has written down yet is lost with the node.
            if node.shown.handoff.as_ref().is_none_or(|handoff| handoff.by != Who::Label) {
                node.truth.ordered = None;
            }
            let object = state.object(n.into());
            *object = Object {
                uid: object.uid + 1,
                closed: Closed::Open,
                owned: false,
                desired: NONE,
                loader: NONE,
                plugin: NONE,
                serves: NONE,
                record: None,
                nonce: 0,
                mark: None,
                ..object.clone()
            };
            state.unsettle(n.into());
        }
        Dies(n) => state.nodes[usize::from(n)].truth.kubelet = false,
        ForceUser(n) => {
            state.nodes[usize::from(n)].shown.pods.user = User::Orphan;
            state.left(n.into(), false);
        }
        ForcePlugin(n, version) => {
            let node = &mut state.nodes[usize::from(n)];
            node.shown.pods.plugin[at(version)] = None;
            node.truth.orphan_plugin = version;
            state.left(n.into(), false);
            state.unsettle(n.into());
        }
        ForceUnload(n, nonce) => {
            let version = unload(&mut state, n, nonce)?.version;
            let node = &mut state.nodes[usize::from(n)];
            node.shown.pods.unload.retain(|unload| unload.nonce != nonce);
            node.truth.orphan_unload = version;
            state.left(n.into(), false);
        }
        OrphanUnloads(n) => {
            let version = std::mem::take(&mut state.nodes[usize::from(n)].truth.orphan_unload);
            unloads(&mut state, n.into(), version);
        }
        Deadline(n) => state.nodes[usize::from(n)].shown.handoff.as_mut()?.late = true,
        Label(n, version) => {
            let as_before = as_before(&state.nodes[usize::from(n)].shown);
            state.object(n.into()).desired = version;
            let truth = &mut state.nodes[usize::from(n)].truth;
            truth.ordered = Some(version).filter(|version| *version != as_before);
            if version != TYPO {
                truth.asked |= 1 << version;
            }
        }
        Strip(n, Set::Loader) => state.object(n.into()).loader = NONE,
        Strip(n, Set::Plugin) => state.object(n.into()).plugin = NONE,
        Cordon(n) => state.object(n.into()).closed = Closed::ByPerson,
        Uncordon(n) => state.object(n.into()).closed = Closed::Open,
        Ask(n, version) => ask(&mut state, n, version),
        Says(n, say) => state.handoff(n.into()).as_mut()?.action = say,
        Deletes(n) => {
            let handoff = state.handoff(n.into());
            let it = handoff.as_mut()?;
            if it.finalizer {
                it.deleting = true;
            } else {
                *handoff = None;
            }
        }
    }
    (state != *before).then_some(state)
}

fn decided(state: &State, at: u8, memo: &Memo, mistake: Option<Mistake>) -> Option<Flight> {
    let look = memo.look(state, mistake == Some(Mistake::NoSecondLook));
    let decided = look.acts.get(usize::from(at))?.clone();
    let decided = match mistake {
        Some(mistake) => mistake.bend(decided),
        None => decided,
    };
    let node = usize::from(decided.act.node);
    let second = mistake != Some(Mistake::NoSecondLook);
    let holds = match &state.engine.lag {
        Some(lag) if !(decided.fresh && second) => {
            let now = Holds::all(&state.nodes[node].shown);
            let old = lag.holds[node];
            // Only what lags is old.
            match lag.what {
                Late::Nodes => Holds { object: old.object, ..now },
                Late::Handoffs => Holds { handoff: old.handoff, ..now },
                Late::Pods => Holds { pod: old.pod, ..now },
            }
        }
        _ => Holds::all(&state.nodes[node].shown),
    };
    Some(Flight { act: decided.act, holds })
}

/// What the label is known to say: from before the running attempt, or as that has left it. To put it there again is no other order.
fn as_before(shown: &Shown) -> V {
    let status = shown.handoff.as_ref().map(|handoff| handoff.status.status.clone());
    let run = status.as_ref().and_then(|status| status.run.as_ref());
    match (run, shown.object.mark.map(|mark| mark.desired)) {
        (None, _) => u8::MAX,
        (Some(run), None | Some(By::Kept)) => version_of(run.desired.as_deref()),
        (Some(_), Some(By::Removed)) => NONE,
        (Some(run), Some(By::Set)) => version_of(run.target.as_deref()),
    }
}

fn restart(state: &mut State) {
    state.engine = Engine { blind: true, lag: None, flight: None };
    for node in &mut state.nodes {
        node.memory = Memory { left: Gone::Nothing, stable: false };
    }
}

fn pods(state: &mut State, n: u8, set: Set) -> &mut [Option<Pod>; 2] {
    let pods = &mut state.nodes[usize::from(n)].shown.pods;
    match set {
        Set::Loader => &mut pods.loader,
        Set::Plugin => &mut pods.plugin,
    }
}

fn unload(state: &mut State, n: u8, nonce: u8) -> Option<&mut Unload> {
    state.nodes[usize::from(n)].shown.pods.unload.iter_mut().find(|unload| unload.nonce == nonce)
}

fn run(state: &mut State, n: usize, set: Set, version: V) -> Option<()> {
    let truth = state.nodes[n].truth.clone();
    match set {
        Set::Loader => {
            if truth.kernel != NONE && truth.kernel != version {
                state.broke("I2", "a loader meets another version in the kernel");
                return Some(());
            }
            if truth.asked & (1 << version) == 0 {
                state.broke("I11", "a version is loaded that nobody asked for");
            }
            state.nodes[n].truth.kernel = version;
        }
        Set::Plugin => {
            let other = state.nodes[n].shown.pods.plugin[1 - at(version)];
            let orphan = truth.orphan_plugin != NONE && truth.orphan_plugin != version;
            if other.is_some_and(|pod| pod.runs) || orphan {
                state.broke("I2", "two plugins serve at once");
            }
        }
    }
    let pods = &mut state.nodes[n].shown.pods;
    let set = match set {
        Set::Loader => &mut pods.loader,
        Set::Plugin => &mut pods.plugin,
    };
    let pod = set[at(version)].as_mut()?;
    (pod.runs, pod.ready) = (true, true);
    state.unsettle(n);
    Some(())
}

/// The module is taken out of the kernel. False: the kernel refuses, since processes that no object explains any more hold the device.
fn unloads(state: &mut State, n: usize, version: V) -> bool {
    let node = &state.nodes[n];
    let (user, kernel) = (node.shown.pods.user, node.truth.kernel);
    if user == User::Orphan || node.truth.orphan_plugin != NONE {
        return false;
    }
    if kernel == NONE {
        return true;
    }
    let serves = node.shown.pods.plugin.iter().flatten().any(|pod| pod.runs);
    let asked = node.truth.asked & !(1 << kernel) != 0;
    if user.holds_device() {
        state.broke("I1", "an unload pod runs while a pod uses the device");
    }
    if serves {
        state.broke("I1", "an unload pod runs while the plugin serves");
    }
    if kernel != version {
        state.broke("I2", "an unload pod of one version meets another in the kernel");
    }
    if !asked {
        state.broke("I11", "a version is unloaded though nobody asked for anything else");
    }
    state.nodes[n].truth.kernel = NONE;
    true
}

/// An unload pod has ended: loader pods made before prove nothing more.
fn ended(state: &mut State, n: usize) {
    for pod in state.nodes[n].shown.pods.loader.iter_mut().flatten() {
        pod.before_end = true;
    }
}

fn ask(state: &mut State, n: u8, version: V) {
    let node = usize::from(n);
    // To load it anew it may be taken out before.
    state.nodes[node].truth.asked |= 1 << version | 1;
    let uid = apply::next_uid(state, node);
    match state.handoff(node) {
        Some(handoff) => {
            if handoff.status.status.phase != Phase::Queued {
                handoff.attempt += 1;
            }
            (handoff.version, handoff.action, handoff.by) = (version, Say::Run, Who::Operator);
        }
        none => {
            *none = Some(Handoff {
                uid,
                version,
                attempt: 1,
                action: Say::Run,
                by: Who::Operator,
                finalizer: false,
                deleting: false,
                late: false,
                retry_due: true,
                status: kept(&Default::default()),
            });
        }
    }
}
