//! Tests on a real Kubernetes control plane. Table of contents; `support::controlplane` starts it.

#[path = "../support/mod.rs"]
mod support;

mod actors;
mod apply;
mod budgets;
mod by_hand;
mod claims;
mod credentials;
mod csi;
mod duel;
mod fleet;
mod installed;
mod kmm;
mod kubectl;
mod labels;
mod launcher;
mod likeness;
mod outage;
mod policy;
mod queue;
mod read_only;
mod reboot;
mod reconciler;
mod restart;
mod rights;
mod rim;
mod roles;
mod rules;
mod samples;
mod selector;
mod site;
mod versions;
mod wait;
