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
        append_native(&mut text, &sys::native_frames());
    }
    text
}

/// Appends native frames to `out` in the format of all backtraces. `frames` is the output of the standard library, in
/// which each frame is a line such as `4: name` and a line such as `at file:line:column`.
fn append_native(out: &mut String, frames: &str) {
    let mut lines = frames.lines().peekable();
    while let Some(line) = lines.next() {
        let Some((number, name)) = line.trim().split_once(": ") else { continue };
        if number.parse::<u32>().is_err() {
            continue;
        }
        let place = lines.next_if(|next| next.trim_start().starts_with("at "));
        let place = place.map_or("<unknown>:0", |place| place.trim_start().trim_start_matches("at "));
        if ours(name) {
            continue;
        }
        let (file, line) = file_and_line(place);
        // Writing to a string cannot fail.
        let _ = writeln!(out, "  File \"{file}\", line {line}, in {name}");
    }
}

/// Returns true if backtraces omit the function `name`, because it creates the backtrace or starts the thread
/// or program.
fn ours(name: &str) -> bool {
    const HIDDEN: &[&str] = &[
        "std::backtrace",
        "anyfn_core::",
        "anyfn::error",
        "anyfn::panics",
        "TVMFFIBacktrace",
        "TVMFFIErrorSetRaised",
        "core::ops::function",
        "std::panic",
        "std::rt",
        "__libc_",
        "_start",
    ];
    HIDDEN.iter().any(|hidden| name.trim_start_matches('<').starts_with(hidden))
}

/// Splits `file:line:column` or `file:line` into the file and the line. The line is 0 if the string has neither form.
fn file_and_line(place: &str) -> (&str, u32) {
    let mut parts = place.rsplitn(3, ':');
    let (last, middle, first) = (parts.next(), parts.next(), parts.next());
    match (first, middle.and_then(|n| n.parse().ok()), last.and_then(|n| n.parse().ok())) {
        (Some(file), Some(line), Some(_column)) => (file, line),
        (_, _, Some(line)) => (place.rsplit_once(':').map_or(place, |(file, _)| file), line),
        _ => (place, 0),
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
    fn native_frames_are_rewritten() {
        let mut out = String::new();
        let frames = "   0: std::backtrace::Backtrace::create\n   1: user::work\n             at ./src/w.rs:12:5\n   2: other\n";
        append_native(&mut out, frames);
        assert_eq!(
            out,
            "  File \"./src/w.rs\", line 12, in user::work\n  File \"<unknown>\", line 0, in other\n"
        );
    }

    #[test]
    fn the_given_place_comes_first() {
        assert!(text(Some(("k.c", 7, "f"))).starts_with("  File \"k.c\", line 7, in f\n"));
    }
}
