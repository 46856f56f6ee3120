//! Line of Python code from which the current native call comes, for the record of live objects
//! (the ledger).
//!
//! It is determined only while such a record exists, since finding the line takes longer than most calls. It is found
//! before the call, when arbitrary Python code may run: native code creates objects at times when no Python code may
//! run, and without the GIL.

use std::cell::RefCell;
use std::fmt::Write;

use pyo3_ffi as ffi;

use crate::py::{self, Obj, Own, Raised, Res, names};

thread_local! {
    /// Line of Python code from which the native call in progress on this thread comes; empty
    /// outside calls.
    static PLACE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Runs a native call. During the call, the innermost line of Python code outside this package is
/// stored as the location of the call.
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
    // An exception that is already set belongs to the caller and is preserved.
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

/// Writes to `out` the line of Python code that is currently running, as `file:line in function`.
/// Frames of this package are skipped.
fn find(out: &mut String) -> Res<()> {
    // SAFETY: the GIL is held; the result is a borrowed reference, or NULL if no Python code runs.
    let frame = unsafe { ffi::PyEval_GetFrame() };
    // SAFETY: the pointer is a borrowed reference or NULL; its reference count is incremented before other code runs.
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

/// Returns true if a frame runs code of the package `anyfn`.
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

/// Registers with the runtime a function that reports the location of a call in Python code. If a
/// ledger of live objects exists, also makes this extension record its objects in the ledger.
pub(crate) fn init() {
    // SAFETY: the runtime copies the name and calls the function with the type that it expects under that name.
    if unsafe { anyfn::abi::TVMFFIEnvRegisterCAPI(c"AnyfnPlace".as_ptr(), place as *mut _) } != 0 {
        // This runtime has no ledger.
        drop(anyfn::Error::take_raised());
        return;
    }
    let is_on = anyfn::registry::find("ffi.LedgerIsOn").and_then(|is_on| is_on.call(()).ok());
    if is_on.is_some_and(|is_on| is_on.get::<bool>().unwrap_or(false)) {
        // The ledger is on, so nothing can fail.
        let _ = start();
    }
}

/// Starts the ledger of live objects if necessary, and makes this extension record its objects in the ledger.
pub(crate) fn start() -> anyfn::Result<()> {
    let ledger = anyfn::registry::get("ffi.LedgerStart")?.call(())?.get::<anyfn::OpaquePtr>()?;
    // SAFETY: the result of this function lives as long as the process and begins with its size.
    if let Some(ledger) = unsafe { ledger.as_ptr().cast_const().cast::<anyfn::Ledger>().as_ref() } {
        anyfn::use_ledger(ledger);
    }
    Ok(())
}

/// Writes to `out` the location in Python code of this thread's current native call, shortened to
/// `capacity` bytes, and returns the length of the location. The runtime calls this function when
/// an object is created.
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
