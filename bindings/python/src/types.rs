//! Construction of Python classes from type slots, as in C extensions.

use std::ffi::{CStr, c_int, c_uint, c_void};

use pyo3_ffi as ffi;

use crate::py::{self, Obj, Own, Res};

/// Specification of a Python class.
pub(crate) struct Class<'a> {
    /// Name of the class, including its module.
    pub(crate) name: &'static CStr,
    /// Size of an instance in bytes.
    pub(crate) size: usize,
    /// True if Python code may derive from the class.
    pub(crate) base_for_others: bool,
    /// Type flags of the class besides `Py_TPFLAGS_DEFAULT` and `Py_TPFLAGS_BASETYPE`.
    pub(crate) flags: u64,
    /// Base class; `None` means `object`.
    pub(crate) base: Option<Obj<'a>>,
    /// Type slots of the class. Each consists of a slot number, and the function or other value for
    /// the slot.
    pub(crate) slots: &'a [(c_int, *mut c_void)],
}

impl Class<'_> {
    /// Creates the Python class that this specification describes.
    pub(crate) fn make(&self) -> Res<Own> {
        let base_flag = if self.base_for_others { ffi::Py_TPFLAGS_BASETYPE } else { 0 };
        let flags = ffi::Py_TPFLAGS_DEFAULT | base_flag | self.flags;
        let mut slots: Vec<ffi::PyType_Slot> =
            self.slots.iter().map(|(slot, pfunc)| ffi::PyType_Slot { slot: *slot, pfunc: *pfunc }).collect();
        slots.push(ffi::PyType_Slot { slot: 0, pfunc: std::ptr::null_mut() });
        let mut spec = ffi::PyType_Spec {
            name: self.name.as_ptr(),
            basicsize: self.size as c_int,
            itemsize: 0,
            flags: flags as c_uint,
            slots: slots.as_mut_ptr(),
        };
        match self.base {
            // SAFETY: the specification is valid, and its strings and tables live as long as the process; the result
            // is a new reference, or NULL with an exception set.
            None => py::unsafe_new_ref!(ffi::PyType_FromSpec(&mut spec)),
            Some(base) => {
                let bases = crate::py::tuple(vec![base.to_own()])?;
                // SAFETY: the specification and the tuple are valid, and the strings and tables live as long as the
                // process; the result is a new reference, or NULL with an exception set.
                py::unsafe_new_ref!(ffi::PyType_FromSpecWithBases(&mut spec, bases.as_ptr()))
            }
        }
    }
}

/// Allocates an instance without calling the class's constructor; all bytes after the object header are zero.
#[inline]
pub(crate) fn allocate(class: *mut ffi::PyTypeObject) -> Res<Own> {
    // SAFETY: the class is valid; the result is a new reference, or NULL with an exception set.
    py::unsafe_new_ref!(py::raw::PyType_GenericAlloc(class, 0))
}

/// Frees the memory of an instance, and releases the instance's reference to its class.
///
/// # Safety
/// Must be called once, at the end of the destructor of an instance of a class made here (or derived from one).
pub(crate) unsafe fn free(object: *mut ffi::PyObject) {
    // SAFETY: the object is still valid.
    let class = unsafe { ffi::Py_TYPE(object) };
    // SAFETY: the class is a heap type; the slot is always filled.
    let free = unsafe { ffi::PyType_GetSlot(class, ffi::Py_tp_free) };
    // SAFETY: this is the type of the slot.
    let free: ffi::freefunc = unsafe { std::mem::transmute::<*mut c_void, ffi::freefunc>(free) };
    // SAFETY: the caller is the destructor.
    unsafe { free(object.cast()) };
    // SAFETY: instances of heap types hold a reference to their class.
    unsafe { py::raw::Py_DecRef(class.cast()) };
}

/// Constructor for classes whose instances only native code can make. It always raises `TypeError`.
pub(crate) unsafe extern "C" fn not_constructible(
    class: *mut ffi::PyTypeObject,
    _args: *mut ffi::PyObject,
    _kwargs: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: Python passes a valid class and holds the GIL.
    let class: Obj<'_> = unsafe { Obj::from_ptr(class.cast()) };
    let name = class.attr(crate::py::names::NAME.get()).and_then(|name| name.obj().to_text());
    let name = name.unwrap_or_else(|_| "object".into());
    let _ = crate::py::raise::<()>(
        crate::py::exceptions::type_error(),
        &format!("cannot create {name} objects directly; functions of anyfn return them"),
    );
    std::ptr::null_mut()
}
