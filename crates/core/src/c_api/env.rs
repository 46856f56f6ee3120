//! Exported functions for the environment of a call: streams, tensor allocators, signals, and the functions
//! and symbols that libraries look up at run time.

use core::ffi::{c_char, c_int, c_void};

use anyfn::__private::trampoline;
use anyfn::abi::{DLPackManagedTensorAllocator, DLTensor, TVMFFIObjectHandle, TVMFFIStreamHandle};

use super::{c_string, out, reference};
use crate::{drop_in, env, libraries, registry, tensor};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMFFIEnvSetStream(
    device_type: i32,
    device_id: i32,
    stream: TVMFFIStreamHandle,
    opt_out_original_stream: *mut TVMFFIStreamHandle,
) -> c_int {
    trampoline(|| {
        let old = env::set_stream(device_type, device_id, stream);
        // SAFETY: the ABI requires NULL or a writable location.
        if let Some(result) = unsafe { opt_out_original_stream.as_mut() } {
            *result = old;
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMFFIEnvGetStream(device_type: i32, device_id: i32) -> TVMFFIStreamHandle {
    env::stream(device_type, device_id)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMFFIEnvSetDLPackManagedTensorAllocator(
    allocator: Option<DLPackManagedTensorAllocator>,
    write_to_global_context: c_int,
    opt_out_original_allocator: *mut Option<DLPackManagedTensorAllocator>,
) -> c_int {
    let old = env::set_allocator(allocator, write_to_global_context != 0);
    // SAFETY: the ABI requires NULL or a writable location.
    if let Some(result) = unsafe { opt_out_original_allocator.as_mut() } {
        *result = old;
    }
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMFFIEnvGetDLPackManagedTensorAllocator() -> Option<DLPackManagedTensorAllocator> {
    env::allocator()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMFFIEnvTensorAlloc(
    prototype: *mut DLTensor,
    result: *mut TVMFFIObjectHandle,
) -> c_int {
    trampoline(|| {
        const THIS: &str = "TVMFFIEnvTensorAlloc";
        // SAFETY: the ABI requires a valid struct.
        unsafe { reference(THIS, "prototype", prototype) }?;
        // SAFETY: the ABI requires a writable location.
        let result = unsafe { out(THIS, "out", result) }?;
        // SAFETY: the ABI requires a prototype with as many extents as it declares.
        result.write(unsafe { tensor::allocate(prototype) }?.into_handle());
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMFFIEnvCheckSignals() -> c_int {
    let mut own_code = 0;
    let code = trampoline(|| {
        own_code = env::check_signals()?;
        Ok(())
    });
    if code != 0 || own_code != 0 { -1 } else { 0 }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMFFIEnvRegisterCAPI(name: *const c_char, symbol: *mut c_void) -> c_int {
    trampoline(|| {
        // SAFETY: the ABI requires a C string.
        let name = unsafe { c_string("TVMFFIEnvRegisterCAPI", "name", name) }?;
        // SAFETY: the ABI requires what the name denotes.
        unsafe { env::register_c_api(name.to_bytes(), symbol) }?;
        // Static initialisers of C++ libraries claim types of the ABI, such as `ffi.reflection.AccessPath`, and do not
        // describe them. If this library stands in for the peer's, it registers its own first, as the peer's does.
        if drop_in::is_active() {
            registry::start();
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMFFIEnvModLookupFromImports(
    library_ctx: TVMFFIObjectHandle,
    func_name: *const c_char,
    result: *mut TVMFFIObjectHandle,
) -> c_int {
    trampoline(|| {
        const THIS: &str = "TVMFFIEnvModLookupFromImports";
        // SAFETY: the ABI requires a C string.
        let name = unsafe { c_string(THIS, "func_name", func_name) }?;
        // SAFETY: the ABI requires a writable location.
        let result = unsafe { out(THIS, "out", result) }?;
        // SAFETY: the ABI requires the context that the loader has written into the library.
        result.write(unsafe { libraries::lookup_from_imports(library_ctx, name) }?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMFFIEnvModRegisterContextSymbol(name: *const c_char, symbol: *mut c_void) -> c_int {
    trampoline(|| {
        // SAFETY: the ABI requires a C string.
        let name = unsafe { c_string("TVMFFIEnvModRegisterContextSymbol", "name", name) }?;
        libraries::register_context_symbol(name, symbol)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMFFIEnvModRegisterSystemLibSymbol(
    name: *const c_char,
    symbol: *mut c_void,
) -> c_int {
    trampoline(|| {
        // SAFETY: the ABI requires a C string.
        let name = unsafe { c_string("TVMFFIEnvModRegisterSystemLibSymbol", "name", name) }?;
        libraries::register_system_lib_symbol(name, symbol)
    })
}
