//! Lines out of a body that arrives in pieces. A line that lies whole in one piece is not copied.

use bytes::{Bytes, BytesMut};

/// No object is larger: etcd takes 1.5 MB by default.
pub const LONGEST: usize = 32 << 20;

#[derive(Debug, Default)]
pub struct Lines {
    /// The beginning of a line whose end has not come yet.
    rest: BytesMut,
}

/// A line grew past [`LONGEST`]: this is no watch.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("a line of more than {LONGEST} bytes")]
pub struct TooLong;

impl Lines {
    /// Take a piece; `each` gets every line that is complete with it, without its end.
    pub fn feed(&mut self, mut piece: Bytes, mut each: impl FnMut(&[u8])) -> Result<(), TooLong> {
        while let Some(at) = memchr::memchr(b'\n', &piece) {
            let line = piece.split_to(at + 1);
            let line = &line[..at];
            if self.rest.is_empty() {
                each(line);
            } else {
                self.rest.extend_from_slice(line);
                each(&self.rest);
                self.rest.clear();
            }
        }
        if self.rest.len() + piece.len() > LONGEST {
            return Err(TooLong);
        }
        self.rest.extend_from_slice(&piece);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_may_be_cut_anywhere() {
        let text = b"one\ntwo\n\nthree\nfour";
        for size in 1..=text.len() {
            let (mut lines, mut got) = (Lines::default(), Vec::new());
            for piece in text.chunks(size) {
                lines.feed(Bytes::copy_from_slice(piece), |line| got.push(String::from_utf8(line.to_vec()).unwrap())).unwrap();
            }
            assert_eq!(got, ["one", "two", "", "three"], "pieces of {size}");
        }
    }
}
