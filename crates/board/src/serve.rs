//! Sessions over the serial line of a board.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ffi::{CStr, c_char};
use core::time::Duration;

use anyfn::{Any, Error, PackedFunc, Result, bail, error};
use anyfn_core::loader::Mutex;
use anyfn_protocol::endpoint::{Driver, Incoming};
use anyfn_protocol::line::{Line, LineEvent};
use anyfn_protocol::{Arrival, Endpoint, ServerOpening, SessionLimits};

use crate::platform::{anyfn_board_cycles, anyfn_board_hz, log};
use crate::services::BoardServices;

unsafe extern "C" {
    /// Takes at most `size` bytes that have arrived on the serial line and returns their number, without waiting.
    fn anyfn_board_read(out: *mut u8, size: usize) -> usize;
    /// Sends bytes over the serial line.
    fn anyfn_board_write(bytes: *const u8, size: usize);
    /// Waits until an interrupt occurs.
    safe fn anyfn_board_wait();
}

/// Limits of a session on a board: messages of 4 KiB, which have to fit into its memory several times, and 4 calls.
pub const LIMITS: SessionLimits = SessionLimits { message_bytes: 4 << 10, calls: 4, ..SessionLimits::SMALL };

/// Time for which a client may take nothing of what is sent to it.
const PATIENCE: Duration = Duration::from_secs(10);

/// Name of the client in error messages.
const CLIENT: &str = "client";

fn now() -> Duration {
    let (cycles, hz) = (anyfn_board_cycles(), u64::from(anyfn_board_hz()));
    Duration::from_secs(cycles / hz) + Duration::from_nanos(cycles % hz * 1_000_000_000 / hz)
}

/// The serial line, and the calls that have arrived. The locks are held only while this crate's own code runs.
struct Serial {
    line: Mutex<Line>,
    calls: Mutex<VecDeque<Incoming>>,
    /// True if a client has begun a new session since it was last asked.
    has_begun: Mutex<bool>,
}

impl Serial {
    /// Moves bytes in both directions. Returns false if nothing has arrived.
    fn turn(&self) -> bool {
        let mut line = self.line.lock();
        let mut bytes = [0_u8; 256];
        // SAFETY: the board writes at most the length of the array to it.
        let count = unsafe { anyfn_board_read(bytes.as_mut_ptr(), bytes.len()) }.min(bytes.len());
        if line.receive(&bytes[..count]).contains(&LineEvent::Began) {
            *self.has_begun.lock() = true;
        }
        line.tick(now());
        let out = line.take_output();
        drop(line);
        if !out.is_empty() {
            // SAFETY: the bytes are valid for the call.
            unsafe { anyfn_board_write(out.as_ptr(), out.len()) };
        }
        count > 0
    }

    /// Sends bytes and waits until the client has most of them, so that they take little memory.
    fn send(&self, bytes: &[u8]) -> Result<()> {
        for part in bytes.chunks(512) {
            self.line.lock().send(part);
            let mut moved = now();
            let mut left = usize::MAX;
            loop {
                let heard = self.turn();
                let unsent = self.line.lock().unsent();
                if unsent <= 1024 {
                    break;
                }
                if *self.has_begun.lock() {
                    bail!("ConnectionError", "{CLIENT}: another session has begun");
                }
                if unsent < left {
                    (left, moved) = (unsent, now());
                } else if now().saturating_sub(moved) > PATIENCE {
                    bail!(
                        "ConnectionError",
                        "{CLIENT}: nothing was acknowledged for {} seconds",
                        PATIENCE.as_secs()
                    );
                }
                if !heard {
                    anyfn_board_wait();
                }
            }
        }
        Ok(())
    }
}

impl Driver for Serial {
    fn write(&self, _endpoint: &Endpoint, first: &[u8], second: &[u8]) -> Result<()> {
        self.send(first)?;
        self.send(second)
    }

    fn can_write(&self) -> bool {
        self.line.lock().unsent() == 0
    }

    fn deadline(&self) -> Option<Duration> {
        None
    }

    fn wait(&self, _: &Arc<Endpoint>, _: u64, _: Option<Duration>, _: Option<&PackedFunc>) -> Result<Any> {
        bail!("RuntimeError", "a function on a board cannot wait for a result of its client")
    }

    fn run(&self, _endpoint: &Arc<Endpoint>, call: Incoming) {
        self.calls.lock().push_back(call);
    }

    fn ended(&self) {}
}

/// State of the session on the line.
enum State {
    Opening(Box<ServerOpening>),
    Open(Arc<Endpoint>),
    /// No session, until a client begins one.
    Over,
}

fn no_random(_: &mut [u8]) -> Result<()> {
    bail!("RuntimeError", "a session on a serial line has no key")
}

/// Serves sessions over the serial line of the board, one after the other. A client may look up the global functions whose names match
/// `grants`: names, or prefixes followed by `*`.
pub fn serve(grants: &[&str]) -> ! {
    let serial = Arc::new(Serial {
        line: Mutex::new(Line::server()),
        calls: Mutex::new(VecDeque::new()),
        has_begun: Mutex::new(false),
    });
    let mut state = State::Over;
    loop {
        let heard = serial.turn();
        if core::mem::take(&mut *serial.has_begun.lock()) {
            if let State::Open(endpoint) = &state {
                endpoint.disconnected("another session has begun");
            }
            serial.calls.lock().clear();
            state = State::Opening(Box::new(ServerOpening::new(CLIENT)));
        }
        let bytes = serial.line.lock().take_received();
        if !bytes.is_empty() {
            state = match proceed(&serial, state, &bytes, grants) {
                Ok(state) => state,
                Err(error) => {
                    ended(&error);
                    State::Over
                }
            };
        }
        let call = serial.calls.lock().pop_front();
        match (&state, call) {
            (State::Open(endpoint), Some(call)) => {
                endpoint.execute(call);
                if let Err(error) = endpoint.settle().and_then(|()| endpoint.ended().map_or(Ok(()), Err)) {
                    ended(&error);
                    state = State::Over;
                }
            }
            _ if !heard => anyfn_board_wait(),
            _ => {}
        }
    }
}

/// Prints the reason for which a session has ended.
fn ended(error: &Error) {
    log(error.message());
    log("\n");
}

/// Passes received bytes to the session, and returns its next state.
fn proceed(serial: &Arc<Serial>, state: State, bytes: &[u8], grants: &[&str]) -> Result<State> {
    let mut opening = match state {
        State::Over => return Ok(State::Over),
        State::Open(endpoint) => {
            endpoint.receive(bytes)?;
            return Ok(State::Open(endpoint));
        }
        State::Opening(opening) => opening,
    };
    let mut arrival = opening.receive(bytes);
    if let Ok(Arrival::Named(_)) = arrival {
        arrival = opening.accept(None, no_random);
    }
    serial.send(&opening.take_output())?;
    match arrival? {
        Arrival::Greeted => {
            let names: Vec<String> = grants.iter().map(ToString::to_string).collect();
            let (opened, out) = opening.welcome(LIMITS, Some(Box::new(BoardServices::new(names))))?;
            serial.send(&out)?;
            Ok(State::Open(opened.with_driver(serial.clone())))
        }
        _ => Ok(State::Opening(opening)),
    }
}

/// Serves sessions; see `anyfn/board.h`.
///
/// # Safety
/// `grants` must be the address of `count` C strings, which stay valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anyfn_board_serve(grants: *const *const c_char, count: usize) {
    let mut names = Vec::new();
    for at in 0..count {
        // SAFETY: the caller guarantees `count` addresses.
        let name = unsafe { *grants.add(at) };
        // SAFETY: the caller guarantees C strings that stay valid.
        match unsafe { CStr::from_ptr(name) }.to_str() {
            Ok(name) => names.push(name),
            Err(_) => ended(&error!("ValueError", "the name of a granted function is not UTF-8")),
        }
    }
    serve(&names)
}
