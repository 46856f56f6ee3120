//! Objects that export their memory through Python's buffer protocol: `memoryview`, `bytearray`, `array.array` and others.
//!
//! A `bytearray`, or a contiguous one-dimensional `memoryview` of bytes, is passed as bytes. Every other buffer
//! becomes a tensor. The buffer stays exported for as long as native code may use it, so the object cannot move its
//! memory meanwhile.

use anyfn::abi::{DLDataType, DLDevice, DLTensor, kDLBool, kDLCPU, kDLComplex, kDLFloat, kDLInt, kDLUInt};
use anyfn::{Any, Tensor};

use crate::at::At;
use crate::export::{Export, export};
use crate::kept::{self, Lender};
use crate::py::{self, Obj, Raised, Res};
use crate::scratch::{Scratch, WORDS};
use crate::{ndarray, tensor};

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

/// Returns the data type of a buffer's elements. Raises `TypeError` unless the format, in the
/// notation of the module `struct`, describes a single number in native byte order.
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
            &format!("cannot use a buffer of format '{text}': its byte order is not native"),
        ),
        Some(code) if matches!(size, 1 | 2 | 4 | 8 | 16) => {
            Ok(DLDataType { code, bits: 8 * size as u8, lanes: 1 })
        }
        _ => at.raise(
            py::exceptions::type_error(),
            &format!("cannot use a buffer of format '{text}': no native data type corresponds to it"),
        ),
    }
}
