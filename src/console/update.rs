//! The one place where the model changes: `update(&mut Model, Msg) -> Vec<Effect>`. Nothing here waits.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::{
    command::{Command, Scope},
    effect::{Effect, ExitReason},
    keymap::{Chord, Meaning},
    layout::{self, Tier},
    messages::Level,
    model::{Frozen, Model},
    msg::Msg,
    operate,
    overlays::{self, Answer, Then},
    widgets::field::Field,
};
use crate::engine::{intent::IntentOutcome, picture::Picture};

pub fn update(model: &mut Model, msg: Msg) -> Vec<Effect> {
    match msg {
        Msg::Key(key) if key.kind == KeyEventKind::Release => Vec::new(),
        Msg::Key(key) if is_too_small(model) => on_unseen_key(model, key),
        Msg::Paste(_) | Msg::Scroll(_) if is_too_small(model) => Vec::new(),
        Msg::Key(key) => on_key(model, key),
        Msg::Paste(text) => on_paste(model, &text),
        Msg::Scroll(rows) => {
            let command = if rows < 0 { Command::Up } else { Command::Down };
            (0..rows.unsigned_abs()).flat_map(|_| run(model, command)).collect()
        }
        Msg::Resize(width, height) => {
            model.size = (width, height);
            Vec::new()
        }
        Msg::Picture(picture) => match &mut model.frozen {
            Some(frozen) => {
                frozen.behind += 1;
                frozen.latest = Some(picture);
                Vec::new()
            }
            None => show(model, *picture),
        },
        Msg::Writes(batch) => {
            model.writes.lose(batch.lost);
            batch.entries.into_iter().for_each(|entry| model.writes.push(entry));
            Vec::new()
        }
        Msg::Outcome(id, outcome) => {
            let what = model.in_flight.remove(&id).unwrap_or_default();
            match outcome {
                IntentOutcome::Done { message } => model.note(Level::Good, join(&what, &message)),
                IntentOutcome::Refused { message } => model.note(Level::Error, join(&what, &message)),
            }
            Vec::new()
        }
        Msg::Tick => Vec::new(),
        Msg::Resumed => vec![Effect::Redraw],
        Msg::EngineGone => {
            if !model.engine_gone {
                model.engine_gone = true;
                model.note(Level::Error, "the engine of this process has stopped: what you see is the last picture");
            }
            Vec::new()
        }
        Msg::Terminate => vec![Effect::Quit(ExitReason::Signal)],
        Msg::Notice(level, text) => {
            model.note(level, text);
            Vec::new()
        }
    }
}

fn join(what: &str, message: &str) -> String {
    match (what.is_empty(), message.is_empty()) {
        (_, true) => what.to_owned(),
        (true, _) => message.to_owned(),
        _ => format!("{what}: {message}"),
    }
}

/// Replaces the picture. Marks of nodes that are gone, or that the engine has taken over, fall away.
fn show(model: &mut Model, picture: Picture) -> Vec<Effect> {
    model.picture = picture;
    model.epoch += 1;
    model.received = model.clock;
    let mut marks = std::mem::take(&mut model.marks);
    marks.retain(|key| {
        use super::facts::{Facts, Standing};
        Facts::of(&model.picture, &key.component, &key.node)
            .is_some_and(|facts| facts.row() == *key && !matches!(facts.standing(), Standing::Queued | Standing::Running))
    });
    model.marks = marks;
    refreshed(model)
}

/// Brings rows, screens and dialogs up to date with the model.
fn refreshed(model: &mut Model) -> Vec<Effect> {
    model.refresh_rows();
    let mut screens = std::mem::take(&mut model.screens);
    for screen in &mut screens {
        screen.refresh(model);
    }
    model.screens = screens;
    let mut effects = Vec::new();
    let mut at = 0;
    while at < model.overlays.len() {
        let mut overlay = model.overlays.remove(at);
        let answer = overlay.refresh(model);
        let (back, more) = settle(model, at, overlay, answer);
        at += usize::from(back);
        effects.extend(more);
    }
    effects
}

/// Puts a dialog back where it was, or what it asked for in its place. True if something stands there now.
fn settle(model: &mut Model, at: usize, overlay: Box<dyn overlays::Overlay>, answer: Answer) -> (bool, Vec<Effect>) {
    let at = at.min(model.overlays.len());
    let mut effects = answer.effects;
    let stands = match answer.then {
        Then::Stay => {
            model.overlays.insert(at, overlay);
            true
        }
        Then::Close => false,
        Then::Replace(next) => {
            model.overlays.insert(at, next);
            true
        }
        Then::Run(command) => {
            effects.extend(run(model, command));
            false
        }
    };
    (stands, effects)
}

fn on_paste(model: &mut Model, text: &str) -> Vec<Effect> {
    if let Some(mut overlay) = model.overlays.pop() {
        let at = model.overlays.len();
        let changed = overlay.field().is_some_and(|field| field.paste(text));
        let answer = if changed { overlay.typed(model) } else { Answer::stay() };
        return settle(model, at, overlay, answer).1;
    }
    // Pasted text is never taken for keys.
    with_screen(model, |screen, model| {
        if screen.field().is_some_and(|field| field.paste(text)) {
            screen.typed(model);
        }
        Vec::new()
    })
}

fn with_screen(model: &mut Model, act: impl FnOnce(&mut dyn super::screens::Screen, &mut Model) -> Vec<Effect>) -> Vec<Effect> {
    let mut screens = std::mem::take(&mut model.screens);
    let effects = match screens.get_mut(model.screen) {
        Some(screen) => act(screen.as_mut(), model),
        None => Vec::new(),
    };
    model.screens = screens;
    effects
}

/// Keys that an open input leaves to the console: no text is made of them.
fn passes_input(key: &KeyEvent) -> bool {
    let ctrl = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char(c) => ctrl && matches!(c.to_ascii_lowercase(), 'c' | 'z' | 'l'),
        KeyCode::Esc | KeyCode::Enter | KeyCode::Tab | KeyCode::BackTab => true,
        KeyCode::Up | KeyCode::Down | KeyCode::PageUp | KeyCode::PageDown => true,
        _ => false,
    }
}

fn is_too_small(model: &Model) -> bool {
    layout::tier(model.size.0, model.size.1) == Tier::TooSmall
}

/// Where nothing but a notice is shown, nothing is chosen or confirmed: keys leave the console, and that is all they do.
fn on_unseen_key(model: &mut Model, key: KeyEvent) -> Vec<Effect> {
    let chord = Chord::from(key);
    let interrupt = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    let meaning = match model.keymap.lookup(&[Scope::Global], &[chord]) {
        Meaning::Run(command) => Some(command),
        _ => None,
    };
    model.pending.clear();
    if interrupt || meaning == Some(Command::Interrupt) {
        return self::interrupt(model);
    }
    model.interrupted = None;
    match meaning {
        // The dialog that asks could not be seen. Handoffs go on without the console, or when an engine runs again.
        Some(Command::Quit) => vec![Effect::Quit(ExitReason::Quit)],
        Some(Command::Suspend) => vec![Effect::Suspend],
        Some(Command::Redraw) => vec![Effect::Redraw],
        _ => Vec::new(),
    }
}

fn on_key(model: &mut Model, key: KeyEvent) -> Vec<Effect> {
    let chord = Chord::from(key);
    let is_interrupt = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    if !is_interrupt {
        model.interrupted = None;
    }
    if !passes_input(&key) {
        let input = |field: Option<&mut Field>| field.map(|field| field.key(key));
        if let Some(mut overlay) = model.overlays.pop() {
            let at = model.overlays.len();
            let typed = input(overlay.field());
            let answer = if typed == Some(true) { overlay.typed(model) } else { Answer::stay() };
            let effects = settle(model, at, overlay, answer).1;
            if typed.is_some() {
                return effects;
            }
        } else {
            let mut had_field = false;
            let effects = with_screen(model, |screen, model| {
                let typed = input(screen.field());
                had_field = typed.is_some();
                if typed == Some(true) {
                    screen.typed(model);
                }
                Vec::new()
            });
            if had_field {
                model.refresh_rows();
                return effects;
            }
        }
    }
    if key.code == KeyCode::Enter && model.overlays.is_empty() {
        // Enter keeps what was typed into a screen's input.
        let mut had_field = false;
        let effects = with_screen(model, |screen, model| {
            had_field = screen.field().is_some();
            let accept = had_field.then(|| screen.command(model, Command::Accept)).flatten();
            accept.unwrap_or_default()
        });
        if had_field {
            model.refresh_rows();
            return effects;
        }
    }
    if is_interrupt && model.keymap.lookup(&[Scope::Global], &[chord]) == Meaning::Nothing {
        // Whatever a keymap file says, there is a way out.
        return run(model, Command::Interrupt);
    }
    model.messages.dismiss();
    model.pending.push(chord);
    let scopes = model.scopes();
    match model.keymap.lookup(&scopes, &model.pending) {
        Meaning::Pending => Vec::new(),
        Meaning::Run(command) => {
            model.pending.clear();
            run(model, command)
        }
        Meaning::Nothing => {
            let alone = model.pending.len() == 1;
            model.pending.clear();
            // A key that breaks off a sequence keeps its own meaning.
            match model.keymap.lookup(&scopes, &[chord]) {
                Meaning::Run(command) if !alone => run(model, command),
                _ => Vec::new(),
            }
        }
    }
}

/// Runs a command, or says why it is off.
pub fn run(model: &mut Model, command: Command) -> Vec<Effect> {
    if let Some(mut overlay) = model.overlays.pop() {
        let at = model.overlays.len();
        let info = command.info();
        // A dialog gets what moves and answers; the rest of the console waits behind it.
        if matches!(info.scope, Scope::Dialog | Scope::List)
            || matches!(command, Command::Back | Command::NextPane | Command::PreviousPane | Command::Copy | Command::Quit)
        {
            let answer = match command {
                // Keys that would type into nothing close what is open instead.
                Command::Quit => Answer::close(),
                command => overlay.command(model, command),
            };
            return settle(model, at, overlay, answer).1;
        }
        model.overlays.push(overlay);
        if !matches!(command, Command::Interrupt | Command::Suspend | Command::Redraw | Command::Dump) {
            return Vec::new();
        }
    }
    if let Err(reason) = model.enabled(command) {
        model.note(Level::Warn, format!("{}: {reason}", command.info().title));
        return Vec::new();
    }
    let effects = with_command(model, command);
    model.refresh_rows();
    effects
}

fn with_command(model: &mut Model, command: Command) -> Vec<Effect> {
    match command {
        Command::Help => open(model, overlays::help::Help::open),
        Command::Palette => open(model, overlays::palette::Palette::open),
        Command::Messages => open(model, overlays::messages::History::open),
        Command::Connection => open(model, overlays::connection::Watches::open),
        Command::Quit => open(model, overlays::quit::Quit::open),
        Command::PausePicture => pause_picture(model),
        Command::Redraw => vec![Effect::Redraw],
        Command::Suspend => vec![Effect::Suspend],
        Command::Dump => vec![Effect::Dump],
        Command::Interrupt => interrupt(model),
        Command::Screen(at) => {
            model.screen = usize::from(at).min(model.screens.len().saturating_sub(1));
            Vec::new()
        }
        command if command.info().scope == Scope::Handoff => operate::run(model, command),
        command => {
            let mut mine = true;
            let mut effects = with_screen(model, |screen, model| match screen.command(model, command) {
                Some(effects) => effects,
                None => {
                    mine = false;
                    Vec::new()
                }
            });
            if !mine {
                effects.extend(fallback(model, command));
            }
            effects
        }
    }
}

/// What a command does when the screen has nothing of its own for it.
fn fallback(model: &mut Model, command: Command) -> Vec<Effect> {
    match command {
        // One level back; on the first screen there is none. Esc never quits.
        Command::Back => model.screen = 0,
        Command::Open => model.screen = 1,
        Command::Copy => {
            if let Some(key) = &model.selected {
                return vec![Effect::Copy(key.node.to_string())];
            }
        }
        Command::NextNode | Command::PreviousNode => step(model, if command == Command::NextNode { 1 } else { -1 }),
        _ => {}
    }
    Vec::new()
}

/// Moves the selection by rows; the ends hold.
pub(super) fn step(model: &mut Model, by: isize) {
    let to = match model.selected_index() {
        Some(at) => model.rows.step(at, by),
        // What was selected is gone: the row that took its place.
        None => {
            let at = model.selected_at.min(model.rows.len().saturating_sub(1));
            if model.rows.row(at).is_some() { Some(at) } else { model.rows.step(at, 1).or_else(|| model.rows.first()) }
        }
    };
    model.select(to.or_else(|| model.rows.first()));
}

fn open(model: &mut Model, make: fn(&Model) -> Box<dyn overlays::Overlay>) -> Vec<Effect> {
    let overlay = make(model);
    model.overlays.push(overlay);
    Vec::new()
}

fn pause_picture(model: &mut Model) -> Vec<Effect> {
    match model.frozen.take() {
        None => {
            model.frozen = Some(Frozen { since: model.clock, behind: 0, latest: None });
            Vec::new()
        }
        Some(frozen) => match frozen.latest {
            Some(picture) => show(model, *picture),
            None => Vec::new(),
        },
    }
}

fn interrupt(model: &mut Model) -> Vec<Effect> {
    const AGAIN: std::time::Duration = std::time::Duration::from_secs(3);
    match model.interrupted {
        Some(at) if model.clock.saturating_sub(at) <= AGAIN => vec![Effect::Quit(ExitReason::Quit)],
        _ => {
            model.interrupted = Some(model.clock);
            model.note(Level::Info, "Ctrl-c once more quits");
            Vec::new()
        }
    }
}
