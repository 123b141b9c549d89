//! Stories on the simulated cluster: the whole engine, actors and people, judged by the invariant monitor. One file per theme.

mod crash;
mod drains;
mod labels;
mod queue;
mod stage;
