//! One line of input: a text area held to a single line.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::widgets::Widget;
use tui_textarea::TextArea;

use super::pen::Pen;
use crate::console::{
    format,
    theme::{Role, Theme},
};

/// An input owns every key but Esc, Enter, Tab, Ctrl-c and Ctrl-z.
#[derive(Debug, Clone, Default)]
pub struct Field {
    area: TextArea<'static>,
}

impl Field {
    pub fn new(text: &str) -> Self {
        let mut area = TextArea::new(vec![format::clean(text).into_owned()]);
        area.move_cursor(tui_textarea::CursorMove::End);
        Self { area }
    }

    pub fn text(&self) -> &str {
        self.area.lines().first().map_or("", String::as_str)
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// True when the text changed.
    pub fn key(&mut self, key: KeyEvent) -> bool {
        let newline = matches!(key.code, KeyCode::Enter | KeyCode::Tab | KeyCode::BackTab)
            || (key.modifiers.contains(KeyModifiers::CONTROL) && matches!(key.code, KeyCode::Char('m' | 'j' | 'i')));
        !newline && self.area.input(key)
    }

    /// Pasted text: its first line, control characters made visible.
    pub fn paste(&mut self, text: &str) -> bool {
        let first = text.lines().next().unwrap_or_default();
        self.area.insert_str(format::clean(first))
    }

    pub fn draw(&self, pen: &mut Pen<'_>, theme: &Theme) {
        let style = theme.get(Role::Input);
        pen.fill(style);
        if pen.width() == 0 || pen.height() == 0 {
            return;
        }
        let mut area = self.area.clone();
        area.set_style(style);
        area.set_cursor_line_style(style);
        area.set_cursor_style(style.add_modifier(ratatui::style::Modifier::REVERSED));
        let rect = ratatui::layout::Rect { height: 1, ..pen.area() };
        (&area).render(rect, pen.buffer());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stays_one_line_and_shows_control_characters() {
        let mut field = Field::new("n");
        for c in "ode".chars() {
            assert!(field.key(KeyEvent::from(KeyCode::Char(c))));
        }
        assert!(!field.key(KeyEvent::from(KeyCode::Enter)));
        assert!(!field.key(KeyEvent::new(KeyCode::Char('m'), KeyModifiers::CONTROL)));
        field.paste("-1\x1b\nmore");
        assert_eq!(field.text(), "node-1^[");
    }
}
