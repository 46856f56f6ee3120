//! NumPy arrays, read where they are.
//!
//! NumPy is never imported here: its classes are looked up when the process has it loaded and a value of an unknown
//! class shows up. The fields of an array are at the same places in all versions from 1.7 to 2.x; they are read
//! directly, which takes a few nanoseconds where every portable way takes fifty and more.

use std::ffi::{c_char, c_int};
use std::ptr;

use anyfn::Tensor;
use anyfn::abi::{
    DLDataType, DLDevice, DLManagedTensorVersioned, DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION, DLPackVersion,
    DLTensor, kDLBool, kDLCPU, kDLComplex, kDLFloat, kDLInt, kDLUInt, kTVMFFIDLTensorPtr,
};

use crate::lower::{At, Scratch};
use crate::py::{self, Global, Obj, Own, PyObject, Raised, Res, names};
use crate::{error, gil};

/// What an array object begins with.
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

/// What a data type object begins with.
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

const WRITEABLE: c_int = 0x400;
/// Most dimensions that an array can have; more means that the object is not what it seems.
const NDIM_MAX: usize = 64;

/// `numpy.ndarray`, once NumPy has been met.
pub(crate) static CLASS: Global = Global::new();
/// `numpy.generic`, the base class of NumPy's scalars.
static SCALAR: Global = Global::new();
static BOOL_SCALAR: Global = Global::new();
static FLOAT_SCALAR: Global = Global::new();

/// Looks NumPy's classes up if the process has loaded it.
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
    let found = find(&SCALAR, c"generic")
        .and_then(|()| find(&BOOL_SCALAR, c"bool_"))
        .and_then(|()| find(&FLOAT_SCALAR, c"floating"))
        .and_then(|()| find(&CLASS, c"ndarray"));
    if found.is_err() {
        // NumPy is being imported at this moment; the next value looks again.
        py::clear_error();
    }
}

/// Whether an object is an array, of whichever class derived from `ndarray`.
#[inline]
pub(crate) fn is_array(object: Obj<'_>) -> bool {
    find_classes();
    object.is_instance_of(CLASS.ptr())
}

/// A scalar of NumPy as a value of Python.
pub(crate) enum Scalar {
    /// `numpy.bool_`.
    Bool(bool),
    /// A floating-point number of any width.
    Float(f64),
    /// An integer of any width, as an int.
    Int(Own),
}

/// Reads a scalar of NumPy; `None` if the object is none of those that have a counterpart.
pub(crate) fn scalar(object: Obj<'_>) -> Res<Option<Scalar>> {
    if !object.is_instance_of(SCALAR.ptr()) {
        return Ok(None);
    }
    if object.is_instance_of(BOOL_SCALAR.ptr()) {
        return Ok(Some(Scalar::Bool(object.is_true()?)));
    }
    if object.is_instance_of(FLOAT_SCALAR.ptr()) {
        return Ok(Some(Scalar::Float(object.float()?)));
    }
    if object.class().attr_opt(names::INDEX.get())?.is_none() {
        return Ok(None);
    }
    // SAFETY: the object is valid and the lock is held; a new reference or an exception.
    let value = py::new_ref!(py::raw::PyNumber_Index(object.as_ptr()))?;
    Ok(Some(Scalar::Int(value)))
}

/// Describes an array as a `DLTensor` in `scratch`, for the duration of a call.
#[inline]
pub(crate) fn view(object: Obj<'_>, scratch: &mut Scratch, at: &At<'_>) -> Res<*mut DLTensor> {
    // SAFETY: an instance of `ndarray` begins with `Array`; the lock is held.
    let array = unsafe { &*object.as_ptr().cast::<Array>() };
    let dtype = dtype_of(object, array, at)?;
    if array.flags & WRITEABLE == 0 && !at.is_only_read() {
        return read_only(at);
    }
    let ndim = usize::try_from(array.ndim).unwrap_or(usize::MAX);
    if ndim > NDIM_MAX {
        return at.raise(
            py::exceptions::value_error(),
            &format!("cannot use an array of {} dimensions", array.ndim),
        );
    }
    const HEAD: usize = size_of::<DLTensor>() / size_of::<u64>();
    let place = scratch.take(HEAD + ndim);
    // SAFETY: `take` gives room for the head and `ndim` words.
    let strides: *mut i64 = unsafe { place.add(HEAD) }.cast();
    let item = i64::from(dtype.bits / 8);
    let (shape_in, strides_in) = extents(array, ndim);
    for (i, stride) in strides_in.iter().enumerate() {
        let steps = stride / item;
        if steps * item != *stride && !is_unused(shape_in, i) {
            return uneven_stride(*stride, item, at);
        }
        // SAFETY: `i` is less than `ndim`.
        let place = unsafe { strides.add(i) };
        // SAFETY: as above.
        unsafe { place.write(steps) };
    }
    let tensor: *mut DLTensor = place.cast();
    // SAFETY: as above.
    unsafe {
        tensor.write(DLTensor {
            data: array.data.cast(),
            device: DLDevice { device_type: kDLCPU, device_id: 0 },
            ndim: array.ndim,
            dtype,
            shape: array.shape,
            strides,
            byte_offset: 0,
        });
    }
    Ok(tensor)
}

/// Extents and strides of an array.
#[inline]
fn extents(array: &Array, ndim: usize) -> (&[i64], &[i64]) {
    if ndim == 0 {
        return (&[], &[]);
    }
    // SAFETY: an array has `ndim` extents.
    let shape = unsafe { std::slice::from_raw_parts(array.shape, ndim) };
    // SAFETY: and as many strides.
    let strides = unsafe { std::slice::from_raw_parts(array.strides, ndim) };
    (shape, strides)
}

/// Whether the stride of a dimension is never taken.
fn is_unused(shape: &[i64], dimension: usize) -> bool {
    shape[dimension] == 1 || shape.contains(&0)
}

#[cold]
fn uneven_stride<T>(stride: i64, item: i64, at: &At<'_>) -> Res<T> {
    let text = format!(
        "cannot use an array with a stride of {stride} bytes over elements of {item} bytes; pass a copy"
    );
    at.raise(py::exceptions::value_error(), &text)
}

#[cold]
fn read_only<T>(at: &At<'_>) -> Res<T> {
    at.raise(
        py::exceptions::value_error(),
        "the array is read-only, and the function may write to it; pass a copy",
    )
}

/// The data types that NumPy numbers itself, by number.
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

const FOREIGN_ORDER: u8 = if cfg!(target_endian = "little") { b'>' } else { b'<' };

#[inline]
fn dtype_of(object: Obj<'_>, array: &Array, at: &At<'_>) -> Res<DLDataType> {
    // SAFETY: an array keeps its data type.
    let descr = unsafe { &*array.descr };
    let number = usize::try_from(descr.number).unwrap_or(usize::MAX);
    match DTYPES.get(number) {
        Some(dtype) if dtype.bits != 0 && descr.byte_order != FOREIGN_ORDER => Ok(*dtype),
        _ => rare_dtype(object, array, at),
    }
}

/// The data type of an array that NumPy does not know itself, by its name; an error for those that cannot be passed.
#[cold]
fn rare_dtype(object: Obj<'_>, array: &Array, at: &At<'_>) -> Res<DLDataType> {
    // SAFETY: an array keeps its data type.
    let descr: Obj<'_> = unsafe { Obj::from_ptr(array.descr.cast()) };
    // SAFETY: as above.
    let Descr { byte_order, number, .. } = unsafe { &*array.descr };
    let text = descr.str().and_then(|text| text.obj().to_text())?;
    if *byte_order == FOREIGN_ORDER {
        let message = format!("cannot use an array of dtype {text}: its bytes are in the other order");
        return at.raise(py::exceptions::type_error(), &message);
    }
    let itemsize =
        py::intern(c"itemsize").and_then(|name| descr.attr(name.obj()))?.obj().int().unwrap_or_default();
    // Below 256 are NumPy's own types: objects, texts, dates, records, long doubles.
    const OWN: c_int = 256;
    let dtype = if *number >= OWN { text.parse::<anyfn::DType>().ok() } else { None };
    match dtype {
        Some(dtype) if dtype.bits() == 8 * itemsize as u64 => Ok(dtype.0),
        _ => {
            let class = object.class_name();
            let message = format!("cannot use an array of dtype {text} ({class}): it has no counterpart");
            at.raise(py::exceptions::type_error(), &message)
        }
    }
}

/// An array as a DLPack tensor that keeps it alive.
#[repr(C)]
struct Managed {
    tensor: DLManagedTensorVersioned,
    /// Extents and strides.
    words: Box<[i64]>,
    /// Owned.
    array: *mut PyObject,
}

/// Makes a tensor that shows the memory of an array and keeps the array alive.
pub(crate) fn tensor(object: Obj<'_>, at: &At<'_>) -> Res<Tensor> {
    // SAFETY: an instance of `ndarray` begins with `Array`; the lock is held.
    if unsafe { &*object.as_ptr().cast::<Array>() }.flags & WRITEABLE == 0 {
        // Whoever gets the tensor may write to it.
        return read_only(at);
    }
    let mut scratch = Scratch::new();
    let view = view(object, &mut scratch, at)?;
    // SAFETY: described just now, and `scratch` keeps it.
    let described = unsafe { *view };
    let ndim = described.ndim as usize;
    let words = if ndim == 0 {
        Box::default()
    } else {
        // SAFETY: `ndim` extents, which the array keeps.
        let shape = unsafe { std::slice::from_raw_parts(described.shape, ndim) };
        // SAFETY: `ndim` strides in `scratch`.
        let strides = unsafe { std::slice::from_raw_parts(described.strides, ndim) };
        [shape, strides].concat().into_boxed_slice()
    };
    let mut managed = Box::new(Managed {
        tensor: DLManagedTensorVersioned {
            version: DLPackVersion { major: DLPACK_MAJOR_VERSION, minor: DLPACK_MINOR_VERSION },
            manager_ctx: ptr::null_mut(),
            deleter: Some(delete),
            flags: 0,
            dl_tensor: described,
        },
        words,
        array: object.to_own().into_ptr(),
    });
    managed.tensor.dl_tensor.shape = managed.words.as_mut_ptr();
    managed.tensor.dl_tensor.strides = managed.words[ndim..].as_mut_ptr();
    // The tensor is the first field, so this is its address too.
    anyfn::__private::object_created(kTVMFFIDLTensorPtr);
    let managed: *mut DLManagedTensorVersioned = Box::into_raw(managed).cast();
    // SAFETY: a valid tensor whose memory the array keeps; it passes over.
    unsafe { Tensor::from_dlpack(managed) }.map_err(|error| {
        // SAFETY: not taken over.
        unsafe { delete(managed) };
        error::raise(error)
    })
}

/// Releases a tensor made of an array. Any thread may be the one.
unsafe extern "C" fn delete(tensor: *mut DLManagedTensorVersioned) {
    // SAFETY: the first field of a `Managed` made by `Box`, released once.
    let managed = unsafe { Box::from_raw(tensor.cast::<Managed>()) };
    anyfn::__private::object_freed(kTVMFFIDLTensorPtr);
    // SAFETY: the tensor owned this reference.
    unsafe { gil::release(managed.array) };
}
