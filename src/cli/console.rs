//! The console on a real cluster: what it shows comes from an engine of this process, what it wants done goes to that engine.

use clap::Args;

use super::{Exit, Failure, Global, connect, logging, look::Look, reconcile};
use crate::{
    cluster::Cluster,
    console::{self, ConsoleOptions, write_log},
    engine::{Engine, EngineOptions, picture::Mode, probes::Probes},
};

/// Options of `lockkeeper` without a subcommand.
#[derive(Debug, Clone, Default, Args)]
pub struct Options {
    /// Run the engine in this console: take the Lease when it is free, if you are allowed every verb of the engine
    #[arg(long, help_heading = "Options of the console", conflicts_with = "read_only")]
    pub engine: bool,
    #[command(flatten)]
    pub look: Look,
}

impl Options {
    /// The first flag that is there.
    pub fn given(&self) -> Option<&'static str> {
        self.engine.then_some("--engine").or_else(|| self.look.given())
    }
}

/// Connects before the screen changes: a credential plugin may still ask, and errors are lines on standard error.
pub async fn run(options: &Options, global: &Global) -> Result<Exit, Failure> {
    // Before the cluster is asked for anything.
    if !console::terminal::is_there() {
        return Err(Failure::environment(console::ConsoleError::NoTerminal.to_string()));
    }
    // Without a log the console still works; there is no better place to say why than the line it starts with.
    let log = logging::to_file();
    if let Err(why) = &log {
        eprintln!("lockkeeper: no log file: {why}");
    }
    let connected = connect::connect(global, connect::Terminal::Taken).await?;
    let cluster = connected.cluster;
    let looks = options.look.resolve(connected.context.as_str())?;
    let mode = mode(options, global, &cluster).await?;
    let identity = if mode == Mode::Engine { reconcile::identity(None) } else { EngineOptions::default().identity };
    // Whoever acts tells it as Events, as `reconcile` does.
    let probes = if mode == Mode::Engine { Probes::announcing() } else { Probes::default() };
    let engine = Engine::start(cluster.clone(), EngineOptions { mode, identity, probes, ..EngineOptions::default() });
    let ended = console::run(ConsoleOptions {
        pictures: engine.pictures(),
        intents: engine.requests(),
        writes: write_log::follow(
            cluster.log().clone(),
            |log, read| async move { log.grown(read).await },
            |log, read| log.since(read),
        ),
        read_only: global.read_only,
        theme: looks.theme,
        ascii: looks.ascii,
        mouse: looks.mouse,
        demo: false,
        speed: 1.0,
        keymap: looks.keymap,
        planner: console::model::default_planner(),
        notice: None,
    })
    .await;
    engine.stop().await;
    match ended {
        Ok(_) => Ok(Exit::Done),
        Err(error) => Err(Failure::environment(error.to_string())),
    }
}

/// Whoever asks for the engine and may not run it is told what is missing, and does not find out by waiting.
async fn mode(options: &Options, global: &Global, cluster: &Cluster) -> Result<Mode, Failure> {
    match (options.engine, global.read_only) {
        (false, true) => Ok(Mode::ReadOnly),
        (false, false) => Ok(Mode::Intents),
        (true, true) => Err(Failure::usage("--engine and --read-only contradict one another")),
        (true, false) => match reconcile::allows(cluster).await {
            Ok(()) => Ok(Mode::Engine),
            Err(why) => Err(Failure::environment(format!(
                "--engine: {why}\nWithout --engine the console asks for handoffs, and another engine runs them."
            ))),
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::testing::{Answer, cluster};

    #[tokio::test(start_paused = true)]
    async fn an_engine_that_is_asked_for_runs_or_says_which_verb_is_missing() {
        let ask = async |may_evict: bool, engine: bool, read_only: bool| {
            let (cluster, _) = cluster(read_only, move |asked| {
                let asks = asked.body.pointer("/spec/resourceAttributes");
                if asks.is_none() {
                    let names = ["nodecomponents", "nodecomponents/status", "nodehandoffs", "nodehandoffs/status"];
                    return Answer::Json(200, json!({"resources": names.map(|name| json!({"name": name}))}));
                }
                let evicts = asks.is_some_and(|asks| asks["subresource"] == "eviction");
                Answer::Json(201, json!({"status": {"allowed": may_evict || !evicts}}))
            });
            let global = Global { read_only, ..Global::default() };
            mode(&Options { engine, ..Options::default() }, &global, &cluster).await
        };
        assert_eq!(ask(true, true, false).await, Ok(Mode::Engine));
        assert_eq!(ask(false, false, false).await, Ok(Mode::Intents));
        assert_eq!(ask(true, false, true).await, Ok(Mode::ReadOnly));
        let refused = ask(false, true, false).await.unwrap_err();
        let text = refused.to_string();
        assert!(text.contains("create pods/eviction") && !text.contains("patch nodes") && text.contains("--engine"), "{text}");
        assert_eq!(refused.exit(), Exit::Environment);
    }
}
