//! The one Lease: who may act (`decide` is pure, `keeper` carries it out), and the slots of admitted nodes that it holds.

pub mod decide;
mod keeper;
mod object;
#[cfg(test)]
mod tests;

pub use decide::Config;
pub use keeper::{Keeper, Leadership, Standing};
