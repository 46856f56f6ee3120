//! The driver of the device kind `vulkan`.

use core::ffi::c_void;

use std::sync::Arc;

use anyfn::Result;
use anyfn::abi::kDLVulkan;
use anyfn_driver::{Attribute, Driver, Handle, MemoryKind, MemoryStatistics, Request, Transfer, Value, Work};
use anyfn_kernels::{copies, pooled};

use crate::api::version;
use crate::copy::VkCopies;
use crate::event::Event;
use crate::system::{self, available};
use crate::{memory, work};

/// Driver of Vulkan devices. The loader `libvulkan.so.1` is opened at the first use of a device.
///
/// A stream is a series of command buffers, each of which increases a timeline semaphore.
pub struct Vulkan;

/// The driver, which every program that links this crate has.
pub(crate) static DRIVER: Vulkan = Vulkan;
anyfn_driver::link_driver!(&DRIVER);

/// Returns the content of an event.
///
/// # Safety
/// `event` must come from `create_event` and be alive for `'a`.
unsafe fn event_of<'a>(event: Handle) -> &'a Event {
    // SAFETY: `create_event` allocates such a value, which the caller guarantees to be alive.
    unsafe { &*event.cast::<Event>() }
}

// SAFETY: buffers have the requested size and belong to the caller alone. They are reached through the list of
// descriptors, and each range is checked. Copies to main memory have finished when their call returns. Streams and events
// are locked by each operation. `device_type` and `memory_kind` are constants.
unsafe impl Driver for Vulkan {
    fn device_type(&self) -> i32 {
        kDLVulkan
    }

    fn memory_kind(&self) -> MemoryKind {
        MemoryKind::Handle
    }

    fn probe(&self, index: i32) -> Result<(), String> {
        system::device(index).map(drop)
    }

    fn attribute(&self, index: i32, attribute: Attribute) -> Option<Value> {
        let (_, device) = system::device(index).ok()?;
        let limits = &device.limits;
        let int = |number: u64| i64::try_from(number).ok().map(Value::Int);
        match attribute {
            Attribute::Name => Some(Value::Text(device.name.clone())),
            Attribute::MaxThreadsPerBlock => int(limits.group as u64),
            Attribute::WarpSize => int(u64::from(limits.subgroup)),
            Attribute::MaxSharedMemoryPerBlock => int(u64::from(limits.shared)),
            Attribute::MaxThreadDimensions => {
                let [x, y, z] = limits.dimensions;
                Some(Value::Text(format!("[{x}, {y}, {z}]")))
            }
            Attribute::TotalMemory => int(limits.memory as u64),
            Attribute::FreeMemory => int(limits.memory.saturating_sub(device.pool().statistics().used) as u64),
            Attribute::DriverVersion => Some(Value::Text(device.driver.clone())),
            Attribute::ApiVersion => {
                let (major, minor) =
                    (ash::vk::api_version_major(device.version), ash::vk::api_version_minor(device.version));
                int(u64::from(100 * major + 10 * minor))
            }
            Attribute::ComputeVersion => Some(Value::Text(format!("Vulkan {}", version(device.version)))),
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
        // SAFETY: the requirements are the same.
        unsafe { copies::copy(&VkCopies, transfer) }
    }

    fn create_stream(&self, index: i32) -> Result<Handle> {
        let (_, logical) = available(index)?;
        let stream = logical.create_stream()?;
        let handle: Handle = Arc::as_ptr(&stream).cast_mut().cast();
        // While there was one stream, buffers may have changed their user before their work had finished. Buffers that are freed from now
        // on have a marker of the new stream, because it is in the list.
        logical.finish().inspect_err(|_| logical.forget_stream(handle))?;
        Ok(handle)
    }

    unsafe fn destroy_stream(&self, index: i32, stream: Handle) {
        let Some((_, device)) = system::known(index) else { return };
        let Some(logical) = device.in_use() else { return };
        // No marker is left for buffers that this work uses, and that are freed later.
        if system::device(index).is_ok()
            && let Ok(stream) = logical.stream(stream)
        {
            drop(stream.finish("wait for the work of a stream"));
        }
        logical.forget_stream(stream);
    }

    unsafe fn synchronize_stream(&self, index: i32, stream: Handle) -> Result<()> {
        let (_, logical) = available(index)?;
        logical.stream(stream)?.finish("wait for the work of a stream")
    }

    fn create_event(&self, _index: i32) -> Result<Handle> {
        Ok(Box::into_raw(Box::new(Event::default())).cast())
    }

    unsafe fn destroy_event(&self, _index: i32, event: Handle) {
        // SAFETY: the caller passes an event of `create_event`, which created it as such a box, for the last time.
        drop(unsafe { Box::from_raw(event.cast::<Event>()) });
    }

    unsafe fn record_event(&self, index: i32, event: Handle, stream: Handle) -> Result<()> {
        let (_, logical) = available(index)?;
        // SAFETY: the caller passes a live event.
        unsafe { event_of(event) }.record(&logical.stream(stream)?)
    }

    unsafe fn wait_event(&self, index: i32, event: Handle, stream: Handle) -> Result<()> {
        let (_, logical) = available(index)?;
        // SAFETY: the caller passes a live event.
        if let Some(marker) = unsafe { event_of(event) }.marker() {
            logical.stream(stream)?.wait_before_next(marker);
        }
        Ok(())
    }

    unsafe fn synchronize_event(&self, index: i32, event: Handle) -> Result<()> {
        available(index)?;
        // SAFETY: the caller passes a live event.
        match unsafe { event_of(event) }.marker() {
            Some(marker) => marker.wait("wait for an event"),
            None => Ok(()),
        }
    }

    unsafe fn elapsed_ns(&self, index: i32, start: Handle, end: Handle) -> Result<u64> {
        let (device, _) = available(index)?;
        // SAFETY: the caller passes a live event.
        let start = unsafe { event_of(start) }.time()?;
        // SAFETY: the caller passes a live event.
        let end = unsafe { event_of(end) }.time()?;
        Ok(device.nanoseconds(start, end))
    }

    fn synchronize(&self, index: i32) -> Result<()> {
        available(index)?.1.finish()
    }

    fn owns(&self, index: i32, data: *mut c_void) -> bool {
        memory::at(data).is_some_and(|buffer| buffer.device == index)
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
