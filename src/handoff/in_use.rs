//! Why nothing may be taken away from a node now: who uses it, what may still run there, and a node that is silent. Names the reasons; what
//! follows from them is the interlock's and the phases' to say.

use std::borrow::Cow;

use jiff::Timestamp;

use super::{
    facts::Facts,
    interlock::Effect,
    kmm_module,
    observed::NotGone,
    patch::whole_seconds,
    pod_state::state_of,
    verdict::{Blocker, BlockerKind, ObjectRef},
};
use crate::{
    api::{ObjectKey, Phase, Version},
    fleet::view::{Claimant, Incoming, IncomingReason},
};

fn held_by(blockers: Vec<Blocker>) -> Option<Effect> {
    (!blockers.is_empty()).then_some(Effect::Wait { blockers, recheck: None })
}

/// A handoff on this node, of this component or another, is between Draining and Loading: DaemonSet claimants stay away.
pub fn is_handing_over(f: &Facts<'_>) -> bool {
    let between = |phase: Phase| (Phase::Draining..=Phase::Loading).contains(&phase);
    let own = f.status().is_some_and(|status| match status.phase {
        // Where it stopped is just before where it goes on.
        Phase::Held => status.resume_at.is_some_and(|next| next > Phase::Draining && next <= Phase::StartingPlugin),
        phase => between(phase) && !f.is_giving_back(),
    });
    own || f.others.iter().any(|other| between(other.phase))
}

/// The plugin pod is not there or not Ready.
pub fn plugin_not_ready(f: &Facts<'_>) -> Vec<Blocker> {
    if f.ready_plugin().is_some() {
        return Vec::new();
    }
    if let Some(csi) = f.csi() {
        return super::csi_node_plugin::not_ready(f, csi);
    }
    if let Some(kmm) = f.kmm() {
        return super::kmm_module::plugin_not_ready(f, kmm);
    }
    let version = f.plugin().map(ToString::to_string).unwrap_or_default();
    let mut blockers: Vec<Blocker> = f
        .occupancy
        .plugin_pods
        .iter()
        .map(|pod| f.on_pod(BlockerKind::PluginNotReady, pod, format!("the plugin pod of {version} is {}", state_of(pod))))
        .collect();
    if blockers.is_empty() {
        blockers.push(f.on_node(
            BlockerKind::PluginNotReady,
            format!("no plugin pod of {version} is on the node yet; its DaemonSet makes it"),
        ));
    }
    blockers.extend(not_ready(f));
    blockers
}

/// Claimants that must leave before anything is taken away: all but those that only what comes next can free.
pub fn claimants<'a>(f: &Facts<'a>) -> Cow<'a, [Claimant]> {
    let all = &f.occupancy.claimants;
    match f.kmm() {
        Some(k) if all.iter().any(|it| kmm_module::is_stranded(f, it)) && kmm_module::is_out_already(f, k) => {
            all.iter().filter(|it| !kmm_module::is_stranded(f, it)).cloned().collect()
        }
        _ => Cow::Borrowed(all),
    }
}

/// Pods on their way that would use what is to be taken away. One whose claim is allocated here alone can neither come nor go while what
/// holds that claim is stranded.
pub fn incoming<'a>(f: &Facts<'a>) -> Cow<'a, [Incoming]> {
    let all = &f.occupancy.incoming;
    let of_claim = |it: &Incoming| matches!(it.why, IncomingReason::ClaimOnlyHere { .. });
    match f.kmm() {
        Some(k) if all.iter().any(of_claim) && kmm_module::is_out_already(f, k) => {
            all.iter().filter(|it| !of_claim(it)).cloned().collect()
        }
        _ => Cow::Borrowed(all),
    }
}

/// Claims that must be released before what serves them goes; none when it has gone already.
pub fn reserved_claims<'a>(f: &Facts<'a>) -> &'a [ObjectKey] {
    let all = &f.occupancy.reserved_claims[..];
    let gone = !all.is_empty() && f.kmm().is_some_and(|k| kmm_module::is_out_already(f, k));
    if gone { &[] } else { all }
}

/// Claimants, reserved claims, and pods that left but may still run: nothing may be taken away under them.
pub fn in_use(f: &Facts<'_>) -> Option<Effect> {
    let claimants = claimants(f);
    let claimants = claimants.iter().map(|claimant| claimed(f, claimant));
    let reserved = reserved_claims(f).iter().map(|claim| {
        let message =
            "still reserved for a pod of this node, or for something unknown; the driver must stay until it is released";
        f.blocker(BlockerKind::ClaimReserved, ObjectRef::new("ResourceClaim", claim), message)
    });
    held_by(claimants.chain(reserved).collect()).or_else(|| not_settled(f))
}

fn claimed(f: &Facts<'_>, claimant: &Claimant) -> Blocker {
    let message = format!("{}; it must leave before the plugin or the module does", super::evict::why_it_claims(&claimant.why));
    f.on_pod(BlockerKind::Claimant, &claimant.pod, message)
}

/// Objects that are no longer there prove nothing while their node is silent or their grace has not passed.
pub fn not_settled(f: &Facts<'_>) -> Option<Effect> {
    let blockers = not_ready(f);
    if !blockers.is_empty() {
        return held_by(blockers);
    }
    if let Some(left) = f.observed.not_gone(f.node, f.now) {
        return Some(still_there(f, left));
    }
    // Who does not act has nothing to wait for: it shows what whoever acts would do.
    if !f.context.lease_held {
        return None;
    }
    let blind = f.observed.blind_until().unwrap_or(Timestamp::MAX);
    (f.now < blind && (f.loaded().is_some() || f.csi().is_some() || f.kmm().is_some_and(|kmm| kmm.here.recorded.is_some()))).then(|| {
        let message = format!(
            "lockkeeper has only just started and did not see what left this node before; pods deleted by force may run until {}",
            whole_seconds(blind)
        );
        Effect::Wait { blockers: vec![f.on_node(BlockerKind::Stabilising, message)], recheck: Some(blind) }
    })
}

pub fn still_there(f: &Facts<'_>, left: NotGone) -> Effect {
    let message = match left.until {
        Some(until) => {
            format!("was deleted without having been seen to end: its processes may run until {}", whole_seconds(until))
        }
        None => format!("has left {}; it counts as gone when the kubelet has renewed the node's Lease", f.node.name),
    };
    Effect::Wait {
        blockers: vec![f.blocker(BlockerKind::Terminating, ObjectRef::new("Pod", &left.pod), message)],
        recheck: left.until,
    }
}

pub fn not_ready(f: &Facts<'_>) -> Vec<Blocker> {
    match f.record() {
        None => vec![f.on_node(BlockerKind::NodeGone, "the Node does not exist any more")],
        Some(record) if !record.ready.is_true() || record.boot_id.as_str().is_empty() => {
            vec![f.on_node(BlockerKind::NodeNotReady, "the node is not Ready: what runs on it is not known. It goes on when the node is Ready again, or has a new boot ID")]
        }
        Some(_) => Vec::new(),
    }
}

pub fn plugin_pods(f: &Facts<'_>) -> Vec<Blocker> {
    let pods = f.occupancy.plugin_pods.iter();
    pods.map(|pod| f.on_pod(BlockerKind::PluginPod, pod, format!("a plugin pod is {}", state_of(pod)))).collect()
}

/// With a pod selector no missing device keeps pods away: the node must be closed, and nobody on the way.
pub fn open_to_selected(f: &Facts<'_>) -> Vec<Blocker> {
    if !f.has_selector() {
        return Vec::new();
    }
    let mut blockers = super::evict::incoming(f);
    if f.record().is_some_and(|record| !record.unschedulable) {
        let message =
            "pods that use the module are chosen by a selector, so nothing but a cordon keeps new ones away: cordon the node";
        blockers.push(f.on_node(BlockerKind::Cordon, message));
    }
    blockers
}

/// The version's DaemonSets must be there, or nothing would follow the labels.
pub fn missing_daemon_sets(f: &Facts<'_>, version: &Version) -> Vec<Blocker> {
    let Some(view) = f.version(version) else { return Vec::new() };
    let missing = [
        ("loader", view.loader.is_none(), BlockerKind::LoaderNotReady),
        ("plugin", view.plugin.is_none(), BlockerKind::PluginNotReady),
    ];
    let object = || ObjectRef::new("NodeComponent", f.key);
    missing
        .into_iter()
        .filter(|(_, missing, _)| *missing)
        .map(|(role, _, kind)| f.blocker(kind, object(), format!("the {role} DaemonSet of {version} is not there yet")))
        .collect()
}
