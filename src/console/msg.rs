//! What can happen to the console.

use crossterm::event::KeyEvent;

use super::{model::IntentId, write_log::Writes};
use crate::engine::{intent::IntentOutcome, picture::Picture};

/// One event. Time is no event: the loop sets `Model::clock` before each.
#[derive(Debug)]
pub enum Msg {
    Key(KeyEvent),
    Paste(String),
    /// The wheel, by so many rows.
    Scroll(i8),
    Resize(u16, u16),
    Picture(Box<Picture>),
    Writes(Writes),
    Outcome(IntentId, IntentOutcome),
    /// A second has passed while an age is on the screen.
    Tick,
    /// Back from the shell.
    Resumed,
    /// No more pictures will come.
    EngineGone,
    /// The process was told to end (TERM, HUP, INT, QUIT).
    Terminate,
    /// What an effect had to say.
    Notice(super::messages::Level, String),
}
