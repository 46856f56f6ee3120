//! Objects that export their memory by Python's buffer protocol: `memoryview`, `bytearray`, `array.array` and others.
//!
//! A plain sequence of bytes becomes bytes; everything else is shown as a tensor. The buffer stays exported as long as
//! native code may use it, so the object cannot move its memory meanwhile.

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

/// A buffer that an object exports. The description stays in place: some objects let it point into itself.
pub(crate) struct Export(Box<Py_buffer>);

impl Export {
    /// Exports the object's memory, with its shape and its format.
    fn new(object: Obj<'_>) -> Res<Export> {
        let mut place: Box<MaybeUninit<Py_buffer>> = Box::new_uninit();
        let view = place.as_mut_ptr();
        // SAFETY: a valid object, a writable place, and the lock is held; filled on success.
        py::check(raw::run(|| unsafe { raw::PyObject_GetBuffer(object.as_ptr(), view, raw::BUFFER_FLAGS) }))?;
        // SAFETY: filled just now.
        Ok(Export(unsafe { place.assume_init() }))
    }

    /// Ends the export, from any thread. After the end of the interpreter nothing is done.
    pub(crate) fn release(mut self) {
        if let Some(_held) = gil::enter() {
            // SAFETY: exported by `new` and released once, here; the lock is held.
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
        // SAFETY: a C string that lives as long as the export.
        unsafe { CStr::from_ptr(self.0.format) }.to_bytes()
    }

    /// Extents and strides in bytes.
    fn extents(&self) -> (&[isize], Cow<'_, [isize]>) {
        let ndim = self.ndim();
        if ndim == 0 || self.0.shape.is_null() {
            return (&[], Cow::Borrowed(&[]));
        }
        // SAFETY: asked for, so there are `ndim` of them.
        let shape = unsafe { std::slice::from_raw_parts(self.0.shape, ndim) };
        if self.0.strides.is_null() {
            // Objects of ctypes leave them out: then the elements are compact.
            let mut strides = vec![self.0.itemsize; ndim];
            for i in (1..ndim).rev() {
                strides[i - 1] = strides[i].saturating_mul(shape[i].max(1));
            }
            return (shape, Cow::Owned(strides));
        }
        // SAFETY: there are as many strides.
        (shape, Cow::Borrowed(unsafe { std::slice::from_raw_parts(self.0.strides, ndim) }))
    }

    /// The content of a contiguous sequence of bytes; `None` for everything else.
    fn bytes(&self) -> Option<&[u8]> {
        let (shape, strides) = self.extents();
        let plain = matches!(self.format(), b"B" | b"b" | b"c" | b"@B" | b"@b" | b"@c");
        if !plain || shape.len() != 1 || (strides[0] != 1 && shape[0] > 1) {
            return None;
        }
        if shape[0] == 0 {
            return Some(&[]);
        }
        // SAFETY: so many bytes are exported. They are copied before any other code runs.
        Some(unsafe { std::slice::from_raw_parts(self.0.buf.cast(), shape[0] as usize) })
    }
}

/// An object's memory as native code gets it.
pub(crate) enum Content {
    /// A copy of the bytes. Others may change them meanwhile, and native code relies on bytes that do not change.
    Bytes(Any),
    /// Elements of another type or in more dimensions.
    Elements(Export),
}

/// What an object exports; `None` if it exports nothing, or only a single value.
pub(crate) fn content(object: Obj<'_>) -> Res<Option<Content>> {
    let Some(export) = export(object)? else { return Ok(None) };
    // Only what is a sequence of bytes by its class is passed as bytes: an array of bytes is an array.
    if is_bytes_like(object)
        && let Some(bytes) = export.bytes()
    {
        let bytes: Any = anyfn::Bytes::from(bytes).into();
        export.release();
        return Ok(Some(Content::Bytes(bytes)));
    }
    Ok(Some(Content::Elements(export)))
}

/// Exports an object's memory; `None` if it has none to show, or only a single value.
pub(crate) fn export(object: Obj<'_>) -> Res<Option<Export>> {
    // SAFETY: the object is valid and the lock is held.
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
    // SAFETY: only takes addresses.
    let (bytearray, memoryview) = (&raw mut pyo3_ffi::PyByteArray_Type, &raw mut pyo3_ffi::PyMemoryView_Type);
    object.is_instance_of(bytearray.cast()) || object.is_instance_of(memoryview.cast())
}

/// Describes an export as a `DLTensor` in `scratch`; both must outlive its use.
pub(crate) fn view(export: &Export, scratch: &mut Scratch, at: &At<'_>) -> Res<*mut DLTensor> {
    let dtype = dtype_of(export, at)?;
    if export.0.readonly != 0 && !at.is_only_read() {
        return ndarray::read_only(at);
    }
    let (shape_in, strides_in) = export.extents();
    let ndim = shape_in.len();
    let place = scratch.take(ndarray::HEAD + 2 * ndim);
    // SAFETY: `take` gives room for the head and twice `ndim` words.
    let shape: *mut i64 = unsafe { place.add(ndarray::HEAD) }.cast();
    // SAFETY: the room for extents ends where that for strides begins, `ndim` words further.
    let strides = unsafe { shape.add(ndim) };
    let item = export.0.itemsize;
    for i in 0..ndim {
        // SAFETY: `i` is less than `ndim`.
        let place = unsafe { shape.add(i) };
        // SAFETY: `i` is less than `ndim`, within the room that `take` gave.
        unsafe { place.write(shape_in[i] as i64) };
        let steps = strides_in[i] / item;
        if steps * item != strides_in[i] && shape_in[i] != 1 && !shape_in.contains(&0) {
            return ndarray::uneven_stride(strides_in[i] as i64, item as i64, at);
        }
        // SAFETY: `i` is less than `ndim`, and there are as many words for strides.
        let place = unsafe { strides.add(i) };
        // SAFETY: `i` is less than `ndim`, within the room for strides.
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
    // SAFETY: `take` gives room for the head.
    unsafe { tensor.write(described) };
    if export.0.readonly != 0 {
        // SAFETY: described just now, and `scratch` keeps it.
        scratch.protect(&unsafe { tensor::view(tensor) })?;
    }
    Ok(tensor)
}

/// Makes a tensor that keeps an export.
pub(crate) fn tensor(object: Obj<'_>, export: Export, at: &At<'_>) -> Res<Tensor> {
    let mut words = WORDS;
    let mut scratch = Scratch::new(&mut words);
    match view(&export, &mut scratch, at) {
        Ok(view) => {
            let read_only = export.0.readonly != 0;
            // SAFETY: described just now, and `scratch` keeps it.
            kept::make(unsafe { &*view }, object, Lender::Buffer(export), read_only)
        }
        Err(Raised) => {
            export.release();
            Err(Raised)
        }
    }
}

/// The data type of a format of one letter, as the module `struct` has them.
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
