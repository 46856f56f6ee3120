//! The functions of the ABI.
//!
//! Each is declared here once: as an `extern` declaration, as a member of the function table that
//! [`anyfn_api`] returns, and (by `xtask codegen`) in the C header.
//!
//! Functions that return `int` return 0 on success; -1 means that an error was put into this thread's raised slot,
//! from where `TVMFFIErrorMoveFromRaised` takes it. All of them may be called from any thread, before any constructor
//! of the library has run, and none lets a panic or an exception out. Input handles and values are borrowed; output
//! handles and values are owned by the caller, unless the text says otherwise.

use core::ffi::{c_char, c_int, c_void};

use crate::{
    DLDataType, DLManagedTensor, DLManagedTensorVersioned, DLPackManagedTensorAllocator, DLTensor, TVMFFIAny,
    TVMFFIByteArray, TVMFFICustomAllocator, TVMFFIFieldInfo, TVMFFIMethodInfo, TVMFFIObjectHandle,
    TVMFFISafeCallType, TVMFFIStreamHandle, TVMFFITypeAttrColumn, TVMFFITypeInfo, TVMFFITypeMetadata,
    TVMFFIVersion,
};

macro_rules! functions {
    ($( $(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)?; )*) => {
        unsafe extern "C" {
            $( $(#[$doc])* pub fn $name($($arg: $ty),*) $(-> $ret)?; )*
        }

        /// All functions of the ABI as pointers, in the order of the header.
        ///
        /// A frontend that must not depend on symbol resolution takes this table from [`anyfn_api`] and calls through
        /// it. Members are only ever appended; `size` says how many there are.
        #[repr(C)]
        pub struct AnyfnApi {
            /// Size of the table in bytes.
            pub size: usize,
            /// Version of the ABI that the runtime implements.
            pub version: TVMFFIVersion,
            /// Zero.
            pub reserved: u32,
            /// NULL, or why this copy of the runtime must not be used (another copy is already loaded).
            pub conflict: *const c_char,
            /// Absolute path of the file that holds this runtime, or NULL.
            pub path: *const c_char,
            $( $(#[$doc])* pub $name: unsafe extern "C" fn($($arg: $ty),*) $(-> $ret)?, )*
        }

        /// Names of all functions, in the order of the header.
        pub const FUNCTION_NAMES: &[&str] = &[$( stringify!($name) ),*];

        /// Calls the macro `$then` with the names of all functions, in the order of the header.
        #[macro_export]
        macro_rules! for_each_function {
            ($then:ident) => { $then! { $($name),* } };
        }
    };
}

unsafe extern "C" {
    /// Returns the function table of the runtime; it lives as long as the library is loaded.
    pub fn anyfn_api() -> *const AnyfnApi;
}

functions! {
    /// Writes the version of the ABI that the runtime implements.
    fn TVMFFIGetVersion(out_version: *mut TVMFFIVersion);

    /// Adds a strong reference. Always 0; NULL is ignored.
    fn TVMFFIObjectIncRef(obj: TVMFFIObjectHandle) -> c_int;

    /// Gives a strong reference back; the last one releases the object. Always 0; NULL is ignored.
    fn TVMFFIObjectDecRef(obj: TVMFFIObjectHandle) -> c_int;

    /// Makes an object that holds `handle` and calls `deleter(handle)` (if not NULL) when it is released.
    ///
    /// Only `kTVMFFIOpaquePyObject` is allowed as type.
    fn TVMFFIObjectCreateOpaque(
        handle: *mut c_void,
        type_index: i32,
        deleter: Option<unsafe extern "C" fn(handle: *mut c_void)>,
        out: *mut TVMFFIObjectHandle,
    ) -> c_int;

    /// Returns the allocator that objects are to be made with; never NULL. Borrowed.
    fn TVMFFIGetCustomAllocator() -> *mut TVMFFICustomAllocator;

    /// Sets the allocator; NULL restores the built-in one. The struct must outlive its use.
    fn TVMFFISetCustomAllocator(allocator: *mut TVMFFICustomAllocator) -> c_int;

    /// Looks the index of a type up by its key. `InternalError` if there is none.
    fn TVMFFITypeKeyToIndex(type_key: *const TVMFFIByteArray, out_tindex: *mut i32) -> c_int;

    /// Makes a function. `deleter(self)` (if not NULL) is called when it is released.
    ///
    /// `safe_call` receives `self` as its first argument; if both `self` and `deleter` are NULL it receives the
    /// function object itself.
    fn TVMFFIFunctionCreate(
        self_: *mut c_void,
        safe_call: Option<TVMFFISafeCallType>,
        deleter: Option<unsafe extern "C" fn(self_: *mut c_void)>,
        out: *mut TVMFFIObjectHandle,
    ) -> c_int;

    /// Looks a global function up. A missing one is no error: `*out` is NULL then.
    fn TVMFFIFunctionGetGlobal(name: *const TVMFFIByteArray, out: *mut TVMFFIObjectHandle) -> c_int;

    /// Makes an owned value of a view: borrowed strings are copied, an r-value reference is moved out of its slot.
    ///
    /// A borrowed `DLTensor*` becomes a tensor object if the frontend that lends it can keep its memory alive, and an
    /// opaque pointer otherwise.
    fn TVMFFIAnyViewToOwnedAny(any_view: *const TVMFFIAny, out: *mut TVMFFIAny) -> c_int;

    /// Calls a function. `*result` must be None on entry.
    ///
    /// This is the shortest way into a function, so `args` and `result` are passed on as they come: neither may be NULL
    /// (but `args` when `num_args` is 0).
    fn TVMFFIFunctionCall(
        func: TVMFFIObjectHandle,
        args: *mut TVMFFIAny,
        num_args: i32,
        result: *mut TVMFFIAny,
    ) -> c_int;

    /// Takes the error out of this thread's raised slot; NULL if there is none.
    fn TVMFFIErrorMoveFromRaised(result: *mut TVMFFIObjectHandle);

    /// Puts an error into this thread's raised slot, replacing one that is there.
    fn TVMFFIErrorSetRaised(error: TVMFFIObjectHandle);

    /// Raises an error of a kind (such as `ValueError`) with a message. NULL counts as an empty text.
    fn TVMFFIErrorSetRaisedFromCStr(kind: *const c_char, message: *const c_char);

    /// Raises an error whose message is the concatenation of parts; NULL parts are skipped.
    fn TVMFFIErrorSetRaisedFromCStrParts(kind: *const c_char, message_parts: *mut *const c_char, num_parts: i32);

    /// Makes an error. -1 means out of memory; nothing is raised then.
    fn TVMFFIErrorCreate(
        kind: *const TVMFFIByteArray,
        message: *const TVMFFIByteArray,
        backtrace: *const TVMFFIByteArray,
        out: *mut TVMFFIObjectHandle,
    ) -> c_int;

    /// Makes an error with a cause and further context, each an object or NULL. -1 means out of memory.
    fn TVMFFIErrorCreateWithCauseAndExtraContext(
        kind: *const TVMFFIByteArray,
        message: *const TVMFFIByteArray,
        backtrace: *const TVMFFIByteArray,
        cause_chain: TVMFFIObjectHandle,
        extra_context: TVMFFIObjectHandle,
        out: *mut TVMFFIObjectHandle,
    ) -> c_int;

    /// Makes a tensor of a DLPack tensor and takes that one over on success.
    ///
    /// `require_alignment` is in bytes, 0 for none. `RuntimeError` if the data is not aligned or not contiguous as
    /// required; the caller still owns `from` then.
    fn TVMFFITensorFromDLPack(
        from: *mut DLManagedTensor,
        require_alignment: i32,
        require_contiguous: i32,
        out: *mut TVMFFIObjectHandle,
    ) -> c_int;

    /// Exports a tensor; the result holds a reference until its deleter is called.
    fn TVMFFITensorToDLPack(from: TVMFFIObjectHandle, out: *mut *mut DLManagedTensor) -> c_int;

    /// Like `TVMFFITensorFromDLPack`, for DLPack 1.0 and later.
    fn TVMFFITensorFromDLPackVersioned(
        from: *mut DLManagedTensorVersioned,
        require_alignment: i32,
        require_contiguous: i32,
        out: *mut TVMFFIObjectHandle,
    ) -> c_int;

    /// Like `TVMFFITensorToDLPack`, for DLPack 1.0 and later.
    fn TVMFFITensorToDLPackVersioned(from: TVMFFIObjectHandle, out: *mut *mut DLManagedTensorVersioned) -> c_int;

    /// Makes a tensor that shows memory of `source` as `prototype` says and keeps `source` alive.
    ///
    /// Shape and strides (required when there are dimensions) are copied; nothing is checked against `source`.
    fn TVMFFITensorCreateUnsafeView(
        source: TVMFFIObjectHandle,
        prototype: *const DLTensor,
        out: *mut TVMFFIObjectHandle,
    ) -> c_int;

    /// Makes a string; up to 7 bytes live in the value itself. The bytes are copied.
    fn TVMFFIStringFromByteArray(input: *const TVMFFIByteArray, out: *mut TVMFFIAny) -> c_int;

    /// Makes bytes; up to 7 live in the value itself. The bytes are copied.
    fn TVMFFIBytesFromByteArray(input: *const TVMFFIByteArray, out: *mut TVMFFIAny) -> c_int;

    /// Makes an integer of whole 64-bit words, two's complement, least significant word first.
    ///
    /// The result is an int where it fits and a BigInt otherwise. `ValueError` for a partial word.
    fn TVMFFIBigIntFromByteArray(input: *const TVMFFIByteArray, out: *mut TVMFFIAny) -> c_int;

    /// The words of an int or BigInt; borrowed from `value`. Empty for other types.
    fn TVMFFIBigIntGetContentByteArray(value: *const TVMFFIAny) -> TVMFFIByteArray;

    /// Parses a data type such as `float32` or `int8x4`. `ValueError` if it is none.
    fn TVMFFIDataTypeFromString(str_: *const TVMFFIByteArray, out: *mut DLDataType) -> c_int;

    /// Prints a data type into an owned string.
    fn TVMFFIDataTypeToString(dtype: *const DLDataType, out: *mut TVMFFIAny) -> c_int;

    /// Registers a global function and keeps a reference to it.
    ///
    /// `RuntimeError` if the name is taken and `allow_override` is 0.
    fn TVMFFIFunctionSetGlobal(
        name: *const TVMFFIByteArray,
        f: TVMFFIObjectHandle,
        allow_override: c_int,
    ) -> c_int;

    /// Like `TVMFFIFunctionSetGlobal`, with documentation and metadata. The texts are copied.
    fn TVMFFIFunctionSetGlobalFromMethodInfo(method_info: *const TVMFFIMethodInfo, allow_override: c_int) -> c_int;

    /// Adds a field to a type. The texts are copied. `InternalError` if the type has a field of that name.
    fn TVMFFITypeRegisterField(type_index: i32, info: *const TVMFFIFieldInfo) -> c_int;

    /// Adds a method to a type and keeps a reference to the function. The texts are copied.
    fn TVMFFITypeRegisterMethod(type_index: i32, info: *const TVMFFIMethodInfo) -> c_int;

    /// Sets the metadata of a type, once. `RuntimeError` if it is set.
    fn TVMFFITypeRegisterMetadata(type_index: i32, metadata: *const TVMFFITypeMetadata) -> c_int;

    /// Sets an attribute of a type, once; type index 0 only makes sure that the column exists.
    ///
    /// `RuntimeError` if it is set.
    fn TVMFFITypeRegisterAttr(
        type_index: i32,
        attr_name: *const TVMFFIByteArray,
        attr_value: *const TVMFFIAny,
    ) -> c_int;

    /// Returns the column of an attribute, at a stable address; NULL if nothing has registered it so far.
    fn TVMFFIGetTypeAttrColumn(attr_name: *const TVMFFIByteArray) -> *const TVMFFITypeAttrColumn;

    /// Describes the current place in a text that is valid until the next call on this thread.
    ///
    /// The first line is made of `filename`, `lineno` and `func` (if given). Native frames follow only when the
    /// environment variable `ANYFN_BACKTRACE` is 1.
    fn TVMFFIBacktrace(
        filename: *const c_char,
        lineno: c_int,
        func: *const c_char,
        cross_ffi_boundary: c_int,
    ) -> *const TVMFFIByteArray;

    /// Returns the index of a type and registers the type first if its key is new.
    ///
    /// `static_type_index` is -1 for a type whose index is allotted now. `parent_type_index` is -1 for a root, and -2
    /// to only ask for the index. The result is negative when the type does not exist (-2) or cannot be made (-1, and
    /// an error is raised).
    fn TVMFFITypeGetOrAllocIndex(
        type_key: *const TVMFFIByteArray,
        static_type_index: i32,
        type_depth: i32,
        num_child_slots: i32,
        child_slots_can_overflow: i32,
        parent_type_index: i32,
    ) -> i32;

    /// Returns what is known of a type, at a stable address; NULL (and an error is raised) for an unknown index.
    fn TVMFFIGetTypeInfo(type_index: i32) -> *const TVMFFITypeInfo;

    /// Fills `*handle_addr` once by `init_func`, from whichever thread comes first.
    ///
    /// A non-zero code of `init_func` is returned as it is. `RuntimeError` if it gives NULL.
    fn TVMFFIHandleInitOnce(
        handle_addr: *mut *mut c_void,
        init_func: Option<unsafe extern "C" fn(result: *mut *mut c_void) -> c_int>,
    ) -> c_int;

    /// Takes the handle out of `*handle_addr` and, if it was not NULL, passes it to `deinit_func`.
    fn TVMFFIHandleDeinitOnce(
        handle_addr: *mut *mut c_void,
        deinit_func: Option<unsafe extern "C" fn(handle: *mut c_void) -> c_int>,
    ) -> c_int;

    /// Sets this thread's current stream of a device; `*opt_out_original_stream` (if not NULL) gets the old one.
    fn TVMFFIEnvSetStream(
        device_type: i32,
        device_id: i32,
        stream: TVMFFIStreamHandle,
        opt_out_original_stream: *mut TVMFFIStreamHandle,
    ) -> c_int;

    /// Returns this thread's current stream of a device; NULL is the default stream.
    fn TVMFFIEnvGetStream(device_type: i32, device_id: i32) -> TVMFFIStreamHandle;

    /// Sets the tensor allocator of this thread and, if `write_to_global_context` is not 0, of all threads.
    ///
    /// `*opt_out_original_allocator` (if not NULL) gets this thread's old one.
    fn TVMFFIEnvSetDLPackManagedTensorAllocator(
        allocator: Option<DLPackManagedTensorAllocator>,
        write_to_global_context: c_int,
        opt_out_original_allocator: *mut Option<DLPackManagedTensorAllocator>,
    ) -> c_int;

    /// Returns the tensor allocator of this thread, else the global one, else NULL.
    fn TVMFFIEnvGetDLPackManagedTensorAllocator() -> Option<DLPackManagedTensorAllocator>;

    /// Allocates a tensor like `prototype` by the current allocator. `RuntimeError` if there is none.
    fn TVMFFIEnvTensorAlloc(prototype: *mut DLTensor, out: *mut TVMFFIObjectHandle) -> c_int;

    /// Lets the host language handle pending signals; -1 when it raised, with its own error set.
    fn TVMFFIEnvCheckSignals() -> c_int;

    /// Registers a function of the host language: `PyErr_CheckSignals`, `PyGILState_Ensure`, `PyGILState_Release`.
    ///
    /// Under the name `AnyfnTensorOwner` a frontend registers `int (*)(DLTensor* view, TVMFFIObjectHandle* out)`: it is asked
    /// when native code keeps a borrowed tensor, and gives a tensor object that keeps the memory of one which this
    /// thread's calls lend at that moment, or leaves `*out` NULL. `ValueError` for other names.
    fn TVMFFIEnvRegisterCAPI(name: *const c_char, symbol: *mut c_void) -> c_int;

    /// Looks a function up in the imports of a library, then among the global functions.
    ///
    /// `library_ctx` is what the loader wrote into `__tvm_ffi__library_ctx`. The function in `*out` is borrowed: the
    /// module keeps it. `RuntimeError` if there is none.
    fn TVMFFIEnvModLookupFromImports(
        library_ctx: TVMFFIObjectHandle,
        func_name: *const c_char,
        out: *mut TVMFFIObjectHandle,
    ) -> c_int;

    /// Makes each library loaded from now on get `symbol` in its pointer variable `name`, if it has one.
    fn TVMFFIEnvModRegisterContextSymbol(name: *const c_char, symbol: *mut c_void) -> c_int;

    /// Registers a symbol of a statically linked library.
    fn TVMFFIEnvModRegisterSystemLibSymbol(name: *const c_char, symbol: *mut c_void) -> c_int;
}
