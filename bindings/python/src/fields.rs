//! Fields of native objects as attributes of their Python objects: `point.x`.
//!
//! A type may register its fields: their names, their offsets in an object, and the functions that read and set them.
//! The Python class of the type gets a descriptor for each field, which calls these functions directly. The descriptor
//! looks up the function for each access, since the library of the type may be reloaded.

use std::ffi::{CString, c_int, c_void};
use std::mem::ManuallyDrop;
use std::ptr;

use anyfn::abi::{
    TVMFFIAny, TVMFFIFieldSetter, TVMFFIObject, kTVMFFIFieldFlagBitSetterIsFunctionObj, kTVMFFIInt,
    kTVMFFIOpaquePtr,
};
use anyfn::reflection::{self, TypeInfo};
use anyfn::{Any, AnyView, ObjectRef, PackedFunc};
use pyo3_ffi as ffi;

use crate::at::At;
use crate::owned::lower_owned;
use crate::py::{self, Global, Obj, PyObject, Raised, Res};
use crate::{error, gil, lift, method, object, plan, record};

/// Description of a reflected field, which the getter and setter of the field's Python descriptor receive. It
/// is never freed, like the descriptor that points to it.
struct Field {
    name: CString,
    type_index: i32,
    offset: usize,
    told: reflection::Field,
    /// Setter of the field, if the type registered a function object as the setter instead of a C function
    /// pointer.
    setter: Option<PackedFunc>,
}

/// Python function `_object._tell_constructor`, which sets the constructor of each class that [`make_class`]
/// creates.
static COMPLETE_CLASS: Global = Global::new();

/// Stores the Python function that sets the constructor of each class that [`make_class`] creates.
pub(crate) fn set_complete_class(function: Obj<'_>) {
    COMPLETE_CLASS.set(function.to_own());
}

/// Adds an attribute for each field of a type to a class, unless the class already has an attribute
/// of that name.
pub(crate) fn add(class: Obj<'_>, info: TypeInfo) -> Res<()> {
    for field in info.own_fields() {
        let Some((name, descriptor)) = describe(info.index(), field) else { continue };
        let key = py::intern(&name)?;
        if class.attr_opt(key.obj())?.is_some() {
            continue;
        }
        // SAFETY: the class and the definition, which lives as long as the process, are valid; the result is a new
        // reference, or NULL with an exception set.
        let descriptor =
            py::unsafe_new_ref!(ffi::PyDescr_NewGetSet(class.as_ptr().cast(), Box::leak(descriptor)))?;
        class.set_attr(key.obj(), descriptor.obj())?;
    }
    Ok(())
}

/// Adds an attribute to a class for each field and method of a type and of the type's ancestors.
pub(crate) fn add_all(type_index: i64, class: Obj<'_>) -> Res<()> {
    let Some(info) = i32::try_from(type_index).ok().and_then(TypeInfo::from_index) else { return Ok(()) };
    for owner in info.lineage().rev() {
        add(class, owner)?;
    }
    for owner in info.lineage().rev() {
        method::add(class, owner)?;
    }
    Ok(())
}

/// Returns the name of a field and the definition of its descriptor. Returns `None` if the field cannot be read.
fn describe(type_index: i32, told: reflection::Field) -> Option<(CString, Box<ffi::PyGetSetDef>)> {
    let settable = told.is_writable();
    let mut setter = None;
    if settable && told.has(kTVMFFIFieldFlagBitSetterIsFunctionObj) {
        // SAFETY: the flag shows that the setter is a function object, which the type keeps alive.
        let object = unsafe { ObjectRef::from_borrowed_or_null(told.setter()) };
        setter = Some(PackedFunc::try_from_object(object?).ok()?);
    }
    let name = CString::new(told.name()).ok()?;
    let offset = usize::try_from(told.offset()).ok()?;
    told.getter()?;
    let field = Field { name: name.clone(), type_index, offset, told, setter };
    let doc = CString::new(told.doc()).unwrap_or_default();
    let definition = ffi::PyGetSetDef {
        name: name.clone().into_raw(),
        get: Some(get),
        set: settable.then_some(set as ffi::setter),
        doc: if doc.is_empty() { ptr::null() } else { doc.into_raw() },
        closure: ptr::from_ref(Box::leak(Box::new(field))).cast_mut().cast(),
    };
    Some((name, Box::new(definition)))
}

/// Returns the address of a field in the native object of an instance. Raises `AttributeError` if the object has no
/// such field.
#[inline]
fn place(this: Obj<'_>, field: &Field) -> Res<*mut c_void> {
    let handle: *mut TVMFFIObject = object::handle_unchecked(this);
    if handle.is_null() {
        return object::uninitialised(this);
    }
    // SAFETY: the instance keeps its object alive.
    let type_index = unsafe { (*handle).type_index };
    // A class may represent several types, and then has the fields of each.
    if type_index != field.type_index && !anyfn::is_instance(type_index, field.type_index) {
        return py::raise(
            py::exceptions::attribute_error(),
            &format!("an object of type {} has no such field", anyfn::type_key(type_index)),
        );
    }
    // SAFETY: the field is at its offset in each object of its type.
    Ok(unsafe { handle.byte_add(field.offset) }.cast())
}

unsafe extern "C" fn get(this: *mut PyObject, field: *mut c_void) -> *mut PyObject {
    // SAFETY: Python passes an instance and holds the GIL.
    let this: Obj<'_> = unsafe { Obj::from_ptr(this) };
    // SAFETY: this is the closure of a descriptor made by `describe`.
    let field: &Field = unsafe { &*field.cast() };
    error::catch(|| {
        let place = place(this, field)?;
        if let Some(value) = lend(this, field) {
            return value;
        }
        let mut value = Any::NONE;
        let Some(getter) = field.told.getter() else {
            return py::raise(py::exceptions::attribute_error(), "the field cannot be read: it has no getter");
        };
        let result = (&raw mut value).cast();
        // SAFETY: this is the type's own function, called with the address of its field and a result that holds no value.
        let code = gil::counted(|| unsafe { getter(place, result) });
        if code != 0 {
            std::mem::forget(value);
            let raised = error::raise_from_native(code);
            record::explain_unset(this, &field.name.to_string_lossy())?;
            return Err(raised);
        }
        if value.type_index() == kTVMFFIInt {
            return py::int(value.as_view().bits() as i64);
        }
        lift::lift_owned(value)
    })
}

/// Converts the value of a field that never changes to a Python value, without calling the getter. Returns `None` for
/// other fields. `this` must have passed [`place`].
#[inline]
fn lend(this: Obj<'_>, field: &Field) -> Option<Res<py::Own>> {
    // SAFETY: the instance keeps the native object alive and its reference, since the result is never dropped.
    let object = unsafe { ObjectRef::from_owned_or_null(object::handle_unchecked(this).cast()) };
    let object = ManuallyDrop::new(object?);
    // SAFETY: `place` has checked that the object has the field. The instance keeps the object alive, and code that could
    // take the object out of the instance waits for the end of this use.
    let value = unsafe { field.told.lend_unchecked(&object) }?;
    Some(gil::counted(|| lift::lift_borrowed(value.as_raw())))
}

unsafe extern "C" fn set(this: *mut PyObject, value: *mut PyObject, field: *mut c_void) -> c_int {
    // SAFETY: Python passes an instance and holds the GIL.
    let this: Obj<'_> = unsafe { Obj::from_ptr(this) };
    // SAFETY: Python passes a valid value, or NULL to delete the attribute.
    let value: Option<Obj<'_>> = unsafe { Obj::from_nullable(value) };
    // SAFETY: this is the closure of a descriptor made by `describe`.
    let field: &Field = unsafe { &*field.cast() };
    let done = error::catch(|| {
        let Some(value) = value else {
            return py::raise(
                py::exceptions::attribute_error(),
                "a field of a native object cannot be deleted",
            );
        };
        if object::handle_unchecked(this).is_null() {
            plan::ensure(this)?;
        }
        // The conversion of the value may run Python code, and the address of the field is used after that.
        let _use = gil::Use::begin();
        let place = place(this, field)?;
        if record::set_field(object::handle_unchecked(this), place, value)? {
            return Ok(py::none());
        }
        let value = lower_owned(value, &At::Value)?;
        if let Some(setter) = &field.setter {
            let address = TVMFFIAny::from_bits(kTVMFFIOpaquePtr, place.addr() as u64);
            // SAFETY: an opaque pointer owns nothing.
            let address = unsafe { anyfn::Any::from_raw(address) };
            let views: [AnyView<'_>; 2] = [address.as_view(), value.as_view()];
            gil::counted(|| setter.call_views(&views)).map_err(error::raise)?;
            return Ok(py::none());
        }
        // SAFETY: the descriptor of a read-only field has no setter. A setter that is not a function object is a C
        // function of this type.
        let setter = unsafe { std::mem::transmute::<*mut c_void, TVMFFIFieldSetter>(field.told.setter()) };
        // SAFETY: this is the type's own function, called with the address of its field and a valid view.
        let code = gil::counted(|| unsafe { setter(place, value.as_raw()) });
        if code != 0 {
            return Err(error::raise_from_native(code));
        }
        Ok(py::none())
    });
    if done.is_null() {
        return -1;
    }
    // SAFETY: this is an owned reference to None.
    drop(unsafe { py::Own::from_nullable(done) });
    0
}

/// Makes a class for a type that registers fields or methods and for which no class is registered.
#[cold]
pub(crate) fn make_class(info: TypeInfo, base: Obj<'_>) -> Res<py::Own> {
    let key = info.key();
    let name = key.rsplit('.').next().unwrap_or(key);
    let members = py::dict()?;
    let slots = py::tuple(Vec::new())?;
    let doc = info.doc();
    let doc = if doc.is_empty() { format!("An object of type {key}.") } else { doc.to_owned() };
    for (member, value) in [
        (c"__slots__", &slots),
        // `anyfn.types` finds the class by its key, so the class can be pickled.
        (c"__module__", &py::string(b"anyfn.types")?),
        (c"__qualname__", &py::string(key.as_bytes())?),
        (c"__doc__", &py::string(doc.as_bytes())?),
    ] {
        let member = py::intern(member)?;
        py::dict_set(members.obj(), member.obj(), value.obj())?;
    }
    let bases = py::tuple(vec![base.to_own()])?;
    let name = py::string(name.as_bytes())?;
    // The metaclass is `type`, or the one chosen by the author of the base.
    let class = base.class().call(&[name.obj(), bases.obj(), members.obj()])?;
    if !class.obj().is_subclass_of(base.as_ptr()) {
        return py::raise(
            py::exceptions::type_error(),
            &format!("the metaclass did not create a subclass of its base for type {key}"),
        );
    }
    add(class.obj(), info).map_err(|Raised| Raised)?;
    method::add(class.obj(), info)?;
    // The package sets the function while it is imported.
    if let Some(complete) = COMPLETE_CLASS.try_get() {
        complete.call(&[class.obj(), py::int(info.index().into())?.obj()])?;
    }
    Ok(class)
}
