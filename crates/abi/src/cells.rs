//! Content of the built-in objects, right behind the 24-byte header.

use core::ffi::{c_int, c_void};

use crate::{TVMFFIAny, TVMFFIByteArray, TVMFFIObjectHandle};

/// The one signature of all functions: 0 is success, -1 means that an error was raised on this thread.
///
/// `args` are views, borrowed for the call. `*result` is None on entry and an owned value on success.
pub type TVMFFISafeCallType = unsafe extern "C" fn(
    handle: *mut c_void,
    args: *const TVMFFIAny,
    num_args: i32,
    result: *mut TVMFFIAny,
) -> c_int;

/// Content of a Shape (type 69).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TVMFFIShapeCell {
    /// The extents.
    pub data: *const i64,
    /// Number of dimensions.
    pub size: usize,
}

/// Content of an Array (type 71) or List (type 75).
#[repr(C)]
pub struct TVMFFISeqCell {
    /// First element, a `TVMFFIAny`.
    pub data: *mut c_void,
    /// Number of elements.
    pub size: i64,
    /// Number of elements that fit.
    pub capacity: i64,
    /// Frees `data`; NULL when the elements live in the object's own memory.
    pub data_deleter: Option<unsafe extern "C" fn(data: *mut c_void)>,
}

/// Content of a Map (type 72) or Dict (type 76).
///
/// Bit 63 of `slots` marks the small layout: pairs of key and value in insertion order, at most four. Otherwise `data`
/// is an array of blocks of 16 slots and a [`TVMFFIDenseMapTail`] follows.
#[repr(C)]
pub struct TVMFFIMapCell {
    /// Pairs (small) or blocks (dense).
    pub data: *mut c_void,
    /// Number of pairs.
    pub size: u64,
    /// Number of slots; bit 63 set for the small layout.
    pub slots: u64,
    /// Frees `data`; NULL when the pairs live in the object's own memory.
    pub data_deleter: Option<unsafe extern "C" fn(data: *mut c_void)>,
}

/// What a Map or Dict of dense layout has behind its [`TVMFFIMapCell`].
#[repr(C)]
pub struct TVMFFIDenseMapTail {
    /// A key's home slot is its scrambled hash shifted right by this.
    pub fib_shift: u32,
    /// Zero.
    pub padding: u32,
    /// Slot of the oldest pair; all ones when empty.
    pub iter_head: u64,
    /// Slot of the newest pair; all ones when empty.
    pub iter_tail: u64,
}

/// One slot of a dense Map or Dict.
#[repr(C)]
pub struct TVMFFIMapItem {
    /// The key.
    pub key: TVMFFIAny,
    /// The value.
    pub value: TVMFFIAny,
    /// Slot of the next older pair; all ones when there is none.
    pub prev: u64,
    /// Slot of the next newer pair; all ones when there is none.
    pub next: u64,
}

/// Sixteen slots of a dense Map or Dict and what each is used for.
#[repr(C)]
pub struct TVMFFIMapBlock {
    /// 0xFF empty, 0xFE protected; else bit 7 clear: head of a chain, set: body; low seven bits: jump to the next.
    pub meta: [u8; 16],
    /// The slots.
    pub items: [TVMFFIMapItem; 16],
}

/// How `update_backtrace` combines texts.
pub const kTVMFFIBacktraceUpdateModeReplace: i32 = 0;
/// How `update_backtrace` combines texts.
pub const kTVMFFIBacktraceUpdateModeAppend: i32 = 1;

/// Content of an Error (type 67). All byte arrays are owned by the error.
#[repr(C)]
pub struct TVMFFIErrorCell {
    /// Kind, such as `ValueError`.
    pub kind: TVMFFIByteArray,
    /// Message.
    pub message: TVMFFIByteArray,
    /// Lines `  File "<file>", line <n>, in <function>`, the most recent call first.
    pub backtrace: TVMFFIByteArray,
    /// Replaces (mode 0) or appends to (mode 1) the backtrace; the text is copied.
    pub update_backtrace: Option<
        unsafe extern "C" fn(self_: TVMFFIObjectHandle, backtrace: *const TVMFFIByteArray, update_mode: i32),
    >,
    /// The error that caused this one, owned; NULL if none.
    pub cause_chain: TVMFFIObjectHandle,
    /// Further detail, owned; NULL if none.
    pub extra_context: TVMFFIObjectHandle,
}

/// Content of a Function (type 68).
#[repr(C)]
pub struct TVMFFIFunctionCell {
    /// Calls the function; the first argument is the function object itself.
    pub safe_call: TVMFFISafeCallType,
    /// For C++ callers of the same toolchain; always NULL in functions that anyfn makes.
    pub cpp_call: *mut c_void,
}

/// Content of an OpaquePyObject (type 74).
#[repr(C)]
pub struct TVMFFIOpaqueObjectCell {
    /// For Python, a `PyObject*`.
    pub handle: *mut c_void,
}

/// Content of a BigInt (type 78): two's complement, least significant word first, in `words` behind this.
#[repr(C)]
pub struct TVMFFIBigIntCell {
    /// Number of 64-bit words.
    pub word_count: usize,
}

/// Word in front of an object that a custom allocator made.
#[repr(C)]
pub struct TVMFFIObjectAllocHeader {
    /// Frees the space of the object whose header follows.
    pub delete_space: Option<unsafe extern "C" fn(body: *mut c_void)>,
}

/// A way to allocate objects.
#[repr(C)]
pub struct TVMFFICustomAllocator {
    /// Gives `size` bytes with a [`TVMFFIObjectAllocHeader`] right before them, or NULL.
    pub allocate: Option<
        unsafe extern "C" fn(
            size: usize,
            alignment: usize,
            type_index: i32,
            context: *mut c_void,
        ) -> *mut c_void,
    >,
    /// Passed to `allocate`.
    pub context: *mut c_void,
}
