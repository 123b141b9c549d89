//! `lockkeeper demo`: its options. What happens is `sim`'s.

use clap::{Args, ValueEnum};

use super::{Exit, Failure, Global};

#[derive(Debug, Clone, Args)]
pub struct Demo {
    /// What is to happen
    #[arg(long, default_value = "kernel-module", value_name = "NAME")]
    pub scenario: String,
    /// Without the console, as fast as it goes; the default without a terminal
    #[arg(long)]
    pub headless: bool,
    /// The same seed gives the same run, event by event
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
    /// How badly the API server behaves
    #[arg(long, value_enum, default_value_t = Faults::None)]
    pub faults: Faults,
    /// What other tools do on the same fleet, to compare with
    #[arg(long, value_enum)]
    pub baseline: Option<Baseline>,
    /// Simulated seconds that pass in one second [default: one handoff in about 20 seconds]
    #[arg(long, value_name = "FACTOR", value_parser = speed)]
    pub speed: Option<f64>,
    /// How many nodes [default: the scenario's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub nodes: Option<u32>,
    /// How a headless run reports
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    pub output: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Faults {
    None,
    Flaky,
    Hostile,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Baseline {
    /// A plain rolling update of the DaemonSets
    RollingUpdate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Text,
    Json,
}

fn speed(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(speed) if speed.is_finite() && (0.01..=10_000.0).contains(&speed) => Ok(speed),
        _ => Err("want a number from 0.01 to 10000".to_owned()),
    }
}

pub fn run(_demo: &Demo, _global: &Global) -> Result<Exit, Failure> {
    Err(Failure::environment("the simulated cluster is not there yet"))
}
