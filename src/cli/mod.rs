//! The command line: arguments, one file per subcommand, exit codes. What a command finds out is decided elsewhere.

mod connect;
pub mod demo;
mod doctor;
mod exit;
mod logging;
pub mod manifests;
mod out;
mod shell;
pub mod text;

use std::{io::Write, path::PathBuf, process::ExitCode};

use clap::{Args, Parser, Subcommand};

pub use exit::{Exit, Failure};

use crate::api::ComponentKey;

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
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// Options of every command, named as kubectl names them.
#[derive(Debug, Clone, Default, Args)]
pub struct Global {
    /// The kubeconfig context to use instead of the current one
    #[arg(long, global = true, value_name = "NAME")]
    pub context: Option<String>,
    /// The kubeconfig file to use instead of KUBECONFIG and ~/.kube/config
    #[arg(long, global = true, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Namespace of a COMPONENT that is given without one
    #[arg(short, long, global = true, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// Send nothing that changes anything
    #[arg(long, global = true)]
    pub read_only: bool,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Try it all on a simulated cluster inside this process
    Demo(demo::Demo),
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
    match cli.command {
        None => Err(Failure::usage("the console is not there yet; see `lockkeeper help`")),
        Some(Command::Demo(demo)) => demo::run(&demo, &global),
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
    tokio::runtime::Builder::new_current_thread()
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
