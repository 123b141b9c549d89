//! The stories, by controller. Each is told to the simulated actors and to the real controllers.

mod budgets;
mod daemon_sets;
mod daemon_sets_on_nodes;
mod garbage;
mod replicas;
mod scheduling;

use super::story::Story;

pub fn all() -> Vec<Story> {
    [daemon_sets::all(), daemon_sets_on_nodes::all(), replicas::all(), budgets::all(), garbage::all(), scheduling::all()].concat()
}
