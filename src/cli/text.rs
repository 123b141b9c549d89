//! Text for terminals: what an API server says is shown, never obeyed. Tables whose columns fit their widest cell.

use std::borrow::Cow;

use unicode_width::UnicodeWidthStr;

/// Characters that a terminal acts on, or that make text read in another order than it is written.
fn acts(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// One line: control characters in caret notation (`^[`, `^J`, `^?`, `M-^[`), invisible and reordering ones as `<U+202E>`.
pub fn plain(text: &str) -> Cow<'_, str> {
    escaped(text, |_| false)
}

/// As [`plain`], but lines stay lines.
pub fn plain_lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c == '\n')
}

fn escaped(text: &str, keep: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(|c| acts(c) && !keep(c)) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match u32::from(c) {
            _ if !acts(c) || keep(c) => safe.push(c),
            code @ 0..=0x1f => safe.extend(['^', caret(code)]),
            0x7f => safe.push_str("^?"),
            code @ 0x80..=0x9f => safe.extend(['M', '-', '^', caret(code - 0x80)]),
            code => safe.push_str(&format!("<U+{code:04X}>")),
        }
    }
    Cow::Owned(safe)
}

fn caret(code: u32) -> char {
    char::from_u32(code + 0x40).unwrap_or('?')
}

/// JSON whose strings hold no character that a terminal acts on. Line breaks and blanks between the strings stay.
pub fn plain_json(json: &str) -> Cow<'_, str> {
    let raw = |c: char| acts(c) && !matches!(c, '\n' | '\t' | '\r');
    if !json.chars().any(raw) {
        return Cow::Borrowed(json);
    }
    let mut safe = String::with_capacity(json.len() + 8);
    for c in json.chars() {
        // All of them are in the basic plane, so that one escape is enough.
        if raw(c) { safe.push_str(&format!("\\u{:04x}", u32::from(c))) } else { safe.push(c) }
    }
    Cow::Owned(safe)
}

/// A table as kubectl prints them: upper-case heads, columns three blanks apart, nothing after the last one.
#[derive(Debug, Clone)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(heads: &[&str]) -> Self {
        Self { rows: vec![heads.iter().map(|&head| head.to_owned()).collect()] }
    }

    pub fn row<S: AsRef<str>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(|cell| plain(cell.as_ref()).into_owned()).collect());
    }

    /// How many rows there are under the heads.
    pub fn len(&self) -> usize {
        self.rows.len().saturating_sub(1)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns)
            .map(|at| self.rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.width()).max().unwrap_or(0))
            .collect();
        for row in &self.rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                line.push_str(cell);
                line.extend(std::iter::repeat_n(' ', width.saturating_sub(cell.width()) + 3));
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// `40s`, `12m`, `3h20m`, `9d`: the two greatest units at most, as kubectl shows ages.
pub fn age(seconds: i64) -> String {
    let seconds = seconds.max(0);
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600, seconds / 60);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 if seconds % 60 != 0 => format!("{minutes}m{}s", seconds % 60),
        120..10_800 => format!("{minutes}m"),
        10_800..28_800 if minutes % 60 != 0 => format!("{hours}h{}m", minutes % 60),
        10_800..172_800 => format!("{hours}h"),
        _ if days < 8 && hours % 24 != 0 => format!("{days}d{}h", hours % 24),
        _ => format!("{days}d"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_shown() {
        assert_eq!(plain("\u{1b}[31mred\u{7}\r\n\t"), "^[[31mred^G^M^J^I");
        assert_eq!(plain("\u{7f}\u{9b}31m"), "^?M-^[31m");
        assert_eq!(plain("a\u{202e}b\u{200b}"), "a<U+202E>b<U+200B>");
        assert_eq!(plain_lines("a\nb\u{1b}c"), "a\nb^[c");
        assert!(matches!(plain("größe 大"), Cow::Borrowed(_)));
    }

    #[test]
    fn json_stays_json() {
        let value = serde_json::json!({"a": "x\u{9b}y\u{202e}\u{1b}"});
        let printed = serde_json::to_string_pretty(&value).unwrap();
        let safe = plain_json(&printed);
        assert!(!safe.chars().any(|c| acts(c) && c != '\n'));
        assert_eq!(serde_json::from_str::<serde_json::Value>(&safe).unwrap(), value);
    }

    #[test]
    fn columns_fit_wide_characters() {
        let mut table = Table::new(&["NODE", "PHASE"]);
        table.row(["大大大", "Done"]);
        table.row(["n", "\u{1b}]0;x"]);
        assert_eq!(table.to_string(), "NODE     PHASE\n大大大   Done\nn        ^[]0;x\n");
    }

    #[test]
    fn ages_are_short() {
        for (seconds, text) in [
            (0, "0s"),
            (119, "119s"),
            (130, "2m10s"),
            (660, "11m"),
            (12_000, "3h20m"),
            (90_000, "25h"),
            (200_000, "2d7h"),
            (900_000, "10d"),
        ] {
            assert_eq!(age(seconds), text);
        }
    }
}
