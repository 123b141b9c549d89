//! The one table of phases per kind of component: order, deadlines, what each does and what comes next. The state diagram is made from it.

use std::fmt::Write as _;

use crate::api::{Phase, duration::Duration, handoff::RunPolicy};

/// One row: all that is fixed about a phase.
#[derive(Debug, Clone, Copy)]
pub struct PhaseInfo {
    pub phase: Phase,
    /// The longest it may last unless the component says otherwise; None: no deadline.
    pub deadline: Option<Duration>,
    /// What happens in it, for people.
    pub does: &'static str,
    /// The step that follows, for people.
    pub next: &'static str,
    pub module: ModuleState,
    /// Every phase that may follow, the usual one first.
    pub follows: &'static [Phase],
}

/// What an abort can count on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModuleState {
    /// Not touched: the node can be given back as it was.
    Untouched,
    /// The plugin or the module may be gone.
    MayBeOut,
    /// The new version is there or on its way.
    New,
    /// Does not apply.
    Settled,
}

const fn minutes(n: u64) -> Option<Duration> {
    Some(Duration::from_secs(60 * n))
}

use ModuleState::{MayBeOut, New, Settled, Untouched};
use Phase::{
    Aborted, AwaitingReboot, Cordoning, Detaching, Done, Draining, Failed, Held, Loading, Preflight, Queued, StartingPlugin,
    StoppingPlugin, Uncordoning, Unloading, Verifying,
};

/// `kernelModule.daemonSets`.
pub const KERNEL_MODULE: &[PhaseInfo] = &[
    PhaseInfo {
        phase: Queued,
        deadline: None,
        does: "waits for its turn; nothing is written to the node",
        next: "a slot of the budget, then Preflight",
        module: Untouched,
        follows: &[Preflight, Done, Held, Aborted],
    },
    PhaseInfo {
        phase: Preflight,
        deadline: minutes(5),
        does: "refuses with all reasons at once, or goes on; nothing is written to the node",
        next: "the node is cordoned if its policy asks for it",
        module: Untouched,
        follows: &[Cordoning, Draining, StoppingPlugin, Loading, Queued, Held, Aborted, Failed],
    },
    PhaseInfo {
        phase: Cordoning,
        deadline: minutes(5),
        does: "closes the node to new pods and reads it back; somebody else's cordon is left as it is",
        next: "pods that claim the device are evicted",
        module: Untouched,
        follows: &[Draining, Held, Aborted, Failed],
    },
    PhaseInfo {
        phase: Draining,
        deadline: minutes(15),
        does: "evicts the pods that claim the device, within their PodDisruptionBudgets, and waits until a fresh list is empty twice",
        next: "the device plugin is stopped",
        module: Untouched,
        follows: &[StoppingPlugin, Detaching, Cordoning, Held, Aborted, Failed],
    },
    PhaseInfo {
        phase: Detaching,
        deadline: minutes(10),
        does: "waits until no ResourceClaim of the driver is reserved for a pod of the node",
        next: "the device plugin is stopped",
        module: Untouched,
        follows: &[StoppingPlugin, Held, Aborted, Failed],
    },
    PhaseInfo {
        phase: StoppingPlugin,
        deadline: minutes(10),
        does: "takes the desired and the plugin label off, waits until the plugin's pod is gone and the kubelet offers no device",
        next: "the loader is stopped and the module is unloaded",
        module: MayBeOut,
        follows: &[Unloading, Loading, Held, Failed],
    },
    PhaseInfo {
        phase: Unloading,
        deadline: minutes(10),
        does: "takes the loader label off, runs the old version's unload pod, and waits for its exit 0 or a new boot ID",
        next: "the new version's loader is started",
        module: MayBeOut,
        follows: &[Loading, AwaitingReboot, Uncordoning, Held, Failed],
    },
    PhaseInfo {
        phase: AwaitingReboot,
        deadline: None,
        does: "waits for a person or another tool to reboot the node: only a new boot ID proves that the module is out",
        next: "the new version's loader is started",
        module: MayBeOut,
        follows: &[Loading, Uncordoning, Held, Failed],
    },
    PhaseInfo {
        phase: Held,
        deadline: None,
        does: "waits for a person: held, paused, out of service, or aborted after the unload",
        next: "a person's choice: continue, roll back, abort or leave",
        module: MayBeOut,
        follows: &[
            Cordoning,
            Draining,
            Detaching,
            StoppingPlugin,
            Unloading,
            Loading,
            StartingPlugin,
            Verifying,
            Uncordoning,
            Queued,
            Aborted,
        ],
    },
    PhaseInfo {
        phase: Loading,
        deadline: minutes(10),
        does: "sets the desired and the loader label with the record, and waits for a loader pod made in this boot to be Ready",
        next: "the device plugin is started",
        module: New,
        follows: &[StartingPlugin, Held, Failed],
    },
    PhaseInfo {
        phase: StartingPlugin,
        deadline: minutes(10),
        does: "sets the plugin label and waits for the plugin's pod to be Ready",
        next: "devices must come back and stay",
        module: New,
        follows: &[Verifying, Held, Failed],
    },
    PhaseInfo {
        phase: Verifying,
        deadline: minutes(10),
        does: "waits until allocatable is back to what it was, sets the ready label, and watches that it stays so",
        next: "the node is opened if lockkeeper closed it",
        module: New,
        follows: &[Uncordoning, Held, Failed],
    },
    PhaseInfo {
        phase: Uncordoning,
        deadline: minutes(5),
        does: "opens the node if the cordon is lockkeeper's, reads it back, and frees the slot",
        next: "Done",
        module: New,
        follows: &[Done, Aborted, Held, Failed],
    },
    PhaseInfo {
        phase: Done,
        deadline: None,
        does: "the node runs what was asked for",
        next: "nothing, until another version is asked for",
        module: Settled,
        follows: &[Queued],
    },
    PhaseInfo {
        phase: Failed,
        deadline: None,
        does: "stopped with a reason; the node is open if its component works, else closed and named",
        next: "a person's choice: retry (attempt + 1), roll back (version, attempt + 1), or leave",
        module: Settled,
        follows: &[Queued],
    },
    PhaseInfo {
        phase: Aborted,
        deadline: None,
        does: "stopped by a person; the node is open if its component works, else closed and named",
        next: "nothing, until it is tried again",
        module: Settled,
        follows: &[Queued],
    },
];

/// The row of a phase. Every phase has one.
pub fn info(phase: Phase) -> &'static PhaseInfo {
    KERNEL_MODULE.iter().find(|row| row.phase == phase).unwrap_or(&KERNEL_MODULE[0])
}

/// The longest the phase may last under a run's policy.
pub fn deadline(policy: &RunPolicy, phase: Phase) -> Option<Duration> {
    let own = if phase == Draining { policy.drain.timeout } else { None };
    own.or_else(|| policy.deadlines.get(&phase).copied()).or(info(phase).deadline)
}

/// The strip that the console shows: the phases of an undisturbed handoff, in order.
pub fn strip(reboot: bool) -> impl Iterator<Item = Phase> {
    KERNEL_MODULE
        .iter()
        .map(|row| row.phase)
        .filter(move |phase| !matches!(phase, Held | Failed | Aborted) && (reboot || *phase != AwaitingReboot))
}

/// The Mermaid state diagram of docs/concepts: every transition of the table.
pub fn diagram() -> String {
    let mut text = String::from("stateDiagram-v2\n    [*] --> Queued\n");
    for row in KERNEL_MODULE {
        for to in row.follows {
            let _ = writeln!(text, "    {} --> {to}", row.phase);
        }
    }
    text.push_str("    Done --> [*]\n");
    text
}

/// The same as a table in Markdown: phase, deadline, what it does.
pub fn table() -> String {
    let mut text = String::from("| phase | deadline | what happens | next |\n|---|---|---|---|\n");
    for row in KERNEL_MODULE {
        let deadline = row.deadline.map_or_else(|| "none".to_owned(), |it| it.to_string());
        let _ = writeln!(text, "| `{}` | {deadline} | {} | {} |", row.phase, row.does, row.next);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phase_has_one_row() {
        for phase in Phase::ALL {
            assert_eq!(KERNEL_MODULE.iter().filter(|row| row.phase == phase).count(), 1, "{phase}");
        }
    }

    #[test]
    fn only_a_persons_turn_has_no_deadline() {
        let endless: Vec<Phase> = KERNEL_MODULE.iter().filter(|row| row.deadline.is_none()).map(|row| row.phase).collect();
        assert_eq!(endless, [Queued, AwaitingReboot, Held, Done, Failed, Aborted]);
    }

    #[test]
    fn a_drain_timeout_is_the_deadline_of_draining() {
        let mut policy = RunPolicy::default();
        policy.deadlines.insert(Draining, Duration::from_secs(5));
        assert_eq!(deadline(&policy, Draining), Some(Duration::from_secs(5)));
        policy.drain.timeout = Some(Duration::from_secs(7));
        assert_eq!(deadline(&policy, Draining), Some(Duration::from_secs(7)));
        assert_eq!(deadline(&policy, Unloading), Some(Duration::from_secs(600)));
    }

    /// `UPDATE_DOCS=1 cargo test --lib docs_show` writes them anew.
    #[test]
    fn docs_show_the_phases_as_they_are() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/concepts/handoff.md");
        let told = std::fs::read_to_string(path).unwrap();
        let between = |text: &str, start: &str, end: &str, new: &str| {
            let from = text.find(start).map(|at| at + start.len()).unwrap_or_default();
            let to = text[from..].find(end).map_or(text.len(), |at| from + at);
            format!("{}{new}{}", &text[..from], &text[to..])
        };
        let wanted = between(&told, "a test compares them.\n\n", "\n`pauseAfter`", &table());
        let wanted = between(&wanted, "```mermaid\n", "```", &diagram());
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, &wanted).unwrap();
        } else {
            assert!(
                told == wanted,
                "docs/concepts/handoff.md does not show the phases of the code: UPDATE_DOCS=1 cargo test --lib docs_show"
            );
        }
    }

    #[test]
    fn the_diagram_reaches_every_phase() {
        let text = diagram();
        for phase in Phase::ALL {
            assert!(text.contains(&format!("--> {phase}\n")), "{phase}");
        }
    }
}
