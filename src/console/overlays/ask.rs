//! A reversible command's dialog: what it does in a sentence, Enter on Cancel unless the focus is moved.

use super::{Answer, Overlay, buttons::Buttons};
use crate::{
    console::{command::Command, enabled, format, messages::Level, model::Model, operate, theme::Role, widgets::pen::Pen},
    engine::intent::Intent,
};

pub struct Ask {
    asked: Command,
    verb: &'static str,
    text: String,
    intent: Intent,
    buttons: Buttons,
}

impl Ask {
    pub fn new(asked: Command, verb: &'static str, text: String, intent: Intent) -> Self {
        Self { asked, verb, text, intent, buttons: Buttons::default() }
    }
}

impl Overlay for Ask {
    fn id(&self) -> &'static str {
        "ask"
    }

    fn title(&self, _: &Model) -> String {
        format!("{}?", self.verb)
    }

    fn size(&self, _: &Model, width: u16) -> (u16, u16) {
        let width = width.min(64);
        let lines = format::wrap(&self.text, usize::from(width.saturating_sub(4))).len();
        (width, u16::try_from(lines).unwrap_or(10) + 5)
    }

    fn command(&mut self, model: &mut Model, command: Command) -> Answer {
        if self.buttons.command(command) {
            return Answer::stay();
        }
        match command {
            Command::Accept if !self.buttons.on_act => Answer::close(),
            // The world may have moved while the dialog was open.
            Command::Accept => match enabled::writable(model) {
                Err(reason) => {
                    model.note(Level::Warn, format!("{}: {reason}", self.verb));
                    Answer::close()
                }
                Ok(()) => {
                    let effect = operate::submit(model, self.verb.to_owned(), self.intent.clone());
                    Answer::close_with(vec![effect])
                }
            },
            Command::Back => Answer::close(),
            _ => Answer::stay(),
        }
    }

    fn refresh(&mut self, model: &mut Model) -> Answer {
        // The same order, in the words of the phase that it is in by now.
        if let Some((_, text, intent)) = operate::question(model, self.asked)
            && intent == self.intent
        {
            self.text = text;
        }
        Answer::stay()
    }

    fn draw(&mut self, model: &Model, pen: &mut Pen<'_>) {
        let width = usize::from(pen.width().saturating_sub(2));
        let lines = format::wrap(&self.text, width);
        for (y, line) in lines.iter().enumerate() {
            pen.line(1 + y as u16).text(1, width as u16, line, model.style(Role::Text));
        }
        let bottom = pen.height().saturating_sub(1);
        self.buttons.draw(model, &mut pen.line(bottom), "Cancel", self.verb, false);
    }

    fn hint(&self) -> String {
        "Tab moves to the other button, Enter takes it.".to_owned()
    }

    fn keys(&self) -> &'static [(&'static str, &'static str)] {
        &[("tab", "to the other button"), ("enter", "take it"), ("esc", "cancel")]
    }
}
