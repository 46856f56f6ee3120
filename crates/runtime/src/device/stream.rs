//! Streams and events: order and timing of work on a device.
//!
//! Rust code owns them as [`Stream`] and [`Event`]. Other languages identify them by their native handles, as integers.
//! A table contains the live streams and events, so that an invalid handle is an error instead of a crash in a driver.

use core::cell::RefCell;
use core::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyfn::__private::SortedMap;
use anyfn::abi::{TVMFFIEnvGetStream, TVMFFIEnvSetStream};
use anyfn::{Device, Error, Result, bail};

use super::{DEFAULT_STREAM, Driver, Handle, driver_of};

/// A queue of work on a device, destroyed on drop.
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
    /// Creates a stream.
    ///
    /// # Errors
    /// Returns `RuntimeError` if the device is not available, or the error of its driver.
    pub fn create(device: Device) -> Result<Stream> {
        let handle = driver_of(device)?.create_stream(device.0.device_id)?;
        Ok(Stream { device, handle })
    }

    /// Returns the native handle of the stream, for the driver and for C functions that work in the stream.
    pub fn as_raw(&self) -> Handle {
        self.handle
    }

    /// Returns the device of the stream.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Waits until the work of the stream has finished.
    ///
    /// # Errors
    /// Returns an error if the work has failed.
    pub fn synchronize(&self) -> Result<()> {
        let driver = driver_of(self.device)?;
        // SAFETY: the handle is a stream of the device, which lives as long as `self`.
        unsafe { driver.synchronize_stream(self.device.0.device_id, self.handle) }
    }

    /// Makes all work that is queued in this stream after this call wait until the work before `event` has
    /// finished.
    ///
    /// # Errors
    /// Returns `ValueError` for an event of another device.
    pub fn wait(&self, event: &Event) -> Result<()> {
        same(self.device, event.device)?;
        // SAFETY: a stream of the event's device, which lives as long as `self`.
        unsafe { event.wait_in(self.handle) }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Ok(driver) = driver_of(self.device) {
            // SAFETY: `create` got the handle from this device, and it is only returned here.
            unsafe { driver.destroy_stream(self.device.0.device_id, self.handle) };
        }
    }
}

/// A marker in a stream, used to wait for the work that precedes it and to measure the time between
/// two markers.
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
    /// Creates an event.
    ///
    /// # Errors
    /// Returns `RuntimeError` if the device is not available, or the error of its driver.
    pub fn create(device: Device) -> Result<Event> {
        let handle = driver_of(device)?.create_event(device.0.device_id)?;
        Ok(Event { device, handle })
    }

    /// Records the event in `stream`, after all work that is queued there so far. `None` is the default stream.
    ///
    /// # Errors
    /// Returns `ValueError` for a stream of another device.
    pub fn record(&self, stream: Option<&Stream>) -> Result<()> {
        stream.map_or(Ok(()), |stream| same(self.device, stream.device))?;
        // SAFETY: a stream of this device, borrowed for the call, or the default one.
        unsafe { self.record_raw(stream.map_or(DEFAULT_STREAM, Stream::as_raw)) }
    }

    /// Records the event as [`Event::record`] does, in the stream with the native handle `stream`.
    /// Any library may have created the stream.
    ///
    /// # Errors
    /// Returns the error of the driver.
    ///
    /// # Safety
    /// `stream` must be the handle of a live stream of the event's device, or [`DEFAULT_STREAM`].
    pub unsafe fn record_raw(&self, stream: Handle) -> Result<()> {
        let driver = driver_of(self.device)?;
        // SAFETY: the handle is an event of the device, which lives as long as `self`; the caller guarantees the
        // stream.
        unsafe { driver.record_event(self.device.0.device_id, self.handle, stream) }
    }

    /// Makes all work that is queued in `stream` after this call wait until the work before the event has
    /// finished.
    ///
    /// # Safety
    /// `stream` must be the handle of a live stream of the event's device, or [`DEFAULT_STREAM`].
    pub(super) unsafe fn wait_in(&self, stream: Handle) -> Result<()> {
        let driver = driver_of(self.device)?;
        // SAFETY: the handle is an event of the device, which lives as long as `self`; the caller guarantees the
        // stream.
        unsafe { driver.wait_event(self.device.0.device_id, self.handle, stream) }
    }

    /// Blocks the calling thread until the work before the event has finished.
    ///
    /// # Errors
    /// Returns an error if the work has failed.
    pub fn synchronize(&self) -> Result<()> {
        let driver = driver_of(self.device)?;
        // SAFETY: the handle is an event of the device, which lives as long as `self`.
        unsafe { driver.synchronize_event(self.device.0.device_id, self.handle) }
    }

    /// Waits until the work before both events has finished, and returns the time in nanoseconds from `start` to this
    /// event.
    ///
    /// # Errors
    /// Returns `ValueError` if either event has not been recorded or they belong to two devices, `NotImplementedError`
    /// if the device has no clock.
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
            // SAFETY: `create` got the handle from this device, and it is only returned here.
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

/// Waits until all work of a device has finished.
///
/// # Errors
/// Returns `RuntimeError` if the device is not available, or an error if the work has failed.
pub fn synchronize(device: Device) -> Result<()> {
    driver_of(device)?.synchronize(device.0.device_id)
}

// ---- Numbers for other languages ----------------------------------------------------------------------------------

/// Table of the live streams or events, by device type, device index and native handle. Code that uses a
/// stream or event holds a reference to it. The stream or event therefore stays alive, even if another thread
/// frees it.
struct Alive<T>(Mutex<SortedMap<(i32, i32, usize), Arc<T>>>);

static STREAMS: Alive<Stream> = Alive(Mutex::new(SortedMap::new()));
static EVENTS: Alive<Event> = Alive(Mutex::new(SortedMap::new()));

impl<T> Alive<T> {
    fn table(&self) -> MutexGuard<'_, SortedMap<(i32, i32, usize), Arc<T>>> {
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

/// Adds a stream to the table of live streams and returns its native handle as an integer.
pub(crate) fn stream_number(stream: Stream) -> i64 {
    STREAMS.insert(stream.device, stream.handle, stream)
}

/// Adds an event to the table of live events and returns its native handle as an integer.
pub(super) fn event_number(event: Event) -> i64 {
    EVENTS.insert(event.device, event.handle, event)
}

/// Removes the stream with the native handle `number` from the table of live streams. Dropping the result
/// destroys the stream, unless other code still holds a reference to it.
pub(crate) fn take_stream(device: Device, number: i64) -> Result<Arc<Stream>> {
    match STREAMS.take(device, number) {
        Some(stream) => Ok(stream),
        None => bail!("ValueError", "{number} is not a live stream of {device}"),
    }
}

/// Removes the event with the native handle `number` from the table of live events. Dropping the result
/// destroys the event, unless other code still holds a reference to it.
pub(crate) fn take_event(device: Device, number: i64) -> Result<Arc<Event>> {
    match EVENTS.take(device, number) {
        Some(event) => Ok(event),
        None => Err(no_event(device, number)),
    }
}

fn no_event(device: Device, number: i64) -> Error {
    anyfn::error!("ValueError", "{number} is not a live event of {device}")
}

/// Converts an integer to the native handle that it represents.
fn handle(number: i64) -> Handle {
    ptr::with_exposed_provenance_mut(number as usize)
}

/// A stream that is identified by its native handle; any library may have created it.
#[derive(Clone)]
pub(crate) struct Known {
    handle: Handle,
    /// Reference that keeps the stream alive; `None` for the default stream and streams of other libraries.
    stream: Option<Arc<Stream>>,
}

// SAFETY: a driver promises that its streams may be used on any thread.
unsafe impl Send for Known {}
// SAFETY: a driver promises that several threads may use a stream at a time.
unsafe impl Sync for Known {}

impl Known {
    /// Returns the stream with the native handle `number`. Any library may have created the stream.
    pub(super) fn of_number(device: Device, number: i64) -> Known {
        Known { handle: handle(number), stream: STREAMS.get(device, number) }
    }

    /// Returns the native handle of the stream. If this runtime created the stream, the handle is valid as long as
    /// `self` lives.
    pub(crate) fn handle(&self) -> Handle {
        self.handle
    }

    /// Makes the stream the current stream of `device` on this thread. The thread keeps the stream
    /// alive until another stream becomes current.
    pub(super) fn make_current(self, device: Device) -> Result<()> {
        let before = self.replace_current(device)?;
        if let Some(stream) = before.stream
            && stream.handle != before.handle
        {
            keep_covered(stream);
        }
        Ok(())
    }

    /// Makes the stream current as [`Known::make_current`] does. The result contains the handle of the stream
    /// that was current before, and a reference to the stream that this thread has kept alive until now. The
    /// two streams differ if a library set the current stream through the C API.
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

/// Makes the stream with the native handle `stream` the current stream of a device on this thread. Returns the handle
/// of the previous current stream.
fn set_current(device: Device, stream: Handle) -> Result<Handle> {
    let mut before = ptr::null_mut();
    // SAFETY: the location for the old stream is writable.
    match unsafe { TVMFFIEnvSetStream(device.0.device_type, device.0.device_id, stream, &raw mut before) } {
        0 => Ok(before),
        _ => Err(Error::take_raised()),
    }
}

/// Streams that this thread keeps alive because they are current, or may become current again.
struct Current {
    /// Streams that became current through [`Known`], at most one for each device.
    now: RefCell<Vec<Arc<Stream>>>,
    /// Streams that were current when a library replaced them through the C API. The library may make them
    /// current again later.
    covered: RefCell<Vec<Arc<Stream>>>,
}

std::thread_local! {
    static CURRENT: Current =
        const { Current { now: RefCell::new(Vec::new()), covered: RefCell::new(Vec::new()) } };
}

impl Drop for Current {
    /// Resets the current streams of the ending thread to the default streams, because code may still run on the thread
    /// after the current streams were destroyed.
    fn drop(&mut self) {
        for stream in self.now.take().into_iter().chain(self.covered.take()) {
            let device = stream.device.0;
            // SAFETY: `TVMFFIEnvGetStream` may be called at any time.
            let current = unsafe { TVMFFIEnvGetStream(device.device_type, device.device_id) };
            if current == stream.handle && set_current(stream.device, DEFAULT_STREAM).is_err() {
                // Never destroyed, since it is still in use.
                core::mem::forget(stream);
            }
        }
    }
}

/// Stores `stream` as the stream of a device that this thread keeps alive, and returns the stream
/// that was stored before. If `stream` is `None`, the thread keeps no stream of the device alive.
fn keep_current(device: Device, stream: Option<Arc<Stream>>) -> Result<Option<Arc<Stream>>> {
    let is_some = stream.is_some();
    // Nothing is dropped while the list is borrowed, because a driver may call back.
    let kept = CURRENT.try_with(|current| {
        let mut list = current.now.borrow_mut();
        let before = list.iter().position(|kept| kept.device == device).map(|at| list.swap_remove(at));
        list.extend(stream);
        before
    });
    match kept {
        Ok(before) => Ok(before),
        Err(_) if is_some => {
            bail!("RuntimeError", "cannot make a stream of {device} current: the thread is ending")
        }
        Err(_) => Ok(None),
    }
}

/// Makes this thread keep a stream alive until the thread ends.
fn keep_covered(stream: Arc<Stream>) {
    // A thread that is ending keeps no streams any more, and `keep_current` has returned none in that case.
    let _ = CURRENT.try_with(|current| {
        let mut covered = current.covered.borrow_mut();
        if !covered.iter().any(|other| Arc::ptr_eq(other, &stream)) {
            covered.push(stream);
        }
    });
}

/// Returns the stream with the native handle `number`; 0 is the default stream. Returns `ValueError` for an unknown
/// handle, unless the driver accepts streams of other libraries.
pub(crate) fn stream_of(driver: &dyn Driver, device: Device, number: i64) -> Result<Known> {
    let known = Known::of_number(device, number);
    if number != 0 && known.stream.is_none() && !driver.takes_foreign_streams() {
        bail!("ValueError", "{number} is not a live stream of {device}");
    }
    Ok(known)
}

/// Returns the live event with the native handle `number`.
pub(super) fn event_of(device: Device, number: i64) -> Result<Arc<Event>> {
    EVENTS.get(device, number).ok_or_else(|| no_event(device, number))
}
