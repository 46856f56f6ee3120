//! Copies between the host and buffers, and between buffers.

use core::ffi::c_void;
use core::ptr;

use anyfn::Result;
use anyfn::abi::kDLOpenCL;
use anyfn_driver::Handle;
use anyfn_kernels::copies::Copies;

use crate::api::{self, Raw};
use crate::memory::Buffer;
use crate::system::{System, available};
use crate::work::Command;

/// The copies of OpenCL devices.
pub(crate) struct ClCopies(pub(crate) &'static System);

impl Copies for ClCopies {
    type Buffer = Buffer;

    const KIND: &'static str = "opencl";
    const DEVICE_TYPE: i32 = kDLOpenCL;

    fn find(&self, data: *mut c_void) -> Option<(Buffer, i32, usize)> {
        let buffer = Buffer::at(data, self.0)?;
        let (device, bytes) = (buffer.device, buffer.bytes);
        Some((buffer, device, bytes))
    }

    unsafe fn write(
        &self,
        from: *const u8,
        (to, offset): (&Buffer, usize),
        bytes: usize,
        stream: Handle,
    ) -> Result<()> {
        let system = self.0;
        let (_, device) = available(to.device)?;
        let queue = device.queue_of(&system.api, stream)?;
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

    unsafe fn read(
        &self,
        (from, offset): (&Buffer, usize),
        to: *mut u8,
        bytes: usize,
        stream: Handle,
    ) -> Result<()> {
        let system = self.0;
        let (_, device) = available(from.device)?;
        let queue = device.queue_of(&system.api, stream)?;
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

    fn copy_within(
        &self,
        (from, start): (&Buffer, usize),
        (to, end): (&Buffer, usize),
        bytes: usize,
        stream: Handle,
    ) -> Result<()> {
        let system = self.0;
        let (_, device) = available(from.device)?;
        let queue = device.queue_of(&system.api, stream)?;
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
}
