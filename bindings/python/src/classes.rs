//! Mapping between native types and the Python classes of their objects.
//!
//! Classes written in Python register for a type index. A type without a registered class uses the class of its nearest
//! ancestor, or a class that is made for it if it has registered fields or methods.

use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use anyfn::ObjectRef;
use anyfn::abi::kTVMFFIObject;
use anyfn::reflection::TypeInfo;
use pyo3_ffi as ffi;

use crate::py::{self, Global, Obj, Own, PyObject, Res};
use crate::{convert, object};

/// Cache of the results of [`find_class`], by type index. Type indices beyond the end of the array are not
/// cached. All entries are cleared when a class is registered. Read and written under the GIL.
static FOUND: [AtomicPtr<ffi::PyTypeObject>; 512] = [const { AtomicPtr::new(ptr::null_mut()) }; 512];

/// Dictionary from type index to the Python class that is registered for the type.
static REGISTERED: Global = Global::new();

/// Dictionary from class to the type index for which the class was last registered.
static TYPES: Global = Global::new();

/// Number of calls of [`register`].
static REGISTRATIONS: AtomicUsize = AtomicUsize::new(0);

/// Returns a number that changes whenever the class of a native type changes.
pub(crate) fn registrations() -> usize {
    REGISTRATIONS.load(Ordering::Relaxed)
}

/// Function that makes the Python class of a type. It receives the class of the type's nearest ancestor as
/// the base.
type MakeClass = fn(TypeInfo, Obj<'_>) -> Res<Own>;

/// Pointer to the function `fields::make_class`, set by [`init`]. It is not called directly, because `fields`
/// depends on this module.
static MAKE_CLASS: OnceLock<MakeClass> = OnceLock::new();

/// Creates [`REGISTERED`] and [`TYPES`] as empty dictionaries. `make_class` makes the classes of types for
/// which no class is registered.
pub(crate) fn init(make_class: MakeClass) -> Res<()> {
    for table in [&REGISTERED, &TYPES] {
        if table.try_get().is_none() {
            table.set(py::dict()?);
        }
    }
    // A second initialisation passes the same function.
    let _ = MAKE_CLASS.set(make_class);
    Ok(())
}

/// Makes the Python object for a native object: an instance of the class of its type, or the result of a
/// registered converter.
pub(crate) fn wrap(object: ObjectRef) -> Res<Own> {
    let class = found(object.type_index())?;
    if class.addr() & CONVERTED != 0 {
        return convert::from_native(class.map_addr(|address| address & !CONVERTED), object);
    }
    object::wrap_as(class, object)
}

/// Registers `class` as the Python class of the type with the index `type_index`.
pub(crate) fn register(type_index: i64, class: Obj<'_>) -> Res<()> {
    if !class.is_subclass_of(object::CLASS.ptr()) {
        return py::raise(py::exceptions::type_error(), "expected a class derived from anyfn.Object");
    }
    let key = py::int(type_index)?;
    py::dict_set(REGISTERED.get(), key.obj(), class)?;
    // Registering the plain class `Object` removes the class of a type, so `Object` itself is not recorded for one type.
    if !class.is(object::CLASS.ptr()) {
        py::dict_set(TYPES.get(), class, key.obj())?;
    }
    REGISTRATIONS.fetch_add(1, Ordering::Relaxed);
    forget_fits();
    forget_found();
    Ok(())
}

/// Clears the cache of classes, [`FOUND`].
fn forget_found() {
    for found in &FOUND {
        found.store(ptr::null_mut(), Ordering::Relaxed);
    }
}

/// Returns the type index for which a class is registered. For a class that is not registered, returns the
/// type index of its nearest registered base.
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

/// Returns the address of the Python class for objects of a type, with the bit `CONVERTED` set if the class
/// has a converter.
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
    Ok(class.unwrap_or(object::CLASS.ptr().cast()))
}

/// Returns the Python class for a type for which no class is registered: the class of its nearest ancestor,
/// or a new class if the type has registered fields or methods.
fn inherited_class(info: TypeInfo) -> Res<*mut ffi::PyTypeObject> {
    let mut class: *mut ffi::PyTypeObject = object::CLASS.ptr().cast();
    if let Some(parent) = info.parent()
        && parent.index() != kTVMFFIObject
    {
        class = class_for(parent.index())?;
    }
    let adds_members = info.own_fields().len() > 0 || info.own_methods().len() > 0;
    if adds_members && let Some(make_class) = MAKE_CLASS.get() {
        // SAFETY: the table of classes or the module keeps the class alive.
        let base: Obj<'_> = unsafe { Obj::from_ptr(class.cast()) };
        let made = make_class(info, base)?;
        class = made.as_ptr().cast();
        register(info.index().into(), made.obj())?;
    }
    Ok(class)
}

fn registered(type_index: i32) -> Res<Option<*mut ffi::PyTypeObject>> {
    let key = py::int(type_index.into())?;
    let class = py::dict_get(REGISTERED.get(), key.obj());
    // The plain class marks a type whose class was removed.
    Ok(class.filter(|class| !class.obj().is(object::CLASS.ptr())).map(|class| class.as_ptr().cast()))
}

/// Registers `function` as the converter of native objects whose Python class is `class`. None removes the converter.
pub(crate) fn set_from_native(class: Obj<'_>, function: Obj<'_>) -> Res<()> {
    convert::set_from_native(class, function)?;
    forget_found();
    Ok(())
}

/// Cache of [`fits`]: the class that was most recently found to fit, by type index. Type indices beyond the
/// end of the array are not cached. Each entry owns a reference. Read and written under the GIL.
static FITTED: [AtomicPtr<PyObject>; 512] = [const { AtomicPtr::new(ptr::null_mut()) }; 512];

/// Returns true if instances of a class may represent objects of a type: the class is registered
/// for the type or for one of its ancestors, or is not registered for any type.
#[inline]
pub(crate) fn fits(class: *mut ffi::PyTypeObject, type_index: i32) -> Res<bool> {
    let slot = FITTED.get(usize::try_from(type_index).unwrap_or(usize::MAX));
    match slot {
        Some(slot) if ptr::eq(slot.load(Ordering::Relaxed), class.cast()) => Ok(true),
        _ => find_fit(class, type_index, slot),
    }
}

#[cold]
fn find_fit(class: *mut ffi::PyTypeObject, type_index: i32, slot: Option<&AtomicPtr<PyObject>>) -> Res<bool> {
    // SAFETY: the caller's instance keeps its class alive.
    let class: Obj<'_> = unsafe { Obj::from_ptr(class.cast()) };
    let fits = match type_of_class(class)? {
        Some(own) => i32::try_from(own).is_ok_and(|own| anyfn::is_instance(type_index, own)),
        // A class that is not registered for a type accepts objects of any type.
        None => true,
    };
    if let Some(slot) = slot.filter(|_| fits) {
        let old = slot.swap(class.to_own().into_ptr(), Ordering::Relaxed);
        // SAFETY: the slot owned this reference.
        drop(unsafe { Own::from_nullable(old) });
    }
    Ok(fits)
}

/// Clears the cache of [`fits`]. Called when another class is registered.
fn forget_fits() {
    for slot in &FITTED {
        let old = slot.swap(ptr::null_mut(), Ordering::Relaxed);
        // SAFETY: the slot owned this reference.
        drop(unsafe { Own::from_nullable(old) });
    }
}
