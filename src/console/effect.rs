//! What `update` wants done to the world; the run loop does it.

use super::model::IntentId;
use crate::engine::intent::Intent;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Hand an intent to the engine without waiting; the outcome comes back as a message.
    Submit(IntentId, Box<Intent>),
    /// Leave the screen and stop the process group, until it is continued.
    Suspend,
    /// Clear the terminal and draw everything.
    Redraw,
    /// Send text to the terminal's clipboard (OSC 52).
    Copy(String),
    /// Write the frame to files.
    Dump,
    Quit(ExitReason),
}

/// Why the console ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitReason {
    /// A person asked.
    Quit,
    /// A signal, or the terminal went away.
    Signal,
    /// The input stream ended.
    InputClosed,
}
