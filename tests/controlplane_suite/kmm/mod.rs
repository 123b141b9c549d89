//! Modules of KMM under the real API server, controllers and scheduler, KMM's operator played. Table of contents.

mod operator;
mod restart;
mod suite;
