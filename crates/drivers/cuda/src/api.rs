//! The functions of the CUDA driver, opened at run time, and the constants and error codes that this crate uses.

use core::ffi::{CStr, c_char, c_void};
use core::ptr;

use anyfn_kernels::library::{self, Library};

/// Handle of an object of the driver, such as a context, a stream or a function.
pub(crate) type Raw = *mut c_void;
/// Address in the memory of a device.
pub(crate) type Address = u64;

/// The CUDA driver.
const LIBRARY: Library =
    Library { what: "the CUDA driver", names: &["libcuda.so.1", "libcuda.so"], variable: "ANYFN_CUDA_LIBRARY" };

macro_rules! functions {
    ($($name:ident($($arg:ty),*);)*) => {
        /// The functions of the CUDA driver. Each returns an error code.
        #[allow(non_snake_case, reason = "the names of the driver")]
        pub(crate) struct Api {
            /// Name under which the library was opened.
            pub(crate) library: String,
            /// Size of a parameter of a kernel; drivers before CUDA 12.4 do not have this function.
            pub(crate) param_info: Option<unsafe extern "C" fn(Raw, usize, *mut usize, *mut usize) -> i32>,
            $(pub(crate) $name: unsafe extern "C" fn($($arg),*) -> i32,)*
        }

        impl Api {
            /// Opens the driver. It stays open until the process ends.
            ///
            /// # Errors
            /// Returns the names that were tried and why each could not be opened, or the first function that the library lacks.
            pub(crate) fn open() -> Result<Api, String> {
                let (library, handle) = LIBRARY.open()?;
                // SAFETY: the library is open. An address is that of a function of this type, by the interface of the driver.
                let param_info = unsafe {
                    library::symbol(handle, c"cuFuncGetParamInfo")
                        .map(|address| core::mem::transmute::<Raw, unsafe extern "C" fn(Raw, usize, *mut usize, *mut usize) -> i32>(address))
                };
                Ok(Api {
                    $($name: {
                        let address = symbol(handle, &library, concat!(stringify!($name), "\0"))?;
                        // SAFETY: the function has this type, by the interface of the driver.
                        unsafe { core::mem::transmute::<Raw, unsafe extern "C" fn($($arg),*) -> i32>(address) }
                    },)*
                    param_info,
                    library,
                })
            }
        }
    };
}

functions! {
    cuInit(u32);
    cuDriverGetVersion(*mut i32);
    cuGetErrorName(i32, *mut *const c_char);
    cuGetErrorString(i32, *mut *const c_char);
    cuDeviceGetCount(*mut i32);
    cuDeviceGet(*mut i32, i32);
    cuDeviceGetName(*mut c_char, i32, i32);
    cuDeviceTotalMem_v2(*mut usize, i32);
    cuDeviceGetAttribute(*mut i32, i32, i32);
    cuDevicePrimaryCtxRetain(*mut Raw, i32);
    cuCtxGetCurrent(*mut Raw);
    cuCtxPushCurrent_v2(Raw);
    cuCtxPopCurrent_v2(*mut Raw);
    cuCtxSynchronize();
    cuMemGetInfo_v2(*mut usize, *mut usize);
    cuMemAlloc_v2(*mut Address, usize);
    cuMemFree_v2(Address);
    cuMemcpyHtoDAsync_v2(Address, *const c_void, usize, Raw);
    cuMemcpyDtoHAsync_v2(*mut c_void, Address, usize, Raw);
    cuMemcpyDtoDAsync_v2(Address, Address, usize, Raw);
    cuMemcpyPeerAsync(Address, Raw, Address, Raw, usize, Raw);
    cuPointerGetAttribute(*mut c_void, i32, Address);
    cuStreamCreate(*mut Raw, u32);
    cuStreamDestroy_v2(Raw);
    cuStreamSynchronize(Raw);
    cuStreamWaitEvent(Raw, Raw, u32);
    cuEventCreate(*mut Raw, u32);
    cuEventDestroy_v2(Raw);
    cuEventRecord(Raw, Raw);
    cuEventQuery(Raw);
    cuEventSynchronize(Raw);
    cuEventElapsedTime(*mut f32, Raw, Raw);
    cuModuleLoadDataEx(*mut Raw, *const c_void, u32, *mut i32, *mut *mut c_void);
    cuModuleUnload(Raw);
    cuModuleGetFunction(*mut Raw, Raw, *const c_char);
    cuFuncGetAttribute(*mut i32, i32, Raw);
    cuLaunchKernel(Raw, u32, u32, u32, u32, u32, u32, u32, Raw, *const *mut c_void, *const *mut c_void);
}

/// Looks up a function; `name` ends with a NUL character.
fn symbol(handle: *mut c_void, library: &str, name: &str) -> Result<*mut c_void, String> {
    let text = CStr::from_bytes_with_nul(name.as_bytes()).unwrap_or_default();
    // SAFETY: the caller passes an open library.
    let address = unsafe { library::symbol(handle, text) };
    address.ok_or_else(|| {
        let name = name.trim_end_matches('\0');
        format!("{library} has no function {name}; a driver of CUDA 11 or later is needed")
    })
}

impl Api {
    /// Returns the name, the number and the description of an error code.
    #[cold]
    pub(crate) fn code_name(&self, code: i32) -> String {
        let text = |function: unsafe extern "C" fn(i32, *mut *const c_char) -> i32| {
            let mut text = ptr::null();
            // SAFETY: the function writes the address of a constant C string, or NULL for an unknown code.
            if unsafe { function(code, &raw mut text) } != SUCCESS || text.is_null() {
                return None;
            }
            // SAFETY: a C string of the driver, which is never freed.
            Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
        };
        match (text(self.cuGetErrorName), text(self.cuGetErrorString)) {
            (Some(name), Some(about)) => format!("{name} ({code}): {about}"),
            (Some(name), None) => format!("{name} ({code})"),
            _ => format!("error {code}"),
        }
    }
}

pub(crate) const SUCCESS: i32 = 0;
pub(crate) const OUT_OF_MEMORY: i32 = 2;
pub(crate) const NO_DEVICE: i32 = 100;
pub(crate) const NO_BINARY: i32 = 209;
pub(crate) const UNSUPPORTED_PTX: i32 = 222;
pub(crate) const NOT_FOUND: i32 = 500;

/// Returns true for an error after which a context cannot be used any more: the device was removed or reset, or a kernel has failed.
pub(crate) fn is_lost(code: i32) -> bool {
    const DEINITIALIZED: i32 = 4;
    const DEVICE_UNAVAILABLE: i32 = 46;
    const ECC_UNCORRECTABLE: i32 = 214;
    const NVLINK_UNCORRECTABLE: i32 = 220;
    const CONTAINED: i32 = 226;
    const ILLEGAL_ADDRESS: i32 = 700;
    const LAUNCH_TIMEOUT: i32 = 702;
    const CONTEXT_IS_DESTROYED: i32 = 709;
    const ASSERT: i32 = 710;
    const SYSTEM_NOT_READY: i32 = 802;
    // Stack errors, illegal instructions, misaligned addresses, wrong address spaces and program counters, and other failures of a launch.
    const HARDWARE_STACK_ERROR: i32 = 714;
    const LAUNCH_FAILED: i32 = 719;
    const TENSOR_MEMORY_LEAK: i32 = 721;
    matches!(
        code,
        DEINITIALIZED
            | DEVICE_UNAVAILABLE
            | ECC_UNCORRECTABLE
            | NVLINK_UNCORRECTABLE
            | CONTAINED
            | ILLEGAL_ADDRESS
            | LAUNCH_TIMEOUT
            | CONTEXT_IS_DESTROYED
            | ASSERT
            | SYSTEM_NOT_READY
            | HARDWARE_STACK_ERROR..=LAUNCH_FAILED | TENSOR_MEMORY_LEAK
    )
}

/// Flag of a stream that does not wait for the default stream.
pub(crate) const STREAM_NON_BLOCKING: u32 = 1;
/// Flag of an event that has a time.
pub(crate) const EVENT_DEFAULT: u32 = 0;
/// Flag of an event without a time.
pub(crate) const EVENT_DISABLE_TIMING: u32 = 2;
/// Handle of the default stream that all threads share, which NULL also denotes.
pub(crate) const STREAM_LEGACY: usize = 1;
/// Handle of the default stream of the calling thread.
pub(crate) const STREAM_PER_THREAD: usize = 2;

pub(crate) const POINTER_MEMORY_TYPE: i32 = 2;
pub(crate) const POINTER_DEVICE_ORDINAL: i32 = 9;
pub(crate) const MEMORY_TYPE_DEVICE: u32 = 2;

pub(crate) const JIT_ERROR_LOG_BUFFER: i32 = 5;
pub(crate) const JIT_ERROR_LOG_BUFFER_SIZE_BYTES: i32 = 6;

pub(crate) const FUNC_MAX_THREADS_PER_BLOCK: i32 = 0;

pub(crate) const MAX_THREADS_PER_BLOCK: i32 = 1;
pub(crate) const MAX_BLOCK_DIM_X: i32 = 2;
pub(crate) const MAX_GRID_DIM_X: i32 = 5;
pub(crate) const MAX_SHARED_MEMORY_PER_BLOCK: i32 = 8;
pub(crate) const WARP_SIZE: i32 = 10;
pub(crate) const MAX_REGISTERS_PER_BLOCK: i32 = 12;
pub(crate) const CLOCK_RATE: i32 = 13;
pub(crate) const MULTIPROCESSOR_COUNT: i32 = 16;
pub(crate) const L2_CACHE_SIZE: i32 = 38;
pub(crate) const COMPUTE_CAPABILITY_MAJOR: i32 = 75;
pub(crate) const COMPUTE_CAPABILITY_MINOR: i32 = 76;

#[cfg(test)]
mod tests {
    use super::is_lost;

    #[test]
    fn errors_of_kernels_lose_the_context() {
        for code in [46, 214, 226, 700, 702, 710, 714, 717, 719, 721] {
            assert!(is_lost(code), "{code}");
        }
        for code in [0, 1, 2, 201, 209, 222, 500, 600, 701, 720] {
            assert!(!is_lost(code), "{code}");
        }
    }
}
