//! The objects and keys that lockkeeper reads and writes in a cluster: NodeComponent, NodeHandoff, labels, annotations.

pub mod access;
pub mod component;
pub mod crd;
pub mod duration;
pub mod handoff;
pub mod ids;
pub mod keys;
#[cfg(test)]
mod reference;
pub mod versioned;

pub use component::{NodeComponent, NodeComponentSpec, NodeComponentStatus};
pub use crd::crds;
pub use handoff::{NodeHandoff, NodeHandoffSpec, NodeHandoffStatus, Phase};
pub use ids::{BootId, ComponentKey, NodeName, ObjectKey, Uid, Version};

/// The API group of lockkeeper's own objects, and the prefix of every label and annotation it owns.
pub const GROUP: &str = "lockkeeper.dev";
/// The field manager of every write.
pub const MANAGER: &str = "lockkeeper";
