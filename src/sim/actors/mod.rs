//! The controllers and kubelets of the simulated cluster, each an ordinary client of its API server.
