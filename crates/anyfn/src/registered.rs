//! Functions that are marked `#[register]`, collected at link time.

use crate::PackedFunc;

/// A function that is marked `#[register]`, with everything that its registration needs.
pub struct Entry {
    /// Name of the global function.
    pub name: &'static str,
    /// True if the function replaces a global function of the same name.
    pub overrides: bool,
    /// Documentation of the function.
    pub doc: &'static str,
    /// Creates the function.
    pub make: fn() -> PackedFunc,
}

/// All functions that are marked `#[register]` in this executable or library.
#[cfg(not(test))]
#[linkme::distributed_slice]
pub static REGISTRATIONS: [Entry];
/// Empty collection for the unit tests. They contain this crate twice, and one file cannot have two collections of the same
/// name.
#[cfg(test)]
pub static REGISTRATIONS: [Entry; 0] = [];
