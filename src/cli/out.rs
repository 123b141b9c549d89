//! Standard output. A reader that went away (`| head`) ends a command quietly; any other trouble is a failure.

use std::io::{self, ErrorKind, IsTerminal, Write};

use super::{Exit, Failure};

/// Print the whole text, and be done.
pub fn print(text: &str) -> Result<Exit, Failure> {
    Out::stdout().text(text).map(|_| Exit::Done)
}

/// Where a command's result goes.
pub struct Out {
    to: Box<dyn Write>,
    terminal: bool,
}

/// Whether anybody still reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    There,
    Gone,
}

impl Out {
    pub fn stdout() -> Self {
        let stdout = io::stdout();
        Self { terminal: stdout.is_terminal(), to: Box::new(stdout) }
    }

    /// People look at it while it is written.
    pub fn is_terminal(&self) -> bool {
        self.terminal
    }

    pub fn text(&mut self, text: &str) -> Result<Reader, Failure> {
        match self.to.write_all(text.as_bytes()).and_then(|()| self.to.flush()) {
            Ok(()) => Ok(Reader::There),
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(Reader::Gone),
            Err(error) => Err(Failure::environment(format!("cannot write to standard output: {error}"))),
        }
    }

    pub fn line(&mut self, line: &str) -> Result<Reader, Failure> {
        self.text(&format!("{line}\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Pipe(ErrorKind);

    impl Write for Pipe {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_went_away_is_no_failure_a_full_disk_is() {
        let out = |kind| Out { to: Box::new(Pipe(kind)), terminal: false }.line("x");
        assert_eq!(out(ErrorKind::BrokenPipe), Ok(Reader::Gone));
        assert!(out(ErrorKind::StorageFull).is_err());
    }
}
