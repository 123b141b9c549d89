//! Keys as data: `assets/keymap.toml`, over it the user's file (read, never written), as one trie per scope.

use std::{collections::BTreeMap, fmt, path::Path};

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use indexmap::IndexMap;
use serde::Deserialize;

use super::command::{Command, Scope};

/// A key with its modifiers, spelt as in the file: `U`, `ctrl-d`, `space`, `shift-tab`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Chord {
    code: KeyCode,
    ctrl: bool,
    alt: bool,
}

const NAMES: [(&str, KeyCode); 15] = [
    ("space", KeyCode::Char(' ')),
    ("enter", KeyCode::Enter),
    ("esc", KeyCode::Esc),
    ("tab", KeyCode::Tab),
    ("shift-tab", KeyCode::BackTab),
    ("backspace", KeyCode::Backspace),
    ("delete", KeyCode::Delete),
    ("up", KeyCode::Up),
    ("down", KeyCode::Down),
    ("left", KeyCode::Left),
    ("right", KeyCode::Right),
    ("home", KeyCode::Home),
    ("end", KeyCode::End),
    ("pageup", KeyCode::PageUp),
    ("pagedown", KeyCode::PageDown),
];

impl Chord {
    pub fn parse(text: &str) -> Result<Self, String> {
        let (mut rest, mut ctrl, mut alt) = (text, false, false);
        loop {
            if let Some(tail) = rest.strip_prefix("ctrl-").filter(|tail| !tail.is_empty()) {
                (rest, ctrl) = (tail, true);
            } else if let Some(tail) = rest.strip_prefix("alt-").filter(|tail| !tail.is_empty()) {
                (rest, alt) = (tail, true);
            } else {
                break;
            }
        }
        let mut letters = rest.chars();
        let code = match (letters.next(), letters.next()) {
            (Some(c), None) => KeyCode::Char(c),
            _ => match NAMES.iter().find(|(name, _)| *name == rest) {
                Some((_, code)) => *code,
                None => rest
                    .strip_prefix('f')
                    .and_then(|n| n.parse().ok())
                    .filter(|n| (1..=12).contains(n))
                    .map(KeyCode::F)
                    .ok_or_else(|| format!("{text:?} is no key; one character, a name such as \"space\" or \"pagedown\", with ctrl- or alt- in front"))?,
            },
        };
        Ok(Self { code, ctrl, alt })
    }

    pub fn event(self) -> KeyEvent {
        let mut modifiers = KeyModifiers::NONE;
        modifiers.set(KeyModifiers::CONTROL, self.ctrl);
        modifiers.set(KeyModifiers::ALT, self.alt);
        KeyEvent::new(self.code, modifiers)
    }

    /// An unshifted letter: such a key must not write.
    pub fn is_small(self) -> bool {
        matches!(self.code, KeyCode::Char(c) if c.is_lowercase()) && !self.ctrl && !self.alt
    }
}

impl From<KeyEvent> for Chord {
    fn from(key: KeyEvent) -> Self {
        let ctrl = key.modifiers.contains(KeyModifiers::CONTROL);
        let alt = key.modifiers.contains(KeyModifiers::ALT);
        let code = match key.code {
            // Terminals disagree on how Ctrl-Shift-letter and Shift-Tab arrive.
            KeyCode::Char(c) if ctrl => KeyCode::Char(c.to_ascii_lowercase()),
            KeyCode::Tab if key.modifiers.contains(KeyModifiers::SHIFT) => KeyCode::BackTab,
            code => code,
        };
        Self { code, ctrl, alt }
    }
}

impl fmt::Display for Chord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.ctrl {
            f.write_str("ctrl-")?;
        }
        if self.alt {
            f.write_str("alt-")?;
        }
        match (NAMES.iter().find(|(_, code)| *code == self.code), self.code) {
            (Some((name, _)), _) => f.write_str(name),
            (None, KeyCode::Char(c)) => write!(f, "{c}"),
            (None, KeyCode::F(n)) => write!(f, "f{n}"),
            (None, code) => write!(f, "{code:?}"),
        }
    }
}

/// One line of the map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    pub scope: Scope,
    pub chords: Vec<Chord>,
    pub command: Command,
    pub desc: String,
}

impl Binding {
    /// `g g`, `ctrl-d`.
    pub fn keys(&self) -> String {
        self.chords.iter().map(Chord::to_string).collect::<Vec<_>>().join(" ")
    }
}

#[derive(Debug, Default, Clone)]
enum Trie {
    Leaf(Command),
    Node(IndexMap<Chord, Trie>),
    #[default]
    Empty,
}

/// What keys mean so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    Run(Command),
    /// A longer binding starts like this.
    Pending,
    Nothing,
}

#[derive(Debug, Clone)]
pub struct Keymap {
    bindings: Vec<Binding>,
    tries: BTreeMap<Scope, Trie>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {what}")]
pub struct KeymapError {
    /// `file:line`.
    pub place: String,
    pub what: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    key: Vec<toml::Spanned<Entry>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    scope: Scope,
    on: Vec<String>,
    run: String,
    #[serde(default)]
    desc: String,
}

struct Parsed {
    line: usize,
    scope: Scope,
    chords: Vec<Chord>,
    /// None: the key is taken away.
    command: Option<Command>,
    desc: String,
}

const DEFAULT: &str = include_str!("../../assets/keymap.toml");

impl Default for Keymap {
    fn default() -> Self {
        // A test parses it; an empty map would still leave Ctrl-c.
        Self::build(DEFAULT, None).unwrap_or_else(|_| Self { bindings: Vec::new(), tries: BTreeMap::new() })
    }
}

impl Keymap {
    /// The built-in keys with a user's file over them.
    pub fn with_overrides(path: &Path) -> Result<Self, KeymapError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| KeymapError { place: path.display().to_string(), what: format!("cannot be read: {error}") })?;
        Self::build(DEFAULT, Some((&path.display().to_string(), &text)))
    }

    /// From texts: the built-in map, and a named one over it.
    pub fn build(base: &str, over: Option<(&str, &str)>) -> Result<Self, KeymapError> {
        let mut bindings = apply(Vec::new(), "keymap.toml", base)?;
        let mut name = "keymap.toml";
        if let Some((file, text)) = over {
            name = file;
            bindings = apply(bindings, file, text)?;
        }
        let map = Self { tries: tries(&bindings), bindings };
        match map.conflicts().into_iter().next() {
            Some(conflict) => Err(KeymapError { place: name.to_owned(), what: conflict }),
            None => Ok(map),
        }
    }

    pub fn bindings(&self) -> &[Binding] {
        &self.bindings
    }

    /// The keys of a command, `j / down`.
    pub fn keys_of(&self, command: Command) -> String {
        self.bindings.iter().filter(|binding| binding.command == command).map(Binding::keys).collect::<Vec<_>>().join(" / ")
    }

    /// The first of them.
    pub fn key_of(&self, command: Command) -> Option<String> {
        self.bindings.iter().find(|binding| binding.command == command).map(Binding::keys)
    }

    /// Looks chords up in scopes, the first that knows them wins.
    pub fn lookup(&self, scopes: &[Scope], chords: &[Chord]) -> Meaning {
        for scope in scopes {
            let mut at = self.tries.get(scope);
            for chord in chords {
                at = match at {
                    Some(Trie::Node(next)) => next.get(chord),
                    _ => None,
                };
            }
            match at {
                Some(Trie::Leaf(command)) => return Meaning::Run(*command),
                Some(Trie::Node(_)) => return Meaning::Pending,
                _ => {}
            }
        }
        Meaning::Nothing
    }

    /// What may follow.
    pub fn continuations(&self, scopes: &[Scope], chords: &[Chord]) -> Vec<&Binding> {
        let longer = |binding: &&Binding| {
            scopes.contains(&binding.scope) && binding.chords.len() > chords.len() && binding.chords.starts_with(chords)
        };
        self.bindings.iter().filter(longer).collect()
    }

    /// Keys that mean two things where both could be pressed, and short ones that hide longer ones.
    pub fn conflicts(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (at, a) in self.bindings.iter().enumerate() {
            for b in self.bindings.iter().skip(at + 1) {
                let hides = a.chords.starts_with(&b.chords) || b.chords.starts_with(&a.chords);
                if hides && meet(a.scope, b.scope) {
                    found.push(format!(
                        "{} ({}) is {} and {} ({}) is {}",
                        a.keys(),
                        a.scope.word(),
                        a.command.info().id,
                        b.keys(),
                        b.scope.word(),
                        b.command.info().id
                    ));
                }
            }
        }
        found
    }
}

/// Whether keys of both scopes work at the same time.
fn meet(a: Scope, b: Scope) -> bool {
    let alone = |one: Scope, other: Scope| match one {
        Scope::Fleet => other == Scope::Node || other == Scope::Dialog,
        Scope::Handoff | Scope::Node => other == Scope::Dialog,
        _ => false,
    };
    !alone(a, b) && !alone(b, a)
}

fn apply(mut bindings: Vec<Binding>, file: &str, text: &str) -> Result<Vec<Binding>, KeymapError> {
    let parsed = parse(file, text)?;
    // A file's own lines may conflict with each other, not with what they replace.
    for entry in &parsed {
        bindings.retain(|binding| !(meet(binding.scope, entry.scope) && binding.chords == entry.chords));
    }
    for entry in parsed {
        let Some(command) = entry.command else { continue };
        let info = command.info();
        if info.writes && entry.chords.iter().any(|chord| chord.is_small()) {
            return Err(KeymapError {
                place: format!("{file}:{}", entry.line),
                what: format!("{:?} writes to the cluster and cannot be on an unshifted letter", info.id),
            });
        }
        let desc = if entry.desc.is_empty() { info.title.to_owned() } else { entry.desc };
        bindings.push(Binding { scope: entry.scope, chords: entry.chords, command, desc });
    }
    Ok(bindings)
}

fn parse(file: &str, text: &str) -> Result<Vec<Parsed>, KeymapError> {
    let line_of = |at: usize| 1 + text.get(..at).map_or(0, |head| head.matches('\n').count());
    let fail = |line: usize, what: String| KeymapError { place: format!("{file}:{line}"), what };
    let read: File = toml::from_str(text)
        .map_err(|error| fail(error.span().map_or(1, |span| line_of(span.start)), error.message().to_owned()))?;
    let mut parsed = Vec::new();
    for spanned in read.key {
        let line = line_of(spanned.span().start);
        let entry = spanned.into_inner();
        let command = match entry.run.as_str() {
            "none" => None,
            id => Some(
                Command::by_id(id)
                    .ok_or_else(|| fail(line, format!("there is no command {id:?}; `:` in the console lists them")))?,
            ),
        };
        for keys in &entry.on {
            let chords: Vec<Chord> =
                keys.split_whitespace().map(Chord::parse).collect::<Result<_, _>>().map_err(|what| fail(line, what))?;
            if chords.is_empty() {
                return Err(fail(line, "an empty key; the blank is called \"space\"".to_owned()));
            }
            parsed.push(Parsed { line, scope: entry.scope, chords, command, desc: entry.desc.clone() });
        }
    }
    Ok(parsed)
}

fn tries(bindings: &[Binding]) -> BTreeMap<Scope, Trie> {
    let mut tries: BTreeMap<Scope, Trie> = BTreeMap::new();
    for binding in bindings {
        let mut at = tries.entry(binding.scope).or_default();
        for chord in &binding.chords {
            if !matches!(at, Trie::Node(_)) {
                *at = Trie::Node(IndexMap::new());
            }
            let Trie::Node(next) = at else { break };
            at = next.entry(*chord).or_default();
        }
        *at = Trie::Leaf(binding.command);
    }
    tries
}

#[cfg(test)]
mod tests;
