//! The controllers and kubelets of the simulated cluster, each an ordinary client of its API server (or of a real one).

mod adoption;
mod allocation;
mod attach;
pub mod caches;
mod claims;
pub mod clock;
pub mod controllers;
mod daemonset;
mod disruption;
mod garbage;
pub mod informer;
pub mod kmm;
pub mod kubelet;
mod node_lifecycle;
pub mod quantity;
pub mod queue;
mod recorder;
pub mod records;
mod replicas;
mod scheduler;
pub mod selectors;
mod template;
#[cfg(test)]
mod tests;
pub mod volumes;

pub use clock::{Clock, Dice, Range};
pub use controllers::{ControllerManager, ControllerOptions};
pub use kubelet::{KubeletOptions, Kubelets, MachineSpec, Power, WeakKubelets};
pub use node_lifecycle::LifecycleOptions;
pub use scheduler::SchedulerOptions;
