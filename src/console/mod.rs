//! The console: shows pictures, sends intents. It never writes to a cluster and knows nothing of clients.
//!
//! `update(&mut Model, Msg) -> Vec<Effect>` changes, `view` draws, `run_loop` joins them to the world.

pub mod capture;
pub mod command;
pub mod effect;
mod enabled;
pub mod facts;
pub mod filter;
pub mod format;
pub mod glyphs;
pub mod hint;
mod host;
pub mod keymap;
pub mod layout;
pub mod messages;
pub mod model;
pub mod msg;
pub mod operate;
pub mod overlays;
pub mod plan;
pub mod rows;
pub mod run_loop;
pub mod screens;
mod stray;
pub mod terminal;
pub mod theme;
pub mod update;
pub mod view;
pub mod widgets;
pub mod write_log;

use std::{io, path::PathBuf};

use crossterm::event::EventStream;
use tokio::sync::{mpsc, watch};

pub use effect::ExitReason;
use keymap::{Keymap, KeymapError};
use model::{Model, Setup};
pub use run_loop::IntentRequest;
use run_loop::{Sources, run_loop};
use theme::{Theme, ThemeName};
use write_log::WriteStream;

use crate::engine::picture::Picture;

/// All that the console needs. It holds no client: what it wants done it asks of the engine.
pub struct ConsoleOptions {
    /// The latest picture; the console is the only receiver.
    pub pictures: watch::Receiver<Picture>,
    pub intents: mpsc::Sender<IntentRequest>,
    /// Every API write of this process; see [`write_log::follow`].
    pub writes: WriteStream,
    /// Refuses every command that writes; the engine refuses them too.
    pub read_only: bool,
    pub theme: ThemeName,
    /// Draw with ASCII only; None: as the locale says.
    pub ascii: Option<bool>,
    pub mouse: bool,
    /// Show in the first line which key to press next.
    pub demo: bool,
    /// Seconds of the cluster's time per second: 1, but for a simulation.
    pub speed: f64,
    /// A keymap file over the built-in one. None: the user's, if there is one.
    pub keymap: Option<PathBuf>,
    /// What handing over would do.
    pub planner: plan::Planner,
    /// Said in the status line at the start, and kept among the messages.
    pub notice: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum ConsoleError {
    #[error("stdin and stdout are no terminal, and the console needs one: use `lockkeeper status` for a table")]
    NoTerminal,
    #[error("the terminal failed: {0}")]
    Terminal(#[from] io::Error),
    #[error("{0}")]
    Keymap(#[from] KeymapError),
}

impl ConsoleError {
    /// The process's exit code: all of these are the environment's.
    pub fn exit_code(&self) -> u8 {
        2
    }
}

/// `$XDG_CONFIG_HOME/lockkeeper/keymap.toml`, else under `~/.config`. Only ever read.
pub fn keymap_file() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let config = set("XDG_CONFIG_HOME").or_else(|| set("HOME").map(|home| home.join(".config")))?;
    Some(config.join("lockkeeper").join("keymap.toml"))
}

/// Runs the console until a person or a signal ends it. Needs a runtime with time and I/O.
///
/// # Errors
/// Without a terminal, with a keymap file that has a mistake, or when the terminal fails.
pub async fn run(options: ConsoleOptions) -> Result<ExitReason, ConsoleError> {
    // What can fail for reasons of the environment fails before the screen changes.
    let keymap = match &options.keymap {
        Some(path) => Keymap::with_overrides(path)?,
        None => match keymap_file().filter(|path| path.exists()) {
            Some(path) => Keymap::with_overrides(&path)?,
            None => Keymap::default(),
        },
    };
    if !terminal::is_there() {
        return Err(ConsoleError::NoTerminal);
    }
    let var = |name: &str| std::env::var(name).ok();
    let glyphs = match options.ascii {
        Some(true) => &glyphs::ASCII,
        Some(false) => &glyphs::UNICODE,
        None => glyphs::for_locale(var),
    };
    let no_color = var("NO_COLOR").is_some_and(|value| !value.is_empty());
    let first = options.pictures.borrow().clone();
    let mut model = Model::new(Setup {
        picture: first,
        speed: options.speed,
        read_only: options.read_only,
        demo: options.demo,
        theme: Theme::new(options.theme, no_color),
        glyphs,
        keymap,
        planner: options.planner,
        size: crossterm::terminal::size().unwrap_or((80, 24)),
    });
    if let Some(notice) = options.notice {
        model.messages.push(std::time::Duration::ZERO, messages::Level::Info, notice);
    }
    let signals = host::signals()?;
    terminal::hook_panics();
    let guard = terminal::Guard::take(options.mouse)?;
    let mut console = terminal::console()?;
    let mut process = host::Process { dumps: std::env::current_dir().unwrap_or_default(), dumped: 0 };
    let sources = Sources {
        input: EventStream::new(),
        signals,
        pictures: options.pictures,
        writes: options.writes,
        intents: options.intents,
    };
    let ended = run_loop(&mut console, &mut model, &mut process, sources).await;
    drop(guard);
    // What could not be written over the screen.
    for text in stray::told() {
        eprintln!("lockkeeper: written to standard error meanwhile: {text}");
    }
    for text in terminal::panics() {
        eprintln!("lockkeeper: a part of the process has died: {text}");
    }
    Ok(ended?)
}
