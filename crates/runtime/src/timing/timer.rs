//! Timers that measure the work of devices.

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock, PoisonError};

use anyfn::abi::{TVMFFIEnvGetStream, kDLCPU};
use anyfn::{Device, Result};

use super::clock::Instant;
use crate::device::{Event, driver_of, synchronize};

/// Clock that measures the time of work on a device.
///
/// The timer of a device that executes work asynchronously measures between two events on its stream, or waits until
/// all work is done before it reads a clock. Only work requested between [`start`](Timer::start) and
/// [`stop`](Timer::stop) counts.
pub trait Timer {
    /// Begins a measurement.
    ///
    /// # Errors
    /// Returns an error of the device, which may result from earlier work.
    fn start(&mut self) -> Result<()>;

    /// Ends the measurement: waits for the work and returns the seconds that it took. If the time is read from a clock
    /// of the host, the time for reading that clock is subtracted.
    ///
    /// # Errors
    /// Returns an error of the device, which may result from the measured work.
    fn stop(&mut self) -> Result<f64>;
}

/// Function that creates the timer of a device.
type MakeTimer = fn(Device) -> Result<Box<dyn Timer>>;

static TIMERS: Mutex<BTreeMap<i32, MakeTimer>> = Mutex::new(BTreeMap::new());

/// Sets the function that creates the timers of a device type, one of the `kDL*` constants. A driver whose
/// devices have a better clock than events calls this function once.
pub fn register_timer(device_type: i32, make: MakeTimer) {
    TIMERS.lock().unwrap_or_else(PoisonError::into_inner).insert(device_type, make);
}

/// Creates a timer of a device. If [`register_timer`] has set a function for the type of the device, calls
/// that function. Otherwise, the timer of the CPU reads a clock of the host, and the timer of any other
/// device measures between two events on its current stream. If such a device has no clock, its timer waits
/// until all work is done and reads the clock of the host.
///
/// # Errors
/// Returns `RuntimeError` if the device is not available, or the error of the driver.
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

/// Timer that measures the time between two events on the current stream of the device.
struct EventTimer {
    device: Device,
    start: Event,
    end: Event,
}

impl EventTimer {
    /// Creates a timer and measures once, to test it. Returns `NotImplementedError` if the device has no clock.
    fn new(device: Device) -> Result<EventTimer> {
        let mut timer = EventTimer { device, start: Event::create(device)?, end: Event::create(device)? };
        timer.start()?;
        timer.stop()?;
        Ok(timer)
    }

    fn record(&self, event: &Event) -> Result<()> {
        // SAFETY: `TVMFFIEnvGetStream` may be called at any time.
        let stream = unsafe { TVMFFIEnvGetStream(self.device.0.device_type, self.device.0.device_id) };
        // SAFETY: the code that set the current stream guarantees that it belongs to the device.
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

/// Timer of a device without a clock. It waits until all work is done and reads a clock of the host.
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

/// Timer of the CPU, which reads a monotonic clock. Calls on the CPU return only when their work is done, so
/// the timer need not wait.
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

/// Returns the shortest time in seconds between two successive readings of the host's monotonic clock.
pub(super) fn clock_read() -> f64 {
    static MEASURED: OnceLock<f64> = OnceLock::new();
    *MEASURED.get_or_init(|| {
        let read = || Instant::now().elapsed().as_secs_f64();
        (0..100).map(|_| read()).fold(f64::INFINITY, f64::min)
    })
}
