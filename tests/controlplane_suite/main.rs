//! Tests on a real Kubernetes control plane. Table of contents; `support::controlplane` starts it.

#[path = "../support/mod.rs"]
mod support;

mod apply;
mod by_hand;
mod installed;
mod launcher;
mod likeness;
mod policy;
mod rim;
mod roles;
mod rules;
mod samples;
mod wait;
