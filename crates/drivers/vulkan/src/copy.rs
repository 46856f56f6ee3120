//! Copies between the host and buffers, and between buffers.

use core::ffi::c_void;
use std::sync::Arc;

use anyfn::abi::kDLVulkan;
use anyfn::{Result, bail};
use anyfn_driver::Handle;
use anyfn_kernels::copies::Copies;
use ash::vk;

use crate::logical::Logical;
use crate::memory::{self, Buffer, Descriptor};
use crate::stream::{Stream, Task};
use crate::system::available;
use crate::work;

/// Bytes that are copied at once through a buffer that the host can write.
const PIECE: usize = 16 << 20;

/// The copies of Vulkan devices.
pub(crate) struct VkCopies;

impl Copies for VkCopies {
    type Buffer = Descriptor;

    const KIND: &'static str = "vulkan";
    const DEVICE_TYPE: i32 = kDLVulkan;

    fn find(&self, data: *mut c_void) -> Option<(Descriptor, i32, usize)> {
        memory::at(data).map(|buffer| (buffer, buffer.device, buffer.bytes))
    }

    unsafe fn write(
        &self,
        from: *const u8,
        (to, offset): (&Descriptor, usize),
        bytes: usize,
        stream: Handle,
    ) -> Result<()> {
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
                core::ptr::copy_nonoverlapping(
                    from.wrapping_add(start),
                    visible(logical, &between)?.cast(),
                    length,
                )
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

    unsafe fn read(
        &self,
        (from, offset): (&Descriptor, usize),
        to: *mut u8,
        bytes: usize,
        stream: Handle,
    ) -> Result<()> {
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
                core::ptr::copy_nonoverlapping(
                    visible(logical, &between)?.cast(),
                    to.wrapping_add(start),
                    length,
                )
            };
        }
        Ok(())
    }

    fn copy_within(
        &self,
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

/// Queues a copy between two ranges of buffers.
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
