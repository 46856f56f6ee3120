//! The class `Module`: calling a module directly calls its entry function.

use std::ffi::{CStr, c_void};
use std::mem::offset_of;
use std::ptr;

use pyo3_ffi as ffi;

use crate::py::{self, Global, Obj, Own, PyObject, Res};
use crate::types::{self, Class};
use crate::{object, packed};

/// Memory layout of an instance of `Module`.
#[repr(C)]
struct Layout {
    object: object::Layout,
    /// Function through which Python calls the module. It is NULL until the entry function is
    /// known, and until then Python calls [`call`].
    vectorcall: Option<ffi::vectorcallfunc>,
    /// Owned reference to a `PackedFunc` object for the module's entry function, or NULL until the entry
    /// function is known. The object belongs to this module alone; no other code receives it.
    entry: *mut PyObject,
}

/// The class `Module`, to which the Python code of the package adds its methods.
pub(crate) static CLASS: Global = Global::new();

const NAME: &CStr = c"anyfn.Module";

pub(crate) fn init() -> Res<()> {
    if CLASS.try_get().is_some() {
        return Ok(());
    }
    let members = vec![
        ffi::PyMemberDef {
            name: c"__vectorcalloffset__".as_ptr(),
            type_code: ffi::Py_T_PYSSIZET,
            offset: offset_of!(Layout, vectorcall) as isize,
            flags: ffi::Py_READONLY,
            doc: ptr::null(),
        },
        ffi::PyMemberDef::default(),
    ];
    let class = Class {
        name: NAME,
        size: size_of::<Layout>(),
        base_for_others: true,
        flags: py::raw::HAVE_VECTORCALL,
        base: Some(object::BUILTIN.get()),
        slots: &[
            (ffi::Py_tp_new, types::not_constructible as *mut c_void),
            (ffi::Py_tp_dealloc, dealloc as *mut c_void),
            (ffi::Py_tp_call, call as *mut c_void),
            // The table lives as long as the class: for the lifetime of the process.
            (ffi::Py_tp_members, members.leak().as_mut_ptr().cast()),
        ],
    };
    CLASS.set(class.make()?);
    Ok(())
}

/// Calls a module whose entry function has not been stored, as in the first call.
unsafe extern "C" fn call(module: *mut PyObject, args: *mut PyObject, names: *mut PyObject) -> *mut PyObject {
    // SAFETY: Python passes a valid object and holds the GIL.
    let object: Obj<'_> = unsafe { Obj::from_ptr(module) };
    let Ok(entry) = entry_of(object) else { return ptr::null_mut() };
    // SAFETY: Python passes a tuple, and a dictionary or NULL.
    unsafe { ffi::PyObject_Call(entry.as_ptr(), args, names) }
}

/// Returns the entry function of a module. If the module is a library, also stores the function in the
/// instance, because the entry function of a library never changes.
fn entry_of(module: Obj<'_>) -> Res<Own> {
    let layout: *mut Layout = module.as_ptr().cast();
    let entry = module.attr(py::intern(c"entry_func")?.obj())?;
    let kind = module.attr(py::intern(c"kind")?.obj())?;
    // SAFETY: the object is an instance of `Module`, and the GIL is held.
    let is_new = unsafe { (*layout).entry.is_null() };
    if is_new && entry.obj().is_instance_of(packed::CLASS.ptr()) && kind.obj().to_text()? == "library" {
        // SAFETY: the object is an instance of `Module`, and the GIL is held; the field is NULL, so no reference is lost.
        unsafe { (*layout).entry = entry.obj().to_own().into_ptr() };
        // SAFETY: the object is an instance of `Module`, and the GIL is held.
        unsafe { (*layout).vectorcall = Some(call_entry) };
    }
    Ok(entry)
}

/// Calls the stored entry function of a module.
unsafe extern "C" fn call_entry(
    module: *mut PyObject,
    args: *const *mut PyObject,
    nargsf: usize,
    names: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: the object is an instance of `Module`, which keeps its entry until it is destroyed.
    let entry = unsafe { (*module.cast::<Layout>()).entry };
    // SAFETY: the entry is a `PackedFunc`, and the arguments come from Python.
    unsafe { packed::call_as_it_is(entry, args, nargsf, names) }
}

unsafe extern "C" fn dealloc(module: *mut PyObject) {
    // SAFETY: this is an instance that is no longer in use.
    let entry = unsafe { (*module.cast::<Layout>()).entry };
    // SAFETY: the instance owns the object, or the pointer is NULL.
    drop(unsafe { Own::from_nullable(entry) });
    // SAFETY: the remaining content is that of the base class.
    unsafe { object::dealloc(module) };
}
