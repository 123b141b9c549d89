//! Stories on the simulated cluster: the whole engine, actors and people, judged by the invariant monitor. One file per theme.

mod crash;
mod drains;
mod duel;
mod ice;
mod labels;
mod outage;
mod queue;
mod stage;
