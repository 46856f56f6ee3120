//! Turns panics into errors: nothing unwinds across the boundary.

use crate::Error;

#[cfg(feature = "std")]
mod imp {
    use std::cell::RefCell;
    use std::format;
    use std::panic::{self, AssertUnwindSafe};
    use std::string::{String, ToString};
    use std::sync::{Once, OnceLock};

    use crate::Error;

    struct Place {
        file: String,
        line: u32,
    }

    type Hook = std::boxed::Box<dyn Fn(&panic::PanicHookInfo<'_>) + Sync + Send>;

    static PREVIOUS: OnceLock<Hook> = OnceLock::new();

    std::thread_local! {
        static PLACE: RefCell<Option<Place>> = const { RefCell::new(None) };
    }

    /// Makes later panics of this library remember where they happened; the process's own hook still runs.
    pub(crate) fn remember_places() {
        static ONCE: Once = Once::new();
        // The hook cannot be changed while this thread panics; a later call will do it.
        if ONCE.is_completed() || std::thread::panicking() {
            return;
        }
        ONCE.call_once(|| {
            // Beside the hook, whose box then is empty: of a library that is unmapped, nothing frees it.
            PREVIOUS.get_or_init(panic::take_hook);
            panic::set_hook(std::boxed::Box::new(|info| {
                let place = info.location().map(|at| Place { file: at.file().to_string(), line: at.line() });
                // A thread that is ending has no slot any more; then the place is not known.
                let _ = PLACE.try_with(|slot| slot.replace(place));
                if let Some(previous) = PREVIOUS.get() {
                    previous(info);
                }
            }));
        });
    }

    /// Runs `body`; a panic becomes an error with its message and place.
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
        // Dropping a payload may panic again; that must not get out either.
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

    /// Runs `body`; a panic is dropped. For releases, which have nobody to report to; the hook has printed it.
    #[inline]
    pub(crate) fn swallow(body: impl FnOnce()) {
        if let Err(payload) = panic::catch_unwind(AssertUnwindSafe(body)) {
            core::mem::forget(payload);
        }
    }
}

#[cfg(not(feature = "std"))]
mod imp {
    //! Without `std` a panic ends the process (the panic strategy is abort).
    use crate::Error;

    pub(crate) fn remember_places() {}

    #[inline]
    pub(crate) fn catch<T>(body: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        body()
    }

    #[inline]
    pub(crate) fn swallow(body: impl FnOnce()) {
        body();
    }
}

pub(crate) use imp::{catch, remember_places, swallow};

/// Runs the body of an exported function: an error or a panic is raised on this thread and gives -1.
///
/// This is the one trampoline of all functions that Rust code shows to C.
#[inline]
pub(crate) fn trampoline(body: impl FnOnce() -> Result<(), Error>) -> core::ffi::c_int {
    match catch(body) {
        Ok(()) => 0,
        Err(error) => {
            error.raise();
            -1
        }
    }
}
