//! The two kinds of streams between which bytes are copied: WebSockets and sockets. Neither blocks.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::protocol::{CloseFrame, WebSocket};
use tungstenite::{Bytes, Error, Message};

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
    fn receive(&mut self) -> Result<Bytes, Stop>;

    /// Takes bytes to send. The caller has checked by [`Side::flush`] that nothing waits.
    fn send(&mut self, bytes: Bytes) -> Result<(), Stop>;

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
    waiting: Bytes,
    buffer: Vec<u8>,
    heard: Instant,
}

impl Pipe {
    pub(super) fn new(stream: UnixStream) -> io::Result<Pipe> {
        stream.set_nonblocking(true)?;
        Ok(Pipe { stream, waiting: Bytes::new(), buffer: vec![0; PIECE], heard: Instant::now() })
    }
}

impl Side for Pipe {
    fn fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    fn receive(&mut self) -> Result<Bytes, Stop> {
        match self.stream.read(&mut self.buffer) {
            Ok(0) => Err(Stop::Over(String::new())),
            Ok(count) => {
                self.heard = Instant::now();
                Ok(Bytes::copy_from_slice(&self.buffer[..count]))
            }
            Err(error) => Err(stop(&error)),
        }
    }

    fn send(&mut self, bytes: Bytes) -> Result<(), Stop> {
        self.waiting = bytes;
        Ok(())
    }

    fn flush(&mut self) -> Result<bool, Stop> {
        while !self.waiting.is_empty() {
            match self.stream.write(&self.waiting) {
                Ok(count) => drop(self.waiting.split_to(count)),
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
        socket.get_ref().set_nonblocking(true)?;
        Ok(Web { socket, heard: Instant::now() })
    }

    /// Describes why reading or writing has failed, and tells a peer that has broken the rules which one.
    fn failed(&mut self, error: Error) -> Stop {
        let (code, why) = match error {
            Error::Io(error) => return stop(&error),
            Error::WriteBufferFull(_) => return Stop::Wait,
            Error::ConnectionClosed | Error::AlreadyClosed => return Stop::Over(String::new()),
            Error::Capacity(why) => (CloseCode::Size, format!("{why}")),
            why => (CloseCode::Protocol, format!("{why}")),
        };
        self.end(code, &why);
        Stop::Over(format!("invalid WebSocket data: {why}"))
    }

    fn end(&mut self, code: CloseCode, why: &str) {
        // A close message has at most 125 bytes, two of which are the code.
        let reason = why[..why.floor_char_boundary(120)].into();
        let _ = self.socket.close(Some(CloseFrame { code, reason }));
        let until = Instant::now() + LINGER;
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            let is_written = match self.socket.flush() {
                Ok(()) => true,
                Err(Error::Io(error)) if error.kind() == ErrorKind::WouldBlock => false,
                Err(_) => return,
            };
            match self.socket.read() {
                Ok(_) => continue,
                Err(Error::Io(error)) if error.kind() == ErrorKind::WouldBlock => {}
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
        self.socket.get_ref().as_fd()
    }

    fn receive(&mut self) -> Result<Bytes, Stop> {
        // Control messages, of which a peer may send any number, do not keep the other side waiting.
        for _ in 0..64 {
            let message = match self.socket.read() {
                Ok(message) => message,
                Err(error) => return Err(self.failed(error)),
            };
            self.heard = Instant::now();
            match message {
                Message::Binary(bytes) if !bytes.is_empty() => return Ok(bytes),
                Message::Binary(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
                Message::Text(_) => {
                    let why = "expected binary messages, got a message of text";
                    self.end(CloseCode::Unsupported, why);
                    return Err(Stop::Over(format!("invalid WebSocket data: {why}")));
                }
                Message::Close(frame) => {
                    let code = frame.as_ref().map_or(0, |frame| u16::from(frame.code));
                    let why = frame
                        .filter(|_| code >= 1002)
                        .map_or_else(String::new, |frame| printable(&frame.reason));
                    // The library has prepared the answer.
                    let _ = self.socket.flush();
                    return Err(Stop::Over(why));
                }
            }
        }
        Err(Stop::Wait)
    }

    fn send(&mut self, bytes: Bytes) -> Result<(), Stop> {
        match self.socket.write(Message::Binary(bytes)) {
            Ok(()) => Ok(()),
            Err(Error::WriteBufferFull(_)) => Err(Stop::Over("the peer does not read".into())),
            Err(error) => match self.failed(error) {
                // The message is in the buffer of the library.
                Stop::Wait => Ok(()),
                over => Err(over),
            },
        }
    }

    fn flush(&mut self) -> Result<bool, Stop> {
        match self.socket.flush() {
            Ok(()) => Ok(true),
            Err(error) => match self.failed(error) {
                Stop::Wait => Ok(false),
                over => Err(over),
            },
        }
    }

    fn ping(&mut self) {
        let _ = self.socket.write(Message::Ping(Bytes::new()));
    }

    fn heard(&self) -> Instant {
        self.heard
    }

    fn close(&mut self, why: &str) {
        let code = if why.is_empty() { CloseCode::Normal } else { CloseCode::from(CLOSED) };
        self.end(code, why);
    }
}
