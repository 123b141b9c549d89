//! Styles by role. A theme is a table in `assets/themes`; nothing else names a colour. Meaning is never carried by colour alone.

use std::collections::BTreeMap;

use ratatui::style::{Color, Modifier, Style};
use serde::Deserialize;

/// What a piece of text means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    Text,
    Muted,
    Title,
    Border,
    BorderFocus,
    Header,
    Selected,
    Key,
    Good,
    Active,
    Waiting,
    Bad,
    Warn,
    Input,
    Danger,
    Hint,
    Stale,
}

impl Role {
    pub const ALL: [Self; 17] = [
        Self::Text,
        Self::Muted,
        Self::Title,
        Self::Border,
        Self::BorderFocus,
        Self::Header,
        Self::Selected,
        Self::Key,
        Self::Good,
        Self::Active,
        Self::Waiting,
        Self::Bad,
        Self::Warn,
        Self::Input,
        Self::Danger,
        Self::Hint,
        Self::Stale,
    ];
}

/// A palette: a style per role, over a background of its own (colour themes) or the terminal's (mono).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Theme {
    pub name: ThemeName,
    styles: [Style; Role::ALL.len()],
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum ThemeName {
    #[default]
    Dark,
    Light,
    /// Blue and orange on black: readable with every kind of colour blindness.
    HighContrast,
    /// Bold, dim, underline and reverse only.
    Mono,
}

impl ThemeName {
    pub const ALL: [Self; 4] = [Self::Dark, Self::Light, Self::HighContrast, Self::Mono];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Dark => "dark",
            Self::Light => "light",
            Self::HighContrast => "high-contrast",
            Self::Mono => "mono",
        }
    }

    fn source(self) -> &'static str {
        match self {
            Self::Dark => include_str!("../../assets/themes/dark.toml"),
            Self::Light => include_str!("../../assets/themes/light.toml"),
            Self::HighContrast => include_str!("../../assets/themes/high-contrast.toml"),
            Self::Mono => include_str!("../../assets/themes/mono.toml"),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    /// Index of the 256-colour palette, 16 to 255: those are the same in every terminal.
    fg: Option<u8>,
    bg: Option<u8>,
    #[serde(default)]
    add: Vec<Attribute>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Attribute {
    Bold,
    Dim,
    Italic,
    Underline,
    Reverse,
}

impl Theme {
    /// A built-in theme. `no_color` (the variable is set and not empty) makes it mono.
    pub fn new(name: ThemeName, no_color: bool) -> Self {
        let name = if no_color { ThemeName::Mono } else { name };
        match Self::parse(name) {
            Ok(theme) => theme,
            Err(_) => Self { name, styles: [Style::reset(); Role::ALL.len()] },
        }
    }

    fn parse(name: ThemeName) -> Result<Self, toml::de::Error> {
        let entries: BTreeMap<Role, Entry> = toml::from_str(name.source())?;
        let base = entries.get(&Role::Text);
        let styles = Role::ALL.map(|role| {
            let entry = entries.get(&role);
            let pick = |part: fn(&Entry) -> Option<u8>| entry.and_then(part).or_else(|| base.and_then(part)).map(Color::Indexed);
            let mut style = Style::new();
            style.fg = Some(pick(|entry| entry.fg).unwrap_or(Color::Reset));
            style.bg = Some(pick(|entry| entry.bg).unwrap_or(Color::Reset));
            entry.iter().flat_map(|entry| &entry.add).fold(style, |style, attribute| {
                style.add_modifier(match attribute {
                    Attribute::Bold => Modifier::BOLD,
                    Attribute::Dim => Modifier::DIM,
                    Attribute::Italic => Modifier::ITALIC,
                    Attribute::Underline => Modifier::UNDERLINED,
                    Attribute::Reverse => Modifier::REVERSED,
                })
            })
        });
        Ok(Self { name, styles })
    }

    pub fn get(&self, role: Role) -> Style {
        self.styles.get(role as usize).copied().unwrap_or_default()
    }
}

/// Red, green, blue of a palette index; 0 to 15 as xterm has them.
pub fn rgb(index: u8) -> (u8, u8, u8) {
    const STEPS: [u8; 6] = [0, 95, 135, 175, 215, 255];
    const FIRST: [(u8, u8, u8); 16] = [
        (0, 0, 0),
        (205, 0, 0),
        (0, 205, 0),
        (205, 205, 0),
        (0, 0, 238),
        (205, 0, 205),
        (0, 205, 205),
        (229, 229, 229),
        (127, 127, 127),
        (255, 0, 0),
        (0, 255, 0),
        (255, 255, 0),
        (92, 92, 255),
        (255, 0, 255),
        (0, 255, 255),
        (255, 255, 255),
    ];
    let step = |n: u8| STEPS.get(usize::from(n % 6)).copied().unwrap_or_default();
    match index {
        0..=15 => FIRST.get(usize::from(index)).copied().unwrap_or_default(),
        16..=231 => {
            let n = index - 16;
            (step(n / 36), step(n / 6), step(n))
        }
        _ => {
            let grey = 8 + (index - 232) * 10;
            (grey, grey, grey)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn luminance(color: Color) -> f64 {
        let Color::Indexed(index) = color else { panic!("{color:?} is not of the fixed palette") };
        assert!(index >= 16, "{index} looks different in each terminal");
        let (r, g, b) = rgb(index);
        let part = |c: u8| {
            let c = f64::from(c) / 255.0;
            if c <= 0.04045 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b)
    }

    #[test]
    fn text_can_be_read_on_its_background() {
        for name in [ThemeName::Dark, ThemeName::Light, ThemeName::HighContrast] {
            let theme = Theme::parse(name).unwrap();
            for role in Role::ALL {
                let style = theme.get(role);
                let (a, b) = (luminance(style.fg.unwrap()), luminance(style.bg.unwrap()));
                let ratio = (a.max(b) + 0.05) / (a.min(b) + 0.05);
                let wanted = match (name, role) {
                    (_, Role::Border) => 2.0,
                    (ThemeName::HighContrast, _) => 7.0,
                    _ => 4.5,
                };
                assert!(ratio >= wanted, "{} {role:?}: {ratio:.1}", name.as_str());
            }
        }
    }

    #[test]
    fn mono_has_no_colour_and_still_tells_selection_and_danger() {
        let theme = Theme::parse(ThemeName::Mono).unwrap();
        for role in Role::ALL {
            let style = theme.get(role);
            assert_eq!((style.fg, style.bg), (Some(Color::Reset), Some(Color::Reset)), "{role:?}");
        }
        let text = theme.get(Role::Text);
        for role in [Role::Selected, Role::Danger, Role::Bad, Role::Key, Role::Header] {
            assert_ne!(theme.get(role), text, "{role:?}");
        }
        assert_eq!(Theme::new(ThemeName::Light, true), Theme::new(ThemeName::Mono, false));
    }
}
