//! Writing into a part of the buffer. The one place that touches cells: nothing leaves its area, at any size.

use ratatui::{buffer::Buffer, layout::Rect, style::Style};
use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

use crate::console::format;

/// A piece of text of one style.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    pub text: String,
    pub style: Style,
}

impl Span {
    pub fn new(text: impl Into<String>, style: Style) -> Self {
        Self { text: text.into(), style }
    }
}

pub struct Pen<'a> {
    buf: &'a mut Buffer,
    area: Rect,
    ellipsis: &'static str,
}

impl<'a> Pen<'a> {
    pub fn new(buf: &'a mut Buffer, area: Rect, ellipsis: &'static str) -> Self {
        let area = area.intersection(buf.area);
        Self { buf, area, ellipsis }
    }

    pub fn area(&self) -> Rect {
        self.area
    }

    pub fn width(&self) -> u16 {
        self.area.width
    }

    pub fn height(&self) -> u16 {
        self.area.height
    }

    /// A pen for a part of this one's area, in buffer coordinates.
    pub fn within(&mut self, area: Rect) -> Pen<'_> {
        let area = area.intersection(self.area);
        Pen { buf: self.buf, area, ellipsis: self.ellipsis }
    }

    /// A pen for one line.
    pub fn line(&mut self, y: u16) -> Pen<'_> {
        let area = Rect { y: self.area.y.saturating_add(y), height: 1, ..self.area };
        self.within(area)
    }

    /// For ratatui's own widgets.
    pub fn buffer(&mut self) -> &mut Buffer {
        self.buf
    }

    /// Blanks in a style, over everything.
    pub fn fill(&mut self, style: Style) {
        for y in self.area.top()..self.area.bottom() {
            for x in self.area.left()..self.area.right() {
                if let Some(cell) = self.buf.cell_mut((x, y)) {
                    cell.reset();
                    cell.set_style(style);
                }
            }
        }
    }

    /// A style over what stands there.
    pub fn tint(&mut self, style: Style) {
        self.buf.set_style(self.area, style);
    }

    /// Text on the first line from column `x`, at most `width` cells, with the ellipsis when it is longer. Returns the column after it.
    pub fn text(&mut self, x: u16, width: u16, text: &str, style: Style) -> u16 {
        let room = width.min(self.area.width.saturating_sub(x));
        if self.area.height == 0 || room == 0 {
            return x;
        }
        let text = format::clean(text);
        let text = format::cut(&text, usize::from(room), self.ellipsis);
        self.put(x, &text, style)
    }

    /// The same, cut in the middle.
    pub fn name(&mut self, x: u16, width: u16, text: &str, style: Style) -> u16 {
        let room = width.min(self.area.width.saturating_sub(x));
        let text = format::clean(text);
        let text = format::cut_middle(&text, usize::from(room), self.ellipsis);
        if self.area.height == 0 { x } else { self.put(x, &text, style) }
    }

    /// Spans one after the other from column `x`; what does not fit is cut.
    pub fn spans(&mut self, mut x: u16, spans: &[Span]) -> u16 {
        for span in spans {
            let room = self.area.width.saturating_sub(x);
            x = self.text(x, room, &span.text, span.style);
        }
        x
    }

    /// Ends in the last column.
    pub fn right(&mut self, text: &str, style: Style) {
        let text = format::clean(text);
        let wide = u16::try_from(format::width(&text)).unwrap_or(u16::MAX).min(self.area.width);
        self.text(self.area.width - wide, wide, &text, style);
    }

    fn put(&mut self, x: u16, text: &str, style: Style) -> u16 {
        let mut x = x;
        for grapheme in text.graphemes(true) {
            let wide = u16::try_from(grapheme.width()).unwrap_or(0);
            if wide == 0 {
                continue;
            }
            if x.saturating_add(wide) > self.area.width {
                break;
            }
            let (column, row) = (self.area.x.saturating_add(x), self.area.y);
            if let Some(cell) = self.buf.cell_mut((column, row)) {
                cell.set_symbol(grapheme);
                cell.set_style(style);
            }
            for next in 1..wide {
                if let Some(cell) = self.buf.cell_mut((column.saturating_add(next), row)) {
                    cell.reset();
                    cell.set_style(style);
                }
            }
            x += wide;
        }
        x
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_leaves_the_area() {
        let mut buf = Buffer::empty(Rect::new(0, 0, 6, 2));
        let mut pen = Pen::new(&mut buf, Rect::new(1, 0, 4, 9), "~");
        assert_eq!(pen.height(), 2);
        pen.text(1, 99, "日本語", Style::new());
        pen.line(1).right("abcdefg", Style::new());
        pen.line(7).text(0, 9, "below", Style::new());
        pen.text(9, 9, "beside", Style::new());
        let rows: Vec<String> = (0..2).map(|y| (0..6).map(|x| buf.cell((x, y)).unwrap().symbol()).collect()).collect();
        assert_eq!(rows, ["  日 ~ ", " abc~ "]);
    }
}
