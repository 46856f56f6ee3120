//! The arrays that calls of this thread have among their arguments at this moment.
//!
//! A call describes its arrays on its stack. Native code that gets such a description may keep it or pass it on to Python; then
//! the array is looked up here. The list lies on the heap, holds a reference to each array and never follows an address into the
//! stack of a call: a greenlet may have left that stack, and another one may use its memory. For the same reason calls do
//! not end in the reverse order in which they began, so each takes its own entries out, wherever they are.

use std::cell::{Cell, RefCell};
use std::ptr;

use anyfn::abi::DLTensor;
use anyfn::{Tensor, TensorView};

use crate::kept::{self, Lender};
use crate::lower::{Scratch, WORDS};
use crate::py::{self, Obj, Own, PyObject, Raised, Res};
use crate::{dlpack, ndarray, tensor};

/// An array among the arguments of a call.
struct Entry {
    /// Number of the call.
    call: u64,
    /// Address of the description that native code got. It is compared and never followed.
    view: *const DLTensor,
    /// Held by the caller until the call returns, also while the greenlet that makes the call is not running.
    array: *mut PyObject,
}

struct Calls {
    last: Cell<u64>,
    entries: RefCell<Vec<Entry>>,
}

thread_local! {
    static CALLS: Calls = const { Calls { last: Cell::new(0), entries: RefCell::new(Vec::new()) } };
}

/// Entries of one call; [`Listed::end`] takes them out.
pub(crate) struct Listed {
    call: u64,
    count: usize,
}

impl Listed {
    /// No entries.
    pub(crate) const NOTHING: Listed = Listed { call: 0, count: 0 };

    /// Lists the arrays of a call, each with the address of its description. The caller holds them until [`Listed::end`].
    #[inline]
    pub(crate) fn begin<'a>(arrays: impl Iterator<Item = (*const DLTensor, Obj<'a>)>) -> Listed {
        // Nothing can be listed once the thread ends; what native code keeps then is an opaque pointer.
        let listed = CALLS.try_with(|calls| {
            let call = calls.last.get() + 1;
            calls.last.set(call);
            let mut entries = calls.entries.borrow_mut();
            let before = entries.len();
            entries.extend(arrays.map(|(view, array)| Entry { call, view, array: array.as_ptr() }));
            Listed { call, count: entries.len() - before }
        });
        listed.unwrap_or(Listed::NOTHING)
    }

    /// Takes the entries out.
    #[inline]
    pub(crate) fn end(&mut self) {
        let count = std::mem::take(&mut self.count);
        if count == 0 {
            return;
        }
        // Without the list there are no entries.
        let _ = CALLS.try_with(|calls| {
            let mut entries = calls.entries.borrow_mut();
            // They stand together, and last unless greenlets took turns.
            let rest = entries.len().saturating_sub(count);
            if entries.get(rest).is_some_and(|entry| entry.call == self.call) {
                entries.truncate(rest);
            } else {
                entries.retain(|entry| entry.call != self.call);
            }
        });
    }
}

/// The nearest entry below an index whose description is at `view`, or any if that is NULL: its index and its array.
#[inline]
fn below(index: usize, view: *const DLTensor) -> Option<(usize, Own)> {
    let found = CALLS.try_with(|calls| {
        let entries = calls.entries.borrow();
        let before = &entries[..index.min(entries.len())];
        let index = before.iter().rposition(|entry| view.is_null() || ptr::eq(entry.view, view))?;
        // SAFETY: the caller of the call holds it, and the interpreter's lock is held.
        Some((index, unsafe { Obj::from_ptr(before[index].array) }.to_own()))
    });
    found.ok()?
}

/// Describes the memory that an array has now; the flag says that it must not be written. `None` if it cannot be told.
fn describe(array: Obj<'_>, scratch: &mut Scratch<'_>) -> Option<(*const DLTensor, bool)> {
    let described = if ndarray::is_array(array) {
        ndarray::describe(array, scratch).map(|view| Some((view, ndarray::is_read_only(array))))
    } else {
        match dlpack::known(array.type_ptr()) {
            Some(table) => dlpack::view(array, table, scratch).map(|view| view.map(|view| (view, false))),
            None => Ok(None),
        }
    };
    match described {
        Ok(described) => described.map(|(view, read_only)| (view.cast_const(), read_only)),
        Err(Raised) => {
            py::clear_error();
            None
        }
    }
}

/// The Python array whose description native code has at `view`, if a call on this thread has it among its arguments at this
/// moment.
///
/// # Safety
/// `view` must be NULL or a valid description.
#[inline]
pub(crate) unsafe fn array_of_view(view: *const DLTensor) -> Option<Own> {
    // SAFETY: the caller guarantees it.
    let described = unsafe { view.as_ref() }?;
    let mut end = usize::MAX;
    while let Some((index, array)) = below(end, view) {
        // The address may be that of a description on another greenlet's stack: then this array is another one.
        if shows(array.obj(), described) {
            return Some(array);
        }
        end = index;
    }
    None
}

/// Whether an array has the memory and the extents of a description.
#[inline]
fn shows(array: Obj<'_>, described: &DLTensor) -> bool {
    if ndarray::is_array(array) {
        return ndarray::shows(array, described);
    }
    let mut words = WORDS;
    let mut scratch = Scratch::new(&mut words);
    // SAFETY: `describe` gives a valid description, which `scratch` keeps.
    let now = describe(array, &mut scratch).map(|(now, _)| unsafe { tensor::view(now) });
    // SAFETY: a valid description, as the caller has it from native code.
    let described = unsafe { TensorView::from_dl(described) };
    now.is_some_and(|now| now.as_dl().data == described.as_dl().data && now.shape() == described.shape())
}

/// A tensor of the memory that `view` describes, which keeps the array that the memory belongs to, if a call on this thread has
/// that array among its arguments at this moment.
pub(crate) fn tensor_of_part(view: &TensorView<'_>) -> Res<Option<Tensor>> {
    let Some(part) = view.host_region() else { return Ok(None) };
    let (mut words, mut end) = (WORDS, usize::MAX);
    while let Some((index, array)) = below(end, ptr::null()) {
        end = index;
        let mut scratch = Scratch::new(&mut words);
        let Some((described, read_only)) = describe(array.obj(), &mut scratch) else { continue };
        // SAFETY: described just now, and `scratch` keeps it.
        let described = unsafe { tensor::view(described) };
        if !described.host_region().is_some_and(|whole| whole.contains(&part)) {
            continue;
        }
        if ndarray::is_array(array.obj()) {
            return kept::make(view.as_dl(), py::none().obj(), Lender::Part(array), read_only).map(Some);
        }
        if let Some(tensor) = dlpack::part(array.obj(), view, &part)? {
            return Ok(Some(tensor));
        }
    }
    Ok(None)
}
