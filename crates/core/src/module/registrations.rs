//! The global functions that a Rust plugin brings: there while its module lives.

use std::borrow::ToOwned;
use std::format;
use std::string::{String, ToString};
use std::vec::Vec;

use anyfn::abi::{TVMFFIByteArray, TVMFFIFunctionSetGlobalFromMethodInfo, TVMFFIMethodInfo};
use anyfn::{AnyView, Error, PackedFunc, Result, registry};

use super::library::Mapped;

/// One of them.
pub(super) struct Registered {
    name: String,
    function: PackedFunc,
}

/// Registers what a library has collected.
///
/// # Errors
/// `RuntimeError` if a name is taken; then nothing of the library stays registered.
pub(super) fn add(mapped: &Mapped) -> Result<Vec<Registered>> {
    let Some(symbol) = mapped.library.own_symbol(c"__anyfn_registrations") else { return Ok(Vec::new()) };
    type Collected = unsafe extern "C" fn(count: *mut i32) -> *const TVMFFIMethodInfo;
    // SAFETY: the symbol of this name is this function; the library's note was checked.
    let collected = unsafe { core::mem::transmute::<core::ptr::NonNull<core::ffi::c_void>, Collected>(symbol) };
    let mut count = 0;
    // SAFETY: `count` is writable; the library is loaded and its constructors have run.
    let infos = unsafe { collected(&raw mut count) };
    // However this ends, the library takes its entries back: no object of it must stay behind.
    struct TakeBack(Collected);
    impl Drop for TakeBack {
        fn drop(&mut self) {
            // SAFETY: NULL is allowed; the entries are not used any more.
            unsafe { (self.0)(core::ptr::null_mut()) };
        }
    }
    let _take_back = TakeBack(collected);
    let mut done = Vec::new();
    for i in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: the function gives an array of `count` entries that lives until it is called again.
        let info = unsafe { infos.add(i) };
        // SAFETY: as above.
        match register(mapped, unsafe { &*info }) {
            Ok(registered) => done.push(registered),
            Err(error) => {
                drop(remove(done));
                return Err(error);
            }
        }
    }
    Ok(done)
}

fn register(mapped: &Mapped, info: &TVMFFIMethodInfo) -> Result<Registered> {
    // SAFETY: the name lives as long as the library.
    let name = unsafe { info.name.as_slice() };
    let name = core::str::from_utf8(name).unwrap_or_default().to_owned();
    // SAFETY: the entry shows a function that the library keeps.
    let function = unsafe { AnyView::from_raw(info.method) }.get::<PackedFunc>()?;
    let overrides = i32::from(info.flags != 0);
    let info = TVMFFIMethodInfo { name: TVMFFIByteArray::from_slice(name.as_bytes()), flags: 0, ..*info };
    if overrides == 0 && registry::find(&name).is_some() {
        anyfn::bail!(
            "RuntimeError",
            "Global Function `{name}` is already registered by {}; the library {} registers it too",
            maker_of(&name),
            mapped.path.display()
        );
    }
    // SAFETY: texts and function live for the call.
    match unsafe { TVMFFIFunctionSetGlobalFromMethodInfo(&info, overrides) } {
        0 => Ok(Registered { name, function }),
        _ => Err(Error::take_raised()),
    }
}

/// Who has registered a name, as far as is known.
fn maker_of(name: &str) -> String {
    for mapped in super::lease::all() {
        if mapped.owner.lock().registered.1.iter().any(|r| r.name == name) {
            return format!("the library {}", mapped.path.display());
        }
    }
    "the program".to_string()
}

/// Takes global functions away, except those that something else has replaced since; the caller releases them.
pub(super) fn remove(registered: Vec<Registered>) -> Vec<Registered> {
    for Registered { name, function } in &registered {
        let current = registry::find(name);
        if current.is_some_and(|current| current.as_object().ptr_eq(function.as_object())) {
            // A runtime without the function that removes has none that could have been registered.
            let _ = registry::remove(name);
        }
    }
    registered
}
