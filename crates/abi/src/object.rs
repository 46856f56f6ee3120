//! What every object begins with.

use core::ffi::{c_int, c_void};

use crate::TVMFFIAny;

/// Releases an object: `flags` says whether the content, the memory, or both go.
pub type TVMFFIObjectDeleter = unsafe extern "C" fn(self_: *mut c_void, flags: c_int);

/// Header of every object, 24 bytes.
///
/// A new object has the combined count `0x1_0000_0001`: one strong reference, and one weak reference that all strong
/// ones hold together. References are counted with atomic operations, from any thread.
#[repr(C)]
pub struct TVMFFIObject {
    /// Strong count in the low, weak count in the high 32 bits. Only to be changed with atomic operations.
    pub combined_ref_count: u64,
    /// Type of the object.
    pub type_index: i32,
    /// Zero in objects of other runtimes. anyfn keeps the `OBJECT_FLAG_*` bits here; no client depends on them.
    pub flags: u32,
    /// Releases the object; NULL for objects that are never freed.
    pub deleter: Option<TVMFFIObjectDeleter>,
}

/// Flag: some thread is inside an operation on this List or Dict, or changes the trace of this Error.
pub const OBJECT_FLAG_LOCKED: u32 = 1;
/// Flag: some thread reads the trace of this Error or calls its `update_backtrace`, whoever has made it.
pub const OBJECT_FLAG_TRACE_LOCKED: u32 = 2;
/// Flag: this Function carries a `const AnyfnFunctionExt*` right behind its [`crate::TVMFFIFunctionCell`].
pub const OBJECT_FLAG_FUNCTION_EXT: u32 = 1 << 8;
/// Flag: the memory of this Tensor must not be written.
pub const OBJECT_FLAG_TENSOR_READ_ONLY: u32 = 1 << 9;
/// Not part of the stable ABI: in the word beside the type index of a `DLTensor*`, says that the memory must not be written. Other
/// makers leave the word zero and need not look at it; a value that outlives the call never has it.
pub const TENSOR_VIEW_READ_ONLY: u32 = 1;

/// Deleter flag: all strong references are gone, drop the content.
pub const kTVMFFIObjectDeleterFlagBitMaskStrong: c_int = 1;
/// Deleter flag: all weak references are gone too, free the memory.
pub const kTVMFFIObjectDeleterFlagBitMaskWeak: c_int = 2;
/// Deleter flags: drop the content and free the memory.
pub const kTVMFFIObjectDeleterFlagBitMaskBoth: c_int = 3;

/// Flag of a function: it runs long or blocks, so callers release locks such as Python's around it.
pub const FUNCTION_FLAG_BLOCKING: u64 = 1;
/// Flag of a function: it trusts an address, or a number that stands for one, which its caller passes. Clients whose
/// languages promise memory safety, and remote peers, cannot look it up.
pub const FUNCTION_FLAG_UNSAFE: u64 = 2;

/// What a function made by anyfn tells about itself.
#[repr(C)]
pub struct AnyfnFunctionExt {
    /// Size of this struct in bytes; fields beyond it are absent.
    pub size: usize,
    /// The `FUNCTION_FLAG_*` bits.
    pub flags: u64,
    /// Gives the signature as a JSON string, or None; see `docs/signature.md`. May be NULL.
    pub signature: Option<unsafe extern "C" fn(func: *mut c_void, result: *mut TVMFFIAny) -> c_int>,
}
