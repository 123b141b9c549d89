//! The simulated operator against the recorded one: each story played again, and what was written compared.

mod described;
mod stage;
mod stories;
mod told;
