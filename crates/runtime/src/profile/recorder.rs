//! Recording of function calls for the profiler.
//!
//! Each thread has a log of its calls. The logs are distributed over shards, each of which has a lock, so that two
//! threads rarely contend for one. The shards own the logs, so a log is not lost when its thread ends. A forked process
//! begins without logs, whatever state the locks of its parent were in.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use anyfn::abi::TVMFFIAny;
use anyfn::observe::{Call, Observer};
use anyfn::{Device, OpaquePtr, Result, bail, registry};

use super::names::{self, KnownNames, Texts};
use super::recorded::{DEVICE, Event, Sum, THREAD_ID_MAX, Thread};
use super::report::Profile;
use crate::device::{record_work, take_work};

/// Options of the profiler for one recording.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Maximum number of calls that are kept individually for the timeline, each in 32 bytes.
    /// Further calls contribute only to the statistics.
    pub limit: usize,
    /// True if the types and shapes of arguments are kept as well.
    pub shapes: bool,
}

impl Default for Options {
    /// Returns options with a limit of a million calls, and without descriptions of arguments.
    fn default() -> Options {
        Options { limit: 1_000_000, shapes: false }
    }
}

/// A recorded call that is in progress.
struct ActiveCall {
    function: *mut c_void,
    args: *const TVMFFIAny,
    start: u64,
    /// Nanoseconds spent in the calls that this call makes.
    inner: u64,
    /// Index of the called function's totals in the `sums` of the thread's log.
    sum: usize,
    described: u32,
    door: u32,
    /// True if both the caller and the callee have reported this call.
    claimed: bool,
    /// True if this call is recursive: an outer call of the same function is in progress.
    nested: bool,
}

/// Log of the recorded calls of one thread.
struct Log {
    calls: Thread,
    by_name: BTreeMap<u32, usize>,
    known: KnownNames,
    frames: Vec<ActiveCall>,
}

// SAFETY: addresses of functions and arguments are only compared, never dereferenced.
unsafe impl Send for Log {}

const SHARDS: usize = 32;
/// Maximum number of threads whose calls are recorded.
const THREADS_MAX: usize = 4096;

#[derive(Default)]
struct Shard {
    logs: BTreeMap<u32, Log>,
}

/// State of the recorder that is guarded by locks.
struct RecorderState {
    shards: [Mutex<Shard>; SHARDS],
    texts: Mutex<Texts>,
    /// The recording in progress; `None` if no recording is running.
    running: Mutex<Option<Running>>,
}

struct Running {
    began: u64,
}

static STATE: AtomicPtr<RecorderState> = AtomicPtr::new(ptr::null_mut());
/// True while calls are recorded. The child of a fork inherits the observer that reports calls, but not the
/// recording, so an installed observer does not imply a recording.
static ON: AtomicBool = AtomicBool::new(false);
/// Sequence number of the current or latest recording. The token of a call contains this number, so
/// that the end of a call that began in an earlier recording is ignored.
static GENERATION: AtomicU32 = AtomicU32::new(0);
/// Number of calls that the current recording may still keep individually for the timeline.
static LEFT: AtomicI64 = AtomicI64::new(0);
/// Number of calls of the current recording that are missing from the timeline.
static DROPPED: AtomicU64 = AtomicU64::new(0);
static SHAPES: AtomicBool = AtomicBool::new(false);
static THREADS: AtomicU32 = AtomicU32::new(0);

// SAFETY: `enter` takes a valid call and `leave` the result of `enter`, on any thread; neither unwinds.
static OBSERVER: Observer = unsafe { Observer::new(enter, leave) };

thread_local! {
    /// Number of this thread in the profiler's recordings; 0 before the thread's first recorded call. The
    /// variable has no destructor, so it remains valid while the thread ends.
    static THREAD: Cell<u32> = const { Cell::new(0) };
    /// True while this thread looks up the name of a function. The lookup may call functions, which are not recorded.
    static BUSY: Cell<bool> = const { Cell::new(false) };
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Guarded data is changed in single steps, so it is consistent after a panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn state() -> &'static RecorderState {
    let mut current = STATE.load(Ordering::Acquire);
    if current.is_null() {
        let new = Box::into_raw(Box::new(RecorderState {
            shards: std::array::from_fn(|_| Mutex::default()),
            texts: Mutex::default(),
            running: Mutex::new(None),
        }));
        match STATE.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => current = new,
            Err(first) => {
                // SAFETY: allocated above and not shared.
                drop(unsafe { Box::from_raw(new) });
                current = first;
            }
        }
    }
    // SAFETY: the state is never freed.
    unsafe { &*current }
}

/// Returns the time of the first recording of the process, at which the clock of the recorder is zero.
fn origin() -> Instant {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    *ORIGIN.get_or_init(Instant::now)
}

/// Returns the time in nanoseconds since the first recording of the process.
fn now() -> u64 {
    origin().elapsed().as_nanos() as u64
}

/// Returns the work that devices did during the recording: one log for each stream, in the order of their first use.
fn device_logs(texts: &mut Texts) -> Vec<Thread> {
    let mut logs: Vec<((Device, usize), Thread)> = Vec::new();
    for work in take_work() {
        let key = (work.device, work.stream);
        let at = logs.iter().position(|(known, _)| *known == key).unwrap_or_else(|| {
            let others = logs.iter().filter(|((device, _), _)| *device == work.device).count();
            let stream = if others == 0 { String::new() } else { format!(", stream {}", others + 1) };
            let (number, name) = (THREAD_ID_MAX + 1 + logs.len() as u64, format!("{}{stream}", work.device));
            logs.push((key, Thread { number, name, events: Vec::new(), sums: Vec::new() }));
            logs.len() - 1
        });
        let event = Event {
            start: work.start.saturating_duration_since(origin()).as_nanos() as u64,
            nanos: work.time.as_nanos() as u64,
            name: texts.number(&work.name),
            args: 0,
            door: DEVICE,
            failed: false,
            open: false,
        };
        if LEFT.fetch_sub(1, Ordering::Relaxed) > 0 {
            logs[at].1.events.push(event);
        } else {
            LEFT.fetch_add(1, Ordering::Relaxed);
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
    }
    logs.into_iter().map(|(_, log)| log).collect()
}

/// Resets the state in the child of a fork, so that no recording is running and no lock is held.
unsafe extern "C" fn forget() {
    ON.store(false, Ordering::Relaxed);
    record_work(false);
    STATE.store(ptr::null_mut(), Ordering::Release);
}

/// Returns true while calls are recorded.
pub fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// Starts to record the calls of all threads.
///
/// # Errors
/// Returns `RuntimeError` if a recording is already running.
pub fn start(options: Options) -> Result<()> {
    static FORKS: OnceLock<c_int> = OnceLock::new();
    // SAFETY: the function is never unloaded: this crate is part of the program, or of the runtime's library, which is
    // not unloaded.
    FORKS.get_or_init(|| unsafe { libc::pthread_atfork(None, None, Some(forget)) });
    let state = state();
    let mut running = lock(&state.running);
    if running.is_some() {
        bail!("RuntimeError", "a profile is already running; stop it before starting another one");
    }
    for shard in &state.shards {
        // Logs of calls that began while the last recording was ending. They are dropped without the lock.
        let left = std::mem::take(&mut lock(shard).logs);
        drop(left);
    }
    *lock(&state.texts) = Texts::default();
    GENERATION.fetch_add(1, Ordering::Relaxed);
    LEFT.store(i64::try_from(options.limit).unwrap_or(i64::MAX), Ordering::Relaxed);
    DROPPED.store(0, Ordering::Relaxed);
    SHAPES.store(options.shapes, Ordering::Relaxed);
    // The call that this makes is not recorded, because recording is not enabled yet.
    observe(&raw const OBSERVER)?;
    *running = Some(Running { began: now() });
    // Work that was queued while the last recording was ending.
    drop(take_work());
    record_work(true);
    ON.store(true, Ordering::Release);
    Ok(())
}

/// Ends the recording and returns the profile of the calls since [`start`].
///
/// # Errors
/// Returns `RuntimeError` if no recording is running, for example in a process that was forked during a recording.
pub fn stop() -> Result<Profile> {
    let state = state();
    let mut running = lock(&state.running);
    let Some(Running { began }) = running.take() else {
        bail!(
            "RuntimeError",
            "no profile is running; a child process forked from a profiled process is not profiled"
        );
    };
    ON.store(false, Ordering::Release);
    record_work(false);
    let ended = now();
    observe(ptr::null())?;
    let mut logs: Vec<Log> = Vec::new();
    for shard in &state.shards {
        let taken = std::mem::take(&mut lock(shard).logs);
        logs.extend(taken.into_values());
    }
    let mut texts = std::mem::take(&mut *lock(&state.texts));
    drop(running);
    let devices = device_logs(&mut texts);
    let threads = logs.into_iter().map(|log| log.end(ended, &texts)).collect();
    Ok(Profile::new(threads, devices, texts, began..ended, DROPPED.load(Ordering::Relaxed)))
}

fn observe(observer: *const Observer) -> Result<()> {
    // SAFETY: the function receives NULL or an observer that lives as long as the process, as it requires.
    let observe = unsafe { registry::get_unsafe("ffi.ObserveCalls") }?;
    // SAFETY: only this function receives the address.
    let observer = unsafe { OpaquePtr::from_ptr(observer.cast_mut().cast::<c_void>()) };
    observe.call((observer,)).map(drop)
}

fn thread() -> u32 {
    match THREAD.get() {
        0 => {
            let number = THREADS.fetch_add(1, Ordering::Relaxed) + 1;
            THREAD.set(number);
            number
        }
        number => number,
    }
}

/// Records the beginning of a call. Returns the token for [`leave`], or 0 if the call is not recorded.
unsafe extern "C" fn enter(call: *const Call) -> u64 {
    if !ON.load(Ordering::Acquire) || BUSY.get() {
        return 0;
    }
    // SAFETY: the caller of an observer passes a valid call.
    let call = unsafe { &*call };
    anyfn::__private::catch(|| Ok(begin(call))).unwrap_or(0)
}

fn begin(call: &Call) -> u64 {
    let state = state();
    let thread = thread();
    let shard = &state.shards[thread as usize % SHARDS];
    let mut described = 0;
    if SHAPES.load(Ordering::Relaxed) {
        // SAFETY: the call contains `num_args` valid views.
        let text = unsafe { super::args::describe(call.args, call.num_args) };
        described = lock(&state.texts).number(&text);
    }
    {
        let mut shard = lock(shard);
        if !shard.logs.contains_key(&thread) {
            if shard.logs.len() >= THREADS_MAX / SHARDS {
                DROPPED.fetch_add(1, Ordering::Relaxed);
                return 0;
            }
            shard.logs.insert(thread, Log::new());
        }
        let Some(log) = shard.logs.get_mut(&thread) else { return 0 };
        if call.is_callee()
            && let Some(top) = log.frames.last_mut()
            && !top.claimed
            && ptr::eq(top.function, call.function)
            && ptr::eq(top.args, call.args)
        {
            top.claimed = true;
            return 0;
        }
        if let Some(name) = log.known.get(call.function) {
            return log.enter(call, name, described);
        }
    }
    // Not under a lock, because finding a name may run arbitrary code.
    BUSY.set(true);
    let name = anyfn::__private::catch(|| Ok(names::find(call))).unwrap_or_default();
    BUSY.set(false);
    let name = lock(&state.texts).number(&name);
    let mut shard = lock(shard);
    let Some(log) = shard.logs.get_mut(&thread) else { return 0 };
    let old = log.known.insert(call.function, name);
    let token = log.enter(call, name, described);
    drop(shard);
    drop(old);
    token
}

/// Records the end of the call for which [`enter`] returned `token`. The status `code` is 0 if the call
/// succeeded.
unsafe extern "C" fn leave(token: u64, code: c_int) {
    let end = now();
    if !ON.load(Ordering::Acquire) {
        return;
    }
    let over = anyfn::__private::catch(|| {
        let thread = thread();
        let mut shard = lock(&state().shards[thread as usize % SHARDS]);
        if (token >> 32) as u32 == GENERATION.load(Ordering::Relaxed)
            && let Some(log) = shard.logs.get_mut(&thread)
        {
            log.leave(token as u32 as usize, end, code != 0);
        }
        Ok(())
    });
    // An error cannot be reported to any caller.
    drop(over);
}

impl Log {
    /// Creates an empty log for this thread.
    fn new() -> Log {
        let (number, name) = names::this_thread();
        Log {
            calls: Thread { number, name, events: Vec::new(), sums: Vec::new() },
            by_name: BTreeMap::new(),
            known: KnownNames::default(),
            frames: Vec::new(),
        }
    }

    fn enter(&mut self, call: &Call, name: u32, described: u32) -> u64 {
        let sums = &mut self.calls.sums;
        let sum = *self.by_name.entry(name).or_insert_with(|| {
            sums.push(Sum { name, min: u64::MAX, ..Sum::default() });
            sums.len() - 1
        });
        let nested = self.calls.sums[sum].open > 0;
        self.calls.sums[sum].open += 1;
        let &Call { function, args, door, .. } = call;
        let frame =
            ActiveCall { function, args, start: 0, inner: 0, sum, described, door, claimed: false, nested };
        self.frames.push(frame);
        let depth = self.frames.len();
        // The clock is read as late as possible.
        self.frames[depth - 1].start = now();
        (u64::from(GENERATION.load(Ordering::Relaxed)) << 32) | depth as u64
    }

    /// Records the end of the call at the depth `depth` of the stack of active calls; the outermost
    /// call has depth 1. Discards all deeper calls, whose ends were not reported.
    fn leave(&mut self, depth: usize, end: u64, failed: bool) {
        while self.frames.len() > depth {
            if let Some(lost) = self.frames.pop() {
                self.calls.sums[lost.sum].open -= 1;
            }
        }
        if self.frames.len() != depth {
            return;
        }
        let Some(frame) = self.frames.pop() else { return };
        let nanos = end.saturating_sub(frame.start);
        let sum = &mut self.calls.sums[frame.sum];
        sum.open -= 1;
        sum.calls += 1;
        sum.errors += u64::from(failed);
        sum.own += nanos.saturating_sub(frame.inner);
        sum.min = sum.min.min(nanos);
        sum.max = sum.max.max(nanos);
        if !frame.nested {
            sum.total += nanos;
        }
        if let Some(outer) = self.frames.last_mut() {
            outer.inner += nanos;
        }
        if LEFT.fetch_sub(1, Ordering::Relaxed) <= 0 {
            LEFT.fetch_add(1, Ordering::Relaxed);
            DROPPED.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.keep(&frame, nanos, failed, false);
    }

    fn keep(&mut self, frame: &ActiveCall, nanos: u64, failed: bool, open: bool) {
        let name = self.calls.sums[frame.sum].name;
        let &ActiveCall { start, described: args, door, .. } = frame;
        self.calls.events.push(Event { start, nanos, name, args, door, failed, open });
    }

    /// Completes the log at the end of the recording, and returns the recorded calls. Calls in
    /// progress are added to the timeline, except calls of the profiler's own functions.
    fn end(mut self, end: u64, texts: &Texts) -> Thread {
        for frame in std::mem::take(&mut self.frames) {
            if !texts.get(self.calls.sums[frame.sum].name).starts_with("anyfn.profile.") {
                self.keep(&frame, end.saturating_sub(frame.start), false, true);
            }
        }
        self.calls.sums.retain(|sum| sum.calls > 0);
        self.calls
    }
}
