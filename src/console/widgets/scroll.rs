//! Which part of a list is shown. Anchored to an identity, so that rows coming and going above do not move the page.

use std::ops::Range;

use super::pen::Pen;
use crate::console::{
    glyphs::Glyphs,
    theme::{Role, Theme},
};

/// The first shown row, and how many fitted when last drawn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Viewport {
    pub top: usize,
    pub height: usize,
}

impl Viewport {
    /// The rows to draw: within the list, with the selected one among them.
    pub fn window(&mut self, total: usize, selected: Option<usize>, height: usize) -> Range<usize> {
        self.height = height;
        self.top = self.top.min(total.saturating_sub(height));
        if let Some(at) = selected.filter(|_| height > 0) {
            self.top = self.top.clamp((at + 1).saturating_sub(height), at);
        }
        self.top..(self.top + height).min(total)
    }

    /// Moves the page without a selection (documents).
    pub fn scroll(&mut self, by: isize, total: usize) {
        self.top = self.top.saturating_add_signed(by).min(total.saturating_sub(self.height));
    }
}

/// A bar in the last column of `pen`, when not everything is shown.
pub fn bar(pen: &mut Pen<'_>, total: usize, shown: &Range<usize>, theme: &Theme, glyphs: &Glyphs) {
    let height = usize::from(pen.height());
    if height == 0 || pen.width() == 0 || shown.len() >= total {
        return;
    }
    let size = (height * shown.len() / total).max(1);
    let room = total - shown.len();
    let top = ((height - size) * shown.start + room / 2) / room;
    let x = pen.width() - 1;
    for y in 0..height {
        let thumb = (top..top + size).contains(&y);
        let sign = if thumb { glyphs.thumb } else { glyphs.track };
        pen.line(y as u16).text(x, 1, sign, theme.get(if thumb { Role::BorderFocus } else { Role::Border }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_follows_the_selection_and_stays_in_the_list() {
        let mut view = Viewport::default();
        assert_eq!(view.window(100, Some(0), 10), 0..10);
        assert_eq!(view.window(100, Some(10), 10), 1..11);
        assert_eq!(view.window(100, Some(5), 10), 1..11, "still visible: the page stays");
        assert_eq!(view.window(100, Some(99), 10), 90..100);
        assert_eq!(view.window(4, Some(3), 10), 0..4);
        assert_eq!(view.window(4, Some(3), 0), 0..0);
        assert_eq!(view.window(0, None, 10), 0..0);
    }

    #[test]
    fn documents_stop_at_both_ends() {
        let mut view = Viewport { top: 0, height: 10 };
        view.scroll(-3, 30);
        assert_eq!(view.top, 0);
        view.scroll(100, 30);
        assert_eq!(view.top, 20);
    }
}
