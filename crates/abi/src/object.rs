//! Header of every object: reference counts, type index, flags and deleter.

use core::ffi::{c_int, c_void};

/// Deleter of an object: releases its content, its memory or both, as `flags` states.
pub type TVMFFIObjectDeleter = unsafe extern "C" fn(self_: *mut c_void, flags: c_int);

/// Header of every object, 24 bytes.
///
/// A new object has the combined count `0x1_0000_0001`: one strong reference, and one weak reference that all strong
/// references hold together. References are counted with atomic operations, from any thread.
#[repr(C)]
pub struct TVMFFIObject {
    /// Strong count in the low 32 bits, weak count in the high 32 bits; changed only with atomic operations.
    pub combined_ref_count: u64,
    /// Type index of the object.
    pub type_index: i32,
    /// Flags, zero in objects of other runtimes. anyfn keeps the `OBJECT_FLAG_*` bits here; no client depends on them.
    pub flags: u32,
    /// Function that destroys the object; NULL for objects that are never freed.
    pub deleter: Option<TVMFFIObjectDeleter>,
}

/// Flag: a thread is executing an operation on this List or Dict, or is changing the backtrace of this Error.
pub const OBJECT_FLAG_LOCKED: u32 = 1;
/// Flag: a thread is reading the backtrace of this Error or calling its `update_backtrace`. The
/// flag is also used in errors that other runtimes created.
pub const OBJECT_FLAG_TRACE_LOCKED: u32 = 2;
/// Flag: a `const AnyfnFunctionExt*` directly follows the [`crate::TVMFFIFunctionCell`] of this Function.
pub const OBJECT_FLAG_FUNCTION_EXT: u32 = 1 << 8;
/// Flag: the memory of this Tensor must not be written.
pub const OBJECT_FLAG_TENSOR_READ_ONLY: u32 = 1 << 9;
/// Flag: calls of this Function from Python release the interpreter lock, whatever the function declares.
pub const OBJECT_FLAG_FUNCTION_RELEASES: u32 = 1 << 10;
/// Flag: calls of this Function from Python keep the interpreter lock, whatever the function declares.
pub const OBJECT_FLAG_FUNCTION_KEEPS: u32 = 1 << 11;
/// Flag in the second 32-bit word of a [`crate::TVMFFIAny`] that holds a `DLTensor*`: the memory of the tensor must not
/// be written. The flag is not part of the stable ABI: other runtimes set the word to zero and may ignore it. A value
/// that outlives the call never has this flag.
pub const TENSOR_VIEW_READ_ONLY: u32 = 1;

/// Deleter flag: no strong reference remains, so the content is destroyed.
pub const kTVMFFIObjectDeleterFlagBitMaskStrong: c_int = 1;
/// Deleter flag: no weak reference remains either, so the memory is freed.
pub const kTVMFFIObjectDeleterFlagBitMaskWeak: c_int = 2;
/// Deleter flags: the content is destroyed and the memory is freed.
pub const kTVMFFIObjectDeleterFlagBitMaskBoth: c_int = 3;
