//! Stands in for `library` in a build without the feature `drivers`, in which no library of drivers is opened.

/// Does nothing.
pub(super) fn open_for(_device_type: i32) {}

/// Returns `None`, because no library of drivers is opened.
pub fn library_error(_device_type: i32) -> Option<String> {
    None
}
