//! Pure: slim records of cluster objects, their indexes, and `project()` to a FleetView. No clock, no I/O, no kube client.

pub mod event;
pub mod records;
pub mod view;
