//! What the simulated cluster starts with and what its people do: one file per scenario, plus builders for the objects they share.

pub mod csi;
pub mod dra;
pub mod kernel_module;
pub mod kmm;
pub mod objects;
