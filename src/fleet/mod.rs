//! Pure: slim records of cluster objects, their indexes, and `project()` to a FleetView.
