//! The loop shared by the console and `reconcile`: observe, decide, do one guarded action, observe again.

pub mod admin;
pub mod announce;
pub mod backoff;
mod brain;
mod diagnostics;
pub mod execute;
pub mod heartbeat;
pub mod intent;
pub mod intent_plan;
mod look_again;
pub mod metrics;
pub mod picture;
pub mod probes;
pub mod request;
mod run;

pub use run::{Engine, EngineOptions, Request};
