//! Stories of a followed Module, phase by phase.
