//! Session driver over a blocking socket: moves the bytes of an endpoint, on the threads that wait
//! for results or for incoming calls.
//!
//! No thread is dedicated to reading. Of the threads that wait for results, one reads at a time and passes
//! each message to the thread that waits for it. A call therefore costs one write and one read, and wakes no
//! other thread. A call that arrives while a thread waits for the result of the call that led to it runs on
//! that thread, so calls and callbacks nest on one thread at each end.

mod serving;
#[cfg(test)]
mod tests;
mod transport;

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, PoisonError};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use anyfn::{Any, Error, PackedFunc, Result, bail, check_signals, error};
use anyfn_protocol::endpoint::{Driver, Endpoint, Incoming, Interrupt, Step};
use anyfn_protocol::opening::Opened;

use crate::child::ChildProcess;
use crate::fork::Owner;
use crate::polling::Polling;
use crate::socket::{LOOK, Socket};

/// One end of a session over a socket. Clones refer to the same end.
#[derive(Clone)]
pub struct Connection {
    endpoint: Arc<Endpoint>,
    line: Arc<Line>,
}

/// Socket of a connection, and the state of the threads that use it.
struct Line {
    socket: Socket,
    /// State of adaptive polling, used by the thread that reads from the socket.
    polling: Polling,
    /// Time from which the times that this driver passes to the endpoint are measured.
    origin: Instant,
    /// Number of worker threads that are running incoming calls, besides the serving thread. Each
    /// worker thread decrements the number when it ends.
    workers: Arc<AtomicUsize>,
    /// True while the ticker thread sleeps for a long time and must be woken when a call starts.
    dozing: AtomicBool,
    awake: Condvar,
    /// Process at the other end, if this process has started it.
    child: Option<Arc<ChildProcess>>,
    /// Process that has opened the session. Processes that are forked from it share the socket, which they must not use.
    owner: Owner,
}

/// State of the waiting thread that currently reads from the socket on behalf of all waiting threads.
struct Reading {
    /// Id of the call whose result the reading thread waits for.
    id: u64,
    deadline: Option<Duration>,
    /// Time from which `deadline` is measured.
    origin: Instant,
    /// Error, due to a signal or the deadline, with which the reading thread will stop waiting. It
    /// is recorded while the thread decodes a message for another call.
    given_up: Cell<Option<Error>>,
}

impl Interrupt for Reading {
    fn check(&self, call: Option<u64>, is_result: bool) -> Result<()> {
        let before = self.given_up.take();
        // A signal is reported only once: a thread that waits for another call receives it after this message has been decoded.
        let Some(error) = before.or_else(|| given_up(self.origin, self.deadline)) else { return Ok(()) };
        if call == Some(self.id) {
            if !is_result {
                self.given_up.set(Some(error.clone()));
            }
            return Err(error);
        }
        self.given_up.set(Some(error));
        Ok(())
    }
}

/// Condition variable of a thread that sleeps until another thread has read a message for it. It is used with the lock of the
/// endpoint's table.
#[derive(Default)]
struct Sleeper(Condvar);

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.notify_one();
    }
}

thread_local! {
    /// Time limit of each remote call that this thread makes; `None` for no limit.
    static DEADLINE: Cell<Option<Duration>> = const { Cell::new(None) };
}

/// Runs `body` with a time limit for each remote call that `body` makes on this thread; `None` for no limit.
pub(crate) fn with_timeout<T>(limit: Option<Duration>, body: impl FnOnce() -> T) -> T {
    let before = DEADLINE.replace(limit);
    let result = body();
    DEADLINE.set(before);
    result
}

impl Connection {
    /// Creates one end of a session over `socket`, after both ends have greeted each other. If the
    /// peer is a child process, the error for a broken connection describes how the process has
    /// ended.
    pub(crate) fn new(socket: Socket, opened: Opened, child: Option<Arc<ChildProcess>>) -> Connection {
        let line = Arc::new(Line {
            socket,
            polling: Polling::default(),
            origin: Instant::now(),
            workers: Arc::default(),
            dozing: AtomicBool::new(false),
            awake: Condvar::new(),
            child,
            owner: Owner::this_process(),
        });
        Connection { endpoint: opened.with_driver(line.clone()), line }
    }

    /// Returns the endpoint of the session.
    pub fn endpoint(&self) -> &Arc<Endpoint> {
        &self.endpoint
    }

    /// Returns the error that ended the session, or `None` while it is open.
    pub(crate) fn ended(&self) -> Option<Error> {
        self.endpoint.ended()
    }

    /// Returns true if this process is a fork of the process that opened the session. The session
    /// belongs only to the process that opened it.
    pub(crate) fn is_inherited(&self) -> bool {
        !self.line.owner.is_here()
    }

    /// Sends a `Bye` message and ends the session.
    pub(crate) fn close(&self) {
        self.endpoint.close();
    }
}

impl Driver for Line {
    fn write(&self, endpoint: &Endpoint, first: &[u8], second: &[u8]) -> Result<()> {
        if !self.owner.is_here() {
            return Err(inherited(endpoint));
        }
        self.write_all(endpoint, first, second)
    }

    fn can_write(&self) -> bool {
        self.owner.is_here() && self.socket.has_room()
    }

    fn deadline(&self) -> Option<Duration> {
        DEADLINE.get().and_then(|limit| self.origin.elapsed().checked_add(limit))
    }

    fn run(&self, endpoint: &Arc<Endpoint>, call: Incoming) {
        self.on_worker(endpoint, call);
    }

    fn ended(&self) {
        self.awake.notify_all();
        if self.owner.is_here() {
            self.socket.shut_down();
        }
    }

    /// Waits for the result of the outgoing call `id`. If `id` is
    /// [`ROOT`](anyfn_protocol::endpoint::ROOT), runs incoming calls until the session ends.
    fn wait(
        &self,
        endpoint: &Arc<Endpoint>,
        id: u64,
        deadline: Option<Duration>,
        progress: Option<&PackedFunc>,
    ) -> Result<Any> {
        let mut told = progress.map(|_| 0);
        let waits = Reading { id, deadline, origin: self.origin, given_up: Cell::new(None) };
        // `idle` is true if nothing has arrived for a while. Otherwise signals are checked every 16 passes; reading the clock
        // would take longer.
        let (mut idle, mut passes) = (false, 0_u8);
        let mut table = endpoint.table();
        loop {
            match table.step(id, told) {
                Step::Progress(filled, length) => {
                    told = Some(filled);
                    table.wake_reader(id);
                    drop(table);
                    let heard = progress.map_or(Ok(Any::NONE), |progress| progress.call((filled, length)));
                    table = endpoint.table();
                    if let Err(error) = heard {
                        endpoint.leave(table, id);
                        let _ = endpoint.cancel(id);
                        return Err(error);
                    }
                    continue;
                }
                Step::Done(outcome) => {
                    endpoint.leave(table, id);
                    return outcome;
                }
                Step::Run(call) => {
                    table.wake_reader(id);
                    drop(table);
                    if id == anyfn_protocol::endpoint::ROOT && self.dozing.load(Ordering::Relaxed) {
                        self.awake.notify_one();
                    }
                    with_timeout(None, || endpoint.execute(call));
                    table = endpoint.table();
                    table.has_run(id);
                    continue;
                }
                Step::Wait => {}
            }
            passes = passes.wrapping_add(1);
            let signals = deadline.is_some() || idle || passes.is_multiple_of(16);
            if signals && let Some(error) = given_up(self.origin, deadline) {
                endpoint.leave(table, id);
                // The code that runs the call can find out that its caller no longer waits.
                let _ = endpoint.cancel(id);
                return Err(error);
            }
            if table.reading {
                let woken = Arc::new(Sleeper::default());
                table.sleeps(id, Some(Waker::from(woken.clone())));
                let (again, slept) = woken.0.wait_timeout(table, LOOK).unwrap_or_else(PoisonError::into_inner);
                (table, idle) = (again, slept.timed_out());
                table.sleeps(id, None);
                continue;
            }
            table.reading = true;
            drop(table);
            let read = self.read(endpoint, Some(&waits));
            table = endpoint.table();
            table.reading = false;
            if let Some(error) = waits.given_up.take() {
                endpoint.leave(table, id);
                let _ = endpoint.cancel(id);
                return Err(error);
            }
            match read {
                Ok(any) => idle = !any,
                Err(error) => {
                    drop(table);
                    endpoint.end(error);
                    table = endpoint.table();
                }
            }
        }
    }
}

/// Returns an error if a waiting thread must stop because a signal is pending or its deadline, measured from `origin`, has
/// passed.
#[cold]
fn given_up(origin: Instant, deadline: Option<Duration>) -> Option<Error> {
    if deadline.is_some_and(|deadline| origin.elapsed() >= deadline) {
        let limit = DEADLINE.get().unwrap_or_default().as_secs_f64();
        return Some(error!("TimeoutError", "no result within the time limit of {limit} seconds"));
    }
    check_signals().err()
}

/// Returns the error for using a session in a process that has inherited it by a fork.
#[cold]
fn inherited(endpoint: &Endpoint) -> Error {
    let peer = endpoint.peer();
    error!(
        "ConnectionError",
        "{peer}: the session belongs to the process from which this one was forked: open another session"
    )
}

/// Returns true if an error means that the peer has closed the connection.
fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

fn text_of(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            "the peer closed the connection (reset)".into()
        }
        io::ErrorKind::TimedOut => "the remote machine no longer answers".into(),
        _ => error.to_string(),
    }
}

impl Line {
    /// Converts a socket error to the error that ends the session. The message describes how a
    /// child process has ended, or refers to the log of the server.
    #[cold]
    fn failed(&self, endpoint: &Endpoint, error: &io::Error) -> Error {
        let is_of_server = self.child.is_none() && !endpoint.is_server() && is_closed(error);
        let error = match self.socket.reason() {
            Some(reason) => error!("ConnectionError", "{}: {reason}", endpoint.peer()),
            None => {
                let hint = if is_of_server { "; the log of the server states the reason" } else { "" };
                error!("ConnectionError", "{}: {}{hint}", endpoint.peer(), text_of(error))
            }
        };
        let Some(child) = &self.child else { return error };
        // Another thread may already have ended the session, with such a description.
        endpoint.ended().unwrap_or_else(|| child.explain(&error))
    }
}
