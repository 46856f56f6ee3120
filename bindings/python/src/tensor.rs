//! Tensors: native objects with a shape, exchanged with Python's array libraries by DLPack.

use std::ffi::{CStr, c_void};

use std::ptr;

use anyfn::abi::{
    DLDataType, DLDevice, DLManagedTensor, DLManagedTensorVersioned, DLPACK_MAJOR_VERSION,
    DLPACK_MINOR_VERSION, DLPackVersion, DLTensor, TVMFFIObjectHandle, TVMFFITensorFromDLPack,
    TVMFFITensorFromDLPackVersioned, TVMFFITensorToDLPack, TVMFFITensorToDLPackVersioned, kTVMFFIDLTensorPtr,
};
use anyfn::{ObjectRef, Tensor};
use pyo3_ffi as ffi;

use crate::lower::At;
use crate::py::{self, Global, Obj, Own, PyObject, Raised, Res, names};
use crate::{error, ndarray, object, words};

/// The class `Tensor`, of Python code.
pub(crate) static CLASS: Global = Global::new();

/// Name of a capsule that holds a tensor, and the name that it gets when the tensor has been taken.
struct Capsule {
    fresh: &'static CStr,
    used: &'static CStr,
}

const VERSIONED: Capsule = Capsule { fresh: c"dltensor_versioned", used: c"used_dltensor_versioned" };
const UNVERSIONED: Capsule = Capsule { fresh: c"dltensor", used: c"used_dltensor" };

/// Makes a tensor of any object that exports its memory by DLPack.
pub(crate) fn from_dlpack(producer: Obj<'_>, at: &At<'_>) -> Res<Tensor> {
    if ndarray::is_array(producer) {
        return ndarray::tensor(producer, at);
    }
    let capsule = export(producer)?;
    // SAFETY: any object may be asked.
    let versioned = unsafe { ffi::PyCapsule_IsValid(capsule.as_ptr(), VERSIONED.fresh.as_ptr()) != 0 };
    let kind = if versioned { &VERSIONED } else { &UNVERSIONED };
    // SAFETY: any object may be asked; NULL with an exception if it is no such capsule.
    let tensor = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), kind.fresh.as_ptr()) };
    if tensor.is_null() {
        py::clear_error();
        return no_capsule(capsule.obj(), at);
    }
    if versioned && is_read_only(tensor.cast()) {
        return at.raise(
            py::exceptions::value_error(),
            "the array is read-only, and the function may write to it; pass a copy",
        );
    }
    let mut out: TVMFFIObjectHandle = ptr::null_mut();
    let code = if versioned {
        // SAFETY: the capsule says what it is; `out` is writable.
        unsafe { TVMFFITensorFromDLPackVersioned(tensor.cast(), 0, 0, &mut out) }
    } else {
        // SAFETY: as above.
        unsafe { TVMFFITensorFromDLPack(tensor.cast(), 0, 0, &mut out) }
    };
    if code != 0 {
        return Err(error::raise_from_native(code));
    }
    // The tensor has passed over; the name tells the capsule so.
    // SAFETY: a capsule and a name that lives for ever.
    py::check(unsafe { ffi::PyCapsule_SetName(capsule.as_ptr(), kind.used.as_ptr()) })?;
    // SAFETY: a new reference.
    match unsafe { ObjectRef::from_owned_or_null(out) }.and_then(|object| Tensor::try_from_object(object).ok())
    {
        Some(tensor) => Ok(tensor),
        None => py::raise(py::exceptions::system_error(), "the runtime gave no tensor"),
    }
}

/// What `__dlpack__` gave is no capsule with a tensor.
#[cold]
fn no_capsule<T>(object: Obj<'_>, at: &At<'_>) -> Res<T> {
    // SAFETY: any object may be asked.
    let used = [&VERSIONED, &UNVERSIONED]
        .iter()
        .any(|kind| unsafe { ffi::PyCapsule_IsValid(object.as_ptr(), kind.used.as_ptr()) } != 0);
    if used {
        return at.raise(
            py::exceptions::value_error(),
            "`__dlpack__` gave a capsule whose tensor has been taken already; each capsule can be used once",
        );
    }
    let message = format!("expected a DLPack capsule from `__dlpack__` but got {}", object.class_name());
    at.raise(py::exceptions::type_error(), &message)
}

fn is_read_only(tensor: *const DLManagedTensorVersioned) -> bool {
    // SAFETY: a tensor of a capsule; the flags exist in all versions that have this form.
    unsafe { (*tensor).flags & anyfn::abi::DLPACK_FLAG_BITMASK_READ_ONLY != 0 }
}

/// Asks an object for its capsule, in the newest form that it knows.
fn export(producer: Obj<'_>) -> Res<Own> {
    let method = producer.attr(names::DLPACK.get())?;
    let version =
        py::tuple(vec![py::int(DLPACK_MAJOR_VERSION.into())?, py::int(DLPACK_MINOR_VERSION.into())?])?;
    match method.obj().call_named(&[(c"max_version", version.obj())]) {
        Err(Raised) if py::error_is(py::exceptions::type_error()) => {
            // A producer from before DLPack 1.0 does not know the argument.
            py::clear_error();
            method.obj().call(&[])
        }
        result => result,
    }
}

fn tensor_argument(object: Obj<'_>) -> Res<Tensor> {
    match object::reference_of(object).and_then(|object| Tensor::try_from_object(object).ok()) {
        Some(tensor) => Ok(tensor),
        None => py::raise(py::exceptions::type_error(), "expected a tensor"),
    }
}

/// Exports a tensor as a capsule.
pub(crate) fn to_capsule(object: Obj<'_>, versioned: bool) -> Res<Own> {
    let tensor = tensor_argument(object)?;
    let handle = tensor.as_object().as_handle();
    if versioned {
        let mut out = ptr::null_mut();
        // SAFETY: a tensor; `out` is writable.
        let code = unsafe { TVMFFITensorToDLPackVersioned(handle, &mut out) };
        make_capsule(code, out.cast(), &VERSIONED, drop_versioned)
    } else {
        let mut out = ptr::null_mut();
        // SAFETY: a tensor; `out` is writable.
        let code = unsafe { TVMFFITensorToDLPack(handle, &mut out) };
        make_capsule(code, out.cast(), &UNVERSIONED, drop_unversioned)
    }
}

fn make_capsule(
    code: i32,
    tensor: *mut c_void,
    kind: &'static Capsule,
    destructor: unsafe extern "C" fn(*mut PyObject),
) -> Res<Own> {
    if code != 0 {
        return Err(error::raise_from_native(code));
    }
    // SAFETY: a pointer that is not NULL and a name that lives for ever; a new reference or an exception.
    py::new_ref!(ffi::PyCapsule_New(tensor, kind.fresh.as_ptr(), Some(destructor)))
}

/// Releases the tensor of a capsule that nobody took.
unsafe extern "C" fn drop_versioned(capsule: *mut PyObject) {
    if let Some(tensor) = untaken(capsule, &VERSIONED) {
        let tensor: *mut DLManagedTensorVersioned = tensor.cast();
        // SAFETY: a valid tensor that the capsule owns.
        if let Some(deleter) = unsafe { (*tensor).deleter } {
            // SAFETY: its own deleter, called once.
            unsafe { deleter(tensor) };
        }
    }
}

/// As [`drop_versioned`].
unsafe extern "C" fn drop_unversioned(capsule: *mut PyObject) {
    if let Some(tensor) = untaken(capsule, &UNVERSIONED) {
        let tensor: *mut DLManagedTensor = tensor.cast();
        // SAFETY: a valid tensor that the capsule owns.
        if let Some(deleter) = unsafe { (*tensor).deleter } {
            // SAFETY: its own deleter, called once.
            unsafe { deleter(tensor) };
        }
    }
}

fn untaken(capsule: *mut PyObject, kind: &Capsule) -> Option<*mut c_void> {
    // SAFETY: any object may be asked.
    if unsafe { ffi::PyCapsule_IsValid(capsule, kind.fresh.as_ptr()) } == 0 {
        return None;
    }
    // SAFETY: valid by the check above.
    let tensor = unsafe { ffi::PyCapsule_GetPointer(capsule, kind.fresh.as_ptr()) };
    (!tensor.is_null()).then_some(tensor)
}

/// Shape, strides, data type, device and address of a tensor, for the Python part.
pub(crate) fn describe(object: Obj<'_>) -> Res<Own> {
    let tensor = tensor_argument(object)?;
    let view = tensor.view();
    let ints =
        |values: &[i64]| py::tuple(values.iter().map(|value| py::int(*value)).collect::<Res<Vec<Own>>>()?);
    let dl = view.as_dl();
    let strides = match view.strides() {
        Some(strides) => ints(strides)?,
        None => ints(&compact_strides(view.shape()))?,
    };
    py::tuple(vec![
        ints(view.shape())?,
        strides,
        words::make(words::DTYPE.get(), dtype_bits(dl.dtype))?,
        words::make(words::DEVICE.get(), device_bits(dl.device))?,
        py::int(view.data().addr() as i64)?,
    ])
}

fn compact_strides(shape: &[i64]) -> Vec<i64> {
    let mut strides = vec![1; shape.len()];
    for i in (1..shape.len()).rev() {
        strides[i - 1] = strides[i] * shape[i].max(1);
    }
    strides
}

/// The bits that a data type has in a value.
pub(crate) fn dtype_bits(dtype: DLDataType) -> u64 {
    u64::from(dtype.code) | u64::from(dtype.bits) << 8 | u64::from(dtype.lanes) << 16
}

/// The bits that a device has in a value.
pub(crate) fn device_bits(device: DLDevice) -> u64 {
    u64::from(device.device_type as u32) | u64::from(device.device_id as u32) << 32
}

/// Memory of a tensor that shows a `DLTensor*` of somebody else for the duration of a callback.
#[repr(C)]
struct Borrow {
    tensor: DLManagedTensorVersioned,
    /// Extents and strides.
    words: Box<[i64]>,
}

/// Makes a tensor of a view that native code passes to a callback. It must not be used after [`end_borrow`].
pub(crate) fn borrow(view: *const DLTensor) -> Res<Own> {
    // SAFETY: native code passes a valid view, or NULL.
    let Some(view) = (unsafe { view.as_ref() }) else { return Ok(py::none()) };
    // SAFETY: valid for the duration of the callback.
    let shown = unsafe { anyfn::TensorView::from_dl(view) };
    let shape = shown.shape();
    let strides = shown.strides().map_or_else(|| compact_strides(shape), <[i64]>::to_vec);
    let mut borrow = Box::new(Borrow {
        tensor: DLManagedTensorVersioned {
            version: DLPackVersion { major: DLPACK_MAJOR_VERSION, minor: DLPACK_MINOR_VERSION },
            manager_ctx: ptr::null_mut(),
            deleter: Some(delete_borrow),
            flags: 0,
            dl_tensor: *view,
        },
        words: [shape, &strides].concat().into_boxed_slice(),
    });
    borrow.tensor.dl_tensor.shape = borrow.words.as_mut_ptr();
    borrow.tensor.dl_tensor.strides = borrow.words[shape.len()..].as_mut_ptr();
    // The tensor is the first field, so this is its address too.
    let borrow: *mut DLManagedTensorVersioned = Box::into_raw(borrow).cast();
    anyfn::__private::object_created(kTVMFFIDLTensorPtr);
    // SAFETY: a valid tensor; `end_borrows` sees to it that it is not used for longer than its memory.
    let tensor = unsafe { Tensor::from_dlpack(borrow) }.map_err(|error| {
        // SAFETY: not taken over.
        unsafe { delete_borrow(borrow) };
        error::raise(error)
    })?;
    object::wrap_as(CLASS.ptr().cast(), tensor.into_object())
}

unsafe extern "C" fn delete_borrow(tensor: *mut DLManagedTensorVersioned) {
    // SAFETY: the first field of a `Borrow` made by `Box`, released once.
    drop(unsafe { Box::from_raw(tensor.cast::<Borrow>()) });
    anyfn::__private::object_freed(kTVMFFIDLTensorPtr);
}

/// Whether an argument of a callback is a tensor made by [`borrow`].
pub(crate) fn is_borrow(object: Obj<'_>) -> bool {
    object.type_ptr() == CLASS.ptr().cast()
}

/// Empties a tensor made by [`borrow`], unless only the call itself still holds it. Returns whether it was kept.
pub(crate) fn end_borrow(object: Obj<'_>) -> bool {
    if !is_borrow(object) {
        return false;
    }
    let handle = object::handle_unchecked(object);
    // SAFETY: the object is alive.
    let python_count = unsafe { ffi::Py_REFCNT(object.as_ptr()) };
    // Others can only hold the tensor if they were given it, so a momentary count is enough.
    let native_count = object::reference_of(object).map_or(1, |tensor| tensor.use_count() - 1);
    if python_count == 1 && native_count == 1 {
        return false;
    }
    // SAFETY: a tensor object has its `DLTensor` behind the header; the lock is held.
    let tensor: *mut DLTensor = unsafe { handle.add(1) }.cast();
    // SAFETY: as above. Whoever looks at the tensor from now on finds it empty.
    unsafe { empty(tensor) };
    true
}

/// # Safety
/// `tensor` must be valid and not be read meanwhile.
unsafe fn empty(tensor: *mut DLTensor) {
    // SAFETY: the caller guarantees it.
    let tensor = unsafe { &mut *tensor };
    tensor.data = ptr::null_mut();
    tensor.ndim = 0;
    tensor.byte_offset = 0;
}
