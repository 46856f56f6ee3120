//! Locations of errors. The path to the value at which a walk or map fails is stored in the error's
//! context.

use alloc::string::String;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::ffi::c_int;
use core::mem::offset_of;
use core::sync::atomic::{AtomicI32, Ordering};

use anyfn::__private::trampoline;
use anyfn::abi::{
    TVMFFIAny, TVMFFIByteArray, TVMFFIFieldInfo, TVMFFIObject, TVMFFIObjectHandle, TVMFFIOpaqueObjectCell,
    TVMFFITypeMetadata, TVMFFITypeRegisterField, TVMFFITypeRegisterMetadata, kTVMFFIAny, kTVMFFIList,
    kTVMFFIObject, kTVMFFIOpaquePyObject, kTVMFFISEqHashKindUnsupported,
};
use anyfn::{Any, Error, List, Map, ObjectRef, Result};

use super::children::Children;
use super::plan::{Plan, Plans, Purpose, Shape};
use crate::define::{OPTIONAL_OBJECT_SCHEMA, converted};
use crate::value::same_bits;

/// Content of an `ffi.VisitErrorContext`, which records where in a graph an error occurred.
#[repr(C)]
struct Content {
    /// Objects on the path from the root to the location of the error, innermost first.
    reverse_visit_pattern: List<Any>,
    /// Context of the error before the location was added. If this crate created the
    /// `ffi.VisitErrorContext`, the field is a Map that contains the previous context, if any, and
    /// the access path to the location under the key `visited`.
    prev_error_context: Option<ObjectRef>,
}

const _: () = assert!(size_of::<List<Any>>() == size_of::<usize>());
const _: () = assert!(size_of::<Option<ObjectRef>>() == size_of::<usize>());

static TYPE: AtomicI32 = AtomicI32::new(-1);

/// Returns the type index of `ffi.VisitErrorContext`, which is registered at the first call.
///
/// # Panics
/// Panics if another type is registered under the key.
pub(crate) fn type_index() -> i32 {
    match TYPE.load(Ordering::Acquire) {
        -1 => register(),
        index => index,
    }
}

#[cold]
fn register() -> i32 {
    match anyfn::__private::claim_key(
        "ffi.VisitErrorContext",
        1,
        kTVMFFIObject,
        anyfn::__private::CONTENT_OF_FIELDS,
    ) {
        Ok(index) => {
            TYPE.store(index, Ordering::Release);
            index
        }
        Err(error) => panic!("{error}"),
    }
}

/// Registers the fields of `ffi.VisitErrorContext`.
pub(crate) fn register_fields() -> Result<()> {
    let header = size_of::<TVMFFIObject>();
    let index = type_index();
    // SAFETY: the getter fits the content at this offset.
    unsafe {
        add_field(
            index,
            ("reverse_visit_pattern", "Objects on the path to the error, innermost first."),
            PATTERN_SCHEMA,
            header,
            kTVMFFIList,
            (get_reference, set_pattern),
        )
    }?;
    let at = header + offset_of!(Content, prev_error_context);
    // SAFETY: the getter fits the content at this offset.
    unsafe {
        add_field(
            index,
            ("prev_error_context", "Previous error context."),
            OPTIONAL_OBJECT_SCHEMA,
            at,
            kTVMFFIAny,
            (get_reference, set_previous),
        )
    }?;
    // Other implementations of walks describe their errors by objects of this type.
    let metadata = TVMFFITypeMetadata {
        doc: TVMFFIByteArray::from_slice(b"Location of an error in a graph."),
        creator: Some(create),
        total_size: (header + size_of::<Content>()) as i32,
        structural_eq_hash_kind: KIND as i32,
    };
    // SAFETY: the metadata is borrowed for the call.
    match unsafe { TVMFFITypeRegisterMetadata(index, &metadata) } {
        0 => Ok(()),
        _ => Err(Error::take_raised()),
    }
}

/// Creates an object of the type with an empty path.
unsafe extern "C" fn create(result: *mut TVMFFIObjectHandle) -> c_int {
    trampoline(|| {
        let content = Content { reverse_visit_pattern: List::new(), prev_error_context: None };
        // SAFETY: objects of this type have this content.
        let object = unsafe { anyfn::__private::new_object(type_index(), content) };
        // SAFETY: the result is writable.
        unsafe { result.write(object.into_handle()) };
        Ok(())
    })
}

/// Structural kind of types that are not compared structurally.
pub(crate) const KIND: i64 = kTVMFFISEqHashKindUnsupported;

/// Metadata of the field `reverse_visit_pattern`.
const PATTERN_SCHEMA: &str =
    r#"{"type_schema":"{\"type\":\"ffi.List\",\"args\":[{\"type\":\"ffi.Object\"}]}"}"#;

type Getter = unsafe extern "C" fn(*mut core::ffi::c_void, *mut TVMFFIAny) -> c_int;
type Setter = unsafe extern "C" fn(*mut core::ffi::c_void, *const TVMFFIAny) -> c_int;

/// Registers a field of a type, which is read-only once the object is constructed.
///
/// # Safety
/// The getter and the setter must fit the content at `offset` in every object of the type.
pub(crate) unsafe fn add_field(
    type_index: i32,
    (name, doc): (&str, &str),
    schema: &str,
    offset: usize,
    static_type: i32,
    (getter, setter): (Getter, Setter),
) -> Result<()> {
    let size = if core::ptr::fn_addr_eq(getter, get_any as Getter) { 16 } else { 8 };
    let info = TVMFFIFieldInfo {
        name: TVMFFIByteArray::from_slice(name.as_bytes()),
        doc: TVMFFIByteArray::from_slice(doc.as_bytes()),
        metadata: TVMFFIByteArray::from_slice(schema.as_bytes()),
        flags: 0,
        size,
        alignment: 8,
        offset: offset as i64,
        getter: Some(getter),
        setter: setter as *mut core::ffi::c_void,
        default_value_or_factory: TVMFFIAny::NONE,
        field_static_type_index: static_type,
    };
    // SAFETY: the description is copied.
    match unsafe { TVMFFITypeRegisterField(type_index, &info) } {
        0 => Ok(()),
        _ => Err(Error::take_raised()),
    }
}

/// Getter of a field that contains an [`Any`].
///
/// # Safety
/// The requirements of the ABI for getters apply.
pub(crate) unsafe extern "C" fn get_any(place: *mut core::ffi::c_void, out: *mut TVMFFIAny) -> c_int {
    // SAFETY: the address of such a field in a live object.
    let value = unsafe { &*place.cast::<Any>() };
    // SAFETY: the result is writable.
    unsafe { out.write(value.clone().into_raw()) };
    0
}

/// Getter of a field that contains an object reference or NULL.
unsafe extern "C" fn get_reference(place: *mut core::ffi::c_void, out: *mut TVMFFIAny) -> c_int {
    // SAFETY: the address of such a field in a live object.
    let object = unsafe { &*place.cast::<Option<ObjectRef>>() };
    let value = object.clone().map_or(Any::NONE, Any::from);
    // SAFETY: the result is writable.
    unsafe { out.write(value.into_raw()) };
    0
}

/// Setter of the field `reverse_visit_pattern`.
///
/// # Safety
/// `place` must be the field of an object that no other code uses, and `value` a valid view.
unsafe extern "C" fn set_pattern(place: *mut core::ffi::c_void, value: *const TVMFFIAny) -> c_int {
    trampoline(|| {
        // SAFETY: the caller guarantees a valid view.
        let value = unsafe { converted::<List<Any>>(value) }?;
        // SAFETY: the caller guarantees the field, which holds a List.
        drop(unsafe { place.cast::<List<Any>>().replace(value) });
        Ok(())
    })
}

/// Setter of the field `prev_error_context`.
///
/// # Safety
/// `place` must be the field of an object that no other code uses, and `value` a valid view.
unsafe extern "C" fn set_previous(place: *mut core::ffi::c_void, value: *const TVMFFIAny) -> c_int {
    trampoline(|| {
        // SAFETY: the caller guarantees a valid view.
        let value = unsafe { converted::<Option<ObjectRef>>(value) }?;
        // SAFETY: the caller guarantees the field, which holds a reference or NULL.
        drop(unsafe { place.cast::<Option<ObjectRef>>().replace(value) });
        Ok(())
    })
}

/// Most recent error to which a walk or map has added a location, with the access path to that location.
///
/// An error passes through all walks that callbacks have nested. The innermost one determines the path.
#[derive(Default)]
pub(crate) struct Described(RefCell<Option<(Error, String)>>);

impl Described {
    /// Records in an error's context that the error occurred at `value`. `objects` lists the
    /// objects on the path to `value`, innermost first; `way` lists the values between the root and
    /// `value`, each with its plan and iteration state.
    #[cold]
    pub(crate) fn add<'f>(
        &self,
        error: Error,
        objects: Vec<Any>,
        way: impl Iterator<Item = (&'f Any, &'f Plan, &'f Children)>,
        value: &Any,
    ) -> Error {
        let mut described = self.0.borrow_mut();
        let path = match described.take() {
            Some((of, path)) if identity(&of) == identity(&error) => path,
            _ => path(way, value),
        };
        let error = with_way(error, objects, &path);
        // The error is kept alive, so that no other error gets the same address.
        *described = Some((error.clone(), path));
        error
    }
}

/// Records a location in an error's context. `objects` lists the objects on the path to the
/// location, innermost first; `path` is the access path to the location.
#[cold]
fn with_way(error: Error, objects: Vec<Any>, path: &str) -> Error {
    let before = error.context();
    if let Some(known) = before.as_ref().and_then(content_of) {
        // The error has already passed through a walk that was part of this one.
        let _ = known.reverse_visit_pattern.extend(objects);
        return error;
    }
    let Ok(pattern) = List::from_vec(objects) else { return error };
    let content = Content { reverse_visit_pattern: pattern, prev_error_context: detail(before, path).ok() };
    // SAFETY: objects of this type have this content.
    error.with_context(unsafe { anyfn::__private::new_object(type_index(), content) })
}

/// Key of the access path in the Map that [`detail`] returns.
const VISITED: &str = "visited";
/// Key of a foreign exception, such as a Python exception, in the Map that [`detail`] returns.
const EXCEPTION: &str = "exception";

/// Returns a Map that contains the content of `before`, the previous context of an error, and the
/// access path `path`.
fn detail(before: Option<ObjectRef>, path: &str) -> Result<ObjectRef> {
    let mut detail = Map::<Any, Any>::new();
    match before.map(Map::<Any, Any>::try_from_object) {
        Some(Ok(known)) => detail = known,
        Some(Err(object)) => detail.insert(Any::new(EXCEPTION)?, Any::from(object))?,
        None => {}
    }
    // An error that came up through a callback occurred deeper down if its path begins like this one.
    let deeper = detail.get_any(VISITED)?.and_then(|known| known.get::<String>().ok());
    if !deeper.is_some_and(|known| known.starts_with(path)) {
        detail.insert(Any::new(VISITED)?, Any::new(path)?)?;
    }
    Ok(detail.into_object())
}

fn content_of(context: &ObjectRef) -> Option<&Content> {
    if context.type_index() != type_index() {
        return None;
    }
    let content = context.as_handle().wrapping_byte_add(size_of::<TVMFFIObject>());
    // SAFETY: objects of this type have the two fields of the ABI there.
    Some(unsafe { &*content.cast::<Content>() })
}

/// Returns the objects on the path to an error's location, innermost first; `None` if `context` is
/// not an `ffi.VisitErrorContext`.
pub(crate) fn way_of(context: &ObjectRef) -> Option<Vec<Any>> {
    content_of(context).map(|content| content.reverse_visit_pattern.snapshot())
}

/// Returns the access path in an error's context; `None` if the context contains no path.
pub(crate) fn path_of(error: &Error) -> Option<String> {
    let context = error.context()?;
    let before = content_of(&context)?.prev_error_context.clone()?;
    let detail = Map::<Any, Any>::try_from_object(before).ok()?;
    detail.get_any(VISITED).ok()??.get::<String>().ok()
}

/// Returns a number that identifies an error. A Python exception becomes a new error object each
/// time that it passes through a callback, but the number remains the same.
fn identity(error: &Error) -> usize {
    let mut context = error.context();
    while let Some(known) = context.as_ref().and_then(content_of) {
        context = known.prev_error_context.clone();
    }
    if let Some(Ok(detail)) = context.clone().map(Map::<Any, Any>::try_from_object) {
        context = detail.get_any(EXCEPTION).ok().flatten().and_then(|object| object.clone().into_object());
    }
    match context {
        Some(object) if object.type_index() == kTVMFFIOpaquePyObject => {
            let cell = object.as_handle().wrapping_byte_add(size_of::<TVMFFIObject>());
            // SAFETY: the cell of such objects follows their header.
            unsafe { (*cell.cast::<TVMFFIOpaqueObjectCell>()).handle.addr() }
        }
        _ => error.as_object().as_handle().addr(),
    }
}

/// Creates the error for an object that contains itself.
#[cold]
pub(crate) fn cycle(type_key: &str) -> Error {
    let text = alloc::format!(
        "an object of type {type_key} contains itself: a walk along this cycle would never end. Break the cycle, or let \
         each object be visited once (`once`)"
    );
    Error::untraced("ValueError", &text)
}

/// Returns the access path from the root to `value`. `way` lists the values on the path, each with its plan
/// and iteration state.
#[cold]
fn path<'f>(way: impl Iterator<Item = (&'f Any, &'f Plan, &'f Children)>, value: &Any) -> String {
    /// Number of steps that an error message shows at each end of a long path.
    const SHOWN: usize = 24;
    let way: Vec<_> = way.collect();
    let mut out = String::from("<root>");
    for (at, (node, plan, children)) in way.iter().enumerate() {
        if way.len() > 2 * SHOWN && (SHOWN..way.len() - SHOWN).contains(&at) {
            if at == SHOWN {
                out.push_str("...");
            }
            continue;
        }
        let next = way.get(at + 1).map_or(value, |(node, ..)| node);
        let Some(object) = node.as_object() else { continue };
        if !matches!(children, Children::Chosen) {
            children.step(plan, object, &mut out);
        } else if !same_bits(node, next) {
            search(object, plan, next, &mut out);
        }
    }
    out
}

/// Appends to `out` the step from `node` to `wanted`, a child that a callback or hook has visited itself.
/// Appends `.<?>` if `node` does not contain `wanted`.
fn search(node: &ObjectRef, plan: &Plan, wanted: &Any, out: &mut String) {
    let plain = Plans::new(Purpose::Visit);
    let known = match &plan.shape {
        Shape::Hook(_) => None,
        shape => Children::of(shape, node, false).ok().map(|children| (plan, children)),
    };
    let fields;
    let (plan, mut children) = match known {
        Some(known) => known,
        None => match plain.without_hook(node.type_index()) {
            Ok(plan) => {
                fields = plan;
                (&fields, Children::Fields(0))
            }
            Err(_) => return out.push_str(".<?>"),
        },
    };
    while let Ok(Some((child, _))) = children.next(plan, node) {
        if same_bits(child.get(), wanted) {
            return children.step(plan, node, out);
        }
    }
    out.push_str(".<?>");
}
