//! The status line and its history. Information fades; warnings and errors stay until a key dismisses them.

use std::{collections::VecDeque, time::Duration};

use super::{glyphs::Glyphs, theme::Role};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Info,
    Good,
    Warn,
    Error,
}

impl Level {
    pub fn sign(self, glyphs: &Glyphs) -> &'static str {
        match self {
            Self::Info => glyphs.info,
            Self::Good => glyphs.good,
            Self::Warn => glyphs.warn,
            Self::Error => glyphs.bad,
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Good => "done",
            Self::Warn => "refused",
            Self::Error => "error",
        }
    }

    pub fn role(self) -> Role {
        match self {
            Self::Info => Role::Text,
            Self::Good => Role::Good,
            Self::Warn => Role::Warn,
            Self::Error => Role::Bad,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub level: Level,
    pub text: String,
    /// The console's clock.
    pub at: Duration,
    /// How often the same text came in a row.
    pub times: u32,
}

/// The last of them, with the current one apart.
#[derive(Debug, Clone, Default)]
pub struct Messages {
    history: VecDeque<Message>,
    shown: bool,
}

const KEPT: usize = 500;
const FADES_AFTER: Duration = Duration::from_secs(6);

impl Messages {
    pub fn push(&mut self, at: Duration, level: Level, text: impl Into<String>) {
        let text = text.into();
        self.shown = true;
        if let Some(last) = self.history.back_mut().filter(|last| last.level == level && last.text == text) {
            last.times += 1;
            last.at = at;
            return;
        }
        if self.history.len() == KEPT {
            self.history.pop_front();
        }
        self.history.push_back(Message { level, text, at, times: 1 });
    }

    /// What the status line shows now.
    pub fn current(&self, clock: Duration) -> Option<&Message> {
        let last = self.history.back().filter(|_| self.shown)?;
        (last.level >= Level::Warn || clock.saturating_sub(last.at) < FADES_AFTER).then_some(last)
    }

    /// Whether the status line will change by itself.
    pub fn fading(&self, clock: Duration) -> bool {
        self.current(clock).is_some_and(|message| message.level < Level::Warn)
    }

    pub fn dismiss(&mut self) {
        self.shown = false;
    }

    /// Newest last.
    pub fn history(&self) -> impl ExactSizeIterator<Item = &Message> {
        self.history.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn information_fades_and_errors_stay() {
        let mut messages = Messages::default();
        let second = Duration::from_secs;
        messages.push(second(0), Level::Info, "hello");
        assert!(messages.current(second(5)).is_some() && messages.current(second(7)).is_none());
        messages.push(second(7), Level::Error, "broken");
        messages.push(second(8), Level::Error, "broken");
        assert_eq!(messages.current(second(99)).unwrap().times, 2);
        messages.dismiss();
        assert!(messages.current(second(99)).is_none());
        assert_eq!(messages.history().len(), 2);
    }
}
