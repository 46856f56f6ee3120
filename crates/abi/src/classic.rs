//! The C API of the runtime of TVM 0.8, the *classic* API.
//!
//! A value is a [`TVMValue`] and, beside it, a type code. Arguments are two arrays, one of each. `anyfn-classic` converts
//! them to and from [`TVMFFIAny`](crate::TVMFFIAny) and calls the functions of the ABI.
//!
//! Functions that return `int` return 0 on success and -1 if they failed. The text of the error is then what
//! [`TVMGetLastError`] returns on the same thread. All functions may be called from any thread. Handles in arguments are
//! borrowed, and handles in results are owned by the caller, unless the documentation of the function states otherwise.
//! Returned strings belong to the thread, and are valid until the next call of the same function on it.

use core::ffi::{c_char, c_int, c_void};

use crate::{DLDataType, DLDevice, DLManagedTensor, DLTensor};

macro_rules! constants {
    ($all:ident: $ty:ty { $( $(#[$doc:meta])* $name:ident = $value:literal; )* }) => {
        $( $(#[$doc])* pub const $name: $ty = $value; )*
        /// Names and values of the type codes, for code generators.
        pub const $all: &[(&str, $ty)] = &[$( (stringify!($name), $value) ),*];
    };
}

macro_rules! classic {
    ($( $(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)?; )*) => {
        unsafe extern "C" {
            $( $(#[$doc])* pub fn $name($($arg: $ty),*) $(-> $ret)?; )*
        }

        /// Names of the functions of the classic API, without those of
        /// [`BACKEND_FUNCTION_NAMES`](crate::BACKEND_FUNCTION_NAMES), which also belong to it.
        pub const CLASSIC_FUNCTION_NAMES: &[&str] = &[$( stringify!($name) ),*];
    };
}

constants! { TYPE_CODES: i32 {
    /// 64-bit signed integer. Booleans are integers, too.
    kTVMArgInt = 0;
    /// 64-bit unsigned integer. It is converted to a signed one.
    kTVMArgUInt = 1;
    /// 64-bit floating-point number.
    kTVMArgFloat = 2;
    /// Pointer to data of unknown type.
    kTVMOpaqueHandle = 3;
    /// None, the absence of a value.
    kTVMNullptr = 4;
    /// Data type, a `DLDataType`.
    kTVMDataType = 5;
    /// Device, a `DLDevice` with the device types of TVM 0.8.
    kDLDevice = 6;
    /// Borrowed `DLTensor*`.
    kTVMDLTensorHandle = 7;
    /// Object of any type.
    kTVMObjectHandle = 8;
    /// Module.
    kTVMModuleHandle = 9;
    /// Function.
    kTVMPackedFuncHandle = 10;
    /// NUL-terminated string.
    kTVMStr = 11;
    /// Bytes, a `TVMByteArray*`.
    kTVMBytes = 12;
    /// Array: the address of the `DLTensor` in the array object.
    kTVMNDArrayHandle = 13;
    /// Address of a variable that holds an object. The callee may move the object out and write NULL.
    kTVMObjectRValueRefArg = 14;
}}

/// Payload of a value; the type code beside it selects the member.
#[repr(C)]
#[derive(Clone, Copy)]
pub union TVMValue {
    /// Value of an integer.
    pub v_int64: i64,
    /// Value of a floating-point number.
    pub v_float64: f64,
    /// Handle, or address.
    pub v_handle: *mut c_void,
    /// NUL-terminated string.
    pub v_str: *const c_char,
    /// Data type.
    pub v_type: DLDataType,
    /// Device.
    pub v_device: DLDevice,
}

/// Bytes: an address and a length.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TVMByteArray {
    /// Address of the first byte.
    pub data: *const c_char,
    /// Number of bytes at `data`.
    pub size: usize,
}

/// Extent of an array.
#[allow(non_camel_case_types, reason = "the name is that of the C header")]
pub type tvm_index_t = i64;
/// Handle of a module.
pub type TVMModuleHandle = *mut c_void;
/// Handle of a function.
pub type TVMFunctionHandle = *mut c_void;
/// Handle of the place for the result of a C function.
pub type TVMRetValueHandle = *mut c_void;
/// Handle of a stream of a device.
pub type TVMStreamHandle = *mut c_void;
/// Handle of an object of any type.
pub type TVMObjectHandle = *mut c_void;
/// Handle of an array: the address of the `DLTensor` in the array object.
pub type TVMArrayHandle = *mut DLTensor;

/// C function that can be made a function object. It sets its result with `TVMCFuncSetReturn`. To fail, it calls
/// `TVMAPISetLastError` and returns -1.
pub type TVMPackedCFunc = unsafe extern "C" fn(
    args: *mut TVMValue,
    type_codes: *mut c_int,
    num_args: c_int,
    ret: TVMRetValueHandle,
    resource_handle: *mut c_void,
) -> c_int;

/// Function that releases the resource of a C function.
pub type TVMPackedCFuncFinalizer = unsafe extern "C" fn(resource_handle: *mut c_void);

/// Function of a compiled library. `*out_ret_tcode` is `kTVMNullptr` on entry. A handle in the result is owned by the
/// caller; the result cannot be a string or bytes.
pub type TVMBackendPackedCFunc = unsafe extern "C" fn(
    args: *mut TVMValue,
    type_codes: *mut c_int,
    num_args: c_int,
    out_ret_value: *mut TVMValue,
    out_ret_tcode: *mut c_int,
    resource_handle: *mut c_void,
) -> c_int;

classic! {
    /// Sets the error of this thread, as a C function does before it returns -1. The text is copied. If it begins with a
    /// name and a colon, as in `ValueError: too large`, the name is the kind of the error; otherwise the kind is
    /// `RuntimeError`.
    fn TVMAPISetLastError(msg: *const c_char);

    /// Returns the text of the last error on this thread: kind, message and, if there is one, a backtrace. The string is
    /// empty if there was no error, and valid until the next error on this thread.
    fn TVMGetLastError() -> *const c_char;

    /// Loads a module from a file. If `format` is empty, the extension of the file name is the format.
    fn TVMModLoadFromFile(file_name: *const c_char, format: *const c_char, out: *mut TVMModuleHandle) -> c_int;

    /// Adds a module to the imports of another.
    fn TVMModImport(mod_: TVMModuleHandle, dep: TVMModuleHandle) -> c_int;

    /// Looks up a function of a module, and if `query_imports` is not 0 also of its imports. `*out` is NULL if there is
    /// none.
    fn TVMModGetFunction(
        mod_: TVMModuleHandle,
        func_name: *const c_char,
        query_imports: c_int,
        out: *mut TVMFunctionHandle,
    ) -> c_int;

    /// Releases a module. NULL is ignored.
    fn TVMModFree(mod_: TVMModuleHandle) -> c_int;

    /// Releases a function. NULL is ignored.
    fn TVMFuncFree(func: TVMFunctionHandle) -> c_int;

    /// Calls a function. Arguments are borrowed for the call.
    ///
    /// A string and a data type are returned as `kTVMStr`, bytes as `kTVMBytes`. They belong to this thread, until its
    /// next call that returns a string, a data type or bytes. A handle in the result is owned by the caller. On failure,
    /// the result is not written.
    fn TVMFuncCall(
        func: TVMFunctionHandle,
        arg_values: *mut TVMValue,
        type_codes: *mut c_int,
        num_args: c_int,
        ret_val: *mut TVMValue,
        ret_type_code: *mut c_int,
    ) -> c_int;

    /// Sets the result of a C function. `num_ret` must be 1. The value is copied, and a handle is retained.
    fn TVMCFuncSetReturn(
        ret: TVMRetValueHandle,
        value: *mut TVMValue,
        type_code: *mut c_int,
        num_ret: c_int,
    ) -> c_int;

    /// Converts an argument of a C function to a value that the function owns, in place. Strings and bytes cannot be
    /// converted.
    fn TVMCbArgToReturn(value: *mut TVMValue, code: *mut c_int) -> c_int;

    /// Creates a function that calls a C function with `resource_handle`. `fin` is called with it when the function is
    /// destroyed, unless it is NULL.
    fn TVMFuncCreateFromCFunc(
        func: Option<TVMPackedCFunc>,
        resource_handle: *mut c_void,
        fin: Option<TVMPackedCFuncFinalizer>,
        out: *mut TVMFunctionHandle,
    ) -> c_int;

    /// Registers a global function. Fails if the name is in use, unless `override` is not 0.
    fn TVMFuncRegisterGlobal(name: *const c_char, f: TVMFunctionHandle, override_: c_int) -> c_int;

    /// Looks up a global function. If no function has the name, `*out` is NULL. The caller releases the function with
    /// `TVMFuncFree`; otherwise the function stays alive until the process ends.
    fn TVMFuncGetGlobal(name: *const c_char, out: *mut TVMFunctionHandle) -> c_int;

    /// Returns the names of all global functions, in an unspecified order.
    fn TVMFuncListGlobalNames(out_size: *mut c_int, out_array: *mut *mut *const c_char) -> c_int;

    /// Removes a global function. If no function has the name, nothing happens and the result is 0.
    fn TVMFuncRemoveGlobal(name: *const c_char) -> c_int;

    /// Allocates an array, in row-major order and with unspecified elements.
    fn TVMArrayAlloc(
        shape: *const tvm_index_t,
        ndim: c_int,
        dtype_code: c_int,
        dtype_bits: c_int,
        dtype_lanes: c_int,
        device_type: c_int,
        device_id: c_int,
        out: *mut TVMArrayHandle,
    ) -> c_int;

    /// Releases an array. NULL is ignored.
    fn TVMArrayFree(handle: TVMArrayHandle) -> c_int;

    /// Copies bytes to the elements of an array. `nbytes` must be the size of the array.
    fn TVMArrayCopyFromBytes(handle: TVMArrayHandle, data: *mut c_void, nbytes: usize) -> c_int;

    /// Copies the elements of an array to memory. `nbytes` must be the size of the array.
    fn TVMArrayCopyToBytes(handle: TVMArrayHandle, data: *mut c_void, nbytes: usize) -> c_int;

    /// Copies the elements of an array to another one of the same size in bytes, which may be on another device.
    fn TVMArrayCopyFromTo(from: TVMArrayHandle, to: TVMArrayHandle, stream: TVMStreamHandle) -> c_int;

    /// Creates an array from a DLPack tensor. On success, the array owns `from`.
    fn TVMArrayFromDLPack(from: *mut DLManagedTensor, out: *mut TVMArrayHandle) -> c_int;

    /// Exports an array as a DLPack tensor, which keeps the array alive.
    fn TVMArrayToDLPack(from: TVMArrayHandle, out: *mut *mut DLManagedTensor) -> c_int;

    /// Releases a DLPack tensor. NULL is ignored.
    fn TVMDLManagedTensorCallDeleter(dltensor: *mut DLManagedTensor);

    /// Writes the type index of an array.
    fn TVMArrayGetTypeIndex(handle: TVMArrayHandle, out_tindex: *mut u32) -> c_int;

    /// Creates a stream of a device.
    fn TVMStreamCreate(device_type: c_int, device_id: c_int, out: *mut TVMStreamHandle) -> c_int;

    /// Frees a stream.
    fn TVMStreamFree(device_type: c_int, device_id: c_int, stream: TVMStreamHandle) -> c_int;

    /// Makes a stream the current one of a device on this thread. NULL is the default stream.
    fn TVMSetStream(device_type: c_int, device_id: c_int, handle: TVMStreamHandle) -> c_int;

    /// Waits until the work of a stream has finished.
    fn TVMSynchronize(device_type: c_int, device_id: c_int, stream: TVMStreamHandle) -> c_int;

    /// Makes the work that is queued in `dst` from now on wait for the work that is queued in `src`.
    fn TVMStreamStreamSynchronize(
        device_type: c_int,
        device_id: c_int,
        src: TVMStreamHandle,
        dst: TVMStreamHandle,
    ) -> c_int;

    /// Writes the type index of an object.
    fn TVMObjectGetTypeIndex(obj: TVMObjectHandle, out_tindex: *mut u32) -> c_int;

    /// Writes the type index of a type key. Fails if the type does not exist.
    fn TVMObjectTypeKey2Index(type_key: *const c_char, out_tindex: *mut u32) -> c_int;

    /// Writes the type key of a type index, as a string that the caller frees with `free`.
    fn TVMObjectTypeIndex2Key(tindex: u32, out_type_key: *mut *mut c_char) -> c_int;

    /// Adds a reference to an object. NULL is ignored.
    fn TVMObjectRetain(obj: TVMObjectHandle) -> c_int;

    /// Releases a reference to an object. NULL is ignored.
    fn TVMObjectFree(obj: TVMObjectHandle) -> c_int;

    /// Writes 1 if the type `child_type_index` is `parent_type_index` or derived from it, and otherwise 0.
    fn TVMObjectDerivedFrom(child_type_index: u32, parent_type_index: u32, is_derived: *mut c_int) -> c_int;

    /// Does nothing for the bytes that `TVMFuncCall` returned on this thread, which belong to the thread. Others are
    /// refused.
    fn TVMByteArrayFree(arr: *mut TVMByteArray) -> c_int;

    /// Allocates memory on a device.
    fn TVMDeviceAllocDataSpace(
        dev: DLDevice,
        nbytes: usize,
        alignment: usize,
        type_hint: DLDataType,
        out_data: *mut *mut c_void,
    ) -> c_int;

    /// Allocates memory of one kind on a device. A `mem_scope` of NULL, an empty string or `global` is ordinary memory.
    fn TVMDeviceAllocDataSpaceWithScope(
        dev: DLDevice,
        ndim: c_int,
        shape: *const i64,
        dtype: DLDataType,
        mem_scope: *const c_char,
        out_data: *mut *mut c_void,
    ) -> c_int;

    /// Frees memory that one of the two functions above has allocated. NULL is ignored.
    fn TVMDeviceFreeDataSpace(dev: DLDevice, ptr: *mut c_void) -> c_int;

    /// Copies the elements of a tensor to another one of the same size in bytes, which may be on another device.
    fn TVMDeviceCopyDataFromTo(from: *mut DLTensor, to: *mut DLTensor, stream: TVMStreamHandle) -> c_int;

    /// Looks up a function for compiled code: in the imports of its module, then among the global functions. The handle
    /// is borrowed, and valid as long as the module.
    fn TVMBackendGetFuncFromEnv(
        mod_node: *mut c_void,
        func_name: *const c_char,
        out: *mut TVMFunctionHandle,
    ) -> c_int;

    /// Registers a symbol of a library that is linked into the program. Constructors of such libraries call this.
    fn TVMBackendRegisterSystemLibSymbol(name: *const c_char, ptr: *mut c_void) -> c_int;

    /// Registers a function of the program's language for the runtime. The only name is `PyErr_CheckSignals`.
    fn TVMBackendRegisterEnvCAPI(name: *const c_char, ptr: *mut c_void) -> c_int;

    /// Calls `f(cdata)` unless `*handle` is already set, and sets `*handle`.
    fn TVMBackendRunOnce(
        handle: *mut *mut c_void,
        f: Option<unsafe extern "C" fn(cdata: *mut c_void) -> c_int>,
        cdata: *mut c_void,
        nbytes: c_int,
    ) -> c_int;
}
