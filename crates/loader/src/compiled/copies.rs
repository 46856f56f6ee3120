//! Aligned copies of the memory of tensor arguments, for compiled code that requires a greater
//! alignment than the caller's memory has. The memory is copied before a call, and changes are
//! copied back after the call.

use core::ptr::NonNull;
use std::alloc::{Layout, alloc, dealloc};

use anyfn::abi::{DLTensor, kDLCPU};
use anyfn::{Result, TensorView, bail};

/// Alignment in bytes of each copy of an argument's memory. It suffices for the widest vector
/// instructions.
const ALIGNMENT: usize = 64;

/// An aligned copy of the memory of one argument, or of several arguments that refer to the same memory.
struct Copy {
    original: NonNull<u8>,
    copy: NonNull<u8>,
    layout: Layout,
}

impl Copy {
    fn new(original: NonNull<u8>, size: usize) -> Option<Copy> {
        let layout = Layout::from_size_align(size, ALIGNMENT).ok()?;
        // SAFETY: the size is not 0.
        let copy = NonNull::new(unsafe { alloc(layout) })?;
        // SAFETY: the caller has valid tensors of this size there, and the copy is new.
        unsafe { original.copy_to_nonoverlapping(copy, size) };
        Some(Copy { original, copy, layout })
    }

    /// Updates the original memory with the changes that the function has made to this copy.
    /// Unchanged parts are not written, because memory that the function only reads may be in use
    /// by other code or may be read-only.
    fn write_back(&self) {
        const PIECE: usize = 4096;
        let size = self.layout.size();
        for at in (0..size).step_by(PIECE) {
            let len = PIECE.min(size - at);
            // SAFETY: the offset lies inside the copy.
            let copy = unsafe { self.copy.add(at) };
            // SAFETY: the offset lies inside the original.
            let original = unsafe { self.original.add(at) };
            // SAFETY: the copy is initialised, and nothing writes to it now.
            let new = unsafe { core::slice::from_raw_parts(copy.as_ptr(), len) };
            // SAFETY: the original is valid as long as the call.
            let old = unsafe { core::slice::from_raw_parts(original.as_ptr(), len) };
            if new != old {
                // SAFETY: the tensor's memory has this length; the copy lies elsewhere.
                unsafe { original.copy_from_nonoverlapping(copy, len) };
            }
        }
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        // SAFETY: the copy was allocated with this layout.
        unsafe { dealloc(self.copy.as_ptr(), self.layout) };
    }
}

/// The aligned copies that one call uses in place of the memory of its arguments.
#[derive(Default)]
pub(super) struct Copies(Vec<Copy>);

/// Returns the number of bytes of a compact tensor, or `None` if it cannot be computed, for example because it
/// overflows.
pub(super) fn size(tensor: &DLTensor) -> Option<usize> {
    // SAFETY: the caller passes a valid tensor; only its extents are read.
    let view = unsafe { TensorView::from_dl(tensor) };
    let bits = usize::from(tensor.dtype.bits).checked_mul(usize::from(tensor.dtype.lanes))?;
    Some(view.num_elements()?.checked_mul(bits)?.div_ceil(8))
}

impl Copies {
    /// Returns a `DLTensor` like `tensor`, but with its elements in an aligned copy of the memory. The memory
    /// of a tensor on a device other than the CPU is not copied. `others` contains the tensor of each argument
    /// of the call, or `None` for an argument that is not a tensor. `tensor` is the argument at `index`.
    ///
    /// # Errors
    /// Returns `ValueError` if the tensor partially overlaps another argument, and `MemoryError` if there is no memory
    /// for a copy.
    ///
    /// # Safety
    /// The tensors must be valid, and `tensor` must be compact.
    pub(super) unsafe fn show(
        &mut self,
        tensor: &DLTensor,
        index: usize,
        others: &[Option<&DLTensor>],
    ) -> Result<DLTensor> {
        let mut shown = DLTensor { byte_offset: 0, strides: core::ptr::null_mut(), ..*tensor };
        let start = tensor.data.cast::<u8>().wrapping_add(tensor.byte_offset as usize);
        shown.data = start.cast();
        let size = size(tensor).filter(|_| tensor.device.device_type == kDLCPU);
        let (Some(start), Some(size @ 1..)) = (NonNull::new(start), size) else { return Ok(shown) };
        for (other_index, other) in others.iter().enumerate() {
            let Some(other) = other.filter(|other| other.device.device_type == kDLCPU) else { continue };
            let begin = other.data.addr().wrapping_add(other.byte_offset as usize);
            let len = self::size(other).unwrap_or(0);
            let is_same = begin == start.addr().get() && len == size;
            let overlaps = begin < start.addr().get() + size && start.addr().get() < begin.saturating_add(len);
            if overlaps && !is_same {
                bail!(
                    "ValueError",
                    "the memory of argument #{index} does not have the alignment that the function requires, \
                     and it cannot be copied because it partially overlaps the memory of argument \
                     #{other_index}; pass a copy of it"
                );
            }
        }
        let known = self.0.iter().find(|known| known.original == start && known.layout.size() == size);
        let copy = match known {
            Some(known) => known.copy,
            None => {
                let Some(new) = Copy::new(start, size) else {
                    bail!("MemoryError", "cannot allocate an aligned copy of argument #{index} ({size} bytes)");
                };
                let copy = new.copy;
                self.0.push(new);
                copy
            }
        };
        shown.data = copy.as_ptr().cast();
        Ok(shown)
    }

    /// Writes the changed parts of all copies back to the original memory, after the call.
    pub(super) fn write_back(&self) {
        self.0.iter().for_each(Copy::write_back);
    }
}
