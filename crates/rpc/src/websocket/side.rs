//! The two kinds of streams between which bytes are copied: WebSockets and sockets. Neither blocks.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::messages::{Fault, Message, NORMAL, WebSocket};
use crate::poll::{Polled, poll};

/// Maximum number of bytes that are read from a socket at a time, and the content of one message.
const PIECE: usize = 128 << 10;

/// Maximum time that closing a WebSocket waits for the peer.
const LINGER: Duration = Duration::from_secs(1);

/// Code of a close message whose text is the reason for which the other peer is absent or disconnected. Codes from 4000 are
/// those of applications, which browsers show to the code of a page.
pub(super) const CLOSED: u16 = 4000;

/// Reason why a side has no further bytes.
pub(super) enum Stop {
    /// None have arrived.
    Wait,
    /// It is closed, for a reason, which is empty if the peer has given none.
    Over(String),
}

/// Stream of bytes that does not block.
pub(super) trait Side {
    fn fd(&self) -> BorrowedFd<'_>;

    /// Returns bytes that have arrived, at least one.
    fn receive(&mut self) -> Result<Vec<u8>, Stop>;

    /// Takes bytes to send. The caller has checked by [`Side::flush`] that nothing waits.
    fn send(&mut self, bytes: Vec<u8>) -> Result<(), Stop>;

    /// Sends what waits to be sent. Returns true if nothing waits any more.
    fn flush(&mut self) -> Result<bool, Stop>;

    /// Sends the peer a message that it answers, if it shows no other sign of life.
    fn ping(&mut self) {}

    /// Returns the time at which bytes last arrived.
    fn heard(&self) -> Instant;

    /// Tells the peer that the stream ends, and why. Blocks for at most about a second.
    fn close(&mut self, why: &str);
}

/// End of a socket pair.
pub(super) struct Pipe {
    stream: UnixStream,
    /// Bytes to send, of which the first `sent` have been sent.
    waiting: Vec<u8>,
    sent: usize,
    buffer: Vec<u8>,
    heard: Instant,
}

impl Pipe {
    pub(super) fn new(stream: UnixStream) -> io::Result<Pipe> {
        stream.set_nonblocking(true)?;
        Ok(Pipe { stream, waiting: Vec::new(), sent: 0, buffer: vec![0; PIECE], heard: Instant::now() })
    }
}

impl Side for Pipe {
    fn fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    fn receive(&mut self) -> Result<Vec<u8>, Stop> {
        match self.stream.read(&mut self.buffer) {
            Ok(0) => Err(Stop::Over(String::new())),
            Ok(count) => {
                self.heard = Instant::now();
                Ok(self.buffer[..count].to_vec())
            }
            Err(error) => Err(stop(&error)),
        }
    }

    fn send(&mut self, bytes: Vec<u8>) -> Result<(), Stop> {
        (self.waiting, self.sent) = (bytes, 0);
        Ok(())
    }

    fn flush(&mut self) -> Result<bool, Stop> {
        while self.sent < self.waiting.len() {
            match self.stream.write(&self.waiting[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) => {
                    return match stop(&error) {
                        Stop::Wait => Ok(false),
                        over => Err(over),
                    };
                }
            }
        }
        Ok(true)
    }

    fn heard(&self) -> Instant {
        self.heard
    }

    fn close(&mut self, _why: &str) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// Returns a text of a peer without control characters, which a terminal would obey.
pub(super) fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}

fn stop(error: &io::Error) -> Stop {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::Interrupted => Stop::Wait,
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => Stop::Over(String::new()),
        _ => Stop::Over(error.to_string()),
    }
}

/// WebSocket, after its handshake.
pub(super) struct Web {
    socket: WebSocket<TcpStream>,
    heard: Instant,
}

impl Web {
    pub(super) fn new(socket: WebSocket<TcpStream>) -> io::Result<Web> {
        socket.stream().set_nonblocking(true)?;
        Ok(Web { socket, heard: Instant::now() })
    }

    /// Describes why reading or writing has failed, and tells a peer that has broken the rules which one.
    fn failed(&mut self, fault: Fault) -> Stop {
        match fault {
            Fault::Io(error) => stop(&error),
            Fault::Ended => Stop::Over(String::new()),
            Fault::Invalid(code, why) => {
                self.end(code, why);
                Stop::Over(format!("invalid WebSocket data: {why}"))
            }
        }
    }

    fn end(&mut self, code: u16, why: &str) {
        let until = Instant::now() + LINGER;
        if self.socket.close(code, why).is_err() {
            return;
        }
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            let Ok(is_written) = self.socket.flush() else { return };
            match self.socket.read() {
                Ok(_) => continue,
                Err(Fault::Io(error)) if error.kind() == ErrorKind::WouldBlock => {}
                Err(Fault::Io(error)) if error.kind() == ErrorKind::Interrupted => continue,
                // Bytes that break the rules are no reason to end before the close message is sent.
                Err(Fault::Invalid(..)) => continue,
                Err(_) => return,
            }
            let mut waits = [Polled::ready(self.fd(), true, !is_written)];
            if poll(&mut waits, Some(left)).is_err() {
                return;
            }
        }
    }
}

impl Side for Web {
    fn fd(&self) -> BorrowedFd<'_> {
        self.socket.stream().as_fd()
    }

    fn receive(&mut self) -> Result<Vec<u8>, Stop> {
        // Control messages, of which a peer may send any number, do not keep the other side waiting.
        for _ in 0..64 {
            let message = match self.socket.read() {
                Ok(message) => message,
                Err(fault) => return Err(self.failed(fault)),
            };
            self.heard = Instant::now();
            match message {
                Message::Binary(bytes) if !bytes.is_empty() => return Ok(bytes),
                Message::Binary(_) | Message::Pong => {}
                Message::Ping => {
                    self.flush()?;
                }
                Message::Close(code, why) => {
                    // The answer has been prepared.
                    let _ = self.socket.flush();
                    return Err(Stop::Over(if code >= 1002 { printable(&why) } else { String::new() }));
                }
            }
        }
        Err(Stop::Wait)
    }

    fn send(&mut self, bytes: Vec<u8>) -> Result<(), Stop> {
        self.socket.write(&bytes).map_err(|fault| self.failed(fault))
    }

    fn flush(&mut self) -> Result<bool, Stop> {
        self.socket.flush().map_err(|fault| self.failed(fault))
    }

    fn ping(&mut self) {
        let _ = self.socket.ping();
    }

    fn heard(&self) -> Instant {
        self.heard
    }

    fn close(&mut self, why: &str) {
        let code = if why.is_empty() { NORMAL } else { CLOSED };
        self.end(code, why);
    }
}
