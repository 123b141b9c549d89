//! The reader of KMM against its rules and against what was recorded of a real one.

mod decode;
mod keys;
mod ladder;
mod replay;
mod states;
pub(crate) mod story;
pub(crate) mod world;
