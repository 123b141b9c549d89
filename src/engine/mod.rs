//! The loop shared by the console and `reconcile`: observe, decide, do one guarded action, observe again.

pub mod backoff;
mod brain;
pub mod execute;
pub mod intent;
pub mod intent_plan;
mod look_again;
pub mod picture;
pub mod request;
mod run;

pub use run::{Engine, EngineOptions, Request};
