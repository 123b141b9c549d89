//! A write of the engine arrives at the API server: its preconditions, what it changes, and which invariants that would break.

use lockkeeper::{
    api::{
        Phase,
        handoff::{BY_INSTALL, BY_LABEL},
        keys::{self, Loaded, Mark as NodeMark, Role},
    },
    handoff::action::{NodeChange, NodePatch, Op},
};

use crate::{mistakes::Mistake, picture::*, state::*};

/// Where a write comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    Leader,
    FormerLeader,
}

/// True: it was applied.
pub fn land(state: &mut State, flight: &Flight, from: From, mistake: Option<Mistake>) -> bool {
    let node = usize::from(flight.act.node);
    let holds = flight.holds;
    let unguarded = mistake == Some(Mistake::NoPrecondition) || !names_version(&flight.act.action.op);
    let no_uid = mistake == Some(Mistake::NoUid) || !names_uid(&flight.act.action.op);
    match &flight.act.action.op {
        Op::PatchNode(patch) => {
            if !holds.object && !unguarded {
                return false;
            }
            if from == From::FormerLeader && !holds.object {
                state.broke("I9", "a former leader's write lands on a node that was written since");
            }
            patch_node(state, node, patch, holds);
        }
        Op::Evict { .. } => {
            if state.nodes[node].shown.pods.user != User::Running || !holds.pod && !no_uid {
                return false;
            }
            if !holds.pod {
                state.broke("I10", "a replacement is evicted in the place of the pod that was meant");
            }
            if state.nodes[node].shown.handoff.is_none() {
                state.broke("I6", "evicted without a handoff");
            }
            state.nodes[node].shown.pods.user = User::Leaving;
        }
        Op::DeletePod(pod) => {
            if !holds.pod && !no_uid {
                return false;
            }
            let pods = &mut state.nodes[node].shown.pods;
            if let Some(unload) = pods.unload.iter_mut().find(|unload| unload_key(node, unload.nonce) == pod.key) {
                // Nothing of it runs: its object goes at once.
                if unload.stage == Stage::Running {
                    unload.leaving = true;
                } else {
                    let nonce = unload.nonce;
                    pods.unload.retain(|unload| unload.nonce != nonce);
                    state.pod_replaced(node);
                }
            } else {
                let loader = pod.key.name.contains("loader");
                let set = if loader { &mut pods.loader } else { &mut pods.plugin };
                for version in [1, 2] {
                    let name = version_text(version).unwrap_or_default();
                    let made = if loader {
                        lockkeeper::fleet::build::loader_pod(GPU, name, node_name(node))
                    } else {
                        lockkeeper::fleet::build::plugin_pod(GPU, name, node_name(node))
                    };
                    if let Some(one) = set[at(version)].as_mut().filter(|_| made.build().key == pod.key) {
                        one.leaving = true;
                    }
                }
            }
        }
        Op::CreatePod(body) => {
            let nonce = body["metadata"]["annotations"][keys::NONCE].as_str().and_then(nonce_of).unwrap_or_default();
            let version = version_of(body["metadata"]["labels"][keys::VERSION].as_str());
            let pods = &mut state.nodes[node].shown.pods;
            if pods.unload.iter().any(|unload| unload.nonce == nonce) {
                return false;
            }
            let selector = &body["spec"]["nodeSelector"];
            let bound = selector[Role::Nonce.key(&lockkeeper::fleet::build::key(GPU))].as_str().and_then(nonce_of) == Some(nonce);
            pods.unload.push(Unload { version, nonce, stage: Stage::Pending, leaving: false, recorded: false, bound });
            pods.unload.sort_by_key(|unload| unload.nonce);
        }
        Op::PutHandoffStatus { status, .. } => {
            if !holds.handoff && !unguarded {
                return false;
            }
            put_status(state, node, status);
        }
        Op::CreateHandoff { spec, .. } => {
            if state.nodes[node].shown.handoff.is_some() {
                return false;
            }
            let handoff = Handoff {
                uid: next_uid(state, node),
                version: version_of(spec.version.as_deref()),
                attempt: u8::try_from(spec.attempt).unwrap_or(u8::MAX),
                action: spec.action.into(),
                by: who(&spec.requested_by),
                finalizer: false,
                deleting: false,
                late: false,
                retry_due: true,
                status: kept(&Default::default()),
            };
            // A first install is asked for by the component's policy.
            if handoff.by == Who::Install {
                state.nodes[node].truth.asked |= 1 << handoff.version;
            }
            *state.handoff(node) = Some(handoff);
        }
        Op::PatchHandoffSpec { spec, .. } => {
            if !holds.handoff && !unguarded {
                return false;
            }
            if let Some(handoff) = state.handoff(node) {
                handoff.version = version_of(spec.version.as_deref());
                handoff.attempt = u8::try_from(spec.attempt).unwrap_or(u8::MAX);
                handoff.action = spec.action.into();
                handoff.by = who(&spec.requested_by);
            }
        }
        Op::SetHandoffFinalizer { present, .. } => {
            if !holds.handoff && !unguarded {
                return false;
            }
            let handoff = state.handoff(node);
            if let Some(it) = handoff {
                it.finalizer = *present;
                if !present && it.deleting {
                    *handoff = None;
                }
            }
        }
        Op::Admit(slot) => {
            if !holds.lease || from == From::FormerLeader {
                return false;
            }
            let of = u8::try_from(node).unwrap_or_default();
            let uid = uid_of(&slot.node_uid);
            let slots = state.slots();
            slots.retain(|(known, _)| *known != of);
            slots.push((of, uid));
            slots.sort_unstable();
        }
        Op::Release(slot) => {
            if !holds.lease || from == From::FormerLeader {
                return false;
            }
            let (of, uid) = (u8::try_from(node).unwrap_or_default(), uid_of(&slot.node_uid));
            state.slots().retain(|known| *known != (of, uid));
            // The slot goes after the cordon.
            let shown = &state.nodes[node].shown;
            let works = shown.object.desired != NONE && shown.object.desired == shown.object.plugin;
            if shown.object.closed == Closed::ByUs && shown.object.owned && works && shown.object.uid == uid {
                state.broke("I5", "its slot is freed while lockkeeper's cordon is on the node");
            }
        }
        Op::DeleteHandoff(_)
        | Op::SetPaused { .. }
        | Op::PutComponentStatus { .. }
        | Op::SetComponentFinalizer { .. }
        | Op::CreateDaemonSet(_)
        | Op::DeleteDaemonSet { .. } => return false,
    }
    true
}

/// The write carries the resourceVersion that it was decided on: without, the server takes it whatever has happened since.
fn names_version(op: &Op) -> bool {
    match op {
        Op::PatchNode(patch) => !patch.resource_version.is_empty() && !patch.uid.as_str().is_empty(),
        Op::PatchHandoffSpec { of, .. } | Op::PutHandoffStatus { of, .. } | Op::SetHandoffFinalizer { of, .. } => {
            !of.resource_version.is_empty()
        }
        _ => true,
    }
}

fn names_uid(op: &Op) -> bool {
    match op {
        Op::Evict { pods, .. } => pods.iter().all(|pod| !pod.uid.as_str().is_empty()),
        Op::DeletePod(pod) => !pod.uid.as_str().is_empty(),
        _ => true,
    }
}

fn who(requested_by: &str) -> Who {
    match requested_by {
        BY_LABEL => Who::Label,
        BY_INSTALL => Who::Install,
        _ => Who::Operator,
    }
}

pub fn next_uid(state: &State, node: usize) -> u8 {
    let marked = state.nodes[node].shown.object.mark.map_or(0, |mark| mark.handoff);
    let lag = state.engine.lag.as_ref().and_then(|lag| lag.old.get(node)?.handoff.as_ref()).map_or(0, |it| it.uid);
    (1..).find(|uid| *uid != marked && *uid != lag).unwrap_or(1)
}

fn put_status(state: &mut State, node: usize, status: &lockkeeper::api::NodeHandoffStatus) {
    let recorded =
        status.unload.as_ref().and_then(|unload| unload.pod.strip_prefix("unload-").and_then(|it| it.parse::<u8>().ok()));
    if let Some(nonce) = recorded {
        for unload in state.nodes[node].shown.pods.unload.iter_mut().filter(|unload| unload.nonce == nonce) {
            unload.recorded = true;
        }
    }
    let attempt = |status: &lockkeeper::api::NodeHandoffStatus| status.run.as_ref().map(|run| (run.attempt, run.desired.clone()));
    let mut begins = false;
    if let Some(handoff) = state.handoff(node) {
        let old = handoff.status.status.clone();
        begins = attempt(&old) != attempt(status);
        if old.phase != status.phase {
            handoff.late = false;
        }
        if recorded.is_some() {
            handoff.retry_due = false;
        }
        handoff.status = kept(status);
    }
    if begins {
        state.nodes[node].truth.ordered = None;
    }
}

fn patch_node(state: &mut State, node: usize, patch: &NodePatch, holds: Holds) {
    let before = state.nodes[node].shown.object.clone();
    let nonce = fresh_nonce(state, node);
    let loader_pods = holds.loaders;
    let object = state.object(node);
    let mut new_boot = false;
    for change in &patch.changes {
        match change {
            NodeChange::Label { key, value } => {
                let value = value.as_deref();
                match Role::parse(key).map(|(role, _)| role) {
                    Some(Role::Desired) => object.desired = version_of(value),
                    Some(Role::Loader) => object.loader = version_of(value),
                    Some(Role::Plugin) => object.plugin = version_of(value),
                    Some(Role::Ready) => object.serves = version_of(value),
                    Some(Role::Nonce) => object.nonce = value.map_or(0, |text| nonce_of(text).unwrap_or(nonce)),
                    _ => {}
                }
            }
            NodeChange::Annotation { key, value } if key == keys::CORDON => object.owned = value.is_some(),
            NodeChange::Annotation { key, value } => match Role::parse(key).map(|(role, _)| role) {
                Some(Role::Loaded) => object.record = value.as_deref().and_then(record),
                Some(Role::Mark) => {
                    let mark = value.as_deref().and_then(mark);
                    new_boot = mark.as_ref().is_some_and(|(_, new)| *new);
                    object.mark = mark.map(|(mark, _)| mark);
                }
                _ => {}
            },
            NodeChange::Unschedulable(true) => object.closed = Closed::ByUs,
            NodeChange::Unschedulable(false) => object.closed = Closed::Open,
        }
    }
    let after = object.clone();
    if new_boot {
        for (pod, was_there) in state.nodes[node].shown.pods.loader.iter_mut().zip(loader_pods) {
            if let Some(pod) = pod {
                pod.before_mark |= was_there;
            }
        }
    }
    judge(state, node, &before, &after, holds.came);
}

/// What the labels may not be made to say, whoever decided so.
fn judge(state: &mut State, at: usize, before: &Object, after: &Object, came: bool) {
    let (truth, pods) = (state.nodes[at].truth.clone(), state.nodes[at].shown.pods.clone());
    let handoff = state.nodes[at].shown.handoff.clone();
    // A power cut that no status shows yet cannot be known to anybody.
    let known = truth.boot == after.boot;
    if after.plugin != NONE && after.plugin != before.plugin {
        if after.loader != after.plugin {
            state.broke("I2", "the plugin label comes beside another loader label");
        }
        if truth.kernel != after.plugin && known {
            state.broke("I2", "the plugin label comes without its module in the kernel");
        }
    }
    if after.loader != NONE && after.loader != before.loader {
        if before.loader != NONE {
            state.broke("I2", "the loader label goes from one version to another in one step");
        }
        if after.desired != after.loader {
            state.broke("I11", "a loader label comes that nobody asks for");
        }
        if after.record != Some((after.loader, 0)) {
            state.broke("I2", "the loader label comes without its record");
        }
        if before.record.is_some_and(|(version, _)| version != after.loader) {
            state.broke("I2", "a loader label comes over another version's record");
        }
    }
    if after.loader == NONE && before.loader != NONE {
        if after.plugin != NONE {
            state.broke("I2", "the loader label goes under the plugin label");
        }
        if after.desired == TYPO {
            state.broke("I11", "a typo unloads");
        }
        if pods.user == User::Running && pods.plugin.iter().flatten().any(|pod| pod.runs) {
            state.broke("I1", "the loader label goes under a pod that uses the device");
        }
    }
    if after.plugin == NONE && before.plugin != NONE && pods.user == User::Running && known && before.loader == before.plugin {
        // A pod that was bound since the fresh read cannot be known.
        if !came {
            state.broke("I1", "the plugin label goes under a pod that uses the device");
        }
    }
    if before.closed == Closed::ByPerson && after.closed == Closed::Open {
        state.broke("I7", "a person's cordon is undone");
    }
    if after.closed == Closed::ByUs && before.closed != Closed::ByUs {
        let others =
            state.nodes.iter().enumerate().filter(|(other, it)| *other != at && it.shown.object.closed == Closed::ByUs).count();
        if others > 0 {
            state.broke("I5", "two nodes are closed with a budget of one");
        }
        let runs =
            handoff.as_ref().is_some_and(|it| !it.status.status.phase.is_ended() && it.status.status.phase != Phase::Queued);
        if !runs && before.uid == after.uid {
            state.broke("I6", "a node is closed without a handoff that runs");
        }
    }
    if after.desired != before.desired && truth.ordered.is_some_and(|ordered| ordered != after.desired) {
        state.broke("I11", "a person's order is overridden");
    }
    if handoff.is_none() && after.desired != before.desired {
        state.broke("I6", "a node is touched that nobody asked for");
    }
}

fn record(text: &str) -> Option<(V, u8)> {
    let loaded: Loaded = serde_json::from_str(text).ok()?;
    Some((version_of(Some(loaded.version.as_str())), loaded.stopped_boot.map_or(0, |boot| boot_of(boot.as_str()))))
}

/// The mark, and whether its boot was written down just now.
fn mark(text: &str) -> Option<(Mark, bool)> {
    let mark: NodeMark = serde_json::from_str(text).ok()?;
    let new =
        mark.boot.as_ref().is_some_and(|boot| boot.since != lockkeeper::fleet::build::at(crate::picture::MARKED).to_string());
    let known = Mark {
        handoff: uid_of(&mark.uid),
        attempt: u8::try_from(mark.attempt).unwrap_or(u8::MAX),
        epoch: u8::try_from(mark.epoch).unwrap_or(u8::MAX),
        desired: mark.desired.into(),
        boot: mark.boot.as_ref().map_or(0, |boot| boot_of(boot.id.as_str())),
    };
    Some((known, new))
}

/// A nonce that nobody knows yet.
fn fresh_nonce(state: &State, node: usize) -> u8 {
    let of_flight = |flight: &Flight| match &flight.act.action.op {
        Op::CreatePod(body) => body["metadata"]["annotations"][keys::NONCE].as_str().and_then(nonce_of),
        _ => None,
    };
    let mut taken: Vec<u8> = state.nodes[node].shown.pods.unload.iter().map(|unload| unload.nonce).collect();
    taken.push(state.nodes[node].shown.object.nonce);
    taken.extend(state.engine.flight.iter().chain(&state.former).filter_map(of_flight));
    if let Some(old) = state.engine.lag.as_ref().and_then(|lag| lag.old.get(node)) {
        taken.push(old.object.nonce);
        taken.extend(old.pods.unload.iter().map(|unload| unload.nonce));
    }
    (1..).find(|nonce| !taken.contains(nonce)).unwrap_or(u8::MAX)
}
