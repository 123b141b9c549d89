//! How many of how many: `23/40 on 2.0` and a bar.

use super::pen::Pen;
use crate::console::{
    glyphs::Glyphs,
    theme::{Role, Theme},
};

/// A bar of `width` cells; never full before all are done, never empty once one is.
pub fn bar(done: usize, total: usize, width: u16, glyphs: &Glyphs) -> (String, String) {
    let width = usize::from(width);
    let full = match (done, total) {
        (0, _) | (_, 0) => 0,
        (done, total) if done >= total => width,
        (done, total) => (width * done / total).clamp(1.min(width), width.saturating_sub(1).max(1.min(width))),
    };
    (glyphs.gauge_full.repeat(full), glyphs.gauge_empty.repeat(width - full))
}

pub fn draw(pen: &mut Pen<'_>, x: u16, width: u16, done: usize, total: usize, theme: &Theme, glyphs: &Glyphs) -> u16 {
    let (full, empty) = bar(done, total, width.min(pen.width().saturating_sub(x)), glyphs);
    let role = if done >= total { Role::Good } else { Role::Active };
    let x = pen.text(x, width, &full, theme.get(role));
    pen.text(x, width, &empty, theme.get(Role::Border))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::console::glyphs::ASCII;

    #[test]
    fn the_bar_never_says_more_than_is_true() {
        let of = |done, total| bar(done, total, 10, &ASCII).0.len();
        assert_eq!([of(0, 40), of(1, 400), of(20, 40), of(399, 400), of(40, 40), of(0, 0)], [0, 1, 5, 9, 10, 0]);
        assert_eq!(bar(1, 2, 0, &ASCII), (String::new(), String::new()));
    }
}
