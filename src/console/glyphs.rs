//! The two glyph sets. Nothing in them is an emoji or of ambiguous width except box drawing, which only frames use.

use ratatui::symbols::border;

/// Every sign that the console draws, besides text.
#[derive(Debug, PartialEq, Eq)]
pub struct Glyphs {
    pub name: &'static str,
    pub ellipsis: &'static str,
    /// The selected row.
    pub cursor: &'static str,
    /// Phase strip: a step behind us, the running one, one to come, one that failed, one that waits for a person.
    pub past: &'static str,
    pub running: &'static str,
    pub blocked: &'static str,
    pub ahead: &'static str,
    pub failed: &'static str,
    pub held: &'static str,
    pub skipped: &'static str,
    /// Marks of a whole row or line.
    pub good: &'static str,
    pub warn: &'static str,
    pub bad: &'static str,
    pub info: &'static str,
    pub gauge_full: &'static str,
    pub gauge_empty: &'static str,
    pub thumb: &'static str,
    pub track: &'static str,
    pub arrow: &'static str,
    pub rule: &'static str,
    pub border: border::Set<'static>,
    /// The border of the pane that has the keys.
    pub border_focus: border::Set<'static>,
}

pub const UNICODE: Glyphs = Glyphs {
    name: "unicode",
    ellipsis: "⋯",
    cursor: "▸",
    past: "⠶",
    running: "▸",
    blocked: "⣿",
    ahead: "⠄",
    failed: "✗",
    held: "⡇",
    skipped: "⠤",
    good: "✓",
    warn: "!",
    bad: "✗",
    info: "⠶",
    gauge_full: "⣿",
    gauge_empty: "⠤",
    thumb: "⣿",
    track: "⠆",
    arrow: "➜",
    rule: "─",
    border: border::ROUNDED,
    border_focus: border::THICK,
};

const ASCII_BORDER: border::Set<'static> = border::Set {
    top_left: "+",
    top_right: "+",
    bottom_left: "+",
    bottom_right: "+",
    vertical_left: "|",
    vertical_right: "|",
    horizontal_top: "-",
    horizontal_bottom: "-",
};
const ASCII_BORDER_FOCUS: border::Set<'static> = border::Set { horizontal_top: "=", horizontal_bottom: "=", ..ASCII_BORDER };

pub const ASCII: Glyphs = Glyphs {
    name: "ascii",
    ellipsis: "~",
    cursor: ">",
    past: "=",
    running: ">",
    blocked: "#",
    ahead: ".",
    failed: "x",
    held: "|",
    skipped: "-",
    good: "+",
    warn: "!",
    bad: "x",
    info: "*",
    gauge_full: "#",
    gauge_empty: "-",
    thumb: "#",
    track: ":",
    arrow: "->",
    rule: "-",
    border: ASCII_BORDER,
    border_focus: ASCII_BORDER_FOCUS,
};

/// The set for a locale: `LC_ALL`, else `LC_CTYPE`, else `LANG` must name UTF-8.
pub fn for_locale(var: impl Fn(&str) -> Option<String>) -> &'static Glyphs {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].iter().filter_map(|name| var(name)).find(|value| !value.is_empty());
    let locale = locale.unwrap_or_default().to_ascii_uppercase();
    if locale.contains("UTF-8") || locale.contains("UTF8") { &UNICODE } else { &ASCII }
}

#[cfg(test)]
mod tests {
    use unicode_width::UnicodeWidthStr;

    use super::*;

    #[test]
    fn signs_in_tables_have_one_width_in_every_terminal() {
        for set in [&UNICODE, &ASCII] {
            let one = [
                set.ellipsis,
                set.cursor,
                set.past,
                set.running,
                set.blocked,
                set.ahead,
                set.failed,
                set.held,
                set.skipped,
                set.good,
                set.warn,
                set.bad,
                set.info,
                set.gauge_full,
                set.gauge_empty,
                set.thumb,
                set.track,
            ];
            for sign in one {
                assert_eq!((sign.width(), sign.width_cjk()), (1, 1), "{sign} of {}", set.name);
            }
        }
        assert!(format!("{ASCII:?}").is_ascii());
    }

    #[test]
    fn each_state_has_its_own_sign() {
        for set in [&UNICODE, &ASCII] {
            let strip = [set.past, set.running, set.blocked, set.ahead, set.failed, set.held, set.skipped];
            for (at, sign) in strip.iter().enumerate() {
                assert!(!strip[at + 1..].contains(sign), "{sign} twice in {}", set.name);
            }
        }
    }

    #[test]
    fn the_locale_decides() {
        let with = |pairs: &'static [(&str, &str)]| {
            for_locale(move |name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())).name
        };
        assert_eq!(with(&[("LANG", "C.UTF-8")]), "unicode");
        assert_eq!(with(&[("LC_ALL", "C"), ("LANG", "en_US.UTF-8")]), "ascii");
        assert_eq!(with(&[]), "ascii");
    }
}
