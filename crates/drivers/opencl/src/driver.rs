//! The driver of the device kind `opencl`.

use core::ffi::c_void;
use core::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyfn::abi::kDLOpenCL;
use anyfn::{Result, bail};
use anyfn_driver::{
    Attribute, DEFAULT_STREAM, Driver, Handle, MemoryKind, MemoryLocation, MemoryStatistics, Request, Transfer,
    Value, Work, unsupported,
};

use crate::api::{self, Raw, number, text};
use crate::event::ClEvent;
use crate::memory::{self, Buffer};
use crate::system::{self, ClDevice, System, available};
use crate::work::{self, Command};

/// Driver of OpenCL devices. The loader `libOpenCL.so.1` is opened at the first use of a device.
///
/// Streams are command queues, and the native handle of a stream is its `cl_command_queue`.
pub struct OpenCl;

/// The driver, which every program that links this crate has.
pub(crate) static DRIVER: OpenCl = OpenCl;
anyfn_driver::link_driver!(&DRIVER);

/// One end of a copy.
enum Place {
    Host(*mut u8),
    Device(Buffer, usize),
}

/// Returns the end of a copy that a location describes.
fn place(location: &MemoryLocation, bytes: usize, system: &'static System) -> Result<Place> {
    if location.device.0.device_type != kDLOpenCL {
        return Ok(Place::Host(location.data.wrapping_byte_add(location.offset).cast()));
    }
    let index = location.device.0.device_id;
    // Both are only possible for tensors that other code has described. Memory of the runtime was checked above.
    match Buffer::at(location.data, system) {
        Some(buffer) if buffer.device == index => {
            if location.offset.checked_add(bytes).is_none_or(|end| end > buffer.bytes) {
                bail!(
                    "ValueError",
                    "{bytes} bytes at offset {} exceed the buffer of {} bytes on opencl:{index}",
                    location.offset,
                    buffer.bytes
                );
            }
            Ok(Place::Device(buffer, location.offset))
        }
        _ => bail!(
            "ValueError",
            "{:p} is not a buffer that this runtime has allocated on opencl:{index}",
            location.data
        ),
    }
}

/// Returns the queue of a stream.
#[inline]
pub(crate) fn queue_of(system: &System, device: &ClDevice, stream: Handle) -> Result<Raw> {
    if stream == DEFAULT_STREAM { Ok(device.opened(&system.api)?.queue) } else { Ok(stream) }
}

/// The last recording of an event: a marker in a queue.
#[derive(Default)]
struct Recorded(Mutex<Option<ClEvent>>);

impl Recorded {
    fn lock(&self) -> MutexGuard<'_, Option<ClEvent>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the time at which the marker was reached, in nanoseconds of the clock of the device.
    fn time(&self, system: &System, device: &ClDevice) -> Result<u64> {
        let marker = self.lock();
        let Some(marker) = &*marker else { bail!("ValueError", "an event has not been recorded yet") };
        match marker.time(api::PROFILING_COMMAND_END) {
            Ok(time) => Ok(time),
            Err(api::PROFILING_INFO_NOT_AVAILABLE) => {
                unsupported(&format!("the driver of opencl:{} has no times of events", device.index))
            }
            Err(code) => Err(system.error(code, "read the time of an event", device)),
        }
    }
}

/// Returns the content of an event.
///
/// # Safety
/// `event` must come from `create_event` and be alive for `'a`.
unsafe fn recorded<'a>(event: Handle) -> &'a Recorded {
    // SAFETY: `create_event` allocates such a value, which the caller guarantees to be alive.
    unsafe { &*event.cast::<Recorded>() }
}

// SAFETY: buffers have the requested size and belong to the caller alone. They are reached through the table of
// descriptors, and each range is checked. Copies to main memory have finished when their call returns. Queues and events
// may be used on any thread. `device_type` and `memory_kind` are constants.
unsafe impl Driver for OpenCl {
    fn device_type(&self) -> i32 {
        kDLOpenCL
    }

    fn memory_kind(&self) -> MemoryKind {
        MemoryKind::Handle
    }

    fn probe(&self, index: i32) -> Result<(), String> {
        system::device(index).map(drop)
    }

    fn attribute(&self, index: i32, attribute: Attribute) -> Option<Value> {
        let (system, device) = system::device(index).ok()?;
        let limits = &device.limits;
        let of = |what| device.info(&system.api, what);
        let int = |number: u64| i64::try_from(number).ok().map(Value::Int);
        let words = |what| of(what).map(|bytes| Value::Text(text(&bytes)));
        match attribute {
            Attribute::Name => Some(Value::Text(device.name.clone())),
            Attribute::MaxThreadsPerBlock => int(limits.group as u64),
            Attribute::MaxSharedMemoryPerBlock => int(limits.local),
            Attribute::MaxThreadDimensions => {
                let numbers: Vec<String> = limits.dimensions.iter().map(ToString::to_string).collect();
                Some(Value::Text(format!("[{}]", numbers.join(", "))))
            }
            Attribute::ComputeUnits => int(number(&of(api::DEVICE_MAX_COMPUTE_UNITS)?)),
            Attribute::MaxClockRate => int(1000 * number(&of(api::DEVICE_MAX_CLOCK_FREQUENCY)?)),
            Attribute::L2CacheSize => int(number(&of(api::DEVICE_GLOBAL_MEM_CACHE_SIZE)?)),
            Attribute::TotalMemory => int(limits.global as u64),
            Attribute::FreeMemory => int(limits.global.saturating_sub(device.pool().statistics().used) as u64),
            Attribute::ComputeVersion => words(api::DEVICE_OPENCL_C_VERSION),
            Attribute::DriverVersion => words(api::DRIVER_VERSION),
            Attribute::ApiVersion => version(&text(&of(api::DEVICE_VERSION)?)).map(Value::Int),
            _ => None,
        }
    }

    fn allocate(&self, index: i32, request: Request) -> Result<*mut c_void> {
        memory::allocate(index, request)
    }

    unsafe fn free(&self, index: i32, data: *mut c_void, request: Request) {
        // SAFETY: the requirements are the same.
        unsafe { memory::free(index, data, request) };
    }

    unsafe fn copy(&self, transfer: &Transfer) -> Result<()> {
        let Transfer { from, to, bytes, stream } = transfer;
        let system = system::system().map_err(|reason| anyfn::Error::new("RuntimeError", &reason))?;
        let ends = (place(from, *bytes, system)?, place(to, *bytes, system)?);
        // The stream belongs to the device that is read, or to the one that is written if main memory is read.
        match ends {
            (Place::Host(from), Place::Device(to, offset)) => write(system, from, &to, offset, *bytes, *stream),
            (Place::Device(from, offset), Place::Host(to)) => read(system, &from, offset, to, *bytes, *stream),
            (Place::Device(from, start), Place::Device(to, end)) if from.device == to.device => {
                copy_within(system, (&from, start), (&to, end), *bytes, *stream)
            }
            // Another device has another context, so the bytes take the way through main memory.
            (Place::Device(from, start), Place::Device(to, end)) => {
                let mut between: Vec<u8> = Vec::new();
                if between.try_reserve_exact(*bytes).is_err() {
                    bail!("MemoryError", "cannot allocate {bytes} bytes of main memory");
                }
                between.resize(*bytes, 0);
                read(system, &from, start, between.as_mut_ptr(), *bytes, *stream)?;
                write(system, between.as_mut_ptr(), &to, end, *bytes, DEFAULT_STREAM)
            }
            (Place::Host(_), Place::Host(_)) => bail!("RuntimeError", "a copy in main memory needs no device"),
        }
    }

    fn create_stream(&self, index: i32) -> Result<Handle> {
        let (system, device) = available(index)?;
        let opened = device.opened(&system.api)?;
        let error = |code| system.error(code, "create a command queue", device);
        let queue = device.queue(&system.api, opened).map_err(error)?;
        // While there was one queue, buffers may have changed their user before their commands had finished.
        // SAFETY: the queue of the default stream is alive.
        let code = unsafe { (system.api.clFinish)(opened.queue) };
        system.check(code, "wait for the work of the default stream", device)?;
        Ok(queue)
    }

    unsafe fn destroy_stream(&self, index: i32, stream: Handle) {
        let Some((system, device)) = system::known(index) else { return };
        if system::device(index).is_ok() {
            // No marker is left for buffers that these commands use, and that are freed later.
            // SAFETY: the caller passes a queue of `create_stream`.
            unsafe { (system.api.clFinish)(stream) };
        }
        if let Ok(opened) = device.opened(&system.api) {
            opened.forget_queue(stream);
        }
        // SAFETY: the caller passes a queue of `create_stream` for the last time.
        unsafe { (system.api.clReleaseCommandQueue)(stream) };
    }

    unsafe fn synchronize_stream(&self, index: i32, stream: Handle) -> Result<()> {
        let (system, device) = available(index)?;
        let queue = queue_of(system, device, stream)?;
        // SAFETY: the caller passes a live queue of the device, or the default one.
        let code = unsafe { (system.api.clFinish)(queue) };
        system.check(code, "wait for the work of a stream", device)
    }

    fn create_event(&self, _index: i32) -> Result<Handle> {
        Ok(Box::into_raw(Box::new(Recorded::default())).cast())
    }

    unsafe fn destroy_event(&self, _index: i32, event: Handle) {
        // SAFETY: the caller passes an event of `create_event`, which created it as such a box, for the last time.
        drop(unsafe { Box::from_raw(event.cast::<Recorded>()) });
    }

    unsafe fn record_event(&self, index: i32, event: Handle, stream: Handle) -> Result<()> {
        let (system, device) = available(index)?;
        let queue = queue_of(system, device, stream)?;
        let mut marker = ptr::null_mut();
        // SAFETY: the queue is alive, there is no wait list, and the location for the event is writable.
        let code = unsafe { (system.api.clEnqueueMarkerWithWaitList)(queue, 0, ptr::null(), &raw mut marker) };
        system.check(code, "record an event", device)?;
        let marker = ClEvent { event: marker, api: &system.api };
        // Another queue can only wait for an event whose queue was flushed.
        // SAFETY: the queue is alive.
        let code = unsafe { (system.api.clFlush)(queue) };
        system.check(code, "record an event", device)?;
        // SAFETY: the caller passes a live event.
        let before = unsafe { recorded(event) }.lock().replace(marker);
        drop(before);
        Ok(())
    }

    unsafe fn wait_event(&self, index: i32, event: Handle, stream: Handle) -> Result<()> {
        let (system, device) = available(index)?;
        let queue = queue_of(system, device, stream)?;
        // SAFETY: the caller passes a live event.
        let marker = unsafe { recorded(event) }.lock();
        let Some(marker) = &*marker else { return Ok(()) };
        // SAFETY: the queue and the event are alive; the list has one event.
        let code = unsafe {
            (system.api.clEnqueueBarrierWithWaitList)(queue, 1, &raw const marker.event, ptr::null_mut())
        };
        system.check(code, "wait for an event", device)
    }

    unsafe fn synchronize_event(&self, index: i32, event: Handle) -> Result<()> {
        let (system, device) = available(index)?;
        // SAFETY: the caller passes a live event.
        let marker = unsafe { recorded(event) }.lock();
        let Some(marker) = &*marker else { return Ok(()) };
        // SAFETY: the list has one event, which is locked and alive.
        let code = unsafe { (system.api.clWaitForEvents)(1, &raw const marker.event) };
        system.check(code, "wait for an event", device)
    }

    unsafe fn elapsed_ns(&self, index: i32, start: Handle, end: Handle) -> Result<u64> {
        let (system, device) = available(index)?;
        // SAFETY: the caller passes a live event.
        let start = unsafe { recorded(start) }.time(system, device)?;
        // SAFETY: the caller passes a live event.
        let end = unsafe { recorded(end) }.time(system, device)?;
        Ok(end.saturating_sub(start))
    }

    fn synchronize(&self, index: i32) -> Result<()> {
        let (system, device) = available(index)?;
        system.finish(device)
    }

    fn owns(&self, index: i32, data: *mut c_void) -> bool {
        memory::is_buffer(index, data)
    }

    fn release_memory(&self, index: i32) -> usize {
        system::known(index).map_or(0, |(_, device)| memory::release(device))
    }

    fn memory_statistics(&self, index: i32) -> Option<MemoryStatistics> {
        let (_, device) = system::known(index)?;
        Some(device.pool().statistics())
    }

    fn take_work(&self) -> Vec<Work> {
        work::take()
    }
}

/// Copies from main memory to a buffer, and waits for the copy.
fn write(
    system: &'static System,
    from: *const u8,
    to: &Buffer,
    offset: usize,
    bytes: usize,
    stream: Handle,
) -> Result<()> {
    let (_, device) = available(to.device)?;
    let queue = queue_of(system, device, stream)?;
    let mut command = Command::new(system, device, queue);
    // SAFETY: the caller of `copy` guarantees the host memory and the stream; the range of the buffer was checked, and the
    // call waits for the copy.
    let code = unsafe {
        (system.api.clEnqueueWriteBuffer)(
            queue,
            to.mem,
            api::TRUE,
            offset,
            bytes,
            from.cast(),
            0,
            ptr::null(),
            command.event(),
        )
    };
    command.queued(|| format!("copy {bytes} bytes to the device"));
    system.check(code, &format!("copy {bytes} bytes to the device"), device)
}

/// Copies from a buffer to main memory, and waits for the copy.
fn read(
    system: &'static System,
    from: &Buffer,
    offset: usize,
    to: *mut u8,
    bytes: usize,
    stream: Handle,
) -> Result<()> {
    let (_, device) = available(from.device)?;
    let queue = queue_of(system, device, stream)?;
    let mut command = Command::new(system, device, queue);
    // SAFETY: the caller of `copy` guarantees the host memory and the stream; the range of the buffer was checked, and the
    // call waits for the copy.
    let code = unsafe {
        (system.api.clEnqueueReadBuffer)(
            queue,
            from.mem,
            api::TRUE,
            offset,
            bytes,
            to.cast(),
            0,
            ptr::null(),
            command.event(),
        )
    };
    command.queued(|| format!("copy {bytes} bytes from the device"));
    system.check(code, &format!("copy {bytes} bytes from the device"), device)
}

/// Queues a copy between two buffers of one device, which may be the same.
fn copy_within(
    system: &'static System,
    (from, start): (&Buffer, usize),
    (to, end): (&Buffer, usize),
    bytes: usize,
    stream: Handle,
) -> Result<()> {
    let (_, device) = available(from.device)?;
    let queue = queue_of(system, device, stream)?;
    let copy = |from: Raw, start, to: Raw, end| {
        let mut command = Command::new(system, device, queue);
        // SAFETY: the caller of `copy` guarantees the stream; the ranges of the buffers were checked. OpenCL keeps buffers
        // until the commands that use them have finished.
        let code = unsafe {
            (system.api.clEnqueueCopyBuffer)(
                queue,
                from,
                to,
                start,
                end,
                bytes,
                0,
                ptr::null(),
                command.event(),
            )
        };
        command.queued(|| format!("copy {bytes} bytes on the device"));
        system.check(code, &format!("copy {bytes} bytes on the device"), device)
    };
    // OpenCL copies no overlapping ranges.
    if from.mem == to.mem && start.abs_diff(end) < bytes {
        let between = Buffer::temporary(system, device, bytes)?;
        copy(from.mem, start, between.mem, 0)?;
        return copy(between.mem, 0, to.mem, end);
    }
    copy(from.mem, start, to.mem, end)
}

/// Returns the version in a text such as `OpenCL 3.0 PoCL HSTR` as a number such as 300.
fn version(text: &str) -> Option<i64> {
    let (major, minor) = text.split(' ').nth(1)?.split_once('.')?;
    Some(100 * major.parse::<i64>().ok()? + 10 * minor.parse::<i64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::version;

    #[test]
    fn versions_are_numbers() {
        assert_eq!(version("OpenCL 3.0 PoCL HSTR: pthread-x86_64"), Some(300));
        assert_eq!(version("OpenCL 1.2"), Some(120));
        assert_eq!(version("something else"), None);
    }
}
