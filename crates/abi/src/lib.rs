//! The stable C ABI of anyfn: declarations only.
//!
//! Everything that crosses a language boundary is one of the `repr(C)` structs below or a call of one of the functions
//! in [`functions`]. This crate contains no code except layout checks. `anyfn-core` implements the functions, `anyfn`
//! is the safe Rust API, and the C header is generated from these files.
//!
//! The ABI is binary compatible with the stable ABI of tvm-ffi 0.1 and uses its names.
//!
//! Reading order: [`TVMFFIAny`] (a value), [`TVMFFIObject`] (the header of every object), the content of the built-in
//! objects ([`cells`]), [`TVMFFITypeInfo`] (reflection), [`functions`].
#![no_std]
#![allow(non_snake_case, reason = "the names are the ABI's names, shared with the C header")]
#![allow(non_upper_case_globals, reason = "the names are the ABI's names, shared with the C header")]

mod any;
mod backend;
pub mod cells;
pub mod classic;
mod device_driver;
mod dlpack;
pub mod functions;
mod index;
pub mod layout;
mod object;
mod reflection;

pub use any::{TVMFFIAny, TVMFFIAnyValue, TVMFFIByteArray};
pub use backend::*;
pub use cells::*;
pub use device_driver::*;
pub use dlpack::*;
pub use functions::*;
pub use index::*;
pub use object::{
    OBJECT_FLAG_FUNCTION_EXT, OBJECT_FLAG_FUNCTION_KEEPS, OBJECT_FLAG_FUNCTION_RELEASES, OBJECT_FLAG_LOCKED,
    OBJECT_FLAG_TENSOR_READ_ONLY, OBJECT_FLAG_TRACE_LOCKED, TENSOR_VIEW_READ_ONLY, TVMFFIObject,
    TVMFFIObjectDeleter, kTVMFFIObjectDeleterFlagBitMaskBoth, kTVMFFIObjectDeleterFlagBitMaskStrong,
    kTVMFFIObjectDeleterFlagBitMaskWeak,
};
pub use reflection::*;

/// Handle of an object: the address of its [`TVMFFIObject`] header.
pub type TVMFFIObjectHandle = *mut core::ffi::c_void;

/// Handle of a stream of a device, as the device's own runtime defines it.
pub type TVMFFIStreamHandle = *mut core::ffi::c_void;

/// Version of the ABI that a runtime implements.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TVMFFIVersion {
    /// Major version; changes when existing clients stop working.
    pub major: u32,
    /// Minor version; changes when functions or structs are added.
    pub minor: u32,
    /// Patch version; changes with every release.
    pub patch: u32,
}

/// The ABI version that these declarations describe.
pub const ABI_VERSION: TVMFFIVersion = TVMFFIVersion { major: 0, minor: 1, patch: 16 };
