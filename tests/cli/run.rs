//! Running the program with nothing of this machine's own configuration.

use std::{
    path::Path,
    process::{Command, Output},
};

/// What a run left behind.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// The program, in an empty home.
pub fn command(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockkeeper"));
    command.env_clear().env("HOME", home).env("PATH", "").env("COLUMNS", "100").current_dir(home);
    command
}

pub fn run(home: &Path, args: &[&str]) -> Ran {
    ran(command(home).args(args).output().expect("the program starts"))
}

pub fn ran(output: Output) -> Ran {
    Ran {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).expect("text"),
        stderr: String::from_utf8(output.stderr).expect("text"),
    }
}
