//! Text for cells: ages, widths, cutting, control characters. Widths are terminal cells of grapheme clusters, never bytes.

use std::borrow::Cow;

use jiff::Timestamp;
use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

/// Cells that `text` takes.
pub fn width(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.graphemes(true).map(UnicodeWidthStr::width).sum() }
}

/// Control characters in caret notation (`^[`, tabs as a blank), so that labels and messages can neither move the cursor
/// nor shift a column. Borrowed when there are none.
pub fn clean(text: &str) -> Cow<'_, str> {
    let hostile = |c: char| {
        c.is_control() || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
    };
    if !text.contains(hostile) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '\t' => out.push(' '),
            '\u{0}'..='\u{1f}' => {
                out.push('^');
                out.push(char::from(c as u8 + 0x40));
            }
            '\u{7f}' => out.push_str("^?"),
            c if hostile(c) => {
                out.push_str("^u");
                out.push_str(&format!("{:x}", c as u32));
            }
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// Cut to `cells`, with `mark` at the end when something is missing.
pub fn cut<'a>(text: &'a str, cells: usize, mark: &str) -> Cow<'a, str> {
    if width(text) <= cells {
        return Cow::Borrowed(text);
    }
    let mark = if width(mark) <= cells { mark } else { "" };
    let mut out = take(text.graphemes(true), cells - width(mark)).concat();
    out.push_str(mark);
    Cow::Owned(out)
}

/// Cut in the middle: names and ARNs differ at both ends.
pub fn cut_middle<'a>(text: &'a str, cells: usize, mark: &str) -> Cow<'a, str> {
    if width(text) <= cells {
        return Cow::Borrowed(text);
    }
    let room = cells.saturating_sub(width(mark));
    if room < 2 {
        return cut(text, cells, mark);
    }
    let head = take(text.graphemes(true), room.div_ceil(2)).concat();
    let mut tail = take(text.graphemes(true).rev(), room / 2);
    tail.reverse();
    Cow::Owned(format!("{head}{mark}{}", tail.concat()))
}

fn take<'a>(graphemes: impl Iterator<Item = &'a str>, cells: usize) -> Vec<&'a str> {
    let mut used = 0;
    graphemes
        .take_while(|grapheme| {
            used += grapheme.width();
            used <= cells
        })
        .collect()
}

/// Words over lines of at most `cells`; a longer word is broken. Never empty.
pub fn wrap(text: &str, cells: usize) -> Vec<String> {
    let cells = cells.max(1);
    let mut lines = Vec::new();
    let mut line = String::new();
    let mut used = 0;
    for word in text.split_whitespace() {
        let wide = width(word);
        if used > 0 && used + 1 + wide > cells {
            lines.push(std::mem::take(&mut line));
            used = 0;
        }
        if used > 0 {
            line.push(' ');
            used += 1;
        }
        if wide <= cells {
            line.push_str(word);
            used += wide;
            continue;
        }
        for grapheme in word.graphemes(true) {
            let wide = grapheme.width();
            if used + wide > cells && used > 0 {
                lines.push(std::mem::take(&mut line));
                used = 0;
            }
            line.push_str(grapheme);
            used += wide;
        }
    }
    if !line.is_empty() || lines.is_empty() {
        lines.push(line);
    }
    lines
}

/// `42s`, `3m12s`, `2h05m`, `3d04h`: at most six cells below 100 days.
pub fn age(seconds: i64) -> String {
    let s = seconds.max(0);
    match s {
        0..=59 => format!("{s}s"),
        60..=3599 => format!("{}m{:02}s", s / 60, s % 60),
        3600..=86_399 => format!("{}h{:02}m", s / 3600, s % 3600 / 60),
        86_400..=8_639_999 => format!("{}d{:02}h", s / 86_400, s % 86_400 / 3600),
        _ => format!("{}d", s / 86_400),
    }
}

/// Whole seconds from `since` to `now`, not below 0.
pub fn seconds_between(since: Timestamp, now: Timestamp) -> i64 {
    (now.as_second() - since.as_second()).max(0)
}

/// `14:02:07` (UTC: two people comparing notes see the same).
pub fn clock(at: Timestamp) -> String {
    at.strftime("%H:%M:%S").to_string()
}

/// `1 node`, `3 nodes`.
pub fn count(n: usize, one: &str) -> String {
    if n == 1 {
        return format!("1 {one}");
    }
    match one.strip_suffix('y') {
        Some(stem) if !stem.ends_with(['a', 'e', 'o', 'u']) => format!("{n} {stem}ies"),
        _ => format!("{n} {one}s"),
    }
}

/// Bytes whose order puts `n2` before `n10`: a run of digits becomes its length and its digits.
pub fn natural_key(text: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(text.len() + 4);
    let mut rest = text.as_bytes();
    while let Some(first) = rest.first() {
        if !first.is_ascii_digit() {
            key.push(*first);
            rest = rest.get(1..).unwrap_or_default();
            continue;
        }
        let end = rest.iter().position(|c| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (run, after) = rest.split_at(end);
        let zeros = run.iter().take_while(|c| **c == b'0').count();
        let digits = run.get(zeros..).unwrap_or_default();
        // Sorts among other characters as a digit does.
        key.push(b'0');
        key.push(u8::try_from(digits.len()).unwrap_or(u8::MAX));
        key.extend_from_slice(digits);
        rest = after;
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_become_visible_and_harmless() {
        assert_eq!(clean("plain"), "plain");
        assert_eq!(clean("a\x1b[31mb\tc\u{202e}d"), "a^[[31mb c^u202ed");
    }

    #[test]
    fn cutting_counts_cells_not_bytes() {
        assert_eq!(cut("gpu-node", 8, "~"), "gpu-node");
        assert_eq!(cut("gpu-node", 5, "~"), "gpu-~");
        assert_eq!(cut("日本語", 5, "~"), "日本~");
        assert_eq!(cut("日本語", 4, "~"), "日~");
        assert_eq!(cut("abc", 0, "~"), "");
        assert_eq!(cut_middle("arn:aws:eks:cluster/prod", 11, "~"), "arn:a~/prod");
        for cells in 0..12 {
            assert!(width(&cut("日本語 e\u{301}xyz", cells, "~")) <= cells);
            assert!(width(&cut_middle("日本語 e\u{301}xyz", cells, "~")) <= cells);
        }
    }

    #[test]
    fn wrapping_breaks_only_words_that_cannot_fit() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("abcdefghij k", 4), ["abcd", "efgh", "ij k"]);
        assert_eq!(wrap("", 4), [""]);
    }

    #[test]
    fn ages_stay_short() {
        let seconds = [0, 59, 60, 192, 7500, 273_600, 9_000_000, -4];
        assert_eq!(seconds.map(age), ["0s", "59s", "1m00s", "3m12s", "2h05m", "3d04h", "104d", "0s"]);
    }

    #[test]
    fn names_order_by_their_numbers() {
        let mut names = vec!["n10", "n2", "n01", "n1", "m9", "n2a"];
        names.sort_by_key(|name| (natural_key(name), name.len()));
        assert_eq!(names, ["m9", "n1", "n01", "n2", "n2a", "n10"]);
    }

    #[test]
    fn counts_are_words() {
        assert_eq!([count(1, "node"), count(2, "node"), count(0, "entry")], ["1 node", "2 nodes", "0 entries"]);
    }
}
