//! The program as people and scripts run it: arguments, exit codes, standard output and standard error.

mod bad_input;
mod cluster;
mod credentials;
mod help;
mod kmm;
mod pipes;
mod reconcile;
mod rights;
mod run;
mod serve;
mod served;
mod simulated;
