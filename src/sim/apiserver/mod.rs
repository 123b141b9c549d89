//! The simulated Kubernetes API server: one generic handler over a table of resources.
//!
//! `server` is the handle and the way in; `call` parses; `handler` dispatches to `read`, `write`, `delete`, `eviction`, `scale`, `review`;
//! `state` and `store` hold objects and history; `watch` streams; `faults` is chaos as data; `log` is the record. Deterministic: the same seed and
//! the same requests give the same log, byte for byte.

mod admit;
mod apply;
mod body;
mod call;
mod convert;
mod crd;
mod delete;
mod discovery;
mod eviction;
pub mod faults;
mod handler;
pub mod listen;
pub mod log;
mod managed;
mod patch;
mod pod_defaults;
mod rbac;
mod read;
mod refusal;
mod resource;
mod review;
mod scale;
mod schema;
mod seed;
mod select;
mod server;
mod shape;
mod state;
mod store;
mod table;
mod validate;
mod watch;
mod write;

#[cfg(test)]
mod tests;

pub use call::{Identity, Verb};
pub use faults::{Action, Fault, FaultPlan, Faults, Matcher};
pub use log::{EventLog, Record};
pub use refusal::Refusal;
pub use server::ApiServer;
pub use state::Config;
pub use watch::End as WatchEnd;
