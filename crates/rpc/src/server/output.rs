//! Capture of a session process's standard error until the process begins to serve its client. If
//! the process fails before that, the last captured lines show the reason.

use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::sys;

/// Maximum number of captured bytes. Older bytes are discarded.
const KEPT: usize = 4096;

/// Maximum length of the line that [`Output::last_line`] returns, in bytes.
const LINE: usize = 512;

/// Last [`KEPT`] bytes of a process's captured standard error.
#[derive(Debug)]
pub(crate) struct Output {
    /// Pipe that the process writes to; `None` once it has been closed.
    pipe: Option<OwnedFd>,
    end: Vec<u8>,
}

impl Output {
    pub(crate) fn new(pipe: Option<OwnedFd>) -> Output {
        Output { pipe, end: Vec::new() }
    }

    /// Returns the pipe, which becomes readable when the process has written to it.
    pub(crate) fn pipe(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(AsFd::as_fd)
    }

    /// Reads output that is available in the pipe, up to the size of `buffer`.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) {
        let Some(pipe) = &self.pipe else { return };
        match sys::read(pipe.as_fd(), buffer) {
            Ok(0) => self.pipe = None,
            Ok(count) => {
                self.end.extend_from_slice(buffer.get(..count).unwrap_or_default());
                let old = self.end.len().saturating_sub(KEPT);
                self.end.drain(..old);
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => (),
            Err(_) => self.pipe = None,
        }
    }

    /// Returns the last captured line that is not empty, without control characters.
    pub(crate) fn last_line(&self) -> Option<String> {
        let text = String::from_utf8_lossy(&self.end);
        let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty())?;
        let line: String = line.chars().filter(|c| !c.is_control()).collect();
        Some(line.get(..line.floor_char_boundary(LINE)).unwrap_or_default().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn last_line(written: &[u8]) -> Option<String> {
        let (reader, writer) = sys::pipe().unwrap();
        let mut output = Output::new(Some(reader));
        let mut writer = std::fs::File::from(writer);
        for part in written.chunks(60_000) {
            writer.write_all(part).unwrap();
            output.read(&mut [0; 65536]);
        }
        drop(writer);
        output.read(&mut [0; 65536]);
        assert!(output.pipe().is_none() && output.end.len() <= KEPT);
        output.last_line()
    }

    #[test]
    fn the_last_line() {
        assert_eq!(last_line(b""), None);
        assert_eq!(last_line(b"\n  \n"), None);
        assert_eq!(last_line(b"first\nlast: \x1b[2Jwhy\x07 \n\n").as_deref(), Some("last: [2Jwhy"));
        assert_eq!(last_line(&[b'x'; 200_000]).unwrap().len(), LINE);
        assert!(last_line(b"\xff\xfe why").unwrap().ends_with("why"));
    }
}
