//! Whole stories on the pure functions: a toy cluster, the interlock's mutants by name, tables, and properties.

mod mutants;
mod props;
mod stories;
mod tables;
mod world;
