//! Direct access to the fields of NumPy arrays.
//!
//! NumPy is never imported here: its classes are looked up once the process has loaded it and a value of an unknown
//! class appears. The fields of an array have the same offsets in all versions from 1.7 to 2.x. They are read
//! directly, which takes a few nanoseconds, whereas every portable way takes fifty and more.

use std::ffi::{c_char, c_int};
use std::ptr;

use anyfn::Tensor;
use anyfn::abi::{DLDataType, DLDevice, DLTensor, kDLBool, kDLCPU, kDLComplex, kDLFloat, kDLInt, kDLUInt};
use anyfn::tensor_mismatch::TensorMismatch;

use pyo3_ffi as ffi;

use crate::at::At;
use crate::kept::{self, Lender};
use crate::py::{self, Global, Obj, Own, PyObject, Raised, Res, names};
use crate::scratch::{Scratch, WORDS};
use crate::tensor;

/// First fields of a NumPy array object (`PyArrayObject`), in NumPy's layout.
#[repr(C)]
struct Array {
    base: PyObject,
    data: *mut c_char,
    ndim: c_int,
    shape: *mut i64,
    strides: *mut i64,
    owner: *mut PyObject,
    descr: *mut Descr,
    flags: c_int,
}

/// First fields of a NumPy data type object (`PyArray_Descr`), in NumPy's layout.
#[repr(C)]
struct Descr {
    base: PyObject,
    class: *mut PyObject,
    kind: u8,
    letter: u8,
    byte_order: u8,
    flags: u8,
    number: c_int,
}

/// Size of a `DLTensor` in 64-bit words.
pub(crate) const HEAD: usize = size_of::<DLTensor>() / size_of::<u64>();
/// Flag of arrays whose memory may be written.
pub(crate) const WRITEABLE: c_int = 0x400;
/// Maximum number of dimensions of an array. An object with more dimensions cannot be a valid array
/// and is refused.
const NDIM_MAX: usize = 64;

/// The class `numpy.ndarray`, once NumPy has been found.
pub(crate) static CLASS: Global = Global::new();
/// The class `numpy.generic`, base of NumPy's scalars.
static SCALAR: Global = Global::new();
static BOOL_SCALAR: Global = Global::new();
static FLOAT_SCALAR: Global = Global::new();
/// Classes of NumPy scalars that cannot be passed: `numpy.complexfloating`, `numpy.datetime64`, `numpy.timedelta64`
/// and `numpy.void`.
static REFUSED_SCALARS: [Global; 4] = [const { Global::new() }; 4];
/// The class `numpy.dtype`.
static DTYPE: Global = Global::new();
/// The class `numpy.ma.MaskedArray`, once it has been found.
static MASKED: Global = Global::new();

/// Looks up NumPy's classes if the process has loaded NumPy.
fn find_classes() {
    if CLASS.try_get().is_some() {
        return;
    }
    let Some(numpy) = py::imported(c"numpy") else { return };
    let find = |slot: &Global, name: &std::ffi::CStr| {
        let name = py::intern(name)?;
        slot.set(numpy.obj().attr(name.obj())?);
        Ok::<(), Raised>(())
    };
    // Instances are read as C structures, so a replacement of NumPy with classes written in Python must not be accepted.
    let find_native = |slot: &Global, name: &std::ffi::CStr, size: usize| {
        let class = numpy.obj().attr(py::intern(name)?.obj())?;
        let basic_size = class.obj().attr(py::intern(c"__basicsize__")?.obj())?;
        if !is_static_type(class.obj()) || basic_size.obj().int().unwrap_or(0) < size as i64 {
            return Err(Raised);
        }
        slot.set(class);
        Ok(())
    };
    let found = find(&SCALAR, c"generic")
        .and_then(|()| find(&BOOL_SCALAR, c"bool_"))
        .and_then(|()| find(&FLOAT_SCALAR, c"floating"))
        .and_then(|()| find(&REFUSED_SCALARS[0], c"complexfloating"))
        .and_then(|()| find(&REFUSED_SCALARS[1], c"datetime64"))
        .and_then(|()| find(&REFUSED_SCALARS[2], c"timedelta64"))
        .and_then(|()| find(&REFUSED_SCALARS[3], c"void"))
        .and_then(|()| find_native(&DTYPE, c"dtype", size_of::<Descr>()))
        .and_then(|()| find_native(&CLASS, c"ndarray", size_of::<Array>()));
    if found.is_err() {
        // NumPy is being imported at this moment; the next value tries again.
        py::clear_error();
    }
}

/// Returns true if NumPy's classes are known, or can be looked up because the process has loaded NumPy.
pub(crate) fn is_known() -> bool {
    find_classes();
    CLASS.try_get().is_some()
}

/// Returns true if an object is a statically allocated class, which only C code can define.
fn is_static_type(class: Obj<'_>) -> bool {
    if class.type_flags() & ffi::Py_TPFLAGS_TYPE_SUBCLASS == 0 {
        return false;
    }
    // SAFETY: the flag of its own class shows that the object is a class.
    let flags = unsafe { ffi::PyType_GetFlags(class.as_ptr().cast()) };
    flags & ffi::Py_TPFLAGS_HEAPTYPE == 0
}

/// Returns true if an object is an array, including instances of classes derived from `ndarray`.
#[inline]
pub(crate) fn is_array(object: Obj<'_>) -> bool {
    find_classes();
    object.is_instance_of(CLASS.ptr())
}

/// Returns true if the class of an object is `ndarray` itself.
#[inline(always)]
pub(crate) fn is_exact_array(object: Obj<'_>) -> bool {
    ptr::eq(object.type_ptr().cast(), CLASS.ptr())
}

/// Value of a NumPy scalar.
pub(crate) enum Scalar {
    /// Value of a `numpy.bool_`.
    Bool(bool),
    /// Value of a floating-point scalar of any width.
    Float(f64),
    /// Value of an integer scalar of any width, as a Python int.
    Int(Own),
}

/// Reads a NumPy scalar. Returns `None` if the object is not a NumPy scalar, and raises `TypeError` for a scalar that
/// has no native counterpart.
pub(crate) fn scalar(object: Obj<'_>, at: &At<'_>) -> Res<Option<Scalar>> {
    if !object.is_instance_of(SCALAR.ptr()) {
        return Ok(None);
    }
    if object.is_instance_of(BOOL_SCALAR.ptr()) {
        return Ok(Some(Scalar::Bool(object.is_true()?)));
    }
    if object.is_instance_of(FLOAT_SCALAR.ptr()) {
        return Ok(Some(Scalar::Float(object.float()?)));
    }
    if REFUSED_SCALARS.iter().any(|class| object.is_instance_of(class.ptr())) {
        let message =
            format!("cannot pass a numpy.{}: no native data type corresponds to it", object.class_name());
        return at.raise(py::exceptions::type_error(), &message);
    }
    if object.class().attr_opt(names::INDEX.get())?.is_none() {
        // This is a small floating-point number of another package, such as bfloat16.
        return Ok(Some(Scalar::Float(object.float()?)));
    }
    // SAFETY: the object is valid and the GIL is held; the result is a new reference, or NULL with an exception set.
    let value = py::unsafe_new_ref!(py::raw::PyNumber_Index(object.as_ptr()))?;
    Ok(Some(Scalar::Int(value)))
}

/// Returns true if an object is a NumPy data type, or a scalar class that specifies a data type.
pub(crate) fn is_dtype(object: Obj<'_>) -> bool {
    if object.is_instance_of(DTYPE.ptr()) {
        return true;
    }
    let is_class = object.type_flags() & ffi::Py_TPFLAGS_TYPE_SUBCLASS != 0;
    // SAFETY: both objects are valid types.
    is_class
        && !SCALAR.ptr().is_null()
        && unsafe { ffi::PyType_IsSubtype(object.as_ptr().cast(), SCALAR.ptr().cast()) } != 0
}

/// Describes an array as a `DLTensor` in `scratch`, for the duration of a call.
#[inline]
pub(crate) fn view(object: Obj<'_>, scratch: &mut Scratch, at: &At<'_>) -> Res<*mut DLTensor> {
    if !ptr::eq(object.type_ptr().cast(), CLASS.ptr()) {
        check_mask(object, at)?;
    }
    if !is_read_only(object) {
        return fill(object, scratch, at);
    }
    check_only_read(at)?;
    let tensor = fill(object, scratch, at)?;
    // SAFETY: the array was described above, and `scratch` keeps the description alive.
    scratch.protect(&unsafe { tensor::view(tensor) })?;
    Ok(tensor)
}

/// Describes the memory of an array as a `DLTensor` in `scratch`, even if it is read-only.
pub(crate) fn describe(object: Obj<'_>, scratch: &mut Scratch) -> Res<*mut DLTensor> {
    fill(object, scratch, &At::Value)
}

/// Returns true if `described` has the same data pointer and shape as a NumPy array.
#[inline]
pub(crate) fn shows(object: Obj<'_>, described: &DLTensor) -> bool {
    // SAFETY: an instance of `ndarray` begins with `Array`; the GIL is held, and no Python code runs here.
    let array = unsafe { &*object.as_ptr().cast::<Array>() };
    let same = ptr::eq(array.data.cast(), described.data)
        && array.ndim == described.ndim
        && described.byte_offset == 0;
    let ndim = usize::try_from(array.ndim).unwrap_or(0);
    // SAFETY: the description has `ndim` extents, as many as the array.
    same && (ndim == 0
        || extents(array, ndim).0 == unsafe { std::slice::from_raw_parts(described.shape, ndim) })
}

/// Returns true if the memory of an array must not be written.
pub(crate) fn is_read_only(object: Obj<'_>) -> bool {
    head(object).flags & WRITEABLE == 0
}

#[inline(always)]
fn fill(object: Obj<'_>, scratch: &mut Scratch, at: &At<'_>) -> Res<*mut DLTensor> {
    let dtype = dtype_of(object, at)?;
    // Python code that ran until now may have changed the array; none runs below.
    // SAFETY: an instance of `ndarray` begins with `Array`; the GIL is held.
    let array = unsafe { &*object.as_ptr().cast::<Array>() };
    let ndim = usize::try_from(array.ndim).unwrap_or(usize::MAX);
    if ndim > NDIM_MAX {
        return too_many_dimensions(array.ndim, at);
    }
    let place = scratch.take(HEAD + 2 * ndim);
    // SAFETY: `take` allocated the head and twice `ndim` words.
    let shape: *mut i64 = unsafe { place.add(HEAD) }.cast();
    // SAFETY: the words for strides begin where those for extents end, `ndim` words further.
    let strides = unsafe { shape.add(ndim) };
    let item = i64::from(dtype.bits / 8);
    // The size of nearly all elements is a power of two. A shift avoids a division, which takes longer than everything else.
    let shift = if item & (item - 1) == 0 { Some(item.trailing_zeros()) } else { None };
    // The extents are copied because `array.shape = ..` during the call frees the old ones.
    let (shape_in, strides_in) = extents(array, ndim);
    for (i, (extent, stride)) in shape_in.iter().zip(strides_in).enumerate() {
        let steps = if let Some(shift) = shift { stride >> shift } else { stride / item };
        if steps * item != *stride && !is_unused(shape_in, i) {
            return uneven_stride(*stride, item, at);
        }
        // SAFETY: `i` is less than `ndim`.
        let place = unsafe { shape.add(i) };
        // SAFETY: `i` is less than `ndim`, within the words for extents.
        unsafe { place.write(*extent) };
        // SAFETY: `i` is less than `ndim`, and there are as many words for strides.
        let place = unsafe { strides.add(i) };
        // SAFETY: `i` is less than `ndim`, within the words for strides.
        unsafe { place.write(steps) };
    }
    let tensor: *mut DLTensor = place.cast();
    // SAFETY: `take` allocated `HEAD` words, which hold a `DLTensor`.
    unsafe {
        tensor.write(DLTensor {
            data: array.data.cast(),
            device: DLDevice { device_type: kDLCPU, device_id: 0 },
            ndim: array.ndim,
            dtype,
            shape,
            strides,
            byte_offset: 0,
        });
    }
    Ok(tensor)
}

/// Raises `ValueError` for a masked array with masked elements, because native code would not see the mask.
#[cold]
fn check_mask(object: Obj<'_>, at: &At<'_>) -> Res<()> {
    if MASKED.try_get().is_none() {
        let Some(module) = py::imported(c"numpy.ma") else { return Ok(()) };
        let name = py::intern(c"MaskedArray")?;
        match module.obj().attr_opt(name.obj())? {
            Some(class) => MASKED.set(class),
            None => return Ok(()),
        }
    }
    if !object.is_instance_of(MASKED.ptr()) {
        return Ok(());
    }
    let name = py::intern(c"mask")?;
    let any = py::intern(c"any")?;
    let mask = object.attr(name.obj())?;
    if mask.obj().attr(any.obj())?.obj().call(&[])?.obj().is_true()? {
        return at.raise(
            py::exceptions::value_error(),
            "the array has masked elements, which native code cannot recognise; pass `x.filled(value)`",
        );
    }
    Ok(())
}

/// Returns the extents and strides of an array.
#[inline]
fn extents(array: &Array, ndim: usize) -> (&[i64], &[i64]) {
    if ndim == 0 {
        return (&[], &[]);
    }
    // SAFETY: an array has `ndim` extents.
    let shape = unsafe { std::slice::from_raw_parts(array.shape, ndim) };
    // SAFETY: an array has as many strides as extents.
    let strides = unsafe { std::slice::from_raw_parts(array.strides, ndim) };
    (shape, strides)
}

/// Returns true if the stride of a dimension is never used: the dimension has extent 1, or the array has no elements.
fn is_unused(shape: &[i64], dimension: usize) -> bool {
    shape[dimension] == 1 || shape.contains(&0)
}

#[cold]
fn too_many_dimensions<T>(ndim: c_int, at: &At<'_>) -> Res<T> {
    let mismatch = TensorMismatch::TooManyDimensions { got: ndim.into() };
    at.raise(py::exceptions::value_error(), &mismatch.to_string())
}

#[cold]
pub(crate) fn uneven_stride<T>(stride: i64, item: i64, at: &At<'_>) -> Res<T> {
    let text = format!(
        "cannot use an array with a stride of {stride} bytes over elements of {item} bytes; pass a copy"
    );
    at.raise(py::exceptions::value_error(), &text)
}

/// Raises `ValueError` for an array with read-only memory at the position `at`, unless native code
/// only reads the value at that position.
#[cold]
pub(crate) fn check_only_read(at: &At<'_>) -> Res<()> {
    if at.is_only_read() { Ok(()) } else { read_only(at) }
}

#[cold]
pub(crate) fn read_only<T>(at: &At<'_>) -> Res<T> {
    let message = if at.is_written() {
        "the array is read-only, and the signature of the function does not declare the argument as const; pass a copy"
    } else {
        "the array is read-only, and the function may write to it; pass a copy, or `anyfn.const(x)` if it only reads `x`"
    };
    at.raise(py::exceptions::value_error(), message)
}

/// Native data types by NumPy's type number, for the types that NumPy itself defines. A data type
/// of zero bits marks a NumPy type without a native counterpart.
const DTYPES: [DLDataType; 24] = {
    const fn of(code: u8, bits: u8) -> DLDataType {
        DLDataType { code, bits, lanes: 1 }
    }
    let mut table = [of(0, 0); 24];
    table[0] = of(kDLBool, 8);
    table[1] = of(kDLInt, 8);
    table[2] = of(kDLUInt, 8);
    table[3] = of(kDLInt, 16);
    table[4] = of(kDLUInt, 16);
    table[5] = of(kDLInt, 32);
    table[6] = of(kDLUInt, 32);
    table[7] = of(kDLInt, 8 * size_of::<std::ffi::c_long>() as u8);
    table[8] = of(kDLUInt, 8 * size_of::<std::ffi::c_long>() as u8);
    table[9] = of(kDLInt, 64);
    table[10] = of(kDLUInt, 64);
    table[11] = of(kDLFloat, 32);
    table[12] = of(kDLFloat, 64);
    table[14] = of(kDLComplex, 64);
    table[15] = of(kDLComplex, 128);
    table[23] = of(kDLFloat, 16);
    table
};

/// Returns NumPy's type number for a native data type, or `None` if NumPy itself defines no such type.
pub(crate) fn type_number(dtype: DLDataType) -> Option<c_int> {
    let is_same = |known: &DLDataType| *known == dtype && known.bits != 0;
    DTYPES.iter().position(is_same).map(|number| number as c_int)
}

const FOREIGN_ORDER: u8 = if cfg!(target_endian = "little") { b'>' } else { b'<' };

/// Copies of those fields of a NumPy array object that Python code may change.
struct Head {
    descr: *mut Descr,
    flags: c_int,
}

#[inline]
fn head(object: Obj<'_>) -> Head {
    // SAFETY: an instance of `ndarray` begins with `Array`; the GIL is held. The reference ends here.
    let array = unsafe { &*object.as_ptr().cast::<Array>() };
    Head { descr: array.descr, flags: array.flags }
}

#[inline]
fn dtype_of(object: Obj<'_>, at: &At<'_>) -> Res<DLDataType> {
    // SAFETY: an array keeps its data type alive; no Python code runs while it is borrowed here.
    let descr = unsafe { &*head(object).descr };
    let number = usize::try_from(descr.number).unwrap_or(usize::MAX);
    match DTYPES.get(number) {
        Some(dtype) if dtype.bits != 0 && descr.byte_order != FOREIGN_ORDER => Ok(*dtype),
        _ => rare_dtype(object, at),
    }
}

/// Returns the data type of an array whose NumPy type is not in `DTYPES`, derived from the name of the type.
/// Raises an exception for types that cannot be passed.
#[cold]
fn rare_dtype(object: Obj<'_>, at: &At<'_>) -> Res<DLDataType> {
    let Head { descr: place, flags } = head(object);
    // Printing the names of fields may run Python code, which may give the array another data type.
    // SAFETY: an array keeps its data type alive until Python code runs; from here on there is an owned reference.
    let descr = unsafe { Obj::from_ptr(place.cast()) }.to_own();
    // SAFETY: `descr` keeps the data type alive.
    let Descr { byte_order, number, .. } = unsafe { &*place };
    let (byte_order, number, descr) = (*byte_order, *number, descr.obj());
    let text = descr.str().and_then(|text| text.obj().to_text())?;
    if byte_order == FOREIGN_ORDER {
        let message = format!("cannot use an array of dtype {text}: its byte order is not native");
        return at.raise(py::exceptions::type_error(), &message);
    }
    let itemsize =
        py::intern(c"itemsize").and_then(|name| descr.attr(name.obj()))?.obj().int().unwrap_or_default();
    // Numbers below 256 are types of NumPy itself: objects, strings, dates, records and long doubles.
    const OWN: c_int = 256;
    let dtype = if number >= OWN { text.parse::<anyfn::DType>().ok() } else { None };
    let now = head(object);
    if now.descr != place || now.flags != flags {
        return at.raise(py::exceptions::runtime_error(), "the array changed while it was converted");
    }
    match dtype {
        Some(dtype) if dtype.bits() == 8 * itemsize as u64 => Ok(dtype.0),
        _ => {
            let class = object.class_name();
            let message =
                format!("cannot use an array of dtype {text} ({class}): no native data type corresponds to it");
            at.raise(py::exceptions::type_error(), &message)
        }
    }
}

/// Makes a tensor that refers to the memory of an array and keeps the array alive.
pub(crate) fn tensor(object: Obj<'_>, at: &At<'_>) -> Res<Tensor> {
    let mut words = WORDS;
    let mut scratch = Scratch::new(&mut words);
    let view = view(object, &mut scratch, at)?;
    let read_only = is_read_only(object);
    // SAFETY: the array was described above, and `scratch` keeps the description alive.
    kept::make(unsafe { &*view }, object, Lender::Object, read_only)
}
