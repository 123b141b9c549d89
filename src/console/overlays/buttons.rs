//! Two buttons at the bottom of a dialog. Cancel is first, and has the focus when it opens.

use crate::console::{command::Command, model::Model, theme::Role, widgets::pen::Pen};

/// Whether the focus is on the button that does something.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Buttons {
    pub on_act: bool,
}

impl Buttons {
    /// True when the command moved the focus.
    pub fn command(&mut self, command: Command) -> bool {
        match command {
            Command::NextPane | Command::PreviousPane => self.on_act = !self.on_act,
            Command::Up | Command::Top => self.on_act = false,
            Command::Down | Command::Bottom => self.on_act = true,
            _ => return false,
        }
        true
    }

    pub fn draw(self, model: &Model, pen: &mut Pen<'_>, cancel: &str, act: &str, danger: bool) {
        let style = |focus: bool, danger: bool| match (focus, danger) {
            (true, true) => model.style(Role::Danger),
            (true, false) => model.style(Role::Selected),
            (false, _) => model.style(Role::Muted),
        };
        // The focus has brackets of its own: not colour alone.
        let label = |text: &str, focus: bool| {
            if focus { format!("[{} {text} ]", model.glyphs.cursor) } else { format!("[  {text} ]") }
        };
        let x = pen.text(1, 30, &label(cancel, !self.on_act), style(!self.on_act, false));
        pen.text(x + 2, 40, &label(act, self.on_act), style(self.on_act, danger));
    }
}
