//! The console as a user meets it, without a terminal.

mod csi;
mod fixtures;
mod keys;
mod kmm;
mod look;
mod looping;
mod safety;
mod simulated;
mod sweep;
mod user;
