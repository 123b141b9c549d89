//! The writes of a handoff before anything is written: which object changes how, phase by phase. What is refused and who is evicted is
//! `preflight` and `evict::plan`; together they are what `lockkeeper plan` shows.

use serde::Serialize;

use super::{
    cordon::{self, Cordon},
    csi_node_plugin::Csi,
    facts::Facts,
    kmm_module, start, unload_pod,
};
use crate::{
    api::{
        Phase, Version,
        keys::{CORDON, Role},
    },
    fleet::view::ClaimReason,
};

/// One write that a handoff will make, or what others are awaited to do at it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Write {
    pub phase: Phase,
    /// `Node n1`, `Pod ns/name`.
    pub object: String,
    /// `label lockkeeper.dev/plugin.ns.gpu removed`.
    pub change: String,
}

/// The phases that a handoff would enter as things stand, in order: the choices are those of `shared_phases` and of its kind.
pub fn phases(f: &Facts<'_>) -> Vec<Phase> {
    use Phase::{
        AwaitingReboot, Cordoning, Detaching, Draining, Loading, Preflight, StartingPlugin, StoppingPlugin, Uncordoning,
        Unloading, Verifying,
    };
    if start::runs_target(f) {
        return Vec::new();
    }
    if let Some(csi) = f.csi() {
        return of_csi(f, csi);
    }
    if let Some(kmm) = f.kmm() {
        return kmm_module::phases(f, kmm);
    }
    let by_label = f.is_by_label();
    let closes =
        cordon::is_wanted(f, &start::policy(f)) || matches!(cordon::state(f), Cordon::Ours | Cordon::Foreign { stale: true });
    let claims = || f.occupancy.claimants.iter().any(|claimant| matches!(claimant.why, ClaimReason::Claim { .. }));
    let swap = start::swap_needed(f);
    let entered = |phase: &Phase| match phase {
        Cordoning => swap && !by_label && closes,
        Draining => swap && !by_label,
        // A claim is released a moment after its pod has gone.
        Detaching => swap && !by_label && (!f.occupancy.reserved_claims.is_empty() || claims()),
        StoppingPlugin | Unloading => swap,
        AwaitingReboot => swap && f.unloads_by_reboot(),
        Loading | StartingPlugin | Verifying => f.target().is_some(),
        _ => true,
    };
    [
        Preflight,
        Cordoning,
        Draining,
        Detaching,
        StoppingPlugin,
        Unloading,
        AwaitingReboot,
        Loading,
        StartingPlugin,
        Verifying,
        Uncordoning,
    ]
    .into_iter()
    .filter(entered)
    .collect()
}

fn of_csi(f: &Facts<'_>, csi: Csi<'_>) -> Vec<Phase> {
    let closes =
        cordon::is_wanted(f, &start::policy(f)) || matches!(cordon::state(f), Cordon::Ours | Cordon::Foreign { stale: true });
    let entered = |phase: &Phase| match phase {
        Phase::Cordoning => closes,
        Phase::ReplacingPod => !csi.is_current() && csi.view.plugin.remount.is_none(),
        Phase::RestartingUsers => !csi.here.restart.is_empty(),
        _ => true,
    };
    use Phase::{Cordoning, Detaching, Draining, Preflight, ReplacingPod, RestartingUsers, Uncordoning, Verifying};
    let all = [Preflight, Cordoning, Draining, Detaching, ReplacingPod, Verifying, RestartingUsers, Uncordoning];
    all.into_iter().filter(entered).collect()
}

fn writes_of_csi(f: &Facts<'_>, csi: Csi<'_>) -> Vec<Write> {
    let mut all = Vec::new();
    let node = format!("Node {}", f.node.name);
    let closes = cordon::is_wanted(f, &start::policy(f)) && cordon::state(f) == Cordon::Open;
    if closes {
        let change = format!("spec.unschedulable=true, annotation {CORDON} names {}", f.key);
        all.push(Write { phase: Phase::Cordoning, object: node.clone(), change });
    }
    let target = f.target().map(|target| target.to_string()).unwrap_or_default();
    if !csi.is_current() && csi.view.plugin.remount.is_none() {
        all.extend(csi.here.pods.iter().map(|pod| Write {
            phase: Phase::ReplacingPod,
            object: format!("Pod {}", pod.key),
            change: format!("deleted by its UID; its DaemonSet makes the next one, of revision {target}"),
        }));
    }
    all.extend(csi.here.restart.iter().map(|claimant| Write {
        phase: Phase::RestartingUsers,
        object: format!("Pod {}", claimant.pod.key),
        change: "deleted by its UID; its DaemonSet makes the next one, with a living mount".to_owned(),
    }));
    let open = if closes || cordon::state(f) == Cordon::Ours {
        format!("spec.unschedulable removed, annotation {CORDON} removed, ")
    } else {
        String::new()
    };
    let change = format!("{open}annotation {} removed", Role::Mark.key(f.key));
    all.push(Write { phase: Phase::Uncordoning, object: node, change });
    all
}

/// The writes to the node and its pods in their order, evictions left out. Status, finalizer and Lease are written beside them.
pub fn writes(f: &Facts<'_>) -> Vec<Write> {
    let mut all = Vec::new();
    let Some(target) = f.target() else { return all };
    if start::runs_target(f) {
        return all;
    }
    if let Some(csi) = f.csi() {
        return writes_of_csi(f, csi);
    }
    if let Some(kmm) = f.kmm() {
        return kmm_module::writes(f, kmm);
    }
    let node = format!("Node {}", f.node.name);
    let mut push = |phase, change: String| all.push(Write { phase, object: node.clone(), change });
    let set = |role: Role, version: &Version| format!("label {}={version}", role.key(f.key));
    let off = |role: Role| format!("{} {} removed", if role.is_annotation() { "annotation" } else { "label" }, role.key(f.key));
    let policy = start::policy(f);
    let swap = start::swap_needed(f);
    let labels = &f.occupancy.labels;
    let closes = swap && cordon::is_wanted(f, &policy) && cordon::state(f) == cordon::Cordon::Open;
    if closes {
        push(Phase::Cordoning, format!("spec.unschedulable=true, annotation {CORDON} names {}", f.key));
    }
    if swap {
        if labels.ready.is_some() {
            push(Phase::Draining, off(Role::Ready));
        }
        if labels.plugin.is_some() || labels.desired.is_some() {
            push(Phase::StoppingPlugin, format!("{}, {}", off(Role::Desired), off(Role::Plugin)));
        }
        if labels.loader.is_some() {
            push(Phase::Unloading, off(Role::Loader));
        }
        if let Some(loaded) = f.loaded().or(f.loader()) {
            let reboot = f.unloads_by_reboot();
            let nonce = if reboot { String::new() } else { format!(", label {} set", Role::Nonce.key(f.key)) };
            push(
                Phase::Unloading,
                format!("annotation {} says that the loader of {loaded} has stopped{nonce}", Role::Loaded.key(f.key)),
            );
            let pod = f.version(loaded).and_then(|view| unload_pod::body(f.key, loaded, &view.block, &f.node.name, "NONCE"));
            if let Some(pod) = pod.filter(|_| !reboot) {
                let name = pod.pointer("/metadata/name").and_then(serde_json::Value::as_str).unwrap_or_default();
                all.push(Write {
                    phase: Phase::Unloading,
                    object: format!("Pod {}/{name}", f.key.namespace),
                    change: format!("created: it unloads {loaded}"),
                });
            }
            let phase = if reboot { Phase::AwaitingReboot } else { Phase::Unloading };
            let proof = if reboot { "after the reboot" } else { "after its exit 0" };
            all.push(Write { phase, object: node.clone(), change: format!("{} {proof}", off(Role::Loaded)) });
        }
    }
    let mut push = |phase, change: String| all.push(Write { phase, object: node.clone(), change });
    if labels.loader.as_ref() != Some(&target) || swap {
        push(
            Phase::Loading,
            format!(
                "{}, {}, annotation {} says {target}",
                set(Role::Desired, &target),
                set(Role::Loader, &target),
                Role::Loaded.key(f.key)
            ),
        );
    }
    if labels.plugin.as_ref() != Some(&target) || swap {
        push(Phase::StartingPlugin, set(Role::Plugin, &target));
    }
    push(Phase::Verifying, set(Role::Ready, &target));
    let ours = closes || cordon::state(f) == cordon::Cordon::Ours;
    let open = if ours { format!("spec.unschedulable removed, annotation {CORDON} removed, ") } else { String::new() };
    push(Phase::Uncordoning, format!("{open}{}", off(Role::Mark)));
    all
}
