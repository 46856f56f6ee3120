//! The registry: global functions by name.
//!
//! It is the [`function_table`](crate::function_table), in which the functions of the runtime itself are registered at
//! the first use.

use alloc::format;

use anyfn::{ObjectRef, Result};

use crate::function_table::{self, Description, Replaces};
use crate::sync::Start;
use crate::{drop_in, globals, startup, sys, type_table};

static START: Start = Start::new();

/// Runs the steps of [`startup`]. Then registers the functions of the runtime itself, and the functions and types that
/// `#[register]` and `#[derive(Object)]` have collected in the library that contains the runtime.
fn register_own() {
    startup::STEPS.iter().for_each(|step| step());
    let registered = anyfn::__private::catch(globals::register).and_then(|()| {
        anyfn::__private::REGISTRATIONS.iter().try_for_each(|entry| {
            anyfn::__private::catch(|| anyfn::registry::register_all(core::slice::from_ref(entry)))
        })
    });
    if let Err(error) = registered {
        sys::warn(&format!("cannot register a function: {error}"));
    }
    // A type that cannot be registered causes an error where it is used.
    let _ = anyfn::__private::define_types(false);
    if cfg!(feature = "cpp") {
        type_table::end_own();
    }
}

/// Registers the functions and types of the runtime itself, if that has not happened yet.
pub(crate) fn start() {
    START.ensure(register_own);
}

/// Returns a new reference to the function that is registered under `name`. Takes no lock. The functions of device drivers are in a
/// library that the first look-up of one of them opens.
#[inline]
pub fn get(name: &[u8]) -> Option<ObjectRef> {
    START.ensure(register_own);
    let found = function_table::get(name);
    #[cfg(feature = "drivers")]
    if found.is_none() {
        return get_provided(name);
    }
    found
}

/// Looks up a function that is not registered yet.
#[cfg(feature = "drivers")]
#[cold]
fn get_provided(name: &[u8]) -> Option<ObjectRef> {
    if crate::libraries::provide(name) { function_table::get(name) } else { None }
}

/// Registers a function under `name`. If the name is taken, replaces the function if `overrides` is true, and
/// otherwise returns an error.
///
/// If this library stands in for the peer's, a function of this runtime is also replaced without `overrides`, unless its
/// name begins with `ffi.`: the libraries of Apache TVM register some of these names, such as `runtime.GetDeviceAttr`.
pub(crate) fn set(
    name: &[u8],
    function: ObjectRef,
    description: Description<'_>,
    overrides: bool,
) -> Result<()> {
    START.ensure(register_own);
    let gives_way = || !name.starts_with(b"ffi.") && drop_in::is_active();
    let replaces = match overrides {
        true => Replaces::Any,
        false if START.is_done() && gives_way() => Replaces::Own,
        false => Replaces::None,
    };
    function_table::set(name, function, description, replaces, !START.is_done())
}

/// Returns the name under which a function is registered. If it has several names, returns the one whose first
/// registration is the oldest.
pub fn name_of(function: &ObjectRef) -> Option<&'static [u8]> {
    START.ensure(register_own);
    function_table::name_of(function)
}
