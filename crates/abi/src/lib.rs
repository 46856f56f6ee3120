//! The stable C ABI of anyfn, as data.
//!
//! Everything that crosses a language boundary is one of the `repr(C)` structs below or a call of one of the
//! functions in [`functions`]. The crate holds no code besides layout checks: the one implementation lives in
//! `anyfn-core`, the safe Rust view in `anyfn`, and the C header is generated from these files.
//!
//! The ABI is binary compatible with the tvm-ffi stable ABI 0.1, so names are the ones used there.
//!
//! Reading order: [`TVMFFIAny`] (a value), [`TVMFFIObject`] (what every object begins with), the cells of the
//! built-in objects ([`cells`]), [`TVMFFITypeInfo`] (reflection), [`functions`] (what can be called).
#![no_std]
#![allow(non_snake_case, reason = "the names are the ABI's names, shared with the C header")]
#![allow(non_upper_case_globals, reason = "the names are the ABI's names, shared with the C header")]

mod any;
mod backend;
pub mod cells;
mod dlpack;
pub mod functions;
mod index;
pub mod layout;
mod object;
mod reflection;

pub use any::{TVMFFIAny, TVMFFIAnyValue, TVMFFIByteArray};
pub use backend::*;
pub use cells::*;
pub use dlpack::*;
pub use functions::*;
pub use index::*;
pub use object::{
    AnyfnFunctionExt, FUNCTION_FLAG_BLOCKING, FUNCTION_FLAG_UNSAFE, OBJECT_FLAG_FUNCTION_EXT,
    OBJECT_FLAG_LOCKED, OBJECT_FLAG_TENSOR_READ_ONLY, OBJECT_FLAG_TRACE_LOCKED, TENSOR_VIEW_READ_ONLY,
    TVMFFIObject, TVMFFIObjectDeleter, kTVMFFIObjectDeleterFlagBitMaskBoth,
    kTVMFFIObjectDeleterFlagBitMaskStrong, kTVMFFIObjectDeleterFlagBitMaskWeak,
};
pub use reflection::*;

/// Handle to an object: the address of its [`TVMFFIObject`] header.
pub type TVMFFIObjectHandle = *mut core::ffi::c_void;

/// Handle to a stream of a device, as the device's own runtime defines it.
pub type TVMFFIStreamHandle = *mut core::ffi::c_void;

/// Version of the ABI that a runtime implements.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TVMFFIVersion {
    /// Changes when old clients stop working.
    pub major: u32,
    /// Changes when functions or structs are added.
    pub minor: u32,
    /// Changes with every release.
    pub patch: u32,
}

/// The ABI version that these declarations describe.
pub const ABI_VERSION: TVMFFIVersion = TVMFFIVersion { major: 0, minor: 1, patch: 16 };
