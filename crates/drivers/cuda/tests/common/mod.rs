//! The simulated CUDA driver, which the tests use: see `testing/cuda/simulated.cc`.

use std::ffi::CString;
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

/// The opened library, or the reason why it cannot be compiled.
static LIBRARY: LazyLock<Result<usize, String>> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../testing/cuda");
    let output =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(concat!("libcuda-", env!("CARGO_CRATE_NAME"), ".so"));
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
    let mut command = Command::new(&compiler);
    command.args(["-std=c++17", "-O1", "-shared", "-fPIC", "-fvisibility=hidden", "-o"]).arg(&output);
    command.arg(folder.join("simulated.cc")).args(["-ldl", "-lpthread"]);
    let status = command.status().map_err(|error| format!("no C++ compiler {compiler}: {error}"))?;
    if !status.success() {
        return Err(format!("{compiler} cannot compile the simulated CUDA driver"));
    }
    let path = output.to_string_lossy().into_owned();
    let shim = folder.join("shim.h").to_string_lossy().into_owned();
    let variables =
        [("ANYFN_CUDA_LIBRARY", &path), ("ANYFN_NVRTC_LIBRARY", &path), ("SIMULATED_CUDA_SHIM", &shim)];
    for (name, value) in variables {
        // SAFETY: the first lines of each test get here, and the tests read the environment afterwards only.
        unsafe { std::env::set_var(name, value) };
    }
    let text = CString::new(path).map_err(|error| error.to_string())?;
    // SAFETY: the library was compiled above, and the path is a C string.
    let library = unsafe { libc::dlopen(text.as_ptr(), libc::RTLD_NOW) };
    if library.is_null() { Err("cannot open the simulated CUDA driver".to_owned()) } else { Ok(library.addr()) }
});

/// Prepares the simulated driver. Returns false, and reports the reason, if the driver cannot be built.
pub(crate) fn is_ready() -> bool {
    match &*LIBRARY {
        Ok(_) => true,
        Err(reason) => {
            anyfn_skip::report(&format!("cuda: {reason}"));
            false
        }
    }
}

/// Returns a function of the simulated driver.
///
/// # Safety
/// `T` must be the type of the function in `simulated.cc`.
pub(crate) unsafe fn function<T: Copy>(name: &str) -> T {
    assert_eq!(size_of::<T>(), size_of::<*mut libc::c_void>());
    let name = CString::new(name).unwrap();
    let library = std::ptr::with_exposed_provenance_mut(*LIBRARY.as_ref().unwrap());
    // SAFETY: the library is open, and the name is a C string.
    let address = unsafe { libc::dlsym(library, name.as_ptr()) };
    assert!(!address.is_null());
    // SAFETY: the caller names the type of the function.
    unsafe { std::mem::transmute_copy(&address) }
}
