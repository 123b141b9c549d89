//! The rim: clients, watches, guarded writes, evictions, events, lease. All I/O with an API server is here.

pub mod access;
#[cfg(test)]
mod against_sim;
pub mod audit;
pub mod call;
pub mod clock;
pub mod counters;
pub mod credentials;
mod decoding;
pub mod error;
pub mod events;
mod evicted;
pub mod fresh;
mod handle;
pub mod kinds;
pub mod kmm;
mod kubectl;
pub mod lease;
pub mod read_only;
pub mod request;
pub mod rim;
#[cfg(test)]
pub(crate) mod testing;
pub mod watch;
pub mod write;

pub use error::{CallError, Refusal, RefusalClass};
pub use handle::{Cluster, WriteCap};
pub use write::{Fence, Writer, Written};
