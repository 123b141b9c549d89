//! Tests of `eviction`.
