//! Threads that run native functions for JavaScript. They are started when they are needed, and end when they have been idle.

use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use anyfn::Error;

/// Maximum number of threads for asynchronous calls, without those that wait for JavaScript. Further calls wait for one of them.
const THREADS_MAX: usize = 64;
/// Maximum number of threads for asynchronous calls, with those that wait for JavaScript.
const ALL_MAX: usize = 4096;
/// Time after which an idle thread ends.
const IDLE: Duration = Duration::from_secs(5);

type Task = Box<dyn FnOnce() + Send>;

struct Pool {
    tasks: VecDeque<Task>,
    idle: usize,
    threads: usize,
    /// Number of threads that have been waiting for JavaScript code for a while.
    waiting: usize,
}

impl Pool {
    /// Returns true if a task that is not urgent must wait for one of the threads.
    fn is_full(&self) -> bool {
        self.threads.saturating_sub(self.waiting) >= THREADS_MAX || self.threads >= ALL_MAX
    }
}

thread_local! {
    /// True on the threads of the pool.
    static IS_OURS: Cell<bool> = const { Cell::new(false) };
}

static POOL: Mutex<Pool> = Mutex::new(Pool { tasks: VecDeque::new(), idle: 0, threads: 0, waiting: 0 });
static CHANGED: Condvar = Condvar::new();

/// When a task must begin.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Urgency {
    /// At once, on a further thread if necessary: the caller waits, and others may wait for the caller.
    Now,
    /// When a thread is free.
    Later,
}

fn lock() -> MutexGuard<'static, Pool> {
    POOL.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Runs a task on a thread of the pool.
///
/// # Errors
/// Returns an error if no thread can be started.
pub(crate) fn spawn(task: impl FnOnce() + Send + 'static, urgency: Urgency) -> Result<(), Error> {
    let mut pool = lock();
    let free = pool.idle > pool.tasks.len();
    if free || (urgency == Urgency::Later && pool.is_full()) {
        match urgency {
            Urgency::Now => pool.tasks.push_front(Box::new(task)),
            Urgency::Later => pool.tasks.push_back(Box::new(task)),
        }
        drop(pool);
        CHANGED.notify_one();
        return Ok(());
    }
    pool.threads += 1;
    drop(pool);
    start(Some(Box::new(task)))
}

/// Starts a thread, which the caller has counted.
fn start(first: Option<Task>) -> Result<(), Error> {
    let started = std::thread::Builder::new().name("anyfn-js".into()).spawn(move || work(first));
    started.map(drop).map_err(|error| {
        lock().threads -= 1;
        Error::new("RuntimeError", &format!("cannot start a thread: {error}"))
    })
}

/// The time during which a thread of the pool waits for JavaScript code.
pub(crate) struct Waiting(bool);

/// Lets another thread take tasks while this one waits: the JavaScript code that it waits for may await calls that are among them.
pub(crate) fn wait_for_javascript() -> Waiting {
    if !IS_OURS.get() {
        return Waiting(false);
    }
    let mut pool = lock();
    pool.waiting += 1;
    if !pool.tasks.is_empty() && !pool.is_full() {
        pool.threads += 1;
        drop(pool);
        // Without a further thread, the tasks wait for the others.
        let _ = start(None);
    }
    Waiting(true)
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.0 {
            lock().waiting -= 1;
        }
    }
}

/// Runs a first task, if any, and those that follow.
fn work(first: Option<Task>) {
    IS_OURS.set(true);
    let mut next = first.or_else(wait);
    while let Some(task) = next {
        // A panic must not end the thread, whose number is counted.
        let _ = catch_unwind(AssertUnwindSafe(task));
        next = wait();
    }
}

/// Waits for a task. Returns `None` if the thread must end.
fn wait() -> Option<Task> {
    let mut pool = lock();
    pool.idle += 1;
    loop {
        if let Some(task) = pool.tasks.pop_front() {
            pool.idle -= 1;
            return Some(task);
        }
        let (guard, timeout) =
            CHANGED.wait_timeout(pool, IDLE).unwrap_or_else(|poisoned| poisoned.into_inner());
        pool = guard;
        if timeout.timed_out() && pool.tasks.is_empty() {
            pool.idle -= 1;
            pool.threads -= 1;
            return None;
        }
    }
}
