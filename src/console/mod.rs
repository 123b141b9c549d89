//! The terminal console. It shows a FleetView and sends intents; it never writes to a cluster.
