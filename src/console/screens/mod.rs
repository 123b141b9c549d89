//! The screens, in the order of their number keys. A new one is a file here, a line in `registry`, and its command and key.

pub mod describe;
pub mod fleet;
pub mod log;
pub mod node;
mod volumes;

use super::{
    command::{Command, Scope},
    effect::Effect,
    model::Model,
    widgets::{field::Field, pen::Pen},
};

/// One screen. While one of its methods runs, the model does not hold the screens.
pub trait Screen {
    /// Stable word, for tests.
    fn id(&self) -> &'static str;

    fn title(&self) -> &'static str;

    /// Whose keys work here besides the global ones, the nearest first.
    fn scopes(&self) -> &'static [Scope];

    /// Runs a command of its own; None when it is not.
    fn command(&mut self, model: &mut Model, command: Command) -> Option<Vec<Effect>>;

    /// The input that owns the text keys, when one is open.
    fn field(&mut self) -> Option<&mut Field> {
        None
    }

    /// What keys do while the input is open; empty while it is not.
    fn input_keys(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// The input's text has changed.
    fn typed(&mut self, _model: &mut Model) {}

    /// The picture has changed.
    fn refresh(&mut self, _model: &mut Model) {}

    fn draw(&mut self, model: &Model, pen: &mut Pen<'_>);

    /// Commands whose keys the keys line names, the most useful first.
    fn hints(&self) -> &'static [Command];
}

pub fn registry() -> Vec<Box<dyn Screen>> {
    vec![Box::<fleet::Fleet>::default(), Box::<node::Node>::default(), Box::<log::Log>::default()]
}

/// How far a moving command goes on a page of `height` rows; None when it does not move. The ends are as far as it gets.
pub fn distance(command: Command, height: usize) -> Option<isize> {
    let page = isize::try_from(height.max(1)).unwrap_or(1);
    Some(match command {
        Command::Up => -1,
        Command::Down => 1,
        Command::HalfUp => -(page / 2).max(1),
        Command::HalfDown => (page / 2).max(1),
        Command::PageUp => -page,
        Command::PageDown => page,
        Command::Top => isize::MIN / 2,
        Command::Bottom => isize::MAX / 2,
        _ => return None,
    })
}
