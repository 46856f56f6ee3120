//! Memory that Python objects export through the buffer protocol, and the release of that memory.

use std::borrow::Cow;
use std::ffi::CStr;
use std::mem::MaybeUninit;

use crate::gil;
use crate::py::raw::{self, Py_buffer};
use crate::py::{self, Obj, Res};

/// A buffer that a Python object exports. The description is boxed so that its address never changes, because some
/// objects store pointers into it.
pub(crate) struct Export(pub(crate) Box<Py_buffer>);

impl Export {
    /// Exports the memory of an object, with its shape and format.
    fn new(object: Obj<'_>) -> Res<Export> {
        let mut place: Box<MaybeUninit<Py_buffer>> = Box::new_uninit();
        let view = place.as_mut_ptr();
        // SAFETY: the object is valid, the pointer is writable, and the GIL is held; the call fills the description on success.
        py::check(raw::run(|| unsafe { raw::PyObject_GetBuffer(object.as_ptr(), view, raw::BUFFER_FLAGS) }))?;
        // SAFETY: the description was filled above.
        Ok(Export(unsafe { place.assume_init() }))
    }

    /// Ends the export, from any thread. Does nothing after the end of the interpreter.
    pub(crate) fn release(mut self) {
        if let Some(_held) = gil::enter() {
            // SAFETY: the buffer was exported by `new` and is released once, here; the GIL is held.
            unsafe { raw::PyBuffer_Release(&mut *self.0) };
        }
    }

    fn ndim(&self) -> usize {
        usize::try_from(self.0.ndim).unwrap_or_default()
    }

    /// Returns the format of the elements in the notation of the module `struct`.
    pub(crate) fn format(&self) -> &[u8] {
        if self.0.format.is_null() {
            return b"B";
        }
        // SAFETY: the format is a C string that lives as long as the export.
        unsafe { CStr::from_ptr(self.0.format) }.to_bytes()
    }

    /// Returns the extent of each dimension of the buffer, and the strides in bytes.
    pub(crate) fn extents(&self) -> (&[isize], Cow<'_, [isize]>) {
        let ndim = self.ndim();
        if ndim == 0 || self.0.shape.is_null() {
            return (&[], Cow::Borrowed(&[]));
        }
        // SAFETY: extents were requested, so there are `ndim` of them.
        let shape = unsafe { std::slice::from_raw_parts(self.0.shape, ndim) };
        if self.0.strides.is_null() {
            // Objects of ctypes omit the strides; their elements are compact.
            let mut strides = vec![self.0.itemsize; ndim];
            for i in (1..ndim).rev() {
                strides[i - 1] = strides[i].saturating_mul(shape[i].max(1));
            }
            return (shape, Cow::Owned(strides));
        }
        // SAFETY: there are as many strides as extents.
        (shape, Cow::Borrowed(unsafe { std::slice::from_raw_parts(self.0.strides, ndim) }))
    }

    /// Returns the bytes of a contiguous one-dimensional buffer whose items are single bytes, or `None` for any other
    /// buffer.
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        let (shape, strides) = self.extents();
        let plain = matches!(self.format(), b"B" | b"b" | b"c" | b"@B" | b"@b" | b"@c");
        if !plain || shape.len() != 1 || (strides[0] != 1 && shape[0] > 1) {
            return None;
        }
        if shape[0] == 0 {
            return Some(&[]);
        }
        // SAFETY: this many bytes are exported. They are copied before any other code runs.
        Some(unsafe { std::slice::from_raw_parts(self.0.buf.cast(), shape[0] as usize) })
    }
}

/// Exports an object's memory. Returns `None` if the object exports no buffer or a buffer without dimensions (a
/// single value).
pub(crate) fn export(object: Obj<'_>) -> Res<Option<Export>> {
    // SAFETY: the object is valid and the GIL is held.
    if unsafe { raw::PyObject_CheckBuffer(object.as_ptr()) } == 0 {
        return Ok(None);
    }
    let export = Export::new(object)?;
    if export.ndim() == 0 {
        export.release();
        return Ok(None);
    }
    Ok(Some(export))
}
