//! The format of native frames in backtraces.

use core::fmt::Write;

use alloc::string::String;

/// Appends native frames to `out` in the format of all backtraces. `frames` is the output of the standard library, in
/// which each frame is a line such as `4: name` and a line such as `at file:line:column`.
pub(super) fn append(out: &mut String, frames: &str) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn native_frames_are_rewritten() {
        let mut out = String::new();
        let frames = "   0: std::backtrace::Backtrace::create\n   1: user::work\n             at ./src/w.rs:12:5\n   2: other\n";
        append(&mut out, frames);
        assert_eq!(
            out,
            "  File \"./src/w.rs\", line 12, in user::work\n  File \"<unknown>\", line 0, in other\n"
        );
    }
}
