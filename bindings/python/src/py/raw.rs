//! Declarations of CPython functions that exist in every version since 3.9, although they are
//! missing from the stable ABI of 3.9.
//!
//! Vectorcall entered the stable ABI in 3.12 without a change of its signature. Functions whose names differ between
//! versions are looked up once, when the module is initialised.

use std::ffi::{CStr, c_char, c_double, c_int, c_longlong, c_void};
use std::mem::transmute;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use pyo3_ffi::{Py_hash_t, Py_ssize_t, PyGILState_STATE, PyObject, PyThreadState, PyTypeObject};

unsafe extern "C" {
    /// The class of frames. The headers of Python's limited API omit it, but every CPython version exports it.
    pub(crate) static mut PyFrame_Type: PyTypeObject;
}

// Functions that run Python code may terminate the thread: see [`run`].
unsafe extern "C-unwind" {
    pub(crate) fn PyObject_GetAttr(object: *mut PyObject, name: *mut PyObject) -> *mut PyObject;
    pub(crate) fn PyObject_SetAttr(object: *mut PyObject, name: *mut PyObject, value: *mut PyObject) -> c_int;
    pub(crate) fn PyObject_Repr(object: *mut PyObject) -> *mut PyObject;
    pub(crate) fn PyObject_Str(object: *mut PyObject) -> *mut PyObject;
    pub(crate) fn PyObject_IsTrue(object: *mut PyObject) -> c_int;
    pub(crate) fn PyObject_Call(
        callable: *mut PyObject,
        args: *mut PyObject,
        kwargs: *mut PyObject,
    ) -> *mut PyObject;
    pub(crate) fn PySequence_List(object: *mut PyObject) -> *mut PyObject;
    pub(crate) fn PyNumber_Index(object: *mut PyObject) -> *mut PyObject;
    pub(crate) fn PyNumber_AsSsize_t(object: *mut PyObject, overflow: *mut PyObject) -> Py_ssize_t;
    pub(crate) fn PyObject_RichCompare(
        left: *mut PyObject,
        right: *mut PyObject,
        operation: c_int,
    ) -> *mut PyObject;
    pub(crate) fn PyObject_RichCompareBool(
        left: *mut PyObject,
        right: *mut PyObject,
        operation: c_int,
    ) -> c_int;
    pub(crate) fn PyObject_Hash(object: *mut PyObject) -> Py_hash_t;
    pub(crate) fn PyObject_GetIter(object: *mut PyObject) -> *mut PyObject;
    pub(crate) fn PyObject_GetItem(object: *mut PyObject, key: *mut PyObject) -> *mut PyObject;
    pub(crate) fn PyIter_Next(iterator: *mut PyObject) -> *mut PyObject;
    pub(crate) fn PySlice_Unpack(
        slice: *mut PyObject,
        start: *mut Py_ssize_t,
        stop: *mut Py_ssize_t,
        step: *mut Py_ssize_t,
    ) -> c_int;
    pub(crate) fn PyDict_SetItem(dict: *mut PyObject, key: *mut PyObject, value: *mut PyObject) -> c_int;
    pub(crate) fn PySequence_Tuple(object: *mut PyObject) -> *mut PyObject;
    pub(crate) fn PySet_New(iterable: *mut PyObject) -> *mut PyObject;
    pub(crate) fn PyFrozenSet_New(iterable: *mut PyObject) -> *mut PyObject;
    pub(crate) fn PyNumber_And(left: *mut PyObject, right: *mut PyObject) -> *mut PyObject;
    pub(crate) fn PyNumber_Or(left: *mut PyObject, right: *mut PyObject) -> *mut PyObject;
    pub(crate) fn PyNumber_Xor(left: *mut PyObject, right: *mut PyObject) -> *mut PyObject;
    pub(crate) fn PyNumber_Subtract(left: *mut PyObject, right: *mut PyObject) -> *mut PyObject;
    pub(crate) fn PyObject_GetBuffer(object: *mut PyObject, view: *mut Py_buffer, flags: c_int) -> c_int;
    pub(crate) fn PyBuffer_Release(view: *mut Py_buffer);
}

/// Buffer that a Python object exports through the buffer protocol. The struct has been part of the
/// stable ABI since Python 3.11, and its layout has not changed since 3.3.
#[repr(C)]
#[allow(non_camel_case_types, reason = "its name in C")]
pub(crate) struct Py_buffer {
    pub(crate) buf: *mut c_void,
    pub(crate) obj: *mut PyObject,
    pub(crate) len: Py_ssize_t,
    pub(crate) itemsize: Py_ssize_t,
    pub(crate) readonly: c_int,
    pub(crate) ndim: c_int,
    pub(crate) format: *mut c_char,
    pub(crate) shape: *mut Py_ssize_t,
    pub(crate) strides: *mut Py_ssize_t,
    pub(crate) suboffsets: *mut Py_ssize_t,
    pub(crate) internal: *mut c_void,
}

/// Flags of a buffer request. They request format, extents and strides, and accept read-only memory.
pub(crate) const BUFFER_FLAGS: c_int = 0x1c;

unsafe extern "C" {
    pub(crate) fn PyObject_CheckBuffer(object: *mut PyObject) -> c_int;
    pub(crate) fn PyUnicode_AsUTF8AndSize(unicode: *mut PyObject, size: *mut Py_ssize_t) -> *const c_char;
    // In the stable ABI since 3.10.
    pub(crate) fn PyObject_GenericGetDict(object: *mut PyObject, closure: *mut c_void) -> *mut PyObject;
    // In the stable ABI since 3.7, but missing from `pyo3-ffi`.
    pub(crate) fn PyObject_GenericSetDict(
        object: *mut PyObject,
        value: *mut PyObject,
        closure: *mut c_void,
    ) -> c_int;
    pub(crate) fn PyVectorcall_Call(
        callable: *mut PyObject,
        args: *mut PyObject,
        kwargs: *mut PyObject,
    ) -> *mut PyObject;
}

/// Type of the C function `PyObject_Vectorcall`, which calls any Python object and must be called
/// inside [`run`]. The third argument is the number of positional arguments, optionally combined
/// with [`ARGUMENTS_OFFSET`].
pub(crate) type Vectorcall =
    unsafe extern "C-unwind" fn(*mut PyObject, *const *mut PyObject, usize, *mut PyObject) -> *mut PyObject;

/// Type of the C function `PyObject_GetOptionalAttr`, which looks up an attribute and must be
/// called inside [`run`]. The function returns 1 if the attribute exists, 0 if not, and -1 with an
/// exception set on failure.
pub(crate) type OptionalAttr =
    unsafe extern "C-unwind" fn(*mut PyObject, *mut PyObject, *mut *mut PyObject) -> c_int;

/// Runs `code`, which may execute Python code. If the interpreter unwinds the thread during its
/// shutdown, the unwinding stops here and never reaches the caller.
///
/// While the interpreter shuts down, versions before 3.14 terminate every other thread that waits for the GIL, by
/// unwinding its stack. The unwinding must not pass through frames of native code, which may hold locks or forbid
/// unwinding. The thread therefore waits here until the process ends; it no longer holds the GIL.
#[inline(always)]
pub(crate) fn run<T>(code: impl FnOnce() -> T) -> T {
    struct Ended;
    impl Drop for Ended {
        #[cold]
        fn drop(&mut self) {
            loop {
                std::thread::park();
            }
        }
    }
    let ended = Ended;
    let result = code();
    std::mem::forget(ended);
    result
}

/// Declares functions of CPython and wraps each function in [`run`], because it may run Python code
/// although its name does not suggest this. An object that is released may have a destructor, and
/// before 3.12 an allocation may run the garbage collector.
macro_rules! guarded {
    ($(fn $name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        mod unguarded {
            use super::*;
            unsafe extern "C-unwind" {
                $( pub(super) fn $name($($arg: $type),*) $(-> $result)?; )*
            }
        }
        $(
            #[inline(always)]
            #[expect(non_snake_case, reason = "CPython's name")]
            pub(crate) unsafe fn $name($($arg: $type),*) $(-> $result)? {
                // SAFETY: the caller fulfils the requirements of CPython.
                run(|| unsafe { unguarded::$name($($arg),*) })
            }
        )*
    };
}

guarded! {
    fn Py_DecRef(object: *mut PyObject);
    fn PyDict_DelItem(dict: *mut PyObject, key: *mut PyObject) -> c_int;
    fn PyDict_New() -> *mut PyObject;
    fn PyErr_CheckSignals() -> c_int;
    fn PyErr_Clear();
    fn PyErr_NormalizeException(
        class: *mut *mut PyObject,
        value: *mut *mut PyObject,
        trace: *mut *mut PyObject
    );
    fn PyErr_Restore(class: *mut PyObject, value: *mut PyObject, trace: *mut PyObject);
    fn PyErr_SetObject(class: *mut PyObject, value: *mut PyObject);
    fn PyFloat_AsDouble(object: *mut PyObject) -> c_double;
    fn PyGILState_Release(state: PyGILState_STATE);
    fn PyImport_ImportModule(name: *const c_char) -> *mut PyObject;
    fn PyList_New(len: Py_ssize_t) -> *mut PyObject;
    fn PyLong_AsLongLongAndOverflow(object: *mut PyObject, overflow: *mut c_int) -> c_longlong;
    fn PyObject_Size(object: *mut PyObject) -> Py_ssize_t;
    fn PyObject_GenericGetAttr(object: *mut PyObject, name: *mut PyObject) -> *mut PyObject;
    fn PyObject_GenericSetAttr(object: *mut PyObject, name: *mut PyObject, value: *mut PyObject) -> c_int;
    fn PyObject_ClearWeakRefs(object: *mut PyObject);
    fn PyTuple_New(len: Py_ssize_t) -> *mut PyObject;
    fn PyWeakref_NewRef(object: *mut PyObject, callback: *mut PyObject) -> *mut PyObject;
    fn PyType_GenericAlloc(class: *mut PyTypeObject, items: Py_ssize_t) -> *mut PyObject;
}

/// Type flag of classes whose instances support the vectorcall protocol.
pub(crate) const HAVE_VECTORCALL: u64 = 1 << 11;
/// Flag in the argument count of a vectorcall. It permits the callee to overwrite the word before
/// the first argument during the call.
pub(crate) const ARGUMENTS_OFFSET: usize = 1 << (usize::BITS - 1);

static VECTORCALL: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static CURRENT_THREAD: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static THREAD_ID: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static IS_FINALIZING: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static OPTIONAL_ATTR: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Looks up the functions whose names differ between versions of CPython. If a function is missing,
/// returns the name of the function as the error.
pub(crate) fn init() -> Result<(), &'static str> {
    let find = |slot: &AtomicPtr<c_void>, names: &[&'static CStr]| {
        let symbol =
            names.iter().map(|name| anyfn_attach::process_symbol(name)).find(|symbol| !symbol.is_null());
        slot.store(symbol.unwrap_or(ptr::null_mut()), Ordering::Relaxed);
        symbol.map(drop).ok_or_else(|| names[0].to_str().unwrap_or_default())
    };
    // Before 3.11 the first function is only an inline function in a header. The second takes a dictionary where the
    // first takes a tuple of names, and the extension passes neither.
    find(&VECTORCALL, &[c"PyObject_Vectorcall", c"PyObject_VectorcallDict"])?;
    find(&CURRENT_THREAD, &[c"PyThreadState_GetUnchecked", c"_PyThreadState_UncheckedGet"])?;
    find(&THREAD_ID, &[c"PyThreadState_GetID"])?;
    find(&OPTIONAL_ATTR, &[c"PyObject_GetOptionalAttr", c"_PyObject_LookupAttr"])?;
    find(&IS_FINALIZING, &[c"Py_IsFinalizing", c"_Py_IsFinalizing"])
}

#[inline(always)]
pub(crate) fn vectorcall() -> Vectorcall {
    // SAFETY: `init` has stored this function, since the module cannot be used otherwise; the type is that of the function.
    unsafe { transmute::<*mut c_void, Vectorcall>(VECTORCALL.load(Ordering::Relaxed)) }
}

#[inline(always)]
pub(crate) fn optional_attr() -> OptionalAttr {
    // SAFETY: `init` has stored this function, since the module cannot be used otherwise; the type is that of the function.
    unsafe { transmute::<*mut c_void, OptionalAttr>(OPTIONAL_ATTR.load(Ordering::Relaxed)) }
}

/// Returns the current thread state, or NULL if the thread has no state. Before 3.12, the result is the state of the
/// thread that holds the GIL, which may be another thread.
#[inline(always)]
pub(crate) fn current_thread() -> *mut PyThreadState {
    let function = CURRENT_THREAD.load(Ordering::Relaxed);
    // SAFETY: `init` has stored this function; the type is that of the function.
    let function = unsafe { transmute::<*mut c_void, unsafe extern "C" fn() -> *mut PyThreadState>(function) };
    // SAFETY: the function may be called at any time, from any thread.
    unsafe { function() }
}

/// Returns the id of the current thread state. The interpreter never reuses the id for another
/// thread.
///
/// # Safety
/// The GIL must be held.
#[inline(always)]
pub(crate) unsafe fn thread_id() -> u64 {
    let function = THREAD_ID.load(Ordering::Relaxed);
    // SAFETY: `init` has stored this function; the type is that of the function.
    let function =
        unsafe { transmute::<*mut c_void, unsafe extern "C" fn(*mut PyThreadState) -> u64>(function) };
    // SAFETY: a thread that holds the GIL has a valid thread state.
    unsafe { function(current_thread()) }
}

/// Returns true if the interpreter is shutting down.
pub(crate) fn is_finalizing() -> bool {
    let function = IS_FINALIZING.load(Ordering::Relaxed);
    // SAFETY: `init` has stored this function; the type is that of the function.
    let function = unsafe { transmute::<*mut c_void, unsafe extern "C" fn() -> c_int>(function) };
    // SAFETY: the function may be called at any time, from any thread.
    unsafe { function() != 0 }
}
