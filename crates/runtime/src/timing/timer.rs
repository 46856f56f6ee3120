//! The clock of a device.

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Instant;

use anyfn::abi::kDLCPU;
use anyfn::{Device, Result, bail};

/// Measures work of a device.
///
/// A device whose work runs beside the calls that ask for it measures between two marks on its stream (events), or waits
/// until all work is done before it reads a clock. What is asked for between [`start`](Timer::start) and
/// [`stop`](Timer::stop) counts, and nothing else.
pub trait Timer {
    /// Begins a measurement.
    ///
    /// # Errors
    /// What the device gives, also for work from before.
    fn start(&mut self) -> Result<()>;

    /// Ends the measurement: waits for the work and gives its seconds, less what the measurement itself takes.
    ///
    /// # Errors
    /// What the device gives, also for the work.
    fn stop(&mut self) -> Result<f64>;
}

/// Makes the timer of a device.
type MakeTimer = fn(Device) -> Result<Box<dyn Timer>>;

static TIMERS: Mutex<BTreeMap<i32, MakeTimer>> = Mutex::new(BTreeMap::new());

/// Sets how devices of a kind (one of the `kDL*` constants) are timed; a driver calls this once.
pub fn register_timer(device_type: i32, make: MakeTimer) {
    TIMERS.lock().unwrap_or_else(PoisonError::into_inner).insert(device_type, make);
}

/// A timer of a device.
///
/// # Errors
/// `RuntimeError` if no driver of this kind of device is there; what the driver gives.
pub fn timer(device: Device) -> Result<Box<dyn Timer>> {
    let registered = TIMERS.lock().unwrap_or_else(PoisonError::into_inner).get(&device.0.device_type).copied();
    match registered {
        Some(make) => make(device),
        None if device.0.device_type == kDLCPU => Ok(Box::new(CpuTimer(Instant::now()))),
        None => bail!(
            "RuntimeError",
            "cannot measure on {device}: no driver for it is there (`anyfn doctor` says why); measure on cpu:0, or load \
             the driver"
        ),
    }
}

/// The monotonic clock: work of the CPU is done when the call returns.
struct CpuTimer(Instant);

impl Timer for CpuTimer {
    fn start(&mut self) -> Result<()> {
        self.0 = Instant::now();
        Ok(())
    }

    fn stop(&mut self) -> Result<f64> {
        Ok((self.0.elapsed().as_secs_f64() - clock_read()).max(0.0))
    }
}

/// Seconds that lie between two readings of the clock with nothing in between.
pub(super) fn clock_read() -> f64 {
    static MEASURED: OnceLock<f64> = OnceLock::new();
    *MEASURED.get_or_init(|| {
        let read = || Instant::now().elapsed().as_secs_f64();
        (0..100).map(|_| read()).fold(f64::INFINITY, f64::min)
    })
}
