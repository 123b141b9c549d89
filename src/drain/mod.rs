//! Pure: who claims a device or a CSI driver's volume, what a PodDisruptionBudget allows, what blocks.
//! A handoff drains with `step`, a preflight predicts with `plan`; how both are used is told at the top of `order`.

pub mod blockers;
pub mod budget;
pub mod claimants;
pub mod eviction;
pub mod incoming;
pub mod order;
#[cfg(test)]
mod testing;
pub mod volumes;

pub use eviction::EvictionMemory;
pub use order::{Drain, DrainStep, plan, step};
