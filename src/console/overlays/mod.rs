//! Dialogs over a screen, as a stack: the one on top has the keys.

pub mod ask;
mod buttons;
pub mod confirm;
pub mod connection;
pub mod help;
pub mod messages;
pub mod palette;
pub mod plan;
pub mod quit;

use super::{
    command::Command,
    effect::Effect,
    model::Model,
    widgets::{field::Field, pen::Pen},
};

/// A dialog. While one of its methods runs, the model does not hold it.
pub trait Overlay {
    /// Stable word, for tests.
    fn id(&self) -> &'static str;

    fn title(&self, model: &Model) -> String;

    /// Cells wanted, frame included.
    fn size(&self, model: &Model, width: u16) -> (u16, u16);

    /// Moving, accepting, going back.
    fn command(&mut self, model: &mut Model, command: Command) -> Answer;

    /// The input that owns the text keys.
    fn field(&mut self) -> Option<&mut Field> {
        None
    }

    /// The input's text has changed.
    fn typed(&mut self, _model: &mut Model) -> Answer {
        Answer::stay()
    }

    /// The picture has changed.
    fn refresh(&mut self, _model: &mut Model) -> Answer {
        Answer::stay()
    }

    fn draw(&mut self, model: &Model, pen: &mut Pen<'_>);

    /// What the demo's first line says.
    fn hint(&self) -> String {
        "Esc closes this.".to_owned()
    }

    /// What the keys line says.
    fn keys(&self) -> &'static [(&'static str, &'static str)];
}

/// What becomes of a dialog, and what is to be done.
pub struct Answer {
    pub then: Then,
    pub effects: Vec<Effect>,
}

pub enum Then {
    Stay,
    Close,
    Replace(Box<dyn Overlay>),
    /// Close, and run a command.
    Run(Command),
}

impl Answer {
    pub fn stay() -> Self {
        Self { then: Then::Stay, effects: Vec::new() }
    }

    pub fn close() -> Self {
        Self { then: Then::Close, effects: Vec::new() }
    }

    pub fn close_with(effects: Vec<Effect>) -> Self {
        Self { then: Then::Close, effects }
    }

    pub fn replace(next: Box<dyn Overlay>) -> Self {
        Self { then: Then::Replace(next), effects: Vec::new() }
    }
}
