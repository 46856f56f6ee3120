//! Measurement of the run time of functions: [`TimeEvaluator`].
//!
//! A measurement calls the function in a native loop with arguments that are converted once. It therefore excludes the
//! overhead of a frontend. The time is that of a clock for the device: see [`Timer`].

mod cache;
mod clock;
mod globals;
mod timer;

use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use anyfn::abi::{TVMFFIAny, TVMFFIFunctionCell, TVMFFIObject, kTVMFFIObjectRValueRef};
use anyfn::{Any, AnyView, Array, Device, Object, PackedFunc, Result, bail, check_signals};

pub use cache::{cache_bytes, flush_cache};
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
pub use clock::set_clock;
pub use timer::{Timer, register_timer, timer};

use clock::Instant;

/// Evaluator that measures the time of calls to a function. Its fields are the options.
///
/// ```
/// # use anyfn_loader as _;
/// use anyfn::TypedPackedFunc;
/// use anyfn_runtime::timing::TimeEvaluator;
///
/// let sum = TypedPackedFunc::from_fn(|n: u64| (0..n).map(|i| i.pow(2)).fold(0, u64::wrapping_add));
/// let timing = TimeEvaluator { number: 5, repeat: 3, ..TimeEvaluator::default() }.run(sum.as_packed(), (1000_u64,))?;
/// assert_eq!(timing.results.len(), 3);
/// assert!(timing.min <= timing.median && timing.median <= timing.max);
/// println!("{timing}");
/// # Ok::<(), anyfn::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct TimeEvaluator {
    /// Device whose work is measured.
    pub device: Device,
    /// Number of calls in one measurement, at least 1. The result of the measurement is the mean time of
    /// these calls.
    pub number: u64,
    /// Number of measurements. At least 1.
    pub repeat: u64,
    /// Minimum time of one measurement in milliseconds. `number` is increased until a measurement
    /// takes at least this time.
    pub min_repeat_ms: f64,
    /// Maximum number of further attempts if the time of a measurement is zero. Each attempt makes
    /// twice as many calls as the previous one.
    pub limit_zero_time_iterations: u64,
    /// Pause in milliseconds after every [`repeats_to_cooldown`](Self::repeats_to_cooldown) measurements.
    pub cooldown_interval_ms: u64,
    /// Number of measurements between two pauses. At least 1.
    pub repeats_to_cooldown: u64,
    /// Number of bytes that are written and read before each call, so that the caches do not hold data of the measured
    /// function; 0 for none. With a value other than 0, each call is measured individually.
    pub cache_flush_bytes: usize,
    /// Function that is called with the same arguments before each measurement. Its time is not measured.
    pub preprocess: Option<PackedFunc>,
}

impl Default for TimeEvaluator {
    /// Returns options for one measurement of ten calls on the CPU.
    fn default() -> TimeEvaluator {
        TimeEvaluator {
            device: Device::CPU,
            number: 10,
            repeat: 1,
            min_repeat_ms: 0.0,
            limit_zero_time_iterations: 100,
            cooldown_interval_ms: 0,
            repeats_to_cooldown: 1,
            cache_flush_bytes: 0,
            preprocess: None,
        }
    }
}

/// Results of the measurements of an evaluator. All times are in seconds per call.
#[derive(Object, Debug)]
#[object(key = "anyfn.Timing")]
pub struct Timing {
    /// Mean time of a call in each measurement, in seconds.
    pub results: Array<f64>,
    /// Number of calls in each measurement.
    pub numbers: Array<i64>,
    /// Mean of the results of all measurements, in seconds per call.
    pub mean: f64,
    /// Median of the results of all measurements, in seconds per call.
    pub median: f64,
    /// Minimum of the results, in seconds per call: the result of the least disturbed measurement.
    pub min: f64,
    /// Maximum of the results of all measurements, in seconds per call.
    pub max: f64,
    /// Population standard deviation of the results of all measurements, in seconds per call.
    pub std: f64,
    /// Time of a direct call of an empty function in seconds, as an estimate of the call overhead in each
    /// result.
    pub overhead: f64,
    /// Device whose work was measured.
    pub device: Device,
    /// Mean time of a call in seconds by the clock of the host, in which the device is waited for once for each measurement. The
    /// other times are those of the device's clock.
    pub wall: f64,
}

/// Approximate number of seconds between two checks for signals.
const CHECK_INTERVAL: f64 = 0.01;

/// Maximum number of calls in one measurement.
const NUMBER_MAX: u64 = 1 << 40;

impl TimeEvaluator {
    /// Calls `function` once to warm up, then measures it.
    ///
    /// # Errors
    /// Returns the error of the function; the error of [`check_signals`], between calls; `ValueError` for an option out
    /// of range; `RuntimeError` if the device is not available.
    pub fn run(&self, function: &PackedFunc, args: impl anyfn::IntoArgs) -> Result<Timing> {
        let mut timing = None;
        let none = args.with_views(|views| {
            timing = Some(self.run_views(function, views)?);
            Ok(Any::NONE)
        });
        none?;
        match timing {
            Some(timing) => Ok(timing),
            None => bail!("InternalError", "the measurement returned no result"),
        }
    }

    /// Measures `function` as [`TimeEvaluator::run`] does, with arguments that are passed as views.
    ///
    /// # Errors
    /// Returns the errors of [`TimeEvaluator::run`], and `ValueError` if an argument is an rvalue reference, which only
    /// one call could consume.
    pub fn run_views(&self, function: &PackedFunc, args: &[AnyView<'_>]) -> Result<Timing> {
        self.check()?;
        if let Some(index) = args.iter().position(|arg| arg.type_index() == kTVMFFIObjectRValueRef) {
            bail!(
                "ValueError",
                "time_evaluator: argument #{index} is moved, so it would be missing in a second call"
            );
        }
        let mut timer = timer(self.device)?;
        let mut measured = Measurement::warm_up(&mut *timer, function, args)?;
        let (mut results, mut numbers) = (Vec::new(), Vec::new());
        let mut number = self.number;
        for repeat in 1..=self.repeat {
            let seconds = self.measure(&mut measured, &mut number)?;
            results.push(seconds / number as f64);
            numbers.push(i64::try_from(number).unwrap_or(i64::MAX));
            if self.cooldown_interval_ms > 0 && repeat < self.repeat && repeat % self.repeats_to_cooldown == 0 {
                rest(Duration::from_millis(self.cooldown_interval_ms))?;
            }
        }
        let wall = measured.wall / measured.calls.max(1) as f64;
        Timing::new(&results, &numbers, self.device, wall)
    }

    fn check(&self) -> Result<()> {
        let least = |name: &str, value: u64| match value {
            0 => bail!("ValueError", "time_evaluator: expected `{name}` to be at least 1 but got 0"),
            _ => Ok(()),
        };
        least("number", self.number)?;
        least("repeat", self.repeat)?;
        least("repeats_to_cooldown", self.repeats_to_cooldown)?;
        if self.number > NUMBER_MAX {
            bail!(
                "ValueError",
                "time_evaluator: expected `number` to be at most {NUMBER_MAX} but got {}",
                self.number
            );
        }
        if !(self.min_repeat_ms >= 0.0 && self.min_repeat_ms.is_finite()) {
            let got = self.min_repeat_ms;
            bail!("ValueError", "time_evaluator: expected `min_repeat_ms` to be a time but got {got}");
        }
        Ok(())
    }

    /// Measures `number` calls together. Increases `number` and measures again until a measurement takes long
    /// enough (see [`TimeEvaluator::min_repeat_ms`]). Returns the seconds that the last `number` calls took.
    fn measure(&self, measured: &mut Measurement<'_>, number: &mut u64) -> Result<f64> {
        let least = self.min_repeat_ms / 1e3;
        let mut zeros = 0;
        loop {
            if let Some(preprocess) = &self.preprocess {
                preprocess.call_views(measured.args)?;
            }
            let seconds = match self.cache_flush_bytes {
                0 => measured.together(*number)?,
                bytes => measured.one_by_one(*number, self.device, bytes)?,
            };
            check_signals()?;
            let more = if seconds <= 0.0 {
                zeros += 1;
                if zeros > self.limit_zero_time_iterations {
                    return Ok(0.0);
                }
                2.0 * *number as f64
            } else if seconds < least {
                (least / (seconds / *number as f64) + 1.0).max(*number as f64 * 1.618)
            } else {
                return Ok(seconds);
            };
            if *number >= NUMBER_MAX {
                return Ok(seconds.max(0.0));
            }
            *number = (more as u64).clamp(*number + 1, NUMBER_MAX);
        }
    }
}

/// A function under measurement.
struct Measurement<'a> {
    timer: &'a mut dyn Timer,
    function: &'a PackedFunc,
    args: &'a [AnyView<'a>],
    /// Number of calls between two checks for signals.
    chunk: u64,
    /// Seconds on the clock of the host that all calls took.
    wall: f64,
    /// Number of all calls.
    calls: u64,
}

impl<'a> Measurement<'a> {
    /// Prepares a measurement and calls the function once, so that one-time costs of the first call
    /// are not measured.
    fn warm_up(
        timer: &'a mut dyn Timer,
        function: &'a PackedFunc,
        args: &'a [AnyView<'a>],
    ) -> Result<Measurement<'a>> {
        let mut warmed = Measurement { timer, function, args, chunk: 1, wall: 0.0, calls: 0 };
        warmed.together(1)?;
        Ok(Measurement { wall: 0.0, calls: 0, ..warmed })
    }

    /// Measures `number` successive calls as a whole, and returns the seconds that they took.
    fn together(&mut self, number: u64) -> Result<f64> {
        let mut left = number;
        let start = Instant::now();
        self.timer.start()?;
        loop {
            let chunk = left.min(self.chunk);
            for _ in 0..chunk {
                self.function.call_views(self.args)?;
            }
            left -= chunk;
            if left == 0 {
                break;
            }
            check_signals()?;
        }
        let seconds = self.timer.stop()?;
        self.took(start, number);
        // The very first call may be much slower than later ones, so the chunk may still grow, at most 1024-fold at a
        // time.
        let fitting = CHECK_INTERVAL / (seconds.max(1e-9) / number as f64);
        self.chunk = (fitting as u64).clamp(1, self.chunk.saturating_mul(1024));
        Ok(seconds)
    }

    /// Adds calls that were made from `start` until now.
    fn took(&mut self, start: Instant, calls: u64) {
        self.wall += start.elapsed().as_secs_f64();
        self.calls += calls;
    }

    /// Measures each of `number` calls individually, with cold caches, and returns the sum of their times in seconds.
    fn one_by_one(&mut self, number: u64, device: Device, flush: usize) -> Result<f64> {
        let mut sum = 0.0;
        for _ in 0..number {
            cache::flush_device(device, flush)?;
            let start = Instant::now();
            self.timer.start()?;
            self.function.call_views(self.args)?;
            sum += self.timer.stop()?;
            self.took(start, 1);
            check_signals()?;
        }
        Ok(sum)
    }
}

/// Sleeps for the duration `time`. Returns the error of [`check_signals`] if a signal arrives.
fn rest(time: Duration) -> Result<()> {
    let end = Instant::now() + time;
    loop {
        check_signals()?;
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        clock::sleep(left.min(Duration::from_secs_f64(CHECK_INTERVAL)));
    }
}

/// Returns the duration of a call of an empty function in seconds. The duration is measured once in
/// the process.
fn empty_call() -> f64 {
    static MEASURED: OnceLock<f64> = OnceLock::new();
    *MEASURED.get_or_init(|| {
        const CALLS: u32 = 1000;
        let nothing = PackedFunc::new(|_| Ok(Any::NONE));
        let handle = nothing.as_object().as_handle();
        // SAFETY: the cell of a function object follows its header.
        let cell: *const TVMFFIFunctionCell = unsafe { handle.cast::<TVMFFIObject>().add(1) }.cast();
        // SAFETY: the cell is part of the function object, which is alive here and does not change.
        let safe_call = unsafe { (*cell).safe_call };
        let mut best = f64::INFINITY;
        for _ in 0..10 {
            let start = Instant::now();
            for _ in 0..CALLS {
                let mut result = TVMFFIAny::NONE;
                // Called directly, since a profile would record an ordinary call.
                // SAFETY: the function takes any arguments and returns None, which owns nothing.
                std::hint::black_box(unsafe { safe_call(handle, std::ptr::null(), 0, &mut result) });
            }
            best = best.min(start.elapsed().as_secs_f64());
        }
        (best - timer::clock_read()).max(0.0) / f64::from(CALLS)
    })
}

/// Calls a function directly through its C function, so that the profiler does not record the call.
fn call_unseen(function: &PackedFunc, args: &[AnyView<'_>]) -> Result<Any> {
    let handle = function.as_object().as_handle();
    // SAFETY: the cell of a function object follows its header.
    let cell: *const TVMFFIFunctionCell = unsafe { handle.cast::<TVMFFIObject>().add(1) }.cast();
    // SAFETY: the cell is part of the function object, which is alive here and does not change.
    let safe_call = unsafe { (*cell).safe_call };
    let mut result = TVMFFIAny::NONE;
    // SAFETY: the views live for the call, and `result` owns nothing.
    match unsafe { safe_call(handle, args.as_ptr().cast(), args.len() as i32, &mut result) } {
        // SAFETY: on success the result is an owned value.
        0 => Ok(unsafe { Any::from_raw(result) }),
        _ => Err(anyfn::Error::take_raised()),
    }
}

impl Timing {
    fn new(results: &[f64], numbers: &[i64], device: Device, wall: f64) -> Result<Timing> {
        let count = results.len() as f64;
        let mut sorted = results.to_vec();
        anyfn::__private::sort_by(&mut sorted, f64::total_cmp);
        let (min, max) = (sorted[0], sorted[sorted.len() - 1]);
        let median = (sorted[(sorted.len() - 1) / 2] + sorted[sorted.len() / 2]) / 2.0;
        // Rounding must not move the mean outside the range of the results.
        let mean = (results.iter().sum::<f64>() / count).clamp(min, max);
        let std = (results.iter().map(|result| (result - mean).powi(2)).sum::<f64>() / count).sqrt();
        let overhead = empty_call();
        let results = Array::try_from_iter(results.iter().copied())?;
        let numbers = Array::try_from_iter(numbers.iter().copied())?;
        Ok(Timing { results, numbers, mean, median, min, max, std, overhead, device, wall })
    }
}

/// Writes the times and the numbers of calls as a few lines of text.
impl fmt::Display for Timing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = crate::units::Seconds;
        let repeats = self.results.len();
        let fewest = self.numbers.iter().min().unwrap_or_default();
        let most = self.numbers.iter().max().unwrap_or_default();
        let calls = if fewest == most { most.to_string() } else { format!("{fewest} to {most}") };
        write!(f, "{} per call on {}", time(self.mean), self.device)?;
        match self.device {
            Device::CPU => writeln!(f)?,
            _ => writeln!(f, ", {} by the clock of the host", time(self.wall))?,
        }
        if repeats > 1 {
            let (median, min, max, std) = (time(self.median), time(self.min), time(self.max), time(self.std));
            writeln!(f, "  median {median}, min {min}, max {max}, std {std}")?;
        }
        let plural = |count: &str| if count == "1" { "" } else { "s" };
        let measurements = repeats.to_string();
        write!(
            f,
            "  {measurements} measurement{} of {calls} call{}; a call of an empty function takes {}",
            plural(&measurements),
            plural(&calls),
            time(self.overhead)
        )
    }
}
