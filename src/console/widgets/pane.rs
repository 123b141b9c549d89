//! A framed pane. The one that has the keys has another border and a mark in its title: never colour alone.

use ratatui::{
    layout::Rect,
    widgets::{Block, Borders, Widget},
};

use super::pen::Pen;
use crate::console::{
    glyphs::Glyphs,
    theme::{Role, Theme},
};

/// Draws the frame and returns what is inside.
pub fn pane(pen: &mut Pen<'_>, title: &str, focus: bool, theme: &Theme, glyphs: &Glyphs) -> Rect {
    let area = pen.area();
    if area.width < 2 || area.height < 2 {
        return Rect { width: 0, height: 0, ..area };
    }
    let role = if focus { Role::BorderFocus } else { Role::Border };
    let block = Block::new()
        .borders(Borders::ALL)
        .border_set(if focus { glyphs.border_focus } else { glyphs.border })
        .border_style(theme.get(role));
    let inner = block.inner(area);
    block.render(area, pen.buffer());
    let title = if focus { format!(" {} {title} ", glyphs.cursor) } else { format!(" {title} ") };
    pen.line(0).text(1, area.width - 2, &title, theme.get(Role::Title));
    inner
}
