//! Unbound pods that may yet land on a node as claimants. A pod whose binding had begun was seen to bind minutes after the node was
//! cordoned, so a drain waits for those; one that is merely pending is not on its way.

use std::{collections::BTreeMap, sync::Arc};

use super::claimants::Claims;
use crate::{
    api::{NodeName, ObjectKey},
    fleet::{
        records::{PodRecord, Str, VolumeClaimRecord},
        view::IncomingReason,
    },
};

/// PersistentVolumeClaims by key: at least those that the judged pods name.
pub type VolumeClaims = BTreeMap<ObjectKey, Arc<VolumeClaimRecord>>;

/// Whether this pod is on its way to the node.
pub fn reason(pod: &PodRecord, node: &NodeName, claims: &Claims, volume_claims: &VolumeClaims) -> Option<IncomingReason> {
    destinations(pod, |key| claims.get(key).cloned(), |key| volume_claims.get(key).cloned())
        .into_iter()
        .find_map(|(to, reason)| (to == *node).then_some(reason))
}

/// Every node that this unbound pod is on its way to, with the reason.
pub fn destinations(
    pod: &PodRecord,
    claim: impl Fn(&ObjectKey) -> Option<Arc<crate::fleet::records::ClaimRecord>>,
    volume_claim: impl Fn(&ObjectKey) -> Option<Arc<VolumeClaimRecord>>,
) -> Vec<(NodeName, IncomingReason)> {
    let mut found = Vec::new();
    let Some(extra) = &pod.extra else { return found };
    if pod.node.is_some() || pod.phase.is_terminal() || pod.meta.deletion.is_some() {
        return found;
    }
    let key = |name: &Str| ObjectKey { namespace: pod.key.namespace.clone(), name: name.clone() };
    if let Some(node) = &extra.nominated_node {
        found.push((node.clone(), IncomingReason::Nominated));
    }
    for claim_key in extra.volume_claims().map(key) {
        if let Some(claim) = volume_claim(&claim_key)
            && let Some(node) = &claim.selected_node
            // The annotation stays for good. Once the volume is bound it only matters for a pod that the scheduler has not
            // turned down: one that it has cannot start until something changes (its volume may be on this very node).
            && !(claim.bound && pod.flags.unschedulable)
        {
            found.push((node.clone(), IncomingReason::VolumeSelectedNode { claim: claim_key }));
        }
    }
    for claim_key in extra.claims.iter().map(key) {
        if let Some(claim) = claim(&claim_key)
            && claim.allocated
            && let Some(node) = &claim.only_node
        {
            found.push((node.clone(), IncomingReason::ClaimOnlyHere { claim: claim_key }));
        }
    }
    found
}

#[cfg(test)]
mod tests;
