//! The driver of the device kind `opencl`.

use core::ffi::c_void;
use core::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyfn::abi::kDLOpenCL;
use anyfn::{Result, bail};
use anyfn_driver::{
    Attribute, Driver, Handle, MemoryKind, MemoryStatistics, Request, Transfer, Value, Work, unsupported,
};
use anyfn_kernels::{copies, pooled};

use crate::api::{self, number, text};
use crate::copy::ClCopies;
use crate::event::ClEvent;
use crate::memory;
use crate::system::{self, ClDevice, System, available};
use crate::work;

/// Driver of OpenCL devices. The loader `libOpenCL.so.1` is opened at the first use of a device.
///
/// Streams are command queues, and the native handle of a stream is its `cl_command_queue`.
pub struct OpenCl;

/// The driver, which every program that links this crate has.
pub(crate) static DRIVER: OpenCl = OpenCl;
anyfn_driver::link_driver!(&DRIVER);

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
        let system = system::system().map_err(|reason| anyfn::Error::new("RuntimeError", &reason))?;
        // SAFETY: the requirements are the same.
        unsafe { copies::copy(&ClCopies(system), transfer) }
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
        let queue = device.queue_of(&system.api, stream)?;
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
        let queue = device.queue_of(&system.api, stream)?;
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
        let queue = device.queue_of(&system.api, stream)?;
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
        system::known(index).map_or(0, |(_, device)| pooled::release(device))
    }

    fn memory_statistics(&self, index: i32) -> Option<MemoryStatistics> {
        let (_, device) = system::known(index)?;
        Some(device.pool().statistics())
    }

    fn take_work(&self) -> Vec<Work> {
        work::take()
    }
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
