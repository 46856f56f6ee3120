//! The small safe layer over CPython's C API that the rest of the extension is written in.
//!
//! [`Obj`] is a borrowed and [`Own`] a counted reference. Neither leaves its thread, and both exist only while the
//! thread holds the interpreter's lock, so their methods are safe. A failed call leaves its exception in the
//! interpreter, as C code does; [`Raised`] says so without carrying it, which keeps the call path free of work.
//!
//! Functions of CPython that the stable ABI does not list, or not since 3.9, are declared in [`raw`].

use std::cell::Cell;
use std::ffi::{CStr, c_int, c_long};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};

use pyo3_ffi as ffi;

pub(crate) use ffi::PyObject;

pub(crate) mod raw;

/// An exception is set in the interpreter.
#[derive(Debug)]
pub(crate) struct Raised;

/// Result of what may raise an exception.
pub(crate) type Res<T> = Result<T, Raised>;

/// A borrowed reference to a Python object.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Obj<'a>(NonNull<PyObject>, PhantomData<&'a ()>);

/// A counted reference to a Python object.
#[repr(transparent)]
pub(crate) struct Own(NonNull<PyObject>);

/// Calls a function of CPython that returns a new reference, or NULL with an exception set.
///
/// # Safety
/// The arguments of the call must be valid, and the thread must hold the interpreter's lock. The function must return a
/// reference that passes to its caller, or NULL with an exception set. The macro stands in no `unsafe` block, so each use has
/// a comment on its own.
macro_rules! unsafe_new_ref {
    ($call:expr) => {{
        // SAFETY: whoever writes the macro's name asserts that the arguments are valid and the lock is held.
        let object = $crate::py::raw::run(|| unsafe { $call });
        // SAFETY: whoever writes the macro's name asserts that this is a new reference, or NULL with an exception set.
        unsafe { $crate::py::Own::from_result(object) }
    }};
}
pub(crate) use unsafe_new_ref;

/// Calls a function of CPython that returns a new reference, or NULL without an exception where there is none.
///
/// # Safety
/// The arguments of the call must be valid, and the thread must hold the interpreter's lock. The function must return a
/// reference that passes to its caller, or NULL.
macro_rules! unsafe_new_ref_or_none {
    ($call:expr) => {{
        // SAFETY: whoever writes the macro's name asserts that the arguments are valid and the lock is held.
        let object = unsafe { $call };
        // SAFETY: whoever writes the macro's name asserts that this is a new reference or NULL.
        unsafe { $crate::py::Own::from_nullable(object) }
    }};
}
pub(crate) use unsafe_new_ref_or_none;

/// Calls a function of CPython that returns a borrowed reference or NULL.
///
/// # Safety
/// The arguments of the call must be valid, and the thread must hold the interpreter's lock. Something else must keep the
/// object for as long as the result is used.
macro_rules! unsafe_borrowed_ref {
    ($call:expr) => {{
        // SAFETY: whoever writes the macro's name asserts that the arguments are valid and the lock is held.
        let object = unsafe { $call };
        // SAFETY: whoever writes the macro's name asserts that something keeps the object while the result is used.
        unsafe { $crate::py::Obj::from_nullable(object) }
    }};
}

impl<'a> Obj<'a> {
    /// # Safety
    /// The thread must hold the interpreter's lock for `'a`, and `object` must be valid for `'a`.
    #[inline(always)]
    pub(crate) unsafe fn from_ptr(object: *mut PyObject) -> Obj<'a> {
        // SAFETY: a valid object is not NULL.
        Obj(unsafe { NonNull::new_unchecked(object) }, PhantomData)
    }

    /// # Safety
    /// As [`Obj::from_ptr`], but `object` may be NULL.
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
        // SAFETY: the object is valid and the lock is held.
        unsafe { ffi::Py_INCREF(self.as_ptr()) };
        Own(self.0)
    }

    /// Address of the object's type.
    #[inline(always)]
    pub(crate) fn type_ptr(self) -> *mut ffi::PyTypeObject {
        // SAFETY: the object is valid.
        unsafe { ffi::Py_TYPE(self.as_ptr()) }
    }

    /// The object's type as an object.
    pub(crate) fn class(self) -> Obj<'a> {
        // SAFETY: the object keeps its type alive.
        unsafe { Obj::from_ptr(self.type_ptr().cast()) }
    }

    /// Name of the object's type, for messages.
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

    /// Flags of the object's type.
    pub(crate) fn type_flags(self) -> u64 {
        // SAFETY: the object is valid.
        #[allow(clippy::useless_conversion, reason = "the C type has 32 bits on some platforms")]
        unsafe { ffi::PyType_GetFlags(self.type_ptr()) }.into()
    }

    /// Whether the object is a class derived from `base`, or `base` itself.
    pub(crate) fn is_subclass_of(self, base: *mut PyObject) -> bool {
        // SAFETY: both are valid types.
        self.type_flags() & ffi::Py_TPFLAGS_TYPE_SUBCLASS != 0
            && !base.is_null()
            && unsafe { ffi::PyType_IsSubtype(self.as_ptr().cast(), base.cast()) } != 0
    }

    /// Whether the object is of the class or of one derived from it.
    pub(crate) fn is_instance_of(self, class: *mut PyObject) -> bool {
        // SAFETY: both are valid types.
        !class.is_null() && unsafe { ffi::PyType_IsSubtype(self.type_ptr(), class.cast()) } != 0
    }

    pub(crate) fn attr(self, name: Obj<'_>) -> Res<Own> {
        // SAFETY: both are valid and the lock is held; the result is a new reference.
        unsafe_new_ref!(raw::PyObject_GetAttr(self.as_ptr(), name.as_ptr()))
    }

    /// The attribute, or `None` if the object has none of that name.
    pub(crate) fn attr_opt(self, name: Obj<'_>) -> Res<Option<Own>> {
        let mut value = ptr::null_mut();
        // SAFETY: both are valid and the lock is held; a new reference or NULL is written.
        check(raw::run(|| unsafe { raw::optional_attr()(self.as_ptr(), name.as_ptr(), &mut value) }))?;
        // SAFETY: the call wrote a new reference or NULL.
        Ok(unsafe { Own::from_nullable(value) })
    }

    pub(crate) fn set_attr(self, name: Obj<'_>, value: Obj<'_>) -> Res<()> {
        // SAFETY: all are valid and the lock is held.
        check(raw::run(|| unsafe { raw::PyObject_SetAttr(self.as_ptr(), name.as_ptr(), value.as_ptr()) }))
    }

    /// Calls the object with positional arguments.
    pub(crate) fn call(self, args: &[Obj<'_>]) -> Res<Own> {
        // SAFETY: `Obj` is a transparent pointer, all objects are valid, the lock is held; a new reference.
        unsafe_new_ref!(raw::vectorcall()(self.as_ptr(), args.as_ptr().cast(), args.len(), ptr::null_mut(),))
    }

    /// Calls the object; the last arguments are those that a tuple of strings names.
    pub(crate) fn call_with(self, mut args: Vec<Own>, names: Obj<'_>) -> Res<Own> {
        let named = args.split_off(args.len() - names.tuple_len());
        let (args, kwargs) = (tuple(args)?, dict()?);
        for (index, value) in named.iter().enumerate() {
            if let Some(name) = tuple_get(names, index) {
                dict_set(kwargs.obj(), name, value.obj())?;
            }
        }
        // SAFETY: a tuple and a dictionary with strings as keys; a new reference or an exception.
        unsafe_new_ref!(raw::PyObject_Call(self.as_ptr(), args.as_ptr(), kwargs.as_ptr()))
    }

    /// Calls the object with keyword arguments only.
    pub(crate) fn call_named(self, named: &[(&CStr, Obj<'_>)]) -> Res<Own> {
        let args = tuple(Vec::new())?;
        // SAFETY: the lock is held; a new reference or an exception.
        let kwargs = unsafe_new_ref!(raw::PyDict_New())?;
        for (name, value) in named {
            // SAFETY: a dictionary, a valid name and object.
            check(unsafe { ffi::PyDict_SetItemString(kwargs.as_ptr(), name.as_ptr(), value.as_ptr()) })?;
        }
        // SAFETY: a tuple and a dictionary with strings as keys; a new reference or an exception.
        unsafe_new_ref!(raw::PyObject_Call(self.as_ptr(), args.as_ptr(), kwargs.as_ptr()))
    }

    /// The text of a string; `None` if the object is none. Fails for lone surrogates.
    #[inline]
    pub(crate) fn str_bytes(self) -> Res<&'a [u8]> {
        let mut size: ffi::Py_ssize_t = 0;
        // SAFETY: the object is valid and the lock is held; for other types than str an exception is set.
        let data = unsafe { raw::PyUnicode_AsUTF8AndSize(self.as_ptr(), &mut size) };
        if data.is_null() {
            return Err(Raised);
        }
        // SAFETY: the string object owns `size` bytes at `data` for as long as it lives.
        Ok(unsafe { std::slice::from_raw_parts(data.cast(), size as usize) })
    }

    /// The text of a string, copied.
    pub(crate) fn to_text(self) -> Res<String> {
        self.str_bytes().map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }

    /// `str(object)`.
    pub(crate) fn str(self) -> Res<Own> {
        // SAFETY: the object is valid and the lock is held; a new reference.
        unsafe_new_ref!(raw::PyObject_Str(self.as_ptr()))
    }

    /// The value of an int that fits 64 bits. The error says why not, without an exception for a large one.
    #[inline]
    pub(crate) fn int(self) -> Result<i64, IntError> {
        let mut overflow: c_int = 0;
        // SAFETY: the object is valid and the lock is held.
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

    /// The value of an int as an address.
    pub(crate) fn address(self) -> Res<u64> {
        // SAFETY: the object is valid and the lock is held.
        let address = unsafe { ffi::PyLong_AsVoidPtr(self.as_ptr()) };
        if address.is_null() && error_occurred() { Err(Raised) } else { Ok(address.addr() as u64) }
    }

    #[inline]
    pub(crate) fn float(self) -> Res<f64> {
        // SAFETY: the object is valid and the lock is held.
        let value = unsafe { raw::PyFloat_AsDouble(self.as_ptr()) };
        if value == -1.0 && error_occurred() { Err(Raised) } else { Ok(value) }
    }

    pub(crate) fn is_true(self) -> Res<bool> {
        // SAFETY: the object is valid and the lock is held.
        match raw::run(|| unsafe { raw::PyObject_IsTrue(self.as_ptr()) }) {
            -1 => Err(Raised),
            truth => Ok(truth != 0),
        }
    }

    /// The content of a bytes object.
    pub(crate) fn bytes(self) -> Res<&'a [u8]> {
        let mut data = ptr::null_mut();
        let mut size: ffi::Py_ssize_t = 0;
        // SAFETY: the object is valid and the lock is held; for other types than bytes an exception is set.
        check(unsafe { ffi::PyBytes_AsStringAndSize(self.as_ptr(), &mut data, &mut size) })?;
        // SAFETY: the bytes object owns `size` bytes at `data` for as long as it lives.
        Ok(unsafe { std::slice::from_raw_parts(data.cast(), size as usize) })
    }

    /// Number of items of a tuple.
    pub(crate) fn tuple_len(self) -> usize {
        // SAFETY: the object is valid; the caller has a tuple, and for others the result is -1 with an exception.
        let len = unsafe { ffi::PyTuple_Size(self.as_ptr()) };
        usize::try_from(len).unwrap_or_default()
    }

    /// Whether the object is a float or of a class derived from it.
    pub(crate) fn is_float(self) -> bool {
        // SAFETY: the object is valid.
        unsafe { ffi::PyFloat_Check(self.as_ptr()) != 0 }
    }

    pub(crate) fn is_callable(self) -> bool {
        // SAFETY: the object is valid.
        unsafe { ffi::PyCallable_Check(self.as_ptr()) != 0 }
    }
}

/// Why an int could not be read.
pub(crate) enum IntError {
    /// It has more than 64 bits; no exception is set.
    Overflow,
    /// An exception is set.
    Raised,
}

impl Own {
    /// # Safety
    /// The lock must be held. A non-NULL `object` must be a reference that passes to the result; if it is NULL, an
    /// exception must be set.
    #[inline(always)]
    pub(crate) unsafe fn from_result(object: *mut PyObject) -> Res<Own> {
        NonNull::new(object).map(Own).ok_or(Raised)
    }

    /// # Safety
    /// As [`Own::from_result`]; NULL just means that there is none.
    #[inline]
    pub(crate) unsafe fn from_nullable(object: *mut PyObject) -> Option<Own> {
        NonNull::new(object).map(Own)
    }

    /// The object, borrowed.
    #[inline(always)]
    pub(crate) fn obj(&self) -> Obj<'_> {
        Obj(self.0, PhantomData)
    }

    /// The object's address.
    #[inline(always)]
    pub(crate) fn as_ptr(&self) -> *mut PyObject {
        self.0.as_ptr()
    }

    /// The reference itself, for C code that takes it over.
    #[inline(always)]
    pub(crate) fn into_ptr(self) -> *mut PyObject {
        ManuallyDrop::new(self).0.as_ptr()
    }
}

impl Drop for Own {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: this reference is counted, and the lock is held while an `Own` exists.
        unsafe { raw::Py_DecRef(self.0.as_ptr()) };
    }
}

/// A place for an object that lives as long as the process.
pub(crate) struct Global(AtomicPtr<PyObject>);

impl Global {
    pub(crate) const fn new() -> Global {
        Global(AtomicPtr::new(ptr::null_mut()))
    }

    /// Address of the object; NULL before it is set.
    #[inline(always)]
    pub(crate) fn ptr(&self) -> *mut PyObject {
        self.0.load(Ordering::Relaxed)
    }

    /// The object. Only for places that the start of the module fills.
    #[inline]
    pub(crate) fn get(&self) -> Obj<'static> {
        self.try_get().unwrap_or_else(|| {
            // SAFETY: None is always valid. Never reached, but for a module whose start has failed.
            unsafe { Obj::from_ptr(none_ptr()) }
        })
    }

    #[inline]
    pub(crate) fn try_get(&self) -> Option<Obj<'static>> {
        // SAFETY: what is set here is never released.
        unsafe { Obj::from_nullable(self.ptr()) }
    }

    /// Sets the object, for ever. An earlier one stays alive: others may still use it.
    pub(crate) fn set(&self, object: Own) {
        self.0.store(object.into_ptr(), Ordering::Relaxed);
    }
}

/// Interned names.
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
        NEW = c"__new__";
        NATIVE = c"<native function>";
        ERROR = c"__anyfn_error__";
        NOTES = c"__notes__";
        INDEX = c"__index__";
        FLOAT = c"__float__";
        DLPACK = c"__dlpack__";
        DLPACK_DEVICE = c"__dlpack_device__";
        EXCHANGE = c"__dlpack_c_exchange_api__";
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
                // SAFETY: the interpreter sets this before it loads any extension.
                unsafe { ffi::$symbol }
            }
        )* };
    }

    exceptions! {
        attribute_error = PyExc_AttributeError;
        base_exception = PyExc_BaseException;
        index_error = PyExc_IndexError;
        import_error = PyExc_ImportError;
        key_error = PyExc_KeyError;
        memory_error = PyExc_MemoryError;
        overflow_error = PyExc_OverflowError;
        recursion_error = PyExc_RecursionError;
        runtime_error = PyExc_RuntimeError;
        system_error = PyExc_SystemError;
        type_error = PyExc_TypeError;
        value_error = PyExc_ValueError;
    }
}

#[inline(always)]
pub(crate) fn none_ptr() -> *mut PyObject {
    // SAFETY: only takes the address of None.
    unsafe { ffi::Py_None() }
}

#[inline(always)]
pub(crate) fn none() -> Own {
    // SAFETY: None is always valid.
    unsafe { Obj::from_ptr(none_ptr()) }.to_own()
}

/// `NotImplemented`.
pub(crate) fn not_implemented() -> Own {
    // SAFETY: only takes its address.
    let object = unsafe { ffi::Py_NotImplemented() };
    // SAFETY: always valid.
    unsafe { Obj::from_ptr(object) }.to_own()
}

#[inline]
pub(crate) fn boolean(value: bool) -> Own {
    // SAFETY: the lock is held; a new reference.
    let object = unsafe { ffi::PyBool_FromLong(c_long::from(value)) };
    // SAFETY: never NULL.
    Own(unsafe { NonNull::new_unchecked(object) })
}

#[inline]
pub(crate) fn int(value: i64) -> Res<Own> {
    // SAFETY: the lock is held; a new reference or an exception.
    unsafe_new_ref!(ffi::PyLong_FromLongLong(value))
}

#[inline]
pub(crate) fn float(value: f64) -> Res<Own> {
    // SAFETY: the lock is held; a new reference or an exception.
    unsafe_new_ref!(ffi::PyFloat_FromDouble(value))
}

/// A string of UTF-8 bytes; an exception if they are not UTF-8.
#[inline]
pub(crate) fn string(bytes: &[u8]) -> Res<Own> {
    // SAFETY: the lock is held, the bytes are valid; a new reference or an exception.
    unsafe_new_ref!(ffi::PyUnicode_DecodeUTF8(bytes.as_ptr().cast(), bytes.len() as isize, ptr::null()))
}

/// A string of bytes that ought to be UTF-8; others are replaced.
pub(crate) fn string_lossy(bytes: &[u8]) -> Res<Own> {
    // SAFETY: the lock is held, the bytes and the C string are valid; a new reference or an exception.
    unsafe_new_ref!(
        ffi::PyUnicode_DecodeUTF8(bytes.as_ptr().cast(), bytes.len() as isize, c"replace".as_ptr(),)
    )
}

#[inline]
pub(crate) fn bytes(content: &[u8]) -> Res<Own> {
    // SAFETY: the lock is held, the bytes are valid; a new reference or an exception.
    unsafe_new_ref!(ffi::PyBytes_FromStringAndSize(content.as_ptr().cast(), content.len() as isize))
}

pub(crate) fn intern(text: &CStr) -> Res<Own> {
    // SAFETY: the lock is held; a new reference or an exception.
    unsafe_new_ref!(ffi::PyUnicode_InternFromString(text.as_ptr()))
}

pub(crate) fn tuple(items: Vec<Own>) -> Res<Own> {
    // SAFETY: the lock is held; a new reference or an exception.
    let tuple = unsafe_new_ref!(raw::PyTuple_New(items.len() as isize))?;
    for (index, item) in items.into_iter().enumerate() {
        // SAFETY: a new tuple that nobody else knows, an index within its size; the reference passes to it.
        check(unsafe { ffi::PyTuple_SetItem(tuple.as_ptr(), index as isize, item.into_ptr()) })?;
    }
    Ok(tuple)
}

pub(crate) fn list(items: Vec<Own>) -> Res<Own> {
    // SAFETY: the lock is held; a new reference or an exception.
    let list = unsafe_new_ref!(raw::PyList_New(items.len() as isize))?;
    for (index, item) in items.into_iter().enumerate() {
        // SAFETY: a new list that nobody else knows, an index within its size; the reference passes to it.
        check(unsafe { ffi::PyList_SetItem(list.as_ptr(), index as isize, item.into_ptr()) })?;
    }
    Ok(list)
}

/// Number of items of a list.
#[inline]
pub(crate) fn list_len(list: Obj<'_>) -> usize {
    // SAFETY: a list; for others the result is -1 with an exception.
    usize::try_from(unsafe { ffi::PyList_Size(list.as_ptr()) }).unwrap_or_default()
}

/// Item of a list; `None` beyond its end.
#[inline]
pub(crate) fn list_get(list: Obj<'_>, index: usize) -> Option<Own> {
    // SAFETY: nothing runs before the item is counted.
    unsafe { list_peek(list, index) }.map(Obj::to_own)
}

/// Item of a list, not counted; `None` beyond its end.
///
/// # Safety
/// The list keeps the item only until Python code runs, which may change the list: the item must not be used then.
#[inline]
pub(crate) unsafe fn list_peek<'a>(list: Obj<'a>, index: usize) -> Option<Obj<'a>> {
    if index >= list_len(list) {
        return None;
    }
    // SAFETY: a list and an index within its size. The caller uses the item while the list keeps it.
    unsafe_borrowed_ref!(ffi::PyList_GetItem(list.as_ptr(), index as isize))
}

/// Item of a tuple, which keeps it; `None` beyond its end.
#[inline]
pub(crate) fn tuple_get<'a>(tuple: Obj<'a>, index: usize) -> Option<Obj<'a>> {
    if index >= tuple.tuple_len() {
        return None;
    }
    // SAFETY: a tuple, which keeps its items for as long as it lives, and an index within its size.
    unsafe_borrowed_ref!(ffi::PyTuple_GetItem(tuple.as_ptr(), index as isize))
}

/// Item of a tuple; `None` beyond its end.
#[inline]
pub(crate) fn tuple_item(tuple: Obj<'_>, index: usize) -> Option<Own> {
    tuple_get(tuple, index).map(Obj::to_own)
}

/// A new tuple of two.
#[inline]
pub(crate) fn pair(first: Own, second: Own) -> Res<Own> {
    // SAFETY: the lock is held; a new reference or an exception.
    let tuple = unsafe_new_ref!(raw::PyTuple_New(2))?;
    // SAFETY: a new tuple that nobody else knows; the reference passes to it.
    check(unsafe { ffi::PyTuple_SetItem(tuple.as_ptr(), 0, first.into_ptr()) })?;
    // SAFETY: a new tuple of two that nobody else knows; the reference passes to it.
    check(unsafe { ffi::PyTuple_SetItem(tuple.as_ptr(), 1, second.into_ptr()) })?;
    Ok(tuple)
}

/// Number of pairs of a dictionary.
#[inline]
pub(crate) fn dict_len(dict: Obj<'_>) -> usize {
    // SAFETY: a dictionary; for others the result is -1 with an exception.
    usize::try_from(unsafe { ffi::PyDict_Size(dict.as_ptr()) }).unwrap_or_default()
}

/// The next pair of a dictionary behind a position, which begins with 0. If the dictionary changes between two calls, pairs
/// may be left out or come again.
#[inline]
pub(crate) fn dict_next(dict: Obj<'_>, position: &mut ffi::Py_ssize_t) -> Option<(Own, Own)> {
    // SAFETY: nothing runs before both are counted.
    unsafe { dict_peek(dict, position) }.map(|(key, value)| (key.to_own(), value.to_own()))
}

/// As [`dict_next`], with references that are not counted.
///
/// # Safety
/// The dictionary keeps both only until Python code runs, which may change it: they must not be used then.
#[inline]
pub(crate) unsafe fn dict_peek<'a>(
    dict: Obj<'a>,
    position: &mut ffi::Py_ssize_t,
) -> Option<(Obj<'a>, Obj<'a>)> {
    let (mut key, mut value) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: a dictionary and writable places; positions are checked against its size at each call.
    if unsafe { ffi::PyDict_Next(dict.as_ptr(), position, &mut key, &mut value) } == 0 {
        return None;
    }
    // SAFETY: the dictionary keeps the key, and the caller uses it only so long.
    let key = unsafe { Obj::from_nullable(key) }?;
    // SAFETY: the dictionary keeps the value, and the caller uses it only so long.
    Some((key, unsafe { Obj::from_nullable(value) }?))
}

/// Whether two objects are the same or equal.
pub(crate) fn equal(left: Obj<'_>, right: Obj<'_>) -> Res<bool> {
    // SAFETY: both are valid and the lock is held.
    match raw::run(|| unsafe { raw::PyObject_RichCompareBool(left.as_ptr(), right.as_ptr(), ffi::Py_EQ) }) {
        -1 => Err(Raised),
        equal => Ok(equal != 0),
    }
}

/// `hash(object)`.
pub(crate) fn hash(object: Obj<'_>) -> Res<ffi::Py_hash_t> {
    // SAFETY: a valid object, the lock is held.
    match raw::run(|| unsafe { raw::PyObject_Hash(object.as_ptr()) }) {
        -1 => Err(Raised),
        hash => Ok(hash),
    }
}

/// Whether two strings have the same text.
pub(crate) fn same_text(a: Obj<'_>, b: Obj<'_>) -> bool {
    // SAFETY: two strings; for others the result is -1 with an exception, which the callers rule out.
    unsafe { ffi::PyUnicode_Compare(a.as_ptr(), b.as_ptr()) == 0 }
}

/// A new, empty dictionary.
pub(crate) fn dict() -> Res<Own> {
    // SAFETY: the lock is held.
    unsafe_new_ref!(raw::PyDict_New())
}

/// What a dictionary has under a key that can be hashed.
pub(crate) fn dict_get(dict: Obj<'_>, key: Obj<'_>) -> Option<Own> {
    // SAFETY: a dictionary and a valid key. The dictionary keeps the value until it is counted: nothing runs in between.
    unsafe_borrowed_ref!(ffi::PyDict_GetItem(dict.as_ptr(), key.as_ptr())).map(Obj::to_own)
}

/// Puts a value under a key.
pub(crate) fn dict_set(dict: Obj<'_>, key: Obj<'_>, value: Obj<'_>) -> Res<()> {
    // SAFETY: a dictionary and valid objects.
    check(raw::run(|| unsafe { raw::PyDict_SetItem(dict.as_ptr(), key.as_ptr(), value.as_ptr()) }))
}

/// A module, imported if need be.
pub(crate) fn import(name: &CStr) -> Res<Own> {
    // SAFETY: the lock is held; a new reference or an exception.
    unsafe_new_ref!(raw::PyImport_ImportModule(name.as_ptr()))
}

/// A module that is imported already; nothing is imported.
pub(crate) fn imported(name: &CStr) -> Option<Own> {
    // SAFETY: the lock is held; a borrowed reference to the dictionary of modules, or NULL.
    let modules = unsafe_borrowed_ref!(ffi::PyImport_GetModuleDict())?;
    // SAFETY: a dictionary and a valid name; a borrowed reference or NULL, and no exception.
    let module = unsafe_borrowed_ref!(ffi::PyDict_GetItemString(modules.as_ptr(), name.as_ptr()))?;
    (!module.is_none()).then(|| module.to_own())
}

/// As [`imported`], by a name that is an object already.
pub(crate) fn imported_by(name: Obj<'_>) -> Option<Own> {
    // SAFETY: the lock is held; a borrowed reference to the dictionary of modules, or NULL.
    dict_get(unsafe_borrowed_ref!(ffi::PyImport_GetModuleDict())?, name)
}

/// Turns the result of a C function into a `Result`: negative means that an exception is set.
#[inline]
pub(crate) fn check(code: c_int) -> Res<()> {
    if code < 0 { Err(Raised) } else { Ok(()) }
}

#[inline]
pub(crate) fn error_occurred() -> bool {
    // SAFETY: the lock is held.
    unsafe { !ffi::PyErr_Occurred().is_null() }
}

pub(crate) fn clear_error() {
    // SAFETY: the lock is held.
    unsafe { raw::PyErr_Clear() }
}

/// Whether the exception that is set is of a class.
pub(crate) fn error_is(class: *mut PyObject) -> bool {
    // SAFETY: the lock is held and the class is valid.
    unsafe { ffi::PyErr_ExceptionMatches(class) != 0 }
}

/// Raises an exception of a class with a message.
#[cold]
pub(crate) fn raise<T>(class: *mut PyObject, message: &str) -> Res<T> {
    if let Ok(text) = string_lossy(message.as_bytes()) {
        // SAFETY: a class and a string, both valid; the lock is held.
        unsafe { raw::PyErr_SetObject(class, text.as_ptr()) };
    }
    Err(Raised)
}

/// Whether an exception is set.
pub(crate) fn is_raised() -> bool {
    // SAFETY: the lock is held.
    !unsafe { ffi::PyErr_Occurred() }.is_null()
}

/// Takes the exception that is set out of the interpreter, with its traceback attached.
pub(crate) fn take_error() -> Option<Own> {
    let (mut class, mut value, mut trace) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    // SAFETY: the lock is held; three references or NULL.
    unsafe { ffi::PyErr_Fetch(&mut class, &mut value, &mut trace) };
    // SAFETY: three references or NULL, which this function may exchange; the lock is held.
    unsafe { raw::PyErr_NormalizeException(&mut class, &mut value, &mut trace) };
    // SAFETY: the reference passes over.
    drop(unsafe { Own::from_nullable(class) });
    // SAFETY: `PyErr_Fetch` gave this reference to us, or NULL.
    let trace = unsafe { Own::from_nullable(trace) };
    // SAFETY: `PyErr_Fetch` gave this reference to us, or NULL.
    let value = unsafe { Own::from_nullable(value) }?;
    if let Some(trace) = trace {
        // SAFETY: an exception and a traceback; its own reference is taken.
        unsafe { ffi::PyException_SetTraceback(value.as_ptr(), trace.as_ptr()) };
    }
    Some(value)
}

/// Raises an exception object again, with the traceback that it has.
pub(crate) fn restore_error(exception: Own) -> Raised {
    // SAFETY: a valid exception; a new reference or NULL.
    let trace = unsafe { ffi::PyException_GetTraceback(exception.as_ptr()) };
    let class = exception.obj().class().to_own();
    // SAFETY: three references that pass over; the class is the exception's own.
    unsafe { raw::PyErr_Restore(class.into_ptr(), exception.into_ptr(), trace) };
    Raised
}

/// How deep containers may be nested where each level takes a native stack frame.
const NESTING_MAX: u32 = 1000;

/// Runs `body`, which may call itself for nested objects; too deep a nesting raises `RecursionError`.
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
