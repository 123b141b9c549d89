//! The process around the loop: the real terminal, signals, clipboard and dump files.

use std::{io, path::PathBuf};

use crossterm::{clipboard::CopyToClipboard, execute};
use futures::{Stream, stream};
use ratatui::buffer::Buffer;
use tokio::signal::unix::{SignalKind, signal};

use super::{
    capture,
    run_loop::{Host, Signal},
    terminal,
};

/// What a terminal takes over OSC 52: longer ones are cut or ignored by many.
const CLIPBOARD: usize = 74_994;

pub struct Process {
    /// Where frames are written.
    pub dumps: PathBuf,
    pub dumped: u32,
}

impl Host for Process {
    fn suspend(&mut self) -> io::Result<()> {
        terminal::suspend()
    }

    fn resume(&mut self) -> io::Result<()> {
        terminal::resume()
    }

    fn copy(&mut self, text: &str) -> io::Result<()> {
        if text.len() > CLIPBOARD {
            return Err(io::Error::other(format!("{} bytes are too many for the terminal's clipboard", text.len())));
        }
        execute!(io::stdout(), CopyToClipboard::to_clipboard_from(text))
    }

    fn dump(&mut self, frame: &Buffer) -> io::Result<String> {
        self.dumped += 1;
        let base = self.dumps.join(format!("lockkeeper-{}-{}", std::process::id(), self.dumped));
        for (extension, text) in [("txt", capture::text(frame)), ("ansi", capture::ansi(frame)), ("svg", capture::svg(frame))] {
            std::fs::write(base.with_extension(extension), text)?;
        }
        Ok(format!("{}.txt, .ansi, .svg", base.display()))
    }

    fn trouble(&self) -> Vec<String> {
        terminal::panics()
    }

    fn frame(&mut self, draw: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        terminal::synchronized(draw)
    }
}

/// The signals that concern a console, first come first served.
pub fn signals() -> io::Result<impl Stream<Item = Signal> + Unpin> {
    let kinds = [
        (SignalKind::terminate(), Signal::End),
        (SignalKind::hangup(), Signal::End),
        (SignalKind::interrupt(), Signal::End),
        (SignalKind::quit(), Signal::End),
        (SignalKind::from_raw(rustix::process::Signal::TSTP.as_raw()), Signal::Stop),
        (SignalKind::from_raw(rustix::process::Signal::CONT.as_raw()), Signal::Continue),
    ];
    let mut streams = Vec::new();
    for (kind, meaning) in kinds {
        let received = signal(kind)?;
        streams.push(Box::pin(stream::unfold(received, move |mut received| async move {
            received.recv().await.map(|()| (meaning, received))
        })));
    }
    Ok(stream::select_all(streams))
}
