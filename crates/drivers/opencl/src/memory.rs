//! Buffers. The `data` of a tensor is the address of a descriptor, whose first field is the `cl_mem`, as in Apache TVM.
//!
//! A table contains the addresses of the descriptors that exist. An address that is not in the table is never read, so a
//! pointer that other code passes is an error instead of a crash.

use core::ffi::c_void;
use core::ptr;
use std::alloc::{Layout, alloc, dealloc};
use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{LazyLock, PoisonError, RwLock};

use anyfn::{Result, bail};
use anyfn_runtime::device::Request;

use crate::api::{self, Raw};
use crate::process::is_forked;
use crate::system::{ClDevice, System, available};

/// Description of a buffer, to which the `data` of a tensor points.
#[repr(C)]
#[derive(Clone, Copy)]
struct Descriptor {
    mem: Raw,
    device: i32,
    bytes: usize,
}

type Addresses = HashSet<usize, BuildHasherDefault<AddressHasher>>;

static DESCRIPTORS: LazyLock<RwLock<Addresses>> = LazyLock::new(RwLock::default);

/// Hash of an address that an allocator has chosen: nobody can make many addresses collide.
#[derive(Default)]
struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_usize(usize::from(*byte)));
    }
    fn write_usize(&mut self, address: usize) {
        // A multiplication mixes upwards, and the table uses the lowest and the highest bits.
        let product = (self.0 ^ address as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = product ^ (product >> 32);
    }
}

/// Layout of a descriptor, whose address has the alignment of the request.
fn layout(request: Request) -> Option<Layout> {
    Layout::new::<Descriptor>().align_to(request.alignment).ok()
}

/// Allocates a buffer and returns the address of its descriptor.
///
/// # Errors
/// Returns `MemoryError` if the device does not have the memory.
pub(crate) fn allocate(index: i32, request: Request) -> Result<*mut c_void> {
    let (system, device) = available(index)?;
    let opened = device.opened(&system.api)?;
    let Some(layout) = layout(request) else { bail!("ValueError", "invalid alignment {}", request.alignment) };
    device.reserve(request.bytes)?;
    let mut code = 0;
    // SAFETY: the context is alive, and no host memory is passed.
    let mem = unsafe {
        (system.api.clCreateBuffer)(opened.context, api::MEM_READ_WRITE, request.bytes, ptr::null(), &mut code)
    };
    if code != api::SUCCESS {
        device.unreserve(request.bytes);
        return Err(match code {
            // What drivers return for a size that they do not have.
            -5 => anyfn::error!(
                "MemoryError",
                "cannot allocate {} bytes on opencl:{index}: {}",
                request.bytes,
                api::code_name(code)
            ),
            _ => system.error(code, &format!("allocate {} bytes", request.bytes), device),
        });
    }
    // SAFETY: the layout is not empty.
    let address = unsafe { alloc(layout) }.cast::<Descriptor>();
    if address.is_null() {
        device.unreserve(request.bytes);
        // SAFETY: created above.
        unsafe { (system.api.clReleaseMemObject)(mem) };
        bail!("MemoryError", "cannot allocate {} bytes of main memory", layout.size());
    }
    // SAFETY: newly allocated with the layout of a descriptor.
    unsafe { address.write(Descriptor { mem, device: index, bytes: request.bytes }) };
    DESCRIPTORS.write().unwrap_or_else(PoisonError::into_inner).insert(address.expose_provenance());
    Ok(address.cast())
}

/// Frees a buffer and its descriptor. The device keeps the buffer until the commands that use it have finished.
///
/// # Safety
/// `data` must come from [`allocate`] with the same request.
pub(crate) unsafe fn free(index: i32, data: *mut c_void, request: Request) {
    // The table may be locked for ever in a forked child, which has no threads of the driver either.
    if is_forked() {
        return;
    }
    if !DESCRIPTORS.write().unwrap_or_else(PoisonError::into_inner).remove(&data.addr()) {
        return;
    }
    // SAFETY: the address was in the table.
    let descriptor = unsafe { data.cast::<Descriptor>().read() };
    if let Ok((system, device)) = available(index) {
        // SAFETY: the descriptor owns the buffer.
        unsafe { (system.api.clReleaseMemObject)(descriptor.mem) };
        device.unreserve(request.bytes);
    }
    if let Some(layout) = layout(request) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(data.cast(), layout) };
    }
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
        let table = DESCRIPTORS.read().unwrap_or_else(PoisonError::into_inner);
        let mut buffer = Buffer::listed(&table, data, system)?;
        // SAFETY: the descriptor owns the buffer, and the table is locked.
        unsafe { (system.api.clRetainMemObject)(buffer.mem) };
        buffer.is_owned = true;
        Some(buffer)
    }

    /// Returns the buffer of a tensor as [`Buffer::at`] does, without keeping it alive, which takes a tenth of a launch.
    ///
    /// # Safety
    /// The tensor must live as long as the result.
    pub(crate) unsafe fn of_tensor(data: *mut c_void, system: &'static System) -> Option<Buffer> {
        let table = DESCRIPTORS.read().unwrap_or_else(PoisonError::into_inner);
        Buffer::listed(&table, data, system)
    }

    fn listed(table: &Addresses, data: *mut c_void, system: &'static System) -> Option<Buffer> {
        if !table.contains(&data.addr()) {
            return None;
        }
        // SAFETY: the address is in the table, which is locked, so the descriptor exists.
        let Descriptor { mem, device, bytes } = unsafe { data.cast::<Descriptor>().read() };
        Some(Buffer { mem, device, bytes, system, is_owned: false })
    }

    /// Allocates a buffer without a descriptor, for the duration of a copy.
    pub(crate) fn temporary(system: &'static System, device: &ClDevice, bytes: usize) -> Result<Buffer> {
        let opened = device.opened(&system.api)?;
        let mut code = 0;
        // SAFETY: the context is alive, and no host memory is passed.
        let mem = unsafe {
            (system.api.clCreateBuffer)(opened.context, api::MEM_READ_WRITE, bytes, ptr::null(), &mut code)
        };
        system.check(code, &format!("allocate {bytes} bytes for a copy"), device)?;
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
