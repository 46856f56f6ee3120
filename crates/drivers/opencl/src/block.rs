//! Buffers with their descriptors, which the pool of a device keeps.

use core::mem::ManuallyDrop;
use std::alloc::{Layout, alloc, dealloc};

use crate::api::Raw;
use crate::event::ClEvent;
use crate::process::is_forked;

/// Description of a buffer, to which the `data` of a tensor points.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Descriptor {
    pub(crate) mem: Raw,
    pub(crate) device: i32,
    pub(crate) bytes: usize,
}

/// Layout of a descriptor whose address has the alignment `alignment`.
pub(crate) fn layout(alignment: usize) -> Option<Layout> {
    Layout::new::<Descriptor>().align_to(alignment).ok()
}

/// The function `clReleaseMemObject`.
type Release = unsafe extern "C" fn(Raw) -> i32;

/// A buffer with its descriptor, which nothing uses. Dropping it frees both; the device keeps the buffer until the commands
/// that use it have finished.
pub(crate) struct Block {
    address: *mut Descriptor,
    layout: Layout,
    release: Release,
    /// Events behind the commands that may still use the buffer, if they are in several queues.
    pub(crate) after: Vec<ClEvent>,
}

// SAFETY: the block owns the descriptor, and OpenCL permits the use of buffers on any thread.
unsafe impl Send for Block {}

impl Block {
    /// Allocates a descriptor, and takes ownership of the buffer that it describes. Returns `None` if there is no memory.
    pub(crate) fn new(descriptor: Descriptor, layout: Layout, release: Release) -> Option<Block> {
        // SAFETY: the layout is that of a descriptor, which is not empty.
        let address = unsafe { alloc(layout) }.cast::<Descriptor>();
        if address.is_null() {
            return None;
        }
        // SAFETY: newly allocated with the layout of a descriptor.
        unsafe { address.write(descriptor) };
        Some(Block { address, layout, release, after: Vec::new() })
    }

    /// Returns the address of the descriptor, which then owns itself and its buffer, for a user of `bytes` bytes.
    pub(crate) fn into_address(self, bytes: usize) -> *mut Descriptor {
        let mut block = ManuallyDrop::new(self);
        drop(std::mem::take(&mut block.after));
        let address = block.address;
        // SAFETY: the block owned the descriptor.
        unsafe { (*address).bytes = bytes };
        address
    }

    /// Returns true if commands of any queue may use the buffer: those that used it have finished, or all are in one queue, in which
    /// they run in order.
    pub(crate) fn is_free(&self) -> bool {
        self.after.iter().all(ClEvent::is_complete)
    }

    /// Takes ownership of a descriptor and its buffer.
    ///
    /// # Safety
    /// `address` must come from [`Block::into_address`] of a block with this layout, and must not be used any more.
    pub(crate) unsafe fn from_address(address: *mut Descriptor, layout: Layout, release: Release) -> Block {
        Block { address, layout, release, after: Vec::new() }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if is_forked() {
            return;
        }
        // SAFETY: the block owns the descriptor.
        let mem = unsafe { (*self.address).mem };
        // SAFETY: the descriptor owns the buffer.
        unsafe { (self.release)(mem) };
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.address.cast(), self.layout) };
    }
}
