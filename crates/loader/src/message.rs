//! Error messages about library files.

use core::fmt::Arguments;

/// True if files are checked completely, and errors state what is wrong with a file. Without the feature `checks`, only
/// what the loader itself reads is checked, and the dynamic loader finds other damage, or trusts the file.
pub(crate) const CHECKS: bool = cfg!(feature = "checks");

/// Returns the message for a file that cannot be loaded for the reason `what`. Without the feature `checks`, the message
/// states no reason, so that the library does not contain the texts.
#[inline(always)]
pub(crate) fn message(what: Arguments<'_>) -> String {
    if CHECKS {
        return what.to_string();
    }
    brief()
}

/// Returns the message for a file that cannot be loaded, without the reason.
#[cold]
#[inline(never)]
fn brief() -> String {
    "it is damaged, or not a shared library for this machine (the feature `checks` would tell why)".to_owned()
}

/// Formats the message for a file that cannot be loaded; see [`message`].
macro_rules! refused {
    ($($arg:tt)*) => { $crate::message::message(format_args!($($arg)*)) };
}
pub(crate) use refused;

/// Returns the message for a file that cannot be parsed.
pub(crate) fn broken(error: object::Error) -> String {
    refused!("the file is damaged: {error}")
}

/// Returns `name`, truncated if it is too long for a message.
pub(crate) fn short(name: &str) -> String {
    const MAX: usize = 80;
    match name.char_indices().nth(MAX) {
        Some((end, _)) => format!("{}...", &name[..end]),
        None => name.to_owned(),
    }
}
