//! Construction of one traceback that covers Python code and native functions.
//!
//! Native functions through which an exception passes are shown as frames between those of Python code. A frame
//! object is made once for each function, and is part of every traceback that contains the function. In the other
//! direction, the frames of Python code become lines of a native error's backtrace.

use std::fmt::Write;

use pyo3_ffi as ffi;

use crate::py::{self, Global, Obj, Own, Raised, Res, names};

/// Cached frame objects, by the name of the native function or the line of a native backtrace that
/// they represent.
static FRAMES: Global = Global::new();
/// Python function `native_frame`, which makes a frame object for a native function.
static MAKE_FRAME: Global = Global::new();

/// Maximum number of cached frames. The cache is bounded because any string may occur as a name.
const FRAMES_MAX: isize = 4096;
/// Maximum number of backtrace lines that are shown or stored. Further lines, which belong to the
/// outermost calls, are omitted.
const LINES_MAX: usize = 64;

pub(crate) fn init() -> Res<()> {
    if FRAMES.try_get().is_none() {
        FRAMES.set(py::dict()?);
    }
    Ok(())
}

/// Sets the Python function that makes a frame object for a native function.
pub(crate) fn set_make_frame(function: Obj<'_>) {
    MAKE_FRAME.set(function.to_own());
}

/// Adds the lines of a native backtrace, most recent call first, to the traceback of the current exception.
pub(crate) fn add_lines(trace: &[u8]) {
    for line in trace.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).take(LINES_MAX) {
        if let Ok(line) = py::string_lossy(line) {
            add(line.obj());
        }
    }
}

/// Adds a frame to the traceback of the current exception. `key` is the name of the frame, and must
/// be a string.
pub(crate) fn add(key: Obj<'_>) {
    match py::dict_get(FRAMES.get(), key) {
        Some(frame) => add_frame(frame.obj()),
        None => add_new(key),
    }
}

fn add_frame(frame: Obj<'_>) {
    // The function that makes frames may have been replaced (`set_native_frame`).
    if frame.type_ptr() != &raw mut py::raw::PyFrame_Type {
        return;
    }
    // SAFETY: this is a frame object, whose class cannot be subclassed, and an exception is set. The caller holds a reference.
    unsafe { ffi::PyTraceBack_Here(frame.as_ptr().cast()) };
}

#[cold]
fn add_new(key: Obj<'_>) {
    let (Some(make), Some(exception)) = (MAKE_FRAME.try_get(), py::take_error()) else { return };
    let frame = make.call(&[key]);
    // SAFETY: the object is a dictionary.
    let count = unsafe { ffi::PyDict_Size(FRAMES.ptr()) };
    if let Ok(frame) = &frame
        && count < FRAMES_MAX
    {
        // A frame that is not stored is made again.
        let _ = py::dict_set(FRAMES.get(), key, frame.obj());
    }
    py::clear_error();
    py::restore_error(exception);
    if let Ok(frame) = frame {
        add_frame(frame.obj());
    }
}

/// Returns the traceback of an exception as lines of a native backtrace, most recent call first.
pub(crate) fn of_exception(exception: Obj<'_>) -> Res<String> {
    // SAFETY: the object is an exception; the result is a new reference, or NULL without an exception.
    let mut next = py::unsafe_new_ref_or_none!(ffi::PyException_GetTraceback(exception.as_ptr()));
    // The last entries, as a ring buffer.
    let mut entries: Vec<Own> = Vec::new();
    let mut oldest = 0;
    while let Some(entry) = next {
        let following = entry.obj().attr(names::TB_NEXT.get())?;
        next = (!following.obj().is_none()).then_some(following);
        if entries.len() < LINES_MAX {
            entries.push(entry);
        } else {
            entries[oldest] = entry;
            oldest = (oldest + 1) % LINES_MAX;
        }
    }
    entries.rotate_left(oldest);
    let mut text = String::new();
    for entry in entries.iter().rev() {
        let line = entry.obj().attr(names::TB_LINENO.get())?;
        let frame = entry.obj().attr(names::TB_FRAME.get())?;
        let code = frame.obj().attr(names::F_CODE.get())?;
        let file = code.obj().attr(names::CO_FILENAME.get())?;
        let name = code.obj().attr(names::CO_NAME.get())?;
        text.push_str("  File \"");
        push(&mut text, file.obj());
        // Writing to a string cannot fail.
        let _ = write!(text, "\", line {}, in ", line.obj().int().unwrap_or_default());
        push(&mut text, name.obj());
        text.push('\n');
    }
    Ok(text)
}

fn push(text: &mut String, part: Obj<'_>) {
    match part.str_bytes() {
        Ok(bytes) => text.push_str(&String::from_utf8_lossy(bytes)),
        // The name of a file contains lone surrogates.
        Err(Raised) => {
            py::clear_error();
            text.push('?');
        }
    }
}
