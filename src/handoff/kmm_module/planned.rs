//! What a handoff of a followed Module will do, before it does anything: its phases, lockkeeper's writes, and what KMM is expected to do at them.

use super::{Followed, speaks_against};
use crate::{
    api::{
        Phase,
        keys::{CORDON, Role},
    },
    fleet::view::ClaimReason,
    handoff::{
        cordon::{self, Cordon},
        facts::Facts,
        plan::Write,
        start,
    },
    kmm::keys::{self, Era, Label},
};

/// The phases that it would enter as things stand, in order.
pub(in crate::handoff) fn phases(f: &Facts<'_>, k: Followed<'_>) -> Vec<Phase> {
    use Phase::{
        Cordoning, Detaching, Draining, Loading, Preflight, StartingPlugin, StoppingPlugin, Uncordoning, Unloading, Verifying,
    };
    let by_label = f.is_by_label();
    let closes =
        cordon::is_wanted(f, &start::policy(f)) || matches!(cordon::state(f), Cordon::Ours | Cordon::Foreign { stale: true });
    let claims = || f.occupancy.claimants.iter().any(|claimant| matches!(claimant.why, ClaimReason::Claim { .. }));
    let swap = speaks_against::swap_needed(f, k);
    let entered = |phase: &Phase| match phase {
        Cordoning => swap && !by_label && closes,
        Draining => swap && !by_label,
        Detaching => swap && !by_label && (!f.occupancy.reserved_claims.is_empty() || claims()),
        StoppingPlugin | Unloading => swap,
        Loading | StartingPlugin | Verifying => f.target().is_some(),
        _ => true,
    };
    let all =
        [Preflight, Cordoning, Draining, Detaching, StoppingPlugin, Unloading, Loading, StartingPlugin, Verifying, Uncordoning];
    all.into_iter().filter(entered).collect()
}

/// The writes in their order, evictions left out; KMM's own steps stand beside them, named as KMM's.
pub(in crate::handoff) fn writes(f: &Facts<'_>, k: Followed<'_>) -> Vec<Write> {
    let mut all = Vec::new();
    let node = format!("Node {}", f.node.name);
    let key = f.desired_key();
    let record = Role::Loaded.key(f.key);
    let target = f.target().map(|target| target.to_string()).unwrap_or_default();
    let mut push = |phase, object: &str, change: String| all.push(Write { phase, object: object.to_owned(), change });
    let swap = speaks_against::swap_needed(f, k);
    let closes = swap && cordon::is_wanted(f, &start::policy(f)) && cordon::state(f) == Cordon::Open;
    if closes {
        push(Phase::Cordoning, &node, format!("spec.unschedulable=true, annotation {CORDON} names {}", f.key));
    }
    let worker = format!("Pod {}/{}", k.view.key.namespace, keys::worker_pod(f.node.name.as_str(), &k.view.key.name));
    let config = format!("NodeModulesConfig {}", f.node.name);
    let short = super::is_short(f, k) && f.desired().is_some();
    if swap && (f.desired().is_some() || super::is_there(f.occupancy)) {
        match short {
            true => push(
                Phase::StoppingPlugin,
                &node,
                format!("label {key}={target}: nobody uses the device, so one change is enough"),
            ),
            false if f.desired().is_some() => push(Phase::StoppingPlugin, &node, format!("label {key} removed")),
            false => {}
        }
        if k.here.recorded.is_some() {
            push(Phase::StoppingPlugin, &node, format!("annotation {record} says what is being unloaded"));
        }
        for pod in &f.occupancy.plugin_pods {
            push(
                Phase::StoppingPlugin,
                &format!("Pod {}", pod.key),
                "deleted by KMM's DaemonSet once its plugin label is off (awaited)".to_owned(),
            );
        }
        if k.here.recorded.is_some() {
            push(Phase::Unloading, &worker, "KMM's Unload pod (awaited: it must succeed)".to_owned());
            push(Phase::Unloading, &config, format!("KMM takes its entry of {} off (awaited: the proof)", k.view.key));
        }
    }
    if f.target().is_some() && k.loaded() != f.target() {
        if !short {
            push(Phase::Loading, &node, format!("label {key}={target}, annotation {record} says {target}"));
        }
        let image = k.here.image.as_deref().map(|image| format!(" of {image}")).unwrap_or_default();
        push(Phase::Loading, &worker, format!("KMM's Load pod{image} (awaited: it must succeed)"));
        push(Phase::Loading, &config, format!("KMM records {target} in this boot (awaited: the proof)"));
    }
    if f.target().is_some() && k.has_plugin() && swap {
        push(Phase::StartingPlugin, &node, format!("a Ready pod of KMM's plugin of {target} (awaited)"));
    }
    if f.target().is_some() && swap {
        let [ready, version] =
            [Label::Ready, Label::VersionReady].map(|label| label.key(&k.view.key, Era::Third).unwrap_or_default());
        push(Phase::Verifying, &node, format!("KMM's labels {ready} and {version}={target} (awaited; they prove nothing)"));
    }
    let ours = closes || cordon::state(f) == Cordon::Ours;
    let open = if ours { format!("spec.unschedulable removed, annotation {CORDON} removed, ") } else { String::new() };
    push(Phase::Uncordoning, &node, format!("{open}annotations {record} and {} removed", Role::Mark.key(f.key)));
    all
}
