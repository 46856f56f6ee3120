//! Helper functions for error messages about library files.

/// Returns the message for a file that cannot be parsed.
pub(super) fn broken(error: object::Error) -> String {
    format!("the file is damaged: {error}")
}

/// Returns `name`, truncated if it is too long for a message.
pub(super) fn short(name: &str) -> String {
    const MAX: usize = 80;
    match name.char_indices().nth(MAX) {
        Some((end, _)) => format!("{}...", &name[..end]),
        None => name.to_owned(),
    }
}
