//! The console on a real cluster: what it shows comes from an engine of this process, what it wants done goes to that engine.

use super::{Exit, Failure, Global, connect, logging};
use crate::{
    console::{self, ConsoleOptions, theme::ThemeName, write_log},
    engine::{Engine, EngineOptions, picture::Mode},
};

/// Connects before the screen changes: a credential plugin may still ask, and errors are lines on standard error.
pub async fn run(global: &Global) -> Result<Exit, Failure> {
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
    let mode = if global.read_only { Mode::ReadOnly } else { Mode::Intents };
    let engine = Engine::start(cluster.clone(), EngineOptions { mode, ..EngineOptions::default() });
    let ended = console::run(ConsoleOptions {
        pictures: engine.pictures(),
        intents: engine.requests(),
        writes: write_log::follow(
            cluster.log().clone(),
            |log, read| async move { log.grown(read).await },
            |log, read| log.since(read),
        ),
        read_only: global.read_only,
        theme: ThemeName::default(),
        ascii: None,
        mouse: false,
        demo: false,
        speed: 1.0,
        keymap: None,
        planner: console::model::default_planner(),
    })
    .await;
    engine.stop().await;
    match ended {
        Ok(_) => Ok(Exit::Done),
        Err(error) => Err(Failure::environment(error.to_string())),
    }
}
