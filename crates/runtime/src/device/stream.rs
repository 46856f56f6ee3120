//! Streams and events: order and time of work on a device.
//!
//! Rust owns them by [`Stream`] and [`Event`]. Other languages hold numbers, so the ones that are alive are kept in a table:
//! a number that is none of them is an error, not a crash in a driver.

use core::cell::RefCell;
use core::ptr;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyfn::abi::{TVMFFIEnvGetStream, TVMFFIEnvSetStream};
use anyfn::{Device, Error, Result, bail};

use super::{DEFAULT_STREAM, Driver, Handle, driver_of};

/// A stream of a device, destroyed when it is dropped.
#[derive(Debug)]
pub struct Stream {
    device: Device,
    handle: Handle,
}

// SAFETY: a driver promises that its streams may be used on any thread.
unsafe impl Send for Stream {}
// SAFETY: a driver promises that several threads may use a stream at a time.
unsafe impl Sync for Stream {}

impl Stream {
    /// Makes a stream.
    ///
    /// # Errors
    /// `RuntimeError` if the device is not there, else what its driver says.
    pub fn create(device: Device) -> Result<Stream> {
        let handle = driver_of(device)?.create_stream(device.0.device_id)?;
        Ok(Stream { device, handle })
    }

    /// What the driver, and C functions that work in the stream, know it by.
    pub fn as_raw(&self) -> Handle {
        self.handle
    }

    /// The device that it belongs to.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Waits until its work is done.
    ///
    /// # Errors
    /// If the work has failed.
    pub fn synchronize(&self) -> Result<()> {
        let driver = driver_of(self.device)?;
        // SAFETY: the handle is the device's own stream, which lives as long as `self`.
        unsafe { driver.synchronize_stream(self.device.0.device_id, self.handle) }
    }

    /// Lets later work wait until the event has been passed.
    ///
    /// # Errors
    /// `ValueError` for an event of another device.
    pub fn wait(&self, event: &Event) -> Result<()> {
        same(self.device, event.device)?;
        // SAFETY: a stream of the event's device, which lives as long as `self`.
        unsafe { event.wait_in(self.handle) }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Ok(driver) = driver_of(self.device) {
            // SAFETY: `create` got the handle from this device, and only here it is given back.
            unsafe { driver.destroy_stream(self.device.0.device_id, self.handle) };
        }
    }
}

/// A mark in a stream, with the time at which it was passed.
#[derive(Debug)]
pub struct Event {
    device: Device,
    handle: Handle,
}

// SAFETY: a driver promises that its events may be used on any thread.
unsafe impl Send for Event {}
// SAFETY: a driver promises that several threads may use an event at a time.
unsafe impl Sync for Event {}

impl Event {
    /// Makes an event.
    ///
    /// # Errors
    /// `RuntimeError` if the device is not there, else what its driver says.
    pub fn create(device: Device) -> Result<Event> {
        let handle = driver_of(device)?.create_event(device.0.device_id)?;
        Ok(Event { device, handle })
    }

    /// Marks the end of what is in a stream now; `None` is the default stream.
    ///
    /// # Errors
    /// `ValueError` for a stream of another device.
    pub fn record(&self, stream: Option<&Stream>) -> Result<()> {
        stream.map_or(Ok(()), |stream| same(self.device, stream.device))?;
        // SAFETY: a stream of this device, borrowed for the call, or the default one.
        unsafe { self.record_raw(stream.map_or(DEFAULT_STREAM, Stream::as_raw)) }
    }

    /// As [`Event::record`], in a stream of whoever.
    ///
    /// # Errors
    /// What the driver says.
    ///
    /// # Safety
    /// The stream is a live one of the event's device.
    pub unsafe fn record_raw(&self, stream: Handle) -> Result<()> {
        let driver = driver_of(self.device)?;
        // SAFETY: the handle is the device's own event, which lives as long as `self`; the caller guarantees the stream.
        unsafe { driver.record_event(self.device.0.device_id, self.handle, stream) }
    }

    /// Lets later work of a stream wait.
    ///
    /// # Safety
    /// The stream is a live one of the event's device.
    pub(super) unsafe fn wait_in(&self, stream: Handle) -> Result<()> {
        let driver = driver_of(self.device)?;
        // SAFETY: the handle is the device's own event, which lives as long as `self`; the caller guarantees the stream.
        unsafe { driver.wait_event(self.device.0.device_id, self.handle, stream) }
    }

    /// Waits until the mark has been passed.
    ///
    /// # Errors
    /// If the work has failed.
    pub fn synchronize(&self) -> Result<()> {
        let driver = driver_of(self.device)?;
        // SAFETY: the handle is the device's own event, which lives as long as `self`.
        unsafe { driver.synchronize_event(self.device.0.device_id, self.handle) }
    }

    /// Nanoseconds from the passing of an earlier event to that of this one, after waiting for both.
    ///
    /// # Errors
    /// `ValueError` if one has not been recorded or they are of two devices, `NotImplementedError` if the device has no
    /// clock.
    pub fn elapsed_ns(&self, start: &Event) -> Result<u64> {
        same(self.device, start.device)?;
        start.synchronize()?;
        self.synchronize()?;
        let driver = driver_of(self.device)?;
        // SAFETY: both handles are events of this device, which live as long as the borrows.
        unsafe { driver.elapsed_ns(self.device.0.device_id, start.handle, self.handle) }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Ok(driver) = driver_of(self.device) {
            // SAFETY: `create` got the handle from this device, and only here it is given back.
            unsafe { driver.destroy_event(self.device.0.device_id, self.handle) };
        }
    }
}

fn same(device: Device, other: Device) -> Result<()> {
    if device == other {
        return Ok(());
    }
    bail!("ValueError", "expected a stream and events of one device but got {device} and {other}")
}

/// Waits until all work of a device is done.
///
/// # Errors
/// `RuntimeError` if the device is not there; else if the work has failed.
pub fn synchronize(device: Device) -> Result<()> {
    driver_of(device)?.synchronize(device.0.device_id)
}

// ---- Numbers for other languages ----------------------------------------------------------------------------------

/// What is alive of one kind, by device and number. Who uses a stream or event has a reference, so another thread that frees
/// the number does not destroy it meanwhile.
struct Alive<T>(Mutex<BTreeMap<(i32, i32, usize), Arc<T>>>);

static STREAMS: Alive<Stream> = Alive(Mutex::new(BTreeMap::new()));
static EVENTS: Alive<Event> = Alive(Mutex::new(BTreeMap::new()));

impl<T> Alive<T> {
    fn table(&self) -> MutexGuard<'_, BTreeMap<(i32, i32, usize), Arc<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn insert(&self, device: Device, handle: Handle, it: T) -> i64 {
        let number = handle.expose_provenance() as i64;
        self.table().insert(key(device, number), Arc::new(it));
        number
    }

    fn get(&self, device: Device, number: i64) -> Option<Arc<T>> {
        self.table().get(&key(device, number)).cloned()
    }

    fn take(&self, device: Device, number: i64) -> Option<Arc<T>> {
        self.table().remove(&key(device, number))
    }
}

fn key(device: Device, number: i64) -> (i32, i32, usize) {
    (device.0.device_type, device.0.device_id, number as usize)
}

/// Hands a stream over to whoever keeps its number.
pub(super) fn stream_number(stream: Stream) -> i64 {
    STREAMS.insert(stream.device, stream.handle, stream)
}

/// Hands an event over to whoever keeps its number.
pub(super) fn event_number(event: Event) -> i64 {
    EVENTS.insert(event.device, event.handle, event)
}

/// Takes a number back; dropping the result ends what it stands for.
pub(super) fn take_stream(device: Device, number: i64) -> Result<Arc<Stream>> {
    match STREAMS.take(device, number) {
        Some(stream) => Ok(stream),
        None => bail!("ValueError", "{number} is no stream of {device} that is alive"),
    }
}

/// As [`take_stream`].
pub(super) fn take_event(device: Device, number: i64) -> Result<Arc<Event>> {
    match EVENTS.take(device, number) {
        Some(event) => Ok(event),
        None => Err(no_event(device, number)),
    }
}

fn no_event(device: Device, number: i64) -> Error {
    anyfn::error!("ValueError", "{number} is no event of {device} that is alive")
}

/// What a number stands for.
fn handle(number: i64) -> Handle {
    ptr::with_exposed_provenance_mut(number as usize)
}

/// A stream that is used by its number.
#[derive(Clone)]
pub(super) struct Known {
    handle: Handle,
    /// Keeps the stream; `None` for the default one, and for those of other libraries.
    stream: Option<Arc<Stream>>,
}

// SAFETY: a driver promises that its streams may be used on any thread.
unsafe impl Send for Known {}
// SAFETY: a driver promises that several threads may use a stream at a time.
unsafe impl Sync for Known {}

impl Known {
    /// The stream of a number, whoever has made it.
    pub(super) fn of_number(device: Device, number: i64) -> Known {
        Known { handle: handle(number), stream: STREAMS.get(device, number) }
    }

    /// What the driver knows the stream by, as long as `self` lives.
    pub(super) fn handle(&self) -> Handle {
        self.handle
    }

    /// Makes the stream the current one of its device, on this thread, which keeps it until another one is.
    pub(super) fn make_current(self, device: Device) -> Result<()> {
        let before = self.replace_current(device)?;
        if let Some(stream) = before.stream
            && stream.handle != before.handle
        {
            keep_covered(stream);
        }
        Ok(())
    }

    /// As [`Known::make_current`]; gives the stream that was the current one, with what the thread has kept.
    pub(super) fn replace_current(self, device: Device) -> Result<Known> {
        let stream = keep_current(device, self.stream)?;
        match set_current(device, self.handle) {
            Ok(handle) => Ok(Known { handle, stream }),
            Err(error) => {
                keep_current(device, stream)?;
                Err(error)
            }
        }
    }
}

/// Makes a stream the current one of a device on this thread; the one that was.
fn set_current(device: Device, stream: Handle) -> Result<Handle> {
    let mut before = ptr::null_mut();
    // SAFETY: the place for the old stream is writable.
    match unsafe { TVMFFIEnvSetStream(device.0.device_type, device.0.device_id, stream, &raw mut before) } {
        0 => Ok(before),
        _ => Err(Error::take_raised()),
    }
}

/// The streams that a thread keeps.
struct Current {
    /// Those that it has made current by their numbers, at most one of each device.
    now: RefCell<Vec<Arc<Stream>>>,
    /// Those that were current when a library made another one current by the C API, which may put them back.
    covered: RefCell<Vec<Arc<Stream>>>,
}

std::thread_local! {
    static CURRENT: Current =
        const { Current { now: RefCell::new(Vec::new()), covered: RefCell::new(Vec::new()) } };
}

impl Drop for Current {
    /// The thread ends: what others do on it from here on, they do in the default streams.
    fn drop(&mut self) {
        for stream in self.now.take().into_iter().chain(self.covered.take()) {
            let device = stream.device.0;
            // SAFETY: may be called at any time.
            let current = unsafe { TVMFFIEnvGetStream(device.device_type, device.device_id) };
            if current == stream.handle && set_current(stream.device, DEFAULT_STREAM).is_err() {
                // Never destroyed, since it is still in use.
                core::mem::forget(stream);
            }
        }
    }
}

/// Lets this thread keep a stream of a device, or none; what it kept before.
fn keep_current(device: Device, stream: Option<Arc<Stream>>) -> Result<Option<Arc<Stream>>> {
    let is_some = stream.is_some();
    // Nothing is dropped while the list is borrowed: a driver may call back.
    let kept = CURRENT.try_with(|current| {
        let mut list = current.now.borrow_mut();
        let before = list.iter().position(|kept| kept.device == device).map(|at| list.swap_remove(at));
        list.extend(stream);
        before
    });
    match kept {
        Ok(before) => Ok(before),
        Err(_) if is_some => {
            bail!("RuntimeError", "a thread that ends cannot make a stream of {device} current")
        }
        Err(_) => Ok(None),
    }
}

/// Keeps a stream until the thread ends.
fn keep_covered(stream: Arc<Stream>) {
    // A thread that ends keeps none any more, and `keep_current` has given none then.
    let _ = CURRENT.try_with(|current| {
        let mut covered = current.covered.borrow_mut();
        if !covered.iter().any(|other| Arc::ptr_eq(other, &stream)) {
            covered.push(stream);
        }
    });
}

/// The stream of a number: 0 is the default one.
pub(super) fn stream_of(driver: &dyn Driver, device: Device, number: i64) -> Result<Known> {
    let known = Known::of_number(device, number);
    if number != 0 && known.stream.is_none() && !driver.takes_foreign_streams() {
        bail!("ValueError", "{number} is no stream of {device} that is alive");
    }
    Ok(known)
}

/// The event of a number.
pub(super) fn event_of(device: Device, number: i64) -> Result<Arc<Event>> {
    EVENTS.get(device, number).ok_or_else(|| no_event(device, number))
}
