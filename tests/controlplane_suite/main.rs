//! Tests on a real Kubernetes control plane. Table of contents; `support::controlplane` starts it.

#[path = "../support/mod.rs"]
mod support;

mod actors;
mod apply;
mod budgets;
mod by_hand;
mod fleet;
mod installed;
mod kubectl;
mod labels;
mod launcher;
mod likeness;
mod policy;
mod queue;
mod read_only;
mod restart;
mod rim;
mod roles;
mod rules;
mod samples;
mod site;
mod versions;
mod wait;
