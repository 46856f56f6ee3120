//! The clock of a device.

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Instant;

use anyfn::abi::{TVMFFIEnvGetStream, kDLCPU};
use anyfn::{Device, Result};

use crate::device::{Event, driver_of, synchronize};

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

/// Sets how devices of a kind (one of the `kDL*` constants) are timed, for a driver that knows a better way than its
/// events; it calls this once.
pub fn register_timer(device_type: i32, make: MakeTimer) {
    TIMERS.lock().unwrap_or_else(PoisonError::into_inner).insert(device_type, make);
}

/// A timer of a device: what its driver has registered, else between two events of its stream, else with a clock of the host
/// that is read when all work is done.
///
/// # Errors
/// `RuntimeError` if the device is not there; what the driver gives.
pub fn timer(device: Device) -> Result<Box<dyn Timer>> {
    let registered = TIMERS.lock().unwrap_or_else(PoisonError::into_inner).get(&device.0.device_type).copied();
    match registered {
        Some(make) => make(device),
        None if device.0.device_type == kDLCPU => Ok(Box::new(CpuTimer(Instant::now()))),
        None => {
            driver_of(device)?;
            match EventTimer::new(device) {
                Ok(timer) => Ok(Box::new(timer)),
                Err(error) if error.kind() == "NotImplementedError" => {
                    Ok(Box::new(WaitingTimer { device, start: Instant::now() }))
                }
                Err(error) => Err(error),
            }
        }
    }
}

/// Measures between two events in the stream that is the current one of the device.
struct EventTimer {
    device: Device,
    start: Event,
    end: Event,
}

impl EventTimer {
    /// `NotImplementedError` if the device has no clock.
    fn new(device: Device) -> Result<EventTimer> {
        let mut timer = EventTimer { device, start: Event::create(device)?, end: Event::create(device)? };
        timer.start()?;
        timer.stop()?;
        Ok(timer)
    }

    fn record(&self, event: &Event) -> Result<()> {
        // SAFETY: may be called at any time.
        let stream = unsafe { TVMFFIEnvGetStream(self.device.0.device_type, self.device.0.device_id) };
        // SAFETY: whoever set the stream says that it is one of the device.
        unsafe { event.record_raw(stream) }
    }
}

impl Timer for EventTimer {
    fn start(&mut self) -> Result<()> {
        self.record(&self.start)
    }

    fn stop(&mut self) -> Result<f64> {
        self.record(&self.end)?;
        Ok(self.end.elapsed_ns(&self.start)? as f64 * 1e-9)
    }
}

/// For a device without a clock.
struct WaitingTimer {
    device: Device,
    start: Instant,
}

impl Timer for WaitingTimer {
    fn start(&mut self) -> Result<()> {
        synchronize(self.device)?;
        self.start = Instant::now();
        Ok(())
    }

    fn stop(&mut self) -> Result<f64> {
        synchronize(self.device)?;
        Ok((self.start.elapsed().as_secs_f64() - clock_read()).max(0.0))
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
