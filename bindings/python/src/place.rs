//! The line of Python code from which native code was called, for the ledger of live objects.
//!
//! Only while there is a ledger, since finding the line takes longer than most calls. It is found before the call, where
//! any Python code may run: native code makes objects at times at which none may, and without the interpreter's lock.

use std::cell::RefCell;
use std::fmt::Write;

use pyo3_ffi as ffi;

use crate::py::{self, Obj, Own, Raised, Res, names};

thread_local! {
    /// Where this thread is; empty outside of calls.
    static PLACE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Runs a call of native code, at the innermost line of Python code that is not this package's.
#[cold]
pub(crate) fn noted<T>(call: impl FnOnce() -> T) -> T {
    struct Restore(String);
    impl Drop for Restore {
        fn drop(&mut self) {
            let before = std::mem::take(&mut self.0);
            let _ = PLACE.try_with(|place| place.replace(before));
        }
    }
    let mut here = String::new();
    // What is set already is not ours.
    let raised = py::take_error();
    if find(&mut here).is_err() {
        py::clear_error();
    }
    if let Some(raised) = raised {
        py::restore_error(raised);
    }
    let before = PLACE.try_with(|place| place.replace(here)).unwrap_or_default();
    let _restore = Restore(before);
    call()
}

/// Writes `file:line in function`.
fn find(out: &mut String) -> Res<()> {
    // SAFETY: the lock is held; a borrowed reference, or NULL if no Python code runs.
    let frame = unsafe { ffi::PyEval_GetFrame() };
    // SAFETY: a borrowed reference or NULL, which is counted before other code runs.
    let frame: Option<Obj<'_>> = unsafe { Obj::from_nullable(frame.cast()) };
    let Some(mut frame) = frame.map(Obj::to_own) else { return Ok(()) };
    while is_of_package(frame.obj())? {
        let outer = frame.obj().attr(names::F_BACK.get())?;
        if outer.obj().is_none() {
            break;
        }
        frame = outer;
    }
    let line = frame.obj().attr(names::F_LINENO.get())?;
    let code = frame.obj().attr(names::F_CODE.get())?;
    let file = text(&code.obj().attr(names::CO_FILENAME.get())?)?;
    let name = text(&code.obj().attr(names::CO_NAME.get())?)?;
    // Writing to a string cannot fail.
    let _ = write!(out, "{file}:{} in {name}", line.obj().int().unwrap_or_default());
    Ok(())
}

/// Whether a frame runs code of the package itself.
fn is_of_package(frame: Obj<'_>) -> Res<bool> {
    let globals = frame.attr(names::F_GLOBALS.get())?;
    let name = py::dict_get(globals.obj(), names::NAME.get());
    Ok(name.is_some_and(|name| text(&name).is_ok_and(|name| name == "anyfn" || name.starts_with("anyfn."))))
}

fn text(object: &Own) -> Res<String> {
    match object.obj().str_bytes() {
        Ok(bytes) => Ok(String::from_utf8_lossy(bytes).into_owned()),
        Err(Raised) => {
            py::clear_error();
            Ok("?".into())
        }
    }
}

/// Gives the runtime what it asks for places, and has this library's objects in the ledger if there is one.
pub(crate) fn init() {
    // SAFETY: the runtime copies the name and calls the function by the type that it has for it.
    if unsafe { anyfn::abi::TVMFFIEnvRegisterCAPI(c"AnyfnPlace".as_ptr(), place as *mut _) } != 0 {
        // A runtime without a ledger.
        drop(anyfn::Error::take_raised());
        return;
    }
    let is_on = anyfn::registry::find("ffi.LedgerIsOn").and_then(|is_on| is_on.call(()).ok());
    if is_on.is_some_and(|is_on| is_on.get::<bool>().unwrap_or(false)) {
        // It is on, so nothing can fail.
        let _ = start();
    }
}

/// Begins a ledger, or joins the one that there is.
pub(crate) fn start() -> anyfn::Result<()> {
    let ledger = anyfn::registry::get("ffi.LedgerStart")?.call(())?.get::<anyfn::OpaquePtr>()?;
    // SAFETY: what this function gives lives as long as the process, and begins with its size.
    if let Some(ledger) = unsafe { ledger.as_ptr().cast_const().cast::<anyfn::Ledger>().as_ref() } {
        anyfn::use_ledger(ledger);
    }
    Ok(())
}

/// What the runtime calls when an object is made: writes the place and gives its length.
unsafe extern "C" fn place(out: *mut u8, capacity: usize) -> usize {
    PLACE
        .try_with(|place| {
            let Ok(place) = place.try_borrow() else { return 0 };
            let length = place.len().min(capacity);
            // SAFETY: the caller has room for `capacity` bytes.
            unsafe { std::ptr::copy_nonoverlapping(place.as_ptr(), out, length) };
            length
        })
        .unwrap_or(0)
}
