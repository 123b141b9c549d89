//! The simulated Kubernetes API server: one generic handler over a table of resources.
//!
//! `server` is the handle and the way in; `call` parses; `handler` dispatches to `read`, `write`, `delete`, `eviction`, `scale`, `review`;
//! `state` and `store` hold objects and history; `watch` streams; `faults` is chaos as data; `log` is the record. Deterministic: the same seed and
//! the same requests give the same log, byte for byte.
//!
//! Compared with a real 1.37.2 by the same requests to both. Known to differ:
//! - a CRD is served at once; admission policies are stored and not evaluated; patterns and formats of schemas are not checked
//! - no protection finalizers on volumes and claims, no service accounts or tokens made, no admission but priority, service account name,
//!   default tolerations and the not-ready taint of new nodes (left out when a node is created with a Ready condition)
//! - builtin kinds are not checked field by field: unknown fields are kept, `fieldValidation` works for custom kinds only
//! - Jobs have no generated selector; messages that quote Go structs are shorter; null times are left out of conditions
//! - a list at a past revision comes in one page; protobuf is read in requests of builtin kinds, and never sent

mod admit;
mod apply;
mod body;
mod call;
mod columns;
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
