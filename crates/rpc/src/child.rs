//! Child process that serves a spawned session. If the connection breaks, the error describes how
//! the process has ended.
//!
//! A process that crashes closes its connection without a reason. Its exit status shows how it ended, and the last lines of its
//! standard error often show why. A thread therefore reads the standard error of the process, forwards it to that of this process
//! and keeps its end.

use std::io::{self, ErrorKind, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use anyfn::Error;

use crate::fork::Owner;
use crate::poll::{Polled, poll, set_nonblocking};
use crate::signals;

/// Maximum time to wait for the process to end before an error of its connection is reported. A
/// process that crashes ends shortly after its connection has been closed.
const END_WAIT: Duration = Duration::from_millis(500);

/// Maximum time to wait for the process to end when its session ends. After that, the process is
/// killed.
const GRACE: Duration = Duration::from_secs(2);

/// Maximum time to wait until the output that the process has already written is forwarded.
const OUTPUT_WAIT: Duration = Duration::from_millis(500);

/// Number of bytes of the process's output that are kept for error messages. Older bytes are
/// discarded.
const KEPT: usize = 8 << 10;

/// Maximum number of lines of the output in an error message.
const LINES: usize = 10;

/// Maximum length of a line of the output in an error message, in characters.
const LINE: usize = 200;

/// Number of bytes that are read from the pipe at a time.
const BUFFER: usize = 16 << 10;

/// Maximum number of bytes that a pipe can hold, unless an administrator has raised the limit.
const PIPE_MAX: usize = 1 << 20;

/// Child process whose standard error is forwarded to the standard error of this process.
///
/// The owner must call [`ChildProcess::end`]. Otherwise the process keeps running, and stays a zombie after its end. In a process
/// that is forked from this one, all methods return at once and have no effect.
pub(crate) struct ChildProcess {
    process: Mutex<Child>,
    output: Arc<Output>,
    /// Pipe whose bytes wake the thread that forwards the output; see [`OutputState::requested`]. `None` once it has been closed.
    requests: Mutex<Option<PipeWriter>>,
    /// Thread that forwards the output; `None` once it has been joined.
    forwarder: Mutex<Option<JoinHandle<()>>>,
    /// Process that has started the child process.
    owner: Owner,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ChildProcess {
    /// Starts a process whose standard error is a pipe, and the thread that forwards its output.
    ///
    /// # Errors
    /// Returns an error if the program cannot be executed, or if the system has run out of descriptors, processes or threads.
    pub(crate) fn start(command: &mut Command) -> io::Result<ChildProcess> {
        let (requested, requests) = io::pipe()?;
        let mut process = command.stderr(Stdio::piped()).spawn()?;
        let output = Arc::new(Output::default());
        match start_forwarder(process.stderr.take(), requested, output.clone()) {
            Ok(forwarder) => Ok(ChildProcess {
                process: Mutex::new(process),
                output,
                requests: Mutex::new(Some(requests)),
                forwarder: Mutex::new(Some(forwarder)),
                owner: Owner::this_process(),
            }),
            Err(error) => {
                let _ = process.kill();
                let _ = process.wait();
                Err(error)
            }
        }
    }

    /// Adds a description of how the process has ended, and the last lines of its output, to an
    /// error of the connection. Waits at most half a second for the process to end, and then at
    /// most half a second for its output.
    pub(crate) fn explain(&self, error: &Error) -> Error {
        if !self.owner.is_here() {
            return error.clone();
        }
        Error::new(error.kind(), &format!("{} {}", error.message(), self.fate()))
    }

    /// Describes how the process has ended, with the last lines of its output.
    fn fate(&self) -> String {
        let mut text = match self.wait(END_WAIT) {
            Ok(Some(status)) => format!("(the process {})", describe(status)),
            Ok(None) => "(the process is still running)".into(),
            Err(_) => "(the exit status of the process is unknown)".into(),
        };
        self.catch_up(false);
        let lines = last_lines(&self.output.lock().tail);
        if !lines.is_empty() {
            text.push_str("; its last output:");
        }
        for line in lines {
            text.push_str("\n  ");
            text.push_str(&line);
        }
        text
    }

    /// Waits at most `limit` for the process to end. Returns its exit status, or `None` if it is
    /// still running.
    ///
    /// # Errors
    /// Returns an error if other code of this process has collected the exit status.
    fn wait(&self, limit: Duration) -> io::Result<Option<ExitStatus>> {
        let deadline = Instant::now() + limit;
        loop {
            let status = lock(&self.process).try_wait()?;
            if status.is_some() || Instant::now() >= deadline {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits up to two seconds for the process to end, kills it if it is still running, and ends
    /// the thread that forwards its output. Afterwards, other processes that the child has started
    /// can no longer write to the pipe.
    pub(crate) fn end(&self) {
        if !self.owner.is_here() {
            return;
        }
        if matches!(self.wait(GRACE), Ok(None)) {
            let mut process = lock(&self.process);
            let _ = process.kill();
            let _ = process.wait();
        }
        // A thread that cannot write to the standard error of this process is left behind. It ends when it can, since the pipe of
        // requests is closed.
        if self.catch_up(true)
            && let Some(forwarder) = lock(&self.forwarder).take()
        {
            let _ = forwarder.join();
        }
        drop(lock(&self.requests).take());
    }

    /// Waits at most [`OUTPUT_WAIT`] until the output in the pipe has been forwarded. If `ends` is
    /// true, the thread that forwards the output then ends. Returns true if the thread has ended.
    ///
    /// The end of the pipe is not waited for: processes that the child has started may keep the pipe open.
    fn catch_up(&self, ends: bool) -> bool {
        let mut state = self.output.lock();
        if !state.is_over {
            state.requested += 1;
            state.ends |= ends;
            // The thread has not ended, so it holds the other end of the pipe, which has room for thousands of requests.
            if let Some(requests) = &mut *lock(&self.requests) {
                let _ = requests.write_all(&[0]);
            }
        }
        let number = state.requested;
        let is_pending = |state: &mut OutputState| !state.is_over && (ends || state.answered < number);
        let waited = self.output.changed.wait_timeout_while(state, OUTPUT_WAIT, is_pending);
        waited.unwrap_or_else(PoisonError::into_inner).0.is_over
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        self.owner.forget_thread(&mut self.forwarder);
    }
}

/// Describes an exit status as a predicate, such as `was killed by signal 11 (SIGSEGV)`.
fn describe(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("was killed by {}", signals::describe(signal)),
        (None, Some(code)) => format!("exited with status {code}"),
        (None, None) => format!("ended with {status}"),
    }
}

/// Output of a process, shared with the thread that forwards it.
#[derive(Default)]
struct Output {
    state: Mutex<OutputState>,
    /// Notified when a request has been answered, and when the thread ends.
    changed: Condvar,
}

#[derive(Default)]
struct OutputState {
    /// Last bytes of the output, at most [`KEPT`].
    tail: Vec<u8>,
    /// Number of requests to forward the output in the pipe. Each request wakes the thread by
    /// writing one byte to `ChildProcess::requests`.
    requested: u64,
    /// Number of requests that have been answered.
    answered: u64,
    /// True if the thread must end after it has answered the next request.
    ends: bool,
    /// True if the thread no longer reads the pipe.
    is_over: bool,
}

impl OutputState {
    fn keep(&mut self, bytes: &[u8]) {
        self.tail.extend_from_slice(bytes);
        let old = self.tail.len().saturating_sub(KEPT);
        self.tail.drain(..old);
    }
}

impl Output {
    fn lock(&self) -> MutexGuard<'_, OutputState> {
        lock(&self.state)
    }

    /// Forwards the bytes in `pipe` until a request ends the thread or all writers have closed the pipe.
    fn forward(&self, mut pipe: ChildStderr, mut requests: PipeReader) {
        let mut buffer = vec![0; BUFFER];
        let mut is_open = true;
        while is_open && let Ok(is_requested) = wait_for(&pipe, &requests) {
            // Without the other end of the pipe, the thread has no owner.
            let has_owner = !is_requested || requests.read(&mut [0; 16]).is_ok_and(|count| count > 0);
            // Read before the pipe: the output that a request is about has then been forwarded when it is answered.
            let (requested, ends) = {
                let state = self.lock();
                (state.requested, state.ends)
            };
            is_open = self.forward_once(&mut pipe, &mut buffer) && has_owner && !ends;
            self.lock().answered = requested;
            self.changed.notify_all();
        }
        self.lock().is_over = true;
        self.changed.notify_all();
    }

    /// Forwards the bytes that `pipe` contains. Returns false if all writers have closed the pipe.
    fn forward_once(&self, pipe: &mut ChildStderr, buffer: &mut [u8]) -> bool {
        let mut forwarded = 0;
        // Bounded, because a process may write faster than this thread reads.
        while forwarded < PIPE_MAX {
            match pipe.read(buffer) {
                Ok(0) => return false,
                Ok(count) => {
                    let bytes = buffer.get(..count).unwrap_or_default();
                    self.lock().keep(bytes);
                    write_to_stderr(bytes);
                    forwarded += count;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        true
    }
}

/// Starts the thread that forwards the output of a process. `pipe` is the standard error of the
/// process. The thread ends when the other end of `requests` is closed.
fn start_forwarder(
    pipe: Option<ChildStderr>,
    requests: PipeReader,
    output: Arc<Output>,
) -> io::Result<JoinHandle<()>> {
    let pipe = pipe.ok_or_else(|| io::Error::other("the standard error of the process is no pipe"))?;
    set_nonblocking(pipe.as_fd())?;
    Builder::new().name("anyfn-rpc-stderr".into()).spawn(move || {
        // Among them SIGPIPE, which would otherwise end this process when its standard error has been closed.
        signals::block_all();
        output.forward(pipe, requests);
    })
}

/// Waits until one of two pipes contains bytes or has been closed, or a signal has arrived. Returns true if `requests` contains
/// bytes or has been closed.
fn wait_for(pipe: &ChildStderr, requests: &PipeReader) -> io::Result<bool> {
    let mut pipes = [Polled::read(pipe.as_fd()), Polled::read(requests.as_fd())];
    poll(&mut pipes, None)?;
    Ok(pipes[1].is_readable())
}

/// Writes to the standard error of this process. Errors are ignored, since they cannot be reported.
///
/// The lock of the standard library is not taken: a process that is forked in the meantime would inherit it in the locked state.
fn write_to_stderr(mut bytes: &[u8]) {
    while !bytes.is_empty() {
        // SAFETY: `write` reads `len` bytes of the slice; a descriptor that is not open is an error.
        let written = unsafe { libc::write(libc::STDERR_FILENO, bytes.as_ptr().cast(), bytes.len()) };
        match usize::try_from(written) {
            Ok(count) if count > 0 => bytes = bytes.get(count..).unwrap_or_default(),
            Err(_) if io::Error::last_os_error().kind() == ErrorKind::Interrupted => {}
            _ => return,
        }
    }
}

/// Returns the last lines of `output` that are not empty, at most [`LINES`]. Invalid UTF-8 is replaced.
fn last_lines(output: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(output);
    let mut lines: Vec<String> =
        text.split(['\n', '\r']).map(printable).filter(|line| !line.is_empty()).collect();
    lines.split_off(lines.len().saturating_sub(LINES))
}

/// Returns a line of at most [`LINE`] characters, without control characters and trailing white space.
fn printable(line: &str) -> String {
    let line: String = line.replace('\t', "    ").chars().filter(|c| !c.is_control()).collect();
    let line = line.trim_end();
    match line.char_indices().nth(LINE) {
        Some((end, _)) => format!("{}...", line.get(..end).unwrap_or_default()),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(script: &str) -> ChildProcess {
        ChildProcess::start(Command::new("sh").args(["-c", script])).unwrap()
    }

    /// Runs a shell script in a child process and returns the description of how the process ended.
    fn fate(script: &str) -> String {
        let child = start(script);
        // A slow machine may need more than the time that `fate` allows.
        child.wait(Duration::from_secs(60)).unwrap().expect("the script ends");
        let fate = child.fate();
        child.end();
        assert!(child.output.lock().is_over && lock(&child.forwarder).is_none(), "the thread has been joined");
        assert!(lock(&child.requests).is_none(), "the pipe has been closed");
        fate
    }

    #[test]
    fn ends_are_described() {
        assert_eq!(
            fate("echo first >&2; echo last >&2; kill -SEGV $$"),
            "(the process was killed by signal 11 (SIGSEGV)); its last output:\n  first\n  last"
        );
        assert_eq!(fate("exit 3"), "(the process exited with status 3)");
        assert_eq!(
            fate("printf 'no end of line' >&2"),
            "(the process exited with status 0); its last output:\n  no end of line"
        );
    }

    #[test]
    fn a_process_that_only_closes_its_connection_is_still_running() {
        let child = start("echo ready >&2; exec sleep 1000");
        let until = Instant::now() + Duration::from_secs(60);
        while child.output.lock().tail.is_empty() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
        }
        let begin = Instant::now();
        let error = child.explain(&anyfn::error!("ConnectionError", "closed"));
        assert_eq!(error.message(), "closed (the process is still running); its last output:\n  ready");
        assert!(begin.elapsed() < Duration::from_secs(20), "the wait is bounded");
        child.end();
        assert!(matches!(child.wait(Duration::ZERO), Ok(Some(_))), "it has been killed and reaped");
    }

    #[test]
    fn a_process_that_keeps_the_pipe_open_is_not_waited_for() {
        let begin = Instant::now();
        let fate = fate("sleep 1000 & echo $! >&2; exit 3");
        assert!(begin.elapsed() < Duration::from_secs(100), "the wait is bounded");
        let pid = fate.strip_prefix("(the process exited with status 3); its last output:\n  ").expect(&fate);
        assert!(Command::new("kill").args(["-KILL", pid]).status().unwrap().success());
    }

    #[test]
    fn the_last_lines() {
        assert!(last_lines(b"").is_empty() && last_lines(b"\n \t\n\x07").is_empty());
        let many: String = (0..30).map(|number| format!("line {number}\n")).collect();
        let many = last_lines(many.as_bytes());
        assert_eq!((many.len(), &*many[0], &*many[LINES - 1]), (LINES, "line 20", "line 29"));
        assert_eq!(
            last_lines(b"\tin \xff\xfe \x1b[2Jit \r\n50 %\r100 %"),
            ["    in \u{fffd}\u{fffd} [2Jit", "50 %", "100 %"]
        );
        let long = last_lines("\u{e9}".repeat(LINE + 1).as_bytes());
        assert_eq!(long, [format!("{}...", "\u{e9}".repeat(LINE))]);
        let mut state = OutputState::default();
        state.keep(&[b'x'; KEPT]);
        state.keep(b"\nend");
        assert_eq!(state.tail.len(), KEPT);
        assert_eq!(last_lines(&state.tail).last().map(String::as_str), Some("end"));
    }
}
