//! A worker pod of KMM's that fails again and again is told beside whatever else a handoff waits for: KMM itself says so nowhere.

use super::{Followed, waits};
use crate::{
    api::Phase,
    handoff::{
        facts::Facts,
        verdict::{BlockerKind, Verdict},
    },
};

pub(super) fn told(f: &Facts<'_>, k: Followed<'_>, verdict: Verdict) -> Verdict {
    let Verdict::Wait(mut waited) = verdict else { return verdict };
    let known = waited.blockers.iter().any(|blocker| blocker.kind == BlockerKind::WorkerFailed);
    if !known && f.phase() >= Phase::Cordoning && f.phase() != Phase::Held {
        waited.blockers.extend(waits::workers(f, k).into_iter().filter(|blocker| blocker.kind == BlockerKind::WorkerFailed));
    }
    Verdict::Wait(waited)
}
