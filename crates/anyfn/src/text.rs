//! Formatting of strings and names in messages and metadata.

use core::fmt::Write;

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;
use alloc::{format, vec};

/// Appends `text` to `out` as a quoted JSON string.
pub fn quote(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            c if c < ' ' => {
                // Writing to a string cannot fail.
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// Returns a copy of a function's name that lives for the lifetime of the process, for use in error messages.
/// Equal names are stored once.
#[must_use]
#[cfg(feature = "std")]
pub fn intern(name: &str) -> &'static str {
    use crate::sorted_map::SortedMap;
    use std::sync::{Mutex, PoisonError};
    static NAMES: Mutex<SortedMap<&'static str, &'static str>> = Mutex::new(SortedMap::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    match names.get(name) {
        Some(known) => known,
        None => {
            let kept: &'static str = alloc::boxed::Box::leak(name.into());
            names.insert(kept, kept);
            kept
        }
    }
}

/// Returns a copy of a function's name that lives for the lifetime of the process, for use in error messages.
#[must_use]
#[cfg(not(feature = "std"))]
pub fn intern(name: &str) -> &'static str {
    alloc::boxed::Box::leak(name.into())
}

/// Returns the candidate with the smallest edit distance to `name`; `None` if no candidate is similar enough. The
/// common namespace of both names is ignored, and about a third of the rest of `name` may differ.
///
/// It is used for error messages. The work is limited, so that long names and many candidates do not make an error
/// slow.
pub fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    /// Maximum length of a name that is compared, in bytes.
    const LONGEST: usize = 128;
    /// Maximum number of character comparisons for all candidates together.
    const WORK: usize = 1 << 22;
    if name.len() > LONGEST {
        return None;
    }
    let mut limit = (name.len() / 3).max(1);
    let (mut best, mut work) = (None, 0);
    for candidate in candidates {
        if candidate.len() > LONGEST || candidate.len().abs_diff(name.len()) > limit {
            continue;
        }
        let namespace = common_namespace(name, candidate);
        let (name, rest) = (&name[namespace..], &candidate[namespace..]);
        work += name.len() * rest.len();
        if work > WORK {
            break;
        }
        if let Some(distance) = distance(name, rest, limit.min((name.len() / 3).max(1))) {
            best = Some(candidate);
            match distance.checked_sub(1) {
                Some(less) => limit = less,
                None => break,
            }
        }
    }
    best
}

/// Returns the length of the common namespace of two names: everything up to the last dot of their common prefix.
fn common_namespace(a: &str, b: &str) -> usize {
    let same = a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    a.as_bytes()[..same].iter().rposition(|byte| *byte == b'.').map_or(0, |dot| dot + 1)
}

/// Returns the edit distance between two names; `None` if the distance exceeds `limit`. Swapping two adjacent
/// letters counts as one edit.
fn distance(a: &str, b: &str, limit: usize) -> Option<usize> {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut above: Vec<usize> = vec![0; b.len() + 1];
    let mut row: Vec<usize> = (0..=b.len()).collect();
    let mut next = vec![0; b.len() + 1];
    for i in 0..a.len() {
        next[0] = i + 1;
        for j in 0..b.len() {
            let mut least = (row[j] + usize::from(a[i] != b[j])).min(row[j + 1] + 1).min(next[j] + 1);
            if i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j] {
                least = least.min(above[j - 1] + 1);
            }
            next[j + 1] = least;
        }
        if next.iter().all(|edits| *edits > limit) {
            return None;
        }
        (above, row, next) = (row, next, above);
    }
    Some(row[b.len()]).filter(|edits| *edits <= limit)
}

/// Shortens a name of more than 200 bytes for messages.
pub fn shorten(name: &str) -> Cow<'_, str> {
    const SHOWN_MAX: usize = 200;
    if name.len() <= SHOWN_MAX {
        return Cow::Borrowed(name);
    }
    let end = (0..=SHOWN_MAX).rev().find(|at| name.is_char_boundary(*at)).unwrap_or_default();
    Cow::Owned(format!("{}... ({} bytes)", &name[..end], name.len()))
}
