//! A CSI nodeplugin on a node in words: its pod, whether its driver is registered, who uses its volumes and what becomes of those mounts.

use std::collections::BTreeMap;

use super::{
    super::{facts::Facts, plan, theme::Role},
    describe::{Page, pod_line},
};
use crate::{api::ObjectKey, drain::volumes, fleet::view::VolumeUse};

/// False: the component is of another kind, and nothing was written.
pub(super) fn section(page: &mut Page<'_>, facts: &Facts<'_>) -> bool {
    let Some((view, here)) = facts.component.and_then(|view| view.csi.as_deref()).zip(facts.occupancy.csi.as_deref()) else {
        return false;
    };
    page.head("Nodeplugin");
    page.pair("driver", Role::Text, &view.plugin.driver);
    let (role, listed) = if here.registered { (Role::Good, "lists it") } else { (Role::Waiting, "does not list it") };
    page.pair("CSINode", role, listed);
    if let Some(set) = &view.set {
        let held = view.held_by.as_ref().map(|holder| format!(", network of {}", holder.name)).unwrap_or_default();
        let holder = if view.holder { ", a holder" } else { "" };
        page.pair("set", Role::Text, &format!("{}{holder}{held}", set.key));
    }
    for pod in &here.pods {
        let current = if view.is_current(pod) { "current" } else { "old" };
        page.pair("pod", Role::Text, &format!("{}, {current}", pod_line(pod)));
    }
    if here.pods.is_empty() {
        page.pair("pod", Role::Bad, "none: nothing can be mounted or unmounted");
    }
    if let Err(why) = &here.should_run {
        page.pair("next", Role::Bad, &format!("a deleted pod would not come back: {why}"));
    }
    dead(page, here.stale());
    restarts(page, facts);
    stays(page, facts);
    true
}

/// Pods whose mounts have died: what brings them back.
fn dead<'a>(page: &mut Page<'_>, stale: impl Iterator<Item = &'a VolumeUse>) {
    let mut pods: BTreeMap<&ObjectKey, Vec<&str>> = BTreeMap::new();
    for it in stale {
        pods.entry(&it.pod.key).or_default().push(it.volume.as_deref().unwrap_or(&it.name));
    }
    if pods.is_empty() {
        return;
    }
    page.head(format!("Dead mounts ({})", pods.len()));
    for (pod, volumes) in pods {
        page.text(Role::Bad, &format!("{pod}: {}", volumes.join(", ")));
        page.text(Role::Muted, &format!("  kubectl -n {} delete pod {}", pod.namespace, pod.name));
    }
}

fn restarts(page: &mut Page<'_>, facts: &Facts<'_>) {
    let restart = facts.occupancy.csi.as_deref().map(|csi| &csi.restart[..]).unwrap_or_default();
    if restart.is_empty() {
        return;
    }
    page.head(format!("Restarted after it ({})", restart.len()));
    for claimant in restart {
        page.text(Role::Text, &claimant.pod.key.to_string());
        page.text(Role::Muted, &format!("  {}", plan::reason(&claimant.why)));
    }
}

/// Users whose mounts live on.
fn stays(page: &mut Page<'_>, facts: &Facts<'_>) {
    let leaves = |it: &VolumeUse| {
        let restart = facts.occupancy.csi.as_deref().map(|csi| &csi.restart[..]).unwrap_or_default();
        facts.occupancy.claimants.iter().chain(restart).any(|claimant| claimant.pod.meta.uid == it.pod.meta.uid)
    };
    let uses = facts.occupancy.csi.as_deref().map(|csi| &csi.uses[..]).unwrap_or_default();
    let stay: Vec<&VolumeUse> = uses.iter().filter(|it| !leaves(it)).collect();
    if stay.is_empty() {
        return;
    }
    let other = if stay.len() < uses.len() { "Other users" } else { "Users" };
    page.head(format!("{other} of its volumes ({})", stay.len()));
    for it in stay {
        page.text(Role::Text, &it.pod.key.to_string());
        page.text(Role::Muted, &format!("  {}", volumes::use_of(&it.name, it.claim.as_ref(), &it.risk)));
    }
}
