//! The functions by which other languages reach devices.
//!
//! Those named `runtime.*` are known to clients of other runtimes; streams and events are numbers there.

use anyfn::abi::TVMFFIEnvGetStream;
use anyfn::{Any, Device, IntoAny, Object, Ref, Result, bail, register};

use super::stream::{self, Known, event_number, event_of, stream_number, stream_of, take_event, take_stream};
use super::{Attribute, Event, Stream, Value, driver_of};

/// An attribute of a device, by the number of its kind and the number of the attribute: 0 whether it exists, 1 threads of
/// a block, 2 warp size, 3 shared memory of a block, 4 compute version, 5 name, 6 clock rate in kHz, 7 compute units,
/// 8 thread dimensions, 9 registers of a block, 10 GCN architecture, 11 version of the interface, 12 of the driver,
/// 13 bytes of the second-level cache, 14 of memory, 15 of free memory, 16 pitch alignment. None if the driver does not
/// know it.
#[register("runtime.GetDeviceAttr")]
fn get_device_attr(device_type: i32, device_id: i32, kind: i32) -> Result<Any> {
    let device = Device::new(device_type, device_id);
    let attribute = usize::try_from(kind).ok().and_then(|kind| Attribute::ALL.get(kind));
    match attribute {
        Some(Attribute::Exists) => i64::from(super::exists(device)).into_any(),
        Some(attribute) => match driver_of(device)?.attribute(device_id, *attribute) {
            Some(Value::Int(number)) => number.into_any(),
            Some(Value::Text(text)) => text.into_any(),
            None => ().into_any(),
        },
        None => {
            bail!("ValueError", "an attribute is a number up to {} but got {kind}", Attribute::ALL.len() - 1)
        }
    }
}

/// Why a device is not there; None if it is.
#[register("anyfn.device_why_missing")]
fn device_why_missing(device: Device) -> Option<String> {
    super::why_missing(device)
}

/// The devices that are there.
#[register("anyfn.devices")]
fn devices() -> Vec<Device> {
    super::devices()
}

/// Makes the null devices available, on which memory cannot be reached from the host, for tests. Returns the first.
#[register("anyfn.device_enable_null")]
fn device_enable_null() -> Result<Device> {
    super::enable_null()
}

/// Makes a stream; its number.
#[register("runtime.Device_StreamCreate")]
fn stream_create(device: Device) -> Result<i64> {
    Ok(stream_number(Stream::create(device)?))
}

/// Ends a stream, once no thread has it as its current one.
#[register("runtime.Device_StreamFree")]
fn stream_free(device: Device, stream: i64) -> Result<()> {
    take_stream(device, stream).map(drop)
}

/// Makes a stream the current one of its device, on this thread; 0 is the default one.
#[register("runtime.Device_SetStream")]
fn set_stream(device: Device, stream: i64) -> Result<()> {
    stream_of(driver_of(device)?, device, stream)?.make_current(device)
}

/// Number of the current stream of a device, on this thread.
#[register("anyfn.device_current_stream")]
fn current_stream(device: Device) -> i64 {
    // SAFETY: may be called at any time.
    unsafe { TVMFFIEnvGetStream(device.0.device_type, device.0.device_id) }.addr() as i64
}

/// The stream that was the current one of a device on a thread, whoever has made it; it lives as long as this, if it was made here.
#[derive(Object)]
#[object(key = "anyfn.PreviousStream", init = false, final)]
struct PreviousStream {
    /// Device of the stream.
    device: Device,
    #[field(skip)]
    stream: Known,
}

/// Makes a stream the current one of its device, on this thread, and gives the one that was, for `anyfn.device_leave_stream`.
#[register("anyfn.device_enter_stream")]
fn enter_stream(device: Device, stream: i64) -> Result<Ref<PreviousStream>> {
    let stream = stream_of(driver_of(device)?, device, stream)?.replace_current(device)?;
    Ok(Ref::new(PreviousStream { device, stream }))
}

/// Makes the stream the current one again that was before `anyfn.device_enter_stream`.
///
/// # Safety
/// If the stream was not made by `runtime.Device_StreamCreate`, it must live as long as it is the current one.
#[register("anyfn.device_leave_stream", unsafe)]
unsafe fn leave_stream(before: Ref<PreviousStream>) -> Result<()> {
    before.stream.clone().make_current(before.device)
}

/// Waits until the work of a stream is done.
#[register("runtime.Device_StreamSync", blocking)]
fn stream_sync(device: Device, stream: i64) -> Result<()> {
    let driver = driver_of(device)?;
    let stream = stream_of(driver, device, stream)?;
    // SAFETY: a stream of this device, which `stream` keeps alive.
    unsafe { driver.synchronize_stream(device.0.device_id, stream.handle()) }
}

/// Lets later work of the stream `to` wait for what is in the stream `from` now.
#[register("runtime.Device_StreamSyncFromTo")]
fn stream_sync_from_to(device: Device, from: i64, to: i64) -> Result<()> {
    let driver = driver_of(device)?;
    let (from, to) = (stream_of(driver, device, from)?, stream_of(driver, device, to)?);
    let event = Event::create(device)?;
    // SAFETY: a stream of this device, which `from` keeps alive.
    unsafe { event.record_raw(from.handle()) }?;
    // SAFETY: a stream of this device, which `to` keeps alive.
    unsafe { event.wait_in(to.handle()) }
}

/// Waits until all work of a device is done.
#[register("anyfn.device_synchronize", blocking)]
fn device_synchronize(device: Device) -> Result<()> {
    stream::synchronize(device)
}

/// Makes an event; its number.
#[register("anyfn.device_event_create")]
fn event_create(device: Device) -> Result<i64> {
    Ok(event_number(Event::create(device)?))
}

/// Ends an event.
#[register("anyfn.device_event_free")]
fn event_free(device: Device, event: i64) -> Result<()> {
    take_event(device, event).map(drop)
}

/// Marks the end of what is in a stream now.
#[register("anyfn.device_event_record")]
fn event_record(device: Device, event: i64, #[default(0)] stream: i64) -> Result<()> {
    let stream = stream_of(driver_of(device)?, device, stream)?;
    // SAFETY: a stream of this device, which `stream` keeps alive.
    unsafe { event_of(device, event)?.record_raw(stream.handle()) }
}

/// Lets later work of a stream wait until an event has been passed.
#[register("anyfn.device_event_wait")]
fn event_wait(device: Device, event: i64, #[default(0)] stream: i64) -> Result<()> {
    let stream = stream_of(driver_of(device)?, device, stream)?;
    // SAFETY: a stream of this device, which `stream` keeps alive.
    unsafe { event_of(device, event)?.wait_in(stream.handle()) }
}

/// Nanoseconds between two events, after waiting for both.
#[register("anyfn.device_event_elapsed_ns", blocking)]
fn event_elapsed_ns(device: Device, start: i64, end: i64) -> Result<i64> {
    if start == end {
        return Ok(0);
    }
    let (start, end) = (event_of(device, start)?, event_of(device, end)?);
    Ok(end.elapsed_ns(&start)? as i64)
}

/// Makes a device the current one of this thread, for compiled code. Devices are named in every call, so this only checks
/// that the device is there.
#[register("__tvm_set_device")]
fn set_device(device_type: i32, device_id: i32) -> Result<()> {
    driver_of(Device::new(device_type, device_id)).map(drop)
}

/// Runs the tests of drivers on a device: the names of the tests that passed or failed as expected. `unsupported` and
/// `expected_failures` map names of tests to reasons.
#[register("anyfn.device_suite", blocking)]
fn device_suite(
    device: Device,
    #[default(None)] unsupported: Option<Vec<(String, String)>>,
    #[default(None)] expected_failures: Option<Vec<(String, String)>>,
) -> Result<Vec<String>> {
    let (unsupported, failures) = (unsupported.unwrap_or_default(), expected_failures.unwrap_or_default());
    fn pairs(list: &[(String, String)]) -> Vec<(&str, &str)> {
        list.iter().map(|(name, reason)| (&**name, &**reason)).collect()
    }
    let lists = super::suite::Lists { unsupported: &pairs(&unsupported), expected_failures: &pairs(&failures) };
    let report = super::suite::run(device, &lists);
    if report.problems.is_empty() {
        return Ok(report.passed.iter().map(ToString::to_string).collect());
    }
    bail!("AssertionError", "{device}: {}", report.problems.join("; "))
}
