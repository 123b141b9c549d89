//! The fleet as a whole: stories told with builders.

mod components;
mod node_labels;
mod occupancy;
mod projection;
