//! Steps that a program or a library adds to the initialisation of the runtime.

pub use anyfn::record_panic_locations;

/// Functions that run once, before the first use of the registry. They must not use the registry.
#[linkme::distributed_slice]
pub static STEPS: [fn()];
