//! Data structures in which the recorder passes the recorded calls to the report.

/// Value of [`Event::door`] for work of a device.
pub(super) const DEVICE: u32 = 100;
/// Maximum ID of a thread in Linux. The streams of devices have higher numbers.
pub(super) const THREAD_ID_MAX: u64 = 1 << 22;

/// A call in the timeline, or work of a device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    /// Start of the call in nanoseconds, on the clock of the recorder.
    pub(super) start: u64,
    pub(super) nanos: u64,
    /// Index of the function's name in the interned strings.
    pub(super) name: u32,
    /// Index of the description of the arguments in the interned strings; 0 if the arguments were not recorded.
    pub(super) args: u32,
    /// Kind of code that reported the call: one of the constants of `anyfn::observe::door`, or [`DEVICE`].
    pub(super) door: u32,
    pub(super) failed: bool,
    /// True if the call was still running when the recording ended.
    pub(super) open: bool,
}

/// Totals over all calls of a function on one thread.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum {
    pub(super) name: u32,
    pub(super) calls: u64,
    pub(super) errors: u64,
    /// Total time of the calls in nanoseconds. The time of recursive calls is not counted twice.
    pub(super) total: u64,
    /// Self time of the calls in nanoseconds: their total time without the calls that they make.
    pub(super) own: u64,
    pub(super) min: u64,
    pub(super) max: u64,
    /// Number of calls of the function that are in progress.
    pub(super) open: u32,
}

/// Recorded calls of one thread.
pub(super) struct Thread {
    /// Thread ID in the operating system.
    pub(super) number: u64,
    pub(super) name: String,
    pub(super) events: Vec<Event>,
    /// Totals of the functions that the thread has called, one element for each function name. The
    /// field is empty once the report has taken the totals.
    pub(super) sums: Vec<Sum>,
}
