//! A simulated cluster inside the process: API server, actors, faults, people, scenarios, and the invariant monitor.

pub mod actors;
pub mod apiserver;
pub mod clock;
pub mod demo;
pub mod kernel;
pub mod monitor;
pub mod pacer;
pub mod people;
pub mod scenarios;
pub mod world;
