//! Record of the arrays that are arguments of calls in progress.
//!
//! A call describes its arrays by tensor descriptions (`DLTensor`) on its stack. Native code may keep such a
//! description or pass it on to Python; the array that it describes is then looked up here.
//!
//! The list of arrays is on the heap. It holds a pointer to each array and never dereferences an address in the stack
//! of a call: a greenlet may have left that stack, and another one may use its memory. For the same reason calls do
//! not always end in the reverse order of their beginnings, so each call removes its own entries, at any position.
//!
//! One list, guarded by the GIL, serves all threads. Each call with arrays uses the list twice, and access to
//! thread-local storage would take longer than the rest of such a use. Nevertheless each thread finds only its own
//! arrays, so the objects that a callback receives do not depend on other threads.

use std::cell::UnsafeCell;
use std::ptr;

use anyfn::abi::{DLTensor, TVMFFIAny, kTVMFFIDLTensorPtr};
use anyfn::{Tensor, TensorView};

use crate::kept::{self, Lender};
use crate::py::{self, Obj, Own, PyObject, Raised, Res, raw};
use crate::scratch::{Scratch, WORDS};
use crate::{dlpack, ndarray, tensor};

/// One array that is an argument of a call in progress.
struct ActiveArray {
    number: u64,
    /// Id of the thread that makes the call. Ids are never reused, because a greenlet may still wait in a
    /// call after its thread has ended.
    thread: u64,
    /// Address of the `DLTensor` that describes the array to native code. The address is only
    /// compared, and never dereferenced.
    view: *const DLTensor,
    /// The array, a borrowed reference. The caller keeps it alive until the call returns, even while the greenlet
    /// that makes the call is not running.
    array: *mut PyObject,
}

struct Calls {
    /// Number of the array that was added to the record most recently, even if that array has been removed.
    last: u64,
    /// Arrays that are arguments of calls in progress, in ascending order of their numbers.
    entries: Vec<ActiveArray>,
}

struct Guarded(UnsafeCell<Calls>);

// SAFETY: only `with` uses the content, and its caller holds the GIL.
unsafe impl Sync for Guarded {}

static CALLS: Guarded = Guarded(UnsafeCell::new(Calls { last: 0, entries: Vec::new() }));

/// Calls `body` with exclusive access to the record of array arguments.
///
/// # Safety
/// The GIL must be held, and `body` must neither run Python code nor use the list in any other way.
#[inline(always)]
unsafe fn with<R>(body: impl FnOnce(&mut Calls) -> R) -> R {
    // SAFETY: a thread that holds the GIL has exclusive access until Python code runs, which the caller rules out.
    body(unsafe { &mut *CALLS.0.get() })
}

/// Arrays that one call has added to the record of array arguments, until [`Listed::end`] removes them.
pub(crate) struct Listed {
    /// Number of the first array that the call has added to the record. The arrays of a call have consecutive
    /// numbers.
    first: u64,
    count: usize,
}

impl Listed {
    /// An empty set of arrays, for a call that has added none to the record.
    pub(crate) const NOTHING: Listed = Listed { first: 0, count: 0 };

    /// Adds the arrays among the arguments of a call to the record of array arguments. An argument is an
    /// array if its native value is a tensor description (`DLTensor`). The caller must keep the arrays alive
    /// until [`Listed::end`].
    #[inline]
    pub(crate) fn begin(values: &[TVMFFIAny], arguments: &[Obj<'_>]) -> Listed {
        let list = |calls: &mut Calls| {
            calls.entries.reserve(values.len());
            let (before, first) = (calls.entries.len(), calls.last + 1);
            let (mut count, base) = (0, calls.entries.as_mut_ptr());
            // SAFETY: the GIL is held.
            let thread = unsafe { raw::thread_id() };
            for (value, array) in values.iter().zip(arguments) {
                if value.type_index != kTVMFFIDLTensorPtr {
                    continue;
                }
                // SAFETY: tensor views have their value in `v_ptr`.
                let view = unsafe { value.value.v_ptr }.cast_const().cast();
                let entry = ActiveArray { number: first + count as u64, thread, view, array: array.as_ptr() };
                // SAFETY: there is room for as many entries as values.
                let place = unsafe { base.add(before + count) };
                // SAFETY: the address is within that room.
                unsafe { place.write(entry) };
                count += 1;
            }
            calls.last += count as u64;
            // SAFETY: this many entries have been written.
            unsafe { calls.entries.set_len(before + count) };
            Listed { first, count }
        };
        // SAFETY: Python objects exist only while the GIL is held; `list` runs no foreign code.
        unsafe { with(list) }
    }

    /// Removes the arrays of a call from the record. `_arguments` must be the arguments that
    /// [`Listed::begin`] received.
    #[inline]
    pub(crate) fn end(&mut self, _arguments: &[Obj<'_>]) {
        let count = std::mem::take(&mut self.count);
        if count == 0 {
            return;
        }
        let unlist = |calls: &mut Calls| {
            // They are the last entries, unless threads or greenlets took turns.
            let rest = calls.entries.len().saturating_sub(count);
            if calls.entries.get(rest).is_some_and(|entry| entry.number == self.first) {
                calls.entries.truncate(rest);
            } else {
                let own = self.first..self.first + count as u64;
                calls.entries.retain(|entry| !own.contains(&entry.number));
            }
        };
        // SAFETY: Python objects exist only while the GIL is held; `unlist` runs no foreign code.
        unsafe { with(unlist) }
    }
}

/// Finds, among the recorded arguments of calls in progress, the array that this thread added most recently before
/// the array with the number `number`. The arrays of all threads are numbered together. If `view` is not NULL,
/// considers only arrays whose tensor description is at that address. Returns the array's number and the array.
#[inline]
fn before(number: u64, view: *const DLTensor) -> Option<(u64, Own)> {
    // SAFETY: the GIL is held, as everywhere that Python objects are handed out.
    let thread = unsafe { raw::thread_id() };
    let find = |calls: &mut Calls| {
        let older = calls.entries.partition_point(|entry| entry.number < number);
        let mut older = calls.entries[..older].iter().rev();
        let entry =
            older.find(|entry| entry.thread == thread && (view.is_null() || ptr::eq(entry.view, view)))?;
        // SAFETY: the caller of the call keeps the array alive, and the GIL is held.
        Some((entry.number, unsafe { Obj::from_ptr(entry.array) }.to_own()))
    };
    // SAFETY: the GIL is held, as everywhere that Python objects are handed out; `find` runs no foreign code.
    unsafe { with(find) }
}

/// Describes the current memory of an array. Returns the description, and true if the memory is read-only.
/// Returns `None` if the memory cannot be described.
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

/// Returns the Python array whose description is at `view`, if the array is an argument of a call in progress
/// on this thread.
///
/// # Safety
/// `view` must be NULL or a valid description.
#[inline]
pub(crate) unsafe fn array_of_view(view: *const DLTensor) -> Option<Own> {
    // SAFETY: guaranteed by the caller.
    let described = unsafe { view.as_ref() }?;
    let mut end = u64::MAX;
    while let Some((number, array)) = before(end, view) {
        // The address may belong to a description on another greenlet's stack, in which case the array is a different one.
        if shows(array.obj(), described) {
            return Some(array);
        }
        end = number;
    }
    None
}

/// Returns true if `described` has the same data pointer and shape as an array.
#[inline]
fn shows(array: Obj<'_>, described: &DLTensor) -> bool {
    if ndarray::is_array(array) {
        return ndarray::shows(array, described);
    }
    let mut words = WORDS;
    let mut scratch = Scratch::new(&mut words);
    // SAFETY: `describe` returns a valid description, which `scratch` keeps alive.
    let now = describe(array, &mut scratch).map(|(now, _)| unsafe { tensor::view(now) });
    // SAFETY: the caller received a valid description from native code.
    let described = unsafe { TensorView::from_dl(described) };
    now.is_some_and(|now| now.as_dl().data == described.as_dl().data && now.shape() == described.shape())
}

/// Makes a tensor of the memory that `view` describes. The memory must be part of an array that is an
/// argument of a call in progress on this thread; for other memory, returns `None`. The tensor keeps the
/// memory alive.
pub(crate) fn tensor_of_part(view: &TensorView<'_>) -> Res<Option<Tensor>> {
    let Some(part) = view.host_region() else { return Ok(None) };
    let (mut words, mut end) = (WORDS, u64::MAX);
    while let Some((number, array)) = before(end, ptr::null()) {
        end = number;
        let mut scratch = Scratch::new(&mut words);
        let Some((described, read_only)) = describe(array.obj(), &mut scratch) else { continue };
        // SAFETY: the array was described above, and `scratch` keeps the description alive.
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
