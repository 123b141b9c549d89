//! Who would break if a component went away now, and why. It says nothing about whether they may be moved: that is `blockers`.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    api::{ObjectKey, Uid},
    fleet::{
        records::{ClaimRecord, PodRecord, Str},
        rules::BlockRules,
        selector,
        view::{ClaimReason, Claimant, ClaimantClass},
    },
};

/// Claims by key: at least those that the judged pods name.
pub type Claims = BTreeMap<ObjectKey, Arc<ClaimRecord>>;

/// Those of these pods that claim the component. Its own pods are left out before; terminal pods hold nothing.
pub fn of<'p>(
    pods: impl Iterator<Item = &'p Arc<PodRecord>>,
    blocks: &[&BlockRules],
    claims: &Claims,
    class: impl Fn(&PodRecord) -> ClaimantClass,
) -> Vec<Claimant> {
    pods.filter_map(|pod| {
        let why = reason(pod, blocks, claims)?;
        Some(Claimant { pod: pod.clone(), why, class: class(pod) })
    })
    .collect()
}

/// Why this pod claims the component, if it does.
pub fn reason(pod: &PodRecord, blocks: &[&BlockRules], claims: &Claims) -> Option<ClaimReason> {
    if pod.phase.is_terminal() {
        return None;
    }
    blocks.iter().find_map(|block| by_block(pod, block, claims))
}

fn by_block(pod: &PodRecord, block: &BlockRules, claims: &Claims) -> Option<ClaimReason> {
    if let Some(extra) = &pod.extra {
        let resource = extra.resources.iter().find(|(name, quantity)| **quantity > 0 && block.resources.contains(&***name));
        if let Some((name, quantity)) = resource {
            return Some(ClaimReason::Resource { name: name.clone(), quantity: *quantity });
        }
        if !block.drivers.is_empty()
            && let Some(reason) = by_claim(pod, extra, block, claims)
        {
            return Some(reason);
        }
    }
    if let Some((selector, namespaces)) = &block.selector
        && namespaces.contains(&*pod.key.namespace)
        && selector::matches(selector, &pod.labels)
    {
        return Some(ClaimReason::Selector);
    }
    // What a drain of everything leaves behind: DaemonSet pods and static pods.
    let drainable = !pod.flags.mirror && !pod.owner.as_ref().is_some_and(|owner| owner.is_daemon_set());
    (block.reboot && drainable).then_some(ClaimReason::Reboot)
}

fn by_claim(
    pod: &PodRecord,
    extra: &crate::fleet::records::PodExtra,
    block: &BlockRules,
    claims: &Claims,
) -> Option<ClaimReason> {
    for name in &extra.claims {
        let key = ObjectKey { namespace: pod.key.namespace.clone(), name: name.clone() };
        // A claim that nobody can show may be one of ours: better a claimant too many.
        let Some(claim) = claims.get(&key) else { return Some(ClaimReason::UnresolvedClaim { entry: name.clone() }) };
        if let Some((driver, _, _)) = claim.devices.iter().find(|(driver, _, _)| block.drivers.contains(&**driver)) {
            return Some(ClaimReason::Claim { claim: key, driver: driver.clone() });
        }
    }
    let entry = extra.unresolved_claims.first()?;
    Some(ClaimReason::UnresolvedClaim { entry: entry.clone() })
}

/// What can be done about a claimant. The first that fits: a pod that is leaving is only waited for, whatever else it is.
pub fn class(pod: &PodRecord, ready_key: &str, required_labels: &BTreeMap<Uid, Vec<Str>>) -> ClaimantClass {
    if pod.meta.deletion.is_some() {
        return ClaimantClass::Terminating;
    }
    if pod.flags.mirror {
        return ClaimantClass::Mirror;
    }
    match &pod.owner {
        Some(owner) if owner.is_daemon_set() => {
            let needs = required_labels.get(&owner.uid);
            ClaimantClass::DaemonSet { selects_ready: needs.is_some_and(|keys| keys.iter().any(|key| **key == *ready_key)) }
        }
        None => ClaimantClass::Unmanaged,
        Some(_) if pod.flags.empty_dir => ClaimantClass::EmptyDir,
        Some(_) => ClaimantClass::Evictable,
    }
}

#[cfg(test)]
mod tests;
