//! The controllers and kubelets of the simulated cluster, each an ordinary client of its API server (or of a real one).

pub mod caches;
pub mod clock;
pub mod informer;
pub mod kubelet;
pub mod quantity;
pub mod queue;
pub mod records;
pub mod selectors;
