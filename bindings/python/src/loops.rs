//! Support for loops over data of any length. Such loops check for signals, let other threads run,
//! and raise `MemoryError` instead of aborting the process.

use crate::gil;
use crate::py::{self, Obj, Own, Raised, Res, raw};

/// Step counter for a loop whose length depends on data. At intervals, the counter checks for
/// signals and lets other threads run.
pub(crate) struct Pace(u32);

impl Pace {
    /// Number of steps between two checks for signals; a power of two.
    const LOOK: u32 = 1 << 12;
    /// Number of steps between two points at which other threads may run; a multiple of `LOOK`.
    const YIELD: u32 = 1 << 16;

    /// Maximum number of steps that may be counted at once.
    pub(crate) const STEPS: u32 = Self::LOOK;

    pub(crate) const fn new() -> Pace {
        Pace(0)
    }

    /// Counts one step of the loop. During the call, signal handlers and other threads may run Python code.
    #[inline(always)]
    pub(crate) fn step(&mut self) -> Res<()> {
        self.steps(1)
    }

    /// Counts `count` steps of the loop, like [`Pace::step`]. `count` must be at most [`Pace::STEPS`].
    #[inline(always)]
    pub(crate) fn steps(&mut self, count: u32) -> Res<()> {
        let before = self.0;
        self.0 = before.wrapping_add(count);
        if self.0 / Self::LOOK == before / Self::LOOK { Ok(()) } else { self.look(before) }
    }

    #[cold]
    #[inline(never)]
    fn look(&self, before: u32) -> Res<()> {
        if self.0 / Self::YIELD != before / Self::YIELD {
            gil::without(|| ());
        }
        // SAFETY: the GIL is held.
        py::check(unsafe { py::raw::PyErr_CheckSignals() })
    }
}

/// Appends an item, or raises `MemoryError`.
#[inline(always)]
pub(crate) fn push<T>(items: &mut Vec<T>, item: T) -> Res<()> {
    if items.len() == items.capacity() {
        grow(items)?;
    }
    items.push(item);
    Ok(())
}

#[cold]
#[inline(never)]
fn grow<T>(items: &mut Vec<T>) -> Res<()> {
    match items.try_reserve(1) {
        Ok(()) => Ok(()),
        Err(_) => {
            let text = format!("cannot allocate memory for a container of more than {} items", items.len());
            py::raise(py::exceptions::memory_error(), &text)
        }
    }
}

/// Returns an empty vector with memory for `count` items, or raises `MemoryError`.
pub(crate) fn reserved<T>(count: usize) -> Res<Vec<T>> {
    let mut items = Vec::new();
    match items.try_reserve_exact(count) {
        Ok(()) => Ok(items),
        Err(_) => py::raise(
            py::exceptions::memory_error(),
            &format!("cannot allocate memory for a container of {count} items"),
        ),
    }
}

/// Calls `each` with every item of a list or tuple and its index. If a list changes meanwhile, the loop continues to
/// the current end of the list.
#[inline(always)]
pub(crate) fn each_item(
    items: Obj<'_>,
    is_list: bool,
    mut each: impl FnMut(usize, Obj<'_>) -> Res<()>,
) -> Res<()> {
    let (mut index, mut pace) = (0, Pace::new());
    loop {
        let item = if is_list {
            // SAFETY: `each` takes its own reference before Python code runs, which may change the list.
            unsafe { py::list_peek(items, index) }
        } else {
            py::tuple_get(items, index)
        };
        let Some(item) = item else { return Ok(()) };
        each(index, item)?;
        index += 1;
        pace.step()?;
    }
}

/// Calls `each` with all items of an iterable and their indices.
pub(crate) fn each(iterable: Obj<'_>, mut each: impl FnMut(usize, Obj<'_>) -> Res<()>) -> Res<()> {
    // SAFETY: the object is valid and the GIL is held; the result is a new reference, or NULL with an exception set.
    let iterator = py::unsafe_new_ref!(raw::PyObject_GetIter(iterable.as_ptr()))?;
    let (mut index, mut pace) = (0, Pace::new());
    loop {
        // SAFETY: the object is an iterator; the result is a new reference, or NULL at the end or with an exception set.
        let item = raw::run(|| unsafe { raw::PyIter_Next(iterator.as_ptr()) });
        // SAFETY: `PyIter_Next` returns a new reference or NULL.
        match unsafe { Own::from_nullable(item) } {
            Some(item) => each(index, item.obj())?,
            None if py::error_occurred() => return Err(Raised),
            None => return Ok(()),
        }
        index += 1;
        pace.step()?;
    }
}
