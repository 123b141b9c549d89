//! The program's start and end: arguments in, exit code out. What it does is in the library.

use std::process::ExitCode;

use clap::Parser;
use lockkeeper::cli::{Cli, run};

fn main() -> ExitCode {
    run(Cli::parse())
}
