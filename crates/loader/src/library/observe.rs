//! Passes the observer, which the profiler sets to record calls, to all libraries that contain the crate
//! `anyfn`; see `anyfn::observe`.

use core::ffi::{CStr, c_void};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicPtr, Ordering};

use std::string::String as StdString;

use anyfn::__private::{FunctionDef, functions, name_in_signature};
#[cfg(feature = "observe")]
use anyfn::Unsafe;
use anyfn::observe::Observer;
use anyfn::{OpaquePtr, PackedFunc, Result, String};

use anyfn_core::loader::{self, Mutex};

use super::function;
use crate::dl;
use crate::mapped::{Mapped, lease};

type ObserverSlot = &'static AtomicPtr<Observer>;

struct Observers {
    observer: *mut Observer,
    /// Variables from which frontends read the address of the observer. They remain valid, because
    /// frontends are never unloaded.
    frontends: Vec<ObserverSlot>,
}

// SAFETY: an observer is never freed and may be called from any thread.
unsafe impl Send for Observers {}

static STATE: Mutex<Observers> =
    Mutex::new(Observers { observer: core::ptr::null_mut(), frontends: Vec::new() });

/// Sets the observer of calls in the runtime, in all frontends and in all mapped libraries. NULL removes it.
fn set(observer: OpaquePtr) {
    static SETTING: Mutex<()> = Mutex::new(());
    let _setting = SETTING.lock();
    let observer = observer.as_ptr().cast();
    {
        let mut state = STATE.lock();
        state.observer = observer;
        // SAFETY: callers of `ffi.ObserveCalls` promise NULL or an observer that is never freed.
        let own = unsafe { anyfn::observe::place() };
        let places = state.frontends.iter().copied().chain([own]);
        places.for_each(|place| place.store(observer, Ordering::Release));
        loader::watch_calls(!observer.is_null());
    }
    // A library that is not in the list yet receives the observer from its loader.
    lease::all().iter().for_each(|mapped| write(mapped, observer));
}

/// Passes the observer to a library that was loaded just now, if an observer is set.
pub(crate) fn tell(mapped: &Mapped) {
    if !cfg!(feature = "observe") {
        return;
    }
    let state = STATE.lock();
    if !state.observer.is_null() {
        write(mapped, state.observer);
    }
}

fn write(mapped: &Mapped, observer: *mut Observer) {
    const NAME: &CStr = c"__anyfn_observer_place";
    let Some(symbol) = mapped.own_symbol(NAME) else { return };
    type GetPlace = extern "C" fn() -> *mut c_void;
    // SAFETY: the symbol of this name is this function.
    let place = unsafe { core::mem::transmute::<NonNull<c_void>, GetPlace>(symbol) }();
    // SAFETY: the function returns a static variable of the library, which is mapped as long as the caller holds it.
    unsafe { AtomicPtr::from_ptr(place.cast::<*mut Observer>()) }.store(observer, Ordering::Release);
}

/// The global functions that set the observer and connect a frontend to it.
#[cfg(feature = "observe")]
pub(crate) static OBSERVERS: &[FunctionDef] = &functions! {
    "ffi.ObserveCalls" [] => Unsafe(set),
    "ffi.ObserverPlace" [] => Unsafe(add_frontend),
};

/// The global function that returns the name of a function.
pub(crate) static FUNCTIONS: &[FunctionDef] = &functions! {
    "ffi.FunctionName" [] => name,
};

/// Adds the variable `place`, in which a frontend expects the address of the observer. `place` must
/// be the address of a static variable.
fn add_frontend(place: OpaquePtr) -> Result<()> {
    if place.is_null() {
        anyfn::bail!("ValueError", "ffi.ObserverPlace: argument `place` is NULL");
    }
    // SAFETY: a frontend passes the address of a static variable, and it is never unloaded.
    let place: ObserverSlot = unsafe { AtomicPtr::from_ptr(place.as_ptr().cast::<*mut Observer>()) };
    let mut state = STATE.lock();
    place.store(state.observer, Ordering::Release);
    state.frontends.push(place);
    Ok(())
}

/// Returns the name of a function. This is the name under which it is registered globally, the symbol of its
/// code in a library, or the name that its creator has given to it, in this order of preference.
fn name(function: PackedFunc) -> Option<String> {
    if let Some(name) = loader::name_of_function(function.as_object()) {
        return Some(String::from(&*StdString::from_utf8_lossy(name)));
    }
    let symbol = function::symbol_of(&function).and_then(dl::nearest_symbol);
    if let Some((symbol, 0)) = symbol {
        return Some(String::from(symbol.strip_prefix("__tvm_ffi_").unwrap_or(&symbol)));
    }
    if let Some(name) = loader::function_name(function.as_object()) {
        return Some(String::from(&*name));
    }
    name_in_signature(&function.signature()?).map(String::from)
}
