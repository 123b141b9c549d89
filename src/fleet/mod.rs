//! Pure: slim records of cluster objects, their indexes, and `project()` to a FleetView. No clock, no I/O, no kube client.

pub mod content;
pub mod decode;
pub mod event;
pub mod intern;
pub mod keyed;
pub mod node_labels;
pub mod records;
pub mod selector;
pub mod store;
pub mod view;
