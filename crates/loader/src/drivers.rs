//! The library of device drivers that comes with the runtime, `libanyfn_devices.so`.
//!
//! It is opened when a device type, a module kind or another global function of it is first asked for, and stays open until the process
//! ends. No lock is held meanwhile: each thread that asks opens it, and waits in the loader of libraries if another thread is faster. All
//! of them find the same module, and registering a driver twice has no effect.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::string::String as StdString;
use std::sync::OnceLock;

use anyfn::__private::{FunctionDef, functions};
use anyfn::abi::{kDLCUDA, kDLMetal, kDLOpenCL, kDLVulkan};
use anyfn::{Module, Result, String, bail, registry};

use crate::dl;

/// File name of the library, which lies beside that of the runtime.
const FILE: &str = "libanyfn_devices.so";
/// Environment variable that names another library to open instead.
const VARIABLE: &str = "ANYFN_DEVICES_LIBRARY";
/// Function of the library that registers its drivers.
const REGISTER: &str = "register_drivers";
/// Function of the library that returns the reason why there are no Metal devices, for which it contains no driver.
const NO_METAL: &str = "anyfn.metal_why_missing";

/// The kinds of devices for which the library contains drivers or modules: their device types, and their names. Of Metal devices it contains
/// modules only.
const KINDS: [(i32, &str); 4] =
    [(kDLCUDA, "cuda"), (kDLMetal, "metal"), (kDLOpenCL, "opencl"), (kDLVulkan, "vulkan")];

/// Beginnings and ends of the names of the global functions that the library registers for a kind of devices.
const NAMES: [(&str, &str); 5] = [
    ("ffi.Module.load_from_bytes.", ""),
    ("ffi.Module.load_from_file.", ""),
    ("anyfn.doctor.", ""),
    ("anyfn.", "_module"),
    ("anyfn.", "_binary_module"),
];

pub(crate) static FUNCTIONS: &[FunctionDef] = &functions! {
    "anyfn.open_device_drivers" ["device_type"] => open_for,
};

/// The module of the open library, or the reason why it cannot be opened.
static OPENED: OnceLock<Result<Module, StdString>> = OnceLock::new();

std::thread_local! {
    /// True while this thread opens the library.
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Opens the library if it may contain the driver of a device type. Returns the reason if it cannot be opened, and otherwise None.
fn open_for(device_type: i32) -> Result<Option<String>> {
    if !KINDS.iter().any(|(number, _)| *number == device_type) {
        return Ok(None);
    }
    let Some(path) = path() else { return Ok(None) };
    match open(path) {
        Some(Ok(_)) if device_type == kDLMetal => match registry::find(NO_METAL) {
            Some(why) => why.call(())?.get::<Option<String>>(),
            None => Ok(None),
        },
        Some(opened) => Ok(opened.as_ref().err().map(|reason| reason.as_str().into())),
        None => bail!("RuntimeError", "the library of the device drivers is being opened"),
    }
}

/// Opens the library if it registers the global function `name`. Returns true if the function may be registered now.
#[cold]
pub(crate) fn provide(name: &[u8]) -> bool {
    is_served(name) && path().and_then(open).is_some_and(Result::is_ok)
}

/// Returns the reason why the library could not be opened; `None` if it is open or does not register `name`.
pub(crate) fn why_not_provided(name: &str) -> Option<StdString> {
    if is_served(name.as_bytes()) { open(path()?)?.as_ref().err().cloned() } else { None }
}

/// Returns true if the library registers a global function of this name.
fn is_served(name: &[u8]) -> bool {
    NAMES.iter().any(|(begin, end)| {
        let kind = name.strip_prefix(begin.as_bytes()).and_then(|rest| rest.strip_suffix(end.as_bytes()));
        kind.is_some_and(|kind| KINDS.iter().any(|(_, known)| known.as_bytes() == kind))
    })
}

/// Opens the library, and registers its drivers. Returns `None` if this thread is doing that already.
fn open(path: PathBuf) -> Option<&'static Result<Module, StdString>> {
    if let Some(opened) = OPENED.get() {
        return Some(opened);
    }
    struct Reset;
    impl Drop for Reset {
        fn drop(&mut self) {
            IS_INSIDE.set(false);
        }
    }
    if IS_INSIDE.replace(true) {
        return None;
    }
    let _reset = Reset;
    let opened = load(&path);
    Some(OPENED.get_or_init(|| opened))
}

fn load(path: &Path) -> Result<Module, StdString> {
    let shown = path.display();
    let registered = || {
        let Some(path) = path.to_str() else { bail!("RuntimeError", "its path is not UTF-8") };
        let module = Module::load(path)?;
        module.get_function(REGISTER)?.call(())?;
        Ok(module)
    };
    if !path.is_file() {
        return Err(format!(
            "its driver is in the library {FILE}, and there is no file {shown}; it lies beside the library of the runtime in every \
             package of anyfn, or {VARIABLE} names it"
        ));
    }
    registered().map_err(|error: anyfn::Error| {
        format!("its driver is in the library {shown}, which cannot be used: {}", error.message())
    })
}

/// Returns the path of the library: the one that the environment variable names, or beside the library of the runtime. A program that
/// contains the runtime itself links the drivers that it needs, so `None` is returned there without the variable.
fn path() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        return Some(path.into());
    }
    let address = (path as *const ()).cast();
    let own = dl::file_of(address)?;
    let is_program = dl::is_in_program(address) || std::env::current_exe().is_ok_and(|program| program == own);
    if is_program { None } else { Some(own.parent()?.join(FILE)) }
}

#[cfg(test)]
mod tests {
    use super::is_served;

    #[test]
    fn only_functions_of_drivers_open_the_library() {
        for name in [
            "anyfn.opencl_module",
            "anyfn.cuda_binary_module",
            "anyfn.metal_module",
            "ffi.Module.load_from_bytes.vulkan",
            "anyfn.doctor.opencl",
        ] {
            assert!(is_served(name.as_bytes()), "{name}");
        }
        for name in
            ["anyfn.devices", "anyfn.module", "ffi.Module.load_from_bytes.so", "anyfn.opencl_modul", "opencl"]
        {
            assert!(!is_served(name.as_bytes()), "{name}");
        }
    }
}
