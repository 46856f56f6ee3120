//! Devices: their memory, streams and events, behind one interface.
//!
//! In reading order: [`Driver`] of the crate `anyfn_driver` (the operations that a driver provides, and the checks that it may rely on),
//! [`register`] and [`driver_of`] (the drivers of the process), [`Memory`], [`copy_bytes`], [`Stream`],
//! [`Event`] (which check all arguments once for all drivers), [`suite`](crate::suite) (the tests that every
//! driver passes). Other languages use them through registered functions (`globals`).
//!
//! ```
//! # use anyfn_loader as _;
//! use anyfn::Device;
//! use anyfn_runtime::device::{Memory, driver_of};
//!
//! let mut memory = Memory::allocate(Device::CPU, 1024, 64)?;
//! memory.write(3, b"here")?;
//! let mut bytes = [0; 4];
//! memory.read(3, &mut bytes)?;
//! assert_eq!(&bytes, b"here");
//! let error = memory.read(1022, &mut bytes).unwrap_err();
//! assert_eq!(error.message(), "4 bytes at offset 1022 exceed the memory of 1024 bytes on cpu:0");
//!
//! let missing = driver_of(Device::new(2, 0)).err().unwrap();
//! assert!(missing.message().starts_with("device cuda:0 is not available: no driver for cuda is loaded in this build"));
//! # Ok::<(), anyfn::Error>(())
//! ```

mod cpu;
#[cfg(feature = "drivers")]
mod foreign;
mod globals;
#[cfg_attr(not(feature = "drivers"), path = "library_disabled.rs")]
mod library;
mod memory;
#[cfg(feature = "null")]
pub mod null;
mod registry;
#[cfg_attr(not(feature = "streams"), allow(dead_code, reason = "other languages use the rest"))]
mod stream;
#[cfg(feature = "streams")]
mod stream_globals;

pub use anyfn_driver::{
    ALIGNMENT, Attribute, DEFAULT_STREAM, Driver, Handle, LINKED_DRIVERS, MemoryKind, MemoryLocation, Request,
    Transfer, Value, link_driver, unsupported,
};
#[cfg(feature = "streams")]
pub use anyfn_driver::{MemoryStatistics, Pool, Work, is_work_recorded};
pub use library::library_error;
pub(crate) use memory::buffer;
pub use memory::{Memory, copy_bytes, host};
pub use registry::{devices, driver_of, exists, find, memory_kind, register, type_name, why_missing};
#[cfg(feature = "profile")]
pub(crate) use registry::{record_work, take_work};
pub use stream::{Event, Stream, synchronize};
#[cfg(feature = "suite")]
pub(crate) use stream::{stream_number, stream_of, take_event, take_stream};

/// Registers the driver of the null devices, which only store bytes, for tests. Returns the first null
/// device, `ext_dev:0`. Further calls have no effect and return the same device.
///
/// # Errors
/// Returns `RuntimeError` if `ext_dev` has another driver.
#[cfg(feature = "null")]
pub fn enable_null() -> anyfn::Result<anyfn::Device> {
    static NULL: null::Null = null::Null::new(anyfn::abi::kDLExtDev);
    static ENABLED: std::sync::Mutex<bool> = std::sync::Mutex::new(false);
    let mut enabled = ENABLED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if !*enabled {
        register(&NULL)?;
        *enabled = true;
    }
    Ok(anyfn::Device::new(anyfn::abi::kDLExtDev, 0))
}
