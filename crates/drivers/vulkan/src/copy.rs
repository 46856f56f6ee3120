//! Copies between the host and buffers, and between buffers.

use core::ffi::c_void;
use std::sync::Arc;

use anyfn::abi::kDLVulkan;
use anyfn::{Result, bail};
use anyfn_driver::{DEFAULT_STREAM, Handle, MemoryLocation, Transfer};
use ash::vk;

use crate::logical::Logical;
use crate::memory::{self, Buffer, Descriptor};
use crate::stream::{Stream, Task};
use crate::system::available;
use crate::work;

/// Bytes that are copied at once through a buffer that the host can write.
const PIECE: usize = 16 << 20;

/// One end of a copy.
#[derive(Clone, Copy)]
enum Place {
    Host(*mut u8),
    Device(Descriptor, usize),
}

/// Returns the end of a copy that a location describes.
fn place(location: &MemoryLocation, bytes: usize) -> Result<Place> {
    if location.device.0.device_type != kDLVulkan {
        return Ok(Place::Host(location.data.wrapping_byte_add(location.offset).cast()));
    }
    let index = location.device.0.device_id;
    // Both are only possible for tensors that other code has described. Memory of the runtime was checked above.
    match memory::at(location.data) {
        Some(buffer) if buffer.device == index => {
            if location.offset.checked_add(bytes).is_none_or(|end| end > buffer.bytes) {
                bail!(
                    "ValueError",
                    "{bytes} bytes at offset {} exceed the buffer of {} bytes on vulkan:{index}",
                    location.offset,
                    buffer.bytes
                );
            }
            Ok(Place::Device(buffer, location.offset))
        }
        _ => bail!(
            "ValueError",
            "{:p} is not a buffer that this runtime has allocated on vulkan:{index}",
            location.data
        ),
    }
}

/// Copies bytes. Copies to and from main memory have finished when the call returns.
///
/// # Safety
/// Both locations must be valid for the bytes until the copy has finished.
pub(crate) unsafe fn copy(transfer: &Transfer) -> Result<()> {
    let Transfer { from, to, bytes, stream } = *transfer;
    // The stream belongs to the device that is read, or to the one that is written if main memory is read.
    match (place(&from, bytes)?, place(&to, bytes)?) {
        (Place::Host(from), Place::Device(to, offset)) => {
            // SAFETY: the caller guarantees the host memory; the range of the buffer was checked.
            unsafe { write(from, &to, offset, bytes, stream) }
        }
        (Place::Device(from, offset), Place::Host(to)) => {
            // SAFETY: the caller guarantees the host memory; the range of the buffer was checked.
            unsafe { read(&from, offset, to, bytes, stream) }
        }
        (Place::Device(from, start), Place::Device(to, end)) if from.device == to.device => {
            within((&from, start), (&to, end), bytes, stream)
        }
        // Another device has other memory, so the bytes take the way through main memory.
        (Place::Device(from, start), Place::Device(to, end)) => {
            let mut between: Vec<u8> = Vec::new();
            if between.try_reserve_exact(bytes).is_err() {
                bail!("MemoryError", "cannot allocate {bytes} bytes of main memory");
            }
            between.resize(bytes, 0);
            // SAFETY: the vector has this many bytes.
            unsafe { read(&from, start, between.as_mut_ptr(), bytes, stream) }?;
            // SAFETY: the vector has this many bytes.
            unsafe { write(between.as_ptr(), &to, end, bytes, DEFAULT_STREAM) }
        }
        (Place::Host(_), Place::Host(_)) => bail!("RuntimeError", "a copy in main memory needs no device"),
    }
}

/// Copies from main memory to a buffer, and waits for the copy.
///
/// # Safety
/// `from` must be valid for reads of the bytes.
unsafe fn write(from: *const u8, to: &Descriptor, offset: usize, bytes: usize, stream: Handle) -> Result<()> {
    let (_, logical) = available(to.device)?;
    let (stream, task) = (logical.stream(stream)?, Task::Copy(bytes, "to"));
    if !to.mapped.is_null() {
        stream.finish(&task.text())?;
        let start = work::now();
        // SAFETY: the caller guarantees the host memory, and the range of the buffer was checked. Work of the stream that uses the buffer
        // has finished.
        unsafe { core::ptr::copy_nonoverlapping(from, to.mapped.wrapping_add(offset), bytes) };
        work::copied(&stream, task, start);
        return Ok(());
    }
    let between = Buffer::for_host(logical, bytes.min(PIECE))?;
    for start in (0..bytes).step_by(PIECE) {
        let length = PIECE.min(bytes - start);
        // SAFETY: the caller guarantees the host memory; the buffer has this many bytes, which no work uses.
        unsafe {
            core::ptr::copy_nonoverlapping(from.wrapping_add(start), visible(logical, &between)?.cast(), length)
        };
        queue(&stream, task, (between.handle, 0), (to.buffer, offset + start), length)?;
        if let Err(error) = stream.finish(&task.text()) {
            // Work may still use it.
            core::mem::forget(between);
            return Err(error);
        }
    }
    Ok(())
}

/// Copies from a buffer to main memory, and waits for the copy.
///
/// # Safety
/// `to` must be valid for writes of the bytes.
unsafe fn read(from: &Descriptor, offset: usize, to: *mut u8, bytes: usize, stream: Handle) -> Result<()> {
    let (_, logical) = available(from.device)?;
    let (stream, task) = (logical.stream(stream)?, Task::Copy(bytes, "from"));
    if !from.mapped.is_null() {
        stream.finish(&task.text())?;
        let start = work::now();
        // SAFETY: the caller guarantees the host memory, and the range of the buffer was checked. Work of the stream that uses the buffer
        // has finished.
        unsafe { core::ptr::copy_nonoverlapping(from.mapped.wrapping_add(offset), to, bytes) };
        work::copied(&stream, task, start);
        return Ok(());
    }
    let between = Buffer::for_host(logical, bytes.min(PIECE))?;
    for start in (0..bytes).step_by(PIECE) {
        let length = PIECE.min(bytes - start);
        queue(&stream, task, (from.buffer, offset + start), (between.handle, 0), length)?;
        if let Err(error) = stream.finish(&task.text()) {
            core::mem::forget(between);
            return Err(error);
        }
        // SAFETY: the caller guarantees the host memory; the buffer has this many bytes, which no work uses.
        unsafe {
            core::ptr::copy_nonoverlapping(visible(logical, &between)?.cast(), to.wrapping_add(start), length)
        };
    }
    Ok(())
}

/// Returns the address at which the host reads and writes a buffer.
fn visible(logical: &Logical, buffer: &Buffer) -> Result<*mut c_void> {
    match buffer.visible() {
        address if address.is_null() => {
            bail!("RuntimeError", "vulkan:{} has no memory that the host can write", logical.device.index)
        }
        address => Ok(address.cast()),
    }
}

/// Queues a copy between two buffers of one device, which may be the same.
fn within(
    (from, start): (&Descriptor, usize),
    (to, end): (&Descriptor, usize),
    bytes: usize,
    stream: Handle,
) -> Result<()> {
    let (_, logical) = available(from.device)?;
    let (stream, task) = (logical.stream(stream)?, Task::Copy(bytes, "on"));
    if from.buffer != to.buffer || start.abs_diff(end) >= bytes {
        return queue(&stream, task, (from.buffer, start), (to.buffer, end), bytes);
    }
    // Vulkan copies no overlapping ranges.
    let between = Arc::new(Buffer::new(logical, bytes)?);
    let kept = between.clone();
    stream.submit(task, |recording| {
        recording.keep(kept);
        regions(recording.api, recording.commands, (from.buffer, start), (between.handle, 0), bytes);
        Ok(())
    })?;
    stream.submit(task, |recording| {
        regions(recording.api, recording.commands, (between.handle, 0), (to.buffer, end), bytes);
        recording.keep(between);
        Ok(())
    })?;
    Ok(())
}

fn queue(
    stream: &Arc<Stream>,
    task: Task<'_>,
    from: (vk::Buffer, usize),
    to: (vk::Buffer, usize),
    bytes: usize,
) -> Result<()> {
    let submitted = stream.submit(task, |recording| {
        regions(recording.api, recording.commands, from, to, bytes);
        Ok(())
    });
    submitted.map(drop)
}

fn regions(
    api: &ash::Device,
    commands: vk::CommandBuffer,
    (from, start): (vk::Buffer, usize),
    (to, end): (vk::Buffer, usize),
    bytes: usize,
) {
    let regions = [vk::BufferCopy { src_offset: start as u64, dst_offset: end as u64, size: bytes as u64 }];
    // SAFETY: the command buffer is being recorded, and the ranges of the buffers were checked. The pool keeps buffers until the work that
    // uses them has finished.
    unsafe { api.cmd_copy_buffer(commands, from, to, &regions) };
}
