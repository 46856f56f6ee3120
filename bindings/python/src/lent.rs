//! Borrowed tensors that native code passes to a callback. They describe memory that may be freed
//! once the callback returns.
//!
//! The Python objects made from a tensor (arrays, views, tensors kept by native functions) may live arbitrarily long,
//! so they never refer to borrowed memory. There are two cases:
//!
//! - The memory is part of an array that a call on this thread has as an argument. The tensor shows the memory
//!   without a copy, and keeps the array alive.
//! - Otherwise the callback receives a copy, and [`Loans::end`] writes the changed bytes back. An object that
//!   outlives the callback keeps the copy, which no longer shows the memory that the callback received; this is
//!   reported as an error. Only changed bytes are written, because tasks of a parallel loop may work on copies of the
//!   same memory. A tensor on a device is copied on the device. Unless it is read-only, it is copied back: as a whole, or only the
//!   changed bytes if it shares elements with another argument.

use std::ffi::c_int;
use std::ptr;

use anyfn::abi::{
    DLTensor, TENSOR_VIEW_READ_ONLY, TVMFFIAny, kDLCPU, kDLCUDAHost, kDLROCMHost, kTVMFFIDLTensorPtr,
};
use anyfn::access::{Access, Mode};
use anyfn::{PackedFunc, Tensor, TensorView, registry};
use pyo3_ffi as ffi;

use crate::kept::{self, Lender};
use crate::lift::lift_borrowed;
use crate::py::{self, Obj, Own, PyObject, Res};
use crate::{calls, error, gil, object, tensor};

/// Borrowed tensors among the arguments of one callback that were replaced by copies.
pub(crate) struct Loans(Vec<BorrowedArgs>);

struct BorrowedArgs {
    /// Description of the borrowed tensor, valid until the callback returns.
    view: *const DLTensor,
    /// Python object that the callback receives for the borrowed tensor. The call holds a reference to it.
    object: *mut PyObject,
    copy: Tensor,
    /// Bytes of the copy as they were before the callback ran. Empty if changes to the copy are
    /// never written back, and for a tensor on a device that shares no element with another argument.
    before: Vec<u8>,
    /// True for a tensor on a device that is written back. The whole copy is written back unless `before` tells which of its
    /// bytes have changed.
    is_whole: bool,
}

impl Loans {
    /// Makes an empty list of borrowed tensors.
    pub(crate) const fn new() -> Loans {
        Loans(Vec::new())
    }

    /// Returns true if no borrowed tensor was replaced, so that no work remains when the callback returns.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Converts an argument of a callback to a Python value. The caller keeps its ownership of the
    /// argument. A borrowed tensor that is replaced by a copy is added to the list, so that
    /// [`Loans::end`] can write back the changes.
    #[inline(always)]
    pub(crate) fn lift(&mut self, value: &TVMFFIAny) -> Res<Own> {
        if value.type_index != kTVMFFIDLTensorPtr {
            return lift_borrowed(value);
        }
        // SAFETY: tensor views have their value in `v_ptr`.
        let view: *const DLTensor = unsafe { value.value.v_ptr }.cast_const().cast();
        // SAFETY: native code passes NULL or a valid description; NULL belongs to no array.
        if let Some(array) = unsafe { calls::array_of_view(view) } {
            return Ok(array);
        }
        let is_read_only = value.small_str_len & TENSOR_VIEW_READ_ONLY != 0;
        // SAFETY: the view is NULL or a description that is valid until the callback returns.
        unsafe { self.lend(view, is_read_only) }
    }

    /// Makes the Python tensor for a borrowed tensor that native code passes to a callback. If `is_read_only` is
    /// true, the memory of the tensor must not be written.
    ///
    /// # Safety
    /// `view` must be NULL or valid until [`Loans::end`].
    #[cold]
    unsafe fn lend(&mut self, view: *const DLTensor, is_read_only: bool) -> Res<Own> {
        // SAFETY: guaranteed by the caller.
        let Some(described) = (unsafe { view.as_ref() }) else { return Ok(py::none()) };
        // SAFETY: guaranteed by the caller.
        let lent = unsafe { TensorView::from_dl(described) };
        if let Some(tensor) = calls::tensor_of_part(&lent)? {
            return object::wrap_as(tensor::CLASS.ptr().cast(), tensor.into_object());
        }
        if let Some(index) = self.0.iter().position(|loan| loan.describes(&lent)) {
            // Two arguments with the same memory share a copy, so each shows the changes of the other.
            let loan = &self.0[index];
            let (copy, before) = (loan.copy.clone(), loan.before.clone());
            return self.add(view, copy, before, !is_in_main_memory(&lent) && !is_read_only);
        }
        if !is_in_main_memory(&lent) {
            let copy = gil::without(|| on_same_device(&lent)).map_err(error::raise)?;
            let before = self.before_on_device(&lent, &copy)?;
            return self.add(view, copy, before, !is_read_only);
        }
        let (copy, before) = gil::without(|| copy_of(&lent)).map_err(error::raise)?;
        if is_read_only || lent.host_region().is_some_and(|region| region.is_read_only()) {
            let view = copy.view();
            let read_only = kept::make(view.as_dl(), py::none().obj(), Lender::Tensor(copy.clone()), true)?;
            return self.add(described, read_only, Vec::new(), false);
        }
        self.add(view, copy, before, false)
    }

    /// Returns the bytes of the copy of a tensor on a device if the tensor shares elements with another argument, and sets
    /// those of the other argument. Otherwise returns no bytes, since reading them takes time.
    fn before_on_device(&mut self, lent: &TensorView<'_>, copy: &Tensor) -> Res<Vec<u8>> {
        let mut is_shared = false;
        for loan in self.0.iter_mut().filter(|loan| may_overlap(&loan.view(), lent)) {
            is_shared = true;
            if loan.is_whole && loan.before.is_empty() {
                loan.before = gil::without(|| bytes_of(&loan.copy.view())).map_err(error::raise)?;
            }
        }
        if !is_shared {
            return Ok(Vec::new());
        }
        gil::without(|| bytes_of(&copy.view())).map_err(error::raise)
    }

    fn add(&mut self, view: *const DLTensor, copy: Tensor, before: Vec<u8>, is_whole: bool) -> Res<Own> {
        let object = object::wrap_as(tensor::CLASS.ptr().cast(), copy.clone().into_object())?;
        self.0.push(BorrowedArgs { view, object: object.as_ptr(), copy, before, is_whole });
        Ok(object)
    }

    /// Writes the changes that the callback has made to copies back to the borrowed memory. Raises
    /// an exception if the callback returned or kept one of the borrowed tensors. `args` are the
    /// arguments of the callback. `result` is the result of the callback, and is returned if no
    /// error occurs.
    #[cold]
    pub(crate) fn end(mut self, args: &[*mut PyObject], mut result: Res<Own>) -> Res<Own> {
        let loans = std::mem::take(&mut self.0);
        for (index, loan) in loans.iter().enumerate() {
            // Two arguments with the same memory have one copy. Only one of them may be read-only.
            let is_first = loans[..index]
                .iter()
                .all(|other| other.handle() != loan.handle() || other.is_whole != loan.is_whole);
            if is_first
                && let Err(error) = gil::without(|| loan.write_back())
                && result.is_ok()
            {
                result = Err(error::raise(error));
            }
        }
        for loan in &loans {
            let index = args.iter().position(|arg| ptr::eq(*arg, loan.object)).unwrap_or_default();
            let verb = match &result {
                Ok(value) if value.obj().is(loan.object) => "returned",
                _ if loan.is_kept(&loans) => "kept",
                _ => continue,
            };
            loan.detach();
            if result.is_ok() {
                result = py::raise(
                    py::exceptions::runtime_error(),
                    &format!(
                        "the function {verb} its argument #{index}, a tensor that is borrowed for the call; keep a copy \
                         instead, such as `x.numpy().copy()`"
                    ),
                );
            }
        }
        result
    }
}

impl BorrowedArgs {
    fn handle(&self) -> *mut std::ffi::c_void {
        self.copy.as_object().as_handle()
    }

    fn view(&self) -> TensorView<'_> {
        // SAFETY: `Loans::lend` received a description that is valid until `Loans::end` has finished.
        unsafe { tensor::view(self.view) }
    }

    /// Returns true if `other` describes the same memory as this borrowed tensor, with the same data type, shape and
    /// strides.
    fn describes(&self, other: &TensorView<'_>) -> bool {
        let view = self.view();
        let (own, dl) = (view.as_dl(), other.as_dl());
        own.data == dl.data
            && own.byte_offset == dl.byte_offset
            && own.device == dl.device
            && own.dtype == dl.dtype
            && view.shape() == other.shape()
            && view.strides() == other.strides()
    }

    /// Writes to the borrowed memory the bytes that the callback has changed in the copy.
    fn write_back(&self) -> anyfn::Result<()> {
        if self.is_whole && self.before.is_empty() {
            return function("runtime.TVMTensorCopyFromTo")?.call((self.copy.view(), self.view())).map(drop);
        }
        if self.is_whole {
            let now = bytes_of(&self.copy.view())?;
            if now == self.before {
                return Ok(());
            }
            let mut bytes = bytes_of(&self.view())?;
            for (byte, (now, before)) in bytes.iter_mut().zip(now.iter().zip(&self.before)) {
                *byte ^= (*byte ^ now) & (now ^ before);
            }
            return function("anyfn.tensor_set_bytes")?.call((self.view(), bytes.as_slice())).map(drop);
        }
        if self.before.is_empty() {
            return Ok(());
        }
        let copy = self.copy.view();
        let now = copy.read_bytes()?;
        if *now == *self.before {
            return Ok(());
        }
        let view = self.view();
        let bits = u64::from(copy.as_dl().dtype.bits) * u64::from(copy.as_dl().dtype.lanes);
        if !bits.is_multiple_of(8) {
            // The elements share bytes with each other.
            drop(now);
            function("runtime.TVMTensorCopyFromTo")?.call((copy, view))?;
            return Ok(());
        }
        let Some(region) = view.host_region() else { return Ok(()) };
        let [_access] = Access::begin([(region, Mode::Write)])?;
        let size = (bits / 8) as usize;
        let elements = now.chunks_exact(size).zip(self.before.chunks_exact(size));
        let mut place = ElementAddresses::of(&view, size as i64);
        for (now, before) in elements {
            if now != before {
                for (offset, (now, before)) in now.iter().zip(before).enumerate() {
                    if now != before {
                        // SAFETY: this is a byte of an element of the borrowed tensor, which is valid until
                        // `Loans::end` has finished. The access excludes other functions of the runtime.
                        unsafe { place.address.wrapping_add(offset).write(*now) };
                    }
                }
            }
            place.step();
        }
        Ok(())
    }

    /// Returns true if the callback has kept the tensor or an object made from it, so that more
    /// references exist than the call itself holds.
    fn is_kept(&self, loans: &[BorrowedArgs]) -> bool {
        // SAFETY: the object is alive because the call still holds its arguments.
        let python_count = unsafe { ffi::Py_REFCNT(self.object) };
        // Each loan of this copy holds a reference, and so does its argument.
        let own = 2 * loans.iter().filter(|loan| loan.handle() == self.handle()).count();
        // Only code that received the tensor can hold it, so a momentary count is sufficient.
        python_count > 1 || self.copy.as_object().use_count() > own as _
    }

    /// Replaces the native tensor of the argument's Python object by an empty tensor. A tensor that
    /// the callback has kept must not be mistaken for the borrowed tensor.
    fn detach(&self) {
        let (mut shape, mut strides) = ([0i64], [1i64]);
        let mut dl = *self.copy.view().as_dl();
        (dl.data, dl.byte_offset, dl.ndim) = (ptr::null_mut(), 0, 1);
        (dl.shape, dl.strides) = (shape.as_mut_ptr(), strides.as_mut_ptr());
        // A call on another thread may use the copy through its address in this argument, so the empty tensor keeps
        // the copy alive.
        let lender = Lender::Tensor(self.copy.clone());
        if let Ok(empty) = kept::make(&dl, py::none().obj(), lender, false) {
            // SAFETY: the call still holds its arguments, and the GIL is held.
            object::replace_handle(unsafe { Obj::from_ptr(self.object) }, empty.into_object());
        }
    }
}

/// Iterator over the addresses of a tensor's elements, in row-major order.
struct ElementAddresses<'a> {
    address: *mut u8,
    shape: &'a [i64],
    /// Strides of the tensor, in bytes.
    strides: Vec<i64>,
    index: Vec<i64>,
}

impl<'a> ElementAddresses<'a> {
    fn of(view: &TensorView<'a>, size: i64) -> ElementAddresses<'a> {
        let shape = view.shape();
        let strides = view.strides().map_or_else(|| kept::compact_strides(shape), <[i64]>::to_vec);
        let strides = strides.into_iter().map(|stride| stride.wrapping_mul(size)).collect();
        ElementAddresses { address: view.data().cast(), shape, strides, index: vec![0; shape.len()] }
    }

    fn step(&mut self) {
        for dimension in (0..self.shape.len()).rev() {
            self.index[dimension] += 1;
            self.address = self.address.wrapping_offset(self.strides[dimension] as isize);
            if self.index[dimension] < self.shape[dimension] {
                return;
            }
            let back = self.strides[dimension].wrapping_mul(self.shape[dimension]);
            self.address = self.address.wrapping_offset(back.wrapping_neg() as isize);
            self.index[dimension] = 0;
        }
    }
}

fn function(name: &str) -> anyfn::Result<PackedFunc> {
    registry::get(name)
}

/// Returns true for a tensor whose elements this process can read in main memory.
fn is_in_main_memory(lent: &TensorView<'_>) -> bool {
    let kind: c_int = lent.device().0.device_type;
    matches!(kind, kDLCPU | kDLCUDAHost | kDLROCMHost)
}

/// Returns the elements of a tensor on any device as bytes.
fn bytes_of(tensor: &TensorView<'_>) -> anyfn::Result<Vec<u8>> {
    Ok(function("anyfn.tensor_to_bytes")?.call((*tensor,))?.get::<anyfn::Bytes>()?.to_vec())
}

/// Returns false for two tensors on devices that share no element. Ranges of elements with gaps may be interleaved.
fn may_overlap(a: &TensorView<'_>, b: &TensorView<'_>) -> bool {
    let range = |tensor: &TensorView<'_>| -> Option<(i128, i128)> {
        let dl = tensor.as_dl();
        let shape = tensor.shape();
        let compact = tensor.strides().is_none().then(|| kept::compact_strides(shape));
        let strides = tensor.strides().unwrap_or(compact.as_deref().unwrap_or_default());
        let (mut low, mut high) = (0, 0);
        for (extent, stride) in shape.iter().zip(strides) {
            let last = i128::from(*extent - 1) * i128::from(*stride);
            (low, high) = (low + last.min(0), high + last.max(0));
        }
        let bits = i128::from(dl.dtype.bits) * i128::from(dl.dtype.lanes);
        let at = |element: i128| i128::from(dl.byte_offset) * 8 + element * bits;
        (!shape.contains(&0)).then(|| (at(low), at(high + 1)))
    };
    let (own, other) = (a.as_dl(), b.as_dl());
    let (Some(first), Some(second)) = (range(a), range(b)) else { return false };
    own.device == other.device && own.data == other.data && first.0 < second.1 && second.0 < first.1
}

/// Makes a compact copy of a borrowed tensor on its device.
fn on_same_device(lent: &TensorView<'_>) -> anyfn::Result<Tensor> {
    function("anyfn.tensor_copy")?.call((*lent,))?.get::<Tensor>()
}

/// Makes a compact copy of a borrowed tensor in host memory. Returns the copy and its bytes.
fn copy_of(lent: &TensorView<'_>) -> anyfn::Result<(Tensor, Vec<u8>)> {
    let copy = function("anyfn.tensor_copy")?.call((*lent,))?.get::<Tensor>()?;
    let before = if lent.shape().contains(&0) { Vec::new() } else { copy.view().to_bytes()? };
    Ok((copy, before))
}
