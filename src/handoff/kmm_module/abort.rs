//! Stopping a handoff of a followed Module. While KMM's worker label of the old version is there the label is put back and only the plugin
//! restarts; after that KMM cancels nothing, and a person must choose.

use super::Followed;
use crate::{
    api::Phase,
    handoff::{
        action::Evidence,
        ending::{self, AWAITING_CHOICE, GIVING_BACK},
        facts::Facts,
        transition::Transition,
        verdict::Verdict,
    },
};

pub(super) fn abort(f: &Facts<'_>, k: Followed<'_>) -> Option<Verdict> {
    if !ending::choice_is_due(f) {
        return None;
    }
    let status = f.status()?;
    let phase = match (f.phase(), status.resume_at) {
        (Phase::Held, Some(next)) => next,
        (phase, _) => phase,
    };
    match phase {
        _ if status.reason.as_ref().is_some_and(|reason| reason.word == AWAITING_CHOICE) => None,
        Phase::Queued | Phase::Preflight | Phase::Cordoning | Phase::Draining | Phase::Detaching => Some(ending::stop(f)),
        Phase::StoppingPlugin
            if !is_leaving(f, k) && (f.phase() == Phase::Held || super::label_by(f) == crate::api::keys::DesiredBy::Kept) =>
        {
            Some(ending::stop(f))
        }
        // KMM keeps the entry as long as its worker label is there, and looks at the version label anew.
        Phase::StoppingPlugin | Phase::Unloading => {
            let old = f.loader().filter(|loader| k.loaded().as_ref() == Some(*loader) && f.target().as_ref() != Some(*loader));
            let Some(old) = old else {
                // Held, nobody would look at the unload's end.
                return (f.phase() == Phase::Held).then(|| ending::await_choice(f, phase, None));
            };
            let message =
                format!("aborted in {phase}; KMM still has {old} loaded on {} and is given its label back", f.node.name);
            let next = Transition::new(f).reason(GIVING_BACK, &message).edit(|status| status.resume_at = None);
            let next = next.copy(Some(old.as_str()), None);
            Some(next.to(Phase::Loading).put(Evidence::Fresh, message))
        }
        Phase::Uncordoning if f.phase() == Phase::Held => Some(ending::stop_verified(f)),
        Phase::Loading | Phase::StartingPlugin | Phase::Verifying => Some(ending::await_choice(f, phase, None)),
        _ => None,
    }
}

/// KMM has begun to take it out, whoever told it to: its worker label is off, and its entry is still there.
fn is_leaving(f: &Facts<'_>, k: Followed<'_>) -> bool {
    f.loader().is_none() && k.here.recorded.is_some()
}
