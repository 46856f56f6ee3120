//! Instances of the Python class `PackedFunc`, each of which owns a native function. [`crate::function`]
//! creates the class and implements calls.

use std::ffi::c_int;
use std::mem::offset_of;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use anyfn::__private::shorten;
use anyfn::abi::{
    AnyfnFunctionExt, OBJECT_FLAG_FUNCTION_EXT, OBJECT_FLAG_FUNCTION_KEEPS, OBJECT_FLAG_FUNCTION_RELEASES,
    TVMFFIFunctionCell, TVMFFIObject,
};
use anyfn::{ObjectRef, PackedFunc};
use pyo3_ffi as ffi;

use crate::params::Known;
use crate::py::{self, Global, Obj, Own, PyObject, Res};
use crate::{object, python_function};

/// Memory layout of an instance of `PackedFunc`.
#[repr(C)]
pub(crate) struct Layout {
    object: object::Layout,
    pub(crate) vectorcall: ffi::vectorcallfunc,
    /// Value of the function's `__name__`: an owned reference or NULL.
    pub(crate) name: *mut PyObject,
    /// Global name under which the function was found or registered: an owned reference or NULL.
    pub(crate) key: *mut PyObject,
    /// Parsed signature, read on first use: an owned pointer from `Box`, or NULL.
    pub(crate) known: *mut Known,
    /// The instance's `__dict__`, managed by Python.
    pub(crate) dict: *mut PyObject,
    /// List of weak references to the instance, managed by Python.
    pub(crate) weak: *mut PyObject,
}

/// The class `PackedFunc`.
pub(crate) static CLASS: Global = Global::new();

/// Vectorcall functions through which Python calls the instances of `PackedFunc`.
pub(crate) struct Entries {
    /// Two vectorcall functions. The first keeps the GIL during a call, and the second releases it.
    pub(crate) plain: [ffi::vectorcallfunc; 2],
    /// Functions like those in `plain` that also record the location of the call in Python code. They are used
    /// while a ledger exists.
    pub(crate) noted: [ffi::vectorcallfunc; 2],
}

impl Entries {
    /// Returns the vectorcall function of an instance. If `releases` is true, the function releases the GIL
    /// during calls.
    pub(crate) fn entry(&self, releases: bool) -> ffi::vectorcallfunc {
        let entries = if anyfn::has_ledger() { &self.noted } else { &self.plain };
        entries[usize::from(releases)]
    }
}

/// Vectorcall functions of all instances of `PackedFunc`, set by [`init`]. They are defined in `function.rs`,
/// which depends on this module.
static ENTRIES: OnceLock<&'static Entries> = OnceLock::new();

/// Sets the vectorcall functions of all instances of `PackedFunc`.
pub(crate) fn init(entries: &'static Entries) {
    // A second initialisation passes the same functions.
    let _ = ENTRIES.set(entries);
}

/// Makes the Python object of a native function.
///
/// `name` is used for messages and `__name__`. If `releases` is true, calls of a function that is not implemented in
/// Python release the GIL. Calls of a function that declares itself long-running or blocking release it, too. A choice
/// of the user ([`choose_release`]) takes precedence over both.
pub(crate) fn wrap(function: ObjectRef, name: Option<Obj<'_>>, releases: bool) -> Res<Own> {
    let header: *mut TVMFFIObject = function.as_handle().cast();
    // SAFETY: the reference keeps the object alive.
    let flags = unsafe { flags_of(header) }.load(Ordering::Relaxed);
    let releases = if flags & (OBJECT_FLAG_FUNCTION_RELEASES | OBJECT_FLAG_FUNCTION_KEEPS) != 0 {
        flags & OBJECT_FLAG_FUNCTION_RELEASES != 0
    } else {
        (releases && !python_function::is_python(&function)) || asks_for_release(&function, flags)
    };
    let Some(entries) = ENTRIES.get() else {
        return py::raise(py::exceptions::system_error(), "the extension is not initialised");
    };
    let own = object::wrap_as(CLASS.ptr().cast(), function)?;
    let layout: *mut Layout = own.as_ptr().cast();
    // SAFETY: the instance is new and not shared.
    let layout = unsafe { &mut *layout };
    layout.vectorcall = entries.entry(releases);
    layout.name = name.map_or(ptr::null_mut(), |name| name.to_own().into_ptr());
    Ok(own)
}

/// Returns the flags in the header of a native object.
///
/// # Safety
/// The object must be alive for `'a`.
unsafe fn flags_of<'a>(header: *mut TVMFFIObject) -> &'a AtomicU32 {
    // SAFETY: the caller guarantees a live object.
    let flags = unsafe { &raw mut (*header).flags };
    // SAFETY: the word is aligned and live, and the flags of functions are only used atomically.
    unsafe { AtomicU32::from_ptr(flags) }
}

/// Stores in a native function the choice whether calls from Python release the GIL. The choice
/// applies to the given instance and to all instances that are made later for the same function.
pub(crate) fn choose_release(callable: Obj<'_>, releases: bool) {
    let Some(entries) = ENTRIES.get() else { return };
    let (set, other) = if releases {
        (OBJECT_FLAG_FUNCTION_RELEASES, OBJECT_FLAG_FUNCTION_KEEPS)
    } else {
        (OBJECT_FLAG_FUNCTION_KEEPS, OBJECT_FLAG_FUNCTION_RELEASES)
    };
    // SAFETY: the instance keeps the function alive.
    let flags = unsafe { flags_of(object::handle_unchecked(callable)) };
    flags.fetch_or(set, Ordering::Relaxed);
    flags.fetch_and(!other, Ordering::Relaxed);
    let layout: *mut Layout = callable.as_ptr().cast();
    // SAFETY: only called for instances of `PackedFunc`, with the GIL held; a call in progress does not read this field
    // again.
    unsafe { (*layout).vectorcall = entries.entry(releases) };
}

/// Returns true if the function declares that it runs long or blocks. `flags` are the flags in the
/// function's header.
fn asks_for_release(function: &ObjectRef, flags: u32) -> bool {
    if flags & OBJECT_FLAG_FUNCTION_EXT == 0 {
        return false;
    }
    let header: *const TVMFFIObject = function.as_handle().cast();
    // SAFETY: a function has its cell behind the header.
    let cell: *const TVMFFIFunctionCell = unsafe { header.add(1) }.cast();
    // SAFETY: the flag shows that a pointer to the extension follows the cell.
    let ext: *const *const AnyfnFunctionExt = unsafe { cell.add(1) }.cast();
    // SAFETY: code that creates a function with this flag initialises the pointer.
    let ext = unsafe { *ext };
    // SAFETY: the pointer is NULL or refers to static data of the library that made the function.
    unsafe { ext.as_ref() }.is_some_and(|ext| ext.size >= 16 && ext.flags & 1 != 0)
}

/// Calls a `PackedFunc` through its vectorcall function, as Python does.
///
/// # Safety
/// `callable` must be an instance of `PackedFunc`, and the other arguments must be as Python passes them to the function
/// of a vectorcall.
#[inline(always)]
pub(crate) unsafe fn call_as_it_is(
    callable: *mut PyObject,
    args: *const *mut PyObject,
    nargsf: usize,
    kwnames: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: this is an instance of `PackedFunc`, which the caller keeps alive.
    let entry = unsafe { (*callable.cast::<Layout>()).vectorcall };
    // SAFETY: guaranteed by the caller.
    unsafe { entry(callable, args, nargsf, kwnames) }
}

/// Returns the native function of a Python object, or `None` if the object has no native function.
pub(crate) fn handle_as_packed(callable: Obj<'_>) -> Option<PackedFunc> {
    let object = object::reference_of(callable)?;
    PackedFunc::try_from_object(object).ok()
}

/// Borrows the name of a function as a Python object. `callable` must be an instance of `PackedFunc`.
pub(crate) fn name_object(callable: Obj<'_>) -> Option<Obj<'_>> {
    // SAFETY: the instance owns the object, or the pointer is NULL.
    unsafe { Obj::from_nullable(layout(callable).name) }
}

/// Returns the name of a function, for messages.
#[cold]
pub(crate) fn name_of(callable: Obj<'_>) -> String {
    let is_packed = callable.is_instance_of(CLASS.ptr());
    if let Some(Ok(key)) = is_packed.then(|| key(callable)).flatten().map(Obj::to_text) {
        return shorten(&key).into_owned();
    }
    let named = |name: Obj<'static>| {
        let name = callable.attr(name).ok()?;
        let is_str = name.obj().type_flags() & ffi::Py_TPFLAGS_UNICODE_SUBCLASS != 0;
        is_str.then(|| name.obj().to_text().ok()).flatten().filter(|name| !name.is_empty())
    };
    let name = if is_packed {
        named(py::names::NAME.get())
    } else {
        let name = named(py::names::QUALNAME.get()).or_else(|| named(py::names::NAME.get()));
        Some(name.map_or_else(
            || format!("{} object", shorten(&callable.class_name())),
            |name| format!("function '{}'", shorten(&name)),
        ))
    };
    py::clear_error();
    name.map_or_else(|| "PackedFunc".into(), |name| shorten(&name).into_owned())
}

/// Returns the global name under which a function was found or registered, if any.
pub(crate) fn key<'a>(callable: Obj<'a>) -> Option<Obj<'a>> {
    // SAFETY: the instance owns the object, or the pointer is NULL.
    unsafe { Obj::from_nullable(layout(callable).key) }
}

/// Sets the global name of a function. A name that is already set does not change.
pub(crate) fn set_key(callable: Obj<'_>, name: Obj<'_>) {
    if key(callable).is_none() {
        replace(callable, offset_of!(Layout, key), name);
    }
}

/// Borrows the content of an instance of `PackedFunc`.
pub(crate) fn layout<'a>(object: Obj<'a>) -> &'a Layout {
    // SAFETY: only called for instances of `PackedFunc`; the GIL is held, so no other code changes the instance meanwhile.
    unsafe { &*object.as_ptr().cast() }
}

/// Stores `value` in the field at the byte offset `offset` of an instance, and releases the previous value.
pub(crate) fn replace(object: Obj<'_>, offset: usize, value: Obj<'_>) -> c_int {
    // SAFETY: this is the offset of a field of `Layout`.
    let slot: *mut *mut PyObject = unsafe { object.as_ptr().byte_add(offset) }.cast();
    // SAFETY: this is a field of the instance, and the GIL is held.
    let old = unsafe { slot.replace(value.to_own().into_ptr()) };
    // SAFETY: the instance owned the old value, which is released only after it has been replaced.
    drop(unsafe { Own::from_nullable(old) });
    0
}
