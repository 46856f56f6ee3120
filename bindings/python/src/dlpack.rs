//! Exchange of arrays with other libraries through DLPack, by either of two interfaces: the method
//! `__dlpack__`, which returns capsules, and the faster table of C functions.
//!
//! A class may provide the table as `__dlpack_c_exchange_api__`. An argument is then described on the stack of the
//! call, without a capsule and without reference counting. `Tensor` also provides such a table, so other libraries can
//! read tensors of this package in the same way.

use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use anyfn::abi::{
    DLManagedTensor, DLManagedTensorVersioned, DLPACK_FLAG_BITMASK_IS_COPIED,
    DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED, DLPACK_FLAG_BITMASK_READ_ONLY, DLPACK_MAJOR_VERSION,
    DLPACK_MINOR_VERSION, DLPackManagedTensorAllocator, DLPackVersion, DLTensor, TVMFFIEnvGetStream,
    TVMFFIEnvSetDLPackManagedTensorAllocator, TVMFFIEnvSetStream, TVMFFIObjectHandle, TVMFFITensorFromDLPack,
    TVMFFITensorFromDLPackVersioned, TVMFFITensorToDLPack, TVMFFITensorToDLPackVersioned, kDLCPU, kDLCUDA,
    kDLCUDAHost, kDLCUDAManaged, kDLROCM, kDLROCMHost,
};
use anyfn::access::Region;
use anyfn::tensor_mismatch::TensorMismatch;
use anyfn::{DType, ObjectRef, Tensor, TensorView};
use pyo3_ffi as ffi;

use crate::at::At;
use crate::export::export;
use crate::kept::{self, Lender};
use crate::lift::lift_object;
use crate::py::{self, Obj, Own, PyObject, Raised, Res, names};
use crate::scratch::Scratch;
use crate::{buffer, error, ndarray, tensor};

/// Names of one kind of DLPack capsule: `fresh` while the capsule holds a tensor, and `used` once the tensor has been
/// taken.
struct Capsule {
    fresh: &'static CStr,
    used: &'static CStr,
}

const VERSIONED: Capsule = Capsule { fresh: c"dltensor_versioned", used: c"used_dltensor_versioned" };
const UNVERSIONED: Capsule = Capsule { fresh: c"dltensor", used: c"used_dltensor" };

// ---- The table of C functions -------------------------------------------------------------------------------------

/// Exchange table: the C functions that a library provides for exchanging its arrays. None of the functions
/// synchronises streams.
#[repr(C)]
pub(crate) struct Exchange {
    version: DLPackVersion,
    /// Exchange table of an older major version, or NULL.
    previous: *const Exchange,
    allocate: Option<DLPackManagedTensorAllocator>,
    export: Option<unsafe extern "C" fn(*mut PyObject, *mut *mut DLManagedTensorVersioned) -> c_int>,
    import: Option<unsafe extern "C" fn(*mut DLManagedTensorVersioned, *mut *mut PyObject) -> c_int>,
    describe: Option<unsafe extern "C" fn(*mut PyObject, *mut DLTensor) -> c_int>,
    current_stream: Option<unsafe extern "C" fn(c_int, i32, *mut *mut c_void) -> c_int>,
}

// SAFETY: tables do not change.
unsafe impl Sync for Exchange {}

const EXCHANGE: &CStr = c"dlpack_exchange_api";

/// Cache of up to eight classes that have an exchange table, with their tables. Entries are kept
/// for the lifetime of the process. Read and written under the GIL.
static KNOWN: [(AtomicPtr<ffi::PyTypeObject>, AtomicPtr<Exchange>); 8] =
    [const { (AtomicPtr::new(ptr::null_mut()), AtomicPtr::new(ptr::null_mut())) }; 8];

/// Returns the exchange table of a class from the cache, or `None` if the cache does not contain the class.
#[inline]
pub(crate) fn known(class: *mut ffi::PyTypeObject) -> Option<&'static Exchange> {
    for (known, table) in &KNOWN {
        let known = known.load(Ordering::Relaxed);
        if ptr::eq(known, class) {
            // SAFETY: tables live as long as the process.
            return unsafe { table.load(Ordering::Relaxed).as_ref() };
        }
        if known.is_null() {
            return None;
        }
    }
    None
}

/// Returns the exchange table of an object's class, or `None` if the class has no table of the supported version.
fn find(object: Obj<'_>) -> Res<Option<&'static Exchange>> {
    if let Some(table) = known(object.type_ptr()) {
        return Ok(Some(table));
    }
    let Some(capsule) = object.class().attr_opt(names::EXCHANGE.get())? else { return Ok(None) };
    // SAFETY: the function accepts any object.
    if unsafe { ffi::PyCapsule_IsValid(capsule.as_ptr(), EXCHANGE.as_ptr()) } == 0 {
        return Ok(None);
    }
    // SAFETY: the check above showed that the capsule is valid.
    let mut table: *const Exchange =
        unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), EXCHANGE.as_ptr()) }.cast();
    // SAFETY: the pointer is NULL or a table, which begins with its version in every version.
    while let Some(found) = unsafe { table.as_ref() } {
        if found.version.major == DLPACK_MAJOR_VERSION {
            remember(object, found);
            return Ok(Some(found));
        }
        table = found.previous;
    }
    Ok(None)
}

fn remember(object: Obj<'_>, table: &'static Exchange) {
    if let Some((class, slot)) = KNOWN.iter().find(|(class, _)| class.load(Ordering::Relaxed).is_null()) {
        slot.store(ptr::from_ref(table).cast_mut(), Ordering::Relaxed);
        // The class is kept alive, so that its address cannot be reused for another class.
        class.store(object.class().to_own().into_ptr().cast(), Ordering::Relaxed);
    }
}

/// Describes the memory of an object as a `DLTensor` in `scratch`, with the exchange table of the object's
/// class. Returns `None` if the table lacks the function that describes arrays.
#[inline]
pub(crate) fn view(object: Obj<'_>, table: &Exchange, scratch: &mut Scratch) -> Res<Option<*mut DLTensor>> {
    let Some(describe) = table.describe else { return Ok(None) };
    let place: *mut DLTensor = scratch.take(ndarray::HEAD).cast();
    // SAFETY: the object's class has the table, the pointer is writable, and the GIL is held.
    py::check(unsafe { describe(object.as_ptr(), place) })?;
    Ok(Some(place))
}

/// Allocator and stream that a call sets for its thread. Dropping this value restores the previous
/// allocator and stream.
pub(crate) struct Environment {
    allocator: Option<DLPackManagedTensorAllocator>,
    has_allocator: bool,
    /// Device type and device index for which the stream was set, and the stream that was set before.
    stream: Option<(i32, i32, *mut c_void)>,
}

impl Environment {
    /// Sets the allocator and the current stream of the library that owns an argument. Native code
    /// then allocates tensors with this library, and works on the library's stream.
    pub(crate) fn of(table: &Exchange, tensor: &DLTensor) -> Res<Environment> {
        let mut environment = Environment { allocator: None, has_allocator: false, stream: None };
        if table.allocate.is_some() {
            // SAFETY: the function lives as long as the process, and the pointer is writable.
            let code = unsafe {
                TVMFFIEnvSetDLPackManagedTensorAllocator(table.allocate, 0, &mut environment.allocator)
            };
            environment.has_allocator = code == 0;
        }
        let (kind, number) = (tensor.device.device_type, tensor.device.device_id);
        if !is_host(kind)
            && let Some(current_stream) = table.current_stream
        {
            let (mut stream, mut before) = (ptr::null_mut(), ptr::null_mut());
            // SAFETY: the pointer is writable, and the GIL is held.
            py::check(unsafe { current_stream(kind, number, &mut stream) })?;
            // SAFETY: the pointer is writable.
            if unsafe { TVMFFIEnvSetStream(kind, number, stream, &mut before) } == 0 {
                environment.stream = Some((kind, number, before));
            }
        }
        Ok(environment)
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        if self.has_allocator {
            // SAFETY: this restores the previous allocator.
            unsafe { TVMFFIEnvSetDLPackManagedTensorAllocator(self.allocator, 0, ptr::null_mut()) };
        }
        if let Some((kind, number, stream)) = self.stream {
            // SAFETY: this restores the previous stream.
            unsafe { TVMFFIEnvSetStream(kind, number, stream, ptr::null_mut()) };
        }
    }
}

pub(crate) fn is_host(device_type: i32) -> bool {
    matches!(device_type, kDLCPU | kDLCUDAHost | kDLROCMHost)
}

// ---- Imports ------------------------------------------------------------------------------------------------------

/// Makes a tensor from an object that exports its memory through DLPack. Returns `None` if the object does not
/// support DLPack.
pub(crate) fn tensor(producer: Obj<'_>, at: &At<'_>) -> Res<Option<Tensor>> {
    let is_exporter = is_known_exporter(producer.type_ptr());
    let package =
        if is_exporter || known(producer.type_ptr()).is_some() { None } else { immutable_package(producer)? };
    let is_immutable = is_exporter || package.is_some();
    // An array that is described by a table carries no flag that it is read-only.
    if !is_immutable
        && let Some(table) = find(producer)?
        && let Some(export) = table.export
    {
        let mut managed = ptr::null_mut();
        // SAFETY: the object's class has the table, the pointer is writable, and the GIL is held.
        py::check(unsafe { export(producer.as_ptr(), &mut managed) })?;
        return keep(managed, producer, at).map(Some);
    }
    if (is_exporter || package.is_some_and(|package| EXPORTERS.contains(&package)))
        && at.is_only_read()
        && let Some(tensor) = from_buffer(producer, at)?
    {
        remember_exporter(producer);
        return Ok(Some(tensor));
    }
    if producer.class().attr_opt(names::DLPACK.get())?.is_none() {
        return Ok(None);
    }
    if is_immutable && !at.is_only_read() {
        return ndarray::read_only(at);
    }
    let capsule = ask(producer)?;
    let tensor = take(capsule.obj(), at)?;
    if !is_immutable || kept::is_read_only(tensor.as_object().as_handle().cast()) {
        return Ok(Some(tensor));
    }
    let described = *tensor.view().as_dl();
    kept::make(&described, producer, Lender::Tensor(tensor), true).map(Some)
}

/// Packages whose arrays are immutable although their DLPack capsules are not flagged as read-only.
/// Such arrays may share memory with equal or derived arrays, and the compilers of these packages
/// rely on values that do not change.
const IMMUTABLE: [&str; 3] = ["jax", "jaxlib", "tensorflow"];

/// Packages of `IMMUTABLE` whose arrays in main memory export that memory as a buffer. An array of TensorFlow on another device
/// exports a copy.
const EXPORTERS: [&str; 2] = ["jax", "jaxlib"];

/// Classes of immutable arrays that exported a buffer so far. They are kept alive for the lifetime of the process. Read and
/// written under the GIL.
static EXPORTER_CLASSES: [AtomicPtr<ffi::PyTypeObject>; 4] = [const { AtomicPtr::new(ptr::null_mut()) }; 4];

/// Returns true if an earlier argument of this class was an immutable array that exported a buffer.
#[inline]
pub(crate) fn is_known_exporter(class: *mut ffi::PyTypeObject) -> bool {
    EXPORTER_CLASSES.iter().any(|known| ptr::eq(known.load(Ordering::Relaxed), class))
}

fn remember_exporter(array: Obj<'_>) {
    if !is_known_exporter(array.type_ptr())
        && let Some(free) = EXPORTER_CLASSES.iter().find(|known| known.load(Ordering::Relaxed).is_null())
    {
        free.store(array.class().to_own().into_ptr().cast(), Ordering::Relaxed);
    }
}

/// Makes a tensor from the buffer that an array of one of the [`EXPORTERS`] exports. This takes a fifth of the time that JAX needs for a DLPack
/// capsule. Returns `None` for an array that exports no read-only buffer: an array on another device, an array of a data type
/// that the buffer protocol lacks, such as bfloat16, or an array without dimensions.
fn from_buffer(array: Obj<'_>, at: &At<'_>) -> Res<Option<Tensor>> {
    match export(array) {
        Ok(Some(export)) if export.0.readonly != 0 => buffer::tensor(array, export, at).map(Some),
        Ok(Some(export)) => {
            export.release();
            Ok(None)
        }
        Ok(None) => Ok(None),
        Err(Raised) if py::error_is(py::exceptions::buffer_error()) => {
            py::clear_error();
            Ok(None)
        }
        Err(Raised) => Err(Raised),
    }
}

/// Returns the package of an array, if that package has immutable arrays.
fn immutable_package(array: Obj<'_>) -> Res<Option<&'static str>> {
    let Some(module) = array.class().attr_opt(names::MODULE.get())? else { return Ok(None) };
    let Ok(module) = module.obj().to_text() else {
        py::clear_error();
        return Ok(None);
    };
    let package = module.split('.').next().unwrap_or_default();
    Ok(IMMUTABLE.into_iter().find(|known| *known == package))
}

/// Makes a tensor from a DLPack tensor that `producer` has exported, and takes ownership of the DLPack tensor.
fn keep(managed: *mut DLManagedTensorVersioned, producer: Obj<'_>, at: &At<'_>) -> Res<Tensor> {
    // SAFETY: the pointer is NULL or a valid tensor, which is owned by this function.
    let Some(content) = (unsafe { managed.as_ref() }) else {
        return py::raise(
            py::exceptions::system_error(),
            "the exporter of the array returned no DLPack tensor",
        );
    };
    let read_only = content.flags & DLPACK_FLAG_BITMASK_READ_ONLY != 0;
    let padded = content.flags & DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED != 0;
    let usable = if content.version.major != DLPACK_MAJOR_VERSION {
        wrong_version(content.version, at)
    } else if read_only && !at.is_only_read() {
        ndarray::read_only(at)
    } else if padded && !content.dl_tensor.dtype.bits.is_multiple_of(8) {
        let mismatch = TensorMismatch::Padded { dtype: DType(content.dl_tensor.dtype) };
        at.raise(py::exceptions::value_error(), &mismatch.to_string())
    } else {
        Ok(())
    };
    if let Err(Raised) = usable {
        // SAFETY: the tensor is not used any more.
        unsafe { kept::release_managed(managed) };
        return Err(Raised);
    }
    let tensor = kept::make(&content.dl_tensor, producer, Lender::DLPack(managed), read_only)?;
    check_owner(tensor, at)
}

/// Returns an imported tensor, unless it is on a device whose handles have a meaning only in the library that made them, and that
/// library is another one.
fn check_owner(tensor: Tensor, at: &At<'_>) -> Res<Tensor> {
    let kind = tensor.view().device().0.device_type;
    if is_host(kind) || matches!(kind, kDLCUDA | kDLCUDAManaged | kDLROCM) {
        return Ok(tensor);
    }
    let check = anyfn::registry::find("anyfn.device_check_owner");
    match check.map(|check| check.call((&tensor,))) {
        Some(Err(error)) => {
            // The deleter may run Python code, during which no exception may be set.
            drop(tensor);
            at.raise(py::exceptions::value_error(), error.message())
        }
        _ => Ok(tensor),
    }
}

/// Makes a tensor for `view`, which describes `part` of an array's memory. The tensor keeps the memory alive
/// through the array's library, because the array object may switch to other memory. Returns `None` if the
/// array's class has no exchange table or the memory does not belong to the array.
pub(crate) fn part(producer: Obj<'_>, view: &TensorView<'_>, part: &Region) -> Res<Option<Tensor>> {
    let Some(export) = known(producer.type_ptr()).and_then(|table| table.export) else { return Ok(None) };
    let mut managed: *mut DLManagedTensorVersioned = ptr::null_mut();
    // SAFETY: the object's class has the table, the pointer is writable, and the GIL is held.
    py::check(unsafe { export(producer.as_ptr(), &mut managed) })?;
    // SAFETY: the pointer is NULL or a valid tensor, which is owned by this function.
    let Some(content) = (unsafe { managed.as_ref() }) else { return Ok(None) };
    let is_known = content.version.major == DLPACK_MAJOR_VERSION;
    // SAFETY: the tensor is valid and of the supported version.
    let whole = is_known.then(|| unsafe { TensorView::from_dl(&content.dl_tensor) });
    if whole.and_then(|whole| whole.host_region()).is_some_and(|whole| whole.contains(part)) {
        let read_only = content.flags & DLPACK_FLAG_BITMASK_READ_ONLY != 0;
        return kept::make(view.as_dl(), py::none().obj(), Lender::DLPack(managed), read_only).map(Some);
    }
    // SAFETY: the tensor is not used any more.
    unsafe { kept::release_managed(managed) };
    Ok(None)
}

fn wrong_version<T>(version: DLPackVersion, at: &At<'_>) -> Res<T> {
    let DLPackVersion { major, minor } = version;
    at.raise(py::exceptions::type_error(), &TensorMismatch::Version { major, minor }.to_string())
}

/// Calls `__dlpack__` to request a capsule from an object: a versioned capsule if the object supports DLPack 1.0, and
/// otherwise an unversioned one.
fn ask(producer: Obj<'_>) -> Res<Own> {
    let method = producer.attr(names::DLPACK.get())?;
    let stream = stream_for(producer)?;
    let version =
        py::tuple(vec![py::int(DLPACK_MAJOR_VERSION.into())?, py::int(DLPACK_MINOR_VERSION.into())?])?;
    let mut named = vec![(c"max_version", version.obj())];
    named.extend(stream.as_ref().map(|stream| (c"stream", stream.obj())));
    match method.obj().call_named(&named) {
        Err(Raised) if py::error_is(py::exceptions::type_error()) => {
            // A producer from before DLPack 1.0 does not know the argument `max_version`.
            py::clear_error();
            method.obj().call_named(&named[1..])
        }
        result => result,
    }
}

/// Returns the stream on which native code will use an object's memory. Returns `None` for a device without streams,
/// and for an object that does not report its device.
fn stream_for(producer: Obj<'_>) -> Res<Option<Own>> {
    let Some(method) = producer.attr_opt(names::DLPACK_DEVICE.get())? else { return Ok(None) };
    let device = method.obj().call(&[])?;
    let part = |index| match py::tuple_item(device.obj(), index) {
        Some(part) => as_int(part.obj()),
        None => py::raise(py::exceptions::type_error(), "expected a pair of ints from `__dlpack_device__()`"),
    };
    let (kind, number) = (part(0)? as i32, part(1)? as i32);
    // SAFETY: the function may be called at any time.
    let stream = || unsafe { TVMFFIEnvGetStream(kind, number) }.addr();
    match kind {
        // The value 1 is the default stream; 0 is not allowed.
        kDLCUDA | kDLCUDAManaged => py::int(stream().max(1) as i64).map(Some),
        kDLROCM => py::int(stream() as i64).map(Some),
        _ => Ok(None),
    }
}

/// Returns the value of an int or of an object with an integer value, such as a member of an enumeration.
fn as_int(object: Obj<'_>) -> Res<i64> {
    // SAFETY: the object is valid and the GIL is held; the result is a new reference, or NULL with an exception set.
    let int = py::unsafe_new_ref!(py::raw::PyNumber_Index(object.as_ptr()))?;
    int.obj().int().or_else(|_| {
        py::clear_error();
        py::raise(py::exceptions::value_error(), "expected a device as a pair of 64-bit ints")
    })
}

/// Takes the tensor out of a DLPack capsule. Renames the capsule, which marks it as used.
pub(crate) fn take(capsule: Obj<'_>, at: &At<'_>) -> Res<Tensor> {
    // This may read the function's signature and so run Python code, which might take the tensor. It therefore comes first.
    let may_be_read_only = at.is_only_read();
    // SAFETY: the function accepts any object.
    let is = |name: &CStr| unsafe { ffi::PyCapsule_IsValid(capsule.as_ptr(), name.as_ptr()) != 0 };
    let (kind, versioned) = match (is(VERSIONED.fresh), is(UNVERSIONED.fresh)) {
        (true, _) => (VERSIONED, true),
        (_, true) => (UNVERSIONED, false),
        _ if is(VERSIONED.used) || is(UNVERSIONED.used) => {
            return at.raise(
                py::exceptions::value_error(),
                "the DLPack capsule has already been consumed; each capsule can be used once",
            );
        }
        _ => {
            return at.raise(
                py::exceptions::type_error(),
                &format!("expected a DLPack capsule from `__dlpack__` but got {}", capsule.class_name()),
            );
        }
    };
    // No Python code runs from here until the ownership of the tensor has been transferred.
    // SAFETY: the check above showed that the capsule is valid.
    let tensor = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), kind.fresh.as_ptr()) };
    if tensor.is_null() {
        return Err(Raised);
    }
    if versioned && is_read_only(tensor.cast()) && !may_be_read_only {
        return ndarray::read_only(at);
    }
    let mut out: TVMFFIObjectHandle = ptr::null_mut();
    let code = if versioned {
        // SAFETY: the name of the capsule shows that the tensor is versioned; `out` is writable.
        unsafe { TVMFFITensorFromDLPackVersioned(tensor.cast(), 0, 0, &mut out) }
    } else {
        // SAFETY: the name of the capsule shows that the tensor is of the older version; `out` is writable.
        unsafe { TVMFFITensorFromDLPack(tensor.cast(), 0, 0, &mut out) }
    };
    if code != 0 {
        return Err(error::raise_from_native(code));
    }
    // The tensor has been taken, which the name of the capsule records.
    // SAFETY: the object is a capsule, and the name lives as long as the process.
    py::check(unsafe { ffi::PyCapsule_SetName(capsule.as_ptr(), kind.used.as_ptr()) })?;
    // SAFETY: the handle is a new reference.
    match unsafe { ObjectRef::from_owned_or_null(out) }.and_then(|object| Tensor::try_from_object(object).ok())
    {
        Some(tensor) => check_owner(tensor, at),
        None => py::raise(py::exceptions::system_error(), "the runtime returned no tensor"),
    }
}

/// Returns true if an object is a `PyCapsule`, with any name.
pub(crate) fn is_capsule(object: Obj<'_>) -> bool {
    // SAFETY: the object is valid.
    unsafe { ffi::PyCapsule_CheckExact(object.as_ptr()) != 0 }
}

fn is_read_only(tensor: *const DLManagedTensorVersioned) -> bool {
    // SAFETY: the tensor belongs to a capsule; all versions with this layout have the flags.
    unsafe { (*tensor).flags & DLPACK_FLAG_BITMASK_READ_ONLY != 0 }
}

// ---- Exports ------------------------------------------------------------------------------------------------------

/// Exports a tensor as a DLPack capsule. If `versioned` and `copied` are true, the capsule is flagged as a copy.
pub(crate) fn to_capsule(object: Obj<'_>, versioned: bool, copied: bool) -> Res<Own> {
    let tensor = tensor::argument(object)?;
    let handle = tensor.as_object().as_handle();
    if versioned {
        let mut out = ptr::null_mut();
        // SAFETY: the handle is a tensor, and `out` is writable.
        let code = unsafe { TVMFFITensorToDLPackVersioned(handle, &mut out) };
        if copied && code == 0 {
            // SAFETY: the tensor was made above and is not shared.
            unsafe { (*out).flags |= DLPACK_FLAG_BITMASK_IS_COPIED };
        }
        make_capsule(code, out.cast(), &VERSIONED, drop_versioned)
    } else {
        let mut out = ptr::null_mut();
        // SAFETY: the handle is a tensor, and `out` is writable.
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
    // SAFETY: the pointer is not NULL and the name lives as long as the process; the result is a new reference, or
    // NULL with an exception set.
    py::unsafe_new_ref!(ffi::PyCapsule_New(tensor, kind.fresh.as_ptr(), Some(destructor)))
}

/// Destructor of versioned capsules: releases the tensor unless it was taken out of the capsule.
unsafe extern "C" fn drop_versioned(capsule: *mut PyObject) {
    if let Some(tensor) = untaken(capsule, &VERSIONED) {
        // SAFETY: the tensor is valid and owned by the capsule.
        unsafe { kept::release_managed(tensor.cast()) };
    }
}

/// Destructor of unversioned capsules: releases the tensor unless it was taken out of the capsule.
unsafe extern "C" fn drop_unversioned(capsule: *mut PyObject) {
    if let Some(tensor) = untaken(capsule, &UNVERSIONED) {
        let tensor: *mut DLManagedTensor = tensor.cast();
        // SAFETY: the tensor is valid and owned by the capsule.
        if let Some(deleter) = unsafe { (*tensor).deleter } {
            // SAFETY: this is the tensor's own deleter, called once.
            unsafe { deleter(tensor) };
        }
    }
}

fn untaken(capsule: *mut PyObject, kind: &Capsule) -> Option<*mut c_void> {
    // SAFETY: the function accepts any object.
    if unsafe { ffi::PyCapsule_IsValid(capsule, kind.fresh.as_ptr()) } == 0 {
        return None;
    }
    // SAFETY: the check above showed that the capsule is valid.
    let tensor = unsafe { ffi::PyCapsule_GetPointer(capsule, kind.fresh.as_ptr()) };
    (!tensor.is_null()).then_some(tensor)
}

/// Makes the capsule that holds the exchange table of the class `Tensor`.
pub(crate) fn own_exchange() -> Res<Own> {
    static OWN: Exchange = Exchange {
        version: DLPackVersion { major: DLPACK_MAJOR_VERSION, minor: DLPACK_MINOR_VERSION },
        previous: ptr::null(),
        allocate: Some(allocate),
        export: Some(export_own),
        import: Some(import_own),
        describe: Some(describe_own),
        current_stream: Some(current_stream),
    };
    let table: *const Exchange = &raw const OWN;
    // SAFETY: the table is a static and the name lives as long as the process; the result is a new reference, or NULL
    // with an exception set.
    py::unsafe_new_ref!(ffi::PyCapsule_New(table.cast_mut().cast(), EXCHANGE.as_ptr(), None))
}

/// Runs the body of a function of the exchange table. Returns 0 on success, and -1 with an exception set on failure.
fn guarded(body: impl FnOnce() -> Res<()>) -> c_int {
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
    match result {
        Ok(Ok(())) => 0,
        Ok(Err(Raised)) => -1,
        Err(payload) => {
            error::raise_panic(&*payload);
            -1
        }
    }
}

/// Exports a `Tensor` as a versioned DLPack tensor.
///
/// # Safety
/// `object` must be a `Tensor`, `out` must be writable, and the GIL must be held. This also applies to the other
/// functions of the exchange table below.
unsafe extern "C" fn export_own(object: *mut PyObject, out: *mut *mut DLManagedTensorVersioned) -> c_int {
    guarded(|| {
        // SAFETY: the caller passes a valid object and holds the GIL.
        let tensor = tensor::argument(unsafe { Obj::from_ptr(object) })?;
        // SAFETY: the handle is a tensor, and the caller passes a writable pointer.
        match unsafe { TVMFFITensorToDLPackVersioned(tensor.as_object().as_handle(), out) } {
            0 => Ok(()),
            code => Err(error::raise_from_native(code)),
        }
    })
}

unsafe extern "C" fn import_own(managed: *mut DLManagedTensorVersioned, out: *mut *mut PyObject) -> c_int {
    guarded(|| {
        // SAFETY: the caller passes a valid tensor and its ownership.
        let tensor = unsafe { Tensor::from_dlpack(managed) }.map_err(|error| {
            // SAFETY: `from_dlpack` failed without taking ownership, so this function still owns the tensor.
            unsafe { kept::release_managed(managed) };
            error::raise(error)
        })?;
        let object = lift_object(tensor.into_object())?;
        // SAFETY: the caller passes a writable pointer.
        unsafe { out.write(object.into_ptr()) };
        Ok(())
    })
}

unsafe extern "C" fn describe_own(object: *mut PyObject, out: *mut DLTensor) -> c_int {
    guarded(|| {
        // SAFETY: the caller passes a valid object and holds the GIL.
        let tensor = tensor::argument(unsafe { Obj::from_ptr(object) })?;
        // SAFETY: the caller passes a writable pointer; the object keeps the described memory alive.
        unsafe { out.write(*tensor.view().as_dl()) };
        Ok(())
    })
}

unsafe extern "C" fn current_stream(kind: c_int, number: i32, out: *mut *mut c_void) -> c_int {
    // SAFETY: the function may be called at any time.
    let stream = unsafe { TVMFFIEnvGetStream(kind, number) };
    // SAFETY: the caller passes a writable pointer.
    unsafe { out.write(stream) };
    0
}

/// Allocates a tensor of the runtime with the shape, data type and device of `like`. `Tensor::empty` is
/// unsuitable: it requests memory from the caller's framework, and here the caller's framework is this
/// extension.
fn new_tensor(like: &anyfn::TensorView<'_>) -> anyfn::Result<Tensor> {
    let shape = anyfn::Shape::from(like.shape());
    let function = anyfn::registry::get("runtime.TVMTensorAllocWithScope")?;
    function.call((&shape, like.dtype(), like.device()))?.get::<Tensor>()
}

unsafe extern "C" fn allocate(
    prototype: *mut DLTensor,
    out: *mut *mut DLManagedTensorVersioned,
    context: *mut c_void,
    set_error: Option<anyfn::abi::DLPackSetError>,
) -> c_int {
    // SAFETY: the caller passes a valid prototype.
    let prototype = unsafe { &*prototype };
    // SAFETY: DLPack requires a prototype to describe its shape by valid pointers.
    let view = unsafe { anyfn::TensorView::from_dl(prototype) };
    let made = new_tensor(&view).and_then(|tensor| tensor.to_dlpack());
    match made {
        Ok(tensor) => {
            // SAFETY: the caller passes a writable pointer.
            unsafe { out.write(tensor) };
            0
        }
        Err(error) => {
            let text = |text: &str| std::ffi::CString::new(text.replace('\0', " ")).unwrap_or_default();
            let (kind, message) = (text(error.kind()), text(error.message()));
            if let Some(set_error) = set_error {
                // SAFETY: the strings are C strings, and the context belongs to the function.
                unsafe { set_error(context, kind.as_ptr(), message.as_ptr()) };
            }
            -1
        }
    }
}
