//! Buffers. The `data` of a tensor is the address of a descriptor, whose first field is the `cl_mem`, as in Apache TVM.

use core::ffi::c_void;
use core::ptr;
use std::alloc::Layout;
use std::sync::MutexGuard;

use anyfn::{Result, bail};
use anyfn_driver::{Pool, Request};
use anyfn_kernels::Addresses;
use anyfn_kernels::pooled::{self, Pooled};

use crate::api::{self, Raw};
use crate::block::{Block, Descriptor, layout};
use crate::process::is_forked;
use crate::system::{self, ClDevice, System, available};

static DESCRIPTORS: Addresses<Descriptor> = Addresses::new();

/// Lends a block to the user of `bytes` bytes, who passes the address to [`free`].
fn lend(block: Block, bytes: usize) -> *mut c_void {
    let address = block.into_address(bytes);
    // SAFETY: the block lives, and its descriptor does not change, until `free` removes it from the table.
    unsafe { DESCRIPTORS.insert(address) };
    address.cast()
}

/// Allocates a buffer of `bytes` bytes and a descriptor.
///
/// # Errors
/// Returns `MemoryError` if the device or the host does not have the memory.
fn new_block(system: &System, device: &ClDevice, bytes: usize, layout: Layout) -> Result<Block> {
    let mem = create_buffer(system, device, bytes)?;
    let release = system.api.clReleaseMemObject;
    let Some(block) = Block::new(Descriptor { mem, device: device.index, bytes }, layout, release) else {
        // SAFETY: created above.
        unsafe { release(mem) };
        bail!("MemoryError", "cannot allocate {} bytes of main memory", layout.size());
    };
    Ok(block)
}

fn create_buffer(system: &System, device: &ClDevice, bytes: usize) -> Result<Raw> {
    let opened = device.opened(&system.api)?;
    let mut code = 0;
    // SAFETY: the context is alive, and no host memory is passed.
    let mem = unsafe {
        (system.api.clCreateBuffer)(opened.context, api::MEM_READ_WRITE, bytes, ptr::null(), &mut code)
    };
    // Drivers return the code -5 as well for a size that they do not have.
    match code {
        api::SUCCESS => Ok(mem),
        -5 => bail!(
            "MemoryError",
            "cannot allocate {bytes} bytes on opencl:{}: {}",
            device.index,
            api::code_name(code)
        ),
        _ => Err(system.error(code, &format!("allocate {bytes} bytes"), device)),
    }
}

impl Pooled for ClDevice {
    type Block = Block;

    const KIND: &'static str = "opencl";

    fn index(&self) -> i32 {
        self.index
    }

    fn pool(&self) -> MutexGuard<'_, Pool<Block>> {
        ClDevice::pool(self)
    }

    fn largest(&self) -> usize {
        self.limits.buffer
    }

    fn is_free(block: &Block) -> bool {
        block.is_free()
    }
}

/// Allocates a buffer, or takes one that was freed before, and returns the address of its descriptor.
///
/// # Errors
/// Returns `MemoryError` if the device does not have the memory.
pub(crate) fn allocate(index: i32, request: Request) -> Result<*mut c_void> {
    let (system, device) = available(index)?;
    let Some(layout) = layout(request.alignment) else {
        bail!("ValueError", "invalid alignment {}", request.alignment)
    };
    let block = pooled::allocate(device, request, |bytes| new_block(system, device, bytes, layout))?;
    Ok(lend(block, request.bytes))
}

/// Keeps a buffer for later allocations, or frees it and its descriptor. The device keeps a buffer until the commands that use
/// it have finished.
///
/// # Safety
/// `data` must come from [`allocate`] with the same request.
pub(crate) unsafe fn free(index: i32, data: *mut c_void, request: Request) {
    // The table may be locked for ever in a forked child, which has no threads of the driver either.
    if is_forked() || !DESCRIPTORS.remove(data) {
        return;
    }
    let Some((system, device)) = system::known(index) else { return };
    let Some(layout) = layout(request.alignment) else { return };
    // SAFETY: the address was in the table, so it is that of a block that `lend` has lent.
    let block = unsafe { Block::from_address(data.cast(), layout, system.api.clReleaseMemObject) };
    pooled::free(device, request, block, |block| {
        let after = device.markers(&system.api);
        let is_known = after.is_some();
        block.after = after.unwrap_or_default();
        is_known
    });
}

/// Returns true if a buffer of a device of this process has its descriptor at an address.
pub(crate) fn is_buffer(index: i32, data: *mut c_void) -> bool {
    DESCRIPTORS.with(data, |descriptor| descriptor.device == index).unwrap_or(false)
}

/// A buffer that is alive for the duration of a call.
pub(crate) struct Buffer {
    pub(crate) mem: Raw,
    /// Index of the device to which the buffer belongs.
    pub(crate) device: i32,
    /// Size in bytes.
    pub(crate) bytes: usize,
    system: &'static System,
    /// True if this value releases the buffer.
    pub(crate) is_owned: bool,
}

impl Buffer {
    /// Returns the buffer whose descriptor is at an address; `None` if no buffer of this process is there.
    pub(crate) fn at(data: *mut c_void, system: &'static System) -> Option<Buffer> {
        DESCRIPTORS.with(data, |descriptor| {
            // SAFETY: the descriptor owns the buffer, and the table is locked.
            unsafe { (system.api.clRetainMemObject)(descriptor.mem) };
            let mut buffer = Buffer::of(descriptor, system);
            buffer.is_owned = true;
            buffer
        })
    }

    /// Returns the buffer of a tensor as [`Buffer::at`] does, without keeping it alive, which takes a tenth of a launch.
    ///
    /// # Safety
    /// The tensor must live as long as the result.
    pub(crate) unsafe fn of_tensor(data: *mut c_void, system: &'static System) -> Option<Buffer> {
        DESCRIPTORS.with(data, |descriptor| Buffer::of(descriptor, system))
    }

    fn of(descriptor: Descriptor, system: &'static System) -> Buffer {
        let Descriptor { mem, device, bytes } = descriptor;
        Buffer { mem, device, bytes, system, is_owned: false }
    }

    /// Allocates a buffer without a descriptor, for the duration of a copy.
    pub(crate) fn temporary(system: &'static System, device: &ClDevice, bytes: usize) -> Result<Buffer> {
        let mem = create_buffer(system, device, bytes)?;
        Ok(Buffer { mem, device: device.index, bytes, system, is_owned: true })
    }

    /// Returns the part of the buffer from a byte offset on, which must be a multiple of the alignment of the device.
    pub(crate) fn part(&self, device: &ClDevice, offset: usize) -> Result<Buffer> {
        let system = self.system;
        let region = [offset, self.bytes - offset];
        let mut code = 0;
        // SAFETY: the buffer is alive, and the region is a struct of two numbers.
        let mem = unsafe {
            (system.api.clCreateSubBuffer)(
                self.mem,
                api::MEM_READ_WRITE,
                api::BUFFER_CREATE_TYPE_REGION,
                region.as_ptr().cast(),
                &mut code,
            )
        };
        system.check(code, "create a part of a buffer", device)?;
        Ok(Buffer { mem, device: self.device, bytes: region[1], system, is_owned: true })
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.is_owned {
            // SAFETY: the buffer was retained or created for this value.
            unsafe { (self.system.api.clReleaseMemObject)(self.mem) };
        }
    }
}
