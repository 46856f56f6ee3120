//! Rewriting of object graphs in place.
//!
//! A graph may be changed in place if it has a single owner, which gives up its reference. The owner is a Python object,
//! which callbacks can reach, and so can threads that run while a callback waits. For the duration of the call, the
//! native object is therefore taken out of its Python object, and using the Python object is an error. Afterwards the
//! native object is put back.
//!
//! No other code may have borrowed the native object before: it must have one reference, and no use of native objects
//! may be in progress on any thread ([`gil::any_in_progress`]). Otherwise the graph is copied where it changes.

use anyfn::abi::{
    TVMFFIAny, TVMFFIAnyValue, TVMFFIObject, kTVMFFIArray, kTVMFFIDict, kTVMFFIDynObjectBegin, kTVMFFIList,
    kTVMFFIMap, kTVMFFIObjectRValueRef,
};
use anyfn::{Any, AnyView, ObjectRef};

use crate::at::At;
use crate::owned::lower_owned;
use crate::py::{self, Obj, Own, Res};
use crate::{error, gil, lift, object};

/// Native object that was taken out of an instance. Dropping this value puts the object back into the instance.
struct Moved<'a> {
    from: Obj<'a>,
    handle: *mut TVMFFIObject,
}

impl<'a> Moved<'a> {
    /// Takes the native object out of an instance. Returns `None` if other code holds or uses the
    /// object, or if the type of the object cannot be part of a graph.
    fn out_of(from: Obj<'a>) -> Option<Moved<'a>> {
        let handle = object::handle_of(from).filter(|handle| !handle.is_null())?;
        // SAFETY: the instance keeps the object alive.
        let type_index = unsafe { (*handle).type_index };
        // Objects of other types have no parts that can change, and some of their classes rely on having a native object.
        let is_graph = matches!(type_index, kTVMFFIArray | kTVMFFIList | kTVMFFIMap | kTVMFFIDict)
            || type_index >= kTVMFFIDynObjectBegin;
        // SAFETY: the object is valid; the reference stays with the instance.
        let is_unique = unsafe { AnyView::from_raw(object_value(handle)) }.as_object()?.is_unique();
        (is_graph && is_unique && !gil::any_in_progress())
            .then(|| Moved { from, handle: object::take_handle(from) })
    }

    /// Makes an r-value reference to the native object, through which the callee may take ownership
    /// of the object.
    fn reference(&mut self) -> TVMFFIAny {
        let value = TVMFFIAnyValue::from_ptr((&raw mut self.handle).cast());
        TVMFFIAny { type_index: kTVMFFIObjectRValueRef, small_str_len: 0, value }
    }
}

impl Drop for Moved<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle is the reference that the instance owned, or NULL if the call has taken it.
        let Some(object) = (unsafe { ObjectRef::from_owned_or_null(self.handle.cast()) }) else { return };
        // A callback may have initialised the instance again.
        if object::handle_unchecked(self.from).is_null() {
            object::set_handle(self.from, object);
        }
    }
}

fn object_value(handle: *mut TVMFFIObject) -> TVMFFIAny {
    // SAFETY: the caller has a valid object.
    let type_index = unsafe { (*handle).type_index };
    TVMFFIAny { type_index, small_str_len: 0, value: TVMFFIAnyValue::from_obj(handle) }
}

/// Calls `anyfn.rewrite` with the graph `root` and the other arguments `rest`. If no other reference to the
/// graph exists, the graph is moved into the call, so that the call can change it in place.
pub(crate) fn in_place(root: Obj<'_>, rest: Obj<'_>) -> Res<Own> {
    let count = py::list_len(rest);
    let mut values = vec![Any::NONE];
    for index in 0..count {
        let Some(value) = py::list_get(rest, index) else { break };
        values.push(lower_owned(value.obj(), &At::Value)?);
    }
    // No Python code runs between here and the call.
    let mut moved = Moved::out_of(root);
    if moved.is_none() {
        values[0] = lower_owned(root, &At::Value)?;
    }
    let mut views: Vec<AnyView<'_>> = values.iter().map(Any::as_view).collect();
    if let Some(moved) = &mut moved {
        // SAFETY: this refers to a handle whose address does not change until the call has returned.
        views[0] = unsafe { AnyView::from_raw(moved.reference()) };
    }
    let result = gil::counted(|| anyfn::global!("anyfn.rewrite")?.call_views(&views));
    drop(moved);
    lift::lift_owned(result.map_err(error::raise)?)
}
