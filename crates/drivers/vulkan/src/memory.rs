//! Buffers. The `data` of a tensor is the address of a descriptor, whose first fields are the `VkBuffer` and its memory, as in Apache TVM.

use core::ffi::c_void;
use core::mem::ManuallyDrop;
use core::ptr;
use std::alloc::{Layout, alloc, dealloc};
use std::sync::MutexGuard;

use anyfn::{Error, Result, bail};
use anyfn_driver::{Pool, Request};
use anyfn_kernels::Addresses;
use anyfn_kernels::pooled::{self, Pooled};
use ash::vk;
use gpu_allocator::vulkan::{Allocation, AllocationCreateDesc, AllocationScheme};
use gpu_allocator::{AllocationError, MemoryLocation};

use crate::logical::Logical;
use crate::stream::Marker;
use crate::system::{self, VkDevice, available, is_forked};

/// Description of a buffer, to which the `data` of a tensor points.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Descriptor {
    pub(crate) buffer: vk::Buffer,
    memory: vk::DeviceMemory,
    /// Index of the device to which the buffer belongs.
    pub(crate) device: i32,
    /// Size in bytes.
    pub(crate) bytes: usize,
    /// Address at which the host reads and writes the memory; NULL if copies go through another buffer.
    pub(crate) mapped: *mut u8,
}

static DESCRIPTORS: Addresses<Descriptor> = Addresses::new();

/// A buffer and its memory. No queued work may use it when it is dropped.
pub(crate) struct Buffer {
    logical: &'static Logical,
    pub(crate) handle: vk::Buffer,
    allocation: Option<Allocation>,
}

/// Purpose of a buffer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    /// By kernels.
    Kernels,
    /// For copies between the host and the device, or numbers that the host writes.
    Host,
}

impl Buffer {
    /// Allocates a buffer for kernels.
    ///
    /// # Errors
    /// Returns `MemoryError` if there is no memory.
    pub(crate) fn new(logical: &'static Logical, bytes: usize) -> Result<Buffer> {
        Buffer::of(logical, bytes, Use::Kernels)
    }

    /// Allocates a buffer that the host can read and write.
    ///
    /// # Errors
    /// Returns `MemoryError` if there is no memory.
    pub(crate) fn for_host(logical: &'static Logical, bytes: usize) -> Result<Buffer> {
        Buffer::of(logical, bytes, Use::Host)
    }

    fn of(logical: &'static Logical, bytes: usize, by: Use) -> Result<Buffer> {
        let (api, device) = (&logical.api, logical.device);
        let what = || format!("allocate {bytes} bytes");
        let uniform =
            if by == Use::Host { vk::BufferUsageFlags::UNIFORM_BUFFER } else { vk::BufferUsageFlags::empty() };
        let usage = vk::BufferUsageFlags::STORAGE_BUFFER
            | vk::BufferUsageFlags::TRANSFER_SRC
            | vk::BufferUsageFlags::TRANSFER_DST
            | uniform;
        // The length of an array in a kernel is counted in words.
        let info = vk::BufferCreateInfo::default().size((bytes as u64).next_multiple_of(16)).usage(usage);
        // SAFETY: the device is alive, and the size is not 0.
        let handle = unsafe { api.create_buffer(&info, None) }.map_err(|code| device.error(code, &what()))?;
        let mut buffer = Buffer { logical, handle, allocation: None };
        // SAFETY: the buffer was created above.
        let requirements = unsafe { api.get_buffer_memory_requirements(handle) };
        let location = match by == Use::Host || device.is_shared {
            true => MemoryLocation::GpuToCpu,
            false => MemoryLocation::GpuOnly,
        };
        let description = AllocationCreateDesc {
            name: "anyfn",
            requirements,
            location,
            linear: true,
            allocation_scheme: AllocationScheme::GpuAllocatorManaged,
        };
        let allocation = logical.allocator().allocate(&description);
        let allocation = allocation.map_err(|error| memory_error(device, bytes, &error))?;
        // SAFETY: the memory is bound to the buffer, and lives as long.
        let memory = unsafe { allocation.memory() };
        let offset = allocation.offset();
        buffer.allocation = Some(allocation);
        // SAFETY: the memory was allocated for the requirements of the buffer, which has none yet.
        unsafe { api.bind_buffer_memory(handle, memory, offset) }
            .map_err(|code| device.error(code, &what()))?;
        Ok(buffer)
    }

    /// Returns the address at which the host reads and writes the memory; NULL if it cannot, or if that would be slow.
    pub(crate) fn mapped(&self) -> *mut u8 {
        let Some(allocation) = &self.allocation else { return ptr::null_mut() };
        let fast = vk::MemoryPropertyFlags::HOST_COHERENT | vk::MemoryPropertyFlags::HOST_CACHED;
        if !allocation.memory_properties().contains(fast) {
            return ptr::null_mut();
        }
        self.visible()
    }

    /// Returns the address at which the host reads and writes the memory of [`Buffer::for_host`].
    pub(crate) fn visible(&self) -> *mut u8 {
        let address = self.allocation.as_ref().and_then(Allocation::mapped_ptr);
        address.map_or(ptr::null_mut(), |address| address.as_ptr().cast())
    }

    fn memory(&self) -> vk::DeviceMemory {
        // SAFETY: the memory lives as long as the buffer, which the descriptor describes.
        self.allocation.as_ref().map_or(vk::DeviceMemory::null(), |allocation| unsafe { allocation.memory() })
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if is_forked() {
            return;
        }
        // SAFETY: this value owns the buffer, and no queued work uses it.
        unsafe { self.logical.api.destroy_buffer(self.handle, None) };
        if let Some(allocation) = self.allocation.take() {
            // The only error is that of memory of another allocator.
            drop(self.logical.allocator().free(allocation));
        }
    }
}

fn memory_error(device: &VkDevice, bytes: usize, error: &AllocationError) -> Error {
    anyfn::error!("MemoryError", "cannot allocate {bytes} bytes on vulkan:{}: {error}", device.index)
}

/// A buffer with its descriptor, which no tensor uses. Dropping it waits for the work that uses it, and frees both.
pub(crate) struct Block {
    buffer: ManuallyDrop<Buffer>,
    address: *mut Descriptor,
    layout: Layout,
    /// The last work of each stream when the block was freed.
    after: Vec<Marker>,
}

// SAFETY: the block owns the descriptor, and a buffer may be used on any thread.
unsafe impl Send for Block {}

/// A descriptor with the buffer that it describes.
#[repr(C)]
struct Owned {
    descriptor: Descriptor,
    buffer: ManuallyDrop<Buffer>,
}

impl Block {
    /// Allocates a buffer of `bytes` bytes and its descriptor.
    ///
    /// # Errors
    /// Returns `MemoryError` if the device or the host does not have the memory.
    fn new(logical: &'static Logical, bytes: usize, layout: Layout) -> Result<Block> {
        let buffer = Buffer::new(logical, bytes)?;
        // SAFETY: the layout is that of `Owned`, which is not empty.
        let address = unsafe { alloc(layout) }.cast::<Descriptor>();
        if address.is_null() {
            bail!("MemoryError", "cannot allocate {} bytes of main memory", layout.size());
        }
        let mapped = if is_staged() { ptr::null_mut() } else { buffer.mapped() };
        let descriptor = Descriptor {
            buffer: buffer.handle,
            memory: buffer.memory(),
            device: logical.device.index,
            bytes,
            mapped,
        };
        // SAFETY: newly allocated with the layout of `Owned`, whose first field is the descriptor.
        unsafe { address.write(descriptor) };
        Ok(Block { buffer: ManuallyDrop::new(buffer), address, layout, after: Vec::new() })
    }

    /// Lends the block to the user of `bytes` bytes, who passes the address to [`free`].
    fn lend(self, bytes: usize) -> *mut c_void {
        let mut block = ManuallyDrop::new(self);
        drop(std::mem::take(&mut block.after));
        let address = block.address;
        // SAFETY: the block owned the descriptor.
        unsafe { (*address).bytes = bytes };
        // SAFETY: the block, which is not dropped, owned the buffer.
        let buffer = unsafe { ManuallyDrop::take(&mut block.buffer) };
        // SAFETY: the address has the layout of `Owned`.
        let place = unsafe { &raw mut (*address.cast::<Owned>()).buffer };
        // SAFETY: the place is valid for writes, and its old content has no destructor.
        unsafe { place.write(ManuallyDrop::new(buffer)) };
        // SAFETY: the descriptor lives, and does not change, until `free` removes it from the list.
        unsafe { DESCRIPTORS.insert(address) };
        address.cast()
    }

    /// Takes ownership of what [`Block::lend`] has lent.
    ///
    /// # Safety
    /// `address` must come from `lend` of a block with this layout, and must not be used any more.
    unsafe fn from_address(address: *mut Descriptor, layout: Layout) -> Block {
        // SAFETY: `lend` has written the buffer there.
        let place = unsafe { &raw const (*address.cast::<Owned>()).buffer };
        // SAFETY: the place is valid for reads, and its content is not used again.
        let buffer = unsafe { place.read() };
        Block { buffer, address, layout, after: Vec::new() }
    }

    /// Returns true if work of any stream may use the buffer: there is one stream, whose work runs in order, or the work that used it has
    /// finished.
    fn is_free(&self) -> bool {
        self.after.len() <= 1 || self.after.iter().all(Marker::is_complete)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if is_forked() {
            return;
        }
        // A device that was lost executes nothing any more.
        self.after.iter().for_each(|marker| drop(marker.wait("wait for the work that uses a buffer")));
        // SAFETY: dropped once, here.
        unsafe { ManuallyDrop::drop(&mut self.buffer) };
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.address.cast(), self.layout) };
    }
}

/// Returns true if copies between host and device always go through another buffer, as on a device with its own memory. For tests.
fn is_staged() -> bool {
    std::env::var_os("ANYFN_VULKAN_STAGING").is_some_and(|value| value == "1")
}

/// Layout of a descriptor and its buffer whose address has the alignment `alignment`.
fn layout(alignment: usize) -> Option<Layout> {
    Layout::new::<Owned>().align_to(alignment).ok()
}

impl Pooled for VkDevice {
    type Block = Block;

    const KIND: &'static str = "vulkan";

    fn index(&self) -> i32 {
        self.index
    }

    fn pool(&self) -> MutexGuard<'_, Pool<Block>> {
        VkDevice::pool(self)
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
    let (device, logical) = available(index)?;
    let Some(layout) = layout(request.alignment) else {
        bail!("ValueError", "invalid alignment {}", request.alignment)
    };
    let block = pooled::allocate(device, request, |bytes| Block::new(logical, bytes, layout))?;
    Ok(block.lend(request.bytes))
}

/// Keeps a buffer for later allocations, or frees it and its descriptor after the work that uses it.
///
/// # Safety
/// `data` must come from [`allocate`] with the same request.
pub(crate) unsafe fn free(index: i32, data: *mut c_void, request: Request) {
    // The list may be locked for ever in a forked child, which has no threads of the driver either.
    if is_forked() || !DESCRIPTORS.remove(data) {
        return;
    }
    let Some((_, device)) = system::known(index) else { return };
    let Some(layout) = layout(request.alignment) else { return };
    // SAFETY: the address was in the list, so it is that of a block that was lent.
    let mut block = unsafe { Block::from_address(data.cast(), layout) };
    let streams = device.in_use().map(Logical::all_streams).unwrap_or_default();
    block.after = streams.iter().map(Marker::last).collect();
    pooled::free(device, request, block, |_| true);
}

/// Returns the buffer whose descriptor is at an address; `None` if no buffer of this process is there.
pub(crate) fn at(data: *mut c_void) -> Option<Descriptor> {
    DESCRIPTORS.with(data, |descriptor| descriptor)
}
