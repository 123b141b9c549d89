//! The simulated Kubernetes API server: one generic handler over a table of resources.
//!
//! `server` is the handle and the way in; `call` parses; `handler` dispatches to `read`, `write`, `delete`, `eviction`, `scale`, `review`;
//! `state` and `store` hold objects and history; `watch` streams; `faults` is chaos as data; `log` is the record. Deterministic: the same seed and
//! the same requests give the same log, byte for byte.
//!
//! Compared with a real 1.37 by request sequences to both; what is known to differ is the table of `docs/simulator.md`.

mod admit;
mod apply;
mod body;
mod call;
mod columns;
mod convert;
mod crd;
mod decode;
mod delete;
mod discovery;
mod eviction;
pub mod faults;
mod grammar;
mod handler;
pub mod listen;
pub mod log;
mod managed;
mod openapi;
mod patch;
mod pod_columns;
mod pod_defaults;
mod protobuf;
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
mod strategic;
mod structured;
mod table;
mod types;
mod validate;
mod validate_kinds;
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
