//! Tests on a real Kubernetes control plane. Table of contents; `support::controlplane` starts it.

#[path = "../support/mod.rs"]
mod support;

mod by_hand;
mod launcher;
mod wait;
