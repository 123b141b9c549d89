//! Pure: phases, decide tables, preflight, interlock, budget, queue. Decisions are functions of facts, policy and time.

pub mod action;
mod again;
mod answers;
pub mod attempt;
pub mod budget;
pub mod by_hand;
pub mod component;
pub mod cordon;
pub mod csi_node_plugin;
pub mod decide;
pub mod decisions;
pub mod ending;
pub mod evict;
pub mod facts;
pub mod in_use;
pub mod interlock;
pub mod kernel_module;
pub mod kmm_module;
pub mod lease;
pub mod named;
pub mod notes;
pub mod observed;
pub mod offer;
pub mod patch;
pub mod phases;
pub mod plan;
mod pod_state;
pub mod preflight;
pub mod queue;
pub mod rollout;
mod shared_phases;
pub mod start;
pub mod tally;
pub mod transition;
pub mod unload_pod;
mod unload_record;
pub mod verdict;
pub mod versions;
pub mod windows;

#[cfg(test)]
pub(crate) mod tests;
