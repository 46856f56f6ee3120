//! Modules.

use core::ffi::{c_char, c_int};

use std::format;

use anyfn::__private::trampoline;
use anyfn::abi::classic::{TVMFunctionHandle, TVMModuleHandle};
use anyfn::abi::kTVMFFIModule;
use anyfn::{Module, PackedFunc, Result, registry};

use crate::handle::{self, give, module, text};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMModLoadFromFile(
    file_name: *const c_char,
    format: *const c_char,
    out: *mut TVMModuleHandle,
) -> c_int {
    const THIS: &str = "TVMModLoadFromFile";
    trampoline(|| {
        // SAFETY: by the API, this is a C string.
        let path = unsafe { text(THIS, "file_name", file_name) }?;
        // SAFETY: by the API, this is a C string.
        let format = if format.is_null() { "" } else { unsafe { text(THIS, "format", format) }? };
        // SAFETY: by the API, `out` is writable.
        unsafe { give(THIS, out, || load(path, format).map(|module| Some(module.into_object()))) }
    })
}

/// Loads a module from a file of a format. Without a format, the extension of the file selects it.
fn load(path: &str, format: &str) -> Result<Module> {
    let extension = path.rsplit('/').next().and_then(|name| name.rsplit_once('.')).map_or("", |(_, end)| end);
    let own = registry::find(&format!(
        "runtime.module.loadfile_{}",
        if format.is_empty() { extension } else { format }
    ));
    // A loader that was registered under the name of TVM 0.8.
    if let Some(own) = own {
        return own.call((path, format))?.get::<Module>();
    }
    match format {
        "" => Module::load(path),
        "dll" | "dylib" | "dso" => load(path, "so"),
        _ => {
            registry::get(&format!("ffi.Module.load_from_file.{format}"))?.call((path, format))?.get::<Module>()
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMModImport(mod_: TVMModuleHandle, dep: TVMModuleHandle) -> c_int {
    trampoline(|| {
        // SAFETY: by the API, this is the handle of a module.
        let importer = unsafe { module("TVMModImport", "mod", mod_) }?;
        // SAFETY: by the API, this is the handle of a module.
        importer.import_module(&unsafe { module("TVMModImport", "dep", dep) }?)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMModGetFunction(
    mod_: TVMModuleHandle,
    func_name: *const c_char,
    query_imports: c_int,
    out: *mut TVMFunctionHandle,
) -> c_int {
    const THIS: &str = "TVMModGetFunction";
    trampoline(|| {
        // SAFETY: by the API, this is the handle of a module.
        let module = unsafe { module(THIS, "mod", mod_) }?;
        // SAFETY: by the API, this is a C string.
        let name = unsafe { text(THIS, "func_name", func_name) }?;
        let find = || {
            let found = match query_imports {
                0 => module.find_function(name),
                _ => module.find_function_with_imports(name),
            };
            Ok(found?.map(PackedFunc::into_object))
        };
        // SAFETY: by the API, `out` is writable.
        unsafe { give(THIS, out, find) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMModFree(mod_: TVMModuleHandle) -> c_int {
    // SAFETY: by the API, `mod_` is NULL or owned.
    trampoline(|| unsafe { handle::free("TVMModFree", "mod", mod_, kTVMFFIModule) })
}
