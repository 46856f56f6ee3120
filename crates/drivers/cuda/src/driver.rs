//! The driver of the device kind `cuda`.

use core::ffi::c_void;
use core::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyfn::abi::kDLCUDA;
use anyfn::{Result, bail};
use anyfn_driver::{
    Attribute, Driver, Handle, MemoryKind, MemoryLocation, MemoryStatistics, Request, Transfer, Value, Work,
};
use anyfn_kernels::pooled;

use crate::api::{self, Address, Raw};
use crate::event::CuEvent;
use crate::memory::{self, Temporary};
use crate::system::{self, CuDevice, System, available};
use crate::work::{self, Command};

/// Driver of CUDA devices. The library `libcuda.so.1` is opened at the first use of a device.
///
/// The native handle of a stream is its `CUstream`. Streams of other libraries are accepted; as in DLPack, 1 is the default stream that all
/// threads share, and 2 that of the calling thread.
pub struct Cuda;

/// The driver, which every program that links this crate has.
pub(crate) static DRIVER: Cuda = Cuda;
anyfn_driver::link_driver!(&DRIVER);

/// One end of a copy.
enum Place {
    Host(*mut u8),
    Device(i32, Address),
}

/// Returns the end of a copy that a location describes.
fn place(location: &MemoryLocation, bytes: usize) -> Result<Place> {
    if location.device.0.device_type != kDLCUDA {
        return Ok(Place::Host(location.data.wrapping_byte_add(location.offset).cast()));
    }
    let index = location.device.0.device_id;
    let address = location.data.addr().wrapping_add(location.offset);
    // Other libraries describe tensors in their own memory, of which nothing is known here.
    match memory::block_at(location.data.addr()) {
        Some((found, _)) if found != index => {
            bail!("ValueError", "{:p} is memory of cuda:{found}, not of cuda:{index}", location.data)
        }
        Some((_, rest)) if location.offset.checked_add(bytes).is_none_or(|end| end > rest) => bail!(
            "ValueError",
            "{bytes} bytes at offset {} exceed the memory of {rest} bytes on cuda:{index}",
            location.offset
        ),
        _ => Ok(Place::Device(index, address as Address)),
    }
}

/// Content of an event: the last recording, and how it was recorded.
#[derive(Default)]
struct Recorded(Mutex<Option<CuEvent>>);

impl Recorded {
    fn lock(&self) -> MutexGuard<'_, Option<CuEvent>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the last recording.
    fn last(&self) -> Result<CuEvent> {
        match &*self.lock() {
            Some(event) => Ok(event.clone()),
            None => bail!("ValueError", "an event has not been recorded yet"),
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

/// Work that is queued in a stream: takes note of the stream before and after it, if another library has created the stream.
pub(crate) fn queue_in(
    system: &'static System,
    device: &'static CuDevice,
    stream: Handle,
    what: &dyn Fn() -> String,
    work: impl FnOnce() -> i32,
) -> Result<()> {
    let opened = device.opened(&system.api)?;
    let is_foreign = opened.is_foreign(stream);
    let code = |result: Result<(), i32>| result.err().unwrap_or(api::SUCCESS);
    if is_foreign {
        system.check(
            code(opened.before_foreign(&system.api, stream)),
            "use a stream of another library",
            device,
        )?;
    }
    let command = Command::new(system, device, stream);
    let result = work();
    if result != api::SUCCESS {
        return Err(system.error(result, &what(), device));
    }
    command.queued(what);
    if is_foreign {
        system.check(
            code(opened.after_foreign(&system.api, stream)),
            "use a stream of another library",
            device,
        )?;
    }
    Ok(())
}

// SAFETY: memory has the requested size and alignment, and belongs to the caller alone: the driver allocates blocks that overlap nothing,
// and a block is reused only after the work that used it. Copies to main memory have finished when their call returns. Streams and events
// may be used on any thread. `device_type` and `memory_kind` are constants.
unsafe impl Driver for Cuda {
    fn device_type(&self) -> i32 {
        kDLCUDA
    }

    fn memory_kind(&self) -> MemoryKind {
        MemoryKind::Address
    }

    fn probe(&self, index: i32) -> Result<(), String> {
        system::device(index).map(drop)
    }

    fn attribute(&self, index: i32, attribute: Attribute) -> Option<Value> {
        let (system, device) = system::device(index).ok()?;
        let limits = &device.limits;
        let int = |number: usize| i64::try_from(number).ok().map(Value::Int);
        let of = |what| device.attribute(&system.api, what).map(|value| Value::Int(i64::from(value)));
        match attribute {
            Attribute::Name => Some(Value::Text(device.name.clone())),
            Attribute::MaxThreadsPerBlock => int(limits.threads),
            Attribute::WarpSize => of(api::WARP_SIZE),
            Attribute::MaxSharedMemoryPerBlock => int(limits.shared),
            Attribute::ComputeVersion => {
                Some(Value::Text(format!("{}.{}", limits.capability.0, limits.capability.1)))
            }
            Attribute::MaxThreadDimensions => Some(Value::Text(format!("{:?}", limits.block))),
            Attribute::MaxRegistersPerBlock => of(api::MAX_REGISTERS_PER_BLOCK),
            Attribute::ComputeUnits => of(api::MULTIPROCESSOR_COUNT),
            Attribute::MaxClockRate => of(api::CLOCK_RATE),
            Attribute::L2CacheSize => of(api::L2_CACHE_SIZE),
            Attribute::TotalMemory => int(limits.memory),
            Attribute::FreeMemory => int(free_memory(system, device)?),
            Attribute::ApiVersion => Some(Value::Int(i64::from(system.version))),
            Attribute::DriverVersion => Some(Value::Text(format!("CUDA {}", system.version_text()))),
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
        // The stream belongs to the device that is read, or to the one that is written if main memory is read.
        match (place(from, *bytes)?, place(to, *bytes)?) {
            (Place::Host(from), Place::Device(index, to)) => {
                let (system, device) = available(index)?;
                let copy = || {
                    // SAFETY: the caller guarantees both ranges and the stream, and the copy has finished when this function returns.
                    unsafe { (system.api.cuMemcpyHtoDAsync_v2)(to, from.cast(), *bytes, *stream) }
                };
                finished(system, device, *stream, &|| format!("copy {bytes} bytes to the device"), copy)
            }
            (Place::Device(index, from), Place::Host(to)) => {
                let (system, device) = available(index)?;
                let copy = || {
                    // SAFETY: the caller guarantees both ranges and the stream, and the copy has finished when this function returns.
                    unsafe { (system.api.cuMemcpyDtoHAsync_v2)(to.cast(), from, *bytes, *stream) }
                };
                finished(system, device, *stream, &|| format!("copy {bytes} bytes from the device"), copy)
            }
            (Place::Device(index, from), Place::Device(other, to)) if index == other => {
                copy_within(index, from, to, *bytes, *stream)
            }
            (Place::Device(index, from), Place::Device(other, to)) => {
                let ((system, device), (_, other)) = (available(index)?, available(other)?);
                let (here, there) =
                    (device.opened(&system.api)?.context(), other.opened(&system.api)?.context());
                // The stream is that of the device which is read, but earlier work on the memory that is written may be in the default stream
                // of its own device, also that of a former user of the memory.
                // SAFETY: NULL is the default stream.
                unsafe { self.synchronize_stream(other.index, ptr::null_mut()) }?;
                let copy = || {
                    // SAFETY: the caller guarantees both ranges and the stream, and the contexts live until the process ends.
                    unsafe { (system.api.cuMemcpyPeerAsync)(to, there, from, here, *bytes, *stream) }
                };
                let what = || format!("copy {bytes} bytes to cuda:{}", other.index);
                finished(system, device, *stream, &what, copy)
            }
            (Place::Host(_), Place::Host(_)) => bail!("RuntimeError", "a copy in main memory needs no device"),
        }
    }

    fn create_stream(&self, index: i32) -> Result<Handle> {
        let (system, device) = available(index)?;
        let _current = device.enter(system)?;
        let mut stream = ptr::null_mut();
        // SAFETY: writes the handle of the stream.
        let code = unsafe { (system.api.cuStreamCreate)(&raw mut stream, api::STREAM_NON_BLOCKING) };
        system.check(code, "create a stream", device)?;
        device.opened(&system.api)?.add_stream(stream);
        // While there was one stream, memory may have changed its user before its work had finished.
        // SAFETY: NULL is the default stream.
        let code = unsafe { (system.api.cuStreamSynchronize)(ptr::null_mut()) };
        system.check(code, "wait for the work of the default stream", device)?;
        Ok(stream)
    }

    unsafe fn destroy_stream(&self, index: i32, stream: Handle) {
        let Some((system, device)) = system::known(index) else { return };
        let Ok(_current) = device.enter(system) else { return };
        if system::device(index).is_ok() {
            // No marker is left for memory that this work uses, and that is freed later.
            // SAFETY: the caller passes a stream of `create_stream`.
            unsafe { (system.api.cuStreamSynchronize)(stream) };
        }
        if let Ok(opened) = device.opened(&system.api) {
            opened.forget_stream(stream);
        }
        // SAFETY: the caller passes a stream of `create_stream` for the last time.
        unsafe { (system.api.cuStreamDestroy_v2)(stream) };
    }

    unsafe fn synchronize_stream(&self, index: i32, stream: Handle) -> Result<()> {
        let (system, device) = available(index)?;
        let _current = device.enter(system)?;
        // SAFETY: the caller passes a live stream of the device, or the default one.
        let code = unsafe { (system.api.cuStreamSynchronize)(stream) };
        system.check(code, "wait for the work of a stream", device)
    }

    fn takes_foreign_streams(&self) -> bool {
        true
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
        // A new event each time, because another thread may still use the last one.
        let context = device.opened(&system.api)?.context();
        let made = CuEvent::create(&system.api, context, api::EVENT_DEFAULT)
            .and_then(|event| event.record(stream).map(|()| event));
        let made = made.map_err(|code| system.error(code, "record an event", device))?;
        // SAFETY: the caller passes a live event.
        let before = unsafe { recorded(event) }.lock().replace(made);
        drop(before);
        Ok(())
    }

    unsafe fn wait_event(&self, index: i32, event: Handle, stream: Handle) -> Result<()> {
        let (system, device) = available(index)?;
        // SAFETY: the caller passes a live event.
        let Some(last) = unsafe { recorded(event) }.lock().clone() else { return Ok(()) };
        let _current = device.enter(system)?;
        // SAFETY: the stream and the event are alive; the flags must be 0.
        let code = unsafe { (system.api.cuStreamWaitEvent)(stream, last.raw(), 0) };
        system.check(code, "wait for an event", device)
    }

    unsafe fn synchronize_event(&self, index: i32, event: Handle) -> Result<()> {
        let (system, device) = available(index)?;
        // SAFETY: the caller passes a live event.
        let Some(last) = unsafe { recorded(event) }.lock().clone() else { return Ok(()) };
        last.wait().map_err(|code| system.error(code, "wait for an event", device))
    }

    unsafe fn elapsed_ns(&self, index: i32, start: Handle, end: Handle) -> Result<u64> {
        let (system, device) = available(index)?;
        // SAFETY: the caller passes a live event.
        let start = unsafe { recorded(start) }.last()?;
        // SAFETY: the caller passes a live event.
        let end = unsafe { recorded(end) }.last()?;
        start.until(&end).map_err(|code| system.error(code, "read the time of an event", device))
    }

    fn synchronize(&self, index: i32) -> Result<()> {
        let (system, device) = available(index)?;
        let _current = device.enter(system)?;
        // SAFETY: waits for all work of the current context.
        let code = unsafe { (system.api.cuCtxSynchronize)() };
        system.check(code, "wait for the work", device)
    }

    fn owns(&self, index: i32, data: *mut c_void) -> bool {
        memory::device_of(data.addr()) == Some(index)
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

/// Returns the free memory of a device in bytes.
fn free_memory(system: &'static System, device: &CuDevice) -> Option<usize> {
    let _current = device.enter(system).ok()?;
    let (mut free, mut total) = (0, 0);
    // SAFETY: writes two numbers.
    let code = unsafe { (system.api.cuMemGetInfo_v2)(&raw mut free, &raw mut total) };
    (code == api::SUCCESS).then_some(free)
}

/// Queues a copy and waits for it.
fn finished(
    system: &'static System,
    device: &'static CuDevice,
    stream: Handle,
    what: &dyn Fn() -> String,
    copy: impl FnOnce() -> i32,
) -> Result<()> {
    let _current = device.enter(system)?;
    queue_in(system, device, stream, what, copy)?;
    // SAFETY: the caller of `copy` guarantees the stream.
    let code = unsafe { (system.api.cuStreamSynchronize)(stream) };
    if code == api::SUCCESS { Ok(()) } else { Err(system.error(code, &what(), device)) }
}

/// Queues a copy within the memory of one device.
fn copy_within(index: i32, from: Address, to: Address, bytes: usize, stream: Raw) -> Result<()> {
    let (system, device) = available(index)?;
    let _current = device.enter(system)?;
    let what = || format!("copy {bytes} bytes on the device");
    let copy = |from: Address, to: Address| {
        queue_in(system, device, stream, &what, || {
            // SAFETY: the caller of `copy` guarantees both ranges and the stream.
            unsafe { (system.api.cuMemcpyDtoDAsync_v2)(to, from, bytes, stream) }
        })
    };
    // The driver copies no overlapping ranges.
    if from.abs_diff(to) >= bytes as Address {
        return copy(from, to);
    }
    let between = Temporary::new(system, device, bytes)?;
    copy(from, between.address())?;
    copy(between.address(), to)?;
    // SAFETY: the caller of `copy` guarantees the stream.
    let code = unsafe { (system.api.cuStreamSynchronize)(stream) };
    drop(between);
    system.check(code, &what(), device)
}
