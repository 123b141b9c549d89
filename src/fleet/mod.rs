//! Pure: slim records of cluster objects, their indexes, and `project()` to a FleetView. No clock, no I/O, no kube client.

mod budget_index;
pub mod build;
mod component_view;
pub mod content;
pub mod csi;
mod csi_occupancy;
pub mod csi_records;
pub mod decode;
pub mod event;
pub mod follow;
mod index;
pub mod intern;
pub mod keyed;
pub mod kmm;
mod kmm_events;
mod kmm_occupancy;
pub mod node_labels;
pub mod occupancy;
mod project;
pub mod records;
pub mod rules;
pub mod selector;
mod shared;
pub mod should_run;
pub mod sorted;
pub mod store;
mod usage;
pub mod view;
mod volume_events;

pub use follow::Fleet;

#[cfg(test)]
mod tests;
