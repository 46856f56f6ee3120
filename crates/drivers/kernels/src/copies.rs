//! Copies between main memory and buffers, and between buffers.

use core::ffi::c_void;

use anyfn::{Result, bail};
use anyfn_driver::{DEFAULT_STREAM, Handle, MemoryLocation, Transfer};

/// The copies of a kind of devices whose memory consists of buffers, which are found by the addresses of their descriptors. The ranges of
/// all buffers were checked.
pub trait Copies {
    /// A buffer that is alive for the duration of a copy.
    type Buffer;

    /// Name of the kind of devices, such as `opencl`.
    const KIND: &'static str;
    /// DLPack number of the kind of devices.
    const DEVICE_TYPE: i32;

    /// Returns the buffer whose descriptor is at an address, the number of its device, and its bytes; `None` if no buffer of this process is
    /// there.
    fn find(&self, data: *mut c_void) -> Option<(Self::Buffer, i32, usize)>;

    /// Copies from main memory to an offset in a buffer, and waits for the copy.
    ///
    /// # Errors
    /// Returns an error if the device fails.
    ///
    /// # Safety
    /// `from` must be valid for reads of the bytes.
    unsafe fn write(
        &self,
        from: *const u8,
        to: (&Self::Buffer, usize),
        bytes: usize,
        stream: Handle,
    ) -> Result<()>;

    /// Copies from an offset in a buffer to main memory, and waits for the copy.
    ///
    /// # Errors
    /// Returns an error if the device fails.
    ///
    /// # Safety
    /// `to` must be valid for writes of the bytes.
    unsafe fn read(
        &self,
        from: (&Self::Buffer, usize),
        to: *mut u8,
        bytes: usize,
        stream: Handle,
    ) -> Result<()>;

    /// Queues a copy between two buffers of one device, which may be the same buffer.
    ///
    /// # Errors
    /// Returns an error if the device fails.
    fn copy_within(
        &self,
        from: (&Self::Buffer, usize),
        to: (&Self::Buffer, usize),
        bytes: usize,
        stream: Handle,
    ) -> Result<()>;
}

/// One end of a copy.
enum End<B> {
    Host(*mut u8),
    Device { buffer: B, index: i32, offset: usize },
}

/// Returns the end of a copy that a location describes.
fn end<C: Copies>(copies: &C, location: &MemoryLocation, bytes: usize) -> Result<End<C::Buffer>> {
    let (kind, MemoryLocation { device, data, offset }) = (C::KIND, *location);
    if device.0.device_type != C::DEVICE_TYPE {
        return Ok(End::Host(data.wrapping_byte_add(offset).cast()));
    }
    // Both errors are only possible for tensors that other code has described. Memory of the runtime was checked above.
    let wanted = device.0.device_id;
    match copies.find(data) {
        Some((buffer, index, size)) if index == wanted => {
            if offset.checked_add(bytes).is_none_or(|end| end > size) {
                bail!(
                    "ValueError",
                    "{bytes} bytes at offset {offset} exceed the buffer of {size} bytes on {kind}:{index}"
                );
            }
            Ok(End::Device { buffer, index, offset })
        }
        _ => bail!("ValueError", "{data:p} is not a buffer that this runtime has allocated on {kind}:{wanted}"),
    }
}

/// Copies bytes. Copies to and from main memory have finished when the call returns. The stream belongs to the device that is read, or to the
/// one that is written if main memory is read.
///
/// # Errors
/// Returns `ValueError` for a location outside of the buffers, or the error of the device.
///
/// # Safety
/// Both locations must be valid for the bytes until the copy has finished.
pub unsafe fn copy<C: Copies>(copies: &C, transfer: &Transfer) -> Result<()> {
    let Transfer { from, to, bytes, stream } = *transfer;
    match (end(copies, &from, bytes)?, end(copies, &to, bytes)?) {
        (End::Host(from), End::Device { buffer, offset, .. }) => {
            // SAFETY: the caller guarantees the host memory.
            unsafe { copies.write(from, (&buffer, offset), bytes, stream) }
        }
        (End::Device { buffer, offset, .. }, End::Host(to)) => {
            // SAFETY: the caller guarantees the host memory.
            unsafe { copies.read((&buffer, offset), to, bytes, stream) }
        }
        (
            End::Device { buffer: from, index, offset },
            End::Device { buffer: to, index: other, offset: end },
        ) => {
            if index == other {
                return copies.copy_within((&from, offset), (&to, end), bytes, stream);
            }
            // Another device has other memory, so the bytes take the way through main memory.
            let mut between: Vec<u8> = Vec::new();
            if between.try_reserve_exact(bytes).is_err() {
                bail!("MemoryError", "cannot allocate {bytes} bytes of main memory");
            }
            between.resize(bytes, 0);
            // SAFETY: the vector has this many bytes.
            unsafe { copies.read((&from, offset), between.as_mut_ptr(), bytes, stream) }?;
            // SAFETY: the vector has this many bytes.
            unsafe { copies.write(between.as_ptr(), (&to, end), bytes, DEFAULT_STREAM) }
        }
        (End::Host(_), End::Host(_)) => bail!("RuntimeError", "a copy in main memory needs no device"),
    }
}
