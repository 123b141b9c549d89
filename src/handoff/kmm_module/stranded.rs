//! Pods that KMM has taken the driver from, and that cannot go without it: only the driver takes a ResourceClaim back, and KMM lets it return
//! only with the next module. To wait for such a pod before that one is loaded would be to wait for ever.

use super::{Followed, kernel};
use crate::{
    fleet::view::{ClaimReason, Claimant},
    handoff::facts::Facts,
};

/// KMM has taken module and driver out already, whoever made it do so (a label changed by hand, a taint): nothing of the old version serves a
/// claim on the node any more, and nobody can use what the kernel is proven not to hold.
pub(in crate::handoff) fn is_out_already(f: &Facts<'_>, k: Followed<'_>) -> bool {
    f.occupancy.plugin_pods.is_empty() && kernel::out(f, k).is_ok()
}

/// Deleted, its grace period over, and there for its claim. What else may hold it (a finalizer, a volume) holds no module.
pub(in crate::handoff) fn is_stranded(f: &Facts<'_>, claimant: &Claimant) -> bool {
    let of_claim = matches!(claimant.why, ClaimReason::Claim { .. } | ClaimReason::UnresolvedClaim { .. });
    of_claim && claimant.pod.meta.deletion.is_some_and(|deletion| deletion.at <= f.now)
}

/// What is left on the node all the same, for the proof that it may go on; None: nothing is.
pub(in crate::handoff) fn left_over(f: &Facts<'_>) -> Option<String> {
    let k = f.kmm()?;
    let pods: Vec<String> =
        f.occupancy.claimants.iter().filter(|it| is_stranded(f, it)).map(|it| it.pod.key.to_string()).collect();
    let claims: Vec<String> = f.occupancy.reserved_claims.iter().map(ToString::to_string).collect();
    let named = |what: &str, all: &[String]| (!all.is_empty()).then(|| format!("{what} {}", all.join(", ")));
    let left: Vec<String> = named("Pod", &pods).into_iter().chain(named("ResourceClaim", &claims)).collect();
    (!left.is_empty() && is_out_already(f, k)).then(|| {
        format!(
            "KMM has taken module and driver off {} already, and nobody can use them. Left are {}, which only the driver of the next version can release",
            f.node.name,
            left.join(" and ")
        )
    })
}
