//! Which key to press next: a small state machine over the model, for the demo's first line.

use super::{
    command::Command,
    facts::{Facts, Standing},
    model::Model,
};
use crate::api::Phase;

/// The hint; None outside the demo.
pub fn hint(model: &Model) -> Option<String> {
    if !model.demo {
        return None;
    }
    let key = |command: Command| model.keymap.key_of(command).unwrap_or_else(|| command.info().id.to_owned());
    if let Some(overlay) = model.overlays.last() {
        return Some(overlay.hint());
    }
    if model.frozen.is_some() {
        return Some(format!("The picture stands still. Press {} to let it go on.", key(Command::PausePicture)));
    }
    if !model.picture.fleet.synced {
        return Some("Waiting for the first complete picture.".to_owned());
    }
    let seen = survey(model);
    if let Some(node) = seen.failed {
        return Some(format!(
            "{node} failed: select it and press {} to try again or {} to roll back.",
            key(Command::Retry),
            key(Command::RollBack)
        ));
    }
    if let Some(node) = seen.blocked {
        let open = key(Command::Open);
        return Some(format!("{node} waits: press {open} on it to see for what. Here it goes on by itself in a moment."));
    }
    if !model.marks.is_empty() {
        let marked = super::format::count(model.marks.len(), "node");
        return Some(format!(
            "{marked} in your order. {} adds or takes out, {}/{} move; press {} to see the plan.",
            key(Command::Mark),
            key(Command::Later),
            key(Command::Earlier),
            key(Command::HandOver)
        ));
    }
    if let Some(node) = seen.running {
        return Some(match model.screen {
            1 => format!("Watch {node}. Esc goes back to the fleet, 3 shows every write as kubectl would do it."),
            2 => "Every write, with its kubectl equivalent. 1 goes back to the fleet.".to_owned(),
            _ => format!(
                "Watch {node} go. {} opens it, 3 shows every write; meanwhile queue others with {}.",
                key(Command::Open),
                key(Command::Mark)
            ),
        });
    }
    if seen.behind == 0 {
        return Some(format!(
            "Every node runs its version. {} shows all keys, {} quits.",
            key(Command::Help),
            key(Command::Quit)
        ));
    }
    if model.screen != 0 {
        return Some("Press 1 for the fleet.".to_owned());
    }
    Some(if model.started {
        format!("Next: choose another node with j and k, press {} or {}.", key(Command::Mark), key(Command::HandOver))
    } else {
        format!(
            "Choose a node with j and k. {} puts it into your order, {} shows what handing it over would do.",
            key(Command::Mark),
            key(Command::HandOver)
        )
    })
}

#[derive(Default)]
struct Survey<'a> {
    failed: Option<&'a str>,
    blocked: Option<&'a str>,
    running: Option<&'a str>,
    behind: usize,
}

fn survey(model: &Model) -> Survey<'_> {
    let behind = model.rows.progress().values().map(|progress| progress.total.saturating_sub(progress.current)).sum();
    let mut seen = Survey { behind, ..Survey::default() };
    for key in model.rows.busy() {
        let Some(facts) = Facts::of(&model.picture, &key.component, &key.node) else { continue };
        let name = facts.node.name.as_str();
        match facts.standing() {
            Standing::Ended if facts.phase() == Some(Phase::Failed) => seen.failed = seen.failed.or(Some(name)),
            Standing::Running => {
                // A short wait is how every phase works; only a long one is worth a line.
                let long = facts.blocked().and_then(|blocked| blocked.since).is_some_and(|since| model.seconds(since) >= 20);
                if long {
                    seen.blocked = seen.blocked.or(Some(name));
                }
                seen.running = seen.running.or(Some(name));
            }
            _ => {}
        }
    }
    seen
}
