//! Description of the current source location for backtraces.
//!
//! By default the description is cheap: one line with the location that the caller passes. Native frames cost
//! thousands of times as much and only help to find faults in native code, so an environment variable enables
//! them.

use core::cell::UnsafeCell;
use core::fmt::Write;
use core::sync::atomic::{AtomicU8, Ordering};

use alloc::string::String;

use anyfn::abi::TVMFFIByteArray;

use crate::sys::{self, per_thread};

#[cfg(feature = "backtrace")]
mod rewrite;

/// Most recent backtrace of a thread: the string, and the byte array through which C code reads it.
struct Buffer {
    text: String,
    shown: TVMFFIByteArray,
}

per_thread! {
    /// Backtrace that was returned most recently on this thread.
    static BUFFER: UnsafeCell<Buffer> =
        UnsafeCell::new(Buffer { text: String::new(), shown: TVMFFIByteArray::EMPTY });
}

/// Returns true if the environment variable `ANYFN_BACKTRACE` requests native frames. The variable is read only once.
fn wants_native_frames() -> bool {
    const UNKNOWN: u8 = 0;
    const NO: u8 = 1;
    const YES: u8 = 2;
    static ANSWER: AtomicU8 = AtomicU8::new(UNKNOWN);
    match ANSWER.load(Ordering::Relaxed) {
        UNKNOWN => {
            let yes = sys::env_flag("ANYFN_BACKTRACE");
            ANSWER.store(if yes { YES } else { NO }, Ordering::Relaxed);
            yes
        }
        answer => answer == YES,
    }
}

/// Returns a backtrace of the current location: one line for `place` if it is given, then the native frames if they are
/// requested.
pub(crate) fn text(place: Option<(&str, i32, &str)>) -> String {
    let mut text = String::new();
    if let Some((file, line, function)) = place {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  File \"{file}\", line {line}, in {function}");
    }
    if wants_native_frames() {
        append_native(&mut text);
    }
    text
}

/// Appends the native frames of this thread to `out`.
#[cfg(feature = "backtrace")]
fn append_native(out: &mut String) {
    rewrite::append(out, &sys::native_frames());
}

/// Appends a line to `out` that says why it contains no native frames.
#[cfg(not(feature = "backtrace"))]
fn append_native(out: &mut String) {
    if cfg!(feature = "std") {
        const WHY: &str = "native frames need the feature `backtrace` of the runtime";
        let _ = writeln!(out, "  File \"<unknown>\", line 0, in {WHY}");
    }
}

/// Stores the result of [`text`] in this thread's buffer and returns the address of its byte array. The
/// address is valid until this function is called again on this thread.
pub(crate) fn in_buffer(place: Option<(&str, i32, &str)>) -> *const TVMFFIByteArray {
    static NOTHING: Nothing = Nothing(TVMFFIByteArray::EMPTY);
    let text = text(place);
    let shown = BUFFER.with(|buffer| {
        // SAFETY: the buffer belongs to this thread alone, and nothing else refers to it during this block.
        let buffer = unsafe { &mut *buffer.get() };
        buffer.text = text;
        buffer.shown = TVMFFIByteArray::from_slice(buffer.text.as_bytes());
        &raw const buffer.shown
    });
    shown.unwrap_or(&NOTHING.0)
}

/// Empty backtrace, returned on a thread that is ending and has already dropped its buffer.
struct Nothing(TVMFFIByteArray);

// SAFETY: the byte array is empty and only read.
unsafe impl Sync for Nothing {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_given_place_comes_first() {
        assert!(text(Some(("k.c", 7, "f"))).starts_with("  File \"k.c\", line 7, in f\n"));
    }
}
