//! Sessions over a serial line: a thread moves bytes between the line and a pair of sockets, over which the session runs.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use anyfn::{Result, bail, error};
use anyfn_protocol::line::{Line, LineEvent};

use crate::keys::system_random;
use crate::signals;
use crate::socket::Socket;

/// Bytes that the session may be ahead of the line.
const AHEAD: usize = 4096;
/// Bytes from the line that may wait for the session, before no more are taken from the line.
const BEHIND: usize = 1 << 20;
/// Time in which the thread sends what is left after the session was closed.
const LINGER: Duration = Duration::from_secs(1);
/// Time after which the thread looks at the clock.
const LOOK_MS: libc::c_int = 100;

/// Speeds in baud with the constants by which the system sets them.
const SPEEDS: &[(u32, libc::speed_t)] = &[
    (9600, libc::B9600),
    (19_200, libc::B19200),
    (38_400, libc::B38400),
    (57_600, libc::B57600),
    (115_200, libc::B115200),
    (230_400, libc::B230400),
    #[cfg(target_os = "linux")]
    (460_800, libc::B460800),
    #[cfg(target_os = "linux")]
    (500_000, libc::B500000),
    #[cfg(target_os = "linux")]
    (921_600, libc::B921600),
    #[cfg(target_os = "linux")]
    (1_000_000, libc::B1000000),
    #[cfg(target_os = "linux")]
    (1_500_000, libc::B1500000),
    #[cfg(target_os = "linux")]
    (2_000_000, libc::B2000000),
    #[cfg(target_os = "linux")]
    (3_000_000, libc::B3000000),
    #[cfg(target_os = "linux")]
    (4_000_000, libc::B4000000),
];

/// Opens the serial line `path` with `speed` baud, and returns a socket whose bytes travel over it.
///
/// # Errors
/// Returns `ValueError` for a speed that the system does not know, and the error of the system if `path` cannot be opened, is no
/// serial line, or is used by another session.
pub(crate) fn open(path: &str, speed: u32) -> Result<OwnedFd> {
    let Some((_, speed)) = SPEEDS.iter().find(|(baud, _)| *baud == speed) else {
        let known: Vec<String> = SPEEDS.iter().map(|(baud, _)| baud.to_string()).collect();
        bail!("ValueError", "`speed`: expected one of {} baud, got {speed}", known.join(", "));
    };
    let flags = libc::O_NOCTTY | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let tty = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path);
    let tty = tty.map_err(|why| {
        let why = anyfn::Error::from(why);
        error!(why.kind(), "serial:{path}: {}", why.message())
    })?;
    lock(&tty).map_err(|_| error!("ConnectionError", "serial:{path}: another session uses the line"))?;
    configure(&tty, *speed)
        .map_err(|why| error!("ValueError", "serial:{path}: expected a serial line: {why}"))?;
    let (here, there) =
        Socket::pair().map_err(|why| error!("OSError", "cannot create a socket pair: {why}"))?;
    let mut number = [0; 2];
    system_random(&mut number)?;
    let pump = Pump::new(tty, UnixStream::from(there), Line::client(u16::from_le_bytes(number)));
    let pump = pump.map_err(|why| error!("OSError", "serial:{path}: {why}"))?;
    std::thread::Builder::new()
        .name("anyfn-serial".into())
        .spawn(move || {
            signals::block_all();
            pump.run();
        })
        .map_err(|why| error!("RuntimeError", "cannot start a thread: {why}"))?;
    Ok(here)
}

fn check(code: libc::c_int) -> io::Result<()> {
    if code < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Locks the line for this session; the lock ends with the descriptor. Waits for a session that was closed before and still sends.
fn lock(tty: &File) -> io::Result<()> {
    let end = Instant::now() + 2 * LINGER;
    loop {
        // SAFETY: `flock` takes two numbers; `tty` keeps the descriptor open.
        match check(unsafe { libc::flock(tty.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) }) {
            Err(_) if Instant::now() < end => std::thread::sleep(Duration::from_millis(10)),
            done => return done,
        }
    }
}

/// Sets the speed, eight bits without parity, and no processing of characters. Discards what has arrived before.
fn configure(tty: &File, speed: libc::speed_t) -> io::Result<()> {
    let fd: RawFd = tty.as_raw_fd();
    // SAFETY: `termios` consists of integers, which may be zero.
    let mut settings: libc::termios = unsafe { std::mem::zeroed() };
    // SAFETY: `settings` is writable.
    check(unsafe { libc::tcgetattr(fd, &mut settings) })?;
    // SAFETY: the settings are those of the line.
    unsafe { libc::cfmakeraw(&mut settings) };
    settings.c_cflag |= libc::CLOCAL | libc::CREAD;
    settings.c_cflag &= !(libc::CSTOPB | libc::CRTSCTS);
    // SAFETY: the settings are valid, and the speed is one of the constants.
    check(unsafe { libc::cfsetspeed(&mut settings, speed) })?;
    // SAFETY: the settings are valid.
    check(unsafe { libc::tcsetattr(fd, libc::TCSANOW, &settings) })?;
    // SAFETY: `tcflush` takes two numbers.
    check(unsafe { libc::tcflush(fd, libc::TCIOFLUSH) })
}

/// State of the thread that moves the bytes.
struct Pump {
    tty: File,
    socket: UnixStream,
    line: Line,
    /// Bytes for the line, and for the session.
    out: Vec<u8>,
    to_session: Vec<u8>,
    /// Time at which the session was closed.
    closed: Option<Instant>,
}

impl Pump {
    fn new(tty: File, socket: UnixStream, line: Line) -> io::Result<Pump> {
        socket.set_nonblocking(true)?;
        Ok(Pump { tty, socket, line, out: Vec::new(), to_session: Vec::new(), closed: None })
    }

    /// Moves bytes until the session is closed or the line has failed. Then the sockets are closed, which ends the session.
    fn run(mut self) {
        let begin = Instant::now();
        while self.turn(begin.elapsed()).unwrap_or(false) {}
    }

    /// Waits for bytes and moves them. Returns false at the end of the session.
    fn turn(&mut self, now: Duration) -> io::Result<bool> {
        self.line.tick(now);
        self.out.append(&mut self.line.take_output());
        write_some(&mut self.tty, &mut self.out)?;
        if self.closed.is_some() {
            drop(self.line.take_received());
        } else if self.to_session.len() < BEHIND {
            self.to_session.append(&mut self.line.take_received());
        }
        if self.closed.is_none() {
            write_some(&mut self.socket, &mut self.to_session)?;
        }
        if let Some(closed) = self.closed
            && (closed.elapsed() > LINGER || (self.line.unsent() == 0 && self.out.is_empty()))
        {
            return Ok(false);
        }
        let takes = self.closed.is_none() && self.line.unsent() < AHEAD;
        self.wait(takes)?;
        let mut bytes = [0; 4096];
        match self.tty.read(&mut bytes) {
            Ok(0) => return Ok(false),
            Ok(count) => {
                if self.line.receive(&bytes[..count]).contains(&LineEvent::Lost) {
                    return Ok(false);
                }
            }
            Err(why) if is_later(&why) => {}
            Err(why) => return Err(why),
        }
        if takes {
            match self.socket.read(&mut bytes) {
                Ok(0) => self.closed = Some(Instant::now()),
                Ok(count) => self.line.send(&bytes[..count]),
                Err(why) if is_later(&why) => {}
                Err(_) => self.closed = Some(Instant::now()),
            }
        }
        Ok(true)
    }

    fn wait(&self, takes: bool) -> io::Result<()> {
        let poll = |fd: RawFd, reads: bool, writes: bool| {
            let events = if reads { libc::POLLIN } else { 0 } | if writes { libc::POLLOUT } else { 0 };
            // A negative descriptor is ignored; otherwise a closed socket would end each wait at once.
            libc::pollfd { fd: if events == 0 { -1 } else { fd }, events, revents: 0 }
        };
        let mut both = [
            poll(self.tty.as_raw_fd(), true, !self.out.is_empty()),
            poll(self.socket.as_raw_fd(), takes, self.closed.is_none() && !self.to_session.is_empty()),
        ];
        // SAFETY: `poll` writes to two entries, which are on this stack.
        match check(unsafe { libc::poll(both.as_mut_ptr(), 2, LOOK_MS) }) {
            Err(why) if why.kind() == ErrorKind::Interrupted => Ok(()),
            done => done,
        }
    }
}

fn is_later(why: &io::Error) -> bool {
    matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// Writes bytes as far as that is possible without blocking, and removes them.
fn write_some(to: &mut impl Write, bytes: &mut Vec<u8>) -> io::Result<()> {
    while !bytes.is_empty() {
        match to.write(bytes) {
            Ok(count) => drop(bytes.drain(..count)),
            Err(why) if is_later(&why) => return Ok(()),
            Err(why) => return Err(why),
        }
    }
    Ok(())
}
