//! The simulated Kubernetes API server: one generic handler over a table of resources.
