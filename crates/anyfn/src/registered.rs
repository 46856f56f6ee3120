//! Functions with the attribute `#[register]`, collected at link time.

use crate::PackedFunc;

/// A function with the attribute `#[register]` and the data for its registration.
pub struct RegisteredFunction {
    /// Name of the global function.
    pub name: &'static str,
    /// True if the function replaces a global function of the same name.
    pub overrides: bool,
    /// Documentation of the function.
    pub doc: &'static str,
    /// Function that creates the packed function.
    pub make: fn() -> PackedFunc,
}

#[cfg(not(test))]
crate::__collected! {
    /// All functions with the attribute `#[register]` in this executable or library.
    pub static REGISTRATIONS: [RegisteredFunction];
}
/// Empty slice that, in unit tests, replaces the slice that the linker assembles. A unit test executable
/// contains this crate twice, and the linker does not allow two such slices of the same name.
#[cfg(test)]
pub static REGISTRATIONS: [RegisteredFunction; 0] = [];
