//! The command line: arguments, one file per subcommand, exit codes. What a command finds out is decided elsewhere.

mod ask;
mod connect;
mod console;
pub mod demo;
mod doctor;
mod exit;
mod handoff;
mod logging;
mod look;
pub mod manifests;
mod out;
mod pictures;
pub(crate) mod plan;
mod reconcile;
pub mod render;
mod serve;
mod session;
mod shell;
mod status;
mod steer;
pub mod text;

use std::{io::Write, path::PathBuf, process::ExitCode};

use clap::{Args, Parser, Subcommand};

pub use exit::{Exit, Failure};
use steer::{Abort, Again};

use crate::{api::ComponentKey, engine::intent::Intent};

/// Upgrades what is coupled to a node's kernel or hardware, node by node, safely and visibly.
///
/// Without a subcommand it opens the console on the cluster of the current kubeconfig context.
#[derive(Debug, Parser)]
#[command(
    name = "lockkeeper",
    version,
    max_term_width = 100,
    after_help = "Exit codes: 0 done, 1 not all done, 2 usage or environment, 3 refused by preflight."
)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(flatten)]
    pub console: console::Options,
    #[command(subcommand)]
    pub command: Option<Command>,
}

const HEADING: &str = "Options of every command";

/// Options of every command, named as kubectl names them.
#[derive(Debug, Clone, Default, Args)]
pub struct Global {
    /// The kubeconfig context to use instead of the current one
    #[arg(long, global = true, help_heading = HEADING, value_name = "NAME")]
    pub context: Option<String>,
    /// The kubeconfig file to use instead of KUBECONFIG and ~/.kube/config
    #[arg(long, global = true, help_heading = HEADING, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Namespace of a COMPONENT that is given without one
    #[arg(short, long, global = true, help_heading = HEADING, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// Send nothing that changes anything
    #[arg(long, global = true, help_heading = HEADING)]
    pub read_only: bool,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Try it all on a simulated cluster inside this process
    Demo(demo::Demo),
    /// Show components, nodes, phases and what each waits for
    Status(status::Status),
    /// Show exactly what a handoff would do; exit code 3 when it would be refused
    Plan(plan::Plan),
    /// Hand nodes over to another version, one after the other, in this order
    Handoff(handoff::Handoff),
    /// Stop a handoff; the node is restored as far as it can be
    Abort(steer::Abort),
    /// Try a Failed or Aborted handoff again, or resume an aborted one that waits for a choice
    Retry(steer::Again),
    /// Hand over to the version that the node came from
    Rollback(steer::Again),
    /// Leave a node as a failed or aborted handoff left it: its cordon is yours, its slot is free
    Leave(steer::Steer),
    /// Stop after the phase that runs, and wait
    Hold(steer::Steer),
    /// Go on after a hold or a pause
    Continue(steer::Steer),
    /// Take a queued handoff back
    Withdraw(steer::Steer),
    /// Run the engine without a person at it: watch, and act while holding the Lease
    Reconcile(reconcile::Reconcile),
    /// Look whether the cluster, its objects and your permissions are what lockkeeper needs
    Doctor(doctor::Doctor),
    /// Print CRDs, RBAC, admission policies and the deployment as YAML
    Manifests(manifests::Manifests),
    /// Print a shell's completion script
    Completions(shell::Completions),
    /// Print the manual page
    Man,
}

/// Run it, and say on standard error what went wrong.
pub fn run(cli: Cli) -> ExitCode {
    match dispatch(cli) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            // Nobody may be there to read it either.
            let _ = writeln!(std::io::stderr(), "lockkeeper: {}", text::plain_lines(&failure.to_string()));
            failure.exit().into()
        }
    }
}

fn dispatch(cli: Cli) -> Result<Exit, Failure> {
    let global = cli.global;
    if let (Some(_), Some(flag)) = (&cli.command, cli.console.given()) {
        return Err(Failure::usage(format!(
            "{flag} is for the console: `lockkeeper {flag}` without a subcommand{}",
            if flag == "--engine" { "" } else { ", or after `demo`" }
        )));
    }
    match cli.command {
        None => on_threads(console::run(&cli.console, &global)),
        Some(Command::Demo(demo)) => demo::run(&demo, &global),
        Some(Command::Status(status)) => on_a_runtime(status::run(status, &global)),
        Some(Command::Plan(plan)) => on_a_runtime(plan::run(plan, &global)),
        Some(Command::Handoff(handoff)) => on_a_runtime(handoff::run(handoff, &global)),
        Some(Command::Abort(Abort { steer, reason })) => {
            let intent = |component, node| Intent::Abort { component, node, reason: reason.clone() };
            on_a_runtime(steer::run(&steer, &global, false, intent))
        }
        Some(Command::Retry(Again { steer, wait })) => {
            on_a_runtime(steer::run(&steer, &global, wait, |component, node| Intent::Retry { component, node }))
        }
        Some(Command::Rollback(Again { steer, wait })) => {
            on_a_runtime(steer::run(&steer, &global, wait, |component, node| Intent::RollBack { component, node }))
        }
        Some(Command::Leave(steer)) => {
            on_a_runtime(steer::run(&steer, &global, false, |component, node| Intent::Leave { component, node }))
        }
        Some(Command::Hold(steer)) => {
            on_a_runtime(steer::run(&steer, &global, false, |component, node| Intent::Hold { component, node }))
        }
        Some(Command::Continue(steer)) => {
            on_a_runtime(steer::run(&steer, &global, false, |component, node| Intent::Continue { component, node }))
        }
        Some(Command::Withdraw(steer)) => {
            on_a_runtime(steer::run(&steer, &global, false, |component, node| Intent::Withdraw { component, node }))
        }
        Some(Command::Reconcile(wanted)) => reconcile::run(&wanted, &global),
        Some(Command::Doctor(doctor)) => on_a_runtime(doctor::run(doctor, &global)),
        Some(Command::Manifests(wanted)) => {
            let text = manifests::render(&wanted, global.namespace.as_deref())
                .map_err(|error| Failure::environment(format!("cannot write the manifests as YAML: {error}")))?;
            out::print(&text)
        }
        Some(Command::Completions(wanted)) => shell::completions(&wanted),
        Some(Command::Man) => shell::man(),
    }
}

/// One thread is enough for a command that mostly waits.
fn on_a_runtime(work: impl Future<Output = Result<Exit, Failure>>) -> Result<Exit, Failure> {
    run_on(tokio::runtime::Builder::new_current_thread(), work)
}

/// Decoding a large cluster's pods must hold up neither a renewal of the Lease nor a key.
fn on_threads(work: impl Future<Output = Result<Exit, Failure>>) -> Result<Exit, Failure> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2);
    run_on(builder, work)
}

fn run_on(mut builder: tokio::runtime::Builder, work: impl Future<Output = Result<Exit, Failure>>) -> Result<Exit, Failure> {
    builder
        .enable_all()
        .build()
        .map_err(|error| Failure::environment(format!("cannot start the asynchronous runtime: {error}")))?
        .block_on(work)
}

/// COMPONENT: `name`, or `namespace/name`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComponentName {
    namespace: Option<String>,
    name: String,
}

impl ComponentName {
    /// With the namespace of `-n`, or else of the kubeconfig context.
    pub fn key(&self, global: &Global, default: &str) -> ComponentKey {
        let namespace = self.namespace.as_deref().or(global.namespace.as_deref()).unwrap_or(default);
        ComponentKey::new(namespace, self.name.as_str())
    }
}

impl std::str::FromStr for ComponentName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (namespace, name) = match text.split_once('/') {
            Some((namespace, name)) => (Some(namespace.to_owned()), name),
            None => (None, text),
        };
        let legal = |word: &str| {
            !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.'))
        };
        if !legal(name) || !namespace.as_deref().is_none_or(legal) {
            return Err("want NAME or NAMESPACE/NAME of a NodeComponent, in lower case".to_owned());
        }
        Ok(Self { namespace, name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_arguments_do_not_contradict_one_another() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_component_takes_its_own_namespace_first() {
        let global = Global { namespace: Some("flag".into()), ..Global::default() };
        let key = |text: &str, global: &Global| text.parse::<ComponentName>().unwrap().key(global, "context").to_string();
        assert_eq!(key("own/gpu", &global), "own/gpu");
        assert_eq!(key("gpu", &global), "flag/gpu");
        assert_eq!(key("gpu", &Global::default()), "context/gpu");
        for wrong in ["", "/", "a/", "/b", "a/b/c", "GPU", "a b"] {
            assert!(wrong.parse::<ComponentName>().is_err(), "{wrong}");
        }
    }
}
