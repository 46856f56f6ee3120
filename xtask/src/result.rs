//! Result type of tasks.

/// Result whose error is a message for the user of the command.
pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;
