//! The arrays that calls have among their arguments at this moment.
//!
//! A call describes its arrays on its stack. Native code that gets such a description may keep it or pass it on to Python; then
//! the array is looked up here. The list lies on the heap, holds a reference to each array and never follows an address into the
//! stack of a call: a greenlet may have left that stack, and another one may use its memory. For the same reason calls do
//! not end in the reverse order in which they began, so each takes its own entries out, wherever they are. There is one list
//! for all threads, which the interpreter's lock guards: each call with arrays uses it twice, and thread-local storage takes
//! longer than all the rest of it. Still each thread finds its own arrays only, so that what a callback gets does not depend on
//! what other threads do at the time.

use std::cell::UnsafeCell;
use std::ptr;

use anyfn::abi::{DLTensor, TVMFFIAny, kTVMFFIDLTensorPtr};
use anyfn::{Tensor, TensorView};

use crate::kept::{self, Lender};
use crate::lower::{Scratch, WORDS};
use crate::py::{self, Obj, Own, PyObject, Raised, Res, raw};
use crate::{dlpack, ndarray, tensor};

/// An array among the arguments of a call.
struct Entry {
    number: u64,
    /// Number of the thread that makes the call. When that ends, a greenlet may wait in the call for ever: nobody else has its number.
    thread: u64,
    /// Address of the description that native code got. It is compared and never followed.
    view: *const DLTensor,
    /// Held by the caller until the call returns, also while the greenlet that makes the call is not running.
    array: *mut PyObject,
}

struct Calls {
    /// Number of the newest entry that there was.
    last: u64,
    /// In the order of their numbers.
    entries: Vec<Entry>,
}

struct Guarded(UnsafeCell<Calls>);

// SAFETY: used by `with` alone, whose caller holds the interpreter's lock.
unsafe impl Sync for Guarded {}

static CALLS: Guarded = Guarded(UnsafeCell::new(Calls { last: 0, entries: Vec::new() }));

/// Gives the list to a function.
///
/// # Safety
/// The interpreter's lock must be held, and `body` must neither run Python code nor use the list in another way.
#[inline(always)]
unsafe fn with<R>(body: impl FnOnce(&mut Calls) -> R) -> R {
    // SAFETY: whoever holds the lock is alone here until Python code runs, as the caller guarantees.
    body(unsafe { &mut *CALLS.0.get() })
}

/// Entries of one call; [`Listed::end`] takes them out.
pub(crate) struct Listed {
    /// Number of the first one; the others follow it.
    first: u64,
    count: usize,
}

impl Listed {
    /// No entries.
    pub(crate) const NOTHING: Listed = Listed { first: 0, count: 0 };

    /// Lists the arrays of a call: the arguments whose values are descriptions. The caller holds them until [`Listed::end`].
    #[inline]
    pub(crate) fn begin(values: &[TVMFFIAny], arguments: &[Obj<'_>]) -> Listed {
        let list = |calls: &mut Calls| {
            calls.entries.reserve(values.len());
            let (before, first) = (calls.entries.len(), calls.last + 1);
            let (mut count, base) = (0, calls.entries.as_mut_ptr());
            // SAFETY: the lock is held.
            let thread = unsafe { raw::thread_id() };
            for (value, array) in values.iter().zip(arguments) {
                if value.type_index != kTVMFFIDLTensorPtr {
                    continue;
                }
                // SAFETY: tensor views have their value in `v_ptr`.
                let view = unsafe { value.value.v_ptr }.cast_const().cast();
                let entry = Entry { number: first + count as u64, thread, view, array: array.as_ptr() };
                // SAFETY: there is room for as many entries as values.
                let place = unsafe { base.add(before + count) };
                // SAFETY: the place lies in that room.
                unsafe { place.write(entry) };
                count += 1;
            }
            calls.last += count as u64;
            // SAFETY: so many have been written.
            unsafe { calls.entries.set_len(before + count) };
            Listed { first, count }
        };
        // SAFETY: there are Python objects only while the lock is held; `list` runs no code of others.
        unsafe { with(list) }
    }

    /// Takes the entries out, which were listed for the same arguments.
    #[inline]
    pub(crate) fn end(&mut self, _arguments: &[Obj<'_>]) {
        let count = std::mem::take(&mut self.count);
        if count == 0 {
            return;
        }
        let unlist = |calls: &mut Calls| {
            // They are the last ones, unless threads or greenlets took turns.
            let rest = calls.entries.len().saturating_sub(count);
            if calls.entries.get(rest).is_some_and(|entry| entry.number == self.first) {
                calls.entries.truncate(rest);
            } else {
                let own = self.first..self.first + count as u64;
                calls.entries.retain(|entry| !own.contains(&entry.number));
            }
        };
        // SAFETY: there are Python objects only while the lock is held; `unlist` runs no code of others.
        unsafe { with(unlist) }
    }
}

/// The newest entry of this thread before the one of a number whose description is at `view`, or any if that is NULL: its number
/// and its array.
#[inline]
fn before(number: u64, view: *const DLTensor) -> Option<(u64, Own)> {
    // SAFETY: the lock is held, as wherever Python objects are handed out.
    let thread = unsafe { raw::thread_id() };
    let find = |calls: &mut Calls| {
        let older = calls.entries.partition_point(|entry| entry.number < number);
        let mut older = calls.entries[..older].iter().rev();
        let entry =
            older.find(|entry| entry.thread == thread && (view.is_null() || ptr::eq(entry.view, view)))?;
        // SAFETY: the caller of the call holds it, and the interpreter's lock is held.
        Some((entry.number, unsafe { Obj::from_ptr(entry.array) }.to_own()))
    };
    // SAFETY: the lock is held, as wherever Python objects are handed out; `find` runs no code of others.
    unsafe { with(find) }
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
    let mut end = u64::MAX;
    while let Some((number, array)) = before(end, view) {
        // The address may be that of a description on another greenlet's stack: then this array is another one.
        if shows(array.obj(), described) {
            return Some(array);
        }
        end = number;
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
    let (mut words, mut end) = (WORDS, u64::MAX);
    while let Some((number, array)) = before(end, ptr::null()) {
        end = number;
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
