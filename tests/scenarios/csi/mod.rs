//! CSI nodeplugins replaced one node at a time. Table of contents; `shop` is where all of them begin.

mod mounts;
mod refused;
mod shop;
mod upgrades;
