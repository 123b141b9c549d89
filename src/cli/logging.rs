//! Where log lines go: JSON on standard error for `reconcile`, a file for the console, nowhere for the other commands.

use std::{env, fs, path::PathBuf};

use tracing_appender::non_blocking::WorkerGuard;
use tracing_subscriber::EnvFilter;

/// What is logged unless RUST_LOG says otherwise.
const DEFAULT: &str = "info,kube=warn,hyper=warn,tower=warn,rustls=warn";

fn filter() -> EnvFilter {
    EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(DEFAULT))
}

/// One JSON object a line on standard error.
pub fn to_stderr() {
    // A second call has no effect; nobody makes one.
    let _ =
        tracing_subscriber::fmt().json().flatten_event(true).with_env_filter(filter()).with_writer(std::io::stderr).try_init();
}

/// Lines in a file that is begun anew each day, seven of them kept. The terminal belongs to the console. Hold the guard until the end.
///
/// # Errors
/// The folder cannot be made: the text says which one. The console then runs without a log.
pub fn to_file() -> Result<WorkerGuard, String> {
    let folder = folder().ok_or("neither XDG_STATE_HOME nor HOME is set, so there is no place for a log file")?;
    fs::create_dir_all(&folder).map_err(|error| format!("cannot make the log folder {}: {error}", folder.display()))?;
    let file = tracing_appender::rolling::Builder::new()
        .rotation(tracing_appender::rolling::Rotation::DAILY)
        .filename_prefix("lockkeeper")
        .filename_suffix("log")
        .max_log_files(7)
        .build(&folder)
        .map_err(|error| format!("cannot write a log file in {}: {error}", folder.display()))?;
    let (writer, guard) = tracing_appender::non_blocking(file);
    let _ = tracing_subscriber::fmt().with_ansi(false).with_env_filter(filter()).with_writer(writer).try_init();
    Ok(guard)
}

/// `$XDG_STATE_HOME/lockkeeper`, or `~/.local/state/lockkeeper`.
pub fn folder() -> Option<PathBuf> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let state = set("XDG_STATE_HOME").filter(|path| path.is_absolute()).or_else(|| Some(set("HOME")?.join(".local/state")))?;
    Some(state.join("lockkeeper"))
}
