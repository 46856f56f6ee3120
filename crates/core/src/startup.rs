//! Steps that a program or a library adds to the initialisation of the runtime.

pub use anyfn::__private::entry;
pub use anyfn::record_panic_locations;

anyfn::__private::collected! {
    /// Functions that run once, before the first use of the registry. They must not use the registry.
    ///
    /// ```
    /// fn prepare() {}
    /// anyfn_core::startup::entry!(anyfn_core::startup::STEPS: fn() = prepare);
    /// ```
    pub static STEPS: [fn()];
}
