//! A small safe layer over CPython's C API, on which the rest of the extension is built.
//!
//! [`Obj`] is a borrowed reference and [`Own`] an owned one. Neither leaves its thread, and both exist only while the
//! thread holds the GIL, so their methods are safe. As in C code, a failed call leaves its exception in the
//! interpreter. [`Raised`] reports the failure without containing the exception, so the call path does no extra work.
//!
//! CPython functions that are missing from the stable ABI, or that joined it after 3.9, are declared in [`raw`].

use std::borrow::Cow;
use std::cell::Cell;
use std::ffi::{CStr, c_int, c_long};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};

use pyo3_ffi as ffi;

pub(crate) use ffi::PyObject;

pub(crate) mod builtins;
pub(crate) mod raw;

/// Marker that an exception is set in the interpreter.
#[derive(Debug)]
pub(crate) struct Raised;

/// Result of an operation that may raise an exception.
pub(crate) type Res<T> = Result<T, Raised>;

/// A borrowed reference to a Python object.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Obj<'a>(NonNull<PyObject>, PhantomData<&'a ()>);

/// An owned reference to a Python object.
#[repr(transparent)]
pub(crate) struct Own(NonNull<PyObject>);

/// Calls a function of CPython that returns a new reference, or NULL with an exception set.
///
/// # Safety
/// The arguments of the call must be valid, and the thread must hold the GIL. The function must return a new reference,
/// or NULL with an exception set. The macro is used outside `unsafe` blocks, so each use has its own SAFETY comment.
macro_rules! unsafe_new_ref {
    ($call:expr) => {{
        // SAFETY: the user of the macro asserts that the arguments are valid and the GIL is held.
        let object = $crate::py::raw::run(|| unsafe { $call });
        // SAFETY: the user of the macro asserts that this is a new reference, or NULL with an exception set.
        unsafe { $crate::py::Own::from_result(object) }
    }};
}
pub(crate) use unsafe_new_ref;

/// Calls a function of CPython that returns a new reference, or NULL without an exception if there is no result.
///
/// # Safety
/// The arguments of the call must be valid, and the thread must hold the GIL. The function must return a new reference or NULL.
macro_rules! unsafe_new_ref_or_none {
    ($call:expr) => {{
        // SAFETY: the user of the macro asserts that the arguments are valid and the GIL is held.
        let object = unsafe { $call };
        // SAFETY: the user of the macro asserts that this is a new reference or NULL.
        unsafe { $crate::py::Own::from_nullable(object) }
    }};
}
pub(crate) use unsafe_new_ref_or_none;

/// Calls a function of CPython that returns a borrowed reference or NULL.
///
/// # Safety
/// The arguments of the call must be valid, and the thread must hold the GIL. The object must be kept alive by
/// another reference for as long as the result is used.
macro_rules! unsafe_borrowed_ref {
    ($call:expr) => {{
        // SAFETY: the user of the macro asserts that the arguments are valid and the GIL is held.
        let object = unsafe { $call };
        // SAFETY: the user of the macro asserts that another reference keeps the object alive while the result is used.
        unsafe { $crate::py::Obj::from_nullable(object) }
    }};
}

impl<'a> Obj<'a> {
    /// Makes a borrowed reference from a pointer.
    ///
    /// # Safety
    /// The thread must hold the GIL for `'a`, and `object` must be valid for `'a`.
    #[inline(always)]
    pub(crate) unsafe fn from_ptr(object: *mut PyObject) -> Obj<'a> {
        // SAFETY: a valid object is not NULL.
        Obj(unsafe { NonNull::new_unchecked(object) }, PhantomData)
    }

    /// Makes a borrowed reference from a pointer, or returns `None` for NULL.
    ///
    /// # Safety
    /// The conditions of [`Obj::from_ptr`] apply, but `object` may be NULL.
    #[inline]
    pub(crate) unsafe fn from_nullable(object: *mut PyObject) -> Option<Obj<'a>> {
        NonNull::new(object).map(|object| Obj(object, PhantomData))
    }

    #[inline(always)]
    pub(crate) fn as_ptr(self) -> *mut PyObject {
        self.0.as_ptr()
    }

    #[inline(always)]
    pub(crate) fn to_own(self) -> Own {
        builtins::add_reference(self);
        Own(self.0)
    }

    /// Returns the address of the object's class.
    #[inline(always)]
    pub(crate) fn type_ptr(self) -> *mut ffi::PyTypeObject {
        // SAFETY: the object is valid.
        unsafe { ffi::Py_TYPE(self.as_ptr()) }
    }

    /// Returns the object's class as an object.
    pub(crate) fn class(self) -> Obj<'a> {
        // SAFETY: the object keeps its type alive.
        unsafe { Obj::from_ptr(self.type_ptr().cast()) }
    }

    /// Returns the name of the object's class, for messages.
    pub(crate) fn class_name(self) -> String {
        self.class().attr(names::NAME.get()).and_then(|name| name.obj().to_text()).unwrap_or_else(|Raised| {
            clear_error();
            "object".into()
        })
    }

    #[inline(always)]
    pub(crate) fn is(self, other: *mut PyObject) -> bool {
        ptr::eq(self.as_ptr(), other)
    }

    #[inline(always)]
    pub(crate) fn is_none(self) -> bool {
        self.is(none_ptr())
    }

    /// Returns the type flags of the object's class.
    pub(crate) fn type_flags(self) -> u64 {
        // SAFETY: the object is valid.
        #[allow(clippy::useless_conversion, reason = "the C type has 32 bits on some platforms")]
        unsafe { ffi::PyType_GetFlags(self.type_ptr()) }.into()
    }

    /// Returns true if the object is the class `base` or a class derived from it.
    pub(crate) fn is_subclass_of(self, base: *mut PyObject) -> bool {
        // SAFETY: both objects are valid types.
        self.type_flags() & ffi::Py_TPFLAGS_TYPE_SUBCLASS != 0
            && !base.is_null()
            && unsafe { ffi::PyType_IsSubtype(self.as_ptr().cast(), base.cast()) } != 0
    }

    /// Returns true if the object is an instance of `class` or of a class derived from it.
    pub(crate) fn is_instance_of(self, class: *mut PyObject) -> bool {
        // SAFETY: both objects are valid types.
        !class.is_null() && unsafe { ffi::PyType_IsSubtype(self.type_ptr(), class.cast()) } != 0
    }

    pub(crate) fn attr(self, name: Obj<'_>) -> Res<Own> {
        // SAFETY: both objects are valid and the GIL is held; the result is a new reference, or NULL with an exception set.
        unsafe_new_ref!(raw::PyObject_GetAttr(self.as_ptr(), name.as_ptr()))
    }

    /// Returns the attribute called `name`, or `None` if the object has no such attribute.
    pub(crate) fn attr_opt(self, name: Obj<'_>) -> Res<Option<Own>> {
        let mut value = ptr::null_mut();
        // SAFETY: both objects are valid and the GIL is held; the call writes a new reference or NULL.
        check(raw::run(|| unsafe { raw::optional_attr()(self.as_ptr(), name.as_ptr(), &mut value) }))?;
        // SAFETY: the call wrote a new reference or NULL.
        Ok(unsafe { Own::from_nullable(value) })
    }

    pub(crate) fn set_attr(self, name: Obj<'_>, value: Obj<'_>) -> Res<()> {
        // SAFETY: all objects are valid and the GIL is held.
        check(raw::run(|| unsafe { raw::PyObject_SetAttr(self.as_ptr(), name.as_ptr(), value.as_ptr()) }))
    }

    /// Calls the object with positional arguments.
    pub(crate) fn call(self, args: &[Obj<'_>]) -> Res<Own> {
        // SAFETY: `Obj` is a transparent pointer, all objects are valid, and the GIL is held; the result is a new
        // reference, or NULL with an exception set.
        unsafe_new_ref!(raw::vectorcall()(self.as_ptr(), args.as_ptr().cast(), args.len(), ptr::null_mut(),))
    }

    /// Calls the object. `names` is a tuple of the names of the keyword arguments, whose values are
    /// the last elements of `args`.
    pub(crate) fn call_with(self, mut args: Vec<Own>, names: Obj<'_>) -> Res<Own> {
        let named = args.split_off(args.len() - names.tuple_len());
        let (args, kwargs) = (tuple(args)?, dict()?);
        for (index, value) in named.iter().enumerate() {
            if let Some(name) = tuple_get(names, index) {
                dict_set(kwargs.obj(), name, value.obj())?;
            }
        }
        // SAFETY: the arguments are a tuple and a dictionary with string keys; the result is a new reference, or NULL
        // with an exception set.
        unsafe_new_ref!(raw::PyObject_Call(self.as_ptr(), args.as_ptr(), kwargs.as_ptr()))
    }

    /// Calls the object with keyword arguments only.
    pub(crate) fn call_named(self, named: &[(&CStr, Obj<'_>)]) -> Res<Own> {
        let args = tuple(Vec::new())?;
        // SAFETY: the GIL is held; the result is a new reference, or NULL with an exception set.
        let kwargs = unsafe_new_ref!(raw::PyDict_New())?;
        for (name, value) in named {
            // SAFETY: the dictionary, the name and the object are valid.
            check(unsafe { ffi::PyDict_SetItemString(kwargs.as_ptr(), name.as_ptr(), value.as_ptr()) })?;
        }
        // SAFETY: the arguments are a tuple and a dictionary with string keys; the result is a new reference, or NULL
        // with an exception set.
        unsafe_new_ref!(raw::PyObject_Call(self.as_ptr(), args.as_ptr(), kwargs.as_ptr()))
    }

    /// Returns the content of a string as UTF-8. Raises an exception if the object is not a `str`
    /// or contains lone surrogates.
    #[inline]
    pub(crate) fn str_bytes(self) -> Res<&'a [u8]> {
        let mut size: ffi::Py_ssize_t = 0;
        // SAFETY: the object is valid and the GIL is held; an exception is set for types other than `str`.
        let data = unsafe { raw::PyUnicode_AsUTF8AndSize(self.as_ptr(), &mut size) };
        if data.is_null() {
            return Err(Raised);
        }
        // SAFETY: the string object owns `size` bytes at `data` for as long as it lives.
        Ok(unsafe { std::slice::from_raw_parts(data.cast(), size as usize) })
    }

    /// Copies the content of a Python string to a Rust string.
    pub(crate) fn to_text(self) -> Res<String> {
        self.str_bytes().map(|bytes| text_of(bytes).into_owned())
    }

    /// Returns the result of `str(object)`, or raises the exception that this call has raised.
    pub(crate) fn str(self) -> Res<Own> {
        // SAFETY: the object is valid and the GIL is held; the result is a new reference, or NULL with an exception set.
        unsafe_new_ref!(raw::PyObject_Str(self.as_ptr()))
    }

    /// Returns the value of an int as an `i64`. If the value does not fit in an `i64`, the error is
    /// [`IntError::Overflow`] and no exception is set.
    #[inline]
    pub(crate) fn int(self) -> Result<i64, IntError> {
        let mut overflow: c_int = 0;
        // SAFETY: the object is valid and the GIL is held.
        let value = unsafe { raw::PyLong_AsLongLongAndOverflow(self.as_ptr(), &mut overflow) };
        if value == -1 {
            if overflow != 0 {
                return Err(IntError::Overflow);
            }
            if error_occurred() {
                return Err(IntError::Raised);
            }
        }
        Ok(value)
    }

    /// Returns the value of an int that represents an address.
    pub(crate) fn address(self) -> Res<u64> {
        // SAFETY: the object is valid and the GIL is held.
        let address = unsafe { ffi::PyLong_AsVoidPtr(self.as_ptr()) };
        if address.is_null() && error_occurred() { Err(Raised) } else { Ok(address.addr() as u64) }
    }

    #[inline]
    pub(crate) fn float(self) -> Res<f64> {
        // SAFETY: the object is valid and the GIL is held.
        let value = unsafe { raw::PyFloat_AsDouble(self.as_ptr()) };
        if value == -1.0 && error_occurred() { Err(Raised) } else { Ok(value) }
    }

    pub(crate) fn is_true(self) -> Res<bool> {
        // SAFETY: the object is valid and the GIL is held.
        match raw::run(|| unsafe { raw::PyObject_IsTrue(self.as_ptr()) }) {
            -1 => Err(Raised),
            truth => Ok(truth != 0),
        }
    }

    /// Returns the content of a bytes object.
    pub(crate) fn bytes(self) -> Res<&'a [u8]> {
        let mut data = ptr::null_mut();
        let mut size: ffi::Py_ssize_t = 0;
        // SAFETY: the object is valid and the GIL is held; an exception is set for types other than `bytes`.
        check(unsafe { ffi::PyBytes_AsStringAndSize(self.as_ptr(), &mut data, &mut size) })?;
        // SAFETY: the bytes object owns `size` bytes at `data` for as long as it lives.
        Ok(unsafe { std::slice::from_raw_parts(data.cast(), size as usize) })
    }

    /// Returns the number of items of a tuple.
    pub(crate) fn tuple_len(self) -> usize {
        // SAFETY: the object is valid; for anything but a tuple, which the caller passes, the result is -1 with an
        // exception set.
        let len = unsafe { ffi::PyTuple_Size(self.as_ptr()) };
        usize::try_from(len).unwrap_or_default()
    }

    /// Returns true if the object is a float or an instance of a class derived from `float`.
    pub(crate) fn is_float(self) -> bool {
        // SAFETY: the object is valid.
        unsafe { ffi::PyFloat_Check(self.as_ptr()) != 0 }
    }

    pub(crate) fn is_callable(self) -> bool {
        // SAFETY: the object is valid.
        unsafe { ffi::PyCallable_Check(self.as_ptr()) != 0 }
    }
}

/// Reason why an int could not be converted to an `i64`.
pub(crate) enum IntError {
    /// The value does not fit in 64 bits; no exception is set.
    Overflow,
    /// The conversion raised an exception, which is set in the interpreter.
    Raised,
}

impl Own {
    /// Makes an owned reference from the result of a C function.
    ///
    /// # Safety
    /// The GIL must be held. A non-NULL `object` must be an owned reference, which passes to the result. If `object`
    /// is NULL, an exception must be set.
    #[inline(always)]
    pub(crate) unsafe fn from_result(object: *mut PyObject) -> Res<Own> {
        NonNull::new(object).map(Own).ok_or(Raised)
    }

    /// Makes an owned reference from a pointer, or returns `None` for NULL.
    ///
    /// # Safety
    /// The conditions of [`Own::from_result`] apply, except that NULL needs no exception: it means that there is no object.
    #[inline]
    pub(crate) unsafe fn from_nullable(object: *mut PyObject) -> Option<Own> {
        NonNull::new(object).map(Own)
    }

    /// Borrows the object for as long as this reference exists.
    #[inline(always)]
    pub(crate) fn obj(&self) -> Obj<'_> {
        Obj(self.0, PhantomData)
    }

    /// Returns the object's address.
    #[inline(always)]
    pub(crate) fn as_ptr(&self) -> *mut PyObject {
        self.0.as_ptr()
    }

    /// Transfers ownership of the reference to C code.
    #[inline(always)]
    pub(crate) fn into_ptr(self) -> *mut PyObject {
        ManuallyDrop::new(self).0.as_ptr()
    }
}

impl Drop for Own {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: this reference is owned, and the GIL is held while an `Own` exists.
        unsafe { builtins::release_reference(self.0.as_ptr()) };
    }
}

/// Static slot for an object that lives as long as the process.
pub(crate) struct Global(AtomicPtr<PyObject>);

impl Global {
    pub(crate) const fn new() -> Global {
        Global(AtomicPtr::new(ptr::null_mut()))
    }

    /// Returns the address of the object, or NULL before it is set.
    #[inline(always)]
    pub(crate) fn ptr(&self) -> *mut PyObject {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns the object. Must only be called for slots that the module's initialisation fills.
    #[inline]
    pub(crate) fn get(&self) -> Obj<'static> {
        self.try_get().unwrap_or_else(|| {
            // SAFETY: None is always valid. Reached only in a module whose initialisation has failed.
            unsafe { Obj::from_ptr(none_ptr()) }
        })
    }

    #[inline]
    pub(crate) fn try_get(&self) -> Option<Obj<'static>> {
        // SAFETY: an object that is stored here is never released.
        unsafe { Obj::from_nullable(self.ptr()) }
    }

    /// Stores an object permanently. An object that was stored before stays alive, because it may still be in use.
    pub(crate) fn set(&self, object: Own) {
        self.0.store(object.into_ptr(), Ordering::Relaxed);
    }
}

/// Interned strings of the attribute names and other names that the extension uses.
pub(crate) mod names {
    use super::{Global, Raised, Res, intern};

    macro_rules! names {
        ($($name:ident = $text:literal;)*) => {
            $( pub(crate) static $name: Global = Global::new(); )*
            pub(crate) fn init() -> Res<()> {
                $( $name.set(intern($text).map_err(|Raised| Raised)?); )*
                Ok(())
            }
        };
    }

    names! {
        NAME = c"__name__";
        QUALNAME = c"__qualname__";
        MODULE = c"__module__";
        DOC = c"__doc__";
        NEW = c"__new__";
        NATIVE = c"<native function>";
        ERROR = c"__anyfn_error__";
        NOTES = c"__notes__";
        INDEX = c"__index__";
        FLOAT = c"__float__";
        DLPACK = c"__dlpack__";
        DLPACK_DEVICE = c"__dlpack_device__";
        EXCHANGE = c"__dlpack_c_exchange_api__";
        STREAM = c"stream";
        MAX_VERSION = c"max_version";
        DL_DEVICE = c"dl_device";
        COPY = c"copy";
        NUMPY = c"numpy";
        ARRAY_API = c"_ARRAY_API";
        FSPATH = c"__fspath__";
        C_API = c"_C_API";
        GREENLET = c"greenlet";
        PARENT = c"parent";
        VALUE = c"value";
        TB_FRAME = c"tb_frame";
        TB_LINENO = c"tb_lineno";
        TB_NEXT = c"tb_next";
        F_CODE = c"f_code";
        F_BACK = c"f_back";
        F_LINENO = c"f_lineno";
        F_GLOBALS = c"f_globals";
        CO_FILENAME = c"co_filename";
        CO_NAME = c"co_name";
        FROM_BYTES = c"from_bytes";
        CONSTRUCTOR = c"__constructor__";
        INIT = c"__init__";
        POST_INIT = c"__post_init__";
        MRO = c"__mro__";
        KEY = c"name";
        ALLOW_MISSING = c"allow_missing";
        KEYS = c"keys";
        SORT = c"sort";
    }
}

/// Built-in exception classes.
pub(crate) mod exceptions {
    use super::PyObject;
    use pyo3_ffi as ffi;

    macro_rules! exceptions {
        ($($name:ident = $symbol:ident;)*) => { $(
            #[inline]
            pub(crate) fn $name() -> *mut PyObject {
                // SAFETY: the interpreter sets this variable before it loads any extension.
                unsafe { ffi::$symbol }
            }
        )* };
    }

    exceptions! {
        attribute_error = PyExc_AttributeError;
        base_exception = PyExc_BaseException;
        exception = PyExc_Exception;
        index_error = PyExc_IndexError;
        import_error = PyExc_ImportError;
        key_error = PyExc_KeyError;
        memory_error = PyExc_MemoryError;
        overflow_error = PyExc_OverflowError;
        recursion_error = PyExc_RecursionError;
        runtime_error = PyExc_RuntimeError;
        buffer_error = PyExc_BufferError;
        system_error = PyExc_SystemError;
        type_error = PyExc_TypeError;
        value_error = PyExc_ValueError;
    }
}

#[inline(always)]
pub(crate) fn none_ptr() -> *mut PyObject {
    // SAFETY: this only takes the address of None.
    unsafe { ffi::Py_None() }
}

#[inline(always)]
pub(crate) fn none() -> Own {
    // SAFETY: None is always valid.
    unsafe { Obj::from_ptr(none_ptr()) }.to_own()
}

/// Returns the object `NotImplemented`.
pub(crate) fn not_implemented() -> Own {
    // SAFETY: this only takes the address of `NotImplemented`.
    let object = unsafe { ffi::Py_NotImplemented() };
    // SAFETY: `NotImplemented` is always valid.
    unsafe { Obj::from_ptr(object) }.to_own()
}

#[inline]
pub(crate) fn boolean(value: bool) -> Own {
    // SAFETY: the GIL is held; the result is a new reference.
    let object = unsafe { ffi::PyBool_FromLong(c_long::from(value)) };
    // SAFETY: the result of `PyBool_FromLong` is never NULL.
    Own(unsafe { NonNull::new_unchecked(object) })
}

#[inline]
pub(crate) fn int(value: i64) -> Res<Own> {
    // SAFETY: the GIL is held; the result is a new reference, or NULL with an exception set.
    unsafe_new_ref!(ffi::PyLong_FromLongLong(value))
}

#[inline]
pub(crate) fn float(value: f64) -> Res<Own> {
    // SAFETY: the GIL is held; the result is a new reference, or NULL with an exception set.
    unsafe_new_ref!(ffi::PyFloat_FromDouble(value))
}

/// Makes a string from UTF-8 bytes. Raises an exception if the bytes are not valid UTF-8.
#[inline]
pub(crate) fn string(bytes: &[u8]) -> Res<Own> {
    // SAFETY: the GIL is held and the bytes are valid; the result is a new reference, or NULL with an exception set.
    unsafe_new_ref!(ffi::PyUnicode_DecodeUTF8(bytes.as_ptr().cast(), bytes.len() as isize, ptr::null()))
}

/// Makes a string from bytes that should be UTF-8. Invalid sequences are replaced by U+FFFD.
pub(crate) fn string_lossy(bytes: &[u8]) -> Res<Own> {
    // SAFETY: the GIL is held, and the bytes and the C string are valid; the result is a new reference, or NULL with
    // an exception set.
    unsafe_new_ref!(
        ffi::PyUnicode_DecodeUTF8(bytes.as_ptr().cast(), bytes.len() as isize, c"replace".as_ptr(),)
    )
}

#[inline]
pub(crate) fn bytes(content: &[u8]) -> Res<Own> {
    // SAFETY: the GIL is held and the bytes are valid; the result is a new reference, or NULL with an exception set.
    unsafe_new_ref!(ffi::PyBytes_FromStringAndSize(content.as_ptr().cast(), content.len() as isize))
}

pub(crate) fn intern(text: &CStr) -> Res<Own> {
    // SAFETY: the GIL is held; the result is a new reference, or NULL with an exception set.
    unsafe_new_ref!(ffi::PyUnicode_InternFromString(text.as_ptr()))
}

pub(crate) fn tuple(items: Vec<Own>) -> Res<Own> {
    // SAFETY: the GIL is held; the result is a new reference, or NULL with an exception set.
    let tuple = unsafe_new_ref!(raw::PyTuple_New(items.len() as isize))?;
    for (index, item) in items.into_iter().enumerate() {
        // SAFETY: the tuple is new and not shared, and the index is within its size; the reference passes to the tuple.
        check(unsafe { ffi::PyTuple_SetItem(tuple.as_ptr(), index as isize, item.into_ptr()) })?;
    }
    Ok(tuple)
}

pub(crate) fn list(items: Vec<Own>) -> Res<Own> {
    // SAFETY: the GIL is held; the result is a new reference, or NULL with an exception set.
    let list = unsafe_new_ref!(raw::PyList_New(items.len() as isize))?;
    for (index, item) in items.into_iter().enumerate() {
        // SAFETY: the list is new and not shared, and the index is within its size; the reference passes to the list.
        check(unsafe { ffi::PyList_SetItem(list.as_ptr(), index as isize, item.into_ptr()) })?;
    }
    Ok(list)
}

/// Returns the number of items of a list.
#[inline]
pub(crate) fn list_len(list: Obj<'_>) -> usize {
    // SAFETY: the object is a list; for other objects the result is -1 with an exception set.
    usize::try_from(unsafe { ffi::PyList_Size(list.as_ptr()) }).unwrap_or_default()
}

/// Returns the item of a list at `index`, or `None` if the index is past the end of the list.
#[inline]
pub(crate) fn list_get(list: Obj<'_>, index: usize) -> Option<Own> {
    // SAFETY: no code runs before the reference count of the item is incremented.
    unsafe { list_peek(list, index) }.map(Obj::to_own)
}

/// Borrows the item of a list at `index`. Returns `None` if the index is past the end of the list.
///
/// # Safety
/// Python code may change the list and so release the item: the item must not be used after Python code has run.
#[inline]
pub(crate) unsafe fn list_peek<'a>(list: Obj<'a>, index: usize) -> Option<Obj<'a>> {
    // SAFETY: the item is read before Python code runs.
    if let Some(items) = unsafe { builtins::list_items(list) } {
        // SAFETY: the list keeps the item alive, and the caller uses it only for that long.
        return unsafe { Obj::from_nullable(*items.get(index)?) };
    }
    if index >= list_len(list) {
        return None;
    }
    // SAFETY: the object is a list and the index is within its size. The caller uses the item only while the list
    // keeps it alive.
    unsafe_borrowed_ref!(ffi::PyList_GetItem(list.as_ptr(), index as isize))
}

/// Borrows the item of a tuple at `index`, which the tuple keeps alive. Returns `None` if the index
/// is past the end of the tuple.
#[inline]
pub(crate) fn tuple_get<'a>(tuple: Obj<'a>, index: usize) -> Option<Obj<'a>> {
    if let Some(items) = builtins::tuple_items(tuple) {
        // SAFETY: the tuple keeps its items for as long as it lives.
        return unsafe { Obj::from_nullable(*items.get(index)?) };
    }
    if index >= tuple.tuple_len() {
        return None;
    }
    // SAFETY: the object is a tuple, which keeps its items for as long as it lives, and the index is within its size.
    unsafe_borrowed_ref!(ffi::PyTuple_GetItem(tuple.as_ptr(), index as isize))
}

/// Returns the item of a tuple at `index`, or `None` if the index is past the end of the tuple.
#[inline]
pub(crate) fn tuple_item(tuple: Obj<'_>, index: usize) -> Option<Own> {
    tuple_get(tuple, index).map(Obj::to_own)
}

/// Makes a tuple of two items.
#[inline]
pub(crate) fn pair(first: Own, second: Own) -> Res<Own> {
    // SAFETY: the GIL is held; the result is a new reference, or NULL with an exception set.
    let tuple = unsafe_new_ref!(raw::PyTuple_New(2))?;
    // SAFETY: the tuple is new and not shared; the reference passes to it.
    check(unsafe { ffi::PyTuple_SetItem(tuple.as_ptr(), 0, first.into_ptr()) })?;
    // SAFETY: the tuple is new, has two items and is not shared; the reference passes to it.
    check(unsafe { ffi::PyTuple_SetItem(tuple.as_ptr(), 1, second.into_ptr()) })?;
    Ok(tuple)
}

/// Returns the number of key-value pairs in a dictionary.
#[inline]
pub(crate) fn dict_len(dict: Obj<'_>) -> usize {
    // SAFETY: the object is a dictionary; for other objects the result is -1 with an exception set.
    usize::try_from(unsafe { ffi::PyDict_Size(dict.as_ptr()) }).unwrap_or_default()
}

/// Returns the next key-value pair of a dictionary and advances `position`, which starts at 0. If
/// the dictionary changes between two calls, pairs may be skipped or returned twice.
#[inline]
pub(crate) fn dict_next(dict: Obj<'_>, position: &mut ffi::Py_ssize_t) -> Option<(Own, Own)> {
    // SAFETY: no code runs before both reference counts are incremented.
    unsafe { dict_peek(dict, position) }.map(|(key, value)| (key.to_own(), value.to_own()))
}

/// Borrows the next key-value pair of a dictionary, like [`dict_next`] but without owned
/// references.
///
/// # Safety
/// Python code may change the dictionary and so release the pair: neither object may be used after Python code has run.
#[inline]
pub(crate) unsafe fn dict_peek<'a>(
    dict: Obj<'a>,
    position: &mut ffi::Py_ssize_t,
) -> Option<(Obj<'a>, Obj<'a>)> {
    let (mut key, mut value) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: the object is a dictionary and the out-pointers are writable; each call checks the position against the size.
    if unsafe { ffi::PyDict_Next(dict.as_ptr(), position, &mut key, &mut value) } == 0 {
        return None;
    }
    // SAFETY: the dictionary keeps the key alive, and the caller uses it only for that long.
    let key = unsafe { Obj::from_nullable(key) }?;
    // SAFETY: the dictionary keeps the value alive, and the caller uses it only for that long.
    Some((key, unsafe { Obj::from_nullable(value) }?))
}

/// Returns true if two objects are identical or equal.
pub(crate) fn equal(left: Obj<'_>, right: Obj<'_>) -> Res<bool> {
    // SAFETY: both objects are valid and the GIL is held.
    match raw::run(|| unsafe { raw::PyObject_RichCompareBool(left.as_ptr(), right.as_ptr(), ffi::Py_EQ) }) {
        -1 => Err(Raised),
        equal => Ok(equal != 0),
    }
}

/// Borrows the content of a string argument. Raises `TypeError` for any other object, and `ValueError` for lone
/// surrogates.
#[inline]
pub(crate) fn str_argument(object: Obj<'_>) -> Res<&str> {
    match object.str_bytes().map(std::str::from_utf8) {
        Ok(Ok(text)) => Ok(text),
        _ => not_text(object),
    }
}

#[cold]
fn not_text<T>(object: Obj<'_>) -> Res<T> {
    clear_error();
    if object.type_flags() & ffi::Py_TPFLAGS_UNICODE_SUBCLASS != 0 {
        return raise(
            exceptions::value_error(),
            "the str holds lone surrogates and cannot be encoded as UTF-8",
        );
    }
    raise(exceptions::type_error(), &format!("expected a str but got {}", object.class_name()))
}

/// Returns UTF-8 from CPython as a string. This is several times as fast as `String::from_utf8_lossy`.
pub(crate) fn text_of(bytes: &[u8]) -> Cow<'_, str> {
    std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}

/// Returns the result of `hash(object)`, or raises the exception that this call has raised.
pub(crate) fn hash(object: Obj<'_>) -> Res<ffi::Py_hash_t> {
    // SAFETY: the object is valid and the GIL is held.
    match raw::run(|| unsafe { raw::PyObject_Hash(object.as_ptr()) }) {
        -1 => Err(Raised),
        hash => Ok(hash),
    }
}

/// Returns true if two Python strings are equal.
pub(crate) fn same_text(a: Obj<'_>, b: Obj<'_>) -> bool {
    // SAFETY: both objects are strings, as the callers ensure; for other objects the result is -1 with an exception set.
    unsafe { ffi::PyUnicode_Compare(a.as_ptr(), b.as_ptr()) == 0 }
}

/// Makes an empty dictionary.
pub(crate) fn dict() -> Res<Own> {
    // SAFETY: the GIL is held.
    unsafe_new_ref!(raw::PyDict_New())
}

/// Returns the value that a dictionary holds for a key, or `None` if the key is absent. The key must be hashable.
pub(crate) fn dict_get(dict: Obj<'_>, key: Obj<'_>) -> Option<Own> {
    // SAFETY: the dictionary and the key are valid. The dictionary keeps the value alive until its reference count is
    // incremented, since no code runs in between.
    unsafe_borrowed_ref!(ffi::PyDict_GetItem(dict.as_ptr(), key.as_ptr())).map(Obj::to_own)
}

/// Sets the value of a key in a dictionary.
pub(crate) fn dict_set(dict: Obj<'_>, key: Obj<'_>, value: Obj<'_>) -> Res<()> {
    // SAFETY: the dictionary and the objects are valid.
    check(raw::run(|| unsafe { raw::PyDict_SetItem(dict.as_ptr(), key.as_ptr(), value.as_ptr()) }))
}

/// Returns the module called `name`, and imports it if necessary.
pub(crate) fn import(name: &CStr) -> Res<Own> {
    // SAFETY: the GIL is held; the result is a new reference, or NULL with an exception set.
    unsafe_new_ref!(raw::PyImport_ImportModule(name.as_ptr()))
}

/// Returns the module called `name`. Returns `None` if it has not been imported yet, or if its import is blocked by
/// `sys.modules[name] = None`.
pub(crate) fn imported(name: &CStr) -> Option<Own> {
    // SAFETY: the GIL is held; the result is a borrowed reference to the dictionary of modules, or NULL.
    let modules = unsafe_borrowed_ref!(ffi::PyImport_GetModuleDict())?;
    // SAFETY: the dictionary and the name are valid; the result is a borrowed reference or NULL, and no exception is set.
    let module = unsafe_borrowed_ref!(ffi::PyDict_GetItemString(modules.as_ptr(), name.as_ptr()))?;
    (!module.is_none()).then(|| module.to_own())
}

/// Returns the module called `name` like [`imported`], but takes the name as a Python string.
pub(crate) fn imported_by(name: Obj<'_>) -> Option<Own> {
    // SAFETY: the GIL is held; the result is a borrowed reference to the dictionary of modules, or NULL.
    let module = dict_get(unsafe_borrowed_ref!(ffi::PyImport_GetModuleDict())?, name)?;
    (!module.obj().is_none()).then_some(module)
}

/// Converts the status code of a CPython function into a `Result`. A negative code means that an
/// exception is set.
#[inline]
pub(crate) fn check(code: c_int) -> Res<()> {
    if code < 0 { Err(Raised) } else { Ok(()) }
}

#[inline]
pub(crate) fn error_occurred() -> bool {
    // SAFETY: the GIL is held.
    unsafe { !ffi::PyErr_Occurred().is_null() }
}

pub(crate) fn clear_error() {
    // SAFETY: the GIL is held.
    unsafe { raw::PyErr_Clear() }
}

/// Returns true if the current exception is an instance of `class`.
pub(crate) fn error_is(class: *mut PyObject) -> bool {
    // SAFETY: the GIL is held and the class is valid.
    unsafe { ffi::PyErr_ExceptionMatches(class) != 0 }
}

/// Raises an exception of class `class` with a message.
#[cold]
pub(crate) fn raise<T>(class: *mut PyObject, message: &str) -> Res<T> {
    if let Ok(text) = string_lossy(message.as_bytes()) {
        // SAFETY: the class and the string are valid, and the GIL is held.
        unsafe { raw::PyErr_SetObject(class, text.as_ptr()) };
    }
    Err(Raised)
}

/// Returns true if an exception is set.
pub(crate) fn is_raised() -> bool {
    // SAFETY: the GIL is held.
    !unsafe { ffi::PyErr_Occurred() }.is_null()
}

/// Removes the current exception from the interpreter and returns it, with the traceback attached
/// to the exception object.
pub(crate) fn take_error() -> Option<Own> {
    let (mut class, mut value, mut trace) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    // SAFETY: the GIL is held; the call writes three references or NULL.
    unsafe { ffi::PyErr_Fetch(&mut class, &mut value, &mut trace) };
    // SAFETY: the pointers are owned references or NULL, which the function may replace, and the GIL is held.
    unsafe { raw::PyErr_NormalizeException(&mut class, &mut value, &mut trace) };
    // SAFETY: `PyErr_Fetch` transferred this reference to us, or wrote NULL.
    drop(unsafe { Own::from_nullable(class) });
    // SAFETY: `PyErr_Fetch` transferred this reference to us, or wrote NULL.
    let trace = unsafe { Own::from_nullable(trace) };
    // SAFETY: `PyErr_Fetch` transferred this reference to us, or wrote NULL.
    let value = unsafe { Own::from_nullable(value) }?;
    if let Some(trace) = trace {
        // SAFETY: the arguments are an exception and a traceback; the exception takes its own reference to the traceback.
        unsafe { ffi::PyException_SetTraceback(value.as_ptr(), trace.as_ptr()) };
    }
    Some(value)
}

/// Raises an exception object again, with the traceback that it already has.
pub(crate) fn restore_error(exception: Own) -> Raised {
    // SAFETY: the exception is valid; the result is a new reference or NULL.
    let trace = unsafe { ffi::PyException_GetTraceback(exception.as_ptr()) };
    let class = exception.obj().class().to_own();
    // SAFETY: all three references pass to the interpreter; the class is that of the exception.
    unsafe { raw::PyErr_Restore(class.into_ptr(), exception.into_ptr(), trace) };
    Raised
}

/// Maximum depth of nested calls of [`nested`]. Each nested container takes one such call.
const NESTING_MAX: u32 = 1000;

/// Runs `body`, which may call [`nested`] again for nested objects. Raises `RecursionError` if the
/// nesting is too deep or the stack is nearly used up.
pub(crate) fn nested<T>(body: impl FnOnce() -> Res<T>) -> Res<T> {
    if crate::stack::is_short() {
        return raise(exceptions::recursion_error(), crate::stack::SHORT);
    }
    thread_local! {
        static DEPTH: Cell<u32> = const { Cell::new(0) };
    }
    struct Left;
    impl Drop for Left {
        fn drop(&mut self) {
            DEPTH.set(DEPTH.get() - 1);
        }
    }
    let depth = DEPTH.get();
    if depth >= NESTING_MAX {
        return raise(
            exceptions::recursion_error(),
            &format!("containers are nested more than {NESTING_MAX} levels deep, or one contains itself"),
        );
    }
    DEPTH.set(depth + 1);
    let _left = Left;
    body()
}
