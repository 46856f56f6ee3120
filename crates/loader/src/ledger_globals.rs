//! Global functions of the ledger, the record of live objects.

use core::ffi::c_void;

use std::sync::Arc;

use anyfn::__private::{FunctionDef, functions};
use anyfn::{Any, Args, Module, OpaquePtr, Result, registry};

use crate::mapped::{Mapped, ledger};
use crate::object::AnyModule;

static FUNCTIONS: &[FunctionDef] = &functions! {
    "ffi.LedgerStart" [] => start_ledger,
    "ffi.LedgerIsOn" [] => ledger::is_on,
    "ffi.LiveHandles" [] => |args: Args<'_>| of_module(args, |mapped| Any::new(ledger::list(mapped)?)),
    "ffi.LiveHandlesText" [] => |args: Args<'_>| of_module(args, |mapped| Any::new(ledger::text(mapped)?)),
};

/// Registers the global functions of the ledger, and starts recording live objects if the
/// environment variable `ANYFN_LEDGER` is set to `1`.
pub(crate) fn register() -> Result<()> {
    registry::register_defs(FUNCTIONS)?;
    ledger::start_if_asked();
    Ok(())
}

/// Starts the ledger, that is, the recording of live objects, and returns the address of the
/// ledger.
fn start_ledger() -> OpaquePtr {
    let ledger = core::ptr::from_ref(ledger::start()).cast_mut().cast::<c_void>();
    // SAFETY: a ledger is never freed, and only frontends of this project know what the pointer is.
    unsafe { OpaquePtr::from_ptr(ledger) }
}

/// Calls `body` with the library of the module in `args`, or with `None` if `args` is empty. Returns an error
/// if the module has no library file.
fn of_module(args: Args<'_>, body: impl FnOnce(Option<&Arc<Mapped>>) -> Result<Any>) -> Result<Any> {
    let module = if args.is_empty() { None } else { args.get::<Option<Module>>(0)? };
    let Some(module) = module else { return body(None) };
    let own = AnyModule::try_from(&module)?;
    #[cfg(feature = "watch")]
    let own = AnyModule::try_from(&crate::watch::newest(&own)?)?;
    match own.mapped() {
        Some(mapped) => body(Some(mapped)),
        None => anyfn::bail!("RuntimeError", "the module was not loaded from a library file"),
    }
}
