//! Pure: phases, decide tables, preflight, interlock, budget, queue. Decisions are functions of facts, policy and time.

pub mod action;
pub mod verdict;
pub mod versions;
pub mod windows;
