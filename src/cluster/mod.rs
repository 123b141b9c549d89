//! The rim: clients, watches, guarded writes, evictions, events, lease. All I/O with an API server is here.
