//! Device memory, and copies between devices.

use core::ffi::c_void;
use core::fmt;

use anyfn::{Device, Result, bail};

use super::{
    DEFAULT_STREAM, Driver, Handle, MemoryKind, MemoryLocation, Request, Transfer, driver_of, memory_kind,
};

/// Maximum alignment of an allocation in bytes.
const ALIGNMENT_MAX: usize = 1 << 20;

/// Memory on a device, freed on drop.
pub struct Memory {
    driver: &'static dyn Driver,
    device: Device,
    data: *mut c_void,
    request: Request,
}

// SAFETY: memory may be used and freed from any thread.
unsafe impl Send for Memory {}
// SAFETY: shared references only read the description.
unsafe impl Sync for Memory {}

impl Memory {
    /// Allocates memory. Main memory is zeroed; on other devices the content is unspecified. A size of zero is rounded
    /// up to one byte, so that the address is always valid.
    ///
    /// # Errors
    /// Returns `RuntimeError` if the device is not available, `ValueError` for an alignment that is not a power of two
    /// up to 2^20, `MemoryError` if the memory is not available.
    #[inline]
    pub fn allocate(device: Device, bytes: usize, alignment: usize) -> Result<Memory> {
        Memory::allocate_scope(device, bytes, alignment, None)
    }

    /// Allocates memory with unspecified content. Unlike [`Memory::allocate`], it does not zero main memory.
    ///
    /// # Errors
    /// Returns the errors of [`Memory::allocate`].
    ///
    /// # Safety
    /// In main memory, each byte must be written before it is read.
    pub(crate) unsafe fn allocate_uninit(device: Device, bytes: usize, alignment: usize) -> Result<Memory> {
        let (driver, request) = (driver_of(device)?, checked(bytes, alignment, device)?);
        let data = driver.allocate(device.0.device_id, request)?;
        Memory::accept(driver, device, data, request)
    }

    /// Allocates zeroed memory.
    ///
    /// # Errors
    /// Returns the errors of [`Memory::allocate`].
    pub fn zeroed(device: Device, bytes: usize, alignment: usize) -> Result<Memory> {
        let (driver, request) = (driver_of(device)?, checked(bytes, alignment, device)?);
        if let Some(data) = driver.allocate_zeroed(device.0.device_id, request)? {
            return Memory::accept(driver, device, data, request);
        }
        let data = driver.allocate(device.0.device_id, request)?;
        let mut memory = Memory::accept(driver, device, data, request)?;
        memory.clear()?;
        Ok(memory)
    }

    /// Allocates memory in a memory scope, such as `global.texture`. A scope is a kind of memory of
    /// the device. `None`, `""` and `"global"` select ordinary memory.
    ///
    /// # Errors
    /// Returns the errors of [`Memory::allocate`], and `NotImplementedError` for a scope that the device does not have.
    pub fn allocate_scope(
        device: Device,
        bytes: usize,
        alignment: usize,
        scope: Option<&str>,
    ) -> Result<Memory> {
        let driver = driver_of(device)?;
        let is_host = driver.memory_kind() == MemoryKind::Host;
        let Some(scope) = scope.filter(|scope| !matches!(*scope, "" | "global")) else {
            return if is_host {
                Memory::zeroed(device, bytes, alignment)
            } else {
                // SAFETY: this is not main memory.
                unsafe { Memory::allocate_uninit(device, bytes, alignment) }
            };
        };
        let request = checked(bytes, alignment, device)?;
        let data = driver.allocate_scope(device.0.device_id, request, scope)?;
        let mut memory = Memory::accept(driver, device, data, request)?;
        if is_host {
            memory.clear()?;
        }
        Ok(memory)
    }

    /// Takes ownership of the memory at `data`, which `driver` has allocated for `request`. Returns
    /// `RuntimeError` if the driver returned an invalid address.
    #[inline]
    fn accept(
        driver: &'static dyn Driver,
        device: Device,
        data: *mut c_void,
        request: Request,
    ) -> Result<Memory> {
        let follows = driver.memory_kind() != MemoryKind::Handle;
        let is_wrong = data.is_null()
            || follows
                && (!data.addr().is_multiple_of(request.alignment)
                    || data.addr().checked_add(request.bytes).is_none());
        if is_wrong {
            // The memory is not freed, because nothing is known about it.
            return Err(wrong(device, data, request));
        }
        Ok(Memory { driver, device, data, request })
    }

    /// Sets all bytes of the memory to zero.
    fn clear(&mut self) -> Result<()> {
        const AT_ONCE: usize = 1 << 20;
        let zeros = buffer(self.len().min(AT_ONCE))?;
        for start in (0..self.len()).step_by(AT_ONCE) {
            self.write(start, &zeros[..AT_ONCE.min(self.len() - start)])?;
        }
        Ok(())
    }

    /// Returns the address or handle of the memory.
    #[inline]
    pub fn data(&self) -> *mut c_void {
        self.data
    }

    /// Returns the device of the memory.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Returns the size of the memory in bytes.
    pub fn len(&self) -> usize {
        self.request.bytes
    }

    /// Returns false, because at least one byte is always allocated.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Returns the location at the byte offset `offset`, after checking that `bytes` bytes from there are within the
    /// memory.
    ///
    /// # Errors
    /// Returns `ValueError` if the range is not within the memory.
    pub fn place(&self, offset: usize, bytes: usize) -> Result<MemoryLocation> {
        if offset.checked_add(bytes).is_none_or(|end| end > self.len()) {
            bail!(
                "ValueError",
                "{bytes} bytes at offset {offset} exceed the memory of {} bytes on {}",
                self.len(),
                self.device
            );
        }
        Ok(MemoryLocation { device: self.device, data: self.data, offset })
    }

    /// Copies `bytes` from the host into the memory, to the byte offset `offset`.
    ///
    /// # Errors
    /// Returns `ValueError` if the range is not within the memory, or the error of the device.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) -> Result<()> {
        let to = self.place(offset, bytes.len())?;
        // SAFETY: the slice is main memory, borrowed for the call; the location was checked, and its memory is borrowed
        // exclusively.
        unsafe { copy_bytes(host(bytes.as_ptr()), to, bytes.len(), DEFAULT_STREAM) }
    }

    /// Copies bytes of this memory, from the byte offset `offset` on, to the slice `bytes` in main memory.
    ///
    /// # Errors
    /// Returns `ValueError` if the range is not within the memory, or the error of the device.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let from = self.place(offset, bytes.len())?;
        // SAFETY: the location was checked and its bytes are initialised: main memory was zeroed, or written by the
        // code that allocated it otherwise, and a driver of other memory copies initialised bytes. The slice is main
        // memory, borrowed exclusively for the call.
        unsafe { copy_bytes(from, host(bytes.as_mut_ptr()), bytes.len(), DEFAULT_STREAM) }
    }

    /// Copies `bytes` bytes from the byte offset `offset` of this memory to the byte offset `to_offset` of
    /// `to`, which may be on another device. Returns after the copy has finished.
    ///
    /// # Errors
    /// Returns `ValueError` if a range is not within its memory, or the error of a device.
    pub fn copy_to(&self, offset: usize, to: &mut Memory, to_offset: usize, bytes: usize) -> Result<()> {
        let (from, to) = (self.place(offset, bytes)?, to.place(to_offset, bytes)?);
        // SAFETY: both locations were checked, and both memories are borrowed during the call, which waits for the
        // copy.
        unsafe { copy_bytes(from, to, bytes, DEFAULT_STREAM) }?;
        super::stream::synchronize(if memory_kind(from.device) == MemoryKind::Host {
            to.device
        } else {
            from.device
        })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated with this request, and dropped once.
        unsafe { self.driver.free(self.device.0.device_id, self.data, self.request) };
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes on {}", self.len(), self.device)
    }
}

#[cold]
fn wrong(device: Device, data: *mut c_void, request: Request) -> anyfn::Error {
    let Request { bytes, alignment } = request;
    anyfn::error!(
        "RuntimeError",
        "the driver of {device} returned the address {data:p}, which is invalid for {bytes} bytes aligned to \
         {alignment}"
    )
}

/// Checks the size and alignment of an allocation, and returns the request for the driver. A size of zero
/// becomes one byte.
fn checked(bytes: usize, alignment: usize, device: Device) -> Result<Request> {
    if !alignment.is_power_of_two() || alignment > ALIGNMENT_MAX {
        bail!(
            "ValueError",
            "expected an alignment in bytes that is a power of two up to {ALIGNMENT_MAX} but got {alignment}"
        );
    }
    if bytes > isize::MAX as usize - ALIGNMENT_MAX {
        bail!("MemoryError", "cannot allocate {bytes} bytes on {device}: the size exceeds the address space");
    }
    Ok(Request { bytes: bytes.max(1), alignment })
}

/// Returns the location of the address `data` in main memory.
pub fn host(data: *const u8) -> MemoryLocation {
    MemoryLocation { device: Device::CPU, data: data.cast_mut().cast(), offset: 0 }
}

/// Copies bytes between any two locations. The copy has finished when the call returns, unless both locations are on
/// devices of the same type and outside main memory. Such a copy is queued in `stream`. `stream` belongs to the device
/// of `from`, or to the device of `to` if `from` is in main memory.
///
/// # Errors
/// Returns `RuntimeError` if a device is not available, `ValueError` for invalid locations, or the error of a device.
///
/// # Safety
/// Both locations must be valid for `bytes` bytes until the copy has finished, and the bytes at `from` must be
/// initialised. `stream` must be a live stream of the device that it belongs to, or the default one.
pub unsafe fn copy_bytes(from: MemoryLocation, to: MemoryLocation, bytes: usize, stream: Handle) -> Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    for place in [&from, &to] {
        let end = place.data.addr().checked_add(place.offset).and_then(|start| start.checked_add(bytes));
        if place.data.is_null() || end.is_none() || bytes > isize::MAX as usize {
            bail!(
                "ValueError",
                "invalid range of {bytes} bytes on {} at {:p} + {}",
                place.device,
                place.data,
                place.offset
            );
        }
    }
    let transfer = Transfer { from, to, bytes, stream };
    let kinds = (memory_kind(from.device), memory_kind(to.device));
    match kinds {
        // SAFETY: the caller guarantees both locations.
        (MemoryKind::Host, MemoryKind::Host) => unsafe { super::cpu::Cpu.copy(&transfer) },
        (MemoryKind::Host, _) | (_, MemoryKind::Host) => {
            let device = if kinds.0 == MemoryKind::Host { to.device } else { from.device };
            let driver = driver_of(device)?;
            // SAFETY: the caller guarantees both locations; one is on the driver's device, which is available.
            unsafe { driver.copy(&transfer) }?;
            // SAFETY: the caller passes a stream of that device.
            unsafe { driver.synchronize_stream(device.0.device_id, stream) }
        }
        _ => {
            let (reader, writer) = (driver_of(from.device)?, driver_of(to.device)?);
            if from.device.0.device_type == to.device.0.device_type {
                // SAFETY: the caller guarantees both locations, which are on the driver's devices.
                return unsafe { reader.copy(&transfer) };
            }
            let mut between = buffer(bytes)?;
            let between = host(between.as_mut_ptr());
            // SAFETY: the caller guarantees the location; the buffer has the same length.
            unsafe { reader.copy(&Transfer { to: between, ..transfer }) }?;
            // SAFETY: the caller passes a stream of the device that is read.
            unsafe { reader.synchronize_stream(from.device.0.device_id, stream) }?;
            let onward = Transfer { from: between, stream: DEFAULT_STREAM, ..transfer };
            // SAFETY: the caller guarantees the location; the buffer has the same length, and the first copy has filled
            // it.
            unsafe { writer.copy(&onward) }?;
            // SAFETY: the default stream is always alive.
            unsafe { writer.synchronize_stream(to.device.0.device_id, DEFAULT_STREAM) }
        }
    }
}

/// Allocates a zeroed buffer of `bytes` bytes in main memory.
///
/// # Errors
/// Returns `MemoryError` if the memory is not available.
pub(crate) fn buffer(bytes: usize) -> Result<Vec<u8>> {
    let mut buffer = Vec::new();
    if buffer.try_reserve_exact(bytes).is_err() {
        bail!("MemoryError", "cannot allocate {bytes} bytes of main memory");
    }
    buffer.resize(bytes, 0);
    Ok(buffer)
}
