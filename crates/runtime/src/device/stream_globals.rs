//! Registered functions for streams, events and the memory of devices, used by other languages.
//!
//! The names `runtime.*` are those that clients of other runtimes call. Streams and events are represented by their
//! native handles, as integers.

use anyfn::abi::TVMFFIEnvGetStream;
use anyfn::{Device, Map, Object, Ref, Result, String as Text, TensorView, bail, register};

use super::stream::{Known, event_number, event_of, stream_number, stream_of, take_event, take_stream};
use super::{Event, MemoryKind, Stream, driver_of};

/// Creates a stream and returns its native handle.
#[register("runtime.Device_StreamCreate")]
fn stream_create(device: Device) -> Result<i64> {
    Ok(stream_number(Stream::create(device)?))
}

/// Frees a stream. The stream is destroyed once no thread has it as its current stream.
#[register("runtime.Device_StreamFree")]
fn stream_free(device: Device, stream: i64) -> Result<()> {
    take_stream(device, stream).map(drop)
}

/// Makes the stream with the native handle `stream` the current stream of a device on this thread. The handle 0 denotes
/// the default stream.
#[register("runtime.Device_SetStream")]
fn set_stream(device: Device, stream: i64) -> Result<()> {
    stream_of(driver_of(device)?, device, stream)?.make_current(device)
}

/// Returns the native handle of the current stream of a device on this thread.
#[register("anyfn.device_current_stream")]
fn current_stream(device: Device) -> i64 {
    // SAFETY: `TVMFFIEnvGetStream` may be called at any time.
    unsafe { TVMFFIEnvGetStream(device.0.device_type, device.0.device_id) }.addr() as i64
}

/// The stream that was current for a device on a thread before `anyfn.device_enter_stream`. A stream that this runtime
/// created is kept alive.
#[derive(Object)]
#[object(key = "anyfn.PreviousStream", init = false, final)]
struct PreviousStream {
    /// Device of the stream.
    device: Device,
    #[field(skip)]
    stream: Known,
}

/// Makes the stream with the native handle `stream` the current stream of a device on this thread. Returns an object
/// that represents the previous stream, for `anyfn.device_leave_stream`.
#[register("anyfn.device_enter_stream")]
fn enter_stream(device: Device, stream: i64) -> Result<Ref<PreviousStream>> {
    let stream = stream_of(driver_of(device)?, device, stream)?.replace_current(device)?;
    Ok(Ref::new(PreviousStream { device, stream }))
}

/// Restores the stream that was current before the call of `anyfn.device_enter_stream` that returned `before`.
///
/// # Safety
/// If the restored stream was not created by `runtime.Device_StreamCreate`, it must live as long as it is the current
/// stream.
#[register("anyfn.device_leave_stream", unsafe)]
unsafe fn leave_stream(before: Ref<PreviousStream>) -> Result<()> {
    before.stream.clone().make_current(before.device)
}

/// Waits until the work of a stream has finished.
#[register("runtime.Device_StreamSync", blocking)]
fn stream_sync(device: Device, stream: i64) -> Result<()> {
    let driver = driver_of(device)?;
    let stream = stream_of(driver, device, stream)?;
    // SAFETY: a stream of this device, which `stream` keeps alive.
    unsafe { driver.synchronize_stream(device.0.device_id, stream.handle()) }
}

/// Makes all work that is queued in the stream `to` after this call wait until the work already queued in the
/// stream `from` has finished.
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

/// Creates an event and returns its native handle.
#[register("anyfn.device_event_create")]
fn event_create(device: Device) -> Result<i64> {
    Ok(event_number(Event::create(device)?))
}

/// Destroys an event.
#[register("anyfn.device_event_free")]
fn event_free(device: Device, event: i64) -> Result<()> {
    take_event(device, event).map(drop)
}

/// Records an event in a stream, after all work that is queued in the stream so far.
#[register("anyfn.device_event_record")]
fn event_record(device: Device, event: i64, #[default(0)] stream: i64) -> Result<()> {
    let stream = stream_of(driver_of(device)?, device, stream)?;
    // SAFETY: a stream of this device, which `stream` keeps alive.
    unsafe { event_of(device, event)?.record_raw(stream.handle()) }
}

/// Makes all work that is queued in the stream `stream` after this call wait until the work before an event
/// has finished.
#[register("anyfn.device_event_wait")]
fn event_wait(device: Device, event: i64, #[default(0)] stream: i64) -> Result<()> {
    let stream = stream_of(driver_of(device)?, device, stream)?;
    // SAFETY: a stream of this device, which `stream` keeps alive.
    unsafe { event_of(device, event)?.wait_in(stream.handle()) }
}

/// Waits until the work before both events has finished, and returns the time in nanoseconds from `start` to `end`.
#[register("anyfn.device_event_elapsed_ns", blocking)]
fn event_elapsed_ns(device: Device, start: i64, end: i64) -> Result<i64> {
    if start == end {
        return Ok(0);
    }
    let (start, end) = (event_of(device, start)?, event_of(device, end)?);
    Ok(end.elapsed_ns(&start)? as i64)
}

/// Returns the freed memory that the driver of a device keeps for later allocations to the system. Returns the number of bytes.
#[register("anyfn.device_release_memory", blocking)]
fn release_memory(device: Device) -> Result<i64> {
    Ok(driver_of(device)?.release_memory(device.0.device_id) as i64)
}

/// Returns statistics of the memory that the driver of a device has allocated: bytes in use ("used"), bytes of freed blocks that are
/// kept ("kept"), their maximum ("limit"), the number of blocks that were allocated ("allocated"), and of allocations that a kept block
/// served ("reused"). Returns None if the driver has no statistics.
#[register("anyfn.device_memory_statistics")]
fn memory_statistics(device: Device) -> Result<Option<Map<Text, i64>>> {
    let Some(now) = driver_of(device)?.memory_statistics(device.0.device_id) else { return Ok(None) };
    let numbers = [
        ("used", now.used as u64),
        ("kept", now.kept as u64),
        ("limit", now.limit as u64),
        ("allocated", now.allocated),
        ("reused", now.reused),
    ];
    let pairs = numbers.map(|(name, number)| (Text::from(name), i64::try_from(number).unwrap_or(i64::MAX)));
    Map::try_from_iter(pairs).map(Some)
}

/// Checks that the memory of a tensor on a device can be used by this process: handles of OpenCL and similar interfaces have no meaning
/// outside of the library that made them. Raises `ValueError` otherwise. Tensors on devices without a driver pass.
#[register("anyfn.device_check_owner")]
fn check_owner(tensor: TensorView<'_>) -> Result<()> {
    let (device, data) = (tensor.device(), tensor.as_dl().data);
    let is_known = match super::find(device.0.device_type) {
        Some(driver) if driver.memory_kind() == MemoryKind::Handle && !data.is_null() => {
            driver.owns(device.0.device_id, data)
        }
        _ => true,
    };
    if !is_known {
        bail!(
            "ValueError",
            "the tensor on {device} belongs to another library, whose memory cannot be used here: copy it through main memory"
        );
    }
    Ok(())
}
