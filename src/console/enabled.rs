//! Why a command is off. Every sentence says what is in the way; the console shows it in help, palette and status line.

use super::{
    command::Reason,
    facts::Standing,
    model::{Connection, Model},
};
use crate::{
    api::{Phase, handoff::HandoffAction},
    handoff::ending,
};

type Enabled = Result<(), Reason>;

pub fn always(_: &Model) -> Enabled {
    Ok(())
}

/// Whether anything may be asked of the engine now.
pub fn writable(model: &Model) -> Enabled {
    if model.is_read_only() {
        return Err("read-only: nothing is written from here".into());
    }
    if model.engine_gone {
        return Err("the engine of this process has stopped: quit and start again".into());
    }
    if model.frozen.is_some() {
        return Err("the picture is paused, so what you see is old: press p first".into());
    }
    match model.connection() {
        Connection::Stale { what, seconds } => {
            Err(Reason(format!("the picture is stale: no {what} for {seconds}s; it goes on by itself when the server answers")))
        }
        Connection::Unavailable { what, why } => Err(Reason(format!("{what} cannot be watched: {why}"))),
        _ if !model.picture.fleet.synced => Err("the first complete picture is not there yet".into()),
        _ => Ok(()),
    }
}

pub fn selected(model: &Model) -> Enabled {
    model.selection().map(drop)
}

pub fn listed(model: &Model) -> Enabled {
    if model.rows.first().is_some() { Ok(()) } else { Err("no node is listed".into()) }
}

pub fn components(model: &Model) -> Enabled {
    if model.rows.progress().len() > 1 { Ok(()) } else { Err("there is only one component".into()) }
}

pub fn copy(model: &Model) -> Enabled {
    if model.selected.is_some() || !model.writes.is_empty() { Ok(()) } else { Err("there is nothing to copy".into()) }
}

pub fn mark(model: &Model) -> Enabled {
    let facts = model.selection()?;
    let node = &facts.node.name;
    match facts.standing() {
        _ if model.mark_of(&facts.row()).is_some() => Ok(()),
        Standing::Queued => Err(Reason(format!("{node} is queued already; W takes it back, J and K move it"))),
        Standing::Running => Err(Reason(format!("{node} is being handed over"))),
        _ => Ok(()),
    }
}

pub fn unmark(model: &Model) -> Enabled {
    if model.marks.is_empty() { Err("nothing is marked".into()) } else { Ok(()) }
}

pub fn hand_over(model: &Model) -> Enabled {
    if model.marks.is_empty() {
        let facts = model.selection()?;
        aim_known(model)?;
        let node = &facts.node.name;
        return match facts.standing() {
            Standing::Queued => Err(Reason(format!("{node} is queued already: it starts when its turn comes"))),
            Standing::Running => Err(Reason(format!("{node} is being handed over"))),
            _ => Ok(()),
        };
    }
    // What a filter hides is never acted upon.
    let hidden: Vec<_> = model.marks.iter().filter(|key| model.rows.index_of(key).is_none()).collect();
    if let Some(first) = hidden.first() {
        let others = if hidden.len() > 1 { format!(" and {} more", hidden.len() - 1) } else { String::new() };
        return Err(Reason(format!("marked {}{others} cannot be seen: clear the filter (Esc), or unmark (u)", first.node)));
    }
    let mut components = model.marks.iter().map(|key| &key.component);
    let first = components.next();
    if components.any(|other| Some(other) != first) {
        return Err("marks of two components: hand over one component at a time".into());
    }
    aim_known(model)
}

fn aim_known(model: &Model) -> Enabled {
    let key = model.marks.first().or(model.selected.as_ref()).ok_or_else(|| Reason::from("no node is selected"))?;
    let component = model.picture.fleet.components.get(&key.component);
    let component = component.ok_or_else(|| Reason(format!("NodeComponent {} is gone", key.component)))?;
    if let Err(why) = &component.record.spec {
        return Err(Reason(format!("NodeComponent {} cannot be read: {why}", key.component)));
    }
    match component.refusals.first() {
        Some(refusal) => Err(Reason(format!("NodeComponent {} is refused: {refusal}", key.component))),
        None => Ok(()),
    }
}

/// The selected node's handoff, as phase and what was asked of it.
fn handoff(model: &Model) -> Result<(String, Phase, Option<HandoffAction>), Reason> {
    let facts = model.selection()?;
    let node = facts.node.name.to_string();
    let Some(handoff) = facts.handoff() else { return Err(Reason(format!("{node} has no handoff"))) };
    let action = handoff.spec.as_ref().ok().map(|spec| spec.action);
    Ok((node, facts.phase().unwrap_or_default(), action))
}

pub fn abort(model: &Model) -> Enabled {
    let (node, phase, action) = handoff(model)?;
    match phase {
        Phase::Queued => Err(Reason(format!("{node} is only queued: W takes it back"))),
        phase if phase.is_ended() => Err(Reason(format!("{node} is {phase}: there is nothing to abort"))),
        _ if action == Some(HandoffAction::Abort) => Err(Reason(format!("{node} is being aborted already"))),
        _ => Ok(()),
    }
}

pub fn retry(model: &Model) -> Enabled {
    let (node, phase, _) = handoff(model)?;
    match phase {
        Phase::Failed | Phase::Aborted => Ok(()),
        phase => Err(Reason(format!("{node} is {phase}: only Failed and Aborted can be tried again"))),
    }
}

pub fn roll_back(model: &Model) -> Enabled {
    let (node, phase, _) = handoff(model)?;
    let facts = model.selection()?;
    let from = facts.status().and_then(|status| status.run.as_ref()).and_then(|run| run.from.as_deref());
    match phase {
        Phase::Queued => Err(Reason(format!("{node} has not begun"))),
        phase if !phase.is_ended() && phase != Phase::Held => Err(Reason(format!("{node} is {phase}: abort it (X), or wait"))),
        _ if from.is_none() => Err(Reason(format!("{node} came from no version"))),
        _ => Ok(()),
    }
}

pub fn leave(model: &Model) -> Enabled {
    let (node, phase, action) = handoff(model)?;
    let facts = model.selection()?;
    let reason = facts.status().and_then(|status| status.reason.as_ref());
    let chooses = reason.is_some_and(|reason| reason.word == ending::AWAITING_CHOICE);
    match phase {
        _ if action == Some(HandoffAction::Leave) => Err(Reason(format!("{node} is left as it is already"))),
        Phase::Failed | Phase::Aborted => Ok(()),
        Phase::Held if chooses => Ok(()),
        phase => Err(Reason(format!("{node} is {phase}: only what has failed or was aborted is left as it is"))),
    }
}

pub fn hold(model: &Model) -> Enabled {
    let (node, phase, action) = handoff(model)?;
    match phase {
        phase if phase.is_ended() => Err(Reason(format!("{node} is {phase}: there is nothing to hold"))),
        Phase::Held => Err(Reason(format!("{node} is Held already; C goes on"))),
        _ if action == Some(HandoffAction::Hold) => Err(Reason(format!("{node} will be held after {phase} already"))),
        _ => Ok(()),
    }
}

pub fn go_on(model: &Model) -> Enabled {
    let (node, phase, action) = handoff(model)?;
    match (phase, action) {
        (Phase::Held, _) | (_, Some(HandoffAction::Hold)) => Ok(()),
        _ => Err(Reason(format!("{node} is not held"))),
    }
}

pub fn withdraw(model: &Model) -> Enabled {
    let (node, phase, _) = handoff(model)?;
    if phase == Phase::Queued { Ok(()) } else { Err(Reason(format!("{node} is {phase}: only a queued node can be taken back"))) }
}

pub fn earlier(model: &Model) -> Enabled {
    place(model, true)
}

pub fn later(model: &Model) -> Enabled {
    place(model, false)
}

fn place(model: &Model, earlier: bool) -> Enabled {
    let facts = model.selection()?;
    let node = &facts.node.name;
    let (at, length) = match (model.mark_of(&facts.row()), facts.position()) {
        (Some(at), _) => (at, model.marks.len()),
        (None, Some(at)) if facts.standing() == Standing::Queued => (at, model.picture.queues.len(facts.key)),
        _ => return Err(Reason(format!("{node} is neither marked nor queued"))),
    };
    match earlier {
        true if at == 1 => Err(Reason(format!("{node} is the first already"))),
        false if at == length => Err(Reason(format!("{node} is the last already"))),
        _ => Ok(()),
    }
}

pub fn pause_rollout(model: &Model) -> Enabled {
    let facts = model.selection()?;
    match facts.component.and_then(|component| component.spec()) {
        Some(_) => Ok(()),
        None => Err(Reason(format!("NodeComponent {} is gone or cannot be read", facts.key))),
    }
}
