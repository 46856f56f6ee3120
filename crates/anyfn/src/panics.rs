//! Converts panics into errors, so that no panic unwinds across the C boundary.

use crate::Error;

#[cfg(feature = "std")]
mod imp {
    use std::cell::RefCell;
    use std::format;
    use std::panic::{self, AssertUnwindSafe};
    use std::string::{String, ToString};
    use std::sync::{Once, OnceLock};

    use crate::Error;

    struct SourceLocation {
        file: String,
        line: u32,
    }

    type Hook = std::boxed::Box<dyn Fn(&panic::PanicHookInfo<'_>) + Sync + Send>;

    static PREVIOUS: OnceLock<Hook> = OnceLock::new();

    std::thread_local! {
        static PLACE: RefCell<Option<SourceLocation>> = const { RefCell::new(None) };
    }

    /// Installs a panic hook that records the source location of each panic, so that the error for the panic
    /// contains it.
    ///
    /// A panic in a function that is called from any language becomes an error of the kind `InternalError`. Its location
    /// is known only to a panic hook, which belongs to the whole program. Therefore no hook is installed unless the program
    /// calls this function, usually at the beginning of `main`. The hook records the location and then runs the hook that
    /// was installed before. Further calls have no effect.
    ///
    /// A library with [`export!`](crate::export) does not call this function. It has its own copy of the standard library,
    /// and the hook is installed there when it is loaded, so it runs only for panics of that library.
    ///
    /// ```
    /// # use anyfn_core as _;
    /// let function = anyfn::TypedPackedFunc::from_fn(|| -> i64 { panic!("no result") });
    /// assert_eq!(function.call().unwrap_err().message(), "panic: no result");
    ///
    /// anyfn::record_panic_locations();
    /// let error = function.call().unwrap_err();
    /// assert!(error.message().starts_with("panic: no result ("), "{error}");
    /// ```
    ///
    /// Without the feature `std`, a panic ends the process, and this function has no effect.
    pub fn record_panic_locations() {
        static ONCE: Once = Once::new();
        // The hook cannot be changed while this thread panics; a later call installs it.
        if ONCE.is_completed() || std::thread::panicking() {
            return;
        }
        ONCE.call_once(|| {
            // The previous hook is stored outside the new hook, whose box is therefore empty: when the library is
            // unmapped, nothing frees it.
            PREVIOUS.get_or_init(panic::take_hook);
            panic::set_hook(std::boxed::Box::new(|info| {
                let place =
                    info.location().map(|at| SourceLocation { file: at.file().to_string(), line: at.line() });
                // A thread that is ending has no slot any more; the location is then unknown.
                let _ = PLACE.try_with(|slot| slot.replace(place));
                if let Some(previous) = PREVIOUS.get() {
                    previous(info);
                }
            }));
        });
    }

    /// Runs `body`. A panic becomes an error with the panic's message and, if recorded, its source location.
    #[inline]
    pub(crate) fn catch<T>(body: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        match panic::catch_unwind(AssertUnwindSafe(body)) {
            Ok(result) => result,
            Err(payload) => Err(to_error(payload)),
        }
    }

    #[cold]
    fn to_error(payload: std::boxed::Box<dyn std::any::Any + Send>) -> Error {
        let message = match payload.downcast_ref::<&'static str>() {
            Some(text) => (*text).to_string(),
            None => match payload.downcast_ref::<String>() {
                Some(text) => text.clone(),
                None => "a panic without a message".to_string(),
            },
        };
        // Dropping the payload may panic again, which must not propagate either.
        swallow(move || drop(payload));
        match PLACE.try_with(|slot| slot.take()).ok().flatten() {
            Some(place) => Error::with_place(
                "InternalError",
                &format!("panic: {message} ({}:{})", place.file, place.line),
                &place.file,
                place.line,
            ),
            None => Error::with_place("InternalError", &format!("panic: {message}"), "<unknown>", 0),
        }
    }

    /// Runs `body` and ignores a panic. This is for releases, which have no caller to which an error could be
    /// returned. The panic hook has already printed the panic.
    #[inline]
    pub(crate) fn swallow(body: impl FnOnce()) {
        if let Err(payload) = panic::catch_unwind(AssertUnwindSafe(body)) {
            core::mem::forget(payload);
        }
    }
}

#[cfg(not(feature = "std"))]
mod imp {
    //! Implementation without `std`, where a panic aborts the process.
    use crate::Error;

    /// Does nothing, because a panic ends the process without the feature `std`.
    pub fn record_panic_locations() {}

    #[inline]
    pub(crate) fn catch<T>(body: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        body()
    }

    #[inline]
    pub(crate) fn swallow(body: impl FnOnce()) {
        body();
    }
}

pub use imp::record_panic_locations;
pub(crate) use imp::{catch, swallow};

/// Runs the body of a function that C code calls. Returns 0 on success. If `body` fails or panics, raises an
/// error on this thread and returns -1.
///
/// This is the trampoline of all functions that Rust code provides to C.
#[inline]
pub(crate) fn trampoline(body: impl FnOnce() -> Result<(), Error>) -> core::ffi::c_int {
    match catch(body) {
        Ok(()) => 0,
        Err(error) => raise(error),
    }
}

/// Raises the error on this thread. Returns -1, the result of a C function that has raised an error.
#[cold]
#[inline(never)]
fn raise(error: Error) -> core::ffi::c_int {
    error.raise();
    -1
}
