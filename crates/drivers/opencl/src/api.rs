//! The functions of the OpenCL loader, opened at run time, and the constants and error codes that this crate uses.

use core::ffi::{CStr, c_char, c_void};

use anyfn_kernels::library::{self, Library};

/// Handle of an OpenCL object, such as a context, a queue or a buffer.
pub(crate) type Raw = *mut c_void;

/// The OpenCL loader.
const LIBRARY: Library = Library {
    what: "the OpenCL loader",
    names: if cfg!(target_os = "macos") {
        &["/System/Library/Frameworks/OpenCL.framework/OpenCL"]
    } else {
        &["libOpenCL.so.1", "libOpenCL.so"]
    },
    variable: "ANYFN_OPENCL_LIBRARY",
};

macro_rules! functions {
    ($($name:ident($($arg:ty),*) -> $out:ty;)*) => {
        /// The functions of the OpenCL loader.
        #[allow(non_snake_case, reason = "the names of the OpenCL specification")]
        pub(crate) struct Api {
            /// Name under which the library was opened.
            pub(crate) library: String,
            $(pub(crate) $name: unsafe extern "C" fn($($arg),*) -> $out,)*
        }

        impl Api {
            /// Looks up all functions in an open library.
            #[allow(non_snake_case, reason = "the names of the OpenCL specification")]
            fn of(library: &str, handle: *mut c_void) -> Result<Api, String> {
                $(
                    let address = symbol(handle, library, concat!(stringify!($name), "\0"))?;
                    // SAFETY: the OpenCL specification gives the function of this name this type.
                    let $name = unsafe {
                        core::mem::transmute::<*mut c_void, unsafe extern "C" fn($($arg),*) -> $out>(address)
                    };
                )*
                Ok(Api { library: library.to_owned(), $($name),* })
            }
        }
    };
}

functions! {
    clGetPlatformIDs(u32, *mut Raw, *mut u32) -> i32;
    clGetPlatformInfo(Raw, u32, usize, *mut c_void, *mut usize) -> i32;
    clGetDeviceIDs(Raw, u64, u32, *mut Raw, *mut u32) -> i32;
    clGetDeviceInfo(Raw, u32, usize, *mut c_void, *mut usize) -> i32;
    clCreateContext(*const isize, u32, *const Raw, *const c_void, *const c_void, *mut i32) -> Raw;
    clCreateCommandQueue(Raw, Raw, u64, *mut i32) -> Raw;
    clRetainCommandQueue(Raw) -> i32;
    clReleaseCommandQueue(Raw) -> i32;
    clFlush(Raw) -> i32;
    clFinish(Raw) -> i32;
    clCreateBuffer(Raw, u64, usize, *const c_void, *mut i32) -> Raw;
    clCreateSubBuffer(Raw, u64, u32, *const c_void, *mut i32) -> Raw;
    clRetainMemObject(Raw) -> i32;
    clReleaseMemObject(Raw) -> i32;
    clEnqueueReadBuffer(Raw, Raw, u32, usize, usize, *mut c_void, u32, *const Raw, *mut Raw) -> i32;
    clEnqueueWriteBuffer(Raw, Raw, u32, usize, usize, *const c_void, u32, *const Raw, *mut Raw) -> i32;
    clEnqueueCopyBuffer(Raw, Raw, Raw, usize, usize, usize, u32, *const Raw, *mut Raw) -> i32;
    clEnqueueMarkerWithWaitList(Raw, u32, *const Raw, *mut Raw) -> i32;
    clEnqueueBarrierWithWaitList(Raw, u32, *const Raw, *mut Raw) -> i32;
    clWaitForEvents(u32, *const Raw) -> i32;
    clGetEventInfo(Raw, u32, usize, *mut c_void, *mut usize) -> i32;
    clGetEventProfilingInfo(Raw, u32, usize, *mut c_void, *mut usize) -> i32;
    clReleaseEvent(Raw) -> i32;
    clCreateProgramWithSource(Raw, u32, *const *const c_char, *const usize, *mut i32) -> Raw;
    clBuildProgram(Raw, u32, *const Raw, *const c_char, *const c_void, *const c_void) -> i32;
    clGetProgramBuildInfo(Raw, Raw, u32, usize, *mut c_void, *mut usize) -> i32;
    clGetProgramInfo(Raw, u32, usize, *mut c_void, *mut usize) -> i32;
    clReleaseProgram(Raw) -> i32;
    clCreateKernel(Raw, *const c_char, *mut i32) -> Raw;
    clReleaseKernel(Raw) -> i32;
    clSetKernelArg(Raw, u32, usize, *const c_void) -> i32;
    clGetKernelInfo(Raw, u32, usize, *mut c_void, *mut usize) -> i32;
    clGetKernelArgInfo(Raw, u32, u32, usize, *mut c_void, *mut usize) -> i32;
    clGetKernelWorkGroupInfo(Raw, Raw, u32, usize, *mut c_void, *mut usize) -> i32;
    clEnqueueNDRangeKernel(Raw, Raw, u32, *const usize, *const usize, *const usize, u32, *const Raw, *mut Raw) -> i32;
}

impl Api {
    /// Opens the OpenCL loader. It stays open until the process ends.
    ///
    /// # Errors
    /// Returns the names that were tried, and why each could not be opened.
    pub(crate) fn open() -> Result<Api, String> {
        let (name, handle) = LIBRARY.open()?;
        Api::of(&name, handle)
    }
}

/// Looks up a function; `name` ends with a NUL character.
fn symbol(handle: *mut c_void, library: &str, name: &str) -> Result<*mut c_void, String> {
    let text = CStr::from_bytes_with_nul(name.as_bytes()).unwrap_or_default();
    // SAFETY: the caller passes an open library.
    let address = unsafe { library::symbol(handle, text) };
    address.ok_or_else(|| {
        let name = name.trim_end_matches('\0');
        format!("{library} has no function {name}; OpenCL 1.2 or later is needed")
    })
}

/// Calls a function of the kind `clGet*Info` twice: for the size of the answer, and for the answer.
///
/// # Errors
/// Returns the error code of OpenCL.
pub(crate) fn info(get: impl Fn(usize, *mut c_void, *mut usize) -> i32) -> Result<Vec<u8>, i32> {
    let mut size = 0;
    match get(0, core::ptr::null_mut(), &mut size) {
        SUCCESS => {}
        code => return Err(code),
    }
    let mut bytes = vec![0; size];
    match get(size, bytes.as_mut_ptr().cast(), core::ptr::null_mut()) {
        SUCCESS => Ok(bytes),
        code => Err(code),
    }
}

/// Returns an answer of [`info`] as a string, without the NUL character at its end.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end_matches('\0').trim().to_owned()
}

/// Returns an answer of [`info`] as an unsigned integer of 4 or 8 bytes.
pub(crate) fn number(bytes: &[u8]) -> u64 {
    match bytes.len() {
        4 => bytes.first_chunk().map_or(0, |bytes| u64::from(u32::from_ne_bytes(*bytes))),
        _ => bytes.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes)),
    }
}

pub(crate) const SUCCESS: i32 = 0;
pub(crate) const TRUE: u32 = 1;
pub(crate) const MEM_READ_WRITE: u64 = 1;
pub(crate) const BUFFER_CREATE_TYPE_REGION: u32 = 0x1220;
pub(crate) const QUEUE_PROFILING_ENABLE: u64 = 2;
pub(crate) const CONTEXT_PLATFORM: isize = 0x1084;

pub(crate) const PLATFORM_VERSION: u32 = 0x0901;
pub(crate) const PLATFORM_NAME: u32 = 0x0902;

pub(crate) const DEVICE_TYPE_ALL: u64 = 0xFFFF_FFFF;
pub(crate) const DEVICE_TYPE_GPU: u64 = 4;
pub(crate) const DEVICE_TYPE_ACCELERATOR: u64 = 8;
pub(crate) const DEVICE_TYPE: u32 = 0x1000;
pub(crate) const DEVICE_MAX_COMPUTE_UNITS: u32 = 0x1002;
pub(crate) const DEVICE_MAX_WORK_GROUP_SIZE: u32 = 0x1004;
pub(crate) const DEVICE_MAX_WORK_ITEM_SIZES: u32 = 0x1005;
pub(crate) const DEVICE_MAX_CLOCK_FREQUENCY: u32 = 0x100C;
pub(crate) const DEVICE_MAX_MEM_ALLOC_SIZE: u32 = 0x1010;
pub(crate) const DEVICE_MAX_PARAMETER_SIZE: u32 = 0x1017;
pub(crate) const DEVICE_MEM_BASE_ADDR_ALIGN: u32 = 0x1019;
pub(crate) const DEVICE_GLOBAL_MEM_CACHE_SIZE: u32 = 0x101E;
pub(crate) const DEVICE_GLOBAL_MEM_SIZE: u32 = 0x101F;
pub(crate) const DEVICE_LOCAL_MEM_SIZE: u32 = 0x1023;
pub(crate) const DEVICE_NAME: u32 = 0x102B;
pub(crate) const DRIVER_VERSION: u32 = 0x102D;
pub(crate) const DEVICE_VERSION: u32 = 0x102F;
pub(crate) const DEVICE_OPENCL_C_VERSION: u32 = 0x103D;

pub(crate) const PROGRAM_BUILD_LOG: u32 = 0x1183;
pub(crate) const PROGRAM_KERNEL_NAMES: u32 = 0x1168;
pub(crate) const KERNEL_NUM_ARGS: u32 = 0x1191;
pub(crate) const KERNEL_ARG_ADDRESS_QUALIFIER: u32 = 0x1196;
pub(crate) const KERNEL_ARG_TYPE_NAME: u32 = 0x1198;
pub(crate) const KERNEL_ARG_ADDRESS_GLOBAL: u64 = 0x119B;
pub(crate) const KERNEL_ARG_ADDRESS_LOCAL: u64 = 0x119C;
pub(crate) const KERNEL_ARG_ADDRESS_CONSTANT: u64 = 0x119D;
pub(crate) const KERNEL_ARG_ADDRESS_PRIVATE: u64 = 0x119E;
pub(crate) const KERNEL_WORK_GROUP_SIZE: u32 = 0x11B0;
pub(crate) const KERNEL_COMPILE_WORK_GROUP_SIZE: u32 = 0x11B1;
pub(crate) const KERNEL_LOCAL_MEM_SIZE: u32 = 0x11B2;
pub(crate) const EVENT_COMMAND_EXECUTION_STATUS: u32 = 0x11D3;
pub(crate) const COMPLETE: u64 = 0;
pub(crate) const PROFILING_COMMAND_QUEUED: u32 = 0x1280;
pub(crate) const PROFILING_COMMAND_START: u32 = 0x1282;
pub(crate) const PROFILING_COMMAND_END: u32 = 0x1283;

pub(crate) const PROFILING_INFO_NOT_AVAILABLE: i32 = -7;
pub(crate) const INVALID_KERNEL_NAME: i32 = -46;
/// Error of the loader that found no driver.
pub(crate) const PLATFORM_NOT_FOUND: i32 = -1001;

/// Returns true for an error code that means too little memory.
pub(crate) fn is_memory(code: i32) -> bool {
    matches!(code, -4 | -6 | -61)
}

/// Returns true for an error code that means that the device cannot be used any more: it is not available, its queue, which is
/// alive, has become invalid, or a kernel has damaged it (NVIDIA).
pub(crate) fn is_lost(code: i32) -> bool {
    matches!(code, -2 | -36 | -9999)
}

/// Returns an error code with the name that the OpenCL specification gives it.
pub(crate) fn code_name(code: i32) -> String {
    let name = match code {
        -1 => "CL_DEVICE_NOT_FOUND",
        -2 => "CL_DEVICE_NOT_AVAILABLE",
        -3 => "CL_COMPILER_NOT_AVAILABLE",
        -4 => "CL_MEM_OBJECT_ALLOCATION_FAILURE",
        -5 => "CL_OUT_OF_RESOURCES",
        -6 => "CL_OUT_OF_HOST_MEMORY",
        -7 => "CL_PROFILING_INFO_NOT_AVAILABLE",
        -11 => "CL_BUILD_PROGRAM_FAILURE",
        -13 => "CL_MISALIGNED_SUB_BUFFER_OFFSET",
        -14 => "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST",
        -30 => "CL_INVALID_VALUE",
        -33 => "CL_INVALID_DEVICE",
        -34 => "CL_INVALID_CONTEXT",
        -36 => "CL_INVALID_COMMAND_QUEUE",
        -38 => "CL_INVALID_MEM_OBJECT",
        -45 => "CL_INVALID_PROGRAM_EXECUTABLE",
        -46 => "CL_INVALID_KERNEL_NAME",
        -48 => "CL_INVALID_KERNEL",
        -50 => "CL_INVALID_ARG_VALUE",
        -51 => "CL_INVALID_ARG_SIZE",
        -52 => "CL_INVALID_KERNEL_ARGS",
        -54 => "CL_INVALID_WORK_GROUP_SIZE",
        -55 => "CL_INVALID_WORK_ITEM_SIZE",
        -61 => "CL_INVALID_BUFFER_SIZE",
        -63 => "CL_INVALID_GLOBAL_WORK_SIZE",
        PLATFORM_NOT_FOUND => "CL_PLATFORM_NOT_FOUND_KHR",
        _ => return format!("OpenCL error {code}"),
    };
    format!("{name} ({code})")
}
