//! Streams and events: order and time of work on a device.
//!
//! Rust owns them by [`Stream`] and [`Event`]. Other languages hold numbers, so the ones that are alive are kept in a table:
//! a number that is none of them is an error, not a crash in a driver.

use core::ptr;
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyfn::{Device, Result, bail};

use super::{DEFAULT_STREAM, Driver, Handle, driver_of};

/// A stream of a device, destroyed when it is dropped.
#[derive(Debug)]
pub struct Stream {
    device: Device,
    handle: Handle,
}

// SAFETY: drivers take streams from any thread.
unsafe impl Send for Stream {}
// SAFETY: as above.
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
        driver_of(self.device)?.synchronize_stream(self.device.0.device_id, self.handle)
    }

    /// Lets later work wait until the event has been passed.
    ///
    /// # Errors
    /// `ValueError` for an event of another device.
    pub fn wait(&self, event: &Event) -> Result<()> {
        same(self.device, event.device)?;
        driver_of(self.device)?.wait_event(self.device.0.device_id, event.handle, self.handle)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Ok(driver) = driver_of(self.device) {
            driver.destroy_stream(self.device.0.device_id, self.handle);
        }
    }
}

/// A mark in a stream, with the time at which it was passed.
#[derive(Debug)]
pub struct Event {
    device: Device,
    handle: Handle,
}

// SAFETY: drivers take events from any thread.
unsafe impl Send for Event {}
// SAFETY: as above.
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
        // SAFETY: a stream of this device, or the default one.
        unsafe { self.record_raw(stream.map_or(DEFAULT_STREAM, Stream::as_raw)) }
    }

    /// As [`Event::record`], in a stream of whoever.
    ///
    /// # Errors
    /// What the driver says.
    ///
    /// # Safety
    /// The stream is one of the event's device.
    pub unsafe fn record_raw(&self, stream: Handle) -> Result<()> {
        driver_of(self.device)?.record_event(self.device.0.device_id, self.handle, stream)
    }

    /// Lets later work of a stream of this device wait.
    pub(super) fn wait_in(&self, stream: Handle) -> Result<()> {
        driver_of(self.device)?.wait_event(self.device.0.device_id, self.handle, stream)
    }

    /// Waits until the mark has been passed.
    ///
    /// # Errors
    /// If the work has failed.
    pub fn synchronize(&self) -> Result<()> {
        driver_of(self.device)?.synchronize_event(self.device.0.device_id, self.handle)
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
        driver_of(self.device)?.elapsed_ns(self.device.0.device_id, start.handle, self.handle)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Ok(driver) = driver_of(self.device) {
            driver.destroy_event(self.device.0.device_id, self.handle);
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

/// What a number stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Stream,
    Event,
}

type Alive = BTreeSet<(Kind, i32, i32, usize)>;

static ALIVE: Mutex<Alive> = Mutex::new(BTreeSet::new());

fn alive() -> MutexGuard<'static, Alive> {
    ALIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn key(kind: Kind, device: Device, number: i64) -> (Kind, i32, i32, usize) {
    (kind, device.0.device_type, device.0.device_id, number as usize)
}

/// Hands a stream over to whoever keeps its number.
pub(super) fn stream_number(stream: Stream) -> i64 {
    let number = stream.handle.expose_provenance() as i64;
    alive().insert(key(Kind::Stream, stream.device, number));
    core::mem::forget(stream);
    number
}

/// Hands an event over to whoever keeps its number.
pub(super) fn event_number(event: Event) -> i64 {
    let number = event.handle.expose_provenance() as i64;
    alive().insert(key(Kind::Event, event.device, number));
    core::mem::forget(event);
    number
}

/// Takes a number back; dropping the result ends what it stands for.
pub(super) fn take_stream(device: Device, number: i64) -> Result<Stream> {
    match alive().remove(&key(Kind::Stream, device, number)) {
        true => Ok(Stream { device, handle: handle(number) }),
        false => bail!("ValueError", "{number} is no stream of {device} that is alive"),
    }
}

/// As [`take_stream`].
pub(super) fn take_event(device: Device, number: i64) -> Result<Event> {
    match alive().remove(&key(Kind::Event, device, number)) {
        true => Ok(Event { device, handle: handle(number) }),
        false => bail!("ValueError", "{number} is no event of {device} that is alive"),
    }
}

/// What a number stands for.
pub(super) fn handle(number: i64) -> Handle {
    ptr::with_exposed_provenance_mut(number as usize)
}

/// The stream of a number: 0 is the default one.
pub(super) fn stream_of(driver: &dyn Driver, device: Device, number: i64) -> Result<Handle> {
    let known = number == 0 || alive().contains(&key(Kind::Stream, device, number));
    if !known && !driver.takes_foreign_streams() {
        bail!("ValueError", "{number} is no stream of {device} that is alive");
    }
    Ok(handle(number))
}

/// Runs `body` with the event of a number, which stays alive meanwhile.
pub(super) fn with_event<T>(device: Device, number: i64, body: impl FnOnce(&Event) -> Result<T>) -> Result<T> {
    let event = core::mem::ManuallyDrop::new(take_event(device, number)?);
    // Out of the table meanwhile, so that nobody destroys it: then it is put back.
    let result = body(&event);
    alive().insert(key(Kind::Event, device, number));
    result
}
