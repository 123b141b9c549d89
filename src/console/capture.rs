//! A frame as text, as ANSI, or as SVG. The same frame gives the same bytes.

use std::fmt::Write;

use ratatui::{
    buffer::{Buffer, Cell},
    style::{Color, Modifier, Style},
};
use unicode_width::UnicodeWidthStr;

use super::theme;

/// Rows of text, trailing blanks cut.
pub fn text(buf: &Buffer) -> String {
    let mut out = String::new();
    for y in buf.area.top()..buf.area.bottom() {
        let mut line = String::new();
        for (symbol, _, _) in cells(buf, y) {
            line.push_str(symbol);
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// Text with SGR sequences, each line reset at its end.
pub fn ansi(buf: &Buffer) -> String {
    let mut out = String::new();
    for y in buf.area.top()..buf.area.bottom() {
        let mut last = None;
        for (symbol, style, _) in cells(buf, y) {
            if last != Some(style) {
                out.push_str(&sgr(style));
                last = Some(style);
            }
            out.push_str(symbol);
        }
        out.push_str("\x1b[0m\n");
    }
    out
}

/// Symbol, style and width of each cell that is not covered by a wide one before it.
fn cells(buf: &Buffer, y: u16) -> impl Iterator<Item = (&str, Style, u16)> {
    let mut covered = 0;
    (buf.area.left()..buf.area.right()).filter_map(move |x| {
        if covered > 0 {
            covered -= 1;
            return None;
        }
        let cell: &Cell = buf.cell((x, y))?;
        let wide = u16::try_from(cell.symbol().width()).unwrap_or(1).max(1);
        covered = wide - 1;
        Some((cell.symbol(), cell.style(), wide))
    })
}

fn sgr(style: Style) -> String {
    let mut out = String::from("\x1b[0");
    let attributes =
        [(Modifier::BOLD, 1), (Modifier::DIM, 2), (Modifier::ITALIC, 3), (Modifier::UNDERLINED, 4), (Modifier::REVERSED, 7)];
    for (modifier, code) in attributes {
        if style.add_modifier.contains(modifier) {
            let _ = write!(out, ";{code}");
        }
    }
    for (color, base) in [(style.fg, 38), (style.bg, 48)] {
        match color {
            Some(Color::Indexed(index)) => {
                let _ = write!(out, ";{base};5;{index}");
            }
            Some(Color::Rgb(r, g, b)) => {
                let _ = write!(out, ";{base};2;{r};{g};{b}");
            }
            _ => {}
        }
    }
    out.push('m');
    out
}

const CELL: (f64, f64) = (8.4, 17.0);
/// What a terminal's own colours are taken for.
const DEFAULT: ((u8, u8, u8), (u8, u8, u8)) = ((220, 220, 220), (24, 24, 24));

/// A picture with a rectangle per background and a text per run of one style. Needs no font but a monospaced one.
pub fn svg(buf: &Buffer) -> String {
    let (width, height) = (f64::from(buf.area.width) * CELL.0, f64::from(buf.area.height) * CELL.1);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.1} {height:.1}\" width=\"{width:.0}\" height=\"{height:.0}\" \
         font-family=\"DejaVu Sans Mono, Menlo, Consolas, monospace\" font-size=\"14\">\n<rect width=\"100%\" height=\"100%\" fill=\"{}\"/>\n",
        hex(DEFAULT.1)
    );
    for y in buf.area.top()..buf.area.bottom() {
        let row = f64::from(y - buf.area.top());
        for run in runs(buf, y) {
            if run.bg != DEFAULT.1 {
                let _ = writeln!(
                    out,
                    "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{}\" shape-rendering=\"crispEdges\"/>",
                    f64::from(run.x) * CELL.0,
                    row * CELL.1,
                    f64::from(run.cells) * CELL.0,
                    CELL.1,
                    hex(run.bg)
                );
            }
        }
        for run in runs(buf, y) {
            let trimmed = run.text.trim_end();
            if trimmed.is_empty() {
                continue;
            }
            let lead = run.text.len() - run.text.trim_start().len();
            let shown = trimmed.get(lead..).unwrap_or_default();
            let cells = shown.width();
            let _ = writeln!(
                out,
                "<text x=\"{:.1}\" y=\"{:.1}\" fill=\"{}\" textLength=\"{:.1}\" xml:space=\"preserve\"{}>{}</text>",
                f64::from(run.x + u16::try_from(lead).unwrap_or(0)) * CELL.0,
                row * CELL.1 + 13.0,
                hex(run.fg),
                cells as f64 * CELL.0,
                attributes(run.modifier),
                escape(shown)
            );
        }
    }
    out.push_str("</svg>\n");
    out
}

struct Run {
    x: u16,
    cells: u16,
    text: String,
    fg: (u8, u8, u8),
    bg: (u8, u8, u8),
    modifier: Modifier,
}

/// Neighbouring cells of one look. Only the leading blanks of a run are single bytes.
fn runs(buf: &Buffer, y: u16) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut x = 0;
    for (symbol, style, wide) in cells(buf, y) {
        let (fg, bg) = colors(style);
        let modifier = style.add_modifier - Modifier::REVERSED;
        match runs.last_mut().filter(|run| (run.fg, run.bg, run.modifier) == (fg, bg, modifier)) {
            Some(run) => {
                run.text.push_str(symbol);
                run.cells += wide;
            }
            None => runs.push(Run { x, cells: wide, text: symbol.to_owned(), fg, bg, modifier }),
        }
        x += wide;
    }
    runs
}

fn colors(style: Style) -> ((u8, u8, u8), (u8, u8, u8)) {
    let of = |color: Option<Color>, other| match color {
        Some(Color::Indexed(index)) => theme::rgb(index),
        Some(Color::Rgb(r, g, b)) => (r, g, b),
        _ => other,
    };
    let (fg, bg) = (of(style.fg, DEFAULT.0), of(style.bg, DEFAULT.1));
    if style.add_modifier.contains(Modifier::REVERSED) { (bg, fg) } else { (fg, bg) }
}

fn attributes(modifier: Modifier) -> String {
    let mut out = String::new();
    for (flag, text) in [
        (Modifier::BOLD, " font-weight=\"bold\""),
        (Modifier::DIM, " opacity=\"0.7\""),
        (Modifier::ITALIC, " font-style=\"italic\""),
        (Modifier::UNDERLINED, " text-decoration=\"underline\""),
    ] {
        if modifier.contains(flag) {
            out.push_str(text);
        }
    }
    out
}

fn hex((r, g, b): (u8, u8, u8)) -> String {
    format!("#{r:02x}{g:02x}{b:02x}")
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use ratatui::layout::Rect;

    use super::*;

    fn sample() -> Buffer {
        let mut buf = Buffer::empty(Rect::new(0, 0, 8, 2));
        buf.set_string(1, 0, "a<b", Style::new().fg(Color::Indexed(196)).add_modifier(Modifier::BOLD));
        buf.set_string(0, 1, "日x", Style::new().add_modifier(Modifier::REVERSED));
        buf
    }

    #[test]
    fn text_and_ansi_keep_wide_cells_whole() {
        assert_eq!(text(&sample()), " a<b\n日x\n");
        assert_eq!(ansi(&sample()).lines().next().unwrap(), "\u{1b}[0m \u{1b}[0;1;38;5;196ma<b\u{1b}[0m    \u{1b}[0m");
    }

    #[test]
    fn svg_escapes_and_places_by_cells() {
        let svg = svg(&sample());
        assert!(svg.contains("x=\"8.4\"") && svg.contains("a&lt;b") && svg.contains("fill=\"#ff0000\""), "{svg}");
        assert!(svg.contains("textLength=\"25.2\""), "{svg}");
    }
}
