//! Pure: reads Kernel Module Management (KMM) as it is: its label keys, its objects, and where a module stands on a node. Writes nothing.
//!
//! What KMM does was recorded from an operator of commit `de3f8c9` on Kubernetes 1.37; `docs/concepts/kmm.md` tells it in short.

pub mod decode;
pub mod keys;
pub mod ladder;
pub mod picture;
pub mod problem;
pub mod records;
pub mod state;
pub mod tolerations;
pub mod triple;
pub mod watched;

#[cfg(test)]
pub(crate) mod tests;

pub use keys::{Era, Label};
pub use picture::Kmm;
pub use problem::Problem;
pub use state::{Facts, NodeModule, State};
