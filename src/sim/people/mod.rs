//! People of the simulated cluster: the operator who queues nodes, and those who meddle. Each is an ordinary client with a manager of its own.

pub mod hands;
pub mod kmm;
pub mod kmm_meddler;
pub mod meddler;
pub mod operator;
pub mod seen;
pub mod storage;
