//! What screens and overlays draw with. Widgets know nothing of clusters.

pub mod badge;
pub mod field;
pub mod gauge;
pub mod pane;
pub mod pen;
pub mod phase_strip;
pub mod scroll;
pub mod table;
