//! The Vulkan loader, and the names of its error codes.

use core::ffi::{c_char, c_void};

use anyfn_kernels::library::{self, Library};
use ash::vk;

/// The Vulkan loader.
const LIBRARY: Library = Library {
    what: "the Vulkan loader",
    names: if cfg!(target_os = "macos") {
        &["libvulkan.1.dylib", "libMoltenVK.dylib"]
    } else {
        &["libvulkan.so.1", "libvulkan.so"]
    },
    variable: "ANYFN_VULKAN_LIBRARY",
};

/// Opens the loader. Returns its name and its functions.
///
/// # Errors
/// Returns the names that were tried, and why each could not be opened.
pub(crate) fn open() -> Result<(String, ash::Entry), String> {
    let (name, handle) = LIBRARY.open()?;
    // SAFETY: the library is open, and stays open.
    let address = unsafe { library::symbol(handle, c"vkGetInstanceProcAddr") };
    let Some(address) = address else {
        return Err(format!("{name} has no function vkGetInstanceProcAddr; it is not a Vulkan loader"));
    };
    type Get = unsafe extern "system" fn(vk::Instance, *const c_char) -> vk::PFN_vkVoidFunction;
    // SAFETY: the specification gives the function of this name this type.
    let get_instance_proc_addr = unsafe { core::mem::transmute::<*mut c_void, Get>(address) };
    // SAFETY: the function is that of a loader, which stays open.
    let entry = unsafe { ash::Entry::from_static_fn(ash::StaticFn { get_instance_proc_addr }) };
    Ok((name, entry))
}

/// Returns an error code with the name that the specification gives it.
pub(crate) fn code_name(code: vk::Result) -> String {
    format!("VK_{code:?} ({})", code.as_raw())
}

/// Returns true for an error code that means too little memory.
pub(crate) fn is_memory(code: vk::Result) -> bool {
    matches!(
        code,
        vk::Result::ERROR_OUT_OF_DEVICE_MEMORY
            | vk::Result::ERROR_OUT_OF_HOST_MEMORY
            | vk::Result::ERROR_OUT_OF_POOL_MEMORY
            | vk::Result::ERROR_FRAGMENTED_POOL
            | vk::Result::ERROR_TOO_MANY_OBJECTS
    )
}

/// Returns the characters of an array in which a string ends with NUL.
pub(crate) fn text(chars: &[c_char]) -> String {
    let bytes: Vec<u8> = chars.iter().map(|c| *c as u8).take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).trim().to_owned()
}

/// Returns a version as text, such as `1.3`.
pub(crate) fn version(version: u32) -> String {
    format!("{}.{}", vk::api_version_major(version), vk::api_version_minor(version))
}
