//! Start of the library.

use std::ffi::c_void;
use std::path::Path;

use anyfn::Error;

use crate::entry::{Failure, bytes, native};
use crate::sys::{Env, MethodId, Obj, VERSION, Vm};
use crate::{callback, cancel, entry, stack, thread};

/// Called by the VM when it loads the library.
///
/// # Safety
/// Must be called by the VM.
#[unsafe(no_mangle)]
unsafe extern "system" fn JNI_OnLoad(vm: *mut c_void, _reserved: *mut c_void) -> i32 {
    // SAFETY: the VM passes its address.
    thread::set_vm(unsafe { Vm::from_ptr(vm) });
    VERSION
}

/// Returns a method of an instance.
fn method(
    env: Env,
    class: Obj,
    name: &std::ffi::CStr,
    signature: &std::ffi::CStr,
) -> Result<MethodId, Failure> {
    // SAFETY: the class is one of the package, and the strings end with NUL.
    let method = unsafe { env.get_method_id(class, name.as_ptr(), signature.as_ptr()) };
    if method.is_null() { Err(Failure::Pending) } else { Ok(method) }
}

native! {
    /// `attach(path, callbackClass)`: opens the runtime library. Returns null, or why it cannot be opened.
    fn Java_org_anyfn_Native_attach(env, class, path: Obj, callback_class: Obj) -> Obj {
        // SAFETY: the class declares this method.
        let raise = unsafe { env.get_static_method_id(class, c"raise".as_ptr(), c"(J)V".as_ptr()) };
        if raise.is_null() {
            return Err(Failure::Pending);
        }
        stack::forget_all();
        entry::set_raise(raise);
        callback::set_methods(
            method(env, callback_class, c"invoke", c"(II)I")?,
            method(env, callback_class, c"invokeLarge", c"(Ljava/nio/ByteBuffer;I)I")?,
            method(env, callback_class, c"stack", c"()J")?,
        );
        let path = bytes(env, path)?;
        let Ok(path) = std::str::from_utf8(&path) else {
            return entry::byte_array(env, b"the path is not valid UTF-8");
        };
        match anyfn_attach::attach(Path::new(path)) {
            Ok(()) => {
                cancel::register();
                Ok(std::ptr::null_mut())
            }
            Err(error) => entry::byte_array(env, error.to_string().as_bytes()),
        }
    }
}

native! {
    /// `address(buffer)`: returns the address of a direct buffer.
    fn Java_org_anyfn_Native_address(env, class, buffer: Obj) -> i64 {
        // SAFETY: the argument is a buffer.
        let address = unsafe { env.get_direct_buffer_address(buffer) };
        if address.is_null() {
            return Err(Error::new("TypeError", "the buffer is not direct").into());
        }
        Ok(address.expose_provenance() as i64)
    }
}
