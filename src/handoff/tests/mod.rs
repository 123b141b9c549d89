//! Whole stories on the pure functions: a toy cluster, the interlock's mutants by name, tables, and properties.

mod asked;
mod found;
mod held_back;
pub(crate) mod incremental;
mod mutants;
mod props;
mod stories;
mod survivors;
mod tables;
mod world;
