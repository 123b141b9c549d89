//! Standard error while the screen is ours: what a library or a child process writes there would tear the picture. It is kept, goes to the
//! log, and is told once the screen is given back.

use std::{
    collections::VecDeque,
    io::{self, BufRead, BufReader, IsTerminal},
    os::fd::{AsFd, OwnedFd},
    sync::{Mutex, PoisonError},
};

/// Lines told at the end; the log has all of them.
const KEPT: usize = 20;

static SAVED: Mutex<Option<OwnedFd>> = Mutex::new(None);
static LINES: Mutex<VecDeque<String>> = Mutex::new(VecDeque::new());

/// Takes standard error if it goes to the terminal; one that goes to a file tears nothing.
pub fn take() {
    if io::stderr().is_terminal()
        && let Err(error) = divert()
    {
        tracing::warn!(%error, "standard error cannot be kept off the screen");
    }
}

fn divert() -> io::Result<()> {
    let mut saved = SAVED.lock().unwrap_or_else(PoisonError::into_inner);
    if saved.is_some() {
        return Ok(());
    }
    let before = rustix::io::fcntl_dupfd_cloexec(io::stderr().as_fd(), 3)?;
    let (from, to) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    rustix::stdio::dup2_stderr(&to)?;
    *saved = Some(before);
    // It ends when nobody can write there any more. Nobody may ever wait for it.
    std::thread::Builder::new().name("stderr".into()).spawn(move || {
        for line in BufReader::new(std::fs::File::from(from)).split(b'\n').map_while(Result::ok) {
            keep(&String::from_utf8_lossy(&line));
        }
    })?;
    Ok(())
}

fn keep(line: &str) {
    let plain: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    tracing::warn!(target: "stderr", "{plain}");
    let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    if lines.len() == KEPT {
        lines.pop_front();
    }
    lines.push_back(plain);
}

/// Gives it back; doing it twice does nothing.
pub fn give_back() {
    if let Some(before) = SAVED.lock().unwrap_or_else(PoisonError::into_inner).take() {
        let _ = rustix::stdio::dup2_stderr(&before);
    }
}

/// The last lines that were kept off the screen.
pub fn told() -> Vec<String> {
    std::mem::take(&mut *LINES.lock().unwrap_or_else(PoisonError::into_inner)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_meanwhile_is_kept_and_standard_error_comes_back() {
        let device = |fd: &dyn AsFd| rustix::fs::fstat(fd.as_fd()).map(|stat| (stat.st_dev, stat.st_ino)).unwrap();
        let before = device(&io::stderr());
        divert().unwrap();
        divert().unwrap();
        assert_ne!(device(&io::stderr()), before);
        // Past the test harness, as a library in C does it.
        rustix::io::write(io::stderr(), b"a library\x1b[2J says\nmore\n").unwrap();
        give_back();
        give_back();
        assert_eq!(device(&io::stderr()), before);
        // Somebody else may write there too.
        let mut lines = Vec::new();
        let mut tries = 0;
        while !["a library [2J says", "more"].iter().all(|wanted| lines.iter().any(|line| line == wanted)) && tries < 30_000 {
            lines.extend(told());
            tries += 1;
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert!(lines.iter().any(|line| line == "a library [2J says") && lines.iter().any(|line| line == "more"), "{lines:?}");
    }
}
