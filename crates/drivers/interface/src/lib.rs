//! The interface of drivers for devices.
//!
//! A driver gives the runtime access to the devices of one kind: their memory, streams and events. It implements [`Driver`] and depends on
//! this crate and `anyfn`, not on the runtime, so that the same driver can be linked into a program or lie in a library of its own. In
//! reading order:
//!
//! - [`Driver`]: the operations, and the checks on which an implementation may rely;
//! - [`link_driver!`]: adds a driver to every program that links its crate;
//! - [`register`]: registers a driver that is in a library of its own;
//! - [`Pool`]: freed blocks of memory, which a driver keeps for later allocations;
//! - [`Work`]: the kernels and copies that a device has executed, for the timelines of profiles.

// Links the runtime into the tests.
#[cfg(test)]
extern crate anyfn_loader as _;

#[cfg(feature = "libraries")]
mod clock;
mod driver;
#[cfg(feature = "streams")]
mod pool;
#[cfg(feature = "libraries")]
mod table;
#[cfg(feature = "streams")]
mod work;

#[cfg(feature = "libraries")]
pub use clock::Clock;

pub use driver::{
    ALIGNMENT, Attribute, DEFAULT_STREAM, Driver, Handle, MemoryKind, MemoryLocation, Request, Transfer, Value,
    unsupported,
};
#[cfg(feature = "streams")]
pub use pool::{MemoryStatistics, Pool};
#[cfg(feature = "libraries")]
pub use table::register;
#[cfg(feature = "streams")]
pub use work::{Work, is_work_recorded, record_work};

#[cfg(not(test))]
anyfn::__private::collected! {
    /// Drivers of the crates that are linked into the program; see [`link_driver!`].
    pub static LINKED_DRIVERS: [&'static dyn Driver];
}
/// Empty list in unit tests. Their executable contains this crate twice, and the linker does not allow two such lists.
#[cfg(test)]
pub static LINKED_DRIVERS: [&'static dyn Driver; 0] = [];

/// Registers a device driver in every program that links the crate in which this macro is used.
///
/// ```
/// use anyfn_runtime::device::null::Null;
///
/// static NULL: Null = Null::new(14);
/// anyfn_driver::link_driver!(&NULL);
/// # use anyfn_loader as _;
/// # assert!(anyfn_runtime::device::exists(anyfn::Device::new(14, 0)));
/// ```
#[macro_export]
macro_rules! link_driver {
    ($driver:expr) => {
        anyfn::__private::entry!($crate::LINKED_DRIVERS: &'static dyn $crate::Driver = $driver);
    };
}
