//! The terminal: taken and given back, by whatever way the process leaves. What is drawn is not its business.

use std::{
    io::{self, IsTerminal, Write},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use crossterm::{
    cursor::{Hide, Show},
    event::{DisableBracketedPaste, DisableMouseCapture, EnableBracketedPaste, EnableMouseCapture},
    execute,
    terminal::{
        BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen,
        disable_raw_mode, enable_raw_mode,
    },
};
use ratatui::{Terminal, backend::CrosstermBackend};

use super::stray;

/// Set while the screen is ours; whoever clears it restores.
static TAKEN: AtomicBool = AtomicBool::new(false);
static MOUSE: AtomicBool = AtomicBool::new(false);

/// Holds the terminal; dropping it restores. Made before the first mode is changed, so that a set-up that fails half-way is undone too.
pub struct Guard(());

impl Guard {
    /// Takes raw mode and the alternate screen.
    pub fn take(mouse: bool) -> io::Result<Self> {
        MOUSE.store(mouse, Ordering::SeqCst);
        TAKEN.store(true, Ordering::SeqCst);
        let guard = Self(());
        enter()?;
        Ok(guard)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        restore();
    }
}

fn enter() -> io::Result<()> {
    stray::take();
    enable_raw_mode()?;
    let mut out = io::stdout();
    execute!(out, EnterAlternateScreen, EnableBracketedPaste, Clear(ClearType::All), Hide)?;
    if MOUSE.load(Ordering::SeqCst) {
        execute!(out, EnableMouseCapture)?;
    }
    Ok(())
}

/// Gives the terminal back: the one way out for return, error, panic, signal and suspension. Doing it twice does nothing.
pub fn restore() {
    if !TAKEN.swap(false, Ordering::SeqCst) {
        return;
    }
    let mut out = io::stdout();
    // Each on its own: one that fails must not keep the others from being undone.
    if MOUSE.load(Ordering::SeqCst) {
        let _ = execute!(out, DisableMouseCapture);
    }
    let _ = execute!(out, EndSynchronizedUpdate);
    let _ = execute!(out, DisableBracketedPaste);
    let _ = execute!(out, LeaveAlternateScreen);
    let _ = execute!(out, Show);
    let _ = disable_raw_mode();
    let _ = out.flush();
    stray::give_back();
    // Reports already on their way would be typed into the shell.
    let _ = rustix::termios::tcflush(io::stdin(), rustix::termios::QueueSelector::IFlush);
}

/// Panics of other threads while the screen is ours.
static ELSEWHERE: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// A panic of this thread restores before it is reported, so that the report can be read. One of another thread must neither
/// take the screen away nor write over it: it is kept for [`panics`].
pub fn hook_panics() {
    let ours = std::thread::current().id();
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if std::thread::current().id() != ours && TAKEN.load(Ordering::SeqCst) {
            tracing::error!("{info}");
            ELSEWHERE.lock().unwrap_or_else(PoisonError::into_inner).push(info.to_string());
            return;
        }
        restore();
        before(info);
    }));
}

/// What other threads said when they panicked.
pub fn panics() -> Vec<String> {
    ELSEWHERE.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Whether there is a terminal to draw on and to read keys from.
pub fn is_there() -> bool {
    io::stdout().is_terminal() && io::stdin().is_terminal()
}

/// Leaves the screen and stops the whole process group (a parent shell waits for all of it), until it is continued.
pub fn suspend() -> io::Result<()> {
    restore();
    let stopped = rustix::process::kill_current_process_group(rustix::process::Signal::STOP);
    // Here we are again. A shell may not have given us the terminal yet.
    resume()?;
    stopped.map_err(io::Error::from)
}

/// Takes the screen again after suspension.
pub fn resume() -> io::Result<()> {
    let mut last = Ok(());
    for _ in 0..10 {
        TAKEN.store(true, Ordering::SeqCst);
        // A shell that saw us stopped has set the terminal its own way, which crossterm does not know: it would not set it again.
        // In the background this stops us until we are in the foreground, and that is right.
        let _ = disable_raw_mode();
        last = enter();
        if last.is_ok() {
            return last;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    last
}

pub type Console = Terminal<CrosstermBackend<io::Stdout>>;

pub fn console() -> io::Result<Console> {
    Terminal::new(CrosstermBackend::new(io::stdout()))
}

/// A frame appears as a whole where the terminal knows mode 2026; elsewhere this is ignored.
pub fn synchronized<T>(draw: impl FnOnce() -> T) -> T {
    let mut out = io::stdout();
    let _ = execute!(out, BeginSynchronizedUpdate);
    let result = draw();
    let _ = execute!(out, EndSynchronizedUpdate);
    result
}
