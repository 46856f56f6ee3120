//! The drivers of devices as a plugin. The runtime opens it when one of its devices, module kinds or checks is first asked for
//! (`anyfn-loader`, `drivers`), so a program that uses none of them does not load it.

use std::ffi::c_int;

use anyfn_abi::AnyfnApi;
#[cfg(feature = "metal")]
use anyfn_metal as _;

/// Attaches this library to the runtime that loads it, even if another runtime in the process exports its symbols globally. The loader
/// calls this function before any other. Returns 0 if the library can work with the runtime, -2 if another runtime uses it already, and -1
/// otherwise.
///
/// # Safety
/// `api` must be the function table of a runtime that is never closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __anyfn_attach(api: *const AnyfnApi) -> c_int {
    // SAFETY: the requirements are the same.
    unsafe { anyfn_attach::answer(api) }
}

anyfn::export! {
    /// Registers the drivers of this library. The runtime calls this function once it has loaded the library.
    fn register_drivers() -> anyfn::Result<()> {
        #[cfg(feature = "cuda")]
        anyfn_driver::register(&anyfn_cuda::Cuda)?;
        #[cfg(feature = "opencl")]
        anyfn_driver::register(&anyfn_opencl::OpenCl)?;
        #[cfg(feature = "vulkan")]
        anyfn_driver::register(&anyfn_vulkan::Vulkan)?;
        Ok(())
    }
}
