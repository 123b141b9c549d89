//! Quitting asks, and says what goes on without the console and what stops with it.

use super::{Answer, Overlay, buttons::Buttons};
use crate::{
    console::{
        command::Command,
        effect::{Effect, ExitReason},
        format,
        model::Model,
        theme::Role,
        widgets::pen::Pen,
    },
    engine::picture::Mode,
};

pub struct Quit {
    buttons: Buttons,
}

impl Quit {
    pub fn open(model: &Model) -> Box<dyn Overlay> {
        // With nothing at stake Enter quits.
        Box::new(Self { buttons: Buttons { on_act: running(model) == 0 || !acts_here(model) } })
    }
}

fn running(model: &Model) -> usize {
    model.rows.progress().values().map(|progress| progress.running).sum()
}

fn acts_here(model: &Model) -> bool {
    model.picture.mode == Mode::Engine && model.picture.leadership.ours
}

fn text(model: &Model) -> String {
    let handoffs = format::count(running(model), "handoff");
    match (running(model), acts_here(model)) {
        (0, _) => "No handoff is running.".to_owned(),
        (_, true) => format!(
            "{handoffs} running, and this process is the one that acts. They stop where they are, nodes stay as they are, \
             and they go on when an engine runs again."
        ),
        (_, false) => match &model.picture.leadership.holder {
            Some(holder) => format!("{handoffs} running; {holder} goes on with them."),
            None => format!("{handoffs} running, and nobody holds the Lease: they wait until an engine runs."),
        },
    }
}

impl Overlay for Quit {
    fn id(&self) -> &'static str {
        "quit"
    }

    fn title(&self, _: &Model) -> String {
        "Quit?".to_owned()
    }

    fn size(&self, model: &Model, width: u16) -> (u16, u16) {
        let width = width.min(60);
        let lines = format::wrap(&text(model), usize::from(width.saturating_sub(4))).len();
        (width, u16::try_from(lines).unwrap_or(10) + 5)
    }

    fn command(&mut self, _: &mut Model, command: Command) -> Answer {
        if self.buttons.command(command) {
            return Answer::stay();
        }
        match command {
            Command::Accept if self.buttons.on_act => Answer::close_with(vec![Effect::Quit(ExitReason::Quit)]),
            Command::Accept | Command::Back => Answer::close(),
            _ => Answer::stay(),
        }
    }

    fn draw(&mut self, model: &Model, pen: &mut Pen<'_>) {
        let width = pen.width().saturating_sub(2);
        for (y, line) in format::wrap(&text(model), usize::from(width)).iter().enumerate() {
            pen.line(1 + y as u16).text(1, width, line, model.style(Role::Text));
        }
        let bottom = pen.height().saturating_sub(1);
        self.buttons.draw(model, &mut pen.line(bottom), "Stay", "Quit", false);
    }

    fn hint(&self) -> String {
        "Tab moves to the other button, Enter takes it.".to_owned()
    }

    fn keys(&self) -> &'static [(&'static str, &'static str)] {
        &[("tab", "to the other button"), ("enter", "take it"), ("esc", "stay")]
    }
}
