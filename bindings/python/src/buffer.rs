//! Objects that export their memory through Python's buffer protocol: `memoryview`, `bytearray`, `array.array` and others.
//!
//! A `bytearray`, or a contiguous one-dimensional `memoryview` of bytes, is passed as bytes. Every other buffer
//! becomes a tensor. The buffer stays exported for as long as native code may use it, so the object cannot move its
//! memory meanwhile.

use std::borrow::Cow;
use std::ffi::CStr;
use std::mem::MaybeUninit;

use anyfn::abi::{DLDataType, DLDevice, DLTensor, kDLBool, kDLCPU, kDLComplex, kDLFloat, kDLInt, kDLUInt};
use anyfn::{Any, Tensor};

use crate::kept::{self, Lender};
use crate::lower::{At, Scratch, WORDS};
use crate::py::raw::{self, Py_buffer};
use crate::py::{self, Obj, Raised, Res};
use crate::{gil, ndarray, tensor};

/// A buffer that a Python object exports. The description is boxed so that its address never changes, because some
/// objects store pointers into it.
pub(crate) struct Export(Box<Py_buffer>);

impl Export {
    /// Exports the object's memory, with its shape and its format.
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

    fn format(&self) -> &[u8] {
        if self.0.format.is_null() {
            return b"B";
        }
        // SAFETY: the format is a C string that lives as long as the export.
        unsafe { CStr::from_ptr(self.0.format) }.to_bytes()
    }

    /// Returns the extents of all dimensions, and the strides in bytes.
    fn extents(&self) -> (&[isize], Cow<'_, [isize]>) {
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
    fn bytes(&self) -> Option<&[u8]> {
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

/// Form in which the memory of an object is passed to native code.
pub(crate) enum Content {
    /// Copy of the bytes. The original bytes may change at any time, whereas native code relies on bytes that do not
    /// change.
    Bytes(Any),
    /// Exported buffer that becomes a tensor, because it is not a plain sequence of bytes.
    Elements(Export),
}

/// Exports an object's memory and selects the form in which it is passed. Returns `None` if the object exports no
/// buffer or a buffer without dimensions (a single value).
pub(crate) fn content(object: Obj<'_>) -> Res<Option<Content>> {
    let Some(export) = export(object)? else { return Ok(None) };
    // Only objects whose class is a sequence of bytes are passed as bytes; an array of bytes is passed as an array.
    if is_bytes_like(object)
        && let Some(bytes) = export.bytes()
    {
        let bytes: Any = anyfn::Bytes::from(bytes).into();
        export.release();
        return Ok(Some(Content::Bytes(bytes)));
    }
    Ok(Some(Content::Elements(export)))
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

fn is_bytes_like(object: Obj<'_>) -> bool {
    // SAFETY: this only takes addresses.
    let (bytearray, memoryview) = (&raw mut pyo3_ffi::PyByteArray_Type, &raw mut pyo3_ffi::PyMemoryView_Type);
    object.is_instance_of(bytearray.cast()) || object.is_instance_of(memoryview.cast())
}

/// Describes an exported buffer as a `DLTensor` in `scratch`. `export` and `scratch` must outlive the use of the
/// returned pointer.
pub(crate) fn view(export: &Export, scratch: &mut Scratch, at: &At<'_>) -> Res<*mut DLTensor> {
    let dtype = dtype_of(export, at)?;
    if export.0.readonly != 0 && !at.is_only_read() {
        return ndarray::read_only(at);
    }
    let (shape_in, strides_in) = export.extents();
    let ndim = shape_in.len();
    let place = scratch.take(ndarray::HEAD + 2 * ndim);
    // SAFETY: `take` allocated the head and twice `ndim` words.
    let shape: *mut i64 = unsafe { place.add(ndarray::HEAD) }.cast();
    // SAFETY: the words for strides begin where those for extents end, `ndim` words further.
    let strides = unsafe { shape.add(ndim) };
    let item = export.0.itemsize;
    for i in 0..ndim {
        // SAFETY: `i` is less than `ndim`.
        let place = unsafe { shape.add(i) };
        // SAFETY: `i` is less than `ndim`, within the words that `take` allocated.
        unsafe { place.write(shape_in[i] as i64) };
        let steps = strides_in[i] / item;
        if steps * item != strides_in[i] && shape_in[i] != 1 && !shape_in.contains(&0) {
            return ndarray::uneven_stride(strides_in[i] as i64, item as i64, at);
        }
        // SAFETY: `i` is less than `ndim`, and there are as many words for strides.
        let place = unsafe { strides.add(i) };
        // SAFETY: `i` is less than `ndim`, within the words for strides.
        unsafe { place.write(steps as i64) };
    }
    let tensor: *mut DLTensor = place.cast();
    let described = DLTensor {
        data: export.0.buf,
        device: DLDevice { device_type: kDLCPU, device_id: 0 },
        ndim: ndim as i32,
        dtype,
        shape,
        strides,
        byte_offset: 0,
    };
    // SAFETY: `take` allocated the head.
    unsafe { tensor.write(described) };
    if export.0.readonly != 0 {
        // SAFETY: the export was described above, and `scratch` keeps the description alive.
        scratch.protect(&unsafe { tensor::view(tensor) })?;
    }
    Ok(tensor)
}

/// Makes a tensor from the exported buffer of `object`. The buffer stays exported until the tensor is destroyed.
pub(crate) fn tensor(object: Obj<'_>, export: Export, at: &At<'_>) -> Res<Tensor> {
    let mut words = WORDS;
    let mut scratch = Scratch::new(&mut words);
    match view(&export, &mut scratch, at) {
        Ok(view) => {
            let read_only = export.0.readonly != 0;
            // SAFETY: the export was described above, and `scratch` keeps the description alive.
            kept::make(unsafe { &*view }, object, Lender::Buffer(export), read_only)
        }
        Err(Raised) => {
            export.release();
            Err(Raised)
        }
    }
}

/// Returns the data type of a buffer's elements. Raises `TypeError` unless the format, in the notation of the module
/// `struct`, is that of a single number.
fn dtype_of(export: &Export, at: &At<'_>) -> Res<DLDataType> {
    let format = export.format();
    let (order, letters) = match format {
        [order @ (b'@' | b'=' | b'<' | b'>' | b'!'), letters @ ..] => (*order, letters),
        letters => (b'@', letters),
    };
    let code = match letters {
        [b'?'] => Some(kDLBool),
        [b'b' | b'h' | b'i' | b'l' | b'q' | b'n'] => Some(kDLInt),
        [b'c' | b'B' | b'H' | b'I' | b'L' | b'Q' | b'N'] => Some(kDLUInt),
        [b'e' | b'f' | b'd'] => Some(kDLFloat),
        [b'Z', b'f' | b'd'] => Some(kDLComplex),
        _ => None,
    };
    let text = String::from_utf8_lossy(format);
    let size = export.0.itemsize;
    let foreign = if cfg!(target_endian = "little") { matches!(order, b'>' | b'!') } else { order == b'<' };
    match code {
        Some(_) if foreign && size > 1 => at.raise(
            py::exceptions::type_error(),
            &format!("cannot use a buffer of format '{text}': its bytes are in the other order"),
        ),
        Some(code) if matches!(size, 1 | 2 | 4 | 8 | 16) => {
            Ok(DLDataType { code, bits: 8 * size as u8, lanes: 1 })
        }
        _ => at.raise(
            py::exceptions::type_error(),
            &format!("cannot use a buffer of format '{text}': it has no counterpart"),
        ),
    }
}
