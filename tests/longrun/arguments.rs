//! The command line of the long run. What `cargo test` hands to every test binary (a filter, `--nocapture`) is understood as libtest would.

use std::{ffi::OsString, ops::Range, process::ExitCode};

use clap::Parser;
use lockkeeper::sim::{demo::Scenario, world::Profile};

/// Many simulated handoffs: seeds over scenarios and fault profiles, on all cores.
#[derive(Debug, Parser)]
#[command(
    name = "longrun",
    about,
    after_help = "Exit code: 0 all is well, 1 a seed failed (its replay command is printed), 2 wrong arguments."
)]
pub struct Arguments {
    /// Go on with further seeds until so many handoffs are done
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub handoffs: Option<u64>,
    /// Begin no further seed after so many minutes of real time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub minutes: Option<u64>,
    /// Only these seeds, the last one not included
    #[arg(long, value_name = "A..B", value_parser = seeds)]
    pub seeds: Option<Seeds>,
    /// Fault profiles, one per seed in turn
    #[arg(long, value_enum, value_delimiter = ',', default_value = "none,flaky,hostile")]
    pub faults: Vec<Profile>,
    /// Scenarios, one per seed in turn
    #[arg(long, value_enum, value_delimiter = ',', default_value = "kernel-module")]
    pub scenario: Vec<Scenario>,
    /// Versions that each fleet is taken to, one after the other; drawn from the seed if not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: Option<u32>,
    /// Fleets at the same time; by default as many as there are cores
    #[arg(long, value_name = "N", value_parser = jobs, default_value_t = cores())]
    pub jobs: usize,
    /// The first seed when none are given
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "seeds")]
    pub from: u64,
    /// Tell what happened to nodes, handoffs and claimants, write by write
    #[arg(long)]
    pub tell: bool,
    #[command(flatten)]
    libtest: Libtest,
}

/// Accepted, so that `cargo test NAME -- --nocapture` goes through all test binaries.
#[derive(Debug, clap::Args)]
struct Libtest {
    #[arg(hide = true)]
    filters: Vec<String>,
    #[arg(long, hide = true)]
    list: bool,
    #[arg(long, hide = true)]
    exact: bool,
    #[arg(long, hide = true)]
    nocapture: bool,
    #[arg(long, hide = true)]
    ignored: bool,
    #[arg(long, hide = true)]
    include_ignored: bool,
    #[arg(short, long, hide = true)]
    quiet: bool,
    #[arg(long, hide = true)]
    skip: Vec<String>,
    #[arg(long, hide = true)]
    test_threads: Option<usize>,
    #[arg(long, hide = true)]
    format: Option<String>,
}

/// A half-open range of seeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seeds {
    pub start: u64,
    pub end: u64,
}

fn seeds(text: &str) -> Result<Seeds, String> {
    let number = |part: &str| part.trim().parse::<u64>().map_err(|_| format!("{part:?} is no seed"));
    let (start, end) = text.split_once("..").ok_or("seeds are given as A..B")?;
    let Range { start, end } = number(start)?..number(end)?;
    if start >= end {
        return Err(format!("{text} holds no seed: the end is not included"));
    }
    Ok(Seeds { start, end })
}

fn jobs(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(jobs @ 1..=256) => Ok(jobs),
        _ => Err("between 1 and 256".into()),
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from)
}

/// What plain `cargo test` does: each fault profile once or twice, one new version each.
const QUICK: Seeds = Seeds { start: 1, end: 5 };

impl Arguments {
    /// # Errors
    /// There is nothing to run: the help was asked for, the filter names something else (code 0), or the arguments are wrong (2).
    pub fn read(given: impl IntoIterator<Item = OsString>) -> Result<Self, ExitCode> {
        let mut arguments = Self::try_parse_from(given).map_err(|error| {
            let _ = error.print();
            if error.use_stderr() { ExitCode::from(2) } else { ExitCode::SUCCESS }
        })?;
        let libtest = &arguments.libtest;
        if libtest.list {
            println!("longrun: test");
            return Err(ExitCode::SUCCESS);
        }
        let wanted = libtest.filters.is_empty() || libtest.filters.iter().any(|filter| "longrun".contains(filter.as_str()));
        let skipped = libtest.skip.iter().any(|filter| "longrun".contains(filter.as_str()));
        if !wanted || skipped || libtest.ignored {
            return Err(ExitCode::SUCCESS);
        }
        if arguments.handoffs.is_none() && arguments.seeds.is_none() && arguments.minutes.is_none() {
            arguments.seeds = Some(QUICK);
            arguments.rounds = arguments.rounds.or(Some(1));
        }
        Ok(arguments)
    }

    pub fn first_seed(&self) -> u64 {
        self.seeds.map_or(self.from, |seeds| seeds.start)
    }
}
