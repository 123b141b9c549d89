//! lockkeeper upgrades what is coupled to a node's kernel or hardware, node by node.
//! This file is the table of contents: `fleet`, `handoff`, `drain` and `kmm` are pure; `cluster` is the rim; `engine` joins them.

pub mod api;
pub mod cli;
pub mod cluster;
pub mod console;
pub mod drain;
pub mod engine;
pub mod fleet;
pub mod handoff;
pub mod kmm;
pub mod sim;
