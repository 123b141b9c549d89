//! Stories on the simulated cluster: the whole engine, actors and people, judged by the invariant monitor. One file per theme.

mod bad_objects;
mod choices;
mod claimants;
mod claims;
mod components;
mod crash;
mod csi;
mod drains;
mod duel;
mod foreign;
mod ice;
mod joining;
mod kmm;
mod labels;
mod outage;
mod pods;
mod queue;
mod reboot;
mod removal;
mod replay;
mod rollout;
mod selector;
mod stage;
mod trace;
