//! The one table of phases per kind of component: order, deadlines, what each does and what comes next. The state diagram is made from it.

use std::fmt::Write as _;

use crate::api::{Phase, component::ComponentKind, duration::Duration, handoff::RunPolicy};

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
    Aborted, AwaitingReboot, Cordoning, Detaching, Done, Draining, Failed, Held, Loading, Preflight, Queued, ReplacingPod,
    RestartingUsers, StartingPlugin, StoppingPlugin, Uncordoning, Unloading, Verifying,
};

// Rows that kinds share, whole or but for some of their words.

const QUEUED: PhaseInfo = PhaseInfo {
    phase: Queued,
    deadline: None,
    does: "waits for its turn; nothing is written to the node",
    next: "a slot of the budget, then Preflight",
    module: Untouched,
    follows: &[Preflight, Done, Held, Aborted],
};
const PREFLIGHT: PhaseInfo = PhaseInfo {
    phase: Preflight,
    deadline: minutes(5),
    does: "refuses with all reasons at once, or goes on; nothing is written to the node",
    next: "the node is cordoned if its policy asks for it",
    module: Untouched,
    follows: &[Cordoning, Draining, StoppingPlugin, Loading, Queued, Held, Aborted, Failed],
};
const CORDONING: PhaseInfo = PhaseInfo {
    phase: Cordoning,
    deadline: minutes(5),
    does: "closes the node to new pods and reads it back; somebody else's cordon is left as it is",
    next: "pods that claim the device are evicted",
    module: Untouched,
    follows: &[Draining, Held, Aborted, Failed],
};
const DRAINING: PhaseInfo = PhaseInfo {
    phase: Draining,
    deadline: minutes(15),
    does: "evicts the pods that claim the device, within their PodDisruptionBudgets, and waits until a fresh list is empty twice",
    next: "the device plugin is stopped",
    module: Untouched,
    follows: &[StoppingPlugin, Detaching, Cordoning, Held, Aborted, Failed],
};
const DETACHING: PhaseInfo = PhaseInfo {
    phase: Detaching,
    deadline: minutes(10),
    does: "waits until no ResourceClaim of the driver is reserved for a pod of the node",
    next: "the device plugin is stopped",
    module: Untouched,
    follows: &[StoppingPlugin, Held, Aborted, Failed],
};
const HELD: PhaseInfo = PhaseInfo {
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
};
const VERIFYING: PhaseInfo = PhaseInfo {
    phase: Verifying,
    deadline: minutes(10),
    does: "waits until allocatable is back to what it was, sets the ready label, and watches that it stays so",
    next: "the node is opened if lockkeeper closed it",
    module: New,
    follows: &[Uncordoning, Held, Failed],
};
const UNCORDONING: PhaseInfo = PhaseInfo {
    phase: Uncordoning,
    deadline: minutes(5),
    does: "opens the node if the cordon is lockkeeper's, reads it back, and frees the slot",
    next: "Done",
    module: New,
    follows: &[Done, Aborted, Held, Failed],
};
const DONE: PhaseInfo = PhaseInfo {
    phase: Done,
    deadline: None,
    does: "the node runs what was asked for",
    next: "nothing, until another version is asked for",
    module: Settled,
    follows: &[Queued],
};
const FAILED: PhaseInfo = PhaseInfo {
    phase: Failed,
    deadline: None,
    does: "stopped with a reason; the node is open if its component works, else closed and named",
    next: "a person's choice: retry (attempt + 1), roll back (version, attempt + 1), or leave",
    module: Settled,
    follows: &[Queued],
};
const ABORTED: PhaseInfo = PhaseInfo {
    phase: Aborted,
    deadline: None,
    does: "stopped by a person; the node is open if its component works, else closed and named",
    next: "nothing, until it is tried again",
    module: Settled,
    follows: &[Queued],
};

/// `kernelModule.daemonSets`.
pub const KERNEL_MODULE: &[PhaseInfo] = &[
    QUEUED,
    PREFLIGHT,
    CORDONING,
    DRAINING,
    DETACHING,
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
    HELD,
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
    VERIFYING,
    UNCORDONING,
    DONE,
    FAILED,
    ABORTED,
];

/// `kernelModule.kmmModule`.
pub const KMM_MODULE: &[PhaseInfo] = &[
    QUEUED,
    PREFLIGHT,
    CORDONING,
    PhaseInfo { next: "KMM's version label is taken off, or changed where nobody used the device", ..DRAINING },
    PhaseInfo { next: "KMM's version label is taken off", ..DETACHING },
    PhaseInfo {
        phase: StoppingPlugin,
        deadline: minutes(10),
        does: "takes KMM's version label off (or changes it, where nobody used the device and nobody wants to stop before the load), and waits until the plugin's pod is gone",
        next: "KMM unloads the module",
        module: MayBeOut,
        follows: &[Unloading, Loading, Held, Aborted, Failed],
    },
    PhaseInfo {
        phase: Unloading,
        deadline: minutes(10),
        does: "waits until KMM's Unload pod has succeeded and its entry is off the NodeModulesConfig, or for a new boot ID",
        next: "the version label is set to the new version",
        module: MayBeOut,
        follows: &[Loading, Uncordoning, Held, Failed],
    },
    HELD,
    PhaseInfo {
        phase: Loading,
        deadline: minutes(10),
        does: "sets KMM's version label, and waits until KMM has recorded the new version as loaded in this boot",
        next: "KMM starts the plugin",
        module: New,
        follows: &[StartingPlugin, Held, Failed],
    },
    PhaseInfo {
        phase: StartingPlugin,
        deadline: minutes(10),
        does: "waits for the pod of KMM's plugin or DRA driver to be Ready",
        next: "devices must come back and stay",
        module: New,
        follows: &[Verifying, Held, Failed],
    },
    PhaseInfo {
        does: "waits until allocatable is back to what it was and KMM says .version.ready, and watches that it stays so",
        ..VERIFYING
    },
    UNCORDONING,
    DONE,
    PhaseInfo {
        next: "a person's choice: retry (attempt + 1), roll back (the Module edited back, then version and attempt + 1), or leave",
        ..FAILED
    },
    ABORTED,
];

/// `csiNodePlugin`.
pub const CSI_NODE_PLUGIN: &[PhaseInfo] = &[
    QUEUED,
    PhaseInfo {
        phase: Preflight,
        deadline: minutes(5),
        does: "refuses with all reasons at once, or goes on with the revision that is current now; nothing is written to the node",
        next: "the node is cordoned",
        module: Untouched,
        follows: &[Cordoning, Draining, Queued, Held, Aborted, Failed],
    },
    PhaseInfo {
        next: "pods whose mounts would die are evicted",
        follows: &[Draining, Preflight, Held, Aborted, Failed],
        ..CORDONING
    },
    PhaseInfo {
        phase: Draining,
        deadline: minutes(15),
        does: "evicts the pods whose mounts die with the plugin pod, within their PodDisruptionBudgets, until a fresh list is empty twice",
        next: "their volumes must be unmounted",
        module: Untouched,
        follows: &[Detaching, Cordoning, Preflight, Held, Aborted, Failed],
    },
    PhaseInfo {
        phase: Detaching,
        deadline: minutes(10),
        does: "waits until their VolumeAttachments are gone, or for the settle time of a driver that has none",
        next: "the plugin pod is replaced",
        module: Untouched,
        follows: &[ReplacingPod, Verifying, Preflight, Held, Aborted, Failed],
    },
    PhaseInfo {
        phase: ReplacingPod,
        deadline: minutes(10),
        does: "deletes the old plugin pod by its UID and waits until it is gone and one of the current revision is Ready and registered",
        next: "the new plugin pod must stay so",
        module: MayBeOut,
        follows: &[Verifying, Preflight, Held, Aborted, Failed],
    },
    PhaseInfo {
        phase: Held,
        deadline: None,
        does: "waits for a person: held or paused",
        next: "a person's choice: continue, or abort",
        module: MayBeOut,
        follows: &[
            Cordoning,
            Draining,
            Detaching,
            ReplacingPod,
            Verifying,
            RestartingUsers,
            Uncordoning,
            Preflight,
            Queued,
            Aborted,
        ],
    },
    PhaseInfo {
        phase: Verifying,
        deadline: minutes(10),
        does: "watches that the new plugin pod stays Ready, without a restart, and its driver registered",
        next: "DaemonSet pods that lost their mounts are restarted",
        module: New,
        follows: &[RestartingUsers, Uncordoning, Held, Aborted, Failed],
    },
    PhaseInfo {
        phase: RestartingUsers,
        deadline: minutes(10),
        does: "deletes the DaemonSet pods whose mounts died with the old plugin pod, one by one, and waits for those that follow",
        next: "the node is opened if lockkeeper closed it",
        module: New,
        follows: &[Uncordoning, Held, Aborted, Failed],
    },
    PhaseInfo { follows: &[Done, Failed], ..UNCORDONING },
    PhaseInfo {
        does: "the node runs the revision that was asked for",
        next: "nothing, until another revision is asked for",
        ..DONE
    },
    PhaseInfo {
        does: "stopped with a reason; the node is open if its plugin pod works, else closed and named",
        next: "a person's choice: retry (attempt + 1), roll back (kubectl rollout undo, then attempt + 1), or leave",
        ..FAILED
    },
    PhaseInfo { does: "stopped by a person or by another revision; the node is opened when its plugin pod works", ..ABORTED },
];

/// The phases of a kind.
pub fn table_of(kind: ComponentKind) -> &'static [PhaseInfo] {
    match kind {
        ComponentKind::KernelModule => KERNEL_MODULE,
        ComponentKind::KmmModule => KMM_MODULE,
        ComponentKind::CsiNodePlugin => CSI_NODE_PLUGIN,
    }
}

/// The row of a phase, by the kind that has it.
pub fn row(kind: ComponentKind, phase: Phase) -> &'static PhaseInfo {
    let rows = table_of(kind).iter().chain(KERNEL_MODULE).chain(CSI_NODE_PLUGIN);
    let mut rows = rows.filter(|row| row.phase == phase);
    rows.next().unwrap_or(&KERNEL_MODULE[0])
}

/// The row of a phase, whatever the kind: of a kernel module if it has it.
pub fn info(phase: Phase) -> &'static PhaseInfo {
    row(ComponentKind::KernelModule, phase)
}

/// The longest the phase may last under a run's policy.
pub fn deadline(kind: ComponentKind, policy: &RunPolicy, phase: Phase) -> Option<Duration> {
    let own = if phase == Draining { policy.drain.timeout } else { None };
    own.or_else(|| policy.deadlines.get(&phase).copied()).or(row(kind, phase).deadline)
}

/// Phases after which a handoff of this kind may pause: something follows that a person may want to wait with.
pub fn pausable(kind: ComponentKind) -> impl Iterator<Item = Phase> {
    table_of(kind).iter().map(|row| row.phase).filter(|phase| may_pause_after(*phase))
}

/// Some kind may.
pub fn may_pause_after(phase: Phase) -> bool {
    !phase.is_ended() && !matches!(phase, Queued | Held | Uncordoning)
}

/// The strip that the console shows: the phases of an undisturbed handoff, in order.
pub fn strip(kind: ComponentKind, reboot: bool) -> impl Iterator<Item = Phase> {
    table_of(kind)
        .iter()
        .map(|row| row.phase)
        .filter(move |phase| !matches!(phase, Held | Failed | Aborted) && (reboot || *phase != AwaitingReboot))
}

/// The Mermaid state diagram of docs/concepts: every transition of the table.
pub fn diagram(kind: ComponentKind) -> String {
    let mut text = String::from("stateDiagram-v2\n    [*] --> Queued\n");
    for row in table_of(kind) {
        for to in row.follows {
            let _ = writeln!(text, "    {} --> {to}", row.phase);
        }
    }
    text.push_str("    Done --> [*]\n");
    text
}

/// The same as a table in Markdown: phase, deadline, what it does.
pub fn table(kind: ComponentKind) -> String {
    let mut text = String::from("| phase | deadline | what happens | next |\n|---|---|---|---|\n");
    for row in table_of(kind) {
        let deadline = row.deadline.map_or_else(|| "none".to_owned(), |it| it.to_string());
        let _ = writeln!(text, "| `{}` | {deadline} | {} | {} |", row.phase, row.does, row.next);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [ComponentKind; 3] = [ComponentKind::KernelModule, ComponentKind::KmmModule, ComponentKind::CsiNodePlugin];

    #[test]
    fn every_phase_has_one_row_in_a_table_and_leads_on_within_it() {
        for phase in Phase::ALL {
            let rows = |kind| table_of(kind).iter().filter(|row| row.phase == phase).count();
            assert!(KINDS.iter().any(|kind| rows(*kind) == 1) && KINDS.iter().all(|kind| rows(*kind) < 2), "{phase}");
        }
        for kind in KINDS {
            let has = |phase: &Phase| table_of(kind).iter().any(|row| row.phase == *phase);
            for row in table_of(kind) {
                assert!(row.follows.iter().all(has), "{}: {:?}", row.phase, row.follows);
            }
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
        assert_eq!(deadline(ComponentKind::KernelModule, &policy, Draining), Some(Duration::from_secs(5)));
        policy.drain.timeout = Some(Duration::from_secs(7));
        assert_eq!(deadline(ComponentKind::KernelModule, &policy, Draining), Some(Duration::from_secs(7)));
        assert_eq!(deadline(ComponentKind::KernelModule, &policy, Unloading), Some(Duration::from_secs(600)));
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
        let wanted = between(&told, "a test compares them.\n\n", "\n`pauseAfter`", &table(ComponentKind::KernelModule));
        let mut wanted = between(&wanted, "```mermaid\n", "```", &diagram(ComponentKind::KernelModule));
        for (heading, kind) in [
            ("## Phases of a CSI nodeplugin\n\n", ComponentKind::CsiNodePlugin),
            ("## Phases of a Module of KMM\n\n", ComponentKind::KmmModule),
        ] {
            let (before, after) = wanted.split_once(heading).unwrap();
            let after = between(&format!("{heading}{after}"), heading, "\n```mermaid", &table(kind));
            wanted = format!("{before}{}", between(&after, "```mermaid\n", "```", &diagram(kind)));
        }
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
        for kind in KINDS {
            let text = diagram(kind);
            for row in table_of(kind) {
                assert!(text.contains(&format!("--> {}\n", row.phase)), "{}", row.phase);
            }
        }
    }
}
