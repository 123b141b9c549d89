//! What only who watches can know of KMM on a node: when it last moved its labels, how its worker pods ended. A restart forgets it, and then
//! nothing is taken for granted.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use crate::{
    api::{ObjectKey, Uid, Version},
    fleet::{
        records::{ContainerState, PodPhase, PodRecord},
        view::{KmmOccupancy, NodeLabels},
    },
    kmm::{
        ladder,
        records::{Action, PodRecord as Worker},
    },
};

/// As long as KMM's making a worker again counts as one story.
const LATELY: SignedDuration = SignedDuration::from_mins(1);
/// Exit codes from here on are signals: the process was stopped, whatever it had done.
const SIGNALS: i32 = 128;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct KmmSeen {
    labels: Option<(Option<Version>, Option<Version>)>,
    /// When KMM's worker or plugin label was seen to change: its back-off counts from there.
    pub moved: Option<Timestamp>,
    failed: Vec<(Uid, Timestamp)>,
    /// The last Unload pod that was seen to succeed.
    pub unloaded: Option<(ObjectKey, Uid)>,
    /// How the last Load pod ended, when it certainly loaded nothing.
    pub load_failed: Option<String>,
    /// A Load pod was stopped while its process ran.
    pub load_cut_off: bool,
}

impl KmmSeen {
    /// When KMM tries again what it polls for; None: when the wait began was not seen.
    #[must_use]
    pub fn next_try(&self, now: Timestamp) -> Option<Timestamp> {
        let waited = std::time::Duration::try_from(now.duration_since(self.moved?)).ok()?;
        now.checked_add(SignedDuration::try_from(ladder::remaining(waited)).ok()?).ok()
    }

    /// Worker pods that ended as Failed within the last minute.
    #[must_use]
    pub fn failed_lately(&self, now: Timestamp) -> usize {
        self.failed.iter().filter(|(_, at)| now.duration_since(*at) < LATELY).count()
    }

    /// From one picture of a node to the next. `ended`: pods that went after they had ended, in between.
    pub(in crate::handoff) fn follow(
        before: Option<&Self>,
        old: Option<&KmmOccupancy>,
        new: &KmmOccupancy,
        labels: &NodeLabels,
        same_boot: bool,
        ended: &BTreeSet<Uid>,
        now: Timestamp,
    ) -> Self {
        let mut seen = before.cloned().unwrap_or_default();
        let held = (labels.loader.clone(), labels.plugin.clone());
        if seen.labels.as_ref().is_some_and(|known| *known != held) {
            seen.moved = Some(now);
        }
        seen.labels = Some(held);
        seen.failed.retain(|(_, at)| now.duration_since(*at) < LATELY);
        for pod in &new.workers {
            if pod.phase == PodPhase::Failed && !seen.failed.iter().any(|(uid, _)| *uid == pod.meta.uid) {
                seen.failed.push((pod.meta.uid.clone(), now));
            }
            match Worker::of(pod).and_then(|of| of.action()) {
                Some(Action::Unload) if pod.phase == PodPhase::Succeeded => {
                    seen.unloaded = Some((pod.key.clone(), pod.meta.uid.clone()));
                }
                Some(Action::Load) => (seen.unloaded, seen.load_failed) = (None, None),
                _ => {}
            }
        }
        let gone = old.into_iter().flat_map(|old| &old.workers);
        let gone = gone.filter(|pod| !new.workers.iter().any(|other| other.meta.uid == pod.meta.uid));
        let gone = gone.filter(|pod| !ended.contains(&pod.meta.uid));
        for pod in gone.filter(|pod| Worker::of(pod).and_then(|of| of.action()) == Some(Action::Load)) {
            match end_of_load(pod) {
                End::Loaded => {}
                End::Nothing(why) => seen.load_failed = Some(why),
                End::CutOff => seen.load_cut_off = true,
            }
        }
        // What is recorded now is known, and after a reboot nothing is left to be known.
        if new.recorded.is_some() || !same_boot {
            seen.load_cut_off = false;
        }
        seen
    }
}

enum End {
    Loaded,
    Nothing(String),
    CutOff,
}

/// How a Load pod that is no longer there ended, as it was seen last.
fn end_of_load(pod: &PodRecord) -> End {
    if pod.phase == PodPhase::Succeeded {
        return End::Loaded;
    }
    let containers = pod.extra.as_ref().map(|extra| &extra.containers[..]).unwrap_or_default();
    let Some(worker) = containers.iter().find(|container| !container.init) else {
        return match pod.phase {
            PodPhase::Pending => End::Nothing(format!("Load pod {} was never started", pod.key)),
            _ => End::CutOff,
        };
    };
    let failed = |code: i32| (1..SIGNALS).contains(&code);
    match &worker.state {
        ContainerState::Terminated { exit_code: 0, .. } => End::Loaded,
        ContainerState::Terminated { exit_code, .. } if failed(*exit_code) => {
            End::Nothing(format!("Load pod {} failed with exit code {exit_code}", pod.key))
        }
        ContainerState::Waiting { .. } => match worker.last_exit {
            Some(code) if failed(code) => End::Nothing(format!("Load pod {} failed with exit code {code}", pod.key)),
            None if worker.restarts == 0 => End::Nothing(format!("Load pod {} was never started", pod.key)),
            _ => End::CutOff,
        },
        _ => End::CutOff,
    }
}
