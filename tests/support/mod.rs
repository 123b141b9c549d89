//! What several test binaries share. Each includes it with `#[path = "../support/mod.rs"] mod support;`.
#![allow(dead_code, reason = "each test binary uses a part of this")]

pub mod controlplane;
