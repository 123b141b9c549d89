//! The console as a user meets it, without a terminal.

mod fixtures;
mod look;
mod user;
