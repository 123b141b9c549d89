//! Short words in the header that say in which state the console itself is.

use crate::console::theme::Role;

/// A badge: what it says, how loud, and how early it gives way in a narrow header (0 never does).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Badge {
    pub text: String,
    pub role: Role,
    pub rank: u8,
}

impl Badge {
    pub fn new(text: impl Into<String>, role: Role, rank: u8) -> Self {
        Self { text: text.into(), role, rank }
    }
}
