//! Declarations of the ABI's functions, and the table of pointers to them.
//!
//! Each function is declared here once. Macros and `xtask codegen` derive from it an `extern` declaration, a member of
//! the function table that [`anyfn_api`] returns, and a declaration in the C header.
//!
//! Functions that return `int` return 0 on success and -1 if they raised an error, which `TVMFFIErrorMoveFromRaised`
//! takes out of this thread's slot for the raised error. All functions may be called from any thread, even before the
//! constructors of the library have run. No panic or exception propagates out of them. Input handles and values are
//! borrowed. Output handles and values are owned by the caller unless the documentation of the function states
//! otherwise.

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

        /// Table of pointers to all functions of the ABI, in the order of the C header.
        ///
        /// A frontend that must not depend on symbol resolution obtains this table from [`anyfn_api`] and calls through
        /// it. Members are only ever appended. A member exists if it lies within the first `size` bytes.
        #[repr(C)]
        pub struct AnyfnApi {
            /// Size of the table in bytes.
            pub size: usize,
            /// Version of the ABI that the runtime implements.
            pub version: TVMFFIVersion,
            /// Reserved, always zero.
            pub reserved: u32,
            /// Reason why this copy of the runtime must not be used (another copy is already loaded), or NULL.
            pub conflict: *const c_char,
            /// Absolute path of the file that contains this runtime, or NULL.
            pub path: *const c_char,
            $( $(#[$doc])* pub $name: unsafe extern "C" fn($($arg: $ty),*) $(-> $ret)?, )*
        }

        /// Names of all functions of the ABI, in the order of the C header.
        pub const FUNCTION_NAMES: &[&str] = &[$( stringify!($name) ),*];

        /// Calls the macro `$then` with the names of all functions of the ABI, in the order of the
        /// C header.
        #[macro_export]
        macro_rules! for_each_function {
            ($then:ident) => { $then! { $($name),* } };
        }
    };
}

unsafe extern "C" {
    /// Returns the function table of the runtime. The table is valid as long as the runtime is loaded.
    pub fn anyfn_api() -> *const AnyfnApi;
}

functions! {
    /// Writes the version of the ABI that the runtime implements.
    fn TVMFFIGetVersion(out_version: *mut TVMFFIVersion);

    /// Adds a strong reference. Always returns 0; NULL is ignored.
    fn TVMFFIObjectIncRef(obj: TVMFFIObjectHandle) -> c_int;

    /// Releases a strong reference. Releasing the last one destroys the object. Always returns 0; NULL is ignored.
    fn TVMFFIObjectDecRef(obj: TVMFFIObjectHandle) -> c_int;

    /// Creates an object that holds `handle`. The object calls `deleter(handle)` when it is
    /// destroyed, unless `deleter` is NULL.
    ///
    /// `type_index` must be `kTVMFFIOpaquePyObject`.
    fn TVMFFIObjectCreateOpaque(
        handle: *mut c_void,
        type_index: i32,
        deleter: Option<unsafe extern "C" fn(handle: *mut c_void)>,
        out: *mut TVMFFIObjectHandle,
    ) -> c_int;

    /// Returns the allocator for the memory of objects; never NULL. The result is borrowed.
    fn TVMFFIGetCustomAllocator() -> *mut TVMFFICustomAllocator;

    /// Sets the allocator for objects; NULL restores the built-in one. The struct must outlive its use.
    fn TVMFFISetCustomAllocator(allocator: *mut TVMFFICustomAllocator) -> c_int;

    /// Looks up the index of a type by its key. Raises `InternalError` if the type does not exist.
    fn TVMFFITypeKeyToIndex(type_key: *const TVMFFIByteArray, out_tindex: *mut i32) -> c_int;

    /// Creates a function object. The object calls `deleter(self)` when it is destroyed, unless
    /// `deleter` is NULL.
    ///
    /// `safe_call` receives `self` as its first argument. If both `self` and `deleter` are NULL, it receives the
    /// function object itself instead.
    fn TVMFFIFunctionCreate(
        self_: *mut c_void,
        safe_call: Option<TVMFFISafeCallType>,
        deleter: Option<unsafe extern "C" fn(self_: *mut c_void)>,
        out: *mut TVMFFIObjectHandle,
    ) -> c_int;

    /// Looks up a global function. A missing function is not an error: `*out` is then NULL.
    fn TVMFFIFunctionGetGlobal(name: *const TVMFFIByteArray, out: *mut TVMFFIObjectHandle) -> c_int;

    /// Creates an owned value from a view. Borrowed strings are copied. The object of an r-value reference is
    /// moved out of the variable of the caller.
    ///
    /// A borrowed `DLTensor*` becomes a tensor object if the frontend that owns it can keep its memory alive, and an
    /// opaque pointer otherwise.
    fn TVMFFIAnyViewToOwnedAny(any_view: *const TVMFFIAny, out: *mut TVMFFIAny) -> c_int;

    /// Calls a function. `*result` must be None on entry.
    ///
    /// `args` and `result` are passed on to the function without checks, to keep calls fast. Neither may be NULL,
    /// except that `args` may be NULL if `num_args` is 0.
    fn TVMFFIFunctionCall(
        func: TVMFFIObjectHandle,
        args: *mut TVMFFIAny,
        num_args: i32,
        result: *mut TVMFFIAny,
    ) -> c_int;

    /// Takes the error out of this thread's slot for the raised error. `*result` is NULL if no error was raised.
    fn TVMFFIErrorMoveFromRaised(result: *mut TVMFFIObjectHandle);

    /// Raises an error: stores it in this thread's slot for the raised error and replaces an error that is already
    /// there.
    fn TVMFFIErrorSetRaised(error: TVMFFIObjectHandle);

    /// Raises an error with a kind, such as `ValueError`, and a message. NULL is treated as an empty string.
    fn TVMFFIErrorSetRaisedFromCStr(kind: *const c_char, message: *const c_char);

    /// Raises an error whose message is the concatenation of the parts. NULL parts are skipped.
    fn TVMFFIErrorSetRaisedFromCStrParts(kind: *const c_char, message_parts: *mut *const c_char, num_parts: i32);

    /// Creates an error. Returns -1 without raising an error if memory is exhausted.
    fn TVMFFIErrorCreate(
        kind: *const TVMFFIByteArray,
        message: *const TVMFFIByteArray,
        backtrace: *const TVMFFIByteArray,
        out: *mut TVMFFIObjectHandle,
    ) -> c_int;

    /// Creates an error with a cause and further context, each an object or NULL. Returns -1 without raising an error
    /// if memory is exhausted.
    fn TVMFFIErrorCreateWithCauseAndExtraContext(
        kind: *const TVMFFIByteArray,
        message: *const TVMFFIByteArray,
        backtrace: *const TVMFFIByteArray,
        cause_chain: TVMFFIObjectHandle,
        extra_context: TVMFFIObjectHandle,
        out: *mut TVMFFIObjectHandle,
    ) -> c_int;

    /// Creates a tensor from a DLPack tensor, and takes ownership of `from` on success.
    ///
    /// `require_alignment` is in bytes; 0 requires none. Raises `RuntimeError` if the data is not aligned or not
    /// contiguous as required. On an error the caller still owns `from`.
    fn TVMFFITensorFromDLPack(
        from: *mut DLManagedTensor,
        require_alignment: i32,
        require_contiguous: i32,
        out: *mut TVMFFIObjectHandle,
    ) -> c_int;

    /// Exports a tensor. The result holds a reference to the tensor until its deleter is called.
    fn TVMFFITensorToDLPack(from: TVMFFIObjectHandle, out: *mut *mut DLManagedTensor) -> c_int;

    /// Creates a tensor like `TVMFFITensorFromDLPack`, from a managed tensor of DLPack 1.0 or later.
    fn TVMFFITensorFromDLPackVersioned(
        from: *mut DLManagedTensorVersioned,
        require_alignment: i32,
        require_contiguous: i32,
        out: *mut TVMFFIObjectHandle,
    ) -> c_int;

    /// Exports a tensor like `TVMFFITensorToDLPack`, as a managed tensor of DLPack 1.0 or later.
    fn TVMFFITensorToDLPackVersioned(from: TVMFFIObjectHandle, out: *mut *mut DLManagedTensorVersioned) -> c_int;

    /// Creates a tensor over the memory of `source`, with the data pointer, byte offset, device, data type,
    /// shape and strides of `prototype`. The new tensor keeps `source` alive.
    ///
    /// Shape and strides are copied. Strides are required unless `ndim` is 0. Nothing is checked against `source`.
    fn TVMFFITensorCreateUnsafeView(
        source: TVMFFIObjectHandle,
        prototype: *const DLTensor,
        out: *mut TVMFFIObjectHandle,
    ) -> c_int;

    /// Creates a string with a copy of the bytes. Up to 7 bytes are stored in the value itself.
    fn TVMFFIStringFromByteArray(input: *const TVMFFIByteArray, out: *mut TVMFFIAny) -> c_int;

    /// Creates a bytes value with a copy of the bytes. Up to 7 bytes are stored in the value itself.
    fn TVMFFIBytesFromByteArray(input: *const TVMFFIByteArray, out: *mut TVMFFIAny) -> c_int;

    /// Creates an integer from whole 64-bit words in two's complement, least significant word first.
    ///
    /// The result is an int if the integer fits and a BigInt otherwise. Raises `ValueError` if the last word is
    /// incomplete.
    fn TVMFFIBigIntFromByteArray(input: *const TVMFFIByteArray, out: *mut TVMFFIAny) -> c_int;

    /// Returns the 64-bit words of an int or BigInt, borrowed from `value`. The result is empty for other types.
    fn TVMFFIBigIntGetContentByteArray(value: *const TVMFFIAny) -> TVMFFIByteArray;

    /// Parses a data type such as `float32` or `int8x4`. Raises `ValueError` if the string is not a data type.
    fn TVMFFIDataTypeFromString(str_: *const TVMFFIByteArray, out: *mut DLDataType) -> c_int;

    /// Formats a data type as an owned string.
    fn TVMFFIDataTypeToString(dtype: *const DLDataType, out: *mut TVMFFIAny) -> c_int;

    /// Registers a global function and keeps a reference to it.
    ///
    /// Raises `RuntimeError` if the name is taken and `allow_override` is 0.
    fn TVMFFIFunctionSetGlobal(
        name: *const TVMFFIByteArray,
        f: TVMFFIObjectHandle,
        allow_override: c_int,
    ) -> c_int;

    /// Registers a global function like `TVMFFIFunctionSetGlobal`, with documentation and metadata. The strings of
    /// `method_info` are copied.
    fn TVMFFIFunctionSetGlobalFromMethodInfo(method_info: *const TVMFFIMethodInfo, allow_override: c_int) -> c_int;

    /// Adds a field to a type. Strings are copied. Raises `InternalError` if the type already has a field of that name.
    fn TVMFFITypeRegisterField(type_index: i32, info: *const TVMFFIFieldInfo) -> c_int;

    /// Adds a method to a type and keeps a reference to the function. Strings are copied.
    fn TVMFFITypeRegisterMethod(type_index: i32, info: *const TVMFFIMethodInfo) -> c_int;

    /// Sets the metadata of a type, once. Raises `RuntimeError` if the metadata is already set.
    fn TVMFFITypeRegisterMetadata(type_index: i32, metadata: *const TVMFFITypeMetadata) -> c_int;

    /// Sets an attribute of a type; each can be set only once. With type index 0, creates only the column of the attribute.
    ///
    /// Raises `RuntimeError` if the attribute is already set.
    fn TVMFFITypeRegisterAttr(
        type_index: i32,
        attr_name: *const TVMFFIByteArray,
        attr_value: *const TVMFFIAny,
    ) -> c_int;

    /// Returns the column of an attribute, at a stable address; NULL if the attribute has not been registered yet.
    fn TVMFFIGetTypeAttrColumn(attr_name: *const TVMFFIByteArray) -> *const TVMFFITypeAttrColumn;

    /// Returns a backtrace that begins with the given source location. The string is valid until
    /// this thread calls the function again.
    ///
    /// The first line consists of `filename`, `lineno` and `func`, if given. Native frames follow only if the
    /// environment variable `ANYFN_BACKTRACE` is 1.
    fn TVMFFIBacktrace(
        filename: *const c_char,
        lineno: c_int,
        func: *const c_char,
        cross_ffi_boundary: c_int,
    ) -> *const TVMFFIByteArray;

    /// Returns the index of a type, and registers the type first if its key is new.
    ///
    /// `static_type_index` is -1 for a type whose index is allocated at run time. `parent_type_index` is -1 for a root
    /// type, or -2 to look up the index without registering the type. The result is negative if the type does not exist
    /// (-2) or cannot be registered (-1, with an error raised).
    fn TVMFFITypeGetOrAllocIndex(
        type_key: *const TVMFFIByteArray,
        static_type_index: i32,
        type_depth: i32,
        num_child_slots: i32,
        child_slots_can_overflow: i32,
        parent_type_index: i32,
    ) -> i32;

    /// Returns the type info of a type, at a stable address. Returns NULL and raises an error if the index is unknown.
    fn TVMFFIGetTypeInfo(type_index: i32) -> *const TVMFFITypeInfo;

    /// Initialises `*handle_addr` with the handle that `init_func` produces, unless it is initialised already. If
    /// several threads call this at the same time, one of them calls `init_func` and the other threads wait.
    ///
    /// Returns a non-zero code of `init_func` unchanged. Raises `RuntimeError` if `init_func` produces NULL.
    fn TVMFFIHandleInitOnce(
        handle_addr: *mut *mut c_void,
        init_func: Option<unsafe extern "C" fn(result: *mut *mut c_void) -> c_int>,
    ) -> c_int;

    /// Takes the handle out of `*handle_addr`. Passes the handle to `deinit_func` unless the handle is NULL.
    fn TVMFFIHandleDeinitOnce(
        handle_addr: *mut *mut c_void,
        deinit_func: Option<unsafe extern "C" fn(handle: *mut c_void) -> c_int>,
    ) -> c_int;

    /// Sets this thread's current stream of a device. Stores the previous one in `*opt_out_original_stream` unless that
    /// is NULL.
    fn TVMFFIEnvSetStream(
        device_type: i32,
        device_id: i32,
        stream: TVMFFIStreamHandle,
        opt_out_original_stream: *mut TVMFFIStreamHandle,
    ) -> c_int;

    /// Returns this thread's current stream of a device; NULL is the default stream.
    fn TVMFFIEnvGetStream(device_type: i32, device_id: i32) -> TVMFFIStreamHandle;

    /// Sets the tensor allocator of this thread and, if `write_to_global_context` is not 0, also the global one.
    ///
    /// The global allocator applies to threads that have not set their own. The previous allocator of this thread is
    /// stored in `*opt_out_original_allocator` unless that is NULL.
    fn TVMFFIEnvSetDLPackManagedTensorAllocator(
        allocator: Option<DLPackManagedTensorAllocator>,
        write_to_global_context: c_int,
        opt_out_original_allocator: *mut Option<DLPackManagedTensorAllocator>,
    ) -> c_int;

    /// Returns the tensor allocator of this thread, or the global allocator if this thread has set none. The
    /// result is NULL if neither is set.
    fn TVMFFIEnvGetDLPackManagedTensorAllocator() -> Option<DLPackManagedTensorAllocator>;

    /// Allocates a tensor with the shape, data type and device of `prototype`, using the current tensor allocator.
    /// Raises `RuntimeError` if no allocator is set.
    fn TVMFFIEnvTensorAlloc(prototype: *mut DLTensor, out: *mut TVMFFIObjectHandle) -> c_int;

    /// Lets the host language handle pending signals. Returns -1 if a handler raised an error, which the host
    /// language keeps, or if the call in progress on this thread was cancelled.
    fn TVMFFIEnvCheckSignals() -> c_int;

    /// Registers a function of the host language under a name: `PyErr_CheckSignals`, `PyGILState_Ensure`,
    /// `PyGILState_Release` or `AnyfnTensorOwner`.
    ///
    /// Under the name `AnyfnTensorOwner` a frontend registers an `int (*)(DLTensor* view, TVMFFIObjectHandle* out)`.
    /// The runtime calls it when native code keeps a borrowed tensor. If a call of this thread currently borrows `view`
    /// from the frontend, the function sets `*out` to a tensor object that keeps its memory alive; otherwise it leaves
    /// `*out` NULL.
    ///
    /// The names `AnyfnPlace`, `AnyfnFunctionName` and `AnyfnCheckCancelled` are for anyfn's own components. Raises
    /// `ValueError` for other names.
    fn TVMFFIEnvRegisterCAPI(name: *const c_char, symbol: *mut c_void) -> c_int;

    /// Looks up a function in the imports of a library, then among the global functions.
    ///
    /// `library_ctx` is the value that the loader wrote into `__tvm_ffi__library_ctx`. The function in `*out` is
    /// borrowed: the module keeps it. Raises `RuntimeError` if the function does not exist.
    fn TVMFFIEnvModLookupFromImports(
        library_ctx: TVMFFIObjectHandle,
        func_name: *const c_char,
        out: *mut TVMFFIObjectHandle,
    ) -> c_int;

    /// Registers a context symbol: libraries loaded from now on receive `symbol` in their pointer variable `name`, if
    /// they have one.
    fn TVMFFIEnvModRegisterContextSymbol(name: *const c_char, symbol: *mut c_void) -> c_int;

    /// Registers a symbol of a statically linked library.
    fn TVMFFIEnvModRegisterSystemLibSymbol(name: *const c_char, symbol: *mut c_void) -> c_int;
}
