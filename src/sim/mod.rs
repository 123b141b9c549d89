//! A simulated cluster inside the process: API server, actors, faults, scenarios, monitor.

pub mod actors;
pub mod apiserver;
pub mod clock;
pub mod kernel;
