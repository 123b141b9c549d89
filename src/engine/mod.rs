//! The loop shared by the console and `reconcile`: observe, decide, do one guarded action, observe again.

pub mod intent;
pub mod intent_plan;
pub mod picture;
