//! A user's hands and eyes: press keys, type, look. Drives the model without a terminal.

use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent};
use lockkeeper::{
    console::{
        capture,
        command::Command,
        effect::Effect,
        glyphs::{Glyphs, UNICODE},
        keymap::{Chord, Keymap},
        model::{Model, Setup, default_planner},
        msg::Msg,
        theme::{Theme, ThemeName},
        update::update,
        view,
    },
    engine::intent::{Intent, IntentOutcome},
};
use ratatui::{Terminal, backend::TestBackend, buffer::Buffer, layout::Rect};

use crate::fixtures::Scene;

pub struct User {
    pub model: Model,
    pub effects: Vec<Effect>,
    size: (u16, u16),
}

pub struct Look {
    pub theme: ThemeName,
    pub glyphs: &'static Glyphs,
    pub read_only: bool,
    pub demo: bool,
}

impl Default for Look {
    fn default() -> Self {
        Self { theme: ThemeName::Dark, glyphs: &UNICODE, read_only: false, demo: false }
    }
}

impl User {
    pub fn at(scene: Scene) -> Self {
        Self::with(scene, Look::default())
    }

    pub fn with(scene: Scene, look: Look) -> Self {
        let size = (100, 30);
        let model = Model::new(Setup {
            picture: scene.picture,
            speed: 1.0,
            read_only: look.read_only,
            demo: look.demo,
            theme: Theme::new(look.theme, false),
            glyphs: look.glyphs,
            keymap: Keymap::default(),
            planner: default_planner(),
            size,
        });
        Self { model, effects: Vec::new(), size }
    }

    pub fn sized(mut self, width: u16, height: u16) -> Self {
        self.size = (width, height);
        self.send(Msg::Resize(width, height));
        self
    }

    pub fn send(&mut self, msg: Msg) -> &mut Self {
        let effects = update(&mut self.model, msg);
        self.effects.extend(effects);
        self
    }

    /// Keys as the keymap spells them: `U`, `g g`, `ctrl-d`.
    pub fn press(&mut self, keys: &str) -> &mut Self {
        // Pages are as long as the last frame made them.
        self.frame();
        for key in keys.split(' ') {
            let chord = Chord::parse(key).unwrap();
            self.send(Msg::Key(chord.event()));
        }
        self
    }

    pub fn type_text(&mut self, text: &str) -> &mut Self {
        for c in text.chars() {
            self.send(Msg::Key(KeyEvent::from(KeyCode::Char(c))));
        }
        self
    }

    pub fn see(&mut self, scene: Scene) -> &mut Self {
        self.send(Msg::Picture(Box::new(scene.picture)))
    }

    pub fn later(&mut self, seconds: u64) -> &mut Self {
        self.model.clock += Duration::from_secs(seconds);
        self.send(Msg::Tick)
    }

    /// Moves to a node by name.
    pub fn go_to(&mut self, node: &str) -> &mut Self {
        self.press("1 g g");
        for _ in 0..self.model.rows.len() {
            if self.selected() == node {
                return self;
            }
            self.press("j");
        }
        panic!("{node} is not listed:\n{}", self.text());
    }

    pub fn selected(&self) -> String {
        self.model.selected.as_ref().map(|key| key.node.to_string()).unwrap_or_default()
    }

    pub fn frame(&mut self) -> Buffer {
        let mut terminal = Terminal::new(TestBackend::new(self.size.0, self.size.1)).unwrap();
        terminal.draw(|frame| view::draw(&mut self.model, frame.buffer_mut())).unwrap();
        terminal.backend().buffer().clone()
    }

    pub fn text(&mut self) -> String {
        capture::text(&self.frame())
    }

    /// The text with the styles of each line as a map of letters, so that a change of either is seen.
    pub fn styled(&mut self) -> String {
        let buf = self.frame();
        let mut styles = Vec::new();
        let mut map = String::new();
        for y in 0..buf.area.height {
            let mut line = String::new();
            for x in 0..buf.area.width {
                let style = buf.cell((x, y)).unwrap().style();
                let at = styles.iter().position(|other| *other == style).unwrap_or_else(|| {
                    styles.push(style);
                    styles.len() - 1
                });
                line.push(char::from(b'a' + u8::try_from(at % 26).unwrap()));
            }
            map.push_str(&runs(&line));
            map.push('\n');
        }
        let mut legend = String::new();
        for (at, style) in styles.iter().enumerate() {
            let letter = char::from(b'a' + u8::try_from(at % 26).unwrap());
            legend.push_str(&format!("{letter} {:?} on {:?} {:?}\n", style.fg.unwrap(), style.bg.unwrap(), style.add_modifier));
        }
        format!("{}\n{map}\n{legend}", capture::text(&buf))
    }

    pub fn overlay(&self) -> &'static str {
        self.model.overlays.last().map_or("none", |overlay| overlay.id())
    }

    pub fn expect_overlay(&mut self, id: &str) -> &mut Self {
        assert_eq!(self.overlay(), id, "\n{}", self.text());
        self
    }

    pub fn expect_screen(&mut self, id: &str) -> &mut Self {
        assert_eq!(self.model.screens[self.model.screen].id(), id);
        self
    }

    pub fn expect_text(&mut self, text: &str) -> &mut Self {
        let shown = self.text();
        assert!(shown.contains(text), "{text:?} is not shown:\n{shown}");
        self
    }

    pub fn expect_no_text(&mut self, text: &str) -> &mut Self {
        let shown = self.text();
        assert!(!shown.contains(text), "{text:?} is shown:\n{shown}");
        self
    }

    pub fn expect_message(&mut self, text: &str) -> &mut Self {
        let message = self.model.messages.current(self.model.clock).map(|message| message.text.clone()).unwrap_or_default();
        assert!(message.contains(text), "{text:?} is not in the message {message:?}");
        self
    }

    pub fn intents(&self) -> Vec<Intent> {
        self.effects
            .iter()
            .filter_map(|effect| match effect {
                Effect::Submit(_, intent) => Some((**intent).clone()),
                _ => None,
            })
            .collect()
    }

    pub fn expect_no_intent(&mut self) -> &mut Self {
        assert_eq!(self.intents(), [], "\n{}", self.text());
        self
    }

    /// The engine's answer to the last intent.
    pub fn answer(&mut self, outcome: IntentOutcome) -> &mut Self {
        let id = self.effects.iter().rev().find_map(|effect| match effect {
            Effect::Submit(id, _) => Some(*id),
            _ => None,
        });
        self.send(Msg::Outcome(id.unwrap(), outcome))
    }

    pub fn off(&self, command: Command) -> Option<String> {
        self.model.enabled(command).err().map(|reason| reason.0)
    }
}

/// `a12 b3`: letters with how often each comes in a row.
fn runs(line: &str) -> String {
    let mut out: Vec<(char, usize)> = Vec::new();
    for c in line.chars() {
        match out.last_mut() {
            Some((last, times)) if *last == c => *times += 1,
            _ => out.push((c, 1)),
        }
    }
    out.iter().map(|(c, times)| format!("{c}{times}")).collect::<Vec<_>>().join(" ")
}

/// A frame of any size, drawn straight into a buffer.
pub fn draw_at(model: &mut Model, width: u16, height: u16) -> Buffer {
    let mut buf = Buffer::empty(Rect::new(0, 0, width, height));
    view::draw(model, &mut buf);
    buf
}
