//! `Object`: the Python side of a handle, and the mapping from native types to Python classes.
//!
//! Every object that native code passes to Python becomes an instance of `Object` or of a class derived from it, with
//! the handle at a fixed offset. Classes written in Python register for a type index. A type without a registered
//! class uses the class of its nearest ancestor.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use anyfn::ObjectRef;
use anyfn::abi::{TVMFFIObject, kTVMFFIObject};
use anyfn::reflection::TypeInfo;
use pyo3_ffi as ffi;

use crate::py::{self, Global, Obj, Own, PyObject, Raised, Res};
use crate::types::{self, Class};
use crate::{construct, convert, error, fields, gil, method, record};

/// Memory layout of an instance of `Object`.
#[repr(C)]
pub(crate) struct Layout {
    base: PyObject,
    /// Owned handle of the native object. It is NULL in an instance of a class for native types until its `__init__`
    /// has constructed the native object, and while the object is rewritten in place.
    handle: *mut TVMFFIObject,
}

/// The class `Object`.
pub(crate) static CLASS: Global = Global::new();

/// Cache of the class for each type index below the length of the table, as found by [`find_class`]. All entries are
/// cleared when a class is registered. Read and written under the GIL.
static FOUND: [AtomicPtr<ffi::PyTypeObject>; 512] = [const { AtomicPtr::new(std::ptr::null_mut()) }; 512];

/// Dictionary from type index to the class that is registered for it.
static REGISTERED: Global = Global::new();

/// Dictionary from class to the type index for which it was last registered.
static TYPES: Global = Global::new();

/// The class `BuiltinObject`, base of the classes of built-in types, whose instances always have a native object.
pub(crate) static BUILTIN: Global = Global::new();

const DOC: &CStr = c"A reference to an object of a native type, which it keeps alive. Two references to the same object are equal.

`register_object` registers a class for a type. Another type gets a class automatically if it has fields or methods;
otherwise its objects are instances of the class of its nearest ancestor. Constructing an instance of a class whose type
has no constructor raises `TypeError`.";

pub(crate) fn init() -> Res<()> {
    if CLASS.try_get().is_some() {
        return Ok(());
    }
    let class = Class {
        name: c"anyfn._core.Object",
        size: size_of::<Layout>(),
        base_for_others: true,
        flags: 0,
        base: None,
        slots: &[
            (ffi::Py_tp_doc, DOC.as_ptr() as *mut c_void),
            (ffi::Py_tp_new, construct::new as *mut c_void),
            (ffi::Py_tp_init, construct::init as *mut c_void),
            (ffi::Py_tp_dealloc, dealloc as *mut c_void),
            (ffi::Py_tp_hash, hash as *mut c_void),
            (ffi::Py_tp_richcompare, compare as *mut c_void),
            (ffi::Py_tp_repr, repr as *mut c_void),
            (ffi::Py_tp_setattro, record::set_attribute as *mut c_void),
            (ffi::Py_tp_getset, attributes().leak().as_mut_ptr().cast()),
            (ffi::Py_tp_methods, methods().leak().as_mut_ptr().cast()),
        ],
    };
    CLASS.set(class.make()?);
    let builtin = Class {
        name: c"anyfn._core.BuiltinObject",
        base: Some(CLASS.get()),
        slots: &[(ffi::Py_tp_new, types::not_constructible as *mut c_void)],
        ..class
    };
    BUILTIN.set(builtin.make()?);
    REGISTERED.set(py::dict()?);
    TYPES.set(py::dict()?);
    Ok(())
}

fn attributes() -> Vec<ffi::PyGetSetDef> {
    let attribute = |name: &'static CStr, doc: &'static CStr, get| ffi::PyGetSetDef {
        name: name.as_ptr(),
        get: Some(get),
        set: None,
        doc: doc.as_ptr(),
        closure: std::ptr::null_mut(),
    };
    vec![
        attribute(c"type_key", c"Type key of the native type, such as `ffi.Array`.", get_type_key),
        attribute(c"type_index", c"Type index of the native type in this process.", get_type_index),
        ffi::PyGetSetDef::default(),
    ]
}

fn methods() -> Vec<ffi::PyMethodDef> {
    let same_as = ffi::PyMethodDef {
        ml_name: c"same_as".as_ptr(),
        ml_meth: ffi::PyMethodDefPointer { PyCFunction: same_as },
        ml_flags: ffi::METH_O,
        ml_doc: c"Returns True if the argument refers to the same native object.".as_ptr(),
    };
    // SAFETY: this only changes the type; CPython calls the function with the signature that the flags declare.
    let init_handle = unsafe { std::mem::transmute::<Fastcall, ffi::PyCFunction>(construct::init_handle) };
    let init_handle = ffi::PyMethodDef {
        ml_name: c"__init_handle_by_constructor__".as_ptr(),
        ml_meth: ffi::PyMethodDefPointer { PyCFunction: init_handle },
        ml_flags: METH_FASTCALL | ffi::METH_KEYWORDS,
        ml_doc: c"Creates the native object of this instance by calling a function; once, in `__init__`."
            .as_ptr(),
    };
    vec![same_as, init_handle, ffi::PyMethodDef::zeroed()]
}

type Fastcall =
    unsafe extern "C" fn(*mut PyObject, *const *mut PyObject, ffi::Py_ssize_t, *mut PyObject) -> *mut PyObject;

/// Method flag for functions that take their arguments as an array. In the stable ABI since 3.10, unchanged since 3.7.
const METH_FASTCALL: c_int = 0x80;

/// Borrows the handle of `object`, which must be an instance of `Object`. The handle is never NULL for an instance of
/// `PackedFunc`. A caller that uses the handle after Python code has run must have begun a [`gil::Use`] before that
/// code ran.
#[inline(always)]
pub(crate) fn handle_unchecked(object: Obj<'_>) -> *mut TVMFFIObject {
    debug_assert!(object.is_instance_of(CLASS.ptr()));
    // SAFETY: instances of `Object` and of derived classes begin with `Layout`.
    unsafe { (*object.as_ptr().cast::<Layout>()).handle }
}

/// Stores the native object of an instance, which must not have one yet.
pub(crate) fn set_handle(object: Obj<'_>, made: ObjectRef) {
    // SAFETY: instances of `Object` and of derived classes begin with `Layout`; the GIL is held.
    unsafe { (*object.as_ptr().cast::<Layout>()).handle = made.into_handle().cast() };
}

/// Replaces the native object of an instance, which must have one. The old object may still be used through its
/// address, so the new one must keep it alive.
pub(crate) fn replace_handle(object: Obj<'_>, made: ObjectRef) {
    // SAFETY: instances of `Object` and of derived classes begin with `Layout`; the GIL is held.
    let handle = unsafe { &mut (*object.as_ptr().cast::<Layout>()).handle };
    let old = std::mem::replace(handle, made.into_handle().cast());
    // SAFETY: the instance owned this reference.
    drop(unsafe { ObjectRef::from_owned_or_null(old.cast()) });
}

/// Borrows the handle of an object. Returns `None` if the object is not an `Object`. The handle is NULL if the native
/// object does not exist yet.
pub(crate) fn handle_of(object: Obj<'_>) -> Option<*mut TVMFFIObject> {
    object.is_instance_of(CLASS.ptr()).then(|| handle_unchecked(object))
}

/// Returns a reference to the native object of an `Object`. Returns `None` for any other object, and for an `Object`
/// without a native object.
pub(crate) fn reference_of(object: Obj<'_>) -> Option<ObjectRef> {
    let handle = handle_of(object)?;
    // SAFETY: the Python object holds a reference to the native object.
    unsafe { ObjectRef::from_borrowed_or_null(handle.cast()) }
}

/// Makes the Python object for a native object.
pub(crate) fn wrap(object: ObjectRef) -> Res<Own> {
    let class = found(object.type_index())?;
    if class.addr() & CONVERTED != 0 {
        return convert::from_native(class.map_addr(|address| address & !CONVERTED), object);
    }
    wrap_as(class, object)
}

/// Makes an instance of `class` for a native object. `class` must derive from `Object`.
#[inline]
pub(crate) fn wrap_as(class: *mut ffi::PyTypeObject, object: ObjectRef) -> Res<Own> {
    let own = types::allocate(class)?;
    // SAFETY: the instance is new and not shared.
    unsafe { (*own.as_ptr().cast::<Layout>()).handle = object.into_handle().cast() };
    Ok(own)
}

/// Registers `class` as the Python class of the type with this index.
pub(crate) fn register(type_index: i64, class: Obj<'_>) -> Res<()> {
    if !class.is_subclass_of(CLASS.ptr()) {
        return py::raise(py::exceptions::type_error(), "expected a class derived from anyfn.Object");
    }
    let key = py::int(type_index)?;
    py::dict_set(REGISTERED.get(), key.obj(), class)?;
    // Registering the plain class `Object` removes the class of a type, so `Object` itself is not recorded for one type.
    if !class.is(CLASS.ptr()) {
        py::dict_set(TYPES.get(), class, key.obj())?;
    }
    construct::forget_fits();
    forget_classes();
    Ok(())
}

/// Clears the cache of classes, [`FOUND`].
pub(crate) fn forget_classes() {
    for found in &FOUND {
        found.store(std::ptr::null_mut(), Ordering::Relaxed);
    }
}

/// Returns the type index for which a class or its nearest registered base is registered.
pub(crate) fn type_of_class(class: Obj<'_>) -> Res<Option<i64>> {
    let order = class.attr(py::names::MRO.get())?;
    if order.obj().type_flags() & ffi::Py_TPFLAGS_TUPLE_SUBCLASS == 0 {
        return py::raise(py::exceptions::type_error(), "expected a tuple of classes as `__mro__`");
    }
    for index in 0..order.obj().tuple_len() {
        let Some(base) = py::tuple_item(order.obj(), index) else { break };
        if let Some(own) = py::dict_get(TYPES.get(), base.obj()) {
            return Ok(own.obj().int().ok());
        }
    }
    Ok(None)
}

/// Returns the type index for which the class itself is registered, regardless of its bases.
pub(crate) fn own_type(class: Obj<'_>) -> Option<i32> {
    let own = py::dict_get(TYPES.get(), class)?;
    i32::try_from(own.obj().int().ok()?).ok()
}

/// Returns the Python class for objects of a type. Called from the Python code of the package.
pub(crate) fn class_of_type(type_index: i64) -> Res<Own> {
    let class = class_for(i32::try_from(type_index).unwrap_or(-1))?;
    // SAFETY: the table of classes or the module keeps the class alive.
    let class: Obj<'_> = unsafe { Obj::from_ptr(class.cast()) };
    Ok(class.to_own())
}

/// Bit in the class addresses of [`FOUND`] that marks classes with a converter to Python values (`convert.rs`).
const CONVERTED: usize = 1;

/// Returns the Python class for objects of a type.
fn class_for(type_index: i32) -> Res<*mut ffi::PyTypeObject> {
    found(type_index).map(|class| class.map_addr(|address| address & !CONVERTED))
}

/// Returns the Python class for objects of a type. The bit `CONVERTED` of the address is set if the class has a converter.
fn found(type_index: i32) -> Res<*mut ffi::PyTypeObject> {
    let slot = FOUND.get(usize::try_from(type_index).unwrap_or(usize::MAX));
    match slot.map(|slot| slot.load(Ordering::Relaxed)) {
        Some(class) if !class.is_null() => Ok(class),
        _ => {
            let class = find_class(type_index)?;
            let class = if convert::is_converted(class) {
                class.map_addr(|address| address | CONVERTED)
            } else {
                class
            };
            if let Some(slot) = slot {
                slot.store(class, Ordering::Relaxed);
            }
            Ok(class)
        }
    }
}

#[cold]
fn find_class(type_index: i32) -> Res<*mut ffi::PyTypeObject> {
    let mut class = registered(type_index)?;
    if class.is_none()
        && let Some(info) = TypeInfo::from_index(type_index)
    {
        class = Some(inherited_class(info)?);
    }
    Ok(class.unwrap_or(CLASS.ptr().cast()))
}

/// Returns the Python class for a type without a registered class: the class of its nearest ancestor, or a new class
/// if the type has registered fields or methods.
fn inherited_class(info: TypeInfo) -> Res<*mut ffi::PyTypeObject> {
    let mut class: *mut ffi::PyTypeObject = CLASS.ptr().cast();
    if let Some(parent) = info.parent()
        && parent.index() != kTVMFFIObject
    {
        class = class_for(parent.index())?;
    }
    if info.own_fields().len() > 0 || info.own_methods().len() > 0 {
        // SAFETY: the table of classes or the module keeps the class alive.
        let base: Obj<'_> = unsafe { Obj::from_ptr(class.cast()) };
        let made = fields::make_class(info, base)?;
        class = made.as_ptr().cast();
        register(info.index().into(), made.obj())?;
    }
    Ok(class)
}

/// Adds to a class an attribute for each field and method of a type and of its ancestors.
pub(crate) fn add_fields(type_index: i64, class: Obj<'_>) -> Res<()> {
    let Some(info) = i32::try_from(type_index).ok().and_then(TypeInfo::from_index) else { return Ok(()) };
    for owner in info.lineage().rev() {
        fields::add(class, owner)?;
    }
    for owner in info.lineage().rev() {
        method::add(class, owner)?;
    }
    Ok(())
}

fn registered(type_index: i32) -> Res<Option<*mut ffi::PyTypeObject>> {
    let key = py::int(type_index.into())?;
    let class = py::dict_get(REGISTERED.get(), key.obj());
    // The plain class marks a type whose class was removed.
    Ok(class.filter(|class| !class.obj().is(CLASS.ptr())).map(|class| class.as_ptr().cast()))
}

/// Takes the native object out of an instance, which is left without one. The object must not be in use.
pub(crate) fn take_handle(object: Obj<'_>) -> *mut TVMFFIObject {
    // SAFETY: instances of `Object` and of derived classes begin with `Layout`; the GIL is held.
    let handle = unsafe { &mut (*object.as_ptr().cast::<Layout>()).handle };
    std::mem::replace(handle, std::ptr::null_mut())
}

/// Replaces the native object of an instance and returns the old one.
pub(crate) fn replace(object: Obj<'_>, by: ObjectRef) -> Option<ObjectRef> {
    // SAFETY: instances of `Object` and of derived classes begin with `Layout`; the GIL is held.
    let handle = unsafe { &mut (*object.as_ptr().cast::<Layout>()).handle };
    let old = std::mem::replace(handle, by.into_handle().cast());
    // SAFETY: the instance owned this reference.
    unsafe { ObjectRef::from_owned_or_null(old.cast()) }
}

/// Releases the handle of an instance.
///
/// # Safety
/// Must be called by Python, as the destructor of an instance.
pub(crate) unsafe extern "C" fn dealloc(object: *mut PyObject) {
    // SAFETY: the object is an instance of `Object`.
    let handle = unsafe { (*object.cast::<Layout>()).handle };
    // SAFETY: the instance owned this reference, and its memory is freed below.
    drop(unsafe { ObjectRef::from_owned_or_null(handle.cast()) });
    // SAFETY: this is the end of the destructor.
    unsafe { types::free(object) };
}

unsafe extern "C" fn get_type_key(object: *mut PyObject, _closure: *mut c_void) -> *mut PyObject {
    // SAFETY: Python passes an instance and holds the GIL.
    let object: Obj<'_> = unsafe { Obj::from_ptr(object) };
    match reference_of(object) {
        Some(object) => to_c(py::string(object.type_key().as_bytes())),
        None => construct::uninitialised_c(object),
    }
}

unsafe extern "C" fn get_type_index(object: *mut PyObject, _closure: *mut c_void) -> *mut PyObject {
    // SAFETY: Python passes an instance and holds the GIL.
    let object: Obj<'_> = unsafe { Obj::from_ptr(object) };
    match reference_of(object) {
        Some(object) => to_c(py::int(object.type_index().into())),
        None => construct::uninitialised_c(object),
    }
}

unsafe extern "C" fn same_as(object: *mut PyObject, other: *mut PyObject) -> *mut PyObject {
    // SAFETY: Python passes an instance and holds the GIL.
    let object: Obj<'_> = unsafe { Obj::from_ptr(object) };
    // SAFETY: Python passes a valid object of any class.
    let other: Obj<'_> = unsafe { Obj::from_ptr(other) };
    let handle = handle_unchecked(object);
    if handle.is_null() {
        return construct::uninitialised_c(object);
    }
    py::boolean(handle_of(other) == Some(handle)).into_ptr()
}

unsafe extern "C" fn repr(object: *mut PyObject) -> *mut PyObject {
    // SAFETY: Python passes an instance and holds the GIL.
    let object: Obj<'_> = unsafe { Obj::from_ptr(object) };
    let handle = handle_unchecked(object);
    if let Some(native) = reference_of(object) {
        let info = TypeInfo::of(&native);
        let prints_itself = info.attribute("__ffi_repr__").is_some();
        if !prints_itself && let Some(record) = record::record_of_object(handle) {
            return error::catch(|| record::repr(object, record));
        }
        if prints_itself || info.fields().next().is_some() {
            return error::catch(|| print(native));
        }
    }
    let class = object.class_name();
    let text = match reference_of(object) {
        Some(native) => format!("<anyfn.{class} of type {} at {:p}>", native.type_key(), native.as_handle()),
        None => format!("<anyfn.{class}, not initialised>"),
    };
    to_c(py::string(text.as_bytes()))
}

/// Returns the text representation of a native object, which is the same in all languages.
fn print(object: ObjectRef) -> Res<Own> {
    let text = gil::counted(|| {
        let printed = anyfn::global!("ffi.ReprPrint")?.call((&object,))?;
        printed.get::<anyfn::String>()
    });
    py::string(text.map_err(error::raise)?.as_bytes())
}

unsafe extern "C" fn hash(object: *mut PyObject) -> ffi::Py_hash_t {
    // SAFETY: Python passes an instance and holds the GIL.
    let object: Obj<'_> = unsafe { Obj::from_ptr(object) };
    let address = handle_unchecked(object).addr();
    if address == 0 {
        construct::uninitialised_c(object);
        return -1;
    }
    // Objects are aligned, so the low bits carry no information. The result cannot be -1, which is reserved for errors.
    (address >> 4) as ffi::Py_hash_t
}

unsafe extern "C" fn compare(left: *mut PyObject, right: *mut PyObject, operation: c_int) -> *mut PyObject {
    // SAFETY: Python passes valid objects and holds the GIL.
    let left: Obj<'_> = unsafe { Obj::from_ptr(left) };
    // SAFETY: Python passes a valid object of any class.
    let right: Obj<'_> = unsafe { Obj::from_ptr(right) };
    let (Some(a), Some(b)) = (handle_of(left), handle_of(right)) else {
        return py::not_implemented().into_ptr();
    };
    if a.is_null() || b.is_null() {
        // Python then compares the instances themselves.
        return py::not_implemented().into_ptr();
    }
    match operation {
        ffi::Py_EQ => py::boolean(a == b).into_ptr(),
        ffi::Py_NE => py::boolean(a != b).into_ptr(),
        _ => py::not_implemented().into_ptr(),
    }
}

/// Converts a result to the return value of a C function that CPython calls: the reference, or NULL with the exception set.
#[inline(always)]
pub(crate) fn to_c(result: Res<Own>) -> *mut PyObject {
    match result {
        Ok(own) => own.into_ptr(),
        Err(Raised) => std::ptr::null_mut(),
    }
}
