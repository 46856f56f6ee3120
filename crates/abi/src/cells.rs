//! Content of the built-in objects. The content directly follows the 24-byte header.

use core::ffi::{c_int, c_void};

use crate::{TVMFFIAny, TVMFFIByteArray, TVMFFIObjectHandle};

/// C signature through which every function object is called. Returns 0 on success, or -1 if an error was raised on
/// this thread.
///
/// `args` are views that are borrowed for the call. `*result` is `None` on entry and an owned value on success.
pub type TVMFFISafeCallType = unsafe extern "C" fn(
    handle: *mut c_void,
    args: *const TVMFFIAny,
    num_args: i32,
    result: *mut TVMFFIAny,
) -> c_int;

/// Flag of a function: it may run for a long time or block, so callers release locks such as Python's around the call.
pub const FUNCTION_FLAG_BLOCKING: u64 = 1;
/// Flag of a function that trusts an address passed by its caller, directly or as an integer. Remote peers and
/// clients in memory-safe languages cannot look up such a function.
pub const FUNCTION_FLAG_UNSAFE: u64 = 2;

/// Additional properties of a function that anyfn created.
#[repr(C)]
pub struct AnyfnFunctionExt {
    /// Size of this struct in bytes; a field at or beyond this offset does not exist.
    pub size: usize,
    /// Flags of the function, a combination of `FUNCTION_FLAG_*`.
    pub flags: u64,
    /// Function that returns the signature as a JSON string (see `docs/signature.md`), or None if the signature is not
    /// known. May be NULL.
    pub signature: Option<unsafe extern "C" fn(func: *mut c_void, result: *mut TVMFFIAny) -> c_int>,
}

/// Content of a Shape (type 69).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TVMFFIShapeCell {
    /// Array of `size` extents, one for each dimension of the shape.
    pub data: *const i64,
    /// Number of dimensions of the shape.
    pub size: usize,
}

/// Content of an Array (type 71) or List (type 75).
#[repr(C)]
pub struct TVMFFISeqCell {
    /// Address of the first element; the elements are of type `TVMFFIAny`.
    pub data: *mut c_void,
    /// Number of elements of the sequence.
    pub size: i64,
    /// Number of elements for which `data` has room.
    pub capacity: i64,
    /// Function that frees `data`; NULL if the elements live in the object's own memory.
    pub data_deleter: Option<unsafe extern "C" fn(data: *mut c_void)>,
}

/// Content of a Map (type 72) or Dict (type 76).
///
/// Bit 63 of `slots` marks the small layout: at most four pairs of key and value, in insertion order. In the dense
/// layout `data` is an array of blocks of 16 slots, and a [`TVMFFIDenseMapTail`] follows this struct.
#[repr(C)]
pub struct TVMFFIMapCell {
    /// Array of the map's pairs (small layout), or of blocks of 16 slots each (dense layout).
    pub data: *mut c_void,
    /// Number of pairs in the map.
    pub size: u64,
    /// Number of slots of the map; bit 63 is set in the small layout.
    pub slots: u64,
    /// Function that frees `data`; NULL if the pairs live in the object's own memory.
    pub data_deleter: Option<unsafe extern "C" fn(data: *mut c_void)>,
}

/// Fields of a Map or Dict with the dense layout, directly after its [`TVMFFIMapCell`].
#[repr(C)]
pub struct TVMFFIDenseMapTail {
    /// Number of bits by which a key's hash, multiplied by a constant, is shifted right to get the home slot of the
    /// key.
    pub fib_shift: u32,
    /// Padding, always zero.
    pub padding: u32,
    /// Slot index of the oldest pair of the map; all bits are set if the map is empty.
    pub iter_head: u64,
    /// Slot index of the newest pair of the map; all bits are set if the map is empty.
    pub iter_tail: u64,
}

/// One slot of a dense Map or Dict.
#[repr(C)]
pub struct TVMFFIMapItem {
    /// Key of the pair in this slot.
    pub key: TVMFFIAny,
    /// Value of the pair in this slot.
    pub value: TVMFFIAny,
    /// Slot index of the next older pair; all bits are set in the oldest pair.
    pub prev: u64,
    /// Slot index of the next newer pair; all bits are set in the newest pair.
    pub next: u64,
}

/// Block of 16 slots of a dense Map or Dict, with the state of each slot.
#[repr(C)]
pub struct TVMFFIMapBlock {
    /// State of each slot: 0xFF if empty, 0xFE if reserved while pairs are moved. In a slot that holds a pair, bit 7 is
    /// clear for the head of a chain and set for the other slots of a chain. The low seven bits encode the distance to
    /// the next slot of the chain.
    pub meta: [u8; 16],
    /// Pairs of the 16 slots of the block.
    pub items: [TVMFFIMapItem; 16],
}

/// Update mode of `update_backtrace`: replaces the backtrace.
pub const kTVMFFIBacktraceUpdateModeReplace: i32 = 0;
/// Update mode of `update_backtrace`: appends to the backtrace.
pub const kTVMFFIBacktraceUpdateModeAppend: i32 = 1;

/// Content of an Error (type 67). The error owns all of its byte arrays.
#[repr(C)]
pub struct TVMFFIErrorCell {
    /// Kind of the error, such as `ValueError`.
    pub kind: TVMFFIByteArray,
    /// Message of the error.
    pub message: TVMFFIByteArray,
    /// Lines of the form `  File "<file>", line <n>, in <function>`, most recent call first.
    pub backtrace: TVMFFIByteArray,
    /// Function that replaces the backtrace (mode 0) or appends to it (mode 1). The string is copied.
    pub update_backtrace: Option<
        unsafe extern "C" fn(self_: TVMFFIObjectHandle, backtrace: *const TVMFFIByteArray, update_mode: i32),
    >,
    /// Error that caused this one, owned; NULL if absent.
    pub cause_chain: TVMFFIObjectHandle,
    /// Object with further details of the error, owned; NULL if absent.
    pub extra_context: TVMFFIObjectHandle,
}

/// Content of a Function (type 68).
#[repr(C)]
pub struct TVMFFIFunctionCell {
    /// Function that performs the call. Its first argument is the function object itself.
    pub safe_call: TVMFFISafeCallType,
    /// Entry point for C++ callers built with the same toolchain; always NULL in functions that anyfn creates.
    pub cpp_call: *mut c_void,
}

/// Content of an OpaquePyObject (type 74).
#[repr(C)]
pub struct TVMFFIOpaqueObjectCell {
    /// Handle of the wrapped object; a `PyObject*` for Python.
    pub handle: *mut c_void,
}

/// Content of a BigInt (type 78). Its 64-bit words follow: two's complement, least significant word first.
#[repr(C)]
pub struct TVMFFIBigIntCell {
    /// Number of 64-bit words of the integer.
    pub word_count: usize,
}

/// Prefix of the memory of an object from a custom allocator, directly before the header of the object. It
/// stores the function that frees the memory.
#[repr(C)]
pub struct TVMFFIObjectAllocHeader {
    /// Function that frees the memory of the object whose header follows. Argument: the address of the header.
    pub delete_space: Option<unsafe extern "C" fn(body: *mut c_void)>,
}

/// Allocator for the memory of objects.
#[repr(C)]
pub struct TVMFFICustomAllocator {
    /// Function that returns the address of `size` bytes with a [`TVMFFIObjectAllocHeader`] directly before them, or
    /// NULL.
    pub allocate: Option<
        unsafe extern "C" fn(
            size: usize,
            alignment: usize,
            type_index: i32,
            context: *mut c_void,
        ) -> *mut c_void,
    >,
    /// Context that is passed to `allocate`.
    pub context: *mut c_void,
}
