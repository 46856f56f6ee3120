//! Start of session processes.
//!
//! Between `fork` and `exec` in a program that may have threads, only functions that are safe in a signal handler may be called:
//! no memory is allocated, and no lock taken. Everything is therefore prepared before `fork`.

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use libc::{c_char, c_int, pid_t};

use super::sys::{self, Resource};
use crate::given::{self, PARENT, SOCKETS};
use crate::keys::Limits;

/// Descriptor number of the client's connection in a session process.
pub const CLIENT_FD: c_int = 3;

/// Descriptor number of the channel to the listener in a session process.
pub const CONTROL_FD: c_int = 4;

/// Names of the environment variables that a session process inherits from the listener, in addition to the
/// configured ones.
const KEPT: [&str; 6] = ["PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH"];

/// Environment variable that is set in a process started only as a trial, without a client.
pub(crate) const TRIAL: &str = "ANYFN_RPC_TRIAL";

/// Environment variable that is set in a process whose standard error the listener captures until
/// the process begins to serve its client.
const HEARD: &str = "ANYFN_RPC_HEARD";

/// Environment variable that lists the origins whose pages may open a WebSocket.
#[cfg(feature = "websocket")]
pub(crate) const ORIGINS: &str = "ANYFN_RPC_ORIGINS";

/// Exit status of a session process if its program cannot be executed.
pub(crate) const CANNOT_START: c_int = 126;

/// Highest signal number, including real-time signals.
const SIGNALS: c_int = 64;

/// Command line, environment and standard streams of a server's session processes.
pub(crate) struct Program {
    words: Vec<CString>,
    variables: Vec<OsString>,
    nothing: File,
    show_output: bool,
}

/// Parameters for starting one session process.
pub(crate) struct Start<'a> {
    pub(crate) folder: &'a Path,
    pub(crate) client: BorrowedFd<'a>,
    pub(crate) control: &'a OwnedFd,
    pub(crate) limits: &'a Limits,
    /// Pipe that captures standard error; `None` if standard error is shown.
    pub(crate) output: Option<&'a OwnedFd>,
    /// Descriptor of the Landlock rules that restrict the process; `None` without isolation.
    pub(crate) rules: Option<&'a OwnedFd>,
    /// True if the process is started only as a trial and has no client.
    pub(crate) is_trial: bool,
}

impl Program {
    /// Prepares a program for execution. `words` are its path and arguments; `variables` are added to its
    /// environment.
    pub(crate) fn new(
        words: &[String],
        variables: &[(String, String)],
        show_output: bool,
    ) -> io::Result<Program> {
        let words = words.iter().map(|word| CString::new(word.as_str())).collect::<Result<Vec<_>, _>>()?;
        let mut all: Vec<OsString> = KEPT
            .iter()
            .filter(|name| variables.iter().all(|(given, _)| given != *name))
            .filter_map(|name| Some(joined(OsStr::new(name), &std::env::var_os(name)?)))
            .collect();
        all.extend(variables.iter().map(|(name, value)| joined(OsStr::new(name), OsStr::new(value))));
        Ok(Program {
            words,
            variables: all,
            nothing: File::options().read(true).write(true).open("/dev/null")?,
            show_output,
        })
    }

    /// Starts a session process and returns its id. The process leads its own POSIX session and process
    /// group, and the kernel kills it when the calling thread ends.
    ///
    /// If the program cannot be executed, the process ends with the exit status [`CANNOT_START`].
    pub(crate) fn start(&self, start: &Start<'_>) -> io::Result<pid_t> {
        let folder = CString::new(start.folder.as_os_str().as_bytes())?;
        // SAFETY: `getpid` takes no arguments and cannot fail.
        let parent = unsafe { libc::getpid() };
        let mut variables = Vec::with_capacity(self.variables.len() + 6);
        variables.push(CString::new(format!("{PARENT}={parent}"))?);
        let sockets = given::sockets([start.client, start.control.as_fd()])?;
        variables.push(CString::new(format!("{SOCKETS}={sockets}"))?);
        for name in ["HOME", "TMPDIR"] {
            variables.push(CString::new(joined(OsStr::new(name), start.folder.as_os_str()).as_bytes())?);
        }
        if start.output.is_some() {
            variables.push(CString::new(format!("{HEARD}=1"))?);
        }
        if start.is_trial {
            variables.push(CString::new(format!("{TRIAL}=1"))?);
        }
        for variable in &self.variables {
            variables.push(CString::new(variable.as_bytes())?);
        }
        let words = pointers(&self.words);
        let variables = pointers(&variables);
        let limits = [
            (libc::RLIMIT_AS, start.limits.process_bytes),
            (libc::RLIMIT_FSIZE, start.limits.file_bytes),
            (libc::RLIMIT_NOFILE, start.limits.files.max(64)),
            (libc::RLIMIT_CORE, 0),
        ];
        let child = Child {
            parent,
            folder: &folder,
            words: &words,
            variables: &variables,
            limits: &limits,
            client: start.client.as_raw_fd(),
            control: start.control.as_raw_fd(),
            nothing: self.nothing.as_raw_fd(),
            output: start.output.map_or(self.nothing.as_raw_fd(), AsRawFd::as_raw_fd),
            rules: start.rules.map(AsRawFd::as_raw_fd),
            show_output: self.show_output,
        };
        // SAFETY: between here and `exec` or `_exit` the child only calls `Child::run`, which makes system calls, allocates
        // nothing, and takes no lock that another thread of the parent may have held.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                child.run();
                // SAFETY: this ends the process immediately; nothing of the parent's is flushed or dropped.
                unsafe { libc::_exit(CANNOT_START) }
            }
            pid => Ok(pid),
        }
    }
}

/// Child process between `fork` and `exec`. It only makes system calls, with arguments that were prepared
/// before `fork`.
struct Child<'a> {
    parent: pid_t,
    folder: &'a CString,
    words: &'a [*const c_char],
    variables: &'a [*const c_char],
    limits: &'a [(Resource, u64)],
    client: c_int,
    control: c_int,
    nothing: c_int,
    output: c_int,
    rules: Option<c_int>,
    show_output: bool,
}

impl Child<'_> {
    /// Sets up the child process and executes the program. Returns only on failure.
    fn run(&self) -> Option<()> {
        let done = |result: c_int| (result >= 0).then_some(result);
        // SAFETY: `setsid` takes no arguments, and may be called between `fork` and `exec`.
        done(unsafe { libc::setsid() })?;
        // SAFETY: `PR_SET_PDEATHSIG` takes an integer.
        done(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) })?;
        // The parent may have died before the death signal was set.
        // SAFETY: `getppid` takes no arguments and cannot fail.
        if unsafe { libc::getppid() } != self.parent {
            return None;
        }
        self.reset_signals()?;
        let rules = self.place_descriptors()?;
        for (resource, most) in self.limits {
            let mut now = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            // SAFETY: `getrlimit` writes to `now`, which is on this stack.
            done(unsafe { libc::getrlimit(*resource, &raw mut now) })?;
            let new = sys::capped(now, *most);
            // SAFETY: `new` lives on this stack and is only read.
            done(unsafe { libc::setrlimit(*resource, &raw const new) })?;
        }
        // SAFETY: `folder` is a C string; the child has its own copy of the parent's memory, in which it stays unchanged.
        done(unsafe { libc::chdir(self.folder.as_ptr()) })?;
        // SAFETY: `umask` takes an integer and cannot fail.
        unsafe { libc::umask(0o077) };
        if let Some(rules) = rules {
            // SAFETY: `PR_SET_NO_NEW_PRIVS` takes integers.
            done(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })?;
            // SAFETY: `landlock_restrict_self` takes a descriptor and flags, which are integers.
            done(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, rules, 0) } as c_int)?;
        }
        let program = *self.words.first()?;
        // SAFETY: both lists end with NULL and contain NUL-terminated strings; `pointers` has created them.
        unsafe { libc::execve(program, self.words.as_ptr(), self.variables.as_ptr()) };
        None
    }

    /// Resets the signal mask and all signal actions, because the mask and ignored signals would survive
    /// `exec`.
    fn reset_signals(&self) -> Option<()> {
        for signal in 1..=SIGNALS {
            // SAFETY: the default is a valid action. Signals whose action cannot be set are left unchanged.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        // SAFETY: `sigset_t` is an array of integers, which may be zero.
        let mut none: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: `none` is on this stack and not borrowed.
        unsafe { libc::sigemptyset(&raw mut none) };
        // SAFETY: `none` lives on this stack and is only read; a null pointer for the old set is allowed.
        (unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut()) } == 0)
            .then_some(())
    }

    /// Moves the client's connection, the channel to the listener and the standard streams to the descriptor
    /// numbers that the program expects. Marks all other descriptors close-on-exec. Returns the new
    /// descriptor of the Landlock rules, if any, or `None` on failure.
    fn place_descriptors(&self) -> Option<Option<c_int>> {
        // All are moved out of the way first, since any of them may have the number of another's destination.
        let mut moved =
            [self.client, self.control, self.nothing, self.output, self.rules.unwrap_or(self.nothing)];
        for fd in &mut moved {
            // SAFETY: `F_DUPFD_CLOEXEC` takes an integer; a descriptor that is not open is an error.
            *fd = unsafe { libc::fcntl(*fd, libc::F_DUPFD_CLOEXEC, 16) };
            if *fd < 0 {
                return None;
            }
        }
        let [client, control, nothing, output, rules] = moved;
        let rules = self.rules.map(|_| rules);
        let places = [(client, CLIENT_FD), (control, CONTROL_FD), (nothing, 0), (nothing, 1), (output, 2)];
        // If error output is shown, the last descriptor is already that of the listener.
        for (fd, place) in places.into_iter().take(if self.show_output { 4 } else { 5 }) {
            // SAFETY: `dup2` takes integers. A descriptor that was open at `place` belongs only to this process, which is about
            // to become another program.
            if unsafe { libc::dup2(fd, place) } < 0 {
                return None;
            }
        }
        let first = CONTROL_FD + 1;
        // SAFETY: `close_range` takes integers; with this flag it closes nothing before `exec`.
        let closed =
            unsafe { libc::syscall(libc::SYS_close_range, first, c_int::MAX, libc::CLOSE_RANGE_CLOEXEC) };
        if closed == 0 {
            return Some(rules);
        }
        // On kernels before 5.11, each descriptor is marked separately.
        let mut now = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: `getrlimit` writes to `now`, which is on this stack.
        unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut now) };
        let end = c_int::try_from(now.rlim_cur).unwrap_or(c_int::MAX).min(1 << 20);
        for fd in first..end {
            // SAFETY: `F_SETFD` takes an integer. Most of these descriptors are not open, which is an error without an effect.
            unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
        Some(rules)
    }
}

fn joined(name: &OsStr, value: &OsStr) -> OsString {
    let mut text = name.to_owned();
    text.push("=");
    text.push(value);
    text
}

/// Returns a null-terminated array of pointers to strings, as `exec` takes it. The array is valid
/// as long as the strings exist.
fn pointers(texts: &[CString]) -> Vec<*const c_char> {
    texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
}

/// Redirects standard error to `/dev/null` if the listener captures it, so that the capture ends
/// when this process begins to serve its client.
pub(crate) fn forget_output() {
    if std::env::var_os(HEARD).is_none() {
        return;
    }
    if let Ok(nothing) = File::options().write(true).open("/dev/null") {
        // SAFETY: `dup2` takes integers. Descriptor 2 is the error output, which no value owns; it stays open and refers to
        // another file.
        unsafe { libc::dup2(nothing.as_raw_fd(), 2) };
    }
}

/// Lowers the resource limits of a running session process to the limits of its client's key.
/// Initially, each limit is the maximum over all keys.
pub(crate) fn tighten(pid: pid_t, limits: &Limits) -> io::Result<()> {
    sys::limit(pid, libc::RLIMIT_AS, limits.process_bytes)?;
    sys::limit(pid, libc::RLIMIT_FSIZE, limits.file_bytes)?;
    sys::limit(pid, libc::RLIMIT_NOFILE, limits.files.max(64))?;
    sys::limit_with_grace(pid, libc::RLIMIT_CPU, limits.cpu_seconds.max(1), 1)
}

/// Checks that a program is executable. A mistake is thus reported when the server starts, and not
/// to its first client.
pub(crate) fn check_program(program: &str) -> io::Result<()> {
    let path = CString::new(program)?;
    // SAFETY: `path` is a C string that lives for the call, which only reads it.
    sys::check(unsafe { libc::access(path.as_ptr(), libc::X_OK) }).map(drop)
}
