//! A way to a fault as the simulator can replay it: what people and faults do, each after so many of the engine's writes.
//! `tests/scenarios/replay.rs` reads this form.

use serde_json::{Value, json};

use crate::{
    check::Fault,
    picture::version_text,
    state::{Say, V},
    steps::{Set, Step},
};

/// One JSON object per line: `{"after": 12, "do": "label", "node": 0, "version": "1"}`.
pub fn of(fault: &Fault) -> String {
    let mut writes = 0u32;
    let mut lines = vec![json!({"start": if fault.start == 0 { "asked" } else { "rest" }, "expect": fault.rule}).to_string()];
    for step in &fault.steps {
        match step {
            Step::Write(_) | Step::Lands | Step::FormerLands => writes += 1,
            _ => {
                if let Some(mut event) = event(step) {
                    event["after"] = json!(writes);
                    lines.push(event.to_string());
                }
            }
        }
    }
    lines.join("\n")
}

/// None: it happens by itself there too.
fn event(step: &Step) -> Option<Value> {
    use Step::*;
    let version = |version: V| json!(version_text(version));
    Some(match *step {
        Label(n, v) => json!({"do": "label", "node": n, "version": version(v)}),
        Strip(n, Set::Loader) => json!({"do": "strip", "node": n, "role": "loader"}),
        Strip(n, Set::Plugin) => json!({"do": "strip", "node": n, "role": "plugin"}),
        Cordon(n) => json!({"do": "cordon", "node": n}),
        Uncordon(n) => json!({"do": "uncordon", "node": n}),
        Ask(n, v) => json!({"do": "ask", "node": n, "version": version(v)}),
        Says(n, say) => {
            let word = match say {
                Say::Run => "Run",
                Say::Hold => "Hold",
                Say::Abort => "Abort",
                Say::Leave => "Leave",
            };
            json!({"do": "say", "node": n, "action": word})
        }
        Deletes(n) => json!({"do": "delete", "node": n}),
        Crash => json!({"do": "crash"}),
        Takeover => json!({"do": "takeover"}),
        Delays(_) => json!({"do": "delay"}),
        Lags(_) => json!({"do": "lag"}),
        Reboot(n) => json!({"do": "reboot", "node": n}),
        Again(n) => json!({"do": "made-again", "node": n}),
        Dies(n) => json!({"do": "kubelet-dies", "node": n}),
        Back(n) => json!({"do": "kubelet-back", "node": n}),
        ForceUser(n) => json!({"do": "force-delete", "node": n, "role": "user"}),
        ForcePlugin(n, _) => json!({"do": "force-delete", "node": n, "role": "plugin"}),
        ForceUnload(n, _) => json!({"do": "force-delete", "node": n, "role": "unload"}),
        Fails(n, _) => json!({"do": "unload-fails", "node": n}),
        Deadline(n) => json!({"do": "deadline", "node": n}),
        Quits(n) => json!({"do": "user-quits", "node": n}),
        Picks(n) => json!({"do": "user-comes", "node": n}),
        _ => return None,
    })
}
